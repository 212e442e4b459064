"""Column types and encodings of frames of every library."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from gramless.tables.column_types import TableColumns

MIXED = {
    "height": [1.5, 2.0, None, 4.0],
    "count": [1, 2, 3, 4],
    "leaf": ["oval", None, "needle", "oval"],
    "planet": ["earth"] * 4,
    "seen": [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 7, 1, 12), None, datetime.datetime(2025, 1, 1)],
    "ripe": [True, False, True, True],
}
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}


@pytest.mark.parametrize("library", FRAMES)
def test_kinds_and_values_are_the_same_in_every_library(library):
    frame = FRAMES[library](MIXED)
    columns = TableColumns().fit(frame)
    assert columns.kinds_ == ["number", "number", "category", "left out", "date", "category"]
    assert columns.left_out_ == {"planet": "the same value everywhere"}
    encoded = columns.encode(frame)
    np.testing.assert_array_equal(encoded.numbers[:, 0], [1.5, 2.0, np.nan, 4.0])
    np.testing.assert_array_equal(encoded.codes[:, 0], [1, -1, 0, 1])
    np.testing.assert_array_equal(encoded.codes[:, 1], [1, 0, 1, 1])
    assert [level.tolist() for level in columns.levels_] == [["needle", "oval"], ["False", "True"]]
    days = encoded.numbers[:, 2]
    assert days[1] - days[0] == 182.5
    assert np.isnan(days[2])


def test_phases_of_dates_come_around():
    dates = pd.DataFrame({"day": pd.to_datetime(["2024-01-01", "2024-01-08", "2023-01-01", "2024-06-30"])})
    numbers = TableColumns().fit(dates).encode(dates).numbers
    days, year_sine, _, week_sine, week_cosine, day_sine, day_cosine = numbers.T
    np.testing.assert_allclose(np.diff(days)[0], 7)
    np.testing.assert_allclose(year_sine[[0, 2]], 0, atol=1e-12)
    np.testing.assert_allclose([week_sine[0], week_cosine[0]], [week_sine[1], week_cosine[1]], atol=1e-12)
    np.testing.assert_allclose(day_sine, 0, atol=1e-12)
    np.testing.assert_allclose(day_cosine, 1)


def test_levels_that_are_new_rare_or_missing_are_none_of_the_known():
    frame = pd.DataFrame({"word": ["a"] * 5 + ["b"] * 3 + ["c"]})
    columns = TableColumns(most_levels=2).fit(frame)
    assert columns.levels_[0].tolist() == ["a", "b"]
    codes = columns.encode(pd.DataFrame({"word": ["b", "c", "new", None]})).codes
    assert codes.ravel().tolist() == [1, -1, -1, -1]


def test_texts_are_left_out_with_advice_or_hashed():
    frame = pd.DataFrame({"note": [f"row {k} is {k * 7919}" for k in range(300)], "x": np.arange(300.0)})
    columns = TableColumns().fit(frame)
    assert columns.kinds_ == ["left out", "number"]
    assert columns.left_out_["note"] == "300 different texts in 300 rows"
    hashed = TableColumns(text="hash").fit(frame)
    assert hashed.kinds_ == ["text", "number"]
    assert hashed.encode(frame).numbers.shape == (300, 33)


def test_numbers_that_become_words_are_reported():
    columns = TableColumns().fit(pd.DataFrame({"x": [1.0, 2.0]}))
    with pytest.raises(ValueError, match="row 1, column 'x': 'tall' is not a number"):
        columns.encode(pd.DataFrame({"x": ["tall", "small"]}))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, False, None, True] * 10, "category"),
        ([1.0, None, 1.0, 1.0] * 10, "left out"),
        (list(range(40)), "left out"),
        (list(range(1, 41))[::-1], "left out"),
        ([*range(39), 50], "number"),
        (["2024-02-29", "2023-01-01T12:30", None, "2024-06-30 00:00:00+02:00"] * 10, "date"),
        (["2024-02-29", "2024-02-30"] * 20, "category"),
        (["1.5", " 2", "-", "?", "1e3"] * 8, "number"),
        (["01", "02", "2A", ""] * 10, "category"),
        (["NA", "EU"] * 20, "category"),
        (pd.Categorical([1, 2, 3, 4] * 10), "category"),
        ([[1, 2]] * 40, "left out"),
        ([None] * 40, "left out"),
    ],
    ids=str,
)
def test_the_type_of_a_column_follows_from_its_values(values, kind):
    frame = pd.DataFrame({"x": values})
    columns = TableColumns().fit(frame)
    assert columns.kinds_ == [kind]
    columns.encode(frame)


def test_numbers_and_dates_as_strings_have_the_values_of_numbers_and_dates():
    frame = pd.DataFrame({"n": ["1.5", "-", "3"], "d": ["2024-01-01", "?", "2024-01-03T12:00+02:00"]})
    typed = TableColumns().fit(frame).typed(frame)
    np.testing.assert_array_equal(typed["n"], [1.5, np.nan, 3.0])
    np.testing.assert_array_equal(typed["d"], np.array(["2024-01-01", "NaT", "2024-01-03T10:00"], "datetime64[us]"))


def test_requested_types_replace_those_of_the_values():
    frame = pd.DataFrame({"code": [1, 2, 3, 1], "x": [1.0, 2.0, 3.0, 5.0]})
    assert TableColumns(types={"code": "category"}).fit(frame).kinds_ == ["category", "number"]


def test_columns_print_as_a_table():
    frame = pd.DataFrame({"x": [1.0, None, 2.0], "planet": ["earth"] * 3})
    heading, number, constant = repr(TableColumns().fit(frame)).splitlines()
    assert heading.split() == ["name", "type", "preprocessing", "missing", "reason"]
    assert number.split()[:2] == ["x", "number"]
    assert number.split()[-1] == "1"
    assert constant.endswith("the same value everywhere")
