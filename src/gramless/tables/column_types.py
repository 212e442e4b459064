"""Column types of a table, and the values of each column as numbers or category codes.

    number     integers, floats, durations (as days), and strings that are numbers, also with a currency or percent sign;
               missing values are NaN
    category   strings, booleans and categorical columns: one code for each distinct value (level), -1 if missing, -2 if new
    date       dates and strings such as 2023-06-12, 12.06.2023 or 06/12/2023, encoded as days since 1970, and as sine and
               cosine of the phase in the year, the week and the day
    text       strings that differ in almost every row, encoded as hashed TF-IDF values if these predict the target
    left out   constant columns, row numbers, columns of lists, and texts that do not predict the target

Data frames (pandas, polars, arrow) are read column by column as NumPy arrays; an array is a table without column names.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from numbers import Real
from typing import Any

import numpy as np
from scipy.stats import rankdata, spearmanr
from sklearn.base import BaseEstimator
from sklearn.tree import DecisionTreeClassifier

from gramless._core.missing_text import ALWAYS_MISSING, MISSING_NUMBERS
from gramless.tables.target_encoding import MISSING, NEW, fit_effects

MOST_LEVELS = 100
# Number of levels above which a category gets effects on the target in addition to its indicators, because each of many
# indicators is 1 in only few rows.
_FEW_LEVELS = 30
TARGET_ENCODED = " target-encoded"
"""Ending of the names of scalings in which effects on the target replace the indicators of categories."""
# Number of hash buckets for words: large enough that few words of a short text have the same bucket.
_HASHED_FEATURES = 32
# The words of a text column are used if a ridge regression on at most `_ROWS_FOR_WORDS` rows explains a share of the target
# variance that is larger than `_SMALLEST_GAIN` and larger than `_STANDARD_ERRORS` standard errors of this share. Two
# standard errors are not enough, because the ridge is chosen by the same residuals.
_ROWS_FOR_WORDS = 4000
_SMALLEST_GAIN = 0.02
_STANDARD_ERRORS = 3.0
# Integers look like an identifier if the numbers of increases and of decreases from row to row differ by at least this share
# of the rows.
_SAME_DIRECTION = 0.95
# A column determines the target if, on a sample of `_ROWS_ALONE` rows, it predicts the class of more than the share `_ALONE`
# of the rows, or has a rank correlation above `_ALONE` with a numeric target. With fewer than `_FEWEST_ROWS_ALONE` rows, or
# fewer than `_FEWEST_OTHERS` rows outside the most common class, this could happen by chance.
_ALONE, _ROWS_ALONE, _FEWEST_ROWS_ALONE, _FEWEST_OTHERS = 0.999, 1000, 50, 10
_DAY = np.timedelta64(1, "D")
PHASE_DIGITS = 9
# Bound on the absolute value of a number: the sum of 2^40 squares of this size does not overflow float64.
LARGEST_NUMBER = float(np.sqrt(np.finfo(np.float64).max)) / 2**20
# Fewest rows for which a column with the integers 0 ... n - 1 or 1 ... n is taken as row numbers, not as a coincidence.
_FEWEST_ROW_NUMBERS = 20
_NUMBER = re.compile(r"\s*[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf|infinity)\s*", re.IGNORECASE)
_DATE = re.compile(r"\s*(?:(\d{4})([-./])(\d{1,2})\2(\d{1,2})|(\d{1,2})([-./])(\d{1,2})\6(\d{4}))(?:[ T](.+))?\s*")
_CURRENCY = r"\s*(?:[$€£¥]|USD|EUR|GBP|CHF|JPY)?\s*"


def _written_number(thousands: str, decimals: str) -> re.Pattern[str]:
    """Return a pattern of numbers with a currency, a percent sign or thousands separators; (5) is the number -5."""
    # Thousands separators may be non-breaking spaces; a number with thousands separators does not begin with 0.
    digits = rf"(?:[1-9]\d{{0,2}}(?:[{thousands}' \u00a0\u202f]\d{{3}})+|\d+)(?:{decimals}\d+)?\s*%?{_CURRENCY}"
    signed = rf"(?:\s*[+-]{_CURRENCY}|{_CURRENCY}[+-]?){digits}"
    return re.compile(rf"{signed}|{_CURRENCY}\({_CURRENCY}{digits}\)\s*")


# Regular expressions for numbers, by the name of the number format.
_WRITTEN_NUMBER = {"decimal point": _written_number(",", r"\."), "decimal comma": _written_number(".", ",")}
_PREPROCESSING = {
    "number": "scaled; median for missing values",
    "category": "one indicator per level, or its effect on the target",
    "date": "days and phases of year, week and day",
    "text": "hashed TF-IDF values of words",
    "left out": "",
}

# Endings of the names of the numeric features that encode a column, by the type of the column.
_NUMBER_NAMES = {
    "number": [""],
    "category": [],
    "date": [" days", " sin year", " cos year", " sin week", " cos week", " sin day", " cos day"],
    "text": [f" words {k}" for k in range(_HASHED_FEATURES)],
}
USED_KINDS = tuple(_NUMBER_NAMES)


class CellError(ValueError):
    """Error for a cell whose value does not have the type of its column; `row` counts from 0."""

    def __init__(self, row: int, column: str, value: Any, problem: str):
        super().__init__(f"row {row + 1:,}, column {column!r}: {value!r} {problem}")
        self.row, self.column, self.value, self.problem = row, column, value, problem


@dataclass
class Encoded:
    """Rows of a table as numbers (NaN if missing), category codes (-1 if missing, -2 if new) and effects of categories."""

    numbers: np.ndarray
    codes: np.ndarray
    effects: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    _prepared: dict[int, tuple[Any, np.ndarray]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.effects = self.effects if self.effects.size else np.empty((len(self), 0))

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: Any) -> Encoded:
        """Return a subset of the rows."""
        return Encoded(self.numbers[rows], self.codes[rows], self.effects[rows])

    def prepared(self, preparation: Callable[[Encoded], np.ndarray]) -> np.ndarray:
        """Return `preparation(self)`, computed once and cached; the array must not be modified."""
        # The cache also refers to the preparation, because the id of a deleted object can be reused by another object.
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
    """Return the number of rows of a frame or an array."""
    return int(X.num_rows if hasattr(X, "num_rows") else X.shape[0])


def column_values(X: Any, place: int) -> tuple[np.ndarray, bool]:
    """Return one column as a NumPy array, with durations as days, and whether the frame declares it as categorical."""
    values, declared = _stored_values(X, place)
    return (values / _DAY if values.dtype.kind == "m" else values), declared


def _stored_values(X: Any, place: int) -> tuple[np.ndarray, bool]:
    """Return one column as a NumPy array, with durations unconverted, and whether the frame declares it categorical."""
    if isinstance(X, ArrayFrame):
        return X.values[place], False
    if not is_frame(X):
        return np.asarray(X[:, place]), False
    if hasattr(X, "column_names"):
        column = X.column(place)
        declared = str(column.type).startswith("dictionary")
        if declared:  # `to_numpy` would replace missing values of a categorical column by its last category
            column = column.cast(column.type.value_type)
        return column.to_numpy(zero_copy_only=False), declared
    if not hasattr(X, "iloc"):
        column = X.get_columns()[place] if hasattr(X, "get_columns") else X[:, place]
        return column.to_numpy(), str(column.dtype).startswith(("Categorical", "Enum"))
    column = X.iloc[:, place]
    if str(column.dtype) == "category":
        return np.asarray(column.astype(object)), True
    if getattr(column.dtype, "tz", None) is not None:
        return column.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy(), False
    if not isinstance(column.dtype, np.dtype) and column.dtype.kind in "iuf":
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return (values.astype(np.int64) if column.dtype.kind in "iu" and not np.isnan(values).any() else values), False
    return column.to_numpy(), False


def _is_missing(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip() in ALWAYS_MISSING
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, (float, np.floating, np.datetime64)) and value != value)
    )


def _missing_mask(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind in "fMiub":
        return np.asarray(values != values)  # true for NaN and NaT
    return np.fromiter((_is_missing(value) for value in values), dtype=bool, count=len(values))


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return value in MISSING_NUMBERS or _NUMBER.fullmatch(value) is not None
    return isinstance(value, (Real, Decimal)) and not isinstance(value, (bool, np.bool_))


def parsed_date(value: Any, order: str) -> np.datetime64 | None:
    """Return a date, a time stamp or the string of a date as datetime64 in UTC; return None for other values."""
    try:
        moment = datetime.datetime.fromisoformat(_iso_text(value, order)) if isinstance(value, str) else value
        if isinstance(moment, datetime.datetime) and moment.tzinfo is not None:
            moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
        return np.datetime64(moment, "us")
    except (TypeError, ValueError, OverflowError):
        return None


def _iso_text(text: str, order: str) -> str:
    """Return the string of a date in ISO 8601; `order` is the order of day and month if the year is not first."""
    found = _DATE.fullmatch(text)
    if found is None:
        return text
    year, _, month, day, first, _, second, last, time = found.groups()
    if year is None:
        if order == "iso":
            return text
        year, (day, month) = last, (first, second) if order == "day first" else (second, first)
    return f"{year}-{int(month):02}-{int(day):02}" + (f"T{time.strip()}" if time else "")


def date_order(values: Iterable[Any], dates: str) -> tuple[str, bool]:
    """Return "day first" or "month first" for a column of dates, and True if no value shows which of the two is correct."""
    found = [match for value in values if isinstance(value, str) and (match := _DATE.fullmatch(value)) and match[5]]
    if dates != "auto":
        return dates, False
    if any(int(match[5]) > 12 for match in found):
        return "day first", False
    if any(int(match[7]) > 12 for match in found):
        return "month first", False
    with_points = all(match[6] == "." for match in found)
    return "day first" if with_points else "month first", bool(found) and not with_points


def number_format(values: Iterable[Any]) -> str | None:
    """Return "decimal point" or "decimal comma" if all values are numbers in this format, else None."""
    texts = [value for value in values if not _is_number(value)]
    if not all(isinstance(text, str) for text in texts):
        return None
    return next((name for name, form in _WRITTEN_NUMBER.items() if all(map(form.fullmatch, texts))), None)


def plain_number(value: Any, form: str) -> Any:
    """Return the string of a number without currency, percent sign, parentheses and separators, and other values unchanged.

    In the format "decimal comma", the string "1.200" is the number 1200.
    """
    is_plain = form == "decimal point" and _is_number(value)
    if not isinstance(value, str) or is_plain or not _WRITTEN_NUMBER[form].fullmatch(value):
        return value
    text = ("-" if "(" in value else "") + re.sub(r"[$€£¥%'()\sA-Z]", "", value)
    return text.replace(",", "") if form == "decimal point" else text.replace(".", "").replace(",", ".")


def category_name(value: Any) -> str:
    """Return the level name of a value that is not missing: its string, equal for True and "true", and for 1 and 1.0."""
    if isinstance(value, (float, np.floating)) and value.is_integer():
        value = int(value)  # a column of integers with missing values has floats: the level is "1", not "1.0"
    text = str(value)
    return text.capitalize() if text.lower() in ("true", "false") else text


def _as_numbers(values: np.ndarray, name: str, form: str = "decimal point") -> np.ndarray:
    """Return a column as float64, with NaN for missing values; raise `CellError` for any other value."""
    if values.dtype.kind in "iufb":
        numbers = values.astype(np.float64, copy=False)
    else:
        numbers = np.full(len(values), np.nan)
        for row, value in enumerate(values):
            if not _is_missing(value) and value not in MISSING_NUMBERS:
                value = plain_number(value, form)
                if not _is_number(value) and not isinstance(value, (bool, np.bool_)):
                    raise CellError(row, name, value, "is not a number")
                numbers[row] = float(value)
    if not np.abs(numbers).max(initial=0.0, where=~np.isnan(numbers)) < LARGEST_NUMBER:
        row = int(np.flatnonzero(np.abs(numbers) >= LARGEST_NUMBER)[0])
        infinite = "is not finite (infinity): leave the cell empty instead"
        too_large = "is too large to compute with: divide the column by its unit"
        raise CellError(row, name, float(numbers[row]), infinite if np.isinf(numbers[row]) else too_large)
    return numbers


def _as_dates(values: np.ndarray, name: str, order: str = "") -> np.ndarray:
    """Return a column as datetime64, with NaT for missing values; raise `CellError` for any other value."""
    if values.dtype.kind == "M":
        return values.astype("datetime64[us]")
    order = order or date_order(values, "auto")[0]
    dates = np.full(len(values), np.datetime64("NaT"), dtype="datetime64[us]")
    for row, value in enumerate(values):
        if not _is_missing(value) and value not in MISSING_NUMBERS:
            date = None if isinstance(value, Real) else parsed_date(value, order)
            if date is None:
                raise CellError(row, name, value, "is not a date")
            dates[row] = date
    return dates


def _as_categories(values: np.ndarray, name: str, form: str = "") -> np.ndarray:
    """Return a column as an object array of level names, with NaN for missing values."""
    found = np.empty(len(values), dtype=object)
    found[:] = [np.nan if _is_missing(value) else category_name(value) for value in values]
    return found


_CONVERT = {"number": _as_numbers, "date": _as_dates, "category": _as_categories, "text": _as_categories}


def _numbers_the_rows(values: np.ndarray, name: str) -> bool:
    """Return True for the integers 0 ... n - 1 or 1 ... n in any order, or consecutive integers in a column without a name.

    Row numbers reveal the target if rows are sorted by the target, and new rows have other row numbers than training rows.
    """
    if name.startswith("Unnamed: "):  # name that pandas gives to a column without a header
        return bool((np.diff(values) == 1).all())
    first, last = int(values.min()), int(values.max())
    is_range = len(values) >= _FEWEST_ROW_NUMBERS and first in (0, 1) and last - first == len(values) - 1
    return is_range and len(np.unique(values)) == len(values)


@dataclass(eq=False, repr=False)
class TableColumns(BaseEstimator):
    """Encoder that determines the types of the columns of a table, and encodes tables that have the same columns.

    Parameters
    ----------
    most_levels : int, default=100
        Largest number of levels of a category that is encoded by one indicator column for each level.
    text : {"auto", "leave out", "hash"}, default="auto"
        Treatment of a column whose strings differ in almost every row: hashed TF-IDF values of the words, or none. `"auto"`
        uses them if a ridge regression on them predicts left-out targets better than the mean does.
    dates : {"auto", "day first", "month first", "iso"}, default="auto"
        Order of the day and the month in dates such as `06/12/2023`; `"auto"` takes it from days above 12 in the column.
        `"iso"` accepts only dates that begin with the year.
    types : dict or None, default=None
        Types of columns by name; the types of other columns are determined from their values.

    Attributes
    ----------
    names_ : list of str
        Column names.
    kinds_ : list of {"number", "category", "date", "text", "left out"}
        Type of each column.
    left_out_ : dict
        Reason why a column is not used, by the name of the column.
    levels_ : list of ndarray of str
        Sorted levels (distinct values) of each category.
    effects_ : list of ndarray of shape (n_levels + 2, n_targets)
        For each category, the effects of its levels on the target, then the effects of new levels and of missing values.
        The array of a category whose effects are not used has no columns.
    missing_ : list of int
        Number of missing values of each column.
    formats_ : dict
        Format of the strings in a column, by the name of the column: "day first" or "month first" for dates, "decimal
        point" or "decimal comma" for numbers. Columns without an entry need no format.
    idf_ : dict
        Inverse document frequencies of the hashed words of each text column, by the name of the column.
    doubts_ : list of str
        Messages about columns that should be checked before the model is used: dates with an unknown order of day and
        month, columns that look like identifiers, and columns that alone predict the target.
    """

    most_levels: int = MOST_LEVELS
    text: str = "auto"
    types: dict[str, str] | None = None
    dates: str = "auto"

    @classmethod
    def of_types(cls, types: dict[str, str], formats: Mapping[str, str] | None = None) -> TableColumns:
        """Return `TableColumns` for columns of known types, which can convert values but cannot encode categories."""
        columns = cls(types=types)
        columns.formats_ = dict(formats or {})
        columns.names_, columns.kinds_, columns.left_out_, columns.levels_ = list(types), list(types.values()), {}, []
        return columns

    def fit(self, X: Any, y: Any = None) -> TableColumns:
        """Determine the type of every column of `X`; the targets `y` decide which text columns are used."""
        self.names_ = column_names(X) if is_frame(X) else [f"column {k}" for k in range(X.shape[1])]
        requested = self._requested()
        self.kinds_: list[str] = []
        self.levels_: list[np.ndarray] = []
        self.left_out_: dict[str, str] = {}
        self.missing_: list[int] = []
        self.formats_: dict[str, str] = {}
        self.idf_: dict[str, np.ndarray] = {}
        self.doubts_: list[str] = []
        for place, name in enumerate(self.names_):
            values, declared = column_values(X, place)
            missing = _missing_mask(values)
            kind, why = self._kind(values, values[~missing], name, declared, requested.get(name))
            if kind in ("date", "number") and values.dtype.kind not in "iufbM":
                self._set_format(kind, name, values[~missing])
            if kind == "text":
                kind, why = self._fit_words(name, values, y, is_requested=requested.get(name) == "text")
            if kind == "number" and values.dtype.kind in "iu" and name not in requested and _looks_like_identifier(values):
                self.doubts_.append(
                    f"{name!r} increases or decreases from row to row like an identifier: leave it out if it is one"
                )
            if kind == "left out":
                self.left_out_[name] = why
            is_compared = (
                y is not None and len(self.names_) > 1 and name not in requested and kind not in ("left out", "text")
            )
            known = self._converted(kind, name, values)[~missing] if is_compared or kind == "category" else values
            if is_compared and predicts_alone(known, np.asarray(y)[~missing]):
                self.doubts_.append(
                    f"{name!r} alone predicts the target almost perfectly: leave it out if new rows will not have it"
                )
            if kind == "category":
                self.levels_.append(np.unique(known.astype(str)))
            self.kinds_.append(kind)
            self.missing_.append(int(missing.sum()))
        return self

    def _requested(self) -> dict[str, str]:
        """Return the types that the user requests, by column name; raise ValueError for unknown columns and types."""
        requested = {str(name): kind for name, kind in (self.types or {}).items()}
        unknown = sorted(set(requested) - set(self.names_))
        if unknown:
            raise ValueError(f"column_types has the names {unknown}, which are not columns of X")
        wrong = next((name for name, kind in requested.items() if kind not in _PREPROCESSING), None)
        if wrong is not None:
            kinds = ", ".join(map(repr, _PREPROCESSING))
            raise ValueError(f"column_types has {requested[wrong]!r} for {wrong!r}; the types are {kinds}")
        return requested

    def _kind(
        self, values: np.ndarray, known: np.ndarray, name: str, declared: bool, requested: str | None
    ) -> tuple[str, str]:
        """Return the type of a column, and the reason if the type is "left out"."""
        if len(known) == 0:
            return "left out", "no value anywhere"
        is_object = values.dtype.kind not in "iufbM"
        if is_object and isinstance(known[0], (list, dict, np.ndarray)):
            return "left out", "lists in cells"
        levels = set(map(category_name, known)) if is_object else set(known[:1]) | set(known[known != known[0]][:1])
        if len(levels) < 2:
            return "left out", "the same value everywhere"
        if requested is not None:
            return requested, "as requested" if requested == "left out" else ""
        if declared or values.dtype.kind == "b":
            return "category", ""
        if values.dtype.kind in "iu" and _numbers_the_rows(values, name):
            return "left out", "row numbers"
        if values.dtype.kind in "iuf":
            return "number", ""
        if values.dtype.kind == "M" or self._are_dates(known):
            return "date", ""
        if number_format(known) is not None and not all(value in MISSING_NUMBERS for value in levels):
            return "number", ""
        if len(levels) > self.most_levels and len(levels) > 0.5 * len(known):
            if self.text != "leave out":
                return "text", ""
            return "left out", f"{len(levels):,} different texts in {len(known):,} rows"
        return "category", ""

    def _are_dates(self, known: np.ndarray) -> bool:
        strings = [value for value in known if isinstance(value, str)]
        others = all(isinstance(value, (str, datetime.date, np.datetime64)) for value in known)
        if not others or not all(map(_DATE.fullmatch, strings)):
            return False
        order = date_order(strings, self.dates)[0]
        return all(parsed_date(value, order) is not None for value in strings)

    def _set_format(self, kind: str, name: str, known: np.ndarray) -> None:
        """Store how the strings of a column are converted to dates or numbers."""
        if kind == "number":
            form = number_format(known)
            if form is not None and not all(map(_is_number, known)):
                self.formats_[name] = form
            return
        order, is_doubtful = date_order(known, self.dates)
        if any(isinstance(value, str) and (match := _DATE.fullmatch(value)) and match[5] for value in known):
            self.formats_[name] = order
        if is_doubtful:
            self.doubts_.append(
                f"no date of {name!r} shows whether the day or the month is first; the month is assumed (dates=)"
            )

    def _fit_words(self, name: str, values: np.ndarray, y: Any, *, is_requested: bool) -> tuple[str, str]:
        """Store the inverse document frequencies of a text column; return its type, and the reason if it is left out."""
        counts = _hashed_words(values)
        self.idf_[name] = 1 + np.log((1 + len(values)) / (1 + (counts != 0).sum(axis=0)))
        is_used = is_requested or self.text == "hash"
        if is_used or (y is not None and _words_predict(_weighted_words(counts, self.idf_[name]), np.asarray(y))):
            return "text", ""
        del self.idf_[name]
        different = f"{len(set(values)):,} different texts in {len(values):,} rows"
        return "left out", different + ("" if y is None else ", whose words do not predict the target")

    def typed(self, X: Any) -> dict[str, np.ndarray]:
        """Return the used columns by name: numbers as float64, dates as datetime64, categories and texts as objects.

        A value that does not have the type of its column raises `CellError`.
        """
        names = column_names(X) if is_frame(X) else self.names_
        twice = [name for name, count in Counter(names).items() if count > 1 and name in self.names_]
        if twice:
            raise ValueError(f"X has several columns with the name {', '.join(map(repr, twice))}: rename them")
        places = {name: place for place, name in enumerate(names)}
        lacking = [name for name in self.type_of if name not in places]
        if lacking:
            raise ValueError(f"X lacks the columns {lacking}, which the model was fitted with")
        return {name: self._converted(kind, name, column_values(X, places[name])[0]) for name, kind in self.type_of.items()}

    def _converted(self, kind: str, name: str, values: np.ndarray) -> np.ndarray:
        """Return the values of a column as float64 for numbers, as datetime64 for dates, and else as objects."""
        # For a column with only ISO dates in training, no format is stored: its new values have the order in `dates`.
        # Model files of version 0.1.0 do not have `formats_`.
        form = getattr(self, "formats_", {}).get(name, self.dates if kind == "date" and self.dates != "auto" else None)
        return _CONVERT[kind](values, name, *([] if form is None else [form]))

    def encode(self, X: Any) -> Encoded:
        """Return the rows of a table as numbers, codes and effects; rows that are already encoded are returned unchanged."""
        if isinstance(X, Encoded):
            return X
        n = frame_rows(X)
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
                words = _hashed_words(values)
                idf = getattr(self, "idf_", {}).get(name)
                numbers.extend((words if idf is None else _weighted_words(words, idf)).T)
            else:
                places = {level: place for place, level in enumerate(self.levels_[len(codes)].tolist())}
                for level, place in list(places.items()):  # model files of version 0.1.0 may have the level "1.0" for 1
                    places.setdefault(level.removesuffix(".0"), place)
                codes.append(np.array([places.get(value, NEW if value == value else MISSING) for value in values], np.int32))
        return self.with_effects(_stacked(numbers, n, float), _stacked(codes, n, np.int32))

    def with_effects(self, numbers: np.ndarray, codes: np.ndarray) -> Encoded:
        """Return encoded rows with the effects of their categories on the target."""
        tables = getattr(self, "effects_", [])  # absent before `fit_effects`, and in model files of version 0.1.0
        effects = [effect for table, column in zip(tables, codes.T, strict=False) for effect in table[column].T]
        return Encoded(numbers, codes, _stacked(effects, len(numbers), float))

    def fit_effects(self, encoded: Encoded, Z: np.ndarray, weights: np.ndarray, seed: int) -> Encoded:
        """Estimate the effect of each category on the targets `Z`; return the training rows with cross-fitted effects.

        A second call, with other rows, estimates effects of the categories that got effects in the first call.
        """
        n_levels = [len(levels) for levels in self.levels_]
        known: list[np.ndarray] | None = getattr(self, "effects_", None)
        used = None if known is None else [table.shape[1] > 0 for table in known]
        effects: np.ndarray
        self.effects_, effects = fit_effects(encoded.codes, n_levels, Z, weights, seed, used)
        return Encoded(encoded.numbers, encoded.codes, effects)

    def encodings(self) -> dict[str, tuple[list[int], list[int]]]:
        """Return encodings by name ending, each with the number of indicators per category and the indices of its effects.

        The first encoding has indicators for categories of up to `most_levels` levels, and all fitted effects of categories
        of more than `_FEW_LEVELS` levels. In the second encoding, " target-encoded", effects replace indicators.
        """
        sizes = [len(levels) for levels in self.levels_]
        ends = np.cumsum([0] + [table.shape[1] for table in self.effects_])
        places = [list(range(*pair)) for pair in pairwise(ends.tolist())]
        has_others = any(kind in ("number", "date", "text") for kind in self.kinds_) or min(sizes) <= self.most_levels
        most = self.most_levels if has_others or ends[-1] else max(sizes)
        counts = [size if size <= most else 0 for size in sizes]
        many = [place for own, size in zip(places, sizes, strict=True) if size > _FEW_LEVELS for place in own]
        replaced = [0 if own else count for own, count in zip(places, counts, strict=True)]
        found = {"": (counts, many)}
        return found if replaced == counts else found | {TARGET_ENCODED: (replaced, list(range(ends[-1])))}

    def encoded_places(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return the positions of each used column among the numbers and the codes of encoded rows, by name."""
        places, numbers, codes = {}, 0, 0
        for name, kind in self.type_of.items():
            width, is_category = len(_NUMBER_NAMES[kind]), kind == "category"
            places[name] = np.arange(numbers, numbers + width), np.arange(codes, codes + is_category)
            numbers, codes = numbers + width, codes + is_category
        return places

    def encoded_names(self, n_indicators: Sequence[int], effects: Sequence[int]) -> tuple[list[str], list[str]]:
        """Return the names of the numeric features with the given effects, and the names of the indicators of levels."""
        types = self.type_of
        categories = [name for name, kind in types.items() if kind == "category"]
        numbers = [name + part for name, kind in types.items() for part in _NUMBER_NAMES[kind]]
        tables = getattr(self, "effects_", [])  # absent in model files of version 0.1.0
        named = [
            f"{name} effect {k}" for name, table in zip(categories, tables, strict=False) for k in range(table.shape[1])
        ]
        levels = zip(categories, self.levels_, n_indicators, strict=True)
        indicators = [f"{name}={level}" for name, known, count in levels for level in known[:count]]
        return numbers + [named[place] for place in effects], indicators

    @property
    def type_of(self) -> dict[str, str]:
        """Types of the columns that are used, by name."""
        return {name: kind for name, kind in zip(self.names_, self.kinds_, strict=True) if kind in USED_KINDS}

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
        # Round, because the last digits of a sine differ between mathematical libraries, which would change quantile ranks.
        found += [np.round(np.sin(2 * np.pi * phase), PHASE_DIGITS), np.round(np.cos(2 * np.pi * phase), PHASE_DIGITS)]
    return [np.where(missing, np.nan, column) for column in found]


def _hashed_words(values: np.ndarray) -> np.ndarray:
    """Return the counts of the words of each text in hash buckets, divided by the Euclidean norm of the counts."""
    from sklearn.feature_extraction.text import HashingVectorizer

    texts = ["" if _is_missing(value) else str(value) for value in values]
    return HashingVectorizer(n_features=_HASHED_FEATURES).transform(texts).toarray()


def _weighted_words(counts: np.ndarray, idf: np.ndarray) -> np.ndarray:
    """Return TF-IDF values: counts times inverse document frequencies, divided by the Euclidean norm of each row."""
    weighted = counts * idf
    return weighted / np.maximum(np.linalg.norm(weighted, axis=1, keepdims=True), np.finfo(float).tiny)


def _words_predict(words: np.ndarray, y: np.ndarray) -> bool:
    """Return True if a ridge regression on the words predicts left-out targets better than the mean target does."""
    from sklearn.linear_model import RidgeCV
    from sklearn.preprocessing import LabelBinarizer

    rows = np.random.RandomState(0).permutation(len(words))[:_ROWS_FOR_WORDS]
    # Replace numeric targets by their ranks, because extreme values would dominate the squared error.
    Z = LabelBinarizer().fit_transform(y)[rows] if y.dtype.kind != "f" else rankdata(y[rows])[:, None]
    Z = (Z - Z.mean(axis=0)) / np.maximum(Z.std(axis=0), np.finfo(float).tiny)
    errors = RidgeCV(alphas=np.logspace(-2, 3, 6), store_cv_results=True).fit(words[rows], Z).cv_results_
    errors = errors.reshape(len(rows), -1, errors.shape[-1]).mean(axis=1)  # (rows, ridges)
    n = len(rows)
    gains = (Z * n / (n - 1)) ** 2 @ np.full(Z.shape[1], 1 / Z.shape[1]) - errors[:, errors.mean(axis=0).argmin()]
    return bool(gains.mean() > max(_SMALLEST_GAIN, _STANDARD_ERRORS * gains.std() / n**0.5))


def predicts_alone(values: np.ndarray, y: np.ndarray) -> bool:
    """Return True if a column predicts almost all classes by few intervals or levels, or the ranks of numeric targets."""
    rows = np.random.RandomState(0).permutation(len(values))[:_ROWS_ALONE]
    values, y = values[rows], y[rows]
    is_category = values.dtype.kind == "O"
    if len(rows) < _FEWEST_ROWS_ALONE:
        return False
    if y.dtype.kind == "f":
        if is_category or (y == y[0]).all() or (values == values[0]).all():
            return False
        return bool(abs(spearmanr(values.astype(np.float64), y).statistic) > _ALONE)
    classes, codes = np.unique(y, return_inverse=True)
    if len(rows) - np.bincount(codes).max() < _FEWEST_OTHERS:
        return False
    if not is_category:
        tree = DecisionTreeClassifier(max_leaf_nodes=max(2, len(classes)), random_state=0)
        points = values.astype(np.float64)[:, None]
        return bool(tree.fit(points, codes).score(points, codes) > _ALONE)
    levels, places = np.unique(values.astype(str), return_inverse=True)
    counts = np.bincount(places * len(classes) + codes, minlength=len(levels) * len(classes)).reshape(-1, len(classes))
    repeated = counts[counts.sum(axis=1) > 1]  # a level of a single row predicts no other row
    return bool(repeated.max(axis=1, initial=0).sum() > _ALONE * len(rows))


def _looks_like_identifier(values: np.ndarray) -> bool:
    """Return True if the integers increase, or decrease, in almost every step from one row to the next."""
    steps = np.sign(np.diff(values.astype(np.float64)))
    return len(values) >= _FEWEST_ROW_NUMBERS and abs(steps.sum()) >= _SAME_DIRECTION * len(steps)
