"""`gramless train`: from a file to a saved model, with an honest score on rows it never saw."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
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
from gramless.program.errors import InputError, check_readable, check_writable
from gramless.program.machines import Settings, make_machine, settle, with_probabilities
from gramless.program.model import TableModel, save_model
from gramless.program.scores import Score, score_table
from gramless.program.tables import LARGEST, Rows, kind_of, listed, read

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
    if gamma is not None and kernel == "linear":
        raise InputError("the linear kernel has no gamma: leave out --gamma, or choose another --kernel")
    for name, value in (("C", C), ("gamma", gamma)):
        if value is not None and not 0 < value < np.inf:
            raise InputError(f"{name} must be a positive number, not {value:g}")
    check_readable(path)
    check_writable(out, path)
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
        started = time.perf_counter()
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
        tune_seconds = time.perf_counter() - started
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
                "tune_seconds": tune_seconds,
                "fit_seconds": seconds,
                **_without_inputs(y_train, task),
                **({} if rows.counts_from is None else {"counts_from": rows.counts_from}),
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
        told = escape(f"{int((~known).sum()):,} rows without {target!r} are left out")
        console.print(f"[dim]{told}[/dim]", soft_wrap=True)
        kept = np.flatnonzero(known)
        rows = Rows(_rows_of(rows.X, kept), rows.y[kept], rows.counts_from)
    y = rows.y
    if y is None or len(y) < 10:
        raise InputError(f"{path} has {0 if y is None else len(y)} usable rows; at least 10 are needed")
    task = find_task(y, task)
    name = repr(target) if target is not None else "the target"
    if task == "regression":
        return replace(rows, y=_quantities(y, name)), task
    if y.dtype.kind == "f" and np.array_equal(y, np.round(y)) and np.abs(y).max() < 2**53:
        y = y.astype(np.int64)  # whole numbers in a file that has gaps, or that has no other kind
    if y.dtype.kind == "f":
        raise InputError(f"{name} has fractions, which are quantities: say --task regression, or write classes as words")
    if y.dtype.kind not in "iubU":
        y = np.array([str(value) for value in y])
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) < 2:
        raise InputError(f"{name} has one value only, {str(classes[0])!r}: there is nothing to tell apart")
    if len(classes) > MOST_CLASSES or (counts == 1).all():
        raise InputError(f"{name} has {len(classes):,} different values: too many to be classes{_odd_one(y)}")
    return replace(rows, y=y), task


def _quantities(y: np.ndarray, name: str) -> np.ndarray:
    try:
        numbers = y.astype(np.float64)
    except (TypeError, ValueError) as reason:
        raise InputError(f"{name} is not a number everywhere: {reason}") from reason
    if not np.isfinite(numbers).all():
        raise InputError(f"{name} is infinite in {int((~np.isfinite(numbers)).sum()):,} rows: leave those cells empty")
    if not np.abs(numbers).max() < LARGEST:
        raise InputError(f"{name} has numbers that are too large to compute with: divide them by their unit")
    return numbers


def _odd_one(y: np.ndarray) -> str:
    """What keeps a target that is mostly numbers from being a quantity."""
    if y.dtype.kind != "U":
        return "; a quantity is predicted with --task regression"
    texts = y[pd.to_numeric(pd.Series(y), errors="coerce").isna().to_numpy()]
    return f", and {str(texts[0])!r} keeps it from being a quantity" if 0 < len(texts) < len(y) / 2 else ""


def _rows_of(X: Any, rows: np.ndarray) -> Any:
    return X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows]


def _hold_out(
    rows: Rows, columns: Columns, task: str, test_size: float, seed: int, origin: str
) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    X, y = as_known(rows.X, columns, origin), np.asarray(rows.y)
    if np.ceil(test_size * len(y)) < 2:
        raise InputError(f"a share of {test_size:g} of {len(y)} rows is one row to score on: raise --test-size")
    dealt, lone = np.arange(len(y)), np.empty(0, dtype=int)
    if task == "classification":
        _, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
        # The only row of a class is to be learnt from: a class without one could not be told from the others.
        dealt, lone = np.flatnonzero(counts[codes] > 1), np.flatnonzero(counts[codes] == 1)
    left = len(dealt) - int(np.ceil(test_size * len(dealt)))
    if left < 1 or left + len(lone) < 2:
        raise InputError(f"a share of {test_size:g} of {len(y)} rows leaves too few to learn from: lower --test-size")
    try:
        stratify = y[dealt] if task == "classification" else None
        train, test = train_test_split(dealt, test_size=test_size, random_state=seed, stratify=stratify)
    except ValueError:  # fewer rows than classes on one side
        train, test = train_test_split(dealt, test_size=test_size, random_state=seed)
    train = np.concatenate([train, lone])
    if task == "classification" and len(np.unique(y[train])) < 2:
        raise InputError(f"the {len(train)} rows to learn from are all of one class: lower --test-size")
    return _rows_of(X, train), _rows_of(X, test), y[train], y[test]


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
        f"  {about['rows']['train']:,} rows to learn from: tuned in {about['tune_seconds']:.1f} s, fitted in "
        f"{about['fit_seconds']:.1f} s; {about['rows']['held_out']:,} held out to score",
        highlight=False,
        soft_wrap=True,
    )
    console.print(score_table(trained.scores, ""))
    console.print(f"Model  [bold]{escape(str(trained.out))}[/bold]", highlight=False, soft_wrap=True)
