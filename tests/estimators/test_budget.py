"""BudgetLSSVC and BudgetLSSVR: the document's loss, minimised; no step size to tune, no NaN."""

import dataclasses
import functools
import pickle
import tracemalloc

import numpy as np
import pytest
from sklearn.base import clone

import gramless
from gramless import BudgetLSSVC, BudgetLSSVR, FourierLSSVC, FourierLSSVR, NystromLSSVC, Stream, estimate
from gramless._core.targets.streamed import ValueTargets
from gramless.approximation.features.landmark_map import LandmarkMap
from gramless.kernels import RBF
from gramless.papers.experiments.budget import ExactBudgetLSSVC
from gramless.streaming.learners.gradient import GradientDescent, GradientState
from gramless.streaming.learners.loop import run_pass
from gramless.streaming.learners.planning import PassOptions, PassSettings
from gramless.streaming.tuning import TUNING


def minimiser(X, y, budget, kernel, C):
    """Of the dual loss, from its own normal equations: gradient zero in v and b."""
    B, y_B = X[budget], y[budget]
    K_BB, K = kernel(B, B), kernel(X, B)
    G = np.column_stack([K, np.ones(len(X))])
    H = C * G.T @ G
    H[:-1, :-1] += K_BB
    solution = np.linalg.solve(H, C * G.T @ y + np.append(y_B, 0.0))
    return solution[:-1], solution[-1]


@pytest.mark.parametrize("optimizer", ["sgd", "averaged_sgd", "adam"])
def test_reaches_the_minimum_of_the_documents_loss(optimizer):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
    budget = np.arange(20)
    # A narrow kernel: K_BB is well conditioned. With a wide one the loss itself is at fault: its term -y_B^T v is
    # unbounded by the errors where K_BB is nearly singular, and its minimiser is wild between the points of the budget.
    kernel = RBF(gamma=4.0)
    v, b = minimiser(X, y, budget, kernel, C=0.5)
    model = BudgetLSSVC(landmarks=budget, gamma=4.0, C=0.5, optimizer=optimizer, epochs=200, random_state=0).fit(X, y)
    expected = kernel(X, X[budget]) @ v + b
    found = model.decision_function(X)
    assert np.sqrt(np.mean((found - expected) ** 2)) < 0.05 * expected.std()


def test_a_learning_rate_gives_plain_gradient_descent():
    """Full batches: every step is the gradient of the loss times `learning_rate / (C n)`."""
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(50, 2)), rng.choice([-1.0, 1.0], size=50)
    kernel, budget, C, rate = RBF(gamma=1.0), np.arange(6), 2.0, 0.05
    settings = {"landmarks": budget, "gamma": 1.0, "C": C, "learning_rate": rate, "batch_size": 50, "epochs": 4}
    model = BudgetLSSVC(**settings, random_state=0).fit(X, y)
    K_BB, K, v, b = kernel(X[budget], X[budget]), kernel(X, X[budget]), np.zeros(6), 0.0
    for _ in range(4):
        residuals = y - K @ v - b
        v, b = v - rate / (50 * C) * (K_BB @ v - y[budget] - C * K.T @ residuals), b + rate * residuals.mean()
    np.testing.assert_allclose(model.decision_function(X), K @ v + b, atol=1e-10)
    assert [record["step"] for record in model.history_] == [rate] * 4
    with pytest.raises(ValueError, match="learning_rate sets the steps of optimizer='sgd'"):
        BudgetLSSVC(**settings, optimizer="adam").fit(X, y)


def test_the_linear_term_of_the_dual_is_there():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 2))
    y = np.where(X[:, 0] > 0, 1, -1)
    kernel, budget = RBF(gamma=4.0), np.arange(60)
    v, b = minimiser(X, y, budget, kernel, C=0.02)  # little weight on the errors: the linear term is most of the loss
    without, b0 = np.linalg.solve(0.02 * kernel(X, X) @ kernel(X, X) + kernel(X, X), 0.02 * kernel(X, X) @ y), 0.0
    model = BudgetLSSVC(landmarks=budget, gamma=4.0, C=0.02, epochs=400, random_state=0).fit(X, y)
    found, with_term = model.decision_function(X), kernel(X, X) @ v + b
    assert np.abs(found - with_term).mean() < 0.2 * np.abs(found - kernel(X, X) @ without - b0).mean()


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_on_all_rows_the_documents_loss_is_least_at_the_interpolant(C):
    """Whatever C is: the linear term undoes the regulariser. What the documentation warns of."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(80, 2))
    y = rng.choice([-1.0, 1.0], size=80)  # nothing to learn but noise
    kernel = RBF(gamma=4.0)
    v, b = minimiser(X, y, np.arange(80), kernel, C)
    np.testing.assert_allclose(kernel(X, X) @ v + b, y, atol=1e-6)
    exact = ExactBudgetLSSVC(landmarks=np.arange(80), C=C, gamma=4.0).fit(X, y)
    np.testing.assert_allclose(exact.decision_function(X), y, atol=1e-6)
    regular = ExactBudgetLSSVC(landmarks=np.arange(80), loss="primal", C=C, gamma=4.0).fit(X, y)
    assert np.mean((regular.decision_function(X) - y) ** 2) > 0.01


def test_without_the_linear_term_the_minimum_is_the_nystrom_machine():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(500, 2))
    y = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=500) > 0, 1, -1)
    rows = np.arange(40)
    settings = {"landmarks": rows, "gamma": 4.0, "C": 0.5}
    exact = NystromLSSVC(**settings).fit(X, y).decision_function(X)
    primal = BudgetLSSVC(loss="primal", epochs=200, random_state=0, **settings).fit(X, y).decision_function(X)
    dual = BudgetLSSVC(loss="dual", epochs=200, random_state=0, **settings).fit(X, y).decision_function(X)
    dense = ExactBudgetLSSVC(landmarks=rows, loss="primal", gamma=4.0, C=0.5).fit(X, y).decision_function(X)
    np.testing.assert_allclose(dense, exact, atol=1e-6)
    assert np.sqrt(np.mean((primal - exact) ** 2)) < 0.02 * exact.std()
    assert np.sqrt(np.mean((dual - exact) ** 2)) > 0.1 * exact.std()


def test_a_few_loud_rows_do_not_slow_down_the_others(monkeypatch):
    """Twenty rows of other scale in a thousand: the step is that of the thousand, the minimum that of all of them."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(1000, 3))
    X[:20] += 8 * rng.normal(size=(20, 3))
    y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
    settings = {"landmarks": np.arange(200), "gamma": 0.3, "C": 10.0}
    exact = NystromLSSVC(**settings).fit(X, y).decision_function(X)

    def distance(**more):
        model = BudgetLSSVC(loss="primal", random_state=0, **settings, **more).fit(X, y)
        return model.history_[0]["step"], np.sqrt(np.mean((model.decision_function(X) - exact) ** 2))

    step, far = distance(epochs=30)
    unlimited = dataclasses.replace(TUNING, norm_factor=np.inf)
    monkeypatch.setattr("gramless.estimators.budget.GradientDescent", functools.partial(GradientDescent, tuning=unlimited))
    plain_step, farther = distance(epochs=30)
    assert step > 2 * plain_step
    assert far < 0.8 * farther


@pytest.mark.parametrize("batch_size", [1, 16, 256])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_no_step_size_to_tune(digits, batch_size, scale):
    """Data of any scale, batches of any size: as good as the exact solution on the same points."""
    X, y = digits
    epochs = {1: 3, 16: 10, 256: 40}[batch_size]
    settings = {"landmarks": X[:150] * scale, "gamma": 0.05 / scale**2, "C": 10.0}
    online = BudgetLSSVC(batch_size=batch_size, epochs=epochs, random_state=0, **settings).fit(X[:1000] * scale, y[:1000])
    exact = NystromLSSVC(**settings).fit(X[:1000] * scale, y[:1000])
    assert online.score(X[1000:] * scale, y[1000:]) > exact.score(X[1000:] * scale, y[1000:]) - 0.02


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_divergence_is_answered_by_a_smaller_step(digits, optimizer, monkeypatch):
    X, y = digits
    prepare = GradientState.prepare

    first_steps = []

    def reckless(self, *arguments):
        prepare(self, *arguments)
        self.step *= 1e4
        first_steps.append(self.step)

    monkeypatch.setattr(GradientState, "prepare", reckless)
    model = BudgetLSSVC(budget=100, gamma=0.05, optimizer=optimizer, epochs=20, random_state=0).fit(X[:1000], y[:1000])
    assert np.isfinite(model.dual_coef_).all()
    # Each divergence halves the step, nothing else changes it, and it stays within reach of one that would not diverge.
    (first,) = first_steps
    assert model.pass_.state.halvings >= 5
    assert model.history_[-1]["step"] == first * 0.5**model.pass_.state.halvings
    assert model.history_[-1]["step"] > first * 1e-4 / 64
    assert model.score(X[1000:], y[1000:]) > 0.85


def test_features_that_are_not_finite_are_an_error_not_a_model():
    learner = GradientState(np.zeros((3, 1)), optimizer="sgd")
    learner.step = 1.0
    batch = np.full((4, 2), np.nan), np.ones((4, 1)), None, 0.1
    with pytest.raises(ArithmeticError, match="the loss increases for every step size"):
        [learner.update(*batch) for _ in range(100)]


def test_one_pass_at_a_time(digits):
    X, y = digits
    model = BudgetLSSVC(budget=150, gamma=0.05, C=10.0, random_state=0)
    scores = []
    for epoch in range(4):
        for start in range(0, 1200, 100):
            model.partial_fit(X[start : start + 100], y[start : start + 100], classes=np.arange(10))
            if epoch == 0 and start == 0:
                assert model.predict(X[:3]).shape == (3,)
        scores.append(model.score(X[1200:], y[1200:]))
    assert model.points_.shape == (150, 64)
    assert scores[-1] > 0.95


def test_a_generator_is_one_pass(digits):
    X, y = digits
    model = BudgetLSSVC(budget=100, gamma=0.05, C=10.0, batch_size=8, random_state=0)
    model.fit((X[i : i + 90], y[i : i + 90]) for i in range(0, 1200, 90))
    assert len(model.history_) == 1
    assert model.score(X[1200:], y[1200:]) > 0.9


def test_memory_for_no_kernel_values_gives_the_same_kind_of_model(digits):
    X, y = digits
    targets = np.where(y % 2 == 0, 1.0, -1.0)
    # Few rows to measure: those of the default take more memory than the kernel values.
    feature_map = LandmarkMap(RBF(gamma=0.05), 100, whiten=False)
    learner = GradientDescent(C=10.0, epochs=10, rows_measured=200)

    def share_of_signs(**options):
        settings = PassSettings(feature_map, learner, PassOptions(**options))
        model = run_pass(Stream(X[:1000], targets[:1000]), settings, ValueTargets(), random_state=0).model(settings)
        scores = model.features.scores(X[1000:], model.coef) + model.intercept
        return np.mean(np.sign(scores[:, 0]) == targets[1000:])

    held, streamed = share_of_signs(), share_of_signs(memory_budget="1.2MB")
    assert held > 0.9
    assert abs(held - streamed) < 0.02


@pytest.mark.parametrize("machine", [BudgetLSSVC(budget=50), FourierLSSVC(n_components=50, method="online")])
def test_a_fit_keeps_within_its_memory_budget_or_is_refused(machine):
    X = np.random.default_rng(0).normal(size=(40_000, 40)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    machine.set_params(gamma=0.01, epochs=1, random_state=0)
    with pytest.raises(MemoryError, match=r"curvature .* memory_budget allows 20\.0 MB"):
        machine.set_params(memory_budget="20MB").fit(Stream(X, y))
    tracemalloc.start()
    try:
        machine.set_params(memory_budget="34MB").fit(Stream(X, y))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 34e6


def test_callback_sees_a_model_and_may_stop(digits):
    X, y = digits
    scores = []

    def enough(model, record):
        scores.append(model.score(X[1000:], y[1000:]))
        return record["n_iter"] == 3

    model = BudgetLSSVC(budget=100, gamma=0.05, callback=enough, random_state=0).fit(X[:1000], y[:1000])
    assert len(scores) == len(model.history_) == 3
    assert scores[-1] > 0.8


def test_regression_and_weights():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(800, 1))
    Y = np.column_stack([np.sin(X[:, 0]), np.cos(X[:, 0])])
    model = BudgetLSSVR(budget=40, gamma=1.0, C=100.0, random_state=0).fit(X, Y)
    assert model.score(X, Y) > 0.99
    ignored = Y.copy()
    ignored[::2] = 5.0
    weights = np.tile([0.0, 1.0], 400)
    assert BudgetLSSVR(budget=40, gamma=1.0, C=100.0, random_state=0).fit(X, ignored, weights).score(X, Y) > 0.95


def test_skewed_classes_by_weight(digits):
    X, y = digits
    few = np.r_[np.flatnonzero(y == 8)[:12], np.flatnonzero(y == 3)[:150]]
    settings = {"budget": 1.0, "gamma": 0.05, "C": 0.05, "random_state": 0}
    plain = BudgetLSSVC(**settings).fit(X[few], y[few])
    balanced = BudgetLSSVC(class_weight="balanced", **settings).fit(X[few], y[few])
    assert (balanced.predict(X[y == 8]) == 8).mean() > (plain.predict(X[y == 8]) == 8).mean()


def test_torch_gives_numpys_model(digits):
    torch = pytest.importorskip("torch")
    X, y = digits
    settings = {"budget": 80, "gamma": 0.05, "C": 10.0, "epochs": 5, "random_state": 0}
    here = BudgetLSSVC(**settings).fit(X[:500], y[:500])
    there = BudgetLSSVC(**settings).fit(torch.as_tensor(X[:500]), y[:500])
    np.testing.assert_allclose(there.decision_function(X), here.decision_function(X), atol=1e-5)


def test_goes_on_after_a_file(digits, tmp_path):
    X, y = digits
    two = y < 2
    X, y = X[two], y[two]
    model = BudgetLSSVC(budget=50, gamma=0.05, C=10.0, random_state=0).partial_fit(X[:200], y[:200], classes=[0, 1])
    gramless.save(model, tmp_path / "model.skops")
    loaded = gramless.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    loaded.partial_fit(X[200:300], y[200:300])
    assert loaded.score(X[300:], y[300:]) > 0.95


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": 0}, "'budget' parameter"),
        ({"optimizer": "newton"}, "'optimizer' parameter"),
        ({"loss": "hinge"}, "'loss' parameter"),
        ({"epochs": 0}, "'epochs' parameter"),
        ({"batch_size": -1}, "'batch_size' parameter"),
        ({"C": "loo"}, "'C' parameter"),
        ({"probability": "sigmoid"}, "'probability' parameter"),
    ],
)
def test_settings_that_cannot_be_say_so(digits, settings, message):
    with pytest.raises(ValueError, match=message):
        BudgetLSSVC(**settings).fit(digits[0][:50], digits[1][:50])


def test_steps_are_not_distributed():
    distributed = pytest.importorskip("gramless.distributed.one_pass")
    with pytest.raises(ValueError, match="learns online"):
        distributed.check_one_pass(BudgetLSSVC())


def test_a_large_budget_needs_no_square_matrices_of_sums():
    memory = gramless.estimate(BudgetLSSVC(budget=20_000, memory_budget="4GB"), n=100_000, d=50)
    assert memory.nbytes < 2e9
    with pytest.raises(MemoryError, match="fewer landmarks"):
        gramless.estimate(NystromLSSVC(n_landmarks=20_000, memory_budget="4GB", solver="sums"), n=100_000, d=50)


def test_a_share_needs_a_known_length(digits):
    with pytest.raises(ValueError, match="needs data of known length"):
        BudgetLSSVC(budget=0.5).partial_fit(*digits, classes=np.arange(10))


@pytest.mark.parametrize(
    "made", [BudgetLSSVC(budget=300, epochs=1), FourierLSSVC(n_components=300, method="online", epochs=1)]
)
def test_the_estimate_counts_the_features_that_are_held(made):
    n, d = 20_000, 10
    X = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    clone(made).fit(X[:500], y[:500])  # what is compiled or imported on the way is no part of a fit
    tracemalloc.start()
    made.set_params(random_state=0).fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    estimated = estimate(made, n, d)
    assert estimated.parts["features of all rows"] == n * 300 * 4
    assert estimated.nbytes / 3 < peak < estimated.nbytes
    small = clone(made).set_params(memory_budget=40_000_000)
    assert estimate(small, n, d).parts["features of all rows"] == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize(
    "model",
    [
        BudgetLSSVR(budget=20, gamma=0.3, random_state=0),
        BudgetLSSVR(budget=20, gamma=0.3, loss="primal", optimizer="averaged_sgd", random_state=0),
        FourierLSSVR(n_components=20, gamma=0.3, method="online", random_state=0),
    ],
    ids=["dual", "primal", "fourier"],
)
def test_large_mean_of_the_values_shifts_the_predictions(model, method, dtype):
    rng = np.random.RandomState(0)
    X = rng.normal(size=(200, 3)).astype(dtype)
    y = np.sin(X[:, :1].astype(np.float64)) * [1.0, 2.0]
    shift = np.array([1e6, -300.0])
    plain, moved = (getattr(clone(model), method)(X, y + offset).predict(X) for offset in (0.0, shift))
    np.testing.assert_allclose(moved - shift, plain, atol=1e-4)


def test_a_pickled_model_of_tensors_learns_from_more_tensors(digits):
    torch = pytest.importorskip("torch")
    X, y = torch.as_tensor(digits[0]), digits[1]
    model = BudgetLSSVC(budget=50, gamma=0.05, C=10.0, random_state=0).fit(X[:500], y[:500])
    copied = pickle.loads(pickle.dumps(model))
    for each in (model, copied):
        each.partial_fit(X[500:1000], y[500:1000])
    np.testing.assert_array_equal(copied.decision_function(X), model.decision_function(X))


@pytest.mark.parametrize("optimizer", ["sgd", "averaged_sgd", "adam"])
def test_a_state_of_version_0_1_continues_equally(digits, optimizer):
    X, y = digits
    model = BudgetLSSVC(budget=50, gamma=0.05, optimizer=optimizer, random_state=0)
    model.partial_fit(X[:500], y[:500], classes=np.arange(10))
    state = model.pass_.state.__getstate__()
    names = {"limit_norms": "soften", "norm_limit": "loudest", "zero_loss": "nothing", "eigenvectors": "V", "shares": "D"}
    names |= {"moment_1": "moments_0", "moment_2": "moments_1", "n_moments": "moments_2", "n_averaged": "mean_2"}
    names |= {"adam_rate": "moments_3", "first_step": "moments_4"}
    pairs = {"W": ("A", "b"), "snapshot": ("good_0", "good_1"), "mean": ("mean_0", "mean_1")}
    new = {"learning_rate", "penalty_bytes", *pairs}
    old = {names.get(name, name): value for name, value in state.items() if name not in new and value is not None}
    for name, parts in pairs.items():
        if state[name] is not None:
            old |= dict(zip(parts, (state[name][:-1], state[name][-1:]), strict=True))
    loaded = pickle.loads(pickle.dumps(model))
    loaded.pass_.state = GradientState.__new__(GradientState)
    loaded.pass_.state.__setstate__(old)
    for each in (model, loaded):
        each.partial_fit(X[500:800], y[500:800])
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
