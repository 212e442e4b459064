"""Views of an experiment, as values for the templates: tables, confusion matrices, images, and the charts of `charts.py`."""

from __future__ import annotations

import base64
import io
import json
import shlex
from collections.abc import Sequence
from typing import Any

from gramless.papers.experiments.declarations import Confusion, Curve, Gallery, Pictures, Spec, Table
from gramless.papers.experiments.results import Point, Record, points
from gramless.papers.report.charts import figures
from gramless.papers.report.formatting import headline, paper_value, parameters, varying_among


def shown_views(spec: Spec, done: Sequence[Record], quick: bool) -> list[dict[str, Any]]:
    """Return the views of an experiment that have something to show; a figure for each facet of a chart."""
    shown: list[dict[str, Any]] = []
    for view in spec.views:
        if isinstance(view, Curve):
            shown += figures(view, spec, done)
        elif isinstance(view, Table):
            shown.append(_results_table(view, spec, done, quick))
        else:
            record = _representative(view, spec, done)
            if record is not None:
                shown.append({"shows": type(view).__name__.lower(), "view": view, "record": record})
    return shown


def _results_table(view: Table, spec: Spec, records: Sequence[Record], quick: bool) -> dict[str, Any]:
    """Return a table with a row per grid point: our values, the paper's, the difference, and the command that repeats it."""
    grid = list(map(repr, spec.grid))
    rows = sorted(points(records), key=lambda row: grid.index(repr(row.params)) if repr(row.params) in grid else len(grid))
    metrics = [metric for metric in view.metrics if any(row.values(metric) for row in rows)]
    return {
        "shows": "table",
        "view": view,
        "spec": spec,
        "quick": quick,
        "rows": rows,
        "has_devices": len({row.device for row in rows}) > 1,
        "busy": any(record.get("busy") for record in records),
        "parameters": view.rows or varying_among([row.params for row in rows]) or tuple(rows[0].params),
        "metrics": metrics,
        "compared": {m for m in metrics if any(paper_value(spec.references, row.params, m) for row in rows)},
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


def _representative(view: Confusion | Gallery | Pictures, spec: Spec, records: Sequence[Record]) -> Record | None:
    """Return the fit that a view shows: the first seed of the headline of the fits that have its data and parameters."""

    def has_data(record: Record) -> Any:
        if isinstance(view, Pictures):
            return (record.get("pictures") or {}).get(view.key, {}).get("images")
        return record.get("misclassified" if isinstance(view, Gallery) else "confusion")

    chosen = headline(spec, filter(has_data, records), view.where)
    return None if chosen is None else min(chosen.point.records, key=lambda record: record["seed"])


def data_url(pixels: str, shape: Sequence[int]) -> str:
    """Return base64-encoded rows of 8-bit pixels, grey or RGB, as the data URL of a PNG file."""
    from PIL import Image

    file = io.BytesIO()
    Image.frombytes("RGB" if len(shape) == 3 else "L", (shape[1], shape[0]), base64.b64decode(pixels)).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def caption(record: Record) -> str:
    """Return the setting, the seed and the error of a fit."""
    return f"{parameters(record['params'])}, seed {record['seed']}: {record['metrics']['error']:.2f} % error"
