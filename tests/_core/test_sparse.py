"""Products of sparse rows against SciPy's own."""

import numpy as np
import pytest
import scipy.sparse as sp

from gramless._core import sparse


def rows(n, d, rng, dtype="d"):
    """Some columns in every row, some in most, the others in few, as words are."""
    share = np.concatenate([[1.0, 0.9, 0.5, 0.2], np.full(d - 4, 0.02)])
    return sp.csr_matrix(((rng.random((n, d)) < share) * rng.normal(size=(n, d))).astype(dtype))


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_products_of_rows_with_frequent_and_rare_columns(dtype):
    rng = np.random.default_rng(0)
    X, Y = rows(40, 50, rng, dtype), rows(60, 50, rng, dtype)
    expected = (X @ Y.T).toarray()
    tolerance = 1e-12 if dtype == "d" else 1e-5
    np.testing.assert_allclose(sparse.dot(X, Y), expected, atol=tolerance)
    out = np.full((40, 100), np.nan, dtype)
    sparse.dot(X, Y, out[:, 20:80])
    np.testing.assert_allclose(out[:, 20:80], expected, atol=tolerance)
    assert np.isnan(out[:, :20]).all()
    np.testing.assert_allclose(sparse.dot(X, Y.toarray()), expected, atol=tolerance)


def test_no_column_is_frequent_or_every_one_is():
    rng = np.random.default_rng(0)
    for density in (0.0, 0.05, 1.0):
        X = sp.random(30, 20, density, format="csr", rng=rng)
        np.testing.assert_allclose(sparse.dot(X, X), (X @ X.T).toarray(), atol=1e-12)


def test_entries_that_are_named_twice_add_up():
    X = sp.csr_matrix((np.array([1.0, 2.0, 3.0]), np.array([0, 0, 1]), np.array([0, 3])), shape=(1, 2))
    np.testing.assert_allclose(sparse.dot(X, X), [[18.0]])
