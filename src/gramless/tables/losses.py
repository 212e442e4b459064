"""What the search compares: leave-one-out predictions against the truth, in the units that people look at.

    classes   log loss of the scores' softmax with the best single slope
    values    mean squared or absolute error in the target's own units, as a share of that of a constant

Values may be fitted as logarithms; `exp` of a prediction is then the median, and one factor for all rows, the ratio of the
sums, makes means of it (Duan, "Smearing estimate: a nonparametric retransformation method", 1983).
"""

from __future__ import annotations

import numpy as np

from gramless._core.targets.columns import class_targets
from gramless.inference.softmax_link import temperature_loss, temperature_loss_and_slopes
from gramless.tables.preparation import skewness

# A target is tried as its logarithm when it leans to one side at least so much.
_SKEWED = 0.5
_LARGEST_EXPONENT = 700.0


class ClassLoss:
    """Log loss of class codes."""

    can_log = False

    def __init__(self, codes: np.ndarray, n_classes: int, weights: np.ndarray | None):
        self.codes, self.n_classes, self.weights = codes, n_classes, weights

    def targets(self, rows: np.ndarray, log: bool) -> np.ndarray:
        """What least squares is fitted to."""
        return class_targets(self.codes[rows], self.n_classes)

    def predictions(self, scores: np.ndarray, rows: np.ndarray, log: bool) -> np.ndarray:
        """Scores that may be averaged with those of other settings."""
        return scores

    def __call__(self, predictions: np.ndarray, rows: np.ndarray) -> float:
        return temperature_loss(predictions, self.codes[rows], None if self.weights is None else self.weights[rows])

    def slopes(self, scores: np.ndarray, rows: np.ndarray, log: bool) -> tuple[float, np.ndarray]:
        """The loss of scores, which is a mean negative log likelihood, and its derivative by each of them."""
        w = None if self.weights is None else self.weights[rows]
        return temperature_loss_and_slopes(scores, self.codes[rows], w)


class ValueLoss:
    """Squared or absolute error of values.

    Parameters
    ----------
    y : ndarray of shape (n,)
    loss : {"squared_error", "absolute_error"}
    weights : ndarray of shape (n,) or None
    """

    def __init__(self, y: np.ndarray, loss: str, weights: np.ndarray | None):
        self.y, self.loss, self.weights = y, loss, weights
        self.mean = float(np.average(y, weights=weights))
        self.spread = float(np.sqrt(np.average((y - self.mean) ** 2, weights=weights))) or 1.0
        self.can_log = bool(y.min() > 0 and y.max() > y.min() and skewness(y[:, None])[0] > _SKEWED)
        self.log_mean, self.log_spread = 0.0, 1.0
        if self.can_log:
            logs = np.log(y)
            self.log_mean = float(np.average(logs, weights=weights))
            self.log_spread = float(np.sqrt(np.average((logs - self.log_mean) ** 2, weights=weights))) or 1.0

    def targets(self, rows: np.ndarray, log: bool) -> np.ndarray:
        """What least squares is fitted to: standardised values, or standardised logarithms."""
        y = self.y[rows]
        return (((np.log(y) - self.log_mean) / self.log_spread) if log else (y - self.mean) / self.spread)[:, None]

    def scales(self) -> np.ndarray:
        """Mean and spread of the values, and of their logarithms: what `from_scores` needs."""
        return np.array([self.mean, self.spread, self.log_mean, self.log_spread])

    @staticmethod
    def from_scores(scores: np.ndarray, scales: np.ndarray, log: bool, factor: float) -> np.ndarray:
        """From standardised scores to the target's units."""
        if not log:
            return scores[:, 0] * scales[1] + scales[0]
        return factor * np.exp(np.minimum(scores[:, 0] * scales[3] + scales[2], _LARGEST_EXPONENT))

    def values(self, scores: np.ndarray, log: bool, factor: float = 1.0) -> np.ndarray:
        """From standardised scores to the target's units."""
        return self.from_scores(scores, self.scales(), log, factor)

    def factor(self, scores: np.ndarray, rows: np.ndarray, log: bool) -> float:
        """What makes means of medians; 1 where values are fitted as they are, or medians are wanted."""
        if not log or self.loss == "absolute_error":
            return 1.0
        w = np.ones(len(rows)) if self.weights is None else self.weights[rows]
        return float(np.clip(w @ self.y[rows] / max(w @ self.values(scores, log), 1e-300), 0.5, 2.0))

    def predictions(self, scores: np.ndarray, rows: np.ndarray, log: bool) -> np.ndarray:
        """Values that may be averaged with those of other settings."""
        return self.values(scores, log, self.factor(scores, rows, log))

    def __call__(self, predictions: np.ndarray, rows: np.ndarray) -> float:
        error = (predictions - self.y[rows]) / self.spread
        size = error**2 if self.loss == "squared_error" else np.abs(error)
        return float(np.average(size, weights=None if self.weights is None else self.weights[rows]))

    def slopes(self, scores: np.ndarray, rows: np.ndarray, log: bool) -> tuple[float, np.ndarray]:
        """Half the logarithm of the mean squared error of scores, and its derivative by each of them.

        But for a constant, the mean negative log likelihood of normal errors, in the units of what is fitted.
        """
        w = np.ones(len(rows)) if self.weights is None else self.weights[rows]
        error = scores - self.targets(rows, log)
        mean = max(float(np.average(error[:, 0] ** 2, weights=w)), np.finfo(float).tiny)
        return 0.5 * float(np.log(mean)), error * (w / w.sum() / mean)[:, None]
