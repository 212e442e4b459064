"""Column types and encodings of frames of every library."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from gramless.tables.column_types import TableColumns
from gramless.tables.target_encoding import MISSING, NEW

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


@pytest.mark.parametrize("library", FRAMES)
def test_durations_are_numbers_of_days(library):
    durations = [datetime.timedelta(hours=6), None, datetime.timedelta(days=2), datetime.timedelta(days=-1)]
    frame = FRAMES[library]({"delay": durations})
    columns = TableColumns().fit(frame)
    assert columns.kinds_ == ["number"]
    np.testing.assert_array_equal(columns.encode(frame).numbers[:, 0], [0.25, np.nan, 2.0, -1.0])


def test_missing_values_of_arrow_dictionaries_are_missing():
    frame = pa.table({"leaf": pa.array(["oval", None, "needle", "oval"]).dictionary_encode()})
    columns = TableColumns().fit(frame)
    assert columns.kinds_ == ["category"]
    assert columns.missing_ == [1]
    assert columns.encode(frame).codes.ravel().tolist() == [1, -1, 0, 1]


def test_phases_of_dates_come_around():
    dates = pd.DataFrame({"day": pd.to_datetime(["2024-01-01", "2024-01-08", "2023-01-01", "2024-06-30"])})
    numbers = TableColumns().fit(dates).encode(dates).numbers
    days, year_sine, _, week_sine, week_cosine, day_sine, day_cosine = numbers.T
    np.testing.assert_allclose(np.diff(days)[0], 7)
    np.testing.assert_allclose(year_sine[[0, 2]], 0, atol=1e-12)
    np.testing.assert_allclose([week_sine[0], week_cosine[0]], [week_sine[1], week_cosine[1]], atol=1e-12)
    np.testing.assert_allclose(day_sine, 0, atol=1e-12)
    np.testing.assert_allclose(day_cosine, 1)


def test_missing_values_and_new_levels_have_their_own_codes():
    frame = pd.DataFrame({"word": ["a"] * 5 + ["b"] * 3 + ["c"]})
    columns = TableColumns(most_levels=2).fit(frame)
    assert columns.levels_[0].tolist() == ["a", "b", "c"]
    codes = columns.encode(pd.DataFrame({"word": ["b", "c", "new", None]})).codes
    assert codes.ravel().tolist() == [1, 2, NEW, MISSING]


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


@pytest.mark.parametrize(
    ("types", "words"),
    [({"cod": "category"}, r"\['cod'\], which are not columns"), ({"code": "numeric"}, "'numeric' for 'code'; the types")],
)
def test_requested_types_and_their_columns_must_be_known(types, words):
    with pytest.raises(ValueError, match=words):
        TableColumns(types=types).fit(pd.DataFrame({"code": [1, 2, 3, 1]}))


def test_requested_types_of_columns_with_numbers_as_names():
    assert TableColumns(types={0: "category"}).fit(pd.DataFrame({0: [1, 2, 3, 1]})).kinds_ == ["category"]


def test_blank_strings_are_missing():
    frame = pd.DataFrame({"charges": [" ", "29.85", "1889.5", "108.15"], "plan": ["a", "  ", "b", "a"]})
    columns = TableColumns().fit(frame)
    assert columns.kinds_ == ["number", "category"]
    assert columns.missing_ == [1, 1]
    np.testing.assert_array_equal(columns.typed(frame)["charges"], [np.nan, 29.85, 1889.5, 108.15])


def test_integers_are_the_same_levels_in_every_dtype():
    floats = pd.Series([1.0, 2.0, np.nan, 2.0])
    frame = pd.DataFrame({"grade": floats.astype("category")})
    columns = TableColumns().fit(frame)
    assert columns.levels_[0].tolist() == ["1", "2"]
    for grades in (floats, floats.astype("Int64"), floats.astype("category"), floats.astype(object)):
        assert columns.encode(pd.DataFrame({"grade": grades})).codes.ravel().tolist() == [0, 1, -1, 1]
    columns.levels_ = [np.array(["1.0", "2.0"])]  # as in files of version 0.1.0
    assert columns.encode(frame).codes.ravel().tolist() == [0, 1, -1, 1]


@pytest.mark.parametrize(("dates", "expected"), [("day first", "2023-02-03"), ("month first", "2023-03-02")])
def test_the_requested_order_of_dates_holds_for_new_rows(dates, expected):
    columns = TableColumns(dates=dates).fit(pd.DataFrame({"day": ["2023-01-05", "2023-01-06"]}))
    assert columns.typed(pd.DataFrame({"day": ["03/02/2023"]}))["day"][0] == np.datetime64(expected)


def test_new_rows_of_a_column_of_iso_dates_must_be_iso_dates_if_requested():
    columns = TableColumns(dates="iso").fit(pd.DataFrame({"day": ["2023-01-05", "2023-01-06"]}))
    with pytest.raises(ValueError, match="'03/02/2023' is not a date"):
        columns.typed(pd.DataFrame({"day": ["03/02/2023"]}))


def test_columns_print_as_a_table():
    frame = pd.DataFrame({"x": [1.0, None, 2.0], "planet": ["earth"] * 3})
    heading, number, constant = repr(TableColumns().fit(frame)).splitlines()
    assert heading.split() == ["name", "type", "preprocessing", "missing", "reason"]
    assert number.split()[:2] == ["x", "number"]
    assert number.split()[-1] == "1"
    assert constant.endswith("the same value everywhere")


def messy(n=60):
    days = pd.date_range("2022-01-01", periods=n)
    amounts = np.random.default_rng(0).uniform(100, 5000, n)
    swap = str.maketrans(",.", ".,")
    frame = pd.DataFrame(
        {
            "german": days.strftime("%d.%m.%Y"),
            "us": days.strftime("%m/%d/%Y"),
            "british": days.strftime("%d/%m/%Y"),
            "iso": days.strftime("%Y-%m-%d"),
            "dollars": [f"${v:,.2f}" for v in amounts],
            "euros": [f"{v:,.2f} €".translate(swap) for v in amounts],
            "percent": [f"{v:.1f} %" for v in amounts],
        }
    )
    return frame, days, amounts


def test_dates_and_amounts_are_read_as_they_are_written_in_the_column():
    frame, days, amounts = messy()
    columns = TableColumns().fit(frame)
    assert columns.kinds_ == ["date"] * 4 + ["number"] * 3
    assert columns.doubts_ == []
    typed = columns.typed(frame)
    for name in ("german", "us", "british", "iso"):
        np.testing.assert_array_equal(typed[name], days.to_numpy().astype("datetime64[us]"))
    for name in ("dollars", "euros"):
        np.testing.assert_allclose(typed[name], amounts, atol=0.005)
    np.testing.assert_allclose(typed["percent"], amounts, atol=0.05)
    # The order comes from the training rows; these values alone would be ambiguous.
    assert columns.typed(frame[2:3])["british"] == np.datetime64("2022-01-03")
    assert TableColumns(dates="iso").fit(frame).kinds_[:4] == ["category", "category", "category", "date"]


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["1.200", "999,50", "1.234,50", "2.000", "0.5"], [1200.0, 999.5, 1234.5, 2000.0, 0.5]),
        (["0,125", "0,250", "1,5"], [0.125, 0.25, 1.5]),
        (["0,125", "0,250", "1,500"], [0.125, 0.25, 1.5]),
        (["-$5.00", "$6.50", "$-7", "+ $1,000"], [-5.0, 6.5, -7.0, 1000.0]),
        (["(1,234.50)", "$ (3.00)", "($2)", "4"], [-1234.5, -3.0, -2.0, 4.0]),
        (["1\u00a0234,5 €", "12\u202f345,5 €", "3,5 €"], [1234.5, 12345.5, 3.5]),
    ],
)
def test_amounts_have_the_sign_and_the_separators_of_their_column(texts, numbers):
    frame = pd.DataFrame({"amount": texts})
    columns = TableColumns().fit(frame)
    assert columns.kinds_ == ["number"]
    np.testing.assert_array_equal(columns.typed(frame)["amount"], numbers)


def test_the_order_of_ambiguous_dates_is_reported_and_can_be_set():
    frame = pd.DataFrame({"day": ["06/12/2023", "05/11/2023"] * 10})
    columns = TableColumns().fit(frame)
    assert "the month is assumed" in columns.doubts_[0]
    assert columns.typed(frame)["day"][0] == np.datetime64("2023-06-12")
    assert TableColumns(dates="day first").fit(frame).typed(frame)["day"][0] == np.datetime64("2023-12-06")


def test_texts_are_used_where_their_words_predict_the_target():
    rng = np.random.default_rng(0)
    good = rng.random(200) > 0.5
    words = np.where(good, "many thanks, great", "it came broken")
    frame = pd.DataFrame({"note": [f"order {k}: {word}" for k, word in enumerate(words)], "x": rng.normal(size=200)})
    frame["noise"] = [f"order {k}: {rng.integers(1e9)}" for k in range(200)]
    columns = TableColumns().fit(frame, good.astype(int))
    assert columns.kinds_ == ["text", "number", "left out"]
    assert "do not predict the target" in columns.left_out_["noise"]
    assert TableColumns().fit(frame).kinds_[0] == "left out"
    assert TableColumns(text="hash").fit(frame).kinds_[2] == "text"


def test_integers_that_only_increase_are_reported():
    frame = pd.DataFrame({"id": 1000 + 3 * np.arange(50), "x": np.random.default_rng(0).integers(0, 1000, 50)})
    assert len(TableColumns().fit(frame).doubts_) == 1
    assert "'id' increases or decreases" in TableColumns().fit(frame).doubts_[0]
    assert TableColumns(types={"id": "number"}).fit(frame).doubts_ == []


def test_two_columns_with_one_name_are_reported():
    frame = pd.DataFrame([[1.0, 2.0], [3.0, 4.0]], columns=["a", "a"])
    columns = TableColumns().fit(frame)
    with pytest.raises(ValueError, match="several columns with the name 'a'"):
        columns.encode(frame)
