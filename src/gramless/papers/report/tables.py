"""Tables of results beside the paper's values, confusion matrices and images, as values for the templates."""

from __future__ import annotations

import base64
import io
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from gramless.papers.experiments import Confusion, Gallery, Pictures, Spec, Table
from gramless.papers.experiments.results import Point, Record, points
from gramless.papers.report.formatting import (
    PERCENTAGES,
    comparison,
    headline,
    label,
    paper_value,
    parameters,
    plain_number,
    value,
    varying_among,
)

_ROWS_SHOWN = 14  # longer tables are collapsed
_MOST_CLASSES_WITH_NUMBERS = 12  # larger matrices have coloured cells without numbers


def results_table(view: Table, spec: Spec, records: Sequence[Record], *, quick: bool = False) -> dict[str, Any]:
    """Return a table with a row per grid point: our values, the paper's, the difference, and the command that repeats it."""
    grid = list(map(repr, spec.grid))
    rows = sorted(points(records), key=lambda row: grid.index(repr(row.params)) if repr(row.params) in grid else len(grid))
    devices = len({row.device for row in rows}) > 1
    busy = any(record.get("busy") for record in records)
    keys = view.rows or varying_among([row.params for row in rows]) or tuple(rows[0].params)
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


def confusion_matrix(view: Confusion, spec: Spec, records: Sequence[Record]) -> dict[str, Any] | None:
    """Return the confusion matrix of one fit, in percent of the true classes, which are the rows."""
    record = _representative([r for r in records if r.get("confusion")], spec, view.where)
    if record is None:
        return None
    labels, counts = record["confusion"]["labels"], record["confusion"]["counts"]
    rows = []
    for i, name in enumerate(labels):
        total = sum(counts[i]) or 1
        cells = []
        for j, count in enumerate(counts[i]):
            share = count / total
            # Errors are rare, so the colour is a concave function of their share, which makes small shares visible.
            depth = share if i == j else min(1.0, (share * 4) ** 0.6)
            cells.append(
                {
                    "text": _percent(share) if len(labels) <= _MOST_CLASSES_WITH_NUMBERS and count else "",
                    "title": f"{name} predicted as {labels[j]}: {count} of {total}",
                    "kind": "right" if i == j else "wrong",
                    "depth": 100 * depth,
                }
            )
        rows.append({"name": name, "cells": cells})
    return {
        "shows": "confusion",
        "title": view.title or "Confusion matrix",
        "note": f"{_caption(record)}; rows are true classes, in percent",
        "labels": labels,
        "rows": rows,
    }


def gallery(view: Gallery, spec: Spec, records: Sequence[Record]) -> dict[str, Any] | None:
    """Return misclassified test images of one fit, with true and predicted labels."""
    record = _representative([r for r in records if r.get("misclassified")], spec, view.where)
    if record is None:
        return None
    wrong = record["misclassified"]
    images = wrong["images"][: view.limit]
    number = f"{len(images)} of {wrong['total']}" if wrong["total"] > len(images) else f"all {wrong['total']}"
    return {
        "shows": "gallery",
        "title": view.title or "Misclassified",
        "note": f"{_caption(record)}; {number}, true label → predicted",
        "wide": any(len(str(image[label])) > 5 for image in images for label in ("true", "predicted")),
        "images": [
            {
                "source": _data_url(image["pixels"], wrong["image_shape"]),
                "caption": f"test image {image['index']}: {image['true']}, predicted as {image['predicted']}",
                "true": image["true"],
                "predicted": image["predicted"],
            }
            for image in images
        ],
    }


def pictures(view: Pictures, spec: Spec, records: Sequence[Record]) -> dict[str, Any] | None:
    """Return the images that one fit recorded, with their captions."""
    shown = [r for r in records if (r.get("pictures") or {}).get(view.key, {}).get("images")]
    record = _representative(shown, spec, view.where)
    if record is None:
        return None
    found = record["pictures"][view.key]
    return {
        "shows": "pictures",
        "title": view.title,
        "note": _caption(record),
        "small": not view.captions,
        "images": [
            {"source": _data_url(image["pixels"], found["image_shape"]), "caption": image["said"]}
            for image in found["images"]
        ],
    }


def _data_url(pixels: str, shape: Sequence[int]) -> str:
    """Return base64-encoded rows of 8-bit pixels, grey or RGB, as the data URL of a PNG file."""
    from PIL import Image

    file = io.BytesIO()
    Image.frombytes("RGB" if len(shape) == 3 else "L", (shape[1], shape[0]), base64.b64decode(pixels)).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _representative(records: Sequence[Record], spec: Spec, where: Mapping[str, Any] | None) -> Record | None:
    """Return the first seed of the headline of the fits, or of those that have the parameters `where`."""
    chosen = headline(spec, records, where)
    return None if chosen is None else min(chosen.point.records, key=lambda record: record["seed"])


def _caption(record: Record) -> str:
    return f"{parameters(record['params'])}, seed {record['seed']}: {record['metrics']['error']:.2f} % error"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}" if share >= 0.0095 else f"{100 * share:.1f}"
