"""The model depends on data, parameters and `random_state` only: not on earlier fits or imports, the process, its load or
its threads.

`determinism_table.py` fits every public estimator under each of these circumstances in processes of their own, and prints
the differences for other numbers of rows. Kernel matrices of 90,000 and of 360,000 values are between and above the sizes
from which kernels use compiled loops (2^12 and 2^18 values).
"""

import os

import numpy as np
import pytest
from determinism_table import difference, table

SIZES = ((300, "float32"), (600, "float64"))
# Bounds on the differences of scores between numbers of threads, relative to the largest score, for estimators that multiply
# matrices by BLAS in several threads, which round differently than one. All other estimators give the same bytes.
BOUNDS = {
    "BudgetLSSVC": 1e-4,  # stochastic gradients of the batches, in the precision of the data
    "BudgetLSSVR": 1e-4,
    "ImageClassifier": 1e-5,  # float32 activations of patches
    "NystromNovelty": 1e-12,  # leverages, float64
}


@pytest.fixture(scope="module")
def found():
    """Return the differences by case and circumstances."""
    if not hasattr(os, "fork"):
        pytest.skip("needs processes that start as copies of another one")
    return table(SIZES, circumstances=("again", "imports", "2", "4", "load"))


@pytest.mark.parametrize("circumstances", ["again", "imports", "load"])
def test_equal_bytes_under_all_circumstances(found, circumstances):
    assert len(found) >= len(SIZES) * 20
    assert {case: cells[circumstances] for case, cells in found.items() if cells[circumstances] is not None} == {}


@pytest.mark.parametrize("threads", ["2", "4"])
def test_the_number_of_threads_changes_at_most_the_rounding(found, threads):
    differing = {case: cells[threads] for case, cells in found.items() if cells[threads] is not None}
    assert {case: value for case, value in differing.items() if value > BOUNDS.get(case.split()[0], 0)} == {}


def test_differences_are_found():
    scores, labels = np.array([1.0, 2.0]), np.array([0, 1])
    assert difference([scores, labels], [scores.copy(), labels.copy()]) is None
    assert difference([scores, labels], [np.nextafter(scores, 3), labels]) == pytest.approx(2**-52)
    assert difference([scores, labels], [scores, labels[::-1]]) == 1.0
    assert difference([scores], [scores.astype(np.float32)]) == 0.0  # equal numbers in other bytes are a difference too
