"""Concurrent requests scored together: one model, one thread, whatever waits becomes one batch.

No request waits for others to come: a batch is what arrived while the last one was computed, up to a number of rows. So one
client alone has no delay, and many share the fixed cost of a prediction. Rows that wait are bounded; beyond, a request is
refused at once instead of answered too late. A small batch of a model that has shown to be quick is scored at once, without
the way to the thread and back, which would cost more than the scores.
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

Hear = Callable[[int, float], None]

# Other requests may wait so long while a batch is scored in their thread.
_BRIEF_SECONDS = 0.004
_FEW_ROWS = 32
_REMEMBERED = 8


@dataclass
class _Job:
    table: Table
    rows: int
    answer: asyncio.Future[Scores]


class Batches:
    """Scores tables, those that wait together in one call.

    Parameters
    ----------
    score : callable(Table) -> Scores
        Called in a thread of its own, one call at a time.
    waiting_rows : int
        The most rows that wait.
    batch_rows : int
        The most rows of a batch of more than one request.
    hear : callable(rows, seconds)
        Told after each batch.
    """

    def __init__(self, score: Callable[[Table], Scores], *, waiting_rows: int, batch_rows: int, hear: Hear):
        self._score = score
        self._most_waiting = waiting_rows
        self._batch_rows = batch_rows
        self._hear = hear
        self._jobs: deque[_Job] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scores")
        self._running: asyncio.Task[None] | None = None
        self._small: deque[float] = deque(maxlen=_REMEMBERED)  # seconds of the last small batches
        self.waiting = 0

    async def submit(self, table: Table) -> Scores:
        """The scores of a table, computed together with others that wait."""
        n = row_count(table)
        if self._jobs and self.waiting + n > self._most_waiting:
            raise RequestError(503, f"{self.waiting:,} rows wait already: try again in a moment")
        job = _Job(table, n, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self.waiting += n
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await job.answer

    async def _run(self) -> None:
        """Score batches until nothing waits."""
        loop = asyncio.get_running_loop()
        try:
            while self._jobs:
                await asyncio.sleep(0)  # requests that have come in are read before the batch is closed
                jobs = self._next()
                if jobs:
                    rows, began = sum(job.rows for job in jobs), loop.time()
                    await self._answer(loop, jobs, here=rows <= _FEW_ROWS and self._is_quick())
                    self._hear(rows, loop.time() - began)
        finally:
            self._running = None

    def _is_quick(self) -> bool:
        # The least of some: what else the machine does makes a quick model slow at times, and never a slow one quick.
        return min(self._small, default=np.inf) < _BRIEF_SECONDS

    def _timed(self, table: Table) -> Scores:
        began = time.perf_counter()
        scores = self._score(table)
        if row_count(table) <= _FEW_ROWS:
            self._small.append(time.perf_counter() - began)
        return scores

    def _next(self) -> list[_Job]:
        jobs: list[_Job] = []
        rows = 0
        while self._jobs and (not jobs or rows + self._jobs[0].rows <= self._batch_rows):
            job = self._jobs.popleft()
            self.waiting -= job.rows
            if not job.answer.done():  # given up by its client, or too late
                jobs.append(job)
                rows += job.rows
        return jobs

    async def _answer(self, loop: asyncio.AbstractEventLoop, jobs: list[_Job], *, here: bool) -> None:
        try:
            table = _joined([job.table for job in jobs])
            scores = self._timed(table) if here else await loop.run_in_executor(self._thread, self._timed, table)
        except Exception as reason:
            if len(jobs) == 1:
                _settle(jobs[0], reason)
                return
            for job in jobs:  # one of them is the cause: the others get their answers
                await self._answer(loop, [job], here=here)
            return
        start = 0
        for job in jobs:
            _settle(job, scores.rows(start, start + job.rows))
            start += job.rows

    async def close(self) -> None:
        """Wait for what is under way, then end the thread."""
        while self._running is not None:
            await asyncio.wait([self._running])
        self._thread.shutdown(wait=False)


def _settle(job: _Job, outcome: Scores | Exception) -> None:
    if job.answer.done():
        return
    if isinstance(outcome, Exception):
        job.answer.set_exception(outcome)
    else:
        job.answer.set_result(outcome)


def _joined(tables: list[Table]) -> Table:
    if len(tables) == 1:
        return tables[0]
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
