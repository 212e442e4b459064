"""Descriptions of a saved model: tables for a terminal, the Markdown card, and the HTML report of `--report`.

The card of `model.skops` is the file `model.card.md`: estimator, data, scores, inputs, versions, and the SHA-256 checksum of
the model file. The HTML report adds the permutation importance and the partial dependence of the columns; for classes, a
calibration curve; for quantities, predictions and residuals; and the coverage of intervals or prediction sets. The report
needs no script and no other file, and has a light and a dark color scheme.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gramless._core.files import atomic_write
from gramless._core.svg import COLOURS, new_axes, to_svg
from gramless.cli.model import SavedModel, TableModel
from gramless.cli.table_files import checksum

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEVELS = 6  # categories that are shown
_STORED_LEVELS = 100  # categories that are stored with their counts
_CURVES = 6  # columns with a partial dependence
_SMALLEST_SHARE = 0.01  # smallest importance, relative to the largest, of a column with a partial dependence
_ROWS = 200  # rows over which partial dependence is averaged, and points of a scatter plot
_POINTS = 15  # values of a column in a curve of partial dependence
_BARS = 20  # columns with a bar of importance, and categories with a bar of partial dependence
_COVERAGES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_BINS = 10  # bins of the calibration curve
_WIDTH, _HEIGHT = 300, 240  # pixels of a chart; three charts are as wide as the page

# Title, column names and rows of a table.
Section = tuple[str, list[str], list[list[str]]]
# A chart as SVG or as bars, and its caption.
Figure = tuple[Any, str]


def card_path(model: Path) -> Path:
    """Return the path of the card of a model file."""
    return model.with_name(f"{model.stem[:200]}.card.md")  # file names have at most 255 bytes


def sections(model: SavedModel) -> list[Section]:
    """Return the title, the column names and the rows of each table of a card."""
    about = model.about
    n_rows = about.get("rows", {})
    settings = about.get("settings")
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
        *(["settings", str(one)] for one in settings or []),
        *(["reduced", str(one)] for one in about.get("reductions", about.get("gave_up", []))),
        ["tuned", ", ".join(filter(None, tuned))],
    ]
    if model.task == "classification":
        shares = zip(model.classes_.tolist(), model.class_shares, strict=False)
        facts.append(["classes", ", ".join(f"{label} ({share:.1%})" for label, share in shares)])
    if about.get("error_90") is not None:
        facts.append(["90 % of errors below", f"{about['error_90']:.4g}"])
    evaluated_on = f"{about['folds']} folds" if "folds" in about else f"held-out {model.unit}"
    found: list[Section] = [
        ("Model", ["", ""], facts),
        *score_sections(about.get("scores"), about.get("confusion"), evaluated_on),
    ]
    inputs = [_input(record) for record in about.get("inputs", [])]
    if inputs:
        found.append(("Inputs", ["column", "kind", "training values", "missing"], inputs))
    left_out = about.get("columns", {}).get("left_out", {})
    if left_out:
        found.append(("Left out", ["column", "why"], [[name, why] for name, why in left_out.items()]))
    versions = {"gramless": about.get("gramless"), **about.get("versions", {})}
    found.append(("Versions", ["package", "version"], [[name, str(number)] for name, number in versions.items()]))
    return found


def score_sections(scores: list[dict[str, Any]] | None, confusion: dict[str, Any] | None, rows: str) -> list[Section]:
    """Return the table of scores on some rows, and the confusion matrix of these rows if there is one."""
    found: list[Section] = []
    if scores:
        shown = [[one["metric"], *(_number(one[key]) for key in ("value", "low", "high", "baseline"))] for one in scores]
        shown = [[name, value, f"{low} to {high}", constant] for name, value, low, high, constant in shown]
        found.append((f"Scores on {rows}", ["score", "value", "95 % interval", "constant"], shown))
    if confusion is not None:
        names = [str(label) for label in confusion["classes"]]
        counts = [[f"{count:,}" for count in row] for row in confusion["counts"]]
        table = [[name, *row] for name, row in zip(names, counts, strict=True)]
        found.append((f"Classes (rows) and predictions (columns) of {rows}", ["class", *names], table))
    return found


def print_summary(console: Console, model: SavedModel) -> None:
    """Print the tables of a card on the model and its scores."""
    titles = ("Inputs", "Left out", "Versions")
    print_sections(console, (section for section in sections(model) if section[0] not in titles))


def print_sections(console: Console, found: Iterable[Section]) -> None:
    """Print tables to a terminal; columns of numbers are aligned to the right."""
    for title, heading, rows in found:
        console.print(f"[bold]{escape(title)}[/bold]")
        table = Table(box=SIMPLE, show_header=any(heading), header_style="bold")
        for name, *cells in zip(heading, *rows, strict=True):
            is_number = all(re.fullmatch(r"[-+\d.,e]+( to [-+\d.,e]+)?", cell) for cell in cells)
            table.add_column(escape(name), overflow="fold", justify="right" if is_number else "left")
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table, soft_wrap=False)


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
    """Return one record for each input column of typed training rows."""
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
    # The lower median: the mean of two integers may be a value that does not occur.
    ends = {"low": known.min(), "high": known.max(), "typical": known.quantile(0.5, interpolation="lower")}
    if kind == "date":
        return record | {key: moment.isoformat() for key, moment in ends.items()}
    numbers = ends | {"mean": known.mean(), "deviation": known.std(ddof=0)}
    return record | {key: float(value) for key, value in numbers.items()}


def write_card(model: TableModel, path: Path) -> None:
    """Write the card of a model that was saved to `path`."""
    lines = [f"# {model.about.get('target') or 'y'}", "", f"`{path.name}`, SHA-256 `{checksum(path)}`", ""]
    for title, heading, rows in sections(model):
        lines += [f"## {title}", "", _line(heading), _line(["---"] * len(heading)), *map(_line, rows), ""]
    with atomic_write(card_path(path)) as part:
        part.write_text("\n".join(lines), encoding="utf-8")


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def write_report(model: TableModel, scored: TableModel, X: pd.DataFrame, y: np.ndarray, path: Path, seed: int) -> None:
    """Write the HTML report of a model; `scored` was not fitted to the rows `X` and `y`."""
    import jinja2

    about, found = model.about, sections(model)
    measured = dict(list(about.get("importance", {}).items())[:_BARS])
    values = np.array(list(measured.values()))
    first = next((k for k, (title, _, _) in enumerate(found) if title == "Inputs"), len(found))
    columns = [name for name, value in measured.items() if value > _SMALLEST_SHARE * max(values[0], 0)][:_CURVES]
    templates = jinja2.Environment(loader=jinja2.PackageLoader("gramless.cli"), autoescape=True)
    page = templates.get_template("report.html").render(
        target=about["target"] or "y",
        data=about["data"],
        summary=found[:first],
        details=found[first:],
        metric=about.get("importance_metric"),
        importance=_bars(list(measured), np.maximum(values, 0), values) if measured else [],
        dependence=[_partial_dependence(scored, X, name, seed) for name in columns],
        charts=_errors(scored, X, y) | {"Coverage": _coverage(scored, X, y)},
    )
    with atomic_write(path) as part:
        part.write_text(page, encoding="utf-8")


def _bars(names: list[str], ends: np.ndarray, values: np.ndarray, start: float = 0.0) -> list[dict[str, Any]]:
    """Return a bar from `start` to each end, in percent of the width of the chart, and the values as text."""
    low, high = min(start, ends.min()), max(start, ends.max())
    scale = 100 / (high - low or 1.0)
    return [
        {"name": name, "left": scale * (min(start, end) - low), "width": scale * abs(end - start), "value": value}
        for name, end, value in zip(names, ends, values, strict=True)
    ]


def _partial_dependence(model: TableModel, X: pd.DataFrame, name: str, seed: int) -> Figure:
    """Return a figure of the partial dependence of the predictions on a column."""
    rows = X.iloc[np.random.default_rng(seed).permutation(len(X))[:_ROWS]].copy()
    column = X[name].dropna()
    is_date = pd.api.types.is_datetime64_any_dtype(column)
    is_category = not is_date and not pd.api.types.is_numeric_dtype(column)
    if is_category:
        values: list[Any] = column.value_counts().index[:_BARS].tolist()
    else:
        quantiles = np.linspace(0.02, 0.98, _POINTS)
        values = list(dict.fromkeys(column.quantile(quantiles, interpolation="nearest")))
    means = []
    for value in values:
        rows[name] = pd.Series([value] * len(rows), index=rows.index, dtype=X[name].dtype)
        means.append(_prediction(model, rows).mean())
    target = model.about["target"] or "y"
    prediction = f"probability of {model.classes_[-1]}" if model.task == "classification" else f"predicted {target}"
    if is_category:
        found = np.array(means)
        start = 0.0 if model.task == "classification" else found.mean()
        more = f"; {column.nunique() - _BARS} more values" if column.nunique() > _BARS else ""
        named = [str(value) if len(str(value)) <= 60 else f"{str(value)[:60]}..." for value in values]
        origin = "" if start == 0 else "; bars begin at the mean"
        return _bars(named, found, found, start), f"{prediction} by {name}{origin}{more}"
    places = np.array(values, dtype="datetime64[s]" if is_date else float).astype(float)
    axes = _curve((name, prediction), places, np.array(means), style="-")
    if is_date:
        axes.set_xticks(places[[0, -1]], labels=[str(value)[:10] for value in (values[0], values[-1])])
        axes.get_xticklabels()[0].set_horizontalalignment("left")
        axes.get_xticklabels()[1].set_horizontalalignment("right")
    return _figure(axes, f"{prediction} by {name}")


def _prediction(model: TableModel, rows: pd.DataFrame) -> np.ndarray:
    """Return predicted values, or the probabilities of the last class; its predictions if there are no probabilities."""
    if model.has_probabilities:
        return model.pipeline.predict_proba(rows)[:, -1]
    predicted = model.pipeline.predict(rows)
    return predicted if model.task == "regression" else predicted == model.classes_[-1]


def _errors(model: TableModel, X: pd.DataFrame, y: np.ndarray) -> dict[str, list[Figure]]:
    """Return charts of predictions and of residuals, or the calibration curve of the probabilities."""
    if model.task == "regression":
        truth = model.parse_targets(y)
        predictions = np.asarray(model.pipeline.predict(X), dtype=float)
        target = str(model.about["target"] or "y")
        against = _scatter(truth, predictions, (f"true {target}", f"predicted {target}"), diagonal=True)
        residuals = _scatter(predictions, truth - predictions, (f"predicted {target}", "true minus predicted"))
        return {"Predictions and residuals of held-out rows": [against, residuals]}
    if not model.has_probabilities:
        return {}
    probabilities = model.pipeline.predict_proba(X)
    right = model.classes_.astype(str)[None, :] == np.array([str(label) for label in y])[:, None]
    bins = np.minimum((probabilities * _BINS).astype(int), _BINS - 1)
    points = [(probabilities[bins == b].mean(), right[bins == b].mean()) for b in range(_BINS) if (bins == b).sum() >= 10]
    if len(points) < 2:
        return {}
    axes = _curve(("predicted probability", "observed frequency"), *np.array(points).T, diagonal=(0.0, 1.0))
    return {"Calibration": [_figure(axes, "frequency of a class against its probability, held-out rows")]}


def _coverage(model: TableModel, X: pd.DataFrame, y: np.ndarray) -> list[Figure]:
    """Return figures of the coverage and the size of intervals or prediction sets, by the requested coverage."""
    if not model.can_cover:
        return []
    found = pd.DataFrame([model.measured_coverage(X, y, coverage) for coverage in _COVERAGES])
    kind, size = ("intervals", "mean width") if model.task == "regression" else ("prediction sets", "mean number of classes")
    titles, requested = "requested coverage", found["asked"].to_numpy()
    axes = _curve((titles, "share inside"), requested, found["held_out"], diagonal=(requested[0], requested[-1]))
    figures = [_figure(axes, f"measured against requested coverage of the {kind}")]
    if np.isfinite(found["size"]).all():
        axes = _curve((titles, size), requested, found["size"])
        figures.append(_figure(axes, f"{size} of the {kind} against requested coverage"))
    return figures


def _scatter(x: np.ndarray, y: np.ndarray, titles: tuple[str, str], diagonal: bool = False) -> Figure:
    """Return a figure of some points; the axes leave out points that are far from the others."""
    axes = _axes(*titles)
    limits = [_robust_limits(x), _robust_limits(y)]
    inside = np.ones(len(x), dtype=bool)
    for values, (low, high) in zip((x, y), limits, strict=True):
        inside &= (low <= values) & (values <= high)
    shown = np.flatnonzero(inside)[:_ROWS]
    if not diagonal:
        axes.axhline(0, color=COLOURS["faint"], linewidth=1)
    elif len(shown):
        ends = [max(min(x[shown]), min(y[shown])), min(max(x[shown]), max(y[shown]))]
        axes.plot(ends, ends, color=COLOURS["faint"], linewidth=1)
    axes.plot(x[shown], y[shown], "o", color=COLOURS["c0"], markersize=4, alpha=0.6, mew=0)
    outside = f"; {np.count_nonzero(~inside):,} outliers are outside of the axes" if not inside.all() else ""
    return _figure(axes, f"{titles[1]} against {titles[0]}{outside}")


def _robust_limits(values: np.ndarray) -> tuple[float, float]:
    """Return the range of the values, without those that are farther from the quartiles than five times their distance."""
    first, third = np.quantile(values, [0.25, 0.75])
    margin = 5 * (third - first)
    kept = values[(values >= first - margin) & (values <= third + margin)]
    return float(kept.min()), float(kept.max())


def _curve(
    titles: tuple[str, str], x: Any, y: Any, *, style: str = "o-", diagonal: tuple[float, float] | None = None
) -> Axes:
    axes = _axes(*titles)
    if diagonal is not None:
        axes.plot(diagonal, diagonal, color=COLOURS["faint"], linewidth=1)
    axes.plot(x, y, style, color=COLOURS["c0"], linewidth=2, markersize=5)
    return axes


def _axes(x_title: str, y_title: str) -> Axes:
    """Return axes with titles and few ticks."""
    axes = new_axes(_WIDTH, _HEIGHT)
    left, bottom, right, top = 72, 46, 14, 10  # pixels
    inner = (_WIDTH - left - right) / _WIDTH, (_HEIGHT - bottom - top) / _HEIGHT
    axes.set_position((left / _WIDTH, bottom / _HEIGHT, *inner))
    axes.locator_params(nbins=5)
    axes.margins(0.04)
    options: dict[str, Any] = {"color": COLOURS["soft"], "size": 12, "parse_math": False}
    axes.set_xlabel(_printable(x_title, 32), **options)
    axes.set_ylabel(_printable(y_title, 26), **options)
    return axes


def _printable(text: str, length: int) -> str:
    """Return at most `length` characters, without control characters, which SVG cannot have."""
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _figure(axes: Axes, caption: str) -> Figure:
    from markupsafe import Markup

    return Markup(to_svg(axes, caption)), caption
