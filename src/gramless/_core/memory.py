"""Free memory, the parameter `memory_budget`, and estimates of the peak memory of a fit."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from numbers import Real

from gramless._core import arrays as xa
from gramless._core.tuning import TUNING

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}

COMPILED_LOOPS = {
    "numba": 70_000_000,
    "gramless._core.compiled.tile_loops": 75_000_000,
    "gramless._core.compiled.integer_products": 30_000_000,
}
"""Bytes of memory that importing numba, and each module that compiles its loops at import, takes (measured by
`benchmarks/memory.py`)."""


def parse_budget(budget: str | float | None, device: str = "cpu") -> int:
    """Return the parameter `memory_budget` in bytes; fractions and None are relative to the free memory of the device."""
    if budget is None:
        return int(TUNING.memory_fraction * free_memory(device))
    if isinstance(budget, str):
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*", budget)
        if match and not match[2] and float(match[1]) <= 1:
            return parse_budget(float(match[1]), device)  # "0.5" on a command line is a fraction, not half a byte
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
    """Return a number of bytes as text, for example 1234567890 as `1.2 GB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit in ("B", "KB") else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"


@dataclass
class MemoryEstimate:
    """Estimated peak memory of a fit in bytes, with the name and size of each part."""

    parts: dict[str, int] = field(default_factory=dict)
    device: str = "cpu"
    solver: str = ""
    loading: int = 0
    """Bytes that importing compiled loops may add, once per process; not included in `nbytes` or in the memory budget."""

    @property
    def nbytes(self) -> int:
        """Sum of all parts in bytes."""
        return sum(self.parts.values())

    @property
    def where(self) -> str:
        """Name of the memory in messages: host memory or the memory of a device."""
        return "host memory" if not self.device.startswith("cuda") else f"memory of {self.device}"

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in self.parts.items() if size)
        once = f"; compiled loops take up to {format_bytes(self.loading)} more, once, to load" if self.loading else ""
        return f"{format_bytes(self.nbytes)} of {self.where} ({parts}){once}"

    def check(self, budget: int, advice: str) -> None:
        """Raise `MemoryError` with the given advice if the estimate exceeds the budget."""
        if self.nbytes > budget:
            raise MemoryError(f"the fit needs {self}, and memory_budget allows {format_bytes(budget)}; {advice}")


def free_memory(device: str = "cpu", cgroup: str = "/sys/fs/cgroup") -> int:
    """Return the free memory of a device in bytes; for the host, container limits in the folder `cgroup` are respected."""
    if device.startswith("cuda"):
        torch = xa.import_torch()
        free, _ = torch.cuda.mem_get_info(device)
        # Memory that torch's allocator caches, and that no tensor uses, counts as free.
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    # On systems without /proc, such as macOS, only the size of the physical memory is known; half is assumed to be free.
    free = 1024 * _field("/proc/meminfo", "MemAvailable:") or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    for folder, limit, used, cached in (
        ("", "memory.max", "memory.current", "inactive_file"),
        ("/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            with open(f"{cgroup}{folder}/{limit}") as a, open(f"{cgroup}{folder}/{used}") as b:
                # The used memory includes inactive page cache, which the operating system frees on demand.
                left = int(a.read()) - int(b.read()) + _field(f"{cgroup}{folder}/memory.stat", cached)
        except (OSError, ValueError):  # the cgroup does not exist, or its limit is "max" (no limit)
            continue
        free = min(free, max(0, left))
    return free


def _field(path: str, name: str) -> int:
    """Return the number after `name` in a system file such as /proc/meminfo, 0 if the file or the name does not exist."""
    if not os.path.exists(path):
        return 0
    with open(path) as f:
        return sum(int(line.split()[1]) for line in f if line.split()[0] == name)
