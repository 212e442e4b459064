"""Validation of data that users pass to `fit` and prediction methods, with error messages that state the remedy."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from sklearn.utils import assert_all_finite, check_array
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, column_or_1d, validate_data

from gramless._core import arrays as xa
from gramless._core.arrays import Array

_PACKAGE = str(Path(__file__).parents[1])
_SINGLE_PRECISION_INPUTS = ("float32", "float16", "uint8", "int8")


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points to the line outside of this package that called the package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


Fit = TypeVar("Fit", bound=Callable[..., Any])


def atomic_fit(fit: Fit) -> Fit:
    """Decorate `fit` so that it validates the parameters, and restores all attributes of the estimator after an exception.

    A fitted model with coefficients or kernel values that are not finite raises `ValueError`.
    """

    @functools.wraps(fit)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = dict(vars(self))
        self._validate_params()
        try:
            fitted = fit(self, *args, **kwargs)
            if fit.__name__ == "fit":  # after `partial_fit` there may be no solution yet
                _check_finite_model(self)
            return fitted
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return guarded  # type: ignore[return-value]


def _check_finite_model(model: Any) -> None:
    """Raise `ValueError` if a coefficient of the model, or a kernel value `k(x, x)` of one of its points, is not finite."""
    solution = [getattr(model, name, None) for name in ("dual_coef_", "intercept_")]
    diagonal = None
    kernel, points = getattr(model, "kernel_", None), getattr(model, "points_", None)
    # A kernel given as a Python function (`thread_safe` is False) checks its values itself.
    if (
        isinstance(points, np.ndarray)
        and points.ndim == 2
        and kernel is not None
        and kernel.uses_points
        and kernel.thread_safe
    ):
        with np.errstate(over="ignore", invalid="ignore"):
            diagonal = kernel.diag(points)
    if not _finite(diagonal):
        raise ValueError(
            f"{type(model).__name__} left the range of {getattr(points, 'dtype', 'floating-point numbers')}: the values of "
            f"{kernel!r} are too large for it; scale the features, for instance with sklearn.preprocessing.StandardScaler"
        )
    if not all(_finite(value) for value in solution):
        raise ValueError(
            f"{type(model).__name__} has no solution in floating-point numbers: the system of {kernel!r} is singular to "
            "their precision; lower C, use dtype='float64', change the kernel's settings, or scale the features"
        )


def _finite(value: Any) -> bool:
    return not isinstance(value, np.ndarray) or value.dtype.kind != "f" or bool(np.isfinite(value).all())


def working_dtype(X: Any, dtype: Any) -> np.dtype:
    """Return the parameter `dtype`; if it is None, return float32 for float32, float16 and 8-bit data, else float64."""
    if dtype is not None:
        chosen = np.dtype(dtype)
        if chosen not in (np.float32, np.float64):
            raise ValueError(f"dtype must be 'float32', 'float64' or None, got {dtype!r}")
        return chosen
    kinds = [X.dtype] if hasattr(X, "dtype") else list(getattr(X, "dtypes", []))  # a DataFrame has one dtype per column
    names = {str(kind).removeprefix("torch.") for kind in kinds}
    return np.dtype(np.float32 if names and names <= set(_SINGLE_PRECISION_INPUTS) else np.float64)


def check_X(estimator: Any, X: Any, *, dtype: np.dtype, accept_sparse: bool = True, reset: bool, **options: Any) -> Array:
    """Return `X` as a finite 2D array, CSR matrix or tensor; with `reset`, store the number and names of its features."""
    if xa.is_torch(X):
        _check_tensor(X, type(estimator).__name__, None if reset else estimator.n_features_in_)
        if reset:
            validate_data(estimator, X, skip_check_array=True, reset=True)
        return xa.astype(X, dtype)
    if not options and _is_plain(estimator, X, dtype, reset):
        return validate_data(estimator, X, skip_check_array=True, reset=True) if reset else X
    sparse = "csr" if accept_sparse else False
    try:
        return validate_data(estimator, X, dtype=dtype, accept_sparse=sparse, reset=reset, order="C", **options)
    except ValueError as reason:
        if "could not convert string" not in str(reason):
            raise
        raise ValueError(
            f"X has text where {type(estimator).__name__} needs numbers ({reason}); encode it first, for instance with "
            "sklearn.preprocessing.OneHotEncoder, or let `gramless train` do it"
        ) from reason


def check_host_X(estimator: Any, X: Any, **options: Any) -> Any:
    """Validate `X` by `check_X` and return it as a NumPy array or CSR matrix."""
    checked = check_X(estimator, X, **options)
    return checked if xa.is_sparse(checked) else xa.to_numpy(checked)


def _is_plain(estimator: Any, X: Any, dtype: np.dtype, reset: bool) -> bool:
    """Return True if `X` is a finite array without feature names that needs no conversion and has the expected shape.

    Other data is validated by scikit-learn's checks, which raise the errors and take ten times as long.
    """
    if type(X) is not np.ndarray or X.dtype != dtype or X.ndim != 2 or 0 in X.shape or not X.flags.c_contiguous:
        return False
    known = vars(estimator)
    if reset:
        return _all_finite(X)
    return "feature_names_in_" not in known and X.shape[1] == known.get("n_features_in_") and _all_finite(X)


def _all_finite(X: np.ndarray) -> bool:
    """Return True if the sum of `X` is finite; if the sum overflows (False), slower checks decide whether `X` is finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(X.sum()))


def _check_tensor(X: Any, name: str, n_features: int | None) -> None:
    """Raise `ValueError` if the tensor is invalid for an estimator `name` with `n_features` features (None at fit)."""
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D tensor instead; reshape it to (n_samples, n_features)")
    if X.is_complex():
        raise ValueError("Complex data not supported")
    _check_no_gradient("X", X)
    if 0 in X.shape:
        raise ValueError(f"Found a tensor of shape {tuple(X.shape)}: at least one sample and one feature are required")
    if X.is_floating_point() and not bool(X.isfinite().all()):
        raise ValueError(f"Input X contains NaN or infinity; {name} does not accept missing values")
    if n_features is not None and X.shape[1] != n_features:
        raise ValueError(f"X has {X.shape[1]} features, but {name} is expecting {n_features} features")


def _check_no_gradient(name: str, tensor: Any) -> None:
    if tensor.requires_grad:
        raise ValueError(f"{name} is a tensor that requires a gradient, and gramless computes none: pass {name}.detach()")


def check_square(X: Array) -> None:
    """Raise `ValueError` if a precomputed kernel matrix is not square."""
    if X.shape[0] != X.shape[1]:
        raise ValueError(f"Precomputed kernel matrix must be square at fit, got shape {tuple(X.shape)}")


def check_labels(y: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted classes and the class index of each row; raise `ValueError` for fewer than two classes."""
    if y is None:
        raise ValueError("fit requires y to be passed, but the target y is None")
    if type(y) is np.ndarray and y.ndim == 1 and y.dtype.kind in "iub" and len(y) == n:
        classes = np.unique(y)
        if 2 <= len(classes) <= n // 2:  # for more classes scikit-learn checks whether the labels are continuous values
            return classes, np.searchsorted(classes, y)  # np.unique with `return_inverse` would take longer
    y = column_or_1d(_host_values("y", y), warn=True)
    if len(y) != n:
        raise ValueError(f"Found input variables with inconsistent numbers of samples: {[n, len(y)]}")
    if y.dtype.kind == "O" and missing_mask(y).any():
        raise ValueError("Input y contains NaN or other missing labels")
    assert_all_finite(y, input_name="y")
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        label = classes.tolist()[0]
        raise ValueError(f"The number of classes has to be greater than one; got {len(classes)} class ({label!r})")
    return classes, codes


def is_indicator(y: Any) -> bool:
    """Return True if `y` is a multilabel indicator matrix."""
    if xa.is_sparse(y):
        return True
    shape = getattr(y, "shape", None)
    if shape is None and isinstance(y, list | tuple) and y and isinstance(y[0], list | tuple | np.ndarray):
        shape = (len(y), len(y[0]))
    if shape is None or len(shape) != 2 or shape[1] < 2:
        return False
    return type_of_target(_host_values("y", y), input_name="y") == "multilabel-indicator"


def check_indicator(y: Any, n: int, class_weight: Any = None) -> np.ndarray:
    """Validate a multilabel indicator matrix and return it as a boolean array of shape (n, n_labels)."""
    given = y.toarray() if xa.is_sparse(y) else np.asarray(_host_values("y", y))
    if given.shape[0] != n:
        raise ValueError(f"Found input variables with inconsistent numbers of samples: {[n, given.shape[0]]}")
    if not np.isin(given, (0, 1)).all():
        raise ValueError("an indicator matrix has zeros and ones only")
    if class_weight is not None:
        raise ValueError("class_weight requires one label per row; use sample_weight with an indicator matrix")
    return given.astype(bool)


def _host_values(name: str, values: Any) -> Any:
    """Convert a tensor to a NumPy array; return other values unchanged."""
    if not xa.is_torch(values):
        return values
    _check_no_gradient(name, values)
    return xa.to_numpy(values)


def missing_mask(y: np.ndarray) -> np.ndarray:
    """Return a boolean mask of the targets that are None, NaN, infinite or `pandas.NA`."""
    if y.dtype.kind == "f":
        return ~np.isfinite(y).reshape(len(y), -1).all(axis=1)
    if y.dtype.kind != "O":
        return np.zeros(len(y), dtype=bool)
    # `pandas.NA` is recognised by its type, because `pandas.NA != pandas.NA` is neither True nor False.
    return np.array([v is None or type(v).__name__ == "NAType" or v != v for v in y.reshape(len(y), -1)[:, 0]], dtype=bool)


def check_outputs(y: Any, n: int) -> np.ndarray:
    """Return regression targets as a finite float64 array."""
    if y is None:
        raise ValueError("fit requires y to be passed, but the target y is None")
    y = _host_values("y", y)
    try:
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
    except ValueError as reason:
        if "could not convert string" not in str(reason):
            raise
        raise ValueError(f"y has text where a regressor needs numbers ({reason}); a classifier takes labels") from reason
    if len(y) != n:
        raise ValueError(f"Found input variables with inconsistent numbers of samples: {[n, len(y)]}")
    return y


def check_weights(
    sample_weight: Any, X: Array, codes: np.ndarray | None = None, classes: Any = None, class_weight: Any = None
) -> np.ndarray | None:
    """Return the products of sample weights and class weights, or None if neither is given."""
    if sample_weight is None and class_weight is None:
        return None
    n = X.shape[0]
    sample_weight = _host_values("sample_weight", sample_weight)
    weights = _check_sample_weight(sample_weight, np.empty((n, 1)), dtype=np.float64, ensure_non_negative=True)
    if class_weight is not None and codes is not None:
        # With "balanced" the weights of each class are summed, so that a row of weight 2 counts as two rows.
        if isinstance(class_weight, str) and class_weight == "balanced":
            total = np.bincount(codes, weights=weights, minlength=len(classes))
            per_class = weights.sum() / (np.count_nonzero(total) * np.where(total > 0, total, 1.0))
        else:
            if isinstance(class_weight, dict):
                check_class_weights(class_weight)
            per_class = compute_class_weight(class_weight, classes=classes, y=classes[codes])
        weights = weights * per_class[codes]
    if not weights.any():
        raise ValueError("all sample weights are zero: there is nothing to fit")
    return weights


def check_class_weights(class_weight: dict[Any, float]) -> dict[Any, float]:
    """Return `class_weight`, or raise `ValueError` if a weight is negative or not finite."""
    for label, factor in class_weight.items():
        if not isinstance(factor, Real) or not 0 <= factor < float("inf"):
            raise ValueError(f"class_weight must be finite numbers of at least 0, got {factor!r} for class {label!r}")
    return class_weight


def check_positive(name: str, value: Any, *, integer: bool = False) -> Any:
    """Return `value`, or raise `ValueError` if it is not a positive finite number."""
    kind = Integral if integer else Real
    if not isinstance(value, kind) or isinstance(value, bool) or not 0 < float(value) < float("inf"):
        raise ValueError(f"{name} must be a positive {'integer' if integer else 'finite number'}, got {value!r}")
    return value


def check_choice(name: str, value: Any, known: Any) -> Any:
    """Return `value` if it is one of the names `known`, else raise a `ValueError` that lists these names."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"unknown {name} {value!r}; known: {', '.join(map(repr, sorted(known)))}")
    return value
