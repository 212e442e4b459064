"""What the columns of a table are, and their values as numbers and codes.

    number     integers, floats, truth values; a gap stays NaN
    category   words, or pandas / polars categories: a code for each frequent level, -1 for anything else, gaps included
    date       as numbers: days, and where in the year, the week and the day as points on a circle
    left out   constant columns, and texts that differ in almost every row (a name, an identifier)

Frames are read column by column through NumPy (pandas, polars, arrow, anything with `columns` or `column_names`), arrays are
tables without names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

MOST_LEVELS = 100
_HASHED = 32
_DAY = np.timedelta64(1, "D")
PHASE_DIGITS = 9


@dataclass
class Encoded:
    """Rows as numbers (NaN where missing) and codes of categories (-1 where missing, rare or new)."""

    numbers: np.ndarray
    codes: np.ndarray
    _prepared: dict[int, tuple[Any, np.ndarray]] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: Any) -> Encoded:
        """Some rows."""
        return Encoded(self.numbers[rows], self.codes[rows])

    def prepared(self, preparation: Callable[[Encoded], np.ndarray]) -> np.ndarray:
        """What `preparation` makes of the rows, computed once for all who ask: not to be written to."""
        # Kept with what made it: an identity is only unique among objects that are alive.
        known = self._prepared.get(id(preparation))
        if known is None:
            known = self._prepared[id(preparation)] = preparation, preparation(self)
        return known[1]


class ArrayFrame:
    """Named columns that are arrays already: a frame that costs nothing to make, for single rows.

    Parameters
    ----------
    columns : dict of ndarray
        float64, datetime64, or objects.
    """

    def __init__(self, columns: dict[str, np.ndarray]):
        self.column_names = list(columns)
        self.values = list(columns.values())
        self.num_rows = len(self.values[0]) if self.values else 0


def is_frame(X: Any) -> bool:
    """Whether `X` has named columns."""
    return hasattr(X, "column_names") or (hasattr(X, "columns") and hasattr(X, "shape") and not hasattr(X, "indptr"))


def column_names(X: Any) -> list[str]:
    """Names of a frame's columns."""
    return [str(name) for name in (X.column_names if hasattr(X, "column_names") else X.columns)]


def frame_rows(X: Any) -> int:
    """Rows of a frame."""
    return int(X.num_rows if hasattr(X, "num_rows") else X.shape[0])


def column_values(X: Any, place: int) -> np.ndarray:
    """One column of a frame or an array as a NumPy array: float64, datetime64 or object."""
    if isinstance(X, ArrayFrame):
        return _plain(X.values[place])
    if not is_frame(X):
        return _plain(np.asarray(X[:, place]))
    if hasattr(X, "column_names"):
        return _plain(
            X.column(place).to_numpy(zero_copy_only=False) if not _pyarrow_batch(X) else np.asarray(X.column(place))
        )
    column = (
        X.iloc[:, place] if hasattr(X, "iloc") else X[:, place] if not hasattr(X, "get_columns") else X.get_columns()[place]
    )
    kind = str(getattr(column, "dtype", ""))
    if kind.lower().startswith(("int", "uint", "float", "bool")) and hasattr(column, "isna"):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    return _plain(column.to_numpy())


def _pyarrow_batch(X: Any) -> bool:
    return type(X).__name__ == "RecordBatch"


def _plain(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind in "iufb":
        return values.astype(np.float64, copy=False)
    if values.dtype.kind == "M":
        return values.astype("datetime64[us]")
    return _as_numbers(values) if values.dtype.kind == "O" else values.astype(object)


def _as_numbers(values: np.ndarray) -> np.ndarray:
    """Objects that are all numbers, truth values or gaps as float64; dates as datetime64; anything else as it is."""
    import datetime
    from numbers import Real

    known = [value for value in values if not _is_gap(value)]
    if not known:
        return np.full(len(values), np.nan)
    if all(isinstance(value, (Real, np.bool_)) for value in known):
        return np.array([np.nan if _is_gap(value) else float(value) for value in values])
    if all(isinstance(value, (datetime.date, np.datetime64)) for value in known):
        return np.array([np.datetime64("NaT") if _is_gap(value) else value for value in values], dtype="datetime64[us]")
    return values


def _is_gap(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)


def _word(value: Any) -> str:
    return "" if _is_gap(value) else str(value)


class TableColumns(BaseEstimator):
    """Finds the kinds of columns, and encodes tables with the same columns.

    Parameters
    ----------
    most_levels : int, default=100
        Levels of a category that have a code of their own: the most frequent ones.
    text : {"leave out", "hash"}, default="leave out"
        What happens to a column whose words differ in almost every row.

    Attributes
    ----------
    kinds_ : list of {"number", "category", "date", "text", "left out"}
        One for each column.
    left_out_ : dict
        Name of each column that is not used, and why.
    levels_ : list of ndarray of str
        Of each category, sorted.
    """

    def __init__(self, most_levels: int = MOST_LEVELS, text: str = "leave out"):
        self.most_levels = most_levels
        self.text = text

    def fit(self, X: Any) -> TableColumns:
        """Look at every column of `X`."""
        self.names_ = column_names(X) if is_frame(X) else [f"column {k}" for k in range(X.shape[1])]
        self.kinds_: list[str] = []
        self.levels_: list[np.ndarray] = []
        self.left_out_: dict[str, str] = {}
        for place, name in enumerate(self.names_):
            values = column_values(X, place)
            kind, why = self._kind(values)
            if kind == "left out":
                self.left_out_[name] = why
            if kind == "category":
                words, counts = np.unique([_word(value) for value in values], return_counts=True)
                known = words != ""
                words, counts = words[known], counts[known]
                frequent = np.sort(np.argsort(-counts, kind="stable")[: self.most_levels])
                self.levels_.append(words[frequent])
            self.kinds_.append(kind)
        return self

    def _kind(self, values: np.ndarray) -> tuple[str, str]:
        if values.dtype.kind == "f":
            known = values[~np.isnan(values)]
            if len(known) == 0:
                return "left out", "no value anywhere"
            if known.min() == known.max() and len(known) == len(values):
                return "left out", "the same value everywhere"
            return "number", ""
        if values.dtype.kind == "M":
            known = values[~np.isnat(values)]
            return ("date", "") if len(np.unique(known)) > 1 else ("left out", "the same value everywhere")
        if any(isinstance(value, (list, dict, np.ndarray)) for value in values[:100]):
            return "left out", "lists in cells"
        words = np.unique([_word(value) for value in values])
        gaps = sum(_is_gap(value) for value in values)
        if len(words) < 2:
            return "left out", "the same value everywhere"
        if len(words) > self.most_levels and len(words) > 0.5 * (len(values) - gaps):
            if self.text == "hash":
                return "text", ""
            return (
                "left out",
                f"{len(words):,} different texts in {len(values):,} rows; text='hash' makes numbers of its words",
            )
        return "category", ""

    def encode(self, X: Any) -> Encoded:
        """The rows of a table with the columns that `fit` saw; rows that are encoded already as they are."""
        if isinstance(X, Encoded):
            return X
        n = frame_rows(X) if is_frame(X) else int(X.shape[0])
        numbers: list[np.ndarray] = []
        codes: list[np.ndarray] = []
        for place, (name, kind) in enumerate(zip(self.names_, self.kinds_, strict=True)):
            if kind == "left out":
                continue
            values = column_values(X, place)
            if kind == "number":
                if values.dtype.kind != "f":
                    odd = next((value for value in values if not _is_gap(value)), None)
                    raise ValueError(f"{name} held numbers when the model was fitted, and now holds {odd!r}")
                numbers.append(values)
            elif kind == "date":
                if values.dtype.kind != "M" and not np.isnan(values.astype(np.float64)).all():
                    raise ValueError(f"{name} held dates when the model was fitted, and now holds {values.dtype} values")
                numbers.extend(_date_features(values))
            elif kind == "text":
                numbers.extend(_hashed_words(values))
            else:
                codes.append(_codes(values, self.levels_[len(codes)]))
        return Encoded(_side_by_side(numbers, n, np.float64), _side_by_side(codes, n, np.int32))

    @property
    def category_names_(self) -> list[str]:
        """Names of the columns of categories, in the order of `levels_`."""
        return [name for name, kind in zip(self.names_, self.kinds_, strict=True) if kind == "category"]

    @property
    def n_numbers_(self) -> int:
        """Columns of numbers and dates."""
        return sum(kind in ("number", "date", "text") for kind in self.kinds_)

    @property
    def n_categories_(self) -> int:
        """Columns of categories."""
        return sum(kind == "category" for kind in self.kinds_)


def _side_by_side(columns: list[np.ndarray], n: int, dtype: Any) -> np.ndarray:
    """As `np.column_stack`, which takes a multiple of the time for a single row."""
    out = np.empty((n, len(columns)), dtype)
    for place, values in enumerate(columns):
        out[:, place] = values
    return out


def _codes(values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "f":  # whole numbers in a file that has only some of the levels
        values = np.array([None if np.isnan(v) else int(v) if v == int(v) else v for v in values], dtype=object)
    places = {word: place for place, word in enumerate(levels.tolist())}
    return np.array([places.get(_word(value), -1) for value in values], dtype=np.int32)


def _date_features(values: np.ndarray) -> list[np.ndarray]:
    """Days since 1970, and the phases of the year, the week and the day."""
    moments = values.astype("datetime64[us]")
    gaps = np.isnat(moments)
    days = np.where(gaps, np.datetime64(0, "us"), moments).astype("datetime64[us]").astype(np.int64) / 86_400e6
    whole = np.floor(days)
    dates = whole.astype("datetime64[D]")
    starts = dates.astype("datetime64[Y]").astype("datetime64[D]")
    year = (dates - starts) / _DAY / 365.25
    found = [days]
    for phase in (year, (whole + 3) % 7 / 7, days - whole):
        # Rounded, so that equal days have equal values however a library computes a sine: their ranks hang on it.
        found += [np.round(np.sin(2 * np.pi * phase), PHASE_DIGITS), np.round(np.cos(2 * np.pi * phase), PHASE_DIGITS)]
    return [np.where(gaps, np.nan, column) for column in found]


def _hashed_words(values: np.ndarray) -> list[np.ndarray]:
    from sklearn.feature_extraction.text import HashingVectorizer

    hashed = HashingVectorizer(n_features=_HASHED).transform([_word(value) for value in values]).toarray()
    return list(hashed.T)
