"""A fitted kernel expansion on fewer points: a reduced set, chosen, moved and refitted to the model's own scores.

    g(x) = sum_j b_j K(x, p_j) + c,      min over p, b, c of  sum_i |g(x_i) - f(x_i)|^2   over the model's own points x_i

The points `p` begin as landmarks of the model's points. For the RBF kernel they are then moved by stochastic gradient steps
(Adam) of that sum, in rounds after each of which `b` is solved for anew; a round that does not help ends it. One fifth of
the points is held out from all of this, and says what the reduced model loses.

Cost: O(n m d) for a round over n points and m new ones, and O(n m^2) for each solution; O(m^2) memory beside some rows.

References: Burges, "Simplified support vector decision rules", 1996; Kingma and Ba, "Adam: a method for stochastic
optimization", 2015.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from sklearn.base import is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gramless.kernels import RBF, Kernel
from gramless.landmarks import as_points, select
from gramless.models.expansion import scores_to_labels

_HELD_OUT = 0.2
_FEWEST_HELD_OUT = 20
_BATCH = 500
_ROUNDS = 40
# A step moves a point by about this share of the kernel's width.
_STEP = 0.05
_DECAYS = (0.9, 0.999)
_JITTER = 1e-9
_ROWS = 4096


def compress(
    model: Any,
    *,
    n_points: int | None = None,
    loss: float | None = None,
    landmarks: Any = "uniform",
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
    rng = check_random_state(random_state)
    carried: Any = model.points_
    X = np.asarray(carried.toarray() if sp.issparse(carried) else carried)
    scores = _expand(model.kernel_, X, X, model.dual_coef_, model.intercept_)
    order = rng.permutation(n)
    held, kept = order[:held_out], order[held_out:]
    m = n_points if n_points is not None else max(1, n // 100)
    while True:
        points, coef, bias = _reduced(model.kernel_, X[kept], scores[kept], m, landmarks, rng)
        found = _expand(model.kernel_, X[held], points, coef, bias)
        changed = _changed(model, scores[held], found)
        if n_points is not None or changed <= (loss or 0.0) or 2 * m >= len(kept):
            break
        m *= 2
    halved = False
    if half:
        with np.errstate(over="ignore"):
            rounded = points.astype(np.float16).astype(points.dtype)
        if np.isfinite(rounded).all():
            coef_half, bias_half = _solve(model.kernel_, X[kept], scores[kept], rounded)
            other = _changed(model, scores[held], _expand(model.kernel_, X[held], rounded, coef_half, bias_half))
            if other <= changed:
                points, coef, bias, changed, halved = rounded, coef_half, bias_half, other, True
    small = copy.copy(model)
    small.points_ = np.ascontiguousarray(points)
    small.dual_coef_ = coef.astype(model.dual_coef_.dtype)
    small.intercept_ = bias.astype(np.asarray(model.intercept_).dtype)
    small.support_ = np.arange(len(points))
    small._moved = None
    small.compression_ = {"n_points": len(points), "before": n, "changed": changed, "held_out": held_out, "half": halved}
    return small


def _expand(kernel: Kernel, X: np.ndarray, points: np.ndarray, coef: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Scores of rows, some of them at a time."""
    parts = [
        np.asarray(kernel(X[start : start + _ROWS], points), dtype=np.float64) @ coef for start in range(0, len(X), _ROWS)
    ]
    return np.concatenate(parts) + bias


def _changed(model: Any, before: np.ndarray, after: np.ndarray) -> float:
    """The share of other labels, or of variance that is not explained."""
    if is_classifier(model):
        return float(np.mean(scores_to_labels(model.classes_, before) != scores_to_labels(model.classes_, after)))
    return float(np.sum((after - before) ** 2) / max(np.sum((before - before.mean(axis=0)) ** 2), 1e-300))


def _solve(kernel: Kernel, X: np.ndarray, Z: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and bias by least squares on all rows, from normal equations in float64."""
    m = len(points)
    gram, right = np.zeros((m + 1, m + 1)), np.zeros((m + 1, Z.shape[1]))
    for start in range(0, len(X), _ROWS):
        rows = slice(start, start + _ROWS)
        block = np.column_stack([np.asarray(kernel(X[rows], points), dtype=np.float64), np.ones(len(X[rows]))])
        gram += block.T @ block
        right += block.T @ Z[rows]
    jitter = _JITTER * np.trace(gram) / (m + 1)
    while True:
        try:
            factor = scipy.linalg.cho_factor(gram + jitter * np.eye(m + 1), lower=True)
            break
        except np.linalg.LinAlgError:
            jitter *= 10
    solution = scipy.linalg.cho_solve(factor, right)
    return solution[:-1], solution[-1]


def _reduced(
    kernel: Kernel, X: np.ndarray, Z: np.ndarray, m: int, landmarks: Any, rng: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, coefficients and bias that come close to the scores `Z`."""
    points = np.array(as_points(select(landmarks, X, kernel, m, rng), X), copy=True)
    coef, bias = _solve(kernel, X, Z, points)
    if type(kernel) is not RBF or len(X) < 2:
        return points, coef, bias
    best = (points, coef, bias, _error(kernel, X, Z, points, coef, bias))
    mover = _Mover(float(kernel.gamma), points)
    for _ in range(_ROUNDS):
        order = rng.permutation(len(X))
        for start in range(0, len(X), _BATCH):
            rows = order[start : start + _BATCH]
            mover.step(X[rows], Z[rows], coef, bias)
        coef, bias = _solve(kernel, X, Z, mover.points)
        error = _error(kernel, X, Z, mover.points, coef, bias)
        if error < 0.99 * best[3]:
            best = (mover.points.copy(), coef, bias, error)
        else:
            break
    return best[0], best[1], best[2]


def _error(kernel: Kernel, X: np.ndarray, Z: np.ndarray, points: np.ndarray, coef: np.ndarray, bias: np.ndarray) -> float:
    some = slice(0, 2 * _ROWS)
    return float(np.mean((_expand(kernel, X[some], points, coef, bias) - Z[some]) ** 2))


class _Mover:
    """Adam on the points of an RBF expansion, whose coefficients stay."""

    def __init__(self, gamma: float, points: np.ndarray):
        self.points = points.copy()
        self._gamma = gamma
        self._rate = _STEP / np.sqrt(2 * gamma * points.shape[1])
        self._mean, self._square = np.zeros_like(points), np.zeros_like(points)
        self._count = 0

    def step(self, X: np.ndarray, Z: np.ndarray, coef: np.ndarray, bias: np.ndarray) -> None:
        """One step for a batch: the gradient of |g - Z|^2 in p_j is 4 gamma sum_i w_ij (x_i - p_j)."""
        K = np.asarray(RBF(self._gamma)(X, self.points))
        residual = (K @ coef + bias - Z) / len(X)
        weights = (K * (residual @ coef.T)).astype(self.points.dtype)
        gradient = 4 * self._gamma * (weights.T @ X - weights.sum(axis=0)[:, None] * self.points)
        self._count += 1
        first, second = _DECAYS
        self._mean = first * self._mean + (1 - first) * gradient
        self._square = second * self._square + (1 - second) * gradient**2
        mean = self._mean / (1 - first**self._count)
        size = np.sqrt(self._square / (1 - second**self._count))
        self.points -= (self._rate * mean / (size + np.finfo(self.points.dtype).tiny ** 0.5)).astype(self.points.dtype)
