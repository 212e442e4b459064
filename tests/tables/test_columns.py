"""What columns are found to be, whatever library the frame is of."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from gramless.tables.columns import TableColumns

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
    assert columns.kinds_ == ["number", "number", "category", "left out", "date", "number"]
    assert columns.left_out_ == {"planet": "the same value everywhere"}
    encoded = columns.encode(frame)
    np.testing.assert_array_equal(encoded.numbers[:, 0], [1.5, 2.0, np.nan, 4.0])
    np.testing.assert_array_equal(encoded.numbers[:, -1], [1, 0, 1, 1])
    np.testing.assert_array_equal(encoded.codes[:, 0], [1, -1, 0, 1])
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
    assert "text='hash'" in columns.left_out_["note"]
    hashed = TableColumns(text="hash").fit(frame)
    assert hashed.kinds_ == ["text", "number"]
    assert hashed.encode(frame).numbers.shape == (300, 33)


def test_numbers_that_become_words_are_reported():
    columns = TableColumns().fit(pd.DataFrame({"x": [1.0, 2.0]}))
    with pytest.raises(ValueError, match="x held numbers when the model was fitted, and now holds 'tall'"):
        columns.encode(pd.DataFrame({"x": ["tall", "small"]}))
