"""`gramless serve` offers saved models over HTTP and on a page; `gramless demo` serves a page that classifies digits."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from gramless.cli.errors import InputError, require
from gramless.cli.model import TableModel, find_unusual_values, load_any
from gramless.cli.options import DemoSettings, ServeSettings
from gramless.deployment.compiled import compiled_novelty
from gramless.deployment.serving.scorer import InputColumn, Scores, Table
from gramless.deployment.tuning import Limits
from gramless.estimators.table import TableClassifier, TableRegressor
from gramless.tables.column_types import USED_KINDS, ArrayFrame

TOKEN = "GRAMLESS_TOKEN"
# Sizes of the batches that are scored before a model is served, so that the loops for each size are compiled in advance.
_WARM_UP_ROWS = (1, 16, 128, 1024)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass
class ModelScorer:
    """Scoring function of a model file, with the task, the input columns and the classes of the model."""

    task: str
    columns: Sequence[InputColumn]
    classes: list[Any] | None
    about: dict[str, Any]
    score: Callable[[Table], Scores]


def table_scorer(model: TableModel) -> ModelScorer:
    """Return the scorer of a model for tables that `gramless train` saved."""
    estimator, names, has_probabilities = model.estimator, list(model.column_types), model.has_probabilities
    # Table estimators accept encoded rows, so rows are encoded once for both predictions and novelty.
    encoder = getattr(estimator, "columns_", None)
    predictor = model.pipeline if encoder is None else estimator
    unusual_values, bound = find_unusual_values(model), model.about.get("error_90")
    is_novel = None if model.novelty is None else compiled_novelty(model.novelty)

    def score(table: Table) -> Scores:
        columns = {name: table[name] for name in names}
        rows: Any = pd.DataFrame(columns, copy=False) if encoder is None else encoder.encode(ArrayFrame(columns))
        unusual = [[reason._asdict() for reason in row] for row in unusual_values(columns)]
        flags: dict[str, Any] = {"novel": None if is_novel is None else is_novel(model.prepared(rows)), "unusual": unusual}
        if has_probabilities:
            probabilities = predictor.predict_proba(rows)
            return Scores(model.classes_[probabilities.argmax(axis=1)], probabilities, **flags)
        predictions = np.asarray(predictor.predict(rows))
        if bound is not None:  # bound on the errors of 90 % of the held-out rows
            flags["intervals"] = np.column_stack([predictions - bound, predictions + bound])
        return Scores(predictions, **flags)

    classes = model.classes_.tolist() if model.task == "classification" else None
    about = {key: value for key, value in model.about.items() if key != "inputs"}
    return ModelScorer(model.task, table_columns(model), classes, about, score)


def array_scorer(model: Any, origin: Path) -> ModelScorer:
    """Return the scorer of a fitted estimator or pipeline whose input is an array of numbers; `origin` is the model file."""
    if not hasattr(model, "predict") or not hasattr(model, "n_features_in_"):
        why = "it has no predict, or it is not fitted"
        raise InputError(f"{origin} contains a {type(model).__name__}, which cannot be served: {why}")
    width = int(model.n_features_in_)
    is_named = hasattr(model, "feature_names_in_")
    names = [str(name) for name in model.feature_names_in_] if is_named else [f"x{k}" for k in range(width)]

    def score(table: Table) -> Scores:
        X: Any = np.column_stack([table[name] for name in names])
        if is_named:
            X = pd.DataFrame(X, columns=names)
        predictions = np.asarray(model.predict(X))
        return Scores(predictions, model.predict_proba(X) if hasattr(model, "predict_proba") else None)

    columns = [
        InputColumn(name, "number", typical, low, high, allows_missing=False)
        for name, (low, typical, high) in zip(names, _column_ranges(model, width), strict=True)
    ]
    classes = model.classes_.tolist() if hasattr(model, "classes_") else None
    task = "regression" if classes is None else "classification"
    return ModelScorer(task, columns, classes, {"estimator": type(model).__name__}, score)


def _column_ranges(model: Any, width: int) -> list[list[float | None]]:
    """Return minimum, median and maximum of each feature over the support points, or None values if there are no points."""
    points = getattr(model, "points_", None)
    if not isinstance(points, np.ndarray) or points.ndim != 2 or points.shape[1] != width or len(points) == 0:
        return [[None, None, None]] * width
    return np.quantile(points.astype(np.float64), [0.0, 0.5, 1.0], axis=0, method="lower").T.tolist()


def table_columns(model: TableModel) -> list[InputColumn]:
    """Return the input columns of a model, with the ranges and categories of the training rows."""
    records = {record["name"]: record for record in model.about.get("inputs", [])}
    found = []
    for name, kind in sorted(model.column_types.items(), key=lambda column: USED_KINDS.index(column[1])):
        record = records.get(name, {})
        known = {key: record.get(key) for key in ("typical", "low", "high")}
        levels, form = tuple(record.get("levels", ())), model.formats.get(name, "")
        found.append(InputColumn(name, kind, **known, levels=levels, format=form))  # type: ignore[arg-type]
    return found


def load_scorer(path: Path) -> ModelScorer:
    """Load a model file and return its scorer; predictions of example rows compile all loops in advance."""
    model = load_any(path)
    if isinstance(model, TableClassifier | TableRegressor):  # saved by `gramless.save`
        check_is_fitted(model, "columns_")
        task = "classification" if isinstance(model, TableClassifier) else "regression"
        about, formats = {"estimator": type(model).__name__}, getattr(model.columns_, "formats_", {})
        model = TableModel(Pipeline([("model", model)]), model.columns_.type_of, None, task, about, formats=formats)
    if isinstance(model, TableModel) and not model.column_types:
        raise InputError(f"{path} was trained on sparse data, whose columns have no names: it cannot be served")
    scorer = table_scorer(model) if isinstance(model, TableModel) else array_scorer(model, path)
    for rows in _WARM_UP_ROWS:
        scorer.score({column.name: np.repeat(_example_value(column), rows) for column in scorer.columns})
    return scorer


def _example_value(column: InputColumn) -> np.ndarray:
    if column.kind == "number":
        return np.array([0.0 if column.typical is None else column.typical])
    if column.kind == "date":
        return np.array([column.typical or "2000-01-01"], dtype="datetime64[us]")
    return np.array([np.nan if column.typical is None else column.typical], dtype=object)


def named_files(arguments: list[str]) -> dict[str, Path]:
    """Return model files by name, from arguments such as `model.skops` or `name=model.skops`."""
    files: dict[str, Path] = {}
    for argument in arguments:
        name, separator, path = argument.partition("=")
        if not separator or not _NAME.fullmatch(name):
            name, path = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(argument).stem), argument
        if not _NAME.fullmatch(name):
            raise InputError(f"no name can be derived from {argument!r}: write name={argument}")
        if name in files:
            raise InputError(f"two models are named {name!r}: write other-name={path} for one of them")
        files[name] = Path(path)
    return files


def serve_models(settings: ServeSettings, console: Console) -> None:
    """Load the models and serve them until Ctrl-C or SIGTERM."""
    require("fastapi", "uvicorn", "prometheus_client", extra="serve")
    from gramless.deployment.serving.app import scoring_app

    files, host = named_files(settings.models), settings.host
    token = os.environ.get(TOKEN) or None
    local = is_loopback(host)
    if not local and token is None:
        console.print(f"[yellow]{escape(host)} can be reached from other computers without a token[/yellow]: set {TOKEN}")
    sizes = {"body_bytes": settings.max_body, "rows": settings.max_rows, "waiting_rows": settings.max_waiting}
    limits = Limits(**sizes, seconds=settings.timeout)
    # Fewer BLAS threads: after each small matrix product, BLAS threads wait actively, which slows the event loop down.
    with threadpool_limits(limits=settings.threads, user_api="blas"):
        hosts = None if local else ["*"]
        app = scoring_app(files, load_scorer, limits=limits, token=token, hosts=hosts, watch_seconds=settings.watch)
        message = f"Serving {escape(', '.join(files))} at [bold]{{}}[/bold]; Ctrl-C stops the server."
        _serve(app, settings.port, message, console, host=host, limits=limits)


def demo(settings: DemoSettings, console: Console, *, rows: int = 5000, atoms: int = 64) -> None:
    """Train on MNIST if available, else on the digits of scikit-learn, and serve a page for drawn digits until Ctrl-C."""
    require("fastapi", "uvicorn", extra="serve")
    from sklearn.datasets import load_digits

    from gramless import ImageClassifier
    from gramless.deployment.serving.drawing import drawing_app
    from gramless.papers.datasets import find, load

    if find("mnist", settings.data) is not None:
        mnist = load("mnist", data=settings.data, download=False).sample(rows)
        images, y, name = mnist.x_train.reshape(-1, 28, 28), mnist.y_train, "MNIST"
    else:
        small = load_digits()
        images, y, name = small.images[:rows] * (255 / 16), small.target[:rows], "scikit-learn"
    with console.status(f"training on {len(y):,} digits of {name}"):
        model = ImageClassifier(n_atoms=atoms, mirror=False, C=10.0, random_state=0).fit(images, y)
    _serve(drawing_app(model), settings.port, "Draw at [bold]{}[/bold]; Ctrl-C stops the server.", console)


def _serve(app: Any, port: int, message: str, console: Console, *, host: str = "127.0.0.1", **options: Any) -> None:
    """Serve until Ctrl-C or SIGTERM; print the message with the address when the server accepts requests."""
    from gramless.deployment.serving.server import serve

    try:
        serve(app, port, lambda address: console.print(message.format(address)), host=host, **options)
    except OSError as reason:
        raise InputError(
            f"port {port} of {host} cannot be used ({reason.strerror}): give another --port, 0 for any, or another --host"
        ) from reason


def is_loopback(host: str) -> bool:
    """Return True if an address can be reached only from this computer."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
