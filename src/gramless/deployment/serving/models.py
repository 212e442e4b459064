"""Models of a server by name, each with a queue of requests.

Rows that arrive while a batch is scored form the next batch of the model. No request waits for other requests to arrive, so
a single client has no added delay, and many clients share the fixed cost of a prediction. The number of waiting rows is
bounded: a request that would exceed the bound fails at once with status 503. A small batch of a fast model is scored in the
event loop, because the transfer to a thread and back would take longer than scoring the batch.

When a model file changes, the new model is loaded while the old model continues to answer requests. The new model replaces
the old model only if it can be loaded; the old model then completes the requests in its queue.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gramless.deployment.serving.metrics import Metrics
from gramless.deployment.serving.requests import RequestRows
from gramless.deployment.serving.scorer import RequestError, Scorer, Scores, Table, row_count
from gramless.deployment.tuning import Limits

LoadScorer = Callable[[Path], Scorer]
# Number of recent small batches whose durations are stored. The shortest stored duration decides whether a model is fast
# enough for the event loop, because other processes can only increase a measured duration.
_TIMED_BATCHES = 8

_log = logging.getLogger("gramless.deployment.serving")


@dataclass
class _WaitingRequest:
    table: Table
    scores: asyncio.Future[Scores]

    def resolve(self, outcome: Scores | Exception) -> None:
        """Set the result or the exception of a request, unless its client has disconnected or the request has timed out."""
        if self.scores.done():
            return
        if isinstance(outcome, Exception):
            self.scores.set_exception(outcome)
        else:
            self.scores.set_result(outcome)


class RequestBatcher:
    """Queue of requests to one model; calls `score` with each batch, and `on_batch` with its number of rows and seconds."""

    def __init__(self, score: Callable[[Table], Scores], limits: Limits, on_batch: Callable[[int, float], None]):
        self._score, self._limits, self._on_batch = score, limits, on_batch
        self._queue: deque[_WaitingRequest] = deque()
        # All batches use the same thread, because the first call in a thread takes longer. The thread ends with this object.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scores")
        self._running: asyncio.Task[None] | None = None
        self._small_batch_seconds: deque[float] = deque(maxlen=_TIMED_BATCHES)
        self.waiting = 0  # number of rows in the queue

    async def submit(self, table: Table) -> Scores:
        """Return the scores of a table, computed in a batch with the other tables in the queue."""
        n = row_count(table)
        if self._queue and self.waiting + n > self._limits.waiting_rows:
            raise RequestError(503, f"{self.waiting:,} rows are waiting: try again later")
        request = _WaitingRequest(table, asyncio.get_running_loop().create_future())
        self._queue.append(request)
        self.waiting += n
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await request.scores

    async def _run(self) -> None:
        """Score batches until the queue is empty."""
        try:
            while self._queue:
                await asyncio.sleep(0)  # before the batch is formed, let the event loop read new requests
                batch, rows = self._next_batch()
                if batch:
                    started = time.perf_counter()
                    await self._score_batch(batch)
                    self._on_batch(rows, time.perf_counter() - started)
        finally:
            self._running = None

    def _next_batch(self) -> tuple[list[_WaitingRequest], int]:
        """Remove the next batch from the queue; return its requests that are not cancelled, and their number of rows."""
        batch: list[_WaitingRequest] = []
        rows = 0
        while self._queue and (not batch or rows + row_count(self._queue[0].table) <= self._limits.batch_rows):
            request = self._queue.popleft()
            n = row_count(request.table)
            self.waiting -= n
            if not request.scores.done():
                batch.append(request)
                rows += n
        return batch, rows

    async def _score_batch(self, batch: list[_WaitingRequest]) -> None:
        tables = [request.table for request in batch]
        small, fast = self._limits.inline_scoring_rows, self._limits.inline_scoring_seconds
        try:
            table = {name: np.concatenate([one[name] for one in tables]) for name in tables[0]} if batch[1:] else tables[0]
            if row_count(table) <= small and min(self._small_batch_seconds, default=np.inf) < fast:
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
            stop = start + row_count(request.table)
            request.resolve(scores.rows(start, stop))
            start = stop

    def _timed_score(self, table: Table) -> Scores:
        started = time.perf_counter()
        scores = self._score(table)
        if row_count(table) <= self._limits.inline_scoring_rows:
            self._small_batch_seconds.append(time.perf_counter() - started)
        return scores


@dataclass
class ServedModel:
    """Loaded model with its request validator and its request queue; `file_version` identifies the content of its file."""

    name: str
    scorer: Scorer
    rows: RequestRows
    batcher: RequestBatcher
    file_version: tuple[int, ...]
    loaded_at: float = field(default_factory=time.time)

    def as_json(self) -> dict[str, Any]:
        """Return the description of the model for the route `/schema`."""
        scorer = self.scorer
        return {
            "model": self.name,
            "task": scorer.task,
            "target": scorer.about.get("target"),
            "classes": scorer.classes,
            "columns": [column.as_json() for column in scorer.columns],
            "loaded_at": self.loaded_at,
            "about": scorer.about,
        }


class ModelStore:
    """All models of a server; the first file is the default model."""

    def __init__(self, files: dict[str, Path], load: LoadScorer, limits: Limits, metrics: Metrics):
        self._files, self._load, self._limits, self._metrics = files, load, limits, metrics
        self._lock = asyncio.Lock()
        self._models = {name: self._load_model(name) for name in files}
        self.names = list(files)
        metrics.waiting_rows.set_function(lambda: sum(model.batcher.waiting for model in self._models.values()))

    def get(self, name: str | None) -> ServedModel:
        """Return a model by name, or the default model if the name is None."""
        model = self._models.get(self.names[0] if name is None else name)
        if model is None:
            raise RequestError(404, f"there is no model {name!r}; the models are {', '.join(map(repr, self.names))}")
        return model

    async def reload(self, *, changed_only: bool = False) -> None:
        """Load all files again, or only the changed files; log an error for each file that cannot be loaded."""
        async with self._lock:
            for name, old in list(self._models.items()):
                found = _file_version(self._files[name])
                if changed_only and found in (old.file_version, ()):
                    continue
                try:
                    self._models[name] = await asyncio.to_thread(self._load_model, name)
                except Exception as reason:
                    old.file_version = found  # do not try to load the same broken file again
                    self._metrics.reloads.labels(name, "refused").inc()
                    _log.error("kept the previous model %s, because its file cannot be loaded: %s", name, reason)
                    continue
                self._metrics.reloads.labels(name, "loaded").inc()
                _log.warning("reloaded %s", name)

    async def reload_changed_files(self, seconds: float | None) -> None:
        """Check for changed files every `seconds` and load them again; None means that the files are never checked."""
        while seconds is not None:
            await asyncio.sleep(seconds)
            await self.reload(changed_only=True)

    def _load_model(self, name: str) -> ServedModel:
        path = self._files[name]
        file_version = _file_version(path)
        scorer = self._load(path)
        batcher = RequestBatcher(scorer.score, self._limits, partial(self._metrics.count_batch, name))
        return ServedModel(name, scorer, RequestRows(scorer.columns, self._limits.rows), batcher, file_version)


def _file_version(path: Path) -> tuple[int, ...]:
    """Return properties of a file that change when the file is replaced; an empty tuple if the file does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino
