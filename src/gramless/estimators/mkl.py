"""Multiple kernel learning: a support vector machine that weighs its kernels.

    K = sum_m d_m K_m,  d >= 0,  ||d||_p <= 1

The weights and the machine minimise the same objective. For a fixed machine the best weights are closed-form: with
`||w_m||^2 = d_m^2 sum beta' K_m beta`, they are `d_m ~ ||w_m||^(2 / (p + 1))`; for fixed weights the machine is a
support vector machine, solved from where the last one stood. Alternating the two converges; the gap between

    upper = sum linear' beta - sum_m d_m S_m / 2
    lower = sum linear' beta - ||S||_q / 2,        S_m = sum beta' K_m beta,  1/p + 1/q = 1

bounds the distance from the optimum. `p = 1` selects few kernels, larger p spreads. With
`weight_penalty` the constraint is replaced by the penalty `weight_penalty ||d||^2 / 2`, where `d = S / (2
penalty)` at the optimum and the alternation uses `d_m = (||w_m||^2 / (2 penalty))^(1/3)`.

Cost: a few to a few dozen warm-started machines.

References: Kloft, Brefeld, Sonnenburg and Zien (2011), lp-norm multiple kernel learning; for the penalty, Sun, Ampornpunt,
Varma and Vishwanathan (2010), Multiple kernel learning and the SMO algorithm.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from itertools import combinations
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.doc_links import link_documentation
from gramless._core.memory import parse_budget
from gramless._core.progress import Progress
from gramless._core.validation import (
    atomic_fit,
    check_choice,
    check_labels,
    check_positive,
    check_weights,
    check_X,
    working_dtype,
)
from gramless.kernels import RBF, Kernel, Precomputed, Scaled, as_kernel
from gramless.kernels.bandwidth import resolve_gamma
from gramless.linalg.planning.plan import FitPlan
from gramless.models.expansion import scores_to_labels
from gramless.models.support_machine import check_class_bounds, functions_to_call, support_vectors
from gramless.svm.box_qp import BoxQP
from gramless.svm.kernel_stack import HeldKernels, StreamedKernels, weighted_sum
from gramless.svm.mkl_smo import MKLSMO
from gramless.svm.problems import (
    DUAL_SOLVERS,
    Machine,
    Resources,
    machine_memory,
    machine_scores,
    make_solver,
    row_resources,
    solve_machine,
    votes,
    warn_unless_converged,
)
from gramless.svm.watch import Watch

_SHARE_OF_BUDGET = 0.7
_MAX_ALTERNATIONS = 200
# Of the kernels that are combined by default, in units of gamma="scale".
_WIDTHS = (0.1, 1.0, 10.0)


@link_documentation
class MKLClassifier(ClassifierMixin, BaseEstimator):
    """Support vector classifier on a learnt weighted sum of kernels.

    Parameters
    ----------
    kernels : list of (str, Kernel or callable), "precomputed" or None, default=None
        Use `Columns` for kernels on different features. With "precomputed", `X` is a sequence of Gram matrices. None is
        three Gaussians, a tenth, one and ten times as narrow as `gamma="scale"`.
    C : float, default=1.0
        Upper bound of the multipliers: larger fits the training data more closely.
    p : float, default=2.0
        The norm of the weights that is one: 1 is sparse, larger spreads.
    weight_penalty : float or None, default=None
        Penalise `weight_penalty ||d||^2 / 2` instead of fixing a norm.
    normalise : bool, default=True
        Divide each kernel by its mean diagonal, so that weights compare.
    solver : {"smo", "simple_smo"}, default="smo"
        Alternation on the fast solver, or pairwise steps with a cubic line search (small data, needs `weight_penalty`).
    tol : float, default=1e-3
        Largest violation of the optimality conditions of each machine.
    weight_tol : float, default=1e-3
        Relative gap (or, with `weight_penalty`, relative change of the weights) at which alternating stops.
    max_iter : int or None, default=None
        Most alternations, by default 200; for `"simple_smo"` most pairs moved.
    multi_class : {"ovo", "ovr"}, default="ovo"
        One problem for each pair of classes, or for each class against the others; all share one set of weights.
    class_weight : dict, "balanced" or None, default=None
        Multiplies `C` class by class.
    positive_weight : float, default=1.0
        Multiplies `C` for the positive side of each one-vs-rest problem, or for `classes_[1]` of two classes.
    memory_budget : str, float or None, default=None
        Memory for kernel values: "4GB", bytes, or a fraction of what is free. Gram matrices are held where it allows.
    dtype : {"float32", "float64", None}, default=None
        Precision of kernel values; by default that of the data.
    callback : callable(estimator, record) -> bool, or list of them, optional
        Called after each alternation (for `"simple_smo"`, each sweep) with what `history_` will hold. A true answer ends the
        fit with the weights and the machine of that moment.
    verbose : int, default=0
        1 shows progress.
    random_state : int, RandomState or None, default=None
        Draws the first working sets.

    Attributes
    ----------
    weights_ : ndarray of shape (n_kernels,)
        Weights of the normalised kernels.
    kernel_ : Kernel
        Their sum, with every setting a number.
    gap_ : float
        What `weight_tol` bounds, as reached.
    n_iter_ : int
        Alternations, or sweeps' moves for `"simple_smo"`.
    history_ : list of dict
        One record for each alternation or sweep: `n_iter`, `seconds` (callbacks excluded) and `gap`.
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    support_ : ndarray of shape (n_SV,)
        Indices of the support vectors, class by class.
    support_vectors_ : ndarray of shape (n_SV, n_features)
        With precomputed kernels, an empty array.
    n_support_ : ndarray of shape (n_classes,)
        Support vectors of each class.
    dual_coef_ : ndarray of shape (n_classes - 1, n_SV), or (n_classes, n_SV) for one-vs-rest
        Multipliers times labels; in one-vs-one, a vector's coefficients against the other classes in their order.
    intercept_ : ndarray of shape (n_problems,)
        The bias of each two-class problem.
    n_features_in_ : int
        Columns of `X` at fit, or of each Gram matrix.
    feature_names_in_ : ndarray of shape (n_features,)
        Their names, where `X` had names.

    See Also
    --------
    KernelSVC : A support vector classifier with one kernel, or a sum with given weights.

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

    n_features_in_: int

    def __init__(
        self,
        kernels: Sequence[Any] | str | None = None,
        *,
        C: float = 1.0,
        p: float = 2.0,
        weight_penalty: float | None = None,
        normalise: bool = True,
        solver: str = "smo",
        tol: float = 1e-3,
        weight_tol: float = 1e-3,
        max_iter: int | None = None,
        multi_class: str = "ovo",
        class_weight: dict[Any, float] | str | None = None,
        positive_weight: float = 1.0,
        memory_budget: str | float | None = None,
        dtype: str | None = None,
        callback: Any = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.kernels = kernels
        self.C = C
        self.p = p
        self.weight_penalty = weight_penalty
        self.normalise = normalise
        self.solver = solver
        self.tol = tol
        self.weight_tol = weight_tol
        self.max_iter = max_iter
        self.multi_class = multi_class
        self.class_weight = class_weight
        self.positive_weight = positive_weight
        self.memory_budget = memory_budget
        self.dtype = dtype
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state

    @atomic_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MKLClassifier:
        """Learn the weights and the machine.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or sequence of arrays of shape (n_samples, n_samples)
            Training points; with `kernels="precomputed"`, Gram matrices.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            Multiplies `C` sample by sample.

        Returns
        -------
        MKLClassifier
            This estimator, fitted.
        """
        self._check_settings()
        held = isinstance(self.kernels, str)
        X = self._check_grams(X, reset=True) if held else self._check_points(X)
        n = X[0].shape[0] if held else X.shape[0]
        self.classes_, codes = check_labels(y, n)
        weights = check_weights(sample_weight, np.empty((n, 1)), codes, self.classes_, self.class_weight)
        C = self.C * (np.ones(n) if weights is None else weights)
        check_class_bounds(self.classes_, codes, C, self.positive_weight, self._is_one_vs_one)

        kernels = [Precomputed() for _ in X] if held else [k.resolve(X) for k in self._kernel_list(X)]
        if self.normalise:
            inputs = X if held else [X] * len(kernels)
            kernels = [_unit_diagonal(k, part, weights) for k, part in zip(kernels, inputs, strict=True)]
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        stack, resources = self._stack(kernels, X, n, seed)
        learn = self._learn_by_pairs if self.solver == "simple_smo" else self._alternate
        self.weights_, machine = learn(stack, codes, C, resources)
        self._scales = np.array([getattr(k, "scale", 1.0) for k in kernels]) if held else np.ones(len(kernels))
        self.kernel_ = Precomputed() if held else weighted_sum(kernels, self.weights_)
        self.support_ = machine.support
        self.n_support_ = machine.n_support
        self.dual_coef_ = machine.dual_coef
        self.intercept_ = machine.intercept
        self.support_vectors_ = support_vectors(X[0] if held else X, machine.support, self.kernel_)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of the classes.

        Parameters
        ----------
        X : array-like of shape (n, n_features), or sequence of arrays of shape (n, n_samples)
            Points; with `kernels="precomputed"`, their kernel values with all training points.

        Returns
        -------
        ndarray of shape (n,) or (n, n_classes)
            For two classes one score, positive for `classes_[1]`; for more a score for each class.
        """
        scores = self._scores(X)
        if len(self.classes_) == 2:
            return scores[:, 0]
        return votes(scores, len(self.classes_)) if self._is_one_vs_one else scores

    def predict(self, X: Any) -> np.ndarray:
        """The class of the largest score.

        Parameters
        ----------
        X : array-like of shape (n, n_features), or sequence of arrays
            As in `decision_function`.

        Returns
        -------
        ndarray of shape (n,)
            A label for each row.
        """
        scores = self.decision_function(X)
        return scores_to_labels(self.classes_, scores)

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
        itemsize = np.dtype(dtype).itemsize
        if isinstance(self.kernels, str):
            memory = machine_memory(self.memory_budget, Precomputed(), n, d, itemsize)
            memory.parts["kernel matrices"] = n * n * itemsize  # their sum; they themselves are the data
            return FitPlan(memory)
        given = [RBF(1.0)] * len(_WIDTHS) if self.kernels is None else self.kernels
        kernels = [as_kernel(kernel) for kernel in given]
        memory = machine_memory(self.memory_budget, weighted_sum(kernels, np.ones(len(kernels))), n, d, itemsize)
        left = parse_budget(self.memory_budget) - memory.nbytes + memory.parts["kernel rows"]
        needed = HeldKernels.nbytes(n, len(kernels), itemsize)
        if needed <= _SHARE_OF_BUDGET * left:
            memory.parts["kernel matrices"] = needed
            memory.parts["kernel rows"] = int(min(memory.parts["kernel rows"], left - needed))
        elif self.solver == "simple_smo":
            raise MemoryError("solver='simple_smo' holds every Gram matrix: use solver='smo' or raise memory_budget")
        return FitPlan(memory)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = not isinstance(self.kernels, str)
        return tags

    @property
    def _is_one_vs_one(self) -> bool:
        return self.multi_class == "ovo" and len(self.classes_) > 2

    def _check_settings(self) -> None:
        for name in ("C", "tol", "weight_tol", "positive_weight"):
            check_positive(name, getattr(self, name))
        if self.max_iter is not None:
            check_positive("max_iter", self.max_iter, integer=True)
        check_choice("solver", self.solver, DUAL_SOLVERS)
        if self.weight_penalty is not None:
            check_positive("weight_penalty", self.weight_penalty)
        check_choice("multi_class", self.multi_class, ("ovo", "ovr"))
        if not isinstance(self.p, Real) or not 1 <= self.p < np.inf:
            raise ValueError(f"p must be a finite number of at least 1, got {self.p!r}")
        if self.weight_penalty is not None and self.p != 2:
            raise ValueError(f"weight_penalty penalises the squared weights and needs p=2, got p={self.p!r}")
        if self.solver == "simple_smo" and self.weight_penalty is None:
            raise ValueError("solver='simple_smo' learns penalised weights: set weight_penalty, or use solver='smo'")
        if isinstance(self.kernels, str):
            check_choice("kernels", self.kernels, ("precomputed",))
        elif self.kernels is not None and not len(self.kernels):
            raise ValueError("kernels is empty: give at least one kernel")

    def _kernel_list(self, X: Any) -> list[Kernel]:
        if self.kernels is None:
            gamma = resolve_gamma("scale", X)
            return [RBF(gamma * factor) for factor in _WIDTHS]
        return [as_kernel(kernel) for kernel in self.kernels]

    def _check_points(self, X: Any, reset: bool = True) -> Any:
        dtype = working_dtype(X, self.dtype) if reset else self.support_vectors_.dtype
        X = check_X(self, X, dtype=dtype, accept_sparse=False, reset=reset)
        return xa.to_numpy(X)

    def _check_grams(self, X: Any, reset: bool) -> list[np.ndarray]:
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

    def _stack(self, kernels: list[Kernel], X: Any, n: int, seed: int) -> tuple[Any, Resources]:
        """Gram matrices in memory where they fit, else kernels; and the resources left for the machines."""
        if isinstance(X, list):
            grams = [xa.to_numpy(k.block(part, slice(0, n), slice(0, n))) for k, part in zip(kernels, X, strict=True)]
            return HeldKernels(grams, 1), row_resources(self.memory_budget, Precomputed(), grams[0], seed)
        streamed = StreamedKernels(kernels, X)
        resources = row_resources(self.memory_budget, streamed.combined(np.ones(len(kernels)))[0], X, seed)
        needed = HeldKernels.nbytes(n, len(kernels), X.dtype.itemsize)
        if needed > _SHARE_OF_BUDGET * resources.budget:
            if self.solver == "simple_smo":
                raise MemoryError("solver='simple_smo' holds every Gram matrix: use solver='smo' or raise memory_budget")
            return streamed, resources
        return HeldKernels.of(kernels, X), Resources(resources.budget - needed, resources.workers, seed)

    def _alternate(self, stack: Any, codes: np.ndarray, C: np.ndarray, resources: Resources) -> tuple[np.ndarray, Machine]:
        """Solve for the machine, update the weights, until the gap closes."""
        solver = make_solver("smo", self.tol, None)
        machine = None
        n_kernels = len(stack.kernels if isinstance(stack, StreamedKernels) else stack.grams)
        weights = np.full(n_kernels, float(n_kernels) ** (-1 / self.p))
        limit = self.max_iter or _MAX_ALTERNATIONS
        seconds, self.history_, ask = 0.0, [], functions_to_call(self)
        with Progress(self.verbose, limit, type(self).__name__) as progress:
            for self.n_iter_ in range(1, limit + 1):
                clock = time.perf_counter()
                kernel, X = stack.combined(weights)
                machine = solve_machine(
                    kernel,
                    X,
                    codes,
                    C,
                    solver,
                    resources,
                    n_classes=len(self.classes_),
                    one_vs_one=self.multi_class == "ovo",
                    positive_weight=self.positive_weight,
                    start=machine,
                )
                S = np.maximum(stack.energies(machine), 0)
                updated, self.gap_ = self._update(weights, S, sum(s.objective for s in machine.solutions))
                seconds += time.perf_counter() - clock
                record = {"n_iter": self.n_iter_, "seconds": seconds, "gap": self.gap_}
                self.history_.append(record)
                progress.update(record)
                stopped = ask is not None and ask(record)
                if self.gap_ <= self.weight_tol or stopped:
                    warn_unless_converged(machine.solutions, self.tol)
                    return weights, machine
                if self.n_iter_ < limit:
                    weights = updated
        warnings.warn(
            f"kernel weights stopped after {limit} alternations at a relative gap of {self.gap_:.3g} "
            f"(weight_tol={self.weight_tol:g}); raise max_iter or weight_tol.",
            ConvergenceWarning,
            stacklevel=3,
        )
        assert machine is not None
        return weights, machine

    def _update(self, weights: np.ndarray, S: np.ndarray, objective: float) -> tuple[np.ndarray, float]:
        """The next weights and how far the present ones are from optimal."""
        norms = weights**2 * S
        if self.weight_penalty is not None:
            updated = np.cbrt(norms / (2 * self.weight_penalty))
            return updated, float(np.abs(S / (2 * self.weight_penalty) - weights).max() / max(weights.max(), 1e-300))
        best = S.max() if self.p == 1 else np.sum(S ** (self.p / (self.p - 1))) ** (1 - 1 / self.p)
        gap = 0.5 * (best - weights @ S) / max(abs(objective), 1e-300)
        if not norms.any():
            return weights, float(gap)
        updated = (norms / norms.max()) ** (1 / (self.p + 1))
        return updated / np.sum(updated**self.p) ** (1 / self.p), float(gap)

    def _learn_by_pairs(
        self, stack: HeldKernels, codes: np.ndarray, C: np.ndarray, resources: Resources
    ) -> tuple[np.ndarray, Machine]:
        """Pairwise steps with a cubic line search."""
        k, n = len(self.classes_), len(codes)
        pairs = list(combinations(range(k), 2)) if self._is_one_vs_one else []
        positives = [i for i, _ in pairs] or (list(range(k)) if k > 2 else [1])
        members = [np.flatnonzero(np.isin(codes, pair)) for pair in pairs] or [np.arange(n)] * len(positives)
        problems = []
        for positive, points in zip(positives, members, strict=True):
            y = np.where(codes[points] == positive, 1.0, -1.0)
            problems.append((BoxQP.classification(y, C[points] * np.where(y > 0, self.positive_weight, 1.0)), points))
        assert self.weight_penalty is not None
        limit = {} if self.max_iter is None else {"max_iter": self.max_iter}
        solver = MKLSMO(self.weight_penalty, tol=self.tol, **limit)
        self.history_, ask = [], functions_to_call(self)

        def after_a_sweep(found: dict[str, Any]) -> bool:
            record = {"n_iter": found["n_iter"], "seconds": found["seconds"], "gap": found["violation"]}
            self.history_.append(record)
            return ask is not None and ask(record)

        with Watch(len(problems), callback=after_a_sweep, verbose=self.verbose, label=type(self).__name__) as watch:
            solutions, weights = solver.maximise(problems, stack.grams, np.random.default_rng(resources.seed), watch)
        if not watch.by_callback:
            warn_unless_converged(solutions, self.tol)
        beta = np.zeros((k - 1 if pairs else len(problems), n))
        for number, (solution, points) in enumerate(zip(solutions, members, strict=True)):
            if pairs:
                i, j = pairs[number]
                first = codes[points] == i
                beta[j - 1, points[first]] = solution.beta[first]
                beta[i, points[~first]] = solution.beta[~first]
            else:
                beta[number] = solution.beta
        self.gap_ = max(solution.violation for solution in solutions)
        self.n_iter_ = sum(solution.n_iter for solution in solutions)
        order = np.argsort(codes, kind="stable")
        support = order[np.any(beta[:, order] != 0, axis=0)]
        counts = np.bincount(codes[support], minlength=k)
        intercept = np.array([solution.bias for solution in solutions])
        return weights, Machine(support, counts, beta[:, support], intercept, solutions)

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "dual_coef_")
        if isinstance(self.kernels, str):
            grams = self._check_grams(X, reset=False)
            scales = (self.weights_ * self._scales).astype(grams[0].dtype)
            columns = sum(scale * gram[:, self.support_] for scale, gram in zip(scales, grams, strict=True))
        else:
            columns = self._check_points(X, reset=False)
            columns = columns if self.kernel_.uses_points else columns[:, self.support_]
        machine = Machine(self.support_, self.n_support_, self.dual_coef_, self.intercept_, [])
        return machine_scores(self.kernel_, columns, self.support_vectors_, machine)


def _unit_diagonal(kernel: Kernel, X: Any, weights: np.ndarray | None) -> Kernel:
    """The kernel divided by its (weighted) mean diagonal."""
    mean = float(np.average(xa.astype(kernel.diag(X), np.float64), weights=weights))
    if not mean > 0:
        raise ValueError(f"cannot normalise {kernel!r}: the mean of its diagonal is {mean:g}")
    return Scaled(kernel, 1.0 / mean)
