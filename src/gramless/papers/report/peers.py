"""Benchmarks against other packages: the tables of `peers.toml`, from records such as those in `benchmarks/results`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gramless.papers.report.formatting import duration, group_by, memory


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
        rows, columns = _rows_and_columns(name, records, table)
        cells = {heading: templates.from_string(text) for heading, text in columns.items()}
        found.append(
            {
                "name": name,
                "anchor": f"peers-{name.replace('_', '-')}",
                "title": table["title"],
                "about": templates.from_string(table["about"]).render(records=records),
                "names": table.get("names", 1),
                "heads": list(columns),
                "rows": [[cell.render(row=row) for cell in cells.values()] for row in rows],
                "machine": _machine(records.get("environment") or rows[0].get("environment") or records),
            }
        )
    return found


def _rows_and_columns(name: str, records: Any, table: Any) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, str]]:
    """Return the rows of a benchmark, and the template of each column by its heading."""
    if name == "tables":
        return _errors_and_ranks(records)
    if name == "covertype":
        names = [name for name in ("NystromLSSVC", "Nystroem + RidgeClassifier") if name in records]
        return [{"name": name, **records[name]} for name in names], table["columns"]
    rows = records[table["rows"]]
    if name == "svm_cpu":  # sorted by problem, with the fit time of scikit-learn-intelex added
        seconds = {(r["case"], r["C"]): r["fit_seconds"] for r in rows if r["method"] == "scikit-learn-intelex"}
        problems = group_by(rows, lambda row: (row["case"], row["C"]))
        rows = [{**row, "reference_seconds": seconds.get(key)} for key, group in problems.items() for row in group]
    return rows, table["columns"]


def _errors_and_ranks(records: Any) -> tuple[list[dict[str, str]], dict[str, str]]:
    """Return the test error of each method on each table, averaged over the seeds that all methods have, and mean ranks."""
    import pandas as pd

    parts = [dict(zip(("table", "seed", "method"), key.split("/"), strict=True)) for key in records["results"]]
    results = [part | result for part, result in zip(parts, records["results"].values(), strict=True)]
    errors = pd.DataFrame(results).pivot(index=["table", "seed"], columns="method", values="error").dropna()
    errors = errors[sorted(errors.columns, key=lambda name: (name != "gramless", name))].groupby("table").mean().round(12)
    about = {result["table"]: result for result in results}
    rows = [{"table": "mean rank", **{method: f"{rank:.2f}" for method, rank in errors.rank(axis=1).mean().items()}}]
    for name in sorted(errors.index, key=lambda name: about[name]["rows"]):
        is_share = about[name]["kind"] == "classes"
        shown = {method: f"{100 * x:.1f} %" if is_share else f"{x:.4g}" for method, x in errors.loc[name].items()}
        rows.append({"table": f"{name}, {about[name]['rows']:,} rows", **shown})
    return rows, {heading: f"{{{{ row['{heading}'] }}}}" for heading in ("table", *errors.columns)}


def _machine(environment: Mapping[str, Any]) -> str:
    """Return processor and versions, which benchmarks store in two formats."""
    hardware = environment.get("hardware") or {}
    processor = hardware.get("cpu") or environment.get("processor") or ""
    cores = hardware.get("cores") or environment.get("cores")
    versions = ", ".join(f"{name} {version}" for name, version in (environment.get("versions") or {}).items())
    return "; ".join(part for part in (f"{processor}, {cores} cores" if processor else "", versions) if part)
