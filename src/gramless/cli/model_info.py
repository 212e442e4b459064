"""`gramless info MODEL`: description of a model file on a terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import gramless
from gramless.cli.errors import InputError, check_readable
from gramless.cli.model import TableModel
from gramless.cli.model_card import card_path, checksum, sections


def model_info(path: Path, console: Console) -> dict[str, Any]:
    """Print the description of a model file, and return it as JSON."""
    check_readable(path)
    try:
        model = gramless.load(path)
    except (OSError, ValueError) as reason:
        raise InputError(str(reason)) from reason
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
    table = Table(show_header=False, box=SIMPLE)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in facts.items():
        table.add_row(name, escape(text))
    console.print(table)
    return found


def _settings(model: Any) -> str:
    """Return the parameters that differ from their defaults, as scikit-learn prints them."""
    return repr(model) if hasattr(model, "get_params") and not hasattr(model, "about") else "-"
