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
from sklearn.model_selection import GroupKFold, GroupShuffleSplit, KFold, StratifiedKFold, train_test_split
from sklearn.pipeline import Pipeline

import gramless
from gramless._core.progress import report_compilation
from gramless._version import __version__
from gramless.cli.card import write_card
from gramless.cli.columns import Columns, as_known, choose_columns, find_columns, preparation, told_columns
from gramless.cli.coverage import measured_coverage
from gramless.cli.errors import InputError, check_readable, check_writable
from gramless.cli.heartbeat import Heartbeat
from gramless.cli.importance import importance
from gramless.cli.inputs import describe_inputs
from gramless.cli.machines import Settings, make_machine, settle, with_probabilities
from gramless.cli.model import TableModel, save_model
from gramless.cli.model_card import card_path, checksum, write_model_card
from gramless.cli.predict import check_coverage
from gramless.cli.scores import Score, error_bound, score_table, verdict
from gramless.cli.tables import LARGEST, Rows, batches, kind_of, listed, read
from gramless.papers.experiments.environment import versions

MOST_CLASSES = 100
_SHOWN = 5


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


@dataclass(frozen=True)
class Asked:
    """What the user said about the machine."""

    estimator: str
    kernel: str | None
    C: float | None
    gamma: float | None
    tune: str
    proba: bool | None
    seconds: float | None
    seed: int
    device: str | None
    memory_budget: str | None
    class_weight: str | None = None

    @property
    def by_table(self) -> bool:
        """Whether `TableClassifier` or `TableRegressor` is to choose everything: nothing that they choose was given."""
        open_to_choice = (self.kernel, self.C, self.gamma, self.tune) == (None, None, None, "loo")
        if self.estimator == "table" and not open_to_choice:
            raise InputError("a table model chooses kernel, C and gamma itself: leave them out, or choose --estimator lssvm")
        return self.estimator == "table" or (self.estimator == "auto" and open_to_choice and self.device in (None, "cpu"))


@dataclass(frozen=True)
class Made:
    """A fitted pipeline, and how it came about."""

    pipeline: Pipeline
    settings: Settings
    about: dict[str, Any]
    tune_seconds: float
    fit_seconds: float


def train(
    path: Path,
    target: str | None,
    out: Path,
    *,
    estimator: str = "auto",
    kernel: str | None = None,
    C: float | None = None,
    gamma: float | None = None,
    tune: str = "loo",
    task: str = "auto",
    proba: bool | None = None,
    test_size: float = 0.2,
    test: Path | None = None,
    cv: int | None = None,
    weights: str | None = None,
    groups: str | None = None,
    order: str | None = None,
    columns: list[str] | None = None,
    drop: list[str] | None = None,
    class_weight: str | None = None,
    seconds: float | None = None,
    interval: float | None = None,
    report: bool = False,
    seed: int = 0,
    device: str | None = None,
    memory_budget: str | None = None,
    console: Console,
) -> Trained:
    """Read, prepare, tune, fit, score, save; each step is shown while it runs.

    `weights`, `groups` and `order` name columns that are not learnt from: how much a row counts, rows that are held out
    together, and what rows are sorted by before the last of them are held out. `columns` are the only ones to learn from,
    `drop` are not learnt from. The score is that of held-out rows, of the
    file `test`, or of `cv` folds; with the latter two the model is fitted to all rows.
    """
    if not 0 < test_size < 1:
        raise InputError(f"the held-out share must lie between 0 and 1, not {test_size}")
    if gamma is not None and kernel == "linear":
        raise InputError("the linear kernel has no gamma: leave out --gamma, or choose another --kernel")
    for name, value in (("C", C), ("gamma", gamma), ("the time", seconds)):
        if value is not None and not 0 < value < np.inf:
            raise InputError(f"{name} must be a positive number, not {value:g}")
    check_coverage("--interval", interval)
    if interval is not None and cv is not None:
        raise InputError("--interval is measured on held-out rows: leave out --cv")
    if test is not None and cv is not None:
        raise InputError("--test and --cv are two ways to score: choose one")
    check_readable(path)
    check_writable(out, path)
    asked = Asked(estimator, kernel, C, gamma, tune, proba, seconds, seed, device, memory_budget, class_weight)
    heartbeat = Heartbeat(console)
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
            heartbeat(doing)

        now(f"reading {path}")
        rows = read(path, target)
        rows, task = _with_target(rows, task, target, path, console)
        needed = [name for name in (weights, groups, order) if name is not None]
        rows = replace(rows, X=choose_columns(rows.X, columns or [], drop or [], needed, str(path)))
        rows, helpers = take_helpers(rows, {"weights": weights, "groups": groups, "order": order}, path)
        if asked.estimator == "table" and not isinstance(rows.X, pd.DataFrame):
            raise InputError("a table model is for dense tables: choose --estimator lssvm or nystrom for sparse ones")
        by_table = asked.by_table and isinstance(rows.X, pd.DataFrame)
        used = find_columns(rows.X, with_dates=by_table)
        X, y = as_known(rows.X, used, str(path)), np.asarray(rows.y)
        for line in told_columns(used, X):
            console.print(f"[dim]{escape(line)}[/dim]", soft_wrap=True, highlight=False)
        everything = np.arange(len(y))
        whole = test is not None or cv is not None
        kept, held_out = (everything, everything) if whole else hold_out(y, helpers, task, test_size, seed)

        def make(some: np.ndarray) -> Made:
            w = None if helpers["weights"] is None else helpers["weights"][some].astype(np.float64)
            if by_table:
                return fit_table(_rows_of(X, some), y[some], w, used, task, asked, now, console)
            with report_compilation(now) as told:
                return fit_machine(_rows_of(X, some), y[some], w, used, task, asked, told, console)

        def model_of(made: Made, n_train: int, n_scored: int, y_train: np.ndarray) -> TableModel:
            about = {
                "gramless": __version__,
                "versions": versions(),
                "data": path.name,
                "data_sha256": checksum(path),
                "target": target,
                "task": task,
                "rows": {"train": n_train, "held_out": n_scored},
                "columns": {
                    "numbers": len(used.numbers),
                    "words": len(used.words),
                    **({"dates": len(used.dates)} if used.dates else {}),
                    "left_out": used.left_out,
                },
                "estimator": type(made.pipeline.named_steps["machine"]).__name__,
                "why": made.settings.reason,
                **made.about,
                "tuned": made.settings.tuned,
                "tune_seconds": made.tune_seconds,
                "fit_seconds": made.fit_seconds,
                **_without_inputs(y_train, task),
                **({} if rows.counts_from is None else {"counts_from": rows.counts_from}),
            }
            return TableModel(made.pipeline, used.numbers, used.words, target, task, about, used.dates)

        if cv is not None:
            folds = _fold_scores(make, model_of, X, y, helpers, task, cv, seed, now)
        made = make(kept)
        now("scoring")
        if test is not None:
            X_test, y_test = _test_rows(test, target, used)
        else:
            X_test, y_test = _rows_of(X, held_out), y[held_out]
        model = model_of(made, len(kept), len(y_test), y[kept])
        scores = folds if cv is not None else model.scored([(X_test, y_test)], seed)[1]
        model.about["inputs"] = describe_inputs(_rows_of(X, kept), used)
        if task == "regression" and cv is None:
            model.about["error_90"] = error_bound(model.pipeline.predict(X_test), model.answers(y_test), 0.9)
        if interval is not None:
            model.about["coverage"] = measured_coverage(model, X_test, y_test, interval)
        model.about["scores"] = [one.as_json() for one in scores]
        if cv is not None:
            model.about["folds"] = cv
        if by_table:
            now("shuffling columns to see which matter")
            model.about["importance"] = importance(made.pipeline, X_test, model.answers(y_test), used.used, task, seed)
        model.learn_novelty(_rows_of(X, kept), seed)
        now(f"saving {out}")
        save_model(model, out)
        write_model_card(model, out)
        if report:
            if not isinstance(X, pd.DataFrame):
                raise InputError("--report draws columns by name: it is for tables, not for sparse data")
            write_card(model, scores, X_test, y_test, out.with_suffix(".html"), seed)
    trained = Trained(out, model, scores, made.settings)
    _tell(console, trained, report)
    return trained


def parse_seconds(text: str) -> float:
    """Seconds from "90", "90s", "2m" or "1h"."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        return float(number) * unit
    except ValueError as reason:
        raise InputError(f"{text!r} is no time: write 90s, 2m or 1h") from reason


def fit_table(
    X: pd.DataFrame,
    y: np.ndarray,
    weights: np.ndarray | None,
    columns: Columns,
    task: str,
    asked: Asked,
    now: Callable[[str], None],
    console: Console,
) -> Made:
    """`TableClassifier` or `TableRegressor`, which prepare, choose and calibrate by themselves."""
    if task != "classification" and asked.proba:
        raise InputError("a quantity has no probabilities: leave out --proba, or say --task classification")
    began = time.perf_counter()
    tuned_at = [began]

    def tell(doing: str) -> None:
        now(doing)
        if not doing.startswith(("fitting", "cutting")):
            tuned_at[0] = time.perf_counter()

    cls = gramless.TableClassifier if task == "classification" else gramless.TableRegressor
    machine = cls(time_budget=asked.seconds, memory_budget=asked.memory_budget, callback=tell, random_state=asked.seed)
    weigh_classes(machine, asked.class_weight, task, y)
    try:
        machine.fit(X, y, sample_weight=weights)
    except ValueError as reason:  # a setting that the estimator refuses, in its own words
        raise InputError(str(reason)) from reason
    ended = time.perf_counter()
    machine.set_params(callback=None)
    parts = sum(len(member.points) for member in machine.members_) // len(machine.members_)
    whole = f"all {len(y):,} rows carry the model"
    why = whole if parts == 1 else f"{whole}, in {parts:,} neighbourhoods"
    settings = Settings("table", machine.summary_, "loo", None, why, "leave-one-out")
    about: dict[str, Any] = {"settings": [member.about for member in machine.members_], "gave_up": machine.gave_up_}
    if asked.proba is False:
        about["probabilities"] = False
    return Made(Pipeline([("machine", machine)]), settings, about, tuned_at[0] - began, ended - tuned_at[0])


def fit_machine(
    X: Any,
    y: np.ndarray,
    weights: np.ndarray | None,
    columns: Columns,
    task: str,
    asked: Asked,
    now: Callable[[str], None],
    console: Console,
) -> Made:
    """One machine with one kernel, prepared columns before it; what was left open by leave-one-out."""
    now("preparing the columns")
    prepare = preparation(X, columns)
    ready = prepare.fit_transform(X, y)
    now("tuning by leave-one-out" if asked.tune == "loo" else "settling on parameters")
    started = time.perf_counter()
    settings = settle(
        ready,
        y,
        task=task,
        machine=asked.estimator,
        kernel="rbf" if asked.kernel is None else asked.kernel,
        C=asked.C,
        gamma=asked.gamma,
        tune=asked.tune,
        seed=asked.seed,
        memory_budget=asked.memory_budget,
    )
    tune_seconds = time.perf_counter() - started
    machine = make_machine(
        settings,
        task=task,
        n=len(y),
        proba=_proba(asked.proba, settings.machine, task, y, console),
        seed=asked.seed,
        device=asked.device,
        memory_budget=asked.memory_budget,
    )
    weigh_classes(machine, asked.class_weight, task, y)
    seconds = _fit(machine, ready, y, weights, now)
    about = {"settings": {"kernel": settings.kernel, "C": _fitted_C(machine), "gamma": settings.gamma}}
    return Made(Pipeline([("prepare", prepare), ("machine", machine)]), settings, about, tune_seconds, seconds)


def weigh_classes(machine: Any, asked: str | None, task: str, y: np.ndarray) -> None:
    """Set `class_weight` from "balanced" or "yes=5,no=1"."""
    if asked is None:
        return
    if task != "classification":
        raise InputError("a quantity has no classes: leave out --class-weight")
    if asked == "balanced":
        machine.set_params(class_weight="balanced")
        return
    known = {str(label): label for label in np.unique(y)}
    given: dict[Any, float] = {}
    for part in asked.split(","):
        name, mark, text = part.rpartition("=")
        try:
            weight = float(text)
        except ValueError:
            weight = -1.0
        if not mark or not 0 < weight < np.inf:
            raise InputError(f"--class-weight {asked!r} is neither balanced nor written as label=weight,label=weight")
        if name not in known:
            raise InputError(f"--class-weight names {name!r}, which is no class; the classes are {listed(known)}")
        given[known[name]] = weight
    machine.set_params(class_weight={label: given.get(label, 1.0) for label in known.values()})


def take_helpers(rows: Rows, names: dict[str, str | None], path: Path) -> tuple[Rows, dict[str, np.ndarray | None]]:
    """The columns that say how rows count and belong together, taken out of the inputs."""
    found: dict[str, np.ndarray | None] = dict.fromkeys(names)
    X = rows.X
    for role, name in names.items():
        if name is None:
            continue
        if not isinstance(X, pd.DataFrame) or name not in X.columns:
            has = listed(X.columns) if isinstance(X, pd.DataFrame) else "numbered columns only"
            raise InputError(f"{path} has no column {name!r} for the {role}; it has {has}")
        column = X[name]
        if column.isna().any():
            raise InputError(f"{path}: the column {name!r} for the {role} has gaps")
        if role == "weights" and not (pd.api.types.is_numeric_dtype(column) and (column >= 0).all() and column.sum() > 0):
            raise InputError(f"{path}: weights are numbers of at least 0, some of them larger, and {name!r} has others")
        found[role] = column.to_numpy()
    taken = [name for name in names.values() if name is not None]
    return (replace(rows, X=X.drop(columns=taken)) if taken else rows), found


def _test_rows(path: Path, target: str | None, columns: Columns) -> tuple[Any, np.ndarray]:
    rows = next(batches(path, target, size=None, words=columns.words, held_out=True))
    if rows.y is None:
        raise InputError(f"{path} does not say what is right: it needs the column {target!r}")
    known = np.flatnonzero(~pd.isna(rows.y))
    if len(known) == 0:
        raise InputError(f"{path} has no answer in any row: nothing can be scored")
    return _rows_of(as_known(rows.X, columns, str(path)), known), rows.y[known]


def _fold_scores(
    make: Callable[[np.ndarray], Made],
    model_of: Callable[..., TableModel],
    X: Any,
    y: np.ndarray,
    helpers: dict[str, np.ndarray | None],
    task: str,
    cv: int,
    seed: int,
    now: Callable[[str], None],
) -> list[Score]:
    """The mean score of `cv` folds, with an interval from their spread."""
    if not 2 <= cv <= len(y):
        raise InputError(f"{cv} folds of {len(y):,} rows: choose between 2 and {len(y):,}")
    if helpers["order"] is not None:
        raise InputError("--cv deals rows out at random, and --order does not: leave one of them out")
    if helpers["groups"] is not None:
        splits = GroupKFold(cv).split(y, groups=helpers["groups"])
    elif task == "classification" and np.unique(y, return_counts=True)[1].min() >= cv:
        splits = StratifiedKFold(cv, shuffle=True, random_state=seed).split(y, y)
    else:
        splits = KFold(cv, shuffle=True, random_state=seed).split(y)
    each: list[list[Score]] = []
    for number, (kept, held_out) in enumerate(splits):
        if task == "classification" and len(np.unique(y[kept])) < 2:
            raise InputError(f"the rows of fold {number + 1} leave one class only to learn from: choose fewer folds")
        made = make(kept)
        now(f"scoring fold {number + 1} of {cv}")
        model = model_of(made, len(kept), len(held_out), y[kept])
        each.append(model.scored([(_rows_of(X, held_out), y[held_out])], seed)[1])
    merged = []
    for same in zip(*each, strict=True):
        values = np.array([one.value for one in same])
        margin = 1.96 * values.std(ddof=1) / np.sqrt(cv)
        baseline = float(np.mean([one.baseline for one in same]))
        mean = float(values.mean())
        merged.append(replace(same[0], value=mean, low=mean - margin, high=mean + margin, baseline=baseline))
    return merged


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


def hold_out(
    y: np.ndarray, helpers: dict[str, np.ndarray | None], task: str, test_size: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from and rows to score on: at random, whole groups at a time, or the last ones."""
    if np.ceil(test_size * len(y)) < 2:
        raise InputError(f"a share of {test_size:g} of {len(y)} rows is one row to score on: raise --test-size")
    if helpers["order"] is not None:
        if helpers["groups"] is not None:
            raise InputError("--groups and --order are two ways to hold rows out: choose one")
        ranked = np.argsort(helpers["order"], kind="stable")
        train, test = np.split(ranked, [len(y) - int(np.ceil(test_size * len(y)))])
    elif helpers["groups"] is not None:
        if len(np.unique(helpers["groups"])) < 2:
            raise InputError("all rows are of one group: nothing can be held out")
        split = GroupShuffleSplit(n_splits=1, test_size=test_size, random_state=seed)
        train, test = next(split.split(y, groups=helpers["groups"]))
    else:
        train, test = _at_random(y, task, test_size, seed)
    if task == "classification" and len(np.unique(y[train])) < 2:
        raise InputError(f"the {len(train)} rows to learn from are all of one class: lower --test-size")
    return train, test


def _at_random(y: np.ndarray, task: str, test_size: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
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
    return np.concatenate([train, lone]), test


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


def _fit(machine: Any, X: Any, y: np.ndarray, weights: np.ndarray | None, now: Callable[[str], None]) -> float:
    """Fit with progress, and keep what predicts only; the seconds of the fit."""
    what = f"fitting {type(machine).__name__} on {len(y):,} rows"
    now(what)
    tells = "callback" in machine.get_params()
    if tells:
        machine.set_params(callback=_iterations(now, what))
    started = time.perf_counter()
    try:
        machine.fit(X, y, **({} if weights is None else {"sample_weight": weights}))
    except ValueError as reason:  # a setting that the estimator refuses, in its own words
        raise InputError(str(reason)) from reason
    seconds = time.perf_counter() - started
    if tells:
        machine.set_params(callback=None)
    if hasattr(machine, "finish"):
        machine.finish()
    return seconds


def _without_inputs(y: np.ndarray, task: str) -> dict[str, Any]:
    """The constant guess, in plain JSON."""
    if task == "regression":
        return {"guess": float(np.mean(y))}
    values, counts = np.unique(y, return_counts=True)
    return {"guess": values[counts.argmax()].item(), "class_shares": (counts / len(y)).tolist()}


def _fitted_C(machine: Any) -> float:
    return float(getattr(machine, "C_", machine.C))


def _inputs(model: TableModel) -> str:
    if model.n_features is not None:
        return f"{model.n_features:,} sparse columns"
    kinds = [(len(model.numbers), "number"), (len(model.words), "text"), (len(model.columns.dates), "date")]
    return " and ".join(f"{n} {kind} column{'s' * (n != 1)}" for n, kind in kinds if n)


def _tell(console: Console, trained: Trained, report: bool) -> None:
    about, settings = trained.model.about, trained.settings
    if settings.machine == "table":
        chosen = "\n  ".join(about["settings"])
        chosen += "".join(f"\n  given up: {told}" for told in about["gave_up"])
    else:
        gamma = "" if settings.gamma is None else f", gamma {settings.gamma:.3g}"
        chosen = f"{settings.kernel} kernel, C {about['settings']['C']:.3g}{gamma}"
    held_out = f"{about['folds']} folds to score" if "folds" in about else f"{about['rows']['held_out']:,} held out to score"
    console.print(
        f"[bold]{about['estimator']}[/bold] for {about['task']} of [bold]{escape(str(about['target'] or 'y'))}[/bold]"
        f" from {_inputs(trained.model)}\n"
        f"  {settings.reason}\n"
        f"  {escape(chosen)}; tuned: {settings.tuned}\n"
        f"  {about['rows']['train']:,} rows to learn from: tuned in {about['tune_seconds']:.1f} s, fitted in "
        f"{about['fit_seconds']:.1f} s; {held_out}",
        highlight=False,
        soft_wrap=True,
    )
    console.print(score_table(trained.scores, ""))
    told = verdict(trained.scores, about["task"])
    if told is not None:
        console.print(f"[yellow]{escape(told)}[/yellow]", highlight=False, soft_wrap=True)
    if "coverage" in about:
        found = about["coverage"]
        what = (
            f"intervals of mean width {found['size']:.3g}"
            if about["task"] == "regression"
            else (f"sets of {found['size']:.2f} classes in the mean")
        )
        console.print(
            f"{found['held_out']:.1%} of held-out rows lie in {what}; {found['asked']:.0%} was asked for",
            highlight=False,
            soft_wrap=True,
        )
    most = [f"{name} {value:.3g}" for name, value in list(about.get("importance", {}).items())[:_SHOWN] if value > 0]
    if most:
        leant_on = escape("Matters most (what is lost when shuffled): " + ", ".join(most))
        console.print(leant_on, highlight=False, soft_wrap=True)
    console.print(f"Model  [bold]{escape(str(trained.out))}[/bold]", highlight=False, soft_wrap=True)
    console.print(f"Card   [bold]{escape(str(card_path(trained.out)))}[/bold]", highlight=False, soft_wrap=True)
    if report:
        console.print(
            f"Report [bold]{escape(str(trained.out.with_suffix('.html')))}[/bold]", highlight=False, soft_wrap=True
        )
