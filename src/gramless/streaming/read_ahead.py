"""Read the next items while the current one is worked on.

One thread runs the iterator and stays at most `depth` items ahead; what it raises is raised where the items are used.
Leaving the loop early stops the thread.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

_END = object()
_SECONDS_BETWEEN_LOOKS = 0.1


def read_ahead(items: Iterable[T], depth: int = 1) -> Iterator[T]:
    """The items of an iterable, in order, produced by a thread that runs ahead.

    Examples
    --------
    >>> from gramless.streaming.read_ahead import read_ahead
    >>> list(read_ahead(range(3)))
    [0, 1, 2]
    """
    ready: queue.Queue[Any] = queue.Queue(maxsize=depth)
    stopped = threading.Event()

    def put(entry: tuple[Any, BaseException | None]) -> bool:
        while not stopped.is_set():
            try:
                ready.put(entry, timeout=_SECONDS_BETWEEN_LOOKS)
                return True
            except queue.Full:
                continue
        return False

    def produce() -> None:
        try:
            for item in items:
                if not put((item, None)):
                    return
        except BaseException as error:
            put((_END, error))
        else:
            put((_END, None))

    thread = threading.Thread(target=produce, name="gramless-read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        stopped.set()
        thread.join()
