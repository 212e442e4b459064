"""The import of numba for all modules of compiled loops, with a listener that reports compilations.

numba emits an event for each compilation, and no event when it loads a compiled loop from disk.
"""

from __future__ import annotations

import numba as numba
from numba.core import event

from gramless._core.compiled.compilation_events import notify_listeners


class _Listener(event.Listener):
    """Report the start and the end of each outermost compilation; numba compiles a called loop while it compiles the caller.

    The counter needs no lock because numba compiles in one thread at a time.
    """

    def __init__(self) -> None:
        self._depth = 0

    def on_start(self, event: event.Event) -> None:
        self._depth += 1
        if self._depth == 1:
            notify_listeners(True)

    def on_end(self, event: event.Event) -> None:
        self._depth -= 1
        if self._depth == 0:
            notify_listeners(False)


event.register("numba:compile", _Listener())
