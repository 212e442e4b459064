"""Batching of concurrent requests: rows that arrive while a batch is scored form the next batch of the model.

No request waits for others to arrive, so a single client has no added delay, and many clients share the fixed cost of a
prediction. The number of waiting rows is bounded: beyond the bound, a request fails at once with status 503. A small batch
of a fast model is scored in the event loop, because the transfer to a thread and back would take longer than the scores.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from gramless.deployment.serving.scorer import RequestError, Scores, Table, row_count
from gramless.deployment.tuning import Limits

_TIMED_BATCHES = 8


@dataclass
class _WaitingRequest:
    table: Table
    rows: int
    scores: asyncio.Future[Scores]

    def resolve(self, outcome: Scores | Exception) -> None:
        """Set the result or the exception, unless the client has disconnected or the request has timed out."""
        if self.scores.done():
            return
        if isinstance(outcome, Exception):
            self.scores.set_exception(outcome)
        else:
            self.scores.set_result(outcome)


class RequestBatcher:
    """Queue of requests to one model; `score` is called with one batch at a time, `on_batch` with its rows and seconds."""

    def __init__(self, score: Callable[[Table], Scores], limits: Limits, on_batch: Callable[[int, float], None]):
        self._score = score
        self._limits = limits
        self._on_batch = on_batch
        self._queue: deque[_WaitingRequest] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scores")
        self._running: asyncio.Task[None] | None = None
        self._small_batch_seconds: deque[float] = deque(maxlen=_TIMED_BATCHES)
        self.waiting = 0  # rows in the queue

    async def submit(self, table: Table) -> Scores:
        """Return the scores of a table, computed together with other waiting tables."""
        n = row_count(table)
        if self._queue and self.waiting + n > self._limits.waiting_rows:
            raise RequestError(503, f"{self.waiting:,} rows are waiting: try again later")
        request = _WaitingRequest(table, n, asyncio.get_running_loop().create_future())
        self._queue.append(request)
        self.waiting += n
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await request.scores

    async def close(self) -> None:
        """Wait for the running requests, then stop the thread."""
        while self._running is not None:
            await asyncio.wait([self._running])
        self._thread.shutdown(wait=False)

    async def _run(self) -> None:
        """Score batches until the queue is empty."""
        try:
            while self._queue:
                await asyncio.sleep(0)  # let the event loop read requests that have arrived before the batch is formed
                batch = self._next_batch()
                if batch:
                    started = time.perf_counter()
                    await self._score_batch(batch)
                    self._on_batch(sum(request.rows for request in batch), time.perf_counter() - started)
        finally:
            self._running = None

    def _next_batch(self) -> list[_WaitingRequest]:
        batch: list[_WaitingRequest] = []
        rows = 0
        while self._queue and (not batch or rows + self._queue[0].rows <= self._limits.batch_rows):
            request = self._queue.popleft()
            self.waiting -= request.rows
            if not request.scores.done():
                batch.append(request)
                rows += request.rows
        return batch

    async def _score_batch(self, batch: list[_WaitingRequest]) -> None:
        try:
            tables = [request.table for request in batch]
            table = {name: np.concatenate([one[name] for one in tables]) for name in tables[0]} if batch[1:] else tables[0]
            if self._is_fast(row_count(table)):
                scores = self._timed_score(table)
            else:
                scores = await asyncio.get_running_loop().run_in_executor(self._thread, self._timed_score, table)
        except Exception as reason:
            if len(batch) == 1:
                batch[0].resolve(reason)
                return
            for request in batch:  # score each request separately, so that only the request that causes the error fails
                await self._score_batch([request])
            return
        start = 0
        for request in batch:
            request.resolve(scores.rows(start, start + request.rows))
            start += request.rows

    def _is_fast(self, rows: int) -> bool:
        # The minimum of several times, because other processes can only increase the measured time.
        seconds = min(self._small_batch_seconds, default=np.inf)
        return rows <= self._limits.inline_scoring_rows and seconds < self._limits.inline_scoring_seconds

    def _timed_score(self, table: Table) -> Scores:
        started = time.perf_counter()
        scores = self._score(table)
        if row_count(table) <= self._limits.inline_scoring_rows:
            self._small_batch_seconds.append(time.perf_counter() - started)
        return scores
