"""Benchmarks against other packages: the tables that `peers.toml` declares, from records as in `benchmarks/results`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gramless.papers.report.formatting import duration, memory


def peers(folder: Path) -> list[dict[str, Any]]:
    """Return a table for each benchmark that has records in the folder."""
    import jinja2

    templates = jinja2.Environment()
    templates.globals |= {"duration": duration, "memory": memory}
    declared = tomllib.loads(Path(__file__).with_name("peers.toml").read_text(encoding="utf-8"))
    found = []
    for name, table in declared.items():
        path = folder / f"{name}.json"
        if not path.exists():
            continue
        records = json.loads(path.read_text(encoding="utf-8"))
        rows: Any
        if name == "tables":
            rows, columns = _errors_and_ranks(records)
        else:
            rows, columns = templates.compile_expression(table["rows"])(records=records), table["columns"]
        cells = [templates.from_string(text) for text in columns.values()]
        found.append(
            {
                "name": name,
                "anchor": f"peers-{name.replace('_', '-')}",
                "title": table["title"],
                "about": templates.from_string(table["about"]).render(records=records),
                "names": table.get("names", 1),
                "heads": list(columns),
                "rows": [[cell.render(row=row, records=records) for cell in cells] for row in rows],
                "machine": _machine(
                    records.get("environment") or records.get("records", [{}])[0].get("environment") or records
                ),
            }
        )
    return found


def _errors_and_ranks(records: Any) -> tuple[list[dict[str, str]], dict[str, str]]:
    """Return errors averaged over common seeds, and mean ranks, of the methods that have records of all datasets."""
    import pandas as pd

    parts = [dict(zip(("table", "seed", "method"), key.split("/"), strict=True)) for key in records["results"]]
    results = [part | result for part, result in zip(parts, records["results"].values(), strict=True)]
    errors = pd.DataFrame(results).pivot(index=["table", "seed"], columns="method", values="error")
    complete = errors.notna().groupby("table").any().all()
    errors = errors.loc[:, complete].dropna()
    errors = errors[sorted(errors.columns, key=lambda name: (name != "gramless", name))].groupby("table").mean().round(12)
    about = {result["table"]: result for result in results}
    rows = [{"table": "mean rank", **{method: f"{rank:.2f}" for method, rank in errors.rank(axis=1).mean().items()}}]
    for name in sorted(errors.index, key=lambda name: about[name]["rows"]):
        is_share = about[name]["kind"] == "classes"
        shown = {method: f"{100 * x:.1f} %" if is_share else f"{x:.4g}" for method, x in errors.loc[name].items()}
        rows.append({"table": f"{name}, {about[name]['rows']:,} rows", **shown})
    return rows, {heading: f"{{{{ row['{heading}'] }}}}" for heading in ("table", *errors.columns)}


def _machine(environment: Mapping[str, Any]) -> str:
    """Return the processor and the package versions of a benchmark as text; the records have one of two formats."""
    hardware = environment.get("hardware") or {}
    processor = hardware.get("cpu") or environment.get("processor") or ""
    cores = hardware.get("cores") or environment.get("cores")
    versions = ", ".join(f"{name} {version}" for name, version in (environment.get("versions") or {}).items())
    return "; ".join(part for part in (f"{processor}, {cores} cores" if processor else "", versions) if part)
