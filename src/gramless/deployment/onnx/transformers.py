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

from gramless.deployment.onnx.graph import OPSET, Graph
from gramless.deployment.onnx.normal import normal_quantile, rank_among

TransformerGraph = Callable[[Graph, Any, str], str]
# Constants of scikit-learn: values within this distance of the outermost quantiles are these quantiles, and ranks are
# clipped at this distance from 0 and 1.
_BOUNDS_THRESHOLD = 1e-7


def transformed(graph: Graph, transformer: Any, x: str) -> str:
    """Add a fitted transformer, "passthrough" or None to a graph and return the name of its output."""
    if transformer is None or transformer == "passthrough":
        return x
    if isinstance(transformer, FunctionTransformer) and transformer.func is None:
        return x
    if isinstance(transformer, Pipeline):
        for _, step in transformer.steps:
            x = transformed(graph, step, x)
        return x
    if isinstance(transformer, SelectorMixin):
        return graph.op("Gather", x, transformer.get_support(indices=True).astype(np.int64), axis=1)
    return TRANSFORMER_GRAPHS.get(type(transformer), _by_skl2onnx)(graph, transformer, x)


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


def column_parts(graph: Graph, transformer: ColumnTransformer, columns: dict[str, str]) -> str:
    """Add a fitted column transformer; `columns` are the values of its columns by name, each of shape (n, 1)."""
    pieces = []
    for _, part, names in transformer.transformers_:
        if isinstance(part, str) and part == "drop":
            continue
        pieces.append(transformed(graph, part, graph.concat([columns[str(name)] for name in names])))
    return graph.concat(pieces)


def _by_skl2onnx(graph: Graph, transformer: Any, x: str) -> str:
    """Add a transformer of numbers that skl2onnx can convert."""
    try:
        from skl2onnx import convert_sklearn
        from skl2onnx.common.data_types import DoubleTensorType
    except ImportError:
        raise ImportError("writing pipelines as ONNX needs the package skl2onnx: pip install 'gramless[onnx]'") from None
    name = type(transformer).__name__
    try:
        types = [("input", DoubleTensorType([None, transformer.n_features_in_]))]
        return graph.include(convert_sklearn(transformer, initial_types=types, target_opset=OPSET), x)
    except Exception as error:  # skl2onnx has no common class of errors
        raise ValueError(f"{name} cannot be written as ONNX operators: {error}") from error


def _normalizer(graph: Graph, model: Normalizer, x: str) -> str:
    if model.norm == "l2":
        norm = graph.op("Sqrt", graph.row_sums(graph.op("Mul", x, x)))
    elif model.norm == "l1":
        norm = graph.row_sums(graph.op("Abs", x))
    else:
        norm = graph.op("ReduceMax", graph.op("Abs", x), graph.axes(1), keepdims=1)
    return graph.op("Div", x, graph.op("Where", graph.op("Equal", norm, 0.0), 1.0, norm))


def _imputer(graph: Graph, model: SimpleImputer, x: str) -> str:
    if model.add_indicator:
        raise ValueError("SimpleImputer(add_indicator=True) cannot be written as ONNX operators")
    if any(isinstance(value, str) for value in model.statistics_):  # missing strings are empty strings in ONNX
        filler = model.statistics_.astype(str).astype(object)[None, :]
        return graph.op("Where", graph.op("Equal", x, np.array([""], dtype=object)), filler, x)
    if not (isinstance(model.missing_values, float) and np.isnan(model.missing_values)):
        raise ValueError("a SimpleImputer can be written as ONNX operators if missing values are NaN")
    statistics = model.statistics_.astype(np.float64)
    known = ~np.isnan(statistics)
    filled = graph.op("Where", graph.op("IsNaN", x), graph.number(np.where(known, statistics, 0.0)[None, :]), x)
    if known.all() or model.keep_empty_features:
        return filled
    return graph.op("Gather", filled, np.flatnonzero(known).astype(np.int64), axis=1)


def _one_hot(graph: Graph, model: OneHotEncoder, x: str) -> str:
    if model.drop is not None or model.handle_unknown not in ("error", "ignore"):
        raise ValueError(
            "a OneHotEncoder can be written as ONNX operators if drop is None and handle_unknown is 'error' or 'ignore'"
        )
    infrequent = getattr(model, "infrequent_categories_", None) or [None] * len(model.categories_)
    pieces = []
    for k, (levels, rare) in enumerate(zip(model.categories_, infrequent, strict=True)):
        column = x if len(model.categories_) == 1 else graph.column(x, k)
        is_rare = np.zeros(len(levels), bool) if rare is None else np.isin(levels, rare)
        pieces.append(one_hot(graph, column, levels[~is_rare]))
        if is_rare.any():
            any_rare = one_hot(graph, column, levels[is_rare])
            pieces.append(graph.op("ReduceMax", any_rare, graph.axes(1), keepdims=1))
    return graph.concat(pieces)


def one_hot(graph: Graph, column: str, levels: np.ndarray) -> str:
    """Return one indicator column for each level of a column of strings or numbers."""
    strings = levels.dtype.kind in "OU"
    table = levels.astype(str).astype(object)[None, :] if strings else graph.number(levels[None, :])
    return graph.cast(graph.op("Equal", column, table), graph.dtype)


def _quantiles(graph: Graph, model: QuantileTransformer, x: str) -> str:
    columns = [
        rank_among(graph, graph.column(x, k), model.quantiles_[:, k], model.references_, _BOUNDS_THRESHOLD)
        for k in range(model.n_features_in_)
    ]
    ranks = graph.concat(columns)
    if model.output_distribution == "uniform":
        return ranks
    return normal_quantile(graph, graph.op("Clip", ranks, _BOUNDS_THRESHOLD, 1 - _BOUNDS_THRESHOLD))


TRANSFORMER_GRAPHS: dict[type, TransformerGraph] = {
    Normalizer: _normalizer,
    SimpleImputer: _imputer,
    OneHotEncoder: _one_hot,
    QuantileTransformer: _quantiles,
}
"""Transformers that are not converted by skl2onnx."""
