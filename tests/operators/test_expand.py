"""Products of kernel matrices with coefficients against dense algebra in float64."""

import numpy as np
import pytest

from gramless._compiled.scalar import exp32
from gramless.kernels import RBF
from gramless.operators import blocks, expand


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize(("n", "m", "d", "k"), [(1, 1, 1, 1), (7, 300, 3, 1), (1030, 513, 8, 3), (50, 40, 16, 8)])
def test_few_features(monkeypatch, n, m, d, k, offset):
    monkeypatch.setattr(blocks, "_MANY_OPERATIONS", 0)
    rng = np.random.default_rng(0)
    X, points = (rng.normal(size=(size, d)).astype("f") + np.float32(offset) for size in (n, m))
    coef = rng.normal(size=(m, k)).astype("f")
    assert blocks._is_small_gaussian(RBF(0.3), X, points, coef)
    exact = RBF(0.3)(X.astype("d"), points.astype("d")) @ coef
    scores = expand(RBF(0.3), X, points, coef)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, exact, atol=2e-5 * np.abs(coef).sum(axis=0).max() / m**0.5 + 1e-6)


def test_blocks_are_finished_in_one_pass_whatever_they_are_part_of():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(600, 40)).astype("f"), rng.normal(size=(500, 40)).astype("f")
    exact = RBF(0.1)(X.astype("d"), Y.astype("d"))
    np.testing.assert_allclose(RBF(0.1)(X, Y), exact, atol=2e-6)
    out = np.full((600, 700), np.nan, "f")
    RBF(0.1)(X, Y, out=out[:, 100:600])
    np.testing.assert_allclose(out[:, 100:600], exact, atol=2e-6)
    assert np.isnan(out[:, :100]).all()
    assert np.isnan(out[:, 600:]).all()


def test_the_compiled_exponential():
    import numba

    @numba.vectorize(["float32(float32)"])
    def exponential(x):
        return exp32(x)

    x = -np.concatenate([[0.0], np.geomspace(1e-8, 87.0, 20_000)]).astype("f")
    exact = np.exp(x.astype("d"))
    np.testing.assert_allclose(exponential(x), exact, rtol=3e-7)
    assert exponential(np.float32(0)) == 1
    assert 0 <= exponential(np.float32(-1e30)) < 2e-38
