"""`gramless predict` and `gramless evaluate`: apply a saved model to a file in batches of rows."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape

from gramless._core.files import atomic_write
from gramless.cli.display import Heartbeat
from gramless.cli.errors import InputError, check_coverage, check_writable, is_stream, require
from gramless.cli.model import FAR, OUT_OF_RANGE, UNSEEN, TableModel, load_model
from gramless.cli.model_card import checksum, print_sections, score_sections
from gramless.cli.scores import Score
from gramless.cli.table_files import (
    BATCH_ROWS,
    FileRows,
    batches,
    output_format,
    quoted_names,
    select_rows,
    standard_input,
)

# Share of novel rows above which a warning is printed: twice the false positive rate of the detector.
_NOVEL_SHARE = 0.02


@dataclass(frozen=True)
class Predicted:
    """Result of `gramless predict`."""

    rows: int
    out: Path | None
    unseen: dict[str, int]
    novel: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return vars(self) | {"out": None if self.out is None else str(self.out)}


def predict(
    model_path: Path,
    data: Path,
    *,
    proba: bool,
    out: Path | None,
    keep: bool = False,
    interval: float | None = None,
    classes: float | None = None,
    novelty: bool = False,
    batch_rows: int = BATCH_ROWS,
    console: Console,
) -> Predicted:
    """Write one line per row of `data`: the prediction and optionally probabilities, an interval or a set of classes.

    `interval` and `classes` are coverages. The file extension of `out` selects CSV or Parquet; None is standard output.
    `data` may be "-", standard input. With `keep`, the columns of the input come first. Labels are not escaped: a
    spreadsheet interprets a label that begins with `=`, `+`, `-` or `@` as a formula.
    """
    if out is not None and not is_stream(out):
        check_writable(out, model_path, data)
    output_format(out)
    model = load_model(model_path)
    if proba and not model.has_probabilities:
        why = "train it again with --proba" if model.task == "classification" else f"it is for {model.task}"
        raise InputError(f"{model_path} has no probabilities: {why}")
    for option, coverage in (("--interval", interval), ("--set", classes)):
        check_coverage(option, coverage)
    total, unlike, heartbeat = 0, Counter[str](), Heartbeat(console)
    with standard_input(data) as source:
        pieces = _ready_batches(model, source, None, batch_rows)
        first = next(pieces)  # input errors are raised before the output is opened
        with rows_written(out) as write, quiet_pipe():
            for X, rows in chain([first], pieces):
                columns: dict[str, Any] = {"prediction": np.asarray(model.pipeline.predict(X))}
                if proba:
                    probabilities = model.pipeline.predict_proba(X)
                    columns |= {f"p({label})": probabilities[:, k] for k, label in enumerate(model.classes_)}
                if interval is not None:
                    columns["low"], columns["high"] = model.prediction_intervals(X, interval).T
                numbers = [name for name in columns if name != "prediction"]
                if classes is not None:
                    sets = model.prediction_sets(X, classes)
                    columns["set"] = [";".join(map(str, model.classes_[members])) for members in sets]
                reasons = model.novelty_reasons(X)
                if novelty:
                    columns["novelty"] = ["; ".join(row) for row in reasons]
                frame = _beside(rows.X, columns, source) if keep else pd.DataFrame(columns)
                write(frame, numbers)
                total += len(rows)
                unlike.update(chain.from_iterable(reasons))
                heartbeat(f"{total:,} rows predicted")
    unseen = _warn_unseen(console, unlike)
    done = report_predictions(Predicted(total, out, unseen, unlike[FAR], dict(+unlike)), "rows", console)
    outside = [
        f"{reason.removesuffix(OUT_OF_RANGE)} ({count:,})" for reason, count in unlike.items() if OUT_OF_RANGE in reason
    ]
    if outside:
        listed = escape(quoted_names(outside).replace("'", ""))
        console.print(f"[dim]Values outside of the training range: {listed}; --novelty shows the rows[/dim]")
    if unlike[FAR] > _NOVEL_SHARE * total:
        console.print(f"[yellow]{unlike[FAR]:,} of {total:,} rows are {FAR}[/yellow]: their predictions are unreliable")
    return done


def report_predictions(done: Predicted, things: str, console: Console) -> Predicted:
    """Print the file that was written and its number of predictions, and return the result."""
    if done.out is not None:
        console.print(f"Predictions of {done.rows:,} {things}  [bold]{escape(str(done.out))}[/bold]")
    return done


def _beside(X: Any, columns: dict[str, Any], source: Path) -> pd.DataFrame:
    """Return the input columns followed by the predictions."""
    if not isinstance(X, pd.DataFrame):
        raise InputError(f"{source} is sparse and has no named columns: leave out --keep")
    taken = [name for name in columns if name in X.columns]
    if taken:
        raise InputError(f"{source} already has a column {taken[0]!r}: rename it, or leave out --keep")
    return pd.concat([X.reset_index(drop=True), pd.DataFrame(columns)], axis=1)


@dataclass(frozen=True)
class Evaluated:
    """Result of `gramless evaluate`."""

    rows: int
    scores: list[Score]
    trained_on: bool = False
    confusion: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        scores = [one.as_json() for one in self.scores]
        found = {"rows": self.rows, "scores": scores, "trained_on_this_file": self.trained_on}
        return found if self.confusion is None else {**found, "confusion": self.confusion}

    def show(self, console: Console, rows: str) -> None:
        """Print the scores and the confusion matrix."""
        print_sections(console, score_sections([one.as_json() for one in self.scores], self.confusion, rows))


def evaluate(model_path: Path, data: Path, *, target: str | None, console: Console) -> Evaluated:
    """Score a saved model on a file that contains the target."""
    model = load_model(model_path)
    target = target if target is not None else model.target
    if target in model.column_types:
        raise InputError(f"{target!r} is an input column of {model_path} and cannot be the target")
    unlike, left_out = Counter[str](), Counter[str]()

    def known_targets(batches: Iterator[tuple[Any, FileRows]]) -> Iterator[tuple[Any, np.ndarray]]:
        found = 0
        for X, rows in batches:
            unlike.update(chain.from_iterable(model.unusual_values(X)))
            if rows.y is None:
                raise InputError(f"{data} has no target: name the column with --target")
            kept = np.flatnonzero(~pd.isna(rows.y))
            left_out["rows"] += len(rows) - len(kept)
            found += len(kept)
            if len(kept):
                yield select_rows(X, kept), rows.y[kept]
        if not found:
            raise InputError(f"{data} has no target in any row: nothing can be scored")

    with standard_input(data) as source:
        known = model.about.get("data_sha256")
        trained_on = known is not None and known == checksum(source)
        scored = model.scored(known_targets(_ready_batches(model, source, target)))
    _warn_unseen(console, unlike)
    if trained_on:
        warn_trained_on(data, "file", "rows", console)
    if left_out["rows"]:
        console.print(f"[dim]{left_out['rows']:,} rows without a target are left out[/dim]")
    evaluated = Evaluated(scored.rows, scored.scores, trained_on, scored.confusion)
    evaluated.show(console, f"{scored.rows:,} rows of {data.name}")
    return evaluated


def warn_trained_on(data: Path, what: str, things: str, console: Console) -> None:
    """Warn that a score was computed on training data."""
    console.print(
        f"[yellow]{escape(str(data))} is the {what} that the model was trained on[/yellow]: it was fitted to most of these "
        f"{things}, and scores on new ones will be lower. `gramless info` shows its score on held-out {things}."
    )


def _ready_batches(
    model: TableModel, data: Path, target: str | None, size: int = BATCH_ROWS
) -> Iterator[tuple[Any, FileRows]]:
    """Yield batches of typed rows for the model together with the rows of the file."""
    strings = model.string_columns + ([target] if target is not None and model.has_string_classes else [])
    first_column = model.about.get("counts_from")
    options: dict[str, Any] = {"n_features": model.n_features, "first_column": first_column, "strings": strings}
    first = 0
    for rows in batches(data, target, size=size, **options, held_out=True):
        if not len(rows):
            continue
        if isinstance(rows.X, pd.DataFrame):
            rows.X.index = pd.RangeIndex(first, first + len(rows))
        first += len(rows)
        yield model.ready(rows.X, str(data)), rows
    if first == 0:
        raise InputError(f"{data} has no rows")


Write = Callable[[pd.DataFrame, list[str]], Any]


@contextmanager
def rows_written(out: Path | None) -> Iterator[Write]:
    """Yield a function that appends a frame to the output, in the format of the file extension of `out`."""
    kind = output_format(out)
    if kind == "csv":
        with written(out) as file, _csv_rows(file) as write:
            yield write
    elif kind == "jsonl":
        with written(out) as file:
            yield lambda frame, rounded: file.write(frame.to_json(orient="records", lines=True, date_format="iso"))
    else:
        assert out is not None
        rows = _excel_rows if kind == "excel" else _parquet_rows
        with atomic_write(out.resolve()) as part, rows(part) as write:
            yield write


@contextmanager
def _excel_rows(part: Path) -> Iterator[Write]:
    """Yield a function that appends a frame to an Excel file, which is limited to 1,048,575 rows."""
    require("openpyxl", extra="cli")
    import openpyxl

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("predictions")
    begun = False

    def write(frame: pd.DataFrame, rounded: list[str]) -> None:
        nonlocal begun
        for row in frame.astype(object).where(frame.notna(), None).itertuples(index=False, name=None):
            if not begun:
                sheet.append(list(frame.columns))
                begun = True
            sheet.append([value.item() if isinstance(value, np.generic) else value for value in row])

    yield write
    with open(part, "wb") as file:
        book.save(file)


@contextmanager
def _parquet_rows(part: Path) -> Iterator[Write]:
    """Yield a function that appends a frame to a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet

    with ExitStack() as open_files:
        writer: list[Any] = []

        def write(frame: pd.DataFrame, rounded: list[str]) -> None:
            try:
                table = pa.Table.from_pandas(frame, schema=writer[0].schema if writer else None, preserve_index=False)
            except (pa.ArrowInvalid, pa.ArrowTypeError) as reason:
                raise InputError(
                    f"predictions cannot be written as Parquet, since a column changes its type: {reason}"
                ) from reason
            if not writer:
                writer.append(open_files.enter_context(pa.parquet.ParquetWriter(part, table.schema)))
            writer[0].write_table(table)

        yield write


@contextmanager
def _csv_rows(file: TextIO) -> Iterator[Write]:
    """Yield a function that appends a frame as CSV with one header line; columns in `rounded` have six digits."""
    header = [True]

    def write(frame: pd.DataFrame, rounded: list[str]) -> None:
        frame = frame.assign(**{name: [f"{value:.6g}" for value in frame[name]] for name in rounded})
        frame.to_csv(file, header=bool(header), index=False, lineterminator="\n")
        header.clear()

    yield write


@contextmanager
def written(out: Path | None) -> Iterator[TextIO]:
    """Yield standard output, a stream, or a temporary file that is moved to its path when complete."""
    if out is None:
        yield sys.stdout
        return
    if is_stream(out):
        with open(out, "w", encoding="utf-8", newline="") as file:
            yield file
        return
    out = out.resolve()  # replace the file that a symbolic link refers to, not the link
    with atomic_write(out) as part, open(part, "w", encoding="utf-8", newline="") as file:
        yield file


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """Context manager that ignores the error if the reader of standard output closes the pipe early."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # After `gramless predict ... | head`, discard further output, including output flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _warn_unseen(console: Console, unlike: Counter[str]) -> dict[str, int]:
    """Print and return the number of values of each category that did not occur in training."""
    unseen = {reason.removesuffix(UNSEEN): count for reason, count in unlike.items() if reason.endswith(UNSEEN)}
    for name, count in unseen.items():
        console.print(
            f"[yellow]{count:,} values of {escape(name)} did not occur in training[/yellow]; they are treated as unknown"
        )
    return unseen
