"""Transformers of scikit-learn as ONNX graphs: the steps before a gramless estimator in a pipeline.

skl2onnx converts most transformers, in float64. This module converts transformers that skl2onnx 1.20 does not support in the
required form: imputers (onnxruntime has no float64 version of the operator), encoders with infrequent categories,
`Normalizer(norm="max")`, and quantile transformers to a normal distribution. This module also converts feature selectors,
because skl2onnx uses an operator of the optional domain ai.onnx.ml for them.

ONNX has no operator for quantiles of the normal distribution. The quantiles are computed by two rational functions of
Wichura ("Algorithm AS 241: The percentage points of the normal distribution", 1988), which are accurate to float64 rounding
for ranks from 1e-7 to 1 - 1e-7.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.feature_selection import SelectorMixin
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, OneHotEncoder, QuantileTransformer

from gramless.deployment.onnx.graph import OPSET, Tensor

TransformerGraph = Callable[[Any, Tensor], Tensor]
# Constant of scikit-learn's quantile transformer: values within this distance of the first or last quantile have rank 0 or
# 1, and ranks are clipped at this distance from 0 and 1 before the normal quantiles are computed.
_BOUNDS_THRESHOLD = 1e-7
# Wichura's polynomial coefficients in ascending order: normal quantiles of ranks near 0.5 are computed from the ratio of the
# polynomials A / B, other normal quantiles from the ratio C / D.
_A = [3.3871328727963666080, 133.14166789178437745, 1971.5909503065514427, 13731.693765509461125]
_A += [45921.953931549871457, 67265.770927008700853, 33430.575583588128105, 2509.0809287301226727]
_B = [1.0, 42.313330701600911252, 687.18700749205790830, 5394.1960214247511077]
_B += [21213.794301586595867, 39307.895800092710610, 28729.085735721942674, 5226.4952788528545610]
_C = [1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550, 3.64784832476320460504]
_C += [1.27045825245236838258, 0.241780725177450611770, 0.0227238449892691845833, 7.74545014278341407640e-4]
_D = [1.0, 2.05319162663775882187, 1.67638483018380384940, 0.689767334985100004550]
_D += [0.148103976427480074590, 0.0151986665636164571966, 5.47593808499534494600e-4, 1.05075007164441684324e-9]
# Distance of a rank from 0.5 up to which the ratio A / B is used.
_MIDDLE = 0.425


def transformed(transformer: Any, x: Tensor) -> Tensor:
    """Return the output of a fitted transformer for x; the transformers "passthrough" and None return x unchanged."""
    if transformer is None or transformer == "passthrough":
        return x
    if isinstance(transformer, FunctionTransformer) and transformer.func is None:
        return x
    if isinstance(transformer, Pipeline):
        for _, step in transformer.steps:
            x = transformed(step, x)
        return x
    if isinstance(transformer, SelectorMixin):
        return x.columns(*transformer.get_support(indices=True))
    return TRANSFORMER_GRAPHS.get(type(transformer), _by_skl2onnx)(transformer, x)


def named_columns(transformer: ColumnTransformer) -> list[tuple[str, bool]]:
    """Return the names of the columns that a fitted column transformer uses, each with True if the column has strings."""
    found: dict[str, bool] = {}
    for part, columns in _kept_parts(transformer):
        if not all(isinstance(name, str) for name in np.atleast_1d(np.asarray(columns, dtype=object))):
            raise ValueError("a ColumnTransformer can be written as ONNX operators if its columns are selected by name")
        for name in columns:
            found[str(name)] = _takes_strings(part)
    return list(found.items())


def _kept_parts(transformer: ColumnTransformer) -> list[tuple[Any, Any]]:
    """Return the transformers of a column transformer that do not drop their columns, each with its columns."""
    return [(part, columns) for _, part, columns in transformer.transformers_ if not isinstance(part, str) or part != "drop"]


def _takes_strings(part: Any) -> bool:
    steps = [step for _, step in part.steps] if isinstance(part, Pipeline) else [part]
    encoders = [step for step in steps if isinstance(step, OneHotEncoder)]
    return any(values.dtype.kind in "OU" for encoder in encoders for values in encoder.categories_)


def column_parts(transformer: ColumnTransformer, columns: dict[str, Tensor]) -> Tensor:
    """Return the output of a fitted column transformer; `columns` maps names of columns to values of shape (n, 1)."""
    graph = next(iter(columns.values())).graph
    parts = ((part, [columns[str(name)] for name in names]) for part, names in _kept_parts(transformer))
    return graph.concat([transformed(part, graph.concat(pieces)) for part, pieces in parts])


def _by_skl2onnx(transformer: Any, x: Tensor) -> Tensor:
    """Return the output of a transformer of numeric columns, converted by skl2onnx."""
    try:
        from skl2onnx import convert_sklearn
        from skl2onnx.common.data_types import DoubleTensorType
    except ImportError:
        raise ImportError("writing pipelines as ONNX needs the package skl2onnx: pip install 'gramless[onnx]'") from None
    name = type(transformer).__name__
    try:
        types = [("input", DoubleTensorType([None, transformer.n_features_in_]))]
        return x.graph.include(convert_sklearn(transformer, initial_types=types, target_opset=OPSET), x)
    except Exception as error:  # skl2onnx has no common class of errors
        raise ValueError(f"{name} cannot be written as ONNX operators: {error}") from error


def _normalizer(model: Normalizer, x: Tensor) -> Tensor:
    if model.norm == "l2":
        norm = (x * x).sum(1).op("Sqrt")
    elif model.norm == "l1":
        norm = x.op("Abs").sum(1)
    else:
        norm = x.op("Abs").op("ReduceMax", np.array([1]))
    return x / norm.op("Equal", 0.0).where(1.0, norm)


def _imputer(model: SimpleImputer, x: Tensor) -> Tensor:
    if model.add_indicator:
        raise ValueError("SimpleImputer(add_indicator=True) cannot be written as ONNX operators")
    if any(isinstance(value, str) for value in model.statistics_):  # missing strings are empty strings in ONNX
        filler = model.statistics_.astype(str).astype(object)[None, :]
        return x.op("Equal", np.array([""], dtype=object)).where(filler, x)
    if not (isinstance(model.missing_values, float) and np.isnan(model.missing_values)):
        raise ValueError("a SimpleImputer can be written as ONNX operators if missing values are NaN")
    statistics = model.statistics_.astype(np.float64)
    known = ~np.isnan(statistics)
    filled = x.op("IsNaN").where(np.where(known, statistics, 0.0)[None, :], x)
    return filled if known.all() or model.keep_empty_features else filled.columns(*np.flatnonzero(known))


def _one_hot(model: OneHotEncoder, x: Tensor) -> Tensor:
    if model.drop is not None or model.handle_unknown not in ("error", "ignore"):
        raise ValueError(
            "a OneHotEncoder can be written as ONNX operators if drop is None and handle_unknown is 'error' or 'ignore'"
        )
    infrequent = getattr(model, "infrequent_categories_", None) or [None] * len(model.categories_)
    pieces = []
    for k, (levels, rare) in enumerate(zip(model.categories_, infrequent, strict=True)):
        column = x if len(model.categories_) == 1 else x.columns(k)
        is_rare = np.zeros(len(levels), bool) if rare is None else np.isin(levels, rare)
        pieces.append(one_hot(column, levels[~is_rare]))
        if is_rare.any():
            pieces.append(one_hot(column, levels[is_rare]).op("ReduceMax", np.array([1])))
    return x.graph.concat(pieces)


def one_hot(column: Tensor, levels: np.ndarray) -> Tensor:
    """Return one indicator column for each level of a column of strings or numbers."""
    dtype: Any = object if levels.dtype.kind in "OU" else np.float64
    return column.op("Equal", levels.astype(dtype)[None, :]).as_float()


def _quantiles(model: QuantileTransformer, x: Tensor) -> Tensor:
    ranks = ranks_among(x, model.quantiles_, model.references_, _BOUNDS_THRESHOLD)
    if model.output_distribution == "uniform":
        return ranks
    return normal_quantile(ranks.op("Clip", _BOUNDS_THRESHOLD, 1 - _BOUNDS_THRESHOLD))


def normal_quantile(p: Tensor) -> Tensor:
    """Return the standard normal quantiles of ranks strictly between 0 and 1."""
    q = p - 0.5
    r = _MIDDLE**2 - q * q
    middle = q * (_polynomial(r, _A) / _polynomial(r, _B))
    t = p.op("Min", 1.0 - p).op("Log").op("Neg").op("Sqrt") - 1.6
    tail = _polynomial(t, _C) / _polynomial(t, _D) * q.op("Sign")
    return (q.op("Abs") <= _MIDDLE).where(middle, tail)


def _polynomial(x: Tensor, coefficients: list[float]) -> Tensor:
    return reduce(lambda value, coefficient: value * x + coefficient, coefficients[-2::-1], coefficients[-1])  # type: ignore[return-value]


def ranks_among(x: Tensor, quantiles: np.ndarray, references: np.ndarray, edge: float) -> Tensor:
    """Return the rank of each value, interpolated between the sorted quantiles of its column, which have ranks `references`.

    As in scikit-learn, the rank is the mean of the interpolations from below and from above, which differ for repeated
    quantiles; values within `edge` of the outermost quantiles have the rank 0 or 1.
    """
    return x.graph.concat([_rank(x.columns(k), column, references, edge) for k, column in enumerate(quantiles.T)])


def _rank(x: Tensor, quantiles: np.ndarray, references: np.ndarray, edge: float) -> Tensor:
    last = len(quantiles) - 1
    op = x.graph.op

    def interpolated(n_below: Tensor, from_low: bool) -> Tensor:
        """Interpolate the rank of x between the two quantiles around x, from the lower one if `from_low`, else the upper."""
        low = (n_below.cast(np.int64).sum(1) - 1).op("Clip", np.array(0), np.array(max(last - 1, 0)))
        high = (low + 1).op("Min", np.array([[last]]))
        q0, q1, r0, r1 = (op("Gather", table, place, axis=0) for table in (quantiles, references) for place in (low, high))
        flat = op("Equal", q1, q0)
        slope = (r1 - r0) / flat.where(1.0, q1 - q0)
        start, value = (q0, r0) if from_low else (q1, r1)
        return flat.where(value, value + slope * (x - start))

    row = quantiles[None, :]
    rank = (interpolated(x >= row, True) + interpolated(x > row, False)) * 0.5
    rank = (x + edge > float(quantiles[-1])).where(1.0, rank)
    return (x - edge < float(quantiles[0])).where(0.0, rank)


TRANSFORMER_GRAPHS: dict[type, TransformerGraph] = {
    Normalizer: _normalizer,
    SimpleImputer: _imputer,
    OneHotEncoder: _one_hot,
    QuantileTransformer: _quantiles,
}
"""Functions that write transformers as ONNX operators, for the transformer types that skl2onnx does not convert."""
