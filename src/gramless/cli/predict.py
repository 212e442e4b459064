"""`gramless predict` and `gramless evaluate`: apply a saved model to a table or to pictures, in batches."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape

from gramless._core.files import atomic_write
from gramless.cli.card import print_sections, score_sections
from gramless.cli.display import Heartbeat, StepDisplay
from gramless.cli.errors import InputError, is_pictures, is_stream, require
from gramless.cli.model import FAR, OUT_OF_RANGE, UNSEEN, Reason, SavedModel, load_model
from gramless.cli.options import PredictSettings
from gramless.cli.table_files import first_names, output_format, standard_input

# Share of novel rows above which a warning is printed: twice the false positive rate of the detector.
_NOVEL_SHARE = 0.02


def predict(settings: PredictSettings, console: Console, batch_rows: int | None = None) -> dict[str, Any]:
    """Write one line per row or picture: the prediction and optionally probabilities, an interval or a set of classes.

    The file extension of `out` selects the format; None is standard output. With `keep`, the columns of the input come
    first. Labels are not escaped: a spreadsheet interprets a label that begins with `=`, `+`, `-` or `@` as a formula.
    """
    settings.check()
    out, of_pictures = settings.out, is_pictures(settings.data)
    output_format(out)  # raises an error for an unknown file extension
    model = load_model(settings.model, settings.data)
    if settings.proba and not model.has_probabilities:
        why = "train it again with --proba" if model.task == "classification" else f"it is for {model.task}"
        raise InputError(f"{settings.model} has no probabilities: {why}")
    if settings.interval is not None and model.task != "regression":
        raise InputError("the model predicts classes, and intervals are only for quantities: use --set")
    if settings.classes is not None and model.task != "classification":
        raise InputError("the model predicts a quantity, and sets are only for classes: use --interval")
    total, unlike, heartbeat = 0, Counter[Reason](), Heartbeat(console)
    with standard_input(settings.data) as source:
        pieces = model.read(source, None, batch_rows or model.batch_size)
        first = next(pieces)  # input errors are raised before the output is opened
        with rows_written(out) as write:
            for X, _, shown in chain([first], pieces):
                reasons = model.novelty_reasons(X)
                columns, numbers = _predicted_columns(model, X, settings)
                if settings.novelty:
                    columns["novelty"] = ["; ".join(map(str, row)) for row in reasons]
                write(_beside(shown, columns, source) if settings.keep or of_pictures else pd.DataFrame(columns), numbers)
                total += len(reasons)
                unlike.update(chain.from_iterable(reasons))
                heartbeat(f"{total:,} {model.unit} predicted")
    unseen = _warn_unseen(console, unlike)
    if out is not None:
        console.print(f"Predictions of {total:,} {model.unit}  [bold]{escape(str(out))}[/bold]")
    outside = [f"{one.column} ({count:,})" for one, count in unlike.items() if one.reason == OUT_OF_RANGE]
    if outside:
        listed = escape(first_names(outside, 20))
        console.print(f"[dim]Values outside of the training range: {listed}; --novelty shows the rows[/dim]")
    if unlike[FAR] > _NOVEL_SHARE * total:
        console.print(
            f"[yellow]{unlike[FAR]:,} of {total:,} rows are {FAR.reason}[/yellow]: their predictions are unreliable"
        )
    written_to = None if out is None else str(out)
    return {
        "rows": total,
        "out": written_to,
        "unseen": unseen,
        "novel": unlike[FAR],
        "reasons": {str(one): count for one, count in unlike.items()},
    }


def _predicted_columns(model: SavedModel, X: Any, settings: PredictSettings) -> tuple[dict[str, Any], list[str]]:
    """Return the columns of the output for some rows, and the names of the columns of numbers besides the prediction."""
    columns: dict[str, Any] = {"prediction": np.asarray(model.predictor.predict(X))}
    if settings.proba:
        probabilities = model.predictor.predict_proba(X)
        columns |= {f"p({label})": probabilities[:, k] for k, label in enumerate(model.classes_)}
    if settings.interval is not None:
        columns["low"], columns["high"] = model.regions(X, settings.interval).T
    numbers = [name for name in columns if name != "prediction"]
    if settings.classes is not None:
        sets = model.regions(X, settings.classes)
        columns["set"] = [";".join(map(str, model.classes_[members])) for members in sets]
    return columns, numbers


def _beside(shown: Any, columns: dict[str, Any], source: Path) -> pd.DataFrame:
    """Return the input columns followed by the predictions."""
    if not isinstance(shown, pd.DataFrame):
        raise InputError(f"{source} is sparse and has no named columns: leave out --keep")
    taken = [name for name in columns if name in shown.columns]
    if taken:
        raise InputError(f"{source} already has a column {taken[0]!r}: rename it, or leave out --keep")
    return pd.concat([shown.reset_index(drop=True), pd.DataFrame(columns)], axis=1)


def evaluate(
    model_path: Path, data: Path, target: str | None, console: Console, batch_rows: int | None = None
) -> dict[str, Any]:
    """Print and return the scores of a saved model on a file with targets, or on a folder of labelled pictures."""
    model = load_model(model_path, data)
    target = target if target is not None else model.target
    unlike, found, left_out, unit = Counter[Reason](), 0, 0, model.unit

    def rows_with_targets(source: Path) -> Iterator[tuple[Any, np.ndarray]]:
        nonlocal found, left_out
        for X, y, without in model.read_labelled(source, target, batch_rows or model.batch_size):
            found, left_out = found + len(y), left_out + without
            notify(f"scoring {found:,} {unit}")
            if len(y):
                unlike.update(chain.from_iterable(model.unusual_values(X)))
                yield X, y

    with StepDisplay(console) as notify, standard_input(data) as source:
        trained_on = model.was_trained_on(source)
        scored = model.scored(rows_with_targets(source))
    _warn_unseen(console, unlike)
    if trained_on:
        console.print(
            f"[yellow]{escape(str(data))} is the {model.source} that the model was trained on[/yellow]: it was fitted to "
            f"most of these {unit}, and scores on new {unit} will be lower. `gramless info` shows the held-out scores."
        )
    if left_out:
        console.print(f"[dim]{left_out:,} {unit} without a target are left out[/dim]")
    if scored.unknown:
        unknown = f"{scored.unknown:,} {unit} are of classes that are not classes of the model"
        console.print(f"[yellow]{unknown}[/yellow]: they count as errors")
    scores = [one.as_json() for one in scored.scores]
    print_sections(console, score_sections(scores, scored.confusion, f"{scored.rows:,} {unit} of {data.name}"))
    result = {"rows": scored.rows, "scores": scores, "trained_on_this_file": trained_on}
    return result if scored.confusion is None else {**result, "confusion": scored.confusion}


Write = Callable[[pd.DataFrame, list[str]], Any]


@contextmanager
def rows_written(out: Path | None) -> Iterator[Write]:
    """Yield a function that appends a frame to the output, in the format of the file extension of `out`."""
    kind = output_format(out)
    if kind == "csv":
        with written(out) as file:
            yield _csv_rows(file)
    elif kind == "jsonl":
        with written(out) as file:
            yield lambda frame, rounded: frame.to_json(file, orient="records", lines=True, date_format="iso")
    else:
        assert out is not None
        rows = _excel_rows if kind == "excel" else _parquet_rows
        with atomic_write(out.resolve()) as part, rows(part) as write:
            yield write


@contextmanager
def _excel_rows(part: Path) -> Iterator[Write]:
    """Yield a function that appends a frame to an Excel file, which is limited to 1,048,575 rows."""
    require("openpyxl", extra="cli")
    frames: list[pd.DataFrame] = []
    yield lambda frame, rounded: frames.append(frame)
    try:
        pd.concat(frames).to_excel(part, sheet_name="predictions", index=False, engine="openpyxl")
    except ValueError as reason:
        raise InputError(f"the predictions cannot be written as Excel: {reason}") from reason


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


def _csv_rows(file: TextIO) -> Write:
    """Return a function that appends a frame as CSV with one header line; columns in `rounded` have six digits."""
    header = [True]

    def write(frame: pd.DataFrame, rounded: list[str]) -> None:
        frame = frame.assign(**{name: [f"{value:.6g}" for value in frame[name]] for name in rounded})
        frame.to_csv(file, header=bool(header), index=False, lineterminator="\n")
        header.clear()

    return write


@contextmanager
def written(out: Path | None) -> Iterator[TextIO]:
    """Yield standard output, a stream, or a temporary file that is moved to its path when complete."""
    if out is None:
        yield sys.stdout
        return
    # A symbolic link is resolved, so that the file that it refers to is replaced, not the link.
    target = nullcontext(out) if is_stream(out) else atomic_write(out.resolve())
    with target as path, open(path, "w", encoding="utf-8", newline="") as file:
        yield file


def _warn_unseen(console: Console, unlike: Counter[Reason]) -> dict[str, int]:
    """Print and return the number of values of each category that did not occur in training."""
    unseen = {one.column: count for one, count in unlike.items() if one.reason == UNSEEN}
    for name, count in unseen.items():
        console.print(
            f"[yellow]{count:,} values of {escape(name)} did not occur in training[/yellow]; they are treated as unknown"
        )
    return unseen
