"""Support vector machines: classification, regression, and detection of outliers.

    maximise    sum_i alpha_i - sum_ij alpha_i alpha_j y_i y_j K(x_i, x_j) / 2
    subject to  0 <= alpha_i <= C_i,  sum_i alpha_i y_i = 0

for each pair of classes (one-vs-one) or each class against the others (one-vs-rest). `C_i` is `C` times the weights of the
sample and of its class. Most of the cost is the computation of the kernel rows of the points that become support vectors.
With `nu` instead of `C`, the sum of the multipliers is fixed and the solution determines their upper bound
(`gramless.svm.box_qp`).

In regression, errors below epsilon cost nothing, and larger errors cost linearly:

    maximise    sum_i y_i beta_i - epsilon sum_i |beta_i| - sum_ij beta_i beta_j K(x_i, x_j) / 2
    subject to  |beta_i| <= C_i,  sum_i beta_i = 0

The pinball loss (quantiles) and Huber's loss have the same dual problem with other bounds of the variables:

    epsilon_insensitive  |beta_i| <= C_i, with `epsilon` given, or determined by a given `nu`
    pinball              -(1 - quantile) C_i <= beta_i <= quantile C_i,  epsilon = 0
    huber                |beta_i| <= epsilon C_i,  epsilon = 0, and 1 / C_i is added to K(x_i, x_i)

Several quantiles are separate problems that share kernel rows. The predictions for each row are sorted, so that quantile
curves do not cross; sorting never increases the pinball loss.

The one-class support vector machine detects rows that differ from the training rows:

    minimise    alpha' K alpha / 2
    subject to  0 <= alpha_i <= w_i,  sum alpha = nu sum w

A row is an outlier if `sum_j alpha_j K(x_j, x) < rho`. At most a fraction `nu` of the training rows are outliers, and at
least that fraction are support vectors. The cost is O(nu n^2 d), for the kernel values between all rows and the support
vectors, which are computed once and not stored (`gramless.svm.one_class_dual`).

The three estimators share one `fit`; each defines its targets and its dual problem. A model is fitted to NumPy or CSR rows,
to a square matrix of kernel values, or to a sequence of objects (texts, graphs) for which the user's kernel function is
defined. The model stores the rows of its support vectors, but all objects of a sequence, because prediction passes all of
them to the kernel function. With a precomputed kernel, it stores no rows and reads the columns of the support vectors.

References: Cortes and Vapnik (1995), Support-vector networks; Schölkopf, Smola, Williamson and Bartlett (2000), New support
vector algorithms; Smola and Schölkopf (2004), A tutorial on support vector regression; Takeuchi, Le, Sears and Smola (2006),
Nonparametric quantile estimation; Chernozhukov, Fernández-Val and Galichon (2010), Quantile and probability curves without
crossing; Mangasarian and Musicant (2000), Robust linear and support vector regression; Schölkopf, Platt, Shawe-Taylor, Smola
and Williamson (2001), Estimating the support of a high-dimensional distribution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, OutlierMixin, RegressorMixin, is_regressor
from sklearn.metrics import d2_pinball_score
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, Options, StrOptions
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d

from gramless._core import arrays as xa
from gramless._core.constraints import FRACTION, NON_NEGATIVE, POSITIVE, POSITIVE_INTEGER, estimator
from gramless._core.device import CUDA, Device
from gramless._core.memory import format_bytes, parse_budget
from gramless._core.targets.columns import scores_to_labels
from gramless._core.validation import (
    atomic_fit,
    check_class_weights,
    check_host_X,
    check_labels,
    check_outputs,
    check_square,
    check_weights,
    working_dtype,
)
from gramless.callbacks import read_functions
from gramless.inference.probabilities import couple, fit_sigmoid, fit_sigmoids, sigmoid_probabilities
from gramless.kernels import Callable_, Kernel, Linear, Precomputed, kernel_from_parameters, set_input_tags
from gramless.linalg.least_squares import warn_of_rounding
from gramless.linalg.operators import byte_rows, expand
from gramless.linalg.planning.plan import FitPlan
from gramless.svm.box_qp import BoxQP, DualSolution, NuQP
from gramless.svm.multiclass import (
    DUAL_SOLVERS,
    Decomposition,
    SupportVectorModel,
    class_scores,
    gram_rows,
    make_solver,
    most_votes,
    problem_scores,
    solve_jointly,
    solve_multiclass,
    votes,
    warn_unless_converged,
)
from gramless.svm.one_class_dual import solve_one_class
from gramless.svm.progress import SolverProgress
from gramless.svm.resources import DualFit, fit_budget, row_workers, svm_memory
from gramless.svm.tuning import TUNING

# The value of `max_iter` that means no limit in scikit-learn.
_NO_LIMIT = -1
# Number of cross-validation folds for the scores to which the sigmoids are fitted, as in LIBSVM.
_N_FOLDS = 5


@estimator
class BaseKernelSVM(BaseEstimator):
    """Base class of `KernelSVC`, `KernelSVR` and `KernelOneClassSVM`.

    Subclasses define `_read_targets` and `_solve`, and may extend `_check_settings` and `_calibrate`. `fit` ignores the
    parameter `shrinking`, which scikit-learn has, because the working sets of the solver already leave out multipliers that
    do not change.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        Kernel function. A name, an expression of `gramless.kernels`, or a function `f(X, Y)` that returns the kernel matrix.
    C : float, default=1.0
        Inverse regularisation strength; a larger value fits the training rows more closely.
    gamma : float, "scale", "auto" or "weighted_scale", default="scale"
        Coefficient of a kernel given by name; `"scale"` is `1 / (n_features * X.var())` and `"auto"` is `1 / n_features`.
        `"weighted_scale"` is `"scale"` with the variance weighted by `sample_weight`.
    degree : int, default=3
        Degree of the polynomial kernel; ignored by other kernels.
    coef0 : float, default=0.0
        Constant term of the polynomial and sigmoid kernels; ignored by other kernels.
    nu : float or None, default=None
        Fraction in (0, 1] that replaces a penalty parameter. At least this fraction of the rows are support vectors. At most
        this fraction are margin errors in classification, where `nu` replaces `C`, or outside the tube in regression, where
        `nu` replaces `epsilon`.
    solver : {"smo", "simple_smo"}, default="smo"
        Algorithm that solves the optimisation problem. `"smo"` optimises large working sets on cached kernel rows;
        `"simple_smo"` moves one pair of multipliers at a time, for small data.
    tol : float, default=1e-3
        Tolerance at which the solver stops. The Notes define the quantity that `tol` bounds.
    max_iter : int or None, default=None
        Maximum number of solver iterations. The Notes define an iteration and the meaning of None.
    shrinking : bool, default=True
        Accepted for compatibility with scikit-learn and ignored.
    cache_size : float or None, default=None
        Size of the kernel cache in megabytes, used if `memory_budget` is None.
    dtype : {"float32", "float64"} or None, default=None
        Floating-point precision of the computation; None uses float32 for float32 and uint8 data, else float64.
    device : {"cpu", "cuda", "auto"}, CUDA or None, default=None
        Device of the computation; None uses the device of the data. A `gramless.CUDA` object also sets precision and
        storage.
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
    support_ : ndarray of shape (n_SV,)
        Indices of the support vectors.
    support_vectors_ : array of shape (n_SV, n_features)
        The support vectors; an empty array for a precomputed kernel.
    n_support_ : ndarray of shape (1,)
        Number of support vectors.
    kernel_ : Kernel
        Kernel with numeric parameters.
    device_ : str
        Device of the fit and of predictions.
    fit_status_ : int
        0 if every problem converged, else 1.
    shape_fit_ : tuple
        Shape of `X` in `fit`.
    n_features_in_ : int
        Number of features in `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if `X` had column names.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "C": [Interval(Real, 0, None, closed="right")],
        "solver": [StrOptions(set(DUAL_SOLVERS))],
        "tol": [POSITIVE],
        "max_iter": [POSITIVE_INTEGER, Options(Integral, {_NO_LIMIT}), None],
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
            Factor of the upper bound of the multiplier of each row; None is a factor of 1.

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
        rows = _dense_if_faster(X)
        workers = row_workers(self.kernel_, rows)
        budget = fit_budget(self.memory_budget, self.cache_size, self.kernel_, rows, workers, self.device_)
        seed = solver_seed(self.random_state)
        solver = make_solver(self.solver, self.tol, None if self.max_iter == _NO_LIMIT else self.max_iter)
        callbacks = read_functions(self)
        callback = partial(callbacks, self) if callbacks.functions else None
        label = type(self).__name__
        with SolverProgress(self._n_problems, callback=callback, verbose=self.verbose, label=label) as progress:
            fit = DualFit(self.kernel_, rows, solver, budget, workers, seed, self.device_, progress)
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
        beta, sparse = self._model.by_problem(), xa.is_sparse(self.support_vectors_)
        coef = (sp.csr_matrix(beta) if sparse else beta) @ self.support_vectors_
        (coef.data if sparse else coef).flags.writeable = False
        return coef

    def _fit_plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> FitPlan:
        """Return the memory plan of a fit of `n` rows and `d` features; `MemoryError` if `memory_budget` is too small."""
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
        """Return the encoded targets, and for each row the factor of its multiplier's bound, including class weights."""
        raise NotImplementedError

    def _solve(self, fit: DualFit, targets: np.ndarray, weights: np.ndarray) -> SupportVectorModel:
        """Solve the dual problems."""
        raise NotImplementedError

    def _calibrate(self, fit: DualFit, targets: np.ndarray, weights: np.ndarray) -> None:
        """Fit the parameters that need out-of-fold scores."""

    def _resolve_device(self, kernel: Kernel) -> str:
        """Return the device; raise ValueError for parameters that the device does not support."""
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
        """Return `X` as NumPy or CSR rows, and the kernel with numeric parameters.

        A sequence of objects is replaced by the matrix of its kernel values, and the kernel function by a precomputed
        kernel. Only `gamma="weighted_scale"` uses `sample_weight`.
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
        """Set the attributes of the fitted model; coefficients are sparse if the rows are sparse."""
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
        """Fitted model with dense coefficients."""
        coef = self.dual_coef_.toarray() if xa.is_sparse(self.dual_coef_) else self.dual_coef_
        return SupportVectorModel(self.support_, self.n_support_, coef, self.intercept_, [])

    def _scoring_inputs(self, X: Any) -> tuple[Any, Any]:
        """Return the rows of `X` (for a precomputed kernel, kernel values) and the support vectors, on the device."""
        if "dual_coef_" not in vars(self):  # tested first, because `check_is_fitted` takes as long as scoring one row
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
        """Return the decision values of the dual problems, with one column for each problem."""
        columns, vectors = self._scoring_inputs(X)
        return problem_scores(self.kernel_, columns, vectors, self._model)


def _has_probabilities(estimator: KernelSVC) -> bool:
    if estimator.probability is False:
        raise AttributeError("probabilities need probability='sigmoid'; this estimator has probability=False")
    return True


@estimator
class KernelSVC(ClassifierMixin, BaseKernelSVM):
    """Support vector classifier for any kernel of the library.

    Prefer `KernelSVC` to `sklearn.svm.SVC` for more than a few thousand rows, for kernels that scikit-learn computes in
    Python, or on a graphics card.

    Parameters
    ----------
    multi_class : {"ovo", "ovr"}, default="ovo"
        Decomposition of a multiclass problem: one-vs-one or one-vs-rest.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        Shape of the output of `decision_function`: one column per class (`"ovr"`) or per pair of classes (`"ovo"`). The
        Notes describe exceptions.
    break_ties : bool, default=False
        Whether ties between classes with equal votes are resolved by the scores instead of by the order of the classes;
        requires `decision_function_shape="ovr"`.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with `sample_weight`; `"balanced"` weights each class by the inverse of its
        frequency.
    positive_weight : float, default=1.0
        Factor of `C` for the positive class of each one-vs-rest problem, or for `classes_[1]` of two classes.
    probability : {False, "sigmoid", True}, default=False
        Method that converts scores to the probabilities of `predict_proba`; False disables `predict_proba`. `"sigmoid"`, or
        True, fits Platt's sigmoids to out-of-fold scores of five more fits.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Sorted class labels.
    class_weight_ : ndarray of shape (n_classes,)
        Factor of `C` for each class.
    support_ : ndarray of shape (n_SV,)
        Indices of the support vectors, class by class.
    n_support_ : ndarray of shape (n_classes,)
        Number of support vectors of each class.
    dual_coef_ : array of shape (n_classes - 1, n_SV), or (n_classes, n_SV) for one-vs-rest
        Multipliers times labels. In one-vs-one, each support vector has a column with one row for each other class.
        Sparse after a fit to sparse rows.
    coef_ : array of shape (n_problems, n_features)
        Weights of the features for a linear kernel, read-only; sparse after a fit to sparse rows.
    intercept_ : ndarray of shape (n_problems,)
        Bias of each two-class problem.
    dual_objective_ : ndarray of shape (n_problems,)
        Objective value of each dual problem.
    kkt_violation_ : ndarray of shape (n_problems,)
        Violation of the optimality conditions that the solver reached.
    n_iter_ : ndarray of shape (n_problems,)
        Number of solver iterations; an iteration moves one pair of multipliers.
    sigmoids_ : ndarray of shape (n_problems, 2)
        Slope and offset of each sigmoid, if `probability="sigmoid"`.

    See Also
    --------
    KernelSVR : Support vector regression.
    KernelOneClassSVM : Outlier detection.
    MKLClassifier : Support vector classifier that learns the weights of several kernels.
    LSSVC : Squared loss instead of the hinge loss; all rows are support vectors, and probabilities need no further fits.

    Notes
    -----
    `C=inf` forbids training errors. A kernel function also accepts sparse rows and sequences of objects such as texts. On a
    graphics card all problems are solved at the same time; kernel functions, `nu` and `solver="simple_smo"` need the CPU.

    `tol` bounds the violation of the optimality conditions, in units of the decision function. An iteration moves one pair
    of multipliers; `max_iter=None` or -1 is ten million for each problem. `callback` is called between rounds of the solver;
    its record has `n_iter` (pairs of multipliers moved so far), `violation`, `solved` (of `n_problems`) and `seconds`.

    The fraction `nu` refers to the rows of each two-class problem. One-vs-rest models always have one column per class in
    `decision_function`.

    References
    ----------
    .. [1] C. Cortes and V. Vapnik, "Support-vector networks", Machine Learning, 1995.
    .. [2] R.-E. Fan, P.-H. Chen and C.-J. Lin, "Working set selection using second order information for training support
           vector machines", Journal of Machine Learning Research, 2005.
    .. [3] J. Platt, "Probabilistic outputs for support vector machines and comparisons to regularized likelihood methods",
           Advances in Large Margin Classifiers, 1999.
    .. [4] B. Schölkopf, A. J. Smola, R. C. Williamson and P. L. Bartlett, "New support vector algorithms", Neural
           Computation, 2000.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramless import KernelSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> KernelSVC(C=10.0).fit(X, y).score(X, y) > 0.97
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {"probability": ["boolean", StrOptions({"sigmoid"})]}

    multi_class: str = "ovo"
    decision_function_shape: str = "ovr"
    break_ties: bool = False
    class_weight: dict[Any, float] | str | None = None
    positive_weight: float = 1.0
    probability: bool | str = False

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores of the classes, or of the pairs of classes.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows; with a precomputed kernel, their kernel values with all training rows.

        Returns
        -------
        ndarray of shape (n,), (n, n_classes) or (n, n_pairs)
            For two classes one score, positive for `classes_[1]`; otherwise one score for each class, or for each pair if
            `decision_function_shape="ovo"` and the model is one-vs-one.
        """
        scores = self._scores(X)
        return class_scores(scores, len(self.classes_), self._one_vs_one and self.decision_function_shape == "ovr")

    def predict(self, X: Any) -> np.ndarray:
        """Return the class with the most votes, or with the largest score in one-vs-rest.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows; with a precomputed kernel, their kernel values with all training rows.

        Returns
        -------
        ndarray of shape (n,)
            A label for each row.
        """
        if self.break_ties and self.decision_function_shape == "ovo" and hasattr(self, "dual_coef_"):
            raise ValueError("break_ties must be False with decision_function_shape='ovo', where no class has a score")
        scores = self._scores(X)
        if not self._one_vs_one:
            return scores_to_labels(self.classes_, scores)
        if self.break_ties:
            return self.classes_[votes(scores, len(self.classes_)).argmax(axis=1)]
        return self.classes_[most_votes(scores, len(self.classes_))]

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return class probabilities: sigmoids of the scores, coupled over pairs or normalised in one-vs-rest.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows; with a precomputed kernel, their kernel values with all training rows.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Probabilities with columns in the order of `classes_`.
        """
        scores = self._scores(X)
        check_is_fitted(
            self,
            "sigmoids_",
            msg="predict_proba is not available when fitted with probability=False, or when a callback ended the fit before "
            "the sigmoids; fit %(name)s again with probability='sigmoid'",
        )
        if self._one_vs_one:
            a, b = self.sigmoids_.T
            return couple(expit(-(scores * a + b)), len(self.classes_))
        return sigmoid_probabilities(scores, self.sigmoids_)

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithm of the class probabilities.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows; with a precomputed kernel, their kernel values with all training rows.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Log-probabilities with columns in the order of `classes_`.
        """
        with np.errstate(divide="ignore"):  # a probability that underflows to zero has the logarithm -inf, without a warning
            return np.log(self.predict_proba(X))

    @property
    def _one_vs_one(self) -> bool:
        """Whether the model is one-vs-one with more than two classes, with a two-class problem for each pair of classes."""
        return self.multi_class == "ovo" and len(self.classes_) > 2

    @property
    def _reports_arrays(self) -> bool:
        return True

    @property
    def _n_problems(self) -> int:
        return self._n_scores * (1 + (_N_FOLDS if self.probability else 0))

    @property
    def _n_scores(self) -> int:
        """Number of two-class problems of one model."""
        k = len(self.classes_)
        return 1 if k == 2 else (k * (k - 1) // 2 if self._one_vs_one else k)

    def _read_targets(self, y: Any, weights: np.ndarray | None, n: int) -> tuple[np.ndarray, np.ndarray]:
        self.classes_, codes = check_labels(y, n)
        self.class_weight_ = np.ones(len(self.classes_))
        if isinstance(self.class_weight, dict):
            check_class_weights(self.class_weight)
        if self.class_weight is not None:
            # "balanced" counts rows, without their weights, as scikit-learn's SVC does.
            labels = self.classes_[codes]
            self.class_weight_ = compute_class_weight(self.class_weight, classes=self.classes_, y=labels).astype(np.float64)
        factors = self.class_weight_[codes] * (1.0 if weights is None else weights)
        C = scale_bound(self._bound, factors)
        check_class_bounds(self.classes_, codes, C, self.positive_weight, self._one_vs_one)
        return codes, factors

    @property
    def _bound(self) -> float:
        """Upper bound of the multiplier of a row of weight 1; with `nu`, up to a factor that the solution determines."""
        return self.C if self.nu is None else 1.0

    def _solve(self, fit: DualFit, targets: np.ndarray, weights: np.ndarray) -> SupportVectorModel:
        return solve_multiclass(
            fit,
            targets,
            scale_bound(self._bound, weights),
            n_classes=len(self.classes_),
            one_vs_one=self.multi_class == "ovo",
            positive_weight=self.positive_weight,
            nu=self.nu,
        )

    def _calibrate(self, fit: DualFit, targets: np.ndarray, weights: np.ndarray) -> None:
        self.__dict__.pop("sigmoids_", None)
        if self.probability and not fit.progress.stopped:
            sigmoids = self._fit_sigmoids(fit, targets, weights)
            if not fit.progress.stopped:
                self.sigmoids_ = sigmoids

    def _fit_sigmoids(self, fit: DualFit, codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return sigmoids fitted to the scores of each row by a model that was fitted without the row."""
        kernel, k, nonzero = fit.kernel, len(self.classes_), np.flatnonzero(weights)
        scores = np.empty((nonzero.size, self._n_scores))
        fold_of = _stratified_folds(codes[nonzero], np.random.default_rng(fit.seed))
        for fold in np.unique(fold_of):
            train, test = nonzero[fold_of != fold], nonzero[fold_of == fold]
            part = replace(fit, X=_gram_or_rows(fit.X, kernel, train, train))
            # A class without training rows loses every pair: the bias of a problem with rows of one class is their label.
            model = self._solve(part, codes[train], weights[train])
            rows = _gram_or_rows(fit.X, kernel, test, train[model.support])
            vectors = support_rows(part.X, model.support, kernel)
            scored = problem_scores(kernel, rows_on(rows, self.device_), rows_on(vectors, self.device_), model)
            scores[fold_of == fold] = scored
        codes, weights = codes[nonzero], weights[nonzero]
        if not self._one_vs_one:
            return fit_sigmoids(scores, codes, k, weights)
        problems = Decomposition(codes, k, one_vs_one=True)
        pairs = [problems.split(number)[:2] for number in range(scores.shape[1])]
        return np.array([fit_sigmoid(scores[m, p], positive, weights[m]) for p, (m, positive) in enumerate(pairs)])


@estimator
class KernelSVR(RegressorMixin, BaseKernelSVM):
    """Support vector regression for any kernel of the library: values, quantiles, or values robust to outliers.

    Prefer `KernelSVR` to `sklearn.svm.SVR` for more than a few thousand rows, for quantiles, for kernels that scikit-learn
    computes in Python, or on a graphics card.

    Parameters
    ----------
    epsilon : float, default=0.1
        Half width of the tube in which errors cost nothing, in units of `y`; with `loss="huber"`, the error above which the
        cost is linear instead of quadratic.
    loss : {"epsilon_insensitive", "quantile", "pinball", "huber"}, default="epsilon_insensitive"
        Loss function that the fit minimises. `"quantile"`, also named `"pinball"`, predicts quantiles; `"huber"` reduces the
        influence of outliers.
    quantile : float or list of float, default=0.5
        Quantile in (0, 1) that `loss="quantile"` predicts; for a list, `predict` returns one column for each quantile.

    Attributes
    ----------
    dual_coef_ : array of shape (n_quantiles, n_SV)
        Coefficients of the support vectors, in one row unless `quantile` is a list. Sparse after a fit to sparse rows.
    coef_ : array of shape (n_quantiles, n_features)
        Weights of the features for a linear kernel, read-only; sparse after a fit to sparse rows.
    intercept_ : ndarray of shape (n_quantiles,)
        Bias of each problem.
    epsilon_ : float
        Half width of the tube: `epsilon`, or the half width determined by `nu`; 0 for losses without a tube.
    dual_objective_ : float or ndarray of shape (n_quantiles,)
        Objective value of the dual problem.
    kkt_violation_ : float or ndarray of shape (n_quantiles,)
        Violation of the optimality conditions that the solver reached.
    n_iter_ : int or ndarray of shape (n_quantiles,)
        Number of solver iterations; an iteration moves one pair of multipliers.

    See Also
    --------
    KernelSVC : Support vector classification.
    KernelOneClassSVM : Outlier detection.
    LSSVR : Squared loss instead of the epsilon-insensitive loss; all rows are support vectors.

    Notes
    -----
    `C=inf` forbids errors beyond the tube. A kernel function also accepts sparse rows and sequences of objects such as
    texts. On a graphics card all quantiles are solved at the same time; kernel functions, `nu`, `loss="huber"` and
    `solver="simple_smo"` need the CPU.

    `tol` bounds the violation of the optimality conditions, in units of the decision function. An iteration moves one pair
    of multipliers; `max_iter=None` or -1 is ten million for each problem. `callback` is called between rounds of the solver;
    its record has `n_iter` (pairs of multipliers moved so far), `violation`, `solved` (of `n_problems`) and `seconds`.

    References
    ----------
    .. [1] A. J. Smola and B. Schölkopf, "A tutorial on support vector regression", Statistics and Computing, 2004.
    .. [2] B. Schölkopf, A. J. Smola, R. C. Williamson and P. L. Bartlett, "New support vector algorithms", Neural
           Computation, 2000.
    .. [3] I. Takeuchi, Q. V. Le, T. D. Sears and A. J. Smola, "Nonparametric quantile estimation", Journal of Machine
           Learning Research, 2006.
    .. [4] V. Chernozhukov, I. Fernández-Val and A. Galichon, "Quantile and probability curves without crossing",
           Econometrica, 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import KernelSVR
    >>> X = np.linspace(0, 6, 80)[:, None]
    >>> model = KernelSVR(C=10.0, gamma=0.5, epsilon=0.01).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.5]])[0] - np.sin(1.5)) < 0.02)
    True
    >>> noisy = np.sin(X[:, 0]) + np.random.default_rng(0).normal(size=80)
    >>> low, middle, high = KernelSVR(loss="quantile", quantile=[0.1, 0.5, 0.9]).fit(X, noisy).predict([[1.5]])[0]
    >>> bool(low < middle < high)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "epsilon": [NON_NEGATIVE],
        "loss": [StrOptions({"epsilon_insensitive", "quantile", "pinball", "huber"})],
        "quantile": "no_validation",
    }

    epsilon: float = 0.1
    loss: str = "epsilon_insensitive"
    quantile: float | list[float] = 0.5

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted values.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows; with a precomputed kernel, their kernel values with all training rows.

        Returns
        -------
        ndarray of shape (n,), or (n, n_quantiles) if `quantile` is a list
            A value for each row, or one value for each quantile.
        """
        scores = self._scores(X)
        if not self._reports_arrays:
            return scores[:, 0]
        ordered = np.empty_like(scores)
        ordered[:, np.argsort(self.quantile, kind="stable")] = np.sort(scores, axis=1)
        return ordered

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the coefficient of determination, or the explained pinball loss if `quantile` is a list.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows; with a precomputed kernel, their kernel values with all training rows.
        y : array-like of shape (n,)
            True values.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows.

        Returns
        -------
        float
            R², or the mean over the quantiles of the explained fraction of the pinball loss.
        """
        if not self._reports_arrays:
            return super().score(X, y, sample_weight)
        columns = zip(self.predict(X).T, np.asarray(self.quantile), strict=True)
        explained = [d2_pinball_score(y, column, sample_weight=sample_weight, alpha=q) for column, q in columns]
        return float(np.mean(explained))

    @property
    def _predicts_quantiles(self) -> bool:
        return self.loss in ("quantile", "pinball")

    @property
    def _reports_arrays(self) -> bool:
        return self._predicts_quantiles and not isinstance(self.quantile, Real)

    @property
    def _n_problems(self) -> int:
        return np.size(self.quantile) if self._predicts_quantiles else 1

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.loss == "huber" and self.epsilon == 0:
            raise ValueError("epsilon must be above 0 with loss='huber': it is the size from which errors cost linearly")
        if self._predicts_quantiles:
            values: Any = np.asarray(self.quantile, dtype=object).reshape(-1).tolist()
            if np.ndim(self.quantile) > 1 or not values or not all(isinstance(q, Real) and 0 < float(q) < 1 for q in values):
                raise ValueError(f"quantile must be a number between 0 and 1 or a list of them, got {self.quantile!r}")
        if self.nu is not None and self.loss != "epsilon_insensitive":
            raise ValueError(f"nu determines the width of a tube, which loss={self.loss!r} does not have")
        if self.nu is not None and not np.isfinite(self.C):
            raise ValueError("C must be finite if nu is set, because nu is a fraction of C")

    def _cpu_only(self) -> dict[str, Any]:
        return super()._cpu_only() | ({"loss": self.loss} if self.loss == "huber" else {})

    def _read_targets(self, y: Any, weights: np.ndarray | None, n: int) -> tuple[np.ndarray, np.ndarray]:
        return column_or_1d(check_outputs(y, n), warn=True), np.ones(n) if weights is None else weights

    def _solve(self, fit: DualFit, targets: np.ndarray, weights: np.ndarray) -> SupportVectorModel:
        solutions = self._solutions(fit, targets, scale_bound(self.C, weights))
        self.epsilon_ = max(0.0, float(solutions[0].tube_width))
        return SupportVectorModel.of_solutions(solutions)

    def _solutions(self, fit: DualFit, y: np.ndarray, C: np.ndarray) -> list[DualSolution]:
        """Return the solution of the regression, or of one regression for each quantile of the pinball loss."""
        n = len(y)
        if fit.device == "cpu":
            fit = replace(fit, X=byte_rows(fit.kernel, fit.X, n // 2))
        if self._predicts_quantiles:
            problems = [BoxQP(y.astype(np.float64), -(1 - q) * C, q * C) for q in np.atleast_1d(self.quantile)]
            return solve_jointly(fit, problems, [[slice(0, n)]] * len(problems))
        if self.loss == "epsilon_insensitive" and self.nu is None:
            return solve_jointly(fit, [BoxQP.regression(y, C, self.epsilon)], [[slice(0, n)]])
        rng = np.random.default_rng(fit.seed)
        if self.loss == "huber":
            ridged = gram_rows(fit, [slice(0, n)], np.divide(1.0, C, out=np.zeros(n), where=C > 0))
            return fit.solver.maximise([BoxQP.regression(y, self.epsilon * C, 0.0)], ridged, rng, fit.progress)
        rows = gram_rows(fit, [slice(0, n)])
        assert self.nu is not None
        problem = NuQP.of_values(y, C, self.nu)
        [solution] = fit.solver.maximise([problem], rows, rng, fit.progress)
        if solution.tube_width < 0 and not fit.progress.stopped:
            without_tube = BoxQP(problem.linear, problem.lower, problem.upper, 0.0, solution.beta)
            [solution] = fit.solver.maximise([without_tube], rows, rng, fit.progress)
        return [solution]


@estimator
class KernelOneClassSVM(OutlierMixin, BaseKernelSVM):
    """One-class support vector machine for any kernel of the library: outlier and novelty detection without labels.

    Prefer `KernelOneClassSVM` to `sklearn.svm.OneClassSVM` for more than a few thousand rows, for kernels that scikit-learn
    computes in Python, or on a graphics card.

    Parameters
    ----------
    nu : float, default=0.5
        Fraction in (0, 1] that replaces a penalty parameter. At most this fraction of the training rows are outliers, and at
        least this fraction are support vectors.

    Attributes
    ----------
    dual_coef_ : array of shape (1, n_SV)
        Coefficients of the support vectors. Sparse after a fit to sparse rows.
    coef_ : array of shape (1, n_features)
        Weights of the features for a linear kernel, read-only; sparse after a fit to sparse rows.
    intercept_ : ndarray of shape (1,)
        Minus `offset_`.
    offset_ : float
        Smallest value of `score_samples` at which a row is an inlier.
    dual_objective_ : float
        Objective value of the dual problem.
    kkt_violation_ : float
        Violation of the optimality conditions that the solver reached.
    n_iter_ : int
        Number of solver iterations; an iteration moves one pair of multipliers.

    See Also
    --------
    KernelSVC : Support vector classification.
    KernelSVR : Support vector regression.

    Notes
    -----
    A kernel function also accepts sparse rows and sequences of objects such as texts. Kernel functions and
    `solver="simple_smo"` need the CPU.

    `tol` bounds the violation of the optimality conditions, in units of the decision function. An iteration moves one pair
    of multipliers; `max_iter=None` or -1 is ten million for each problem. `callback` is called between rounds of the solver;
    its record has `n_iter` (pairs of multipliers moved so far), `violation`, `solved` (of `n_problems`) and `seconds`.

    References
    ----------
    .. [1] B. Schölkopf, J. C. Platt, J. Shawe-Taylor, A. J. Smola and R. C. Williamson, "Estimating the support of a
           high-dimensional distribution", Neural Computation, 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import KernelOneClassSVM
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> KernelOneClassSVM(nu=0.05).fit(X).predict([[0.0, 0.0], [6.0, 6.0]])
    array([ 1, -1])
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {"nu": [FRACTION]}

    # The one-class problem has no penalty parameter.
    C: ClassVar[Any] = None  # type: ignore[misc]
    nu: float = 0.5

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the similarity of each row to the training rows, before the offset is subtracted.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows; with a precomputed kernel, their kernel values with all training rows.

        Returns
        -------
        ndarray of shape (n,)
            Scores; larger is more similar.
        """
        columns, vectors = self._scoring_inputs(X)
        coef = xa.like(np.ascontiguousarray(self._model.dual_coef.T), columns)
        return xa.to_numpy(expand(self.kernel_, columns, vectors, coef))[:, 0].astype(np.float64)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the score of each row minus the offset.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows; with a precomputed kernel, their kernel values with all training rows.

        Returns
        -------
        ndarray of shape (n,)
            Scores; negative for outliers.
        """
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """Return 1 for each inlier and -1 for each outlier.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows; with a precomputed kernel, their kernel values with all training rows.

        Returns
        -------
        ndarray of shape (n,)
            1 for inliers, -1 for outliers.
        """
        return np.where(self.decision_function(X) >= 0, 1, -1)

    def _check_settings(self) -> None:
        pass

    def _cpu_only(self) -> dict[str, Any]:
        return {}

    def _read_targets(self, y: Any, weights: np.ndarray | None, n: int) -> tuple[np.ndarray, np.ndarray]:
        return np.empty(0), np.ones(n) if weights is None else weights

    def _solve(self, fit: DualFit, targets: np.ndarray, weights: np.ndarray) -> SupportVectorModel:
        solution = solve_one_class(fit, weights, self.nu)
        self.offset_ = -solution.bias
        return SupportVectorModel.of_solutions([solution])


def solver_seed(random_state: Any) -> int:
    """Return the seed of the solver, which is fixed for `random_state=None`.

    The problems are convex, so another seed changes the start of the solver, and the solution only within the tolerance.
    The fixed seed avoids this difference between two fits.
    """
    return 0 if random_state is None else int(check_random_state(random_state).randint(2**31 - 1))


def rows_on(X: Any, device: str) -> Any:
    """Return rows on a device; sparse rows are converted to dense rows unless the device is the CPU."""
    if device == "cpu":
        return X
    return xa.to_device(X.toarray() if xa.is_sparse(X) else X, device)


def support_rows(X: Any, support: np.ndarray, kernel: Kernel) -> Any:
    """Return the support vectors; for a precomputed kernel, an array without columns of the dtype of `X`."""
    return X[support] if kernel.uses_points else np.empty((support.size, 0), dtype=xa.numpy_dtype(X))


def scale_bound(C: float, weights: np.ndarray) -> np.ndarray:
    """Return the upper bound of each multiplier, which is zero for zero weight even if `C` is infinite."""
    return np.where(weights > 0, C, 0.0) * np.where(weights > 0, weights, 1.0)


def check_class_bounds(classes: np.ndarray, codes: np.ndarray, C: np.ndarray, positive_weight: float, pairs: bool) -> None:
    """Raise ValueError if a class has zero weight, or if `positive_weight` is set for one-vs-one problems (`pairs`)."""
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


def _gram_or_rows(X: Any, kernel: Kernel, rows: np.ndarray, columns: np.ndarray) -> Any:
    """Return a subset of the rows of `X`, or of the rows and columns of a matrix of kernel values."""
    return X[rows] if kernel.uses_points else X[np.ix_(rows, columns)]


def _stratified_folds(codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a random fold for each row; the rows of each class are distributed evenly over the folds."""
    fold_of = np.empty(codes.size, dtype=np.intp)
    for c in np.unique(codes):
        members = rng.permutation(np.flatnonzero(codes == c))
        fold_of[members] = (np.arange(members.size) + rng.integers(_N_FOLDS)) % _N_FOLDS
    return fold_of
