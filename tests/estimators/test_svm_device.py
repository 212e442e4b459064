"""Support vector machines on a device have the solutions of the CPU; `torch:cpu` runs the same code without a card."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, make_classification, make_regression

from gramless import CUDA, KernelOneClassSVM, KernelSVC, KernelSVR
from gramless._core.device_rows import SparseRows, rows_on_device
from gramless.kernels import RBF, Exponential, Matern32, Matern52, Polynomial
from gramless.svm.batched_smo import BatchedSMO, FusedRowSums
from gramless.svm.box_qp import BoxQP

torch = pytest.importorskip("torch")
CARD = pytest.param("cuda", marks=pytest.mark.gpu)


@pytest.fixture(params=["torch:cpu", CARD])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    return request.param


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return (X / 16).astype(np.float32), y


def test_one_vs_one_equals_the_cpu(digits, device):
    X, y = digits
    settings = {"C": 10.0, "gamma": 0.05, "tol": 1e-4, "random_state": 0}
    cpu = KernelSVC(**settings).fit(X[:1200], y[:1200])
    other = KernelSVC(device=device, **settings).fit(X[:1200], y[:1200])
    assert other.fit_status_ == 0
    np.testing.assert_allclose(other.dual_objective_, cpu.dual_objective_, rtol=1e-4)
    np.testing.assert_array_equal(other.predict(X[1200:]), cpu.predict(X[1200:]))
    pairs = {"decision_function_shape": "ovo"}
    cpu.set_params(**pairs), other.set_params(**pairs)
    np.testing.assert_allclose(other.decision_function(X[1200:]), cpu.decision_function(X[1200:]), atol=2e-3)


@pytest.mark.parametrize("C", [1.0, 100.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_problems_larger_than_a_working_set(device, C, dtype):
    X, y = make_classification(2500, 8, flip_y=0.1, random_state=0)
    settings = {"C": C, "gamma": 0.1, "dtype": dtype, "class_weight": {0: 2.0}, "random_state": 0}
    cpu = KernelSVC(**settings).fit(X, y)
    for budget in (None, "30MB"):  # all kernel values, or tiles of them
        other = KernelSVC(device=device, memory_budget=budget, **settings).fit(X, y)
        assert other.kkt_violation_.max() <= 1e-3
        np.testing.assert_allclose(other.dual_objective_, cpu.dual_objective_, rtol=1e-4)
        assert np.mean(other.predict(X) == cpu.predict(X)) > 0.999


def test_one_vs_rest_and_probabilities(digits, device):
    X, y = digits[0][:500], digits[1][:500]
    settings = {"C": 5.0, "gamma": 0.05, "multi_class": "ovr", "probability": "sigmoid", "random_state": 0}
    cpu, other = KernelSVC(**settings).fit(X, y), KernelSVC(device=device, **settings).fit(X, y)
    np.testing.assert_allclose(other.predict_proba(X), cpu.predict_proba(X), atol=0.02)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_regression(device, epsilon):
    X, y = make_regression(1500, 5, noise=5.0, random_state=0)
    y = y / y.std()
    settings = {"C": 10.0, "gamma": 0.1, "epsilon": epsilon, "tol": 1e-4, "random_state": 0}
    cpu, other = KernelSVR(**settings).fit(X, y), KernelSVR(device=device, **settings).fit(X, y)
    np.testing.assert_allclose(other.dual_objective_, cpu.dual_objective_, rtol=1e-5)
    np.testing.assert_allclose(other.predict(X), cpu.predict(X), atol=1e-3)


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("n", [400, 3000])
def test_one_class(device, n, stored):
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(n, 6)) * rng.lognormal(size=(n, 1)), rng.integers(0, 3, size=n).astype(float)
    settings = {"nu": 0.15, "gamma": 0.1, "tol": 1e-6, "random_state": 0}
    cpu = KernelOneClassSVM(**settings).fit(X, sample_weight=weights)
    other = KernelOneClassSVM(device=device, memory_budget=None if stored else "40MB", **settings)
    other.fit(X, sample_weight=weights)
    assert other.fit_status_ == 0
    np.testing.assert_allclose(other.offset_, cpu.offset_, rtol=1e-6)
    np.testing.assert_allclose(other.score_samples(X), cpu.score_samples(X), rtol=1e-5)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(other)).predict(X), other.predict(X))


def test_one_class_of_sparse_rows_and_of_kernel_values(device):
    X = sp.random(2600, 30, 0.2, format="csr", random_state=0)
    settings = {"nu": 0.1, "tol": 1e-8, "random_state": 0}
    cpu = KernelOneClassSVM(gamma=0.5, **settings).fit(X)
    other = KernelOneClassSVM(gamma=0.5, device=device, **settings).fit(X)
    np.testing.assert_allclose(other.score_samples(X), cpu.score_samples(X), rtol=1e-6)
    K = RBF(gamma=0.5)(X.toarray(), X.toarray())
    values = KernelOneClassSVM("precomputed", device=device, **settings).fit(K)
    np.testing.assert_allclose(values.score_samples(K), cpu.score_samples(X), rtol=1e-6)


def test_precomputed_values(digits, device):
    X, y = digits[0][:600], digits[1][:600]
    K = RBF(0.05)(X, X)
    settings = {"C": 10.0, "random_state": 0}
    other = KernelSVC(kernel="precomputed", device=device, **settings).fit(K, y)
    np.testing.assert_array_equal(other.predict(K), KernelSVC(gamma=0.05, **settings).fit(X, y).predict(X))


def test_sparse_rows(digits, device):
    X, y = digits[0][:600], digits[1][:600]
    settings = {"C": 10.0, "gamma": 0.05, "random_state": 0}
    cpu = KernelSVC(**settings).fit(X, y)
    other = KernelSVC(device=device, **settings).fit(sp.csr_matrix(X), y)
    np.testing.assert_array_equal(other.predict(sp.csr_matrix(X)), cpu.predict(X))
    assert sp.issparse(other.support_vectors_)


def test_rows_that_stay_sparse_on_the_device(device):
    X = sp.random(300, 40, density=0.1, format="csr", dtype=np.float32, random_state=0)
    where = "cuda:0" if device == "cuda" else device
    rows = rows_on_device(X, where, budget=1000)
    assert isinstance(rows, SparseRows)
    dense = X.toarray()
    for index in (slice(3, 9), torch.tensor([5, 0, 299, 5], device=rows.device)):
        np.testing.assert_array_equal(rows[index].cpu(), dense[index if isinstance(index, slice) else index.cpu().numpy()])
    y = np.where(dense.sum(1) > np.median(dense.sum(1)), 1.0, -1.0)
    problem, parts = BoxQP.classification(y, np.full(300, 3.0)), [[slice(0, 300)]]
    [sparse] = BatchedSMO().maximise([problem], parts, RBF(0.5), rows, 1e8)
    [full] = BatchedSMO().maximise([problem], parts, RBF(0.5), rows_on_device(X, where, budget=1e9), 1e8)
    assert sparse.converged
    np.testing.assert_allclose(sparse.objective, full.objective, rtol=1e-6)


def test_large_working_sets_are_solved_by_small_ones(device):
    X, y = make_classification(4200, 8, flip_y=0.1, random_state=0)
    rows = rows_on_device(X.astype(np.float32), "cuda:0" if device == "cuda" else device, 0)
    problems = [BoxQP.classification(np.where(side, 1.0, -1.0), np.full(4200, 5.0)) for side in (y > 0, X[:, 0] > 0)]
    parts = [[slice(0, 4200)]] * 2
    solver = BatchedSMO(working_set=64, tol=1e-2)
    stored, computed = (solver.maximise(problems, parts, RBF(0.1), rows, budget) for budget in (1e9, 4e7))
    for one, other in zip(stored, computed, strict=True):
        assert one.converged
        assert other.converged
        np.testing.assert_allclose(other.objective, one.objective, rtol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", [RBF(0.05), Matern32(0.2), Matern52(0.2), Polynomial(2, 0.1, 1.0), 2 * RBF(0.1)])
def test_fused_row_sums_equal_the_kernel(kernel):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(700, 37)) + 5).astype(np.float32)
    rows, weights = torch.as_tensor(rng.choice(700, 90), device="cuda"), rng.normal(size=90) * 100
    total = torch.ones(600, dtype=torch.float64, device="cuda")
    fused = FusedRowSums.of(kernel, torch.as_tensor(X, device="cuda"), 1e9)
    fused.add(rows, torch.as_tensor(weights, device="cuda"), total, [slice(0, 250), slice(300, 650)])
    K = kernel(X[rows.cpu().numpy()].astype(np.float64), np.concatenate([X[:250], X[300:650]]).astype(np.float64))
    np.testing.assert_allclose(total.cpu().numpy(), 1 + weights @ K, atol=2e-6 * np.abs(weights).sum() * np.abs(K).max())
    assert FusedRowSums.of(Exponential(0.1), torch.as_tensor(X, device="cuda"), 1e9) is None


def test_a_start_is_used(device):
    X, y = make_classification(1500, 6, flip_y=0.1, random_state=0)
    signs, where = np.where(y > 0, 1.0, -1.0), "cuda:0" if device == "cuda" else device
    rows, parts = rows_on_device(X, where, 0), [[slice(0, 1500)]]
    solver = BatchedSMO(tol=1e-4)
    [cold] = solver.maximise([BoxQP.classification(signs, np.full(1500, 5.0))], parts, RBF(0.1), rows, 1e9)
    [warm] = solver.maximise([BoxQP.classification(signs, np.full(1500, 5.0), cold.beta)], parts, RBF(0.1), rows, 1e9)
    assert warm.converged
    assert warm.n_iter <= cold.n_iter // 20
    np.testing.assert_allclose(warm.objective, cold.objective, rtol=1e-8)


def test_settings_that_a_device_does_not_support_raise(digits):
    X, y = digits[0][:100], digits[1][:100]
    with pytest.raises(ValueError, match="kernel function takes arrays on the CPU"):
        KernelSVC(kernel=lambda A, B: A @ B.T, device="torch:cpu").fit(X, y)
    with pytest.raises(ValueError, match=r"nu=0\.1 is solved on the CPU only"):
        KernelSVC(nu=0.1, device="torch:cpu").fit(X, y)
    with pytest.raises(ValueError, match="loss='huber' is solved on the CPU only"):
        KernelSVR(loss="huber", device="torch:cpu").fit(X, y)
    with pytest.raises(ValueError, match="runs on the CPU only"):
        KernelSVC(solver="simple_smo", device="torch:cpu").fit(X, y)
    with pytest.raises(MemoryError, match="memory_budget leaves"):
        KernelSVC(device="torch:cpu", memory_budget="100KB").fit(X, y)


@pytest.mark.gpu
def test_precision_and_storage_raise(digits):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    with pytest.raises(ValueError, match="leave precision and storage out"):
        KernelSVC(device=CUDA(precision="medium")).fit(*digits)


def test_a_pickle_contains_no_tensor(digits, device):
    X, y = digits[0][:300], digits[1][:300]
    model = KernelSVC(device=device).fit(X, y)
    labels = model.predict(X)
    copy = pickle.loads(pickle.dumps(model))
    assert "_device_vectors" not in vars(copy)
    np.testing.assert_array_equal(copy.predict(X), labels)


def test_a_callback_ends_the_fit(device):
    X, y = make_classification(3000, 8, flip_y=0.2, random_state=0)
    seen = []
    model = KernelSVC(C=100.0, device=device, callback=lambda _, record: seen.append(record) or len(seen) == 3)
    assert model.fit(X, y).fit_status_ == 1
    assert len(seen) == 3
    assert seen[-1]["n_iter"] > 0
