"""What support vector machines take in and what they keep of it: rows in memory, and those rows that carry the model.

A machine is fitted on NumPy or CSR rows, on a square matrix of kernel values, or on any sequence of objects (texts, graphs)
that the user's own kernel function understands. It keeps the rows of its support vectors. Of objects all are kept, since the
function is handed all of them again; a precomputed kernel has no rows, and looks up the support's columns at predict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.device import CUDA
from gramless._core.memory import format_bytes, parse_budget
from gramless._core.validation import (
    check_class_weights,
    check_positive,
    check_square,
    check_weights,
    check_X,
    remove_feature_names,
    working_dtype,
)
from gramless.callbacks import read_callbacks
from gramless.kernels import Callable_, Kernel, Linear, Precomputed
from gramless.linalg.planning.plan import FitPlan
from gramless.models.expansion import kernel_from_settings
from gramless.svm.box_qp import DualSolution
from gramless.svm.problems import Machine, Resources, device_resources, machine_memory, row_resources, row_workers

_NO_CAP = -1
# A fit that takes no more bytes does not ask how much memory is free.
_SMALL_FIT = 2**26
# Rows are multiplied as dense ones when that takes at most so many times the memory of the sparse ones: a compiled loop over
# sparse rows does some twenty times fewer multiplications a second than BLAS.
_DENSE_FOR_SPARSE = 8


def check_dual_settings(estimator: Any) -> None:
    """`C`, which may be infinite, `tol` and `max_iter`, where -1 means None."""
    if not (isinstance(estimator.C, Real) and float(estimator.C) == float("inf") and estimator.solver != "simple_smo"):
        check_positive("C", estimator.C)
    check_limits(estimator)


def check_limits(estimator: Any) -> None:
    """`tol`, and `max_iter`, where -1 means None."""
    check_positive("tol", estimator.tol)
    if estimator.max_iter not in (None, _NO_CAP):
        check_positive("max_iter", estimator.max_iter, integer=True)


def check_nu(nu: Any, solver: str | None = None) -> None:
    """A share of the rows; where `solver` is named, it must be one that can keep two sums."""
    if not isinstance(nu, Real) or isinstance(nu, bool) or not 0 < float(nu) <= 1:
        raise ValueError(f"nu must be a number above 0 and at most 1, got {nu!r}")
    if solver == "simple_smo":
        raise ValueError("solver='simple_smo' cannot keep the two sums that nu fixes; use solver='smo'")


def iteration_cap(estimator: Any) -> int | None:
    """The cap that `max_iter` means; None is the solver's own."""
    return None if estimator.max_iter == _NO_CAP else estimator.max_iter


def check_machine_device(estimator: Any, kernel: Kernel, *on_cpu_only: str) -> str:
    """Where the machine is computed, resolved; settings that a device cannot honour are refused.

    `on_cpu_only` names settings whose values, where they are not None, are solved on the CPU alone.
    """
    device = xa.resolve_device(estimator.device)
    for setting in on_cpu_only:
        value = getattr(estimator, setting)
        if device != "cpu" and value is not None:
            raise ValueError(f"{setting}={value!r} is solved on the CPU only: use device='cpu'")
    if isinstance(estimator.device, CUDA) and replace(estimator.device, index=0) != CUDA():
        raise ValueError(
            f"{type(estimator).__name__} computes kernel values in the precision of the data: leave precision and storage "
            "out of device=CUDA(...)"
        )
    if device != "cpu" and not kernel.thread_safe:
        raise ValueError("a kernel function takes arrays on the CPU: use device='cpu', or a kernel of gramless.kernels")
    if device != "cpu" and estimator.solver != "smo":
        raise ValueError(f"solver={estimator.solver!r} runs on the CPU only: use solver='smo' on {device}")
    return device


def resources_for(estimator: Any, kernel: Kernel, X: Any, seed: int) -> Resources:
    """What the fit may use: `memory_budget`, or `cache_size` megabytes of kernel rows where only that is given."""
    if estimator.device_ != "cpu":
        return device_resources(estimator.memory_budget, estimator.device_, seed)
    # Kernel values, working sets and temporaries are no more than eight matrices.
    small = 8 * X.shape[0] ** 2 * X.dtype.itemsize + 8 * X.shape[0] * X.shape[1] * X.dtype.itemsize < _SMALL_FIT
    if estimator.memory_budget is None and small:
        resources = Resources(_SMALL_FIT, row_workers(kernel, X), seed)
    else:
        resources = row_resources(estimator.memory_budget, kernel, X, seed)
    if estimator.cache_size is None or estimator.memory_budget is not None:
        return resources
    check_positive("cache_size", estimator.cache_size)
    return replace(resources, budget=min(resources.budget, estimator.cache_size * 2**20))


def plan_machine(estimator: Any, n: int, d: int, dtype: Any) -> FitPlan:
    """What the fit of a support vector machine of this size holds, or a `MemoryError`."""
    itemsize = np.dtype(dtype).itemsize
    device = xa.resolve_device(getattr(estimator, "device", None))
    memory = machine_memory(estimator.memory_budget, kernel_from_settings(estimator), n, d, itemsize, device)
    if estimator.cache_size is not None and estimator.memory_budget is None:
        memory.parts["kernel rows"] = min(memory.parts["kernel rows"], int(estimator.cache_size * 2**20))
    return FitPlan(memory)


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


def training_points(estimator: Any, X: Any, kernel: Kernel, sample_weight: Any = None) -> tuple[Any, Kernel]:
    """`X` in NumPy or CSR, features counted and named, and the kernel with every setting a number.

    `sample_weight` is for `gamma="weighted_scale"` alone.

    Objects that only a kernel function understands become the matrix of its values, and the kernel a precomputed one.
    """
    estimator.__dict__.pop("_objects", None)
    if isinstance(kernel, Callable_) and _holds_objects(X):
        estimator.__dict__.pop("n_features_in_", None)
        remove_feature_names(estimator)
        values = _values_of_objects(estimator, kernel, X, X)
        estimator._objects, estimator.shape_fit_ = X, (len(X),)
        return values, Precomputed()
    X = _on_host(estimator, X, kernel, working_dtype(X, estimator.dtype), reset=True)
    if not kernel.uses_points:
        check_square(X)
    estimator.shape_fit_ = X.shape
    kernel = kernel.resolve(rows_to_compute_with(X), check_weights(sample_weight, X))
    if not isinstance(kernel, Callable_):  # which looks at every value itself
        with np.errstate(over="ignore", invalid="ignore"):
            largest = kernel.diag(X).max()
        if not np.isfinite(largest):
            raise ValueError(
                f"the values of {kernel!r} overflow {X.dtype} on data up to {abs(X).max():.3g}: scale the features, for "
                "instance with sklearn.preprocessing.StandardScaler"
            )
    return X, kernel


def rows_to_compute_with(X: Any) -> Any:
    """Sparse rows that have few zeros as dense ones, which multiply at many times the rate; others as they are."""
    if not xa.is_sparse(X):
        return X
    dense = X.shape[0] * X.shape[1] * X.dtype.itemsize
    return X.toarray() if dense <= _DENSE_FOR_SPARSE * (X.data.nbytes + X.indices.nbytes) else X


def points_to_score(estimator: Any, X: Any) -> Any:
    """What the fitted kernel is evaluated on: the rows of `X`, or the support's columns of a matrix of kernel values."""
    if "dual_coef_" not in vars(estimator):  # asking scikit-learn takes as long as scoring a row
        check_is_fitted(estimator, "dual_coef_")
    if "_objects" in vars(estimator):
        return _values_of_objects(estimator, Callable_(estimator.kernel), X, estimator._objects)[:, estimator.support_]
    X = _on_host(estimator, X, estimator.kernel_, estimator.support_vectors_.dtype, reset=False)
    return X if estimator.kernel_.uses_points else X[:, estimator.support_]


def scoring_pair(estimator: Any, X: Any) -> tuple[Any, Any]:
    """`points_to_score` and the support vectors, both where the machine is computed; the vectors stay there."""
    columns, vectors = points_to_score(estimator, X), estimator.support_vectors_
    device = estimator.device_
    if device == "cpu":
        return columns, vectors
    kept = vars(estimator).get("_moved")
    if kept is None or kept[0] is not vectors:
        kept = estimator._moved = vectors, points_on(vectors, device)
    return points_on(columns, device), kept[1]


def points_on(X: Any, device: str) -> Any:
    """Rows where they are to be computed with; dense unless that is the CPU."""
    if device == "cpu":
        return X
    return xa.to_device(X.toarray() if xa.is_sparse(X) else X, device)


def support_vectors(X: Any, support: np.ndarray, kernel: Kernel) -> Any:
    """The rows that carry a machine; of a precomputed kernel, an empty array that has the dtype."""
    return X[support] if kernel.uses_points else np.empty((support.size, 0), dtype=xa.numpy_dtype(X))


def keep_machine(estimator: Any, X: Any, machine: Machine) -> None:
    """Set the attributes of a fitted machine; coefficients are sparse where the rows were."""
    estimator.support_ = machine.support
    estimator.n_support_ = machine.n_support
    estimator.dual_coef_ = sp.csr_matrix(machine.dual_coef) if xa.is_sparse(X) else machine.dual_coef
    estimator.intercept_ = machine.intercept
    estimator.support_vectors_ = support_vectors(X, machine.support, estimator.kernel_)


def kept_machine(estimator: Any) -> Machine:
    """The machine of a fitted estimator, its coefficients dense."""
    coef = estimator.dual_coef_
    dense = coef.toarray() if xa.is_sparse(coef) else coef
    return Machine(estimator.support_, estimator.n_support_, dense, estimator.intercept_, [])


def primal_coef(estimator: Any) -> Any:
    """`sum_i beta_i x_i` for each two-class problem, read-only; only a linear kernel has such weights of the features."""
    if not isinstance(getattr(estimator, "kernel_", None), Linear):
        raise AttributeError("coef_ is there after a fit with kernel='linear' only")
    beta = kept_machine(estimator).by_problem()
    if xa.is_sparse(estimator.support_vectors_):
        coef = sp.csr_matrix(beta) @ estimator.support_vectors_
        coef.data.flags.writeable = False
        return coef
    coef = beta @ estimator.support_vectors_
    coef.flags.writeable = False
    return coef


def class_factors(class_weight: Any, classes: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """What multiplies `C` in each class; "balanced" counts rows, whatever their weight."""
    if class_weight is None:
        return np.ones(len(classes))
    if isinstance(class_weight, dict):
        check_class_weights(class_weight)
    return compute_class_weight(class_weight, classes=classes, y=classes[codes]).astype(np.float64)


def bounds(C: float, weights: np.ndarray) -> np.ndarray:
    """The upper bound of each multiplier: no weight, no room, even where `C` is infinite."""
    return np.where(weights > 0, C, 0.0) * np.where(weights > 0, weights, 1.0)


def check_class_bounds(classes: np.ndarray, codes: np.ndarray, C: np.ndarray, positive_weight: float, pairs: bool) -> None:
    """Every class has a multiplier that can move, and `positive_weight` a class to mean."""
    missing = np.bincount(codes, C, len(classes)) == 0
    if missing.any():
        raise ValueError(f"all samples of class {classes[missing].tolist()[0]!r} have zero weight")
    if positive_weight != 1 and pairs:
        raise ValueError(
            "positive_weight needs a positive class: use multi_class='ovr', or class_weight with multi_class='ovo'"
        )


def check_solutions(solutions: list[DualSolution]) -> None:
    """Refuse a machine with numbers that are not finite."""
    if not all(np.isfinite([s.bias, s.objective, s.violation]).all() and np.isfinite(s.beta).all() for s in solutions):
        raise ValueError(
            "the fit left the range of floating-point numbers: the kernel values are too large or not finite; scale the "
            "features, or lower C"
        )


def _holds_objects(X: Any) -> bool:
    """Whether `X` is a sequence of something else than rows of numbers."""
    if xa.is_sparse(X) or xa.is_torch(X) or hasattr(X, "columns"):
        return False
    if not isinstance(X, np.ndarray):
        try:
            X = np.asarray(X)
        except ValueError:  # rows of different lengths
            return True
    return X.ndim == 1 and X.dtype.kind in "OUS"


def _values_of_objects(estimator: Any, kernel: Callable_, X: Any, Y: Any) -> np.ndarray:
    """The function's values for two sequences of objects, checked."""
    shape, dtype = (len(X), len(Y)), np.dtype(estimator.dtype or np.float64)
    needed, allowed = shape[0] * shape[1] * dtype.itemsize, parse_budget(estimator.memory_budget)
    if needed > allowed:
        raise MemoryError(
            f"the kernel values of {shape[0]} and {shape[1]} objects take {format_bytes(needed)}, and memory_budget allows "
            f"{format_bytes(allowed)}"
        )
    values = np.asarray(kernel.function(X, Y), dtype=dtype)
    if values.shape != shape:
        raise ValueError(f"the kernel function {kernel.function!r} returned shape {values.shape}; expected {shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"the kernel function {kernel.function!r} returned values that are not finite (NaN or infinity)")
    return values


def _on_host(estimator: Any, X: Any, kernel: Kernel, dtype: np.dtype, *, reset: bool) -> Any:
    if not kernel.uses_points and xa.is_sparse(X):
        raise TypeError("Sparse precomputed kernel values are not understood: pass a dense array, for instance K.toarray()")
    X = check_X(estimator, X, dtype=dtype, accept_sparse=kernel.accepts_sparse, reset=reset)
    return X if xa.is_sparse(X) else xa.to_numpy(X)
