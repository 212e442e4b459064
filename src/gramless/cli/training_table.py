"""The training data of `gramless train`: inputs, target, task, column types, weights, groups and order of rows, and splits.

Test rows are random rows, random groups, the last rows in the order of a column, or the rows of a cross-validation fold.

A file that exceeds the memory budget is read in batches. A random number for each row selects the held-out rows; the number
depends on the seed and on the position of the row only, so that all passes hold out the same rows. The first pass draws a
uniform sample of the training rows, to which a `NystromLSSVC` or `NystromLSSVR` is fitted, as to a small file. The method
`refit_batches` then fits the selected settings to all training rows.
"""

from __future__ import annotations

import bz2
import gzip
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupKFold, GroupShuffleSplit, KFold, StratifiedKFold, train_test_split
from sklearn.utils import compute_class_weight

from gramless._core.memory import format_bytes, parse_budget
from gramless.cli.errors import InputError, input_errors
from gramless.cli.model import TableModel, cell_errors, typed_frame
from gramless.cli.options import TrainSettings
from gramless.cli.table_files import (
    BATCH_FORMATS,
    FileRows,
    amounts_hint,
    batches,
    file_format,
    first_names,
    labels,
    quantities,
    quoted_names,
    read_file,
    select_rows,
)
from gramless.streaming import text
from gramless.tables.column_types import TableColumns

Split = tuple[np.ndarray, np.ndarray]
MOST_CLASSES = 100
# Integer targets are classes if they have at most this number of distinct values, and on average ten rows or more per value.
_MOST_INTEGER_CLASSES, _ROWS_PER_CLASS = 20, 10
_FEWEST_ROWS = 10
# Largest numbers of sample rows and of held-out rows. The standard error of an error rate on 100,000 rows is at most 0.16 %.
_SAMPLE_ROWS, _MOST_HELD_OUT = 50_000, 100_000
# Smallest size of a sample: ten times the smallest number of training rows, because the size of a sample is random.
_FEWEST_SAMPLE_ROWS = 100
# The sample takes at most the memory budget divided by this number, and so do the held-out rows.
_SAMPLE_SHARE = 12
# Number of copies of the table at the memory peak of a fit: with converted types, split, encoded and scaled.
_COPIES = 4
# Number of bytes at the start of a text file from which the number of its lines is estimated.
_PROBED_BYTES = 1 << 20
# A text file is read without a previous estimate of its memory if its size times this number is below the memory budget. A
# compressed text file may be up to twenty times smaller than its text.
_SMALL_SHARE = 1000
# Options of `gramless train` that need all rows in memory.
_NEED_ALL_ROWS = ("cv", "groups", "order", "time", "loss")


@dataclass(frozen=True)
class TrainingTable:
    """Table of the training file; `roles` has the columns that the options for weights, groups and order name."""

    X: Any
    y: np.ndarray
    task: str
    columns: TableColumns
    roles: dict[str, np.ndarray] = field(default_factory=dict)
    first_column: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_sparse(self) -> bool:
        """True if the inputs are a sparse matrix without column names."""
        return not isinstance(self.X, pd.DataFrame)

    @property
    def weights(self) -> np.ndarray | None:
        """Weights of the rows; None if no column of weights was named."""
        return self.roles["weights"].astype(np.float64) if "weights" in self.roles else None

    def take(self, rows: np.ndarray) -> TrainingTable:
        """Return a table with the rows at these positions."""
        roles = {role: values[rows] for role, values in self.roles.items()}
        return replace(self, X=select_rows(self.X, rows), y=self.y[rows], roles=roles)


def read_training_table(path: Path, settings: TrainSettings) -> TrainingTable:
    """Return the table of the file `path`, which is the training file or a file with a sample of its rows."""
    target = settings.target
    rows, notes = _with_known_target(read_file(path, target), target, path)
    y, task, note = _as_target(np.asarray(rows.y), settings.task, "the target" if target is None else repr(target))
    notes += [note] if settings.task == "auto" and y.dtype.kind in "iuf" else []
    roles = {role: name for role in ("weights", "groups", "order") if (name := getattr(settings, role)) is not None}
    X = _choose_columns(rows.X, settings, list(roles.values()), path)
    X, values = _take_roles(X, roles, path)
    if not isinstance(X, pd.DataFrame):
        return TrainingTable(X, y, task, TableColumns.of_types({}), values, rows.first_column, tuple(notes))
    with input_errors(), cell_errors(X, str(path)):
        columns = TableColumns().fit(X, y)
        typed = typed_frame(X, columns, str(path))
    if not columns.type_of:
        if not columns.left_out_:
            raise InputError("there is no input column besides the target")
        raise InputError("no column has information: " + "; ".join(f"{k}: {v}" for k, v in columns.left_out_.items()))
    return TrainingTable(
        typed, y, task, columns, values, None, (*notes, *columns.doubts_, *_describe_columns(columns, typed))
    )


def _with_known_target(rows: FileRows, target: str | None, path: Path) -> tuple[FileRows, list[str]]:
    """Return the rows that have a target, and a note on the number of rows without a target."""
    if rows.y is None:
        if file_format(path) == "npz":
            raise InputError(f"{path} has no array named y or y_train: name the array to predict with --target")
        raise InputError(f"name the column to predict with --target; {path} has {quoted_names(rows.X.columns)}")
    known = np.flatnonzero(~pd.isna(rows.y))
    if len(known) < _FEWEST_ROWS:
        plural = "" if len(known) == 1 else "s"
        raise InputError(f"{path} has {len(known)} usable row{plural}; at least {_FEWEST_ROWS} are needed")
    if len(known) == len(rows):
        return rows, []
    return rows.take(known), [f"{len(rows) - len(known):,} rows without {target!r} are left out"]


def find_task(y: np.ndarray, requested: str) -> str:
    """Return the task: classification for strings and for few distinct integers, and regression for other targets."""
    if requested != "auto":
        return requested
    if y.dtype.kind not in "iuf":
        return "classification"
    distinct = np.unique(y)
    few = len(distinct) <= min(_MOST_INTEGER_CLASSES, max(2, len(y) // _ROWS_PER_CLASS))
    return "classification" if few and np.array_equal(distinct, np.round(distinct)) else "regression"


def _as_target(y: np.ndarray, requested: str, name: str) -> tuple[np.ndarray, str, str]:
    """Return the target as float64, integers or strings, the task, and a note on whether numbers are classes."""
    task = find_task(y, requested)
    if task == "regression":
        numbers = quantities(y, name)
        distinct = len(np.unique(numbers))
        advice = "; --task classification predicts classes" if distinct <= MOST_CLASSES else ""
        return numbers, task, f"the target, with {distinct:,} values, is a quantity{advice}"
    y = labels(y)
    if y.dtype.kind == "f":
        raise InputError(f"{name} has fractions, which are quantities: use --task regression, or write classes as strings")
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) < 2:
        raise InputError(f"{name} has one value only, {str(classes[0])!r}: there is nothing to predict")
    if len(classes) > MOST_CLASSES or (counts == 1).all():
        hint = amounts_hint(y) if y.dtype.kind == "U" else "; a quantity is predicted with --task regression"
        raise InputError(f"{name} has {len(classes):,} different values: too many to be classes{hint}")
    return y, task, f"the {len(classes)} values of the target are classes; --task regression predicts a quantity"


def _choose_columns(X: Any, settings: TrainSettings, needed: list[str], origin: Path) -> Any:
    """Return the columns of the option `--columns` (by default all) except `--drop`, and columns that other options need."""
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
    """Return the inputs without the columns of weights, groups and order, and a dict of the values of these columns."""
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
    """Return a column as an array that can be sorted; with `as_numbers`, strings of dates and numbers are converted."""
    column = X[name]
    typed = TableColumns(text="leave out").fit(X[[name]]).typed(X[[name]]) if as_numbers else {}
    if name in typed:
        return typed[name]
    return (column.astype(str) if column.dtype == object else column).to_numpy()


def _describe_columns(columns: TableColumns, X: pd.DataFrame) -> list[str]:
    """Return one line of text for each column type and for each reason to leave columns out."""
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
    """Return the positions of training and test rows: random rows, random groups, or the last rows in an order."""
    n_test = int(np.ceil(test_size * len(y)))
    if n_test < 2:
        raise InputError(f"a share of {test_size:g} of {len(y)} rows is one test row: raise --test-size")
    if "order" in roles:
        if "groups" in roles:
            raise InputError("--groups and --order select different test rows: choose one")
        train, test = np.split(np.argsort(roles["order"], kind="stable"), [len(y) - n_test])
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
        # If a class has only one row, this is a training row, because a class without training rows cannot be predicted.
        divided, single = np.flatnonzero(counts[codes] > 1), np.flatnonzero(counts[codes] == 1)
    left = len(divided) - int(np.ceil(test_size * len(divided)))
    if left < 1 or left + len(single) < 2:
        raise InputError(f"a share of {test_size:g} of {len(y)} rows leaves too few training rows: lower --test-size")
    try:
        stratify = y[divided] if task == "classification" else None
        train, test = train_test_split(divided, test_size=test_size, random_state=seed, stratify=stratify)
    except ValueError:  # stratification fails if the training or the test set has fewer rows than classes
        train, test = train_test_split(divided, test_size=test_size, random_state=seed)
    return np.concatenate([train, single]), test


def folds(y: np.ndarray, roles: dict[str, np.ndarray], task: str, cv: int, seed: int) -> list[Split]:
    """Return the positions of the training rows and of the test rows of each of `cv` folds."""
    if "order" in roles:
        raise InputError("--cv divides rows at random and contradicts --order: leave one of them out")
    splitter: Any = KFold(cv, shuffle=True, random_state=seed)
    if "groups" in roles:
        splitter = GroupKFold(cv)
    elif task == "classification" and np.unique(y, return_counts=True)[1].min() >= cv:
        splitter = StratifiedKFold(cv, shuffle=True, random_state=seed)
    with input_errors(f"--cv {cv}: "):  # raised if there are more folds than rows or groups
        splits = list(splitter.split(y, y, roles.get("groups")))
    if task == "classification" and any(len(np.unique(y[train])) < 2 for train, _ in splits):
        raise InputError("the training rows of a fold are all of one class: choose fewer folds")
    return splits


@dataclass(frozen=True)
class LargeTable:
    """Table that is read in batches; `sample` is a file with randomly drawn training rows of the table."""

    settings: TrainSettings
    """Options of `gramless train` for the fit to the sample."""
    sample: Path
    n_rows: int
    """Number of training rows of the table."""
    message: str
    held_out_share: float

    def fit(self, model: TableModel, table: TrainingTable, notify: Callable[[str], None]) -> tuple[Any, np.ndarray]:
        """Fit `model`, which was fitted to the sample, to all training rows with the same settings.

        Return the held-out rows and their targets.
        """
        estimator = model.estimator
        if self.settings.class_weight == "balanced":
            values = np.unique(table.y)
            balanced = compute_class_weight("balanced", classes=values, y=table.y)
            estimator.set_params(class_weight=dict(zip(values.tolist(), balanced.tolist(), strict=True)))

        def training_rows() -> Iterator[tuple[Any, ...]]:
            found: list[tuple[pd.DataFrame, np.ndarray]] = []
            for rows in batches(self.settings.data, model.target, strings=model.string_columns(model.target)):
                notify(f"fitting to {self.n_rows:,} rows: reading row {rows.X.index[0]:,}")
                assert rows.y is not None
                known = ~pd.isna(rows.y)
                X, y = rows.X[known], model.parse_targets(rows.y[known])
                typed = typed_frame(X, table.columns, str(self.settings.data))
                out = _held_out(self.settings, rows.X.index, self.held_out_share)[known]
                found.append((typed[out], y[out]))
                weights = () if self.settings.weights is None else (X.loc[~out, self.settings.weights].to_numpy(np.float64),)
                if not out.all():
                    yield typed[~out], y[~out], *weights
            held_out[:] = found  # assigned only after a complete pass over the file

        held_out: list[tuple[pd.DataFrame, np.ndarray]] = []
        with input_errors():
            estimator.refit_batches(training_rows, n_rows=self.n_rows)
        seconds = model.about["fit_seconds"] + estimator.timings_["fit"]
        model.about.update(why=self.message, reductions=estimator.reductions_, fit_seconds=seconds)
        X_test, y_test = zip(*held_out, strict=True)
        return pd.concat(X_test, ignore_index=True), np.concatenate(y_test)


@contextmanager
def large_table(settings: TrainSettings, notify: Callable[[str], None]) -> Iterator[LargeTable | None]:
    """Yield the sample of a table that does not fit into the memory budget, or None if the table fits."""
    with input_errors():
        budget = parse_budget(settings.memory_budget)
    nbytes, n_rows = _memory_of_table(settings, budget)
    if nbytes <= budget:
        yield None
        return
    problem = (
        f"{settings.data.name} with about {n_rows:,.0f} rows takes {format_bytes(nbytes)} in memory, which exceeds the "
        f"budget of {format_bytes(budget)}"
    )
    if settings.target is None:
        raise InputError(f"name the column to predict with --target; {settings.data} is a table")
    if settings.estimator not in ("auto", "nystrom"):
        raise InputError(
            f"{problem}: --estimator {settings.estimator} needs all rows in memory; use nystrom or more --memory"
        )
    defaults = {field.name: field.default for field in fields(TrainSettings)}
    for name in _NEED_ALL_ROWS:
        if getattr(settings, name) != defaults[name]:
            raise InputError(f"{problem}: --{name} needs all rows in memory; leave it out, or use more --memory")
    most = int(budget / _SAMPLE_SHARE / (nbytes / n_rows))
    if most < _FEWEST_SAMPLE_ROWS:
        needed = f"a sample of {_FEWEST_SAMPLE_ROWS} rows takes more than 1/{_SAMPLE_SHARE} of it"
        raise MemoryError(f"{problem}, and {needed}: use more --memory")
    with tempfile.TemporaryDirectory() as folder:
        notify(f"drawing a sample of {settings.data}")
        yield _draw(settings, Path(folder), n_rows, most, problem)


def _memory_of_table(settings: TrainSettings, budget: int) -> tuple[float, float]:
    """Return the estimated memory of a fit in bytes and the number of rows; zeros for a file that is read at once."""
    path = settings.data
    kind, size = file_format(path), path.stat().st_size
    is_small = kind not in BATCH_FORMATS or (kind == "csv" and size * _SMALL_SHARE < budget)
    first = None if is_small else next(batches(path, None), None)
    if first is None or not len(first):
        return 0.0, 0.0  # `read_training_table` reports an empty table
    if kind == "csv":
        with open(path, "rb") as raw:
            decompress: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix.lower())
            lines = (raw if decompress is None else decompress(raw)).read(_PROBED_BYTES).count(b"\n")
            n_rows = size * lines / max(1, raw.tell())
    else:
        import pyarrow.dataset

        n_rows = float(pyarrow.dataset.dataset(str(path), format=kind).count_rows())
    per_row = first.X.memory_usage(index=False, deep=True).sum() / len(first) + _COPIES * 8 * first.X.shape[1]
    return n_rows * per_row, n_rows


def _draw(settings: TrainSettings, folder: Path, n_rows: float, most: int, problem: str) -> LargeTable:
    """Read the table once, write a sample of its training rows to a file in `folder`, and count the training rows."""
    held_out = 0.0 if settings.test is not None else min(settings.test_size, min(_MOST_HELD_OUT, most) / n_rows)
    share = min(1.0, min(_SAMPLE_ROWS, most) / ((1 - held_out) * n_rows))
    is_text, target = file_format(settings.data) == "csv", str(settings.target)
    # Columns are read as strings, because a batch of codes such as "01", "02" looks like numbers. Strings are converted when
    # the sample is read.
    strings = list(next(batches(settings.data, None, size=1)).X.columns) if is_text else []
    # Another seed than in `_held_out`: with equal numbers, rows with small numbers (drawn below) would be held out.
    rng, seen, count = np.random.default_rng([settings.seed, 1]), set[Any](), 0
    pieces: list[pd.DataFrame] = []
    for rows in batches(settings.data, target, strings=strings):
        is_training = ~pd.isna(rows.y) & ~_held_out(settings, rows.X.index, held_out)
        drawn = is_training & (rng.random(len(rows)) < share)
        if len(seen) <= MOST_CLASSES:  # the sample needs a row of each class
            firsts = pd.Series(rows.y)[is_training].drop_duplicates()
            new = firsts.index[~firsts.isin(seen)]
            seen.update(firsts)
            drawn[new if len(seen) <= MOST_CLASSES else []] = True
        count += int(is_training.sum())
        pieces.append(rows.X.assign(**{target: rows.y})[drawn])
    sample, path = pd.concat(pieces, ignore_index=True), folder / f"sample{'.csv' if is_text else '.parquet'}"
    if is_text:
        sample.to_csv(path, index=False, sep=text.find_delimiter(settings.data))
    else:
        declared = pieces[0].select_dtypes("category").columns
        sample.astype(dict.fromkeys(declared, "category")).to_parquet(path)
    message = (
        f"{problem}: settings are selected on a sample of {len(sample):,} rows, and the model is fitted to {count:,} rows "
        "in batches"
    )
    return LargeTable(replace(settings, estimator="nystrom"), path, count, message, held_out)


def _held_out(settings: TrainSettings, rows: pd.RangeIndex, share: float) -> np.ndarray:
    """Return a mask of the held-out rows of a batch, which depends only on the seed and on the row numbers in the file."""
    return np.random.Generator(np.random.PCG64(settings.seed).advance(rows.start)).random(len(rows)) < share
