"""Multiple kernel learning: a support vector classifier that learns the weights of its kernels.

    K = sum_m d_m K_m,  d >= 0,  ||d||_p <= 1

The weights and the classifier minimise the same objective and are optimised alternately, each time starting from the
previous classifier. The duality gap bounds the distance of the objective from its minimum. `p = 1` selects few kernels, a
larger `p` spreads the weights. With `weight_penalty` the constraint is replaced by the penalty `weight_penalty ||d||^2 / 2`.
The formulas are in `gramless.svm.multiple_kernels`. A fit costs as much as a few to a few dozen fits of the classifier.

References: Kloft, Brefeld, Sonnenburg and Zien (2011), lp-norm multiple kernel learning; for the penalty, Sun, Ampornpunt,
Varma and Vishwanathan (2010), Multiple kernel learning and the SMO algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.constraints import POSITIVE, POSITIVE_INTEGER, estimator
from gramless._core.memory import parse_budget
from gramless._core.progress import Progress
from gramless._core.targets.columns import scores_to_labels
from gramless._core.validation import atomic_fit, check_labels, check_weights, check_X, warn_caller, working_dtype
from gramless.callbacks import read_functions
from gramless.estimators.svm import check_class_bounds, solver_seed, support_rows
from gramless.kernels import RBF, Kernel, Precomputed, Scaled, as_kernel
from gramless.kernels.bandwidth import resolve_gamma
from gramless.linalg.planning.plan import FitPlan
from gramless.svm.multiclass import (
    DUAL_SOLVERS,
    SupportVectorModel,
    class_scores,
    make_solver,
    problem_scores,
    warn_unless_converged,
)
from gramless.svm.multiple_kernels import (
    KernelWeights,
    StoredKernels,
    StreamedKernels,
    learn_by_alternation,
    learn_by_pairs,
    weighted_sum,
)
from gramless.svm.progress import SolverProgress
from gramless.svm.resources import DualFit, row_budget, row_workers, svm_memory
from gramless.svm.tuning import TUNING

# Values of gamma of the default kernels, in units of gamma="scale".
_DEFAULT_GAMMAS = (0.1, 1.0, 10.0)


@estimator
class MKLClassifier(ClassifierMixin, BaseEstimator):
    """Support vector classifier on a learnt weighted sum of kernels.

    scikit-learn has no counterpart. Prefer MKL to `KernelSVC` if it is unknown which kernels or groups of features matter.

    Parameters
    ----------
    kernels : list of (str, Kernel or callable), "precomputed" or None, default=None
        Kernels of the sum; `gramless.kernels.Columns` restricts a kernel to a subset of the features. With `"precomputed"`,
        `X` is a sequence of Gram matrices. None is three Gaussian kernels with 0.1, 1 and 10 times the gamma of
        `gamma="scale"`.
    C : float, default=1.0
        Inverse regularisation strength; a larger value fits the training rows more closely.
    p : float, default=2.0
        Order of the norm of the weights, at least 1; 1 gives sparse weights, a larger value more equal weights.
    weight_penalty : float or None, default=None
        Factor of the penalty `||d||^2 / 2` on the weights, which replaces the norm constraint; requires `p=2`.
    normalise : bool, default=True
        Whether inputs are normalised before use. The Notes describe the normalisation.
    solver : {"smo", "simple_smo"}, default="smo"
        Algorithm that solves the optimisation problem. `"smo"` optimises large working sets on cached kernel rows;
        `"simple_smo"` moves one pair of multipliers at a time, for small data.
    tol : float, default=1e-3
        Tolerance at which the solver stops. The Notes define the quantity that `tol` bounds.
    weight_tol : float, default=1e-3
        The alternation stops at this relative duality gap, or with `weight_penalty` at this relative change of the weights.
    max_iter : int or None, default=None
        Maximum number of solver iterations. The Notes define an iteration and the meaning of None.
    multi_class : {"ovo", "ovr"}, default="ovo"
        Decomposition of a multiclass problem: one-vs-one or one-vs-rest.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with `sample_weight`; `"balanced"` weights each class by the inverse of its
        frequency.
    positive_weight : float, default=1.0
        Factor of `C` for the positive class of each one-vs-rest problem, or for `classes_[1]` of two classes.
    dtype : {"float32", "float64"} or None, default=None
        Floating-point precision of the computation; None uses float32 for float32 and uint8 data, else float64.
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
    weights_ : ndarray of shape (n_kernels,)
        Weights of the normalised kernels.
    kernel_ : Kernel
        Weighted sum of the kernels, with numeric parameters.
    gap_ : float
        Relative duality gap at the end of the fit, compared with `weight_tol`.
    n_iter_ : int
        Number of alternations, or with `solver="simple_smo"` the number of pairs of multipliers moved.
    history_ : list of dict
        One record for each alternation (sweep of `"simple_smo"`): `n_iter`, `seconds` (without callbacks) and `gap`.
    classes_ : ndarray of shape (n_classes,)
        Sorted class labels.
    support_ : ndarray of shape (n_SV,)
        Indices of the support vectors, class by class.
    support_vectors_ : ndarray of shape (n_SV, n_features)
        The support vectors; an empty array for precomputed kernels.
    n_support_ : ndarray of shape (n_classes,)
        Number of support vectors of each class.
    dual_coef_ : ndarray of shape (n_classes - 1, n_SV), or (n_classes, n_SV) for one-vs-rest
        Multipliers times labels. In one-vs-one, each support vector has a column with one row for each other class.
    intercept_ : ndarray of shape (n_problems,)
        Bias of each two-class problem.
    n_features_in_ : int
        Number of features, or of columns of each Gram matrix, in `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if `X` had column names.

    See Also
    --------
    KernelSVC : Support vector classifier with one kernel, or a sum with given weights.

    Notes
    -----
    All two-class problems of a multiclass fit share one set of weights. Gram matrices are stored if `memory_budget` allows.

    With `normalise`, each kernel is divided by the mean of its diagonal, so that weights are comparable.

    `solver="smo"` alternates between weights and classifier, and an iteration is one alternation; `"simple_smo"` requires
    `weight_penalty` and uses a cubic line search, and an iteration moves one pair of multipliers. `max_iter=None` is 200
    alternations, or a million pairs. `tol` bounds the violation of the optimality conditions, in units of the decision
    function. `callback` is called after each alternation, or each sweep of `"simple_smo"`, with an entry of `history_`.

    References
    ----------
    .. [1] M. Kloft, U. Brefeld, S. Sonnenburg and A. Zien, "lp-norm multiple kernel learning", Journal of Machine Learning
           Research, 2011.
    .. [2] Z. Sun, N. Ampornpunt, M. Varma and S. Vishwanathan, "Multiple kernel learning and the SMO algorithm", Advances in
           Neural Information Processing Systems, 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramless import MKLClassifier
    >>> from gramless.kernels import RBF, Columns
    >>> X, y = load_iris(return_X_y=True)
    >>> sepal, petal = Columns(RBF(1.0), slice(0, 2)), Columns(RBF(1.0), slice(2, 4))
    >>> model = MKLClassifier([sepal, petal], p=1.0).fit(X, y)
    >>> bool(model.weights_[1] > model.weights_[0])
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "kernels": [StrOptions({"precomputed"}), "array-like", None],
        "p": [Interval(Real, 1, None, closed="left")],
        "weight_penalty": [POSITIVE, None],
        "solver": [StrOptions(set(DUAL_SOLVERS))],
        "weight_tol": [POSITIVE],
        "max_iter": [POSITIVE_INTEGER, None],
    }

    kernels: Sequence[Any] | str | None = field(default=None, kw_only=False)
    C: float = 1.0
    p: float = 2.0
    weight_penalty: float | None = None
    normalise: bool = True
    solver: str = "smo"
    tol: float = 1e-3
    weight_tol: float = 1e-3
    max_iter: int | None = None
    multi_class: str = "ovo"
    class_weight: dict[Any, float] | str | None = None
    positive_weight: float = 1.0
    dtype: str | None = None
    memory_budget: str | float | None = None
    callback: Any = None
    verbose: int = 0
    random_state: Any = None
    n_features_in_: int = field(init=False)

    @atomic_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MKLClassifier:
        """Learn the weights and the classifier.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or sequence of arrays of shape (n_samples, n_samples)
            Training rows; with `kernels="precomputed"`, Gram matrices.
        y : array-like of shape (n_samples,)
            Class labels.
        sample_weight : array-like of shape (n_samples,), optional
            Factor of `C` for each row; None is a factor of 1.

        Returns
        -------
        self
            The fitted estimator.
        """
        self._check_settings()
        precomputed = isinstance(self.kernels, str)
        X = self._check_grams(X, reset=True) if precomputed else self._check_rows(X, reset=True)
        n = X[0].shape[0] if precomputed else X.shape[0]
        self.classes_, codes = check_labels(y, n)
        weights = check_weights(sample_weight, np.empty((n, 1)), codes, self.classes_, self.class_weight)
        C = self.C * (np.ones(n) if weights is None else weights)
        check_class_bounds(self.classes_, codes, C, self.positive_weight, self._one_vs_one)

        kernels = [Precomputed() for _ in X] if precomputed else [k.resolve(X) for k in self._kernel_list(X)]
        if self.normalise:
            inputs = X if precomputed else [X] * len(kernels)
            kernels = [_unit_diagonal(k, part, weights) for k, part in zip(kernels, inputs, strict=True)]
        seed = solver_seed(self.random_state)
        learnt = self._learn(*self._stack(kernels, X, n, seed), codes, C)
        self.weights_, self.gap_, self.n_iter_ = learnt.weights, learnt.gap, learnt.n_iter
        scales = [getattr(k, "scale", 1.0) for k in kernels]
        self._scales = np.array(scales) if precomputed else np.ones(len(kernels))
        self.kernel_ = Precomputed() if precomputed else weighted_sum(kernels, self.weights_)
        self.support_ = learnt.model.support
        self.n_support_ = learnt.model.n_support
        self.dual_coef_ = learnt.model.dual_coef
        self.intercept_ = learnt.model.intercept
        self.support_vectors_ = support_rows(X[0] if precomputed else X, self.support_, self.kernel_)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores of the classes.

        Parameters
        ----------
        X : array-like of shape (n, n_features), or sequence of arrays of shape (n, n_samples)
            Rows; with `kernels="precomputed"`, their kernel values with all training rows.

        Returns
        -------
        ndarray of shape (n,) or (n, n_classes)
            For two classes one score, positive for `classes_[1]`; otherwise one score for each class.
        """
        scores = self._scores(X)
        return class_scores(scores, len(self.classes_), self._one_vs_one)

    def predict(self, X: Any) -> np.ndarray:
        """Return the class with the largest score.

        Parameters
        ----------
        X : array-like of shape (n, n_features), or sequence of arrays of shape (n, n_samples)
            Rows; with `kernels="precomputed"`, their kernel values with all training rows.

        Returns
        -------
        ndarray of shape (n,)
            A label for each row.
        """
        scores = self.decision_function(X)
        return scores_to_labels(self.classes_, scores)

    def _fit_plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> FitPlan:
        """Return the memory plan of a fit of `n` rows and `d` features; `MemoryError` if `memory_budget` is too small."""
        itemsize = np.dtype(dtype).itemsize
        if isinstance(self.kernels, str):
            memory = svm_memory(self.memory_budget, Precomputed(), n, d, itemsize)
            memory.parts["kernel matrices"] = n * n * itemsize  # the weighted sum; the matrices in `X` are counted as data
            return FitPlan(memory)
        given = [RBF(1.0)] * len(_DEFAULT_GAMMAS) if self.kernels is None else self.kernels
        kernels = [as_kernel(kernel) for kernel in given]
        memory = svm_memory(self.memory_budget, weighted_sum(kernels, np.ones(len(kernels))), n, d, itemsize)
        available = parse_budget(self.memory_budget) - memory.nbytes + memory.parts["kernel rows"]
        needed = StoredKernels.nbytes(n, len(kernels), itemsize)
        if self._can_store(needed, available):
            memory.parts["kernel matrices"] = needed
            memory.parts["kernel rows"] = int(min(memory.parts["kernel rows"], available - needed))
        return FitPlan(memory)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = not isinstance(self.kernels, str)
        return tags

    @property
    def _one_vs_one(self) -> bool:
        """Whether the model is one-vs-one with more than two classes, with a two-class problem for each pair of classes."""
        return self.multi_class == "ovo" and len(self.classes_) > 2

    def _check_settings(self) -> None:
        """Raise ValueError for combinations of parameters that cannot be fitted."""
        if self.weight_penalty is not None and self.p != 2:
            raise ValueError(f"weight_penalty penalises the squared weights and needs p=2, got p={self.p!r}")
        if self.solver == "simple_smo" and self.weight_penalty is None:
            raise ValueError("solver='simple_smo' learns penalised weights: set weight_penalty, or use solver='smo'")
        if self.kernels is not None and not len(self.kernels):
            raise ValueError("kernels is empty: give at least one kernel")

    def _kernel_list(self, X: Any) -> list[Kernel]:
        if self.kernels is None:
            gamma = resolve_gamma("scale", X)
            return [RBF(gamma * factor) for factor in _DEFAULT_GAMMAS]
        return [as_kernel(kernel) for kernel in self.kernels]

    def _check_rows(self, X: Any, *, reset: bool) -> Any:
        dtype = working_dtype(X, self.dtype) if reset else self.support_vectors_.dtype
        return xa.to_numpy(check_X(self, X, dtype=dtype, accept_sparse=False, reset=reset))

    def _check_grams(self, X: Any, *, reset: bool) -> list[np.ndarray]:
        dtype = working_dtype(X[0], self.dtype) if reset else self.support_vectors_.dtype
        grams = [check_array(gram, dtype=dtype) for gram in X]
        shapes = {gram.shape for gram in grams}
        expected = "square Gram matrices of one size" if reset else f"{self.weights_.size} matrices K(test, train)"
        if len(shapes) != 1 or (reset and grams[0].shape[0] != grams[0].shape[1]):
            raise ValueError(f"kernels='precomputed' expects {expected}, got shapes {sorted(shapes)}")
        if not reset and (len(grams) != self.weights_.size or grams[0].shape[1] != self.n_features_in_):
            raise ValueError(f"expected {expected} with {self.n_features_in_} columns, got {len(grams)} of {shapes.pop()}")
        if reset:
            self.n_features_in_ = grams[0].shape[1]
        return grams

    def _can_store(self, needed: float, available: float) -> bool:
        """Return whether the Gram matrices fit in memory; raise MemoryError if `solver` needs matrices that do not fit."""
        fits = needed <= TUNING.stored_kernels_fraction * available
        if not fits and self.solver == "simple_smo":
            raise MemoryError("solver='simple_smo' stores every Gram matrix: use solver='smo' or raise memory_budget")
        return fits

    def _stack(self, kernels: list[Kernel], X: Any, n: int, seed: int) -> tuple[StoredKernels | StreamedKernels, DualFit]:
        """Return the kernels, as Gram matrices if these fit in memory, and the inputs of the two-class problems."""
        solver = make_solver(self.solver, self.tol, self.max_iter if self.solver == "simple_smo" else None)
        if isinstance(X, list):
            grams = [xa.to_numpy(k.block(part, slice(0, n), slice(0, n))) for k, part in zip(kernels, X, strict=True)]
            workers = row_workers(Precomputed(), grams[0])
            budget = row_budget(self.memory_budget, Precomputed(), grams[0], workers)
            return StoredKernels(grams, 1), DualFit(Precomputed(), grams[0], solver, budget, workers, seed)
        streamed = StreamedKernels(kernels, X)
        total, _ = streamed.combined(np.ones(len(kernels)))
        workers = row_workers(total, X)
        fit = DualFit(total, X, solver, row_budget(self.memory_budget, total, X, workers), workers, seed)
        needed = StoredKernels.nbytes(n, len(kernels), X.dtype.itemsize)
        if not self._can_store(needed, fit.budget):
            return streamed, fit
        return StoredKernels.of(kernels, X), replace(fit, budget=fit.budget - needed)

    def _learn(
        self, kernels: StoredKernels | StreamedKernels, fit: DualFit, codes: np.ndarray, C: np.ndarray
    ) -> KernelWeights:
        """Learn weights and classifier; a record is added to `history_` before each call of the callback."""
        callbacks, label = read_functions(self), type(self).__name__
        decomposition: dict[str, Any] = {
            "n_classes": len(self.classes_),
            "one_vs_one": self.multi_class == "ovo",
            "positive_weight": self.positive_weight,
            "penalty": self.weight_penalty,
        }
        self.history_: list[dict[str, Any]] = []

        def on_iteration(record: dict[str, Any]) -> bool:
            self.history_.append(record)
            return callbacks(self, record)

        def on_sweep(found: dict[str, Any]) -> bool:
            return on_iteration({"n_iter": found["n_iter"], "seconds": found["seconds"], "gap": found["violation"]})

        max_iter = self.max_iter or TUNING.max_alternations
        if isinstance(kernels, StoredKernels) and self.solver == "simple_smo":
            with SolverProgress(callback=on_sweep, verbose=self.verbose, label=label) as progress:
                learnt = learn_by_pairs(kernels, replace(fit, progress=progress), codes, C, **decomposition)
            if progress.stopped_by_callback:
                return learnt
        else:
            with Progress(self.verbose, max_iter, label) as progress_bar:

                def on_alternation(record: dict[str, Any]) -> bool:
                    progress_bar.update(record)
                    return on_iteration(record)

                learnt = learn_by_alternation(
                    kernels,
                    fit,
                    codes,
                    C,
                    p=self.p,
                    weight_tol=self.weight_tol,
                    max_iter=max_iter,
                    on_iteration=on_alternation,
                    **decomposition,
                )
        if learnt.converged:
            warn_unless_converged(learnt.model.solutions, self.tol)
        else:
            warn_caller(
                f"kernel weights stopped after {max_iter} alternations at a relative gap of {learnt.gap:.3g} "
                f"(weight_tol={self.weight_tol:g}); raise max_iter or weight_tol.",
                ConvergenceWarning,
            )
        return learnt

    def _scores(self, X: Any) -> np.ndarray:
        """Return the decision values of the two-class problems, with one column for each problem."""
        check_is_fitted(self, "dual_coef_")
        if isinstance(self.kernels, str):
            grams = self._check_grams(X, reset=False)
            scales = (self.weights_ * self._scales).astype(grams[0].dtype)
            columns = sum(scale * gram[:, self.support_] for scale, gram in zip(scales, grams, strict=True))
        else:
            columns = self._check_rows(X, reset=False)
            columns = columns if self.kernel_.uses_points else columns[:, self.support_]
        model = SupportVectorModel(self.support_, self.n_support_, self.dual_coef_, self.intercept_, [])
        return problem_scores(self.kernel_, columns, self.support_vectors_, model)


def _unit_diagonal(kernel: Kernel, X: Any, weights: np.ndarray | None) -> Kernel:
    """Return the kernel divided by the weighted mean of its diagonal."""
    mean = float(np.average(xa.astype(kernel.diag(X), np.float64), weights=weights))
    if not mean > 0:
        raise ValueError(f"cannot normalise {kernel!r}: the mean of its diagonal is {mean:g}")
    return Scaled(kernel, 1.0 / mean)
