"""Fits on two worker processes against fits on one machine; a worker killed in the middle; what the client holds."""

from __future__ import annotations

import os
import signal
import threading
import time
import tracemalloc

import numpy as np
import pytest
from sklearn.base import clone

import gramless
from gramless import LSSVC, LSSVR, BudgetLSSVC, FourierLSSVC, FourierLSSVR, NystromLSSVC, NystromLSSVR, RiSVOClassifier
from gramless.callbacks import Checkpoint
from gramless.linalg.solvers import CG, Averaged

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("dask.distributed")

from gramless.distributed import collections, fit, lssvm, one_pass, operator, risvo  # noqa: E402


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster):
    with distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def digits(digits):
    return digits[0][:600], digits[1][:600]


def cut(*arrays, rows=250):
    """Dask arrays over the same rows, cut unevenly."""
    return [da.from_array(a, chunks=(rows, *a.shape[1:])) for a in arrays]


MACHINES = {
    "nystrom": lambda: NystromLSSVC(n_landmarks=60, gamma=0.1, C=10.0, random_state=0),
    "nystrom of a rule": lambda: NystromLSSVC(n_landmarks=60, landmarks="rpcholesky", gamma="scale", random_state=3),
    "nystrom of rows": lambda: NystromLSSVC(landmarks=np.arange(50, 3, -1), gamma=0.1, random_state=0),
    "nystrom cg": lambda: NystromLSSVC(
        n_landmarks=60, gamma=0.1, C=10.0, solver=CG(tol=1e-11, max_iter=500), class_weight={1: 2.0}, random_state=0
    ),
    "risvo": lambda: RiSVOClassifier(n_landmarks=60, gamma=0.1, check_inclusion=True, max_iter=6, random_state=0),
    "risvo of rows": lambda: RiSVOClassifier(landmarks=np.arange(5, 90), gamma=0.1, rho=0.1, max_iter=4, random_state=0),
    "fourier": lambda: FourierLSSVC(n_components=80, gamma=0.1, C=10.0, random_state=0),
    "lssvc": lambda: LSSVC(solver=CG(tol=1e-12, n_landmarks=100), gamma=0.1, C=1.0, probability="softmax", random_state=0),
}


def assert_same_model(ours, theirs, tolerance=1e-10):
    names = ("dual_coef_", "intercept_") if hasattr(theirs, "dual_coef_") else ("coef_", "intercept_")
    for name in names:
        a, b = np.asarray(getattr(ours, name)), np.asarray(getattr(theirs, name))
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max())


@pytest.mark.parametrize("name", MACHINES)
def test_the_coefficients_of_one_machine(name, digits, client):
    X, y = digits
    dX, dy = cut(X, y)
    ours, theirs = MACHINES[name]().fit(dX, dy), MACHINES[name]().fit(X, y)
    assert_same_model(ours, theirs)
    np.testing.assert_array_equal(ours.classes_, theirs.classes_)
    if hasattr(theirs, "points_"):
        np.testing.assert_array_equal(np.asarray(ours.points_), theirs.points_)
    lazy = ours.predict(dX)
    assert isinstance(lazy, da.Array)
    assert lazy.chunks == dy.chunks
    np.testing.assert_array_equal(lazy.compute(), theirs.predict(X))
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    np.testing.assert_allclose(ours.decision_function(dX).compute(), theirs.decision_function(X), atol=1e-8)
    np.testing.assert_allclose(ours.predict_proba(dX).compute(), theirs.predict_proba(X), atol=1e-8)


@pytest.mark.parametrize("name", ["nystrom", "risvo", "lssvc"])
def test_two_classes_with_names_weights_and_single_precision(name, digits, client):
    X, y = digits
    X, labels = X[y < 2].astype(np.float32), np.where(y[y < 2] == 0, "nought", "one")
    weights = np.linspace(0.5, 2.0, len(X))
    machine = MACHINES[name]().set_params(class_weight="balanced")
    if name == "lssvc":
        machine.set_params(solver=CG(tol=1e-4, n_landmarks=100))
    dX, dlabels, dweights = cut(X, labels, weights, rows=60)
    ours = clone(machine).fit(dX, dlabels, sample_weight=dweights)
    theirs = clone(machine).fit(X, labels, sample_weight=weights)
    assert ours.predict(dX).dtype == labels.dtype
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=2e-3)


@pytest.mark.parametrize("machine", [NystromLSSVR(n_landmarks=60, gamma=0.1), LSSVR(solver="cg", gamma=0.1, tol=1e-12)])
def test_values(machine, digits, client):
    X, _ = digits
    Z = np.column_stack([np.sin(X.sum(axis=1)), X[:, 20]])
    machine.set_params(random_state=0)
    dX, dZ = cut(X, Z)
    ours, theirs = clone(machine).fit(dX, dZ), clone(machine).fit(X, Z)
    assert_same_model(ours, theirs)
    np.testing.assert_allclose(ours.predict(dX).compute(), theirs.predict(X), atol=1e-8)


def test_labels_after_a_fit_to_an_indicator_matrix(digits, client):
    X, y = digits
    model = LSSVC(solver="cg").fit(X, np.eye(10)[y])
    model.fit(*cut(X, y))
    assert not model.multilabel_
    np.testing.assert_array_equal(np.unique(np.asarray(model.predict(X[:200]))), np.arange(10))


def test_risvo_keeps_its_books(digits, client):
    X, y = digits
    ours, theirs = MACHINES["risvo"]().fit(*cut(X, y)), MACHINES["risvo"]().fit(X, y)
    for mine, other in zip(ours.history_, theirs.history_, strict=True):
        assert {k: v for k, v in mine.items() if k not in ("seconds", "condition")} == {
            k: v for k, v in other.items() if k not in ("seconds", "condition")
        }
    assert ours.message_ == theirs.message_
    np.testing.assert_array_equal(ours.active_set_.compute(), theirs.active_set_)
    np.testing.assert_array_equal(ours.inclusion_violations_.compute(), theirs.inclusion_violations_)


def test_risvo_averaged_is_the_mean_of_independent_fits(digits, client):
    X, y = digits
    order = np.argsort(y, kind="stable")  # partitions that lack most classes
    X, y = X[order], y[order]
    points = X[::15]
    machine = RiSVOClassifier(landmarks=points, gamma=0.1, merge="average")
    ours = clone(machine).fit(*cut(X, y, rows=200))
    total = 0
    for part in (slice(0, 200), slice(200, 400), slice(400, 600)):
        alone = RiSVOClassifier(landmarks=points, gamma=0.1).fit(X[part], y[part])
        scores = np.full((len(X), 10), -1.0)  # a class that is not there has the score of its targets
        scores[:, alone.classes_] = alone.decision_function(X)
        total = total + scores / 3
    np.testing.assert_allclose(ours.decision_function(X), total, atol=1e-8)


def test_dataframes(digits, client):
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    X, y = digits
    frame = pd.DataFrame(X, columns=[f"p{i}" for i in range(64)])
    dX = dd.from_pandas(frame, npartitions=4)
    dy = dd.from_pandas(pd.Series(y), npartitions=4)
    ours, theirs = MACHINES["nystrom"]().fit(dX, dy), MACHINES["nystrom"]().fit(frame, y)
    assert_same_model(ours, theirs)
    assert list(ours.feature_names_in_) == list(frame.columns)
    np.testing.assert_array_equal(ours.predict(dX).compute(), theirs.predict(frame))
    by_tiles = MACHINES["lssvc"]().fit(dX, dy)
    np.testing.assert_array_equal(by_tiles.predict(frame), MACHINES["lssvc"]().fit(frame, y).predict(frame))


def test_the_solvers_own_limit_and_kernel_values_without_end(digits, client):
    X, y = digits[0][:200], digits[1][:200]
    ours = MACHINES["lssvc"]().set_params(max_iter=-1).fit(*cut(X, y))
    assert_same_model(ours, MACHINES["lssvc"]().fit(X, y))
    with pytest.raises(ValueError, match="overflow"):
        LSSVC(solver="cg", kernel="poly", gamma=1.0).fit(*cut(1e30 * X.astype(np.float32), y))


@pytest.mark.parametrize("name", ["nystrom", "lssvc"])
def test_partitions_that_a_filter_left_empty(name, digits, client):
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    X, y = digits
    frame = pd.DataFrame(X, columns=[f"p{i}" for i in range(64)]).assign(y=y)
    some = dd.from_pandas(frame, npartitions=4).map_partitions(lambda part: part[part.index >= 320])
    dX = some.drop(columns="y")
    ours, theirs = MACHINES[name]().fit(dX, some["y"]), MACHINES[name]().fit(X[320:], y[320:])
    assert_same_model(ours, theirs)
    np.testing.assert_array_equal(ours.predict(dX).compute(), theirs.predict(X[320:]))
    np.testing.assert_allclose(ours.predict_proba(dX).compute(), theirs.predict_proba(X[320:]), atol=1e-8)
    other = dX[list(dX.columns[::-1])]
    for wrong in (other, other.compute()):
        with pytest.raises(ValueError, match="feature names should match"):
            ours.predict(wrong)


@pytest.mark.parametrize("name", ["nystrom", "lssvc"])
def test_rows_to_predict_are_checked(name, digits, client):
    X, y = digits[0][:200], digits[1][:200]
    model = MACHINES[name]().fit(*cut(X, y))
    bad = X.copy()
    bad[7, 7] = np.nan
    with pytest.raises(ValueError, match="contains NaN"):
        model.predict(bad)
    with pytest.raises(ValueError, match="contains NaN"):
        model.predict(cut(bad)[0]).compute()
    for wrong, message in ((X[:, 1:], "63 features"), (X[0], "Expected 2D array")):
        with pytest.raises(ValueError, match=message):
            model.predict(wrong)
        with pytest.raises(ValueError, match=message):
            model.predict(da.from_array(wrong))


def test_the_sample_for_leave_one_out_is_that_of_one_machine(digits, client):
    X, y = np.tile(digits[0][:, :8], (20, 1)), np.tile(digits[1], 20)  # 12,000 rows, of which 8,192 are sampled
    machine = NystromLSSVC(landmarks=X[:30], gamma=0.1, C="loo", random_state=0)
    ours, theirs = clone(machine).fit(*cut(X, y, rows=2500)), clone(machine).fit(X, y)
    np.testing.assert_allclose(ours.loo_errors_, theirs.loo_errors_, rtol=1e-8)


def test_rows_too_many_to_keep_are_read_again(digits, client, monkeypatch):
    X, y = digits
    monkeypatch.setattr(collections, "cluster_memory", lambda client: 0)
    assert_same_model(MACHINES["nystrom"]().fit(*cut(X, y)), MACHINES["nystrom"]().fit(X, y))


def test_products_without_kept_tiles(digits, client):
    X, _ = digits
    pieces = client.scatter([collections.Piece(X[:350], X[:350, 0], None), collections.Piece(X[350:], X[350:, 0], None)])
    kernel = gramless.kernels.RBF(gamma=0.1)
    ridge = np.linspace(0.1, 0.2, 600)
    rows = collections.Rows(client, pieces, [350, 250], 8, X.dtype, (), None, None, None)
    V = np.random.default_rng(0).normal(size=(600, 3))
    expected = (kernel(X, X) + np.diag(ridge)) @ V
    for cache in (True, False):
        op = operator.DistributedOperator(rows, pieces, rows.counts, kernel, ridge, cache=cache)
        np.testing.assert_allclose(op @ V, expected, atol=1e-10)
        np.testing.assert_allclose(op.diag(), 1 + ridge)


# --- a worker is lost --------------------------------------------------------------------------------------------------


def kill_one(client):
    """Kill the process of one worker, as a machine that loses power would."""
    pids = client.run(os.getpid)
    os.kill(next(iter(pids.values())), signal.SIGKILL)


def test_a_worker_killed_in_the_middle_of_one_pass(digits, client):
    X, y = digits

    def slowly(block):
        time.sleep(0.15)
        return block

    dX, dy = cut(np.tile(X, (2, 1)), np.tile(y, 2), rows=60)
    dX = dX.map_blocks(slowly)
    killer = threading.Timer(1.2, kill_one, [client])
    killer.start()
    started = time.monotonic()
    ours = NystromLSSVC(landmarks=X[:60], gamma=0.1, C=10.0).fit(dX, dy)
    assert time.monotonic() - started > 1.3  # the kill came while the fit was on
    killer.join()
    assert_same_model(ours, NystromLSSVC(landmarks=X[:60], gamma=0.1, C=10.0).fit(np.tile(X, (2, 1)), np.tile(y, 2)))


def test_a_worker_killed_during_the_passes_of_conjugate_gradients(digits, client, monkeypatch):
    X, y = digits
    settings = {"landmarks": X[:60], "gamma": 0.1, "C": 10.0, "solver": CG(tol=1e-10, max_iter=500)}
    product, passes = one_pass.WorkerRows.normal_times, []

    def kill_in_the_third_pass(self, A, shift):
        passes.append(len(passes))
        if len(passes) == 3:
            kill_one(client)
        return product(self, A, shift)

    monkeypatch.setattr(one_pass.WorkerRows, "normal_times", kill_in_the_third_pass)
    ours = NystromLSSVC(**settings).fit(*cut(X, y, rows=60))
    assert len(passes) > 3
    assert_same_model(ours, NystromLSSVC(**settings).fit(X, y), tolerance=1e-6)


def test_one_of_three_workers_killed_during_conjugate_gradients(digits):
    X, y = digits
    settings = {"landmarks": X[:60], "gamma": 0.1, "C": 10.0, "solver": CG(tol=1e-9, max_iter=500)}
    with (
        distributed.LocalCluster(n_workers=3, threads_per_worker=1, processes=True, dashboard_address=":0") as three,
        distributed.Client(three, set_as_default=False) as client,
    ):
        first = set(client.run(os.getpid).values())
        product, passes = one_pass.WorkerRows.normal_times, []

        def kill_during_the_third_pass(self, A, shift):
            passes.append(len(passes))
            if len(passes) == 3:
                threading.Timer(0.02, kill_one, [client]).start()
            return product(self, A, shift)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(one_pass.WorkerRows, "normal_times", kill_during_the_third_pass)
            ours = fit(NystromLSSVC(**settings), *cut(X, y, rows=60), client=client)
        assert len(passes) > 4
        client.wait_for_workers(3, timeout=30)
        assert len(first & set(client.run(os.getpid).values())) == 2
    local = NystromLSSVC(**settings).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), local.decision_function(X), atol=1e-5)


@pytest.mark.parametrize("name", ["risvo", "lssvc"])
def test_a_worker_killed_between_steps(name, digits, client):
    X, y = digits
    killed = []

    def kill(model, record):
        if record["n_iter"] == 2:
            kill_one(client)
            killed.append(record)

    ours = MACHINES[name]().set_params(callback=kill).fit(*cut(X, y))
    assert killed
    assert ours.n_iter_ > 2
    assert_same_model(ours, MACHINES[name]().fit(X, y))


# --- the client --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nystrom", "risvo", "lssvc"])
def test_rows_never_travel_to_the_client(name, client):
    n, d = (100_000, 20) if name != "lssvc" else (2_000, 1_000)
    X = da.random.default_rng(0).normal(size=(n, d), chunks=(n // 8, d))
    y = (X[:, 0] > 0).astype(int)
    machine = MACHINES[name]().set_params(gamma=0.01)
    machine.set_params(**({"solver": CG(tol=1e-2, n_landmarks=20)} if name == "lssvc" else {"n_landmarks": 30}))
    if name == "risvo":
        machine.set_params(max_iter=2, landmarks="uniform")
    tracemalloc.start()
    try:
        machine.fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.25 * n * d * 8


def test_scheduler_by_its_address(digits, cluster):
    X, y = digits
    ours = fit(MACHINES["nystrom"](), *cut(X, y), client=cluster.scheduler_address)
    assert_same_model(ours, MACHINES["nystrom"]().fit(X, y))


# --- what cannot be ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (NystromLSSVC(forgetting_factor=0.9), "forgetting_factor"),
        (BudgetLSSVC(), "online"),
        (FourierLSSVC(method="online"), "online"),
        (NystromLSSVC(callback=Checkpoint("x")), "checkpoint"),
        (RiSVOClassifier(landmarks="all"), "one machine"),
        (LSSVC(solver="cholesky"), "solver='cg'"),
        (LSSVC(solver="cg", warm_start=True), "warm_start"),
        (LSSVC(solver="cg", probability="sigmoid"), "softmax"),
        (LSSVC(solver="cg", kernel="precomputed"), "precomputed"),
        (LSSVC(solver="cg", C=-1.0), "'C' parameter of LSSVC"),
        (LSSVC(C="loo"), "all rows in one process"),
        (RiSVOClassifier(class_weight="heavy"), "class_weight"),
    ],
)
def test_settings_that_cannot_be_distributed(machine, message, digits, client):
    with pytest.raises(ValueError, match=message):
        machine.fit(*cut(*digits))
    assert not hasattr(machine, "n_features_in_")  # a fit that fails leaves nothing behind


@pytest.mark.parametrize("name", ["nystrom", "risvo", "lssvc"])
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("device", "cuda"),
        ("memory_budget", "1GB"),
        ("warm_start", True),
    ],
)
def test_a_setting_that_is_not_honoured_is_refused_by_its_name(name, setting, value, digits, client):
    machine = MACHINES[name]()
    if setting not in machine.get_params():
        pytest.skip(f"{type(machine).__name__} has no {setting}")
    with pytest.raises(ValueError, match=f"{setting}={value!r} cannot be honoured on dask collections"):
        machine.set_params(**{setting: value}).fit(*cut(*digits))
    machine.set_params(**{setting: type(machine)().get_params()[setting]})
    assert not hasattr(machine, "classes_")


def test_averaged_runs_are_refused(digits, client):
    with pytest.raises(ValueError, match="solver=Averaged"):
        LSSVC(solver=Averaged(CG(), n_runs=2)).fit(*cut(*digits))


def test_scores_of_pairs_and_models_without_a_bias(digits, client):
    X, y = digits
    machine = MACHINES["lssvc"]().set_params(decision_function_shape="ovo")
    ours, theirs = clone(machine).fit(*cut(X, y)), clone(machine).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(cut(X)[0]).compute(), theirs.decision_function(X), atol=1e-8)
    machine = LSSVR(solver=CG(tol=1e-12), fit_intercept=False, gamma=0.1, random_state=0)
    assert_same_model(clone(machine).fit(*cut(X, X[:, 20] + 3)), clone(machine).fit(X, X[:, 20] + 3))


@pytest.mark.parametrize(("setting", "value"), [("callback", print), ("check_inclusion", True)])
def test_independent_fits_have_no_common_steps_to_watch(setting, value, digits, client):
    with pytest.raises(ValueError, match=f"{setting}=.* cannot be honoured"):
        RiSVOClassifier(merge="average", **{setting: value}).fit(*cut(*digits))


KERNEL = {"kernel", "gamma", "degree", "coef0"}
COMMON = {"class_weight", "probability", "dtype", "verbose", "random_state"}
SUPPORTED = {
    # Cs and scoring are for C="loo", which raises an error.
    lssvm: KERNEL
    | {"C", "Cs", "scoring", "solver", "tol", "max_iter", "fit_intercept", "decision_function_shape", "callback"}
    | COMMON,
    risvo: KERNEL
    | {"n_landmarks", "landmarks", "gamma_l", "gamma_u", "zeta_l", "zeta_u", "rho", "reduction", "max_iter"}
    | {"check_inclusion", "merge", "callback"}
    | COMMON,
    one_pass: KERNEL
    | {"C", "Cs", "n_landmarks", "landmarks", "n_components", "draw", "method", "batch_size", "solver"}
    | COMMON,
}


@pytest.mark.parametrize(
    ("module", "estimators"),
    [
        (lssvm, [LSSVC, LSSVR]),
        (risvo, [RiSVOClassifier]),
        (one_pass, [NystromLSSVC, NystromLSSVR, FourierLSSVC, FourierLSSVR]),
    ],
)
def test_every_parameter_is_supported_or_raises_an_error(module, estimators):
    parameters = {name for estimator in estimators for name in estimator().get_params(deep=False)}
    assert parameters == SUPPORTED[module] | module.UNSUPPORTED
    assert not SUPPORTED[module] & module.UNSUPPORTED


def test_blocks_with_other_columns_than_the_collection_says(digits, client):
    X, y = digits
    fewer = cut(X)[0].map_blocks(lambda block: block[:, :60], dtype=X.dtype, chunks=((250, 250, 100), (64,)))
    for name in ("nystrom", "risvo", "lssvc"):
        with pytest.raises(ValueError, match="60 columns, but X says that it has 64"):
            MACHINES[name]().fit(fewer, cut(y)[0])
        with pytest.raises(ValueError, match="60"):
            MACHINES[name]().fit(*cut(X, y)).predict(fewer).compute()
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X[:, :4], columns=list("abcd"))
    turned = dd.from_delayed([dask.delayed(frame[list("dcba")])], meta=frame[:0], verify_meta=False)
    with pytest.raises(ValueError, match="but X says"):
        MACHINES["nystrom"]().fit(turned, dd.from_pandas(pd.Series(y), npartitions=1))


def test_bad_collections(digits, client):
    X, y = digits
    dX, dy = cut(X, y)
    with pytest.raises(ValueError, match="600 rows and y has 500"):
        NystromLSSVC().fit(dX, dy[:500])
    with pytest.raises(ValueError, match="NaN or infinity"):
        NystromLSSVC().fit(da.where(dX > 0.9, np.nan, dX), dy)
    with pytest.raises(ValueError, match="greater than one"):
        NystromLSSVC().fit(dX, da.zeros_like(dy))
    with pytest.raises(ValueError, match="y to be passed"):
        NystromLSSVC().fit(dX)
    with pytest.raises(ValueError, match="missing values"):
        NystromLSSVC().fit(dX, cut(np.where(np.arange(600) == 400, None, y.astype(str)))[0])
    with pytest.raises(TypeError, match="RiSVOClassifier and"):
        fit(object(), dX, dy)
