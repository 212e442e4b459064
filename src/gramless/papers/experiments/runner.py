"""Run declared experiments: each fit in a process of its own, results kept as they come, nothing done twice.

A process per fit makes the peak memory honest (no leftovers of an earlier fit), contains a crash or an
out-of-memory kill, and lets Ctrl-C stop at once. The processes are forked from a server that has imported
the library but started no thread, so that a fit costs about a tenth of a second on top of its own work
where the system can fork.
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
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from threadpoolctl import threadpool_limits

from gramless.papers.datasets.loading import ENVIRONMENT_VARIABLE
from gramless.papers.experiments.fit import run_fit
from gramless.papers.experiments.results import Results
from gramless.papers.experiments.spec import Params, Spec


@dataclass(frozen=True)
class Event:
    """What a display hears while experiments run.

    Parameters
    ----------
    kind : {"skipped", "started", "stage", "done", "failed"}
        What happened.
    spec : Spec
        The experiment.
    params : mapping
        One point of its grid.
    seed : int
        The seed.
    number : int
        Which fit of all this is, from 1.
    total : int
        How many fits there are.
    detail : mapping
        Of a stage, how far the fit is; at the end, its record.

    See Also
    --------
    run : Tells events.

    Examples
    --------
    >>> from gramless.papers.experiments import Event, specs
    >>> Event("started", specs("smo")[0], {}, 0, 1, 10).kind
    'started'
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
    on_event: Callable[[Event], None] = lambda event: None,
) -> int:
    """Run every fit of `specs` that `results` does not hold yet.

    Parameters
    ----------
    specs : sequence of Spec
        The experiments, already in their quick form where that is wanted.
    results : Results
        Where records go, one line as each fit ends.
    device : str, optional
        Given to every estimator that has a `device` parameter.
    data : path-like, optional
        Folder with datasets, looked into first.
    threads : int, optional
        Limit on the threads of the linear algebra; None leaves it as it is.
    on_event : callable
        Hears an `Event` for each thing that happens.

    Returns
    -------
    int
        How many fits failed.

    Raises
    ------
    KeyboardInterrupt
        After the fit in progress was stopped; everything finished is on disk.

    See Also
    --------
    Results : Holds what was found.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from gramless.papers.experiments import Results, run
    >>> run([], Results(pathlib.Path(tempfile.mkdtemp()) / "results.jsonl"))
    0
    """
    jobs = [(spec, params, seed) for spec in specs for params, seed in spec.fits()]
    finished = results.finished()
    failures = 0
    for number, (spec, params, seed) in enumerate(jobs, start=1):
        tell = _Teller(on_event, spec, params, seed, number, len(jobs))
        key = spec.key(params, seed, device)
        if key in finished:
            tell("skipped", {})
            continue
        tell("started", {})
        record = {"key": key, **_run_apart(spec, params, seed, device, data, threads, tell)}
        results.append(record)
        failures += record["status"] != "done"
        tell(record["status"], record)
    return failures


@dataclass(frozen=True)
class _Teller:
    on_event: Callable[[Event], None]
    spec: Spec
    params: Params
    seed: int
    number: int
    total: int

    def __call__(self, kind: str, detail: Mapping[str, Any]) -> None:
        self.on_event(Event(kind, self.spec, self.params, self.seed, self.number, self.total, detail))


def _run_apart(
    spec: Spec,
    params: Params,
    seed: int,
    device: str | None,
    data: str | os.PathLike | None,
    threads: int | None,
    tell: Callable[[str, Mapping[str, Any]], None],
) -> dict[str, Any]:
    context = _context()
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(there, spec, params, seed, device, data, threads), daemon=False)
    started = time.time()
    try:
        with _interrupts_stay_here():
            process.start()
        there.close()
        outcome: dict[str, Any] | None = None
        # EOF without an outcome: the process died, typically of memory.
        with contextlib.suppress(EOFError):
            while outcome is None:
                kind, detail = here.recv()
                if kind == "stage":
                    tell("stage", detail)
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
        here.close()
    if outcome is None:
        outcome = {"status": "failed", "reason": _cause_of_death(process.exitcode)}
    base = {"paper": spec.paper, "experiment": spec.name, "params": dict(params), "seed": seed}
    return {**base, "device": device, "finished_at": time.time(), "started_at": started, **outcome}


def _child(
    connection: Connection,
    spec: Spec,
    params: Params,
    seed: int,
    device: str | None,
    data: str | os.PathLike | None,
    threads: int | None,
) -> None:
    # Ctrl-C reaches the whole group; the parent decides and ends this process itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_run, daemon=True).start()
    if data is not None:
        os.environ[ENVIRONMENT_VARIABLE] = os.fspath(data)

    def notify(stage: str, detail: Mapping[str, Any]) -> None:
        connection.send(("stage", {"stage": stage, **detail}))

    try:
        with threadpool_limits(threads):
            record = run_fit(spec, params, seed, device=device, notify=notify)
    except Exception as reason:
        error = f"{type(reason).__name__}: {reason}"
        connection.send(("failed", {"reason": error, "traceback": traceback.format_exc()}))
    else:
        connection.send(("done", record))
    finally:
        connection.close()


def _end_with_the_run() -> None:
    """A run that is killed outright cannot end its fit, which would compute on with nobody to hear of it."""
    run_process = multiprocessing.parent_process()
    assert run_process is not None, "a fit's process has a parent"
    run_process.join()
    os._exit(1)


def _context() -> Any:
    methods = multiprocessing.get_all_start_methods()
    if "forkserver" not in methods:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # Every process imports the main module of the run again; of the command line, these are the slow parts.
    context.set_forkserver_preload(
        ["gramless.papers.experiments.fit", "sklearn.datasets", "numba", "typer", "rich.progress"]
    )
    return context


@contextlib.contextmanager
def _interrupts_stay_here() -> Iterator[None]:
    """Start helpers (the fork server lives on) with Ctrl-C blocked, which they inherit, or a stopped run would lose them
    with a traceback. A Ctrl-C or SIGTERM that comes meanwhile, to whichever thread, is answered afterwards.
    """
    came: list[int] = []
    previous: dict[signal.Signals, Any] = {}
    try:
        for sign in (signal.SIGINT, signal.SIGTERM):
            previous[sign] = signal.signal(sign, lambda number, frame: came.append(number))
    except ValueError:  # not in the main thread, where signals cannot be set and do not arrive either
        yield
        return
    blocked = None
    if hasattr(signal, "pthread_sigmask"):
        resource_tracker.ensure_running()  # it would unblock Ctrl-C again
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if blocked is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for sign, usual in previous.items():
            signal.signal(sign, usual)
        if came:
            signal.raise_signal(came[0])


def _cause_of_death(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        name = signal.Signals(-exitcode).name
        hint = "; the system kills the largest process when memory runs out" if name == "SIGKILL" else ""
        return f"the process of this fit was ended by {name}{hint}"
    return f"the process of this fit ended with status {exitcode} before it reported"
