"""Random Fourier features: unbiased for their kernel, orthogonal draws with less variance, structured ones the same."""

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp

from gramless import FourierLSSVC
from gramless.approximation.features import fourier_map
from gramless.approximation.features.base import SampledRows
from gramless.approximation.features.fourier_map import FourierMap, draw_fourier_features, hadamard_rows
from gramless.kernels import RBF, Exponential, Laplacian, Linear, Matern32, Matern52, ScaledColumns

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 6))
CASES = [
    (RBF(gamma=0.1), "plain"),
    (RBF(gamma=0.1), "orthogonal"),
    (RBF(gamma=0.1), "structured"),
    (Laplacian(gamma=0.15), "plain"),
    (Exponential(gamma=0.3), "orthogonal"),
    (Matern32(gamma=0.3), "orthogonal"),
    (Matern52(gamma=0.3), "structured"),
    (ScaledColumns(Matern52(gamma=0.3), [1.0, 0.5, 0.0, 2.0, 1.0, 1.0]), "orthogonal"),
    (Laplacian(gamma=0.3, norm="l2"), "plain"),
    (Laplacian(gamma=0.3, norm="l2"), "orthogonal"),
    (Laplacian(gamma=0.3, norm="l2"), "structured"),
]


@pytest.mark.parametrize(("kernel", "draw"), CASES)
def test_inner_products_are_the_kernel_on_average(kernel, draw):
    phi = draw_fourier_features(kernel, 6, 60_000, np.random.RandomState(0), draw)(X)
    assert phi.shape == (12, 60_000)
    np.testing.assert_allclose(phi @ phi.T, kernel(X, X), atol=0.025)


def errors(draw, kernel, data, repeats=150):
    truth = kernel(data, data)
    found = (draw_fourier_features(kernel, data.shape[1], 32, np.random.RandomState(s), draw)(data) for s in range(repeats))
    return np.array([phi @ phi.T - truth for phi in found])


def test_orthogonal_draws_have_less_variance_and_no_bias():
    kernel, data = RBF(gamma=0.03), RNG.normal(size=(8, 16))
    plain, orthogonal, structured = (errors(draw, kernel, data) for draw in ("plain", "orthogonal", "structured"))
    assert (orthogonal**2).mean() < 0.6 * (plain**2).mean()
    assert (structured**2).mean() < 0.6 * (plain**2).mean()
    assert np.abs(orthogonal.mean(axis=0)).max() < 4 * orthogonal.std(axis=0).max() / 150**0.5
    # Three Hadamard matrices are not exactly a uniform rotation: a bias of at most a few hundredths.
    assert np.abs(structured.mean(axis=0)).max() < 0.03


@pytest.mark.parametrize("width", [1, 2, 8, 64])
def test_hadamard_rows(width):
    V = RNG.normal(size=(3, width))
    np.testing.assert_allclose(hadamard_rows(V), V @ scipy.linalg.hadamard(width) / width**0.5, atol=1e-12)


@pytest.mark.parametrize(("kernel", "draw"), CASES[1:4])
def test_sparse_torch_and_single_precision_agree(kernel, draw):
    torch = pytest.importorskip("torch")
    phi = draw_fourier_features(kernel, 6, 50, np.random.RandomState(0), draw)
    np.testing.assert_allclose(phi(sp.csr_matrix(X)), phi(X), atol=1e-12)
    np.testing.assert_allclose(phi(torch.as_tensor(X)).numpy(), phi(X), atol=1e-12)
    assert phi(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(phi(X.astype(np.float32)), phi(X), atol=1e-4)
    np.testing.assert_array_equal(FourierMap(kernel).restore(phi.state())(X), phi(X))


def test_what_has_no_such_features_says_so():
    rng = np.random.RandomState(0)
    with pytest.raises(ValueError, match="for RBF and Laplacian kernels"):
        draw_fourier_features(Linear(), 6, 10, rng)
    with pytest.raises(ValueError, match="needs a rotation-invariant kernel"):
        draw_fourier_features(Laplacian(gamma=1.0), 6, 10, rng, "orthogonal")
    with pytest.raises(ValueError, match="'draw' parameter"):
        FourierLSSVC(draw="best").fit(X, np.arange(len(X)) % 2)


def test_auto_is_structured_for_many_columns_and_plain_for_the_city_block():
    rng = np.random.RandomState(0)
    assert draw_fourier_features(RBF(gamma=1e-4), 3000, 10, rng).signs.shape == (1, 3, 4096)
    assert draw_fourier_features(RBF(gamma=1.0), 6, 10, rng).directions.shape == (6, 5)
    assert draw_fourier_features(Laplacian(gamma=1.0), 6, 10, rng).directions.shape == (6, 5)


@pytest.mark.parametrize("kernel", [RBF(gamma=0.1), Laplacian(gamma=0.1)])
def test_column_scales_of_many_columns(kernel):
    d = fourier_map._STRUCTURED_FROM
    features = FourierMap(ScaledColumns(kernel, np.ones(d)), 8).begin(
        SampledRows(np.zeros((1, d))), np.random.RandomState(0)
    )
    assert features(np.zeros((1, d))).shape == (1, 8)
