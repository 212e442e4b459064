"""The client, what its workers can hold, and sums merged in a tree on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dask.distributed import Client, get_client, progress, wait

from gramless._core.memory import free_memory

# How many partial sums one task merges: wide enough for few tasks, narrow enough for few sums in memory at once.
_BRANCHES = 8


@contextmanager
def active_client(client: Any = None) -> Iterator[Client]:
    """The given client, one for the given scheduler's address, or the active one."""
    if isinstance(client, Client):
        yield client
    elif isinstance(client, str):
        with Client(client, set_as_default=False) as connected:
            yield connected
    else:
        try:
            found = get_client()
        except ValueError as error:
            raise RuntimeError(
                "dask collections are fitted on a cluster, and there is no active client: "
                "`from dask.distributed import Client; client = Client()` starts one on this machine"
            ) from error
        yield found


def reduce_in_tree(client: Client, leaves: Sequence[Any], merge: Callable[..., Any]) -> Any:
    """One future: `merge` of all leaves, a few at a time, where they are."""
    level = list(leaves)
    while len(level) > 1:
        groups = [level[i : i + _BRANCHES] for i in range(0, len(level), _BRANCHES)]
        level = [group[0] if len(group) == 1 else client.submit(merge, group, pure=False) for group in groups]
    return level[0]


def show_progress(verbose: int, futures: Any) -> None:
    """A bar while the cluster works, for those who asked; the dashboard shows the same in detail."""
    if verbose:
        progress(futures, notebook=False)
        wait(futures)


def cluster_memory(client: Client) -> int:
    """Bytes that all workers together may hold; a worker without a limit counts its share of what its machine has free."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    limits = {address: int(worker["memory_limit"] or 0) for address, worker in workers.items()}
    unlimited = [address for address, limit in limits.items() if not limit]
    hosts = Counter(workers[address]["host"] for address in unlimited)
    free = client.run(free_memory, "cpu", workers=unlimited) if unlimited else {}
    return sum(limits.values()) + sum(free[address] // hosts[workers[address]["host"]] for address in unlimited)


def n_threads(client: Client) -> int:
    return sum(client.nthreads().values())
