"""`gramless export`: a saved model as an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

import gramless
from gramless._core.files import atomic_write
from gramless.cli.errors import InputError, check_writable, require
from gramless.cli.model import load_any


def export(model_path: Path, out: Path, console: Console) -> dict[str, Any]:
    """Write a model as an ONNX file, and print and return the inputs and outputs of the file."""
    require("onnx", extra="onnx")
    check_writable(out, model_path)
    try:
        graph = gramless.to_onnx(load_any(model_path))
    except ValueError as reason:
        raise InputError(f"{model_path} cannot be exported: {reason}") from reason
    content = graph.SerializeToString()
    with atomic_write(out.resolve()) as part:
        part.write_bytes(content)
    found: dict[str, Any] = {"model": str(model_path), "out": str(out), "bytes": len(content)}
    found["inputs"] = {one.name: _kind(one) for one in graph.graph.input}
    found["outputs"] = {one.name: _kind(one) for one in graph.graph.output}
    for key in ("inputs", "outputs"):
        tensors = list(found[key].items())
        listed = ", ".join(f"{name} ({kind})" for name, kind in tensors[:12])
        more = f" and {len(tensors) - 12} more" if len(tensors) > 12 else ""
        console.print(f"{key}: {escape(listed + more)}")
    console.print(f"ONNX  [bold]{escape(str(out))}[/bold], {len(content):,} bytes")
    return found


def _kind(value: Any) -> str:
    from onnx import TensorProto

    return TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
