"""The table of `gramless train`: inputs, target, task, column types, columns with weights, groups and order, and its splits.

Test rows are random rows, random groups, the last rows of an order, or folds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupKFold, GroupShuffleSplit, KFold, StratifiedKFold, train_test_split

from gramless.cli.errors import InputError
from gramless.cli.model import cell_errors, typed_frame
from gramless.cli.options import TrainSettings
from gramless.cli.table_files import (
    FileRows,
    amounts_hint,
    file_format,
    first_names,
    labels,
    no_numbers,
    quantities,
    quoted_names,
    read_file,
    select_rows,
)
from gramless.tables.column_types import TableColumns

Split = tuple[np.ndarray, np.ndarray]
MOST_CLASSES = 100
# Integer targets with at most this many distinct values, and ten rows per value, are classes.
_MOST_INTEGER_CLASSES, _ROWS_PER_CLASS = 20, 10
_FEWEST_ROWS = 10


@dataclass(frozen=True)
class TrainingTable:
    """Table of the training file; `roles` has the columns of weights, groups and order that the options name."""

    X: Any
    y: np.ndarray
    task: str
    columns: TableColumns | None
    roles: dict[str, np.ndarray] = field(default_factory=dict)
    first_column: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_sparse(self) -> bool:
        """True if the inputs are a sparse matrix without column names."""
        return self.columns is None

    @property
    def weights(self) -> np.ndarray | None:
        """Weights of the rows; None if no column of weights was named."""
        return self.roles["weights"].astype(np.float64) if "weights" in self.roles else None

    def take(self, rows: np.ndarray) -> TrainingTable:
        """Return a table with these rows."""
        roles = {role: values[rows] for role, values in self.roles.items()}
        return replace(self, X=select_rows(self.X, rows), y=self.y[rows], roles=roles)


def read_training_table(path: Path, settings: TrainSettings) -> TrainingTable:
    """Read the file `path`, which is that of the settings or a sample of it."""
    target = settings.target
    rows, notes = _with_known_target(read_file(path, target), target, path)
    y, task = _as_target(np.asarray(rows.y), settings.task, repr(target) if target is not None else "the target")
    if settings.task == "auto" and y.dtype.kind in "iuf":
        notes.append(_guessed_task(y, task))
    roles = {role: name for role in ("weights", "groups", "order") if (name := getattr(settings, role)) is not None}
    X = _choose_columns(rows.X, settings, list(roles.values()), path)
    X, values = _take_roles(X, roles, path)
    if not isinstance(X, pd.DataFrame):
        return TrainingTable(X, y, task, None, values, rows.first_column, tuple(notes))
    with cell_errors(X, str(path)):
        columns = TableColumns().fit(X, y)
    if not columns.type_of:
        if not columns.left_out_:
            raise InputError("there is no input column besides the target")
        raise InputError("no column has information: " + "; ".join(f"{k}: {v}" for k, v in columns.left_out_.items()))
    X = typed_frame(X, columns, str(path))
    return TrainingTable(X, y, task, columns, values, None, (*notes, *columns.doubts_, *_describe_columns(columns, X)))


def _with_known_target(rows: FileRows, target: str | None, path: Path) -> tuple[FileRows, list[str]]:
    """Return the rows that have a target, and a note on the rows without one."""
    if rows.y is None:
        if file_format(path) == "npz":
            raise InputError(f"{path} has no array named y or y_train: name the array to predict with --target")
        raise InputError(f"name the column to predict with --target; {path} has {quoted_names(rows.X.columns)}")
    known = np.flatnonzero(~pd.isna(rows.y))
    notes = [f"{len(rows) - len(known):,} rows without {target!r} are left out"] if len(known) < len(rows) else []
    if notes:
        rows = FileRows(select_rows(rows.X, known), rows.y[known], rows.first_column)
    if len(known) < _FEWEST_ROWS:
        plural = "" if len(known) == 1 else "s"
        raise InputError(f"{path} has {len(known)} usable row{plural}; at least {_FEWEST_ROWS} are needed")
    return rows, notes


def find_task(y: np.ndarray, requested: str) -> str:
    """Return the task: strings and few distinct integers are classes, other targets are quantities."""
    if requested in ("classification", "regression"):
        return requested
    if y.dtype.kind not in "iuf":
        return "classification"
    distinct = np.unique(y)
    are_integers = bool(np.all(distinct == np.round(distinct)))
    few = len(distinct) <= min(_MOST_INTEGER_CLASSES, max(2, len(y) // _ROWS_PER_CLASS))
    return "classification" if are_integers and few else "regression"


def _as_target(y: np.ndarray, task: str, name: str) -> tuple[np.ndarray, str]:
    """Return the target as float64, integers or strings, and the task."""
    task = find_task(y, task)
    if task == "regression":
        return quantities(y, name), task
    y = labels(y)
    if y.dtype.kind == "f":
        raise InputError(f"{name} has fractions, which are quantities: use --task regression, or write classes as strings")
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) < 2:
        raise InputError(f"{name} has one value only, {str(classes[0])!r}: there is nothing to predict")
    if len(classes) > MOST_CLASSES or (counts == 1).all():
        raise InputError(f"{name} has {len(classes):,} different values: too many to be classes{_regression_hint(y)}")
    return y, task


def _guessed_task(y: np.ndarray, task: str) -> str:
    """Return a note on the task that was derived from a target of numbers, and on how to change it."""
    distinct = len(np.unique(y))
    if task == "classification":
        return f"the {distinct} values of the target are classes; --task regression predicts a quantity"
    return f"the target, with {distinct:,} values, is a quantity" + (
        "; --task classification predicts classes" if distinct <= MOST_CLASSES else ""
    )


def _regression_hint(y: np.ndarray) -> str:
    """Return the end of an error message: how to predict a quantity, or which value is not a number."""
    if y.dtype.kind != "U":
        return "; a quantity is predicted with --task regression"
    texts = no_numbers(y)
    is_exception = 0 < len(texts) < len(y) / 2
    return amounts_hint(y) or (f", and the value {texts[0]!r} is not a number" if is_exception else "")


def _choose_columns(X: Any, settings: TrainSettings, needed: list[str], origin: Path) -> Any:
    """Return the columns of `--columns` (without it, all) and those `needed` by other options, without those of `--drop`."""
    if not settings.columns and not settings.drop:
        return X
    if not isinstance(X, pd.DataFrame):
        raise InputError(f"{origin} has no named columns: leave out --columns and --drop")
    known = {settings.target, *X.columns}

    def split(options: list[str] | None) -> list[str]:
        names = [[text] if text in known else text.split(",") for text in options or []]
        return [name if name in known else name.strip() for several in names for name in several if name.strip()]

    selected, dropped = split(settings.columns), split(settings.drop)
    unknown = [name for name in [*selected, *dropped] if name not in known]
    if unknown:
        raise InputError(f"{origin} has no column {', '.join(map(repr, unknown))}; it has {quoted_names(X.columns)}")
    both = [name for name in (settings.target, *needed) if name in dropped]
    if both:
        raise InputError(f"--drop removes {both[0]!r}, which another option needs")
    return X[[name for name in X.columns if name in needed or ((not selected or name in selected) and name not in dropped)]]


def _take_roles(X: Any, names: dict[str, str], path: Path) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the inputs without the columns of weights, groups and order, and these columns by role."""
    values: dict[str, np.ndarray] = {}
    for role, name in names.items():
        if not isinstance(X, pd.DataFrame) or name not in X.columns:
            has = quoted_names(X.columns) if isinstance(X, pd.DataFrame) else "numbered columns only"
            raise InputError(f"{path} has no column {name!r} for the {role}; it has {has}")
        column = X[name]
        if column.isna().any():
            raise InputError(f"{path}: the column {name!r} for the {role} has missing values")
        if role == "weights" and not (pd.api.types.is_numeric_dtype(column) and (column >= 0).all() and column.sum() > 0):
            raise InputError(f"{path}: weights must be numbers of at least 0, not all 0, and {name!r} has other values")
        values[role] = _sortable(X, name, as_numbers=role == "order")
    return (X.drop(columns=list(names.values())) if names else X), values


def _sortable(X: pd.DataFrame, name: str, *, as_numbers: bool) -> np.ndarray:
    """Return a column as an array that can be sorted; with `as_numbers`, written dates and numbers are converted."""
    column = X[name]
    typed = TableColumns(text="leave out").fit(X[[name]]).typed(X[[name]]) if as_numbers else {}
    if name in typed:
        return typed[name]
    return (column.astype(str) if column.dtype == object else column).to_numpy()


def _describe_columns(columns: TableColumns, X: pd.DataFrame) -> list[str]:
    """Return one line for each column type and for each reason to leave columns out."""
    by_kind: dict[str, list[str]] = {"number": [], "category": [], "date": [], "text": []}
    for name, kind in columns.type_of.items():
        by_kind[kind].append(f"{name} ({X[name].nunique():,} levels)" if kind == "category" else name)
    headings = {"number": "numbers", "category": "categories", "date": "dates", "text": "texts"}
    lines = [f"{headings[kind]}: {first_names(names, 12)}" for kind, names in by_kind.items() if names]
    by_reason: dict[str, list[str]] = {}
    for name, why in columns.left_out_.items():
        by_reason.setdefault(why, []).append(name)
    return lines + [f"left out {first_names(names, 12)}: {why}" for why, names in by_reason.items()]


def hold_out(y: np.ndarray, roles: dict[str, np.ndarray], task: str, test_size: float, seed: int) -> Split:
    """Return training and test rows; test rows are random rows, random groups, or the last rows of an order."""
    if np.ceil(test_size * len(y)) < 2:
        raise InputError(f"a share of {test_size:g} of {len(y)} rows is one test row: raise --test-size")
    if "order" in roles:
        if "groups" in roles:
            raise InputError("--groups and --order select different test rows: choose one")
        ranked = np.argsort(roles["order"], kind="stable")
        train, test = np.split(ranked, [len(y) - int(np.ceil(test_size * len(y)))])
    elif "groups" in roles:
        if len(np.unique(roles["groups"])) < 2:
            raise InputError("all rows are of one group: nothing can be held out")
        split = GroupShuffleSplit(n_splits=1, test_size=test_size, random_state=seed)
        train, test = next(split.split(y, groups=roles["groups"]))
    else:
        train, test = _random_split(y, task, test_size, seed)
    if task == "classification" and len(np.unique(y[train])) < 2:
        raise InputError(f"the {len(train)} training rows are all of one class: lower --test-size")
    return train, test


def _random_split(y: np.ndarray, task: str, test_size: float, seed: int) -> Split:
    divided, single = np.arange(len(y)), np.empty(0, dtype=int)
    if task == "classification":
        _, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
        # The only row of a class is a training row, because a class without training rows cannot be predicted.
        divided, single = np.flatnonzero(counts[codes] > 1), np.flatnonzero(counts[codes] == 1)
    left = len(divided) - int(np.ceil(test_size * len(divided)))
    if left < 1 or left + len(single) < 2:
        raise InputError(f"a share of {test_size:g} of {len(y)} rows leaves too few training rows: lower --test-size")
    try:
        stratify = y[divided] if task == "classification" else None
        train, test = train_test_split(divided, test_size=test_size, random_state=seed, stratify=stratify)
    except ValueError:  # the training or the test set has fewer rows than classes
        train, test = train_test_split(divided, test_size=test_size, random_state=seed)
    return np.concatenate([train, single]), test


def folds(y: np.ndarray, roles: dict[str, np.ndarray], task: str, cv: int, seed: int) -> Iterator[Split]:
    """Yield training and test rows of each of `cv` folds."""
    if not 2 <= cv <= len(y):
        raise InputError(f"{cv} folds of {len(y):,} rows: choose between 2 and {len(y):,}")
    if "order" in roles:
        raise InputError("--cv divides rows at random and contradicts --order: leave one of them out")
    if "groups" in roles:
        splits = GroupKFold(cv).split(y, groups=roles["groups"])
    elif task == "classification" and np.unique(y, return_counts=True)[1].min() >= cv:
        splits = StratifiedKFold(cv, shuffle=True, random_state=seed).split(y, y)
    else:
        splits = KFold(cv, shuffle=True, random_state=seed).split(y)
    for number, (train, test) in enumerate(splits):
        if task == "classification" and len(np.unique(y[train])) < 2:
            raise InputError(f"the training rows of fold {number + 1} are all of one class: choose fewer folds")
        yield train, test
