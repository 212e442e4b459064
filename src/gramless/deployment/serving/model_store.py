"""Models of a server by name, loaded from files and reloaded when the files change, without losing a request.

A new file is loaded while the old model serves, and replaces it only if it can be loaded. The old model completes its
running requests; a file that cannot be loaded changes nothing.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gramless.deployment.serving.batching import RequestBatcher
from gramless.deployment.serving.metrics import Metrics
from gramless.deployment.serving.request_rows import RequestRows
from gramless.deployment.serving.scorer import RequestError, Scorer
from gramless.deployment.tuning import Limits

LoadScorer = Callable[[Path], Scorer]


@dataclass
class ServedModel:
    """Loaded model with the validator of its requests and its queue; `file_version` identifies the content of its file."""

    name: str
    path: Path
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
        self._files = files
        self._load = load
        self._limits = limits
        self._metrics = metrics
        self._lock = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self._models = {name: self._load_model(name) for name in files}

    @property
    def names(self) -> list[str]:
        """Names of the models in the order of the files."""
        return list(self._files)

    @property
    def waiting(self) -> int:
        """Number of rows that wait for a model."""
        return sum(model.batcher.waiting for model in self._models.values())

    def get(self, name: str | None) -> ServedModel:
        """Return a model by name, or the default model if the name is None."""
        model = self._models.get(self.names[0] if name is None else name)
        if model is None:
            raise RequestError(404, f"there is no model {name!r}; the models are {', '.join(map(repr, self.names))}")
        return model

    async def reload(self, *, changed_only: bool = False) -> dict[str, str]:
        """Load all files again, or only the changed ones; return "loaded" or the error for each."""
        outcomes: dict[str, str] = {}
        async with self._lock:
            for name, old in list(self._models.items()):
                if changed_only and _file_version(old.path) in (old.file_version, ()):
                    continue
                try:
                    new = await asyncio.to_thread(self._load_model, name)
                except Exception as reason:
                    outcomes[name] = str(reason)
                    old.file_version = _file_version(old.path)  # do not try to load the same broken file again
                    self._metrics.count_reload(name, "refused")
                    continue
                self._models[name] = new
                outcomes[name] = "loaded"
                self._metrics.count_reload(name, "loaded")
                task = asyncio.create_task(old.batcher.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
        return outcomes

    async def close(self) -> None:
        """Complete the running requests and stop all threads."""
        await asyncio.gather(*(model.batcher.close() for model in self._models.values()), *self._closing)

    def _load_model(self, name: str) -> ServedModel:
        path = self._files[name]
        file_version = _file_version(path)
        scorer = self._load(path)
        batcher = RequestBatcher(
            scorer.score, self._limits, lambda rows, seconds: self._metrics.count_batch(name, rows, seconds)
        )
        return ServedModel(name, path, scorer, RequestRows(scorer.columns, self._limits.rows), batcher, file_version)


def _file_version(path: Path) -> tuple[int, ...]:
    """Return values that change when a file is replaced; an empty tuple if there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino
