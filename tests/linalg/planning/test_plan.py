"""The solver that `solver="auto"` chooses from sizes alone; no device is needed."""

from __future__ import annotations

import numpy as np
import pytest

from gramless._core.compiled.simd import lanes
from gramless.kernels import RBF, Polynomial
from gramless.linalg.planning.plan import ProblemSize, make_plan
from gramless.linalg.solvers import SketchProject

GB = 10**9


def on_gpu(n, precision="medium"):
    return ProblemSize(n, 784, 10, np.float32, "cuda:0", Polynomial(4, 1.0), precision=precision, triton=True)


def test_sketch_project_for_a_loose_tolerance_on_streamed_data():
    chosen = make_plan(on_gpu(1_000_000), "auto", 18 * GB, tol=0.07)
    assert chosen.solver == "sketch_project"
    assert "tol=0.07" in chosen.reason
    assert not chosen.cached
    assert 0 < chosen.block_size < 1_000_000 // 20
    assert chosen.memory.nbytes < 18 * GB


@pytest.mark.parametrize(
    ("n", "precision", "budget", "tol"),
    [
        (1_000_000, "medium", 18 * GB, 1e-3),  # a tight tolerance
        (100_000, "medium", 18 * GB, 0.1),  # few rows
        (400_000, "medium", 18 * GB, 0.05),  # enough rows for a residual of 0.1, not for half of it
        (500_000, "medium", 900 * GB, 0.07),  # a budget in which the matrix is cached
        (1_000_000, "highest", 18 * GB, 0.07),  # products that do not run fused
    ],
)
def test_conjugate_gradients_in_other_cases(n, precision, budget, tol):
    assert make_plan(on_gpu(n, precision), "auto", budget, tol=tol).solver == "cg"


def test_landmark_columns_are_not_stored_if_products_are_fused():
    assert not make_plan(on_gpu(200_000), "cg", 18 * GB).store_landmarks
    assert make_plan(on_gpu(200_000, "highest"), "cg", 18 * GB).store_landmarks


def test_error_of_a_block_that_is_too_large_names_a_size_that_fits():
    with pytest.raises(MemoryError, match="use block_size=") as refused:
        make_plan(on_gpu(1_000_000), SketchProject(block_size=100_000), 18 * GB)
    fitting = int(str(refused.value).split("use block_size=")[1].split()[0])
    assert make_plan(on_gpu(1_000_000), SketchProject(block_size=fitting), 18 * GB).block_size == fitting


def test_more_landmarks_for_costly_products_and_tight_tolerances():
    def landmarks(k, tol):
        size = ProblemSize(20_000, 10, k, np.float32, "cpu", RBF(0.1))
        return make_plan(size, "cg", 10**10, tol=tol).n_landmarks

    few = landmarks(1, 1e-3)
    assert few == landmarks(4, 1e-3)  # reading the matrix costs as much as multiplying it with five columns
    assert few < landmarks(10, 1e-3) < landmarks(26, 1e-3) < 2 * few
    assert landmarks(1, 1e-1) < few < landmarks(1, 1e-6)


def test_small_values_of_C_need_fewer_landmarks_and_no_factorisation():
    def plan(n, C, *, tol=1e-2, device="cpu"):
        size = ProblemSize(n, 100, 1, np.float32, device, RBF(0.1), triton=False)
        return make_plan(size, "auto", 10**10, tol=tol, C=C)

    assert plan(20_000, 0.01).n_landmarks == plan(20_000, 10.0).n_landmarks
    assert plan(20_000, 10.0).n_landmarks < plan(20_000, 30.0).n_landmarks < plan(20_000, 100.0).n_landmarks
    assert plan(20_000, 100.0).n_landmarks == plan(20_000, np.inf).n_landmarks
    assert (plan(3_500, 10.0).solver, plan(3_500, 11.0).solver) == ("cg", "cholesky")
    assert plan(2_000, 10.0).solver == plan(3_500, 10.0, tol=1e-3).solver == "cholesky"
    assert plan(3_500, 10.0, device="cuda").solver == "cholesky"


@pytest.mark.skipif(not lanes(), reason="this processor has no vectors that the loops are written for")
def test_gaussian_matrices_of_few_features_are_recomputed():
    def plan(d, kernel=None, *, n=60_000, k=1, dense=True, solver="cg"):
        size = ProblemSize(n, d, k, np.float32, "cpu", kernel or RBF(0.1), dense=dense)
        return make_plan(size, solver, 16 * GB)

    recomputed = plan(8)
    assert not recomputed.cached
    assert "recomputing" in recomputed.reason
    assert recomputed.memory.nbytes < 1 * GB < plan(8, dense=False).memory.nbytes
    for other in (
        plan(100),
        plan(8, k=50),
        plan(8, Polynomial(2, 1.0)),
        plan(8, dense=False),
        plan(8, n=4_000),  # the matrix stays in the cache of the processor
        plan(8, solver="kaczmarz"),
    ):
        assert other.cached
