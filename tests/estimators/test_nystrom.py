"""NystromLSSVC and NystromLSSVR: exact in any cut of the rows, equal to LSSVC on all rows, choosing C without refits."""

import dataclasses
import functools

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import gramless
from gramless import LSSVC, LSSVR, BudgetLSSVC, FourierLSSVC, NystromLSSVC, NystromLSSVR, Stream
from gramless._core.targets.streamed import ValueTargets
from gramless.approximation.features.landmark_map import LandmarkMap
from gramless.kernels import RBF
from gramless.streaming.learners import loop
from gramless.streaming.learners.loop import continue_pass, run_pass
from gramless.streaming.learners.normal_equations import NormalEquations
from gramless.streaming.learners.planning import PassOptions, PassSettings
from gramless.streaming.learners.training_pass import CollectingPass
from gramless.streaming.tuning import TUNING


@pytest.mark.parametrize("kernel", ["rbf", "poly", "laplacian"])
def test_all_rows_as_landmarks_is_the_full_machine(digits, kernel):
    X, y = digits
    settings = {"kernel": kernel, "gamma": 0.05, "coef0": 1.0, "C": 5.0}
    ours = NystromLSSVC(n_landmarks=1.0, **settings).fit(X[:400], y[:400])
    full = LSSVC(solver="cholesky", **settings).fit(X[:400], y[:400])
    np.testing.assert_allclose(ours.decision_function(X[400:600]), full.decision_function(X[400:600]), atol=1e-6)


def test_regression_on_all_rows_is_the_full_machine():
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(200, 3)), rng.normal(size=(200, 2))
    w = rng.uniform(0.5, 2, size=200)
    ours = NystromLSSVR(n_landmarks=1.0, gamma=0.2, C=3.0).fit(X, Y, w)
    full = LSSVR(gamma=0.2, C=3.0, solver="cholesky").fit(X, Y, w)
    np.testing.assert_allclose(ours.predict(X), full.predict(X), atol=1e-6)


@pytest.mark.parametrize("pieces", [1, 7, 100])
def test_partial_fit_in_shuffled_pieces_is_one_fit(digits, pieces):
    X, y = digits
    model = NystromLSSVC(landmarks=X[:150], gamma=0.1, C=10.0)
    whole = clone(model).fit(X, y)
    order = np.random.default_rng(pieces).permutation(len(X))
    for rows in np.array_split(order, pieces):
        model.partial_fit(X[rows], y[rows], classes=np.arange(10))
    scale = np.abs(whole.dual_coef_).max()
    np.testing.assert_allclose(model.dual_coef_, whole.dual_coef_, atol=1e-8 * scale, rtol=0)
    np.testing.assert_allclose(model.intercept_, whole.intercept_, atol=1e-8)


@pytest.mark.parametrize("pieces", [1, 7, 100])
def test_pieces_add_up_where_the_landmarks_are_dependent_to_rounding(pieces):
    """A wide kernel, outliers, duplicates: eigenvalues of K_mm down to rounding, coefficients of a million."""
    rng = np.random.default_rng(0)
    X = np.exp(2 * rng.normal(size=(1500, 5)))
    X[1:40:2] = X[0:40:2]
    y = np.where(np.log(X[:, 0] * X[:, 1]) + 0.5 * rng.normal(size=1500) > 0, 1, -1)
    settings = {"landmarks": X[:300], "gamma": 1e-3, "C": 10.0}
    whole = NystromLSSVC(**settings).fit(X, y)
    scale = np.abs(whole.dual_coef_).max()
    assert scale > 1e4
    model = NystromLSSVC(**settings)
    for part in np.array_split(rng.permutation(len(X)), pieces):
        model.partial_fit(X[part], y[part], classes=[-1, 1])
    np.testing.assert_allclose(model.dual_coef_, whole.dual_coef_, atol=1e-8 * scale, rtol=0)
    np.testing.assert_allclose(model.decision_function(X), whole.decision_function(X), atol=1e-8)


def test_batch_size_changes_nothing(digits):
    X, y = digits
    models = [NystromLSSVC(landmarks=X[:100], gamma=0.1, batch_size=b).fit(X, y) for b in (64, 333, None)]
    for model in models[1:]:
        np.testing.assert_allclose(model.decision_function(X), models[0].decision_function(X), atol=1e-9)


def test_batch_size_does_not_change_what_leave_one_out_samples():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    z = np.sin(X.sum(axis=1)) + rng.normal(size=1000)
    feature_map, learner = LandmarkMap(RBF(gamma=0.1), landmarks=X[:20]), NormalEquations("loo", most_left_out=100)

    def errors(batch_rows):
        settings = PassSettings(feature_map, learner, PassOptions(batch_rows=batch_rows))
        return run_pass(Stream(X, z), settings, ValueTargets(), random_state=0).solved.loo_errors

    for batch_rows in (7, 333):
        np.testing.assert_allclose(errors(batch_rows), errors(None))
    settings = PassSettings(feature_map, learner, PassOptions())
    pieces, _ = CollectingPass.start(X, ValueTargets(), learner, settings.options, random_state=0)
    for half in (slice(0, 450), slice(450, 1000)):
        pieces = continue_pass(pieces, Stream(X[half], z[half]), settings)
    np.testing.assert_allclose(pieces.model(settings).loo_errors, errors(None))


def test_partial_fit_before_there_are_enough_rows_for_the_landmarks(digits):
    X, y = digits
    model = NystromLSSVC(n_landmarks=60, gamma=0.1, C=10.0, random_state=0)
    model.partial_fit(X[:20], y[:20], classes=np.arange(10))
    early = LSSVC(gamma=0.1, C=10.0, solver="cholesky")
    if len(np.unique(y[:20])) == 10:
        np.testing.assert_allclose(
            model.decision_function(X[500:550]), early.fit(X[:20], y[:20]).decision_function(X[500:550]), atol=1e-6
        )
    assert model.predict(X[:5]).shape == (5,)
    for start in range(20, 600, 20):
        model.partial_fit(X[start : start + 20], y[start : start + 20])
    assert model.points_.shape == (60, 64)
    whole = NystromLSSVC(landmarks=model.points_, gamma=0.1, C=10.0).fit(X[:600], y[:600])
    np.testing.assert_allclose(model.decision_function(X[600:]), whole.decision_function(X[600:]), atol=1e-8)


def test_partial_fit_goes_on_from_fit(digits):
    X, y = digits
    whole = NystromLSSVC(landmarks=X[:80], gamma=0.1).fit(X, y)
    for begun in (
        NystromLSSVC(landmarks=X[:80], gamma=0.1).fit(X[:900], y[:900]),
        NystromLSSVC(landmarks=X[:80], gamma=0.1).fit([(X[:500], y[:500]), (X[500:900], y[500:900])]),
    ):
        begun.partial_fit(X[900:], y[900:])
        np.testing.assert_allclose(begun.decision_function(X), whole.decision_function(X), atol=1e-8)
        with pytest.raises(ValueError, match="not among the classes"):
            begun.partial_fit(X[:2], [3, 77])
        np.testing.assert_allclose(begun.decision_function(X), whole.decision_function(X), atol=1e-8)


def test_partial_fit_wants_classes_first_and_refuses_others(digits):
    X, y = digits
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        NystromLSSVC().partial_fit(X[:10], y[:10])
    model = NystromLSSVC(n_landmarks=5).partial_fit(X[:50], y[:50], classes=np.arange(10))
    with pytest.raises(ValueError, match=r"labels \[.*11.*\] are not among the classes"):
        model.partial_fit(X[:2], [3, 11])
    with pytest.raises(ValueError, match="not the same as on the first call"):
        model.partial_fit(X[:2], [3, 4], classes=[3, 4])


def test_loo_path_is_the_refits_errors(digits):
    X, y = digits[0][:60], digits[1][:60]
    points = X[:20]
    Cs = (0.1, 10.0, 1000.0)
    model = NystromLSSVC(landmarks=points, gamma=0.1, C="loo", Cs=Cs).fit(X, y)
    errors = np.zeros(3)
    for j, C in enumerate(Cs):
        for i in range(len(X)):
            rest = np.delete(np.arange(len(X)), i)
            single = NystromLSSVC(landmarks=points, gamma=0.1, C=C)
            single.partial_fit(X[rest], y[rest], classes=np.unique(y))
            errors[j] += ((single.decision_function(X[i : i + 1])[0] - (model.classes_ == y[i])) ** 2).sum() / len(X)
    np.testing.assert_allclose(model.loo_errors_, errors, rtol=1e-6)
    assert Cs[int(np.argmin(errors))] == model.C_


def test_loo_chooses_a_good_c(digits):
    X, y = digits
    model = NystromLSSVC(n_landmarks=200, gamma=0.1, C="loo", random_state=0).fit(X[:900], y[:900])
    scores = [
        NystromLSSVC(n_landmarks=200, gamma=0.1, C=C, random_state=0).fit(X[:900], y[:900]).score(X[900:], y[900:])
        for C in (1e-3, 1.0, 100.0, 1e6)
    ]
    assert model.score(X[900:], y[900:]) >= max(scores) - 0.01


def test_float32_stays_close_to_float64(digits):
    X, y = digits
    double = NystromLSSVC(landmarks=X[:300], gamma=0.05, C=100.0).fit(X, y)
    single = NystromLSSVC(landmarks=X[:300], gamma=0.05, C=100.0).fit(X.astype(np.float32), y)
    assert single.dual_coef_.dtype == np.float32
    assert single.jitter_ > double.jitter_
    np.testing.assert_allclose(single.decision_function(X.astype(np.float32)), double.decision_function(X), atol=0.02)


def test_labels_that_flip_are_followed_with_a_forgetting_factor():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2))
    y = np.where(np.arange(4000) < 3000, X[:, 0] > 0, X[:, 0] < 0).astype(int)
    test = rng.normal(size=(500, 2))
    now = (test[:, 0] < 0).astype(int)
    settings = {"n_landmarks": 50, "gamma": 0.5, "random_state": 0}
    remembers = NystromLSSVC(**settings).fit(X, y)
    follows = NystromLSSVC(forgetting_factor=0.995, **settings).fit(X, y)
    assert remembers.score(test, now) < 0.2
    assert follows.score(test, now) > 0.95


def test_forgetting_does_not_depend_on_batches():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(500, 2)), rng.normal(size=500)
    models = [
        NystromLSSVR(landmarks=X[:20], gamma=0.5, forgetting_factor=0.99, batch_size=b).fit(X, y) for b in (1, 77, 500)
    ]
    weights = 0.99 ** np.arange(499, -1, -1.0)
    models.append(NystromLSSVR(landmarks=X[:20], gamma=0.5).fit(X, y, weights))
    for model in models[1:]:
        np.testing.assert_allclose(model.predict(X), models[0].predict(X), atol=1e-8)


def test_classes_are_met_as_they_come(digits):
    X, y = digits
    order = np.argsort(y[:600], kind="stable")[::-1]  # nines first: every batch brings a new class
    batches = [(X[rows], y[rows]) for rows in np.array_split(order, 12)]
    streamed = NystromLSSVC(landmarks=X[:80], gamma=0.1).fit(batches)
    whole = NystromLSSVC(landmarks=X[:80], gamma=0.1).fit(X[:600], y[:600])
    np.testing.assert_array_equal(streamed.classes_, np.arange(10))
    np.testing.assert_allclose(streamed.decision_function(X), whole.decision_function(X), atol=1e-8)


def test_text_labels_and_two_classes(digits):
    X, y = digits
    names = np.where(y < 5, "low", "high")
    model = NystromLSSVC(n_landmarks=200, gamma=0.1, C=10, random_state=0)
    streamed = clone(model).fit([(X[:400], names[:400]), (X[400:900], names[400:900])])
    assert set(streamed.predict(X)) == {"low", "high"}
    assert streamed.score(X[900:], names[900:]) > 0.95
    assert streamed.decision_function(X[:3]).shape == (3,)


def test_class_weights(digits):
    X, y = digits
    few = np.r_[np.flatnonzero(y == 8)[:15], np.flatnonzero(y == 3)[:150]]
    plain = NystromLSSVC(landmarks=X[:50], gamma=0.05, C=0.01).fit(X[few], y[few])
    balanced = NystromLSSVC(landmarks=X[:50], gamma=0.05, C=0.01, class_weight="balanced").fit(X[few], y[few])
    as_dict = NystromLSSVC(landmarks=X[:50], gamma=0.05, C=0.01, class_weight={3: 165 / 300, 8: 165 / 30})
    streamed = as_dict.fit([(X[few], y[few])])
    assert (balanced.predict(X[y == 8]) == 8).mean() > (plain.predict(X[y == 8]) == 8).mean() + 0.3
    np.testing.assert_allclose(streamed.decision_function(X), balanced.decision_function(X), atol=1e-8)
    with pytest.raises(ValueError, match="needs all labels in advance"):
        NystromLSSVC(class_weight="balanced").fit([(X[few], y[few])])


def test_class_weights_hold_for_rows_that_come_after_a_fit(digits):
    X, y = digits
    machine = NystromLSSVC(landmarks=X[:40], gamma=0.1, class_weight={0: 5.0, 3: 0.5})
    together = clone(machine).fit(X[:600], y[:600]).decision_function(X)
    pieces = clone(machine).fit(X[:300], y[:300]).partial_fit(X[300:600], y[300:600])
    np.testing.assert_allclose(pieces.decision_function(X), together, atol=1e-8)
    counted = clone(machine).set_params(class_weight="balanced").fit(X[:300], y[:300])
    with pytest.raises(ValueError, match="needs all labels in advance"):
        counted.partial_fit(X[300:600], y[300:600])


@pytest.mark.parametrize(
    "machine",
    [
        NystromLSSVC(n_landmarks=50, gamma=0.1, C="loo", random_state=0),
        NystromLSSVC(n_landmarks=550, gamma=0.1, random_state=0),  # rows are still held back when the bad one comes
        FourierLSSVC(n_components=50, gamma=0.1, random_state=0),
        BudgetLSSVC(budget=50, gamma=0.1, random_state=0),
    ],
)
def test_a_bad_row_in_the_middle_of_partial_fit_leaves_the_model_as_it_was(digits, machine, monkeypatch):
    small = functools.partial(loop.continue_pass, tuning=dataclasses.replace(TUNING, largest_batch=64))
    monkeypatch.setattr("gramless.estimators.one_pass.continue_pass", small)
    X, y = digits
    bad = X[200:600].copy()
    bad[300, 5] = np.nan
    tried, spared = (clone(machine).partial_fit(X[:200], y[:200], classes=np.unique(y)) for _ in range(2))
    for form in ([(bad, y[200:600])], Stream(bad, y[200:600])):
        with pytest.raises(ValueError, match=r"row 300 of .* has NaN"):
            tried.partial_fit(form)
    for twin in (tried, spared):
        twin.partial_fit(X[200:600], y[200:600])
    np.testing.assert_array_equal(tried.decision_function(X), spared.decision_function(X))


def test_sigmoid_probabilities_come_from_leave_one_out(digits):
    X, y = digits
    model = NystromLSSVC(n_landmarks=100, gamma=0.1, probability="sigmoid", random_state=0).fit(X[:600], y[:600])
    p = model.predict_proba(X[600:])
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert np.mean(p.argmax(axis=1) == y[600:]) > 0.9
    confident = p.max(axis=1) > 0.9
    assert np.mean((p.argmax(axis=1) == y[600:])[confident]) > 0.95


def test_sparse_rows_give_the_dense_model(digits):
    X, y = digits
    dense = NystromLSSVC(n_landmarks=50, gamma=0.1, random_state=0).fit(X[:300], y[:300])
    sparse = NystromLSSVC(n_landmarks=50, gamma=0.1, random_state=0).fit(sp.csr_matrix(X[:300]), y[:300])
    np.testing.assert_allclose(sparse.decision_function(sp.csr_matrix(X)), dense.decision_function(X), atol=1e-7)


def test_torch_gives_numpys_model(digits):
    torch = pytest.importorskip("torch")
    X, y = digits
    here = NystromLSSVC(n_landmarks=80, gamma=0.1, C="loo", random_state=0).fit(X[:500], y[:500])
    there = NystromLSSVC(n_landmarks=80, gamma=0.1, C="loo", random_state=0, device="torch:cpu").fit(X[:500], y[:500])
    tensors = NystromLSSVC(n_landmarks=80, gamma=0.1, C="loo", random_state=0).fit(torch.as_tensor(X[:500]), y[:500])
    for model in (there, tensors):
        np.testing.assert_allclose(model.decision_function(X), here.decision_function(X), atol=1e-6)


@pytest.mark.parametrize("rule", ["uniform", "rpcholesky", "kmeans"])
def test_landmark_rules(digits, rule):
    X, y = digits
    model = NystromLSSVC(n_landmarks=100, landmarks=rule, gamma=0.1, C=10, random_state=0).fit(X[:900], y[:900])
    assert model.points_.shape == (100, 64)
    assert model.score(X[900:], y[900:]) > 0.93


def test_landmarks_by_row_number(digits):
    X, y = digits
    model = NystromLSSVC(landmarks=[5, 3, 8], gamma=0.1).fit(X[:100], y[:100])
    np.testing.assert_array_equal(model.points_, X[[5, 3, 8]])
    with pytest.raises(ValueError, match="row indices below 100"):
        NystromLSSVC(landmarks=[100], gamma=0.1).fit(X[:100], y[:100])


def test_saved_and_loaded_it_goes_on_learning(digits, tmp_path):
    X, y = digits
    model = NystromLSSVC(landmarks=X[:50], gamma=0.1).partial_fit(X[:300], y[:300], classes=np.arange(10))
    gramless.save(model, tmp_path / "model.skops")
    loaded = gramless.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    model.partial_fit(X[300:], y[300:])
    loaded.partial_fit(X[300:], y[300:])
    np.testing.assert_allclose(loaded.decision_function(X), model.decision_function(X), atol=1e-12)


def test_finished_it_predicts_and_learns_no_more(digits, tmp_path):
    X, y = digits
    model = NystromLSSVC(n_landmarks=300, gamma=0.1, C="loo", random_state=0).fit(X, y)
    scores = model.decision_function(X)
    gramless.save(model, tmp_path / "whole.skops")
    gramless.save(model.finish(), tmp_path / "finished.skops")
    np.testing.assert_array_equal(model.decision_function(X), scores)
    loaded = gramless.load(tmp_path / "finished.skops")
    np.testing.assert_array_equal(loaded.decision_function(X), scores)
    # 300 x 300 sums and the rows sampled for leave-one-out are gone.
    assert (tmp_path / "finished.skops").stat().st_size < 0.3 * (tmp_path / "whole.skops").stat().st_size
    for finished in (model, loaded):
        with pytest.raises(ValueError, match="finished and accepts no more rows"):
            finished.partial_fit(X, y)
    np.testing.assert_array_equal(model.fit(X, y).decision_function(X), scores)
    model.partial_fit(X, y)


def test_rows_held_back_are_solved_before_they_go(digits):
    X, y = digits
    model = NystromLSSVC(n_landmarks=60, gamma=0.1).partial_fit(X[:40], y[:40], classes=np.arange(10))
    expected = clone(model).partial_fit(X[:40], y[:40], classes=np.arange(10)).decision_function(X)
    np.testing.assert_array_equal(model.finish().decision_function(X), expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"C": -1}, "'C' parameter"),
        ({"n_landmarks": 0}, "'n_landmarks' parameter"),
        ({"n_landmarks": 1.5}, "'n_landmarks' parameter"),
        ({"forgetting_factor": 0}, "'forgetting_factor' parameter"),
        ({"landmarks": "nonsense"}, "unknown landmarks 'nonsense'"),
        ({"kernel": "precomputed"}, "precomputed"),
        ({"C": "loo", "Cs": (0.0,)}, "Cs must be positive"),
        ({"batch_size": 0}, "batch_size"),
        ({"probability": "maybe"}, "'probability' parameter"),
    ],
)
def test_settings_that_cannot_be_say_so(digits, settings, message):
    with pytest.raises(ValueError, match=message):
        NystromLSSVC(**settings).fit(digits[0][:50], digits[1][:50])


def test_a_budget_too_small_is_refused_before_the_pass(digits):
    with pytest.raises(MemoryError, match="fewer landmarks"):
        NystromLSSVC(n_landmarks=500, memory_budget="1MB").fit(*digits)


def test_estimate_tells_the_memory():
    memory = gramless.estimate(NystromLSSVC(n_landmarks=2000, memory_budget="1GB"), n=581_012, d=54, n_classes=7)
    assert 1e8 < memory.nbytes < 1e9


def test_a_refit_with_other_settings_leaves_nothing_of_the_last(digits):
    X, y = digits
    model = NystromLSSVC(n_landmarks=20, C="loo", probability="sigmoid", random_state=0).fit(X, y)
    model.set_params(C=1.0, probability="softmax").fit(X, y)
    assert not hasattr(model, "loo_errors_")
    assert not hasattr(model, "sigmoids_")


def test_column_names_of_an_earlier_fit_are_forgotten(digits):
    X, y = digits
    frame = pd.DataFrame(X, columns=[f"p{i}" for i in range(X.shape[1])])
    model = NystromLSSVC(n_landmarks=20).fit(frame, y)
    model.fit((X[i : i + 100], y[i : i + 100]) for i in range(0, len(X), 100))
    assert not hasattr(model, "feature_names_in_")
    model.predict(X)


def test_values_of_another_shape_are_named():
    X = np.arange(20.0)[:, None]
    model = NystromLSSVR(n_landmarks=5).partial_fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"y has the shape \(n, 1\); the batches before had \(n,\)"):
        model.partial_fit(X, X)


@pytest.mark.parametrize("sparse_first", [True, False])
@pytest.mark.parametrize("source", ["partial_fit", "batches"])
def test_sparse_and_dense_batches_can_follow_each_other(sparse_first, source):
    rng = np.random.RandomState(0)
    X, y = rng.normal(size=(60, 3)), rng.normal(size=60)
    first, second = (sp.csr_matrix(X[:30]), X[30:]) if sparse_first else (X[:30], sp.csr_matrix(X[30:]))
    model, dense = (NystromLSSVR(n_landmarks=50, gamma=0.3, random_state=0) for _ in range(2))
    if source == "partial_fit":
        model.partial_fit(first, y[:30]).partial_fit(second, y[30:])
        dense.partial_fit(X[:30], y[:30]).partial_fit(X[30:], y[30:])
    else:
        model.fit([(first, y[:30]), (second, y[30:])])
        dense.fit([(X[:30], y[:30]), (X[30:], y[30:])])
    np.testing.assert_allclose(model.predict(X), dense.predict(X), atol=1e-8)
