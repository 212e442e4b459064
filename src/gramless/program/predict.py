"""`gramless predict` and `gramless evaluate`: a saved model on a file, a batch of rows at a time."""

from __future__ import annotations

import csv
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape

from gramless._runtime.files import replaced
from gramless.program.errors import InputError, check_writable
from gramless.program.model import TableModel, load_model
from gramless.program.scores import Score, score_table
from gramless.program.tables import batches


@dataclass(frozen=True)
class Predicted:
    """What a prediction run did."""

    rows: int
    out: Path | None
    unseen: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"rows": self.rows, "out": None if self.out is None else str(self.out), "unseen": self.unseen}


def predict(model_path: Path, data: Path, *, proba: bool, out: Path | None, console: Console) -> Predicted:
    """Write one line per row of `data`: the prediction and, when asked, the probability of each class.

    To standard output where `out` is None or "-"; straight into a pipe or a device. Labels are written as they are: a
    spreadsheet takes one that begins with `=`, `+`, `-` or `@` for a formula.
    """
    out = None if out == Path("-") else out
    if out is not None and not takes_a_stream(out):
        check_writable(out, model_path, data)
    model = load_model(model_path)
    if proba and not model.has_probabilities:
        why = "train it again with --proba" if model.task == "classification" else f"it is for {model.task}"
        raise InputError(f"{model_path} has no probabilities: {why}")
    total, new = 0, Counter[str]()
    pieces = _ready_batches(model, data, None, new)
    first = next(pieces)  # a file that cannot be used is told before anything is written
    heading = ["prediction"] + ([f"p({label})" for label in model.classes] if proba else [])
    with written(out) as file, quiet_pipe():
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(heading)
        for X, _ in chain([first], pieces):
            labels = model.pipeline.predict(X)
            if proba:
                chances = model.pipeline.predict_proba(X)
                writer.writerows(
                    [label, *(f"{chance:.6g}" for chance in row)] for label, row in zip(labels, chances, strict=True)
                )
            else:
                writer.writerows([label] for label in labels)
            total += len(labels)
    _say_unseen(console, new)
    return Predicted(total, out, dict(new))


@dataclass(frozen=True)
class Evaluated:
    """Scores of a model on a file."""

    rows: int
    scores: list[Score]

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"rows": self.rows, "scores": [one.as_json() for one in self.scores]}


def evaluate(model_path: Path, data: Path, *, target: str | None, console: Console) -> Evaluated:
    """Score a saved model on a file that has the answers."""
    model = load_model(model_path)
    target = target if target is not None else model.target
    if target in model.columns.used:
        raise InputError(f"{target!r} is one of the columns that {model_path} predicts from: it cannot be the answer too")
    new = Counter[str]()
    answered = _Answered(data)
    n, scores = model.scored(answered(_ready_batches(model, data, target, new)))
    _say_unseen(console, new)
    if answered.left_out:
        console.print(f"[dim]{answered.left_out:,} rows without an answer are left out[/dim]")
    console.print(score_table(scores, f"{escape(data.name)}, {n:,} rows"))
    return Evaluated(n, scores)


class _Answered:
    """Passes on the rows that have an answer and counts the others."""

    def __init__(self, data: Path):
        self.data = data
        self.left_out = 0

    def __call__(self, batches: Iterator[tuple[Any, np.ndarray | None]]) -> Iterator[tuple[Any, np.ndarray]]:
        found = 0
        for X, y in batches:
            if y is None:
                raise InputError(f"{self.data} does not say what is right: give the column with --target")
            kept = np.flatnonzero(~pd.isna(y))
            self.left_out += len(y) - len(kept)
            found += len(kept)
            if len(kept):
                yield (X.iloc[kept] if isinstance(X, pd.DataFrame) else X[kept]), y[kept]
        if not found:
            raise InputError(f"{self.data} has no answer in any row: nothing can be scored")


def _ready_batches(
    model: TableModel, data: Path, target: str | None, new: Counter[str]
) -> Iterator[tuple[Any, np.ndarray | None]]:
    words = [*model.words, *([target] if target is not None and model.names_classes else [])]
    counts_from = model.about.get("counts_from")
    first = 0
    for rows in batches(data, target, n_features=model.n_features, counts_from=counts_from, words=words, held_out=True):
        if not len(rows):
            continue
        if isinstance(rows.X, pd.DataFrame):
            rows.X.index = pd.RangeIndex(first, first + len(rows))
        X = model.ready(rows.X, str(data))
        new.update(model.unseen(X))
        first += len(rows)
        yield X, rows.y
    if first == 0:
        raise InputError(f"{data} has no rows")


def takes_a_stream(out: Path) -> bool:
    """Whether a path is a pipe or a device."""
    try:
        return out.exists() and not out.is_file() and not out.is_dir()
    except OSError:  # a name that is too long is none
        return False


@contextmanager
def written(out: Path | None) -> Iterator[TextIO]:
    """Standard output, a stream, or a file that is whole or not there."""
    if out is None:
        yield sys.stdout
        return
    if takes_a_stream(out):
        with open(out, "w", encoding="utf-8", newline="") as file:
            yield file
        return
    out = out.resolve()  # the file itself, not a link to it, is replaced
    with replaced(out) as part, open(part, "w", encoding="utf-8", newline="") as file:
        yield file


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """A context in which a reader of standard output may leave early."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # `gramless predict ... | head` has seen enough; nothing more is to be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say_unseen(console: Console, new: Counter[str]) -> None:
    for name, count in new.items():
        console.print(
            f"[yellow]{count:,} values of {escape(name)} were never seen in training[/yellow]; they count as none "
            "of the known ones",
            soft_wrap=True,
        )
