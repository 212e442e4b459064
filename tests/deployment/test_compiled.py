"""Compiled models predict the same as the original models."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits, make_regression

from gramless import LSSVC, LSSVR, KernelSVC, NystromLSSVC, NystromNovelty, PrototypeLSSVC, compiled
from gramless.deployment.compiled import compiled_novelty
from gramless.kernels import RBF, Laplacian, Linear, ScaledColumns

X, Y = load_digits(return_X_y=True)
X, Y = X[:200] / 16, Y[:200]


@pytest.mark.parametrize(
    "model",
    [
        LSSVC(probability="softmax"),
        LSSVC(kernel=RBF(0.1) + Linear(), probability="sigmoid"),
        LSSVC(kernel=Laplacian(0.1)),
        LSSVC(kernel=ScaledColumns(RBF(0.1), np.linspace(0.5, 1.5, 64))),
        LSSVC(kernel=ScaledColumns(Laplacian(0.1), np.linspace(0.0, 1.5, 64))),
        NystromLSSVC(n_landmarks=40, random_state=0),
        PrototypeLSSVC(n_prototypes=5, random_state=0),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("two", [False, True])
# The values of the linear kernel far from the origin are large, so that the fit warns of its float32 coefficients.
@pytest.mark.filterwarnings("ignore:rounding errors of float32 coefficients")
def test_classes(model, dtype, two):
    y = np.where(Y > 4, "large", "small") if two else Y
    rows = (X + 100).astype(dtype)  # far from the origin
    model = clone(model).fit(rows, y)
    quick = compiled(model)
    scores, found = model.decision_function(rows), quick.decision_function(rows)
    tolerance = 1e-9 if dtype == np.float64 else 64 * np.finfo(dtype).eps * np.abs(model.dual_coef_).sum()
    np.testing.assert_allclose(found, scores, atol=tolerance)
    clear = np.abs(scores) > tolerance if scores.ndim == 1 else np.ptp(np.sort(scores)[:, -2:], axis=1) > 2 * tolerance
    np.testing.assert_array_equal(quick.predict(rows)[clear], model.predict(rows)[clear])
    one = int(np.flatnonzero(clear)[0])
    assert quick.predict_one(rows[one]) == model.predict(rows[[one]])[0]
    if hasattr(model, "predict_proba"):
        np.testing.assert_allclose(quick.predict_proba(rows), model.predict_proba(rows), atol=10 * tolerance)


def test_single_and_multiple_outputs():
    rows, y = make_regression(100, 5, n_targets=2, random_state=0)
    many, one = LSSVR(C=100.0).fit(rows, y), LSSVR(C=100.0).fit(rows, y[:, 0])
    np.testing.assert_allclose(compiled(many).predict(rows), many.predict(rows))
    np.testing.assert_allclose(compiled(one).predict(rows), one.predict(rows))
    np.testing.assert_allclose(compiled(many).predict_one(rows[3]), many.predict(rows[3:4])[0])
    assert compiled(one).predict_one(rows[3]) == pytest.approx(one.predict(rows[3:4])[0])
    single = compiled(one, dtype="float32")
    assert single.dtype == np.float32
    np.testing.assert_allclose(single.predict(rows), one.predict(rows), rtol=1e-2, atol=1.0)


@pytest.mark.parametrize("n_labels", [2, 3])
def test_multilabel(n_labels):
    labels = np.column_stack([Y % 2, Y > 4, Y % 3 == 0])[:, :n_labels].astype(int)
    model = LSSVC(C=10.0, probability="softmax").fit(X, labels)
    quick = compiled(model)
    np.testing.assert_allclose(quick.decision_function(X), model.decision_function(X), atol=1e-9)
    np.testing.assert_array_equal(quick.predict(X), model.predict(X))
    np.testing.assert_array_equal(quick.predict_one(X[0]), model.predict(X[:1])[0])
    np.testing.assert_allclose(quick.predict_proba(X), model.predict_proba(X), atol=1e-9)


def test_sparse_points():
    rows = sp.csr_matrix(np.where(X > 0.5, X, 0.0))
    model = LSSVC().fit(rows, Y)
    np.testing.assert_allclose(compiled(model).decision_function(rows.toarray()), model.decision_function(rows), atol=1e-9)


def test_unsupported_models_raise():
    with pytest.raises(ValueError, match="KernelSVC is not a kernel expansion"):
        compiled(KernelSVC().fit(X, Y))
    with pytest.raises(ValueError, match="does not have its points"):
        compiled(LSSVC(kernel="precomputed").fit(X @ X.T, Y))
    with pytest.raises(ValueError, match="not fitted"):
        compiled(LSSVC())


@pytest.mark.parametrize("kernel", ["rbf", Laplacian(0.1)], ids=str)
@pytest.mark.parametrize("C", [1e-3, 1.0, 1e4])
def test_novelty(kernel, C):
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(900, 4)) + 5
    # Some landmarks twice: their Gram matrix is singular.
    detector = NystromNovelty(kernel=kernel, C=C, landmarks=np.r_[seen[:40], seen[:3]], false_alarms=0.2, random_state=0)
    detector.fit(seen)
    rows = rng.normal(scale=2, size=(600, 4)) + 5  # more than are looked at in one piece
    distances = detector.decision_function(rows)
    clear = np.abs(distances) > 1e-8
    flags = compiled_novelty(detector)(rows)
    assert 0 < flags.sum() < len(flags)
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(flags[clear], distances[clear] < 0)
