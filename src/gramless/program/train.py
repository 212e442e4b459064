"""`gramless train`: from a file to a saved model, with an honest score on rows it never saw."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline

from gramless._version import __version__
from gramless.program.columns import Columns, as_known, find_columns, preparation
from gramless.program.errors import InputError, check_writable
from gramless.program.machines import Settings, make_machine, settle, with_probabilities
from gramless.program.model import TableModel, save_model
from gramless.program.scores import Score, score_table
from gramless.program.tables import Rows, kind_of, listed, read

MOST_CLASSES = 100


@dataclass(frozen=True)
class Trained:
    """A saved model and how good it is."""

    out: Path
    model: TableModel
    scores: list[Score]
    settings: Settings

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"model": str(self.out), **self.model.about}


def train(
    path: Path,
    target: str | None,
    out: Path,
    *,
    estimator: str = "auto",
    kernel: str = "rbf",
    C: float | None = None,
    gamma: float | None = None,
    tune: str = "loo",
    task: str = "auto",
    proba: bool | None = None,
    test_size: float = 0.2,
    seed: int = 0,
    device: str | None = None,
    memory_budget: str | None = None,
    console: Console,
) -> Trained:
    """Read, prepare, tune, fit, score, save; each step is shown while it runs."""
    if not 0 < test_size < 1:
        raise InputError(f"the held-out share must lie between 0 and 1, not {test_size}")
    for name, value in (("C", C), ("gamma", gamma)):
        if value is not None and not 0 < value < np.inf:
            raise InputError(f"{name} must be a positive number, not {value:g}")
    check_writable(out)
    with Progress(
        SpinnerColumn(style="cyan"),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        bar = progress.add_task("reading")

        def now(doing: str) -> None:
            progress.update(bar, description=escape(doing))

        now(f"reading {path}")
        rows = read(path, target)
        rows, task = _with_target(rows, task, target, path, console)
        columns = find_columns(rows.X)
        for line in _left_out(columns):
            console.print(f"[dim]{escape(line)}[/dim]", soft_wrap=True)
        X_train, X_test, y_train, y_test = _hold_out(rows, columns, task, test_size, seed, str(path))

        now("preparing the columns")
        prepare = preparation(rows.X, columns)
        ready = prepare.fit_transform(X_train, y_train)
        now("tuning by leave-one-out" if tune == "loo" else "settling on parameters")
        settings = settle(
            ready,
            y_train,
            task=task,
            machine=estimator,
            kernel=kernel,
            C=C,
            gamma=gamma,
            tune=tune,
            seed=seed,
        )
        machine = make_machine(
            settings,
            task=task,
            n=len(y_train),
            proba=_proba(proba, settings.machine, task, y_train, console),
            seed=seed,
            device=device,
            memory_budget=memory_budget,
        )
        seconds = _fit(machine, ready, y_train, now)

        now("scoring")
        model = TableModel(
            Pipeline([("prepare", prepare), ("machine", machine)]),
            columns.numbers,
            columns.words,
            target,
            task,
            {
                "gramless": __version__,
                "data": path.name,
                "target": target,
                "task": task,
                "rows": {"train": len(y_train), "held_out": len(y_test)},
                "columns": {"numbers": len(columns.numbers), "words": len(columns.words), "left_out": columns.left_out},
                "estimator": type(machine).__name__,
                "why": settings.reason,
                "settings": {"kernel": settings.kernel, "C": _fitted_C(machine), "gamma": settings.gamma},
                "tuned": settings.tuned,
                "fit_seconds": seconds,
                **_without_inputs(y_train, task),
            },
        )
        _, scores = model.scored([(X_test, y_test)], seed)
        model.about["scores"] = [one.as_json() for one in scores]
        now(f"saving {out}")
        save_model(model, out)
    _tell(console, Trained(out, model, scores, settings))
    return Trained(out, model, scores, settings)


def _left_out(columns: Columns) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for name, why in columns.left_out.items():
        by_reason.setdefault(why, []).append(name)
    lines = []
    for why, names in by_reason.items():
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        lines.append(f"left out {shown}: {why}")
    return lines


def find_task(y: np.ndarray, asked: str) -> str:
    """Words and few whole numbers are classes; everything else is a quantity."""
    if asked in ("classification", "regression"):
        return asked
    if asked != "auto":
        raise InputError(f"unknown task {asked!r}; known are auto, classification, regression")
    if y.dtype.kind not in "iuf":
        return "classification"
    distinct = np.unique(y)
    whole = bool(np.all(distinct == np.round(distinct)))
    return "classification" if whole and len(distinct) <= min(20, max(2, len(y) // 10)) else "regression"


def _with_target(rows: Rows, task: str, target: str | None, path: Path, console: Console) -> tuple[Rows, str]:
    if rows.y is None:
        if kind_of(path) == "npz":
            raise InputError(f"{path} has no array named y or y_train: say with --target which array is to be predicted")
        raise InputError(f"say which column to predict with --target; {path} has {listed(rows.X.columns)}")
    known = ~pd.isna(rows.y)
    if not known.all():
        console.print(f"[dim]{int((~known).sum()):,} rows without {target!r} are left out[/dim]")
        kept = np.flatnonzero(known)
        x = rows.X.iloc[kept] if isinstance(rows.X, pd.DataFrame) else rows.X[kept]
        rows = Rows(x, rows.y[kept])
    y = rows.y
    if y is None or len(y) < 10:
        raise InputError(f"{path} has {0 if y is None else len(y)} usable rows; at least 10 are needed")
    task = find_task(y, task)
    if task == "regression":
        try:
            return Rows(rows.X, y.astype(np.float64)), task
        except (TypeError, ValueError) as reason:
            raise InputError(f"{target!r} is not a number everywhere: {reason}") from reason
    if y.dtype.kind == "O":
        y = np.array([str(value) for value in y])
    classes = np.unique(y)
    if len(classes) < 2:
        raise InputError(f"{target!r} has one value only, {classes[0]!r}: there is nothing to tell apart")
    if len(classes) > MOST_CLASSES:
        raise InputError(f"{target!r} has {len(classes):,} different values: too many to be classes")
    return Rows(rows.X, y), task


def _hold_out(
    rows: Rows, columns: Columns, task: str, test_size: float, seed: int, origin: str
) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    X, y = as_known(rows.X, columns, origin), np.asarray(rows.y)
    stratify = None
    if np.ceil(test_size * len(y)) < 2:
        raise InputError(f"a share of {test_size:g} of {len(y)} rows is one row to score on: raise --test-size")
    if task == "classification" and np.unique(y, return_counts=True)[1].min() > 1:
        stratify = y
    try:
        return train_test_split(X, y, test_size=test_size, random_state=seed, stratify=stratify)
    except ValueError:  # fewer held-out rows than classes
        return train_test_split(X, y, test_size=test_size, random_state=seed)


def _iterations(now: Callable[[str], None], what: str) -> Callable[[Any, Any], bool]:
    def tell(estimator: Any, record: Any) -> bool:
        residual = record.get("residual")
        now(f"{what}: iteration {record['n_iter']}" + ("" if residual is None else f", residual {residual:.1e}"))
        return False

    return tell


def _proba(asked: bool | None, machine: str, task: str, y: np.ndarray, console: Console) -> bool:
    wanted = with_probabilities(asked, machine, task)
    if wanted and machine == "svm" and np.unique(y, return_counts=True)[1].min() < 2:
        console.print("[dim]no probabilities: a class with a single row cannot be left out and predicted[/dim]")
        return False
    return wanted


def _fit(machine: Any, X: Any, y: np.ndarray, now: Callable[[str], None]) -> float:
    """Fit with progress, and keep what predicts only; the seconds of the fit."""
    what = f"fitting {type(machine).__name__} on {len(y):,} rows"
    now(what)
    tells = "callback" in machine.get_params()
    if tells:
        machine.set_params(callback=_iterations(now, what))
    started = time.perf_counter()
    try:
        machine.fit(X, y)
    except ValueError as reason:  # a setting that the estimator refuses, in its own words
        raise InputError(str(reason)) from reason
    seconds = time.perf_counter() - started
    if tells:
        machine.set_params(callback=None)
    if hasattr(machine, "finish"):
        machine.finish()
    return seconds


def _without_inputs(y: np.ndarray, task: str) -> dict[str, Any]:
    """What one would guess without inputs, in plain JSON."""
    if task == "regression":
        return {"guess": float(np.mean(y))}
    values, counts = np.unique(y, return_counts=True)
    return {"guess": values[counts.argmax()].item(), "class_shares": (counts / len(y)).tolist()}


def _fitted_C(machine: Any) -> float:
    return float(getattr(machine, "C_", machine.C))


def _inputs(model: TableModel) -> str:
    if model.n_features is not None:
        return f"{model.n_features:,} sparse columns"
    kinds = [(len(model.numbers), "number"), (len(model.words), "text")]
    return " and ".join(f"{n} {kind} column{'s' * (n != 1)}" for n, kind in kinds if n)


def _tell(console: Console, trained: Trained) -> None:
    about, settings = trained.model.about, trained.settings
    gamma = "" if settings.gamma is None else f", gamma {settings.gamma:.3g}"
    console.print(
        f"[bold]{about['estimator']}[/bold] for {about['task']} of [bold]{escape(str(about['target'] or 'y'))}[/bold]"
        f" from {_inputs(trained.model)}\n"
        f"  {settings.reason}\n"
        f"  {settings.kernel} kernel, C {about['settings']['C']:.3g}{gamma}; tuned: {settings.tuned}\n"
        f"  {about['rows']['train']:,} rows to learn from in {about['fit_seconds']:.1f} s, "
        f"{about['rows']['held_out']:,} held out to score",
        highlight=False,
        soft_wrap=True,
    )
    console.print(score_table(trained.scores, ""))
    console.print(f"Model  [bold]{escape(str(trained.out))}[/bold]", highlight=False, soft_wrap=True)
