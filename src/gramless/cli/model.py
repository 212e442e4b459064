"""What `gramless train` saves: preparation and machine in one pipeline, and what the columns were."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

import gramless
from gramless.cli.columns import Columns, as_known, unseen, word
from gramless.cli.errors import InputError, check_readable
from gramless.cli.scores import Score, log_loss, roc_auc, score
from gramless.estimators.novelty import NystromNovelty

_NUMBERS = "iuf"
# Rows that say where training was, and how often one from there is taken for a stranger.
_NOVELTY_ROWS = 10_000
_FEWEST_ROWS = 40
_FALSE_ALARMS = 0.01


class TableModel(BaseEstimator):
    """A fitted pipeline for tables, with the names of the columns it needs.

    Parameters
    ----------
    pipeline : Pipeline
        Fitted: steps ``prepare`` (where the machine does not prepare its own) and ``machine``.
    numbers, words, dates : list of str
        The columns it needs, by kind; both empty for sparse data.
    target : str or None
        The column it predicts.
    task : {"classification", "regression"}
        What it predicts.
    about : dict
        How it was made, in plain JSON.
    novelty : NystromNovelty or None
        Knows which prepared rows are far from those of training.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        numbers: list[str],
        words: list[str],
        target: str | None,
        task: str,
        about: dict[str, Any],
        dates: list[str] | None = None,
        novelty: NystromNovelty | None = None,
    ):
        self.pipeline = pipeline
        self.numbers = numbers
        self.words = words
        self.target = target
        self.task = task
        self.about = about
        self.dates = dates
        self.novelty = novelty

    def predict(self, X: Any) -> np.ndarray:
        """The class or the quantity of each row.

        Parameters
        ----------
        X : DataFrame (pandas, polars, arrow) or dict of columns
            With the model's columns by name; others may be there too.

        Returns
        -------
        ndarray of shape (n,)
        """
        return np.asarray(self.pipeline.predict(self._rows(X)))

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, in the order of `classes_`.

        Parameters
        ----------
        X : DataFrame (pandas, polars, arrow) or dict of columns

        Returns
        -------
        ndarray of shape (n, n_classes)
        """
        if not self.has_probabilities:
            raise AttributeError(f"this model for {self.task} was trained without probabilities")
        return np.asarray(self.pipeline.predict_proba(self._rows(X)))

    def _rows(self, X: Any) -> Any:
        if hasattr(X, "to_pandas"):
            X = X.to_pandas()
        elif isinstance(X, dict):
            X = pd.DataFrame(X)
        if isinstance(X, pd.DataFrame):
            X = X.reset_index(drop=True)
        elif self.columns.used:
            raise TypeError(f"this model takes a DataFrame with the columns {', '.join(map(repr, self.columns.used))}")
        try:
            return self.ready(X, "X")
        except InputError as reason:
            raise ValueError(str(reason)) from reason

    @property
    def onnx_source(self) -> Pipeline:
        """What `gramless.to_onnx` writes."""
        return self.pipeline

    @property
    def classes_(self) -> np.ndarray:
        """The labels, in the order of the columns of the probabilities."""
        return self.classes

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        about = self.about
        target = about.get("target") or "y"
        rows = about.get("rows", {}).get("train")
        scored = [f"{one['metric']} {one['value']:.3g}" for one in about.get("scores", [])[:1] if one["value"] is not None]
        parts = [f"{about.get('estimator')} for {self.task} of {target!r}", f"{len(self.columns.used)} columns"]
        parts += [] if rows is None else [f"{rows:,} rows"]
        return f"<TableModel: {', '.join(parts + scored)}>"

    @property
    def columns(self) -> Columns:
        """The columns this model needs."""
        # A model of an earlier version knows no dates.
        return Columns(list(self.numbers), list(self.words), list(getattr(self, "dates", None) or []))

    @property
    def classes(self) -> np.ndarray:
        """The labels, in the order of the columns of the probabilities."""
        return self.pipeline.named_steps["machine"].classes_

    @property
    def names_classes(self) -> bool:
        """Whether its labels are words, which may look like numbers in a file that has only some of them."""
        return self.task == "classification" and self.classes.dtype.kind in "OU"

    @property
    def has_probabilities(self) -> bool:
        """Whether it was trained with probabilities."""
        wanted = self.about.get("probabilities", True)
        return self.task == "classification" and wanted and hasattr(self.pipeline, "predict_proba")

    @property
    def n_features(self) -> int | None:
        """Columns of the sparse matrix it was trained on; None for tables."""
        return None if self.columns.used else int(self.pipeline.n_features_in_)

    def intervals(self, predicted: np.ndarray) -> np.ndarray | None:
        """Low and high ends around predicted quantities that 90 % of rows like the held-out ones lie within; or None."""
        bound = self.about.get("error_90")
        if self.task != "regression" or bound is None:
            return None
        return np.column_stack([predicted - bound, predicted + bound])

    def prediction_intervals(self, X: Any, coverage: float) -> np.ndarray:
        """Ends of intervals that hold the values of new rows with this probability, from leave-one-out residuals."""
        machine = self.pipeline.named_steps["machine"]
        if self.task != "regression":
            raise InputError("the model predicts classes, which have no intervals: ask for --set")
        if not hasattr(machine, "predict_interval"):
            raise InputError(f"{type(machine).__name__} has no intervals: train with --estimator table, lssvm or nystrom")
        return machine.predict_interval(self.pipeline[:-1].transform(X) if len(self.pipeline) > 1 else X, coverage)

    def prediction_sets(self, X: Any, coverage: float, seed: int = 0) -> np.ndarray:
        """Which classes are in sets that hold the true class of new rows with this probability."""
        machine = self.pipeline.named_steps["machine"]
        if self.task != "classification":
            raise InputError("the model predicts a quantity, of which there are no sets: ask for --interval")
        if not hasattr(machine, "predict_set") or not self.has_probabilities:
            raise InputError(
                f"this {type(machine).__name__} has no sets: train with --proba and --estimator table, lssvm or nystrom"
            )
        rows = self.pipeline[:-1].transform(X) if len(self.pipeline) > 1 else X
        return machine.predict_set(rows, coverage, random_state=seed)

    def prepared(self, X: Any) -> np.ndarray:
        """Ready rows as columns of comparable size: what the machine computes with."""
        machine = self.pipeline.named_steps["machine"]
        if hasattr(machine, "columns_"):
            return machine.columns_.encode(X).prepared(machine.members_[0].preparation)
        return np.asarray(self.pipeline[:-1].transform(X))

    def learn_novelty(self, X: Any, seed: int) -> None:
        """Remember where the training rows are; nothing for sparse data, or for rows that are too few."""
        if not self.columns.used or len(X) < _FEWEST_ROWS:
            return
        some = np.random.default_rng(seed).permutation(len(X))[:_NOVELTY_ROWS]
        detector = NystromNovelty(false_alarms=_FALSE_ALARMS, random_state=seed)
        self.novelty = detector.fit(self.prepared(X.iloc[some]))

    def novel(self, X: Any) -> np.ndarray | None:
        """Whether ready rows are far from all that training saw; None where the model does not know."""
        if getattr(self, "novelty", None) is None:
            return None
        detector: Any = self.novelty
        return detector.predict(self.prepared(X)) < 0

    def ready(self, X: Any, origin: str) -> Any:
        """The rows of a table as the pipeline wants them, or an error that says what is missing."""
        return as_known(X, self.columns, origin)

    def unseen(self, ready: Any) -> dict[str, int]:
        """How many values of each text column were never seen in training."""
        machine = self.pipeline.named_steps["machine"]
        known = machine.columns_ if hasattr(machine, "columns_") else self.pipeline.named_steps["prepare"]
        return unseen(known, ready, self.columns)

    def scored(self, batches: Iterable[tuple[Any, np.ndarray]], seed: int = 0) -> tuple[int, list[Score]]:
        """How many ready rows came with their answers, and the scores on all of them."""
        truths, guesses, chances = [], [], []
        for X, y in batches:
            truths.append(self.answers(y))
            guesses.append(self.pipeline.predict(X))
            if self.has_probabilities:
                chances.append(self.pipeline.predict_proba(X))
        y, predicted, guess = np.concatenate(truths), np.concatenate(guesses), self.about["guess"]
        if self.task == "regression":
            return len(y), score(y, predicted, task=self.task, guess=guess, seed=seed)
        classes = self.classes
        if y.dtype.kind not in _NUMBERS or classes.dtype.kind not in _NUMBERS:
            y, predicted, classes = (np.array([word(label) for label in labels]) for labels in (y, predicted, classes))
            guess = word(guess)
        if not np.isin(y, classes).any():
            known, found = (", ".join(map(repr, map(str, labels[:5]))) for labels in (classes, np.unique(y)))
            raise InputError(
                f"no answer in the file is a label that the model knows: it knows {known}; the file has {found}"
            )
        scores = score(y, predicted, task=self.task, guess=guess)
        if chances:
            order = np.argsort(classes)  # numbers as text have another order
            shares = np.array(self.about["class_shares"])[order]
            probabilities = np.concatenate(chances)
            scores.append(log_loss(y, classes[order], probabilities[:, order], shares))
            area = roc_auc(y, classes[1], probabilities[:, 1]) if len(classes) == 2 else None
            scores += [] if area is None else [area]
        return len(y), scores

    def answers(self, y: np.ndarray) -> np.ndarray:
        """Numbers for a quantity, else labels to be compared: a gap elsewhere in the file turns 1 into 1.0."""
        if self.task == "regression":
            try:
                numbers = y.astype(np.float64)
            except (TypeError, ValueError) as reason:
                raise InputError(f"the model predicts a quantity, and an answer is none: {reason}") from reason
            if not np.isfinite(numbers).all():
                raise InputError("the model predicts a quantity, and an answer is infinite")
            return numbers
        return np.array([str(value) for value in y]) if y.dtype.kind == "O" else y


def save_model(model: TableModel, path: str | os.PathLike) -> None:
    """Write a model to a file that cannot run code when it is read."""
    gramless.save(model, path)


def load_model(path: str | os.PathLike) -> TableModel:
    """Read a model that `gramless train` wrote."""
    check_readable(Path(path))
    try:
        model = gramless.load(path)
    except (OSError, ValueError) as reason:
        raise InputError(str(reason)) from reason
    if not isinstance(model, TableModel):
        raise InputError(
            f"{path} holds a {type(model).__name__}, not a model for tables: load it in Python with gramless.load"
        )
    return model
