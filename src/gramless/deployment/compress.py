"""A fitted kernel expansion on fewer points: a reduced set, chosen, moved and refitted to the model's own scores.

    g(x) = sum_j b_j K(x, p_j) + c,      K(x, p) = exp(-gamma |s * (x - p)|^2)

The points `p` begin as landmarks of the model's points, `b` and `c` as the least-squares fit to the model's scores `f`. For
the RBF kernel `p`, `b`, `c` and a scale `s` for each column are then moved together by stochastic gradient steps (Adam, with
steps that shrink to nothing). What counts for values is `|g - f|^2`; for classes it is which score is the largest:

    T^2 KL(softmax(f / T), softmax(g / T)) + a |g - f|^2 / 2,      T = 3 sqrt(mean (g - f)^2), in each round

A row whose two best scores are much further apart than the errors of `g` has no say in the first term: the fit goes to the
borders. The second term, with a small `a`, keeps the scores themselves, which probabilities are made of.

The rows are the model's own points and rows between them: a row that takes some of its columns from a neighbour. At its own
points a model says nearly what it was taught, and what it makes of the space between them shows only there. A part of these
rows is new in every round: the model can be asked as often as one likes. Some of the points are held out from all of this,
and say what the reduced model loses.

Cost: O(n m^2) for the beginning; for a round O(n^2 d) to ask the model, O(n m d) for the steps. O(n d + m^2) memory beside
some rows.

References: Burges, "Simplified support vector decision rules", 1996; Hinton, Vinyals and Dean, "Distilling the knowledge in
a neural network", 2015; Kingma and Ba, "Adam: a method for stochastic optimization", 2015.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.threads import slices
from gramless._core.validation import check_positive
from gramless.approximation.landmarks import as_points, select
from gramless.kernels import RBF, Kernel, ScaledColumns
from gramless.linalg.operators import evaluate
from gramless.linalg.operators.jitter import jittered_cholesky
from gramless.models.expansion import scores_to_labels

_HELD_OUT = 0.2
_FEWEST_HELD_OUT = 20
# So many say a share to a fraction of a percentage point; the others are worth more as rows to fit.
_MOST_HELD_OUT = 5000
_JITTER = 1e-9
_ROWS = 4096
# Rows between points for each point, and rows that are tried as its neighbour.
_BETWEEN = 4
_TRIED = 256
# Rows of a step: this many, more where a round would take more steps than this.
_BATCH = 250
_STEPS_OF_A_ROUND = 256
# What the first steps change: a point by this share of the kernel's width, a coefficient by this share of the spread of
# coefficients, a bias by this share of the spread of scores, a scale by this factor (less one).
_STEP = 0.2
_COEF_STEP = 0.025
_BIAS_STEP = 0.003
_SCALE_STEP = 0.03
_DECAYS = (0.9, 0.999)
# The ridge of the coefficients that steps begin with: large coefficients of opposite sign leave no room to move.
_FIRST_RIDGE = 1e-5
# A border is near where the scores of two classes are no further apart than this many typical errors.
_NEAR = 3.0
# What squared errors of scores count for beside the borders between classes.
_SCORES = 0.1


def compress(
    model: Any,
    *,
    n_points: int | None = None,
    loss: float | None = None,
    landmarks: Any = "uniform",
    rounds: int = 100,
    half: bool = True,
    random_state: Any = None,
) -> Any:
    """A copy of a fitted model with fewer points, refitted to the model's own scores.

    Parameters
    ----------
    model : estimator
        A fitted kernel expansion: `LSSVC`, `LSSVR`, their searches, `PrototypeLSSVC`, `RiSVOClassifier`. One-pass machines
        are given fewer landmarks instead.
    n_points : int or None, default=None
        How many points to keep; this or `loss`.
    loss : float or None, default=None
        Keep as few points as change at most this share of held-out predictions (for values: leave at most this share of
        their variance unexplained). Numbers of points are doubled from one in a hundred on.
    landmarks : str, LandmarkRule or array, default="uniform"
        Where the new points begin: a rule of `gramless.approximation.landmarks`.
    rounds : int, default=100
        How often all rows are gone through to move the points of an RBF kernel (also of one in `ScaledColumns`), with their
        coefficients and a scale for each column; more take longer and come closer. 0 leaves the points where they begin.
    half : bool, default=True
        Round the new points to half precision where that changes no held-out prediction: their file is smaller.
    random_state : int, RandomState or None, default=None
        Draws the held-out points, the landmarks, the rows between points and the batches.

    Returns
    -------
    estimator
        A copy with other `points_`, `dual_coef_` and `intercept_`, for the RBF kernel also with another `kernel_`, and
        `compression_`: a dict with `n_points`, `before`, `changed` (the share of held-out rows with another label or other
        labels; of values the unexplained share of the variance), `held_out` (how many: a fifth of the points, at most 5,000)
        and `half`. Probabilities are calibrated as those of `model`; deviations, intervals and the likelihood of values need
        the points of the training, and are refused.

    See Also
    --------
    compiled : Predictions without checks.
    PrototypeLSSVC : Fits few points from the start.

    References
    ----------
    C. J. C. Burges, "Simplified support vector decision rules", 1996.

    G. Hinton, O. Vinyals and J. Dean, "Distilling the knowledge in a neural network", 2015.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gramless import LSSVC, compress
    >>> X, y = load_digits(return_X_y=True)
    >>> model = LSSVC(C=10.0).fit(X[:1000], y[:1000])
    >>> small = compress(model, n_points=200, random_state=0)
    >>> len(small.points_), bool(abs(small.score(X[1000:], y[1000:]) - model.score(X[1000:], y[1000:])) < 0.02)
    (200, True)
    """
    missing = [name for name in ("kernel_", "points_", "dual_coef_", "intercept_") if not hasattr(model, name)]
    if missing:
        check_is_fitted(model)
        raise ValueError(f"{type(model).__name__} is not a kernel expansion with {missing[0]}, and cannot be compressed")
    if not model.kernel_.uses_points or not isinstance(model.points_, np.ndarray | sp.spmatrix | sp.sparray):
        raise ValueError(f"{type(model).__name__} has no points of its own in memory, and cannot be compressed")
    if isinstance(getattr(type(model), "points_", None), property):
        raise ValueError(f"{type(model).__name__} cannot be compressed: fit it with fewer landmarks")
    if (n_points is None) == (loss is None):
        raise ValueError("give one of n_points and loss")
    n = model.points_.shape[0]
    held_out = min(int(_HELD_OUT * n), _MOST_HELD_OUT)
    if held_out < _FEWEST_HELD_OUT:
        raise ValueError(f"{n} points are too few to hold some out and see what is lost")
    if n_points is not None and not 1 <= n_points < n:
        raise ValueError(f"n_points must lie between 1 and {n - 1}, got {n_points}")
    if loss is not None and not 0 < loss < 1:
        raise ValueError(f"loss must lie between 0 and 1, got {loss}")
    if rounds != 0:
        check_positive("rounds", rounds, integer=True)
    rng = check_random_state(random_state)
    carried: Any = model.points_
    host = np.asarray(carried.toarray() if sp.issparse(carried) else carried)
    X = xa.to_device(host, getattr(model, "device_", "cpu"))
    whole = _Expansion(model.kernel_, X, *(xa.like(part, X) for part in (model.dual_coef_, np.asarray(model.intercept_))))
    order = rng.permutation(n)
    held, kept = (X[xa.indices(part, X)] for part in (order[:held_out], order[held_out:]))
    moved = rounds > 0 and _scales(model.kernel_, X.shape[1]) is not None
    rows, truth = _Rows(whole, kept, _BETWEEN if moved else 0, rng), whole(held)
    m = n_points if n_points is not None else max(1, n // 100)
    while True:
        begin = as_points(select(landmarks, kept, model.kernel_, m, rng), X) + 0
        small = _solved(model.kernel_, rows.X, rows.Z, begin, _FIRST_RIDGE if moved else _JITTER)
        if moved:
            small = _moved(model, small, rows, rounds, rng)
        changed = _changed(model, truth, small(held))
        if n_points is not None or changed <= (loss or 0.0) or 2 * m >= len(kept):
            break
        m *= 2
    halved = False
    if half:
        with np.errstate(over="ignore"):
            rounded = xa.to_numpy(small.points).astype(np.float16).astype(host.dtype)
        if np.isfinite(rounded).all():
            coarse = replace(small, points=xa.like(rounded, X))
            if not moved:
                coarse = _solved(model.kernel_, rows.X, rows.Z, coarse.points)
            other = _changed(model, truth, coarse(held))
            if other <= changed:
                small, changed, halved = coarse, other, True
    told = {"n_points": m, "before": n, "changed": changed, "held_out": held_out, "half": halved}
    return _with(model, small, told)


@dataclass(frozen=True)
class _Expansion:
    """`x -> K(x, points) coef + bias`, summed in float64."""

    kernel: Kernel
    points: Any
    coef: Any
    bias: Any

    def __call__(self, X: Any) -> Any:
        """Scores of rows, float64, where the rows are."""
        out = xa.empty((len(X), self.coef.shape[1]), X, np.float64)
        coef, bias = (xa.astype(part, np.float64) for part in (self.coef, self.bias))
        for rows in slices(len(X), _ROWS):
            out[rows] = xa.astype(evaluate(self.kernel, X[rows], self.points), np.float64) @ coef + bias
        return out


def _with(model: Any, small: _Expansion, told: dict[str, Any]) -> Any:
    """A copy of a model that has the points and coefficients of an expansion."""
    getattr(model, "temperature_", None)  # fitted when it is first asked for, by all of the points: now or never
    done = copy.copy(model)
    done.kernel_ = small.kernel
    done.points_ = np.ascontiguousarray(xa.to_numpy(small.points))
    done.dual_coef_ = xa.to_numpy(small.coef).astype(model.dual_coef_.dtype)
    done.intercept_ = xa.to_numpy(small.bias).astype(np.asarray(model.intercept_).dtype)
    done.support_ = np.arange(len(done.points_))
    done._moved = None
    done.compression_ = told
    return done


def _changed(model: Any, before: Any, after: Any) -> float:
    """The share of other labels, or of variance that is not explained."""
    before, after = xa.to_numpy(before), xa.to_numpy(after)
    if getattr(model, "multilabel_", False):
        return float(np.mean(((before > 0) != (after > 0)).any(axis=1)))
    if is_classifier(model):
        return float(np.mean(scores_to_labels(model.classes_, before) != scores_to_labels(model.classes_, after)))
    return float(np.sum((after - before) ** 2) / max(np.sum((before - before.mean(axis=0)) ** 2), 1e-300))


def _scales(kernel: Kernel, width: int) -> np.ndarray | None:
    """What a Gaussian kernel multiplies each column by; None for kernels whose points cannot be moved."""
    if type(kernel) is RBF:
        return np.ones(width)
    if type(kernel) is ScaledColumns and type(kernel.kernel) is RBF:
        return np.asarray(kernel.scales, dtype=np.float64)
    return None


class _Rows:
    """What is fitted: rows `X` of a model and `between` times as many between them, with the model's scores `Z`."""

    def __init__(self, model: _Expansion, kept: Any, between: int, rng: np.random.RandomState):
        self._model, self._rng, self._n, self._parts, self._next = model, rng, len(kept), between, 0
        self.X = xa.empty(((1 + between) * self._n, kept.shape[1]), kept)
        self.Z = xa.empty((len(self.X), model.coef.shape[1]), kept, np.float64)
        self.X[: self._n], self.Z[: self._n] = kept, model(kept)
        for _ in range(between):
            self.renew()

    def renew(self) -> None:
        """Other rows in place of those between that have been there for the longest."""
        n = self._n
        part = slice(n * (1 + self._next), n * (2 + self._next))
        self._next = (self._next + 1) % self._parts
        self.X[part] = _between(self._model.kernel, self.X[:n], self._rng)
        self.Z[part] = self._model(self.X[part])


def _between(kernel: Kernel, X: Any, rng: np.random.RandomState) -> Any:
    """Each row with up to half of its columns from a near one: the nearest of some that are drawn.

    Columns that are taken whole stay among the values that they have: an indicator stays one.
    """
    n, width = X.shape
    out, tried = xa.empty(X.shape, X), min(_TRIED, n)
    for rows in slices(n, _ROWS):
        others = rng.choice(n, size=tried, replace=False)
        own = X[rows]
        likeness = xa.to_numpy(evaluate(kernel, own, X[xa.indices(others, X)]))
        likeness[np.arange(n)[rows][:, None] == others] = -np.inf  # a row is not its own neighbour
        nearest = X[xa.indices(others[likeness.argmax(axis=1)], X)]
        share = rng.uniform(0.0, 0.5, size=(len(own), 1))
        taken = np.frombuffer(rng.bytes(len(own) * width), dtype=np.uint8).reshape(len(own), width) < 256 * share
        out[rows] = xa.namespace(X).where(xa.indices(taken, X), nearest, own)
    return out


def _solved(kernel: Kernel, X: Any, Z: Any, points: Any, ridge: float = _JITTER) -> _Expansion:
    """Coefficients and bias by least squares on all rows, from normal equations in float64."""
    m = len(points)
    gram, right = xa.zeros((m + 1, m + 1), X, np.float64), xa.zeros((m + 1, Z.shape[1]), X, np.float64)
    for rows in slices(len(X), _ROWS):
        block = xa.empty((len(X[rows]), m + 1), X, np.float64)
        block[:, :m] = evaluate(kernel, X[rows], points)
        block[:, m] = 1.0
        gram += block.T @ block
        right += block.T @ Z[rows]
    diagonal = xa.to_numpy(xa.namespace(gram).linalg.diagonal(gram))
    L, _ = jittered_cholesky(gram, ridge * float(diagonal.mean()))
    solution = xa.cholesky_solve(L, right)
    return _Expansion(kernel, points, solution[:-1], solution[-1])


def _moved(model: Any, begin: _Expansion, rows: _Rows, rounds: int, rng: np.random.RandomState) -> _Expansion:
    """The expansion after `rounds` of steps; as it was before where that is nearer to the model."""
    n = len(rows.X)
    batch = max(_BATCH, n // _STEPS_OF_A_ROUND)
    slopes = _slopes_of(model)
    descent = _Descent(begin, rows.Z, rounds * -(-n // batch), slopes)
    error = begin(rows.X) - rows.Z
    for number in range(rounds):
        if number:
            rows.renew()
        T = max(
            _NEAR * _typical(_centred(error) if slopes is _class_slopes else error),
            float(np.finfo(xa.numpy_dtype(rows.X)).tiny) ** 0.25,
        )
        order = xa.indices(rng.permutation(n), rows.X)
        error = xa.empty(rows.Z.shape, rows.X)
        for part in slices(n, batch):
            some = order[part]
            error[part] = descent.step(rows.X[some], rows.Z[some], T)
    last = descent.expansion()
    return min((last, begin), key=lambda one: _changed(model, rows.Z, one(rows.X)))


def _typical(values: Any) -> float:
    """The root of the mean square."""
    return xa.norm(values) / float(np.prod(values.shape)) ** 0.5


def _centred(errors: Any) -> Any:
    """Errors of scores without what all classes have in common, which changes no label."""
    return errors - xa.namespace(errors).mean(errors, axis=1, keepdims=True)


class _Descent:
    """Adam on all numbers of an RBF expansion at once; the steps shrink to nothing over `steps` of them."""

    def __init__(self, begin: _Expansion, Z: Any, steps: int, slopes: Callable[..., Any]):
        points, kernel = begin.points, begin.kernel
        scales = _scales(kernel, points.shape[1])
        assert scales is not None
        inner: Any = kernel.kernel if isinstance(kernel, ScaledColumns) else kernel
        self._gamma, self._steps, self._count, self._slopes = float(inner.gamma), steps, 0, slopes
        self._scales = xa.like(scales, points)
        self._points, self._coef, self._bias = (xa.like(part, points) + 0 for part in (points, begin.coef, begin.bias))
        self._factors = xa.zeros((points.shape[1],), points)  # logarithms of what the scales are multiplied by
        width = 1 / np.sqrt(2 * self._gamma * points.shape[1])
        counts = np.where(scales != 0, np.abs(scales), np.inf)  # a column that does not count stays where it is
        self._rules = (
            _Adam(self._points, _STEP * width * xa.like(1 / counts, points)),
            _Adam(self._coef, _COEF_STEP * _typical(begin.coef)),
            _Adam(self._bias, _BIAS_STEP * _typical(Z)),
            _Adam(self._factors, _SCALE_STEP),
        )

    def step(self, X: Any, Z: Any, T: float) -> Any:
        """One step for a batch; returns the errors of the scores before it."""
        errors, gradients = self.gradients(X, Z, T)
        shrunk = 0.5 * (1 + np.cos(np.pi * self._count / self._steps))
        self._count += 1
        for rule, gradient in zip(self._rules, gradients, strict=True):
            rule.step(gradient, self._count, shrunk)
        return errors

    def gradients(self, X: Any, Z: Any, T: float) -> tuple[Any, tuple[Any, ...]]:
        """Errors of scores, and the slopes of the mean loss in points, coefficients, biases and logarithms of scales.

        With weights w_ij = K_ij sum_k r_ik b_jk of the slopes r in the scores, those in p_j are
        2 gamma s^2 sum_i w_ij (x_i - p_j), and in the logarithm of s_c  -2 gamma s_c^2 sum_ij w_ij (x_ic - p_jc)^2.
        """
        xp = xa.namespace(X)
        scales = self._scales * xp.exp(self._factors)
        rows, points = X * scales, self._points * scales
        K = evaluate(RBF(self._gamma), rows, points)
        scores = K @ self._coef + self._bias
        Z = xa.like(Z, K)
        errors = scores - Z
        slopes = self._slopes(xp, scores, Z, T) / len(X)
        weights = K * (slopes @ self._coef.T)
        of_points, of_rows = xp.sum(weights, axis=0)[:, None], xp.sum(weights, axis=1)[:, None]
        products = weights.T @ rows
        squares = xp.sum(of_rows * rows**2, axis=0) + xp.sum(points * (of_points * points - 2 * products), axis=0)
        gradients = (
            2 * self._gamma * (products - of_points * points) * scales,
            K.T @ slopes,
            xp.sum(slopes, axis=0),
            -2 * self._gamma * squares,
        )
        return errors, gradients

    def expansion(self) -> _Expansion:
        """The expansion as it is now."""
        scales = self._scales * xa.namespace(self._scales).exp(self._factors)
        kernel = ScaledColumns(RBF(self._gamma), xa.to_numpy(scales).astype(np.float64))
        return _Expansion(kernel, self._points, self._coef, self._bias)


def _slopes_of(model: Any) -> Callable[..., Any]:
    """The slopes of the loss that fits what a model predicts: values, the best of several classes, or signs."""
    if not is_classifier(model):
        return _value_slopes
    return _sign_slopes if getattr(model, "multilabel_", False) or len(model.classes_) == 2 else _class_slopes


def _value_slopes(xp: Any, scores: Any, Z: Any, T: float) -> Any:
    """Of `|scores - Z|^2 / 2`."""
    return scores - Z


def _sign_slopes(xp: Any, scores: Any, Z: Any, T: float) -> Any:
    """Of half the divergence for the scores `(z, -z)`, in each column by itself."""
    return T / 2 * (xp.tanh(scores / T) - xp.tanh(Z / T)) + _SCORES * (scores - Z)


def _class_slopes(xp: Any, scores: Any, Z: Any, T: float) -> Any:
    """Of `T^2 KL(softmax(Z / T), softmax(scores / T))`, and of the scores themselves."""
    parts = []
    for values in (scores, Z):
        powers = xp.exp((values - xp.max(values, axis=1, keepdims=True)) / T)
        parts.append(powers / xp.sum(powers, axis=1, keepdims=True))
    return T * (parts[0] - parts[1]) + _SCORES * (scores - Z)


class _Adam:
    """Adam on an array, in place; `rate` is a number or an array."""

    def __init__(self, array: Any, rate: Any):
        self._array, self._rate = array, rate
        self._mean, self._square = xa.zeros(array.shape, array), xa.zeros(array.shape, array)
        self._tiny = float(np.finfo(xa.numpy_dtype(array)).tiny) ** 0.5

    def step(self, gradient: Any, count: int, shrunk: float) -> None:
        """Step number `count`, from 1 on, of a size that is multiplied by `shrunk`."""
        first, second = _DECAYS
        self._mean *= first
        self._mean += (1 - first) * gradient
        self._square *= second
        self._square += (1 - second) * gradient**2
        size = (self._square / (1 - second**count)) ** 0.5 + self._tiny
        self._array -= self._mean / size * (self._rate * (shrunk / (1 - first**count)))
