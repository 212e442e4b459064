"""`gramless train`: read a file, fit a model, score it on rows that it was not fitted to, and save it."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.markup import escape
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler

import gramless
from gramless._version import __version__
from gramless.cli.card import card_path, describe_inputs, print_summary, write_card, write_report
from gramless.cli.display import StepDisplay
from gramless.cli.errors import InputError, input_errors
from gramless.cli.model import SavedModel, Scored, TableModel
from gramless.cli.options import TrainSettings
from gramless.cli.pictures import train_pictures
from gramless.cli.scores import METRICS, TUNING, constant_prediction, error_bound, importance, verdict
from gramless.cli.table_files import checksum, quoted_names, standard_input
from gramless.cli.training_table import TrainingTable, folds, hold_out, large_table, read_training_table
from gramless.estimators.table import default_seconds, single_model
from gramless.papers.experiments.environment import versions

# Number of columns whose permutation importance is printed.
_SHOWN_COLUMNS = 5
# Fraction of the remaining `--time` for the fit to the training rows, which leaves time for the fit to all rows, the
# importance of columns and saving.
_FIT_SHARE = 0.45
# Fraction of `--time` for the novelty detector, for saving the model and for the end of the process.
_RESERVE = 0.1
# For sparse data: multiples of gamma="scale" that tuning compares, and the numbers of rows and landmarks for the comparison.
_SPARSE_WIDTHS = (1.0, 0.1, 0.3, 3.0, 10.0)
_SPARSE_ROWS, _SPARSE_LANDMARKS = 4000, 1000

Notify = Callable[[str], None]


class _Times(NamedTuple):
    """Seconds for a fit and for the importance of columns, and the time after which no optional step begins."""

    fit: float | None
    importance: float
    deadline: float


class _Tested(NamedTuple):
    """Model, rows and targets that the model was not fitted to, and the scores of the model on these rows."""

    model: TableModel
    X: Any
    y: np.ndarray
    scored: Scored


def train(settings: TrainSettings, console: Console) -> SavedModel:
    """Train and save a model as the settings specify, then measure the importance of the columns."""
    settings.check()
    if settings.data.is_dir():
        return train_pictures(settings, console)
    with standard_input(settings.data) as path:
        settings = replace(settings, data=path)
        with StepDisplay(console) as notify, large_table(settings, notify) as large:
            notify(f"reading {settings.data}")
            settings = settings if large is None else large.settings
            table = read_training_table(settings.data if large is None else large.sample, settings)
            for note in [*([] if large is None else [large.message]), *table.notes]:
                console.print(f"[dim]{escape(note)}[/dim]")
            settings = _checked_against(settings, table, console)
            times = _time_budget(settings, len(table.y))
            training, held_out = table, table
            if settings.test is None and settings.cv is None and large is None:
                rows, test_rows = hold_out(table.y, table.roles, table.task, settings.test_size, settings.seed)
                training, held_out = table.take(rows), table.take(test_rows)
            in_folds = None if settings.cv is None else _evaluated_in_folds(table, settings, times, notify)
            model = fit_model(training, settings, notify, times.fit)
            X_test, y_test = (held_out.X, held_out.y) if large is None else large.fit(model, table, notify)
            notify("scoring")
            if settings.test is not None:
                [(X_test, y_test, _)] = model.read_labelled(settings.test, settings.target, None)
            tested = in_folds or _Tested(model, X_test, y_test, model.scored([(X_test, y_test)], settings.seed))
            if settings.metric is not None:
                first = METRICS[settings.metric].score_name
                tested.scored.scores.sort(key=lambda one: not one.metric.startswith(first))  # stable sort
            n_rows = len(training.y) if large is None else large.n_rows
            model.about.update(_measured(tested, settings))
            model.about["rows"] = {"train": n_rows, "held_out": tested.scored.rows, "saved": n_rows}
            # A fit to all rows is expected to take at most twice the time of the fit to the training rows.
            in_time = time.perf_counter() + 2 * model.about["fit_seconds"] < times.deadline
            if len(training.y) < len(table.y) and settings.refit and in_time:
                model, training = refitted(model, table, settings, notify), table
                model.about["rows"] = tested.model.about["rows"] | {"saved": len(table.y)}
            model.about["inputs"] = describe_inputs(training.X, model.column_types)
            model.learn_novelty(training.X, settings.seed)
            notify(f"saving {settings.out}")
            _save(model, settings.out)
        _print_summary(console, model, tested.scored, settings.out)
        if not table.is_sparse and settings.importance:
            _add_importance(model, tested, settings, times, console)
        if settings.report:
            report = settings.out.with_suffix(".html")
            write_report(model, tested.model, tested.X, tested.y, report, settings.seed)
            console.print(f"Report [bold]{escape(str(report))}[/bold]")
    return model


def _save(model: TableModel, out: Path) -> None:
    gramless.save(model, out)
    write_card(model, out)


def _time_budget(settings: TrainSettings, n_rows: int) -> _Times:
    """Return the time budgets of the steps of `gramless train`."""
    if settings.time is None:
        return _Times(None, TUNING.default_share * default_seconds(n_rows), np.inf)
    left = settings.began + settings.time - time.perf_counter()
    fit = max(0.1 * settings.time, _FIT_SHARE * left) / (1 if settings.cv is None else settings.cv + 1)
    return _Times(fit, TUNING.share * settings.time, settings.began + (1 - _RESERVE) * settings.time)


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
    metric = METRICS.get(settings.metric or "")
    if metric is not None and metric.task != table.task:
        raise InputError(f"--metric {settings.metric} is not for {table.task}")
    if metric is not None and metric.of_probabilities and settings.proba is False:
        raise InputError(f"--metric {settings.metric} needs probabilities: leave out --no-proba")
    if settings.estimator == "svm" and settings.proba and np.unique(table.y, return_counts=True)[1].min() < 2:
        console.print("[dim]no probabilities: leave-one-out cannot predict a class that has a single row[/dim]")
        return replace(settings, proba=False)
    return settings


def _evaluated_in_folds(table: TrainingTable, settings: TrainSettings, times: _Times, notify: Notify) -> _Tested:
    """Return the model and the test rows of the last fold, and the mean scores over the folds with their intervals."""
    cv, each = settings.cv or 2, []
    for number, (rows, test_rows) in enumerate(folds(table.y, table.roles, table.task, cv, settings.seed)):
        model, test = fit_model(table.take(rows), settings, notify, times.fit), table.take(test_rows)
        notify(f"scoring fold {number + 1} of {cv}")
        each.append(model.scored([(test.X, test.y)], settings.seed).scores)
    merged = []
    for same in zip(*each, strict=True):
        values = np.array([one.value for one in same])
        mean, margin = float(values.mean()), 1.96 * values.std(ddof=1) / np.sqrt(cv)
        baseline = float(np.mean([one.baseline for one in same]))
        merged.append(replace(same[0], value=mean, low=mean - margin, high=mean + margin, baseline=baseline))
    return _Tested(model, test.X, test.y, Scored(len(table.y), merged))


def _measured(tested: _Tested, settings: TrainSettings) -> dict[str, Any]:
    """Return the entries of the model description that are computed from the rows on which the model was scored."""
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


def _print_summary(console: Console, model: TableModel, scored: Scored, out: Path) -> None:
    """Print the model, its scores and the files that were written."""
    about = model.about
    rows = about["rows"]
    print_summary(console, model)
    warning = verdict(scored.scores, model.task)
    if warning is not None:
        console.print(f"[yellow]{escape(warning)}[/yellow]")
    if "coverage" in about:
        found = about["coverage"]
        what = f"intervals of mean width {found['size']:.3g}"
        if model.task != "regression":
            what = f"sets of {found['size']:.2f} classes on average"
        console.print(f"{found['held_out']:.1%} of held-out rows lie in {what}; {found['asked']:.0%} was requested")
    how = f"fitted to {rows['saved']:,} rows"
    if rows["saved"] > rows["train"]:
        how = f"fitted again to all {rows['saved']:,} rows; the scores are those of the model of {rows['train']:,} rows"
    console.print(f"Model  [bold]{escape(str(out))}[/bold], {how}")
    console.print(f"Card   [bold]{escape(str(card_path(out)))}[/bold]")


def _add_importance(model: TableModel, tested: _Tested, settings: TrainSettings, times: _Times, console: Console) -> None:
    """Measure the importance of the columns on the test rows, and save `model` again with the result if time is left."""
    default = "r2" if model.task == "regression" else "log-loss" if model.has_probabilities else "accuracy"
    metric = settings.metric or default
    measured: dict[str, float] = {}
    has_time = time.perf_counter() < times.deadline
    if has_time:
        y = model.parse_targets(tested.y)
        with StepDisplay(console) as notify:
            options: dict[str, Any] = {"metric": metric, "seed": settings.seed, "notify": notify}
            measured = importance(tested.model, tested.X, y, seconds=times.importance, deadline=times.deadline, **options)
    model.about.update(importance_metric=metric, importance=measured)
    if has_time:
        _save(model, settings.out)
    most = [f"{name} {value:.3g}" for name, value in measured.items() if value > 0][:_SHOWN_COLUMNS]
    if not measured:
        console.print("[dim]the importance of columns was not measured: no time was left, or the targets are equal[/dim]")
    if most:
        console.print(escape(f"Most important columns (increase of the loss if permuted): {', '.join(most)}"))


def fit_model(table: TrainingTable, settings: TrainSettings, notify: Notify, seconds: float | None = None) -> TableModel:
    """Return a model that is fitted to a table, with a description of the training; `seconds` limits the time of the fit."""
    with input_errors():  # the estimator raises ValueError for an invalid setting
        if table.is_sparse:
            pipeline, about = _fit_sparse(table, settings, notify)
        else:
            pipeline, about = _fit_table(table, settings, notify, seconds)
    robust = getattr(pipeline[-1], "loss_", "squared_error") != "squared_error"
    types = table.columns.type_of
    counts = Counter(types.values())
    about = {
        "gramless": __version__,
        "versions": versions(),
        "data": settings.data.name,
        "data_sha256": checksum(settings.data),
        "target": settings.target,
        "task": table.task,
        "rows": {"train": len(table.y)},
        "columns": {
            "numbers": counts["number"],
            "words": counts["category"],
            **{f"{kind}s": counts[kind] for kind in ("date", "text") if counts[kind]},
            "left_out": table.columns.left_out_,
        },
        **about,
        **constant_prediction(table.y, table.task, median=robust),
        **({} if table.first_column is None else {"counts_from": table.first_column}),
    }
    return TableModel(pipeline, types, settings.target, table.task, about, formats=table.columns.formats_)


def refitted(model: TableModel, table: TrainingTable, settings: TrainSettings, notify: Notify) -> TableModel:
    """Return a copy of `model` that is fitted to all rows of the table with the same settings; `model` is not changed."""
    lacks_class = table.task == "classification" and not np.array_equal(np.unique(table.y), model.classes_)
    has_logarithms = any(member.log for member in getattr(model.estimator, "members_", []))
    if lacks_class or (has_logarithms and table.y.min() <= 0):
        return fit_model(table, settings, notify)  # held-out rows have a further class or a target without logarithm
    notify(f"fitting the settings to all {len(table.y):,} rows")
    began = time.perf_counter()
    if table.is_sparse:
        pipeline = clone(model.pipeline).set_params(model__C=model.about["settings"]["C"])
        _fit_pipeline(pipeline, table)
    else:
        estimator = copy.copy(model.estimator).refit(table.X, table.y, sample_weight=table.weights)
        pipeline = Pipeline([("model", estimator)])
    return replace(model, pipeline=pipeline, about=model.about | {"refit_seconds": time.perf_counter() - began})


def _fit_table(
    table: TrainingTable, settings: TrainSettings, notify: Notify, seconds: float | None
) -> tuple[Pipeline, dict[str, Any]]:
    """Fit `TableClassifier` or `TableRegressor` to columns whose types were determined from all rows of the file."""
    same_names = ("estimator", "C", "gamma", "preset", "tune", "device", "memory_budget")
    options: dict[str, Any] = {name: getattr(settings, name) for name in same_names}
    if table.task == "classification":
        options |= {"probability": settings.proba, "class_weight": parse_class_weights(settings.class_weight, table.y)}
    else:
        options["loss"] = settings.loss
    cls: Any = gramless.TableClassifier if table.task == "classification" else gramless.TableRegressor
    estimator = cls(
        kernel=settings.kernel or "auto",
        column_types=table.columns.type_of,
        time_budget=seconds,
        callback=lambda _, record: notify(record["message"]),
        random_state=settings.seed,
        **options,
    )
    estimator.fit(table.X, table.y, sample_weight=table.weights)
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
    return Pipeline([("model", estimator)]), about


def _single_settings(model: Any) -> dict[str, Any]:
    gamma = None if model.kernel == "linear" else float(model.gamma)
    return {"kernel": model.kernel, "C": float(getattr(model, "C_", model.C)), "gamma": gamma}


def _fit_sparse(table: TrainingTable, settings: TrainSettings, notify: Notify) -> tuple[Pipeline, dict[str, Any]]:
    """Fit a Nyström model, or the model that `--estimator` names, to sparse columns divided by their largest value."""
    y, name = table.y, "nystrom" if settings.estimator == "auto" else settings.estimator
    classifier = table.task == "classification"
    proba = settings.proba if settings.proba is not None else name != "svm"
    began = time.perf_counter()
    notify("tuning by leave-one-out")
    kernel = settings.kernel or "rbf"
    C, gamma = _sparse_settings(MaxAbsScaler().fit_transform(table.X), y, classifier, name, kernel, settings)
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
    pipeline = _fit_pipeline(Pipeline([("prepare", MaxAbsScaler()), ("model", model)]), table)
    about = {
        "estimator": type(model).__name__,
        "why": f"{len(y):,} sparse rows",
        "settings": _single_settings(model),
        "reductions": [],
        "tuned": "no" if settings.tune == "none" else "leave-one-out of a Nystrom model",
        "tune_seconds": tuned - began,
        "fit_seconds": time.perf_counter() - tuned,
    }
    return pipeline, about


def _fit_pipeline(pipeline: Pipeline, table: TrainingTable) -> Pipeline:
    pipeline.fit(table.X, table.y, model__sample_weight=table.weights)
    if hasattr(pipeline[-1], "finish"):
        pipeline[-1].finish()  # delete the sums that only further calls of partial_fit need
    return pipeline


def _sparse_settings(
    X: Any, y: np.ndarray, classifier: bool, name: str, kernel: str, settings: TrainSettings
) -> tuple[Any, float | None]:
    """Return `C` and `gamma` for sparse rows; a value that is not given minimises the leave-one-out error on a sample."""
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


def parse_class_weights(text: str | None, labels: np.ndarray) -> Any:
    """Return the parameter `class_weight` of an estimator from an option such as "balanced" or "yes=5,no=1"."""
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
