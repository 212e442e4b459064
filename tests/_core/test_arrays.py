"""The one file that knows about array libraries: NumPy, torch and sparse give the same answers."""

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gramless._core import arrays as xa
from gramless._core.threads import blas_threads, lower_tiles, parallel_for, run_threads, slices

rng = np.random.default_rng(0)
A = rng.normal(size=(12, 5))
SPD = A @ A.T + np.eye(12)
LIBRARIES = {"numpy": lambda x: np.array(x), "torch": lambda x: torch.as_tensor(np.array(x))}


@pytest.fixture(params=LIBRARIES)
def array(request):
    return LIBRARIES[request.param]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_factorisations(array, dtype):
    tolerance = {"rtol": 1e-3, "atol": 1e-4} if dtype == "float32" else {"rtol": 1e-9, "atol": 1e-10}
    spd, B = SPD.astype(dtype), A[:, :2].astype(dtype)
    L = xa.cholesky_(array(spd))
    np.testing.assert_allclose(xa.to_numpy(xa.cholesky_solve(L, array(B))), np.linalg.solve(SPD, A[:, :2]), **tolerance)
    L = xa.lower_triangle(L)
    lower = xa.to_numpy(L).copy()
    np.testing.assert_allclose(lower @ lower.T, SPD, **tolerance)
    np.testing.assert_allclose(xa.to_numpy(xa.solve_triangular(L, array(B))), np.linalg.solve(lower, B), **tolerance)
    transposed = xa.solve_triangular(L, array(B), transposed=True)
    np.testing.assert_allclose(xa.to_numpy(transposed), np.linalg.solve(lower.T, B), **tolerance)
    np.testing.assert_allclose(xa.to_numpy(xa.invert_lower_(L)), np.linalg.inv(lower), **tolerance)
    values, vectors = xa.eigh(array(spd))
    V = xa.to_numpy(vectors)
    np.testing.assert_allclose(V * xa.to_numpy(values) @ V.T, SPD, **tolerance)


def test_an_indefinite_matrix_is_reported_with_its_pivot(array):
    with pytest.raises(xa.NotPositiveDefiniteError, match="pivot 3 of 3 is not positive"):
        xa.cholesky_(array(np.diag([1.0, 2.0, -1.0])))


@pytest.mark.parametrize("exponent", range(10))
def test_integer_powers(array, exponent):
    base = np.linspace(-2, 2, 7)
    np.testing.assert_allclose(xa.to_numpy(xa.integer_power_(array(base), exponent)), base**exponent)


def test_small_things(array):
    x = array(A)
    np.testing.assert_allclose(xa.to_numpy(xa.square_norms(x)), (A**2).sum(1))
    assert xa.norm(x) == pytest.approx(np.linalg.norm(A))
    np.testing.assert_allclose(xa.to_numpy(xa.dot(x, x)), A @ A.T)
    np.testing.assert_array_equal(xa.to_numpy(xa.take_rows(x, np.array([3, 1]))), A[[3, 1]])
    np.testing.assert_array_equal(
        xa.to_numpy(xa.submatrix(x, np.array([3, 1]), np.array([0, 4]))), A[np.ix_([3, 1], [0, 4])]
    )
    np.testing.assert_allclose(xa.to_numpy(xa.add_diagonal_(array(SPD), 2.0)), SPD + 2 * np.eye(12))
    np.testing.assert_allclose(np.diag(xa.to_numpy(xa.set_diagonal_(array(SPD), 2.0))), 2.0)
    np.testing.assert_allclose(xa.to_numpy(xa.clip_below_(array(A), 0.0)), np.maximum(A, 0))
    np.testing.assert_allclose(xa.to_numpy(xa.clip_above_(array(A), 0.0)), np.minimum(A, 0))
    assert xa.numpy_dtype(x) == np.float64
    assert xa.numpy_dtype(xa.astype(x, np.float32)) == np.float32
    assert xa.numpy_dtype(xa.like([1], xa.astype(x, np.float32))) == np.float32


def test_a_norm_of_float32_does_not_overflow(array):
    assert xa.norm(array(np.full(4, 1e30, np.float32))) == pytest.approx(2e30)


@pytest.mark.parametrize("left", [np.asarray, sp.csr_matrix, sp.csr_array])
@pytest.mark.parametrize("right", [np.asarray, sp.csr_matrix])
def test_products_of_sparse_and_dense(left, right):
    X, Y = A * (A > 0), A[:7] * (A[:7] < 0.5)
    out = np.full((12, 7), np.nan)
    np.testing.assert_allclose(xa.dot(left(X), right(Y)), X @ Y.T, atol=1e-14)
    xa.dot(left(X), right(Y), out=out)
    np.testing.assert_allclose(out, X @ Y.T, atol=1e-14)


def test_unsorted_and_repeated_entries_of_sparse_rows():
    from gramless._core import sparse as _sparse

    messy = sp.csr_matrix((np.array([1.0, 2.0, 3.0, 4.0]), np.array([2, 0, 2, 1]), np.array([0, 3, 4])), shape=(2, 3))
    dense = messy.toarray()
    expected = np.abs(dense[:, None] - dense[None]).sum(-1)
    np.testing.assert_allclose(_sparse.city_block(messy, messy), expected)
    np.testing.assert_allclose(_sparse.dot(messy, messy), dense @ dense.T)


def test_devices():
    here = "cuda:0" if torch.cuda.is_available() else "cpu"
    assert xa.resolve_device(None) == "cpu"
    assert xa.resolve_device("auto") == here
    assert xa.resolve_device("cpu", torch.ones(1)) == xa.resolve_device(None, torch.ones(1)) == "torch:cpu"
    assert xa.device_of(sp.eye(2)) == "cpu"
    read_only = np.ones(3)
    read_only.flags.writeable = False
    assert xa.to_device(read_only, "torch:cpu", np.float32).dtype == torch.float32


def test_auto_asks_torch_even_where_nobody_imported_it():
    code = (
        "import sys\nfrom gramless._core.arrays import resolve_device\nassert 'torch' not in sys.modules\n"
        "print(resolve_device('auto'), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["cuda:0" if torch.cuda.is_available() else "cpu", "True"]


def test_without_torch_a_gpu_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install 'gramless\[gpu\]'"):
        xa.resolve_device("cuda")


def test_work_is_cut_and_dealt_completely():
    assert slices(10, 4) == [slice(0, 4), slice(4, 8), slice(8, 10)]
    assert len(lower_tiles(slices(10, 4))) == 6
    seen = []
    parallel_for(list(range(7)), seen.append, 3)
    assert sorted(seen) == list(range(7))
    assert run_threads(lambda k: k * k, 3) == [0, 1, 4]


def test_an_error_in_a_thread_is_raised():
    def work(k):
        raise ZeroDivisionError(k)

    with pytest.raises(ZeroDivisionError):
        run_threads(work, 2)


def test_limits_of_threads_are_respected():
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        assert blas_threads() == 1
    code = "import numpy; from gramless._core.threads import blas_threads; print(blas_threads())"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "1"


_OVERLAPPING = """
from threading import Event, Thread
import numpy
from gramless._core.threads import blas_threads, one_blas_thread

before, began, joined = blas_threads(), Event(), Event()

def first():
    with one_blas_thread():
        began.set()
        joined.wait(10)

def second():
    began.wait(10)
    with one_blas_thread():
        joined.set()
        threads[0].join()

threads = [Thread(target=first), Thread(target=second)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(before, blas_threads())
with one_blas_thread(), one_blas_thread():
    print(blas_threads())
print(blas_threads())
"""


def test_limits_that_overlap_in_time_are_taken_back():
    """One thread begins its limit within another's and ends after it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", _OVERLAPPING], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["2", "2", "1", "2"]


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_diagonal_is_added_whatever_the_order_of_the_entries(order):
    A = np.ones((3, 3), order=order)
    np.testing.assert_array_equal(xa.add_diagonal_(A, np.array([1.0, 2.0, 3.0])), 1 + np.diag([1.0, 2.0, 3.0]))


@pytest.mark.parametrize("array", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("place", [(1, 1), (2, 0)])
def test_a_matrix_with_a_nan_has_no_factor(array, dtype, place):
    A = np.eye(4, dtype=dtype)
    A[place] = np.nan
    with pytest.raises(xa.NotPositiveDefiniteError):
        xa.cholesky_(array(A))
