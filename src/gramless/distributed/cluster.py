"""Dask client, memory of the workers, tree reductions on the workers, and parameters that a fit on a cluster rejects."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Sequence, Set
from typing import Any

from dask.distributed import Client, get_client, progress, wait

from gramless._core.memory import free_memory

# Number of partial sums that one task merges. With more sums per task, fewer tasks but more memory per worker are needed.
_BRANCHES = 8

_REASONS = {
    "callback": "workers do not report until the end, and a lost result is computed again without a checkpoint",
    "device": "the workers compute on their CPUs",
    "forgetting_factor": "it needs an order of the rows, and partitions are summed in any order",
    "memory_budget": "the cluster sets the memory of a worker: Client(memory_limit=...)",
    "warm_start": "every fit on a cluster starts from zero",
}


def check_settings(estimator: Any, unsupported: Set[str]) -> None:
    """Raise a `ValueError` if an unsupported parameter does not have its default value.

    Examples
    --------
    >>> from gramless import LSSVC
    >>> from gramless.distributed.cluster import check_settings
    >>> check_settings(LSSVC(C=10.0, verbose=1), {"verbose"})
    Traceback (most recent call last):
    ...
    ValueError: verbose=1 cannot be honoured on dask collections; set verbose=0
    """
    parameters = inspect.signature(type(estimator)).parameters
    for name in sorted(unsupported & set(parameters)):
        value, default = getattr(estimator, name), parameters[name].default
        if value != default and (name, value) != ("device", "cpu"):
            why = f": {_REASONS[name]}" if name in _REASONS else ""
            raise ValueError(f"{name}={value!r} cannot be honoured on dask collections{why}; set {name}={default!r}")


def active_client() -> Client:
    """Return the active client, or raise a `RuntimeError` that explains how to start one."""
    try:
        return get_client()
    except ValueError as error:
        raise RuntimeError(
            "dask collections are fitted on a cluster, and there is no active client: "
            "`from dask.distributed import Client; client = Client()` starts one on this machine"
        ) from error


def reduce_in_tree(client: Client, leaves: Sequence[Any], merge: Callable[..., Any]) -> Any:
    """Return a future of the total of all leaves: workers `merge` groups of leaves, then groups of results, and so on."""
    level = list(leaves)
    while len(level) > 1:
        groups = [level[i : i + _BRANCHES] for i in range(0, len(level), _BRANCHES)]
        level = [group[0] if len(group) == 1 else client.submit(merge, group, pure=False) for group in groups]
    return level[0]


def merge_copies(parts: Sequence[Any]) -> Any:
    """Return a merged copy of the parts; the parts stay unchanged, because dask may repeat the task with the same parts."""
    total = parts[0].copy()
    for part in parts[1:]:
        total.merge(part)
    return total


def show_progress(verbose: int, futures: Any) -> None:
    """Show a progress bar until the futures are done, if `verbose` is positive."""
    if verbose:
        progress(futures, notebook=False)
        wait(futures)


def cluster_memory(client: Client) -> int:
    """Return the total memory of all workers in bytes; workers without a limit share their host's free memory equally."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    limits = {address: int(worker["memory_limit"] or 0) for address, worker in workers.items()}
    unlimited = [address for address, limit in limits.items() if not limit]
    hosts = Counter(workers[address]["host"] for address in unlimited)
    free = client.run(free_memory, "cpu", workers=unlimited) if unlimited else {}
    return sum(limits.values()) + sum(free[address] // hosts[workers[address]["host"]] for address in unlimited)
