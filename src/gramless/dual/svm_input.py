"""What the support vector machines ask of their settings and their input: the same checks, in the same words."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gramless._runtime import arrays as xa
from gramless._runtime.validation import check_choice, check_positive, check_square, check_X, working_dtype
from gramless.dual.problems import DUAL_SOLVERS
from gramless.kernels import Kernel


def check_dual_settings(estimator: Any) -> None:
    """`C`, `tol`, `max_iter` and `solver`."""
    check_positive("C", estimator.C)
    check_positive("tol", estimator.tol)
    if estimator.max_iter is not None:
        check_positive("max_iter", estimator.max_iter, integer=True)
    check_choice("solver", estimator.solver, DUAL_SOLVERS)


def check_class_bounds(classes: np.ndarray, codes: np.ndarray, C: np.ndarray, positive_weight: float, pairs: bool) -> None:
    """Every class has a multiplier that can move, and `positive_weight` a class to mean."""
    missing = np.bincount(codes, C, len(classes)) == 0
    if missing.any():
        raise ValueError(f"all samples of class {classes[missing][0]!r} have zero weight")
    if positive_weight != 1 and pairs:
        raise ValueError(
            "positive_weight needs a positive class: use multi_class='ovr', or class_weight with multi_class='ovo'"
        )


def training_points(estimator: Any, X: Any, kernel: Kernel) -> Any:
    """`X` in NumPy or CSR; for a precomputed kernel, square."""
    X = _on_host(estimator, X, kernel, working_dtype(X, estimator.dtype), reset=True)
    if not kernel.separable:
        check_square(X)
    return X


def points_to_score(estimator: Any, X: Any) -> Any:
    """What the fitted kernel is evaluated on: the rows of `X`, or the support's columns of a precomputed matrix."""
    check_is_fitted(estimator, "dual_coef_")
    X = _on_host(estimator, X, estimator.kernel_, estimator.support_vectors_.dtype, reset=False)
    return X if estimator.kernel_.separable else X[:, estimator.support_]


def support_vectors(X: Any, support: np.ndarray, kernel: Kernel) -> Any:
    """The rows that carry a machine; a precomputed kernel has none to keep."""
    return X[support] if kernel.separable else np.empty((support.size, 0), dtype=xa.numpy_dtype(X))


def _on_host(estimator: Any, X: Any, kernel: Kernel, dtype: np.dtype, *, reset: bool) -> Any:
    X = check_X(estimator, X, dtype=dtype, accept_sparse=kernel.accepts_sparse, reset=reset)
    return X if xa.is_sparse(X) else xa.to_numpy(X)
