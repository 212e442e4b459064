"""`gramless train FOLDER` and `gramless predict MODEL PICTURE`: pictures in one folder for each class, and a model of them.

All pictures are brought to one size, the most common one, or a smaller one of the same proportions where that has more than
`LONGEST_SIDE` pixels along a side; they are grey where all of the training pictures are.
"""

from __future__ import annotations

import csv
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split

import gramless
from gramless import ImageClassifier
from gramless._version import __version__
from gramless.program.errors import InputError, check_writable
from gramless.program.formats import ENDINGS
from gramless.program.predict import Predicted, quiet_pipe, takes_a_stream, written
from gramless.program.scores import Score, score, score_table

LONGEST_SIDE = 64
_GREY = ("1", "L", "I", "I;16", "F", "LA")
_BATCH = 1000


class PictureModel(BaseEstimator):
    """A fitted classifier of images, and the size that pictures are brought to.

    Parameters
    ----------
    classifier : ImageClassifier
        Fitted.
    size : list of int
        Width and height.
    grey : bool
        Whether pictures are read without their colours.
    about : dict
        How it was made, in plain JSON.
    """

    def __init__(self, classifier: ImageClassifier, size: list[int], grey: bool, about: dict[str, Any]):
        self.classifier = classifier
        self.size = size
        self.grey = grey
        self.about = about


@dataclass(frozen=True)
class TrainedOnPictures:
    """A saved model and how good it is."""

    out: Path
    model: PictureModel
    scores: list[Score]

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"model": str(self.out), **self.model.about}


def train_pictures(
    folder: Path,
    out: Path,
    *,
    C: float | None = None,
    test_size: float = 0.2,
    seed: int = 0,
    device: str | None = None,
    memory_budget: str | None = None,
    console: Console,
) -> TrainedOnPictures:
    """Read a folder with one subfolder for each class, fit, score on held-out pictures, save."""
    if not 0 < test_size < 1:
        raise InputError(f"the held-out share must lie between 0 and 1, not {test_size}")
    if C is not None and not 0 < C < np.inf:
        raise InputError(f"C must be a positive number, not {C:g}")
    check_writable(out)
    paths, labels = _labelled(folder)
    size, grey = _common_form(paths)
    images = _read(paths, size, grey, console)
    y = np.array(labels)
    rare = [label for label, count in Counter(labels).items() if count < 2]
    held_out = max(1, round(test_size * len(y)))
    classes = len(set(labels))
    try:
        X_train, X_test, y_train, y_test = train_test_split(
            images, y, test_size=held_out, random_state=seed, stratify=y if not rare and held_out >= classes else None
        )
    except ValueError as reason:
        raise InputError(f"{folder} has too few pictures to hold some out: {reason}") from reason
    classifier = ImageClassifier(
        C="auto" if C is None else C, device=device, memory_budget=memory_budget, random_state=seed, verbose=0
    )
    started = time.perf_counter()
    try:
        classifier.fit(X_train, y_train)
    except ValueError as reason:
        raise InputError(f"{folder}: {reason}") from reason
    seconds = time.perf_counter() - started
    guess = Counter(y_train.tolist()).most_common(1)[0][0]
    scores = score(y_test, classifier.predict(X_test), task="classification", guess=guess)
    about = {
        "gramless": __version__,
        "data": folder.name,
        "task": "classification",
        "rows": {"train": len(y_train), "held_out": len(y_test)},
        "size": list(size),
        "grey": grey,
        "classes": classifier.classes_.tolist(),
        "estimator": "ImageClassifier",
        "settings": dict(classifier.chosen_),
        "fit_seconds": seconds,
        "scores": [one.as_json() for one in scores],
    }
    trained = TrainedOnPictures(out, PictureModel(classifier, list(size), grey, about), scores)
    gramless.save(trained.model, out)
    console.print(
        f"[bold]ImageClassifier[/bold] for {classes} classes of {'grey' if grey else 'colour'} pictures, "
        f"{size[0]} x {size[1]} pixels\n"
        f"  {len(y_train):,} pictures to learn from, fitted in {seconds:.1f} s; {len(y_test):,} held out to score",
        highlight=False,
        soft_wrap=True,
    )
    console.print(score_table(scores, ""))
    console.print(f"Model  [bold]{escape(str(out))}[/bold]", highlight=False, soft_wrap=True)
    return trained


def predict_pictures(model_path: Path, data: Path, *, proba: bool, out: Path | None, console: Console) -> Predicted:
    """Write one line for a picture, or for each picture in a folder and its subfolders: its path and its class."""
    out = None if out == Path("-") else out
    model = _load(model_path)
    paths = _pictures(data) if os.path.isdir(data) else [data]
    if not paths:
        raise InputError(f"{data} holds no pictures; known endings: {', '.join(ENDINGS)}")
    if out is not None and not takes_a_stream(out):
        check_writable(out, model_path, *paths)
    classes = model.classifier.classes_
    batches = (paths[i : i + _BATCH] for i in range(0, len(paths), _BATCH))
    with written(out) as file, quiet_pipe():
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["picture", "prediction", *((f"p({label})" for label in classes) if proba else ())])
        for batch in batches:
            images = np.stack(list(_images(batch, (model.size[0], model.size[1]), model.grey)))
            labels = model.classifier.predict(images)
            chances: Iterable[Any] = model.classifier.predict_proba(images) if proba else [()] * len(labels)
            for path, label, row in zip(batch, labels, chances, strict=True):
                writer.writerow([path, label, *(f"{chance:.6g}" for chance in row)])
    return Predicted(len(paths), out, {})


def _load(path: Path) -> PictureModel:
    try:
        model = gramless.load(path)
    except (FileNotFoundError, IsADirectoryError, ValueError) as reason:
        raise InputError(str(reason)) from reason
    if not isinstance(model, PictureModel):
        raise InputError(f"{path} holds a model of something else: one for pictures comes from `gramless train FOLDER`")
    return model


def _pictures(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())


def _labelled(folder: Path) -> tuple[list[Path], list[str]]:
    """Every picture and its class, the name of the subfolder it is in."""
    paths, labels = [], []
    for inside in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        found = _pictures(inside)
        paths += found
        labels += [inside.name] * len(found)
    if len(set(labels)) < 2:
        raise InputError(
            f"{folder} must have a subfolder with pictures for each of two classes or more; there "
            f"{'is' if len(set(labels)) == 1 else 'are'} {len(set(labels))} (known endings: {', '.join(ENDINGS)})"
        )
    return paths, labels


def _common_form(paths: list[Path]) -> tuple[tuple[int, int], bool]:
    """The size that all pictures are brought to, and whether all are grey."""
    sizes: Counter[tuple[int, int]] = Counter()
    grey = True
    for path in paths:
        with _opened(path) as picture:
            sizes[picture.size] += 1
            grey = grey and picture.mode in _GREY
    (width, height), _ = sizes.most_common(1)[0]
    factor = min(1.0, LONGEST_SIDE / max(width, height))
    return (max(1, round(width * factor)), max(1, round(height * factor))), grey


def _read(paths: list[Path], size: tuple[int, int], grey: bool, console: Console) -> np.ndarray:
    read = _images(paths, size, grey)
    shown = track(read, "reading", total=len(paths), console=console, transient=True, disable=not console.is_terminal)
    return np.stack(list(shown))


def _images(paths: Iterable[Path], size: tuple[int, int], grey: bool) -> Iterator[np.ndarray]:
    """Pictures as bytes of one shape."""
    from PIL import Image

    for path in paths:
        with _opened(path) as picture:
            try:
                plain = picture.convert("L" if grey else "RGB")
            except (OSError, SyntaxError, ValueError) as reason:
                raise InputError(f"{path} is not a whole picture: {reason}") from reason
        yield np.asarray(plain if plain.size == size else plain.resize(size, Image.Resampling.LANCZOS))


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
        raise InputError(f"{path} is not a picture that can be read: {reason}") from reason
