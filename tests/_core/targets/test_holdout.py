"""Splits for early stopping: complete, in proportion, no class lost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramless._core.targets.holdout import hold_out


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(4, 80), st.floats(0.05, 0.6), st.integers(0, 10_000), st.integers(1, 5))
def test_every_row_once_and_every_class_in_training(n, fraction, seed, n_classes):
    rng = np.random.RandomState(seed)
    rows = np.sort(rng.permutation(2 * n)[:n])
    classes = rng.randint(n_classes, size=2 * n)
    if len(np.unique(classes[rows])) > n // 2:
        return
    train, held_out = hold_out(rows, fraction, rng, classes)
    np.testing.assert_array_equal(np.sort(np.r_[train, held_out]), rows)
    assert set(classes[train]) == set(classes[rows])
    assert 1 <= len(held_out) <= max(1, round(fraction * n))


def test_each_class_gives_its_share():
    classes = np.repeat([0, 1, 2], [700, 200, 100])
    _, held_out = hold_out(np.arange(1000), 0.1, np.random.RandomState(0), classes)
    np.testing.assert_allclose(np.bincount(classes[held_out]), [70, 20, 10], atol=1)


def test_without_classes_it_is_a_plain_split():
    train, held_out = hold_out(np.arange(100), 0.25, np.random.RandomState(0))
    assert (len(train), len(held_out)) == (75, 25)
    other = hold_out(np.arange(100), 0.25, np.random.RandomState(1))[1]
    assert set(other) != set(held_out)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 7])
def test_no_fraction(fraction):
    with pytest.raises(ValueError, match="validation_fraction must be between 0 and 1"):
        hold_out(np.arange(10), fraction, np.random.RandomState(0))


def test_too_few():
    with pytest.raises(ValueError, match="needs more than 2 samples"):
        hold_out(np.arange(2), 0.5, np.random.RandomState(0))
    with pytest.raises(ValueError, match="needs more than 3 samples"):
        hold_out(np.arange(3), 0.1, np.random.RandomState(0), np.arange(3))
