"""Tables of results beside the paper's figures, and bars of time and memory, as values for the templates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gramless.experiments import Spec, Table
from gramless.report.groups import Point, Record, name_of, points, said, varying
from gramless.report.words import SHARES, comparison, duration, label, memory, parameters, plain_number, value

ROWS_SHOWN = 14
BARS_SHOWN = 12


def results_table(view: Table, spec: Spec, records: Sequence[Record]) -> dict[str, Any]:
    """One row per point of the grid; ours, the paper's, the difference."""
    rows = points(records)
    keys = view.rows or varying(records) or tuple(rows[0].params)
    metrics = [metric for metric in view.metrics if any(row.values(metric) for row in rows)]
    compared = {m for m in metrics if any(said(spec.paper_says, row.params, m) for row in rows)}
    figures = [head for m in metrics for head in (label(m), *(("paper", "difference") if m in compared else ()))]
    return {
        "shows": "table",
        "title": view.title,
        "long": len(rows) > ROWS_SHOWN,
        "names": [label(key) for key in keys],
        "figures": figures,
        "rows": [
            {"settings": [_setting(row, key) for key in keys], "cells": _cells(row, metrics, compared, spec)} for row in rows
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
        small = f"± {spread:.2f}" if spread is not None and metric in SHARES else ""
        cells.append({"text": value(metric, mean), "small": small, "kind": "ours"})
        if metric in compared:
            reference = said(spec.paper_says, row.params, metric)
            theirs, where = (None, "") if reference is None else (reference.value, reference.where)
            cells += comparison(metric, mean, theirs, where)
    return cells


def cost_bars(records: Sequence[Record]) -> dict[str, Any]:
    """Time to fit and peak memory of each point of the grid; the slowest ones where there are many."""
    rows = sorted(points(records), key=lambda row: -(row.mean("seconds") or 0.0))
    shown = rows[:BARS_SHOWN]
    keys = varying(records)
    longest = max((row.mean("seconds") or 0.0 for row in shown), default=0.0) or 1.0
    largest = max((row.mean("peak_mb") or 0.0 for row in shown), default=0.0) or 1.0
    lines = []
    for row in shown:
        seconds, megabytes = row.mean("seconds") or 0.0, row.mean("peak_mb") or 0.0
        lines.append(
            {
                "what": name_of(row.params, keys) or parameters(row.params),
                "time": duration(seconds),
                "time_share": max(100 * seconds / longest, 0.6),
                "memory": memory(megabytes),
                "memory_share": max(100 * megabytes / largest, 0.6),
            }
        )
    note = f", the {len(shown)} slowest of {len(rows)}" if len(rows) > len(shown) else ""
    return {"note": note, "lines": lines}
