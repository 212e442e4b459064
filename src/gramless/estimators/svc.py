"""Support vector classification.

    maximise    sum_i alpha_i - sum_ij alpha_i alpha_j y_i y_j K(x_i, x_j) / 2
    subject to  0 <= alpha_i <= C_i,  sum_i alpha_i y_i = 0

for each pair of classes (one-vs-one) or each class against the others (one-vs-rest). `C_i` is `C` times the weights
of the sample and of its class. The cost is that of the kernel rows of the points that become support vectors. With `nu` in
the place of `C` the sum of the multipliers is fixed instead of their bound: see `gramless.svm.nu_qp`.

Reference: Cortes and Vapnik (1995), Support-vector networks; Schölkopf, Smola, Williamson and Bartlett (2000), New support
vector algorithms.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from gramless._core.device import Device
from gramless._core.doc_links import link_documentation
from gramless._core.validation import atomic_fit, check_choice, check_labels, check_positive, check_weights
from gramless.inference.coupling import couple
from gramless.inference.platt import fit_sigmoid, fit_sigmoids, sigmoid_probabilities
from gramless.kernels import Kernel
from gramless.linalg.planning.plan import FitPlan
from gramless.models.expansion import kernel_from_settings, scores_to_labels, set_input_tags
from gramless.models.support_machine import (
    bounds,
    check_class_bounds,
    check_dual_settings,
    check_machine_device,
    check_nu,
    check_solutions,
    class_factors,
    functions_to_call,
    iteration_cap,
    keep_machine,
    kept_machine,
    plan_machine,
    points_on,
    primal_coef,
    resources_for,
    rows_to_compute_with,
    scoring_pair,
    support_vectors,
    training_points,
)
from gramless.svm.problems import (
    DUAL_SOLVERS,
    Machine,
    Resources,
    machine_scores,
    make_solver,
    most_votes,
    solve_machine,
    votes,
    warn_unless_converged,
)
from gramless.svm.watch import Watch

_FOLDS = 5


def _has_probabilities(estimator: KernelSVC) -> bool:
    if estimator.probability is False:
        raise AttributeError("probabilities need probability='sigmoid'; this estimator has probability=False")
    return True


@link_documentation
class KernelSVC(ClassifierMixin, BaseEstimator):
    """Support vector classifier for any kernel of the library.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        A name ("rbf", "poly", "linear", "sigmoid", "precomputed", ...), a kernel or sum or product of kernels, or a
        function `f(X, Y) -> matrix`. A function also sees sparse rows, and sequences of objects such as texts, as they are.
    C : float, default=1.0
        Upper bound of the multipliers: larger fits the training data more closely, infinity forbids errors.
    gamma : float, "scale" or "auto", default="scale"
        Width of a kernel given by name: `"scale"` is `1 / (n_features * X.var())`, `"auto"` is `1 / n_features`.
    degree : int, default=3
        Degree of `kernel="poly"`.
    coef0 : float, default=0.0
        Constant of `kernel="poly"` and `"sigmoid"`.
    nu : float or None, default=None
        A number in (0, 1] that stands in place of `C`: in each two-class problem at most this share of the rows are on the
        wrong side of the margin, and at least this share are support vectors.
    solver : {"smo", "simple_smo"}, default="smo"
        Large working sets on cached kernel rows, or the textbook algorithm (small data only).
    tol : float, default=1e-3
        Largest violation of the optimality conditions.
    max_iter : int or None, default=None
        Cap on the pairs of multipliers moved in each two-class problem, by default (None or -1) ten million; reaching it
        warns.
    multi_class : {"ovo", "ovr"}, default="ovo"
        One problem for each pair of classes, or for each class against the others.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        For one-vs-one machines: one score for each class, or the decision value of each pair.
    break_ties : bool, default=False
        Which class has most votes when several have as many: the first of them, or the one with the largest score (needs
        `decision_function_shape="ovr"`, and costs nothing more).
    class_weight : dict, "balanced" or None, default=None
        Multiplies `C` class by class.
    positive_weight : float, default=1.0
        Multiplies `C` for the positive side of each one-vs-rest problem, or for `classes_[1]` of two classes.
    probability : {False, "sigmoid", True}, default=False
        `"sigmoid"`, or True, fits Platt's sigmoids to out-of-fold decision values (five more fits); `predict` is the same.
    shrinking : bool, default=True
        Taken for the sake of code written for scikit-learn: the solver sets settled multipliers aside where that pays, and
        the machine is the same.
    cache_size : float or None, default=None
        Megabytes of kernel rows to keep, where `memory_budget` is None.
    memory_budget : str, float or None, default=None
        Memory for kernel rows: "4GB", bytes, or a fraction of what is free; 70 % of that by default.
    dtype : {"float32", "float64", None}, default=None
        Precision of kernel values; by default that of the data.
    device : {"cpu", "cuda", "auto"}, CUDA or None, default=None
        Where to compute; None means the CPU. On a graphics card all problems run at once, and `memory_budget` is of its
        memory; kernel functions and `solver="simple_smo"` run on the CPU only.
    callback : callable(estimator, record) -> bool, or list of them, optional
        Called between rounds of the solver with a record of `n_iter` (pairs of multipliers moved so far), `violation`,
        `solved`, `n_problems` and `seconds`. A true answer ends the fit with the multipliers of that moment.
    verbose : int, default=0
        1 shows progress.
    random_state : int, RandomState or None, default=None
        Draws the first working set and the folds of `probability`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    class_weight_ : ndarray of shape (n_classes,)
        What multiplied `C` in each class.
    support_ : ndarray of shape (n_SV,)
        Indices of the support vectors, class by class.
    support_vectors_ : array of shape (n_SV, n_features)
        With a precomputed kernel, an empty array.
    n_support_ : ndarray of shape (n_classes,)
        Support vectors of each class.
    dual_coef_ : array of shape (n_classes - 1, n_SV), or (n_classes, n_SV) for one-vs-rest
        Multipliers times labels; in one-vs-one, a vector's coefficients against the other classes in their order. Sparse
        after a fit to sparse rows.
    coef_ : array of shape (n_problems, n_features)
        Weights of the features, read-only; with a linear kernel only. Sparse after a fit to sparse rows.
    intercept_ : ndarray of shape (n_problems,)
        The bias of each two-class problem.
    kernel_ : Kernel
        With every setting a number.
    device_ : str
        Where the machine was computed, and predicts.
    dual_objective_ : ndarray of shape (n_problems,)
        The value of each dual problem.
    kkt_violation_ : ndarray of shape (n_problems,)
        What `tol` bounds, as reached.
    n_iter_ : ndarray of shape (n_problems,)
        Pairs of multipliers moved.
    fit_status_ : int
        0 where every problem converged, 1 where one did not.
    shape_fit_ : tuple
        Shape of `X` at fit.
    sigmoids_ : ndarray of shape (n_problems, 2)
        Slope and offset of each sigmoid, where `probability="sigmoid"`.
    n_features_in_ : int
        Columns of `X` at fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Their names, where `X` had names.

    See Also
    --------
    KernelSVR : The same for regression.
    KernelOneClassSVM : The same for one class: which rows are unlike the others.
    MKLClassifier : Learns the weights of several kernels.
    LSSVC : Least squares instead of the hinge loss: every point is a support vector, and probabilities cost no more fits.

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

    n_features_in_: int
    support_vectors_: Any
    device_: str

    def __init__(
        self,
        kernel: str | Kernel | Callable[[Any, Any], Any] = "rbf",
        *,
        C: float = 1.0,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        nu: float | None = None,
        solver: str = "smo",
        tol: float = 1e-3,
        max_iter: int | None = None,
        multi_class: str = "ovo",
        decision_function_shape: str = "ovr",
        break_ties: bool = False,
        class_weight: dict[Any, float] | str | None = None,
        positive_weight: float = 1.0,
        probability: str | bool = False,
        shrinking: bool = True,
        cache_size: float | None = None,
        memory_budget: str | float | None = None,
        dtype: str | None = None,
        device: Device = None,
        callback: Any = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.C = C
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.nu = nu
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.multi_class = multi_class
        self.decision_function_shape = decision_function_shape
        self.break_ties = break_ties
        self.class_weight = class_weight
        self.positive_weight = positive_weight
        self.probability = probability
        self.shrinking = shrinking
        self.cache_size = cache_size
        self.memory_budget = memory_budget
        self.dtype = dtype
        self.device = device
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state

    @atomic_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> KernelSVC:
        """Fit to points and labels.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n_samples, n_features)
            Training points; with a precomputed kernel, the square matrix of kernel values.
        y : array-like of shape (n_samples,)
            Their labels.
        sample_weight : array-like of shape (n_samples,), optional
            Multiplies `C` sample by sample.

        Returns
        -------
        KernelSVC
            This estimator, fitted.
        """
        self._check_settings()
        kernel = kernel_from_settings(self)
        self.device_ = check_machine_device(self, kernel, "nu")
        X, self.kernel_ = training_points(self, X, kernel, sample_weight)
        self.classes_, codes = check_labels(y, X.shape[0])
        self.class_weight_ = class_factors(self.class_weight, self.classes_, codes)
        weights = check_weights(sample_weight, X)
        weights = self.class_weight_[codes] * (1.0 if weights is None else weights)
        C = bounds(self._bound, weights)
        check_class_bounds(self.classes_, codes, C, self.positive_weight, self._is_one_vs_one)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        rows = rows_to_compute_with(X)
        resources = resources_for(self, self.kernel_, rows, seed)

        n_problems = self._n_problems * (1 + (_FOLDS if self.probability else 0))
        label = type(self).__name__
        with Watch(n_problems, callback=functions_to_call(self), verbose=self.verbose, label=label) as watch:
            machine = self._solve(rows, codes, C, resources, watch)
            check_solutions(machine.solutions)
            if not watch.by_callback:
                warn_unless_converged(machine.solutions, self.tol)
            keep_machine(self, X, machine)
            self.fit_status_ = int(not all(solution.converged for solution in machine.solutions))
            self.dual_objective_ = np.array([solution.objective for solution in machine.solutions])
            self.kkt_violation_ = np.array([solution.violation for solution in machine.solutions])
            self.n_iter_ = np.array([solution.n_iter for solution in machine.solutions], dtype=np.int32)
            self.__dict__.pop("sigmoids_", None)
            if self.probability and not watch.stopped:
                sigmoids = self._fit_sigmoids(rows, codes, weights, resources, watch)
                if not watch.stopped:
                    self.sigmoids_ = sigmoids
        return self

    @property
    def coef_(self) -> Any:
        """Weights of the features in each two-class problem; with a linear kernel only."""
        return primal_coef(self)

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of the classes, or of the pairs of classes.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Points; with a precomputed kernel, their kernel values with all training points.

        Returns
        -------
        ndarray of shape (n,), (n, n_classes) or (n, n_pairs)
            For two classes one score, positive for `classes_[1]`; for more a score for each class, or one for each pair
            where `decision_function_shape="ovo"` and the machine is one-vs-one.
        """
        scores = self._scores(X)
        if len(self.classes_) == 2:
            return scores[:, 0]
        if self._is_one_vs_one and self.decision_function_shape == "ovr":
            return votes(scores, len(self.classes_))
        return scores

    def predict(self, X: Any) -> np.ndarray:
        """The class with most votes; in one-vs-rest the class of the largest score.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            As in `decision_function`.

        Returns
        -------
        ndarray of shape (n,)
            A label for each row.
        """
        if self.break_ties and self.decision_function_shape == "ovo" and hasattr(self, "dual_coef_"):
            raise ValueError("break_ties must be False with decision_function_shape='ovo', where no class has a score")
        scores = self._scores(X)
        if not self._is_one_vs_one:
            return scores_to_labels(self.classes_, scores)
        if self.break_ties:
            return self.classes_[votes(scores, len(self.classes_)).argmax(axis=1)]
        return self.classes_[most_votes(scores, len(self.classes_))]

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class: sigmoids of the scores, coupled over pairs in one-vs-one, normalised in one-vs-rest.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            As in `decision_function`.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Columns in the order of `classes_`.
        """
        scores = self._scores(X)
        check_is_fitted(
            self,
            "sigmoids_",
            msg="predict_proba is not available when fitted with probability=False, or when a callback ended the fit before "
            "the sigmoids; fit %(name)s again with probability='sigmoid'",
        )
        if self._is_one_vs_one:
            a, b = self.sigmoids_.T
            return couple(expit(-(scores * a + b)), len(self.classes_))
        return sigmoid_probabilities(scores, self.sigmoids_)

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithm of the probability of each class.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Points; with a precomputed kernel, their kernel values with all training points.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Columns in the order of `classes_`.
        """
        with np.errstate(divide="ignore"):  # a probability that underflows to zero has the logarithm -inf
            return np.log(self.predict_proba(X))

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key != "_moved"}

    def plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> FitPlan:
        """What a fit of this size would hold.

        Parameters
        ----------
        n, d, n_outputs : int
            Rows, features, and columns of targets.
        dtype : dtype
            Of the data.
        device : str
            Where to compute.

        Returns
        -------
        FitPlan
            Or a `MemoryError` where that is too much.
        """
        return plan_machine(self, n, d, dtype)

    def __sklearn_tags__(self) -> Any:
        return set_input_tags(super().__sklearn_tags__(), self.kernel)

    @property
    def _is_one_vs_one(self) -> bool:
        return self.multi_class == "ovo" and len(self.classes_) > 2

    @property
    def _bound(self) -> float:
        """The bound of a multiplier of weight one, before `nu` finds the scale."""
        return self.C if self.nu is None else 1.0

    @property
    def _n_problems(self) -> int:
        k = len(self.classes_)
        return 1 if k == 2 else (k * (k - 1) // 2 if self._is_one_vs_one else k)

    def _check_settings(self) -> None:
        check_dual_settings(self)
        check_positive("positive_weight", self.positive_weight)
        check_choice("solver", self.solver, DUAL_SOLVERS)
        if self.nu is not None:
            check_nu(self.nu, self.solver)
        check_choice("multi_class", self.multi_class, ("ovo", "ovr"))
        check_choice("decision_function_shape", self.decision_function_shape, ("ovo", "ovr"))
        if self.probability not in (False, True, "sigmoid"):
            raise ValueError(f"probability must be False or 'sigmoid', got {self.probability!r}")

    def _solve(self, X: Any, codes: np.ndarray, C: np.ndarray, resources: Resources, watch: Watch) -> Machine:
        return solve_machine(
            self.kernel_,
            X,
            codes,
            C,
            make_solver(self.solver, self.tol, iteration_cap(self)),
            resources,
            n_classes=len(self.classes_),
            one_vs_one=self.multi_class == "ovo",
            positive_weight=self.positive_weight,
            nu=self.nu,
            watch=watch,
        )

    def _scores(self, X: Any) -> np.ndarray:
        """Decision values of the two-class problems."""
        columns, vectors = scoring_pair(self, X)
        return machine_scores(self.kernel_, columns, vectors, kept_machine(self))

    def _fit_sigmoids(
        self, X: Any, codes: np.ndarray, weights: np.ndarray, resources: Resources, watch: Watch
    ) -> np.ndarray:
        """Sigmoids of decision values that each point gets from machines it took no part in."""
        k, uses_points = len(self.classes_), self.kernel_.uses_points
        kept = np.flatnonzero(weights)
        if kept.size < codes.size:
            X = X[kept] if uses_points else X[np.ix_(kept, kept)]
            codes, weights = codes[kept], weights[kept]
        scores = np.empty((codes.size, self._n_problems))
        fold_of = _deal(codes, np.random.default_rng(resources.seed))
        for fold in np.unique(fold_of):
            train, test = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
            part = X[train] if uses_points else X[np.ix_(train, train)]
            held_out = X[test] if uses_points else X[np.ix_(test, train)]
            # A class whose points are all held out loses every pair: the bias of a problem with one side is that side.
            machine = self._solve(part, codes[train], bounds(self._bound, weights[train]), resources, watch)
            columns = held_out if uses_points else held_out[:, machine.support]
            vectors = support_vectors(part, machine.support, self.kernel_)
            columns, vectors = points_on(columns, self.device_), points_on(vectors, self.device_)
            scores[test] = machine_scores(self.kernel_, columns, vectors, machine)
        if not self._is_one_vs_one:
            return fit_sigmoids(scores, codes, k, weights)
        members = [(np.isin(codes, pair), pair[0]) for pair in combinations(range(k), 2)]
        return np.array([fit_sigmoid(scores[m, p], codes[m] == first, weights[m]) for p, (m, first) in enumerate(members)])


def _deal(codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The fold of each point: those of each class are dealt out in random order, so that every fold has its share."""
    fold_of = np.empty(codes.size, dtype=np.intp)
    for c in np.unique(codes):
        members = rng.permutation(np.flatnonzero(codes == c))
        fold_of[members] = (np.arange(members.size) + rng.integers(_FOLDS)) % _FOLDS
    return fold_of
