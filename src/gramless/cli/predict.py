"""`gramless predict` and `gramless evaluate`: apply a saved model to a table or to pictures, in batches."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape

from gramless._core.files import atomic_write
from gramless.cli.card import score_sections
from gramless.cli.display import Heartbeat, StepDisplay, print_sections
from gramless.cli.errors import InputError, input_errors, is_pictures, is_stream, require
from gramless.cli.model import FAR, OUT_OF_RANGE, UNSEEN, Reason, SavedModel, load_model
from gramless.cli.options import EvaluateSettings, PredictSettings
from gramless.cli.table_files import first_names, output_format, standard_input

# Fraction of novel rows above which a warning is printed: twice the false-positive rate of the novelty detector.
_NOVEL_SHARE = 0.02


def predict(settings: PredictSettings, console: Console, batch_rows: int | None = None) -> dict[str, Any]:
    """Write one line per row or picture: the prediction and optionally probabilities, an interval or a set of classes.

    The file extension of `out` selects the format; None is CSV to standard output. With `keep`, the columns of the input
    come first. Labels are not escaped: a spreadsheet interprets a label that begins with `=`, `+`, `-` or `@` as formula.
    """
    settings.check()
    output_format(settings.out)  # raises an error for an unknown file extension
    model = load_model(settings.model, settings.data)
    if settings.proba and not model.has_probabilities:
        why = "train it again with --proba" if model.task == "classification" else f"it is for {model.task}"
        raise InputError(f"{settings.model} has no probabilities: {why}")
    if settings.interval is not None and model.task != "regression":
        raise InputError("the model predicts classes, and intervals are only for quantities: use --set")
    if settings.classes is not None and model.task != "classification":
        raise InputError("the model predicts a quantity, and sets are only for classes: use --interval")
    total, unlike, heartbeat = 0, Counter[Reason](), Heartbeat(console)

    def frames(source: Path) -> Iterator[pd.DataFrame]:
        nonlocal total
        for X, _, shown in model.read(source, None, batch_rows or model.batch_size):
            reasons = model.novelty_reasons(X)
            columns = _predicted_columns(model, X, settings)
            if settings.novelty:
                columns["novelty"] = ["; ".join(map(str, row)) for row in reasons]
            if settings.keep or is_pictures(settings.data):
                columns = _beside(shown, columns, source)
            yield pd.DataFrame(columns)
            total += len(reasons)
            unlike.update(chain.from_iterable(reasons))
            heartbeat(f"{total:,} {model.unit} predicted")

    with standard_input(settings.data) as source:
        write_frames(frames(source), settings.out)
    unseen = _warn_unseen(console, unlike)
    if settings.out is not None:
        console.print(f"Predictions of {total:,} {model.unit}  [bold]{escape(str(settings.out))}[/bold]")
    outside = [f"{one.column} ({count:,})" for one, count in unlike.items() if one.reason == OUT_OF_RANGE]
    if outside:
        listed = escape(first_names(outside, 20))
        console.print(f"[dim]Values outside of the training range: {listed}; --novelty shows the rows[/dim]")
    if unlike[FAR] > _NOVEL_SHARE * total:
        console.print(
            f"[yellow]{unlike[FAR]:,} of {total:,} rows are {FAR.reason}[/yellow]: their predictions are unreliable"
        )
    out = None if settings.out is None else str(settings.out)
    reasons = {str(one): count for one, count in unlike.items()}
    return {"rows": total, "out": out, "unseen": unseen, "novel": unlike[FAR], "reasons": reasons}


def _predicted_columns(model: SavedModel, X: Any, settings: PredictSettings) -> dict[str, Any]:
    """Return the output columns for the rows `X`: predictions, and the requested probabilities, intervals or sets."""
    columns: dict[str, Any] = {"prediction": np.asarray(model.predictor.predict(X))}
    numbers: dict[str, Any] = {}
    if settings.proba:
        names = [f"p({label})" for label in model.classes_]
        numbers |= dict(zip(names, model.predictor.predict_proba(X).T, strict=True))
    if settings.interval is not None:
        numbers["low"], numbers["high"] = model.regions(X, settings.interval).T
    if output_format(settings.out) == "csv":
        numbers = {name: [f"{x:.6g}" for x in values] for name, values in numbers.items()}
    if settings.classes is not None:
        sets = model.regions(X, settings.classes)
        numbers["set"] = [";".join(map(str, model.classes_[members])) for members in sets]
    return columns | numbers


def _beside(shown: Any, columns: dict[str, Any], source: Path) -> dict[str, Any]:
    """Return the input columns followed by the columns of the predictions."""
    if not isinstance(shown, pd.DataFrame):
        raise InputError(f"{source} is sparse and has no named columns: leave out --keep")
    taken = [name for name in columns if name in shown.columns]
    if taken:
        raise InputError(f"{source} already has a column {taken[0]!r}: rename it, or leave out --keep")
    return {**shown.reset_index(drop=True), **columns}


def evaluate(settings: EvaluateSettings, console: Console, batch_rows: int | None = None) -> dict[str, Any]:
    """Print and return the scores of a saved model on a file with targets, or on a folder of labelled pictures."""
    data = settings.data
    if settings.target is not None and is_pictures(data):
        raise InputError("--target is for tables: the class of a picture is the name of its subfolder")
    model = load_model(settings.model, data)
    target = settings.target if settings.target is not None else model.target
    unlike, found, left_out, unit = Counter[Reason](), 0, 0, model.unit

    def rows_with_targets(source: Path) -> Iterator[tuple[Any, np.ndarray]]:
        nonlocal found, left_out
        for X, y, without in model.read_labelled(source, target, batch_rows or model.batch_size):
            found, left_out = found + len(y), left_out + without
            notify(f"scoring {found:,} {unit}")
            if len(y):
                unlike.update(chain.from_iterable(model.novelty_reasons(X, far=False)))
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
    about: dict[str, Any] = {"rows": scored.rows, "scores": [one.as_json() for one in scored.scores]}
    about |= {"trained_on_this_file": trained_on}
    if scored.confusion is not None:
        about["confusion"] = scored.confusion
    print_sections(console, score_sections(about, f"{scored.rows:,} {unit} of {data.name}"))
    return about


def write_frames(frames: Iterator[pd.DataFrame], out: Path | None) -> None:
    """Write DataFrames one after another to the file `out`, in the format of its extension; None is standard output."""
    kind = output_format(out)
    if kind == "excel":
        require("openpyxl", extra="cli")
    first = next(frames)  # errors of the input are raised before the output is opened
    frames = chain([first], frames)
    if out is None or kind in ("csv", "jsonl"):
        with written(out) as file:
            for frame in frames:
                if kind == "csv":
                    frame.to_csv(file, header=frame is first, index=False, lineterminator="\n")
                else:
                    frame.to_json(file, orient="records", lines=True, date_format="iso")
        return
    with atomic_write(out.resolve()) as part:
        if kind == "parquet":
            _write_parquet(frames, part)
        else:
            table = pd.concat(frames)
            with input_errors("the predictions cannot be written as Excel: "):  # Excel allows 1,048,576 rows
                table.to_excel(part, sheet_name="predictions", index=False, engine="openpyxl")


def _write_parquet(frames: Iterator[pd.DataFrame], part: Path) -> None:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    table = pa.Table.from_pandas(next(frames), preserve_index=False)
    with ParquetWriter(part, table.schema) as writer:
        writer.write_table(table)
        for frame in frames:
            with input_errors("predictions cannot be written as Parquet, since a column changes its type: ", TypeError):
                table = pa.Table.from_pandas(frame, schema=table.schema, preserve_index=False)
            writer.write_table(table)


@contextmanager
def written(out: Path | None) -> Iterator[TextIO]:
    """Yield standard output, a pipe, a device, or a temporary file that replaces the file `out` when it is complete."""
    if out is None:
        yield sys.stdout
        return
    # Symbolic links are resolved, so that the file is replaced and not the link.
    target = nullcontext(out) if is_stream(out) else atomic_write(out.resolve())
    with target as path, open(path, "w", encoding="utf-8", newline="") as file:
        yield file


def _warn_unseen(console: Console, unlike: Counter[Reason]) -> dict[str, int]:
    """Print and return, for each categorical column, the number of values that did not occur in training."""
    unseen = {one.column: count for one, count in unlike.items() if one.reason == UNSEEN}
    for name, count in unseen.items():
        console.print(
            f"[yellow]{count:,} values of {escape(name)} did not occur in training[/yellow]; they are treated as unknown"
        )
    return unseen
