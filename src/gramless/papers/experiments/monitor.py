"""What watches a fit from inside: progress for the display, and the test error against iteration.

The error needs the scores of all test points after each step. An expansion f(x) = sum a_i K(x, b_i) + bias
keeps its points while its coefficients move, so the (test, points) kernel block is computed once and each
step costs one matrix product; without room for the block, `predict` is called instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score

from gramless._core.memory import free_memory
from gramless.papers.experiments.memory import peak_mb

# 10,000 test points against 60,000 training points in float32 are 2.4 GB.
BLOCK_LIMIT_BYTES = 3_000_000_000
ROWS_AT_ONCE = 500


class Watch:
    """The `callback` given to an estimator during an experiment.

    Parameters
    ----------
    notify : callable
        Receives ``notify(n_iter, max_iter, error)`` at most ten times a second.
    x_test, y_test : arrays
        The test half, features applied.
    every : int
        Evaluate the error after every so many iterations; 0 never.
    """

    def __init__(
        self,
        notify: Callable[[int, int | None, float | None], None],
        x_test: Any,
        y_test: np.ndarray,
        *,
        every: int,
    ):
        self.notify = notify
        self.x_test = x_test
        self.y_test = y_test
        self.every = every
        self.errors: dict[int, float] = {}
        self.seconds = 0.0
        self.block_mb = 0.0
        self.peak_before_mb = 0.0
        self._block: np.ndarray | None = None
        self._block_points: Any = None
        self._last_notice = 0.0

    def __call__(self, estimator: Any, record: Any) -> bool:
        started = time.perf_counter()
        n_iter = int(record["n_iter"])
        if self.every and n_iter % self.every == 0:
            self.errors[n_iter] = self._error(estimator)
        if time.monotonic() - self._last_notice > 0.1:
            self._last_notice = time.monotonic()
            latest = next(reversed(self.errors.values()), None)
            self.notify(n_iter, getattr(estimator, "max_iter", None), latest)
        self.seconds += time.perf_counter() - started
        return False

    def without_block(self, peak: float) -> float:
        """The peak memory that the fit alone would have had: the kept block is this watch's, not the estimator's."""
        return max(peak - self.block_mb, self.peak_before_mb)

    def merged(self, history: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The estimator's history with the errors beside the iterations they belong to."""
        known = {row.get("n_iter") for row in history}
        rows = [{**row, "error": self.errors[row["n_iter"]]} if row.get("n_iter") in self.errors else row for row in history]
        rows += [{"n_iter": n, "error": error} for n, error in self.errors.items() if n not in known]
        return sorted(rows, key=lambda row: row.get("n_iter", 0))

    def _fill(self, kernel: Any, points: np.ndarray) -> np.ndarray:
        block = np.empty((len(self.x_test), len(points)), dtype=points.dtype)
        for start in range(0, len(block), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            block[part] = kernel(self.x_test[part].astype(points.dtype, copy=False), points)
        return block

    def _error(self, estimator: Any) -> float:
        predicted = self._predict_by_block(estimator)
        if predicted is None:
            predicted = estimator.predict(self.x_test)
        return 100 * (1 - accuracy_score(self.y_test, predicted))

    def _predict_by_block(self, estimator: Any) -> np.ndarray | None:
        points = getattr(estimator, "points_", None)
        if not isinstance(points, np.ndarray) or not isinstance(self.x_test, np.ndarray):
            return None
        if self._block is None or self._block_points is not points:
            needed = len(self.x_test) * len(points) * points.dtype.itemsize
            if needed > min(BLOCK_LIMIT_BYTES, free_memory() // 4):
                return None
            self.peak_before_mb = max(self.peak_before_mb, peak_mb())
            self._block, self._block_points = self._fill(estimator.kernel_, points), points
            self.block_mb = needed / 1e6
        coef = np.asarray(estimator.dual_coef_)
        scores = self._block @ coef.reshape(len(points), -1) + np.asarray(estimator.intercept_)
        winner = scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
        return estimator.classes_[np.asarray(winner, dtype=int)]
