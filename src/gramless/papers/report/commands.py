"""The command that repeats one row of a table."""

from __future__ import annotations

import json
import shlex

from gramless.papers.experiments import Spec
from gramless.papers.report.groups import Point, varying_among


def command(spec: Spec, point: Point, *, quick: bool, seed: int | None = None) -> str:
    """One point of the grid and one seed, the first when none is given."""
    words = ["gramless", "reproduce", spec.paper, "--only", spec.name]
    for key in varying_among(spec.grid):
        if key in point.params:
            given = point.params[key]
            words += ["--where", f"{key}={given if isinstance(given, str) else json.dumps(given)}"]
    words += ["--seed", str(point.seeds[0] if seed is None else seed)]
    device = point.records[0].get("device")
    if device:
        words += ["--device", device]
    if quick:
        words.append("--quick")
    return shlex.join(words)
