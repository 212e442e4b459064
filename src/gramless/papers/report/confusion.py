"""Confusion matrices and galleries of images, as values for the templates."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

from gramless.papers.experiments import Confusion, Gallery, Pictures, Spec
from gramless.papers.report.formatting import parameters
from gramless.papers.report.groups import Record, headline

_MOST_CLASSES_WITH_NUMBERS = 12  # larger matrices have coloured cells without numbers


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
    record = _representative(
        [r for r in records if (r.get("pictures") or {}).get(view.key, {}).get("images")], spec, view.where
    )
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
