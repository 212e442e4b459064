"""Models on fewer points."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits

import gramless
from gramless import LSSVC, LSSVR, KernelSVC, NystromLSSVC, compress
from gramless.models import compress as module

X, Y = load_digits(return_X_y=True)


def test_fewer_points_say_nearly_the_same_and_what_changed(tmp_path):
    model = LSSVC(C=10.0).fit(X[:900], Y[:900])
    small = compress(model, n_points=150, random_state=0)
    assert small.points_.shape == (150, 64)
    assert model.points_.shape == (900, 64)
    told = small.compression_
    assert (told["n_points"], told["before"], told["held_out"]) == (150, 900, 180)
    others = X[900:]
    changed = np.mean(small.predict(others) != model.predict(others))
    assert changed < 0.06
    assert abs(told["changed"] - changed) < 0.05
    gramless.save(small, tmp_path / "m.skops")
    np.testing.assert_array_equal(gramless.load(tmp_path / "m.skops").predict(others), small.predict(others))


def test_moving_points_beats_choosing_them():
    model = LSSVC(C=10.0).fit(X[:900], Y[:900])
    moved, chosen = (compress(model, n_points=60, rounds=rounds, random_state=0) for rounds in (40, 0))
    full = model.decision_function(X[900:])
    wrong = [np.mean((small.decision_function(X[900:]) - full) ** 2) for small in (moved, chosen)]
    assert wrong[0] < 0.8 * wrong[1]


def test_coefficients_are_least_squares():
    """Without moves: the dense solution of the same problem."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(120, 3))
    model = LSSVR(kernel="laplacian", gamma=0.5).fit(rows, rows[:, 0] * rows[:, 1])
    points = rows[:15]
    found = module._solved(model.kernel_, rows, model.predict(rows)[:, None], points)
    block = np.column_stack([model.kernel_(rows, points), np.ones(120)])
    expected = np.linalg.lstsq(block, model.predict(rows)[:, None], rcond=None)[0]
    np.testing.assert_allclose(block @ np.vstack([found.coef, found.bias[None]]), block @ expected, atol=1e-6)


def test_as_few_points_as_a_loss_allows():
    model = LSSVR(C=10.0, gamma=0.3).fit(np.linspace(-3, 3, 400)[:, None], np.sin(np.linspace(-3, 3, 400)))
    small = compress(model, loss=1e-3, random_state=0)
    assert len(small.points_) <= 32
    assert small.compression_["changed"] <= 1e-3
    grid = np.linspace(-3, 3, 50)[:, None]
    np.testing.assert_allclose(small.predict(grid), model.predict(grid), atol=0.1)


def test_sparse_rows():
    rows = sp.csr_matrix(np.where(X[:300] > 8, X[:300], 0.0))
    assert len(compress(LSSVC(gamma=1e-3).fit(rows, Y[:300]), n_points=40, random_state=0).points_) == 40


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "give one of"),
        ({"n_points": 5, "loss": 0.1}, "give one of"),
        ({"n_points": 0}, "n_points must lie"),
        ({"loss": 2.0}, "loss must lie"),
    ],
)
def test_what_makes_no_sense(options, words):
    with pytest.raises(ValueError, match=words):
        compress(LSSVC().fit(X[:200], Y[:200]), **options)


def test_what_cannot_be_compressed():
    with pytest.raises(ValueError, match="KernelSVC is not a kernel expansion"):
        compress(KernelSVC().fit(X[:200], Y[:200]), n_points=10)
    with pytest.raises(ValueError, match="NystromLSSVC cannot be compressed: fit it with fewer landmarks"):
        compress(NystromLSSVC(n_landmarks=50, random_state=0).fit(X[:200], Y[:200]), n_points=10)
    with pytest.raises(ValueError, match="too few"):
        compress(LSSVC().fit(X[:50], Y[:50]), n_points=10)
