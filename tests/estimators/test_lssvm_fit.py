"""How a fit goes: solvers, precision, history, callbacks, warm start, early stopping, probabilities, words."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_digits, make_moons
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import log_loss, recall_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import scale
from threadpoolctl import threadpool_limits

from gramless import LSSVC, LSSVR
from gramless._core import arrays as xa
from gramless.callbacks import EarlyStopping
from gramless.kernels import RBF, Polynomial
from gramless.linalg.operators import DenseOperator, KernelOperator
from gramless.linalg.solvers import CG, SOLVERS, Cholesky, solve
from gramless.linalg.tuning import TUNING


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split((X / 16).astype(np.float32), y, test_size=0.3, random_state=0)


ITERATES_TO_A_TOLERANCE = [name for name, cls in SOLVERS.items() if "tol" in cls._get_param_names()]


@pytest.mark.parametrize("solver", [*ITERATES_TO_A_TOLERANCE, CG(tol=1e-6), Cholesky()], ids=str)
def test_every_solver_gives_the_same_machine(solver):
    X, y = make_moons(300, noise=0.2, random_state=0)
    settings = {"kernel": RBF(gamma=0.5), "C": 0.2, "random_state": 0}
    exact = LSSVC(solver="cholesky", **settings).fit(X, y)
    model = LSSVC(solver=solver, tol=1e-6, max_iter=20_000, **settings).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), exact.decision_function(X), atol=1e-3)
    assert model.residual_ <= 1e-5
    assert model.n_iter_ == len(model.history_) >= 1


def test_auto_says_what_it_picked_and_why(digits, capsys):
    X, _, y, _ = digits
    model = LSSVC(verbose=1).fit(X, y)
    assert model.solver_ == "cholesky"
    assert "small enough for one factorisation" in model.solver_reason_
    with threadpool_limits(1, user_api="blas"):  # every thread holds a tile: on many cores nothing fits so small a budget
        streamed = LSSVC(memory_budget="11MB", verbose=1, solver=CG(n_landmarks=100, tol=1e-2)).fit(X, y)
    assert streamed.solver_ == "cg"
    assert "does not fit the budget of 11.0 MB: streamed" in streamed.solver_reason_
    cached = LSSVC(solver="cg", tol=1e-2).fit(X, y)
    assert "fits the budget" in cached.solver_reason_
    said = capsys.readouterr().err
    assert "[gramless] solver cholesky: n=1257 is small enough" in said
    assert re.search(r"\[gramless\] solver cg: the kernel matrix \(.* MB\) does not fit .* 11.0 MB: streamed; peak", said)
    np.testing.assert_allclose(streamed.decision_function(X), model.decision_function(X), atol=0.15)


@pytest.mark.parametrize("machine", [LSSVC, LSSVR])
def test_iterations_of_a_small_system_agree_with_its_factorisation(machine):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3_000, 6)).astype(np.float32)
    score = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=len(X))
    y = score > 0 if machine is LSSVC else score
    X_train, y_train, X_test = X[:2_700], y[:2_700], X[2_700:]
    settings = {"gamma": 0.2, "C": 10.0, "random_state": 0}
    exact = machine(solver="cholesky", **settings).fit(X_train, y_train)
    ours = machine(**settings).fit(X_train, y_train)
    assert ours.solver_ == "cg"
    assert ours.residual_ <= 1e-3
    scores = [m.decision_function(X_test) if machine is LSSVC else m.predict(X_test) for m in (exact, ours)]
    assert np.abs(scores[1] - scores[0]).max() < 1e-2 * np.abs(scores[0]).max()
    assert machine(**(settings | {"C": 100.0})).fit(X_train, y_train).solver_ == "cholesky"


def test_the_default_is_good_on_digits(digits):
    X, X_test, y, y_test = digits
    assert LSSVC(C=10.0).fit(X, y).score(X_test, y_test) > 0.98


# -- precision ---------------------------------------------------------------------------------------------------------


def near_singular(dtype):
    """A Gram matrix whose smallest eigenvalue, the ridge 1e-6, lies below float32's rounding of the largest, 600."""
    X = np.random.default_rng(0).normal(size=(600, 2)).astype(dtype)
    return KernelOperator(X, Polynomial(degree=2, gamma=0.5, coef0=1.0), 1e-6)


def test_a_float32_breakdown_is_recovered_in_float64():
    Z = np.random.default_rng(1).normal(size=(600, 2)).astype(np.float32)
    op = near_singular(np.float32)
    with pytest.raises(ArithmeticError):
        xa.cholesky_(op.dense(np.float32))
    result = solve(op, Z, Cholesky())
    assert result.history[0]["precision"] == "float64"
    assert result.W.dtype == np.float32
    exact = np.linalg.solve(near_singular(np.float32).dense(np.float64), Z.astype(float))
    assert np.linalg.norm(result.W - exact) < 1e-3 * np.linalg.norm(exact)


def test_no_detour_where_float32_is_enough():
    op = KernelOperator(np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32), RBF(gamma=0.5), 1.0)
    result = solve(op, np.ones((100, 1), np.float32), Cholesky())
    assert result.history[0]["precision"] == "float32"
    assert result.residual <= 1e-6


def test_a_singular_system_is_returned_with_a_warning():
    X = np.repeat(np.random.default_rng(0).normal(size=(10, 2)), 2, axis=0)
    y = np.arange(20) % 2  # equal rows, opposite labels: coefficients of size C
    with pytest.warns(ConvergenceWarning, match="singular in float64: C is too large.*true relative residual"):
        LSSVC(C=1e14, solver="cholesky", kernel=RBF(gamma=1.0)).fit(X, y)


def test_cg_stops_and_warns_where_float32_has_no_more_digits():
    X = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)
    y = np.sin(X[:, 0])
    started = time.perf_counter()
    with pytest.warns(
        ConvergenceWarning, match=r"LSSVR did not converge: rounding errors prevent a smaller residual; true rel"
    ) as caught:
        model = LSSVR(C=100.0, kernel=RBF(gamma=0.5), solver="cg", tol=1e-9).fit(X, y)
    assert "tol 1e-09. Raise max_iter or tol, lower C, use dtype='float64', or more landmarks" in str(caught[0].message)
    assert caught[0].filename == __file__, "the warning points at the caller's line"
    assert model.n_iter_ < 200
    assert time.perf_counter() - started < 30
    assert model.score(X, y) > 0.99


def test_cg_reports_the_true_residual():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3)).astype(np.float32)
    op = KernelOperator(X, RBF(gamma=0.5), 0.1)
    Z = rng.normal(size=(500, 3)).astype(np.float32)
    result = solve(op, Z, CG(tol=1e-4, max_iter=1000))
    true = np.linalg.norm(Z - op.dense(np.float64) @ result.W.astype(float)) / np.linalg.norm(Z)
    assert result.converged
    assert true <= 1.1e-4
    assert result.residual == pytest.approx(true, rel=0.05)


def test_cg_restarts_from_a_true_residual_that_the_recurrence_lost():
    """An operator whose products are wrong for a while: the recurrence believes in them, the check does not."""

    class Lying(DenseOperator):
        products = 0

        def __matmul__(self, V):
            self.products += 1
            return super().__matmul__(V) * (1.5 if self.products < 4 else 1.0)

    A = np.diag(np.linspace(1, 10, 30))
    result = solve(Lying(A), np.ones((30, 1)), CG(tol=1e-8, max_iter=200))
    assert result.converged
    np.testing.assert_allclose(A @ result.W, 1.0, atol=1e-6)


def test_the_iteration_limit_warns_with_the_true_residual(digits):
    X, _, y, _ = digits
    with pytest.warns(
        ConvergenceWarning, match=r"reached the limit of 2 iterations; true relative residual 0\.\d+, tol 0.001"
    ):
        model = LSSVC(solver=CG(n_landmarks=20, tol=1e-3, max_iter=2), C=100.0).fit(X, y)
    assert model.n_iter_ == 2


@pytest.mark.parametrize("max_iter", [-1, None])
def test_no_limit_as_in_svc(max_iter, digits):
    X, _, y, _ = digits
    assert LSSVC(solver="cg", tol=1e-3, max_iter=max_iter).fit(X[:300], y[:300]).residual_ <= 1e-3


@pytest.mark.parametrize("settings", [{"n_landmarks": 0}, {"n_landmarks": 50}, {"n_landmarks": 50, "damping": 0.5}], ids=str)
def test_landmarks_and_damping_are_settable(settings, digits):
    X, _, y, _ = digits
    model = LSSVC(solver=CG(tol=1e-5, **settings), random_state=0, dtype="float64").fit(X[:400], y[:400])
    exact = LSSVC(solver="cholesky", dtype="float64").fit(X[:400], y[:400])
    np.testing.assert_allclose(model.decision_function(X), exact.decision_function(X), atol=1e-2)


def test_the_preconditioner_saves_iterations(digits):
    X, _, y, _ = digits
    solvers = [CG(tol=1e-3, max_iter=2000, n_landmarks=m) for m in ("auto", 0)]
    with_it, without = (LSSVC(solver=solver, C=1e3, random_state=0).fit(X, y).n_iter_ for solver in solvers)
    assert with_it < without / 2


# -- history, callbacks, warm start, early stopping --------------------------------------------------------------------


def test_history_and_callback(digits):
    X, X_test, y, y_test = digits
    seen = []

    def callback(estimator, record):
        record["error"] = 1 - estimator.score(X_test, y_test)
        seen.append(estimator.predict_proba(X_test[:3]).shape)
        time.sleep(0.3)
        return len(seen) == 4

    model = LSSVC(solver="cg", tol=1e-8, dtype="float64", callback=callback).fit(X, y)
    assert model.n_iter_ == 4
    assert seen == [(3, 10)] * 4
    assert [r["n_iter"] for r in model.history_] == [1, 2, 3, 4]
    assert all({"seconds", "residual", "error"} <= set(r) for r in model.history_)
    assert model.history_[-1]["error"] == 1 - model.score(X_test, y_test)
    asleep = 3 * 0.3  # between the first record and the last
    assert model.history_[-1]["seconds"] - model.history_[0]["seconds"] < asleep, "the clock ran during callbacks"


def test_sigmoids_of_an_earlier_fit_are_not_used_in_a_callback(digits):
    X, _, y, _ = digits

    def callback(estimator, record):
        with pytest.raises(NotFittedError, match="sigmoids"):
            estimator.predict_proba(X[:2])

    model = LSSVC(probability="sigmoid").fit(X[:100], y[:100])
    model.set_params(callback=callback).fit(X[:200], y[:200])


def test_a_callback_that_raises_leaves_the_last_model(digits):
    X, _, y, _ = digits
    model = LSSVC().fit(X[:100], y[:100])
    before = model.decision_function(X)

    def callback(estimator, record):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.set_params(callback=callback).fit(X[:200], y[:200])
    np.testing.assert_array_equal(model.decision_function(X), before)


def test_warm_start_goes_on_from_the_last_solution(digits):
    X, _, y, _ = digits
    model = LSSVC(solver="cg", warm_start=True, C=10.0, tol=1e-4, random_state=0, dtype="float64").fit(X, y)
    first = model.n_iter_
    assert model.fit(X, y).n_iter_ == 1
    warm = model.set_params(C=11.0).fit(X, y)
    cold = LSSVC(solver="cg", C=11.0, tol=1e-4, random_state=0, dtype="float64").fit(X, y)
    assert warm.n_iter_ < cold.n_iter_ <= first + 1
    np.testing.assert_allclose(warm.decision_function(X), cold.decision_function(X), atol=1e-2)
    model.fit(X[:200], y[:200])  # other rows: a cold start, not an error


def test_early_stopping_returns_the_best(digits):
    X, X_test, y, y_test = digits
    stop = EarlyStopping(n_iter_no_change=3)
    model = LSSVC(solver=CG(n_landmarks=30, tol=1e-7), C=1e5, callback=stop, random_state=0).fit(X, y)
    errors = [r["validation"] for r in model.history_]
    best = int(np.argmin(errors))
    assert len(errors) == best + 4
    assert model.score(X_test, y_test) > 0.96
    held_out = np.setdiff1d(np.arange(len(X)), model.support_)
    assert 1 - model.score(X[held_out], y[held_out]) == pytest.approx(errors[best])
    assert abs(len(held_out) / len(X) - 0.1) < 0.01
    shares = np.bincount(y[held_out]) / np.bincount(y)
    assert shares.min() > 0.07, "each class gives its share"


# -- threads and bits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_threads_change_nothing_but_rounding(solver):
    X = np.random.default_rng(0).normal(size=(2200, 5))
    y = np.sin(X[:, 0])
    scores = []
    for threads in (1, 2, 2):
        with threadpool_limits(threads):
            scores.append(LSSVR(solver=solver, tol=1e-6, random_state=0).fit(X, y).predict(X))
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(scores[2], scores[1])


# -- probabilities -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", [LSSVC, partial(LSSVC, C="loo")])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities(machine, n_classes):
    rng = np.random.default_rng(0)
    y = np.array(["z", "a", "m"])[np.arange(240) % n_classes]
    X = rng.normal(size=(240, 3)) + 1.2 * (np.arange(240) % n_classes)[:, None]
    models = {p: machine(probability=p).fit(X[:160], y[:160]) for p in ("softmax", "sigmoid", False)}
    plain = models[False].predict(X)
    for kind in ("softmax", "sigmoid"):
        p = models[kind].predict_proba(X)
        assert p.shape == (240, n_classes)
        np.testing.assert_allclose(p.sum(1), 1.0)
        assert ((p >= 0) & (p <= 1)).all()
        np.testing.assert_array_equal(models[kind].predict(X), plain)
        np.testing.assert_array_equal(models[kind].classes_, sorted(set(y)))
        assert np.mean(models[kind].classes_[p.argmax(1)] == plain) > 0.95
    losses = {kind: log_loss(y[160:], models[kind].predict_proba(X[160:])) for kind in ("softmax", "sigmoid")}
    assert losses["sigmoid"] < losses["softmax"], "the fitted sigmoid is the calibrated one"


def test_sigmoids_equal_those_of_brute_force_leave_one_out():
    from gramless.inference.probabilities import fit_sigmoids

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), np.arange(40) % 2
    X[y == 1] += 1.0
    kernel = RBF(gamma=0.5)
    model = LSSVC(kernel=kernel, probability="sigmoid").fit(X, y)
    rest = [np.delete(np.arange(40), i) for i in range(40)]
    left_out = [LSSVC(kernel=kernel).fit(X[r], y[r]).decision_function(X[i : i + 1])[0] for i, r in enumerate(rest)]
    np.testing.assert_allclose(model.sigmoids_, fit_sigmoids(np.array(left_out), y, 2), rtol=1e-5)


@pytest.mark.parametrize("precomputed", [False, True])
def test_sigmoids_from_an_estimated_diagonal(digits, precomputed):
    """What more than 12,000 rows get: probabilities within a few thousandths of the exact ones in the mean."""
    X, X_test, y, _ = digits
    kernel = RBF(gamma=0.2)
    fit_on, predict_on = (kernel(X, X), kernel(X_test, X)) if precomputed else (X, X_test)
    settings = {"kernel": "precomputed" if precomputed else kernel, "C": 10.0, "probability": "sigmoid", "random_state": 0}
    exact = LSSVC(**settings).fit(fit_on, y)
    estimated = LSSVC(**settings)
    estimated._tuning = replace(TUNING, exact_leave_one_out_max_rows=100)
    estimated.fit(fit_on, y)
    difference = estimated.predict_proba(predict_on) - exact.predict_proba(predict_on)
    assert 0 < np.abs(difference).mean() < 5e-3
    np.testing.assert_array_equal(estimated.predict(predict_on), exact.predict(predict_on))


# -- words -------------------------------------------------------------------------------------------------------------

_FIT = (
    "import numpy as np; from gramless import LSSVR; from gramless.linalg.solvers import CG\n"
    "from dataclasses import replace; import gramless._core.progress as progress\n"
    "progress.TUNING = replace(progress.TUNING, seconds_between_lines=0.0)\n"
    "X = np.random.default_rng(0).normal(size=(300, 2)); y = np.sin(X[:, 0])\n"
    "LSSVR(solver=CG(n_landmarks=20, tol=1e-5), C=100.0, verbose={verbose}).fit(X, y)\n"
)


def test_plain_lines_where_there_is_no_terminal():
    done = subprocess.run([sys.executable, "-c", _FIT.format(verbose=1)], capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert done.stdout == ""
    assert lines[0].startswith("[gramless] solver cg:")
    assert any(line.startswith("[gramless] LSSVR cg: 1/200  seconds") and "residual" in line for line in lines)
    assert lines[-1].startswith("[gramless] converged in")
    assert "\x1b" not in done.stderr


def test_nothing_unless_asked():
    done = subprocess.run([sys.executable, "-c", _FIT.format(verbose=0)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_live_bar_on_a_terminal():
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    process = subprocess.Popen([sys.executable, "-c", _FIT.format(verbose=1)], stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while True:
        ready, _, _ = select.select([ours], [], [], 60)
        try:
            piece = os.read(ours, 65536) if ready else b""
        except OSError:  # the other end has closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert process.wait() == 0
    text = shown.decode()
    assert "LSSVR cg" in text
    assert "/200" in text
    assert "\x1b[" in text, "a bar is drawn with terminal sequences"


def test_own_scores_of_a_search_see_labels_and_values_as_they_were_given():
    X, y = load_breast_cancer(return_X_y=True)
    X, names = scale(X)[:150], np.where(y[:150] == 1, "benign", "malignant")
    seen = []

    def recall(truth, predicted, sample_weight=None):
        seen.append((truth, predicted))
        return recall_score(truth, predicted, pos_label="malignant", sample_weight=sample_weight)

    search = LSSVC(C="loo", Cs=[0.1, 1.0], scoring=recall).fit(X, names)
    np.testing.assert_array_equal(seen[0][0], names)
    assert search.best_score_ == max(recall(*pair) for pair in list(seen))

    def error(truth, predicted, sample_weight=None):
        return -np.average((truth - predicted) ** 2, weights=sample_weight)

    weights = np.linspace(0.5, 1.5, len(X))
    ours = LSSVR(C="loo", Cs=[0.1, 1.0], scoring=error).fit(X, X[:, 0] ** 2, weights)
    np.testing.assert_allclose(ours.scores_, LSSVR(C="loo", Cs=[0.1, 1.0]).fit(X, X[:, 0] ** 2, weights).scores_, rtol=1e-10)


def test_a_refit_on_tensors_forgets_column_names():
    frame = pd.DataFrame({"a": [0.0, 1.0, 2.0, 3.0], "b": [1.0, 0.0, 1.0, 0.0]})
    model = LSSVC().fit(frame, [0, 0, 1, 1])
    model.fit(torch.as_tensor(frame.to_numpy().copy()), [0, 0, 1, 1])
    assert not hasattr(model, "feature_names_in_")
    model.predict(frame.to_numpy())


def fitted_attributes(model):
    return {name for name in vars(model) if name.endswith("_") and not name.startswith("_")}


@pytest.mark.parametrize("estimator", [LSSVC, LSSVR])
@pytest.mark.parametrize(("before", "after"), [("loo", 1.0), (1.0, "loo")])
def test_refit_with_another_kind_of_C_has_no_attributes_of_the_first_fit(estimator, before, after):
    X, y = make_moons(60, noise=0.2, random_state=0)
    refitted = estimator(C=before).fit(X, y).set_params(C=after).fit(X, y)
    assert fitted_attributes(refitted) == fitted_attributes(estimator(C=after).fit(X, y))
