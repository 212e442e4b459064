"""The results of a run: a file with one JSON line per fit, and the statistics over the seeds of one setting.

Each line is appended in one write that is flushed to disk. A process that is killed during a write leaves at most an
incomplete last line, which readers ignore and the next append removes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

Record = Mapping[str, Any]
Metric = str | Callable[[Record], float | None]
"""Name of a metric, or function of a record that returns None if the record does not have the required values."""

_REQUIRED = ("key", "paper", "experiment", "params", "seed")
_REQUIRED_BY_STATUS = {"done": ("metrics", "data", "history", "hardware", "versions", "commit"), "failed": ("reason",)}


class ResultsError(RuntimeError):
    """Error of a results file with a line, other than an incomplete last line, that is not a valid record."""


class Results:
    """The records in one results file, which need not exist yet."""

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)

    def append(self, record: Record) -> None:
        """Append a record to the file and flush the file to disk."""
        line = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab+") as file:
            file.seek(0)
            content = file.read()
            if content and not content.endswith(b"\n"):
                file.truncate(content.rfind(b"\n") + 1)
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def records(self) -> list[dict[str, Any]]:
        """Return all complete records; a later record replaces an earlier record with the same key."""
        if not self.path.exists():
            return []
        latest: dict[str, dict[str, Any]] = {}
        with open(self.path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    break
                try:
                    record = json.loads(line)
                    required = (*_REQUIRED, *_REQUIRED_BY_STATUS[record["status"]])
                    if missing := [name for name in required if name not in record]:
                        raise ValueError(f"it has no {', '.join(missing)}")
                    latest[record["key"]] = record
                except (ValueError, KeyError, TypeError, RecursionError) as reason:
                    raise ResultsError(
                        f"{self.path}, line {number} is not a result: {reason}. Use --fresh to discard the file"
                    ) from reason
        return list(latest.values())

    def finished(self) -> set[str]:
        """Return the keys of the successful fits; failed fits are repeated by the next run."""
        return {record["key"] for record in self.records() if record["status"] == "done"}


@dataclass(frozen=True)
class Point:
    """Records of fits with the same parameters on the same device, which differ only in the seed."""

    params: Mapping[str, Any]
    device: str
    records: Sequence[Record]

    def values(self, metric: Metric) -> list[float]:
        """Return the values of a metric, or of a function of a record, for the seeds whose records have the metric."""
        return list(self.by_seed(metric).values())

    def by_seed(self, metric: Metric) -> dict[int, float]:
        """Return the values of a metric, or of a function of a record, by seed; seeds without a value are left out."""
        found = {r["seed"]: r["metrics"].get(metric) if isinstance(metric, str) else metric(r) for r in self.records}
        return {seed: value for seed, value in found.items() if value is not None}

    def mean(self, metric: Metric) -> float | None:
        """Return the mean over the seeds, or None if no seed has the metric."""
        values = self.values(metric)
        return fmean(values) if values else None

    def spread(self, metric: Metric) -> float | None:
        """Return the standard deviation over the seeds, or None for fewer than two seeds."""
        values = self.values(metric)
        return stdev(values) if len(values) > 1 else None

    @property
    def seeds(self) -> list[int]:
        """Return the sorted seeds of the fits."""
        return sorted({record["seed"] for record in self.records})


def points(records: Iterable[Record]) -> list[Point]:
    """Group records by parameters and device, in order of appearance."""
    groups: dict[Any, list[Record]] = {}
    for record in records:
        params = tuple((name, repr(value)) for name, value in sorted(record["params"].items()))
        groups.setdefault((params, device_of(record)), []).append(record)
    return [Point(group[0]["params"], device, group) for (_, device), group in groups.items()]


def on_one_device(records: Iterable[Record]) -> list[Record]:
    """Return, for each setting, the records of fits on the device that has the most seeds of this setting."""
    best: dict[str, Point] = {}
    for point in sorted(points(records), key=lambda point: (-len(point.seeds), point.device != "CPU")):
        best.setdefault(repr(sorted(point.params.items())), point)
    kept = {id(record) for point in best.values() for record in point.records}
    return [record for record in records if id(record) in kept]


def device_of(record: Record) -> str:
    """Return the device of a fit: "CPU", the name of the GPU, or the requested device if the record has no GPU name."""
    device = record.get("device") or "cpu"
    if device.startswith("cpu"):
        return "CPU"
    return (record.get("hardware") or {}).get("gpu") or device


def contains(params: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Return True if `params` has all parameters of `where` with the same values."""
    return all(key in params and params[key] == value for key, value in where.items())
