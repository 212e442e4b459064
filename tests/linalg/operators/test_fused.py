"""The fused product: which kernels it takes, what it answers elsewhere, and on a GPU how close it comes."""

from __future__ import annotations

import numpy as np
import pytest

from gramless.kernels import RBF, Exponential, Laplacian, Linear, Matern32, Matern52, Polynomial
from gramless.linalg.operators import KernelOperator, expand
from gramless.linalg.operators.fused import FusedProduct, Operand, _step, _strip, can_fuse, fused_form
from gramless.linalg.operators.nystrom import LocalColumns, NystromPreconditioner

KERNELS = [Linear(), Polynomial(4, 1.0, 0.5), Polynomial(3, 0.7), RBF(0.8), Laplacian(0.8, norm="l2"), 2.5 * RBF(0.8)]
KERNELS += [Exponential(0.8), Matern32(0.8), Matern52(0.8)]


def cuda():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    return torch


def test_knows_dot_and_euclidean_kernels_only():
    assert all(fused_form(kernel) is not None for kernel in KERNELS)
    assert fused_form(2.0 * Polynomial(2, 0.5, 1.0)).scale == 2.0
    assert fused_form(Laplacian(1.0)) is None  # the city-block distance has no product form
    assert fused_form(RBF(1.0) + Linear()) is None


def test_unknown_precision_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="'highest', 'high', 'medium'"):
        KernelOperator(np.ones((3, 2)), RBF(1.0), precision="low")


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_on_the_cpu_every_precision_is_the_same_blocked_product(precision):
    rng = np.random.default_rng(0)
    X, V = rng.normal(size=(50, 4)), rng.normal(size=(50, 3))
    assert not can_fuse(RBF(1.0), X, precision)
    np.testing.assert_array_equal(KernelOperator(X, RBF(1.0), precision=precision) @ V, KernelOperator(X, RBF(1.0)) @ V)


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "bound"), [("medium", 1e-2), ("high", 1e-4)])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("shape", [(1000, 777, 37, 3), (4096, 4096, 784, 11), (300, 5000, 64, 70)])
def test_agrees_with_float64(kernel, precision, bound, shape):
    torch = cuda()
    n, m, d, k = shape
    generator = torch.Generator("cuda").manual_seed(n)
    X, Y = (torch.randn(rows, d, device="cuda", generator=generator) / d**0.5 for rows in (n, m))
    V = torch.randn(m, k, device="cuda", generator=generator)
    truth = kernel(X.double(), Y.double()) @ V.double()
    for out in (FusedProduct(kernel, Y, precision)(X, V), expand(kernel, X, Y, V, precision)):
        assert out.shape == (n, k)
        assert float((out.double() - truth).norm() / truth.norm()) < bound


@pytest.mark.gpu
def test_bytes_are_exact_in_medium_precision():
    torch = cuda()
    generator = torch.Generator("cuda").manual_seed(0)
    X = torch.randint(0, 256, (2000, 784), device="cuda", generator=generator).float()
    V = torch.randn(2000, 10, device="cuda", generator=generator)
    truth = (X.double() @ X.double().T) @ V.double()
    out = FusedProduct(Linear(), X, "medium")(X, V)
    assert float((out.double() - truth).norm() / truth.norm()) < 1e-4


def test_strips_fill_the_multiprocessors():
    assert _strip(132 * 128, 132) == 128  # one round of whole strips
    assert _strip(132 * 64, 132) == 64  # one round of halves, where whole ones would leave every other idle
    assert _strip(10**6, 132) == 128


@pytest.mark.parametrize("precision", ["medium", "high"])
def test_a_point_is_at_distance_zero_from_itself(precision):
    torch = pytest.importorskip("torch")
    X = torch.as_tensor(np.random.default_rng(0).normal(size=(40, 30)) / 30**0.5)
    operand = Operand.rounded(X.float(), precision, None)
    parts = operand.data.double().reshape(operand.data.shape[0], operand.parts, operand.width)
    high, low = parts[:40, 0], parts[:40, 1:].sum(1)
    np.testing.assert_allclose(operand.points(slice(0, 40))[:, :30], X, rtol=1e-2 if precision == "medium" else 1e-4)
    products = high @ high.T + high @ low.T + low @ high.T  # what the GPU sums
    np.testing.assert_allclose(2 * operand.norms[:40].double() - 2 * products.diag(), 0, atol=7e-7)


@pytest.mark.parametrize(("d", "precision", "expected"), [(37, "medium", 32), (65, "medium", 64), (37, "high", 64)])
def test_there_are_two_steps_at_least(d, precision, expected):
    torch = pytest.importorskip("torch")
    operand = Operand.rounded(torch.ones(3, d), precision, None)
    assert _step(operand, (9, 0)) == expected
    assert _step(operand, (8, 9)) == 32  # a card with little shared memory


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["medium", "high"])
@pytest.mark.parametrize("d", [20, 100])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_sums_are_those_of_the_rounded_points(kernel, d, precision):
    torch = cuda()
    generator = torch.Generator("cuda").manual_seed(1)
    X = torch.randn(20_000, d, device="cuda", generator=generator) / d**0.5
    V = torch.randn(20_000, 11, device="cuda", generator=generator)
    product = FusedProduct(kernel, X, precision)
    rounded = product.operand.points(slice(0, 20_000)).double()
    some = np.arange(3, 20_000, 37)
    truth = kernel(rounded[some], rounded) @ V.double()
    scale = float(truth.norm())
    assert float((product(X, V)[some].double() - truth).norm()) < 5e-5 * scale
    assert float((product(product.operand.take(some), V).double() - truth).norm()) < 5e-5 * scale
    block = product.of(some).block(product.operand)
    assert block.shape == (20_000, len(some))
    assert float((block.T.double() @ V.double() - truth).norm()) < 5e-5 * scale
    back = product.of(some)(product.operand, V[: len(some)].double())
    expected = kernel(rounded, rounded[some]) @ V[: len(some)].double()
    assert float((back.double() - expected).norm()) < 5e-5 * float(expected.norm())


@pytest.mark.gpu
def test_the_preconditioner_on_the_fused_product_is_the_inverse_it_says():
    torch = cuda()
    generator = torch.Generator("cuda").manual_seed(2)
    X = torch.randn(3000, 20, device="cuda", generator=generator)
    X /= X.norm(dim=1, keepdim=True)
    V = torch.randn(3000, 4, device="cuda", generator=generator)
    kernel, ridge, landmarks = Polynomial(4, 1.0), torch.full((3000,), 1e-3, device="cuda"), np.arange(0, 3000, 8)
    product = FusedProduct(kernel, X, "medium")
    columns = LocalColumns(X, kernel, landmarks, store=False, fused=product)
    P = NystromPreconditioner(columns, ridge, rng=np.random.RandomState(0))
    rounded = product.operand.points(slice(0, 3000)).double()
    K_ns = kernel(rounded, rounded[landmarks])
    dense = K_ns @ torch.linalg.solve(K_ns[landmarks], K_ns.T) + torch.diag(ridge.double() + P.damping)
    expected = torch.linalg.solve(dense, V.double())
    assert float(((P @ V).double() - expected).norm() / expected.norm()) < 1e-4
