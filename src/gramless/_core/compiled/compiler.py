"""numba, imported here by all modules of compiled loops, so that whoever waits for it can hear what takes so long.

numba tells of a compilation only where there is one: loops that it finds on disk are loaded without a word.
"""

from __future__ import annotations

import numba as numba
from numba.core import event

from gramless._core.compiled.compiling import pass_on


class _Listener(event.Listener):
    """Loops that call others are compiled with them: the outermost counts. numba compiles in one thread at a time."""

    def __init__(self) -> None:
        self._depth = 0

    def on_start(self, event: event.Event) -> None:
        self._depth += 1
        if self._depth == 1:
            pass_on(True)

    def on_end(self, event: event.Event) -> None:
        self._depth -= 1
        if self._depth == 0:
            pass_on(False)


event.register("numba:compile", _Listener())
