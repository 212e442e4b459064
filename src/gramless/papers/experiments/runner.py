"""Run experiments: each fit in a separate process, its record written when it ends, finished fits skipped.

A process per fit gives an exact peak memory, isolates a crash or an out-of-memory kill, and can be stopped by Ctrl-C. The
processes are forked from a server that has imported the library and started no thread, which costs about 0.1 s per fit.
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
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from threadpoolctl import threadpool_limits

from gramless.papers.datasets.loading import ENVIRONMENT_VARIABLE
from gramless.papers.experiments.declarations import Params, Spec
from gramless.papers.experiments.fit import Notify, run_fit
from gramless.papers.experiments.results import Results


@dataclass(frozen=True)
class Event:
    """Progress of a run: "skipped", "started", "stage", "done" or "failed", for fit `number` (from 1) of `total`.

    `detail` is the progress of the fit for "stage", and the record for "done" and "failed".
    """

    kind: str
    spec: Spec
    params: Params
    seed: int
    number: int
    total: int
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FitTask:
    """Input of the process of one fit."""

    spec: Spec
    params: Params
    seed: int
    device: str | None
    data: str | os.PathLike | None
    threads: int | None


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

    `device` is passed to every estimator that has this parameter, `data` is the first folder searched for datasets, and
    `threads` limits the threads of the linear algebra. With `any_device`, fits that `results` contains from another device
    are not repeated. KeyboardInterrupt is raised after the current fit was stopped.
    """
    devices = {device} | ({record["device"] for record in results.records() if "device" in record} if any_device else set())
    fits = [FitTask(spec, params, seed, device, data, threads) for spec in specs for params, seed in spec.fits()]
    finished = results.finished()
    failures = 0
    for number, fit in enumerate(fits, start=1):
        event = Event("started", fit.spec, fit.params, fit.seed, number, len(fits))
        key = fit.spec.key(fit.params, fit.seed, device)
        if any(fit.spec.key(fit.params, fit.seed, other) in finished for other in devices):
            on_event(replace(event, kind="skipped"))
            continue
        on_event(event)

        def notify(stage: str, detail: Mapping[str, Any], event: Event = event) -> None:
            on_event(replace(event, kind="stage", detail={"stage": stage, **detail}))

        record = {"key": key, **_run_in_process(fit, notify)}
        results.append(record)
        failures += record["status"] != "done"
        on_event(replace(event, kind=record["status"], detail=record))
    return failures


def _run_in_process(fit: FitTask, notify: Notify) -> dict[str, Any]:
    context = _context()
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(sender, fit), daemon=False)
    started = time.time()
    try:
        with _delayed_interrupts():
            process.start()
        sender.close()
        outcome: dict[str, Any] | None = None
        # End of file before a result: the process was killed, usually because memory ran out.
        with contextlib.suppress(EOFError):
            while outcome is None:
                kind, detail = receiver.recv()
                if kind == "stage":
                    notify(*detail)
                else:
                    outcome = {"status": kind, **detail}
        process.join()
    finally:
        if process.is_alive():
            process.terminate()
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()
        receiver.close()
    if outcome is None:
        outcome = {"status": "failed", "reason": _exit_reason(process.exitcode)}
    base = {"paper": fit.spec.paper, "experiment": fit.spec.name, "params": dict(fit.params), "seed": fit.seed}
    return {**base, "device": fit.device, "finished_at": time.time(), "started_at": started, **outcome}


def _child(connection: Connection, fit: FitTask) -> None:
    # Ctrl-C is sent to the whole process group; the parent ends this process itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    if fit.data is not None:
        os.environ[ENVIRONMENT_VARIABLE] = os.fspath(fit.data)

    def notify(stage: str, detail: Mapping[str, Any]) -> None:
        connection.send(("stage", (stage, detail)))

    try:
        with threadpool_limits(fit.threads):
            record = run_fit(fit.spec, fit.params, fit.seed, device=fit.device, notify=notify)
    except Exception as reason:
        error = f"{type(reason).__name__}: {reason}"
        connection.send(("failed", {"reason": error, "traceback": traceback.format_exc()}))
    else:
        connection.send(("done", record))
    finally:
        connection.close()


def _exit_with_parent() -> None:
    """End this process when the parent has ended, because a killed parent cannot stop its fit."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a fit runs in a child process"
    parent.join()
    os._exit(1)


def _context() -> Any:
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # Every child imports the main module of the run; the fork server preloads its slow imports.
    context.set_forkserver_preload(
        ["gramless.papers.experiments.fit", "sklearn.datasets", "numba", "typer", "rich.progress"]
    )
    return context


@contextlib.contextmanager
def _delayed_interrupts() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM to the end of the block.

    Processes started in the block inherit the blocked Ctrl-C. Otherwise Ctrl-C would also end the fork server, with a
    traceback.
    """
    received: list[int] = []
    previous: dict[signal.Signals, Any] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, lambda number, frame: received.append(number))
    except ValueError:  # handlers can be set in the main thread only, and signals are delivered only there
        yield
        return
    blocked = None
    if hasattr(signal, "pthread_sigmask"):
        resource_tracker.ensure_running()  # a fork server that is started later would unblock Ctrl-C
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
    if exitcode is not None and exitcode < 0:
        name = signal.Signals(-exitcode).name
        hint = "; the system kills the largest process if memory runs out" if name == "SIGKILL" else ""
        return f"the process of this fit was ended by {name}{hint}"
    return f"the process of this fit ended with status {exitcode} before it sent a result"
