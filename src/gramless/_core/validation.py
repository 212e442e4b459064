"""The border: what users pass in is checked here, once, with errors that a person can act on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
from sklearn.utils import assert_all_finite
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, column_or_1d, validate_data

from gramless._core import arrays as xa
from gramless._core.arrays import Array

_SINGLE_PRECISION_INPUTS = ("float32", "float16", "uint8", "int8")


Fit = TypeVar("Fit", bound=Callable[..., Any])


def atomic_fit(fit: Fit) -> Fit:
    """A `fit` that ends with a model of finite numbers, or raises and leaves the estimator as it was before.

    As it was is unfitted, or with its last model.
    """

    @functools.wraps(fit)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = dict(vars(self))
        try:
            fitted = fit(self, *args, **kwargs)
            if fit.__name__ == "fit":  # what goes on learning may still be without a solution
                _refuse_infinite_numbers(self)
            return fitted
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return guarded  # type: ignore[return-value]


def _refuse_infinite_numbers(model: Any) -> None:
    """Coefficients, and the kernel of each point of the model with itself, must be finite for scores to be."""
    solution = [getattr(model, name, None) for name in ("dual_coef_", "intercept_")]
    diagonal = None
    kernel, points = getattr(model, "kernel_", None), getattr(model, "points_", None)
    # A kernel function, which no two threads may call, looks at every value that it returns.
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
    """The floating dtype to compute in: the user's, or float32 for float32 and byte data and float64 for the rest."""
    if dtype is not None:
        chosen = np.dtype(dtype)
        if chosen not in (np.float32, np.float64):
            raise ValueError(f"dtype must be 'float32', 'float64' or None, got {dtype!r}")
        return chosen
    kinds = [X.dtype] if hasattr(X, "dtype") else list(getattr(X, "dtypes", []))  # a DataFrame has one for each column
    names = {str(kind).removeprefix("torch.") for kind in kinds}
    return np.dtype(np.float32 if names and names <= set(_SINGLE_PRECISION_INPUTS) else np.float64)


def check_X(estimator: Any, X: Any, *, dtype: np.dtype, accept_sparse: bool = True, reset: bool, **options: Any) -> Array:
    """`X` as a finite two-dimensional array (NumPy, CSR, or the tensor it is), features counted and named."""
    if xa.is_torch(X):
        _check_tensor(estimator, X, reset)
        return xa.astype(X, dtype)
    if not options and _is_plain(estimator, X, dtype, reset):
        return X
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


def _is_plain(estimator: Any, X: Any, dtype: np.dtype, reset: bool) -> bool:
    """Whether `X` is a finite array that needs no conversion, has no names and has the features it should.

    Nothing is said about an array that is not: scikit-learn's checks say it, in ten times the time.
    """
    if type(X) is not np.ndarray or X.dtype != dtype or X.ndim != 2 or 0 in X.shape or not X.flags.c_contiguous:
        return False
    known = vars(estimator)
    if reset:
        if not _all_finite(X):
            return False
        estimator.n_features_in_ = X.shape[1]
        remove_feature_names(estimator)
        return True
    return "feature_names_in_" not in known and X.shape[1] == known.get("n_features_in_") and _all_finite(X)


def _all_finite(X: np.ndarray) -> bool:
    """Finite as far as the sum tells, which takes no memory: a sum that overflows is for slower checks to look at."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(X.sum()))


def _check_tensor(estimator: Any, X: Any, reset: bool) -> None:
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D tensor instead; reshape it to (n_samples, n_features)")
    if X.is_complex():
        raise ValueError("Complex data not supported")
    _refuse_gradients("X", X)
    if 0 in X.shape:
        raise ValueError(f"Found a tensor of shape {tuple(X.shape)}: at least one sample and one feature are required")
    if X.is_floating_point() and not bool(X.isfinite().all()):
        raise ValueError(f"Input X contains NaN or infinity; {type(estimator).__name__} does not accept missing values")
    if reset:
        estimator.n_features_in_ = X.shape[1]
        remove_feature_names(estimator)
    elif X.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X has {X.shape[1]} features, but {type(estimator).__name__} is expecting {estimator.n_features_in_} features"
        )


def _refuse_gradients(name: str, tensor: Any) -> None:
    if tensor.requires_grad:
        raise ValueError(
            f"{name} is a tensor that requires a gradient, and none flows through a kernel machine: pass {name}.detach()"
        )


def remove_feature_names(estimator: Any) -> None:
    """The columns of an earlier table had names; those of what is fitted now have none."""
    estimator.__dict__.pop("feature_names_in_", None)


def check_square(X: Array) -> None:
    """A precomputed kernel must be square at fit."""
    if X.shape[0] != X.shape[1]:
        raise ValueError(f"Precomputed kernel matrix must be square at fit, got shape {tuple(X.shape)}")


def check_labels(y: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Sorted classes and the class index of each sample; at least two classes."""
    if y is None:
        raise ValueError("fit requires y to be passed, but the target y is None")
    if type(y) is np.ndarray and y.ndim == 1 and y.dtype.kind in "iub" and len(y) == n:
        classes, codes = np.unique(y, return_inverse=True)
        if 2 <= len(classes) <= n // 2:  # so many labels that they may be values are for scikit-learn to look at
            return classes, codes
    y = column_or_1d(_off_torch("y", y), warn=True)
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
    """Whether `y` says for each of several labels which rows have it: a matrix of zeros and ones."""
    if xa.is_sparse(y):
        return True
    shape = getattr(y, "shape", None)
    if shape is None and isinstance(y, list | tuple) and y and isinstance(y[0], list | tuple | np.ndarray):
        shape = (len(y), len(y[0]))
    if shape is None or len(shape) != 2 or shape[1] < 2:
        return False
    return type_of_target(_off_torch("y", y), input_name="y") == "multilabel-indicator"


def check_indicator(y: Any, n: int, class_weight: Any = None) -> np.ndarray:
    """Which rows have which label, as booleans of shape (n, n_labels)."""
    given = y.toarray() if xa.is_sparse(y) else np.asarray(_off_torch("y", y))
    if given.shape[0] != n:
        raise ValueError(f"Found input variables with inconsistent numbers of samples: {[n, given.shape[0]]}")
    if not np.isin(given, (0, 1)).all():
        raise ValueError("an indicator matrix has zeros and ones only")
    if class_weight is not None:
        raise ValueError("class_weight is for one label of each row; with an indicator matrix give sample_weight")
    return given.astype(bool)


def _off_torch(name: str, values: Any) -> Any:
    """A tensor as an array, anything else as it is."""
    if not xa.is_torch(values):
        return values
    _refuse_gradients(name, values)
    return xa.to_numpy(values)


def missing_mask(y: np.ndarray) -> np.ndarray:
    """Which targets are None, not a number, infinite, or what pandas has for a missing value."""
    if y.dtype.kind == "f":
        return ~np.isfinite(y).reshape(len(y), -1).all(axis=1)
    if y.dtype.kind != "O":
        return np.zeros(len(y), dtype=bool)
    # pandas.NA compares as neither equal nor unequal to anything, itself included.
    return np.array([v is None or type(v).__name__ == "NAType" or v != v for v in y.reshape(len(y), -1)[:, 0]], dtype=bool)


def check_outputs(y: Any, n: int) -> np.ndarray:
    """Regression targets as a finite float64 matrix with one column for each output."""
    from sklearn.utils import check_array

    if y is None:
        raise ValueError("fit requires y to be passed, but the target y is None")
    y = _off_torch("y", y)
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
    """One non-negative weight for each sample, class weights multiplied in; None where all are one."""
    if sample_weight is None and class_weight is None:
        return None
    n = X.shape[0]
    sample_weight = _off_torch("sample_weight", sample_weight)
    weights = _check_sample_weight(sample_weight, np.empty((n, 1)), dtype=np.float64, ensure_non_negative=True)
    if class_weight is not None and codes is not None:
        # "balanced" counts weighted samples, so that a weight still equals a repetition.
        if isinstance(class_weight, str) and class_weight == "balanced":
            mass = np.bincount(codes, weights=weights, minlength=len(classes))
            per_class = weights.sum() / (np.count_nonzero(mass) * np.where(mass > 0, mass, 1.0))
        else:
            if isinstance(class_weight, dict):
                check_class_weights(class_weight)
            per_class = compute_class_weight(class_weight, classes=classes, y=classes[codes])
        weights = weights * per_class[codes]
    if not weights.any():
        raise ValueError("all sample weights are zero: there is nothing to fit")
    return weights


def check_class_weights(class_weight: dict[Any, float]) -> dict[Any, float]:
    """A factor for each class, none of them negative."""
    for label, factor in class_weight.items():
        if not isinstance(factor, Real) or not 0 <= factor < float("inf"):
            raise ValueError(f"class_weight must be finite numbers of at least 0, got {factor!r} for class {label!r}")
    return class_weight


def check_positive(name: str, value: Any, *, integer: bool = False) -> Any:
    """A finite number above zero."""
    kind = Integral if integer else Real
    if not isinstance(value, kind) or isinstance(value, bool) or not 0 < float(value) < float("inf"):
        raise ValueError(f"{name} must be a positive {'integer' if integer else 'finite number'}, got {value!r}")
    return value


def check_choice(name: str, value: Any, known: Any) -> Any:
    """One of the known names; the error lists them."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"unknown {name} {value!r}; known: {', '.join(map(repr, sorted(known)))}")
    return value
