"""The models that `gramless train` saves: their base class, and the model for tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

import gramless
from gramless.cli.errors import InputError, input_errors, is_pictures, readable
from gramless.cli.scores import Score, confusion, probability_scores, score
from gramless.cli.table_files import BATCH_ROWS, batches, checksum, labels, quantities, select_rows
from gramless.estimators.novelty import NystromNovelty
from gramless.tables.column_types import USED_KINDS, CellError, TableColumns, category_name

# Largest and smallest number of training rows of the novelty detector, and its false-positive rate.
_NOVELTY_ROWS = 10_000
_FEWEST_ROWS = 40
_FALSE_ALARMS = 0.01


class Reason(NamedTuple):
    """Reason why a row is unlike the training rows, and the column of the unusual value ("" if the full row is unusual)."""

    column: str
    reason: str

    def __str__(self) -> str:
        return f"{self.column} {self.reason}".strip()


FAR = Reason("", "far from all training rows")
OUT_OF_RANGE = "out of range"
UNSEEN = "unseen category"


class Scored(NamedTuple):
    """Number of scored rows, scores; for classification, also confusion matrix and number of rows of unknown classes."""

    rows: int
    scores: list[Score]
    confusion: dict[str, Any] | None = None
    unknown: int = 0


# Typed rows are rows with the columns of the model, converted to their types: number, category, date or text.
# A batch: typed rows or images, their targets or None, and the input columns that `predict --keep` copies to its output.
Batch = tuple[Any, np.ndarray | None, Any]


def typed_frame(X: pd.DataFrame, columns: TableColumns, origin: str) -> pd.DataFrame:
    """Return the columns of `X` that a model uses, converted to their types; the index of `X` is the row number, from 0."""
    missing = [name for name in columns.type_of if name not in X.columns]
    if missing:
        raise ValueError(f"{origin} lacks the columns {', '.join(map(repr, missing))}, which the model was trained on")
    with cell_errors(X, origin):
        return pd.DataFrame(columns.typed(X), index=X.index)


@contextmanager
def cell_errors(X: pd.DataFrame, origin: str) -> Iterator[None]:
    """Context manager that adds the file and the row number to the message of a `CellError`."""
    try:
        yield
    except CellError as wrong:
        row = f"{origin}, row {X.index[wrong.row] + 1:,}"
        raise ValueError(f"{row}, column {wrong.column!r}: {wrong.value!r} {wrong.problem}") from wrong


class SavedModel(BaseEstimator):
    """Base class of the models that `gramless train` saves."""

    # Words for the input (`source`) and its elements (`unit`) in messages, and the number of elements in a batch.
    source, unit, batch_size = "file", "rows", BATCH_ROWS
    task: str
    target: str | None
    about: dict[str, Any]

    @property
    def predictor(self) -> Any:
        """Fitted estimator or pipeline that predicts batches."""
        raise NotImplementedError

    def read(self, data: Path, target: str | None, size: int | None) -> Iterator[Batch]:
        """Yield the rows of a file or folder in batches of at most `size`, or as one batch if `size` is None."""
        raise NotImplementedError

    def read_labelled(self, data: Path, target: str | None, size: int | None) -> Iterator[tuple[Any, np.ndarray, int]]:
        """Yield, for each batch, the rows with a target, their targets, and the number of rows without a target."""
        found = 0
        for X, y, _ in self.read(data, target, size):
            if y is None:
                raise InputError(f"{data} has no target: name the column with --target")
            known = np.flatnonzero(~pd.isna(y))
            found += len(known)
            yield select_rows(X, known), y[known], len(y) - len(known)
        if not found:
            raise InputError(f"{data} has no target in any row: nothing can be scored")

    def was_trained_on(self, data: Path) -> bool:
        """Return True if the model was trained on this file or folder."""
        raise NotImplementedError

    def describe_inputs(self) -> str:
        """Return a phrase for the model card that describes the inputs, such as the number of columns of each type."""
        raise NotImplementedError

    @property
    def classes_(self) -> np.ndarray:
        """Class labels, in the order of the columns of the probabilities."""
        return self.predictor.classes_

    @property
    def class_shares(self) -> np.ndarray:
        """Relative frequencies of the classes in the training rows."""
        return np.array(self.about.get("class_shares", []))

    @property
    def has_probabilities(self) -> bool:
        """True if the model predicts class probabilities."""
        wanted = self.about.get("probabilities", True)
        return self.task == "classification" and wanted and hasattr(self.predictor, "predict_proba")

    def novelty_reasons(self, X: Any, *, far: bool = True) -> list[list[Reason]]:
        """Return the reasons why each row is unlike the training rows; `far` adds large distances from training rows."""
        return [[] for _ in range(X.shape[0])]

    def scored(self, batches: Iterable[tuple[Any, np.ndarray]], seed: int = 0) -> Scored:
        """Return the scores of the model on batches of typed rows and their targets, and the number of rows."""
        methods = [self.predictor.predict, *([self.predictor.predict_proba] if self.has_probabilities else [])]
        found = [[self.parse_targets(y), *(method(X) for method in methods)] for X, y in batches]
        y, predicted, *probabilities = map(np.concatenate, zip(*found, strict=True))
        if self.task == "regression":
            return Scored(len(y), score(y, predicted, task=self.task, guess=self.about["guess"], seed=seed))
        classes, shares = self.classes_, self.class_shares
        if y.dtype.kind not in "iuf" or classes.dtype.kind not in "iuf":
            y, predicted, classes = (np.array([category_name(label) for label in one]) for one in (y, predicted, classes))
        known_class = np.isin(y, classes)
        if not known_class.any():
            known, given = (", ".join(map(repr, map(str, some[:5]))) for some in (classes, np.unique(y)))
            what = f"no label in the {self.source} is a class of the model"
            raise InputError(f"{what}: the model has {known}; the {self.source} has {given}")
        scores = score(y, predicted, task=self.task, guess=classes[shares.argmax()])
        for chances in probabilities:
            scores += probability_scores(y, classes, chances, shares)
        return Scored(len(y), scores, confusion(y, predicted), int(np.sum(~known_class)))

    def parse_targets(self, y: np.ndarray) -> np.ndarray:
        """Return targets of a file as float64, or as labels that can be compared with the labels of the model."""
        if self.task == "regression":
            return quantities(y, "the model predicts a quantity, and the target")
        return labels(y)


@dataclass(eq=False, repr=False)
class TableModel(SavedModel):
    """Fitted pipeline for tables, with the types of its columns.

    Parameters
    ----------
    pipeline : Pipeline
        Fitted pipeline: a table estimator, or for sparse data a `MaxAbsScaler` followed by an estimator.
    column_types : dict of str
        Types of the input columns by name; empty for sparse data.
    target : str or None
        Name of the predicted column.
    task : {"classification", "regression"}
        Kind of prediction.
    about : dict
        Description of training and scores as JSON.
    novelty : NystromNovelty or None
        Detector of rows that are far from all training rows; None for sparse data and for small tables.
    formats : dict of str
        Formats of dates and numbers in files, by column, as in `TableColumns.formats_`.
    """

    pipeline: Pipeline
    column_types: dict[str, str]
    target: str | None
    task: str
    about: dict[str, Any]
    novelty: NystromNovelty | None = None
    formats: dict[str, str] = field(default_factory=dict)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the attributes of a saved model; files of version 0.1.0 have a list of names for each column type."""
        old = {"numbers": "number", "words": "category", "dates": "date"}
        if "column_types" not in state:
            lists = {kind: state.pop(name, None) or [] for name, kind in old.items()}
            state["column_types"] = {name: kind for kind, names in lists.items() for name in names}
        state.setdefault("novelty", None)
        if "formats" not in state:
            state["formats"] = getattr(getattr(state["pipeline"][-1], "columns_", None), "formats_", {})
        super().__setstate__(state)

    def predict(self, X: Any) -> np.ndarray:
        """Return the class or the value of each row of a DataFrame (pandas, polars, arrow) or dict of columns."""
        return np.asarray(self.pipeline.predict(self._rows(X)))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return class probabilities, in the order of `classes_`, for a DataFrame or dict of columns."""
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
        elif self.column_types:
            raise TypeError(f"this model takes a DataFrame with the columns {', '.join(map(repr, self.column_types))}")
        return self.ready(X, "X")

    @property
    def predictor(self) -> Pipeline:
        """Fitted pipeline, which takes typed rows."""
        return self.pipeline

    @property
    def estimator(self) -> Any:
        """Fitted estimator, which is the last step of the pipeline."""
        return self.pipeline[-1]

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        about = self.about
        target = about.get("target") or "y"
        rows = about.get("rows", {}).get("train")
        scored = [f"{one['metric']} {one['value']:.3g}" for one in about.get("scores", [])[:1] if one["value"] is not None]
        parts = [f"{about.get('estimator')} for {self.task} of {target!r}", f"{len(self.column_types)} columns"]
        parts += [] if rows is None else [f"{rows:,} rows"]
        return f"<TableModel: {', '.join(parts + scored)}>"

    def describe_inputs(self) -> str:
        """Return the number of columns of each type."""
        if self.n_features is not None:
            return f"{self.n_features:,} sparse columns"
        counts = Counter(self.column_types.values())
        return ", ".join(f"{counts[kind]} {kind} column{'s' * (counts[kind] != 1)}" for kind in USED_KINDS if counts[kind])

    @property
    def n_features(self) -> int | None:
        """Number of columns of the sparse training matrix; None for tables."""
        return None if self.column_types else int(self.pipeline.n_features_in_)

    @property
    def can_cover(self) -> bool:
        """True if the model has prediction intervals or prediction sets."""
        if self.task == "regression":
            return hasattr(self.estimator, "predict_interval")
        return hasattr(self.estimator, "predict_set") and self.has_probabilities

    def regions(self, X: Any, coverage: float, seed: int = 0) -> np.ndarray:
        """Return intervals, or sets of classes, that contain the targets of new rows with probability `coverage`."""
        if not self.can_cover:
            name = self.about.get("estimator") or type(self.estimator).__name__
            kind, option = ("intervals", "") if self.task == "regression" else ("sets", "--proba and ")
            raise InputError(f"{name} has no {kind}: train with {option}--estimator table, lssvm or nystrom")
        X = self._transformed(X)
        if self.task == "regression":
            return self.estimator.predict_interval(X, coverage)
        return self.estimator.predict_set(X, coverage, random_state=seed)

    def measured_coverage(self, X: Any, y: np.ndarray, coverage: float) -> dict[str, float]:
        """Return requested and measured coverage, and the mean width of intervals or the mean number of classes in a set."""
        truth, found = self.parse_targets(y), self.regions(X, coverage)
        if self.task == "regression":
            low, high = found.T
            inside, sizes = (low <= truth) & (truth <= high), high - low
        else:
            right = self.classes_.astype(str)[None, :] == truth.astype(str)[:, None]
            inside, sizes = (found & right).any(axis=1), found.sum(axis=1)
        return {"asked": coverage, "held_out": float(np.mean(inside)), "size": float(np.mean(sizes))}

    def _transformed(self, X: Any) -> Any:
        return self.pipeline[:-1].transform(X) if len(self.pipeline) > 1 else X

    def prepared(self, X: Any) -> np.ndarray:
        """Return typed rows as the matrix of scaled columns on which the kernel is evaluated."""
        estimator = self.estimator
        if not hasattr(estimator, "columns_"):
            return np.asarray(self._transformed(X))
        preparation = estimator.preparation_ or estimator.members_[0].preparation
        return estimator.columns_.encode(X).prepared(preparation)

    def learn_novelty(self, X: Any, seed: int) -> None:
        """Fit the novelty detector to typed training rows, unless they are sparse or fewer than `_FEWEST_ROWS`."""
        if not self.column_types or len(X) < _FEWEST_ROWS:
            return
        sample = np.random.default_rng(seed).permutation(len(X))[:_NOVELTY_ROWS]
        detector = NystromNovelty(false_alarms=_FALSE_ALARMS, random_state=seed)
        self.novelty = detector.fit(self.prepared(X.iloc[sample]))

    def novel(self, X: Any) -> np.ndarray | None:
        """Return a mask of the typed rows that are far from all training rows; None if the model has no novelty detector."""
        return None if self.novelty is None else self.novelty.predict(self.prepared(X)) < 0

    def novelty_reasons(self, X: Any, *, far: bool = True) -> list[list[Reason]]:
        """Return unusual values of each typed row (none for sparse data); `far` adds the result of the novelty detector."""
        found = find_unusual_values(self)(X) if self.column_types else super().novelty_reasons(X)
        novel = self.novel(X) if far else None
        for row in [] if novel is None else np.flatnonzero(novel):
            found[row].append(FAR)
        return found

    def read(self, data: Path, target: str | None, size: int | None) -> Iterator[Batch]:
        """Yield batches of a file: typed rows, targets or None, and the same rows as they are in the file."""
        if target in self.column_types:
            raise InputError(f"{target!r} is an input column of the model and cannot be the target")
        options: dict[str, Any] = {"n_features": self.n_features, "first_column": self.about.get("counts_from")}
        is_empty = True
        for rows in batches(data, target, size=size, strings=self.string_columns(target), held_out=True, **options):
            if len(rows):
                is_empty = False
                with input_errors():
                    typed = self.ready(rows.X, str(data))
                yield typed, rows.y, rows.X
        if is_empty:
            raise InputError(f"{data} has no rows")

    def string_columns(self, target: str | None) -> list[str]:
        """Return the names of the columns that must be read from text as strings, even if all values look like numbers."""
        found = [name for name, kind in self.column_types.items() if kind == "category"]
        found += [name for name, form in self.formats.items() if form == "decimal comma"]
        has_string_classes = self.task == "classification" and self.classes_.dtype.kind in "OU"
        return [*found, target] if target is not None and has_string_classes else found

    def was_trained_on(self, data: Path) -> bool:
        """Return True if the model was trained on a file with this content."""
        return checksum(data) == self.about.get("data_sha256")

    def ready(self, X: Any, origin: str) -> Any:
        """Return the rows of a file with the columns and types of the model; raise ValueError if a column is missing."""
        if isinstance(X, pd.DataFrame) != bool(self.column_types):
            formats = ("a table with named columns", "svmlight data")
            found, expected = formats if isinstance(X, pd.DataFrame) else formats[::-1]
            raise ValueError(f"{origin} is {found}, and the model was trained on {expected}")
        return X if not self.column_types else typed_frame(X, TableColumns.of_types(self.column_types, self.formats), origin)


def load_any(path: Path) -> Any:
    """Load a model file of any kind; raise `InputError` if the file cannot be read as a model."""
    with input_errors("", OSError):
        return gramless.load(readable(path))


def find_unusual_values(model: TableModel) -> Callable[[Any], list[list[Reason]]]:
    """Return a function that finds, in each row, values outside of the training range and categories new to the model."""
    ranges: dict[str, np.ndarray] = {}
    levels: dict[str, frozenset[str]] = {}
    for record in model.about.get("inputs", []):
        name, kind = record["name"], model.column_types.get(record["name"])
        if kind == "category" and len(record["levels"]) == record["distinct"]:
            levels[name] = frozenset(record["levels"])
        elif kind in ("number", "date") and record["low"] is not None:  # None: all training values are missing
            dtype = np.float64 if kind == "number" else "datetime64[us]"
            ranges[name] = np.array([record["low"], record["high"]], dtype=dtype)
    columns_of_model = getattr(model.estimator, "columns_", None)
    if columns_of_model is not None:
        names = [name for name, kind in columns_of_model.type_of.items() if kind == "category"]
        for name, known in zip(names, columns_of_model.levels_, strict=True):
            # The records describe all rows of the training file, but list only the most common categories of a column.
            levels[name] = levels.get(name, frozenset()).union(known.tolist())

    def unusual(columns: Any) -> list[list[Reason]]:
        found: list[list[Reason]] = [[] for _ in range(len(columns[next(iter(columns))]))]
        for name in columns:
            values = np.asarray(columns[name])
            if name in ranges:
                low, high = ranges[name]
                rows, reason = np.flatnonzero((values < low) | (values > high)).tolist(), OUT_OF_RANGE
            else:
                known, reason = levels.get(name), UNSEEN
                rows = [row for row, value in enumerate(values) if value == value and value not in known] if known else []
            for row in rows:
                found[row].append(Reason(name, reason))
        return found

    return unusual


def load_model(path: Path, data: Path) -> SavedModel:
    """Load a model file; raise `InputError` if the model is not for the kind of `data`, which is a table or pictures."""
    model = load_any(path)
    if is_pictures(data) and getattr(model, "unit", None) != "pictures":
        raise InputError(f"{path} is not a model for pictures: train one with `gramless train FOLDER`")
    if not is_pictures(data) and not isinstance(model, TableModel):
        raise InputError(
            f"{path} contains a {type(model).__name__}, not a model for tables: load it in Python with gramless.load"
        )
    return model
