"""Descriptions of a saved model: tables for a terminal, the Markdown card, and the HTML report of `--report`.

The card of a model file `model.skops` is the file `model.card.md` with estimator, data, scores, inputs, versions, and the
SHA-256 checksum of the model file. The HTML report also shows the permutation importance and the partial dependence of the
columns, a calibration curve (classification) or predictions and residuals (regression), and the coverage of prediction
intervals or sets. The report needs no script and no other file, and has a light and a dark color scheme.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from gramless._core.files import atomic_write
from gramless._core.svg import COLOURS, new_axes, to_svg
from gramless.cli.display import Section, print_sections
from gramless.cli.model import SavedModel, TableModel
from gramless.cli.table_files import checksum

_DETAILS = ("Inputs", "Left out", "Versions")  # titles of the tables that follow the summary
_LEVELS = 6  # largest number of categories of a column in the card
_STORED_LEVELS = 100  # largest number of categories of a column that the model file stores with their counts
_CURVES = 6  # largest number of columns whose partial dependence the report shows
_SMALLEST_SHARE = 0.01  # smallest importance, relative to the largest one, of columns whose partial dependence is shown
_ROWS = 200  # largest number of rows over which partial dependence is averaged, and of points in a scatter plot
_POINTS = 15  # number of values of a numeric column at which its partial dependence is computed
_BARS = 20  # largest number of columns in the chart of importance, and of categories in a chart of partial dependence
_COVERAGES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_BINS = 10  # bins of the calibration curve
_WIDTH, _HEIGHT = 300, 240  # pixels of a chart; three charts are as wide as the page

# A chart, either as SVG or as a list of bars, and the caption of the chart.
Figure = tuple[Any, str]


def card_path(model: Path) -> Path:
    """Return the path of the card of a model file."""
    return model.with_name(f"{model.stem[:200]}.card.md")  # file names have at most 255 bytes


def sections(model: SavedModel) -> list[Section]:
    """Return the tables of a model card, each with title, column names and rows."""
    about = model.about
    n_rows = about.get("rows", {})
    settings = about.get("settings") or []
    if isinstance(settings, dict):
        chosen = {key: f"{value:.3g}" if isinstance(value, float) else value for key, value in settings.items()}
        settings = [", ".join(f"{key} {value}" for key, value in chosen.items() if value is not None)]
    steps = (("tuned", "tune_seconds"), ("fitted", "fit_seconds"))
    tuned = [about.get("tuned"), *(f"{step} in {about[key]:.1f} s" for step, key in steps if key in about)]
    facts = [
        ["estimator", ": ".join(filter(None, (about.get("estimator"), about.get("why"))))],
        ["predicts", f"{about.get('target') or model.target or 'y'} ({model.task})"],
        ["data", f"{about.get('data')}, {model.describe_inputs()}"],
        [model.unit, f"{n_rows.get('train', 0):,} for training, {n_rows.get('held_out', 0):,} held out"],
        *(["settings", str(one)] for one in settings),
        *(["reduced", str(one)] for one in about.get("reductions", about.get("gave_up", []))),
        ["tuned", ", ".join(filter(None, tuned))],
    ]
    if model.task == "classification":
        shares = zip(model.classes_.tolist(), model.class_shares, strict=False)
        facts.append(["classes", ", ".join(f"{label} ({share:.1%})" for label, share in shares)])
    if about.get("error_90") is not None:
        facts.append(["90 % of errors below", f"{about['error_90']:.4g}"])
    evaluated_on = f"{about['folds']} folds" if "folds" in about else f"held-out {model.unit}"
    left_out = about.get("columns", {}).get("left_out", {})
    versions = {"gramless": about.get("gramless"), **about.get("versions", {})}
    found: list[Section] = [
        ("Model", ["", ""], facts),
        *score_sections(about, evaluated_on),
        ("Inputs", ["column", "kind", "training values", "missing"], list(map(_input, about.get("inputs", [])))),
        ("Left out", ["column", "why"], [[name, why] for name, why in left_out.items()]),
        ("Versions", ["package", "version"], [[name, str(number)] for name, number in versions.items()]),
    ]
    return [section for section in found if section[2]]


def score_sections(about: dict[str, Any], rows: str) -> list[Section]:
    """Return the table of scores and the confusion matrix, if any; `rows` describes the scored rows in the titles."""
    found: list[Section] = []
    if about.get("scores"):
        shown = []
        for one in about["scores"]:
            value, low, high, constant = (_number(one[key]) for key in ("value", "low", "high", "baseline"))
            shown.append([one["metric"], value, f"{low} to {high}", constant])
        found.append((f"Scores on {rows}", ["score", "value", "95 % interval", "constant"], shown))
    if about.get("confusion"):
        names = [str(label) for label in about["confusion"]["classes"]]
        counts = about["confusion"]["counts"]
        table = [[name, *(f"{count:,}" for count in row)] for name, row in zip(names, counts, strict=True)]
        found.append((f"Classes (rows) and predictions (columns) of {rows}", ["class", *names], table))
    return found


def print_summary(console: Console, model: SavedModel) -> None:
    """Print the tables of a model card that describe the model and its scores."""
    print_sections(console, (section for section in sections(model) if section[0] not in _DETAILS))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}"


def _input(record: dict[str, Any]) -> list[str]:
    if record["typical"] is None:
        seen = "no value"
    elif record["kind"] == "number":
        seen = f"{record['low']:.4g} to {record['high']:.4g}, median {record['typical']:.4g}"
    elif record["kind"] == "date":
        seen = f"{record['low'][:10]} to {record['high'][:10]}"
    elif record["kind"] == "text":
        seen = f"{record['distinct']:,} texts"
    else:
        levels = list(record["levels"].items())
        more = f" and {record['distinct'] - _LEVELS} more" if record["distinct"] > _LEVELS else ""
        seen = ", ".join(f"{level} ({count:,})" for level, count in levels[:_LEVELS]) + more
    return [record["name"], record["kind"], seen, f"{record['missing']:,}"]


def describe_inputs(X: pd.DataFrame, types: dict[str, str]) -> list[dict[str, Any]]:
    """Return one JSON record per input column, with its type and the range or the categories of its training values."""
    return [{"name": name, "kind": kind, **_describe(X[name], kind)} for name, kind in types.items()]


def _describe(column: pd.Series, kind: str) -> dict[str, Any]:
    known = column.dropna()
    record: dict[str, Any] = {"missing": len(column) - len(known)}
    if known.empty:
        return record | {"typical": None, "low": None, "high": None, "levels": {}, "distinct": 0}
    if kind == "text":
        return record | {"typical": "", "distinct": known.nunique()}
    if kind == "category":
        counts = known.value_counts()
        levels = {str(level): int(count) for level, count in counts.iloc[:_STORED_LEVELS].items()}
        return record | {"typical": str(counts.index[0]), "levels": levels, "distinct": len(counts)}
    # The median is the lower of two middle values, because the mean of two values may not occur in the column.
    ends = {"low": known.min(), "high": known.max(), "typical": known.quantile(0.5, interpolation="lower")}
    if kind == "date":
        return record | {key: moment.isoformat() for key, moment in ends.items()}
    numbers = ends | {"mean": known.mean(), "deviation": known.std(ddof=0)}
    return record | {key: float(value) for key, value in numbers.items()}


def write_card(model: TableModel, path: Path) -> None:
    """Write the card of a model, whose file is `path`."""
    lines = [f"# {model.about.get('target') or 'y'}", "", f"`{path.name}`, SHA-256 `{checksum(path)}`", ""]
    for title, heading, rows in sections(model):
        lines += [f"## {title}", "", _line(heading), _line(["---"] * len(heading)), *map(_line, rows), ""]
    with atomic_write(card_path(path)) as part:
        part.write_text("\n".join(lines), encoding="utf-8")


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def write_report(model: TableModel, scored: TableModel, X: pd.DataFrame, y: np.ndarray, path: Path, seed: int) -> None:
    """Write the HTML report of `model`; charts show predictions of `scored` for rows `X`, `y` that it was not fitted to."""
    import jinja2

    about, found = model.about, sections(model)
    measured = dict(list(about.get("importance", {}).items())[:_BARS])
    values = np.array(list(measured.values()))
    columns = [name for name, value in measured.items() if value > _SMALLEST_SHARE * max(values[0], 0)][:_CURVES]
    templates = jinja2.Environment(loader=jinja2.PackageLoader("gramless.cli"), autoescape=True)
    page = templates.get_template("report.html").render(
        target=about["target"] or "y",
        data=about["data"],
        summary=[section for section in found if section[0] not in _DETAILS],
        details=[section for section in found if section[0] in _DETAILS],
        metric=about.get("importance_metric"),
        importance=_bars(list(measured), np.maximum(values, 0), values) if measured else [],
        dependence=[_partial_dependence(scored, X, name, seed) for name in columns],
        charts=_errors(scored, X, y) | {"Coverage": _coverage(scored, X, y)},
    )
    with atomic_write(path) as part:
        part.write_text(page, encoding="utf-8")


def _bars(names: list[str], ends: np.ndarray, values: np.ndarray, start: float = 0.0) -> list[dict[str, Any]]:
    """Return a bar for each name, from `start` to its entry of `ends` in percent of chart width, and the printed value."""
    low, high = min(start, ends.min()), max(start, ends.max())
    scale = 100 / (high - low or 1.0)
    return [
        {"name": name, "left": scale * (min(start, end) - low), "width": scale * abs(end - start), "value": value}
        for name, end, value in zip(names, ends, values, strict=True)
    ]


def _partial_dependence(model: TableModel, X: pd.DataFrame, name: str, seed: int) -> Figure:
    """Return a figure of the partial dependence of the predictions on the column `name`."""
    rows = X.iloc[np.random.default_rng(seed).permutation(len(X))[:_ROWS]].copy()
    column = X[name].dropna()
    is_date = pd.api.types.is_datetime64_any_dtype(column)
    is_category = not is_date and not pd.api.types.is_numeric_dtype(column)
    if is_category:
        values: list[Any] = column.value_counts().index[:_BARS].tolist()
    else:
        quantiles = np.linspace(0.02, 0.98, _POINTS)
        values = list(dict.fromkeys(column.quantile(quantiles, interpolation="nearest")))
    found = np.empty(len(values))
    for k, value in enumerate(values):
        rows[name] = pd.Series([value] * len(rows), index=rows.index, dtype=X[name].dtype)
        found[k] = _prediction(model, rows).mean()
    is_classifier = model.task == "classification"
    prediction = f"probability of {model.classes_[-1]}" if is_classifier else f"predicted {model.about['target'] or 'y'}"
    caption = f"{prediction} by {name}"
    if is_category:
        start = 0.0 if is_classifier else found.mean()
        caption += "" if start == 0 else "; bars begin at the mean"
        caption += f"; {column.nunique() - _BARS} more values" if column.nunique() > _BARS else ""
        named = [str(value) if len(str(value)) <= 60 else f"{str(value)[:60]}..." for value in values]
        return _bars(named, found, found, start), caption
    places = np.array(values, dtype="datetime64[s]" if is_date else float).astype(float)
    ends = {places[k]: str(values[k])[:10] for k in (0, -1)} if is_date else None
    return _chart((name, prediction), places, found, caption, style="-", ticks=ends)


def _prediction(model: TableModel, rows: pd.DataFrame) -> np.ndarray:
    """Return predictions (regression), or probabilities of the last class, or a mask of rows predicted as this class."""
    if model.has_probabilities:
        return model.pipeline.predict_proba(rows)[:, -1]
    predicted = model.pipeline.predict(rows)
    return predicted if model.task == "regression" else predicted == model.classes_[-1]


def _errors(model: TableModel, X: pd.DataFrame, y: np.ndarray) -> dict[str, list[Figure]]:
    """Return charts of predictions and residuals (regression) or the calibration curve of probabilities (classes)."""
    if model.task == "regression":
        truth = model.parse_targets(y)
        predictions = np.asarray(model.pipeline.predict(X), dtype=float)
        target = str(model.about["target"] or "y")
        against = _scatter((f"true {target}", f"predicted {target}"), truth, predictions, slope=1)
        residuals = _scatter((f"predicted {target}", "true minus predicted"), predictions, truth - predictions, slope=0)
        return {"Predictions and residuals of held-out rows": [against, residuals]}
    if not model.has_probabilities:
        return {}
    probabilities = model.pipeline.predict_proba(X)
    right = model.classes_.astype(str)[None, :] == np.array([str(label) for label in y])[:, None]
    bins = np.minimum((probabilities * _BINS).astype(int), _BINS - 1)
    points = [(probabilities[bins == b].mean(), right[bins == b].mean()) for b in range(_BINS) if (bins == b).sum() >= 10]
    if len(points) < 2:
        return {}
    predicted, observed = np.array(points).T
    caption = "frequency of a class against its probability, held-out rows"
    return {"Calibration": [_chart(("predicted probability", "observed frequency"), predicted, observed, caption, slope=1)]}


def _coverage(model: TableModel, X: pd.DataFrame, y: np.ndarray) -> list[Figure]:
    """Return charts of the measured coverage and the size of prediction intervals or sets against the requested coverage."""
    if not model.can_cover:
        return []
    found = pd.DataFrame([model.measured_coverage(X, y, coverage) for coverage in _COVERAGES])
    kind, size = ("intervals", "mean width") if model.task == "regression" else ("prediction sets", "mean number of classes")
    title, caption = "requested coverage", f"measured against requested coverage of the {kind}"
    figures = [_chart((title, "share inside"), found["asked"], found["held_out"], caption, slope=1)]
    if np.isfinite(found["size"]).all():
        figures.append(_chart((title, size), found["asked"], found["size"], f"{size} of the {kind} against {title}"))
    return figures


def _scatter(titles: tuple[str, str], x: np.ndarray, y: np.ndarray, *, slope: float) -> Figure:
    """Return a scatter plot of at most `_ROWS` points, without outliers."""
    inside = ~(_outliers(x) | _outliers(y))
    shown = np.flatnonzero(inside)[:_ROWS]
    outside = f"; {np.count_nonzero(~inside):,} outliers are outside of the axes" if not inside.all() else ""
    return _chart(titles, x[shown], y[shown], f"{titles[1]} against {titles[0]}{outside}", style="o", slope=slope)


def _outliers(values: np.ndarray) -> np.ndarray:
    """Return a mask of the values more than five interquartile ranges below the first or above the third quartile."""
    first, third = np.quantile(values, [0.25, 0.75])
    margin = 5 * (third - first)
    return (values < first - margin) | (values > third + margin)


def _chart(
    titles: tuple[str, str],
    x: Any,
    y: Any,
    caption: str,
    *,
    style: str = "o-",
    slope: float | None = None,
    ticks: dict[float, str] | None = None,
) -> Figure:
    """Return a chart of points or of a curve, with few ticks and optionally a line of a given slope through the origin."""
    from markupsafe import Markup

    axes = new_axes(_WIDTH, _HEIGHT)
    left, bottom, right, top = 72, 46, 14, 10  # pixels
    inner = (_WIDTH - left - right) / _WIDTH, (_HEIGHT - bottom - top) / _HEIGHT
    axes.set_position((left / _WIDTH, bottom / _HEIGHT, *inner))
    axes.locator_params(nbins=5)
    axes.margins(0.04)
    options: dict[str, Any] = {"color": COLOURS["soft"], "size": 12, "parse_math": False}
    axes.set_xlabel(_printable(titles[0], 32), **options)
    axes.set_ylabel(_printable(titles[1], 26), **options)
    if slope is not None and len(x):
        ends = np.array([min(x), max(x)])
        axes.plot(ends, slope * ends, color=COLOURS["faint"], linewidth=1)
    axes.plot(x, y, style, color=COLOURS["c0"], linewidth=2, markersize=5, alpha=0.6 if style == "o" else 1, mew=0)
    if ticks is not None:
        axes.set_xticks(list(ticks), labels=list(ticks.values()))
        for tick_label, side in zip(axes.get_xticklabels(), ("left", "right"), strict=False):
            tick_label.set(horizontalalignment=side)
    return Markup(to_svg(axes, caption)), caption


def _printable(text: str, length: int) -> str:
    """Return at most `length` characters of a text; spaces replace control characters, which are not allowed in SVG."""
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= length else f"{text[: length - 1]}…"
