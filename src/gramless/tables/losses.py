"""Losses of leave-one-out predictions, by which settings of table models are compared.

    classes   log loss of the softmax of the scores with the best temperature
    values    mean squared or absolute error in units of the standard deviation of the target

If the logarithm of the target is fitted, `exp` of a score is a median; one factor for all rows, the ratio of the sums,
converts medians to means (Duan, "Smearing estimate: a nonparametric retransformation method", 1983).
"""

from __future__ import annotations

import numpy as np

from gramless._core.targets.columns import class_targets
from gramless.inference.softmax_link import temperature_loss, temperature_loss_and_slopes
from gramless.tables.preparation import skewness

# Skewness above which the logarithm of a positive target is tried.
_SKEWED = 0.5
_LARGEST_EXPONENT = 700.0


class Loss:
    """Loss of a target whose rows have weights, or no weights if they are None."""

    def __init__(self, weights: np.ndarray | None):
        self.weights = weights

    def weights_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the weights of the rows."""
        return np.ones(len(rows)) if self.weights is None else self.weights[rows]

    def ridge(self, C: float, rows: np.ndarray) -> np.ndarray:
        """Return the diagonal that the rows add to their kernel matrix."""
        return 1.0 / (C * self.weights_of(rows))


class ClassLoss(Loss):
    """Log loss of a classification target."""

    can_log = False

    @property
    def n_targets(self) -> int:
        """Number of columns of targets."""
        return 1 if self.n_classes == 2 else self.n_classes

    def __init__(self, codes: np.ndarray, n_classes: int, weights: np.ndarray | None):
        super().__init__(weights)
        self.codes, self.n_classes = codes, n_classes

    def targets(self, rows: np.ndarray, log: bool) -> np.ndarray:
        """Return the regression targets of the rows."""
        return class_targets(self.codes[rows], self.n_classes)

    def predictions(self, scores: np.ndarray, rows: np.ndarray, log: bool) -> np.ndarray:
        """Return predictions that can be averaged over settings: the scores."""
        return scores

    def factor(self, scores: np.ndarray, rows: np.ndarray, log: bool) -> float:
        """Return 1: scores of classes are not transformed."""
        return 1.0

    def __call__(self, predictions: np.ndarray, rows: np.ndarray) -> float:
        return temperature_loss(predictions, self.codes[rows], None if self.weights is None else self.weights[rows])

    def gradient(self, scores: np.ndarray, rows: np.ndarray, log: bool) -> tuple[float, np.ndarray]:
        """Return the loss of the scores, a mean negative log likelihood, and its gradient."""
        w = None if self.weights is None else self.weights[rows]
        return temperature_loss_and_slopes(scores, self.codes[rows], w)


class ValueLoss(Loss):
    """Squared or absolute error of a regression target."""

    codes = None
    n_targets = 1

    def __init__(self, y: np.ndarray, loss: str, weights: np.ndarray | None):
        super().__init__(weights)
        self.y, self.loss = y, loss
        self.mean = float(np.average(y, weights=weights))
        self.spread = float(np.sqrt(np.average((y - self.mean) ** 2, weights=weights))) or 1.0
        self.can_log = bool(y.min() > 0 and y.max() > y.min() and skewness(y[:, None])[0] > _SKEWED)
        self.log_mean, self.log_spread = 0.0, 1.0
        if self.can_log:
            logs = np.log(y)
            self.log_mean = float(np.average(logs, weights=weights))
            self.log_spread = float(np.sqrt(np.average((logs - self.log_mean) ** 2, weights=weights))) or 1.0

    def targets(self, rows: np.ndarray, log: bool) -> np.ndarray:
        """Return the regression targets of the rows: standardised values or logarithms."""
        y = self.y[rows]
        return (((np.log(y) - self.log_mean) / self.log_spread) if log else (y - self.mean) / self.spread)[:, None]

    def scales(self) -> np.ndarray:
        """Return mean and standard deviation of the values and of their logarithms."""
        return np.array([self.mean, self.spread, self.log_mean, self.log_spread])

    @staticmethod
    def from_scores(scores: np.ndarray, scales: np.ndarray, log: bool, factor: float) -> np.ndarray:
        """Return standardised scores in units of the target."""
        if not log:
            return scores[:, 0] * scales[1] + scales[0]
        return factor * np.exp(np.minimum(scores[:, 0] * scales[3] + scales[2], _LARGEST_EXPONENT))

    def factor(self, scores: np.ndarray, rows: np.ndarray, log: bool) -> float:
        """Return the factor that converts medians to means; 1 if the target is not transformed or medians are requested."""
        if not log or self.loss == "absolute_error":
            return 1.0
        w = self.weights_of(rows)
        return float(
            np.clip(w @ self.y[rows] / max(w @ self.from_scores(scores, self.scales(), log, 1.0), 1e-300), 0.5, 2.0)
        )

    def predictions(self, scores: np.ndarray, rows: np.ndarray, log: bool) -> np.ndarray:
        """Return predictions that can be averaged over settings: values in units of the target."""
        return self.from_scores(scores, self.scales(), log, self.factor(scores, rows, log))

    def __call__(self, predictions: np.ndarray, rows: np.ndarray) -> float:
        error = (predictions - self.y[rows]) / self.spread
        size = error**2 if self.loss == "squared_error" else np.abs(error)
        return float(np.average(size, weights=None if self.weights is None else self.weights[rows]))

    def gradient(self, scores: np.ndarray, rows: np.ndarray, log: bool) -> tuple[float, np.ndarray]:
        """Return half the logarithm of the mean squared error of the scores, and its gradient.

        Up to a constant, this is the mean negative log likelihood of normal errors.
        """
        w = self.weights_of(rows)
        error = scores - self.targets(rows, log)
        mean = max(float(np.average(error[:, 0] ** 2, weights=w)), np.finfo(float).tiny)
        return 0.5 * float(np.log(mean)), error * (w / w.sum() / mean)[:, None]
