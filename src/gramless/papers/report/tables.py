"""Tables of results beside the paper's values, and bars of time and memory, as values for the templates."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from gramless.papers.experiments import Spec, Table
from gramless.papers.report.formatting import (
    PERCENTAGES,
    comparison,
    counted,
    duration,
    label,
    memory,
    parameters,
    plain_number,
    value,
)
from gramless.papers.report.groups import Point, Record, name_of, paper_value, points, varying, varying_among

_ROWS_SHOWN = 14  # longer tables are collapsed
_BARS_SHOWN = 12
_SMALLEST_DIFFERENCE = 0.1  # of the longest bar; bars that differ less are replaced by a sentence


def results_table(view: Table, spec: Spec, records: Sequence[Record], *, quick: bool = False) -> dict[str, Any]:
    """Return a table with a row per grid point: our values, the paper's, the difference, and the command that repeats it."""
    rows = points(records)
    devices = len({row.device for row in rows}) > 1
    busy = any(record.get("busy") for record in records)
    keys = view.rows or varying(records) or tuple(rows[0].params)
    metrics = [metric for metric in view.metrics if any(row.values(metric) for row in rows)]
    compared = {m for m in metrics if any(paper_value(spec.references, row.params, m) for row in rows)}
    return {
        "shows": "table",
        "title": view.title,
        "long": len(rows) > _ROWS_SHOWN,
        "names": [label(key) for key in keys] + ["device"] * devices,
        "note": "Other processes ran at the same time, so seconds are approximate." if busy else "",
        "metrics": [head for m in metrics for head in (label(m), *(("paper", "difference") if m in compared else ()))],
        "rows": [
            {
                "settings": [_setting(row, key) for key in keys] + [row.device] * devices,
                "cells": _cells(row, metrics, compared, spec),
                "command": command(spec, row, quick=quick),
                "seeds": f"seeds {row.seeds[0]} to {row.seeds[-1]}" if len(row.seeds) > 1 else "",
            }
            for row in rows
        ],
    }


def command(spec: Spec, point: Point, *, quick: bool) -> str:
    """Return the command that repeats the first seed of a grid point."""
    words = ["gramless", "reproduce", spec.paper, "--only", spec.name]
    for key in varying_among(spec.grid):
        if key in point.params:
            given = point.params[key]
            words += ["--where", f"{key}={given if isinstance(given, str) else json.dumps(given)}"]
    words += ["--seed", str(point.seeds[0])]
    device = point.records[0].get("device")
    words += ["--device", device] if device else []
    words += ["--quick"] if quick else []
    return shlex.join(words)


def _setting(row: Point, key: str) -> str:
    given = row.params.get(key)
    if isinstance(given, bool):
        return "yes" if given else "no"
    return "–" if given is None else plain_number(given)


def _cells(row: Point, metrics: Sequence[str], compared: set[str], spec: Spec) -> list[dict[str, str]]:
    cells = []
    for metric in metrics:
        mean, spread = row.mean(metric), row.spread(metric)
        small = f"± {spread:.2f}" if spread is not None and metric in PERCENTAGES else ""
        cells.append({"text": value(metric, mean), "small": small, "kind": "ours"})
        if metric in compared:
            reference = paper_value(spec.references, row.params, metric)
            theirs, where = (None, "") if reference is None else (reference.value, reference.where)
            cells += comparison(metric, mean, theirs, where)
    return cells


def cost_bars(records: Sequence[Record]) -> dict[str, Any]:
    """Return bars of time and peak memory of the slowest grid points; a sentence replaces bars of nearly equal length."""
    rows = sorted(points(records), key=lambda row: -(row.mean("seconds") or 0.0))
    shown = rows[:_BARS_SHOWN]
    keys = varying(records)
    devices = len({row.device for row in rows}) > 1
    seconds = [row.mean("seconds") or 0.0 for row in shown]
    megabytes = [row.mean("peak_mb") or 0.0 for row in shown]
    bars = {"time": _differ(seconds), "memory": _differ(megabytes)}
    sentences = []
    if not bars["time"]:
        sentences.append(f"Every fit took {_range(seconds, duration)}.")
    if not bars["memory"]:
        size = _range(megabytes, memory)
        sentences.append(f"The peak memory of the process was {size} in {counted(len(shown), 'setting')}.")
    lines = []
    for row, time, size_mb in zip(shown, seconds, megabytes, strict=True):
        name = name_of(row.params, keys) or parameters(row.params)
        lines.append(
            {
                "name": f"{name}, {row.device}" if devices else name,
                "time": duration(time),
                "time_share": max(100 * time / (max(seconds) or 1.0), 0.6),
                "memory": memory(size_mb),
                "memory_share": max(100 * size_mb / (max(megabytes) or 1.0), 0.6),
            }
        )
    note = f", the {len(shown)} slowest of {len(rows)}" if len(rows) > len(shown) else ""
    return {"note": note, "lines": lines if any(bars.values()) else [], "bars": bars, "text": " ".join(sentences)}


def _differ(values: Sequence[float]) -> bool:
    return len(values) > 1 and max(values) - min(values) > _SMALLEST_DIFFERENCE * max(values)


def _range(values: Sequence[float], format_value: Callable[[float], str]) -> str:
    low, high = format_value(min(values)), format_value(max(values))
    return low if low == high else f"{low} to {high}"
