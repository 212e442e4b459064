"""Work cut into tiles and shared among threads, one single-threaded BLAS each.

A matrix product uses every core but the elementwise half of a kernel (the power, the exponential) runs on one. Cut
into tiles that stay in cache and handed to as many threads as BLAS would use, both halves run on every core and no
intermediate goes to memory. Tiles are dealt out in a fixed order, so the same number of threads gives the same bits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from functools import cache
from threading import Condition, Event, Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")

CPU_TILE = 1024
"""Edge of a tile on the CPU: 4 MB in float32, large enough for BLAS to run at its full rate."""

CUDA_TILE = 8192
"""Edge of a tile on a GPU: large enough that launches cost nothing beside the product."""


_TICK = 0.1


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def blas_threads() -> int:
    """How many threads BLAS may use now: the cores, or less where threadpoolctl or OMP_NUM_THREADS say so."""
    counts = [lib.num_threads for lib in _controller().lib_controllers if lib.user_api == "blas"]
    return max(counts, default=1)


_limiting = Lock()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """A context in which BLAS uses the calling thread alone.

    For products too small to share: BLAS's other threads stay awake for some 20 ms after each call, in the way of ours.
    """
    if blas_threads() == 1:  # to ask costs a tenth of setting a limit and taking it back
        yield
        return
    # The number of threads belongs to the process. Of two limits that overlap in time, the second would take the first for
    # the usual state and leave BLAS at one thread for good: one thread sets the limit and takes it back, others go along.
    if not _limiting.acquire(blocking=False):
        yield
        return
    try:
        with _controller().limit(limits=1, user_api="blas"):
            yield
    finally:
        _limiting.release()


def run_threads(
    work: Callable[[int], T],
    workers: int,
    *,
    meanwhile: Callable[[], None] | None = None,
    abandon: Callable[[], None] | None = None,
    blas: bool = True,
) -> list[T]:
    """`[work(0), ..., work(workers - 1)]`, each in its own thread with one BLAS thread.

    Work that never calls BLAS (`blas=False`) starts a little sooner.

    The calling thread runs `meanwhile` every tenth of a second. Where anything is raised (Ctrl-C above all), `abandon` is to
    make the workers end soon: they are waited for.
    """
    if workers == 1:
        return [work(0)]
    with one_blas_thread() if blas else nullcontext(), ThreadPoolExecutor(workers) as pool:
        try:
            futures = [pool.submit(work, k) for k in range(workers)]
            while True:
                done, pending = wait(futures, timeout=_TICK if meanwhile else None, return_when=FIRST_EXCEPTION)
                results = {future: future.result() for future in done}  # raises what a worker raised
                if not pending:
                    return [results[future] for future in futures]
                if meanwhile:
                    meanwhile()
        except BaseException:
            if abandon is not None:
                abandon()
            raise


def parallel_for(tasks: Sequence[Any], do: Callable[[Any], None], workers: int, *, blas: bool = True) -> None:
    """Call `do` on every task, dealt round-robin to `workers` threads; where one raises, the others go no further.

    `blas=False` says that no task calls BLAS.
    """
    workers = max(1, min(workers, len(tasks)))
    abandoned = Event()

    def work(k: int) -> None:
        for task in tasks[k::workers]:
            if abandoned.is_set():
                return
            do(task)

    run_threads(work, workers, abandon=abandoned.set, blas=blas)


def run_round_robin(jobs: Sequence[Generator[None, None, T]], workers: int) -> list[T]:
    """What each job returns; jobs rest wherever they yield, and a thread that is free takes the one that rests longest.

    Jobs of unequal length keep all threads busy almost to the end. For jobs whose results do not depend on each other's.
    """
    resting, results = deque(enumerate(jobs)), dict[int, T]()
    changed, abandoned = Condition(), Event()

    def take() -> tuple[int, Generator[None, None, T]] | None:
        with changed:
            while not resting and len(results) < len(jobs) and not abandoned.is_set():
                changed.wait()
            return None if abandoned.is_set() or not resting else resting.popleft()

    def abandon() -> None:
        with changed:
            abandoned.set()
            changed.notify_all()

    def work(_: int) -> None:
        while (taken := take()) is not None:
            number, job = taken
            try:
                next(job)
            except StopIteration as end:
                with changed:
                    results[number] = end.value
                    changed.notify_all()
            except BaseException:
                abandon()
                raise
            else:
                with changed:
                    resting.append(taken)
                    changed.notify()

    run_threads(work, max(1, min(workers, len(jobs))), abandon=abandon)
    return [results[number] for number in range(len(jobs))]


def slices(n: int, size: int) -> list[slice]:
    """Consecutive slices of at most `size` that cover `range(n)`."""
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


def lower_tiles(parts: Iterable[slice]) -> list[tuple[slice, slice]]:
    """The tiles on and below the diagonal of a square matrix cut into `parts` both ways."""
    parts = list(parts)
    return [(row, column) for i, row in enumerate(parts) for column in parts[: i + 1]]
