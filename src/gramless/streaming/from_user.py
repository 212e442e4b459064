"""From what a user passes to `fit` and `partial_fit` to a stream and its targets, checked before any row is learnt from."""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.targets.streamed import LabelTargets, ValueTargets
from gramless._core.validation import (
    check_class_weights,
    check_labels,
    check_outputs,
    check_weights,
    check_X,
    remove_feature_names,
    working_dtype,
)
from gramless.streaming.stream import Stream, is_stream_like


def rows_and_labels(
    estimator: Any, X: Any, y: Any, sample_weight: Any, *, accept_sparse: bool
) -> tuple[Stream, LabelTargets]:
    """The stream of a classifier's `fit`, and its targets; `estimator` has `dtype` and `class_weight`."""
    remove_feature_names(estimator)
    if _is_streamed(X):
        return _stream(X, y, sample_weight), LabelTargets(None, class_factors(estimator.class_weight))
    X = _array(estimator, X, accept_sparse, reset=True)
    classes, codes = check_labels(y, X.shape[0])
    weights = check_weights(sample_weight, X, codes, classes, estimator.class_weight)
    if weights is not None and len(np.unique(codes[weights > 0])) < 2:
        raise ValueError("The number of classes with a positive sample weight has to be greater than one; got 1 class")
    return Stream(X, classes[codes], weights), LabelTargets(classes)


def rows_and_values(
    estimator: Any, X: Any, y: Any, sample_weight: Any, *, accept_sparse: bool
) -> tuple[Stream, ValueTargets]:
    """The stream of a regressor's `fit`, and its targets; `estimator` has `dtype`."""
    remove_feature_names(estimator)
    if _is_streamed(X):
        return _stream(X, y, sample_weight), ValueTargets()
    X = _array(estimator, X, accept_sparse, reset=True)
    return Stream(X, check_outputs(y, X.shape[0]), check_weights(sample_weight, X)), ValueTargets()


def further_rows(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    targets: LabelTargets | ValueTargets,
    *,
    first: bool,
    accept_sparse: bool,
) -> tuple[Stream, bool]:
    """The stream of a `partial_fit`, and whether all its rows have been checked already."""
    if _is_streamed(X):
        return _stream(X, y, sample_weight), False
    X = _array(estimator, X, accept_sparse, reset=first)
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    targets.read(y)
    return Stream(X, xa.to_numpy(y), check_weights(sample_weight, X)), not isinstance(X, np.memmap)


def further_labels(known: LabelTargets | ValueTargets | None, classes: Any, class_weight: Any) -> LabelTargets:
    """The targets of a classifier's `partial_fit`; `known` are those of the calls before, None in the first one."""
    if known is None:
        if classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        if len(np.unique(classes)) < 2:
            raise ValueError("The number of classes has to be greater than one; got 1 class")
        return LabelTargets(np.unique(classes), class_factors(class_weight))
    assert isinstance(known, LabelTargets)
    before = known.sorted()[0]
    if classes is not None and not np.array_equal(np.unique(classes), before):
        raise ValueError(f"classes={list(classes)!r} is not the same as on the first call: {list(before)!r}")
    # Also after a fit on arrays, which multiplies the classes' weights into those of its rows.
    known.class_weight = class_factors(class_weight)
    return known


def class_factors(class_weight: Any) -> dict[Any, float] | None:
    """A factor for each class, where labels come batch by batch."""
    if class_weight is None:
        return None
    if isinstance(class_weight, dict):
        return check_class_weights(class_weight)
    raise ValueError(f"class_weight={class_weight!r} needs all labels beforehand: pass arrays to fit, or a dict of weights")


def _is_streamed(X: Any) -> bool:
    return is_stream_like(X) and not isinstance(X, np.memmap)


def _stream(X: Any, y: Any, sample_weight: Any) -> Stream:
    if not isinstance(X, Stream):
        return Stream(X, y, sample_weight)
    if y is not None or sample_weight is not None:
        raise ValueError("a Stream carries its own targets and weights: pass no y and no sample_weight")
    return X


def _array(estimator: Any, X: Any, accept_sparse: bool, *, reset: bool) -> Array:
    """An array in its own dtype, checked at once; one on disk is checked as it passes."""
    if isinstance(X, np.memmap):
        return X
    kind: Any = working_dtype(X, estimator.dtype) if xa.is_torch(X) else "numeric"
    return check_X(estimator, X, dtype=kind, reset=reset, accept_sparse=accept_sparse)
