"""`gramless info` describes a model file or the computer and automatic choices; `gramless export` writes an ONNX file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

import gramless
from gramless._core.files import atomic_write
from gramless._core.memory import format_bytes, free_memory, parse_budget
from gramless.cli.card import card_path, sections
from gramless.cli.display import print_sections
from gramless.cli.errors import check_writable, input_errors, require
from gramless.cli.model import SavedModel, TableModel, load_any
from gramless.cli.options import ExportSettings, InfoSettings
from gramless.cli.table_files import checksum, first_names
from gramless.estimators.table import default_seconds
from gramless.papers.experiments.environment import commit, hardware, versions
from gramless.tables.members import part_size
from gramless.tables.tuning import TUNING


def info(settings: InfoSettings, console: Console) -> dict[str, Any]:
    """Print and return a description of a model file, or of the computer and the automatic choices for a table size."""
    if settings.model is not None:
        return model_info(settings.model, console)
    found: dict[str, Any] = {"hardware": hardware(), "devices": devices(), "versions": versions(), "commit": commit()}
    computer = found["hardware"]
    rows = [
        ["processor", f"{computer['cpu']}, {computer['cores']} cores for this process"],
        ["threads", f"{computer['blas_threads']} for linear algebra (set by OMP_NUM_THREADS)"],
    ]
    for device in found["devices"]:
        name = f" {device['name']}" if "name" in device else ""
        rows.append(["device", f"{device['device']}{name}, {format_bytes(device['free_bytes'])} free"])
    rows.append(["versions", ", ".join(f"{name} {number}" for name, number in found["versions"].items())])
    if found["commit"]:
        rows.append(["commit", found["commit"]])
    if settings.rows is not None:
        found["plan"], choices = plan(settings.rows, settings.columns, settings.classes)
        rows += choices
    print_sections(console, [("This computer", ["", ""], rows)])
    return found


def devices() -> list[dict[str, Any]]:
    """Return the CPU and the CUDA devices of this computer, with their free memory in bytes."""
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


def plan(n: int, d: int, classes: int) -> tuple[dict[str, Any], list[list[str]]]:
    """Return the choices of `gramless train` and `LSSVC(solver="auto")` for `n` x `d` tables, as JSON and as text."""
    budgets = TUNING.shares["fit"] * default_seconds(n), int(min(parse_budget(None), TUNING.default_memory))
    size, smallest = (part_size(n, n_settings, *budgets) for n_settings in (1, TUNING.partitioned_members))
    why = "the model uses all rows" + (f", in local partitions of {smallest:,} to {size:,} rows" if size < n else "")
    chosen: dict[str, Any] = {"rows": n, "columns": d, "classes": classes, "train": "table", "train_why": why}
    try:
        fit_plan = gramless.LSSVC()._fit_plan(n, d, 1 if classes <= 2 else classes, "float32", "cpu")
        chosen |= {"lssvc": fit_plan.solver, "lssvc_why": fit_plan.reason, "lssvc_cached": fit_plan.cached}
        chosen["lssvc_bytes"] = fit_plan.memory.nbytes
        storage = "kernel matrix cached" if fit_plan.cached else "kernel matrix streamed"
        text = f"{fit_plan.solver}, {storage}, about {format_bytes(fit_plan.memory.nbytes)} ({fit_plan.reason})"
    except MemoryError as reason:
        text = str(reason)
        chosen |= {"lssvc": None, "lssvc_why": text}
    table = f"{n:,} rows, {d:,} columns, {classes} classes"
    return chosen, [[table, f"gramless train: table ({why})"], ["", f"LSSVC: {text}"]]


def model_info(path: Path, console: Console) -> dict[str, Any]:
    """Print the description of a model file, and return it as JSON."""
    model = load_any(path)
    digest = checksum(path)
    card = card_path(path)
    recorded = re.search(r"SHA-256 `([0-9a-f]{64})`", card.read_text(encoding="utf-8")) if card.is_file() else None
    matches = None if recorded is None else recorded[1] == digest
    found: dict[str, Any] = {"file": str(path), "bytes": path.stat().st_size, "sha256": digest, "card_matches": matches}
    console.print(f"[bold]{escape(path.name)}[/bold], {found['bytes']:,} bytes, SHA-256 {digest}")
    if matches is False:
        console.print(f"[yellow]{escape(card.name)} is the card of another file[/yellow]: it has another checksum")
    found["model"] = repr(model) if isinstance(model, TableModel) else type(model).__name__
    if isinstance(model, SavedModel):
        print_sections(console, sections(model))
        return found | model.about
    # The repr of a scikit-learn estimator has only the parameters that differ from their defaults.
    settings = repr(model) if hasattr(model, "get_params") else "-"
    facts = [["estimator", type(model).__name__], ["settings", settings]]
    for name in ("n_features_in_", "classes_", "points_"):
        value = getattr(model, name, None)
        if value is not None:
            facts.append([name.strip("_"), f"{len(value):,}" if name == "points_" else str(value)])
    print_sections(console, [("Model", ["", ""], facts)])
    return found


def export(settings: ExportSettings, console: Console) -> dict[str, Any]:
    """Write a model as an ONNX file, and print and return the inputs and outputs of the file."""
    model_path, out = settings.model, settings.out
    require("onnx", extra="onnx")
    check_writable(out, model_path)
    model = load_any(model_path)
    with input_errors(f"{model_path} cannot be exported: "):
        graph = gramless.to_onnx(model)
    content = graph.SerializeToString()
    with atomic_write(out.resolve()) as part:
        part.write_bytes(content)
    found: dict[str, Any] = {"model": str(model_path), "out": str(out), "bytes": len(content)}
    found["inputs"] = {one.name: _kind(one) for one in graph.graph.input}
    found["outputs"] = {one.name: _kind(one) for one in graph.graph.output}
    for key in ("inputs", "outputs"):
        tensors = [f"{name} ({kind})" for name, kind in found[key].items()]
        console.print(f"{key}: {escape(first_names(tensors, 12))}")
    console.print(f"ONNX  [bold]{escape(str(out))}[/bold], {len(content):,} bytes")
    return found


def _kind(value: Any) -> str:
    from onnx import TensorProto

    return TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
