"""Progress of the dual solvers.

A solver calls `SolverProgress.advance` after each round, from any thread, and returns early if `stopped` is set: a callback
requested it, or the fit was interrupted. Messages and callbacks run in the thread that called `fit`, never in a worker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from gramless._core.progress import Progress


class SolverProgress:
    """Counter of pairs moved and problems solved, with progress messages, callbacks and a stop flag.

    `callback(record)` receives `n_iter` (pairs moved so far), `violation` (of the problem that advanced last), `solved`,
    `n_problems` and `seconds` (without the time in callbacks); returning True stops the fit.
    """

    def __init__(
        self,
        n_problems: int = 1,
        *,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
        label: str = "",
    ):
        self.n_problems = n_problems
        self.callback = callback
        self.stopped = False
        self.stopped_by_callback = False
        self._n_iter = 0
        self._solved = 0
        self._violation = float("inf")
        self._progress = Progress(verbose, n_problems, label)
        self._is_reported = callback is not None or bool(verbose)
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._callback_seconds = 0.0
        self._start = time.perf_counter()

    def __enter__(self) -> SolverProgress:
        self._progress.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._progress.__exit__(*exception)

    def advance(self, n_iter: int, *, violation: float, solved: int = 0) -> bool:
        """Count `n_iter` more pairs moved and `solved` more problems; return whether the solver should stop."""
        if self._is_reported:
            with self._lock:
                self._n_iter += n_iter
                self._solved += solved
                self._violation = violation
            self.report()
        return self.stopped

    def report(self) -> None:
        """Write the progress message and call the callback; do nothing in a worker thread."""
        if not self._is_reported or threading.get_ident() != self._thread:
            return
        start = time.perf_counter()
        with self._lock:
            record: dict[str, Any] = {
                "n_iter": self._n_iter,
                "seconds": start - self._start - self._callback_seconds,
                "violation": self._violation,
                "solved": self._solved,
                "n_problems": self.n_problems,
            }
        if self.callback is not None and self.callback(dict(record)):
            self.stopped = self.stopped_by_callback = True
        self._progress.update(
            {"pairs moved": record["n_iter"], "violation": record["violation"], "n_iter": record["solved"]}
        )
        self._callback_seconds += time.perf_counter() - start

    def stop(self) -> None:
        """Request all solvers to stop."""
        self.stopped = True
