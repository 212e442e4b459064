"""`gramless serve`: saved models over HTTP, with a page."""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

import gramless
from gramless.cli.errors import InputError, check_readable
from gramless.cli.model import TableModel
from gramless.deployment.compiled_novelty import compiled_novelty
from gramless.deployment.serving.limits import Limits
from gramless.deployment.serving.scorer import Column, Scores, Table
from gramless.tables.columns import ArrayFrame

TOKEN = "GRAMLESS_TOKEN"
# A model answers for so many rows before it is served: compiled loops of each size are then ready.
_TRIED = (1, 16, 128, 1024)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class TableScorer:
    """A model that `gramless train` made, for a server.

    Parameters
    ----------
    model : TableModel
    """

    def __init__(self, model: TableModel):
        self._model = model
        machine = model.pipeline.named_steps["machine"]
        # A machine for tables is the whole pipeline, and takes rows that were encoded once for all that is asked about them.
        self._encodes = machine.columns_ if hasattr(machine, "columns_") else None
        self._predicts = model.pipeline if self._encodes is None else machine
        self._names = model.columns.used if self._encodes is None else self._encodes.names_
        self._has_probabilities = model.has_probabilities
        detector = getattr(model, "novelty", None)
        self._novelty = None if detector is None else compiled_novelty(detector)
        self.task = model.task
        self.columns = table_columns(model)
        self.classes = model.classes.tolist() if model.task == "classification" else None
        self.about = {key: value for key, value in model.about.items() if key != "inputs"}

    def score(self, table: Table) -> Scores:
        """Predictions of the pipeline, and its probabilities or intervals."""
        model = self._model
        columns = {name: table[name] for name in self._names}
        rows: Any = pd.DataFrame(columns, copy=False) if self._encodes is None else self._encodes.encode(ArrayFrame(columns))
        if self._has_probabilities:
            chances = self._predicts.predict_proba(rows)
            return Scores(model.classes[chances.argmax(axis=1)], chances, novel=self._novel(rows))
        predicted = np.asarray(self._predicts.predict(rows))
        return Scores(predicted, intervals=model.intervals(predicted), novel=self._novel(rows))

    def _novel(self, rows: Any) -> np.ndarray | None:
        return None if self._novelty is None else self._novelty(self._model.prepared(rows))


class ArrayScorer:
    """An estimator that was fitted to an array of numbers, for a server.

    Parameters
    ----------
    model : estimator
        Fitted, or a pipeline that ends with one.
    origin : str
        The file, for sentences.
    """

    def __init__(self, model: Any, origin: str):
        check_is_fitted(model)
        if not hasattr(model, "predict") or not hasattr(model, "n_features_in_"):
            raise InputError(f"{origin} holds a {type(model).__name__}, which cannot be served: it does not predict rows")
        self._model = model
        self.classes = model.classes_.tolist() if hasattr(model, "classes_") else None
        self.task = "regression" if self.classes is None else "classification"
        width = int(model.n_features_in_)
        names = [str(name) for name in getattr(model, "feature_names_in_", [f"x{k}" for k in range(width)])]
        points = getattr(model, "points_", None)
        known = isinstance(points, np.ndarray) and points.ndim == 2 and points.shape[1] == width and len(points) > 0
        ends = (
            np.quantile(np.asarray(points).astype(np.float64), [0.0, 0.5, 1.0], axis=0, method="lower").T if known else None
        )
        self.columns = []
        for k, name in enumerate(names):
            low, typical, high = (None, None, None) if ends is None else ends[k].tolist()
            self.columns.append(Column(name, "number", typical, low, high, gaps=False))
        self._named = hasattr(model, "feature_names_in_")
        self.about: dict[str, Any] = {"estimator": type(model).__name__}

    def score(self, table: Table) -> Scores:
        """Predictions, and probabilities where the model has them."""
        X: Any = np.column_stack([table[column.name] for column in self.columns])
        if self._named:
            X = pd.DataFrame(X, columns=[column.name for column in self.columns])
        predicted = np.asarray(self._model.predict(X))
        return Scores(predicted, self._model.predict_proba(X) if hasattr(self._model, "predict_proba") else None)


def table_columns(model: TableModel) -> list[Column]:
    """The columns of a model, with what training saw in them."""
    kinds = {"number": model.numbers, "word": model.words, "date": model.columns.dates}
    facts = {record["name"]: record for record in model.about.get("inputs", [])}
    found = []
    for kind, names in kinds.items():
        for name in names:
            record = facts.get(name, {})
            known = {key: record.get(key) for key in ("typical", "low", "high")}
            found.append(Column(name, kind, **known, levels=tuple(record.get("levels", ()))))
    return found


def load_scorer(path: Path) -> Any:
    """What a server needs of the model in a file; it must answer for a row."""
    check_readable(path)
    try:
        model = gramless.load(path)
    except (OSError, ValueError) as reason:
        raise InputError(str(reason)) from reason
    if isinstance(model, TableModel) and not model.columns.used:
        raise InputError(f"{path} was trained on sparse data, whose columns have no names: it cannot be served")
    scorer: Any = TableScorer(model) if isinstance(model, TableModel) else ArrayScorer(model, str(path))
    for rows in _TRIED:
        scorer.score({column.name: np.repeat(_any_value(column), rows) for column in scorer.columns})
    return scorer


def _any_value(column: Column) -> np.ndarray:
    if column.kind == "number":
        return np.array([0.0 if column.typical is None else column.typical])
    if column.kind == "date":
        return np.array([column.typical or "2000-01-01"], dtype="datetime64[us]")
    return np.array([np.nan if column.typical is None else column.typical], dtype=object)


def named_files(given: list[str]) -> dict[str, Path]:
    """Models by name, from `model.skops` or `name=model.skops`."""
    files: dict[str, Path] = {}
    for text in given:
        name, mark, path = text.partition("=")
        if not mark or not _NAME.fullmatch(name):
            name, path = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(text).stem), text
        if not _NAME.fullmatch(name):
            raise InputError(f"{text!r} does not make a name: write name={text}")
        if name in files:
            raise InputError(f"two models are named {name!r}: write other-name={path} for one of them")
        files[name] = Path(path)
    return files


def serve_models(
    models: list[str], *, host: str, port: int, watch: float | None, threads: int, limits: Limits, console: Console
) -> None:
    """Load the models and serve them until Ctrl-C or SIGTERM; `threads` compute a prediction."""
    for needed in ("starlette", "uvicorn", "prometheus_client"):
        if importlib.util.find_spec(needed) is None:
            raise InputError(f"serving needs {needed}: pip install 'gramless[serve]'")
    from gramless.deployment.serving import scoring_app, serve

    files = named_files(models)
    token = os.environ.get(TOKEN) or None
    own = is_loopback(host)
    if not own and token is None:
        console.print(
            f"[yellow]{escape(host)} can be reached from other machines, and no token is asked for[/yellow]: set {TOKEN}",
            soft_wrap=True,
        )

    def announce(address: str) -> None:
        told = ", ".join(files)
        console.print(f"Serving {escape(told)} at [bold]{address}[/bold]; Ctrl-C ends it.", highlight=False, soft_wrap=True)

    # BLAS's threads stay awake after each small product, in the way of those that read and write requests.
    with threadpool_limits(limits=threads, user_api="blas"):
        hosts = None if own else ["*"]
        app = scoring_app(files, load_scorer, limits=limits, token=token, hosts=hosts, watch_seconds=watch)
        try:
            serve(app, port, announce, host=host, limits=limits)
        except OSError as reason:
            raise InputError(
                f"{host}:{port} cannot be used ({reason.strerror}): give another --host or --port, or port 0 for any"
            ) from reason


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
