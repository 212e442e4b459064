"""Whitened kernel values with landmarks."""

import numpy as np
import pytest
import scipy.linalg

from gramless.approximation.features.landmark_map import whiten_rows


@pytest.mark.parametrize("rows", [1, 3, 63, 64, 65, 200, 1500])
def test_the_features_of_a_row_do_not_depend_on_its_batch(rows):
    rng = np.random.default_rng(0)
    X = np.exp(2 * rng.normal(size=(1500, 5)))
    K = np.exp(-1e-3 * ((X[:, None] - X[None, :300]) ** 2).sum(axis=2))
    L = np.linalg.cholesky(K[:300] + 4e-15 * np.eye(300))
    assert scipy.linalg.svdvals(L)[-1] < 1e-6
    whole, some = whiten_rows(L, K), rng.permutation(1500)[:rows]
    np.testing.assert_array_equal(whiten_rows(L, K[some]), whole[some])
    np.testing.assert_allclose(whole @ L.T, K, atol=1e-13)
