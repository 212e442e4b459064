"""Convert the arguments of `fit` and `partial_fit` to streams of rows and to targets.

Arrays are validated by the estimator before this module reads them; files, iterables and arrays on disk are validated while
they are read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.targets.streamed import LabelTargets, Targets, ValueTargets
from gramless._core.validation import check_class_weights, check_labels, check_outputs, check_weights
from gramless.streaming.stream import Stream, is_stream_like


def is_streamed(X: Any) -> bool:
    """Return whether `X` includes the targets: a stream, the path of a file or an iterable of batches."""
    return is_stream_like(X) and not isinstance(X, np.memmap)


def training_rows(X: Any, y: Any, sample_weight: Any, *, classification: bool, class_weight: Any) -> tuple[Stream, Targets]:
    """Return the rows of `fit` as a stream, and the object that encodes their targets."""
    if is_streamed(X):
        targets = LabelTargets(None, class_factors(class_weight)) if classification else ValueTargets()
        return _stream(X, y, sample_weight), targets
    if not classification:
        return Stream(X, check_outputs(y, X.shape[0]), check_weights(sample_weight, X)), ValueTargets()
    classes, codes = check_labels(y, X.shape[0])
    weights = check_weights(sample_weight, X, codes, classes, class_weight)
    if weights is not None and len(np.unique(codes[weights > 0])) < 2:
        raise ValueError("The number of classes with a positive sample weight has to be greater than one; got 1 class")
    return Stream(X, classes[codes], weights), LabelTargets(classes)


def further_rows(X: Any, y: Any, sample_weight: Any, targets: Targets) -> tuple[Stream, bool]:
    """Return the rows of a `partial_fit` as a stream, and whether all rows are already validated."""
    if is_streamed(X):
        return _stream(X, y, sample_weight), False
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    targets.read(y)
    return Stream(X, xa.to_numpy(y), check_weights(sample_weight, X)), not isinstance(X, np.memmap)


def further_labels(known: LabelTargets | None, classes: Any, class_weight: Any) -> LabelTargets:
    """Return the object that encodes the labels of a classifier's `partial_fit`; `known` is the object of earlier calls."""
    if known is None:
        if classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        if len(np.unique(classes)) < 2:
            raise ValueError("The number of classes has to be greater than one; got 1 class")
        return LabelTargets(np.unique(classes), class_factors(class_weight))
    before = known.sorted()[0]
    if classes is not None and not np.array_equal(np.unique(classes), before):
        raise ValueError(f"classes={list(classes)!r} is not the same as on the first call: {list(before)!r}")
    # After a fit on arrays, `known` has no class weights, because they were multiplied into the row weights.
    known.class_weight = class_factors(class_weight)
    return known


def class_factors(class_weight: Any) -> dict[Any, float] | None:
    """Return the class weights for labels that arrive in batches: None or a dict; other values raise ValueError."""
    if class_weight is None:
        return None
    if isinstance(class_weight, dict):
        return check_class_weights(class_weight)
    raise ValueError(f"class_weight={class_weight!r} needs all labels in advance: pass arrays to fit, or a dict of weights")


def _stream(X: Any, y: Any, sample_weight: Any) -> Stream:
    if not isinstance(X, Stream):
        return Stream(X, y, sample_weight)
    if y is not None or sample_weight is not None:
        raise ValueError("a Stream has its own targets and weights: pass no y and no sample_weight")
    return X
