from __future__ import annotations

import numpy as np
import pytest
import torch

from gramless.linalg.solvers.block_rows import BlockGram


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inverse_of_badly_scaled_rows(dtype):
    rng = np.random.RandomState(0)
    A = (rng.normal(size=(20, 200)) * np.logspace(-4, 4, 20)[:, None]).astype(dtype)
    B = rng.normal(size=(20, 3))
    expected = np.linalg.solve(A.astype(float) @ A.T.astype(float), B)
    found = BlockGram(A).solve(B)
    np.testing.assert_allclose(found, expected, rtol=1e-4 if dtype == "float32" else 1e-11)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equal_and_zero_rows_project_as_one_and_none(dtype):
    rng = np.random.RandomState(0)
    base = rng.normal(size=(5, 40)).astype(dtype)
    A = np.concatenate([base, base[:2], np.zeros((1, 40), dtype)])
    x = rng.normal(size=(40, 2)).astype(dtype)
    projected = A.T @ BlockGram(A).solve(A @ x)
    expected = np.linalg.pinv(base.astype(float)) @ (base @ x)
    np.testing.assert_allclose(projected, expected, atol=1e-4 if dtype == "float32" else 1e-8)


def test_the_computed_projection_does_not_overshoot_in_float32():
    """The jitter covers the rounding of the product, also where rows are nearly dependent."""
    rng = np.random.RandomState(0)
    low_rank = rng.normal(size=(150, 12)) @ rng.normal(size=(12, 3000)) + 3.0
    A = (low_rank + 1e-4 * rng.normal(size=low_rank.shape)).astype(np.float32)
    G = A.astype(float) @ A.T.astype(float)
    inverse = BlockGram(A).solve(np.eye(150))
    # Eigenvalues of G^(1/2) inverse G^(1/2): those of the computed projection; above 2 a step would increase the error.
    values, vectors = np.linalg.eigh(G)
    root = vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T
    assert np.linalg.eigvalsh(root @ inverse @ root).max() < 1.01


@pytest.mark.parametrize("array", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_squares_that_overflow_are_reported_as_such(array):
    with pytest.raises(FloatingPointError, match="overflow float32"):
        BlockGram(array(np.full((2, 3), 1e25, np.float32)))
