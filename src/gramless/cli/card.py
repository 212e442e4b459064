"""A model's card: one HTML page beside the model that says what it is, how good, and what it leans on.

Scores, permutation importance, partial dependence of the most important columns and, for classes, how often predicted
probabilities come true; for values, predictions against the truth; and how often intervals or sets hold it. No script, no
file beside the page, light and dark.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gramless._core.files import atomic_write
from gramless.cli.coverage import COVERAGES, can_cover, measured_coverage
from gramless.cli.model import TableModel
from gramless.cli.scores import Score

_WIDTH, _HEIGHT, _PAD = 300, 180, 34
_CURVES = 6
_ROWS = 200
_POINTS = 15
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; } td, th { padding: .2rem .8rem .2rem 0; text-align: left; }
figure { display: inline-block; margin: 0 1.5rem 1.5rem 0; } figcaption { font-size: .9rem; }
svg { max-width: 100%; } svg text { font-size: 11px; fill: currentColor; }
.line { fill: none; stroke: #2a78d6; stroke-width: 2; } .dot { fill: #2a78d6; } .bar { fill: #2a78d6; }
.axis { stroke: currentColor; stroke-opacity: .35; fill: none; }
"""


def write_card(model: TableModel, scores: list[Score], X: Any, y: np.ndarray, path: Path, seed: int) -> None:
    """Write the page; `X` and `y` are rows that the model never saw."""
    about = model.about
    parts = [
        f"<h1>{escape(str(about['target'] or 'y'))}</h1>",
        f"<p>{escape(about['estimator'])} for {escape(model.task)}, from {escape(about['data'])}: "
        f"{about['rows']['train']:,} rows to learn from, {about['rows']['held_out']:,} to score on.</p>",
        f"<p>{escape(about['why'])}.</p>",
        _scores_table(scores),
    ]
    if about.get("importance"):
        parts += ["<h2>What it leans on</h2>", "<p>What is lost when a column's values are dealt out anew.</p>"]
        parts.append(_bars(about["importance"]))
        parts.append("<h2>Partial dependence</h2>")
        names = [name for name in about["importance"] if about["importance"][name] > 0][:_CURVES]
        parts += [_dependence(model, X, name, seed) for name in names] or ["<p>No column matters alone.</p>"]
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
    return f"<table><tr><th>score</th><th>value</th><th>95 % interval</th><th>a constant guess</th></tr>{rows}</table>"


def _bars(values: dict[str, float]) -> str:
    names = list(values)[:20]
    top = max((abs(values[name]) for name in names), default=0.0) or 1.0
    lines = []
    for k, name in enumerate(names):
        width = max(0.0, values[name]) / top * 300
        lines.append(
            f"<text x='190' y='{k * 20 + 14}' text-anchor='end'>{escape(name[:28])}</text>"
            f"<rect class='bar' x='200' y='{k * 20 + 4}' width='{width:.1f}' height='12'/>"
            f"<text x='{205 + width:.1f}' y='{k * 20 + 14}'>{values[name]:.3g}</text>"
        )
    return f"<svg width='600' height='{len(names) * 20 + 6}' role='img' aria-label='importance'>{''.join(lines)}</svg>"


def _chart(
    x: np.ndarray, y: np.ndarray, title: str, *, marks: list[str] | None = None, line: bool = True, square: bool = False
) -> str:
    low, high = (float(np.min(y)), float(np.max(y))) if not square else (min(x.min(), y.min()), max(x.max(), y.max()))
    left, right = (float(np.min(x)), float(np.max(x))) if not square else (low, high)
    high, right = (high if high > low else low + 1), (right if right > left else left + 1)
    px = _PAD + (x - left) / (right - left) * (_WIDTH - 2 * _PAD)
    py = _HEIGHT - _PAD - (y - low) / (high - low) * (_HEIGHT - 2 * _PAD)
    places = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(px, py, strict=True))
    drawn = f"<polyline class='line' points='{places}'/>" if line else ""
    if marks is not None or not line:
        drawn += "".join(f"<circle class='dot' r='2.5' cx='{a:.1f}' cy='{b:.1f}'/>" for a, b in zip(px, py, strict=True))
    bottom = _HEIGHT - _PAD
    if square:
        drawn += f"<line class='axis' x1='{_PAD}' y1='{bottom}' x2='{_WIDTH - _PAD}' y2='{_PAD}'/>"
    ends = (marks[0], marks[-1]) if marks else (f"{left:.3g}", f"{right:.3g}")
    labels = (
        f"<text x='{_PAD}' y='{_HEIGHT - 16}'>{escape(ends[0][:16])}</text>"
        f"<text x='{_WIDTH - _PAD}' y='{_HEIGHT - 16}' text-anchor='end'>{escape(ends[1][:16])}</text>"
        f"<text x='2' y='{bottom}'>{low:.3g}</text><text x='2' y='{_PAD - 6}'>{high:.3g}</text>"
    )
    frame = f"<path class='axis' d='M{_PAD},{_PAD} V{bottom} H{_WIDTH - _PAD}'/>"
    return (
        f"<figure><svg width='{_WIDTH}' height='{_HEIGHT}' role='img' aria-label='{escape(title, quote=True)}'>"
        f"{frame}{drawn}{labels}</svg><figcaption>{escape(title)}</figcaption></figure>"
    )


def _dependence(model: TableModel, X: pd.DataFrame, name: str, seed: int) -> str:
    """The mean prediction when every row has the same value in one column."""
    some = X.iloc[np.random.default_rng(seed).permutation(len(X))[:_ROWS]].copy()
    column = X[name].dropna()
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
        shares = np.linspace(0.02, 0.98, _POINTS)
        values: list[Any] = list(dict.fromkeys(column.quantile(shares, interpolation="nearest")))
        marks = None if pd.api.types.is_numeric_dtype(column) else [str(value)[:10] for value in values]
    else:
        values = column.value_counts().index[:_POINTS].tolist()
        marks = [str(value) for value in values]
    means = []
    for value in values:
        some[name] = pd.Series([value] * len(some), index=some.index, dtype=X[name].dtype)
        if model.has_probabilities:
            means.append(model.pipeline.predict_proba(some)[:, -1].mean())
        elif model.task == "regression":
            means.append(np.mean(model.pipeline.predict(some)))
        else:
            means.append(np.mean(model.pipeline.predict(some) == model.classes[-1]))
    what = f"p({model.classes[-1]})" if model.task == "classification" else "prediction"
    x = np.arange(len(values), dtype=float) if marks is not None else np.array(values, dtype=float)
    return _chart(x, np.array(means), f"{what} against {name}", marks=marks, line=marks is None or len(values) > 2)


def _coverage(model: TableModel, X: Any, y: np.ndarray) -> list[str]:
    """How often intervals or sets hold the truth, beside how often they were asked to; and how large they are."""
    if not can_cover(model):
        return []
    found = [measured_coverage(model, X, y, coverage) for coverage in COVERAGES]
    asked, held, sizes = (np.array([one[key] for one in found]) for key in ("asked", "held_out", "size"))
    what = "intervals" if model.task == "regression" else "sets of classes"
    size = "their mean width" if model.task == "regression" else "classes in them, in the mean"
    parts = [
        "<h2>Coverage</h2>",
        _chart(asked, held, f"how often {what} hold the truth, as asked and as found", square=True),
    ]
    if np.isfinite(sizes).all():
        parts.append(_chart(asked, sizes, f"{size}, by the coverage asked for"))
    return parts


def _against_truth(model: TableModel, X: Any, y: np.ndarray) -> list[str]:
    if model.task == "regression":
        predicted = np.asarray(model.pipeline.predict(X), dtype=float)[:_ROWS]
        return [
            "<h2>Predictions against the truth</h2>",
            _chart(y[:_ROWS].astype(float), predicted, "held-out rows", line=False, square=True),
        ]
    if not model.has_probabilities:
        return []
    chances = model.pipeline.predict_proba(X)
    right = np.array([str(label) for label in model.classes])[None, :] == np.array([str(label) for label in y])[:, None]
    bins = np.minimum((chances * 10).astype(int), 9)
    points = [(chances[bins == b].mean(), right[bins == b].mean()) for b in range(10) if (bins == b).sum() >= 10]
    if len(points) < 2:
        return []
    said, came = np.array(points).T
    return [
        "<h2>Calibration</h2>",
        _chart(said, came, "how often a predicted probability comes true", marks=["0", "1"], square=True),
    ]
