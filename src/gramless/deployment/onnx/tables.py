"""Table models as ONNX graphs, including the preprocessing of numeric, string and date columns of `gramless.tables`.

Numbers are float64 with NaN for missing values, strings have "" for missing values, dates are days since 1970 with NaN.
The scores of all partitions are computed, and the tree selects one for each row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless.deployment.onnx.graph import Graph
from gramless.deployment.onnx.kernels import kernel_block
from gramless.deployment.onnx.normal import normal_quantile, rank_among
from gramless.deployment.onnx.transformers import one_hot
from gramless.inference import softmax_link
from gramless.tables import losses, preparation
from gramless.tables.column_types import PHASE_DIGITS
from gramless.tables.members import TableMember
from gramless.tables.partition import Partition
from gramless.tables.preparation import Preparation


def table_columns(model: Any) -> list[tuple[str, bool]]:
    """Return the columns that a table model uses, each with True if it contains strings."""
    kinds = zip(model.columns_.names_, model.columns_.kinds_, strict=True)
    return [(name, kind == "category") for name, kind in kinds if kind != "left out"]


def table_scores(graph: Graph, model: Any, columns: dict[str, str]) -> str:
    """Return the weighted scores of the members, for regressors in the units of the target; columns have shape (n, 1)."""
    numbers, codes = _encoded(graph, model, columns)
    parts = []
    for weight, member in zip(model.member_weights_, model.members_, strict=True):
        scores = _member(graph, member, numbers, codes)
        if hasattr(model, "target_scales_"):
            scores = _in_units(graph, scores, model.target_scales_, member)
        parts.append(graph.op("Mul", scores, float(weight)))
    return parts[0] if len(parts) == 1 else graph.op("Sum", *parts)


def table_inputs(graph: Graph, model: Any, columns: dict[str, str]) -> str:
    """Add the standardised columns that are the input of a single model."""
    return _prepared(graph, model.preparation_, *_encoded(graph, model, columns))


def link(graph: Graph, scores: str, numbers: np.ndarray, n_classes: int) -> str:
    """Return the inputs of the calibrated softmax, of shape (n, n_classes)."""
    p = scores
    if n_classes == 2:
        positive = graph.op("Mul", graph.op("Add", scores, 1.0), 0.5)
        p = graph.op("Concat", graph.op("Sub", 1.0, positive), positive, axis=1)
    logs = graph.op("Log", graph.op("Max", p, softmax_link._FLOOR))
    logs = graph.op("Sub", logs, graph.op("ReduceMean", logs, graph.axes(1), keepdims=1))
    linear = graph.op("Add", graph.op("Mul", p, float(numbers[0])), graph.op("Mul", logs, float(numbers[1])))
    return graph.op("Add", linear, graph.number(numbers[2:]))


def _encoded(graph: Graph, model: Any, columns: dict[str, str]) -> tuple[str | None, list[tuple[str, np.ndarray]]]:
    """Return the numeric columns as a matrix, and each string column with its levels."""
    numbers: list[str] = []
    strings: list[tuple[str, np.ndarray]] = []
    for name, kind in zip(model.columns_.names_, model.columns_.kinds_, strict=True):
        if kind == "number":
            numbers.append(columns[name])
        elif kind == "date":
            numbers += _date(graph, columns[name])
        elif kind == "category":
            strings.append((columns[name], model.columns_.levels_[len(strings)]))
        elif kind == "text":
            raise ValueError(f"the column {name!r} is hashed text, which cannot be written as ONNX operators")
    return graph.concat(numbers) if numbers else None, strings


def _date(graph: Graph, days: str) -> list[str]:
    """Return days, and sines and cosines of the phases of the year, the week and the day; NaN where days are missing."""
    missing = graph.op("IsNaN", days)
    known = graph.op("Where", missing, 0.0, days)
    floor = graph.op("Floor", known)
    whole = graph.cast(floor, np.int64)
    year = graph.op("Div", graph.cast(graph.op("Sub", whole, _year_start(graph, whole)), graph.dtype), 365.25)
    # The operator Mod returns the day of the week also for negative days, those before 1970.
    week = graph.cast(graph.op("Mod", graph.op("Add", whole, np.array(3)), np.array(7)), graph.dtype)
    found = [known]
    for phase in (year, graph.op("Div", week, 7.0), graph.op("Sub", known, floor)):
        angle = graph.op("Mul", phase, 2 * np.pi)
        for kind in ("Sin", "Cos"):
            scaled = graph.op("Mul", graph.op(kind, angle), 10.0**PHASE_DIGITS)
            found.append(graph.op("Div", graph.op("Round", scaled), 10.0**PHASE_DIGITS))
    return [graph.op("Where", missing, float("nan"), column) for column in found]


def _year_start(graph: Graph, days: str) -> str:
    """Return the first day of the year of each day, by the 400-year cycle of the Gregorian calendar, counted from March."""

    def op(kind: str, a: Any, b: Any) -> str:
        return graph.op(kind, *(np.array(v, dtype=np.int64) if isinstance(v, int) else v for v in (a, b)))

    shifted = op("Add", days, 719_468)
    era = op("Div", shifted, 146_097)
    day = op("Sub", shifted, op("Mul", era, 146_097))
    leaps = op("Sub", op("Div", day, 36_524), op("Add", op("Div", day, 1460), op("Div", day, 146_096)))
    year = op("Div", op("Add", day, leaps), 365)
    since_march = op("Sub", day, op("Sub", op("Add", op("Mul", year, 365), op("Div", year, 4)), op("Div", year, 100)))
    # Day 306 after the first of March is the first of January of the next year.
    later = graph.cast(op("GreaterOrEqual", since_march, 306), np.int64)
    full = op("Sub", op("Add", op("Add", year, op("Mul", era, 400)), later), 1)
    era = op("Div", full, 400)
    inside = op("Sub", full, op("Mul", era, 400))
    day = op("Sub", op("Add", op("Mul", inside, 365), op("Div", inside, 4)), op("Div", inside, 100))
    return op("Sub", op("Add", op("Add", op("Mul", era, 146_097), day), 306), 719_468)


def _prepared(graph: Graph, model: Preparation, numbers: str | None, strings: list[tuple[str, np.ndarray]]) -> str:
    pieces = []
    if numbers is not None:
        missing = graph.op("IsNaN", numbers)
        filled = graph.op("Where", missing, graph.number(model.medians_[None, :]), numbers)
        shaped = _shaped(graph, model, filled)
        centred = graph.op("Sub", shaped, graph.number(model.means_))
        pieces.append(graph.op("Div", centred, graph.number(model.scales_)))
        if len(model.with_missing_):
            some = graph.op("Gather", missing, model.with_missing_.astype(np.int64), axis=1)
            pieces.append(graph.cast(some, graph.dtype))
    pieces += [one_hot(graph, column, levels) for column, levels in strings]
    return graph.concat(pieces)


def _shaped(graph: Graph, model: Preparation, filled: str) -> str:
    shaped = filled
    if model.scaling == "quantile":
        columns = []
        fitted = model.quantiles_
        for k, quantiles in enumerate(fitted.quantiles_.T):
            columns.append(
                rank_among(graph, graph.column(filled, k), quantiles, fitted.references_, preparation._SMALLEST_RANK)
            )
        ranks = graph.concat(columns)
        inside = graph.op("Clip", ranks, preparation._SMALLEST_RANK, 1 - preparation._SMALLEST_RANK)
        shaped = graph.op("Clip", normal_quantile(graph, inside), -preparation._CLIP, preparation._CLIP)
    elif model.scaling == "log":
        units = graph.op("Div", graph.op("Sub", filled, graph.number(model.centres_)), graph.number(model.units_))
        logs = graph.op("Mul", graph.op("Sign", units), graph.op("Log", graph.op("Add", graph.op("Abs", units), 1.0)))
        shaped = graph.op("Where", model.logged_[None, :], logs, filled)
    indicator = graph.op("Div", graph.op("Sub", filled, graph.number(model.low_)), graph.number(model.range_))
    return graph.op("Where", model.two_valued_[None, :], indicator, shaped)


def _member(graph: Graph, member: TableMember, numbers: str | None, strings: list[tuple[str, np.ndarray]]) -> str:
    x = _prepared(graph, member.preparation, numbers, strings)
    scores = []
    for points, coef, bias in zip(member.points, member.coefs, member.biases, strict=True):
        block = kernel_block(graph, member.kernel, x, points)
        scores.append(graph.op("Add", graph.op("MatMul", block, graph.number(coef)), graph.number(np.atleast_1d(bias))))
    if member.partition is None or len(scores) == 1:
        return scores[0]
    kept = [
        graph.op("Where", inside, part, 0.0)
        for inside, part in zip(_leaves(graph, member.partition, x), scores, strict=True)
    ]
    return graph.op("Sum", *kept)


def _leaves(graph: Graph, tree: Partition, x: str) -> list[str]:
    """Return for each leaf whether a row belongs to it, of shape (n, 1)."""
    heights = graph.op("MatMul", x, graph.number(np.column_stack(tree.directions_)))
    right = graph.op("Greater", heights, graph.number(np.array(tree.thresholds_)[None, :]))
    left = graph.op("Not", right)
    found: dict[int, str] = {}
    waiting: list[tuple[int, str | None]] = [(tree.root_, None)]
    while waiting:
        node, inside = waiting.pop()
        if node < 0:
            found[-1 - node] = str(inside)
            continue
        for child, side in zip(tree.children_[node], (left, right), strict=True):
            here = graph.column(side, node)
            waiting.append((child, here if inside is None else graph.op("And", inside, here)))
    return [found[leaf] for leaf in range(tree.n_parts_)]


def _in_units(graph: Graph, scores: str, scales: np.ndarray, member: TableMember) -> str:
    mean, spread, log_mean, log_spread = (float(value) for value in scales)
    if not member.log:
        return graph.op("Add", graph.op("Mul", scores, spread), mean)
    exponent = graph.op("Add", graph.op("Mul", scores, log_spread), log_mean)
    return graph.op("Mul", graph.op("Exp", graph.op("Min", exponent, losses._LARGEST_EXPONENT)), float(member.factor))
