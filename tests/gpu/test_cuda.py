"""The same fits on a CUDA device and on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from gramless import CUDA, LSSVC, LSSVR, NystromLSSVC
from gramless.kernels import RBF
from gramless.linalg.operators import KernelOperator
from gramless.linalg.solvers import CG, Kaczmarz, MatchingPursuit

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def torch():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    return torch


@pytest.fixture
def digits(digits):
    return digits[0].astype(np.float32), digits[1]


BLOCKS = {"block_size": 200, "tol": 1e-3}  # a solver object has its own tolerance
BY_BLOCKS = [MatchingPursuit(**BLOCKS), Kaczmarz(**BLOCKS)]


@pytest.mark.parametrize("solver", ["cholesky", "cg", "sketch_project", *BY_BLOCKS], ids=str)
def test_cuda_agrees_with_the_cpu(digits, solver):
    X, y = digits
    settings = {"C": 10.0, "gamma": 0.05, "solver": solver, "tol": 1e-3, "random_state": 0}
    cpu = LSSVC(**settings).fit(X[:1200], y[:1200])
    gpu = LSSVC(device="cuda", **settings).fit(X[:1200], y[:1200])
    scores, reference = gpu.decision_function(X[1200:]), cpu.decision_function(X[1200:])
    assert isinstance(scores, np.ndarray)
    assert np.abs(scores - reference).max() < 0.05
    assert np.mean(gpu.predict(X[1200:]) == cpu.predict(X[1200:])) > 0.995


def test_tensor_in_tensor_out(digits, torch):
    X, y = digits
    tensor = torch.as_tensor(X, device="cuda")
    model = LSSVR(C=10.0).fit(tensor, y.astype(float))
    values = model.predict(tensor)
    assert values.is_cuda
    np.testing.assert_allclose(values.cpu().numpy(), LSSVR(C=10.0).fit(X, y.astype(float)).predict(X), atol=1e-2)


@pytest.mark.parametrize(("storage", "bound"), [("float16", 1e-3), ("bfloat16", 1e-2)])
def test_half_precision_cache(digits, torch, storage, bound):
    X = torch.as_tensor(digits[0], device="cuda")
    V = torch.ones(len(X), 2, device="cuda")
    exact = KernelOperator(X, RBF(0.05), 0.1, cache=True) @ V
    half = KernelOperator(X, RBF(0.05), 0.1, cache=True, storage=storage) @ V
    assert float((half - exact).norm() / exact.norm()) < bound


def test_out_of_memory_shrinks_the_tiles_and_goes_on(digits, torch):
    X = torch.randn(40_000, 16, device="cuda")
    V = torch.ones(len(X), 1, device="cuda")
    op = KernelOperator(X, RBF(0.05), cache=True)
    expected = KernelOperator(X, RBF(0.05)) @ V
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 150e6) / total)
    try:
        out = op @ V
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert op.edge < 8192
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-2)


# Rounding in the products of precision "high" limits the relative residual to about 5e-6.
@pytest.mark.parametrize(("precision", "tol", "tolerance"), [("highest", 1e-6, 1e-3), ("high", 1e-5, 1e-2)])
def test_landmark_models_by_conjugate_gradients_agree_with_the_cpu(digits, precision, tol, tolerance):
    X, y = digits
    settings = {"n_landmarks": 200, "C": 1.0, "gamma": 0.05, "solver": CG(tol=tol, max_iter=300), "random_state": 0}
    cpu = NystromLSSVC(**settings).fit(X[:1200], y[:1200])
    gpu = NystromLSSVC(device=CUDA(precision=precision), **settings).fit(X[:1200], y[:1200])
    assert gpu.solver_ == "cg"
    reference = cpu.decision_function(X[1200:])
    np.testing.assert_allclose(gpu.decision_function(X[1200:]), reference, atol=tolerance * np.abs(reference).max())


def test_landmark_models_of_streamed_rows_equal_those_of_rows_on_the_device(digits, tmp_path):
    X, y = digits
    settings = {"landmarks": X[:200], "gamma": 0.05, "solver": CG(tol=1e-5, max_iter=300), "device": CUDA(precision="high")}
    np.save(tmp_path / "rows.npy", X[:1200])
    on_disk = np.load(tmp_path / "rows.npy", mmap_mode="r")
    stored = NystromLSSVC(**settings).fit(X[:1200], y[:1200])
    streamed = NystromLSSVC(batch_size=100, memory_budget="20MB", **settings).fit(on_disk, y[:1200])
    reference = stored.decision_function(X[1200:])
    np.testing.assert_allclose(streamed.decision_function(X[1200:]), reference, atol=1e-2 * np.abs(reference).max())


@pytest.mark.filterwarnings("ignore:NystromLSSVC did not converge", "ignore:rounding errors of float32 coefficients")
@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
@pytest.mark.parametrize("C", [1.0, 1e4])
def test_landmark_models_of_every_precision_are_accurate_or_raise(digits, precision, C):
    X, y = digits
    settings = {"n_landmarks": 500, "C": C, "gamma": 0.02, "random_state": 0}
    sums = NystromLSSVC(solver="sums", dtype="float64", **settings).fit(X[:1200], y[:1200])
    model = NystromLSSVC(solver="cg", device=CUDA(precision=precision), **settings)
    try:
        model.fit(X[:1200], y[:1200])
    except FloatingPointError:  # the products are too inaccurate for this C
        assert precision != "highest"
        return
    assert model.score(X[1200:], y[1200:]) > sums.score(X[1200:], y[1200:]) - 0.02


def test_landmark_models_with_equal_landmarks(digits):
    X, y = digits
    settings = {"landmarks": np.repeat(X[:50], 10, axis=0), "gamma": 0.05, "C": 10.0, "solver": "cg"}
    cpu = NystromLSSVC(**settings).fit(X[:1200], y[:1200])
    gpu = NystromLSSVC(device=CUDA(precision="high"), **settings).fit(X[:1200], y[:1200])
    assert gpu.jitter_ > 0
    assert gpu.score(X[1200:], y[1200:]) > cpu.score(X[1200:], y[1200:]) - 0.02
