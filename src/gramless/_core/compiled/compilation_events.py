"""Who hears that compiled loops are being made: many seconds, once after an installation, from then on they are on disk.

Without numba, which takes a third of a second to import and is not there before the first loop is called:
`gramless._core.compiled.compiler` imports it and passes its word on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_listeners: list[Callable[[bool], None]] = []


@contextmanager
def compilation_listener(hear: Callable[[bool], None]) -> Iterator[None]:
    """`hear(True)` when numba begins to compile anything, in whatever thread, `hear(False)` when it has ended."""
    _listeners.append(hear)
    try:
        yield
    finally:
        _listeners.remove(hear)


def notify_listeners(begins: bool) -> None:
    """Tell everyone; another thread's fit may end meanwhile."""
    for hear in tuple(_listeners):
        hear(begins)
