"""How much memory is free, may be taken and will be taken, and what to say when that is too much."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from numbers import Real

from gramless._core import arrays as xa

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_DEFAULT_FRACTION = 0.7
_CGROUP = "/sys/fs/cgroup"

COMPILED_LOOPS = {
    "numba": 70_000_000,
    "gramless._core.compiled.tile_loops": 75_000_000,
    "gramless._core.compiled.integer_products": 30_000_000,
}
"""What it takes to load compiled loops: the compiler's run time first, then those loops that are compiled as they are loaded
(`benchmarks/memory.py` measures them)."""


def parse_budget(budget: str | float | None, device: str = "cpu") -> int:
    """Bytes from the user's `memory_budget`.

    `"4GB"` or a whole number such as 4e9 is a size, a fraction in (0, 1] is that share of what is free, None is 70 % of it.

    Examples
    --------
    >>> from gramless._core.memory import parse_budget
    >>> parse_budget("1.5GB")
    1500000000
    """
    if budget is None:
        return int(_DEFAULT_FRACTION * free_memory(device))
    if isinstance(budget, str):
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*", budget)
        if match and not match[2] and float(match[1]) <= 1:
            return parse_budget(float(match[1]), device)  # "0.5" on a command line is half of what is free, not of a byte
        if match and match[2].upper() in _UNITS:
            return int(float(match[1]) * _UNITS[match[2].upper()])
    elif isinstance(budget, Real) and not isinstance(budget, bool):
        if float(budget).is_integer() and budget > 1:
            return int(budget)
        if 0 < float(budget) <= 1:
            return int(float(budget) * free_memory(device))
    raise ValueError(
        f"memory_budget must be a size such as '4GB', a number of bytes, a fraction in (0, 1] or None, got {budget!r}"
    )


def format_bytes(nbytes: float) -> str:
    """`1234567890` as `1.2 GB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit in ("B", "KB") else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"


def loading_bytes() -> int:
    """Bytes that compiled loops may still take to load in this process; 0 once all are there."""
    return sum(size for name, size in COMPILED_LOOPS.items() if name not in sys.modules)


@dataclass
class MemoryEstimate:
    """Peak bytes of a fit, part by part."""

    parts: dict[str, int] = field(default_factory=dict)
    device: str = "cpu"
    solver: str = ""
    loading: int = 0
    """What compiled loops may take beside, once in the life of a process; no part of `nbytes` and of the budget."""

    @property
    def nbytes(self) -> int:
        return sum(self.parts.values())

    @property
    def where(self) -> str:
        return "host memory" if not self.device.startswith("cuda") else f"memory of {self.device}"

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in self.parts.items() if size)
        once = f"; compiled loops take up to {format_bytes(self.loading)} more, once, to load" if self.loading else ""
        return f"{format_bytes(self.nbytes)} of {self.where} ({parts}){once}"

    def check(self, budget: int, advice: str) -> None:
        """Refuse a fit that cannot fit, before anything is computed."""
        if self.nbytes > budget:
            raise MemoryError(f"the fit needs {self}, and memory_budget allows {format_bytes(budget)}; {advice}")


def free_memory(device: str = "cpu") -> int:
    """Bytes that an allocation could still get on the device, container limits included."""
    if device.startswith("cuda"):
        torch = xa.import_torch()
        free, _ = torch.cuda.mem_get_info(device)
        # What torch's allocator holds but no tensor uses is as good as free.
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    free = _system_available()
    for folder, limit, used, cached in (
        ("", "memory.max", "memory.current", "inactive_file"),
        ("/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            with open(f"{_CGROUP}{folder}/{limit}") as a, open(f"{_CGROUP}{folder}/{used}") as b:
                left = int(a.read()) - int(b.read()) + _reclaimable(f"{_CGROUP}{folder}/memory.stat", cached)
        except (OSError, ValueError):  # no such cgroup, or "max": no limit there
            continue
        free = min(free, max(0, left))
    return free


def _reclaimable(path: str, name: str) -> int:
    """What files that were read have left in memory: it counts as used, and makes room when asked to."""
    if not os.path.exists(path):
        return 0
    with open(path) as f:
        return sum(int(line.split()[1]) for line in f if line.split()[0] == name)


def _system_available() -> int:
    if os.path.exists("/proc/meminfo"):
        with open("/proc/meminfo") as f:
            for line in f:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    # macOS and others without /proc: half of the physical memory is the honest guess that POSIX allows.
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
