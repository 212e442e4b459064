"""Prefetching: a thread reads the next items while the current one is processed.

The thread is at most `depth` items ahead. Its exceptions are raised in the consumer, and leaving the loop stops it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from gramless.streaming.tuning import TUNING

T = TypeVar("T")

_END = object()


def read_ahead(items: Iterable[T], depth: int = 1) -> Iterator[T]:
    """Yield the items of an iterable in order, read by a thread that is up to `depth` items ahead."""
    ready: queue.Queue[Any] = queue.Queue(maxsize=depth)
    stopped = threading.Event()

    def put(entry: tuple[Any, BaseException | None]) -> bool:
        while not stopped.is_set():
            try:
                ready.put(entry, timeout=TUNING.poll_seconds)
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
