"""`solver="cg"` of the landmark estimators: the model of the sums, from several passes over the rows."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.exceptions import ConvergenceWarning

import gramless
from gramless import NystromLSSVC, NystromLSSVR, Stream
from gramless.callbacks import Checkpoint
from gramless.linalg.solvers import CG

TIGHT = CG(tol=1e-8, max_iter=500)
SETTINGS = {"n_landmarks": 60, "gamma": 0.1, "C": 1.0, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 6))
    values = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=2000)
    return X, values, np.array(["low", "middle", "high"])[np.digitize(values, [-0.5, 0.5])]


def batches_of(X, y, size=300):
    for start in range(0, len(X), size):
        yield X[start : start + size], y[start : start + size]


def pair(estimator, X, y, solver=TIGHT, weight=None, **settings):
    """Return the same model by sums and by conjugate gradients."""
    models = [estimator(solver=s, **{**SETTINGS, **settings}).fit(X, y, sample_weight=weight) for s in ("sums", solver)]
    assert [model.solver_ for model in models] == ["sums", "cg"]
    return models


@pytest.mark.parametrize("class_weight", [None, "balanced", {"low": 3.0}])
def test_class_weights_and_sample_weights_equal_those_of_sums(rows, class_weight):
    X, _, y = rows
    weight = np.random.default_rng(1).random(len(X)) * (np.arange(len(X)) % 5 > 0)  # some are zero
    sums, iterated = pair(NystromLSSVC, X, y, weight=weight, class_weight=class_weight)
    np.testing.assert_allclose(iterated.decision_function(X), sums.decision_function(X), atol=1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", ["equal landmarks", "nearly equal landmarks", "one direction", "very wide kernel"])
def test_landmarks_with_a_singular_kernel_matrix(rows, case, dtype):
    X, values, _ = rows
    points, kernel, gamma = X[:60].astype(dtype), "rbf", 0.1
    if case == "equal landmarks":
        points = np.repeat(points[:6], 10, axis=0)
    elif case == "nearly equal landmarks":
        points = points[:1] + 1e-5 * points
    elif case == "one direction":
        points, kernel = np.outer(np.arange(1.0, 61.0), points[0]).astype(dtype), "linear"
    else:
        gamma = 1e-7
    settings = {"landmarks": points, "kernel": kernel, "gamma": gamma, "C": 10.0}
    sums, iterated = (NystromLSSVR(solver=solver, **settings).fit(X.astype(dtype), values) for solver in ("sums", "cg"))
    errors = [np.mean((model.predict(X.astype(dtype)) - values) ** 2) for model in (sums, iterated)]
    assert np.isfinite(iterated.dual_coef_).all()
    assert errors[1] < 1.01 * errors[0]
    assert 0 < iterated.jitter_ < 1


def test_kernel_values_far_below_the_ridge(rows):
    # The factors of the landmarks and of the preconditioner share one diagonal and differ by 15 orders of magnitude.
    X, values, _ = rows
    sums, iterated = pair(NystromLSSVR, 1e-15 * X, values, solver=CG(tol=1e-5), kernel="linear", C=1e30)
    np.testing.assert_allclose(iterated.predict(1e-15 * X), sums.predict(1e-15 * X), atol=1e-4)
    for scale in (np.float32(1e-30), np.float64(1e-150)):  # values that underflow leave the mean
        tiny = NystromLSSVR(solver="cg", n_landmarks=60, kernel="linear", random_state=0).fit(
            X.astype(scale.dtype) * scale, values
        )
        np.testing.assert_allclose(tiny.predict(X * scale), values.mean(), atol=1e-5)


def test_rows_far_from_all_landmarks_do_not_stop_the_iteration_early():
    # One direction of the preconditioned system has an eigenvalue of 3e6, which multiplies the norm of the right-hand side.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = (X[:, 0] + X[:, 1] ** 2 > 0.7).astype(int)
    X *= np.array([1e-8, 1.0, 1e4, 1e8])
    settings = {"n_landmarks": 30, "C": 1e8, "random_state": 0}
    errors = [
        np.mean((NystromLSSVC(solver=solver, **settings).fit(X, y).decision_function(X) - (2 * y - 1)) ** 2)
        for solver in ("sums", "cg")
    ]
    assert errors[1] < 1.02 * errors[0]


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_kernel_values_that_overflow_raise(rows):
    X, values, _ = rows
    with pytest.raises(ValueError, match="left the range of float32"):
        NystromLSSVR(solver="cg", kernel="linear", n_landmarks=60).fit(X.astype(np.float32) * 1e30, values)


def test_outputs_of_different_magnitudes_converge_together(rows):
    X, values, _ = rows
    Z = np.stack([1e6 * values, values**2, 1e-6 * values**3], axis=1)
    sums, iterated = pair(NystromLSSVR, X, Z, solver="cg")
    errors = [np.mean((model.predict(X) - Z) ** 2, axis=0) for model in (sums, iterated)]
    assert (errors[1] < 1.1 * errors[0]).all()


@pytest.mark.parametrize("n_landmarks", [1, 60])
@pytest.mark.parametrize("dtype", [np.float16, np.int8, bool, np.uint8])
def test_types_of_rows(rows, n_landmarks, dtype):
    X, values, _ = rows
    X = np.asfortranarray((2 * np.abs(X)).astype(dtype))
    X.flags.writeable = False
    sums, iterated = pair(NystromLSSVR, X, values, n_landmarks=n_landmarks, C=0.1)
    np.testing.assert_allclose(iterated.predict(X), sums.predict(X), atol=1e-4)


def test_one_row_of_a_class_and_fewer_rows_than_landmarks(rows):
    X, _, _ = rows
    for size in (40, 2000):
        rare = np.array(["many", "one"])[(np.arange(size) == 7).astype(int)]
        sums, iterated = pair(NystromLSSVC, X[:size], rare, class_weight="balanced")
        np.testing.assert_allclose(iterated.decision_function(X), sums.decision_function(X), atol=1e-5)
        assert iterated.predict(X[7:8]) == "one"


def test_values_far_from_zero_and_several_outputs(rows):
    X, values, _ = rows
    for y in (1e4 + values, np.stack([values, X[:, 3]], axis=1)):
        sums, iterated = pair(NystromLSSVR, X, y)
        np.testing.assert_allclose(iterated.predict(X), sums.predict(X), atol=1e-5)


def test_sparse_rows_and_tensors(rows):
    X, _, y = rows
    sparse = sp.csr_matrix(np.where(np.abs(X) > 0.8, X, 0))
    sums, iterated = pair(NystromLSSVC, sparse, y)
    np.testing.assert_allclose(iterated.decision_function(sparse), sums.decision_function(sparse), atol=1e-5)
    sums, iterated = pair(NystromLSSVC, torch.as_tensor(X), y)
    np.testing.assert_allclose(iterated.decision_function(X), sums.decision_function(X), atol=1e-5)


def test_stops_when_the_predictions_have_settled(rows):
    X, values, _ = rows
    sums, iterated = pair(NystromLSSVR, X, values, solver="cg")
    errors = [np.mean((model.predict(X) - values) ** 2) for model in (sums, iterated)]
    assert errors[1] < 1.01 * errors[0]
    assert len(iterated.history_) < 60
    assert [record["n_iter"] for record in iterated.history_] == list(range(1, len(iterated.history_) + 1))


def test_files_and_functions_are_read_once_for_each_pass(rows, tmp_path):
    X, values, y = rows
    expected = NystromLSSVC(solver="cg", **SETTINGS, memory_budget="20MB")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(6)]).assign(target=values)
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=500)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    np.save(tmp_path / "rows.npy", X)
    memmap = np.load(tmp_path / "rows.npy", mmap_mode="r")
    passes = []

    def generator():
        passes.append(1)
        return batches_of(X, values)

    regressor = NystromLSSVR(solver=TIGHT, landmarks=X[:60], gamma=0.1)
    reference = regressor.fit(X, values).predict(X)
    for data in ((tmp_path / "rows.parquet",), (tmp_path / "rows.csv",), (memmap, values), (generator,)):
        model = NystromLSSVR(solver=TIGHT, landmarks=X[:60], gamma=0.1).fit(*data)
        assert model.solver_ == "cg"
        np.testing.assert_allclose(model.predict(X), reference, atol=1e-5)
    assert len(passes) > len(model.history_)
    assert expected.fit(X, y).solver_ == "cg"


def test_rows_that_can_be_read_only_once_are_summed(rows):
    X, _, y = rows
    model = NystromLSSVC(solver="cg", **SETTINGS).fit(batches_of(X, y))
    assert model.solver_ == "sums"
    assert "only once" in model.solver_reason_


def test_a_missing_value_in_a_late_row_names_the_row(rows):
    X, values, _ = rows
    bad = X.copy()
    bad[1703, 2] = np.nan
    model = NystromLSSVR(solver="cg", **SETTINGS).fit(X, values)
    before = model.predict(X)
    with pytest.raises(ValueError, match="row 203 of batch 5 has NaN or infinity in column 2"):
        model.fit(Stream(lambda: batches_of(bad, values)))
    np.testing.assert_array_equal(model.predict(X), before)


def test_a_missing_value_after_seven_million_rows(tmp_path):
    block, y, n_per_batch = np.arange(1000.0)[:, None] % 7, np.arange(1000) % 2, 500_000
    X, labels = np.tile(block, (500, 1)), np.tile(y, 500)

    def batches():
        for number in range(20):
            part = X.copy() if number == 13 else X
            if number == 13:
                part[499_999] = np.inf
            yield part, labels

    stream = Stream(batches, n_rows=20 * n_per_batch)
    model = NystromLSSVC(solver="cg", landmarks=block[:2], gamma=0.1, callback=Checkpoint(tmp_path / "fit.npz", every=1))
    with pytest.raises(ValueError, match="row 499999 of batch 13 has NaN or infinity in column 0"):
        model.fit(stream)
    assert model.pass_ is None
    assert not (tmp_path / "fit.npz").exists()


@pytest.mark.parametrize("rows_left", [0, 1700])
def test_a_stream_with_fewer_rows_in_a_later_pass_raises(rows, rows_left):
    X, values, _ = rows
    passes = []

    def shrinking():
        passes.append(1)
        end = len(X) if len(passes) < 6 else rows_left
        return batches_of(X[:end], values[:end])

    model = NystromLSSVR(solver=TIGHT, **SETTINGS)
    with pytest.raises(ValueError, match=f"has {rows_left} rows in one pass and had 2000 in the first"):
        model.fit(shrinking)
    assert model.pass_ is None


def test_labels_that_appear_late(rows):
    X, values, y = rows
    order = np.argsort(values)
    sums = NystromLSSVC(solver="sums", landmarks=X[:60], gamma=0.1).fit(X[order], y[order])
    late = NystromLSSVC(solver=TIGHT, landmarks=X[:60], gamma=0.1).fit(lambda: batches_of(X[order], y[order]))
    np.testing.assert_array_equal(late.classes_, sums.classes_)
    np.testing.assert_allclose(late.decision_function(X), sums.decision_function(X), atol=1e-5)


@pytest.mark.parametrize("settings", [{"C": "loo"}, {"probability": "sigmoid"}, {"forgetting_factor": 0.9}])
def test_settings_that_need_sums(rows, settings):
    X, _, y = rows
    with pytest.raises(ValueError, match="needs the sums"):
        NystromLSSVC(solver="cg", **{**SETTINGS, **settings}).fit(X, y)
    model = NystromLSSVC(**{**SETTINGS, **settings}).fit(X, y)
    assert model.solver_ == "sums"
    assert "needs the sums" in model.solver_reason_


def test_what_needs_sums_is_refused_after_the_fit(rows):
    X, values, _ = rows
    model = NystromLSSVR(solver="cg", **SETTINGS).fit(X, values)
    for call in (lambda: model.predict_interval(X), lambda: model.predict(X, return_std=True)):
        with pytest.raises(ValueError, match="solver='sums'"):
            call()
    with pytest.raises(ValueError, match="solver='sums'"):
        model.partial_fit(X, values)


def test_partial_fit_sums(rows):
    X, values, _ = rows
    model = NystromLSSVR(solver="cg", **SETTINGS).partial_fit(X, values)
    assert model.solver_ == "sums"
    np.testing.assert_allclose(model.predict(X), NystromLSSVR(solver="sums", **SETTINGS).partial_fit(X, values).predict(X))


def test_auto_counts_operations_and_memory():
    choose = NystromLSSVC(n_landmarks=500)._fit_plan(100_000, 50, 1, np.float32, "cpu")
    assert choose.solver == "sums"
    many = NystromLSSVC(n_landmarks=10_000, memory_budget="20GB")._fit_plan(500_000, 50, 1, np.float32, "cpu")
    assert many.solver == "cg"
    assert "multiplications" in many.reason
    tight = NystromLSSVC(n_landmarks=10_000, memory_budget="2GB")._fit_plan(500_000, 50, 1, np.float32, "cpu")
    assert tight.solver == "cg"
    assert "memory budget" in tight.reason
    assert tight.memory.nbytes <= 2 * 10**9


def test_kernel_values_are_stored_only_within_the_budget():
    roomy = NystromLSSVC(n_landmarks=1000, solver="cg", memory_budget="1GB")._fit_plan(10_000, 20, 1, np.float32, "cpu")
    assert roomy.stored == "values"
    assert (
        NystromLSSVC(n_landmarks=1000, solver="cg", memory_budget="250MB")
        ._fit_plan(100_000, 20, 1, np.float32, "cpu")
        .stored
        is None
    )


def test_products_that_are_too_inaccurate_raise(rows, monkeypatch):
    X, values, _ = rows
    from gramless.linalg.operators.normal import TiledRows

    exact, rng = TiledRows.transposed_times, np.random.default_rng(0)

    def noisy(self, V):
        return exact(self, V) * (1 + 0.5 * rng.normal(size=(60, 1)))

    monkeypatch.setattr(TiledRows, "normal_times", lambda self, V, shift, w: -noisy(self, w * (V[:1] - shift) + w))
    with pytest.raises(FloatingPointError, match=r"did not converge|not finite"):
        NystromLSSVR(solver="cg", **SETTINGS).fit(X, values)


def test_too_few_iterations_warn(rows):
    X, values, _ = rows
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        NystromLSSVR(solver=CG(tol=1e-8, max_iter=2), **SETTINGS).fit(X, values)


def test_a_callback_sees_a_model_after_each_iteration_and_stops(rows):
    X, values, _ = rows
    scores = []

    def watch(model, record):
        scores.append(model.score(X, values))
        return record["n_iter"] == 4

    model = NystromLSSVR(solver="cg", callback=watch, **SETTINGS).fit(X, values)
    assert len(scores) == len(model.history_) == 4
    assert scores[3] > scores[0]
    assert scores[3] == model.score(X, values)


def test_a_killed_fit_resumes(rows, tmp_path):
    X, values, _ = rows
    whole = NystromLSSVR(solver=TIGHT, **SETTINGS).fit(X, values)

    def kill(model, record):
        if record["n_iter"] == 7:
            raise KeyboardInterrupt
        return False

    saved = Checkpoint(tmp_path / "fit.npz", every=2)
    with pytest.raises(KeyboardInterrupt):
        NystromLSSVR(solver=TIGHT, callback=[saved, kill], **SETTINGS).fit(X, values)
    resumed = NystromLSSVR(solver=TIGHT, callback=saved, **SETTINGS).fit(X, values)
    np.testing.assert_array_equal(resumed.dual_coef_, whole.dual_coef_)
    assert not (tmp_path / "fit.npz").exists()


def test_an_interrupted_fit_leaves_the_earlier_model_and_a_callback_a_new_one(rows):
    X, values, _ = rows
    model = NystromLSSVR(solver="cg", **SETTINGS).fit(X, values)
    before, seen = model.predict(X), []

    def interrupt(fitted, record):
        seen.append(fitted.score(X, values))
        if record["n_iter"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.set_params(callback=interrupt, C=10.0).fit(X, -values)
    np.testing.assert_array_equal(model.predict(X), before)
    assert len(seen) == 3


def test_saved_and_loaded(rows, tmp_path):
    X, _, y = rows
    model = NystromLSSVC(solver="cg", **SETTINGS).fit(X, y)
    gramless.save(model, tmp_path / "model.skops")
    loaded = gramless.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    assert loaded.solver_reason_ == model.solver_reason_


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_warm_start_over_a_path_of_C_needs_fewer_passes_for_the_same_model(rows, dtype):
    X, values, _ = rows
    X = X.astype(dtype)
    model, passes = NystromLSSVR(solver="cg", warm_start=True, **SETTINGS), {}
    for C in (0.5, 1.0, 2.0):
        settings = {**SETTINGS, "C": C}
        model.set_params(C=C).fit(X, values)
        cold = NystromLSSVR(solver="cg", **settings).fit(X, values)
        sums = NystromLSSVR(solver="sums", **settings).fit(X, values)
        passes[C] = len(model.history_), len(cold.history_)
        assert np.mean((model.predict(X) - values) ** 2) < 1.01 * np.mean((sums.predict(X) - values) ** 2)
    assert passes[0.5][0] == passes[0.5][1]  # there is no earlier fit
    assert passes[1.0][0] < passes[1.0][1]
    assert passes[2.0][0] < passes[2.0][1]
    tight = model.set_params(solver=TIGHT).fit(X, values)
    np.testing.assert_allclose(tight.predict(X), sums.predict(X), atol=1e-3 if dtype == "float32" else 1e-5)


def test_warm_start_with_other_landmarks_or_outputs_starts_from_zero(rows):
    X, values, _ = rows
    model = NystromLSSVR(solver="cg", warm_start=True, **SETTINGS).fit(X, values)
    for changed, y in (
        ({"random_state": 1}, values),
        ({"n_landmarks": 50}, values),
        ({}, np.stack([values, X[:, 0]], axis=1)),
    ):
        settings = {**SETTINGS, **changed}
        warm = model.set_params(**settings).fit(X, y)
        cold = NystromLSSVR(solver="cg", **settings).fit(X, y)
        np.testing.assert_array_equal(warm.dual_coef_, cold.dual_coef_)
