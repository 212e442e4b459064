"""The least-squares support vector machine, for classes and for values.

    min_f  1/2 ||f||^2 + C/2 sum_i w_i (z_i - f(x_i) - b)^2

has the solution `f = sum_i a_i K(., x_i)` with `(K + diag(1 / (C w_i))) a + b = z` and `sum_i a_i = 0` (Suykens and
Vandewalle 1999; Suykens et al. 2002 for weights). The bias costs one more right-hand side: solve `A [V, u] = [Z, 1]`, then
`b = sum V / sum u` and `a = V - u b`. All classes, or all outputs, share every product with `A`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from gramless import _array as xa
from gramless._array import Array
from gramless._dask import fits_collections
from gramless._memory import parse_budget
from gramless._progress import say
from gramless._validation import (
    all_or_nothing,
    check_choice,
    check_labels,
    check_outputs,
    check_positive,
    check_square,
    check_weights,
    check_X,
    working_dtype,
)
from gramless.estimators.expansion import ExpansionClassifier, ExpansionRegressor, KernelExpansion, scores_to_labels
from gramless.estimators.leave_one_out import leave_one_out_scores
from gramless.estimators.make_solver import blocks_of, make_solver
from gramless.estimators.plan import Plan, make_plan, sizes
from gramless.estimators.platt import fit_sigmoids
from gramless.estimators.system import LinearSystem
from gramless.operators import KernelOperator, expand
from gramless.solvers import SOLVERS, Checkpoint, Solver, SolveResult, fingerprint, solve
from gramless.targets import class_targets

_PARAMETERS = """C : float, default=1.0
        Regularisation: the ridge on the kernel's diagonal is `1 / C`. Larger fits closer.
    kernel : str, Kernel or callable, default="rbf"
        `"linear"`, `"poly"`, `"rbf"`, `"laplacian"`, `"precomputed"`, a `gramless.kernels` expression, or `f(X, Y)`.
    degree, gamma, coef0
        Settings of a kernel given by name, as in `sklearn.svm.SVC`.
    solver : str or Solver, default="auto"
        `"cholesky"` is exact; `"cg"` is block conjugate gradients with a Nyström preconditioner; `"auto"` chooses from
        the sizes, the memory and the device, and says in `solver_` what it chose. The randomised `"matching_pursuit"`,
        `"kaczmarz"`, `"kaczmarz_mp"` and `"nystrom_committee"` (whose members `max_iter` counts) read a block of rows at
        a time; a `Solver` instance brings its own settings.
    tol : float, default=1e-3
        Relative residual `||Z - A W|| / ||Z||` at which an iterative solver stops.
    max_iter : int or None, default=None
        Limit on iterations; None is the solver's own.
    block_size : int, sequence of int or None, default=None
        Rows in a block, for the solvers that work by blocks; None is the solver's own, or less where `memory_budget` says
        so. A sequence has one for each of the `n_estimators`.
    n_estimators : int, default=1
        Runs of a randomised solver, each with its own blocks, whose mean is the model: steadier, at the same cost of
        prediction.
    n_landmarks, damping : default="auto"
        Of the preconditioner of `"cg"`; see `gramless.operators.nystrom`.
    early_stopping : bool, default=False
        Stop on the error of a held-out part (`validation_fraction`) after `n_iter_no_change` iterations without a better
        one, and return the best.
    dtype : {"float32", "float64"} or None, default=None
        None computes float32 and byte data in float32 and everything else in float64.
    device : {"cpu", "cuda", "auto"} or None, default=None
        Where to compute; None follows the data.
    precision : {"highest", "high", "medium"}, default="highest"
        Of streamed products and predictions on a CUDA device: float32, or a fused kernel on the tensor cores with a relative
        error of about 2e-5 or 1e-3.
    storage : {None, "float16", "bfloat16"}, default=None
        Half-precision cache of the kernel matrix on a CUDA device: half the memory, entries rounded to 5e-4 or 4e-3.
    memory_budget : str, int, float or None, default=None
        Bound on the peak of what a fit allocates: `"4GB"`, bytes, a fraction of what is free; None is 70 % of it.
    warm_start : bool, default=False
        Start from the last solution when the data has the same number of rows.
    checkpoint : path or None, default=None
        Where to save the state every `checkpoint_every` iterations. A fit that finds such a file of its own goes on from
        there; it is removed when the fit ends.
    callback : callable(estimator, record) -> bool, optional
        Called after each iteration with an estimator that can already predict; a true answer stops the fit.
    verbose : int, default=0
    random_state : int, RandomState or None, default=None"""


class LeastSquaresMachine(KernelExpansion):
    """The fit that `LSSVC` and `LSSVR` share: from a target matrix to coefficients and bias."""

    def __init__(
        self,
        *,
        C: float = 1.0,
        kernel: Any = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        solver: str | Solver = "auto",
        tol: float = 1e-3,
        max_iter: int | None = None,
        block_size: int | Sequence[int] | None = None,
        n_estimators: int = 1,
        n_landmarks: int | str = "auto",
        damping: float | str = "auto",
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        dtype: Any = None,
        device: str | None = None,
        precision: str = "highest",
        storage: str | None = None,
        memory_budget: str | float | None = None,
        warm_start: bool = False,
        checkpoint: Any = None,
        checkpoint_every: int = 10,
        callback: Callable[..., Any] | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.block_size = block_size
        self.n_estimators = n_estimators
        self.n_landmarks = n_landmarks
        self.damping = damping
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.dtype = dtype
        self.device = device
        self.precision = precision
        self.storage = storage
        self.memory_budget = memory_budget
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state

    def plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> Plan:
        """How a fit of this size would be solved, or a `MemoryError` that says why it cannot be."""
        name = self.solver if isinstance(self.solver, str) else "custom"
        if name not in ("auto", "custom"):
            check_choice("solver", name, {"auto", *SOLVERS})
        budget = parse_budget(self.memory_budget, device)
        size = sizes(n, d, n_outputs, dtype, device, self._kernel(), self.storage, self.precision)
        return make_plan(
            size,
            name,
            budget,
            n_landmarks=self.n_landmarks,
            blocks=blocks_of(self.solver, self.block_size, self.n_estimators),
        )

    def _check_X(self, X: Any) -> Array:
        check_positive("C", self.C)
        check_positive("tol", self.tol)
        kernel = self._kernel()
        dtype = working_dtype(X, self.dtype)
        checked = check_X(self, X, dtype=dtype, reset=True, accept_sparse=kernel.accepts_sparse)
        if not kernel.separable:
            check_square(checked)
        return checked

    def _fit(self, X: Array, Z: np.ndarray, weights: np.ndarray | None) -> None:
        """Solve for the targets `Z` and set the model."""
        rng = check_random_state(self.random_state)
        self.device_ = xa.resolve_device(self.device, X)
        kept = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights)
        train, held_out = self._split(kept, rng)
        kernel = self._kernel()
        self.kernel_ = kernel.resolve(X, weights)
        dtype = xa.numpy_dtype(X)
        plan = self.plan(len(train), X.shape[1], Z.shape[1], dtype, self.device_)
        self.solver_ = plan.solver if plan.solver != "custom" else type(self.solver).__name__
        self.solver_reason_ = plan.reason
        say(self.verbose, f"solver {self.solver_}: {plan.reason}; peak {plan.memory}")

        points = X if len(train) == X.shape[0] else _subset(X, train, kernel.separable)
        self.support_ = train
        self.points_ = points if kernel.separable else np.empty((len(train), 0), dtype)
        on_device = xa.to_device(points, self.device_, dtype)
        ridge = 1.0 / (self.C * (np.ones(len(train)) if weights is None else weights[train]))
        op = KernelOperator(
            on_device, self.kernel_, ridge, cache=plan.cached, precision=self.precision, storage=self.storage
        )
        solver = make_solver(self, plan, op, rng)
        system = LinearSystem(op, Z[train], bordered=not solver.needs_spd)
        result = solve(
            system.op,
            system.rhs,
            solver,
            W0=self._start(system.rhs),
            callback=self._wrapped_callback(system),
            monitor=self._monitor(system, X, Z, train, held_out) if held_out is not None else None,
            patience=self.n_iter_no_change,
            random_state=rng,
            checkpoint=self._checkpoint(points, Z, ridge, solver),
            verbose=self.verbose,
            label=f"{type(self).__name__} {self.solver_}",
        )
        self.dual_coef_, self.intercept_ = system.split(result.W)
        self.history_, self.n_iter_, self.residual_ = result.history, result.n_iter, result.residual
        if not result.converged:
            self._warn(system, result)
        if kernel.separable:
            self._keep_on_device(on_device)
        if self.warm_start:
            self._solution = xa.to_numpy(result.W)
        self._op = op

    def _split(self, kept: np.ndarray, rng: np.random.RandomState) -> tuple[np.ndarray, np.ndarray | None]:
        if not self.early_stopping:
            return kept, None
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must be between 0 and 1, got {self.validation_fraction!r}")
        n_held_out = max(1, round(self.validation_fraction * len(kept)))
        if len(kept) - n_held_out < 2:
            raise ValueError(f"early_stopping needs more than {len(kept)} samples")
        shuffled = rng.permutation(kept)
        return np.sort(shuffled[n_held_out:]), np.sort(shuffled[:n_held_out])

    def _start(self, rhs: Array) -> Array:
        last = getattr(self, "_solution", None) if self.warm_start else None
        return last if last is not None and last.shape == tuple(rhs.shape) else None

    def _wrapped_callback(self, system: LinearSystem) -> Callable[[Array, dict[str, Any]], bool] | None:
        if self.callback is None:
            return None
        callback = self.callback

        def call(W: Array, record: dict[str, Any]) -> bool:
            self.dual_coef_, self.intercept_ = system.split(W)
            return bool(callback(self, record))

        return call

    def _monitor(
        self, system: LinearSystem, X: Array, Z: np.ndarray, train: np.ndarray, held_out: np.ndarray
    ) -> Callable[[Array], float]:
        kernel = self.kernel_
        if kernel.separable:
            validation = xa.to_device(xa.take_rows(X, held_out), self.device_)
            points = xa.to_device(self.points_, self.device_)
        else:
            validation, points = X[np.ix_(held_out, train)], self.points_

        def error(W: Array) -> float:
            coef, bias = system.split(W)
            scores = xa.to_numpy(expand(kernel, validation, points, xa.to_device(coef, self.device_))) + bias
            return self._validation_error(scores, Z[held_out])

        return error

    def _validation_error(self, scores: np.ndarray, Z: np.ndarray) -> float:
        return float(np.mean((scores - Z) ** 2))

    def _checkpoint(self, points: Array, Z: np.ndarray, ridge: np.ndarray, solver: Solver) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        settings = {k: v for k, v in solver.get_params().items() if k != "preconditioner"}
        problem = fingerprint(points, Z, ridge, repr(self.kernel_), type(solver).__name__, sorted(settings.items()))
        return Checkpoint(self.checkpoint, problem, self.checkpoint_every)

    def _warn(self, system: LinearSystem, result: SolveResult) -> None:
        if system.bordered:
            # A product would cost as much as a whole pass of blocks, and such solves are often ended by max_iter on purpose.
            residual, which = result.residual, "estimated"
        else:
            residual, which = xa.norm(system.rhs - system.op @ result.W) / (xa.norm(system.rhs) or 1.0), "true"
        warnings.warn(
            f"{type(self).__name__} did not converge: {result.message}; {which} relative residual {residual:.2g}, "
            f"tol {self.tol:g}. Raise max_iter or tol, lower C, use dtype='float64', or more n_landmarks for solver='cg'.",
            ConvergenceWarning,
            stacklevel=4,
        )


def _subset(X: Array, idx: np.ndarray, separable: bool) -> Array:
    return xa.take_rows(X, idx) if separable else X[np.ix_(idx, idx)]


class LSSVC(ClassifierMixin, ExpansionClassifier, LeastSquaresMachine):
    __doc__ = f"""Least-squares support vector classifier.

    Parameters
    ----------
    {_PARAMETERS}
    class_weight : dict, "balanced" or None, default=None
        Multiplies `sample_weight`: the ridge of a sample is `1 / (C w)`, so weight 2 equals two copies.
    probability : {{"softmax", "sigmoid", False}}, default="softmax"
        What `predict_proba` is: the softmax of the scores, or Platt's sigmoid fitted on closed-form leave-one-out scores
        (no refit). `predict` does not depend on it.

    Attributes
    ----------
    classes_ : ndarray
    points_, dual_coef_, intercept_, kernel_
        The model: `decision_function(X) = kernel_(X, points_) @ dual_coef_ + intercept_`.
    support_ : ndarray of int
        Which training rows `points_` are.
    solver_, solver_reason_ : str
        What was chosen, and why.
    history_ : list of dict
        One record for each iteration: n_iter, seconds (callbacks excluded), residual, and what the callback added.
    n_iter_, residual_

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gramless import LSSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> LSSVC(C=10.0).fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]) > 0.95
    True
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        kernel: Any = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        solver: str | Solver = "auto",
        tol: float = 1e-3,
        max_iter: int | None = None,
        block_size: int | Sequence[int] | None = None,
        n_estimators: int = 1,
        class_weight: Any = None,
        probability: str | bool = "softmax",
        n_landmarks: int | str = "auto",
        damping: float | str = "auto",
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        dtype: Any = None,
        device: str | None = None,
        precision: str = "highest",
        storage: str | None = None,
        memory_budget: str | float | None = None,
        warm_start: bool = False,
        checkpoint: Any = None,
        checkpoint_every: int = 10,
        callback: Callable[..., Any] | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        super().__init__(
            C=C,
            kernel=kernel,
            degree=degree,
            gamma=gamma,
            coef0=coef0,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            block_size=block_size,
            n_estimators=n_estimators,
            n_landmarks=n_landmarks,
            damping=damping,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            dtype=dtype,
            device=device,
            precision=precision,
            storage=storage,
            memory_budget=memory_budget,
            warm_start=warm_start,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            callback=callback,
            verbose=verbose,
            random_state=random_state,
        )
        self.class_weight = class_weight
        self.probability = probability

    @fits_collections
    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LSSVC:
        """Fit to labels; rows of weight zero are as if they were not there."""
        if self.probability is not False:
            check_choice("probability", self.probability, {"softmax", "sigmoid"})
        X = self._check_X(X)
        self.classes_, codes = check_labels(y, X.shape[0])
        weights = check_weights(sample_weight, X, codes, self.classes_, self.class_weight)
        if weights is not None and len(np.unique(codes[weights > 0])) < 2:
            raise ValueError("The number of classes with a positive sample weight has to be greater than one; got 1 class")
        self._fit(X, class_targets(codes, len(self.classes_)), weights)
        if self.probability == "sigmoid":
            targets = class_targets(codes, len(self.classes_))[self.support_]
            scores = leave_one_out_scores(self._op, targets, self.dual_coef_, random_state=self.random_state)
            used = None if weights is None else weights[self.support_]
            self.sigmoids_ = fit_sigmoids(scores, codes[self.support_], len(self.classes_), used)
        elif hasattr(self, "sigmoids_"):
            del self.sigmoids_
        del self._op
        return self

    def _validation_error(self, scores: np.ndarray, Z: np.ndarray) -> float:
        labels = np.arange(max(2, Z.shape[1]))
        return float(np.mean(scores_to_labels(labels, scores) != scores_to_labels(labels, Z)))


class LSSVR(MultiOutputMixin, RegressorMixin, ExpansionRegressor, LeastSquaresMachine):
    __doc__ = f"""Least-squares support vector regressor: kernel ridge with an unpenalised bias; many outputs at once.

    Parameters
    ----------
    {_PARAMETERS}

    Attributes
    ----------
    points_, dual_coef_, intercept_, kernel_
        The model: `predict(X) = kernel_(X, points_) @ dual_coef_ + intercept_`.
    support_, solver_, solver_reason_, history_, n_iter_, residual_
        As in `LSSVC`.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import LSSVR
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> LSSVR(C=100.0).fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])) > 0.999
    True
    """

    @fits_collections
    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LSSVR:
        """Fit to values, of shape (n,) or (n, n_outputs)."""
        X = self._check_X(X)
        targets = check_outputs(y, X.shape[0])
        self._single_output = targets.ndim == 1
        self._fit(X, targets.reshape(X.shape[0], -1), check_weights(sample_weight, X))
        del self._op
        return self
