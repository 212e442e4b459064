"""`gramless train`, `predict` and `evaluate` for folders of pictures, which have one subfolder per class.

All pictures are resized to the most common size of the training pictures, scaled down if one of its sides has more than
`LONGEST_SIDE` pixels. All pictures are converted to grey if all training pictures are grey.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape

import gramless
from gramless import ImageClassifier
from gramless._core.threads import slices
from gramless._version import __version__
from gramless.cli.card import print_summary
from gramless.cli.display import StepDisplay
from gramless.cli.errors import PICTURE_EXTENSIONS, InputError, input_errors, require
from gramless.cli.model import Batch, SavedModel
from gramless.cli.options import TrainSettings
from gramless.cli.training_table import hold_out

LONGEST_SIDE = 64
_GREY = ("1", "L", "I", "I;16", "F", "LA")


@dataclass(eq=False, repr=False)
class PictureModel(SavedModel):
    """Fitted image classifier with the width and height of its images; `about` describes the training in plain JSON."""

    source, unit, batch_size = "folder", "pictures", 1000
    task = "classification"
    target = "name of the subfolder"

    classifier: ImageClassifier
    size: list[int]
    grey: bool
    about: dict[str, Any]

    @property
    def predictor(self) -> ImageClassifier:
        """Fitted classifier of images."""
        return self.classifier

    @property
    def class_shares(self) -> np.ndarray:
        """Relative frequencies of the classes in the training pictures."""
        codes = self.classifier.estimator_.calibration_codes_
        return np.bincount(codes, minlength=len(self.classes_)) / len(codes)

    def read(self, data: Path, target: str | None, size: int | None) -> Iterator[Batch]:
        """Yield batches of the readable pictures, resized and converted as in training, their labels if any, and paths."""
        if target is not None:
            paths, labels = _labelled(data, at_least=1)
        else:
            paths, labels = _pictures(data) if os.path.isdir(data) else [data], []
        if not paths:
            raise InputError(f"{data} has no pictures; known file extensions are {', '.join(PICTURE_EXTENSIONS)}")
        for part in slices(len(paths), size or len(paths)):
            kept, images = _images(paths[part], (self.size[0], self.size[1]), self.grey)
            if len(kept):
                chosen = [part.start + number for number in kept]
                shown = pd.DataFrame({"picture": [str(paths[k]) for k in chosen]})
                yield images, np.array([labels[k] for k in chosen]) if labels else None, shown

    def describe_inputs(self) -> str:
        """Return a phrase for the model card with the color mode and the size of the pictures."""
        return f"{'grey' if self.grey else 'colour'} pictures, {self.size[0]} x {self.size[1]} pixels"

    def was_trained_on(self, data: Path) -> bool:
        """Return True if the model was trained on the pictures in the folder `data`, independent of their file names."""
        return _checksum(*_labelled(data, at_least=1)) == self.about.get("files_sha256")


def train_pictures(settings: TrainSettings, console: Console) -> PictureModel:
    """Train a model on a folder with one subfolder per class, score it on held-out pictures and save it."""
    folder, out = settings.data, settings.out
    paths, labels = _labelled(folder, at_least=2)
    size, grey = _common_form(paths)
    with StepDisplay(console) as notify:
        notify(f"reading {len(paths):,} pictures")
        kept, images = _images(paths, size, grey)
        y = np.array(labels)[kept]
        rows, test_rows = hold_out(y, {}, "classification", settings.test_size, settings.seed)
        classifier = ImageClassifier(
            C="auto" if settings.C is None else settings.C,
            device=settings.device,
            memory_budget=settings.memory_budget,
            random_state=settings.seed,
        )
        notify(f"fitting {len(rows):,} pictures")
        started = time.perf_counter()
        with input_errors(f"{folder}: "):
            classifier.fit(images[rows], y[rows])
        seconds = time.perf_counter() - started
    about = {
        "gramless": __version__,
        "data": folder.name,
        "files_sha256": _checksum(paths, labels),
        "task": "classification",
        "rows": {"train": len(rows), "held_out": len(test_rows)},
        "size": list(size),
        "grey": grey,
        "classes": classifier.classes_.tolist(),
        "estimator": "ImageClassifier",
        "settings": dict(classifier.chosen_),
        "fit_seconds": seconds,
    }
    model = PictureModel(classifier, list(size), grey, about)
    about["scores"] = [one.as_json() for one in model.scored([(images[test_rows], y[test_rows])]).scores]
    gramless.save(model, out)
    print_summary(console, model)
    console.print(f"Model  [bold]{escape(str(out))}[/bold]")
    return model


def _checksum(paths: list[Path], labels: list[str]) -> str:
    """Return a checksum of the contents of picture files and of the classes of the pictures."""
    digest = hashlib.sha256()
    for path, label in zip(paths, labels, strict=True):
        digest.update(f"{label}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _pictures(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in PICTURE_EXTENSIONS and path.is_file())


def _labelled(folder: Path, *, at_least: int) -> tuple[list[Path], list[str]]:
    """Return the paths of all pictures and their classes, which are the names of the subfolders."""
    if not os.path.isdir(folder):
        raise InputError(f"{folder} is not a folder: give a folder with one subfolder of pictures for each class")
    paths, labels = [], []
    for inside in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        found = _pictures(inside)
        paths += found
        labels += [inside.name] * len(found)
    count = len(set(labels))
    if count < at_least:
        required = "two classes or more" if at_least == 2 else "the classes"
        raise InputError(
            f"{folder} must have a subfolder with pictures for each of {required}; "
            f"there {'is' if count == 1 else 'are'} {count} (known file extensions: {', '.join(PICTURE_EXTENSIONS)})"
        )
    return paths, labels


def _common_form(paths: list[Path]) -> tuple[tuple[int, int], bool]:
    """Return the size to which pictures are resized, and whether all pictures are grey."""
    sizes: Counter[tuple[int, int]] = Counter()
    grey = True
    for path in paths:
        # Pictures that cannot be opened are skipped here; `_images` prints a warning for each of them.
        with contextlib.suppress(InputError), _opened(path) as picture:
            sizes[picture.size] += 1
            grey = grey and picture.mode in _GREY
    if not sizes:
        raise InputError(f"none of the {len(paths)} pictures can be read; the first one is {paths[0]}")
    (width, height), _ = sizes.most_common(1)[0]
    factor = min(1.0, LONGEST_SIDE / max(width, height))
    return (max(1, round(width * factor)), max(1, round(height * factor))), grey


def _images(paths: list[Path], size: tuple[int, int], grey: bool) -> tuple[list[int], np.ndarray]:
    """Return indices and 8-bit pixels of the readable pictures; warn of others, or raise `InputError` for a single path."""
    found = {}
    for number, path in enumerate(paths):
        try:
            found[number] = _pixels(path, size, grey)
        except InputError as reason:
            if len(paths) == 1:
                raise
            warnings.warn(f"{reason}; it is left out", stacklevel=2)
    return list(found), np.stack(list(found.values())) if found else np.empty(0)


def _pixels(path: Path, size: tuple[int, int], grey: bool) -> np.ndarray:
    from PIL import Image

    with _opened(path) as picture, input_errors(f"{path} is an incomplete picture: ", OSError, SyntaxError):
        plain = picture.convert("L" if grey else "RGB")
    return np.asarray(plain if plain.size == size else plain.resize(size, Image.Resampling.LANCZOS))


def _opened(path: Path) -> Any:
    require("PIL", extra="cli")
    from PIL import Image

    with input_errors(f"{path} cannot be read as a picture: ", OSError):
        return Image.open(path)
