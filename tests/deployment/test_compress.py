"""Compression of fitted models to fewer points."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import log_softmax, softmax
from sklearn.datasets import load_digits, make_classification, make_moons

import gramless
from gramless import LSSVC, LSSVR, KernelSVC, NystromLSSVC, compiled, compress
from gramless._core.targets.columns import scores_to_labels
from gramless.approximation.landmarks import LandmarkRule
from gramless.deployment import compress as module
from gramless.deployment.compiled import KernelExpansion
from gramless.deployment.tuning import TUNING
from gramless.kernels import RBF, ScaledColumns

X, Y = load_digits(return_X_y=True)


def test_compressed_model_agrees_and_reports_its_loss(tmp_path):
    model = LSSVC(C=10.0).fit(X[:900], Y[:900])
    small = compress(model, n_points=150, random_state=0)
    assert small.points_.shape == (150, 64)
    assert model.points_.shape == (900, 64)
    report = small.compression_
    assert (report["n_points"], report["before"], report["held_out"]) == (150, 900, 180)
    others = X[900:]
    changed = np.mean(small.predict(others) != model.predict(others))
    assert changed < 0.06
    assert abs(report["changed"] - changed) < 0.05
    gramless.save(small, tmp_path / "m.skops")
    np.testing.assert_array_equal(gramless.load(tmp_path / "m.skops").predict(others), small.predict(others))


def test_optimised_points_are_better_than_landmarks():
    model = LSSVC(C=10.0).fit(X[:900], Y[:900])
    moved, chosen = (compress(model, n_points=60, rounds=rounds, random_state=0) for rounds in (40, 0))
    full = model.decision_function(X[900:])
    wrong = [np.mean((small.decision_function(X[900:]) - full) ** 2) for small in (moved, chosen)]
    assert wrong[0] < 0.8 * wrong[1]


def test_coefficients_are_the_least_squares_solution():
    """Without optimisation of the points, compare with a dense solution."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(120, 3))
    model = LSSVR(kernel="laplacian", gamma=0.5).fit(rows, rows[:, 0] * rows[:, 1])
    points = rows[:15]
    found = module._least_squares(model.kernel_, rows, model.predict(rows)[:, None], points)
    block = np.column_stack([model.kernel_(rows, points), np.ones(120)])
    expected = np.linalg.lstsq(block, model.predict(rows)[:, None], rcond=None)[0]
    np.testing.assert_allclose(block @ np.vstack([found.coef, found.bias[None]]), block @ expected, atol=1e-6)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("objective", ["values", "signs", "classes"])
def test_gradients_equal_finite_differences(objective, outputs):
    """Compare each gradient component with finite differences of the loss."""
    rng = np.random.default_rng(0)
    rows, Z, T = rng.normal(size=(40, 3)), rng.normal(size=(40, outputs)), 0.7
    numbers = [rng.normal(size=shape) for shape in ((5, 3), (5, outputs), (outputs,), (3,))]
    scales, gamma = np.array([1.0, 2.0, 0.5]), 0.3

    def loss(points, coef, bias, factors):
        difference = (rows[:, None] - points) * scales * np.exp(factors)
        g = np.exp(-gamma * np.sum(difference**2, axis=2)) @ coef + bias
        squares = np.sum((g - Z) ** 2, axis=1) / 2
        if objective == "values":
            return squares.mean()

        def divergence(f, g):
            return T**2 * np.sum(softmax(f, axis=-1) * (log_softmax(f, axis=-1) - log_softmax(g, axis=-1)), axis=-1)

        if objective == "classes":
            return (divergence(Z / T, g / T) + TUNING.score_weight * squares).mean()
        pairs = [np.stack([part, -part], axis=-1) / T for part in (Z, g)]
        return (divergence(*pairs).sum(axis=1) / 2 + TUNING.score_weight * squares).mean()

    begin = KernelExpansion(ScaledColumns(RBF(gamma), scales), *numbers[:3])
    descent = module.ExpansionDescent(begin, Z, 1, objective)
    descent._log_factors += numbers[3]
    errors, found = descent.gradients(rows, Z, T)
    for which, parts in enumerate(found):
        for at in np.ndindex(*parts.shape):
            values = []
            for sign in (-1, 1):
                moved = [one.copy() for one in numbers]
                moved[which][at] += sign * 1e-5
                values.append(loss(*moved))
            assert parts[at] == pytest.approx((values[1] - values[0]) / 2e-5, abs=1e-8)
    np.testing.assert_allclose(errors, descent.expansion()(rows) - Z)


def test_function_of_few_points_is_recovered():
    """Four Gaussians with column scales 1, 0.5 and 0, fitted to 600 points."""
    rng = np.random.default_rng(0)
    rows, centres = rng.uniform(-2, 2, size=(600, 3)), rng.uniform(-1.5, 1.5, size=(4, 3))
    truth = ScaledColumns(RBF(0.8), [1.0, 0.5, 0.0])
    model = LSSVR(kernel=RBF(0.8), C=1e6).fit(rows, truth(rows, centres) @ [1.0, -2.0, 1.5, -1.0])
    small = compress(model, n_points=4, rounds=150, landmarks=rows[:4], random_state=0)
    others = rng.uniform(-2, 2, size=(300, 3))
    expected = truth(others, centres) @ [1.0, -2.0, 1.5, -1.0]
    assert np.mean((small.predict(others) - expected) ** 2) < 0.01 * expected.var()
    np.testing.assert_allclose(small.kernel_.scales, [1.0, 0.5, 0.0], atol=0.25)


PROBLEMS = {
    "digits": (X / 16, Y, 0.5),
    "moons": (*make_moons(1500, noise=0.25, random_state=0), 4.0),
    "three classes": (*make_classification(1500, 8, n_informative=6, n_classes=3, random_state=0), 0.2),
}


def test_divergence_preserves_labels_better_than_squared_error():
    """On no problem worse by more than the standard error of the difference, and better in total."""

    def changed(rows, y, gamma, squared):
        model = LSSVC(C=10.0, gamma=gamma).fit(rows[:900], y[:900])
        expected = model.predict(rows[900:])
        if squared:  # a regression with the same scores, whose compression minimises squared errors
            targets = np.where(y[:900, None] == model.classes_, 1.0, -1.0)[:, len(model.classes_) == 2 :]
            full = LSSVR(C=10.0, gamma=gamma).fit(rows[:900], targets)
            np.testing.assert_array_equal(scores_to_labels(model.classes_, full.predict(rows[900:])), expected)
        found = []
        for seed in range(3):
            small = compress(full if squared else model, n_points=30, rounds=20, random_state=seed)
            found.append(small.predict(rows[900:]))
        if squared:
            found = [scores_to_labels(model.classes_, scores) for scores in found]
        return np.concatenate([labels != expected for labels in found])

    ours = [changed(*problem, squared=False) for problem in PROBLEMS.values()]
    plain = [changed(*problem, squared=True) for problem in PROBLEMS.values()]
    for one, other in zip(ours, plain, strict=True):
        assert one.sum() - other.sum() <= np.sum(one != other) ** 0.5
    assert np.concatenate(ours).sum() < np.concatenate(plain).sum()


@pytest.mark.parametrize("rounds", [0, 5])
def test_a_large_mean_of_values_does_not_change_the_error(rounds):
    rows = np.random.default_rng(0).normal(size=(200, 3))
    values = np.sin(rows[:, 0])
    plain, shifted = (
        compress(LSSVR(C=100.0).fit(rows, values + mean), n_points=40, rounds=rounds, random_state=0)
        for mean in (0.0, 2.0**26)
    )
    assert plain.compression_["changed"] < 0.05
    np.testing.assert_allclose(shifted.predict(rows) - 2.0**26, plain.predict(rows), atol=1e-3)


class FirstRows(LandmarkRule):
    """Rule that selects the first rows and stores the rows that it is given."""

    def select(self, X, kernel, m, rng):
        self.rows = X
        return np.arange(m)


def test_landmarks_of_a_rule_are_the_rows_that_it_selects():
    """Its rows are those of the fit, because the others measure the loss."""
    model, rule = LSSVC(C=10.0).fit(X[:300], Y[:300]), FirstRows()
    small = compress(model, n_points=20, landmarks=rule, rounds=0, half=False, random_state=0)
    assert len(rule.rows) == 240
    np.testing.assert_array_equal(small.points_, rule.rows[:20])


def test_row_indices_are_those_of_the_points_of_the_model():
    model = LSSVC(C=10.0).fit(X[:300], Y[:300])
    small = compress(model, n_points=20, landmarks=np.arange(280, 300), rounds=0, half=False, random_state=0)
    np.testing.assert_array_equal(small.points_, model.points_[280:])


def test_interpolated_rows_copy_columns_of_two_rows():
    rows = np.random.default_rng(0).normal(size=(300, 6))
    mixed = module.interpolated_rows(RBF(0.1), rows, np.random.RandomState(0))
    own = mixed == rows
    assert np.all(own | (mixed[:, None] == rows[None]).any(axis=1))
    partners = [np.flatnonzero(((mixed[i] == rows) | own[i]).all(axis=1)) for i in range(300)]
    assert all(len(some) > 0 for some in partners)
    assert 0.6 < own.mean() < 0.9


def test_compressed_model_supports_all_operations():
    for y in (Y, Y > 4):
        model = LSSVC(C=10.0, kernel=ScaledColumns(RBF(1e-3), np.full(64, 0.9))).fit(X[:400], y[:400])
        small = compress(model, n_points=60, rounds=10, random_state=0)
        scores = small.decision_function(X[400:500])
        np.testing.assert_allclose(compiled(small).decision_function(X[400:500]), scores, atol=1e-6)
        np.testing.assert_allclose(compiled(small).decision_function(X[400:401]), scores[:1], atol=1e-6)
        assert np.mean(small.predict(X[400:900]) == model.predict(X[400:900])) > 0.85


def test_loss_determines_number_of_points():
    model = LSSVR(C=10.0, gamma=0.3).fit(np.linspace(-3, 3, 400)[:, None], np.sin(np.linspace(-3, 3, 400)))
    small = compress(model, loss=1e-3, random_state=0)
    assert len(small.points_) <= 32
    assert small.compression_["changed"] <= 1e-3
    grid = np.linspace(-3, 3, 50)[:, None]
    np.testing.assert_allclose(small.predict(grid), model.predict(grid), atol=0.1)


def test_sparse_rows():
    rows = sp.csr_matrix(np.where(X[:300] > 8, X[:300], 0.0))
    assert len(compress(LSSVC(gamma=1e-3).fit(rows, Y[:300]), n_points=40, random_state=0).points_) == 40


@pytest.mark.parametrize("device", ["torch:cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("two", [False, True])
def test_devices_agree(device, two):
    """Random draws are equal, so differences are rounding errors."""
    torch = pytest.importorskip("torch")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    y = Y > 4 if two else Y
    scores = []
    for where in ("cpu", device):
        model = LSSVC(C=10.0, solver="cholesky", device=where).fit(X[:300], y[:300])
        small = compress(model, n_points=40, rounds=2, half=False, random_state=0)
        scores.append(small.decision_function(X[300:600]))
    np.testing.assert_allclose(scores[1], scores[0], atol=1e-6)


def test_multilabel():
    y = np.column_stack([Y % 2, Y > 4, Y % 3 == 0]).astype(int)
    model = LSSVC(C=10.0).fit(X[:600], y[:600])
    small = compress(model, n_points=100, rounds=30, random_state=0)
    other = np.mean((small.predict(X[600:]) != model.predict(X[600:])).any(axis=1))
    assert other < 0.12
    assert abs(small.compression_["changed"] - other) < 0.08


def test_probabilities_are_kept_and_intervals_raise():
    model = LSSVC(C=10.0).fit(X[:600], Y[:600])
    small = compress(model, n_points=100, rounds=20, random_state=0)
    assert small.temperature_ == model.temperature_
    assert np.abs(small.predict_proba(X[600:]) - model.predict_proba(X[600:])).mean() < 0.02
    assert small.predict_set(X[600:]).shape == (len(X) - 600, 10)
    values = LSSVR(C=10.0).fit(X[:200], Y[:200])
    values.predict(X[:2], return_std=True)
    few = compress(values, n_points=20, rounds=2, random_state=0)
    for ask in (lambda: few.predict(X[:2], return_std=True), lambda: few.predict_interval(X[:2])):
        with pytest.raises(ValueError, match="compressed model no longer has its training rows"):
            ask()
    few.fit(X[:200], Y[:200])
    assert not hasattr(few, "compression_")
    few.predict_interval(X[:2])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "give exactly one of"),
        ({"n_points": 5, "loss": 0.1}, "give exactly one of"),
        ({"n_points": 0}, "n_points must lie"),
        ({"loss": 2.0}, "loss must lie"),
    ],
)
def test_invalid_arguments_raise(options, words):
    with pytest.raises(ValueError, match=words):
        compress(LSSVC().fit(X[:200], Y[:200]), **options)


def test_unsupported_models_raise():
    with pytest.raises(ValueError, match="KernelSVC is not a kernel expansion"):
        compress(KernelSVC().fit(X[:200], Y[:200]), n_points=10)
    with pytest.raises(ValueError, match="NystromLSSVC cannot be compressed: fit it with fewer landmarks"):
        compress(NystromLSSVC(n_landmarks=50, random_state=0).fit(X[:200], Y[:200]), n_points=10)
    with pytest.raises(ValueError, match="too few"):
        compress(LSSVC().fit(X[:50], Y[:50]), n_points=10)
