"""Properties of every kernel of the registry; registered kernels are tested automatically."""

import inspect
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.gaussian_process.kernels import Matern
from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS

from gramless.kernels import (
    KERNELS,
    RBF,
    Callable_,
    Columns,
    Equality,
    Exponential,
    Invariant,
    Kernel,
    Laplacian,
    Linear,
    Matern32,
    Matern52,
    Polynomial,
    Precomputed,
    Reflected,
    ScaledColumns,
    Sigmoid,
    as_kernel,
)
from gramless.linalg.operators import evaluate, expand

# In addition to the defaults of the registry: settings with other code paths in the same file.
VARIANTS = {
    "poly-2-coef0": Polynomial(degree=2, gamma=0.3, coef0=1.0),
    "poly-7": Polynomial(degree=7, gamma=0.2, coef0=0.5),
    "laplacian-l2": Laplacian(gamma=0.4, norm="l2"),
    "scaled-columns": ScaledColumns(Matern52(gamma=0.5), [1.0, 0.0, 2.0, 0.5, 1.0, 3.0]),
    "scaled-columns-l1": ScaledColumns(Laplacian(gamma=0.5), [1.0, 0.0, 2.0, 0.5, 1.0, 3.0]),
    "sum": RBF(gamma=0.5) + Linear(),
    "product": RBF(gamma=0.5) * Polynomial(degree=3, gamma=0.1, coef0=1.0),
    "scaled": 2.5 * RBF(gamma=0.5),
    "power": RBF(gamma=0.5) ** 3,
    "columns": Columns(RBF(gamma=0.5), slice(0, 3)) * (Columns(RBF(gamma=0.2), [3, 4]) + Columns(Linear(), slice(2, 5))),
    "invariant": Invariant(RBF(gamma=0.5), [[0, 1, 2, 3, 4, 5], [1, 0, 2, 3, 5, 4]]),
    "invariant-no-group": Invariant(Polynomial(degree=2, gamma=0.5, coef0=1.0), [[0, 1, 2], [2, 1, 3], [5, 5, 4]]),
    "reflected": Reflected(Polynomial(degree=4, gamma=0.5, coef0=0.5), n_odd=2),
    "callable": as_kernel(lambda X, Y: (sp.csr_matrix(X @ Y.T).toarray() if sp.issparse(X) else X @ Y.T) ** 2),
}
# scikit-learn's "chi2" is the exponential one, and its additive one is a negative distance, not a kernel.
SCIKIT_LEARN = {**PAIRWISE_KERNEL_FUNCTIONS, "exp_chi2": PAIRWISE_KERNEL_FUNCTIONS["chi2"]}
del SCIKIT_LEARN["chi2"]
REGISTERED = {name: as_kernel(name) for name in KERNELS}
EVERY = {**REGISTERED, **VARIANTS}


def sample(kernel: Kernel, n: int, seed: int = 0) -> np.ndarray:
    """Return non-negative rows, which histogram kernels require; for a precomputed kernel, a Gram matrix."""
    X = np.random.default_rng(seed).random((n, 6))
    return X if kernel.uses_points else X @ X.T


def pairwise(kernel: Kernel, X, rows, columns):
    return kernel.block(X, np.asarray(rows), np.asarray(columns))


@pytest.fixture(params=EVERY, ids=str)
def kernel(request):
    made = clone(EVERY[request.param])
    return made.resolve(sample(made, 40))


def test_gram_matrix_is_symmetric_and_positive_semi_definite(kernel):
    X = sample(kernel, 40)
    K = pairwise(kernel, X, np.arange(40), np.arange(40))
    assert K.shape == (40, 40)
    np.testing.assert_allclose(K, K.T, rtol=1e-12, atol=1e-12)
    values = np.linalg.eigvalsh(K)
    if kernel.positive_definite:
        assert values[0] > -1e-12 * values[-1]


def test_indefinite_kernel_is_declared():
    X = np.random.default_rng(0).normal(size=(40, 3))
    K = Sigmoid(gamma=1.0, coef0=-1.0)(X, X)
    assert np.linalg.eigvalsh(K)[0] < -0.1
    for combined in (Sigmoid(), Sigmoid() + RBF(), RBF() * Sigmoid(), 2.0 * Sigmoid(), Columns(Sigmoid(), [0])):
        assert not combined.positive_definite
    assert (RBF() + Linear()).positive_definite


def test_diag_equals_diagonal(kernel):
    X = sample(kernel, 30)
    K = pairwise(kernel, X, np.arange(30), np.arange(30))
    np.testing.assert_allclose(kernel.diag(X), np.diagonal(K), rtol=1e-12)


def test_input_is_unchanged(kernel):
    X = sample(kernel, 30)
    before = X.copy()
    kernel(X, X)
    kernel.diag(X)
    kernel.block(X, slice(0, 5), slice(0, 30))
    np.testing.assert_array_equal(X, before)


def test_writes_into_strided_out(kernel):
    X = sample(kernel, 30)
    expected = kernel.block(X, slice(0, 10), slice(0, 30))
    frame = np.full((12, 40), np.nan)
    out = frame[1:11, 5:35]
    returned = kernel.block(X, slice(0, 10), slice(0, 30), out=out)
    assert np.shares_memory(returned, frame)
    np.testing.assert_allclose(out, expected, rtol=1e-13)
    assert np.isnan(frame[0]).all()
    assert np.isnan(frame[:, :5]).all()


def test_float32_input_gives_float32_output(kernel):
    X = sample(kernel, 30)
    single = kernel.block(X.astype(np.float32), slice(0, 10), slice(0, 30))
    assert single.dtype == np.float32
    assert kernel.diag(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(single, kernel.block(X, slice(0, 10), slice(0, 30)), rtol=2e-4, atol=1e-5)


def test_torch_agrees_with_numpy(kernel):
    X = sample(kernel, 30)
    expected = kernel.block(X, np.arange(10), slice(0, 30))
    got = kernel.block(torch.as_tensor(X), np.arange(10), slice(0, 30))
    assert isinstance(got, torch.Tensor)
    assert got.dtype == torch.float64
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(kernel.diag(torch.as_tensor(X)).numpy(), kernel.diag(X), rtol=1e-12)


def test_torch_writes_into_out(kernel):
    X = torch.as_tensor(sample(kernel, 30))
    out = torch.full((10, 30), float("nan"), dtype=torch.float64)
    kernel.block(X, slice(0, 10), slice(0, 30), out=out)
    np.testing.assert_allclose(out.numpy(), kernel.block(X, slice(0, 10), slice(0, 30)).numpy(), rtol=1e-13)


def test_sparse_rows_give_dense_values_if_supported(kernel):
    if not kernel.accepts_sparse:
        pytest.skip("this kernel does not take sparse rows, and says so")
    X = sample(kernel, 30)
    X[X < 0.6] = 0.0
    X[7] = 0.0
    S = sp.csr_matrix(X)
    out = np.full((30, 30), np.nan)
    kernel(S, S, out=out)
    np.testing.assert_allclose(kernel(S, S), kernel(X, X), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(out, kernel(X, X), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(kernel.diag(S), kernel.diag(X), rtol=1e-12)
    assert kernel(S.astype(np.float32), S.astype(np.float32)).dtype == np.float32


def test_tiles_equal_full_block(kernel):
    """`evaluate` and `expand` divide a block into tiles of 1024 and distribute them to threads."""
    if not kernel.uses_points:
        pytest.skip("a look-up has no tiles")
    X, Y = sample(kernel, 1500), sample(kernel, 1100, seed=1)
    whole = kernel(X, Y)
    np.testing.assert_allclose(evaluate(kernel, X, Y), whole, rtol=1e-10, atol=1e-12)
    coef = np.random.default_rng(2).normal(size=(1100, 2))
    np.testing.assert_allclose(expand(kernel, X, Y, coef), whole @ coef, rtol=1e-9, atol=1e-9)


def peak_beside_result(kernel: Kernel, X, n: int) -> float:
    """Return the peak allocation of an in-place evaluation, in units of the size of the result."""
    out = np.empty((n, n), dtype=X.dtype)
    kernel.block(X, slice(0, n), slice(0, n), out=out)  # compile the loops first
    tracemalloc.start()
    kernel.block(X, slice(0, n), slice(0, n), out=out)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / out.nbytes


# Rows, norms and index arrays of small inputs, in units of the block measured below.
SMALL_CHANGE = 0.15


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_temporaries_are_as_declared(kernel, dtype):
    X = sample(kernel, 768).astype(dtype)
    assert peak_beside_result(kernel, X, 768) <= kernel.temporaries + SMALL_CHANGE


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_temporaries_of_sparse_rows_are_as_declared(kernel, dtype):
    if not kernel.accepts_sparse or isinstance(kernel, Callable_):
        pytest.skip("this kernel does not take sparse rows, or its function takes what it takes")
    X = sample(kernel, 768).astype(dtype)
    X[X < 0.5] = 0.0
    assert peak_beside_result(kernel, sp.csr_matrix(X), 768) <= kernel.temporaries + SMALL_CHANGE


@pytest.mark.parametrize("name", REGISTERED)
def test_registered_kernels_have_at_most_one_temporary(name):
    assert REGISTERED[name].temporaries <= 1


def test_long_expression_has_one_temporary():
    pixels, edges = Columns(RBF(gamma=0.1), slice(0, 3)), Columns(RBF(gamma=0.2), slice(3, 6))
    assert (pixels * (edges + Linear() + 2.0 * RBF(gamma=1.0))).temporaries == 1
    assert (pixels + edges * Linear() ** 2).temporaries == 1


@pytest.mark.parametrize("name", sorted(set(KERNELS) & set(SCIKIT_LEARN)))
def test_equals_scikit_learn(name):
    X, Y = sample(RBF(), 30), sample(RBF(), 20, seed=1)
    kernel = as_kernel(name).resolve(X)
    function = SCIKIT_LEARN[name]
    settings = {k: v for k, v in kernel.get_params().items() if k in inspect.signature(function).parameters}
    np.testing.assert_allclose(kernel(X, Y), function(X, Y, **settings), rtol=1e-10)


@pytest.mark.parametrize(("kernel", "nu"), [(Exponential(0.7), 0.5), (Matern32(0.7), 1.5), (Matern52(0.7), 2.5)])
def test_matern_kernels_equal_sklearn_gaussian_process_kernels(kernel, nu):
    X, Y = sample(RBF(), 30), sample(RBF(), 20, seed=1)
    np.testing.assert_allclose(kernel(X, Y), Matern(length_scale=1 / 0.7, nu=nu)(X, Y), rtol=1e-9)


def test_equality_counts_different_columns():
    rng = np.random.default_rng(0)
    X, Y = rng.integers(0, 3, (37, 5)).astype(float), rng.integers(0, 3, (23, 5)).astype(float)
    truth = np.exp(-0.3 * (X[:, None] != Y[None]).sum(axis=2))
    np.testing.assert_allclose(Equality(0.3)(X, Y), truth, rtol=1e-13)
    indicators = [np.concatenate([(level == A) for level in range(3)], axis=1).astype(float) for A in (X, Y)]
    np.testing.assert_allclose(Laplacian(0.15)(*indicators), truth, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "m", "d"), [(1, 1, 1), (3, 17, 2), (64, 33, 7), (5, 8, 40)])
def test_city_block_distances(n, m, d, dtype):
    rng = np.random.default_rng(n + m + d)
    X, Y = rng.normal(size=(n, d)).astype(dtype), rng.normal(size=(m, d)).astype(dtype)
    tolerance = 20 * np.finfo(dtype).eps
    np.testing.assert_allclose(Laplacian(0.5)(X, Y), np.exp(-0.5 * cdist(X, Y, "cityblock")), rtol=tolerance * d)
    wide = np.asfortranarray(np.hstack([X, X]))[:, ::2]
    np.testing.assert_allclose(Laplacian(0.5)(wide, wide), np.exp(-0.5 * cdist(wide, wide, "cityblock")), rtol=tolerance * d)


def test_clone_repr_and_equality(kernel):
    copy = clone(kernel)
    assert copy is not kernel
    assert repr(copy) == repr(kernel)
    assert copy.get_params().keys() == kernel.get_params().keys()


@pytest.mark.parametrize("name", REGISTERED)
def test_resolved_parameters_are_numbers(name):
    kernel = REGISTERED[name]
    resolved = kernel.resolve(sample(kernel, 20))
    assert type(resolved) is type(kernel)
    assert not {"scale", "auto"} & {v for v in resolved.get_params().values() if isinstance(v, str)}


@pytest.mark.parametrize("name", sorted(set(REGISTERED) - {"precomputed"}))
def test_algebra_is_exact(name):
    kernel = REGISTERED[name].resolve(sample(RBF(), 30))
    X, Y = sample(RBF(), 30), sample(RBF(), 20, seed=1)
    K, L = kernel(X, Y), RBF(gamma=0.7)(X, Y)
    np.testing.assert_allclose((kernel + RBF(gamma=0.7))(X, Y), K + L, rtol=1e-13)
    np.testing.assert_allclose((kernel * RBF(gamma=0.7))(X, Y), K * L, rtol=1e-13)
    np.testing.assert_allclose((2.5 * kernel)(X, Y), 2.5 * K, rtol=1e-13)
    np.testing.assert_allclose((kernel**3)(X, Y), K**3, rtol=1e-12)
    np.testing.assert_allclose(Columns(kernel, [0, 2])(X, Y), kernel(X[:, [0, 2]], Y[:, [0, 2]]), rtol=1e-13)


def test_precomputed_kernels_can_be_combined():
    K = sample(Precomputed(), 10)
    np.testing.assert_allclose(
        (2.0 * Precomputed() + Precomputed() ** 2).block(K, slice(0, 4), slice(0, 10)), (2 * K + K**2)[:4]
    )


def test_nan_error_names_function():
    kernel = as_kernel(lambda X, Y: np.full((len(X), len(Y)), np.nan))
    with pytest.raises(ValueError, match="not finite"):
        kernel(np.ones((3, 2)), np.ones((3, 2)))
