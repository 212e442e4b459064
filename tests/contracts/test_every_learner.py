"""Every learner of the registry against dense float64 algebra: order of rows, weights, new targets, state."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from gramless.approximation.features.base import SampledRows
from gramless.approximation.features.fourier_map import FourierMap
from gramless.approximation.features.landmark_map import LandmarkMap
from gramless.kernels import RBF
from gramless.streaming.learners import LEARNERS
from gramless.streaming.learners.base import PassSize

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 2))
Z = np.column_stack([np.sin(X[:, 0]), X[:, 0] * X[:, 1]])
W = RNG.integers(1, 4, size=300).astype(float)
FEATURES = {
    "identity penalty": FourierMap(RBF(gamma=0.2), 12).begin(SampledRows(X), np.random.RandomState(0)),
    "kernel penalty": LandmarkMap(RBF(gamma=1.0), 12, whiten=False).begin(SampledRows(X), np.random.RandomState(0)),
}
SUMS = sorted(name for name, learner in LEARNERS.items() if learner.merges)


@pytest.fixture(params=sorted(LEARNERS))
def learner(request):
    made = LEARNERS[request.param](C=0.5)
    return made.set_params(epochs=150) if "epochs" in made.get_params() else made


@pytest.fixture(params=sorted(FEATURES))
def features(request):
    return FEATURES[request.param]


def dense(features, rows, targets, weights, C):
    """Return the minimiser with an unpenalised bias, from the bordered system."""
    Phi = features(rows) + 0
    P = np.eye(Phi.shape[1]) if features.penalty() is None else features.penalty()
    G = np.column_stack([Phi, np.ones(len(Phi))])
    H = G.T @ (weights[:, None] * G)
    H[:-1, :-1] += P / C
    solution = np.linalg.solve(H, G.T @ (weights[:, None] * targets))
    return G @ solution


def run_over(learner, features, order, weights=W, cuts=(), targets=Z):
    Phi = features(X) + 0
    run = learner.begin(features, Phi, targets.shape[1], n_rows=len(order), budget=10**9)
    for epoch in range(learner.epochs):
        rows = np.random.default_rng(epoch).permutation(order) if learner.shuffles else order
        for part in np.split(rows, list(cuts)):
            run.add(Phi[part], targets[part], weights[part], run.measure(Phi[part]))
        run.end_pass()
    return run


def scores(learner, run, features):
    fit = learner.solve(run, features)
    return features(X) @ fit.A + fit.bias


def test_has_settings_only(learner, features):
    run_over(learner.set_params(**({"epochs": 1} if "epochs" in learner.get_params() else {})), features, np.arange(300))
    assert clone(learner).get_params().keys() == learner.get_params().keys() == vars(learner).keys()


def test_converges_to_dense_solution(learner, features):
    learner.check()
    found = scores(learner, run_over(learner, features, np.arange(300), cuts=[100, 101]), features)
    expected = dense(features, X, Z, W, 0.5)
    tolerance = 1e-8 if learner.merges else 0.05
    assert np.sqrt(np.mean((found - expected) ** 2)) < tolerance * expected.std()


def test_weights_equal_repeated_rows_in_any_order(learner, features):
    tolerance = 1e-8 if learner.merges else 0.05
    weighted = scores(learner, run_over(learner, features, np.arange(300)), features)
    repeated = np.random.default_rng(5).permutation(np.repeat(np.arange(300), W.astype(int)))
    plain = scores(learner, run_over(learner, features, repeated, np.ones(300), cuts=[7, 200, 333]), features)
    assert np.sqrt(np.mean((weighted - plain) ** 2)) < tolerance * weighted.std()


def test_new_target_is_zero_for_earlier_rows(learner, features):
    late = Z * np.column_stack([np.ones(300), np.arange(300) >= 200])
    Phi = features(X) + 0
    run = learner.begin(features, Phi, 1, n_rows=300, budget=10**9)
    run.add(Phi[:200], late[:200, :1], None, run.measure(Phi[:200]))
    run.widen(2)
    assert run.n_targets == 2
    run.add(Phi[200:], late[200:], None, run.measure(Phi[200:]))
    assert learner.solve(run, features).A.shape == (features.n_features, 2)
    if learner.merges:
        expected = dense(features, X, late, np.ones(300), 0.5)
        np.testing.assert_allclose(scores(learner, run, features), expected, atol=1e-7)


def test_pickled_and_copied_runs_continue_equally(learner, features):
    Phi = features(X) + 0
    run = learner.begin(features, Phi, 2, n_rows=300, budget=10**9)
    run.add(Phi[:150], Z[:150], W[:150], run.measure(Phi[:150]))
    others = [pickle.loads(pickle.dumps(run)), run.copy()]
    for other in others:
        other.attach(features, 10**9)
        other.add(Phi[150:], Z[150:], W[150:], other.measure(Phi[150:]))
    before = scores(learner, run, features)
    run.add(Phi[150:], Z[150:], W[150:], run.measure(Phi[150:]))
    after = scores(learner, run, features)
    assert np.abs(after - before).max() > 1e-6
    for other in others:
        np.testing.assert_array_equal(scores(learner, other, features), after)


def test_torch_equals_numpy(learner, features):
    torch = pytest.importorskip("torch")
    Phi = features(X) + 0
    found = []
    for convert in (np.asarray, torch.as_tensor):
        run = learner.begin(features, convert(Phi), 2, n_rows=300, budget=10**9)
        run.add(convert(Phi), convert(Z), convert(W), run.measure(convert(Phi)))
        found.append(scores(learner, run, features))
    np.testing.assert_allclose(found[1], found[0], atol=1e-7)


def test_memory_estimate_is_positive(learner):
    parts = learner.memory(1000, PassSize(10_000, 5, 1, np.dtype(float), "cpu"))
    assert parts
    assert all(size > 0 for size in parts.values())


@pytest.mark.parametrize("name", SUMS)
def test_merge_equals_one_run_and_keeps_the_other(name, features):
    learner = LEARNERS[name](C=0.5)
    left, right = run_over(learner, features, np.arange(120)), run_over(learner, features, np.arange(120, 300))
    before = scores(learner, right, features)
    merged = left.merge(right)
    expected = dense(features, X, Z, W, 0.5)
    np.testing.assert_allclose(scores(learner, merged, features), expected, atol=1e-7)
    np.testing.assert_array_equal(scores(learner, right, features), before)


def test_learner_without_merge_raises(learner, features):
    if learner.merges:
        pytest.skip("merges")
    run = learner.begin(features, features(X) + 0, 2, n_rows=300, budget=10**9)
    with pytest.raises(TypeError, match="cannot be merged"):
        run.merge(run)
    with pytest.raises(TypeError, match="reduce the weights"):
        run.decay(0.5)
