"""RiSVO against its definition: the normal equations, the union rule, the shrinking set."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import LinAlgWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

import gramless
from gramless import LSSVC, RiSVOClassifier
from gramless.approximation.landmarks import BasisConstruction
from gramless.kernels import RBF, Linear
from gramless.streaming.learners import active_set
from gramless.streaming.learners.active_set import ActiveRule, signed_targets


@pytest.fixture(scope="module")
def digits(digits):
    return digits[0][:600], digits[1][:600]


@pytest.fixture(scope="module")
def two(digit_images):
    images, y = digit_images
    keep = np.isin(y, [3, 8])
    return images[keep].reshape(-1, 64) / 240, np.where(y[keep] == 3, "three", "eight")


def model(**settings):
    return RiSVOClassifier(**{"n_landmarks": 60, "landmarks": "uniform", "gamma": 0.2, "random_state": 0, **settings})


# Weights are copies of rows where the width counts them. scikit-learn itself casts the NaN labels that it goes on to refuse.
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
@parametrize_with_checks([RiSVOClassifier(gamma="weighted_scale", landmarks="all")])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_one_step_solves_the_stated_problem(digits):
    """The (m + 1) x (m + 1) stationarity conditions in A and b, formed as they stand."""
    X, y = digits
    fitted = model(max_iter=1, rho=0.1).fit(X, y)
    G, T = X[fitted.support_], signed_targets(y, 10)
    K, K_G = RBF(gamma=0.2)(X, G), RBF(gamma=0.2)(G, G)
    ones = np.ones((len(X), 1))
    system = np.block([[K.T @ K + 0.1 * K_G, K.T @ ones], [ones.T @ K, np.full((1, 1), len(X))]])
    found = np.vstack([fitted.dual_coef_, fitted.intercept_])
    np.testing.assert_allclose(system @ found, np.vstack([K.T @ T, T.sum(axis=0)]), atol=1e-5)


@pytest.mark.parametrize("labels", ["many", "two"])
def test_landmarks_all_is_a_least_squares_classifier(labels, digits, two):
    X, y = digits if labels == "many" else two
    fitted = model(landmarks="all", max_iter=1, rho=0.05).fit(X, y)
    reference = LSSVC(C=20.0, gamma=0.2, solver="cholesky").fit(X, y)
    expected = reference.decision_function(X)
    if labels == "many":
        expected = 2 * expected - 1
    np.testing.assert_allclose(fitted.decision_function(X), expected, atol=1e-6)


def test_every_point_as_a_basis_gives_the_first_step_of_all_points(digits):
    X, y = digits
    basis = model(landmarks=np.arange(len(X)), max_iter=1, rho=0.05).fit(X, y)
    everything = model(landmarks="all", max_iter=1, rho=0.05).fit(X, y)
    np.testing.assert_allclose(basis.decision_function(X), everything.decision_function(X), atol=1e-5)


def test_union_rule():
    rule = ActiveRule(-1.0, 1.0, -0.5, 0.5)
    margins = np.array(
        [
            [0.0, 9.0, 9.0],  # own class undecided
            [2.0, 0.4, 0.4],  # own class settled, others undecided
            [2.0, 0.6, 0.6],  # settled
            [-2.0, -0.6, -0.6],  # hopeless
            [1.0, 9.0, 9.0],  # on the border is outside
        ]
    )
    np.testing.assert_array_equal(rule.stays(margins, np.zeros(5, dtype=int)), [True, True, False, False, False])
    two_classes = np.array([[0.7], [1.2], [-1.2]])
    np.testing.assert_array_equal(rule.stays(two_classes, np.array([0, 1, 1])), [True, False, False])


@pytest.mark.parametrize("landmarks", ["uniform", "all"])
def test_mean_equals_the_sum_with_a_ridge_for_each_active_row(landmarks, digits):
    """The last fit to S rows with reduction="mean" is a fit of the sum over these rows with the ridge `rho * S`."""
    X, y = digits
    fitted = model(landmarks=landmarks, rho=1e-4, reduction="mean", max_iter=3).fit(X, y)
    rows = fitted.active_set_
    assert len(rows) < len(X)
    alone = model(landmarks="all" if landmarks == "all" else fitted.points_, rho=1e-4 * len(rows), max_iter=1)
    alone.fit(X[rows], y[rows])
    np.testing.assert_allclose(alone.decision_function(X), fitted.decision_function(X), atol=1e-6)


@pytest.mark.parametrize(("landmarks", "rho"), [("uniform", 1e-3), ("all", 0.5)])
def test_ends_stable_and_equal_to_a_fit_of_the_active_set_alone(landmarks, rho, digits):
    X, y = digits
    fitted = model(landmarks=landmarks, rho=rho).fit(X, y)
    assert "stable" in fitted.message_
    assert 0 < len(fitted.active_set_) < len(X)
    assert [r["active"] for r in fitted.history_][1:] == [r["active"] - r["discarded"] for r in fitted.history_][:-1]
    assert fitted.history_[-1]["discarded"] == 0
    alone = model(landmarks="all" if landmarks == "all" else fitted.points_, rho=rho, max_iter=1)
    alone.fit(X[fitted.active_set_], y[fitted.active_set_])
    np.testing.assert_allclose(alone.decision_function(X), fitted.decision_function(X), atol=1e-6)


def test_two_classes_and_accuracy(two):
    X, y = two
    fitted = model(rho=0.1).fit(X[:250], y[:250])
    assert fitted.dual_coef_.shape[1] == 1
    assert fitted.score(X[250:], y[250:]) > 0.95
    assert set(fitted.predict(X)) == {"three", "eight"}


def on_basis(X, kernel, landmarks, codes):
    """Return the active rows of a fit on a basis, with blocks of 16 rows."""
    n_classes = len(np.unique(codes))
    basis = active_set.Basis.of(kernel, X, landmarks, np.float64)
    states = active_set.RowStates.start(codes, n_classes, None)
    rows = active_set.TrainingRows(X, None, rows_at_a_time=16)
    return active_set.BasisRows([rows], [states], basis, ActiveRule(-1.1, 1.1, -0.5, 0.5), np.float64)


def keep_active(rows, first):
    """Discard the rows before `first`."""
    (states,) = rows.states
    stays = states.active & (np.arange(len(states.codes)) >= first)
    rows.states = [replace(states, stays=stays)]
    rows._counts = rows.states[0].counts()
    rows.discard()


def test_removal_and_summation_agree(digits):
    X, y = digits
    fitted = model().fit(X, y)
    assert {"removal"} < {r["updated_by"] for r in fitted.history_}
    removed = on_basis(X, RBF(gamma=0.2), fitted.support_, y)
    removed.fit()
    for start in (40, 90):
        keep_active(removed, start)
        assert removed.fit()[1] == "removal"
    summed = on_basis(X[90:], RBF(gamma=0.2), X[fitted.support_], y[90:])
    assert summed.fit()[1] == "summation"
    K = RBF(gamma=0.2)(X[90:], X[fitted.support_])
    scores = [K @ rows.model().coef + rows.model().bias for rows in (removed, summed)]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-7)


def test_sums_are_recomputed_if_discarded_rows_are_much_larger():
    """A few rows with very large values are discarded; their rounding errors must not remain in the sums."""
    rng = np.random.default_rng(0)
    X = np.vstack([1e6 * rng.normal(size=(5, 2)), rng.normal(size=(60, 2))])
    codes = (X[:, 0] > 0).astype(int)
    rows = on_basis(X, Linear(), np.arange(5, 9), codes)
    rows.fit()
    keep_active(rows, 5)
    assert rows.fit()[1] == "summation"
    fresh = on_basis(X[5:], Linear(), np.arange(4), codes[5:])
    fresh.fit()
    np.testing.assert_allclose(X[5:9].T @ rows.model().coef, X[5:9].T @ fresh.model().coef, atol=1e-8)


def test_violations_equal_those_computed_from_the_scores(digits):
    X, y = digits
    margins = []
    T = signed_targets(y, 10)
    fitted = model(gamma=0.5, check_inclusion=True, callback=lambda m, r: margins.append(T * m.decision_function(X))).fit(
        X, y
    )
    active, came_back, counts = np.ones(len(X), dtype=bool), np.zeros(len(X), dtype=bool), []
    for at in margins:
        stays = fitted._rule().stays(at, y)
        counts.append(int((stays & ~active).sum()))
        came_back |= stays & ~active
        active &= stays
    assert [r["violations"] for r in fitted.history_] == counts
    assert sum(counts) > 0  # the property that the document claims does not hold here, and is reported
    np.testing.assert_array_equal(fitted.inclusion_violations_, np.flatnonzero(came_back))
    assert fitted.history_[-1]["training_error"] == np.mean(fitted.predict(X) != y)


def test_check_inclusion_does_not_change_the_model(digits):
    X, y = digits
    checked, unchecked = model(check_inclusion=True).fit(X, y), model().fit(X, y)
    np.testing.assert_array_equal(checked.active_set_, unchecked.active_set_)
    assert not hasattr(unchecked, "inclusion_violations_")


def test_no_class_loses_all_active_rows():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(40, 2)), rng.normal(size=(3, 2)) + 50])
    y = np.r_[np.zeros(40), np.ones(3)]
    fitted = model(gamma_u=0.9, zeta_u=0.5, kernel="rbf", gamma=0.01, rho=1e-6, n_landmarks=43).fit(X, y)
    assert "no active row" in fitted.message_
    assert set(y[fitted.active_set_]) == {0.0, 1.0}
    assert fitted.score(X, y) == 1.0


def test_a_weight_equals_repeated_rows_and_zero_removes_a_row(digits):
    X, y = digits
    landmarks = X[::10]
    weights = np.tile([0, 1, 2], 200)
    weighted = model(landmarks=landmarks).fit(X, y, sample_weight=weights)
    repeated = model(landmarks=landmarks).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-7)
    assert weights[weighted.active_set_].min() == 1


@pytest.mark.parametrize("landmarks", ["basis", "all"])
def test_zero_weights_keep_a_point_out_of_the_basis(landmarks, digits):
    X, y = digits
    weights = (np.arange(len(X)) % 2).astype(float)
    assert (model(landmarks=landmarks).fit(X, y, sample_weight=weights).support_ % 2 == 1).all()


@pytest.mark.parametrize("landmarks", ["basis", "all"])
def test_same_model_from_other_forms_of_the_data(landmarks, digits):
    torch = pytest.importorskip("torch")
    X, y = digits
    dense = model(landmarks=landmarks).fit(X, y)
    expected = dense.decision_function(X)
    np.testing.assert_allclose(model(landmarks=landmarks).fit(sp.csr_matrix(X), y).decision_function(X), expected, atol=1e-6)
    tensor = model(landmarks=landmarks).fit(torch.as_tensor(X), y)
    np.testing.assert_allclose(tensor.decision_function(torch.as_tensor(X)).numpy(), expected, atol=1e-6)
    K = RBF(gamma=0.2)(X, X)
    looked_up = model(landmarks=landmarks, kernel="precomputed").fit(K, y)
    np.testing.assert_allclose(looked_up.decision_function(K), expected, atol=1e-6)


def test_landmarks_that_are_not_training_rows(digits):
    X, y = digits
    fitted = model(landmarks="kmeans").fit(X, y)
    assert fitted.support_ is None
    assert fitted.points_.shape == (60, 64)
    assert fitted.score(X, y) > 0.95


def test_single_precision_is_close_to_double(digits):
    X, y = digits
    single = model(landmarks=BasisConstruction(0.5)).fit(X.astype(np.float32), y)
    assert single.dual_coef_.dtype == np.float32
    assert single.score(X.astype(np.float32), y) > 0.97


def test_streamed_within_a_small_budget(digits):
    X, y = digits
    expected = model().fit(X, y).decision_function(X)
    np.testing.assert_allclose(model(memory_budget="2MB").fit(X, y).decision_function(X), expected, atol=1e-7)
    with pytest.raises(MemoryError, match="n_landmarks"):
        model(memory_budget="300KB").fit(X, y)
    with pytest.raises(MemoryError, match="landmarks='basis'"):
        model(landmarks="all", memory_budget="1MB").fit(X, y)


def test_nearly_singular_equations_warn(digits):
    X, y = digits
    with pytest.warns(LinAlgWarning, match="raise rho"):
        model(kernel="linear", rho=1e-18, max_iter=1, landmarks=np.arange(100)).fit(1e3 * X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model().fit(X, y)


def test_every_function_of_a_list_is_called_with_a_model_that_predicts(digits):
    X, y = digits
    seen, scores = [], []
    functions = [lambda _, record: seen.append(record["n_iter"]), lambda machine, _: scores.append(machine.score(X, y))]
    fitted = model(callback=functions).fit(X, y)
    assert seen == list(range(1, fitted.n_iter_ + 1))
    assert scores[-1] == fitted.score(X, y)


def test_callback_stops(digits):
    X, y = digits
    fitted = model(callback=lambda m, r: r["n_iter"] == 2).fit(X, y)
    assert fitted.n_iter_ == 2
    assert "callback" in fitted.message_


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rho": 0.0}, "rho"),
        ({"max_iter": 0}, "max_iter"),
        ({"gamma_l": 2.0}, "gamma_l < gamma_u"),
        ({"zeta_u": -2.0}, "zeta_l < zeta_u"),
        ({"n_landmarks": 0}, "n_landmarks"),
        ({"landmarks": "nearest"}, "unknown landmarks"),
        ({"probability": "sigmoid"}, "softmax"),
    ],
)
def test_invalid_settings_raise(settings, message, digits):
    with pytest.raises(ValueError, match=message):
        model(**settings).fit(*digits)


def test_a_permuted_basis_of_a_precomputed_kernel(digits):
    X, y = digits[0][:80], digits[1][:80]
    points = model(landmarks="basis", n_landmarks=80).fit(X, y)
    assert len(points.support_) == 80
    assert not np.array_equal(points.support_, np.arange(80))
    K = RBF(0.2)(X, X)
    values = model(landmarks="basis", n_landmarks=80, kernel="precomputed").fit(K, y)
    np.testing.assert_allclose(values.decision_function(K), points.decision_function(X), atol=1e-8)


@pytest.mark.parametrize("landmarks", ["uniform", "all"])
def test_a_model_fitted_on_tensors_can_be_saved(landmarks, digits, tmp_path):
    torch = pytest.importorskip("torch")
    X, y = digits
    fitted = model(landmarks=landmarks).fit(torch.as_tensor(X), y)
    gramless.save(fitted, tmp_path / "model")
    np.testing.assert_allclose(
        gramless.load(tmp_path / "model").decision_function(X), fitted.decision_function(X), atol=1e-12
    )


def test_list_of_kernels_has_an_error_without_a_parameter_of_other_estimators():
    with pytest.raises(ValueError, match="2 kernels are given by lists: RiSVOClassifier has one kernel"):
        RiSVOClassifier(kernel=["rbf", "linear"]).fit(np.eye(4), [0, 0, 1, 1])
