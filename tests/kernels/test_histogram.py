"""Histogram kernels against scikit-learn and their definitions."""

import numpy as np
import pytest
from sklearn.metrics.pairwise import additive_chi2_kernel, chi2_kernel

from gramless.kernels import Chi2, ExpChi2, Intersection

KERNELS = [Chi2(), ExpChi2(gamma=0.3), Intersection()]


@pytest.fixture(params=[np.float32, np.float64])
def histograms(request):
    rng = np.random.default_rng(0)
    X = rng.random((70, 13)).astype(request.param)
    X[rng.random(X.shape) < 0.4] = 0
    X[5] = 0
    return X, X[:40] + 0


def direct(kernel, X, Y):
    x, y = X.astype(float)[:, None], Y.astype(float)[None]
    if isinstance(kernel, Intersection):
        return np.minimum(x, y).sum(-1)
    total = np.where(x + y > 0, x + y, 1)
    if isinstance(kernel, Chi2):
        return (2 * x * y / total).sum(-1)
    return np.exp(-kernel.gamma * ((x - y) ** 2 / total).sum(-1))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_blocks_follow_the_definition(kernel, histograms):
    X, Y = histograms
    block = kernel(X, Y)
    assert block.dtype == X.dtype
    np.testing.assert_allclose(block, direct(kernel, X, Y), rtol=2e-6)
    out = np.full((70, 80), np.nan, dtype=X.dtype)
    assert np.shares_memory(kernel(X, Y, out=out[:, :40]), out)
    np.testing.assert_array_equal(out[:, :40], block)
    assert np.isnan(out[:, 40:]).all()
    np.testing.assert_allclose(kernel.diag(X), np.diag(kernel(X, X)), rtol=2e-6)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_positive_semi_definite(kernel, histograms):
    X = histograms[0].astype(np.float64)
    assert np.linalg.eigvalsh(kernel(X, X)).min() > -1e-10


def test_scikit_learn_agrees(histograms):
    X, Y = histograms
    np.testing.assert_allclose(ExpChi2(gamma=0.3)(X, Y), chi2_kernel(X, Y, gamma=0.3), rtol=2e-6)
    additive = (X.sum(1)[:, None] + Y.sum(1) + additive_chi2_kernel(X, Y)) / 2
    np.testing.assert_allclose(Chi2()(X, Y), additive, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_negative_input_is_refused(kernel):
    with pytest.raises(ValueError, match=r"non-negative features; the smallest value is -0\.5"):
        kernel(np.array([[1.0, -0.5]]), np.array([[1.0, 0.0]]))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_tensors(kernel, histograms):
    torch = pytest.importorskip("torch")
    X, Y = histograms
    block = kernel(torch.as_tensor(X), torch.as_tensor(Y))
    np.testing.assert_allclose(block.numpy(), kernel(X, Y), rtol=1e-5, atol=1e-7)
