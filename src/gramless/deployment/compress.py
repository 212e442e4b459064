"""Reduced-set approximation of a fitted kernel expansion: fewer points, optimised to reproduce the scores of the model.

    g(x) = sum_j b_j K(x, p_j) + c,      K(x, p) = exp(-gamma |s * (x - p)|^2)

The initial points p are landmarks selected from the points of the model; the initial b and c are the least-squares fit to
the scores f of the model. For the RBF kernel, Adam then optimises p, b, c and one scale s per column in rounds (passes over
the rows). The loss is |g - f|^2 / 2 for regressors and T^2 KL(softmax(f / T), softmax(g / T)) + a |g - f|^2 / 2 for
classifiers, where T = 3 rms(g - f) is updated in every round. The divergence gives most weight to rows near a class
boundary; the squared error preserves the scores, from which probabilities are computed.

The rows of the fit are points of the model and interpolations between neighbouring points, partly redrawn in every round.
The loss is measured on held-out points. Cost: O(n m^2) for the initial fit, O(n^2 d + n m d) per round for the scores of the
model and the gradient steps; memory O(n d + m^2). References: Burges, "Simplified support vector decision rules", 1996;
Hinton, Vinyals and Dean, "Distilling the knowledge in a neural network", 2015; Kingma and Ba, "Adam: a method for stochastic
optimization", 2015.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils import check_random_state

from gramless._core import arrays as xa
from gramless._core.memory import MemoryEstimate, parse_budget
from gramless._core.threads import slices
from gramless._core.validation import check_positive
from gramless.approximation.landmarks import LandmarkRule, as_points, select
from gramless.deployment.compiled import KernelExpansion, expansion_of
from gramless.deployment.tuning import TUNING
from gramless.kernels import RBF, Kernel, ScaledColumns
from gramless.linalg.operators import evaluate
from gramless.streaming.learners.ridge_sums import RidgeSums

# Decay rates of the moments in Adam, as in its paper.
_DECAYS = (0.9, 0.999)


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
    """Return a copy of a fitted model with fewer points, refitted to the scores of the model.

    Parameters
    ----------
    model : estimator
        Fitted kernel expansion: `LSSVC`, `LSSVR`, `PrototypeLSSVC` or `RiSVOClassifier`. Models on
        landmarks cannot be compressed; fit them with fewer landmarks.
    n_points : int or None, default=None
        Number of points of the result; exactly one of `n_points` and `loss` must be given.
    loss : float or None, default=None
        Maximum fraction of held-out predictions that may change; for regression, maximum fraction of unexplained variance.
        The number of points starts at 1 % of the points of the model and is doubled while the loss exceeds this maximum.
    landmarks : str, LandmarkRule or array, default="uniform"
        Rule that selects the landmarks: a name or object of `gramless.approximation.landmarks`, row indices, or the points
        themselves. The optimisation starts from these landmarks.
    rounds : int, default=100
        Number of passes over the rows that optimise the points, coefficients and column scales of models with the kernel
        `RBF` or `ScaledColumns(RBF)`; 0 keeps the landmarks as points.
    half : bool, default=True
        Whether to round the points to half precision if the loss does not increase; a file of the model is then smaller.
    random_state : int, RandomState or None, default=None
        Seed or generator for all random choices of the fit; an int makes the fit reproducible.

    Returns
    -------
    estimator
        A copy with other `points_`, `dual_coef_` and `intercept_`, for the RBF kernel also with another `kernel_`, and
        `compression_`: a dict with `n_points`, `before` (number of points of `model`), `changed` (the measured loss),
        `held_out` (number of held-out points: a fifth, at most 5,000) and `half`. Probabilities use the calibration of
        `model`; standard deviations, intervals and the likelihood need the training points and raise `ValueError`.

    See Also
    --------
    compiled : Predictions without input validation.
    PrototypeLSSVC : Fit few points from the start.

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
    expansion = expansion_of(model, "compressed")
    if isinstance(getattr(type(model), "points_", None), property):
        raise ValueError(f"{type(model).__name__} cannot be compressed: fit it with fewer landmarks")
    n = len(expansion.points)
    if (n_points is None) == (loss is None):
        raise ValueError("give exactly one of n_points and loss")
    if n_points is not None and not 1 <= n_points < n:
        raise ValueError(f"n_points must lie between 1 and {n - 1}, got {n_points}")
    if loss is not None and not 0 < loss < 1:
        raise ValueError(f"loss must lie between 0 and 1, got {loss}")
    if rounds != 0:
        check_positive("rounds", rounds, integer=True)
    device, rng = getattr(model, "device_", "cpu"), check_random_state(random_state)
    budget = parse_budget(getattr(model, "memory_budget", None), device)
    kernel, objective = expansion.kernel, objective_of(model)
    n_held_out = min(int(TUNING.held_out_fraction * n), TUNING.max_held_out)
    if n_held_out < TUNING.min_held_out:
        raise ValueError(f"{n} points are too few: at least {TUNING.min_held_out} must be held out to measure the loss")
    X = xa.to_device(expansion.points, device)
    optimise = rounds > 0 and _as_scaled_rbf(kernel, X.shape[1]) is not None
    m = n_points if n_points is not None else max(1, n // 100)
    n_interpolated = TUNING.interpolated_rows if optimise else 0
    _check_memory(expansion, n_interpolated, m, budget)
    # Subtract the bias of a regressor: gradient steps in float32 on scores with a large mean would lose digits.
    offset = expansion.bias if objective == "values" else np.zeros_like(expansion.bias)
    full = KernelExpansion(kernel, X, xa.like(expansion.coef, X), xa.like(expansion.bias - offset, X))
    order = rng.permutation(n)
    held_out, rest = (X[xa.indices(part, X)] for part in (order[:n_held_out], order[n_held_out:]))
    rows = _TeacherRows(full, rest, n_interpolated, rng)
    expected = full(held_out)
    # If `landmarks` is a rule, it selects from the points that are not held out; row indices refer to all points.
    candidates = rest if isinstance(landmarks, str | LandmarkRule) else X
    ridge = TUNING.start_ridge if optimise else TUNING.least_squares_ridge
    while True:
        start = as_points(select(landmarks, candidates, kernel, m, rng, TUNING.block_bytes), candidates) + 0
        small = _least_squares(kernel, rows.X, rows.Z, start, ridge)
        if optimise:
            small = _optimised(small, rows, objective, rounds, rng)
        changed = changed_share(objective, expected, small(held_out))
        if n_points is not None or changed <= (loss or 0.0) or 2 * m >= len(rest):
            break
        m *= 2
        _check_memory(expansion, n_interpolated, m, budget)
    rounded = False
    if half:
        with np.errstate(over="ignore"):
            points = xa.to_numpy(small.points).astype(np.float16).astype(expansion.points.dtype)
        if np.isfinite(points).all():
            coarse = replace(small, points=xa.like(points, X))
            if not optimise:
                coarse = _least_squares(kernel, rows.X, rows.Z, coarse.points)
            coarse_changed = changed_share(objective, expected, coarse(held_out))
            if coarse_changed <= changed:
                small, changed, rounded = coarse, coarse_changed, True
    getattr(model, "temperature_", None)  # compute the calibration now, because it needs all points
    state = model.__getstate__() | {
        "kernel_": small.kernel,
        "points_": np.ascontiguousarray(xa.to_numpy(small.points)),
        "dual_coef_": xa.to_numpy(small.coef).astype(expansion.coef.dtype),
        "intercept_": (xa.to_numpy(small.bias) + offset).astype(expansion.bias.dtype),
        "support_": np.arange(len(small.points)),
        "compression_": {
            "n_points": len(small.points),
            "before": n,
            "changed": changed,
            "held_out": n_held_out,
            "half": rounded,
        },
    }
    copied = object.__new__(type(model))
    copied.__setstate__(state)
    return copied


def _check_memory(expansion: KernelExpansion, n_interpolated: int, m: int, budget: int) -> None:
    """Raise MemoryError if the compression to `m` points exceeds the budget."""
    (n, d), k = expansion.points.shape, expansion.coef.shape[1]
    itemsize, n_rows = expansion.points.dtype.itemsize, (1 + n_interpolated) * n
    parts = {
        "rows": (n_rows + 4 * n) * d * itemsize,
        "scores": 5 * n_rows * k * 8,
        "normal equations": 6 * m * m * 8,
        "gradient steps": 5 * max(TUNING.batch_rows, n_rows // TUNING.steps_per_round) * m * itemsize,
        "kernel values": TUNING.block_bytes,
    }
    MemoryEstimate(parts).check(budget, "compress to fewer points, or set a larger memory_budget of the model")


# Objectives


Objective = Literal["values", "signs", "classes"]
"""Kind of predictions that a compression preserves: the scores, the signs of scores, or the class of the largest score."""


def objective_of(model: Any) -> Objective:
    """Return "values" for regression, "signs" for two classes or several labels, and "classes" for more than two classes."""
    if not is_classifier(model):
        return "values"
    return "signs" if getattr(model, "multilabel_", False) or len(model.classes_) == 2 else "classes"


def loss_gradient(objective: Objective, scores: Any, Z: Any, T: float) -> Any:
    """Return the gradient of the loss with respect to the scores.

    The loss of "values" is the squared error `|scores - Z|^2 / 2`. The loss of "classes" is the divergence
    `T^2 KL(softmax(Z / T), softmax(scores / T))` plus a fraction of the squared error. The loss of "signs" treats each
    column z as two classes with the scores `(z, -z)`, and adds half of the divergences to a fraction of the squared error.
    """
    if objective == "values":
        return scores - Z
    xp = xa.namespace(scores)
    if objective == "signs":
        difference = (xp.tanh(scores / T) - xp.tanh(Z / T)) / 2
    else:
        powers = [xp.exp((values - xp.max(values, axis=1, keepdims=True)) / T) for values in (scores, Z)]
        p, q = (values / xp.sum(values, axis=1, keepdims=True) for values in powers)
        difference = p - q
    return T * difference + TUNING.score_weight * (scores - Z)


def changed_share(objective: Objective, expected: Any, scores: Any) -> float:
    """Return the fraction of predictions that differ; for "values", the fraction of the variance that is not explained."""
    expected, scores = xa.to_numpy(expected), xa.to_numpy(scores)
    if objective == "values":
        return float(np.sum((scores - expected) ** 2) / max(np.sum((expected - expected.mean(axis=0)) ** 2), 1e-300))
    if objective == "signs":
        return float(np.mean(((expected > 0) != (scores > 0)).any(axis=1)))
    return float(np.mean(expected.argmax(axis=1) != scores.argmax(axis=1)))


# Rows that the compressed expansion is fitted to


class _TeacherRows:
    """Rows `X` (points of a model and `n_interpolated` interpolated rows per point) with the scores `Z` of the model."""

    def __init__(self, model: KernelExpansion, points: Any, n_interpolated: int, rng: np.random.RandomState):
        self._model, self._rng, self._n, self._parts, self._next = model, rng, len(points), n_interpolated, 0
        self.X = xa.empty(((1 + n_interpolated) * self._n, points.shape[1]), points)
        self.Z = xa.empty((len(self.X), model.coef.shape[1]), points, np.float64)
        self.X[: self._n], self.Z[: self._n] = points, model(points)
        for _ in range(n_interpolated):
            self.renew()

    def renew(self) -> None:
        """Replace the oldest interpolated rows by new ones."""
        n = self._n
        part = slice(n * (1 + self._next), n * (2 + self._next))
        self._next = (self._next + 1) % self._parts
        self.X[part] = interpolated_rows(self._model.kernel, self.X[:n], self._rng)
        self.Z[part] = self._model(self.X[part])


def interpolated_rows(kernel: Kernel, X: Any, rng: np.random.RandomState) -> Any:
    """Return copies of rows in which up to half of the values come from the nearest row among random candidates."""
    n, width = X.shape
    out, n_candidates = xa.empty(X.shape, X), min(TUNING.neighbour_candidates, n)
    for rows in slices(n, TUNING.rows_per_draw):
        candidates = rng.choice(n, size=n_candidates, replace=False)
        own = X[rows]
        similarity = xa.to_numpy(evaluate(kernel, own, X[xa.indices(candidates, X)]))
        similarity[np.arange(n)[rows][:, None] == candidates] = -np.inf  # a row is not its own neighbour
        nearest = X[xa.indices(candidates[similarity.argmax(axis=1)], X)]
        share = rng.uniform(0.0, 0.5, size=(len(own), 1))
        # Values are copied instead of averaged, so that indicator columns contain only zeros and ones.
        copied = np.frombuffer(rng.bytes(len(own) * width), dtype=np.uint8).reshape(len(own), width) < 256 * share
        out[rows] = xa.namespace(X).where(xa.indices(copied, X), nearest, own)
    return out


# Fits


def _as_scaled_rbf(kernel: Kernel, width: int) -> tuple[float, np.ndarray] | None:
    """Return gamma and the scale of each column of an RBF kernel; None for kernels whose points cannot be optimised."""
    if type(kernel) is RBF:
        return float(kernel.gamma), np.ones(width)
    if type(kernel) is ScaledColumns and type(kernel.kernel) is RBF:
        return float(kernel.kernel.gamma), np.asarray(kernel.scales, dtype=np.float64)
    return None


def _least_squares(
    kernel: Kernel, X: Any, Z: Any, points: Any, ridge: float = TUNING.least_squares_ridge
) -> KernelExpansion:
    """Return the expansion in given points with least-squares coefficients and bias, from normal equations in float64."""
    sums = RidgeSums(len(points), Z.shape[1], X)
    # Kernel values are computed in the precision of the points and converted to float64 for the sums.
    for rows in slices(len(X), max(1, TUNING.block_bytes // (16 * len(points)))):
        sums.add(evaluate(kernel, X[rows], points), Z[rows])
    solution = sums.solve(ridge * sums.trace / len(points))
    return KernelExpansion(kernel, points, solution.A, solution.bias)


def _optimised(
    start: KernelExpansion, rows: _TeacherRows, objective: Objective, rounds: int, rng: np.random.RandomState
) -> KernelExpansion:
    """Return the expansion after `rounds` passes of gradient steps, or `start` if `start` reproduces more predictions."""
    n = len(rows.X)
    batch = max(TUNING.batch_rows, n // TUNING.steps_per_round)
    descent = ExpansionDescent(start, rows.Z, rounds * -(-n // batch), objective)
    errors = start(rows.X) - rows.Z
    smallest = float(np.finfo(xa.numpy_dtype(rows.X)).tiny) ** 0.25
    for number in range(rounds):
        if number:
            rows.renew()
        if objective == "classes":  # a constant added to all scores of a row changes no prediction
            errors = errors - xa.namespace(errors).mean(errors, axis=1, keepdims=True)
        T = max(TUNING.temperature * _root_mean_square(errors), smallest)
        order = xa.indices(rng.permutation(n), rows.X)
        errors = xa.empty(rows.Z.shape, rows.X)
        for part in slices(n, batch):
            chosen = order[part]
            errors[part] = descent.step(rows.X[chosen], rows.Z[chosen], T)
    return min((descent.expansion(), start), key=lambda one: changed_share(objective, rows.Z, one(rows.X)))


def _root_mean_square(values: Any) -> float:
    return xa.norm(values) / float(np.prod(values.shape)) ** 0.5


class ExpansionDescent:
    """Adam for the points, coefficients, bias and column scales of an RBF expansion, with step sizes decreasing to zero."""

    def __init__(self, start: KernelExpansion, Z: Any, n_steps: int, objective: Objective):
        points = start.points
        scaled_rbf = _as_scaled_rbf(start.kernel, points.shape[1])
        assert scaled_rbf is not None
        self._gamma, scales = scaled_rbf
        self._n_steps, self._count, self._objective = n_steps, 0, objective
        self._scales = xa.like(scales, points)
        self._points, self._coef, self._bias = (xa.like(part, points) + 0 for part in (points, start.coef, start.bias))
        self._log_factors = xa.zeros((points.shape[1],), points)  # logarithms of the optimised factors of the scales
        width = 1 / np.sqrt(2 * self._gamma * points.shape[1])
        divisors = np.where(scales != 0, np.abs(scales), np.inf)  # points do not move along columns with scale 0
        arrays = (self._points, self._coef, self._bias, self._log_factors)
        rates = (
            TUNING.point_step * width * xa.like(1 / divisors, points),
            TUNING.coef_step * _root_mean_square(start.coef),
            TUNING.bias_step * _root_mean_square(Z),
            TUNING.scale_step,
        )
        self._tiny = float(np.finfo(xa.numpy_dtype(points)).tiny) ** 0.5
        # Each optimised array with its step size and the running means of its gradient and of the squared gradient.
        self._adam = [
            (array, rate, xa.zeros(array.shape, array), xa.zeros(array.shape, array))
            for array, rate in zip(arrays, rates, strict=True)
        ]

    def step(self, X: Any, Z: Any, T: float) -> Any:
        """Make one step of Adam on a batch and return the errors of the scores before the step."""
        errors, gradients = self.gradients(X, Z, T)
        decay = 0.5 * (1 + np.cos(np.pi * self._count / self._n_steps))
        self._count += 1
        first, second = _DECAYS
        for (array, rate, mean, square), gradient in zip(self._adam, gradients, strict=True):
            mean *= first
            mean += (1 - first) * gradient
            square *= second
            square += (1 - second) * gradient**2
            size = (square / (1 - second**self._count)) ** 0.5 + self._tiny
            array -= mean / size * (rate * (decay / (1 - first**self._count)))
        return errors

    def gradients(self, X: Any, Z: Any, T: float) -> tuple[Any, tuple[Any, ...]]:
        """Return the errors of the scores, and the gradients of the mean loss with respect to the optimised arrays.

        Let r be the gradient with respect to the scores, and w_ij = K_ij sum_k r_ik b_jk. The gradient with respect to p_j
        is 2 gamma s^2 sum_i w_ij (x_i - p_j), and with respect to log s_c it is -2 gamma s_c^2 sum_ij w_ij (x_ic - p_jc)^2.
        """
        xp = xa.namespace(X)
        scales = self._scales * xp.exp(self._log_factors)
        rows, points = X * scales, self._points * scales
        K = evaluate(RBF(self._gamma), rows, points)
        scores = K @ self._coef + self._bias
        Z = xa.like(Z, K)
        errors = scores - Z
        gradient = loss_gradient(self._objective, scores, Z, T) / len(X)
        weights = K * (gradient @ self._coef.T)
        of_points, of_rows = xp.sum(weights, axis=0)[:, None], xp.sum(weights, axis=1)[:, None]
        products = weights.T @ rows
        squares = xp.sum(of_rows * rows**2, axis=0) + xp.sum(points * (of_points * points - 2 * products), axis=0)
        gradients = (
            2 * self._gamma * (products - of_points * points) * scales,
            K.T @ gradient,
            xp.sum(gradient, axis=0),
            -2 * self._gamma * squares,
        )
        return errors, gradients

    def expansion(self) -> KernelExpansion:
        """Return the current expansion."""
        scales = self._scales * xa.namespace(self._scales).exp(self._log_factors)
        kernel = ScaledColumns(RBF(self._gamma), xa.to_numpy(scales).astype(np.float64))
        return KernelExpansion(kernel, self._points, self._coef, self._bias)
