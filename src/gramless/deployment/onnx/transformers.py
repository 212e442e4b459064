"""Transformers of scikit-learn as ONNX graphs: the steps before a gramless estimator in a pipeline.

skl2onnx converts most of them, in float64. This module converts the transformers that skl2onnx 1.20 does not support as
needed: imputers (onnxruntime has no float64 version of the operator), encoders with infrequent categories, normalisers by
the maximum, and quantile transformers to a normal distribution. It also converts feature selectors, for which skl2onnx uses
an operator of the optional domain ai.onnx.ml.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.feature_selection import SelectorMixin
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, OneHotEncoder, QuantileTransformer

from gramless.deployment.onnx.graph import OPSET, Tensor
from gramless.deployment.onnx.quantiles import normal_quantile, ranks_among

TransformerGraph = Callable[[Any, Tensor], Tensor]
# Constants of scikit-learn: values within this distance of the outermost quantiles are these quantiles, and ranks are
# clipped at this distance from 0 and 1.
_BOUNDS_THRESHOLD = 1e-7


def transformed(transformer: Any, x: Tensor) -> Tensor:
    """Return the output of a fitted transformer, of "passthrough" or of None."""
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
    """Return the columns of a fitted column transformer in the order of its parts, each with True if it contains strings."""
    found: dict[str, bool] = {}
    for _, part, columns in transformer.transformers_:
        if isinstance(part, str) and part == "drop":
            continue
        if not all(isinstance(name, str) for name in np.atleast_1d(np.asarray(columns, dtype=object))):
            raise ValueError("a ColumnTransformer can be written as ONNX operators if its columns are selected by name")
        for name in columns:
            found[str(name)] = _takes_strings(part)
    return list(found.items())


def _takes_strings(part: Any) -> bool:
    steps = [step for _, step in part.steps] if isinstance(part, Pipeline) else [part]
    encoders = [step for step in steps if isinstance(step, OneHotEncoder)]
    return any(values.dtype.kind in "OU" for encoder in encoders for values in encoder.categories_)


def column_parts(transformer: ColumnTransformer, columns: dict[str, Tensor]) -> Tensor:
    """Return the output of a fitted column transformer for the values of its columns by name, each of shape (n, 1)."""
    graph = next(iter(columns.values())).graph
    pieces = []
    for _, part, names in transformer.transformers_:
        if isinstance(part, str) and part == "drop":
            continue
        pieces.append(transformed(part, graph.concat([columns[str(name)] for name in names])))
    return graph.concat(pieces)


def _by_skl2onnx(transformer: Any, x: Tensor) -> Tensor:
    """Return the output of a transformer of numbers that skl2onnx can convert."""
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


TRANSFORMER_GRAPHS: dict[type, TransformerGraph] = {
    Normalizer: _normalizer,
    SimpleImputer: _imputer,
    OneHotEncoder: _one_hot,
    QuantileTransformer: _quantiles,
}
"""Transformers that are not converted by skl2onnx."""
