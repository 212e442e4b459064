"""Table models as ONNX graphs, including the preprocessing of numeric, string and date columns of `gramless.tables`.

Inputs are numbers in float64 with NaN for missing values, strings with "" for missing values, and dates as days since 1970
with NaN for missing values. The graph computes the scores of all partitions, and the tree selects the partition of each row.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from gramless.deployment.onnx.graph import Tensor
from gramless.deployment.onnx.kernels import kernel_block
from gramless.deployment.onnx.transformers import normal_quantile, one_hot, ranks_among
from gramless.inference import softmax_link
from gramless.tables import losses, preparation
from gramless.tables.column_types import PHASE_DIGITS
from gramless.tables.members import TableMember
from gramless.tables.partition import Partition
from gramless.tables.preparation import Preparation
from gramless.tables.target_encoding import MISSING


def table_columns(model: Any) -> list[tuple[str, bool]]:
    """Return the names of the columns that a table model uses, each with True if the column contains strings."""
    kinds = zip(model.columns_.names_, model.columns_.kinds_, strict=True)
    return [(name, kind == "category") for name, kind in kinds if kind != "left out"]


def table_scores(model: Any, columns: dict[str, Tensor]) -> Tensor:
    """Return the weighted sum of the members' scores, for regressors in units of the target; columns have shape (n, 1)."""
    encoded = _encoded(model, columns)
    parts = []
    for weight, member in zip(model.member_weights_, model.members_, strict=True):
        scores = _member(member, encoded)
        if hasattr(model, "target_scales_"):
            scores = _in_units(scores, model.target_scales_, member)
        parts.append(scores * float(weight))
    return reduce(Tensor.__add__, parts)


def table_inputs(model: Any, columns: dict[str, Tensor]) -> Tensor:
    """Return the scaled columns that are the input of the estimator `model_` of a table model."""
    return _prepared(model.preparation_, _encoded(model, columns))


def link(scores: Tensor, numbers: np.ndarray, n_classes: int) -> Tensor:
    """Return the logits of the calibration in `softmax_link` with the parameters `numbers`, shape (n, n_classes)."""
    p = scores
    if n_classes == 2:
        positive = (scores + 1.0) * 0.5
        p = (1.0 - positive).op("Concat", positive, axis=1)
    logs = p.op("Max", softmax_link._FLOOR).op("Log")
    logs = logs - logs.op("ReduceMean", np.array([1]))
    return p * float(numbers[0]) + logs * float(numbers[1]) + numbers[2:]


class _EncodedColumns(NamedTuple):
    """Numeric columns, string columns with their levels, and the encoded effects of string columns on the target."""

    numbers: list[Tensor]
    strings: list[tuple[Tensor, np.ndarray]]
    effects: list[Tensor]


def _encoded(model: Any, columns: dict[str, Tensor]) -> _EncodedColumns:
    """Return the encoded columns before scaling."""
    numbers: list[Tensor] = []
    strings: list[tuple[Tensor, np.ndarray]] = []
    effects: list[Tensor] = []
    tables = getattr(model.columns_, "effects_", None)
    for name, kind in zip(model.columns_.names_, model.columns_.kinds_, strict=True):
        if kind == "number":
            numbers.append(columns[name])
        elif kind == "date":
            numbers += _date(columns[name])
        elif kind == "category":
            levels = model.columns_.levels_[len(strings)]
            table = np.zeros((len(levels), 0)) if tables is None else tables[len(strings)]
            # A level that did not occur in training has only indicators that are 0, so its effect is 0.
            for effect in table.T:
                known = one_hot(columns[name], np.append(levels, ""))
                effects.append(known @ np.append(effect[: len(levels)], effect[MISSING])[:, None])
            strings.append((columns[name], levels))
        elif kind == "text":
            raise ValueError(f"the column {name!r} is hashed text, which cannot be written as ONNX operators")
    return _EncodedColumns(numbers, strings, effects)


def _date(days: Tensor) -> list[Tensor]:
    """Return the days, and the sines and cosines of their phases in the year, week and day; NaN for missing days."""
    missing = days.op("IsNaN")
    known = missing.where(0.0, days)
    floor = known.op("Floor")
    whole = floor.cast(np.int64)
    year = (whole - _year_start(whole)).as_float() / 365.25
    # The operator Mod returns a result from 0 to 6 also for negative days, which are dates before 1970.
    week = ((whole + 3) % 7).as_float() / 7.0
    found = [known]
    for phase in (year, week, known - floor):
        angle = phase * (2 * np.pi)
        found += [(angle.op(kind) * 10.0**PHASE_DIGITS).op("Round") / 10.0**PHASE_DIGITS for kind in ("Sin", "Cos")]
    return [missing.where(float("nan"), column) for column in found]


def _year_start(days: Tensor) -> Tensor:
    """Return the first day of the year of each day, by the 400-year cycle of the Gregorian calendar, counted from March.

    ONNX truncates quotients of integers, which equals rounding down because all dividends are positive.
    """
    shifted = days + 719_468
    era = shifted / 146_097
    day = shifted - era * 146_097
    year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365
    since_march = day - (year * 365 + year / 4 - year / 100)
    # The day 306 days after the first of March is the first of January of the next year.
    full = year + era * 400 + (since_march >= 306).cast(np.int64) - 1
    era = full / 400
    inside = full - era * 400
    return era * 146_097 + inside * 365 + inside / 4 - inside / 100 + 306 - 719_468


def _prepared(model: Preparation, encoded: _EncodedColumns) -> Tensor:
    pieces = []
    columns = encoded.numbers + [encoded.effects[k] for k in model.effects]
    if columns:
        numbers = columns[0].graph.concat(columns)
        missing = numbers.op("IsNaN")
        shaped = _shaped(model, missing.where(model.medians_[None, :], numbers))
        pieces.append((shaped - model.means_) / model.scales_)
        if len(model.with_missing_):
            pieces.append(missing.columns(*model.with_missing_).as_float())
    counts = zip(encoded.strings, model.n_levels, strict=True)
    pieces += [one_hot(column, levels) for (column, levels), count in counts if count]
    return pieces[0].graph.concat(pieces)


def _shaped(model: Preparation, filled: Tensor) -> Tensor:
    shaped = filled
    if model.scaling == "quantile":
        fitted, smallest, clip = model.quantiles_, preparation._SMALLEST_RANK, preparation._CLIP
        ranks = ranks_among(filled, fitted.quantiles_, fitted.references_, smallest)
        shaped = normal_quantile(ranks.op("Clip", smallest, 1 - smallest)).op("Clip", -clip, clip)
    elif model.scaling == "log":
        units = (filled - model.medians_) / model.units_
        logs = units.op("Sign") * (units.op("Abs") + 1.0).op("Log")
        shaped = filled.graph.op("Where", model.logged_[None, :], logs, filled)
    indicator = (filled - model.low_) / model.range_
    return filled.graph.op("Where", model.two_valued_[None, :], indicator, shaped)


def _member(member: TableMember, encoded: _EncodedColumns) -> Tensor:
    x = _prepared(member.preparation, encoded)
    scores = [
        kernel_block(member.kernel, x, points) @ coef + np.atleast_1d(bias)
        for points, coef, bias in zip(member.points, member.coefs, member.biases, strict=True)
    ]
    if member.partition is None or len(scores) == 1:
        return scores[0]
    leaves = _leaves(member.partition, x)
    return reduce(Tensor.__add__, (inside.where(part, 0.0) for inside, part in zip(leaves, scores, strict=True)))


def _leaves(tree: Partition, x: Tensor) -> list[Tensor]:
    """Return, for each leaf of the tree, a boolean tensor of shape (n, 1) that marks the rows of the leaf."""
    right = x @ np.column_stack(tree.directions_) > np.array(tree.thresholds_)[None, :]
    left = right.op("Not")
    found: dict[int, Any] = {}
    waiting: list[tuple[int, Tensor | None]] = [(tree.root_, None)]
    while waiting:
        node, inside = waiting.pop()
        if node < 0:
            found[-1 - node] = inside
            continue
        for child, side in zip(tree.children_[node], (left, right), strict=True):
            here = side.columns(node)
            waiting.append((child, here if inside is None else inside & here))
    return [found[leaf] for leaf in range(tree.n_parts_)]


def _in_units(scores: Tensor, scales: np.ndarray, member: TableMember) -> Tensor:
    mean, spread, log_mean, log_spread = (float(value) for value in scales[:4])
    if not member.log:
        return scores * spread + mean
    low, high = losses.log_range(scales)
    centred = (scores * log_spread + log_mean).op("Clip", low, high) - log_mean
    slope, curvature = (float(power) for power in member.powers)
    logs = (centred * curvature + slope) * centred + (log_mean + float(np.log(member.factor)))
    return logs.op("Clip", low, high).op("Exp")
