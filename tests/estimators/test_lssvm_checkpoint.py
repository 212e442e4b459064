"""A fit that is killed goes on from its checkpoint to the same model."""

import os
import signal
import subprocess
import sys
import warnings
from functools import partial

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

from gramless import LSSVC, LSSVR
from gramless._core.checkpoint import StateFile, fingerprint
from gramless.callbacks import Checkpoint, EarlyStopping
from gramless.kernels import RBF, Columns, as_kernel
from gramless.linalg.solvers import CG

# One process: fit with a checkpoint after every second iteration; slow enough, by its callback, to be hit in the middle.
_SCRIPT = """
import sys, time
import numpy as np
from gramless import LSSVC
from gramless.callbacks import Checkpoint, EarlyStopping
from gramless.linalg.solvers import CG
path, out, pause, early = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4] == "early"
rng = np.random.default_rng(0)
X = rng.normal(size=(500, 4)).astype(np.float32)
y = (np.sin(3 * X[:, 0]) + X[:, 1] > 0).astype(int) + (X[:, 2] > 1)
def callback(estimator, record):
    print(record["n_iter"], flush=True)
    time.sleep(pause)
callbacks = [callback, Checkpoint(path, every=2)] + [EarlyStopping(n_iter_no_change=8)] * early
model = LSSVC(solver=CG(n_landmarks=10, tol=1e-4, max_iter=40), C=300.0, callback=callbacks).fit(X, y)
np.savez(out, coef=model.dual_coef_, bias=model.intercept_, support=model.support_, n_iter=model.n_iter_,
         residual=[r["residual"] for r in model.history_])
"""


def start(tmp_path, out, pause, early):
    command = [sys.executable, "-W", "ignore", "-c", _SCRIPT, str(tmp_path / "state.npz"), str(out), str(pause), early]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("early", ["early", "late"])
def test_kill_minus_nine_and_resume_bit_for_bit(tmp_path, early):
    whole = start(tmp_path, tmp_path / "whole.npz", 0.0, early)
    iterations = len(whole.communicate()[0].split())
    assert whole.returncode == 0
    assert iterations > 8

    for kill_at in (3, 6):
        process = start(tmp_path, tmp_path / "never.npz", 0.2, early)
        for line in process.stdout:
            if int(line) >= kill_at:
                os.kill(process.pid, signal.SIGKILL)
                break
        process.stdout.close()
        assert process.wait() == -signal.SIGKILL
        assert (tmp_path / "state.npz").exists()

    last = start(tmp_path, tmp_path / "resumed.npz", 0.0, early)
    seen = [int(line) for line in last.communicate()[0].split()]
    assert last.returncode == 0
    assert seen[0] > 3, "it went on, it did not start anew"
    assert not (tmp_path / "never.npz").exists()
    assert not (tmp_path / "state.npz").exists()
    with np.load(tmp_path / "whole.npz") as a, np.load(tmp_path / "resumed.npz") as b:
        assert a.files == b.files
        for name in a.files:
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)


class Killed(Exception):
    pass


def interrupted(model, X, y, after=3):
    def die(estimator, record):
        if record["n_iter"] > after:
            raise Killed

    with pytest.raises(Killed):
        model.set_params(callback=[*model.callback, die]).fit(X, y)


@pytest.fixture
def problem():
    X = np.random.default_rng(0).normal(size=(200, 3))
    return X, np.sin(X[:, 0])


def machine(path, **settings):
    settings = {"C": 100.0, "random_state": 0, **settings}
    own = {"tol": 1e-8, "n_landmarks": 5, "max_iter": 200}
    solver = CG(**{name: settings.pop(name, value) for name, value in own.items()})
    return LSSVR(
        solver=solver,
        kernel=settings.pop("kernel", RBF(gamma=0.5)),
        callback=[Checkpoint(path, every=1), *settings.pop("functions", [])],
        **settings,
    )


@pytest.mark.parametrize(
    "change",
    [{"C": 50.0}, {"tol": 1e-6}, {"kernel": RBF(gamma=0.6)}, {"random_state": 1}, {"n_landmarks": 6}, "rows", "targets"],
    ids=str,
)
def test_a_checkpoint_of_another_problem_is_refused(tmp_path, problem, change):
    X, y = problem
    path = tmp_path / "state.npz"
    interrupted(machine(path), X, y)
    kept = path.read_bytes()
    if change == "rows":
        X = X + 1.0
    elif change == "targets":
        y = y + X[:, 1]
    other = machine(path, **(change if isinstance(change, dict) else {}))
    with pytest.raises(ValueError, match=r"belongs to another problem .* remove it, or give another path"):
        other.fit(X, y)
    assert path.read_bytes() == kept, "refused, not overwritten"


def test_a_broken_checkpoint_is_refused(tmp_path, problem):
    path = tmp_path / "state.npz"
    interrupted(machine(path), *problem)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="is not a readable checkpoint; remove it to start anew"):
        machine(path).fit(*problem)


def test_the_history_goes_on_with_what_the_callback_added(tmp_path, problem):
    X, y = problem
    path = tmp_path / "state.npz"

    def annotate(estimator, record):
        record["array"] = np.arange(2)
        record["number"] = np.float32(1.5)
        record["word"] = "so"
        if record["n_iter"] > 3 and not resumed:
            raise Killed

    resumed = False
    with pytest.raises(Killed):
        machine(path, functions=[annotate]).fit(X, y)
    resumed = True
    history = machine(path, functions=[annotate]).fit(X, y).history_
    assert [r["n_iter"] for r in history] == list(range(1, len(history) + 1))
    assert (history[0]["array"], history[0]["number"], history[0]["word"]) == ([0, 1], 1.5, "so")


def test_at_the_iteration_limit_there_is_nothing_to_go_on_from(tmp_path, problem):
    path = tmp_path / "state.npz"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = machine(path, max_iter=4).fit(*problem)
    assert model.n_iter_ == 4
    assert not path.exists()


def test_saving_is_atomic(tmp_path):
    checkpoint = StateFile(tmp_path / "state.npz", "problem")
    rng = np.random.RandomState(0)
    checkpoint.save(np.ones((3, 1)), {"P": np.eye(3), "k": 2}, rng, [{"n_iter": 1}], 0.5)
    with pytest.raises(TypeError, match="not object"):
        checkpoint.save(np.ones((3, 1)), {}, rng, [{"n_iter": 1, "thing": object()}], 0.5)
    saved = checkpoint.load()
    np.testing.assert_array_equal(saved.state["P"], np.eye(3))
    assert (saved.state["k"], saved.seconds, saved.history) == (2, 0.5, [{"n_iter": 1}])
    assert sorted(os.listdir(tmp_path)) == ["state.npz", "state.npz.lock"]
    checkpoint.remove()
    assert os.listdir(tmp_path) == []


def test_fingerprints_tell_problems_apart():
    import scipy.sparse as sp

    a = np.arange(6.0).reshape(2, 3)
    different = [a, a.T, a.astype(np.float32), a + 1, sp.csr_matrix(a), sp.csr_matrix(a.T), "a", 1]
    assert len({fingerprint(part) for part in different}) == len(different)
    assert fingerprint(a, "x") == fingerprint(a.copy(), "x")


def test_the_seed_of_a_checkpointed_fit_is_its_data(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 3))
    y = (X[:, 0] > 0).astype(int)
    settings = {"solver": "cg", "callback": [EarlyStopping(), Checkpoint(tmp_path / "state.npz")]}
    first, second = (LSSVC(**settings).fit(X, y).support_ for _ in range(2))
    np.testing.assert_array_equal(first, second)


def _times(scale):
    return lambda X, Y: scale * (X @ Y.T)


def test_fingerprints_tell_kernels_apart_that_print_alike():
    some, other = np.arange(2000), np.arange(2000)
    other[1000] = 5
    assert repr(Columns(RBF(gamma=0.1), some)) == repr(Columns(RBF(gamma=0.1), other))
    different = [
        Columns(RBF(gamma=0.1), some),
        Columns(RBF(gamma=0.1), other),
        Columns(RBF(gamma=0.2), some),
        as_kernel(_times(2.0)),
        as_kernel(_times(3.0)),
        as_kernel(partial(rbf_kernel, gamma=0.1)),
        as_kernel(partial(rbf_kernel, gamma=0.2)),
    ]
    assert len({fingerprint(kernel) for kernel in different}) == len(different)


def test_a_function_is_the_same_problem_after_a_kill():
    """Its address is not."""
    assert fingerprint(as_kernel(_times(2.0))) == fingerprint(as_kernel(_times(2.0)))
    assert fingerprint(as_kernel(partial(_times, 2.0))) == fingerprint(as_kernel(partial(_times, 2.0)))
