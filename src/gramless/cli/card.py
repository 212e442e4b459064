"""HTML card of a trained table model, written by `--report` beside the model.

The card has the scores, the permutation importance and the partial dependence of the columns; for classes, a calibration
curve; for quantities, predictions against true values; and the coverage of intervals or prediction sets. It needs no script
and no other file, and has a light and a dark color scheme.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gramless._core.files import atomic_write
from gramless._core.svg import COLOURS, new_axes, to_svg
from gramless.cli.model import TableModel
from gramless.cli.scores import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CURVES = 6  # columns with a curve of partial dependence
_ROWS = 200  # rows over which partial dependence is averaged, and points of a scatter plot
_POINTS = 15  # values of a column in a curve of partial dependence
_BARS = 20  # columns with a bar of importance
_COVERAGES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_BINS = 10  # bins of the calibration curve
_WIDTH, _HEIGHT = 290, 210  # pixels of a chart; three charts are as wide as the page
_STYLE = """
:root { color-scheme: light dark; }
:root { --ink: #1c1f24; --soft: #5d6470; --faint: #8b919c; --grid: #eceae4; --card: #fff; --c0: #2a78d6; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e6e1; --soft: #a3a9b4; --faint: #7b828e; --grid: #2b313b; --card: #12151a; --c0: #74a6ff; }
}
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
body { color: var(--ink); background: var(--card); }
table { border-collapse: collapse; } td, th { padding: .2rem .8rem .2rem 0; text-align: left; }
figure { display: inline-block; vertical-align: top; margin: 0 1rem 1.5rem 0; max-width: 100%; }
figcaption { font-size: .9rem; max-width: 18rem; }
svg { display: block; max-width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; }
"""


def write_card(model: TableModel, scores: list[Score], X: pd.DataFrame, y: np.ndarray, path: Path, seed: int) -> None:
    """Write the card of a model; `X` and `y` are held-out rows."""
    about = model.about
    parts = [
        f"<h1>{escape(str(about['target'] or 'y'))}</h1>",
        f"<p>{escape(about['estimator'])} for {escape(model.task)}, from {escape(about['data'])}: "
        f"{about['rows']['train']:,} training rows, {about['rows']['held_out']:,} held-out rows.</p>",
        f"<p>{escape(about['why'])}.</p>",
        _scores_table(scores),
    ]
    if about.get("importance"):
        parts += [
            "<h2>Importance of the columns</h2>",
            "<p>Decrease of the score if the values of a column are permuted.</p>",
        ]
        parts.append(_importance_bars(about["importance"]))
        parts.append("<h2>Partial dependence</h2>")
        names = [name for name, value in about["importance"].items() if value > 0][:_CURVES]
        parts += [_partial_dependence(model, X, name, seed) for name in names] or [
            "<p>No column has a positive importance.</p>"
        ]
    parts += _against_truth(model, X, y)
    parts += _coverage(model, X, y)
    page = "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
    page += f"<title>{escape(about['data'])}</title><style>{_STYLE}</style><body>{''.join(parts)}</body></html>"
    with atomic_write(path) as part:
        part.write_text(page, encoding="utf-8")


def _scores_table(scores: list[Score]) -> str:
    rows = "".join(
        f"<tr><td>{escape(one.metric)}</td><td>{one.value:.4g}</td><td>{one.low:.4g} to {one.high:.4g}</td>"
        f"<td>{one.baseline:.4g}</td></tr>"
        for one in scores
    )
    return f"<table><tr><th>score</th><th>value</th><th>95 % interval</th><th>constant prediction</th></tr>{rows}</table>"


def _importance_bars(importance: dict[str, float]) -> str:
    names = list(importance)[:_BARS]
    values = np.array([max(0.0, importance[name]) for name in names])
    axes = _row_axes(names, width=420)
    axes.grid(False)
    axes.barh(range(len(names)), values, height=0.6, color=COLOURS["c0"])
    text: dict[str, Any] = {"textcoords": "offset pixels", "va": "center", "size": 12, "color": COLOURS["soft"]}
    for k, value in enumerate(values):
        axes.annotate(f"{importance[names[k]]:.3g}", (value, k), (5, 0), **text)
    axes.set_xlim(0, 1.25 * (values.max() or 1.0))  # space for the numbers
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    return to_svg(axes, "importance of the columns")


def _partial_dependence(model: TableModel, X: pd.DataFrame, name: str, seed: int) -> str:
    """Return a figure of the partial dependence of the predictions on a column."""
    rows = X.iloc[np.random.default_rng(seed).permutation(len(X))[:_ROWS]].copy()
    column = X[name].dropna()
    is_number = pd.api.types.is_numeric_dtype(column)
    if is_number or pd.api.types.is_datetime64_any_dtype(column):
        quantiles = np.linspace(0.02, 0.98, _POINTS)
        values: list[Any] = list(dict.fromkeys(column.quantile(quantiles, interpolation="nearest")))
    else:
        values = column.value_counts().index[:_POINTS].tolist()
    means = []
    for value in values:
        rows[name] = pd.Series([value] * len(rows), index=rows.index, dtype=X[name].dtype)
        if model.has_probabilities:
            means.append(model.pipeline.predict_proba(rows)[:, -1].mean())
        elif model.task == "regression":
            means.append(np.mean(model.pipeline.predict(rows)))
        else:
            means.append(np.mean(model.pipeline.predict(rows) == model.classes_[-1]))
    prediction = f"p({model.classes_[-1]})" if model.task == "classification" else "prediction"
    title = f"{prediction} against {name}"
    if is_number:
        axes = _xy_axes()
        axes.plot(np.array(values, dtype=float), means, color=COLOURS["c0"], linewidth=2)
    elif pd.api.types.is_datetime64_any_dtype(column):
        axes = _xy_axes()
        axes.plot(np.array(values, dtype="datetime64[s]").astype(float), means, color=COLOURS["c0"], linewidth=2)
        ends = [values[0], values[-1]]
        axes.set_xticks(np.array(ends, dtype="datetime64[s]").astype(float), labels=[str(end)[:10] for end in ends])
        axes.get_xticklabels()[0].set_horizontalalignment("left")
        axes.get_xticklabels()[1].set_horizontalalignment("right")
    else:
        axes = _row_axes([str(value) for value in values])
        axes.plot(means, range(len(means)), "o", color=COLOURS["c0"], markersize=6)
        axes.margins(x=0.1)
    return _figure(axes, title)


def _against_truth(model: TableModel, X: pd.DataFrame, y: np.ndarray) -> list[str]:
    """Return a scatter plot of predictions and true values, or the calibration curve of the probabilities."""
    if model.task == "regression":
        predictions = np.asarray(model.pipeline.predict(X), dtype=float)[:_ROWS]
        axes = _xy_axes(diagonal=(y[:_ROWS].astype(float), predictions))
        axes.plot(y[:_ROWS].astype(float), predictions, "o", color=COLOURS["c0"], markersize=4, alpha=0.6, mew=0)
        return ["<h2>Predictions against true values</h2>", _figure(axes, "prediction against true value, held-out rows")]
    if not model.has_probabilities:
        return []
    probabilities = model.pipeline.predict_proba(X)
    right = np.array([str(label) for label in model.classes_])[None, :] == np.array([str(label) for label in y])[:, None]
    bins = np.minimum((probabilities * _BINS).astype(int), _BINS - 1)
    points = [(probabilities[bins == b].mean(), right[bins == b].mean()) for b in range(_BINS) if (bins == b).sum() >= 10]
    if len(points) < 2:
        return []
    predicted, observed = np.array(points).T
    axes = _xy_axes(diagonal=(np.array([0.0, 1.0]),))
    axes.plot(predicted, observed, "o-", color=COLOURS["c0"], linewidth=2, markersize=5)
    return ["<h2>Calibration</h2>", _figure(axes, "observed frequency against predicted probability")]


def _coverage(model: TableModel, X: pd.DataFrame, y: np.ndarray) -> list[str]:
    """Return figures of the coverage and the size of intervals or prediction sets, by the requested coverage."""
    if not model.can_cover:
        return []
    found = [model.measured_coverage(X, y, coverage) for coverage in _COVERAGES]
    requested, observed, sizes = (np.array([one[key] for one in found]) for key in ("asked", "held_out", "size"))
    kind, size = ("intervals", "mean width") if model.task == "regression" else ("prediction sets", "mean number of classes")
    axes = _xy_axes(diagonal=(requested, observed))
    axes.plot(requested, observed, "o-", color=COLOURS["c0"], linewidth=2, markersize=5)
    parts = ["<h2>Coverage</h2>", _figure(axes, f"measured against requested coverage of the {kind}")]
    if np.isfinite(sizes).all():
        axes = _xy_axes()
        axes.plot(requested, sizes, "o-", color=COLOURS["c0"], linewidth=2, markersize=5)
        parts.append(_figure(axes, f"{size} of the {kind} against requested coverage"))
    return parts


def _xy_axes(diagonal: tuple[np.ndarray, ...] = ()) -> Axes:
    """Return axes with few ticks, and with the line y = x through the range of the arrays `diagonal`."""
    axes = new_axes(_WIDTH, _HEIGHT)
    left, bottom, right, top = 54, 30, 14, 10  # pixels
    inner = (_WIDTH - left - right) / _WIDTH, (_HEIGHT - bottom - top) / _HEIGHT
    axes.set_position((left / _WIDTH, bottom / _HEIGHT, *inner))
    axes.locator_params(nbins=5)
    axes.margins(0.04)
    if diagonal:
        ends = [min(values.min() for values in diagonal), max(values.max() for values in diagonal)]
        axes.plot(ends, ends, color=COLOURS["faint"], linewidth=1)
    return axes


def _row_axes(names: list[str], width: int = _WIDTH) -> Axes:
    """Return axes with a row for each name, from top to bottom."""
    left, height = min(34 * width // 100, 12 + 7 * max(map(len, names))), 22 * len(names) + 30
    axes = new_axes(width, height)
    axes.set_position((left / width, 26 / height, (width - left - 14) / width, (height - 30) / height))
    longest = (left - 8) // 7  # characters
    labels = ["".join(c if c.isprintable() else " " for c in name[:longest]) for name in names]
    axes.set_yticks(range(len(names)), labels=labels, parse_math=False)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.locator_params(axis="x", nbins=4)
    return axes


def _figure(axes: Axes, title: str) -> str:
    return f"<figure>{to_svg(axes, title)}<figcaption>{escape(title)}</figcaption></figure>"
