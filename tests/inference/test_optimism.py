"""The optimism of selected settings against brute force and against new rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramless import LSSVR
from gramless.inference.leave_one_out import optimism


def test_optimism_is_the_ratio_of_errors_on_new_rows():
    """If all settings are equally good, the bootstrap estimates by how much the error of the selected one is too small."""
    rng = np.random.default_rng(0)
    true, told = [], []
    for _ in range(60):
        squares = rng.normal(size=(40, 60)) ** 2
        true.append(1 / np.sqrt(squares.mean(axis=0).min()))  # new squares have mean one whatever was chosen
        told.append(optimism(squares))
    assert np.mean(told) == pytest.approx(np.mean(true), rel=0.05)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 40), st.integers(1, 8), st.integers(0, 100))
def test_optimism_is_at_least_one_and_independent_of_units(n, k, seed):
    squares = np.random.default_rng(seed).exponential(size=(n, k))
    factor = optimism(squares)
    assert 1.0 <= factor < np.inf
    assert optimism(9.0 * squares) == pytest.approx(factor)
    assert optimism(squares, np.ones(n)) == factor


def test_optimism_of_a_single_setting_is_one():
    squares = np.random.default_rng(0).exponential(size=(30, 1))
    assert optimism(squares) == 1.0
    assert optimism(np.zeros((30, 5))) == 1.0


def test_rows_of_weight_zero_do_not_change_the_optimism():
    rng = np.random.default_rng(0)
    squares, weights = rng.exponential(size=(30, 6)), np.r_[np.ones(20), np.zeros(10)]
    spoiled = squares.copy()
    spoiled[20:] *= 1e6
    assert optimism(squares, weights) == optimism(spoiled, weights)


def test_intervals_of_a_search_are_wider_by_the_optimism():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    y = X[:, 0] + rng.normal(size=50)
    search = LSSVR(C="loo", Cs=np.logspace(-2, 3, 12), gamma=[0.01, 0.1, 1.0]).fit(X, y)
    assert 1.0 < search.optimism_ < 1.5
    alone = LSSVR(kernel=search.kernel_, C=search.C_).fit(X, y)
    ends, narrow = search.predict_interval(X), alone.predict_interval(X)
    ratio = np.ptp(ends, axis=1) / np.ptp(narrow, axis=1)
    assert np.median(ratio) == pytest.approx(search.optimism_, rel=0.05)
