"""The least-squares support vector machine, for classes and for values.

    min_f  1/2 ||f||^2 + C/2 sum_i w_i (z_i - f(x_i) - b)^2

(Suykens and Vandewalle 1999; Suykens et al. 2002 for weights). The fit itself is in `gramless.estimators.least_squares`;
here are the targets: classes as +-1 or one-hot columns, values standardised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gramless._runtime.dask_hooks import fits_collections
from gramless._runtime.memory import MemoryEstimate, parse_budget
from gramless._runtime.validation import all_or_nothing, check_choice, check_labels, check_outputs, check_weights
from gramless.calibration.leave_one_out import (
    EXACT_UP_TO,
    leave_one_out_memory,
    leave_one_out_scores,
    probes_plan,
)
from gramless.calibration.platt import fit_sigmoids
from gramless.estimators.least_squares import LeastSquaresMachine
from gramless.models.expansion import ExpansionClassifier, ExpansionRegressor, kernel_from_settings, scores_to_labels
from gramless.planning.plan import Plan
from gramless.solvers import Solver
from gramless.targets.columns import Standardised, class_targets

_PARAMETERS = """C : float, default=1.0
        Regularisation: the ridge on the kernel's diagonal is `1 / C`. Larger fits closer.
    kernel : str, Kernel or callable, default="rbf"
        `"linear"`, `"poly"`, `"rbf"`, `"laplacian"`, `"precomputed"`, a `gramless.kernels` expression, or `f(X, Y)`.
    degree, gamma, coef0
        Settings of a kernel given by name, as in `sklearn.svm.SVC`.
    solver : str or Solver, default="auto"
        `"cholesky"` is exact; `"cg"` is block conjugate gradients with a Nyström preconditioner; `"sketch_project"` is
        faster than `"cg"` to a loose `tol` on very large streamed data; `"auto"` chooses from the sizes, `tol`, the memory
        and the device, and says in `solver_` what it chose. The randomised `"matching_pursuit"`,
        `"kaczmarz"`, `"kaczmarz_mp"` and `"nystrom_committee"` (whose members `max_iter` counts) read a block of rows at
        a time; a `Solver` instance brings its own settings.
    tol : float, default=1e-3
        Relative residual `||Z - A W|| / ||Z||` at which an iterative solver stops.
    max_iter : int or None, default=None
        Limit on iterations; None, or -1 as in `SVC`, is the solver's own.
    block_size : int, sequence of int or None, default=None
        Rows in a block, for the solvers that work by blocks; None is the solver's own, or less where `memory_budget` says
        so. A sequence has one for each of the `n_estimators`.
    n_estimators : int, default=1
        Runs of a randomised solver, each with its own blocks, whose mean is the model: steadier, at the same cost of
        prediction.
    n_landmarks, damping : default="auto"
        Of the preconditioner of `"cg"`; see `gramless.preconditioners.nystrom`.
    dtype : {"float32", "float64"} or None, default=None
        None computes float32 and byte data in float32 and everything else in float64.
    device : {"cpu", "cuda", "auto"} or None, default=None
        Where to compute; None follows the data.
    precision : {"highest", "high", "medium"}, default="highest"
        Of streamed products and predictions on a CUDA device: float32, or a fused kernel on the tensor cores with a relative
        error of about 3e-5 or 8e-4. Predict in the precision of the fit: the coefficients belong to points rounded so.
    storage : {None, "float16", "bfloat16"}, default=None
        Half-precision cache of the kernel matrix on a CUDA device: half the memory, entries rounded to 5e-4 or 4e-3.
    memory_budget : str, int, float or None, default=None
        Bound on the peak of what a fit allocates, beside loaded libraries: `"4GB"`, bytes, a fraction of what is free; None
        is 70 % of it.
    warm_start : bool, default=False
        Start from the last solution when the data has the same number of rows.
    callback : callable, Checkpoint, EarlyStopping, a list of these, or None, default=None
        `callback(estimator, record) -> bool` is called after each iteration with an estimator that can already predict; a
        true answer stops the fit. `gramless.callbacks` has checkpoints to go on from, and stopping on held-out rows.
    verbose : int, default=0
    random_state : int, RandomState or None, default=None"""


class LSSVC(ExpansionClassifier, LeastSquaresMachine):
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
        dtype: Any = None,
        device: str | None = None,
        precision: str = "highest",
        storage: str | None = None,
        memory_budget: str | float | None = None,
        warm_start: bool = False,
        callback: Any = None,
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
            dtype=dtype,
            device=device,
            precision=precision,
            storage=storage,
            memory_budget=memory_budget,
            warm_start=warm_start,
            callback=callback,
            verbose=verbose,
            random_state=random_state,
        )
        self.class_weight = class_weight
        self.probability = probability

    @all_or_nothing
    @fits_collections
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LSSVC:
        """Fit to labels; rows of weight zero are as if they were not there."""
        if self.probability is not False:
            check_choice("probability", self.probability, {"softmax", "sigmoid"})
        X = self._check_X(X)
        self.classes_, codes = check_labels(y, X.shape[0])
        weights = check_weights(sample_weight, X, codes, self.classes_, self.class_weight)
        if weights is not None and len(np.unique(codes[weights > 0])) < 2:
            raise ValueError("The number of classes with a positive sample weight has to be greater than one; got 1 class")
        targets = class_targets(codes, len(self.classes_))
        self.__dict__.pop("sigmoids_", None)  # those of an earlier fit must not meet this one's scores in a callback
        op = self._fit(X, targets, weights, codes)
        if self.probability == "sigmoid":
            sizes = op.X.shape[0], op.X.shape[1], targets.shape[1], op.dtype, self.device_
            probes, _ = self._sigmoid_plan(super().plan(*sizes), *sizes)
            rng = self._generator(X, targets)
            scores = leave_one_out_scores(op, targets[self.support_], self.dual_coef_, probes, random_state=rng)
            used = None if weights is None else weights[self.support_]
            self.sigmoids_ = fit_sigmoids(scores, codes[self.support_], len(self.classes_), used)
        return self

    def plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> Plan:
        plan = super().plan(n, d, n_outputs, dtype, device)
        if self.probability == "sigmoid":
            memory = self._sigmoid_plan(plan, n, d, n_outputs, dtype, device)[1]
            plan.memory = max(plan.memory, memory, key=lambda part: part.nbytes)
        return plan

    def _sigmoid_plan(
        self, plan: Plan, n: int, d: int, n_outputs: int, dtype: Any, device: str
    ) -> tuple[Plan | None, MemoryEstimate]:
        """How the leave-one-out scores are estimated (None where they are exact), and what that takes."""
        budget = parse_budget(self.memory_budget, device)
        exact = leave_one_out_memory(n, d, n_outputs, dtype, device)
        if plan.solver != "cholesky":
            exact.parts["what the solver gave back, not always to the system"] = plan.memory.nbytes
        if n <= EXACT_UP_TO and exact.nbytes <= budget:
            return None, exact
        probes = probes_plan(n, d, dtype, device, kernel_from_settings(self), budget)
        return probes, probes.memory

    def _validation_error(self, scores: np.ndarray, Z: np.ndarray) -> float:
        labels = np.arange(max(2, Z.shape[1]))
        return float(np.mean(scores_to_labels(labels, scores) != scores_to_labels(labels, Z)))


class LSSVR(ExpansionRegressor, LeastSquaresMachine):
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

    @all_or_nothing
    @fits_collections
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LSSVR:
        """Fit to values, of shape (n,) or (n, n_outputs)."""
        X = self._check_X(X)
        targets = check_outputs(y, X.shape[0])
        self._single_output = targets.ndim == 1
        weights = check_weights(sample_weight, X)
        self._targets = Standardised.of(targets.reshape(X.shape[0], -1), weights)
        self._fit(X, self._targets.Z, weights)
        del self._targets
        return self

    def _take(self, coef: np.ndarray, bias: np.ndarray) -> None:
        super()._take(*self._targets.model(coef, bias))
