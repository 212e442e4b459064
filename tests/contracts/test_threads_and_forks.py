"""One fitted model predicts in several threads and in forked processes, and several models are fitted at the same time."""

import multiprocessing
import os
import queue
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.utils import get_tags
from test_every_model_file import ESTIMATORS, IMAGES, X
from test_reproducible_files import fitted
from threadpoolctl import threadpool_limits

from gramless._core.threads import blas_threads, one_blas_thread, run_threads

N_THREADS = 4


def output(estimator):
    """Return the predictions or the features of the rows, in a form that can be compared."""
    rows = X if get_tags(estimator).input_tags.two_d_array else IMAGES
    method = next(name for name in ("decision_function", "predict", "transform") if hasattr(estimator, name))
    return np.asarray(getattr(estimator, method)(rows))


def assert_equal_up_to_rounding(found, expected):
    """Compare with a tolerance for float32: BLAS sums in another order if other threads are busy."""
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_threads_predict_with_one_model(name):
    model = fitted(name)
    expected = output(model)
    with ThreadPoolExecutor(N_THREADS) as threads:
        for found in threads.map(lambda _: output(model), range(2 * N_THREADS)):
            assert_equal_up_to_rounding(found, expected)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_threads_fit_models(name):
    expected = output(fitted(name))
    with ThreadPoolExecutor(N_THREADS) as threads:
        for model in threads.map(fitted, [name] * N_THREADS):
            assert_equal_up_to_rounding(output(model), expected)


def send_results(name, model, results):
    results.put((output(model), output(fitted(name))))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_forked_processes_predict_and_fit(name):
    """The parent has used all its threads before the fork; locks that a thread holds would block the children."""
    model = fitted(name)
    expected = output(model)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    children = [context.Process(target=send_results, args=(name, model, results)) for _ in range(2)]
    for child in children:
        child.start()
    try:
        for _ in children:
            for found in results.get(timeout=60):
                assert_equal_up_to_rounding(found, expected)
    except queue.Empty:
        pytest.fail("a forked process did not finish within 60 seconds")
    finally:
        for child in children:
            child.join(5)
            child.kill()


def test_number_of_threads_does_not_depend_on_other_threads():
    """A limit that one thread sets for its own tiles is global to the process, but does not count in other threads."""
    with threadpool_limits(2, user_api="blas"), ThreadPoolExecutor(1) as other:
        if blas_threads() != 2:
            pytest.skip("this BLAS has one thread")
        with one_blas_thread():
            assert blas_threads() == 1
            assert run_threads(lambda _: blas_threads(), 2) == [1, 1]
            assert other.submit(blas_threads).result() == 2
        assert blas_threads() == 2
        assert run_threads(lambda _: blas_threads(), 2) == [1, 1]
        assert blas_threads() == 2
