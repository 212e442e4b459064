"""Compiled functions: what numba keeps on disk is found again, and sums over columns equal plain ones in any layout."""

import importlib
import pkgutil

import numpy as np
import pytest
from numba.core.registry import CPUDispatcher
from scipy.spatial.distance import cdist

import gramless._core.compiled
from gramless._core.compiled.difference_sums import absolute_difference_sums
from gramless._core.compiled.register_tiles import CITY_BLOCK, DIFFERING, fill

NEEDS_A_GPU = {"fused_kernel", "smo_triton"}
MODULES = [one.name for one in pkgutil.iter_modules(gramless._core.compiled.__path__) if one.name not in NEEDS_A_GPU]


@pytest.mark.parametrize("name", MODULES)
def test_no_compiled_function_has_variables_of_an_outer_one(name):
    """Numba takes their pickled values into the name under which it keeps the code; an intrinsic's differs every time."""
    module = importlib.import_module(f"gramless._core.compiled.{name}")
    compiled = {key: value for key, value in vars(module).items() if isinstance(value, CPUDispatcher)}
    assert [key for key, value in compiled.items() if value.py_func.__closure__] == []


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "m", "d"), [(1, 1, 1), (7, 9, 3), (33, 20, 5), (4, 0, 2), (3, 5, 0)])
def test_sums_over_columns_fill_any_block(dtype, n, m, d):
    rng = np.random.default_rng(0)
    wide = rng.integers(0, 4, (2 * (n + m), d)).astype(np.float64)
    X, Y = wide[: 2 * n : 2], wide[2 * n :: 2]
    expected = cdist(X, Y, "cityblock") if n * m * d else np.zeros((n, m))
    for out in (np.empty((n, m), dtype), np.empty((n, m + 3), dtype)[:, 2 : 2 + m], np.empty((n, m), dtype, order="F")):
        fill(CITY_BLOCK, X, Y, out)
        np.testing.assert_array_equal(out, expected)
        fill(DIFFERING, X, Y, out)
        np.testing.assert_array_equal(out, (X[:, None] != Y[None]).sum(axis=2))


def test_weighted_sums_of_differences():
    rng = np.random.default_rng(0)
    V, X = rng.normal(size=(40, 40)), rng.normal(size=(40, 3))
    V += V.T
    expected = np.einsum("ij,ijk->k", V, np.abs(X[:, None] - X[None]))
    np.testing.assert_allclose(absolute_difference_sums(V, X), expected)
