"""numba, imported here by all modules of compiled loops, so that whoever waits for it can hear what takes so long.

numba tells of a compilation only where there is one: loops that it finds on disk are loaded without a word.
"""

from __future__ import annotations

import numba as numba
from numba.core import event

from gramless._core.compiled.compilation_events import notify_listeners


class _Listener(event.Listener):
    """Loops that call others are compiled with them: the outermost counts. numba compiles in one thread at a time."""

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
