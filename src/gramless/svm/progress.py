"""Progress of the dual solvers.

A solver calls `SolverProgress.advance` after each round, from any thread, and returns early if `stopped` is set: a callback
requested it, or the fit was interrupted. Messages and callbacks run in the thread that called `fit`, never in a worker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gramless._core.progress import Progress


class SolverProgress(Progress):
    """Counter of pairs moved and problems solved, with progress messages, callbacks and a stop flag.

    `callback(record)` receives `n_iter` (pairs moved so far), `violation` (of the problem that advanced last), `solved`,
    `n_problems` and `seconds` (without the time in callbacks); returning True stops the fit.
    """

    def __init__(
        self,
        n_problems: int = 1,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
        label: str = "",
    ):
        super().__init__(verbose, n_problems, label)
        self.callback = callback
        self.stopped = False
        self.stopped_by_callback = False
        self._record = {"n_iter": 0, "seconds": 0.0, "violation": np.inf, "solved": 0, "n_problems": n_problems}
        self._is_reported = callback is not None or bool(verbose)
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._callback_seconds = 0.0
        self._start = time.perf_counter()

    def advance(self, n_iter: int, *, violation: float, solved: int = 0) -> None:
        """Add `n_iter` pairs moved and `solved` solved problems to the counts, and report the counts."""
        if self._is_reported:
            with self._lock:
                self._record["n_iter"] += n_iter
                self._record["solved"] += solved
                self._record["violation"] = violation
            self.report()

    def report(self) -> None:
        """Write the progress message and call the callback; do nothing in a worker thread."""
        if not self._is_reported or threading.get_ident() != self._thread:
            return
        start = time.perf_counter()
        with self._lock:
            record = {**self._record, "seconds": start - self._start - self._callback_seconds}
        if self.callback is not None and self.callback(dict(record)):
            self.stopped = self.stopped_by_callback = True
        # The bar shows the fraction of the problems that are solved.
        self.update({"pairs moved": record["n_iter"], "violation": record["violation"], "n_iter": record["solved"]})
        self._callback_seconds += time.perf_counter() - start

    def stop(self) -> None:
        """Request all solvers to stop."""
        self.stopped = True
