"""RiSVO: ridge regression on a kernel basis, refitted to a shrinking active set of training rows.

On a basis of m landmarks `G` and an active set of rows `S`, each step minimises

    sum_{i in S} ||t_i - A^T k(G, x_i) - b||^2 + rho tr(A^T K_G A),      t_ij = +1 for the own class, -1 for the others

(with `reduction="mean"` the sum is divided by the number of rows in `S`)
and computes the margins `l_i = t_i * f(x_i)` (elementwise). A row stays active if the margin of its own class is between
`gamma_l` and `gamma_u`, or if the mean margin of the other classes is between `zeta_l` and `zeta_u`. Rows with larger
margins are classified reliably, rows with smaller margins are outliers, and both are discarded. Discarded rows never become
active again, so the set shrinks until it is stable; `check_inclusion` counts discarded rows that satisfy the rule later.

Cost: O(n m d + n m^2) for the first step with n rows. In a later step, n is the number of newly discarded or of still active
rows, whichever is smaller, and the scores cost O(|S| m d). Memory: m^2 numbers. Reference: Yu, Diamantaras, McKelvey and
Kung, "Multiclass ridge-adjusted slack variable optimization using selected basis for fast classification", 2014, sections
2.1 and 2.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy.linalg import LinAlgWarning
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import validate_data

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.constraints import POSITIVE, POSITIVE_INTEGER, estimator
from gramless._core.dask_dispatch import dispatch_fit
from gramless._core.memory import MemoryEstimate, parse_budget
from gramless._core.threads import CPU_TILE, blas_threads
from gramless._core.validation import (
    atomic_fit,
    check_labels,
    check_square,
    check_weights,
    check_X,
    warn_caller,
    working_dtype,
)
from gramless.approximation.landmarks import LandmarkRule, select
from gramless.callbacks import read_functions
from gramless.estimators.expansion import BaseKernelExpansion
from gramless.inference.probabilities import probability_constraint
from gramless.linalg.planning.plan import ProblemSize, cholesky_memory
from gramless.streaming.learners.active_set import (
    ActiveModel,
    ActiveRows,
    ActiveRule,
    ActiveSetRows,
    Basis,
    BasisRows,
    RowStates,
    TrainingRows,
    shrink,
    signed_targets,
)

# Matrices of m x m in float64 at the peak of a step: the sums of the active rows, the sums of the discarded rows, the factor
# of the basis, and the temporaries of the solution (full copy, centred copy, system matrix, factor, column-major copy).
_BASIS_MATRICES = 9
# Bytes for each kernel value of a block: the value in its own precision, in float64, whitened, and transposed.
_BYTES_PER_VALUE = 32
# Condition number above which the coefficients have at most about two correct digits in float64.
_MAX_CONDITION = 1e14


@dataclass
class BasisPlan:
    """Memory plan of a fit: block size, whether `K(X, landmarks)` is stored, and the peak memory."""

    memory: MemoryEstimate
    rows_at_a_time: int = 0
    store_values: bool = False
    selection_bytes: int = 0
    """Bytes that the selection of the basis may allocate."""


@estimator
class RiSVOClassifier(ClassifierMixin, BaseKernelExpansion):
    """Classifier by ridge regression on a kernel basis, refitted to a shrinking active set of training rows.

    scikit-learn has no counterpart. Prefer RiSVO to `NystromLSSVC` for many rows of which few are close to the decision
    boundary.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        Kernel function. A name, an expression of `gramless.kernels`, or a function `f(X, Y)` that returns the kernel matrix.
    gamma : float, "scale", "auto" or "weighted_scale", default="scale"
        Coefficient of a kernel given by name; `"scale"` is `1 / (n_features * X.var())` and `"auto"` is `1 / n_features`.
        `"weighted_scale"` is `"scale"` with the variance weighted by `sample_weight`.
    degree : int, default=3
        Degree of the polynomial kernel; ignored by other kernels.
    coef0 : float, default=0.0
        Constant term of the polynomial and sigmoid kernels; ignored by other kernels.
    n_landmarks : int, default=1000
        Number of landmarks. The Notes give an upper bound.
    landmarks : "all", str, LandmarkRule or array, default="basis"
        Rule that selects the landmarks: a name or object of `gramless.approximation.landmarks`, row indices, or the points
        themselves. `"all"` uses the active set itself, so that each step fits a least-squares support vector machine to the
        active rows.
    gamma_l, gamma_u : float, default=-1.1, 1.1
        A row stays active if the margin (target times score) of its own class is between these bounds.
    zeta_l, zeta_u : float, default=-0.5, 0.5
        A row also stays active if the mean margin of the other classes is between these bounds.
    rho : float, default=1e-3
        Factor of the ridge penalty on the coefficients; a larger value regularises more strongly.
    reduction : {"sum", "mean"}, default="sum"
        Whether the squared errors of the active rows are added or averaged. With `"mean"`, the same `rho` regularises
        more strongly than with `"sum"`, and fewer discarded rows would satisfy the rule for active rows later.
    max_iter : int, default=20
        Maximum number of solver iterations. The Notes define an iteration.
    check_inclusion : bool, default=False
        Whether each step also scores the discarded rows and counts the discarded rows that would be active again, at the
        cost of one pass over the data for each step.
    merge : {"sum", "average"}, default="sum"
        Method that combines the partitions of a dask collection. `"sum"` adds the normal equations of the partitions, which
        gives the same model as a fit on one computer; `"average"` fits each partition on the common landmarks and averages
        the coefficients.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with `sample_weight`; `"balanced"` weights each class by the inverse of its
        frequency.
    probability : {"softmax", False}, default="softmax"
        Method that converts scores to the probabilities of `predict_proba`; False disables `predict_proba`.
    dtype : {"float32", "float64"} or None, default=None
        Floating-point precision of the computation; None uses float32 for float32 and uint8 data, else float64.
    device : {"cpu", "cuda", "auto"} or None, default=None
        Device of the computation; None uses the device of the data.
    memory_budget : str, int, float or None, default=None
        Upper bound on the memory that the fit allocates: a string such as `"4GB"`, a number of bytes, or a fraction of the
        free memory if at most 1; None is 70 % of the free memory.
    callback : callable, a list of these, or None, default=None
        Function `callback(estimator, record)` called with the partially fitted estimator and a dict of progress values;
        returning True stops the fit. The Notes describe when the function is called.
    verbose : int, default=0
        If positive, write progress messages to standard error.
    random_state : int, RandomState or None, default=None
        Seed or generator for all random choices of the fit; an int makes the fit reproducible.

    Attributes
    ----------
    classes_ : ndarray
        Sorted class labels.
    points_, dual_coef_, intercept_, kernel_
        Kernel expansion: `decision_function(X) = kernel_(X, points_) @ dual_coef_ + intercept_`.
    support_ : ndarray of int or None
        Indices of the training rows that are `points_`; None if `points_` are not training rows.
    active_set_ : ndarray of int
        Indices of the training rows to which the last step fitted the model.
    history_ : list of dict
        One record for each step: n_iter, seconds, active (number of rows), discarded (number of rows), training_error (by
        the most recent score of each row), updated_by ("summation" of active or "removal" of discarded rows), condition (of
        the system), and with `check_inclusion` violations (number of rows).
    inclusion_violations_ : ndarray of int
        Indices of discarded rows that satisfied the rule for active rows in a later step; only with `check_inclusion`.
    jitter_ : float
        Number added to the diagonal of the kernel matrix of the basis.
    n_iter_ : int
        Number of steps, each of which fits the model to the active rows.
    message_ : str
        Reason for the end of the iteration.

    See Also
    --------
    NystromLSSVC : Fit to all rows as in the first step, in one pass over the data.
    gramless.approximation.landmarks.BasisConstruction : Default rule that selects the landmarks.

    Notes
    -----
    An iteration is one fit to the active rows, and `callback` is called after each iteration; `max_iter=1` fits all rows
    once, without an active set. `n_landmarks` is at most the number of rows, and is not used if `landmarks` is `"all"` or an
    array. The normal equations are computed in float64 for every `dtype`.

    References
    ----------
    Yu, Diamantaras, McKelvey and Kung, "Multiclass ridge-adjusted slack variable optimization using selected basis for fast
    classification", 2014.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gramless import RiSVOClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = RiSVOClassifier(n_landmarks=300, random_state=0).fit(X[:1000], y[:1000])
    >>> model.score(X[1000:], y[1000:]) > 0.94, len(model.active_set_) < 1000
    (True, True)
    """

    n_landmarks: int = 1000
    landmarks: str | LandmarkRule | Any = "basis"
    gamma_l: float = -1.1
    gamma_u: float = 1.1
    zeta_l: float = -0.5
    zeta_u: float = 0.5
    rho: float = 1e-3
    reduction: str = "sum"
    max_iter: int = 20
    check_inclusion: bool = False
    merge: str = "sum"
    class_weight: Any = None
    probability: str | bool = "softmax"

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_landmarks": [POSITIVE_INTEGER],
        "gamma_l": [Real],
        "gamma_u": [Real],
        "zeta_l": [Real],
        "zeta_u": [Real],
        "rho": [POSITIVE],
        "reduction": [StrOptions({"sum", "mean"})],
        "merge": [StrOptions({"sum", "average"})],
        "probability": probability_constraint("softmax"),
    }

    @atomic_fit
    @dispatch_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> RiSVOClassifier:
        """Fit the model to labels.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Training rows; kernel values of shape (n_samples, n_samples) with `kernel="precomputed"`.
        y : array of shape (n_samples,)
            Labels.
        sample_weight : array of shape (n_samples,), optional
            Non-negative weights of the rows; rows of weight zero are left out.

        Returns
        -------
        self
            The fitted estimator.
        """
        self._check_parameters()
        kernel = self._kernel()
        dtype = working_dtype(X, self.dtype)
        X = check_X(self, X, dtype=dtype, reset=True, accept_sparse=kernel.accepts_sparse)
        if not kernel.uses_points:
            check_square(X)
        self.classes_, codes = check_labels(y, X.shape[0])
        weights = check_weights(sample_weight, X, codes, self.classes_, self.class_weight)
        rows = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights)
        if len(np.unique(codes[rows])) < 2:
            raise ValueError("The number of classes with a positive sample weight has to be greater than one; got 1 class")
        self.device_ = xa.resolve_device(self.device, X)
        self.kernel_ = kernel.resolve(X, weights)
        states = RowStates.start(codes, len(self.classes_), weights)
        present = np.bincount(codes[rows], minlength=len(self.classes_)) > 0
        self._iterate(self._active_rows(X, states, weights, dtype), present)
        return self

    def _check_parameters(self) -> None:
        """Raise ValueError for parameters that are invalid for any data."""
        self._validate_params()
        if not (self.gamma_l < self.gamma_u and self.zeta_l < self.zeta_u):
            raise ValueError(
                f"need gamma_l < gamma_u and zeta_l < zeta_u, got {self.gamma_l}, {self.gamma_u} "
                f"and {self.zeta_l}, {self.zeta_u}"
            )

    def _rule(self) -> ActiveRule:
        bounds = (self.gamma_l, self.gamma_u, self.zeta_l, self.zeta_u)
        return ActiveRule(*bounds, self.check_inclusion, self.rho, self.reduction)

    def _active_rows(self, X: Array, states: RowStates, weights: np.ndarray | None, dtype: Any) -> ActiveRows:
        """Return the training rows, all of which are active at first, with arrays on the device."""
        X, kernel, rule = xa.to_device(X, self.device_, dtype), self.kernel_, self._rule()
        w = None if weights is None else xa.to_device(weights, self.device_, np.float64)
        targets = signed_targets(states.codes, states.n_classes).astype(dtype)
        plan = self._fit_plan(len(targets), X.shape[1], targets.shape[1], dtype, self.device_)
        if self._is_on_all_rows:
            return ActiveSetRows(X, kernel, xa.to_device(targets, self.device_), w, states, rule)
        rng, nbytes, rows = check_random_state(self.random_state), plan.selection_bytes, np.flatnonzero(states.used)
        if self._landmarks_are_given or len(rows) == len(targets):
            landmarks = select(self.landmarks, X, kernel, self.n_landmarks, rng, nbytes)
        else:
            part = xa.take_rows(X, rows) if kernel.uses_points else X[np.ix_(rows, rows)]
            landmarks = select(self.landmarks, part, kernel, self.n_landmarks, rng, nbytes)
            landmarks = landmarks if landmarks.ndim == 2 else rows[landmarks]
        basis = Basis.of(kernel, X, landmarks, dtype)
        values = basis.values(X, slice(0, len(targets))) if plan.store_values else None
        training_rows = TrainingRows(X, w, plan.rows_at_a_time, values)
        return BasisRows([training_rows], [states], basis, rule, dtype)

    @property
    def _is_on_all_rows(self) -> bool:
        return isinstance(self.landmarks, str) and self.landmarks == "all"

    @property
    def _landmarks_are_given(self) -> bool:
        return not isinstance(self.landmarks, (str, LandmarkRule))

    def _fit_plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> BasisPlan:
        """Return the memory plan of a fit of `n` rows and `d` features; `MemoryError` if `memory_budget` is too small."""
        kernel, itemsize = self._kernel(), np.dtype(dtype).itemsize
        k = max(2, n_outputs)  # two classes have one target column; the plan reserves two
        budget = parse_budget(self.memory_budget, device)
        # Bytes of targets, scores, margins, and temporaries of the rule for active rows.
        columns = n * k * (4 * itemsize + 2 * 8)
        if self._is_on_all_rows:
            memory = cholesky_memory(ProblemSize(n, d, k, np.dtype(dtype), device, kernel))
            memory.parts |= {"targets and scores": columns, "active rows": n * d * itemsize}
            memory.check(budget, "select a basis with landmarks='basis' and n_landmarks, or raise memory_budget")
            return BasisPlan(memory)
        m = min(n, len(self.landmarks) if self._landmarks_are_given else self.n_landmarks)
        parts = {
            "normal equations": _BASIS_MATRICES * m * m * 8,
            "data": 2 * n * d * itemsize + m * d * (itemsize + 8),  # all rows and a copy of the active rows
            "targets and scores": columns,
            "tiles": min(n, CPU_TILE) * min(m, CPU_TILE) * blas_threads() * itemsize * (1 + kernel.temporaries),
        }
        memory = MemoryEstimate(parts, device)
        block = int(np.clip((budget - memory.nbytes) // (2 * _BYTES_PER_VALUE * m), 64, 8192))
        parts["block of rows"] = min(block, n) * m * _BYTES_PER_VALUE
        memory.check(budget, "lower n_landmarks or raise memory_budget")
        # The basis is selected before the normal equations are allocated, so the selection may use their memory.
        value_bytes, selection_bytes = n * m * itemsize, max(0, budget - parts["data"] - columns) // 2
        store_values = memory.nbytes + value_bytes <= budget // 2
        if store_values:
            parts["kernel values of the basis"] = value_bytes
        return BasisPlan(memory, block, store_values, selection_bytes)

    def _iterate(self, rows: ActiveRows, present: np.ndarray) -> None:
        """Fit to a shrinking set of active rows and store the model; `present` is a mask of the classes that have rows."""
        callbacks = read_functions(self)

        def callback(record: dict[str, Any]) -> bool:
            self._store(rows.model(), rows.numbers("active"))
            return callbacks(self, record)

        self.history_, self.message_ = shrink(
            rows,
            max_iter=self.max_iter,
            present=present,
            check_inclusion=self.check_inclusion,
            callback=callback if callbacks.functions else None,
            verbose=self.verbose,
            label=type(self).__name__,
        )
        model = rows.model()
        self._store(model, rows.numbers("active"))
        self.n_iter_ = len(self.history_)
        self._delete("inclusion_violations_")
        if self.check_inclusion:
            self.inclusion_violations_: Any = rows.numbers("violations")
        if model.added_jitter > 0 or model.condition > _MAX_CONDITION:
            warn_caller(
                f"the normal equations are nearly singular (condition {model.condition:.1e}, jitter "
                f"{model.added_jitter:.1e} beside rho={self.rho:g}): raise rho, or use fewer landmarks",
                LinAlgWarning,
            )

    def _fit_collections(self, rows: Any, solve: Callable[[], Any]) -> Self:
        """Fit to rows on dask workers; `solve` returns the active rows, or with `merge="average"` the mean of the models."""
        validate_data(self, rows.example, skip_check_array=True, reset=True)
        self.classes_ = rows.classes
        found = solve()
        self.kernel_, self.device_ = found.kernel, "cpu"
        if self.merge == "sum":
            self._iterate(found, rows.mass > 0)
            return self
        self._store(found.model, None)
        self._delete("active_set_", "inclusion_violations_")
        self.history_, self.n_iter_ = found.history, max((record["n_iter"] for record in found.history), default=0)
        self.message_ = f"the mean of {found.n_fits} independent fits"
        return self

    def _store(self, model: ActiveModel, active: Any) -> None:
        """Store a model and the indices of its active rows: an array, or a dask array after a fit to dask collections."""
        self._set_points(self.kernel_, model.points, model.points, model.support)
        self.dual_coef_, self.intercept_, self.jitter_ = xa.to_numpy(model.coef), xa.to_numpy(model.bias), model.jitter
        self.active_set_ = active
