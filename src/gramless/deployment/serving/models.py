"""Models by name, each from a file, and replaced when the file is: no request is lost.

A new file is loaded beside the old model and must answer for a row before it takes over. Requests that the old one has
begun, it ends; a file that cannot be loaded changes nothing.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gramless.deployment.serving.batches import Batches
from gramless.deployment.serving.limits import Limits
from gramless.deployment.serving.metrics import Metrics
from gramless.deployment.serving.scorer import RequestError, Scorer

Load = Callable[[Path], Scorer]


@dataclass
class Served:
    """A loaded model."""

    name: str
    path: Path
    scorer: Scorer
    batches: Batches
    stamp: tuple[int, ...]
    loaded_at: float = field(default_factory=time.time)

    def as_json(self) -> dict[str, Any]:
        """What a client needs to know to send rows."""
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


class Models:
    """All models of a server.

    Parameters
    ----------
    files : dict of str to Path
        The first one is what `/predict` means.
    load : callable(Path) -> Scorer
    limits : Limits
    metrics : Metrics
    """

    def __init__(self, files: dict[str, Path], load: Load, limits: Limits, metrics: Metrics):
        self._files = files
        self._load = load
        self._limits = limits
        self._metrics = metrics
        self._served: dict[str, Served] = {}
        self._lock = asyncio.Lock()
        self._retired: set[asyncio.Task[None]] = set()
        for name in files:
            self._served[name] = self._read(name)

    @property
    def names(self) -> list[str]:
        """In the order in which they were given."""
        return list(self._files)

    @property
    def waiting(self) -> int:
        """Rows that wait, of all models."""
        return sum(served.batches.waiting for served in self._served.values())

    def get(self, name: str | None) -> Served:
        """A model; the first one where no name is given."""
        found = self._served.get(self.names[0] if name is None else name)
        if found is None:
            raise RequestError(404, f"there is no model {name!r}; there are {', '.join(map(repr, self.names))}")
        return found

    def _read(self, name: str) -> Served:
        path = self._files[name]
        stamp = _stamp(path)
        scorer = self._load(path)

        def hear(rows: int, seconds: float) -> None:
            self._metrics.batch(name, rows, seconds)

        limits = self._limits
        batches = Batches(scorer.score, waiting_rows=limits.waiting_rows, batch_rows=limits.batch_rows, hear=hear)
        return Served(name, path, scorer, batches, stamp)

    async def reload(self, *, changed_only: bool = False) -> dict[str, str]:
        """Load all files again, or those that changed; what came of each: "loaded", or why not."""
        told: dict[str, str] = {}
        async with self._lock:
            for name, old in list(self._served.items()):
                if changed_only and _stamp(old.path) in (old.stamp, ()):
                    continue
                try:
                    new = await asyncio.to_thread(self._read, name)
                except Exception as reason:
                    told[name] = str(reason)
                    old.stamp = _stamp(old.path)  # not tried again until the file changes once more
                    self._metrics.reloaded(name, "refused")
                    continue
                self._served[name] = new
                told[name] = "loaded"
                self._metrics.reloaded(name, "loaded")
                task = asyncio.create_task(old.batches.close())
                self._retired.add(task)
                task.add_done_callback(self._retired.discard)
        return told

    async def close(self) -> None:
        """End all threads after what is under way."""
        await asyncio.gather(*(served.batches.close() for served in self._served.values()), *self._retired)


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes when a file is replaced; empty where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino
