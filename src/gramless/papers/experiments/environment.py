"""Where a fit ran: versions, hardware, threads, commit. Recorded with every result."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

PACKAGES = ("gramless", "numpy", "scipy", "scikit-learn", "numba", "torch")


@functools.cache
def environment() -> dict[str, Any]:
    """Versions, hardware and commit of this process, as plain JSON."""
    return {"versions": versions(), "hardware": hardware(), "commit": commit()}


def versions() -> dict[str, str]:
    """Python and the installed packages that decide a result."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    if "gramless" not in found:  # a source tree on the path, not installed
        from gramless._version import __version__

        found["gramless"] = __version__
    return found


def hardware() -> dict[str, Any]:
    """Processor, cores this process may use, memory, threads of the linear algebra; the GPU, where torch is in use."""
    import scipy.linalg  # noqa: F401  (loads the libraries whose threads are counted)
    from threadpoolctl import threadpool_info

    pools = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    torch = sys.modules.get("torch")
    gpu = {"gpu": torch.cuda.get_device_name()} if torch is not None and torch.cuda.is_available() else {}
    return {
        **gpu,
        "cpu": _cpu_name(),
        "cores": _usable_cores(),
        "blas_threads": max(pools, default=None),
        "memory_gb": _memory_gb(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def commit() -> str | None:
    """The commit of the source tree this package was imported from, marked when there are changes; None
    outside one.
    """
    here = Path(__file__).resolve().parent
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        tracked = subprocess.run(["git", "ls-files", "--error-unmatch", __file__], cwd=here, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    # An installed copy may lie inside somebody else's repository; that commit would say nothing.
    return described.stdout.strip() if tracked.returncode == 0 else None


def _cpu_name() -> str:
    if Path("/proc/cpuinfo").exists():
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_gb() -> float | None:
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1)
    return None
