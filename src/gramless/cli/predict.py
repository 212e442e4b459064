"""`gramless predict` and `gramless evaluate`: a saved model on a file, a batch of rows at a time."""

from __future__ import annotations

import csv
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape

from gramless._core.files import atomic_write
from gramless.cli.errors import InputError, check_writable
from gramless.cli.heartbeat import Heartbeat
from gramless.cli.model import TableModel, load_model
from gramless.cli.model_card import checksum
from gramless.cli.scores import Score, score_table
from gramless.cli.tables import Rows, batches

# Rows like those of training are flagged at a rate of 1 %: twice that says something.
_EXPECTED_STRANGE = 0.02


@dataclass(frozen=True)
class Predicted:
    """What a prediction run did."""

    rows: int
    out: Path | None
    unseen: dict[str, int]
    novel: int = 0

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        out = None if self.out is None else str(self.out)
        return {"rows": self.rows, "out": out, "unseen": self.unseen, "novel": self.novel}


def predict(
    model_path: Path,
    data: Path,
    *,
    proba: bool,
    out: Path | None,
    keep: bool = False,
    interval: float | None = None,
    classes: float | None = None,
    console: Console,
) -> Predicted:
    """Write one line per row of `data`: the prediction and, when asked, the probability of each class.

    With `interval`, also the ends of an interval that holds the value with this probability; with `classes`, also those that
    are in a set which holds the true one with this probability, between semicolons.

    CSV, or Parquet where `out` is named so; to standard output where `out` is None or "-"; straight into a pipe or a device.
    `data` may be "-", standard input. With `keep`, the columns of the input come first. Labels are written as they are: a
    spreadsheet takes one that begins with `=`, `+`, `-` or `@` for a formula.
    """
    out = None if out == Path("-") else out
    if out is not None and not takes_a_stream(out):
        check_writable(out, model_path, data)
    model = load_model(model_path)
    if proba and not model.has_probabilities:
        why = "train it again with --proba" if model.task == "classification" else f"it is for {model.task}"
        raise InputError(f"{model_path} has no probabilities: {why}")
    for option, coverage in (("--interval", interval), ("--set", classes)):
        check_coverage(option, coverage)
    total, novel, new, heartbeat = 0, 0, Counter[str](), Heartbeat(console)
    with standard_input(data) as source:
        pieces = _ready_batches(model, source, None, new)
        first = next(pieces)  # a file that cannot be used is told before anything is written
        with rows_written(out) as write, quiet_pipe():
            for X, rows in chain([first], pieces):
                columns: dict[str, Any] = {"prediction": np.asarray(model.pipeline.predict(X))}
                if proba:
                    chances = model.pipeline.predict_proba(X)
                    columns |= {f"p({label})": chances[:, k] for k, label in enumerate(model.classes)}
                if interval is not None:
                    columns["low"], columns["high"] = model.prediction_intervals(X, interval).T
                numbers = [name for name in columns if name != "prediction"]
                if classes is not None:
                    sets = model.prediction_sets(X, classes)
                    columns["set"] = [";".join(map(str, model.classes[held])) for held in sets]
                frame = _beside(rows.X, columns, source) if keep else pd.DataFrame(columns)
                write(frame, numbers)
                total += len(X) if isinstance(X, pd.DataFrame) else X.shape[0]
                strange = model.novel(X)
                novel += 0 if strange is None else int(strange.sum())
                heartbeat(f"{total:,} rows predicted")
    _say_unseen(console, new)
    if novel > _EXPECTED_STRANGE * total:
        console.print(
            f"[yellow]{novel:,} of {total:,} rows are far from all that the model was trained on[/yellow]: take their "
            "predictions with care",
            soft_wrap=True,
            highlight=False,
        )
    return Predicted(total, out, dict(new), novel)


def check_coverage(option: str, coverage: float | None) -> None:
    """A share between 0 and 1, such as 0.9."""
    if coverage is not None and not 0 < coverage < 1:
        raise InputError(f"{option} takes a share between 0 and 1, such as 0.9; got {coverage:g}")


def _beside(X: Any, columns: dict[str, Any], source: Path) -> pd.DataFrame:
    """The input with the predictions beside it."""
    if not isinstance(X, pd.DataFrame):
        raise InputError(f"{source} is sparse, and has no named columns to keep: leave out --keep")
    taken = [name for name in columns if name in X.columns]
    if taken:
        raise InputError(f"{source} has a column {taken[0]!r} of its own: rename it, or leave out --keep")
    return pd.concat([X.reset_index(drop=True), pd.DataFrame(columns)], axis=1)


@dataclass(frozen=True)
class Evaluated:
    """Scores of a model on a file."""

    rows: int
    scores: list[Score]
    trained_on: bool = False

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        scores = [one.as_json() for one in self.scores]
        return {"rows": self.rows, "scores": scores, "trained_on_this_file": self.trained_on}


def evaluate(model_path: Path, data: Path, *, target: str | None, console: Console) -> Evaluated:
    """Score a saved model on a file that has the answers."""
    model = load_model(model_path)
    target = target if target is not None else model.target
    if target in model.columns.used:
        raise InputError(f"{target!r} is one of the columns that {model_path} predicts from: it cannot be the answer too")
    new = Counter[str]()
    with standard_input(data) as source:
        known = model.about.get("data_sha256")
        trained_on = known is not None and known == checksum(source)
        answered = _Answered(data)
        n, scores = model.scored(answered(_ready_batches(model, source, target, new)))
    _say_unseen(console, new)
    if trained_on:
        say_trained_on(data, "file", "rows", console)
    if answered.left_out:
        console.print(f"[dim]{answered.left_out:,} rows without an answer are left out[/dim]")
    console.print(score_table(scores, f"{escape(data.name)}, {n:,} rows"))
    return Evaluated(n, scores, trained_on)


def say_trained_on(data: Path, what: str, things: str, console: Console) -> None:
    """Warn that a score is of what the model has learnt from."""
    console.print(
        f"[yellow]{escape(str(data))} is the {what} that the model was trained on[/yellow]: it has seen most of these "
        f"{things}, and scores on new ones will be lower. Its score on {things} that it never saw is in `gramless info`.",
        soft_wrap=True,
        highlight=False,
    )


class _Answered:
    """Passes on the rows that have an answer and counts the others."""

    def __init__(self, data: Path):
        self.data = data
        self.left_out = 0

    def __call__(self, batches: Iterator[tuple[Any, Rows]]) -> Iterator[tuple[Any, np.ndarray]]:
        found = 0
        for X, rows in batches:
            y = rows.y
            if y is None:
                raise InputError(f"{self.data} does not say what is right: give the column with --target")
            kept = np.flatnonzero(~pd.isna(y))
            self.left_out += len(y) - len(kept)
            found += len(kept)
            if len(kept):
                yield (X.iloc[kept] if isinstance(X, pd.DataFrame) else X[kept]), y[kept]
        if not found:
            raise InputError(f"{self.data} has no answer in any row: nothing can be scored")


def _ready_batches(model: TableModel, data: Path, target: str | None, new: Counter[str]) -> Iterator[tuple[Any, Rows]]:
    """The rows of a file as the model wants them, and as they were."""
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
        yield X, rows
    if first == 0:
        raise InputError(f"{data} has no rows")


def takes_a_stream(out: Path) -> bool:
    """Whether a path is a pipe or a device."""
    try:
        return out.exists() and not out.is_file() and not out.is_dir()
    except OSError:  # a name that is too long is none
        return False


@contextmanager
def standard_input(data: Path) -> Iterator[Path]:
    """The path itself; for "-", a file with what comes in on standard input, CSV or Parquet."""
    if data != Path("-"):
        yield data
        return
    with tempfile.TemporaryDirectory() as folder:
        start = sys.stdin.buffer.read(4)
        path = Path(folder, "standard-input" + (".parquet" if start == b"PAR1" else ".csv"))
        with open(path, "wb") as file:
            file.write(start)
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield path


@contextmanager
def rows_written(out: Path | None) -> Iterator[Callable[[pd.DataFrame, list[str]], None]]:
    """A function that writes one frame after the other: Parquet where `out` is named so, else CSV."""
    if out is None or out.suffix.lower() not in (".parquet", ".pq"):
        with written(out) as file:
            yield _CsvRows(file)
        return
    import pyarrow as pa
    import pyarrow.parquet

    with ExitStack() as open_files:
        part = open_files.enter_context(atomic_write(out.resolve()))
        writer: list[Any] = []

        def write(frame: pd.DataFrame, rounded: list[str]) -> None:
            try:
                table = pa.Table.from_pandas(frame, schema=writer[0].schema if writer else None, preserve_index=False)
            except (pa.ArrowInvalid, pa.ArrowTypeError) as reason:
                raise InputError(
                    f"{out} cannot be written as Parquet, since a column changes its kind: {reason}"
                ) from reason
            if not writer:
                writer.append(open_files.enter_context(pa.parquet.ParquetWriter(part, table.schema)))
            writer[0].write_table(table)

        yield write


class _CsvRows:
    """Writes frames as CSV, the heading once; the columns `rounded` with six digits."""

    def __init__(self, file: TextIO):
        self._writer = csv.writer(file, lineterminator="\n")
        self._begun = False

    def __call__(self, frame: pd.DataFrame, rounded: list[str]) -> None:
        if not self._begun:
            self._writer.writerow(frame.columns)
            self._begun = True
        columns = []
        for name in frame.columns:
            values = frame[name]
            if name in rounded:
                columns.append([f"{value:.6g}" for value in values])
            else:
                columns.append(["" if gap else value for value, gap in zip(values.tolist(), values.isna(), strict=True)])
        self._writer.writerows(zip(*columns, strict=True))


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
    with atomic_write(out) as part, open(part, "w", encoding="utf-8", newline="") as file:
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
