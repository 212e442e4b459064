"""Parallel execution of tiles in threads, each with one BLAS thread.

The matrix product of a kernel uses every core, but its elementwise function (power, exponential) runs on one. Tiles that fit
in the cache, computed in as many threads as BLAS would use, run both steps on every core without intermediate arrays in main
memory. Tiles are assigned to threads in a fixed order, so that equal numbers of threads give bit-identical results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from functools import cache
from threading import Condition, Event, Lock, local
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from gramless._core.tuning import TUNING

T = TypeVar("T")

CPU_TILE = 1024
"""Number of rows and of columns of a tile on the CPU: 4 MB in float32, enough for BLAS to reach its full rate."""

CUDA_TILE = 8192
"""Number of rows and of columns of a tile on a GPU: large enough for the launch time of its product to be negligible."""


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


class _ThreadState(local):
    """State of a thread, in which `is_limited` is True while `one_blas_thread` limits BLAS for this thread."""

    is_limited = False


_thread = _ThreadState()
_limiting = Lock()
# Number of BLAS threads before the active limit of `one_blas_thread` was set; 0 if no limit is active.
_threads_before_limit = 0


def blas_threads() -> int:
    """Return the number of threads that BLAS may use, within the limits of threadpoolctl and OMP_NUM_THREADS.

    The number is not changed by `one_blas_thread` in other threads, although its limit is global to the process.
    """
    if _thread.is_limited:
        return 1
    counts = [lib.num_threads for lib in _controller().lib_controllers if lib.user_api == "blas"]
    return max([*counts, _threads_before_limit], default=1)


def _mark_as_limited() -> None:
    _thread.is_limited = True


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to the calling thread within this context.

    The threads of BLAS spin for about 20 ms after each call and take processor time from the threads of this module.
    """
    global _threads_before_limit
    before = blas_threads()
    if before == 1:  # querying the number takes a tenth of the time of setting and restoring the limit
        yield
        return
    _thread.is_limited = True
    # The limit is global to the process. If two contexts overlap and both set the limit, the second one restores the limit
    # that the first one has set, and BLAS stays at one thread. Therefore only the first context sets and restores the limit.
    is_first = _limiting.acquire(blocking=False)
    try:
        if is_first:
            _threads_before_limit = before
        with _controller().limit(limits=1, user_api="blas") if is_first else nullcontext():
            yield
    finally:
        _thread.is_limited = False
        if is_first:
            _threads_before_limit = 0
            _limiting.release()


def run_threads(
    work: Callable[[int], T],
    workers: int,
    *,
    meanwhile: Callable[[], None] | None = None,
    abandon: Callable[[], None] | None = None,
    blas: bool = True,
) -> list[T]:
    """Return `[work(0), ..., work(workers - 1)]`, each computed in its own thread with one BLAS thread.

    The calling thread calls `meanwhile` every 0.1 s and, after an exception such as Ctrl-C, calls `abandon`, which should
    make the workers return soon, and waits for them. `blas=False` saves setting the limit if `work` never calls BLAS.
    """
    if workers == 1:
        return [work(0)]
    initializer = _mark_as_limited if blas else None
    with one_blas_thread() if blas else nullcontext(), ThreadPoolExecutor(workers, initializer=initializer) as pool:
        try:
            futures = [pool.submit(work, k) for k in range(workers)]
            while True:
                done, pending = wait(
                    futures, timeout=TUNING.seconds_between_calls if meanwhile else None, return_when=FIRST_EXCEPTION
                )
                results = {future: future.result() for future in done}  # raises the exception of a worker
                if not pending:
                    return [results[future] for future in futures]
                if meanwhile:
                    meanwhile()
        except BaseException:
            if abandon is not None:
                abandon()
            raise


def parallel_for(tasks: Sequence[Any], do: Callable[[Any], object], workers: int, *, blas: bool = True) -> None:
    """Call `do` on every task, assigned round-robin to `workers` threads; after an exception no further task starts."""
    workers = max(1, min(workers, len(tasks)))
    abandoned = Event()

    def work(k: int) -> None:
        for task in tasks[k::workers]:
            if abandoned.is_set():
                return
            do(task)

    run_threads(work, workers, abandon=abandoned.set, blas=blas)


def run_round_robin(jobs: Sequence[Generator[None, None, T]], workers: int) -> list[T]:
    """Run generators in threads and return their results; a free thread runs one step of the longest waiting generator.

    All threads stay busy even if the generators take different amounts of time.
    """
    waiting, results = deque(enumerate(jobs)), dict[int, T]()
    changed, abandoned = Condition(), Event()

    def take() -> tuple[int, Generator[None, None, T]] | None:
        with changed:
            while not waiting and len(results) < len(jobs) and not abandoned.is_set():
                changed.wait()
            return None if abandoned.is_set() or not waiting else waiting.popleft()

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
                    waiting.append(taken)
                    changed.notify()

    run_threads(work, max(1, min(workers, len(jobs))), abandon=abandon)
    return [results[number] for number in range(len(jobs))]


def slices(n: int, size: int) -> list[slice]:
    """Return consecutive slices of at most `size` indices that cover `range(n)`."""
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


def lower_tiles(parts: Iterable[slice]) -> list[tuple[slice, slice]]:
    """Return the tiles on and below the diagonal of a square matrix whose rows and columns are divided into `parts`."""
    parts = list(parts)
    return [(row, column) for i, row in enumerate(parts) for column in parts[: i + 1]]
