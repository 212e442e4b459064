"""Column types of a table, and the values of each column as numbers or category codes.

    number     integers, floats, and strings that are all numbers; missing values are NaN
    category   strings, booleans and categorical columns: a code for each frequent level, -1 for rare, new and missing values
    date       dates and ISO 8601 strings: days, and sine and cosine of the phase in the year, the week and the day
    text       strings that differ in almost every row, hashed to numbers (only if requested)
    left out   constant columns, row numbers, columns of lists, and strings that differ in almost every row

Data frames (pandas, polars, arrow) are read column by column through NumPy; an array is a table without column names.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from gramless._core.missing_text import ALWAYS_MISSING, MISSING_NUMBERS

MOST_LEVELS = 100
USED_KINDS = ("number", "category", "date", "text")
# Number of hash buckets for words: large enough that few words of a short text have the same bucket.
_HASHED_FEATURES = 32
_DAY = np.timedelta64(1, "D")
PHASE_DIGITS = 9
# The squares of a million numbers of this size can be added in float64.
LARGEST_NUMBER = float(np.sqrt(np.finfo(np.float64).max)) / 2**20
# Fewest rows for which a column with the integers 0 ... n - 1 or 1 ... n is taken as row numbers, not as a coincidence.
_FEWEST_ROW_NUMBERS = 20
_NUMBER = re.compile(r"\s*[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf|infinity)\s*", re.IGNORECASE)
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_PREPROCESSING = {
    "number": "scaled; median for missing values",
    "category": "one indicator per level",
    "date": "days and phases of year, week and day",
    "text": "hashed words",
    "left out": "",
}


class CellError(ValueError):
    """A cell whose value does not have the type of its column; `row` counts from 0."""

    def __init__(self, row: int, column: str, value: Any, problem: str):
        super().__init__(f"row {row + 1:,}, column {column!r}: {value!r} {problem}")
        self.row, self.column, self.value, self.problem = row, column, value, problem


@dataclass
class Encoded:
    """Rows as numbers (NaN if missing) and category codes (-1 if missing, rare or new)."""

    numbers: np.ndarray
    codes: np.ndarray
    _prepared: dict[int, tuple[Any, np.ndarray]] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: Any) -> Encoded:
        """Return a subset of the rows."""
        return Encoded(self.numbers[rows], self.codes[rows])

    def prepared(self, preparation: Callable[[Encoded], np.ndarray]) -> np.ndarray:
        """Return `preparation(self)`, computed once and cached; the array must not be modified."""
        # The preparation is stored too, because the id of a deleted object can be reused by another object.
        known = self._prepared.get(id(preparation))
        if known is None:
            known = self._prepared[id(preparation)] = preparation, preparation(self)
        return known[1]


class ArrayFrame:
    """Table of named NumPy arrays, which takes little time to construct even for a single row."""

    def __init__(self, columns: dict[str, np.ndarray]):
        self.column_names = list(columns)
        self.values = list(columns.values())
        self.num_rows = len(self.values[0]) if self.values else 0


def is_frame(X: Any) -> bool:
    """Return True if `X` has named columns."""
    return hasattr(X, "column_names") or (hasattr(X, "columns") and hasattr(X, "shape") and not hasattr(X, "indptr"))


def column_names(X: Any) -> list[str]:
    """Return the column names of a frame."""
    return [str(name) for name in (X.column_names if hasattr(X, "column_names") else X.columns)]


def frame_rows(X: Any) -> int:
    """Return the number of rows of a frame."""
    return int(X.num_rows if hasattr(X, "num_rows") else X.shape[0])


def column_values(X: Any, place: int) -> tuple[np.ndarray, bool]:
    """Return one column as a NumPy array, and whether the frame declares it as categorical."""
    if isinstance(X, ArrayFrame):
        return X.values[place], False
    if not is_frame(X):
        return np.asarray(X[:, place]), False
    if hasattr(X, "column_names"):
        column = X.column(place)
        declared = str(column.type).startswith("dictionary")
        return column.to_numpy(zero_copy_only=False), declared
    if not hasattr(X, "iloc"):
        column = X.get_columns()[place] if hasattr(X, "get_columns") else X[:, place]
        return column.to_numpy(), str(column.dtype).startswith(("Categorical", "Enum"))
    column = X.iloc[:, place]
    kind = str(column.dtype).lower()
    if kind == "category":
        return np.asarray(column.astype(object)), True
    if getattr(column.dtype, "tz", None) is not None:
        return column.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy(), False
    if kind.startswith(("int", "uint", "float")) and column.dtype.kind in "iuf" and not isinstance(column.dtype, np.dtype):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return (values.astype(np.int64) if column.dtype.kind in "iu" and not np.isnan(values).any() else values), False
    return column.to_numpy(), False


def _is_missing(value: Any) -> bool:
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, (float, np.floating, np.datetime64)) and value != value)
        or (isinstance(value, str) and value in ALWAYS_MISSING)
    )


def _missing_mask(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind in "fM":
        return np.isnan(values) if values.dtype.kind == "f" else np.isnat(values)
    if values.dtype.kind in "iub":
        return np.zeros(len(values), dtype=bool)
    return np.fromiter((_is_missing(value) for value in values), dtype=bool, count=len(values))


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return value in MISSING_NUMBERS or _NUMBER.fullmatch(value) is not None
    return isinstance(value, (Real, Decimal)) and not isinstance(value, (bool, np.bool_))


def _is_date(value: Any) -> bool:
    if not isinstance(value, str):
        return isinstance(value, (datetime.date, np.datetime64))
    return _ISO_DATE.match(value) is not None and _parsed_date(value) is not None


def _parsed_date(value: Any) -> np.datetime64 | None:
    """Return a date, a time stamp or an ISO 8601 string as UTC without a time zone; None for other values."""
    try:
        moment = datetime.datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(moment, datetime.datetime) and moment.tzinfo is not None:
            moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
        return np.datetime64(moment, "us")
    except (TypeError, ValueError, OverflowError):
        return None


def category_name(value: Any) -> str:
    """Return the level of a value that is not missing: its string; spellings of true and of false are unified."""
    text = str(value)
    return text.capitalize() if text.lower() in ("true", "false") else text


def _as_numbers(values: np.ndarray, name: str) -> np.ndarray:
    """Return a column as float64, with NaN for missing values; raise `CellError` for any other value."""
    if values.dtype.kind in "iufb":
        numbers = values.astype(np.float64, copy=False)
    else:
        numbers = np.full(len(values), np.nan)
        for row, value in enumerate(values):
            if not _is_missing(value) and value not in MISSING_NUMBERS:
                if not _is_number(value) and not isinstance(value, (bool, np.bool_)):
                    raise CellError(row, name, value, "is not a number")
                numbers[row] = float(value)
    if not np.abs(numbers).max(initial=0.0, where=~np.isnan(numbers)) < LARGEST_NUMBER:
        row = int(np.flatnonzero(np.abs(numbers) >= LARGEST_NUMBER)[0])
        infinite = "is not finite (infinity): leave the cell empty instead"
        too_large = "is too large to compute with: divide the column by its unit"
        raise CellError(row, name, float(numbers[row]), infinite if np.isinf(numbers[row]) else too_large)
    return numbers


def _as_dates(values: np.ndarray, name: str) -> np.ndarray:
    """Return a column as datetime64, with NaT for missing values; raise `CellError` for any other value."""
    if values.dtype.kind == "M":
        return values.astype("datetime64[us]")
    dates = np.full(len(values), np.datetime64("NaT"), dtype="datetime64[us]")
    for row, value in enumerate(values):
        if not _is_missing(value) and value not in MISSING_NUMBERS:
            date = None if isinstance(value, Real) else _parsed_date(value)
            if date is None:
                raise CellError(row, name, value, "is not a date")
            dates[row] = date
    return dates


def _as_categories(values: np.ndarray, name: str) -> np.ndarray:
    """Return a column as an object array of level names, with NaN for missing values."""
    if values.dtype.kind == "f":  # integers with missing values have float dtype: the level is "1", not "1.0"
        values = np.array([value if value != value or value != int(value) else int(value) for value in values], dtype=object)
    found = np.empty(len(values), dtype=object)
    found[:] = [np.nan if _is_missing(value) else category_name(value) for value in values]
    return found


_CONVERT = {"number": _as_numbers, "date": _as_dates, "category": _as_categories, "text": _as_categories}


def _numbers_the_rows(values: np.ndarray, name: str) -> bool:
    """Return True if the integers are 0 ... n - 1 or 1 ... n in any order, or consecutive in a column without a name.

    In sorted data such a column would reveal the target, and new rows have numbers that do not occur in training.
    """
    if name.startswith("Unnamed: "):  # name that pandas gives to a column without a header
        return bool((np.diff(values) == 1).all())
    first, last = int(values.min()), int(values.max())
    is_range = len(values) >= _FEWEST_ROW_NUMBERS and first in (0, 1) and last - first == len(values) - 1
    return is_range and len(np.unique(values)) == len(values)


class TableColumns(BaseEstimator):
    """Determines the types of the columns of a table, and encodes tables that have the same columns.

    Parameters
    ----------
    most_levels : int, default=100
        Largest number of levels of a category that have a code; rarer levels have the code -1.
    text : {"leave out", "hash"}, default="leave out"
        Treatment of a column whose strings differ in almost every row.
    types : dict or None, default=None
        Types of columns by name; the types of other columns are determined from their values.

    Attributes
    ----------
    names_ : list of str
        Column names.
    kinds_ : list of {"number", "category", "date", "text", "left out"}
        Type of each column.
    left_out_ : dict
        Reason for each column that is not used, by name.
    levels_ : list of ndarray of str
        Sorted levels of each category.
    missing_ : list of int
        Number of missing values of each column.
    """

    def __init__(self, most_levels: int = MOST_LEVELS, text: str = "leave out", types: dict[str, str] | None = None):
        self.most_levels = most_levels
        self.text = text
        self.types = types

    @classmethod
    def of_types(cls, types: dict[str, str]) -> TableColumns:
        """Return an object for columns of known types, which can convert values but not encode categories."""
        columns = cls(types=types)
        columns.names_, columns.kinds_, columns.left_out_, columns.levels_ = list(types), list(types.values()), {}, []
        return columns

    def fit(self, X: Any) -> TableColumns:
        """Determine the type of every column of `X`."""
        self.names_ = column_names(X) if is_frame(X) else [f"column {k}" for k in range(X.shape[1])]
        self.kinds_: list[str] = []
        self.levels_: list[np.ndarray] = []
        self.left_out_: dict[str, str] = {}
        self.missing_: list[int] = []
        for place, name in enumerate(self.names_):
            values, declared = column_values(X, place)
            missing = _missing_mask(values)
            kind, why = self._kind(values, values[~missing], name, declared)
            if kind == "left out":
                self.left_out_[name] = why
            if kind == "category":
                known = _as_categories(values, name)[~missing].astype(str)
                levels, counts = np.unique(known, return_counts=True)
                self.levels_.append(levels[np.sort(np.argsort(-counts, kind="stable")[: self.most_levels])])
            self.kinds_.append(kind)
            self.missing_.append(int(missing.sum()))
        return self

    def _kind(self, values: np.ndarray, known: np.ndarray, name: str, declared: bool) -> tuple[str, str]:
        """Return the type of a column, and the reason if it is left out."""
        if len(known) == 0:
            return "left out", "no value anywhere"
        is_object = values.dtype.kind not in "iufbM"
        if is_object and isinstance(known[0], (list, dict, np.ndarray)):
            return "left out", "lists in cells"
        levels = set(map(category_name, known)) if is_object else set(known[:1]) | set(known[known != known[0]][:1])
        if len(levels) < 2:
            return "left out", "the same value everywhere"
        requested = (self.types or {}).get(name)
        if requested is not None:
            return requested, "as requested" if requested == "left out" else ""
        if declared or values.dtype.kind == "b":
            return "category", ""
        if values.dtype.kind in "iu" and _numbers_the_rows(values, name):
            return "left out", "row numbers"
        if values.dtype.kind in "iuf":
            return "number", ""
        if values.dtype.kind == "M" or all(map(_is_date, known)):
            return "date", ""
        if all(map(_is_number, known)) and not all(value in MISSING_NUMBERS for value in levels):
            return "number", ""
        if len(levels) > self.most_levels and len(levels) > 0.5 * len(known):
            if self.text == "hash":
                return "text", ""
            return "left out", f"{len(levels):,} different texts in {len(known):,} rows"
        return "category", ""

    def typed(self, X: Any) -> dict[str, np.ndarray]:
        """Return the used columns by name: numbers as float64, dates as datetime64, categories and texts as objects.

        A value that does not have the type of its column raises `CellError`.
        """
        if is_frame(X):
            places = {name: place for place, name in enumerate(column_names(X))}
        else:
            places = {name: place for place, name in enumerate(self.names_)}
        kinds = zip(self.names_, self.kinds_, strict=True)
        return {name: _CONVERT[kind](column_values(X, places[name])[0], name) for name, kind in kinds if kind in USED_KINDS}

    def encode(self, X: Any) -> Encoded:
        """Return the rows of a table as numbers and codes; rows that are encoded already are returned unchanged."""
        if isinstance(X, Encoded):
            return X
        n = frame_rows(X) if is_frame(X) else int(X.shape[0])
        numbers: list[np.ndarray] = []
        codes: list[np.ndarray] = []
        kinds = self.type_of
        for name, values in self.typed(X).items():
            kind = kinds[name]
            if kind == "number":
                numbers.append(values)
            elif kind == "date":
                numbers.extend(_date_features(values))
            elif kind == "text":
                numbers.extend(_hashed_words(values))
            else:
                places = {level: place for place, level in enumerate(self.levels_[len(codes)].tolist())}
                codes.append(np.array([places.get(value, -1) for value in values], dtype=np.int32))
        return Encoded(_stacked(numbers, n, np.float64), _stacked(codes, n, np.int32))

    @property
    def type_of(self) -> dict[str, str]:
        """Types of the columns that are used, by name."""
        return {name: kind for name, kind in zip(self.names_, self.kinds_, strict=True) if kind in USED_KINDS}

    def unseen(self, X: Any) -> dict[str, int]:
        """Return the number of values that did not occur in `fit`, for each categorical column that has such values."""
        typed, levels = self.typed(X), iter(self.levels_)
        counts = {}
        for name, kind in self.type_of.items():
            if kind == "category":
                known = set(next(levels).tolist())
                counts[name] = sum(value == value and value not in known for value in typed[name])
        return {name: count for name, count in counts.items() if count}

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        if not hasattr(self, "kinds_"):
            return super().__repr__(N_CHAR_MAX)
        missing = getattr(self, "missing_", [""] * len(self.names_))
        rows = [("name", "type", "preprocessing", "missing", "reason")]
        for name, kind, count in zip(self.names_, self.kinds_, missing, strict=True):
            rows.append((name, kind, _PREPROCESSING[kind], str(count), self.left_out_.get(name, "")))
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _stacked(columns: list[np.ndarray], n: int, dtype: Any) -> np.ndarray:
    """Return the columns as one array; `np.column_stack` takes several times as long for a single row."""
    out = np.empty((n, len(columns)), dtype)
    for place, values in enumerate(columns):
        out[:, place] = values
    return out


def _date_features(moments: np.ndarray) -> list[np.ndarray]:
    """Return days since 1970, and sine and cosine of the phase in the year, the week and the day."""
    missing = np.isnat(moments)
    days = np.where(missing, np.datetime64(0, "us"), moments).astype("datetime64[us]").astype(np.int64) / 86_400e6
    whole = np.floor(days)
    dates = whole.astype("datetime64[D]")
    starts = dates.astype("datetime64[Y]").astype("datetime64[D]")
    year = (dates - starts) / _DAY / 365.25
    found = [days]
    for phase in (year, (whole + 3) % 7 / 7, days - whole):
        # Rounded, because sines of different libraries differ in the last digits, which would change ranks.
        found += [np.round(np.sin(2 * np.pi * phase), PHASE_DIGITS), np.round(np.cos(2 * np.pi * phase), PHASE_DIGITS)]
    return [np.where(missing, np.nan, column) for column in found]


def _hashed_words(values: np.ndarray) -> list[np.ndarray]:
    """Return the words of each text as a fixed number of hashed counts."""
    from sklearn.feature_extraction.text import HashingVectorizer

    texts = ["" if _is_missing(value) else value for value in values]
    return list(HashingVectorizer(n_features=_HASHED_FEATURES).transform(texts).toarray().T)
