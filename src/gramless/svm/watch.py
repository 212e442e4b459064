"""Whoever watches a fit of dual problems: progress is shown, a callback asked, and the wish to stop passed on.

A solver calls `advance` after each round, in whatever thread it runs, and ends where `stopped` is true: a callback asked for
it, or the fit was interrupted. Progress and callbacks happen in the thread that fits, never in a worker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from gramless._core.progress import Progress

Record = dict[str, Any]


class Watch:
    """Counts what the solvers of a fit have done, and says when to stop.

    Parameters
    ----------
    n_problems : int, default=1
        Two-class problems of the fit, or other dual problems.
    callback : callable(record) -> bool, optional
        Called with `n_iter` (pairs of multipliers moved so far), `violation` (of the problem that advanced last), `solved`,
        `n_problems` and `seconds` (callbacks excluded); a true answer stops the fit.
    verbose : int, default=0
        1 shows progress.
    label : str, optional
        What the progress is of.

    Attributes
    ----------
    stopped : bool
        Whether solvers should end where they are.
    by_callback : bool
        Whether the callback asked for that.

    Examples
    --------
    >>> from gramless.svm.watch import Watch
    >>> watch = Watch(callback=lambda record: record["n_iter"] >= 100)
    >>> watch.advance(60, violation=0.5), watch.advance(60, violation=0.2)
    (False, True)
    """

    def __init__(
        self,
        n_problems: int = 1,
        *,
        callback: Callable[[Record], bool | None] | None = None,
        verbose: int = 0,
        label: str = "",
    ):
        self.n_problems = n_problems
        self.callback = callback
        self.stopped = False
        self.by_callback = False
        self._n_iter = 0
        self._solved = 0
        self._violation = float("inf")
        self._progress = Progress(verbose, n_problems, label)
        self._shown = callback is not None or bool(verbose)
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._off_clock = 0.0
        self._start = time.perf_counter()

    def __enter__(self) -> Watch:
        self._progress.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._progress.__exit__(*exception)

    def advance(self, n_iter: int, *, violation: float, solved: int = 0) -> bool:
        """Count `n_iter` more pairs moved and `solved` more problems; true where the solver should end."""
        if self._shown:
            with self._lock:
                self._n_iter += n_iter
                self._solved += solved
                self._violation = violation
            self.report()
        return self.stopped

    def report(self) -> None:
        """Show what was counted and ask the callback; does nothing in another thread than the one that fits."""
        if not self._shown or threading.get_ident() != self._thread:
            return
        start = time.perf_counter()
        with self._lock:
            record: Record = {
                "n_iter": self._n_iter,
                "seconds": start - self._start - self._off_clock,
                "violation": self._violation,
                "solved": self._solved,
                "n_problems": self.n_problems,
            }
        if self.callback is not None and self.callback(dict(record)):
            self.stopped = self.by_callback = True
        self._progress.update(
            {"pairs moved": record["n_iter"], "violation": record["violation"], "n_iter": record["solved"]}
        )
        self._off_clock += time.perf_counter() - start

    def stop(self) -> None:
        """Ask every solver to end."""
        self.stopped = True
