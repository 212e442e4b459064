"""`gramless info`: description of a model file, or devices, versions and the choices of `auto` for a size of table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import gramless
from gramless._core.memory import format_bytes, free_memory, parse_budget
from gramless.cli.model import TableModel, load_any
from gramless.cli.model_card import card_path, checksum, sections
from gramless.estimators.table import default_seconds
from gramless.papers.experiments.environment import commit, hardware, versions
from gramless.tables.members import part_size
from gramless.tables.tuning import TUNING


def info(rows: int | None, columns: int | None, classes: int, console: Console) -> dict[str, Any]:
    """Print and return hardware, devices, versions and the choices for a table of this size."""
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
    """Return the devices and their free memory."""
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
    """Return the choices of `gramless train` and `LSSVC(solver="auto")` for a table of this size."""
    size = part_size(n, 1, TUNING.shares["fit"] * default_seconds(n), int(min(parse_budget(None), TUNING.default_memory)))
    why = "the model uses all rows" + (f", in local partitions of {size:,} rows" if size < n else "")
    chosen: dict[str, Any] = {"rows": n, "columns": d, "classes": classes, "train": "table", "train_why": why}
    estimator = gramless.LSSVC()
    try:
        fit_plan = estimator._fit_plan(n, d, 1 if classes <= 2 else classes, "float32", "cpu")
    except MemoryError as reason:
        return {**chosen, "lssvc": None, "lssvc_why": str(reason)}
    return {
        **chosen,
        "lssvc": fit_plan.solver,
        "lssvc_why": fit_plan.reason,
        "lssvc_cached": fit_plan.cached,
        "lssvc_bytes": fit_plan.memory.nbytes,
    }


def _facts() -> Table:
    """Return an empty table of names and values."""
    table = Table(show_header=False, box=SIMPLE, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _table(found: dict[str, Any]) -> Table:
    table = _facts()
    hardware = found["hardware"]
    table.add_row("processor", escape(f"{hardware['cpu']}, {hardware['cores']} cores for this process"))
    table.add_row("threads", f"{hardware['blas_threads']} for linear algebra (set by OMP_NUM_THREADS)")
    for device in found["devices"]:
        name = f" {device['name']}" if "name" in device else ""
        table.add_row("device", escape(f"{device['device']}{name}, {format_bytes(device['free_bytes'])} free"))
    table.add_row("versions", escape(", ".join(f"{name} {number}" for name, number in found["versions"].items())))
    if found["commit"]:
        table.add_row("commit", found["commit"])
    if "plan" in found:
        chosen = found["plan"]
        size = f"{chosen['rows']:,} rows, {chosen['columns']:,} columns, {chosen['classes']} classes"
        table.add_row(size, f"gramless train: {chosen['train']} ({escape(chosen['train_why'])})")
        if chosen["lssvc"] is None:
            table.add_row("", escape(f"LSSVC: {chosen['lssvc_why']}"))
        else:
            storage = "kernel matrix cached" if chosen["lssvc_cached"] else "kernel matrix streamed"
            text = (
                f"LSSVC: {chosen['lssvc']}, {storage}, about {format_bytes(chosen['lssvc_bytes'])} ({chosen['lssvc_why']})"
            )
            table.add_row("", escape(text))
    return table


def model_info(path: Path, console: Console) -> dict[str, Any]:
    """Print the description of a model file, and return it as JSON."""
    model = load_any(path)
    digest = checksum(path)
    card = card_path(path)
    recorded = re.search(r"SHA-256 `([0-9a-f]{64})`", card.read_text(encoding="utf-8")) if card.is_file() else None
    matches = None if recorded is None else recorded[1] == digest
    found: dict[str, Any] = {"file": str(path), "bytes": path.stat().st_size, "sha256": digest, "card_matches": matches}
    console.print(f"[bold]{escape(path.name)}[/bold], {found['bytes']:,} bytes, SHA-256 {digest}", soft_wrap=True)
    if matches is False:
        console.print(f"[yellow]{escape(card.name)} is the card of another file[/yellow]: it has another checksum")
    if isinstance(model, TableModel):
        found |= {"model": repr(model), **model.about}
        for title, heading, rows in sections(model):
            table = Table(title=title, title_justify="left", box=SIMPLE, show_header=any(heading), header_style="bold")
            for name in heading:
                table.add_column(name, overflow="fold")
            for row in rows:
                table.add_row(*map(escape, row))
            console.print(table)
        return found
    about = getattr(model, "about", None)
    found |= {"model": type(model).__name__, **(about if isinstance(about, dict) else {})}
    facts = {"estimator": type(model).__name__, "settings": _settings(model)}
    for name in ("n_features_in_", "classes_", "points_"):
        value = getattr(model, name, None)
        if value is not None:
            facts[name.strip("_")] = f"{len(value):,}" if name == "points_" else str(value)
    table = _facts()
    for name, text in facts.items():
        table.add_row(name, escape(text))
    console.print(table)
    return found


def _settings(model: Any) -> str:
    """Return the parameters that differ from their defaults, as scikit-learn prints them."""
    return repr(model) if hasattr(model, "get_params") and not hasattr(model, "about") else "-"
