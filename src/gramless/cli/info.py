"""`gramless info`: what this machine has, and what `auto` would choose for so many rows and columns."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import gramless
from gramless._core.memory import format_bytes, free_memory
from gramless.estimators.table import default_seconds
from gramless.papers.experiments.environment import commit, hardware, versions
from gramless.tables.members import part_size
from gramless.tables.search import SHARES


def info(rows: int | None, columns: int | None, classes: int, console: Console) -> dict[str, Any]:
    """Gather what is to be known and print it."""
    found: dict[str, Any] = {
        "hardware": hardware(),
        "devices": devices(),
        "versions": versions(),
        "commit": commit(),
    }
    if rows is not None:
        found["plan"] = plan(rows, columns if columns is not None else 100, classes)
    console.print(_table(found))
    return found


def devices() -> list[dict[str, Any]]:
    """Where computations can run, and the memory that is free there."""
    found = [{"device": "cpu", "free_bytes": int(free_memory("cpu"))}]
    try:
        import torch
    except ImportError:
        return found
    for number in range(torch.cuda.device_count()):
        free, _ = torch.cuda.mem_get_info(number)
        name = torch.cuda.get_device_name(number)
        found.append({"device": f"cuda:{number}", "name": name, "free_bytes": int(free)})
    return found


def plan(n: int, d: int, classes: int) -> dict[str, Any]:
    """What `gramless train` and `LSSVC(solver="auto")` would do with a table of this size."""
    size = part_size(n, 1, SHARES["fit"] * default_seconds(n), int(free_memory("cpu")))
    why = "every row carries the model" + (f", in neighbourhoods of {size:,} rows" if size < n else "")
    chosen: dict[str, Any] = {"rows": n, "columns": d, "classes": classes, "train": "table", "train_why": why}
    estimator = gramless.LSSVC()
    try:
        made = estimator.plan(n, d, 1 if classes <= 2 else classes, "float32", "cpu")
    except MemoryError as reason:
        return {**chosen, "lssvc": None, "lssvc_why": str(reason)}
    return {
        **chosen,
        "lssvc": made.solver,
        "lssvc_why": made.reason,
        "lssvc_cached": made.cached,
        "lssvc_bytes": made.memory.nbytes,
    }


def _table(found: dict[str, Any]) -> Table:
    table = Table(show_header=False, box=SIMPLE, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    hardware = found["hardware"]
    table.add_row("processor", escape(f"{hardware['cpu']}, {hardware['cores']} cores for this process"))
    table.add_row("threads", f"{hardware['blas_threads']} in the linear algebra (OMP_NUM_THREADS changes it)")
    for device in found["devices"]:
        name = f" {device['name']}" if "name" in device else ""
        table.add_row("device", escape(f"{device['device']}{name}, {format_bytes(device['free_bytes'])} free"))
    table.add_row("versions", escape(", ".join(f"{name} {number}" for name, number in found["versions"].items())))
    if found["commit"]:
        table.add_row("commit", found["commit"])
    if "plan" in found:
        made = found["plan"]
        size = f"{made['rows']:,} rows, {made['columns']:,} columns, {made['classes']} classes"
        table.add_row(size, f"gramless train: {made['train']} ({escape(made['train_why'])})")
        if made["lssvc"] is None:
            table.add_row("", escape(f"LSSVC: {made['lssvc_why']}"))
        else:
            kept = "kernel matrix kept" if made["lssvc_cached"] else "kernel matrix streamed"
            words = f"LSSVC: {made['lssvc']}, {kept}, about {format_bytes(made['lssvc_bytes'])} ({made['lssvc_why']})"
            table.add_row("", escape(words))
    return table
