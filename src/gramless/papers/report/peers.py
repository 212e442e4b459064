"""Benchmarks against other packages: tables of the records in a folder such as `benchmarks/results`, for the templates."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gramless.papers.report.formatting import duration, memory

TemplateValues = dict[str, Any]
Columns = Mapping[str, Callable[[Any], str]]
"""Function from a record to a cell, by the heading of the column."""


def peers(folder: Path) -> list[TemplateValues]:
    """Return a table for each benchmark that has records in the folder."""
    found = []
    for name, make_table in _BENCHMARKS.items():
        path = folder / f"{name}.json"
        if path.exists():
            records = json.loads(path.read_text(encoding="utf-8"))
            found.append({"name": name, "anchor": f"peers-{name.replace('_', '-')}", **make_table(records)})
    return found


def _table(
    title: str, about: str, rows: Sequence[Any], columns: Columns, environment: Mapping[str, Any], names: int = 1
) -> TemplateValues:
    """Return a table of which the first `names` columns name the row."""
    cells = [[cell(row) for cell in columns.values()] for row in rows]
    machine = _machine(environment)
    return {"title": title, "about": about, "names": names, "heads": list(columns), "rows": cells, "machine": machine}


def svm_cpu(records: Mapping[str, Any]) -> TemplateValues:
    """Return fit times and errors of support vector machines, with the speed relative to scikit-learn-intelex."""
    rows = records["records"]
    intelex = {(r["case"], r["C"]): r["fit_seconds"] for r in rows if r["method"] == "scikit-learn-intelex"}

    def speed(row: Mapping[str, Any]) -> str:
        reference = intelex.get((row["case"], row["C"]))
        return "–" if reference is None else f"{reference / row['fit_seconds']:.1f}"

    columns: Columns = {
        "problem": lambda row: f"{row['case']}, {row['n_train']:,} rows, C = {row['C']:g}",
        "package": lambda row: row["method"],
        "fit": lambda row: duration(row["fit_seconds"]),
        "CPU time": lambda row: duration(row["fit_cpu_seconds"]),
        "predict": lambda row: duration(row["predict_seconds"]),
        "speed relative to intelex": speed,
        "test error, % (regression: mean absolute)": lambda row: f"{row['error']:.2f}",
        "peak memory": lambda row: memory(row["peak_mb"]),
    }
    about = f"The same problem, kernel, C and tolerance ({records['tol']:g}) for each package."
    problems = list(dict.fromkeys((row["case"], row["C"]) for row in rows))
    in_order = sorted(rows, key=lambda row: problems.index((row["case"], row["C"])))
    return _table("Support vector machines", about, in_order, columns, rows[0]["environment"], names=2)


def mnist_cpu(records: Mapping[str, Any]) -> TemplateValues:
    """Return fit times and errors on MNIST."""
    columns: Columns = {
        "size": lambda row: f"{row['rows']:,} rows",
        "package": lambda row: row["method"],
        "fit": lambda row: duration(row["fit_seconds"]),
        "CPU time": lambda row: duration(row["fit_cpu_seconds"]),
        "predict": lambda row: duration(row["predict_seconds"]),
        "test error, %": lambda row: f"{row['error_percent']:.2f}",
        "peak memory": lambda row: memory(1000 * row["peak_rss_GB"]),
    }
    about = (
        "`LSSVC` with a polynomial kernel, its kernel matrix cached or streamed, and SVC with an RBF kernel: different "
        "models for the same task."
    )
    title = "Least squares on all rows of MNIST, against SVC"
    return _table(title, about, records["records"], columns, records["environment"], names=2)


def tables(records: Mapping[str, Any]) -> TemplateValues:
    """Return the test error of each method on each table, averaged over the seeds that all methods have, and mean ranks."""
    import pandas as pd

    parts = [dict(zip(("table", "seed", "method"), key.split("/"), strict=True)) for key in records["results"]]
    results = [part | result for part, result in zip(parts, records["results"].values(), strict=True)]
    errors = pd.DataFrame(results).pivot(index=["table", "seed"], columns="method", values="error").dropna()
    errors = errors[sorted(errors.columns, key=lambda name: (name != "gramless", name))].groupby("table").mean().round(12)
    about = {result["table"]: result for result in results}
    order = sorted(errors.index, key=lambda table: about[table]["rows"])
    ranks = errors.rank(axis=1).mean()

    def shown(table: str, method: str) -> str:
        if table == "mean rank":
            return f"{ranks[method]:.2f}"
        error = errors.loc[table, method]
        return f"{100 * error:.1f} %" if about[table]["kind"] == "classes" else f"{error:.4g}"

    columns: Columns = {
        "table": lambda table: table if table == "mean rank" else f"{table}, {about[table]['rows']:,} rows",
        **{method: lambda table, method=method: shown(table, method) for method in errors.columns},  # type: ignore[misc]
    }
    text = (
        "Test error (misclassified rows or root mean squared error), averaged over the one to five random splits that all "
        "methods have, with default settings."
    )
    return _table("Tables, against boosted trees", text, ["mean rank", *order], columns, records)


def covertype(records: Mapping[str, Any]) -> TemplateValues:
    """Return fit times and errors on Covertype."""
    names = [name for name in ("NystromLSSVC", "Nystroem + RidgeClassifier") if name in records]
    columns: Columns = {
        "model": lambda name: name,
        "fit": lambda name: duration(records[name]["seconds"]),
        "test error, %": lambda name: f"{records[name]['error']:.2f}",
        "peak memory": lambda name: memory(records[name]["peak_mb"]),
    }
    settings = records["settings"]
    about = f"{settings['rows']:,} rows, {settings['landmarks']:,} landmarks. {records['conditions']}"
    return _table("Covertype in one pass", about, names, columns, records)


def kmeans(records: Mapping[str, Any]) -> TemplateValues:
    """Return the time of an iteration of k-means."""
    columns: Columns = {
        "clusters": lambda row: f"{row['clusters']:,}",
        "SphericalKMeans": lambda row: duration(row["iteration_seconds"]),
        "scikit-learn KMeans": lambda row: duration(row["sklearn_iteration_seconds"]),
        "ratio": lambda row: f"{row['sklearn_over_iteration_seconds']:.2f}",
    }
    about = f"One iteration. {records['data']}."
    return _table("K-means, against scikit-learn", about, records["rows"], columns, records["environment"])


_BENCHMARKS: dict[str, Callable[[Mapping[str, Any]], TemplateValues]] = {
    "svm_cpu": svm_cpu,
    "mnist_cpu": mnist_cpu,
    "tables": tables,
    "covertype": covertype,
    "kmeans": kmeans,
}


def _machine(environment: Mapping[str, Any]) -> str:
    """Return processor and versions, which benchmarks store in two formats."""
    hardware = environment.get("hardware") or {}
    processor = hardware.get("cpu") or environment.get("processor") or ""
    cores = hardware.get("cores") or environment.get("cores")
    versions = environment.get("versions") or {}
    parts: Sequence[str] = [
        f"{processor}, {cores} cores" if processor else "",
        ", ".join(f"{name} {version}" for name, version in versions.items()),
    ]
    return "; ".join(part for part in parts if part)
