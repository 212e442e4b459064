"""Card of a model (estimator, data, scores, inputs, versions) as a Markdown file and as tables for a terminal.

The inputs are described by names, types, ranges and counts as JSON, which the model file contains.

The card of `model.skops` is the file `model.card.md`, which contains the SHA-256 checksum of the model file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gramless._core.files import atomic_write
from gramless.cli.model import TableModel
from gramless.cli.table_files import checksum
from gramless.tables.column_types import USED_KINDS

Section = tuple[str, list[str], list[list[str]]]
_LEVELS = 6  # categories that are shown
_STORED_LEVELS = 100  # categories that are stored with their counts


def card_path(model: Path) -> Path:
    """Return the path of the card of a model file."""
    return model.with_name(f"{model.stem[:200]}.card.md")  # file names have at most 255 bytes


def sections(model: TableModel) -> list[Section]:
    """Return the title, the column names and the rows of each table of a card."""
    about = model.about
    rows = about.get("rows", {})
    settings = about.get("settings")
    if isinstance(settings, dict):
        chosen = {key: f"{value:.3g}" if isinstance(value, float) else value for key, value in settings.items()}
        settings = [", ".join(f"{key} {value}" for key, value in chosen.items() if value is not None)]
    steps = (("tuned", "tune_seconds"), ("fitted", "fit_seconds"))
    seconds = [f"{step} in {about[key]:.1f} s" for step, key in steps if key in about]
    what = [
        ["estimator", f"{about.get('estimator')}: {about.get('why')}"],
        ["predicts", f"{about.get('target') or 'y'} ({model.task})"],
        ["data", f"{about.get('data')}, {_columns(model)}"],
        ["rows", f"{rows.get('train', 0):,} for training, {rows.get('held_out', 0):,} held out"],
        *(["settings", str(one)] for one in settings or []),
        *(["reduced", str(one)] for one in about.get("reductions", about.get("gave_up", []))),
        ["tuned", ", ".join([str(about.get("tuned")), *seconds])],
    ]
    if model.task == "classification":
        shares = about.get("class_shares", [])
        what.append(["classes", ", ".join(f"{k} ({s:.1%})" for k, s in zip(model.classes_.tolist(), shares, strict=False))])
    if about.get("error_90") is not None:
        what.append(["90 % of errors below", f"{about['error_90']:.4g}"])
    how = f"{about['folds']} folds" if "folds" in about else "held-out rows"
    found: list[Section] = [("Model", ["", ""], what), *score_sections(about.get("scores"), about.get("confusion"), how)]
    inputs = [_input(record) for record in about.get("inputs", [])]
    if inputs:
        found.append(("Inputs", ["column", "kind", "training values", "missing"], inputs))
    left_out = about.get("columns", {}).get("left_out", {})
    if left_out:
        found.append(("Left out", ["column", "why"], [[name, why] for name, why in left_out.items()]))
    versions = {"gramless": about.get("gramless"), **about.get("versions", {})}
    found.append(("Versions", ["package", "version"], [[name, str(number)] for name, number in versions.items()]))
    return found


def _columns(model: TableModel) -> str:
    if model.n_features is not None:
        return f"{model.n_features:,} sparse columns"
    counts = [(len(model.columns_of(kind)), kind) for kind in USED_KINDS]
    return " and ".join(f"{n} {kind} column{'s' * (n != 1)}" for n, kind in counts if n)


def score_sections(scores: list[dict[str, Any]] | None, confusion: dict[str, Any] | None, rows: str) -> list[Section]:
    """Return the table of scores on some rows, and the confusion matrix of these rows if there is one."""
    found: list[Section] = []
    if scores:
        shown = [[one["metric"], *(_figure(one[key]) for key in ("value", "low", "high", "baseline"))] for one in scores]
        shown = [[name, value, f"{low} to {high}", constant] for name, value, low, high, constant in shown]
        found.append((f"Scores on {rows}", ["score", "value", "95 % interval", "constant"], shown))
    if confusion is not None:
        names = [str(label) for label in confusion["classes"]]
        counts = [[f"{count:,}" for count in row] for row in confusion["counts"]]
        table = [[name, *row] for name, row in zip(names, counts, strict=True)]
        found.append((f"Classes (rows) and predictions (columns) of {rows}", ["class", *names], table))
    return found


def print_sections(console: Console, found: Iterable[Section]) -> None:
    """Print tables to a terminal; columns of numbers are aligned to the right."""
    for title, heading, rows in found:
        console.print(f"[bold]{escape(title)}[/bold]")
        table = Table(box=SIMPLE, show_header=any(heading), header_style="bold")
        for name, *cells in zip(heading, *rows, strict=True):
            is_number = all(re.fullmatch(r"[-+\d.,e]+( to [-+\d.,e]+)?", cell) for cell in cells)
            table.add_column(escape(name), overflow="fold", justify="right" if is_number else "left")
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table, soft_wrap=False)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}"


def _input(record: dict[str, Any]) -> list[str]:
    if record["typical"] is None:
        seen = "no value"
    elif record["kind"] == "number":
        seen = f"{record['low']:.4g} to {record['high']:.4g}, median {record['typical']:.4g}"
    elif record["kind"] == "date":
        seen = f"{record['low'][:10]} to {record['high'][:10]}"
    elif record["kind"] == "text":
        seen = f"{record['distinct']:,} texts"
    else:
        levels = list(record["levels"].items())
        more = f" and {record['distinct'] - _LEVELS} more" if record["distinct"] > _LEVELS else ""
        seen = ", ".join(f"{level} ({count:,})" for level, count in levels[:_LEVELS]) + more
    return [record["name"], record["kind"], seen, f"{record['missing']:,}"]


def describe_inputs(X: pd.DataFrame, types: dict[str, str]) -> list[dict[str, Any]]:
    """Return one record for each input column of typed training rows."""
    found = []
    for name, kind in types.items():
        known = X[name].dropna()
        record: dict[str, Any] = {"name": name, "kind": kind, "missing": int(len(X) - len(known))}
        if len(known) == 0:
            record |= {"typical": None, "low": None, "high": None, "levels": {}, "distinct": 0}
        elif kind == "number":
            values = known.to_numpy(dtype=np.float64)
            middle = np.median(values)
            # The lower median: the mean of two integers may be a value that does not occur.
            typical = np.partition(values, (len(values) - 1) // 2)[(len(values) - 1) // 2] if len(values) else middle
            record |= {"low": values.min(), "high": values.max(), "typical": typical}
            record |= {"mean": values.mean(), "deviation": values.std()}
            record = {key: float(value) if isinstance(value, np.floating) else value for key, value in record.items()}
        elif kind == "date":
            middle = known.sort_values().iloc[(len(known) - 1) // 2]
            record |= {
                key: moment.isoformat() for key, moment in (("low", known.min()), ("high", known.max()), ("typical", middle))
            }
        elif kind == "text":
            record |= {"typical": "", "distinct": known.nunique()}
        else:
            counts = known.value_counts()
            record |= {
                "typical": str(counts.index[0]),
                "levels": {str(level): int(count) for level, count in counts.iloc[:_STORED_LEVELS].items()},
                "distinct": len(counts),
            }
        found.append(record)
    return found


def write_model_card(model: TableModel, path: Path) -> None:
    """Write the card of a model that was saved to `path`."""
    lines = [f"# {model.about.get('target') or 'y'}", "", f"`{path.name}`, SHA-256 `{checksum(path)}`", ""]
    for title, heading, rows in sections(model):
        lines += [f"## {title}", "", _line(heading), _line(["---"] * len(heading)), *map(_line, rows), ""]
    with atomic_write(card_path(path)) as part:
        part.write_text("\n".join(lines), encoding="utf-8")


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
