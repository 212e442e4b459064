"""`gramless train`: read a file, fit a model, score it on rows that it was not fitted to, and save it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.markup import escape

import gramless
from gramless.cli.card import card_path, describe_inputs, print_summary, write_card, write_report
from gramless.cli.display import StepDisplay
from gramless.cli.errors import InputError
from gramless.cli.fitting import Notify, fit_model, refitted
from gramless.cli.importance import METRICS, TUNING, importance
from gramless.cli.large_tables import large_table
from gramless.cli.model import Scored, TableModel
from gramless.cli.options import TrainSettings
from gramless.cli.scores import Score, error_bound, verdict
from gramless.cli.table_files import standard_input
from gramless.cli.training_table import TrainingTable, folds, hold_out, read_training_table
from gramless.estimators.table import default_seconds

# Number of columns whose permutation importance is printed.
_SHOWN_COLUMNS = 5


def train(settings: TrainSettings, console: Console, began: float | None = None) -> TableModel:
    """Train and save a model as the settings specify, then measure the importance of the columns.

    The time of the settings counts from `began`, a time of `time.perf_counter`, or from this call.
    """
    began = time.perf_counter() if began is None else began
    settings.check()
    with standard_input(settings.data) as path:
        return _train(replace(settings, data=path), began, console)


class _Tested(NamedTuple):
    """A model, rows and targets that it was not fitted to, and its scores on them."""

    model: TableModel
    X: Any
    y: np.ndarray
    scored: Scored


def _train(settings: TrainSettings, began: float, console: Console) -> TableModel:
    with StepDisplay(console) as notify, large_table(settings, notify) as large:
        notify(f"reading {settings.data}")
        settings = settings if large is None else large.settings
        table = read_training_table(settings.data if large is None else large.sample, settings)
        for note in [*([] if large is None else [large.message]), *table.notes]:
            console.print(f"[dim]{escape(note)}[/dim]")
        settings = _checked_against(settings, table, console)
        clock = _TimeBudget(settings, began, len(table.y))
        training, held_out = table, table
        if settings.test is None and settings.cv is None and large is None:
            rows, test_rows = hold_out(table.y, table.roles, table.task, settings.test_size, settings.seed)
            training, held_out = table.take(rows), table.take(test_rows)
        in_folds = None if settings.cv is None else _evaluated_in_folds(table, settings, clock, notify)
        model = fit_model(training, settings, notify, clock.of_fit())
        X_test, y_test = (held_out.X, held_out.y) if large is None else large.fit(model, table, notify)
        notify("scoring")
        if settings.test is not None:
            [(X_test, y_test, _)] = model.read_labelled(settings.test, settings.target, None)
        tested = in_folds or _Tested(model, X_test, y_test, model.scored([(X_test, y_test)], settings.seed))
        scores = tested.scored.scores
        if settings.metric is not None:
            first = METRICS[settings.metric].score_name
            scores.sort(key=lambda one: not one.metric.startswith(first))  # stable
        n_rows = len(training.y) if large is None else large.n_rows
        model.about.update(_measured(tested, settings))
        model.about["rows"] = {"train": n_rows, "held_out": tested.scored.rows, "saved": n_rows}
        if len(training.y) < len(table.y) and settings.refit and clock.allows_refit(model):
            model, training = refitted(model, table, settings, notify), table
            model.about["rows"] = tested.model.about["rows"] | {"saved": len(table.y)}
        model.about["inputs"] = [] if table.is_sparse else describe_inputs(training.X, model.column_types)
        model.learn_novelty(training.X, settings.seed)
        notify(f"saving {settings.out}")
        _save(model, settings.out)
    _print_summary(console, model, scores, settings.out)
    if not table.is_sparse and settings.importance:
        _add_importance(model, tested, settings, clock, console)
    if settings.report:
        report = settings.out.with_suffix(".html")
        write_report(model, tested.model, tested.X, tested.y, report, settings.seed)
        console.print(f"Report [bold]{escape(str(report))}[/bold]")
    return model


def _save(model: TableModel, out: Path) -> None:
    gramless.save(model, out)
    write_card(model, out)


class _TimeBudget:
    """Shares of `--time` for the steps of the command; None and infinity without `--time`."""

    # Share of the remaining time of the first fit; the rest is for the fit to all rows, for importance and for saving.
    FIT = 0.45
    # Share of the total for the novelty detector, for saving and for the end of the process.
    RESERVE = 0.1

    def __init__(self, settings: TrainSettings, began: float, n_rows: int):
        self.total, self.n_rows = settings.time, n_rows
        self.end = np.inf if settings.time is None else began + settings.time
        self.fits = 1 if settings.cv is None else settings.cv + 1

    @property
    def deadline(self) -> float:
        """Time of `time.perf_counter` after which no optional step begins."""
        return self.end - self.RESERVE * (self.total or 0.0)

    def of_fit(self) -> float | None:
        """Return the seconds of the next fit."""
        if self.total is None:
            return None
        return max(0.1 * self.total, self.FIT * (self.end - time.perf_counter())) / self.fits

    def allows_refit(self, model: TableModel) -> bool:
        """Return True if a fit to all rows, which takes less than two fits to the training rows, ends in time."""
        return time.perf_counter() + 2 * model.about["fit_seconds"] < self.deadline

    def of_importance(self) -> float:
        """Return the seconds for the importance of columns."""
        if self.total is None:
            return TUNING.default_share * default_seconds(self.n_rows)
        return TUNING.share * self.total


def _checked_against(settings: TrainSettings, table: TrainingTable, console: Console) -> TrainSettings:
    """Return the settings adapted to a table; raise `InputError` if an option is not valid for the table."""
    if table.is_sparse and settings.estimator == "table":
        raise InputError("a table model needs a dense table: choose --estimator lssvm or nystrom for sparse data")
    if table.is_sparse and settings.report:
        raise InputError("--report needs named columns: leave it out for sparse data")
    if table.task != "classification" and settings.proba:
        raise InputError("a quantity has no probabilities: leave out --proba, or use --task classification")
    if settings.loss != "auto" and (table.is_sparse or table.task == "classification"):
        raise InputError("--loss is for quantities in tables with named columns: leave it out")
    if table.task != "classification" and settings.class_weight is not None:
        raise InputError("a quantity has no classes: leave out --class-weight")
    if settings.metric is not None and METRICS[settings.metric].task != table.task:
        raise InputError(f"--metric {settings.metric} is not for {table.task}")
    if settings.metric is not None and METRICS[settings.metric].of_probabilities and settings.proba is False:
        raise InputError(f"--metric {settings.metric} needs probabilities: leave out --no-proba")
    if settings.estimator == "svm" and settings.proba and np.unique(table.y, return_counts=True)[1].min() < 2:
        console.print("[dim]no probabilities: leave-one-out cannot predict a class that has a single row[/dim]")
        return replace(settings, proba=False)
    return settings


def _evaluated_in_folds(table: TrainingTable, settings: TrainSettings, clock: _TimeBudget, notify: Notify) -> _Tested:
    """Return model, rows and targets of the last fold, and the mean scores, with intervals from their standard deviation."""
    cv = settings.cv or 2
    each: list[list[Score]] = []
    seconds = clock.of_fit()
    for number, (rows, test_rows) in enumerate(folds(table.y, table.roles, table.task, cv, settings.seed)):
        model, test = fit_model(table.take(rows), settings, notify, seconds), table.take(test_rows)
        notify(f"scoring fold {number + 1} of {cv}")
        each.append(model.scored([(test.X, test.y)], settings.seed).scores)
    merged = []
    for same in zip(*each, strict=True):
        values = np.array([one.value for one in same])
        margin = 1.96 * values.std(ddof=1) / np.sqrt(cv)
        baseline = float(np.mean([one.baseline for one in same]))
        mean = float(values.mean())
        merged.append(replace(same[0], value=mean, low=mean - margin, high=mean + margin, baseline=baseline))
    return _Tested(model, test.X, test.y, Scored(len(table.y), merged))


def _measured(tested: _Tested, settings: TrainSettings) -> dict[str, Any]:
    """Return the entries of the model description that are computed from the scored rows."""
    model, X, y, scored = tested
    about: dict[str, Any] = {"scores": [one.as_json() for one in scored.scores]}
    if settings.cv is not None:
        return about | {"folds": settings.cv}
    if model.task == "regression":
        about["error_90"] = error_bound(model.pipeline.predict(X), model.parse_targets(y), 0.9)
    if settings.interval is not None:
        about["coverage"] = model.measured_coverage(X, y, settings.interval)
    if scored.confusion is not None:
        about["confusion"] = scored.confusion
    return about


def _print_summary(console: Console, model: TableModel, scores: list[Score], out: Path) -> None:
    """Print the model, its scores and the files that were written."""
    about = model.about
    rows = about["rows"]
    print_summary(console, model)
    warning = verdict(scores, about["task"])
    if warning is not None:
        console.print(f"[yellow]{escape(warning)}[/yellow]")
    if "coverage" in about:
        found = about["coverage"]
        what = f"intervals of mean width {found['size']:.3g}"
        if about["task"] != "regression":
            what = f"sets of {found['size']:.2f} classes on average"
        console.print(f"{found['held_out']:.1%} of held-out rows lie in {what}; {found['asked']:.0%} was requested")
    how = f"fitted to {rows['saved']:,} rows"
    if rows["saved"] > rows["train"]:
        how = f"fitted again to all {rows['saved']:,} rows; the scores are those of the model of {rows['train']:,} rows"
    console.print(f"Model  [bold]{escape(str(out))}[/bold], {how}")
    console.print(f"Card   [bold]{escape(str(card_path(out)))}[/bold]")


def _add_importance(
    model: TableModel, tested: _Tested, settings: TrainSettings, clock: _TimeBudget, console: Console
) -> None:
    """Measure the importance of the columns on the scored rows, and save it with `model` if time is left."""
    default = "r2" if model.task == "regression" else "log-loss" if model.has_probabilities else "accuracy"
    metric = settings.metric or default
    measured: dict[str, float] = {}
    has_time = time.perf_counter() < clock.deadline
    if has_time:
        with StepDisplay(console) as notify:
            measured = importance(
                *(tested.model, tested.X, model.parse_targets(tested.y)),
                metric=metric,
                seconds=clock.of_importance(),
                seed=settings.seed,
                notify=notify,
                deadline=clock.deadline,
            )
    model.about.update(importance_metric=metric, importance=measured)
    if has_time:
        _save(model, settings.out)
    most = [(name, value) for name, value in measured.items() if value > 0][:_SHOWN_COLUMNS]
    if not measured:
        console.print("[dim]the importance of columns was not measured: no time was left, or the targets are equal[/dim]")
    if most:
        listed = ", ".join(f"{name} {value:.3g}" for name, value in most)
        console.print(escape(f"Most important columns (increase of the loss if permuted): {listed}"))
