"""Confusion matrices and galleries of misclassified images, as values for the templates."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from gramless.experiments import Confusion, Gallery
from gramless.report.groups import Record, best
from gramless.report.png import data_address
from gramless.report.words import parameters

NUMBERS_UP_TO = 12


def confusion_matrix(view: Confusion, records: Sequence[Record]) -> dict[str, Any] | None:
    """Rows are true classes, columns predicted ones, in percent of the row."""
    record = best([r for r in records if r.get("confusion")], view.where)
    if record is None:
        return None
    labels, counts = record["confusion"]["labels"], record["confusion"]["counts"]
    rows = []
    for i, name in enumerate(labels):
        total = sum(counts[i]) or 1
        cells = []
        for j, count in enumerate(counts[i]):
            share = count / total
            # Mistakes are rare: their shade grows fast, or none but the worst would be seen.
            depth = share if i == j else min(1.0, (share * 4) ** 0.6)
            cells.append(
                {
                    "text": _percent(share) if len(labels) <= NUMBERS_UP_TO and count else "",
                    "title": f"{name} taken for {labels[j]}: {count} of {total}",
                    "kind": "right" if i == j else "wrong",
                    "depth": 100 * depth,
                }
            )
        rows.append({"name": name, "cells": cells})
    return {
        "shows": "confusion",
        "title": view.title or "Confusion of the best fit",
        "note": f"{parameters(record['params'])}; rows are true classes, in percent",
        "labels": labels,
        "rows": rows,
    }


def gallery(view: Gallery, records: Sequence[Record]) -> dict[str, Any] | None:
    """Misclassified test images of the best fit: true label, then what was predicted."""
    record = best([r for r in records if r.get("misclassified")], view.where)
    if record is None:
        return None
    wrong = record["misclassified"]
    images = wrong["images"][: view.limit]
    shown = f"{len(images)} of {wrong['total']}" if wrong["total"] > len(images) else f"all {wrong['total']}"
    return {
        "shows": "gallery",
        "title": view.title or "Misclassified by the best fit",
        "note": f"{parameters(record['params'])}; {shown}, true label → predicted",
        "words": any(len(str(image[label])) > 5 for image in images for label in ("true", "predicted")),
        "images": [
            {
                "source": data_address(base64.b64decode(image["pixels"]), wrong["image_shape"]),
                "said": f"test image {image['index']}: {image['true']}, taken for {image['predicted']}",
                "true": image["true"],
                "predicted": image["predicted"],
            }
            for image in images
        ],
    }


def _percent(share: float) -> str:
    return f"{100 * share:.0f}" if share >= 0.0095 else f"{100 * share:.1f}"
