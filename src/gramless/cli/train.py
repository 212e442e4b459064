"""`gramless train`: read a file, fit a model, score it on rows that it was not fitted to, and save it."""

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
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler

import gramless
from gramless._version import __version__
from gramless.cli.card import write_card
from gramless.cli.display import StepDisplay
from gramless.cli.errors import InputError
from gramless.cli.importance import importance
from gramless.cli.model import TableModel, typed_frame
from gramless.cli.model_card import card_path, checksum, describe_inputs, write_model_card
from gramless.cli.options import TrainSettings
from gramless.cli.scores import Score, constant_prediction, error_bound, score_table, verdict
from gramless.cli.splits import folds, hold_out
from gramless.cli.table_files import batches, quoted_names, select_rows
from gramless.cli.training_table import TrainingTable, read_training_table
from gramless.estimators.table import single_model
from gramless.papers.experiments.environment import versions

# Number of columns whose permutation importance is printed.
_SHOWN_COLUMNS = 5
# Multiples of gamma="scale" that are compared for sparse data, and the rows on which they are compared.
_SPARSE_WIDTHS = (1.0, 0.1, 0.3, 3.0, 10.0)
_SPARSE_ROWS, _SPARSE_LANDMARKS = 4000, 1000

Notify = Callable[[str], None]


@dataclass(frozen=True)
class FittedPipeline:
    """Fitted pipeline, and entries of the model description that result from the fit."""

    pipeline: Pipeline
    about: dict[str, Any]


@dataclass(frozen=True)
class Trained:
    """Saved model with its scores."""

    out: Path
    model: Any
    scores: list[Score]

    def as_json(self) -> dict[str, Any]:
        """Return the description of the model as JSON."""
        return {"model": str(self.out), **self.model.about}


def train(settings: TrainSettings, console: Console) -> Trained:
    """Train and save a model as the settings specify, and display the current step."""
    settings.check()
    with StepDisplay(console) as notify:
        notify(f"reading {settings.data}")
        table = read_training_table(
            *(settings.data, settings.target, settings.task),
            roles={"weights": settings.weights, "groups": settings.groups, "order": settings.order},
            selected=settings.columns or [],
            dropped=settings.drop or [],
        )
        for note in table.notes:
            console.print(f"[dim]{escape(note)}[/dim]", soft_wrap=True, highlight=False)
        settings = _checked_against(settings, table, console)
        all_rows = np.arange(len(table.y))
        if settings.test is not None or settings.cv is not None:
            rows = test_rows = all_rows
        else:
            rows, test_rows = hold_out(table.y, table.roles, table.task, settings.test_size, settings.seed)
        fold_scores = _fold_scores(table, settings, notify) if settings.cv is not None else None
        model = _fit_model(table, rows, settings, notify)
        notify("scoring")
        if settings.test is not None:
            X_test, y_test = _read_test_rows(settings.test, settings.target, table)
        else:
            X_test, y_test = select_rows(table.X, test_rows), table.y[test_rows]
        scores = model.scored([(X_test, y_test)], settings.seed)[1] if fold_scores is None else fold_scores
        model.about |= _measured(model, table, rows, X_test, y_test, scores, settings, notify)
        model.learn_novelty(select_rows(table.X, rows), settings.seed)
        notify(f"saving {settings.out}")
        gramless.save(model, settings.out)
        write_model_card(model, settings.out)
        if settings.report:
            write_card(model, scores, X_test, y_test, settings.out.with_suffix(".html"), settings.seed)
    trained = Trained(settings.out, model, scores)
    _print_summary(console, trained, settings.report)
    return trained


def _checked_against(settings: TrainSettings, table: TrainingTable, console: Console) -> TrainSettings:
    """Return the settings adapted to a table; raise `InputError` if an option is not valid for the table."""
    if table.is_sparse and settings.estimator == "table":
        raise InputError("a table model needs a dense table: choose --estimator lssvm or nystrom for sparse data")
    if table.is_sparse and settings.report:
        raise InputError("--report needs named columns: leave it out for sparse data")
    if table.task != "classification" and settings.proba:
        raise InputError("a quantity has no probabilities: leave out --proba, or use --task classification")
    if table.task != "classification" and settings.class_weight is not None:
        raise InputError("a quantity has no classes: leave out --class-weight")
    if settings.estimator == "svm" and settings.proba and np.unique(table.y, return_counts=True)[1].min() < 2:
        console.print("[dim]no probabilities: leave-one-out cannot predict a class that has a single row[/dim]")
        return replace(settings, proba=False)
    return settings


def parse_class_weights(text: str | None, labels: np.ndarray) -> Any:
    """Return `class_weight` of an estimator from "balanced" or "yes=5,no=1"."""
    if text is None or text == "balanced":
        return text
    known = {str(label): label for label in np.unique(labels)}
    weights: dict[Any, float] = dict.fromkeys(known.values(), 1.0)
    for part in text.split(","):
        name, mark, number = part.rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = -1.0
        if not mark or not 0 < weight < np.inf:
            raise InputError(f"--class-weight {text!r} is neither balanced nor written as label=weight,label=weight")
        if name not in known:
            raise InputError(f"--class-weight names {name!r}, which is not a class; the classes are {quoted_names(known)}")
        weights[known[name]] = weight
    return weights


def _fit_model(table: TrainingTable, rows: np.ndarray, settings: TrainSettings, notify: Notify) -> TableModel:
    """Return a model that is fitted to `rows`, with the description of its training."""
    X, y = select_rows(table.X, rows), table.y[rows]
    weights = table.roles["weights"][rows].astype(np.float64) if "weights" in table.roles else None
    try:
        fitted = (_fit_sparse if table.is_sparse else _fit_table)(X, y, weights, table, settings, notify)
    except ValueError as reason:  # the estimator rejects a setting, and its message gives the reason
        raise InputError(str(reason)) from reason
    types = {} if table.columns is None else table.columns.type_of
    counts = {kind: sum(its == kind for its in types.values()) for kind in ("number", "category", "date")}
    about = {
        "gramless": __version__,
        "versions": versions(),
        "data": settings.data.name,
        "data_sha256": checksum(settings.data),
        "target": settings.target,
        "task": table.task,
        "rows": {"train": len(rows)},
        "columns": {
            "numbers": counts["number"],
            "words": counts["category"],
            **({"dates": counts["date"]} if counts["date"] else {}),
            "left_out": {} if table.columns is None else table.columns.left_out_,
        },
        **fitted.about,
        **constant_prediction(y, table.task),
        **({} if table.first_column is None else {"counts_from": table.first_column}),
    }
    return TableModel(fitted.pipeline, types, settings.target, table.task, about)


def _fit_table(
    X: pd.DataFrame, y: np.ndarray, weights: np.ndarray | None, table: TrainingTable, settings: TrainSettings, notify: Notify
) -> FittedPipeline:
    """Fit `TableClassifier` or `TableRegressor` to columns whose types were determined from all rows of the file."""
    assert table.columns is not None
    options: dict[str, Any] = {"probability": settings.proba, "class_weight": None}
    if table.task == "classification":
        options["class_weight"] = parse_class_weights(settings.class_weight, y)
    cls: Any = gramless.TableClassifier if table.task == "classification" else gramless.TableRegressor
    estimator = cls(
        estimator=settings.estimator,
        kernel=settings.kernel or "auto",
        C=settings.C,
        gamma=settings.gamma,
        tune=settings.tune,
        column_types=table.columns.type_of,
        time_budget=settings.time,
        memory_budget=settings.memory_budget,
        device=settings.device,
        callback=lambda _, record: notify(record["message"]),
        random_state=settings.seed,
        **(options if table.task == "classification" else {}),
    )
    estimator.fit(X, y, sample_weight=weights)
    estimator.set_params(callback=None)
    model = estimator.model_
    about = {
        "estimator": type(estimator if model is None else model).__name__,
        "why": estimator.reason_,
        "settings": [one.description for one in estimator.members_] if model is None else _single_settings(model),
        "reductions": estimator.reductions_,
        "tuned": estimator.tuned_,
        "tune_seconds": estimator.timings_["tune"],
        "fit_seconds": estimator.timings_["fit"],
    }
    return FittedPipeline(Pipeline([("model", estimator)]), about)


def _single_settings(model: Any) -> dict[str, Any]:
    gamma = None if model.kernel == "linear" else float(model.gamma)
    return {"kernel": model.kernel, "C": float(getattr(model, "C_", model.C)), "gamma": gamma}


def _fit_sparse(
    X: Any, y: np.ndarray, weights: np.ndarray | None, table: TrainingTable, settings: TrainSettings, notify: Notify
) -> FittedPipeline:
    """Fit a Nystrom model, or the requested single model, to sparse columns divided by their largest value."""
    name = "nystrom" if settings.estimator == "auto" else settings.estimator
    classifier = table.task == "classification"
    proba = settings.proba if settings.proba is not None else name != "svm"
    scaler = MaxAbsScaler()
    scaled = scaler.fit_transform(X)
    began = time.perf_counter()
    notify("tuning by leave-one-out")
    kernel = settings.kernel or "rbf"
    C, gamma = _sparse_settings(scaled, y, classifier, name, kernel, settings)
    tuned = time.perf_counter()
    model = single_model(
        name,
        classifier=classifier,
        n=len(y),
        kernel=kernel,
        C=C,
        gamma=gamma,
        probability=classifier and proba,
        class_weight=parse_class_weights(settings.class_weight, y) if classifier else None,
        device=settings.device,
        memory_budget=settings.memory_budget,
        random_state=settings.seed,
    )
    notify(f"fitting {type(model).__name__} on {len(y):,} rows")
    model.fit(scaled, y, **({} if weights is None else {"sample_weight": weights}))
    if hasattr(model, "finish"):
        model.finish()  # delete the sums that only further calls of partial_fit need
    about = {
        "estimator": type(model).__name__,
        "why": f"{len(y):,} sparse rows",
        "settings": _single_settings(model),
        "reductions": [],
        "tuned": "no" if settings.tune == "none" else "leave-one-out of a Nystrom model",
        "tune_seconds": tuned - began,
        "fit_seconds": time.perf_counter() - tuned,
    }
    return FittedPipeline(Pipeline([("prepare", scaler), ("model", model)]), about)


def _sparse_settings(
    X: Any, y: np.ndarray, classifier: bool, name: str, kernel: str, settings: TrainSettings
) -> tuple[Any, float | None]:
    """Return `C` and `gamma` for sparse rows; if not given, they minimise a leave-one-out error on a sample."""
    if kernel == "linear" and settings.gamma is not None:
        raise InputError("the linear kernel has no gamma: leave out --gamma, or choose another --kernel")
    rows = np.sort(np.random.default_rng(settings.seed).permutation(len(y))[:_SPARSE_ROWS])
    rows = rows if not classifier or len(np.unique(y[rows])) == len(np.unique(y)) else np.arange(len(y))
    sample, target = X[rows], y[rows]
    mean = sample.mean()
    variance = sample.multiply(sample).mean() - mean**2
    scale = 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0
    if settings.tune == "none":
        return settings.C or 1.0, None if kernel == "linear" else settings.gamma or scale
    cls: Any = gramless.NystromLSSVC if classifier else gramless.NystromLSSVR
    gammas = [settings.gamma] if settings.gamma is not None else [scale * width for width in _SPARSE_WIDTHS]
    found = []
    for gamma in gammas if kernel != "linear" else [1.0]:
        options = {"kernel": kernel, "gamma": gamma, "n_landmarks": min(_SPARSE_LANDMARKS, len(rows))}
        model = cls(C="loo", Cs=[settings.C] if settings.C is not None else cls().Cs, random_state=settings.seed, **options)
        model.fit(sample, target)
        found.append((float(np.min(model.loo_errors_)), gamma, float(model.C_)))
    _, gamma, C = min(found)
    open_C = "loo" if name == "nystrom" and settings.C is None else C
    return open_C, None if kernel == "linear" else gamma


def _read_test_rows(path: Path, target: str | None, table: TrainingTable) -> tuple[Any, np.ndarray]:
    """Return typed rows and targets of the file that `--test` names."""
    columns = table.columns
    strings = [] if columns is None else [name for name, kind in columns.type_of.items() if kind == "category"]
    rows = next(batches(path, target, size=None, strings=strings, held_out=True))
    if rows.y is None:
        raise InputError(f"{path} has no target: it needs the column {target!r}")
    known = np.flatnonzero(~pd.isna(rows.y))
    if len(known) == 0:
        raise InputError(f"{path} has no target in any row: nothing can be scored")
    X = rows.X if columns is None else typed_frame(rows.X, columns, str(path))
    return select_rows(X, known), rows.y[known]


def _fold_scores(table: TrainingTable, settings: TrainSettings, notify: Notify) -> list[Score]:
    """Return the mean scores of the folds, with intervals from their standard deviation."""
    cv = settings.cv or 2
    each: list[list[Score]] = []
    for number, (rows, test_rows) in enumerate(folds(table.y, table.roles, table.task, cv, settings.seed)):
        model = _fit_model(table, rows, settings, notify)
        notify(f"scoring fold {number + 1} of {cv}")
        each.append(model.scored([(select_rows(table.X, test_rows), table.y[test_rows])], settings.seed)[1])
    merged = []
    for same in zip(*each, strict=True):
        values = np.array([one.value for one in same])
        margin = 1.96 * values.std(ddof=1) / np.sqrt(cv)
        baseline = float(np.mean([one.baseline for one in same]))
        mean = float(values.mean())
        merged.append(replace(same[0], value=mean, low=mean - margin, high=mean + margin, baseline=baseline))
    return merged


def _measured(
    model: TableModel,
    table: TrainingTable,
    rows: np.ndarray,
    X: Any,
    y: np.ndarray,
    scores: list[Score],
    settings: TrainSettings,
    notify: Notify,
) -> dict[str, Any]:
    """Return the entries of the model description that are computed from the scored rows `X` and `y`."""
    about: dict[str, Any] = {"rows": {"train": len(rows), "held_out": len(y)}}
    about["inputs"] = [] if table.is_sparse else describe_inputs(select_rows(table.X, rows), model.column_types)
    if table.task == "regression" and settings.cv is None:
        about["error_90"] = error_bound(model.pipeline.predict(X), model.parse_targets(y), 0.9)
    if settings.interval is not None:
        about["coverage"] = model.measured_coverage(X, y, settings.interval)
    about["scores"] = [one.as_json() for one in scores]
    if settings.cv is not None:
        about["folds"] = settings.cv
    if not table.is_sparse:
        notify("computing the importance of columns")
        about["importance"] = importance(model.pipeline, X, model.parse_targets(y), table.task, settings.seed)
    return about


def _describe_inputs(model: TableModel) -> str:
    if model.n_features is not None:
        return f"{model.n_features:,} sparse columns"
    kinds = [(len(model.columns_of(kind)), kind) for kind in ("number", "category", "date")]
    return " and ".join(f"{n} {kind} column{'s' * (n != 1)}" for n, kind in kinds if n)


def _describe_settings(about: dict[str, Any]) -> str:
    settings = about["settings"]
    if isinstance(settings, list):
        return "\n  ".join([*settings, *(f"reduced: {reduction}" for reduction in about["reductions"])])
    gamma = "" if settings["gamma"] is None else f", gamma {settings['gamma']:.3g}"
    return f"{settings['kernel']} kernel, C {settings['C']:.3g}{gamma}"


def _print_summary(console: Console, trained: Trained, report: bool) -> None:
    """Print the model, its scores and the files that were written."""

    def line(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    about = trained.model.about
    held_out = f"{about['folds']} folds" if "folds" in about else f"{about['rows']['held_out']:,} held-out rows"
    line(
        f"[bold]{about['estimator']}[/bold] for {about['task']} of [bold]{escape(str(about['target'] or 'y'))}[/bold]"
        f" from {_describe_inputs(trained.model)}\n"
        f"  {about['why']}\n"
        f"  {escape(_describe_settings(about))}; tuned: {about['tuned']}\n"
        f"  {about['rows']['train']:,} training rows: tuned in {about['tune_seconds']:.1f} s, fitted in "
        f"{about['fit_seconds']:.1f} s; scored on {held_out}"
    )
    console.print(score_table(trained.scores, ""))
    warning = verdict(trained.scores, about["task"])
    if warning is not None:
        line(f"[yellow]{escape(warning)}[/yellow]")
    if "coverage" in about:
        found = about["coverage"]
        what = f"intervals of mean width {found['size']:.3g}"
        if about["task"] != "regression":
            what = f"sets of {found['size']:.2f} classes on average"
        line(f"{found['held_out']:.1%} of held-out rows lie in {what}; {found['asked']:.0%} was requested")
    shown = list(about.get("importance", {}).items())[:_SHOWN_COLUMNS]
    most = [f"{name} {value:.3g}" for name, value in shown if value > 0]
    if most:
        line(escape("Most important columns (loss of score if permuted): " + ", ".join(most)))
    line(f"Model  [bold]{escape(str(trained.out))}[/bold]")
    line(f"Card   [bold]{escape(str(card_path(trained.out)))}[/bold]")
    if report:
        line(f"Report [bold]{escape(str(trained.out.with_suffix('.html')))}[/bold]")
