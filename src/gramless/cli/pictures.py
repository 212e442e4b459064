"""`gramless train FOLDER`, `predict MODEL PICTURE` and `evaluate MODEL FOLDER`: pictures in one subfolder per class.

All pictures are resized to the most common size, which is first reduced in proportion if one of its sides has more than
`LONGEST_SIDE` pixels. They are converted to grey if all training pictures are grey.
"""

from __future__ import annotations

import csv
import hashlib
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
from gramless.cli.errors import InputError, check_writable
from gramless.cli.formats import ENDINGS
from gramless.cli.predict import Evaluated, Predicted, is_stream, quiet_pipe, warn_trained_on, written
from gramless.cli.scores import Score, log_loss, roc_auc, score, score_table

LONGEST_SIDE = 64
_GREY = ("1", "L", "I", "I;16", "F", "LA")
_BATCH = 1000


class PictureModel(BaseEstimator):
    """Fitted image classifier with the width and height of its images; `about` describes the training in plain JSON."""

    def __init__(self, classifier: ImageClassifier, size: list[int], grey: bool, about: dict[str, Any]):
        self.classifier = classifier
        self.size = size
        self.grey = grey
        self.about = about


@dataclass(frozen=True)
class TrainedOnPictures:
    """Model file of an image classifier, with its scores."""

    out: Path
    model: PictureModel
    scores: list[Score]

    def as_json(self) -> dict[str, Any]:
        """Return the model file and its description as plain JSON."""
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
    """Train a model on a folder with one subfolder per class, score it on held-out pictures and save it."""
    if not 0 < test_size < 1:
        raise InputError(f"the held-out share must be between 0 and 1, not {test_size}")
    if C is not None and not 0 < C < np.inf:
        raise InputError(f"C must be a positive number, not {C:g}")
    check_writable(out)
    paths, labels = _labelled(folder, at_least=2)
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
        raise InputError(f"{folder} has too few pictures to hold out a test set: {reason}") from reason
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
        "pictures_sha256": _digest(hashlib.sha256(), labels, images).hexdigest(),
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
        f"  {len(y_train):,} training pictures, fitted in {seconds:.1f} s; {len(y_test):,} held-out pictures",
        highlight=False,
        soft_wrap=True,
    )
    console.print(score_table(scores, ""))
    console.print(f"Model  [bold]{escape(str(out))}[/bold]", highlight=False, soft_wrap=True)
    return trained


def predict_pictures(model_path: Path, data: Path, *, proba: bool, out: Path | None, console: Console) -> Predicted:
    """Write the path and the predicted class of a picture, or of all pictures in a folder and its subfolders."""
    out = None if out == Path("-") else out
    model = _load(model_path)
    paths = _pictures(data) if os.path.isdir(data) else [data]
    if not paths:
        raise InputError(f"{data} has no pictures; known file extensions are {', '.join(ENDINGS)}")
    if out is not None and not is_stream(out):
        check_writable(out, model_path, *paths)
    classes = model.classifier.classes_
    batches = (paths[i : i + _BATCH] for i in range(0, len(paths), _BATCH))
    with written(out) as file, quiet_pipe():
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["picture", "prediction", *((f"p({label})" for label in classes) if proba else ())])
        for batch in batches:
            images = np.stack(list(_images(batch, (model.size[0], model.size[1]), model.grey)))
            labels = model.classifier.predict(images)
            probabilities: Iterable[Any] = model.classifier.predict_proba(images) if proba else [()] * len(labels)
            for path, label, row in zip(batch, labels, probabilities, strict=True):
                writer.writerow([path, label, *(f"{chance:.6g}" for chance in row)])
    return Predicted(len(paths), out, {})


def evaluate_pictures(model_path: Path, folder: Path, *, console: Console) -> Evaluated:
    """Score a saved model on a folder with one subfolder per class, in batches."""
    if not os.path.isdir(folder):
        raise InputError(f"{folder} is not a folder: give a folder with one subfolder of pictures for each class")
    model = _load(model_path)
    paths, labels = _labelled(folder, at_least=1)
    classes, digest = model.classifier.classes_, hashlib.sha256()
    y = np.array(labels)
    if not np.isin(y, classes).any():
        known, found = (", ".join(map(repr, map(str, names[:5]))) for names in (classes, np.unique(y)))
        raise InputError(f"no subfolder of {folder} is a class of the model: the model has {known}; the folder has {found}")
    predicted, batch_probabilities = [], []
    parts = [slice(i, i + _BATCH) for i in range(0, len(paths), _BATCH)]
    for part in track(parts, "scoring", console=console, transient=True, disable=not console.is_terminal):
        images = np.stack(list(_images(paths[part], (model.size[0], model.size[1]), model.grey)))
        _digest(digest, labels[part], images)
        predicted.append(model.classifier.predict(images))
        batch_probabilities.append(model.classifier.predict_proba(images))
    shares = np.bincount(model.classifier.estimator_.calibration_codes_, minlength=len(classes)).astype(np.float64)
    shares /= shares.sum()
    probabilities = np.concatenate(batch_probabilities)
    scores = score(y, np.concatenate(predicted), task="classification", guess=classes[shares.argmax()])
    scores.append(log_loss(y, classes, probabilities, shares))
    area = roc_auc(y, classes[1], probabilities[:, 1]) if len(classes) == 2 else None
    scores += [] if area is None else [area]
    trained_on = digest.hexdigest() == model.about.get("pictures_sha256")
    if trained_on:
        warn_trained_on(folder, "folder", "pictures", console)
    unknown = int(np.sum(~np.isin(y, classes)))
    if unknown:
        console.print(
            f"[yellow]{unknown:,} pictures are of classes that are not classes of the model[/yellow]: they count as errors"
        )
    console.print(score_table(scores, f"{escape(folder.name)}, {len(y):,} pictures"))
    return Evaluated(len(y), scores, trained_on)


def _digest(digest: Any, labels: list[str], images: np.ndarray) -> Any:
    """Update a checksum with pictures and their classes; it does not depend on the names of the files."""
    for label, image in zip(labels, images, strict=True):
        digest.update(f"{label}\0".encode())
        digest.update(np.ascontiguousarray(image))
    return digest


def _load(path: Path) -> PictureModel:
    try:
        model = gramless.load(path)
    except (FileNotFoundError, IsADirectoryError, ValueError) as reason:
        raise InputError(str(reason)) from reason
    if not isinstance(model, PictureModel):
        raise InputError(f"{path} is not a model for pictures: train one with `gramless train FOLDER`")
    return model


def _pictures(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())


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
            f"there {'is' if count == 1 else 'are'} {count} (known file extensions: {', '.join(ENDINGS)})"
        )
    return paths, labels


def _common_form(paths: list[Path]) -> tuple[tuple[int, int], bool]:
    """Return the size to which pictures are resized, and whether all pictures are grey."""
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
    """Yield pictures as arrays of bytes of one shape."""
    from PIL import Image

    for path in paths:
        with _opened(path) as picture:
            try:
                plain = picture.convert("L" if grey else "RGB")
            except (OSError, SyntaxError, ValueError) as reason:
                raise InputError(f"{path} is an incomplete picture: {reason}") from reason
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
        raise InputError(f"{path} cannot be read as a picture: {reason}") from reason
