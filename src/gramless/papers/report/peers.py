"""Benchmarks against other packages: tables of the records in a folder such as `benchmarks/results`, for the templates."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from gramless.papers.report.formatting import duration, memory
from gramless.papers.report.groups import group_by

TemplateValues = dict[str, Any]


def peers(folder: Path) -> list[TemplateValues]:
    """Return a table for each benchmark that has records in the folder."""
    found = []
    for name, make_table in _BENCHMARKS.items():
        path = folder / f"{name}.json"
        if path.exists():
            records = json.loads(path.read_text(encoding="utf-8"))
            found.append({"name": name, "anchor": f"peers-{name.replace('_', '-')}", **make_table(records)})
    return found


def svm_cpu(records: Mapping[str, Any]) -> TemplateValues:
    """Return fit times and errors of support vector machines, with the speed relative to scikit-learn-intelex."""
    rows = []
    for (case, C), group in group_by(records["records"], lambda record: (record["case"], record["C"])).items():
        reference = next((r for r in group if r["method"] == "scikit-learn-intelex"), None)
        for record in group:
            ratio = reference["fit_seconds"] / record["fit_seconds"] if reference else None
            rows.append(
                [
                    f"{case}, {record['n_train']:,} rows, C = {C:g}",
                    record["method"],
                    duration(record["fit_seconds"]),
                    duration(record["fit_cpu_seconds"]),
                    duration(record["predict_seconds"]),
                    "–" if ratio is None else f"{ratio:.1f}",
                    f"{record['error']:.2f}",
                    memory(record["peak_mb"]),
                ]
            )
    heads = [
        "problem",
        "package",
        "fit",
        "CPU time",
        "predict",
        "speed relative to intelex",
        "test error, % (regression: mean absolute)",
        "peak memory",
    ]
    return {
        "title": "Support vector machines",
        "about": f"The same problem, kernel, C and tolerance ({records['tol']:g}) for each package.",
        "names": 2,
        "heads": heads,
        "rows": rows,
        "machine": _machine(records["records"][0]["environment"]),
    }


def mnist_cpu(records: Mapping[str, Any]) -> TemplateValues:
    """Return fit times and errors on MNIST."""
    rows = [
        [
            f"{record['rows']:,} rows",
            record["method"],
            duration(record["fit_seconds"]),
            duration(record["fit_cpu_seconds"]),
            duration(record["predict_seconds"]),
            f"{record['error_percent']:.2f}",
            memory(1000 * record["peak_rss_GB"]),
        ]
        for record in records["records"]
    ]
    return {
        "title": "Least squares on all rows of MNIST, against SVC",
        "about": "`LSSVC` with a polynomial kernel, its kernel matrix cached or streamed, and SVC with an RBF kernel: "
        "different models for the same task.",
        "names": 2,
        "heads": ["size", "package", "fit", "CPU time", "predict", "test error, %", "peak memory"],
        "rows": rows,
        "machine": _machine(records["environment"]),
    }


def tables(records: Mapping[str, Any]) -> TemplateValues:
    """Return the test error of each method on each table, averaged over the seeds that all methods have, and mean ranks."""
    by_table: dict[str, dict[str, dict[str, Mapping[str, Any]]]] = {}
    for key, result in records["results"].items():
        table, seed, method = key.split("/")
        by_table.setdefault(table, {}).setdefault(method, {})[seed] = result
    methods = sorted({m for found in by_table.values() for m in found}, key=lambda name: (name != "gramless", name))
    complete: dict[str, dict[str, dict[str, Any]]] = {}
    for table, found in by_table.items():
        seeds = set.intersection(*(set(found.get(method, {})) for method in methods))
        if seeds:
            complete[table] = {
                method: {**found[method][min(seeds)], "error": fmean(found[method][seed]["error"] for seed in seeds)}
                for method in methods
            }
    ranks: dict[str, list[float]] = {method: [] for method in methods}
    rows = []
    for table, means in sorted(complete.items(), key=lambda item: next(iter(item[1].values()))["rows"]):
        errors = {method: means[method]["error"] for method in methods}
        for method in methods:
            below = sum(other < errors[method] for other in errors.values())
            equal = sum(other == errors[method] for other in errors.values())
            ranks[method].append(below + (equal + 1) / 2)
        kind = means[methods[0]]["kind"]
        shown = [f"{100 * errors[m]:.1f} %" if kind == "classes" else f"{errors[m]:.4g}" for m in methods]
        rows.append([f"{table}, {means[methods[0]]['rows']:,} rows", *shown])
    rows.insert(0, ["mean rank", *(f"{fmean(ranks[method]):.2f}" for method in methods)])
    return {
        "title": "Tables, against boosted trees",
        "about": "Test error (misclassified rows or root mean squared error), averaged over the one to five random splits "
        "that all methods have, with default settings.",
        "names": 1,
        "heads": ["table", *methods],
        "rows": rows,
        "machine": _machine(records),
    }


def kmeans(records: Mapping[str, Any]) -> TemplateValues:
    """Return the time of an iteration of k-means."""
    rows = [
        [
            f"{row['clusters']:,}",
            duration(row["iteration_seconds"]),
            duration(row["sklearn_iteration_seconds"]),
            f"{row['sklearn_over_iteration_seconds']:.2f}",
        ]
        for row in records["rows"]
    ]
    return {
        "title": "K-means, against scikit-learn",
        "about": f"One iteration. {records['data']}.",
        "names": 1,
        "heads": ["clusters", "SphericalKMeans", "scikit-learn KMeans", "ratio"],
        "rows": rows,
        "machine": _machine(records["environment"]),
    }


def covertype(records: Mapping[str, Any]) -> TemplateValues:
    """Return fit times and errors on Covertype."""
    rows = [
        [name, duration(records[name]["seconds"]), f"{records[name]['error']:.2f}", memory(records[name]["peak_mb"])]
        for name in ("NystromLSSVC", "Nystroem + RidgeClassifier")
        if name in records
    ]
    settings = records["settings"]
    return {
        "title": "Covertype in one pass",
        "about": f"{settings['rows']:,} rows, {settings['landmarks']:,} landmarks. {records['conditions']}",
        "names": 1,
        "heads": ["model", "fit", "test error, %", "peak memory"],
        "rows": rows,
        "machine": _machine(records),
    }


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
