"""Environment of a fit (versions, hardware and commit), which every record has, and the peak memory of the process."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from gramless._version import __version__

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "torch")


@functools.cache
def environment(device: str | None = None) -> dict[str, Any]:
    """Return versions, hardware and commit of this process as plain JSON, with the name of the GPU if `device` is a GPU."""
    return {"versions": versions(), "hardware": hardware(device), "commit": commit()}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that affect a result."""
    found = {"python": platform.python_version(), "gramless": __version__}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def hardware(device: str | None = None) -> dict[str, Any]:
    """Return the processor, the cores available to this process, the memory, and the number of threads of BLAS."""
    import scipy.linalg  # noqa: F401  (loads the libraries whose threads are counted)
    from threadpoolctl import threadpool_info

    found: dict[str, Any] = {}
    if device is not None and not device.startswith("cpu"):
        import torch

        found["gpu"] = torch.cuda.get_device_name()
    threads = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    has_size = "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {})
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if has_size else 0
    return {
        **found,
        "cpu": _line("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "blas_threads": max(threads, default=None),
        "memory_gb": round(memory / 1e9, 1) if memory else None,
        "system": f"{platform.system()} {platform.machine()}",
    }


def commit() -> str | None:
    """Return the commit of the package's source tree, with -dirty for uncommitted changes; None outside of a source tree.

    The environment variable GRAMLESS_COMMIT states the commit of a copy of the source tree that has no git history.
    """
    if stated := os.environ.get("GRAMLESS_COMMIT"):
        return stated
    here = Path(__file__).resolve().parent
    git = functools.partial(subprocess.run, cwd=here, capture_output=True, text=True, timeout=10, check=True)
    try:
        # An installed copy may lie inside another repository, whose commit would be misleading.
        git(["git", "ls-files", "--error-unmatch", __file__])
        return git(["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _line(path: str, name: str) -> str:
    """Return the value of the first line "name: value" of a text file of the system, empty if no line has this name."""
    lines = Path(path).read_text().splitlines() if Path(path).exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def reset_peak() -> bool:
    """Reset the peak resident memory of this process; return False if the operating system cannot (only Linux can)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_mb() -> float:
    """Return the peak resident memory in MB since the last successful `reset_peak`, or since the start of the process."""
    if peak := _line("/proc/self/status", "VmHWM"):
        return int(peak.split()[0]) * 1024 / 1e6
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, else kibibytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
