"""Fits of `gramless train`: the settings of the command as an estimator that is fitted to rows of the training table."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler

import gramless
from gramless._version import __version__
from gramless.cli.errors import InputError
from gramless.cli.model import TableModel
from gramless.cli.options import TrainSettings
from gramless.cli.scores import constant_prediction
from gramless.cli.table_files import checksum, quoted_names
from gramless.cli.training_table import TrainingTable
from gramless.estimators.table import single_model
from gramless.papers.experiments.environment import versions

# Multiples of gamma="scale" that are compared for sparse data, and the rows on which they are compared.
_SPARSE_WIDTHS = (1.0, 0.1, 0.3, 3.0, 10.0)
_SPARSE_ROWS, _SPARSE_LANDMARKS = 4000, 1000

Notify = Callable[[str], None]


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


def fit_model(table: TrainingTable, settings: TrainSettings, notify: Notify, seconds: float | None = None) -> TableModel:
    """Return a model that is fitted to a table, with the description of its training; `seconds` is the budget of the fit."""
    try:
        if table.is_sparse:
            pipeline, about = _fit_sparse(table, settings, notify)
        else:
            pipeline, about = _fit_table(table, settings, notify, seconds)
    except ValueError as reason:  # the estimator rejects a setting, and its message gives the reason
        raise InputError(str(reason)) from reason
    robust = getattr(pipeline[-1], "loss_", "squared_error") != "squared_error"
    columns = table.columns
    types = {} if columns is None else columns.type_of
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
            "left_out": {} if columns is None else columns.left_out_,
        },
        **about,
        **constant_prediction(table.y, table.task, median=robust),
        **({} if table.first_column is None else {"counts_from": table.first_column}),
    }
    formats = {} if columns is None else columns.formats_
    return TableModel(pipeline, types, settings.target, table.task, about, formats=formats)


def refitted(model: TableModel, table: TrainingTable, settings: TrainSettings, notify: Notify) -> TableModel:
    """Return a model with the same settings that is fitted to all rows of the table; the given model is not changed."""
    if table.task == "classification" and not np.array_equal(np.unique(table.y), model.classes_):
        return fit_model(table, settings, notify)  # the training rows lack a class
    has_logarithms = any(member.log for member in getattr(model.estimator, "members_", []))
    if has_logarithms and table.y.min() <= 0:
        return fit_model(table, settings, notify)  # the training rows lack a target without a logarithm
    notify(f"fitting the settings to all {len(table.y):,} rows")
    began = time.perf_counter()
    if table.is_sparse:
        pipeline = clone(model.pipeline)
        if hasattr(model.estimator, "C_"):
            pipeline.set_params(model__C=float(model.estimator.C_))
        _fit_pipeline(pipeline, table)
    else:
        estimator = copy.copy(model.estimator).refit(table.X, table.y, sample_weight=table.weights)
        pipeline = Pipeline([("model", estimator)])
    return replace(model, pipeline=pipeline, about=model.about | {"refit_seconds": time.perf_counter() - began})


def _fit_table(
    table: TrainingTable, settings: TrainSettings, notify: Notify, seconds: float | None
) -> tuple[Pipeline, dict[str, Any]]:
    """Fit `TableClassifier` or `TableRegressor` to columns whose types were determined from all rows of the file."""
    assert table.columns is not None
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
    """Fit a Nystrom model, or the requested single model, to sparse columns divided by their largest value."""
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
