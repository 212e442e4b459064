"""Tables of results beside the paper's figures, and bars of time and memory, as values for the templates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gramless.papers.experiments import Spec, Table
from gramless.papers.report.commands import command
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
from gramless.papers.report.groups import Point, Record, name_of, points, said, varying

ROWS_SHOWN = 14
BARS_SHOWN = 12
# Bars whose lengths differ by less than this share of the longest say nothing; a sentence does.
ALIKE = 0.1


def results_table(view: Table, spec: Spec, records: Sequence[Record], *, quick: bool = False) -> dict[str, Any]:
    """One row per point of the grid and device; ours, the paper's, the difference, and the command that repeats it."""
    rows = points(records)
    devices = len({row.device for row in rows}) > 1
    busy = any(record.get("busy") for record in records)
    keys = view.rows or varying(records) or tuple(rows[0].params)
    metrics = [metric for metric in view.metrics if any(row.values(metric) for row in rows)]
    compared = {m for m in metrics if any(said(spec.references, row.params, m) for row in rows)}
    figures = [head for m in metrics for head in (label(m), *(("paper", "difference") if m in compared else ()))]
    return {
        "shows": "table",
        "title": view.title,
        "long": len(rows) > ROWS_SHOWN,
        "names": [label(key) for key in keys] + ["device"] * devices,
        "note": "Seconds of a machine that had other work at the same time are rough." if busy else "",
        "figures": figures,
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
            reference = said(spec.references, row.params, metric)
            theirs, where = (None, "") if reference is None else (reference.value, reference.where)
            cells += comparison(metric, mean, theirs, where)
    return cells


def cost_bars(records: Sequence[Record]) -> dict[str, Any]:
    """Time to fit and peak memory of each point of the grid; the slowest ones where there are many. Where all bars of a kind
    would be alike, a sentence takes their place.
    """
    rows = sorted(points(records), key=lambda row: -(row.mean("seconds") or 0.0))
    shown = rows[:BARS_SHOWN]
    keys = varying(records)
    devices = len({row.device for row in rows}) > 1
    seconds = [row.mean("seconds") or 0.0 for row in shown]
    megabytes = [row.mean("peak_mb") or 0.0 for row in shown]
    bars = {"time": _differ(seconds), "memory": _differ(megabytes)}
    words = []
    if not bars["time"]:
        words.append(f"Every fit took {_range(seconds, duration)}.")
    if not bars["memory"]:
        words.append(f"The peak memory of the process was {_range(megabytes, memory)} in {counted(len(shown), 'setting')}.")
    lines = []
    for row, time, size in zip(shown, seconds, megabytes, strict=True):
        what = name_of(row.params, keys) or parameters(row.params)
        lines.append(
            {
                "what": f"{what}, {row.device}" if devices else what,
                "time": duration(time),
                "time_share": max(100 * time / (max(seconds) or 1.0), 0.6),
                "memory": memory(size),
                "memory_share": max(100 * size / (max(megabytes) or 1.0), 0.6),
            }
        )
    note = f", the {len(shown)} slowest of {len(rows)}" if len(rows) > len(shown) else ""
    return {"note": note, "lines": lines if any(bars.values()) else [], "bars": bars, "words": " ".join(words)}


def _differ(values: Sequence[float]) -> bool:
    return len(values) > 1 and max(values) - min(values) > ALIKE * max(values)


def _range(values: Sequence[float], words: Any) -> str:
    low, high = words(min(values)), words(max(values))
    return low if low == high else f"{low} to {high}"
