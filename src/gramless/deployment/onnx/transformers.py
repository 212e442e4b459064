"""scikit-learn's transformers as ONNX graphs: what stands before a machine in a pipeline.

One function for each, found by type in `TRANSFORMER_GRAPHS`; numbers in, numbers out, except for encoders and imputers of
words. A transformer that is not there is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest, SelectPercentile, VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from gramless.deployment.onnx.graph import Graph
from gramless.deployment.onnx.normal import normal_quantile, rank_among

TransformerGraph = Callable[[Graph, Any, str], str]
# scikit-learn's: values so close to the ends of the quantiles are the ends, and ranks are kept so far from 0 and 1.
_EDGE = 1e-7


def transformed(graph: Graph, transformer: Any, x: str) -> str:
    """Add a fitted transformer to a graph.

    Parameters
    ----------
    graph : Graph
    transformer : transformer, "passthrough" or None
    x : str
        Of shape (n, d).

    Returns
    -------
    str
    """
    if transformer is None or transformer == "passthrough":
        return x
    if isinstance(transformer, FunctionTransformer) and transformer.func is None:
        return x
    if isinstance(transformer, Pipeline):
        for _, step in transformer.steps:
            x = transformed(graph, step, x)
        return x
    if type(transformer) not in TRANSFORMER_GRAPHS:
        known = ", ".join(sorted(cls.__name__ for cls in TRANSFORMER_GRAPHS))
        raise ValueError(f"{type(transformer).__name__} cannot be written as ONNX operators; those that can: {known}")
    return TRANSFORMER_GRAPHS[type(transformer)](graph, transformer, x)


def named_columns(transformer: ColumnTransformer) -> list[tuple[str, bool]]:
    """The columns of a fitted column transformer in the order of its parts, and whether each holds words."""
    found: dict[str, bool] = {}
    for _, part, columns in transformer.transformers_:
        if isinstance(part, str) and part == "drop":
            continue
        if not all(isinstance(name, str) for name in np.atleast_1d(np.asarray(columns, dtype=object))):
            raise ValueError("ColumnTransformer is written as ONNX where its columns are chosen by name")
        for name in columns:
            found[str(name)] = _takes_words(part)
    return list(found.items())


def _takes_words(part: Any) -> bool:
    steps = [step for _, step in part.steps] if isinstance(part, Pipeline) else [part]
    encoders = [step for step in steps if isinstance(step, OneHotEncoder)]
    return any(values.dtype.kind in "OU" for encoder in encoders for values in encoder.categories_)


def column_parts(graph: Graph, transformer: ColumnTransformer, columns: dict[str, str]) -> str:
    """Add a fitted column transformer; `columns` are the values of its columns by name, each of shape (n, 1)."""
    pieces = []
    for _, part, names in transformer.transformers_:
        if isinstance(part, str) and part == "drop":
            continue
        values = [columns[str(name)] for name in names]
        joined = values[0] if len(values) == 1 else graph.op("Concat", *values, axis=1)
        pieces.append(transformed(graph, part, joined))
    return pieces[0] if len(pieces) == 1 else graph.op("Concat", *pieces, axis=1)


def _standard(graph: Graph, model: StandardScaler, x: str) -> str:
    if model.with_mean:
        x = graph.op("Sub", x, graph.number(model.mean_))
    return graph.op("Div", x, graph.number(model.scale_)) if model.with_std else x


def _robust(graph: Graph, model: RobustScaler, x: str) -> str:
    if model.with_centering:
        x = graph.op("Sub", x, graph.number(model.center_))
    return graph.op("Div", x, graph.number(model.scale_)) if model.with_scaling else x


def _min_max(graph: Graph, model: MinMaxScaler, x: str) -> str:
    x = graph.op("Add", graph.op("Mul", x, graph.number(model.scale_)), graph.number(model.min_))
    return graph.op("Clip", x, float(model.feature_range[0]), float(model.feature_range[1])) if model.clip else x


def _max_abs(graph: Graph, model: MaxAbsScaler, x: str) -> str:
    return graph.op("Div", x, graph.number(model.scale_))


def _normalizer(graph: Graph, model: Normalizer, x: str) -> str:
    size = graph.op("Abs", x)
    if model.norm == "l2":
        norm = graph.op("Sqrt", graph.op("ReduceSum", graph.op("Mul", x, x), graph.axes(1), keepdims=1))
    elif model.norm == "l1":
        norm = graph.op("ReduceSum", size, graph.axes(1), keepdims=1)
    else:
        norm = graph.op("ReduceMax", size, graph.axes(1), keepdims=1)
    return graph.op("Div", x, graph.op("Where", graph.op("Equal", norm, 0.0), 1.0, norm))


def _pca(graph: Graph, model: PCA, x: str) -> str:
    x = graph.op("MatMul", graph.op("Sub", x, graph.number(model.mean_)), graph.number(model.components_.T))
    if not model.whiten:
        return x
    smallest = np.finfo(model.explained_variance_.dtype).eps
    return graph.op("Div", x, graph.number(np.maximum(np.sqrt(model.explained_variance_), smallest)))


def _selected(graph: Graph, model: Any, x: str) -> str:
    return graph.op("Gather", x, model.get_support(indices=True).astype(np.int64), axis=1)


def _imputer(graph: Graph, model: SimpleImputer, x: str) -> str:
    if model.add_indicator:
        raise ValueError("SimpleImputer(add_indicator=True) cannot be written as ONNX operators")
    if any(isinstance(value, str) for value in model.statistics_):  # a word that is missing is an empty one
        filler = model.statistics_.astype(str).astype(object)[None, :]
        return graph.op("Where", graph.op("Equal", x, np.array([""], dtype=object)), filler, x)
    if not (isinstance(model.missing_values, float) and np.isnan(model.missing_values)):
        raise ValueError("SimpleImputer is written as ONNX operators where NaN is what is missing")
    statistics = model.statistics_.astype(np.float64)
    known = ~np.isnan(statistics)
    filled = graph.op("Where", graph.op("IsNaN", x), graph.number(np.where(known, statistics, 0.0)[None, :]), x)
    if known.all() or model.keep_empty_features:
        return filled
    return graph.op("Gather", filled, np.flatnonzero(known).astype(np.int64), axis=1)


def _one_hot(graph: Graph, model: OneHotEncoder, x: str) -> str:
    if model.drop is not None or model.handle_unknown not in ("error", "ignore"):
        raise ValueError("OneHotEncoder is written as ONNX operators without `drop`, and with unknown words ignored")
    infrequent = getattr(model, "infrequent_categories_", None) or [None] * len(model.categories_)
    pieces = []
    for k, (levels, rare) in enumerate(zip(model.categories_, infrequent, strict=True)):
        column = x if len(model.categories_) == 1 else graph.op("Gather", x, graph.axes(k), axis=1)
        is_rare = np.zeros(len(levels), bool) if rare is None else np.isin(levels, rare)
        pieces.append(one_hot(graph, column, levels[~is_rare]))
        if is_rare.any():
            among = one_hot(graph, column, levels[is_rare])
            pieces.append(graph.op("ReduceMax", among, graph.axes(1), keepdims=1))
    return pieces[0] if len(pieces) == 1 else graph.op("Concat", *pieces, axis=1)


def one_hot(graph: Graph, column: str, levels: np.ndarray) -> str:
    """One column of zeros and ones for each level.

    Parameters
    ----------
    graph : Graph
    column : str
        Of shape (n, 1), words or numbers.
    levels : ndarray of shape (k,)

    Returns
    -------
    str
        Of shape (n, k).
    """
    words = levels.dtype.kind in "OU"
    table = levels.astype(str).astype(object)[None, :] if words else graph.number(levels[None, :])
    return graph.cast(graph.op("Equal", column, table), graph.dtype)


def _quantiles(graph: Graph, model: QuantileTransformer, x: str) -> str:
    columns = []
    for k in range(model.n_features_in_):
        column = graph.op("Gather", x, graph.axes(k), axis=1)
        columns.append(rank_among(graph, column, model.quantiles_[:, k], model.references_, _EDGE))
    ranks = columns[0] if len(columns) == 1 else graph.op("Concat", *columns, axis=1)
    if model.output_distribution == "uniform":
        return ranks
    return normal_quantile(graph, graph.op("Clip", ranks, _EDGE, 1 - _EDGE))


TRANSFORMER_GRAPHS: dict[type, TransformerGraph] = {
    StandardScaler: _standard,
    RobustScaler: _robust,
    MinMaxScaler: _min_max,
    MaxAbsScaler: _max_abs,
    Normalizer: _normalizer,
    PCA: _pca,
    VarianceThreshold: _selected,
    SelectKBest: _selected,
    SelectPercentile: _selected,
    SimpleImputer: _imputer,
    OneHotEncoder: _one_hot,
    QuantileTransformer: _quantiles,
}
"""How each transformer is written as ONNX operators."""
