"""A fitted kernel expansion on fewer points: a reduced set, chosen, moved and refitted to the model's own scores.

    g(x) = sum_j b_j K(x, p_j) + c,      min over p, b, c of  sum_i |g(x_i) - f(x_i)|^2

The points `p` begin as landmarks of the model's points. For the RBF kernel they are then moved by stochastic gradient steps
(Adam, with steps that shrink to nothing) of that sum, in rounds between which `b` is solved for anew. The rows `x_i` are the
model's own points and, for each, four rows on the way to a neighbour: at its own points a model says nearly what it was
taught, and what it makes of the space between them shows only there. One fifth of the points is held out from all of this,
and says what the reduced model loses.

Cost: O(n^2 d) for the scores of n points and those between them; for a round O(n m d) with m new points, and O(m^3) for its
solution; O(n m^2) for the last one. O(n d + m^2) memory beside some rows.

References: Burges, "Simplified support vector decision rules", 1996; Kingma and Ba, "Adam: a method for stochastic
optimization", 2015.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gramless._runtime import arrays as xa
from gramless._runtime.threads import slices
from gramless._runtime.validation import check_positive
from gramless.kernels import RBF, Kernel
from gramless.landmarks import as_points, select
from gramless.models.expansion import scores_to_labels
from gramless.operators import evaluate
from gramless.operators.jitter import jittered_cholesky

_HELD_OUT = 0.2
_FEWEST_HELD_OUT = 20
_BATCH = 500
# A step moves a point by about this share of the kernel's width, the first ones.
_STEP = 0.05
_DECAYS = (0.9, 0.999)
_JITTER = 1e-9
_ROWS = 4096
# Rows between points for each point, and rows that are tried as its neighbour.
_BETWEEN = 4
_TRIED = 256
# Rows for each new point in the solutions between rounds.
_ROWS_PER_POINT = 4


def compress(
    model: Any,
    *,
    n_points: int | None = None,
    loss: float | None = None,
    landmarks: Any = "uniform",
    rounds: int = 40,
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
        Where the new points begin: a rule of `gramless.landmarks`.
    rounds : int, default=40
        How often all rows are gone through to move the points of an RBF kernel; more take longer and come closer.
    half : bool, default=True
        Round the new points to half precision where that changes no held-out prediction: their file is smaller.
    random_state : int, RandomState or None, default=None
        Draws the held-out points, the landmarks and the batches.

    Returns
    -------
    estimator
        A copy with other `points_`, `dual_coef_` and `intercept_`, and `compression_`: a dict with `n_points`, `before`,
        `changed` (the share of held-out labels that changed; of values the unexplained share of the variance), `held_out`
        and `half`.

    See Also
    --------
    compiled : Predictions without checks.
    PrototypeLSSVC : Fits few points from the start.

    References
    ----------
    C. J. C. Burges, "Simplified support vector decision rules", 1996.

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
    held_out = int(_HELD_OUT * n)
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
    rows = _with_rows_between(model.kernel_, kept, rng) if _moves(model.kernel_) and rounds else kept
    truth, scores = whole(held), whole(rows)
    m = n_points if n_points is not None else max(1, n // 100)
    while True:
        small = _reduced(model.kernel_, kept, rows, scores, m, landmarks, rounds, rng)
        changed = _changed(model, truth, small(held))
        if n_points is not None or changed <= (loss or 0.0) or 2 * m >= len(kept):
            break
        m *= 2
    halved = False
    if half:
        with np.errstate(over="ignore"):
            rounded = xa.to_numpy(small.points).astype(np.float16).astype(host.dtype)
        if np.isfinite(rounded).all():
            coarse = _solved(model.kernel_, rows, scores, xa.like(rounded, X))
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
    done = copy.copy(model)
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
    if is_classifier(model):
        return float(np.mean(scores_to_labels(model.classes_, before) != scores_to_labels(model.classes_, after)))
    return float(np.sum((after - before) ** 2) / max(np.sum((before - before.mean(axis=0)) ** 2), 1e-300))


def _moves(kernel: Kernel) -> bool:
    """Whether points of a kernel can be moved."""
    return type(kernel) is RBF


def _with_rows_between(kernel: Kernel, X: Any, rng: np.random.RandomState) -> Any:
    """The rows, and below them some on the way from each to a near one: the nearest of some that are drawn."""
    n = len(X)
    out = xa.empty(((1 + _BETWEEN) * n, X.shape[1]), X)
    out[:n] = X
    tried = min(_TRIED, n)
    for rows in slices(_BETWEEN * n, _BATCH):
        idx = np.arange(rows.start, rows.stop) % n
        others = rng.choice(n, size=tried, replace=False)
        own, candidates = X[xa.indices(idx, X)], X[xa.indices(others, X)]
        likeness = xa.to_numpy(evaluate(kernel, own, candidates))
        likeness[idx[:, None] == others] = -np.inf  # a row is not its own neighbour
        nearest = X[xa.indices(others[likeness.argmax(axis=1)], X)]
        share = xa.like(rng.uniform(0.0, 0.5, size=(len(idx), 1)), X)
        out[n + rows.start : n + rows.stop] = own + share * (nearest - own)
    return out


def _solved(kernel: Kernel, X: Any, Z: Any, points: Any) -> _Expansion:
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
    L, _ = jittered_cholesky(gram, _JITTER * float(diagonal.mean()))
    solution = xa.cholesky_solve(L, right)
    return _Expansion(kernel, points, solution[:-1], solution[-1])


def _reduced(
    kernel: Kernel, X: Any, rows: Any, Z: Any, m: int, landmarks: Any, rounds: int, rng: np.random.RandomState
) -> _Expansion:
    """An expansion on `m` points that begin among `X` and comes close to the scores `Z` of `rows`."""
    begin = as_points(select(landmarks, X, kernel, m, rng), X)
    first = _solved(kernel, rows, Z, begin + 0)
    if not _moves(kernel) or len(X) < 2:
        return first
    n = len(rows)
    mover = _Mover(float(kernel.gamma), first.points, rounds * -(-n // _BATCH))
    now = first
    for _ in range(rounds):
        order = xa.indices(rng.permutation(n), rows)
        for part in slices(n, _BATCH):
            some = order[part]
            mover.step(rows[some], Z[some], now)
        few = order[: max(_ROWS, _ROWS_PER_POINT * m)]
        now = _solved(kernel, rows[few], Z[few], mover.points)
    last = _solved(kernel, rows, Z, mover.points) if rounds else first
    return min((first, last), key=lambda one: _error(one, rows, Z))


def _error(expansion: _Expansion, X: Any, Z: Any) -> float:
    return float(xa.norm(expansion(X) - Z))


class _Mover:
    """Adam on the points of an RBF expansion, whose coefficients stay; the steps shrink to nothing over `steps` of them."""

    def __init__(self, gamma: float, points: Any, steps: int):
        self.points = points + 0
        self._gamma, self._steps, self._count = gamma, steps, 0
        self._rate = _STEP / np.sqrt(2 * gamma * points.shape[1])
        self._mean, self._square = xa.zeros(points.shape, points), xa.zeros(points.shape, points)

    def step(self, X: Any, Z: Any, now: _Expansion) -> None:
        """One step for a batch: the gradient of |g - Z|^2 in p_j is 4 gamma sum_i w_ij (x_i - p_j)."""
        K = evaluate(RBF(self._gamma), X, self.points)
        coef = xa.like(now.coef, K)
        residual = (K @ coef + xa.like(now.bias, K) - xa.like(Z, K)) / len(X)
        weights = K * (residual @ coef.T)
        totals = xa.namespace(weights).sum(weights, axis=0)
        gradient = 4 * self._gamma * (weights.T @ X - totals[:, None] * self.points)
        rate = self._rate * 0.5 * (1 + np.cos(np.pi * self._count / self._steps))
        self._count += 1
        first, second = _DECAYS
        self._mean = first * self._mean + (1 - first) * gradient
        self._square = second * self._square + (1 - second) * gradient**2
        size = (self._square / (1 - second**self._count)) ** 0.5
        tiny = float(np.finfo(xa.numpy_dtype(size)).tiny) ** 0.5
        self.points -= rate / (1 - first**self._count) * self._mean / (size + tiny)
