"""What `gramless train` saves: preparation and machine in one pipeline, and what the columns were."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

import gramless
from gramless.program.columns import Columns, as_known, unseen
from gramless.program.errors import InputError


class TableModel(BaseEstimator):
    """A fitted pipeline for tables, with the names of the columns it needs.

    Parameters
    ----------
    pipeline : Pipeline
        Fitted: steps ``prepare`` and ``machine``.
    numbers, words : list of str
        The columns it needs, by kind; both empty for sparse data.
    target : str or None
        The column it predicts.
    task : {"classification", "regression"}
        What it predicts.
    about : dict
        How it was made, in plain JSON.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        numbers: list[str],
        words: list[str],
        target: str | None,
        task: str,
        about: dict[str, Any],
    ):
        self.pipeline = pipeline
        self.numbers = numbers
        self.words = words
        self.target = target
        self.task = task
        self.about = about

    @property
    def columns(self) -> Columns:
        """The columns this model needs."""
        return Columns(list(self.numbers), list(self.words))

    @property
    def classes(self) -> np.ndarray:
        """The labels, in the order of the columns of the probabilities."""
        return self.pipeline.named_steps["machine"].classes_

    @property
    def n_features(self) -> int | None:
        """Columns of the sparse matrix it was trained on; None for tables."""
        return None if self.numbers or self.words else int(self.pipeline.n_features_in_)

    def ready(self, X: Any, origin: str) -> Any:
        """The rows of a table as the pipeline wants them, or an error that says what is missing."""
        return as_known(X, self.columns, origin)

    def unseen(self, ready: Any) -> dict[str, int]:
        """How many values of each text column were never seen in training."""
        return unseen(self.pipeline.named_steps["prepare"], ready, self.columns)


def save_model(model: TableModel, path: str | os.PathLike) -> None:
    """Write a model to a file that cannot run code when it is read."""
    gramless.save(model, path)


def load_model(path: str | os.PathLike) -> TableModel:
    """Read a model that `gramless train` wrote."""
    try:
        model = gramless.load(path)
    except (FileNotFoundError, IsADirectoryError, ValueError) as reason:
        raise InputError(str(reason)) from reason
    if not isinstance(model, TableModel):
        raise InputError(
            f"{path} holds a {type(model).__name__}, not a model for tables: load it in Python with gramless.load"
        )
    return model
