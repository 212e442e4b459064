"""What support vector machines take in and what they keep of it: rows in memory, and those rows that carry the model.

A machine is fitted on NumPy or CSR rows, or on a square matrix of kernel values. It keeps the rows of its support vectors; a
precomputed kernel has none to keep, and looks up the support's columns at predict.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gramless._runtime import arrays as xa
from gramless._runtime.validation import check_square, check_X, working_dtype
from gramless.callbacks import read_callbacks
from gramless.kernels import Kernel


def functions_to_call(estimator: Any) -> Callable[[dict[str, Any]], bool] | None:
    """The estimator's `callback` as a function of the record; settings that only iterative solves honour are refused."""
    callbacks = read_callbacks(estimator.callback)
    for refused in (callbacks.checkpoint, callbacks.early_stopping):
        if refused is not None:
            raise ValueError(
                f"{type(estimator).__name__} calls functions only: {type(refused).__name__} needs LSSVC or another "
                "estimator that is fitted by iterations over all rows"
            )
    return partial(callbacks, estimator) if callbacks.functions else None


def training_points(estimator: Any, X: Any, kernel: Kernel) -> Any:
    """`X` in NumPy or CSR, features counted and named; for a precomputed kernel, square."""
    X = _on_host(estimator, X, kernel, working_dtype(X, estimator.dtype), reset=True)
    if not kernel.uses_points:
        check_square(X)
    return X


def points_to_score(estimator: Any, X: Any) -> Any:
    """What the fitted kernel is evaluated on: the rows of `X`, or the support's columns of a precomputed matrix."""
    check_is_fitted(estimator, "dual_coef_")
    X = _on_host(estimator, X, estimator.kernel_, estimator.support_vectors_.dtype, reset=False)
    return X if estimator.kernel_.uses_points else X[:, estimator.support_]


def support_vectors(X: Any, support: np.ndarray, kernel: Kernel) -> Any:
    """The rows that carry a machine; of a precomputed kernel, an empty array that has the dtype."""
    return X[support] if kernel.uses_points else np.empty((support.size, 0), dtype=xa.numpy_dtype(X))


def check_class_bounds(classes: np.ndarray, codes: np.ndarray, C: np.ndarray, positive_weight: float, pairs: bool) -> None:
    """Every class has a multiplier that can move, and `positive_weight` a class to mean."""
    missing = np.bincount(codes, C, len(classes)) == 0
    if missing.any():
        raise ValueError(f"all samples of class {classes[missing].tolist()[0]!r} have zero weight")
    if positive_weight != 1 and pairs:
        raise ValueError(
            "positive_weight needs a positive class: use multi_class='ovr', or class_weight with multi_class='ovo'"
        )


def _on_host(estimator: Any, X: Any, kernel: Kernel, dtype: np.dtype, *, reset: bool) -> Any:
    X = check_X(estimator, X, dtype=dtype, accept_sparse=kernel.accepts_sparse, reset=reset)
    return X if xa.is_sparse(X) else xa.to_numpy(X)
