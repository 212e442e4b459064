"""Callbacks for the start and the end of compilation by numba, which takes many seconds at the first call of a loop.

numba stores compiled loops on disk, so that later processes load the stored code. This module does not import numba, because
the import takes 0.3 s and many processes never call a compiled loop. `gramless._core.compiled.compiler` imports numba and
calls `notify_listeners`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_listeners: list[Callable[[bool], None]] = []


@contextmanager
def compilation_listener(callback: Callable[[bool], None]) -> Iterator[None]:
    """In this context, call `callback(True)` when numba starts to compile in any thread, `callback(False)` when it ends."""
    _listeners.append(callback)
    try:
        yield
    finally:
        _listeners.remove(callback)


def notify_listeners(started: bool) -> None:
    """Call every registered callback with True at the start and False at the end of a compilation."""
    # The loop uses a copy of the list, because other threads may add or remove callbacks meanwhile.
    for callback in tuple(_listeners):
        callback(started)
