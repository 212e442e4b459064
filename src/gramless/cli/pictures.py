"""`gramless train FOLDER`, `predict MODEL PICTURE` and `evaluate MODEL FOLDER`: pictures in one subfolder per class.

All pictures are resized to the most common size, which is first reduced in proportion if one of its sides has more than
`LONGEST_SIDE` pixels. They are converted to grey if all training pictures are grey.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from sklearn.base import BaseEstimator

import gramless
from gramless import ImageClassifier
from gramless._core.threads import slices
from gramless._version import __version__
from gramless.cli.errors import PICTURE_EXTENSIONS, InputError, check_writable, is_stream
from gramless.cli.model import check_known_labels, load_any
from gramless.cli.model_card import print_sections, score_sections
from gramless.cli.options import TrainSettings
from gramless.cli.predict import Evaluated, Predicted, quiet_pipe, report_predictions, rows_written, warn_trained_on
from gramless.cli.scores import constant_prediction, probability_scores, score
from gramless.cli.splits import hold_out
from gramless.cli.table_files import output_format
from gramless.cli.train import Trained

LONGEST_SIDE = 64
_GREY = ("1", "L", "I", "I;16", "F", "LA")
BATCH_PICTURES = 1000


class PictureModel(BaseEstimator):
    """Fitted image classifier with the width and height of its images; `about` describes the training in plain JSON."""

    def __init__(self, classifier: ImageClassifier, size: list[int], grey: bool, about: dict[str, Any]):
        self.classifier = classifier
        self.size = size
        self.grey = grey
        self.about = about

    def batches(self, paths: list[Path], size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the numbers of the readable pictures and their pixels in batches, resized and converted as in training."""
        for part in slices(len(paths), size):
            kept, images = _stacked(_images(paths[part], (self.size[0], self.size[1]), self.grey))
            if len(kept):
                yield kept + part.start, images


def train_pictures(settings: TrainSettings, console: Console) -> Trained:
    """Train a model on a folder with one subfolder per class, score it on held-out pictures and save it."""
    folder, out, C = settings.data, settings.out, settings.C
    paths, labels = _labelled(folder, at_least=2)
    size, grey = _common_form(paths)
    kept, images = _read(paths, size, grey, console)
    y = np.array(labels)[kept]
    rows, test_rows = hold_out(y, {}, "classification", settings.test_size, settings.seed)
    classifier = ImageClassifier(
        C="auto" if C is None else C,
        device=settings.device,
        memory_budget=settings.memory_budget,
        random_state=settings.seed,
    )
    started = time.perf_counter()
    try:
        classifier.fit(images[rows], y[rows])
    except ValueError as reason:
        raise InputError(f"{folder}: {reason}") from reason
    seconds = time.perf_counter() - started
    constant = constant_prediction(y[rows], "classification")
    predicted = classifier.predict(images[test_rows])
    scores = score(y[test_rows], predicted, task="classification", guess=constant["guess"])
    about = {
        "gramless": __version__,
        "data": folder.name,
        "pictures_sha256": _digest(hashlib.sha256(), y, images).hexdigest(),
        "task": "classification",
        "rows": {"train": len(rows), "held_out": len(test_rows)},
        "size": list(size),
        "grey": grey,
        "classes": classifier.classes_.tolist(),
        "estimator": "ImageClassifier",
        "settings": dict(classifier.chosen_),
        "fit_seconds": seconds,
        "scores": [one.as_json() for one in scores],
    }
    trained = Trained(out, PictureModel(classifier, list(size), grey, about), scores)
    gramless.save(trained.model, out)
    console.print(
        f"[bold]ImageClassifier[/bold] for {len(classifier.classes_)} classes of {'grey' if grey else 'colour'} pictures, "
        f"{size[0]} x {size[1]} pixels\n"
        f"  {len(rows):,} training pictures, fitted in {seconds:.1f} s; {len(test_rows):,} held-out pictures"
    )
    print_sections(console, score_sections(about["scores"], None, "held-out pictures"))
    console.print(f"Model  [bold]{escape(str(out))}[/bold]")
    return trained


def predict_pictures(
    model_path: Path, data: Path, *, proba: bool, out: Path | None, batch: int = BATCH_PICTURES, console: Console
) -> Predicted:
    """Write the path and the predicted class of a picture, or of all pictures in a folder and its subfolders."""
    model = _load(model_path)
    paths = _pictures(data) if os.path.isdir(data) else [data]
    if not paths:
        raise InputError(f"{data} has no pictures; known file extensions are {', '.join(PICTURE_EXTENSIONS)}")
    if out is not None and not is_stream(out):
        check_writable(out, model_path, *paths)
    output_format(out)
    predicted = 0
    with rows_written(out) as write, quiet_pipe():
        for kept, images in model.batches(paths, batch):
            columns = {"picture": [str(paths[k]) for k in kept], "prediction": model.classifier.predict(images)}
            frame = pd.DataFrame(columns)
            names = [f"p({label})" for label in model.classifier.classes_] if proba else []
            if proba:
                frame[names] = model.classifier.predict_proba(images)
            write(frame, names)
            predicted += len(kept)
    return report_predictions(Predicted(predicted, out, {}), "pictures", console)


def evaluate_pictures(model_path: Path, folder: Path, *, batch: int = BATCH_PICTURES, console: Console) -> Evaluated:
    """Score a saved model on a folder with one subfolder per class, in batches."""
    if not os.path.isdir(folder):
        raise InputError(f"{folder} is not a folder: give a folder with one subfolder of pictures for each class")
    model = _load(model_path)
    paths, labels = _labelled(folder, at_least=1)
    classes, digest = model.classifier.classes_, hashlib.sha256()
    y, known = np.array(labels), list[np.ndarray]()
    check_known_labels(y, classes, f"subfolder of {folder}", "the folder")
    predicted, probabilities = [], []
    parts = model.batches(paths, batch)
    total = -(-len(paths) // batch)
    for kept, images in track(
        parts, "scoring", total=total, console=console, transient=True, disable=not console.is_terminal
    ):
        known.append(kept)
        _digest(digest, y[kept], images)
        predicted.append(model.classifier.predict(images))
        probabilities.append(model.classifier.predict_proba(images))
    y = y[np.concatenate(known)]
    shares = np.bincount(model.classifier.estimator_.calibration_codes_, minlength=len(classes)).astype(np.float64)
    shares /= shares.sum()
    scores = score(y, np.concatenate(predicted), task="classification", guess=classes[shares.argmax()])
    scores += probability_scores(y, classes, np.concatenate(probabilities), shares)
    trained_on = digest.hexdigest() == model.about.get("pictures_sha256")
    if trained_on:
        warn_trained_on(folder, "folder", "pictures", console)
    unknown = int(np.sum(~np.isin(y, classes)))
    if unknown:
        console.print(
            f"[yellow]{unknown:,} pictures are of classes that are not classes of the model[/yellow]: they count as errors"
        )
    evaluated = Evaluated(len(y), scores, trained_on)
    evaluated.show(console, f"{len(y):,} pictures of {folder.name}")
    return evaluated


def _digest(digest: Any, labels: np.ndarray, images: np.ndarray) -> Any:
    """Update a checksum with pictures and their classes; it does not depend on the names of the files."""
    for label, image in zip(labels, images, strict=True):
        digest.update(f"{label}\0".encode())
        digest.update(np.ascontiguousarray(image))
    return digest


def _load(path: Path) -> PictureModel:
    model = load_any(path)
    if not isinstance(model, PictureModel):
        raise InputError(f"{path} is not a model for pictures: train one with `gramless train FOLDER`")
    return model


def _pictures(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in PICTURE_EXTENSIONS and path.is_file())


def _labelled(folder: Path, *, at_least: int) -> tuple[list[Path], list[str]]:
    """Return the paths of all pictures and their classes, which are the names of the subfolders."""
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
        # `_images` warns of pictures that cannot be opened.
        with contextlib.suppress(InputError), _opened(path) as picture:
            sizes[picture.size] += 1
            grey = grey and picture.mode in _GREY
    if not sizes:
        raise InputError(f"none of the {len(paths)} pictures can be read; the first one is {paths[0]}")
    (width, height), _ = sizes.most_common(1)[0]
    factor = min(1.0, LONGEST_SIDE / max(width, height))
    return (max(1, round(width * factor)), max(1, round(height * factor))), grey


def _read(paths: list[Path], size: tuple[int, int], grey: bool, console: Console) -> tuple[np.ndarray, np.ndarray]:
    read = _images(paths, size, grey)
    return _stacked(track(read, "reading", len(paths), console=console, transient=True, disable=not console.is_terminal))


def _stacked(pictures: Iterable[tuple[int, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the pictures, and their pixels as one array."""
    found = list(pictures)
    return np.array([number for number, _ in found], dtype=int), np.stack([p for _, p in found]) if found else np.empty(0)


def _images(paths: list[Path], size: tuple[int, int], grey: bool) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the number and the pixels of each picture, as bytes of one shape; warn of unreadable ones among several."""
    for number, path in enumerate(paths):
        try:
            yield number, _pixels(path, size, grey)
        except InputError as reason:
            if len(paths) == 1:
                raise
            warnings.warn(f"{reason}; it is left out", stacklevel=2)


def _pixels(path: Path, size: tuple[int, int], grey: bool) -> np.ndarray:
    from PIL import Image

    with _opened(path) as picture:
        try:
            plain = picture.convert("L" if grey else "RGB")
        except (OSError, SyntaxError, ValueError) as reason:
            raise InputError(f"{path} is an incomplete picture: {reason}") from reason
    return np.asarray(plain if plain.size == size else plain.resize(size, Image.Resampling.LANCZOS))


def _opened(path: Path) -> Any:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as reason:
        raise InputError("pictures are read by Pillow: pip install 'gramless[cli]'") from reason
    try:
        return Image.open(path)
    except FileNotFoundError as reason:
        raise InputError(f"there is no picture {path}") from reason
    except (UnidentifiedImageError, OSError) as reason:
        raise InputError(f"{path} cannot be read as a picture: {reason}") from reason
