"""The common `fit` of the support vector estimators: subclasses define the targets and the dual problem.

A model is fitted to NumPy or CSR rows, to a square matrix of kernel values, or to a sequence of objects (texts, graphs) for
which the user's kernel function is defined. It stores the rows of its support vectors. All objects are stored, because
the kernel function receives all of them again at prediction; with a precomputed kernel no rows are stored, and prediction
reads the columns of the support vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, is_regressor
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, Options, StrOptions
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.constraints import POSITIVE, POSITIVE_INTEGER, estimator
from gramless._core.device import CUDA, Device
from gramless._core.memory import format_bytes, parse_budget
from gramless._core.validation import atomic_fit, check_host_X, check_square, check_weights, working_dtype
from gramless.callbacks import read_functions
from gramless.kernels import Callable_, Kernel, Linear, Precomputed, kernel_from_parameters
from gramless.kernels.tags import set_input_tags
from gramless.linalg.least_squares import warn_of_rounding
from gramless.linalg.planning.plan import FitPlan
from gramless.svm.box_qp import DualSolution
from gramless.svm.multiclass import (
    DUAL_SOLVERS,
    SupportVectorModel,
    make_solver,
    problem_scores,
    warn_unless_converged,
)
from gramless.svm.progress import SolverProgress
from gramless.svm.resources import DualFit, fit_resources, svm_memory
from gramless.svm.tuning import TUNING

# The value of `max_iter` that means no limit in scikit-learn.
_NO_LIMIT = -1


@estimator
class BaseKernelSVM(BaseEstimator):
    """Base class of `KernelSVC`, `KernelSVR` and `KernelOneClassSVM`.

    Subclasses define `_read_targets` and `_solve`, and may extend `_check_settings` and `_calibrate`. The parameter
    `shrinking` exists for compatibility with scikit-learn: `fit` ignores it, because the working sets of the solver already
    leave out multipliers that do not change.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "C": [Interval(Real, 0, None, closed="right")],
        "solver": [StrOptions(set(DUAL_SOLVERS))],
        "tol": [POSITIVE],
        "max_iter": [POSITIVE_INTEGER, Options(Integral, {_NO_LIMIT}), None],
        "shrinking": ["boolean"],
        "cache_size": [POSITIVE, None],
    }

    kernel: str | Kernel | Callable[[Any, Any], Any] = field(default="rbf", kw_only=False)
    C: float = 1.0
    gamma: float | str = "scale"
    degree: int = 3
    coef0: float = 0.0
    nu: float | None = None
    solver: str = "smo"
    tol: float = 1e-3
    max_iter: int | None = None
    shrinking: bool = True
    cache_size: float | None = None
    dtype: str | None = None
    device: Device = None
    memory_budget: str | float | None = None
    callback: Any = None
    verbose: int = 0
    random_state: Any = None

    @atomic_fit
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model to training rows.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Training rows; with a precomputed kernel, the square matrix of kernel values.
        y : array-like of shape (n_samples,)
            Labels of a classifier or values of a regressor; an outlier detector ignores them.
        sample_weight : array-like of shape (n_samples,), optional
            Factors of the upper bounds of the multipliers; None is one for every row.

        Returns
        -------
        self
            The fitted estimator.
        """
        self._check_settings()
        kernel = kernel_from_parameters(vars(self))
        self.device_ = self._resolve_device(kernel)
        X, self.kernel_ = self._read_rows(X, kernel, sample_weight)
        targets, weights = self._read_targets(y, check_weights(sample_weight, X), X.shape[0])
        seed = solver_seed(self.random_state)
        rows = _dense_if_faster(X)
        resources = fit_resources(self.kernel_, rows, seed, self.device_, self.memory_budget, self.cache_size)
        solver = make_solver(self.solver, self.tol, None if self.max_iter == _NO_LIMIT else self.max_iter)
        callbacks = read_functions(self)
        callback = partial(callbacks, self) if callbacks.functions else None
        label = type(self).__name__
        with SolverProgress(self._n_problems, callback=callback, verbose=self.verbose, label=label) as progress:
            fit = DualFit(self.kernel_, rows, solver, resources, progress)
            model = self._solve(fit, targets, weights)
            _check_finite(model.solutions)
            if not progress.stopped_by_callback:
                warn_unless_converged(model.solutions, self.tol)
            self._store(X, model)
            if self.kernel_.uses_points and targets.size and model.support.size:
                values = targets[:, None] if is_regressor(self) else np.array([[-1.0], [1.0]])
                coef = model.dual_coef.T.astype(xa.numpy_dtype(X))
                warn_of_rounding(self.kernel_, self.support_vectors_, coef, values)
            self._calibrate(fit, targets, weights)
        return self

    @property
    def coef_(self) -> Any:
        """Weights of the features for each problem, read-only; only after a fit with a linear kernel."""
        if not isinstance(getattr(self, "kernel_", None), Linear):
            raise AttributeError("coef_ exists only after a fit with kernel='linear'")
        beta = self._model.by_problem()
        if xa.is_sparse(self.support_vectors_):
            coef = sp.csr_matrix(beta) @ self.support_vectors_
            coef.data.flags.writeable = False
            return coef
        coef = beta @ self.support_vectors_
        coef.flags.writeable = False
        return coef

    def _fit_plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> FitPlan:
        """Return the memory plan of a fit of `n` rows and `d` features; `MemoryError` if it exceeds the budget."""
        itemsize, where = np.dtype(dtype).itemsize, xa.resolve_device(self.device)
        memory = svm_memory(self.memory_budget, kernel_from_parameters(vars(self)), n, d, itemsize, where)
        if self.cache_size is not None and self.memory_budget is None:
            memory.parts["kernel rows"] = min(memory.parts["kernel rows"], int(self.cache_size * 2**20))
        return FitPlan(memory)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key != "_device_vectors"}

    def __sklearn_tags__(self) -> Any:
        return set_input_tags(super().__sklearn_tags__(), self.kernel)

    @property
    def _n_problems(self) -> int:
        """Number of dual problems of the fit."""
        return 1

    @property
    def _reports_arrays(self) -> bool:
        """Whether attributes such as `n_iter_` are arrays with one entry for each problem instead of numbers."""
        return False

    def _check_settings(self) -> None:
        """Raise ValueError for combinations of parameters that cannot be fitted."""
        if self.nu is not None and self.solver == "simple_smo":
            raise ValueError(
                "solver='simple_smo' does not support nu, which fixes two sums of multipliers; use solver='smo'"
            )
        if not np.isfinite(self.C) and self.solver == "simple_smo":
            raise ValueError("C must be finite with solver='simple_smo'; use solver='smo'")

    def _cpu_only(self) -> dict[str, Any]:
        """Return the parameters, by name, whose present values are supported on the CPU only."""
        return {} if self.nu is None else {"nu": self.nu}

    def _read_targets(self, y: Any, weights: np.ndarray | None, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the encoded targets, and the weights of the multipliers' bounds, including class weights."""
        raise NotImplementedError

    def _solve(self, fit: DualFit, targets: np.ndarray, weights: np.ndarray) -> SupportVectorModel:
        """Solve the dual problems."""
        raise NotImplementedError

    def _calibrate(self, fit: DualFit, targets: np.ndarray, weights: np.ndarray) -> None:
        """Fit the parameters that need out-of-fold scores."""

    def _resolve_device(self, kernel: Kernel) -> str:
        """Return the device; raise ValueError for parameters that it does not support."""
        device = xa.resolve_device(self.device)
        if isinstance(self.device, CUDA) and replace(self.device, index=0) != CUDA():
            raise ValueError(
                f"{type(self).__name__} computes kernel values in the precision of the data: leave precision and storage "
                "out of device=CUDA(...)"
            )
        if device == "cpu":
            return device
        for name, value in self._cpu_only().items():
            raise ValueError(f"{name}={value!r} is solved on the CPU only: use device='cpu'")
        if not kernel.thread_safe:
            raise ValueError("a kernel function takes arrays on the CPU: use device='cpu', or a kernel of gramless.kernels")
        if self.solver != "smo":
            raise ValueError(f"solver={self.solver!r} runs on the CPU only: use solver='smo' on {device}")
        return device

    def _read_rows(self, X: Any, kernel: Kernel, sample_weight: Any) -> tuple[Any, Kernel]:
        """Return `X` as NumPy or CSR rows and the kernel with numeric settings.

        Objects are replaced by the matrix of their kernel values, and their kernel by a precomputed one. Only
        `gamma="weighted_scale"` uses the weights.
        """
        self.__dict__.pop("_objects", None)
        if isinstance(kernel, Callable_) and _contains_objects(X):
            self.__dict__.pop("n_features_in_", None)
            self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
            values = self._object_values(kernel, X, X)
            self._objects, self.shape_fit_ = X, (len(X),)
            return values, Precomputed()
        X = self._to_host(X, kernel, working_dtype(X, self.dtype), reset=True)
        if not kernel.uses_points:
            check_square(X)
        self.shape_fit_ = X.shape
        kernel = kernel.resolve(_dense_if_faster(X), check_weights(sample_weight, X))
        if not isinstance(kernel, Callable_):  # values of a kernel function are validated by `Callable_`
            with np.errstate(over="ignore", invalid="ignore"):
                largest = kernel.diag(X).max()
            if not np.isfinite(largest):
                raise ValueError(
                    f"the values of {kernel!r} overflow {X.dtype} on data up to {abs(X).max():.3g}: scale the features, for "
                    "instance with sklearn.preprocessing.StandardScaler"
                )
        return X, kernel

    def _to_host(self, X: Any, kernel: Kernel, dtype: np.dtype, *, reset: bool) -> Any:
        """Return validated rows as NumPy or CSR."""
        if not kernel.uses_points and xa.is_sparse(X):
            raise TypeError(
                "Sparse precomputed kernel values are not supported: pass a dense array, for instance K.toarray()"
            )
        return check_host_X(self, X, dtype=dtype, accept_sparse=kernel.accepts_sparse, reset=reset)

    def _object_values(self, kernel: Any, X: Any, Y: Any) -> np.ndarray:
        """Return the validated values of a kernel function for two sequences of objects."""
        shape, dtype = (len(X), len(Y)), np.dtype(self.dtype or np.float64)
        needed, allowed = shape[0] * shape[1] * dtype.itemsize, parse_budget(self.memory_budget)
        if needed > allowed:
            raise MemoryError(
                f"the kernel values of {shape[0]} and {shape[1]} objects take {format_bytes(needed)}, and memory_budget "
                f"allows {format_bytes(allowed)}"
            )
        values = np.asarray(kernel.function(X, Y), dtype=dtype)
        if values.shape != shape:
            raise ValueError(f"the kernel function {kernel.function!r} returned shape {values.shape}; expected {shape}")
        if not np.isfinite(values).all():
            raise ValueError(
                f"the kernel function {kernel.function!r} returned values that are not finite (NaN or infinity)"
            )
        return values

    def _store(self, X: Any, model: SupportVectorModel) -> None:
        """Set the attributes of the fitted model; coefficients are sparse if the rows are."""
        self.support_ = model.support
        self.n_support_ = model.n_support
        self.dual_coef_ = sp.csr_matrix(model.dual_coef) if xa.is_sparse(X) else model.dual_coef
        self.intercept_ = model.intercept
        self.support_vectors_ = support_rows(X, model.support, self.kernel_)
        self.fit_status_ = int(not all(solution.converged for solution in model.solutions))
        self.dual_objective_ = self._per_problem([solution.objective for solution in model.solutions])
        self.kkt_violation_ = self._per_problem([solution.violation for solution in model.solutions])
        self.n_iter_ = self._per_problem([solution.n_iter for solution in model.solutions])

    def _per_problem(self, values: list[Any]) -> Any:
        if not self._reports_arrays:
            return values[0]
        return np.array(values, dtype=np.int32 if isinstance(values[0], int) else None)

    @property
    def _model(self) -> SupportVectorModel:
        """The fitted model with dense coefficients."""
        coef = self.dual_coef_.toarray() if xa.is_sparse(self.dual_coef_) else self.dual_coef_
        return SupportVectorModel(self.support_, self.n_support_, coef, self.intercept_, [])

    def _scoring_inputs(self, X: Any) -> tuple[Any, Any]:
        """Return the rows of `X` (or its kernel values with the support) and the support vectors, on the device."""
        if "dual_coef_" not in vars(self):  # `check_is_fitted` is not used: it takes as long as scoring one row
            check_is_fitted(self, "dual_coef_")
        vectors = self.support_vectors_
        if "_objects" in vars(self):
            columns = self._object_values(kernel_from_parameters(vars(self)), X, self._objects)[:, self.support_]
        else:
            columns = self._to_host(X, self.kernel_, vectors.dtype, reset=False)
            columns = columns if self.kernel_.uses_points else columns[:, self.support_]
        if self.device_ == "cpu":
            return columns, vectors
        cached = vars(self).get("_device_vectors")
        if cached is None or cached[0] is not vectors:
            cached = self._device_vectors = vectors, rows_on(vectors, self.device_)
        return rows_on(columns, self.device_), cached[1]

    def _scores(self, X: Any) -> np.ndarray:
        """Return the decision values of the dual problems, one column each."""
        columns, vectors = self._scoring_inputs(X)
        return problem_scores(self.kernel_, columns, vectors, self._model)


def solver_seed(random_state: Any) -> int:
    """Return the seed of the solver, which is fixed for `random_state=None`.

    The problems are convex: random numbers decide only where the solver starts, and a solution to the same tolerance from
    another start would differ from fit to fit.
    """
    return 0 if random_state is None else int(check_random_state(random_state).randint(2**31 - 1))


def rows_on(X: Any, device: str) -> Any:
    """Return rows on a device; sparse rows are converted to dense rows unless the device is the CPU."""
    if device == "cpu":
        return X
    return xa.to_device(X.toarray() if xa.is_sparse(X) else X, device)


def support_rows(X: Any, support: np.ndarray, kernel: Kernel) -> Any:
    """Return the support vectors; for a precomputed kernel an empty array of their dtype."""
    return X[support] if kernel.uses_points else np.empty((support.size, 0), dtype=xa.numpy_dtype(X))


def scale_bound(C: float, weights: np.ndarray) -> np.ndarray:
    """Return the upper bound of each multiplier, which is zero for zero weight even if `C` is infinite."""
    return np.where(weights > 0, C, 0.0) * np.where(weights > 0, weights, 1.0)


def check_class_bounds(classes: np.ndarray, codes: np.ndarray, C: np.ndarray, positive_weight: float, pairs: bool) -> None:
    """Raise ValueError if a class has no positive bound, or if `positive_weight` has no positive class."""
    missing = np.bincount(codes, C, len(classes)) == 0
    if missing.any():
        raise ValueError(f"all samples of class {classes[missing].tolist()[0]!r} have zero weight")
    if positive_weight != 1 and pairs:
        raise ValueError(
            "positive_weight needs a positive class: use multi_class='ovr', or class_weight with multi_class='ovo'"
        )


def _check_finite(solutions: list[DualSolution]) -> None:
    """Raise ValueError if a solution has values that are not finite."""
    if not all(np.isfinite([s.bias, s.objective, s.violation]).all() and np.isfinite(s.beta).all() for s in solutions):
        raise ValueError(
            "the fit exceeded the range of floating-point numbers: the kernel values are too large or not finite; scale the "
            "features, or lower C"
        )


def _dense_if_faster(X: Any) -> Any:
    """Convert sparse rows with few zeros to dense rows, whose matrix products are faster; return other rows unchanged."""
    if not xa.is_sparse(X):
        return X
    dense = X.shape[0] * X.shape[1] * X.dtype.itemsize
    return X.toarray() if dense <= TUNING.dense_memory_ratio * (X.data.nbytes + X.indices.nbytes) else X


def _contains_objects(X: Any) -> bool:
    """Return whether `X` is a sequence of objects other than rows of numbers."""
    if xa.is_sparse(X) or xa.is_torch(X) or hasattr(X, "columns"):
        return False
    if not isinstance(X, np.ndarray):
        try:
            X = np.asarray(X)
        except ValueError:  # rows of different lengths
            return True
    return X.ndim == 1 and X.dtype.kind in "OUS"
