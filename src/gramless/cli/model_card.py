"""Card of a model (estimator, data, scores, inputs, versions) as a Markdown file and as tables for a terminal.

The inputs are described by names, types, ranges and counts as JSON, which the model file contains.

The card of `model.skops` is the file `model.card.md`, which contains the SHA-256 checksum of the model file.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gramless._core.files import atomic_write
from gramless.cli.model import TableModel

Section = tuple[str, list[str], list[list[str]]]
_LEVELS = 6  # categories that are shown
_STORED_LEVELS = 100  # categories that are stored with their counts


def card_path(model: Path) -> Path:
    """Return the path of the card of a model file."""
    return model.with_name(f"{model.stem[:200]}.card.md")  # file names have at most 255 bytes


def checksum(path: Path) -> str:
    """Return the SHA-256 checksum of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sections(model: TableModel) -> list[Section]:
    """Return the title, the column names and the rows of each table of a card."""
    about = model.about
    rows = about.get("rows", {})
    what = [
        ["estimator", str(about.get("estimator"))],
        ["predicts", f"{about.get('target') or 'y'} ({model.task})"],
        ["data", f"{about.get('data')}"],
        ["rows", f"{rows.get('train', 0):,} for training, {rows.get('held_out', 0):,} held out"],
    ]
    if model.task == "classification":
        shares = about.get("class_shares", [])
        what.append(["classes", ", ".join(f"{k} ({s:.1%})" for k, s in zip(model.classes_.tolist(), shares, strict=False))])
    if about.get("error_90") is not None:
        what.append(["90 % of errors below", f"{about['error_90']:.4g}"])
    found: list[Section] = [("Model", ["", ""], what)]
    scores = [
        [one["metric"], _figure(one["value"]), f"{_figure(one['low'])} to {_figure(one['high'])}", _figure(one["baseline"])]
        for one in about.get("scores", [])
    ]
    if scores:
        how = f"{about['folds']} folds" if "folds" in about else "held-out rows"
        found.append((f"Scores on {how}", ["score", "value", "95 % interval", "constant prediction"], scores))
    inputs = [_input(record) for record in about.get("inputs", [])]
    if inputs:
        found.append(("Inputs", ["column", "kind", "training values", "missing"], inputs))
    left_out = about.get("columns", {}).get("left_out", {})
    if left_out:
        found.append(("Left out", ["column", "why"], [[name, why] for name, why in left_out.items()]))
    settings = about.get("settings")
    chosen = settings if isinstance(settings, list) else [f"{key} {value}" for key, value in (settings or {}).items()]
    chosen = (
        [[str(one)] for one in chosen]
        + [[f"tuned: {about.get('tuned')}"]]
        + [[t] for t in about.get("reductions", about.get("gave_up", []))]
    )
    found.append(("Settings", ["chosen"], chosen))
    versions = {"gramless": about.get("gramless"), **about.get("versions", {})}
    found.append(("Versions", ["package", "version"], [[name, str(number)] for name, number in versions.items()]))
    return found


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _input(record: dict[str, Any]) -> list[str]:
    if record["typical"] is None:
        seen = "no value"
    elif record["kind"] == "number":
        seen = f"{record['low']:.4g} to {record['high']:.4g}, median {record['typical']:.4g}"
    elif record["kind"] == "date":
        seen = f"{record['low'][:10]} to {record['high'][:10]}"
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
        record: dict[str, Any] = {"name": name, "kind": "word", "missing": int(len(X) - len(known))}
        if len(known) == 0:
            record |= {"typical": None, "low": None, "high": None, "levels": {}, "distinct": 0}
            record["kind"] = kind if kind in ("number", "date") else "word"
        elif kind == "number":
            values = known.to_numpy(dtype=np.float64)
            middle = np.median(values)
            # The lower median: the mean of two integers may be a value that does not occur.
            typical = np.partition(values, (len(values) - 1) // 2)[(len(values) - 1) // 2] if len(values) else middle
            record |= {"kind": "number", "low": values.min(), "high": values.max(), "typical": typical}
            record |= {"mean": values.mean(), "deviation": values.std()}
            record = {key: float(value) if isinstance(value, np.floating) else value for key, value in record.items()}
        elif kind == "date":
            middle = known.sort_values().iloc[(len(known) - 1) // 2]
            record |= {"kind": "date"} | {
                key: moment.isoformat() for key, moment in (("low", known.min()), ("high", known.max()), ("typical", middle))
            }
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
