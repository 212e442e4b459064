"""Online least-squares support vector machine on a budget of points.

The dual loss of the document, on a budget B of `beta` points (v = alpha y, one column for each class),

    L(v, b) = 1/2 v^T K_BB v - y_B^T v + C/2 sum_i (y_i - v^T k(B, x_i) - b)^2

is minimised a mini-batch at a time. The gradient for a sampled row j, from the loss itself, is

    dL/dv = K_BB v - y_B - C n (y_j - f(x_j)) k(B, x_j),     dL/db = -C n (y_j - f(x_j)) .

The term `y_B^T v` works against the regulariser. On a budget of all rows both parts of the loss are least at the same place,

    v = K^-1 y,  b = 0,     whatever C is:

the minimiser passes through every label, noise included, and where two rows of the budget coincide with opposite labels
there is none (the loss falls without end along their difference). What generalises is the model on the way there: `epochs`
is the regularisation as much as `C`. `loss="primal"` leaves the term out; its minimiser is the model of `NystromLSSVC` on
the same points, and more epochs only come closer to it.

All classes share the budget and one kernel block for each batch. The step size, the flattening of the leading curvature and
the answer to divergence are in `gramless.learners.online`. Cost: O(beta d) for each row and epoch (once, where the kernel
values fit half of the memory budget), O(beta^2) for the regulariser once for several batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless._runtime.memory import parse_budget
from gramless._runtime.threads import CPU_TILE
from gramless._runtime.validation import check_choice
from gramless.estimators.nystrom import NystromMachine
from gramless.estimators.one_pass import PATH
from gramless.estimators.online_pass import OnlinePass
from gramless.estimators.streamed_fit import ClassesFromStream, ValuesFromStream
from gramless.models.expansion import ExpansionClassifier, ExpansionRegressor
from gramless.operators import KernelOperator, nbytes_cached
from gramless.operators.blocks import tile_edge
from gramless.streaming import Stream
from gramless.targets.streamed import Targets

LOSSES = ("dual", "primal")
# The kernel matrix of the points is kept where it takes no more than this part of the memory budget.
_SHARE_OF_GRAM = 4

_PARAMETERS = """budget : int or float, default=500
        Points that carry the model: a number, or a share of the rows above 0 and at most 1 (`partial_fit` needs a number).
    landmarks : str, LandmarkRule or array, default="uniform"
        How the budget is chosen, as in `NystromLSSVC`.
    C : float, default=1.0
        Weight of the errors against the regulariser.
    kernel : str, Kernel or callable, default="rbf"
    degree, gamma, coef0
        Settings of a kernel given by name.
    loss : {"dual", "primal"}, default="dual"
        `"dual"` is the document's: its term `-y_B^T v` pulls the model through the labels of the budget, the closer the more
        epochs are made, so few are better than many. `"primal"` leaves that term out and tends to the model of
        `NystromLSSVC`. Points given as an array have no labels: both are the same then.
    optimizer : {"sgd", "averaged_sgd", "adam"}, default="sgd"
        `"averaged_sgd"` returns the mean of the iterates of the second half.
    batch_size : int, default=64
        Rows in a step; 1 is one point at a time.
    epochs : int, default=30
        Passes over the rows in `fit`; `partial_fit` makes one, and so does a fit on a generator.
    dtype : {"float32", "float64"} or None, default=None
    device : {"cpu", "cuda", "auto"} or None, default=None
    memory_budget : str, int, float or None, default=None
    callback : callable(estimator, record) -> bool, optional
        Called after each epoch with an estimator that can already predict; a true answer stops the fit.
    verbose : int, default=0
    random_state : int, RandomState or None, default=None"""

_ATTRIBUTES = """points_, dual_coef_, intercept_, kernel_
        The model, as in `LSSVC`; `points_` is the budget.
    history_ : list of dict
        One record for each epoch of `fit`: n_iter, seconds, loss (mean squared error of the batches as they came), step."""


class BudgetMachine(OnlinePass, NystromMachine):
    """What `BudgetLSSVC` and `BudgetLSSVR` share: kernel values with the budget, learnt online."""

    _size_parameter = "budget"
    # The settings of a pass that sums have and steps have not.
    Cs = PATH
    forget = 1.0
    checkpoint = None
    checkpoint_every = 1

    def __init__(
        self,
        *,
        budget: float = 500,
        landmarks: Any = "uniform",
        C: float = 1.0,
        kernel: Any = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        loss: str = "dual",
        optimizer: str = "sgd",
        batch_size: int = 64,
        epochs: int = 30,
        dtype: Any = None,
        device: str | None = None,
        memory_budget: str | float | None = None,
        callback: Callable[..., Any] | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.budget = budget
        self.landmarks = landmarks
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.loss = loss
        self.optimizer = optimizer
        self.batch_size = batch_size
        self.epochs = epochs
        self.dtype = dtype
        self.device = device
        self.memory_budget = memory_budget
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state

    @property
    def adds_up(self) -> bool:
        return False

    def _check_settings(self) -> None:
        super()._check_settings()
        check_choice("loss", self.loss, LOSSES)
        self._check_online()

    def _needs_sample(self) -> bool:
        return False

    def _fixed_parts(self, p: int, itemsize: int, n: int | None) -> dict[str, int]:
        return self._steps_parts(p, itemsize, n)

    def _kept_parts(self, n: int | None, p: int, itemsize: int, budget: int, left: int) -> dict[str, int]:
        gram = nbytes_cached(p, itemsize, CPU_TILE)
        gram = gram if gram <= budget // _SHARE_OF_GRAM else 0
        return {**super()._kept_parts(n, p, itemsize, budget, left - gram), "budget's kernel matrix": gram}

    def _rows_asked_for(self) -> None:
        return None  # batch_size is that of the steps, not of what is read at once

    def _fit_stream(self, stream: Stream, targets: Targets) -> None:
        self._learn_stream(stream, targets)

    def _absorb(self, X: Array, compact: np.ndarray, weights: np.ndarray | None) -> None:
        self._absorb_online(X, compact, weights)

    def _solve(self) -> None:
        if self._held:
            self._solve_held()
        else:
            self._solve_online()

    def _model(self) -> tuple[np.ndarray, np.ndarray] | None:
        if not self._rows_seen or "_dual_coef" not in self.__dict__:
            return None
        return self._dual_coef, self._intercept

    def _whitens_rows(self) -> bool:
        return False

    def _know_targets(self, compact: np.ndarray | None) -> None:
        self._own_targets = compact
        self._operator: KernelOperator | None = None

    def _linear_term(self, reference: Array) -> Array:
        if self.loss == "primal" or self._own_targets is None:
            return None
        return xa.like(self._targets.matrix(self._own_targets), reference)

    def _penalty_product(self, A: Array) -> Array:
        if getattr(self, "_operator", None) is None:
            points = self._points_on(A) if xa.is_torch(A) else self.points_
            m = int(points.shape[0])
            size = nbytes_cached(m, xa.numpy_dtype(A).itemsize, tile_edge(points))
            fits = size <= parse_budget(self.memory_budget, self.device_) // _SHARE_OF_GRAM
            self._operator = KernelOperator(points, self.kernel_, cache=fits)
        return self._operator @ A

    def _penalty_every(self) -> int:
        # A product with K_BB costs beta / batch times the two products of a step: leave it about half of the work.
        return max(1, min(50, int(self.points_.shape[0]) // (2 * self.batch_size)))

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {**state, "_operator": None} if "_operator" in state else state


class BudgetLSSVC(ExpansionClassifier, ClassesFromStream, BudgetMachine):
    __doc__ = f"""Least-squares support vector classifier learnt online on a budget of points.

    Parameters
    ----------
    {_PARAMETERS}
    class_weight : dict, "balanced" or None, default=None
        `"balanced"` needs arrays, whose labels can be counted beforehand.
    probability : {{"softmax", False}}, default="softmax"

    Attributes
    ----------
    classes_ : ndarray
    {_ATTRIBUTES}

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gramless import BudgetLSSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> model = BudgetLSSVC(budget=200, C=10.0, random_state=0).fit(X[:1000], y[:1000])
    >>> model.score(X[1000:], y[1000:]) > 0.93
    True
    """

    def __init__(
        self,
        *,
        budget: float = 500,
        landmarks: Any = "uniform",
        C: float = 1.0,
        kernel: Any = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        class_weight: Any = None,
        probability: str | bool = "softmax",
        loss: str = "dual",
        optimizer: str = "sgd",
        batch_size: int = 64,
        epochs: int = 30,
        dtype: Any = None,
        device: str | None = None,
        memory_budget: str | float | None = None,
        callback: Callable[..., Any] | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        super().__init__(
            budget=budget,
            landmarks=landmarks,
            C=C,
            kernel=kernel,
            degree=degree,
            gamma=gamma,
            coef0=coef0,
            loss=loss,
            optimizer=optimizer,
            batch_size=batch_size,
            epochs=epochs,
            dtype=dtype,
            device=device,
            memory_budget=memory_budget,
            callback=callback,
            verbose=verbose,
            random_state=random_state,
        )
        self.class_weight = class_weight
        self.probability = probability

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.probability == "sigmoid":
            raise ValueError("probability='sigmoid' needs leave-one-out scores, which only exact solutions have")


class BudgetLSSVR(ExpansionRegressor, ValuesFromStream, BudgetMachine):
    __doc__ = f"""Least-squares support vector regressor learnt online on a budget of points.

    Parameters
    ----------
    {_PARAMETERS}

    Attributes
    ----------
    {_ATTRIBUTES}

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import BudgetLSSVR
    >>> X = np.linspace(0, 6, 1000)[:, None]
    >>> model = BudgetLSSVR(budget=50, C=100.0, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.score(X, np.sin(X[:, 0])) > 0.99
    True
    """
