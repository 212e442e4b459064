"""Products of kernel matrices with coefficients against dense algebra in float64."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from gramless._core.compiled.scalar import exp32
from gramless._core.compiled.simd import lanes
from gramless.kernels import RBF, Polynomial, stationary
from gramless.linalg.operators import KernelOperator, blocks, expand
from gramless.linalg.operators.blocks import SymmetricGaussian, expand_groups

SIZES = [(1, 1, 1, 1), (7, 300, 3, 1), (1030, 513, 8, 3), (50, 40, 16, 8), (3, 17, 33, 25), (13, 700, 400, 2)]
needs_vectors = pytest.mark.skipif(not lanes(), reason="this processor has no vectors that the loops are written for")


@needs_vectors
@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize(("n", "m", "d", "k"), SIZES)
def test_gaussian_expansions(monkeypatch, n, m, d, k, offset, dtype):
    monkeypatch.setattr(blocks, "TUNING", replace(blocks.TUNING, few_values=0, min_values_for_registers=0))
    rng = np.random.default_rng(0)
    X, points = (rng.normal(size=(size, d)).astype(dtype) + np.dtype(dtype).type(offset) for size in (n, m))
    coef = rng.normal(size=(m, k)).astype(dtype)
    exact = truth(X, points, 0.3) @ coef
    scores = expand(RBF(0.3), X, points, coef)
    assert scores.dtype == coef.dtype
    # Coordinates near 1000 have been rounded before anything is computed here.
    error = (2e-5 if dtype == "f" else 1e-12) * np.abs(coef).sum(axis=0).max()
    np.testing.assert_allclose(scores, exact, atol=error)


@needs_vectors
@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize(("n", "m", "d"), [(1, 1, 1), (6, 16, 2), (7, 17, 3), (100, 250, 40), (65, 31, 500)])
def test_gaussian_blocks(monkeypatch, n, m, d, dtype):
    monkeypatch.setattr(stationary, "TUNING", replace(stationary.TUNING, compiled_values=0, few_differences=0))
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(n, d)).astype(dtype), rng.normal(size=(m, d)).astype(dtype)
    X.flags.writeable = False
    assert stationary.can_use_register_tiles(X, Y, n * m, 0)
    np.testing.assert_allclose(RBF(0.3)(X, Y), truth(X, Y, 0.3), atol=5e-6 if dtype == "f" else 1e-13)
    square = RBF(1 / d)(X, X)
    np.testing.assert_array_equal(square, square.T)
    np.testing.assert_allclose(np.diag(square), 1, atol=2e-6 if dtype == "f" else 1e-14)


@needs_vectors
@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize(("n", "d", "k"), [(1, 1, 1), (7, 3, 2), (961, 8, 3), (2100, 5, 1), (1930, 40, 11)])
@pytest.mark.parametrize("threads", [1, 3])
def test_symmetric_products_in_registers(n, d, k, dtype, threads):
    """Sizes with incomplete strips, panels and tiles; the number of threads changes rounding only."""
    rng = np.random.default_rng(0)
    X, V = rng.normal(size=(n, d)).astype(dtype) + np.dtype(dtype).type(20), rng.normal(size=(n, k)).astype(dtype)
    with threadpool_limits(threads, user_api="blas"):
        product = SymmetricGaussian(0.3 / d, X) @ V
    assert product.dtype == V.dtype
    error = (2e-6 if dtype == "f" else 1e-13) * np.abs(V).sum(axis=0).max()
    np.testing.assert_allclose(product, truth(X, X, 0.3 / d) @ V, atol=error)


@needs_vectors
def test_uncached_operators_of_gaussian_kernels_use_registers(monkeypatch):
    X, V = np.random.default_rng(0).normal(size=(1500, 4)), np.random.default_rng(1).normal(size=(1500, 2))
    monkeypatch.setattr(SymmetricGaussian, "__matmul__", lambda self, V: np.full_like(V, 7.0))
    np.testing.assert_array_equal(KernelOperator(X, RBF(0.3), 0.5) @ V, 7.0 + 0.5 * V)
    for op in (KernelOperator(X, RBF(0.3), cache=True), KernelOperator(csr_matrix(X), RBF(0.3))):
        np.testing.assert_allclose(op @ V, truth(X, X, 0.3) @ V, atol=1e-9)


def test_gaussian_values_far_apart_vanish(monkeypatch):
    monkeypatch.setattr(stationary, "TUNING", replace(stationary.TUNING, compiled_values=0, few_differences=0))
    for dtype in "fd":
        X = np.array([[0.0, 0.0], [1e3, 0.0], [1e15, 0.0]], dtype)
        np.testing.assert_array_equal(RBF(1.0)(X, X), np.eye(3))


@pytest.mark.parametrize("kernel", [RBF(0.3), Polynomial(degree=2, gamma=0.5)])
@pytest.mark.parametrize("sparse", [False, True])
def test_groups_of_points(monkeypatch, kernel, sparse):
    monkeypatch.setattr(blocks, "TUNING", replace(blocks.TUNING, min_values_for_registers=0))
    rng = np.random.default_rng(0)
    X, points, coef = rng.normal(size=(70, 5)), rng.normal(size=(90, 5)), rng.normal(size=(90, 2))
    bounds, into = np.array([0, 20, 20, 90]), np.array([[0, 1], [0, 2], [2, 1]])
    expected = np.zeros((70, 3))
    for g in range(3):
        part = slice(bounds[g], bounds[g + 1])
        expected[:, into[g]] += kernel(X, points[part]) @ coef[part] if part.stop > part.start else 0
    rows, others = (csr_matrix(X), csr_matrix(points)) if sparse else (X, points)
    np.testing.assert_allclose(expand_groups(kernel, rows, others, coef, bounds, into, 3), expected, atol=1e-12)


def truth(X, Y, gamma):
    """The kernel matrix from differences, in float64."""
    return np.exp(-gamma * cdist(X.astype("d"), Y.astype("d"), "sqeuclidean"))


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

    x = -np.concatenate([[0.0], np.geomspace(1e-8, 69.0, 20_000)]).astype("f")
    exact = np.exp(x.astype("d"))
    np.testing.assert_allclose(exponential(x), exact, rtol=3e-7)
    assert exponential(np.float32(0)) == 1
    assert not exponential(np.array([-69.1, -88.0, -1e30, -np.inf], "f")).any()


def test_small_predictions_do_not_load_the_compiler():
    code = """
import sys
import numpy as np
from gramless.kernels import RBF, Exponential, ScaledColumns
from gramless.linalg.operators import expand
rng = np.random.default_rng(0)
X, points, coef = rng.normal(size=(990, 13)), rng.normal(size=(792, 13)), rng.normal(size=(792, 11))
for kernel in (RBF(0.1), Exponential(0.1), ScaledColumns(RBF(0.1), rng.uniform(size=13))):
    truth = np.vstack([kernel(X[i : i + 90], points) @ coef for i in range(0, 990, 90)])
    np.testing.assert_allclose(expand(kernel, X, points, coef), truth, atol=1e-10)
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
