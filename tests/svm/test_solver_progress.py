"""Progress of the dual solvers: counts add up, callbacks run in the thread of `fit`, a stop reaches all solvers."""

import threading
import time

import numpy as np
import pytest
from sklearn.datasets import load_digits

from gramless._core.threads import parallel_for, run_threads
from gramless.kernels import RBF
from gramless.svm.box_qp import BoxQP
from gramless.svm.gram_rows import GramRows
from gramless.svm.multiclass import DUAL_SOLVERS, solve_multiclass
from gramless.svm.progress import SolverProgress
from gramless.svm.resources import DualFit
from gramless.svm.smo import SMO


def digits(n=600):
    X, y = load_digits(return_X_y=True)
    return X[:n] / 16, y[:n]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("one_vs_one", [True, False])
def test_counts_add_up(one_vs_one, threads):
    X, y = digits()
    records, where = [], set()

    def callback(record):
        records.append(record)
        where.add(threading.get_ident())

    progress = SolverProgress(45 if one_vs_one else 10, callback=callback)
    options = {"n_classes": 10, "one_vs_one": one_vs_one}
    fit = DualFit(RBF(0.05), X, SMO(), 1e8, threads, progress=progress)
    model = solve_multiclass(fit, y, np.full(len(y), 5.0), **options)
    progress.report()
    assert where == {threading.get_ident()}
    assert records[-1]["n_iter"] == sum(solution.n_iter for solution in model.solutions)
    assert records[-1]["solved"] == records[-1]["n_problems"] == len(model.solutions)
    assert np.all(np.diff([record["n_iter"] for record in records]) >= 0)


@pytest.mark.parametrize("name", DUAL_SOLVERS)
def test_a_stop_returns_the_current_point(name):
    X, y = digits(200)
    signs = np.where(y % 2, 1.0, -1.0)
    progress = SolverProgress(callback=lambda record: record["n_iter"] > 0)
    qp = BoxQP.classification(signs, np.full(len(y), 5.0))
    solver = DUAL_SOLVERS[name](tol=1e-9, **({"working_set": 16} if name == "smo" else {}))
    [solution] = solver.maximise([qp], GramRows(RBF(0.05), X, [slice(0, len(y))]), None, progress)
    assert progress.stopped_by_callback
    assert not solution.converged
    assert solution.n_iter > 0
    assert abs(solution.beta.sum()) < 1e-9


def test_remaining_pairs_stay_at_zero_after_a_stop():
    X, y = digits()
    progress = SolverProgress(45, callback=lambda record: record["solved"] >= 5)
    options = {"n_classes": 10, "one_vs_one": True}
    fit = DualFit(RBF(0.05), X, SMO(), 1e8, progress=progress)
    model = solve_multiclass(fit, y, np.full(len(y), 5.0), **options)
    done = [solution.converged for solution in model.solutions]
    assert done[:5] == [True] * 5
    assert not any(done[6:])
    assert all(solution.violation == 2 for solution in model.solutions[6:])


@pytest.mark.parametrize("in_worker", [True, False])
def test_an_exception_stops_the_other_workers(in_worker):
    stop = threading.Event()

    def work(k):
        if in_worker and k == 1:
            raise KeyError("broken")
        stop.wait(20)

    def meanwhile():
        if not in_worker:
            raise KeyError("broken")

    start = time.monotonic()
    with pytest.raises(KeyError, match="broken"):
        run_threads(work, 2, meanwhile=meanwhile, abandon=stop.set)
    assert time.monotonic() - start < 10


def test_an_exception_in_a_task_stops_the_loop():
    done = []

    def do(task):
        if task == 1:
            raise KeyError("broken")
        time.sleep(0.001)
        done.append(task)

    with pytest.raises(KeyError, match="broken"):
        parallel_for(range(4000), do, 2)
    assert len(done) < 1000
