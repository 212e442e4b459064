"""Fixed-size least-squares support vector machine on landmarks (Nyström), in one pass over the data.

    f(x) = sum_{j <= m} a_j K(x, l_j) + b,   (K_mn K_nm + (1 / C) K_mm) a = K_mn (z - b)

is the least-squares SVM in the primal, on the features that the landmarks `l_j` span (Suykens et al. 2002; De Brabanter et
al. 2010). `K_mm = L L^T` is factored in float64 with a relative jitter (`jitter_`), and everything is solved in the
coordinates `psi(x) = L^-1 k(x)`, in which the penalty is the identity: the ill-conditioned normal equations are never solved
as they stand. Of float64 rows the pass adds up `psi psi^T` itself, so the model does not depend on the order and grouping of
the rows beyond some 1e-12 even where `K_mm` is singular to rounding (summed as they are, kernel values carry a rounding that
`L^-1` then divides by the smallest eigenvalues). Kernel values in float32 carry a larger rounding of their own, the jitter
is at its level, and `k k^T` is added up and whitened afterwards: half the work for each row.

Cost: O(m d + m^2) time for each row, O(m^2) memory whatever the number of rows, O(m^3) once; a prediction is m kernel
values.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless._runtime.memory import parse_budget
from gramless.estimators.one_pass import PATH, SCALE_ROWS, OnePassRidge, Read
from gramless.estimators.streamed_fit import ClassesFromStream, ValuesFromStream
from gramless.kernels import Kernel
from gramless.landmarks import LandmarkRule, as_points, select
from gramless.models.expansion import ExpansionClassifier, ExpansionRegressor, kernel_from_settings
from gramless.operators import evaluate
from gramless.operators.jitter import jittered_cholesky
from gramless.streaming import Stream

_HEAD_PER_LANDMARK = 4

_PARAMETERS = """n_landmarks : int or float, default=500
        How many landmarks: a number, or a share of the rows above 0 and at most 1.
    landmarks : str, LandmarkRule or array, default="uniform"
        A rule of `gramless.landmarks` by name or with its settings, row numbers, or the points themselves. A rule chooses
        from a uniform sample of at most 50,000 rows (all where there are fewer), of a generator from its first rows
        (four for each landmark).
    C : float or "loo", default=1.0
        Regularisation: the ridge is `1 / C`. `"loo"` takes the value of `Cs` with the smallest closed-form leave-one-out
        squared error; nothing is refitted.
    Cs : sequence of float
        The path for `C="loo"`: 1e-3 to 1e6 in half decades by default.
    kernel : str, Kernel or callable, default="rbf"
    degree, gamma, coef0
        Settings of a kernel given by name. `gamma="scale"` takes the variance of the rows the landmarks are chosen from;
        with `partial_fit` these are the first ones, so give a number where the pieces differ.
    forget : float, default=1.0
        Exponential forgetting: the weight of all earlier rows is multiplied by this with each new row.
    batch_size : int or None, default=None
        Rows at a time; None takes 4096, or fewer where the memory budget asks for it. Changes no result.
    dtype : {"float32", "float64"} or None, default=None
        Of the kernel values; sums and solution are in float64. None is float32 for float32 and byte data, else float64.
    device : {"cpu", "cuda", "auto"} or None, default=None
    memory_budget : str, int, float or None, default=None
    checkpoint : path or None, default=None
        File in which `fit` saves where its pass stands every `checkpoint_every` batches. A fit that finds such a file of its
        own goes on from there, no row is counted twice; the file is removed when the fit ends.
    checkpoint_every : int, default=50
    verbose : int, default=0
        1 shows rows per second and the time left.
    random_state : int, RandomState or None, default=None"""

_ATTRIBUTES = """points_, dual_coef_, intercept_, kernel_
        The model, as in `LSSVC`; `points_` are the landmarks.
    C_ : float
        The regularisation used.
    loo_errors_ : ndarray
        With `C="loo"`, the leave-one-out squared error at each of `Cs`.
    jitter_ : float
        What was added to the diagonal of `K_mm`."""


class NystromMachine(OnePassRidge):
    """The features of `NystromLSSVC` and `NystromLSSVR`: kernel values with landmarks."""

    kernel_: Kernel
    points_: Array
    device_: str

    _size_parameter = "n_landmarks"

    def __init__(
        self,
        *,
        n_landmarks: float = 500,
        landmarks: Any = "uniform",
        C: float | str = 1.0,
        Cs: Any = PATH,
        kernel: Any = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        forget: float = 1.0,
        batch_size: int | None = None,
        dtype: Any = None,
        device: str | None = None,
        memory_budget: str | float | None = None,
        checkpoint: Any = None,
        checkpoint_every: int = 50,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.C = C
        self.Cs = Cs
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.forget = forget
        self.batch_size = batch_size
        self.dtype = dtype
        self.device = device
        self.memory_budget = memory_budget
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.verbose = verbose
        self.random_state = random_state

    @property
    def dual_coef_(self) -> np.ndarray:
        return self._solved("_dual_coef")

    @property
    def intercept_(self) -> np.ndarray:
        return self._solved("_intercept")

    def _check_settings(self) -> None:
        super()._check_settings()
        if not kernel_from_settings(self).separable:
            raise ValueError("a precomputed kernel has no rows to evaluate: pass the data and a kernel, or use LSSVC")
        name, m = self._size_parameter, getattr(self, self._size_parameter)
        count = isinstance(m, Integral) and not isinstance(m, bool) and int(m) >= 1
        if not count and not (isinstance(m, Real) and not isinstance(m, (Integral, bool)) and 0 < float(m) <= 1):
            raise ValueError(f"{name} must be an integer of at least 1, or a share above 0 and at most 1, got {m!r}")

    def _accepts_sparse(self) -> bool:
        return kernel_from_settings(self).accepts_sparse

    def _given(self) -> Any:
        """The user's own landmarks, or None where a rule chooses."""
        return None if isinstance(self.landmarks, (str, LandmarkRule)) else self.landmarks

    def _n_components(self, n_rows: int | None) -> int:
        given = self._given()
        if given is not None:
            return int(given.shape[0]) if hasattr(given, "shape") else len(given)
        m = getattr(self, self._size_parameter)
        if isinstance(m, Integral):
            return int(m) if n_rows is None else min(int(m), n_rows)
        if n_rows is None:
            raise ValueError(f"{self._size_parameter} as a share needs data of known length; give a number for a stream")
        return max(1, round(float(m) * n_rows))

    def _rows_needed(self) -> int:
        return 1 if self._given() is not None else self._n_components(None)

    def _begin(self, stream: Stream, rng: np.random.RandomState, read: Read | None = None) -> None:
        self._set_up(stream.first())
        m, dtype = self._n_components(stream.n_rows), np.dtype(self._dtype_name)
        affordable = parse_budget(self.memory_budget, self.device_) // (8 * self.n_features_in_ * dtype.itemsize)
        # The head of a generator is held until it is read again: no more of it than what the landmarks take anyway.
        candidates = min(SCALE_ROWS, affordable) if stream.repeatable else _HEAD_PER_LANDMARK * m
        X, y, weights = stream.sample(max(m, candidates), rng)
        if weights is not None and not (weights > 0).all():
            kept = np.flatnonzero(weights > 0)
            X, y, weights = xa.take_rows(X, kept), xa.take_rows(y, kept), weights[kept]
        X = xa.to_device(X, self.device_, dtype)
        if X.shape[0] == 0:
            raise ValueError("all sample weights are zero: there is nothing to fit")
        self.kernel_ = kernel_from_settings(self).resolve(X, weights)
        given = self._given()
        if given is not None and np.ndim(given) == 1:
            rows, labels, _ = stream.take(self._row_numbers(given, stream.n_rows))
            points = xa.to_device(rows, self.device_, dtype)
        else:
            chosen = select(self.landmarks if given is None else given, X, self.kernel_, m, rng)
            points, labels = as_points(chosen, X), (y[chosen] if chosen.ndim == 1 else None)
        self._set_points(points)
        self._factor_points()
        self._know_targets(None if labels is None else (read or self._targets.read)(labels))
        self._chosen = True

    def _know_targets(self, compact: np.ndarray | None) -> None:
        """Hear the landmarks' own targets; None where they are points that have none."""

    def _row_numbers(self, given: Any, n_rows: int | None) -> np.ndarray:
        rows = np.asarray(given)
        if rows.dtype.kind not in "iu" or n_rows is None or rows.min() < 0 or rows.max() >= n_rows:
            raise ValueError(f"landmarks given as a vector must be row numbers below {n_rows}, got {given!r}")
        return rows

    def _set_points(self, points: Array) -> None:
        self.points_ = points if xa.is_sparse(points) else xa.to_numpy(points)
        self._block: Array = None
        self._factor: np.ndarray | None = None

    def _discard(self) -> None:
        super()._discard()
        self._factor = None

    def _whitens_rows(self) -> bool:
        """Whether rows are whitened before they are added up, rather than the sums afterwards."""
        return self._dtype_name == "float64"

    def _factor_points(self) -> None:
        """The factor that whitens rows. It is kept with the sums, which have no meaning without this very one."""
        if not self._whitens_rows():
            return
        K = self._landmark_kernel()
        scale = float(xa.namespace(K).max(xa.namespace(K).linalg.diagonal(K)))
        if not scale > 0:
            raise ValueError("every landmark has kernel value zero with itself: choose another kernel or other landmarks")
        rounding = float(np.finfo(np.float64).eps) * int(K.shape[0]) ** 0.5
        L, self.jitter_ = jittered_cholesky(K, rounding * scale)
        self._factor = xa.to_numpy(L)

    def _features(self, X: Array) -> Array:
        values = self._kernel_values(X)
        if self._factor is None:
            return values
        L = self._copy_beside("factor", self._factor, values)
        return xa.solve_triangular(L, values.T).T

    def _kernel_values(self, X: Array) -> Array:
        points = self._points_on(X)
        shape = (int(X.shape[0]), int(points.shape[0]))
        if xa.is_torch(X) or xa.is_sparse(X):
            return evaluate(self.kernel_, X, points)
        # One block for all batches: a fresh one would be paged in again each time.
        if self._block is None or self._block.shape[0] < shape[0] or self._block.dtype != X.dtype:
            self._block = np.empty(shape, dtype=X.dtype)
        return evaluate(self.kernel_, X, points, out=self._block[: shape[0]])

    def _points_on(self, X: Array) -> Array:
        if xa.is_sparse(X) or not xa.is_torch(X):
            return self.points_
        return self._copy_beside("points", self.points_, X)

    def _copy_beside(self, name: str, array: np.ndarray, X: Array) -> Array:
        """`array` where `X` is, moved once."""
        if not xa.is_torch(X):
            return array
        kept = self.__dict__.setdefault("_copies", {}).get(name)
        if kept is None or kept[0] is not array or xa.device_of(kept[1]) != xa.device_of(X):
            kept = self._copies[name] = (array, xa.to_device(array, xa.device_of(X), xa.numpy_dtype(X)))
        return kept[1]

    def _landmark_kernel(self) -> Array:
        double = xa.to_device(self.points_, self.device_, np.float64)
        return evaluate(self.kernel_, double, double)

    def _penalty(self) -> Array:
        return self._landmark_kernel() if self._factor is None else None

    def _set_model(self, A: np.ndarray, intercept: np.ndarray) -> None:
        dtype = np.dtype(self._dtype_name)
        if self._factor is not None:
            A = xa.solve_triangular(self._factor, A, transposed=True)
        self._dual_coef, self._intercept = A.astype(dtype), intercept.astype(dtype)
        self._block = None

    def _feature_state(self) -> dict[str, Any]:
        numbers = {k: v for k, v in self.kernel_.get_params().items() if isinstance(v, (Real, str))}
        factor = {} if self._factor is None else {"factor": self._factor, "jitter": self.jitter_}
        return {"points": self.points_, "kernel": numbers, **factor}

    def _restore_features(self, state: dict[str, Any]) -> None:
        self._set_points(state["points"])
        if "factor" in state:
            self._factor, self.jitter_ = state["factor"], float(state["jitter"])
        self.kernel_ = kernel_from_settings(self).resolve(self.points_).set_params(**state["kernel"])

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in super().__getstate__().items() if k not in ("_block", "_copies")} | (
            {"_block": None} if "_block" in self.__dict__ else {}
        )


class NystromLSSVC(ExpansionClassifier, ClassesFromStream, NystromMachine):
    __doc__ = f"""Least-squares support vector classifier on landmarks, fitted in one pass over data of any length.

    Parameters
    ----------
    {_PARAMETERS}
    class_weight : dict, "balanced" or None, default=None
        `"balanced"` needs arrays, whose labels can be counted beforehand.
    probability : {{"softmax", "sigmoid", False}}, default="softmax"
        As in `LSSVC`; `"sigmoid"` is fitted on closed-form leave-one-out scores.

    Attributes
    ----------
    classes_ : ndarray
    {_ATTRIBUTES}

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gramless import NystromLSSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> model = NystromLSSVC(n_landmarks=200, C="loo", random_state=0).fit(X[:1000], y[:1000])
    >>> model.score(X[1000:], y[1000:]) > 0.93
    True
    """

    def __init__(
        self,
        *,
        n_landmarks: float = 500,
        landmarks: Any = "uniform",
        C: float | str = 1.0,
        Cs: Any = PATH,
        kernel: Any = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        class_weight: Any = None,
        probability: str | bool = "softmax",
        forget: float = 1.0,
        batch_size: int | None = None,
        dtype: Any = None,
        device: str | None = None,
        memory_budget: str | float | None = None,
        checkpoint: Any = None,
        checkpoint_every: int = 50,
        verbose: int = 0,
        random_state: Any = None,
    ):
        super().__init__(
            n_landmarks=n_landmarks,
            landmarks=landmarks,
            C=C,
            Cs=Cs,
            kernel=kernel,
            degree=degree,
            gamma=gamma,
            coef0=coef0,
            forget=forget,
            batch_size=batch_size,
            dtype=dtype,
            device=device,
            memory_budget=memory_budget,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            verbose=verbose,
            random_state=random_state,
        )
        self.class_weight = class_weight
        self.probability = probability


class NystromLSSVR(ExpansionRegressor, ValuesFromStream, NystromMachine):
    __doc__ = f"""Least-squares support vector regressor on landmarks, fitted in one pass over data of any length.

    Parameters
    ----------
    {_PARAMETERS}

    Attributes
    ----------
    {_ATTRIBUTES}

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import NystromLSSVR
    >>> X = np.linspace(0, 6, 1000)[:, None]
    >>> NystromLSSVR(n_landmarks=30, C=100.0, random_state=0).fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])) > 0.999
    True
    """
