"""What the columns of a table are, and the pipeline that turns them into numbers of comparable size.

Numbers: gaps filled with the median, then mean 0 and standard deviation 1. Words: one column for each
frequent level; a level that training never saw is none of them. A text column with a different word in
almost every row (a name, an identifier) says nothing about new rows and is left out, and so are the row numbers
that programs write under an empty heading. Sparse data keeps its zeros and is divided by each column's largest
value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder, StandardScaler

from gramless.cli.errors import InputError
from gramless.cli.tables import LARGEST
from gramless.streaming.text import MISSING_NUMBERS
from gramless.tables.columns import TableColumns

MOST_LEVELS = 100
# So many whole numbers do not count from 0 or 1 without a gap by chance.
_SURELY_COUNTED = 20


@dataclass(frozen=True)
class Columns:
    """The columns of a table by kind; all empty for sparse data."""

    numbers: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    dates: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def used(self) -> list[str]:
        """The columns a model needs."""
        return [*self.numbers, *self.words, *self.dates]


def find_columns(X: Any, *, with_dates: bool = False) -> Columns:
    """Sort the columns of a DataFrame into numbers, words, dates (where the machine knows them) and those of no use."""
    found = Columns()
    if not isinstance(X, pd.DataFrame):
        return found
    for name in X.columns:
        column = X[name]
        known = column.dropna()
        if known.empty:
            found.left_out[str(name)] = "no value anywhere"
        elif isinstance(known.iloc[0], list | dict | np.ndarray):
            found.left_out[str(name)] = "lists in cells"
        elif known.nunique() < 2:
            found.left_out[str(name)] = "the same value everywhere"
        elif _numbers_the_rows(column):
            found.left_out[str(name)] = "row numbers"
        elif with_dates and _are_dates(known):
            found.dates.append(str(name))
        elif pd.api.types.is_bool_dtype(column) or not pd.api.types.is_numeric_dtype(column):
            levels = known.astype(str).nunique()
            if levels > MOST_LEVELS and levels > 0.5 * len(known):
                found.left_out[str(name)] = f"{levels:,} different texts in {len(known):,} rows"
            else:
                found.words.append(str(name))
        else:
            found.numbers.append(str(name))
    if not found.left_out and not found.used:
        raise InputError("there is no column to predict from beside the target")
    if not found.used:
        raise InputError("no column says anything: " + "; ".join(f"{k}: {v}" for k, v in found.left_out.items()))
    return found


def _are_dates(known: pd.Series) -> bool:
    """Whether every known value is a date, or written as 2024-02-29, alone or with a time."""
    if pd.api.types.is_datetime64_any_dtype(known):
        return True
    if pd.api.types.is_numeric_dtype(known) or not known.astype(str).str.match(r"\d{4}-\d{2}-\d{2}").all():
        return False
    return bool(as_dates(known).notna().all())


def as_dates(column: pd.Series) -> pd.Series:
    """Moments without a time zone; what cannot be read as one is missing."""
    return pd.to_datetime(column, format="ISO8601", errors="coerce", utc=True).dt.tz_localize(None)


def _numbers_the_rows(column: pd.Series) -> bool:
    """Whether a column counts the rows from 0 or 1, in their order or not; or, without a heading, from anywhere.

    In sorted data it would give all away, and new rows have numbers that training never saw.
    """
    if not pd.api.types.is_integer_dtype(column) or column.isna().any():
        return False
    if str(column.name).startswith("Unnamed: "):  # pandas's name for an empty heading
        return bool((column.diff().iloc[1:] == 1).all())
    first, last = int(column.min()), int(column.max())
    return len(column) >= _SURELY_COUNTED and first in (0, 1) and last - first == len(column) - 1 and column.is_unique


def choose_columns(X: Any, wanted: list[str], dropped: list[str], needed: list[str], origin: str) -> Any:
    """The columns that the user asked for: only `wanted` where there are any, without `dropped`; `needed` stay."""
    if not wanted and not dropped:
        return X
    if not isinstance(X, pd.DataFrame):
        raise InputError(f"{origin} has no named columns: leave out --columns and --drop")
    wanted, dropped = ([name for text in given for name in _named(text, X)] for given in (wanted, dropped))
    unknown = [name for name in [*wanted, *dropped] if name not in X.columns]
    if unknown:
        told = ", ".join(map(repr, unknown))
        raise InputError(f"{origin} has no column {told}; it has {', '.join(repr(str(name)) for name in X.columns[:20])}")
    both = [name for name in needed if name in dropped]
    if both:
        raise InputError(f"--drop leaves out {both[0]!r}, which another option asks for")
    kept = [name for name in X.columns if name in needed or ((not wanted or name in wanted) and name not in dropped)]
    return X[kept]


def _named(text: str, X: pd.DataFrame) -> list[str]:
    """One name, or several with commas between them."""
    return [text] if text in X.columns else [name.strip() for name in text.split(",") if name.strip()]


def told_columns(columns: Columns, X: Any) -> list[str]:
    """What was made of each column, a line for each kind and for each reason to leave one out."""
    lines = []
    if isinstance(X, pd.DataFrame):
        words = [f"{name} ({X[name].nunique():,} kinds)" for name in columns.words]
        for what, names in (("numbers", columns.numbers), ("words", words), ("dates", columns.dates)):
            if names:
                lines.append(f"{what}: {_few(names)}")
    by_reason: dict[str, list[str]] = {}
    for name, why in columns.left_out.items():
        by_reason.setdefault(why, []).append(name)
    lines += [f"left out {_few(names)}: {why}" for why, names in by_reason.items()]
    return lines


def _few(names: list[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def preparation(X: Any, columns: Columns) -> Any:
    """An unfitted transformer for tables like `X`."""
    if not isinstance(X, pd.DataFrame):
        return MaxAbsScaler()
    numbers = Pipeline([("fill", SimpleImputer(strategy="median")), ("scale", StandardScaler())])
    words = Pipeline(
        [
            ("fill", SimpleImputer(strategy="constant", fill_value="missing")),
            ("levels", OneHotEncoder(handle_unknown="ignore", max_categories=MOST_LEVELS, sparse_output=False)),
        ]
    )
    parts = []
    if columns.numbers:
        parts.append(("numbers", numbers, columns.numbers))
    if columns.words:
        parts.append(("words", words, columns.words))
    return ColumnTransformer(parts)


def as_known(X: Any, columns: Columns, origin: str) -> Any:
    """The columns a model needs, in their order and kind, from a table that may have others too.

    Rows are told by the index of `X`, which counts them from 0.
    """
    if isinstance(X, pd.DataFrame) != bool(columns.used):
        kinds = ("a table with named columns", "svmlight data")
        told, wanted = kinds if isinstance(X, pd.DataFrame) else kinds[::-1]
        raise InputError(f"{origin} is {told}, and the model was trained on {wanted}")
    if not isinstance(X, pd.DataFrame):
        return X
    missing = [name for name in columns.used if name not in X.columns]
    if missing:
        raise InputError(f"{origin} lacks the columns {', '.join(map(repr, missing))}, which the model was trained on")
    known = X[columns.used].copy()
    for name in columns.numbers:
        given = known[name]
        numbers = pd.to_numeric(given, errors="coerce").astype(np.float64)
        broken = (numbers.isna() & given.notna() & ~given.isin(MISSING_NUMBERS)) | (np.abs(numbers) >= LARGEST)
        if broken.any():
            row = int(np.flatnonzero(broken)[0])
            value = given.iloc[row : row + 1].tolist()[0]
            if np.isnan(numbers.iloc[row]):
                why = "is not a number"
            elif np.isinf(numbers.iloc[row]):
                why = "is not finite: leave the cell empty instead"
            else:
                why = "is too large to compute with: divide the column by its unit"
            raise InputError(f"{origin}, row {known.index[row] + 1:,}, column {name!r}: {value!r} {why}")
        known[name] = numbers
    for name in columns.dates:
        given = known[name]
        known[name] = as_dates(given)
        broken = (known[name].isna() & given.notna() & ~given.isin(MISSING_NUMBERS)).to_numpy()
        if broken.any():
            row = int(np.flatnonzero(broken)[0])
            raise InputError(f"{origin}, row {known.index[row] + 1:,}, column {name!r}: {given.iloc[row]!r} is not a date")
    for name in columns.words:
        known[name] = pd.Series([word(value) for value in known[name]], index=known.index, dtype=object)
    return known


def word(value: Any) -> Any:
    """As text; truth values alike however a file writes them, and nothing known as NaN, which imputers know in every
    column, also in one that has nothing else.
    """
    if pd.isna(value):
        return np.nan
    text = str(value)
    return text.capitalize() if text.lower() in ("true", "false") else text


def unseen(transformer: Any, X: Any, columns: Columns) -> dict[str, int]:
    """How many values of each text column the transformer never saw."""
    if not columns.words:
        return {}
    if isinstance(transformer, TableColumns):
        levels = dict(zip(transformer.category_names_, transformer.levels_, strict=True))
    else:
        categories = transformer.named_transformers_["words"].named_steps["levels"].categories_
        levels = dict(zip(columns.words, categories, strict=True))
    counts = {}
    for name, known in levels.items():
        gaps = X[name].isna() if isinstance(transformer, TableColumns) else False
        new = int((~X[name].fillna("missing").isin(known) & ~gaps).sum())
        if new:
            counts[name] = new
    return counts
