"""Losses of leave-one-out predictions, by which the hyperparameters of table models are compared.

    classes   log loss of the softmax of the scores with the best temperature
    values    mean squared, absolute or Huber's error in units of the standard deviation of the target

If the logarithm of the target is fitted, the exponential of a prediction is a median of the target. Two conversions of such
medians to means are compared by their loss: one factor for all rows, sum of targets / sum of medians (Duan, "Smearing
estimate: a nonparametric retransformation method", 1983), and a Poisson regression of the target on the predicted logarithm
and its square (Manning and Mullahy, "Estimating log models: to transform or not to transform?", 2001), because the spread of
the residuals often depends on the prediction. Predicted logarithms are clipped to the range of the training targets before
and after the conversion, because the exponential of an extrapolated logarithm can have any size.
"""

from __future__ import annotations

from copy import copy
from typing import Self

import numpy as np
from scipy.optimize import minimize
from sklearn.metrics import average_precision_score

from gramless._core.targets.columns import class_targets
from gramless.inference.softmax_link import estimates, temperature_loss_and_slopes, temperature_losses
from gramless.tables.preparation import skewness

# Median of the absolute value of a standard normal variable.
_NORMAL_MEDIAN = 0.6745
# Distance from the median, in robust standard deviations, above which a target, or the logarithm of a target, is extreme.
_EXTREME = 30.0
_EXTREME_LOG = 10.0
# Residual, in robust standard deviations, above which Huber's loss is linear: 95 % of the efficiency of least squares for
# normal errors (Huber, 1964). Before the first fit, targets farther than `_FIRST_HUBER` robust standard deviations from the
# median get smaller weights.
_HUBER = 1.345
_FIRST_HUBER = 3.0
# Residuals below this share of their robust standard deviation have equal weights in the absolute loss.
_SMOOTHED = 0.5
# Skewness above which the logarithm of a positive target is tried.
_SKEWED = 0.5
# Fewest different predictions for which a regression with three coefficients converts medians to means.
_FEWEST_FOR_REGRESSION = 30
# Bound on a predicted logarithm in model files of version 0.1.0, which do not have the range of the training targets.
LARGEST_EXPONENT = 700.0
# Factor and powers with which `ValueLoss.from_scores` returns medians.
MEDIANS = (1.0, (1.0, 0.0))


class Loss:
    """Loss of a target with row weights; None gives all rows equal weights."""

    is_robust = False
    """Whether the loss is minimised by iteratively reweighted least squares."""

    def __init__(self, weights: np.ndarray | None):
        self.weights = weights

    def weights_of(self, rows: np.ndarray, log: bool = False) -> np.ndarray:
        """Return the weights of the rows in the least-squares problem."""
        return np.ones(len(rows)) if self.weights is None else self.weights[rows]

    def row_factors(self, residuals: np.ndarray) -> np.ndarray:
        """Return factors of the row weights for iteratively reweighted least squares, computed from residuals."""
        return np.ones(len(residuals))

    def reweighted(self, predictions: np.ndarray, rows: np.ndarray) -> Self:
        """Return the loss with row weights that are updated by the residuals of leave-one-out predictions for `rows`."""
        return self

    def by_row(self, predictions: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the loss of each row times its weight."""
        raise NotImplementedError

    def __call__(self, predictions: np.ndarray, rows: np.ndarray) -> float:
        """Return the mean loss of the rows."""
        return float(self.by_row(predictions, rows).sum() / Loss.weights_of(self, rows).sum())

    def ridge(self, C: float, rows: np.ndarray, log: bool = False) -> np.ndarray:
        """Return the ridge of each row, which is added to the diagonal of the kernel matrix of the rows."""
        return 1.0 / (C * self.weights_of(rows, log))


class ClassLoss(Loss):
    """Log loss of a classification target."""

    can_log = False

    @property
    def n_targets(self) -> int:
        """Number of columns of targets."""
        return 1 if self.n_classes == 2 else self.n_classes

    def __init__(self, codes: np.ndarray, n_classes: int, weights: np.ndarray | None, metric: str | None = None):
        super().__init__(weights)
        self.codes, self.n_classes, self.metric = codes, n_classes, metric or "log_loss"

    def targets(self, rows: np.ndarray, log: bool) -> np.ndarray:
        """Return the regression targets of the rows."""
        return class_targets(self.codes[rows], self.n_classes)

    def predictions(self, scores: np.ndarray, rows: np.ndarray, log: bool) -> np.ndarray:
        """Return the scores, which can be averaged over models."""
        return scores

    def conversion(self, scores: np.ndarray, rows: np.ndarray, log: bool) -> tuple[float, tuple[float, float]]:
        """Return `MEDIANS`, which have no effect: scores of classes are not converted."""
        return MEDIANS

    def __call__(self, predictions: np.ndarray, rows: np.ndarray) -> float:
        if self.metric != "average_precision":
            return super().__call__(predictions, rows)
        codes, weights, scores = self.codes[rows], self.weights_of(rows), estimates(predictions)
        precisions = [average_precision_score(codes == c, scores[:, c], sample_weight=weights) for c in np.unique(codes)]
        return 1 - float(np.mean(precisions))

    def by_row(self, predictions: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the loss of each row times its weight: 0 or 1 for the metric "accuracy", else the log loss."""
        codes, weights = self.codes[rows], None if self.weights is None else self.weights[rows]
        if self.metric == "accuracy":
            return self.weights_of(rows) * (estimates(predictions).argmax(axis=1) != codes)
        return self.weights_of(rows) * temperature_losses(predictions, codes, weights)

    def gradient(self, scores: np.ndarray, rows: np.ndarray, log: bool) -> tuple[float, np.ndarray]:
        """Return the loss of the scores, a mean negative log likelihood, and its gradient with respect to the scores."""
        w = None if self.weights is None else self.weights[rows]
        return temperature_loss_and_slopes(scores, self.codes[rows], w)


def robust_scale(values: np.ndarray) -> tuple[float, float]:
    """Return the median, and the standard deviation of a normal distribution with the same median absolute deviation."""
    centre = float(np.median(values))
    return centre, float(np.median(np.abs(values - centre))) / _NORMAL_MEDIAN


def extreme_targets(y: np.ndarray) -> np.ndarray:
    """Return a mask of the values that are so far from the median that they would dominate a squared error.

    The logarithm of an extreme value of a positive target must be extreme too, because skewed targets have large values.
    """
    centre, scale = robust_scale(y)
    extreme = np.abs(y - centre) > _EXTREME * scale if scale > 0 else np.zeros(len(y), dtype=bool)
    if extreme.any() and y.min() > 0:
        centre, scale = robust_scale(np.log(y))
        extreme &= np.abs(np.log(y) - centre) > _EXTREME_LOG * scale
    return extreme


def log_range(scales: np.ndarray) -> tuple[float, float]:
    """Return the bounds of predicted logarithms from the result of `ValueLoss.scales`."""
    return (float(scales[4]), float(scales[5])) if len(scales) > 4 else (-np.inf, LARGEST_EXPONENT)


def poisson_regression(X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> list[float]:
    """Return the coefficients of a Poisson regression with logarithmic link; the first column of `X` is constant."""
    sizes, shares = np.abs(X).max(axis=0), weights / weights.sum()
    X, mean = X / sizes, float(shares @ y)
    y = y / mean

    def loss_and_gradient(coef: np.ndarray) -> tuple[float, np.ndarray]:
        logs = X @ coef
        return float(shares @ (np.exp(logs) - y * logs)), X.T @ (shares * (np.exp(logs) - y))

    def hessian(coef: np.ndarray) -> np.ndarray:
        return np.asarray(X.T @ ((shares * np.exp(X @ coef))[:, None] * X))

    start = np.zeros(X.shape[1])
    with np.errstate(over="ignore"):  # a step to an infinite loss is rejected
        found = minimize(loss_and_gradient, start, jac=True, hess=hessian, method="trust-exact", options={"gtol": 1e-10})
    coef = found.x / sizes
    coef[0] += np.log(mean)
    return [float(value) for value in coef]


class ValueLoss(Loss):
    """Squared, absolute or Huber's error of a regression target; if `metric` is given, models are compared by it.

    The absolute and Huber's loss are minimised by iteratively reweighted least squares: `factors[log]` has a weight for each
    row from the residuals of the best model so far, for fits of the target (False) and of its logarithm (True).
    """

    codes = None
    n_targets = 1

    def __init__(self, y: np.ndarray, loss: str, weights: np.ndarray | None, metric: str | None = None):
        super().__init__(weights)
        self.y, self.loss, self.metric = y, loss, metric or loss
        self.is_robust = loss != "squared_error"
        # Positive targets without skewness need logarithms too: a model of logarithms may be refitted to such targets.
        self.has_log = bool(y.min() > 0)
        self.can_log = bool(self.has_log and y.max() > y.min() and skewness(y[:, None])[0] > _SKEWED)
        self.mean, self.spread = self._location(y)
        self.log_mean, self.log_spread = self._location(np.log(y)) if self.has_log else (0.0, 1.0)
        self.factors: dict[bool, np.ndarray] = {}
        if self.is_robust:
            every = np.arange(len(y))
            for log in (False, True)[: 1 + self.has_log]:
                distances = np.abs(self.targets(every, log)[:, 0])
                self.factors[log] = np.minimum(1.0, _FIRST_HUBER / np.maximum(distances, _FIRST_HUBER))

    def _location(self, values: np.ndarray) -> tuple[float, float]:
        """Return mean and standard deviation, or median and robust standard deviation for a robust loss."""
        if self.is_robust:
            centre, scale = robust_scale(values)
            return centre, scale or float(np.std(values)) or 1.0
        mean = float(np.average(values, weights=self.weights))
        return mean, float(np.sqrt(np.average((values - mean) ** 2, weights=self.weights))) or 1.0

    def weights_of(self, rows: np.ndarray, log: bool = False) -> np.ndarray:
        weights = super().weights_of(rows)
        return weights * self.factors[log][rows] if self.is_robust else weights

    def row_factors(self, residuals: np.ndarray) -> np.ndarray:
        sizes = np.abs(residuals)
        scale = max(float(np.median(sizes)) / _NORMAL_MEDIAN, np.finfo(float).tiny)
        if self.loss == "huber":
            return 1.0 / np.maximum(1.0, sizes / (_HUBER * scale))
        factors = scale / np.maximum(sizes, _SMOOTHED * scale)
        return factors / factors.mean()

    def reweighted(self, predictions: np.ndarray, rows: np.ndarray) -> Self:
        found = copy(self)
        found.factors = {log: factors.copy() for log, factors in self.factors.items()}
        found.factors[False][rows] = self.row_factors(self.y[rows] - predictions)
        if self.has_log:
            logs = np.log(np.maximum(predictions, self.y.min()))
            found.factors[True][rows] = self.row_factors(np.log(self.y[rows]) - logs)
        return found

    def targets(self, rows: np.ndarray, log: bool) -> np.ndarray:
        """Return the regression targets of the rows: standardised values or logarithms."""
        y = self.y[rows]
        return (((np.log(y) - self.log_mean) / self.log_spread) if log else (y - self.mean) / self.spread)[:, None]

    def scales(self) -> np.ndarray:
        """Return mean and standard deviation of the values and of their logarithms, and the range of the logarithms."""
        logs = np.log([self.y.min(), self.y.max()]) if self.has_log else [0.0, 0.0]
        return np.array([self.mean, self.spread, self.log_mean, self.log_spread, *logs])

    @staticmethod
    def from_scores(
        scores: np.ndarray, scales: np.ndarray, log: bool, factor: float, powers: tuple[float, float] = (1.0, 0.0)
    ) -> np.ndarray:
        """Convert standardised scores to predictions in units of the target.

        With `log`, predictions are `factor * exp(m + powers[0] * l + powers[1] * l**2)`, where `m` is the mean logarithm of
        the target and `m + l` the predicted logarithm. Predictions are clipped to the range of the training targets.
        """
        if not log:
            return scores[:, 0] * scales[1] + scales[0]
        low, high = log_range(scales)
        centred = np.clip(scores[:, 0] * scales[3] + scales[2], low, high) - scales[2]
        logs = (powers[0] + powers[1] * centred) * centred + scales[2] + np.log(factor)
        return np.exp(np.clip(logs, low, high))

    def conversion(self, scores: np.ndarray, rows: np.ndarray, log: bool) -> tuple[float, tuple[float, float]]:
        """Return the factor and powers of `from_scores` with which leave-one-out scores of the rows have the lowest loss.

        The conversion by factor and powers turns medians into means; for a robust loss, predictions remain medians.
        """
        if not log or self.is_robust:
            return MEDIANS
        scales, w, y = self.scales(), super().weights_of(rows), self.y[rows]
        medians = self.from_scores(scores, scales, log, *MEDIANS)
        smearing = (float(np.clip(w @ y / max(w @ medians, 1e-300), 0.5, 2.0)), (1.0, 0.0))
        centred = np.log(medians) - self.log_mean
        if len(np.unique(centred)) < _FEWEST_FOR_REGRESSION:
            return smearing
        intercept, *powers = poisson_regression(np.column_stack([np.ones_like(centred), centred, centred**2]), y, w)
        curve = (float(np.exp(intercept - self.log_mean)), (powers[0], powers[1]))
        slopes = powers[0] + 2 * powers[1] * (np.log([self.y.min(), self.y.max()]) - self.log_mean)
        if slopes.min() <= 0:
            return smearing
        return min(smearing, curve, key=lambda found: self(self.from_scores(scores, scales, log, *found), rows))

    def predictions(self, scores: np.ndarray, rows: np.ndarray, log: bool) -> np.ndarray:
        """Return predictions in units of the target, which can be averaged over models."""
        return self.from_scores(scores, self.scales(), log, *self.conversion(scores, rows, log))

    def by_row(self, predictions: np.ndarray, rows: np.ndarray) -> np.ndarray:
        error = (predictions - self.y[rows]) / self.spread
        size = np.abs(error) if self.metric == "absolute_error" else error**2
        if self.metric == "huber":
            size = np.where(np.abs(error) <= _HUBER, size, _HUBER * (2 * np.abs(error) - _HUBER))
        return Loss.weights_of(self, rows) * size

    def gradient(self, scores: np.ndarray, rows: np.ndarray, log: bool) -> tuple[float, np.ndarray]:
        """Return half the logarithm of the mean squared error of the scores, and its gradient with respect to the scores.

        Up to a constant, this loss is the mean negative log likelihood of normal errors.
        """
        w = self.weights_of(rows, log)
        error = scores - self.targets(rows, log)
        mean = max(float(np.average(error[:, 0] ** 2, weights=w)), np.finfo(float).tiny)
        return 0.5 * float(np.log(mean)), error * (w / w.sum() / mean)[:, None]
