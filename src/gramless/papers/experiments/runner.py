"""Run each fit of experiments in a separate process, write its record when the fit ends, and skip finished fits.

With one process per fit, the peak memory of a fit is exact, a crash or a lack of memory ends only one fit, and Ctrl-C stops
a fit. Processes are forked from a server that has imported the library and started no thread, in about 0.1 s per fit.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from threadpoolctl import threadpool_limits

from gramless.papers.datasets import ENVIRONMENT_VARIABLE
from gramless.papers.experiments.declarations import Params, Spec
from gramless.papers.experiments.fit import Notify, run_fit
from gramless.papers.experiments.results import Results

_START_METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
# Modules that the fork server imports once for all processes, including slow imports of the main module of the run.
_PRELOADED = ["gramless.papers.experiments.fit", "sklearn.datasets", "numba", "typer", "rich.progress"]


@dataclass(frozen=True)
class Event:
    """Progress of a run: "skipped", "started", "stage", "done" or "failed", for fit `number` (from 1) of `total`.

    `detail` is the progress of the fit if the kind is "stage", and the record if the kind is "done" or "failed".
    """

    kind: str
    spec: Spec
    params: Params
    seed: int
    number: int
    total: int
    detail: Mapping[str, Any] = field(default_factory=dict)


def run(
    specs: Sequence[Spec],
    results: Results,
    *,
    device: str | None = None,
    data: str | os.PathLike | None = None,
    threads: int | None = None,
    any_device: bool = False,
    on_event: Callable[[Event], None] = lambda event: None,
) -> int:
    """Run all fits that `results` does not contain and return the number of failed fits.

    `device` is passed to every estimator with a parameter `device`, `data` is the first folder searched for datasets, and
    `threads` limits the threads of the linear algebra. With `any_device`, fits that were finished on another device are not
    repeated. Ctrl-C stops the current fit and then raises KeyboardInterrupt.
    """
    devices = {device} | ({record["device"] for record in results.records() if "device" in record} if any_device else set())
    fits = [(spec, params, seed) for spec in specs for params, seed in spec.fits()]
    finished = results.finished()
    failures = 0
    for number, (spec, params, seed) in enumerate(fits, start=1):
        event = Event("started", spec, params, seed, number, len(fits))
        if any(spec.key(params, seed, other) in finished for other in devices):
            on_event(replace(event, kind="skipped"))
            continue
        on_event(event)

        def notify(stage: str, detail: Mapping[str, Any], event: Event = event) -> None:
            on_event(replace(event, kind="stage", detail={"stage": stage, **detail}))

        started = time.time()
        outcome = _run_in_process(partial(run_fit, spec, params, seed, device=device), data, threads, notify)
        record = {
            "key": spec.key(params, seed, device),
            "paper": spec.paper,
            "experiment": spec.name,
            "params": dict(params),
            "seed": seed,
            "device": device,
            "finished_at": time.time(),
            "started_at": started,
            **outcome,
        }
        results.append(record)
        failures += record["status"] != "done"
        on_event(replace(event, kind=record["status"], detail=record))
    return failures


def _run_in_process(
    fit: Callable[..., dict[str, Any]], data: str | os.PathLike | None, threads: int | None, notify: Notify
) -> dict[str, Any]:
    """Run a fit in a child process; return the status of the fit, with the record or with the reason of a failure."""
    context: Any = multiprocessing.get_context(_START_METHOD)
    if _START_METHOD == "forkserver":
        context.set_forkserver_preload(_PRELOADED)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(sender, fit, data, threads), daemon=False)
    try:
        with _delayed_interrupts():
            process.start()
        sender.close()
        # EOFError: the process ended without a result, usually because the system killed it when memory ran out.
        with contextlib.suppress(EOFError):
            while True:
                kind, detail = receiver.recv()
                if kind != "stage":
                    process.join()
                    return {"status": kind, **detail}
                notify(*detail)
        process.join()
        return {"status": "failed", "reason": _exit_reason(process.exitcode)}
    finally:
        if process.is_alive():
            process.kill()
            process.join()
        receiver.close()


def _child(
    connection: Connection, fit: Callable[..., dict[str, Any]], data: str | os.PathLike | None, threads: int | None
) -> None:
    # Ignore Ctrl-C, which the terminal sends to all processes of the group: the parent process stops this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    if data is not None:
        os.environ[ENVIRONMENT_VARIABLE] = os.fspath(data)
    try:
        with threadpool_limits(threads):
            record = fit(notify=lambda *stage: connection.send(("stage", stage)))
    except Exception as reason:
        error = f"{type(reason).__name__}: {reason}"
        connection.send(("failed", {"reason": error, "traceback": traceback.format_exc()}))
    else:
        connection.send(("done", record))
    finally:
        connection.close()


def _exit_with_parent() -> None:
    """End this process when its parent process has ended, because a killed parent cannot stop this process."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a fit runs in a child process"
    parent.join()
    os._exit(1)


@contextlib.contextmanager
def _delayed_interrupts() -> Iterator[None]:
    """Context manager that delays Ctrl-C and SIGTERM to the end of its block.

    Processes that are started in the block inherit the mask that blocks the signal of Ctrl-C. Without this mask, Ctrl-C
    would also end the fork server, with a traceback.
    """
    received: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        previous = {number: signal.signal(number, lambda number, _: received.append(number)) for number in numbers}
    except ValueError:  # only the main thread can set signal handlers, and only the main thread receives signals
        yield
        return
    blocked = None
    if hasattr(signal, "pthread_sigmask"):
        resource_tracker.ensure_running()  # the start of the tracker unblocks Ctrl-C, so it comes first
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if blocked is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in previous.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])


def _exit_reason(exitcode: int | None) -> str:
    if exitcode is None or exitcode >= 0:
        return f"the process of this fit ended with status {exitcode} before it sent a result"
    name = signal.Signals(-exitcode).name
    hint = "; the system kills the largest process if memory runs out" if name == "SIGKILL" else ""
    return f"the process of this fit was ended by {name}{hint}"
