"""What `gamma="scale"` is: scikit-learn's rule, with weights as repetitions, wherever the data lies."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gramless.kernels.bandwidth import resolve_gamma


@pytest.mark.parametrize("array", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
@pytest.mark.parametrize("offset", [0.0, 1e2, 1e4])
def test_a_weight_is_a_repetition_far_from_the_origin_too(array, offset):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(1500, 6)) + offset).astype(np.float32)
    weights = rng.integers(0, 4, size=1500)
    expected = 1.0 / (6 * np.repeat(X, weights, axis=0).astype(np.float64).var())
    assert resolve_gamma("scale", array(X), weights.astype(float)) == pytest.approx(expected, rel=1e-9)


def test_weights_of_sparse_rows():
    X = np.random.default_rng(0).poisson(0.3, size=(300, 8)).astype(float)
    weights = np.arange(300) % 3
    expected = 1.0 / (8 * np.repeat(X, weights, axis=0).var())
    assert resolve_gamma("scale", sp.csr_matrix(X), weights.astype(float)) == pytest.approx(expected)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, -1000.1])
@pytest.mark.parametrize("n", [10, 100, 1000])
def test_constant_data_has_no_scale(n, value, weighted):
    """Though its mean, and the variance with it, is rounded."""
    assert resolve_gamma("scale", np.full((n, 7), value), np.ones(n) if weighted else None) == 1.0


def test_a_small_spread_is_a_scale():
    X = 1.0 + 1e-12 * np.random.default_rng(0).normal(size=(200, 3))
    assert resolve_gamma("scale", X) == pytest.approx(1.0 / (3 * X.var()))
