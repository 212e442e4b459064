"""Confusion matrices and galleries of misclassified images."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from gramless.experiments import Confusion, Gallery
from gramless.report.groups import Record, best
from gramless.report.html import Markup, element
from gramless.report.png import data_address
from gramless.report.words import parameters

NUMBERS_UP_TO = 12


def confusion_matrix(view: Confusion, records: Sequence[Record]) -> Markup | None:
    """Rows are true classes, columns predicted ones, in percent of the row."""
    record = best([r for r in records if r.get("confusion")], view.where)
    if record is None:
        return None
    labels, counts = record["confusion"]["labels"], record["confusion"]["counts"]
    small = len(labels) <= NUMBERS_UP_TO
    head = [element("td", "")] + [element("th", _short(name), scope="col", title=name) for name in labels]
    body = []
    for i, name in enumerate(labels):
        total = sum(counts[i]) or 1
        cells = [element("th", _short(name), scope="row", title=name)]
        for j, count in enumerate(counts[i]):
            share = count / total
            # Mistakes are rare: their shade grows fast, or none but the worst would be seen.
            depth = share if i == j else min(1.0, (share * 4) ** 0.6)
            said = f"{name} taken for {labels[j]}: {count} of {total}"
            cells.append(
                element(
                    "td",
                    _percent(share) if small and count else "",
                    title=said,
                    class_="right" if i == j else "wrong",
                    style=f"--depth:{100 * depth:.0f}%",
                )
            )
        body.append(element("tr", *cells))
    table = element("table", element("thead", element("tr", *head)), element("tbody", *body), class_="confusion")
    title = view.title or "Confusion of the best fit"
    note = f"{parameters(dict(record['params']))}; rows are true classes, in percent"
    return element(
        "figure",
        element("figcaption", title, element("small", f" {note}")),
        element("div", table, class_="scroll", tabindex="0", role="region", aria_label=title),
        class_="plot",
    )


def gallery(view: Gallery, records: Sequence[Record]) -> Markup | None:
    """Misclassified test images of the best fit: true label, then what was predicted."""
    record = best([r for r in records if r.get("misclassified")], view.where)
    if record is None:
        return None
    wrong = record["misclassified"]
    images = wrong["images"][: view.limit]
    items = []
    for image in images:
        said = f"test image {image['index']}: {image['true']}, taken for {image['predicted']}"
        picture = data_address(base64.b64decode(image["pixels"]), wrong["image_shape"])
        caption = [element("b", image["true"]), " → ", element("i", image["predicted"])]
        items.append(element("li", element("img", src=picture, alt=said, title=said), element("span", *caption)))
    title = view.title or "Misclassified by the best fit"
    shown = f"{len(items)} of {wrong['total']}" if wrong["total"] > len(items) else f"all {wrong['total']}"
    note = f" {parameters(dict(record['params']))}; {shown}, true label → predicted"
    words = any(len(str(image[label])) > 5 for image in images for label in ("true", "predicted"))
    return element(
        "figure",
        element("figcaption", title, element("small", note)),
        element("ul", *items, class_="gallery words" if words else "gallery"),
        class_="plot",
    )


def _short(name: str) -> str:
    return name if len(name) <= 5 else name[:4] + "."


def _percent(share: float) -> str:
    return f"{100 * share:.0f}" if share >= 0.0095 else f"{100 * share:.1f}"
