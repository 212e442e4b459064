"""Least-squares support vector machine on random Fourier features.

    f(x) = w . phi(x) + b,   min_{w, b}  1/2 ||w||^2 + C/2 sum_i (z_i - f(x_i))^2

in the primal, with features `phi` whose inner products approximate an RBF or Laplacian kernel (see
`gramless.features.fourier_map`). `method="exact"` adds up the normal equations in one pass: the same answer in any order and
any grouping of the rows. `method="online"` takes a step for each mini-batch, as in the document.

Cost: O(d D + D^2) time for each row (exact), O(D^2) memory whatever the number of rows; a prediction is O(d D).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless._runtime.memory import parse_budget
from gramless._runtime.validation import check_choice, check_positive, check_X
from gramless.estimators.one_pass import PATH, SCALE_ROWS, Read
from gramless.estimators.online_pass import OnlinePass
from gramless.estimators.streamed_fit import ClassesFromStream, ValuesFromStream
from gramless.features.fourier_map import FourierMap, draw_fourier_map
from gramless.models.expansion import ExpansionClassifier, ExpansionRegressor, kernel_from_settings
from gramless.streaming import Stream
from gramless.targets.streamed import Targets

_SCORED_ROWS = 4096
_ONLINE_BATCH = 64

_PARAMETERS = """n_components : int, default=500
        Features: cosines and sines of half as many frequencies (rounded up to an even number).
    draw : {"auto", "plain", "orthogonal", "structured"}, default="auto"
        How frequencies are drawn: independent; orthogonal to each other (smaller variance); orthogonal through Hadamard
        matrices (cheaper for many columns). `"auto"` is orthogonal, structured from 2048 columns on, and plain for the
        Laplacian in the city-block norm.
    method : {"exact", "online"}, default="exact"
    C : float or "loo", default=1.0
        As in `NystromLSSVC`; `"loo"` with `method="exact"`.
    Cs : sequence of float
        The path for `C="loo"`.
    kernel : {"rbf", "laplacian"} or Kernel, default="rbf"
    gamma : float, "scale" or "auto", default="scale"
        `"scale"` takes the variance of a sample of at most 50,000 rows; with `partial_fit` that of the first call, so give a
        number where the pieces differ.
    forget : float, default=1.0
        Exponential forgetting, with `method="exact"`.
    optimizer, epochs
        Of `method="online"`, as in `BudgetLSSVC`.
    batch_size : int or None, default=None
        Rows at a time; with `method="online"` rows in a step, where None is 64.
    dtype : {"float32", "float64"} or None, default=None
    device : {"cpu", "cuda", "auto"} or None, default=None
    memory_budget : str, int, float or None, default=None
    checkpoint, checkpoint_every
        As in `NystromLSSVC`, with `method="exact"`.
    callback : callable(estimator, record) -> bool, optional
        Called after each epoch of `method="online"`.
    verbose : int, default=0
    random_state : int, RandomState or None, default=None"""

_ATTRIBUTES = """coef_ : ndarray of shape (n_components, n_outputs)
    intercept_ : ndarray of shape (n_outputs,)
    features_ : FourierMap
        `decision_function(X) = features_(X) @ coef_ + intercept_`.
    kernel_ : Kernel
    C_ : float
    loo_errors_ : ndarray
        With `C="loo"`, the leave-one-out squared error at each of `Cs`."""


class FourierMachine(OnlinePass):
    """What `FourierLSSVC` and `FourierLSSVR` share: random Fourier features, summed or learnt online."""

    features_: FourierMap

    def __init__(
        self,
        *,
        n_components: int = 500,
        draw: str = "auto",
        method: str = "exact",
        C: float | str = 1.0,
        Cs: Any = PATH,
        kernel: Any = "rbf",
        gamma: float | str = "scale",
        forget: float = 1.0,
        optimizer: str = "sgd",
        epochs: int = 30,
        batch_size: int | None = None,
        dtype: Any = None,
        device: str | None = None,
        memory_budget: str | float | None = None,
        checkpoint: Any = None,
        checkpoint_every: int = 50,
        callback: Callable[..., Any] | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.n_components = n_components
        self.draw = draw
        self.method = method
        self.C = C
        self.Cs = Cs
        self.kernel = kernel
        self.gamma = gamma
        self.forget = forget
        self.optimizer = optimizer
        self.epochs = epochs
        self.batch_size = batch_size
        self.dtype = dtype
        self.device = device
        self.memory_budget = memory_budget
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = False
        return tags

    @property
    def coef_(self) -> np.ndarray:
        return self._solved("_coef")

    @property
    def intercept_(self) -> np.ndarray:
        return self._solved("_intercept")

    @property
    def _online(self) -> bool:
        return self.method == "online"

    @property
    def adds_up(self) -> bool:
        return not self._online

    def _check_settings(self) -> None:
        super()._check_settings()
        check_choice("method", self.method, {"exact", "online"})
        check_positive("n_components", self.n_components, integer=True)
        if self._online:
            self._check_online()
            if self.forget != 1 or self.checkpoint is not None:
                raise ValueError("forget and checkpoint go with method='exact'")
            if getattr(self, "probability", None) == "sigmoid":
                raise ValueError("probability='sigmoid' needs leave-one-out scores: use method='exact'")

    def _accepts_sparse(self) -> bool:
        return True

    def _n_components(self, n_rows: int | None) -> int:
        return 2 * (-(-int(self.n_components) // 2))

    def _rows_needed(self) -> int:
        return 1

    def _fixed_parts(self, p: int, itemsize: int, n: int | None) -> dict[str, int]:
        return self._steps_parts(p, itemsize, n) if self._online else super()._fixed_parts(p, itemsize, n)

    def _kept_parts(self, n: int | None, p: int, itemsize: int, budget: int, left: int) -> dict[str, int]:
        return super()._kept_parts(n, p, itemsize, budget, left) if self._online else {}

    def _rows_asked_for(self) -> int | None:
        return None if self._online else super()._rows_asked_for()

    def _step_rows(self) -> int:
        return _ONLINE_BATCH if self.batch_size is None else int(self.batch_size)

    def _begin(self, stream: Stream, rng: np.random.RandomState, read: Read | None = None) -> None:
        self._set_up(stream.first())
        kernel, dtype = kernel_from_settings(self), np.dtype(self._dtype_name)
        affordable = parse_budget(self.memory_budget, self.device_) // (8 * self.n_features_in_ * dtype.itemsize)
        X, _, weights = stream.sample(max(1, min(SCALE_ROWS, affordable)) if stream.repeatable else 1024, rng)
        if weights is not None and not weights.any():
            raise ValueError("all sample weights are zero: there is nothing to fit")
        self.kernel_ = kernel.resolve(X if xa.is_torch(X) else X.astype(dtype, copy=False), weights)
        self.features_ = draw_fourier_map(
            self.kernel_, self.n_features_in_, self.n_components, np.random.RandomState(self._seed), self.draw
        )
        self._chosen = True

    def _features(self, X: Array) -> Array:
        return self.features_(X)

    def _penalty(self) -> None:
        return None

    def _penalty_product(self, A: Array) -> Array:
        return A

    def _set_model(self, A: np.ndarray, intercept: np.ndarray) -> None:
        dtype = np.dtype(self._dtype_name)
        self._coef, self._intercept = A.astype(dtype), intercept.astype(dtype)

    def _model(self) -> tuple[np.ndarray, np.ndarray] | None:
        return None if not self._rows_seen or "_coef" not in self.__dict__ else (self._coef, self._intercept)

    def _feature_state(self) -> dict[str, Any]:
        return {**self.features_.state(), "gamma": float(self.kernel_.gamma)}

    def _restore_features(self, state: dict[str, Any]) -> None:
        self.features_ = FourierMap.from_state(state)
        self.kernel_ = kernel_from_settings(self).set_params(gamma=state["gamma"])

    def _fit_stream(self, stream: Stream, targets: Targets) -> None:
        if self._online:
            self._learn_stream(stream, targets)
        else:
            super()._fit_stream(stream, targets)

    def _absorb(self, X: Array, compact: np.ndarray, weights: np.ndarray | None) -> None:
        if self._online:
            self._absorb_online(X, compact, weights)
        else:
            super()._absorb(X, compact, weights)

    def _solve(self) -> None:
        if self._online and not self._held:
            self._solve_online()
        else:
            super()._solve()

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self, "coef_")
        coef = self.coef_
        checked = check_X(self, X, dtype=coef.dtype, reset=False, accept_sparse=True)
        device = xa.device_of(checked) if xa.is_torch(checked) else self.device_
        coef, bias = xa.to_device(coef, device), xa.to_device(self.intercept_, device)
        scores = xa.empty((int(checked.shape[0]), int(coef.shape[1])), coef)
        for start in range(0, int(checked.shape[0]), _SCORED_ROWS):
            rows = slice(start, start + _SCORED_ROWS)
            scores[rows] = self.features_(xa.to_device(checked[rows], device)) @ coef + bias
        return scores if xa.is_torch(X) else xa.to_numpy(scores)


class FourierLSSVC(ClassesFromStream, FourierMachine, ExpansionClassifier):  # type: ignore[override]
    __doc__ = f"""Least-squares support vector classifier on random Fourier features, for data of any length.

    Parameters
    ----------
    {_PARAMETERS}
    class_weight : dict, "balanced" or None, default=None
        `"balanced"` needs arrays, whose labels can be counted beforehand.
    probability : {{"softmax", "sigmoid", False}}, default="softmax"
        As in `NystromLSSVC`.

    Attributes
    ----------
    classes_ : ndarray
    {_ATTRIBUTES}

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gramless import FourierLSSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> FourierLSSVC(n_components=400, C=10.0, random_state=0).fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]) > 0.9
    True
    """

    def __init__(
        self,
        *,
        n_components: int = 500,
        draw: str = "auto",
        method: str = "exact",
        C: float | str = 1.0,
        Cs: Any = PATH,
        kernel: Any = "rbf",
        gamma: float | str = "scale",
        class_weight: Any = None,
        probability: str | bool = "softmax",
        forget: float = 1.0,
        optimizer: str = "sgd",
        epochs: int = 30,
        batch_size: int | None = None,
        dtype: Any = None,
        device: str | None = None,
        memory_budget: str | float | None = None,
        checkpoint: Any = None,
        checkpoint_every: int = 50,
        callback: Callable[..., Any] | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        super().__init__(
            n_components=n_components,
            draw=draw,
            method=method,
            C=C,
            Cs=Cs,
            kernel=kernel,
            gamma=gamma,
            forget=forget,
            optimizer=optimizer,
            epochs=epochs,
            batch_size=batch_size,
            dtype=dtype,
            device=device,
            memory_budget=memory_budget,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            callback=callback,
            verbose=verbose,
            random_state=random_state,
        )
        self.class_weight = class_weight
        self.probability = probability


class FourierLSSVR(ValuesFromStream, FourierMachine, ExpansionRegressor):  # type: ignore[override]
    __doc__ = f"""Least-squares support vector regressor on random Fourier features, for data of any length.

    Parameters
    ----------
    {_PARAMETERS}

    Attributes
    ----------
    {_ATTRIBUTES}

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import FourierLSSVR
    >>> X = np.linspace(0, 6, 1000)[:, None]
    >>> model = FourierLSSVR(n_components=50, C=100.0, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.score(X, np.sin(X[:, 0])) > 0.99
    True
    """
