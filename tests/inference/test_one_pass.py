"""Intervals, standard deviations and prediction sets of one-pass models and of `C="loo"`."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, make_friedman1

from gramless import (
    LSSVC,
    LSSVR,
    FourierLSSVC,
    FourierLSSVR,
    NystromLSSVC,
    NystromLSSVR,
    load,
    save,
)
from gramless.inference.intervals import jackknife_plus


def friedman(n, seed):
    return make_friedman1(n, noise=1.0, random_state=seed)


def test_landmarks_at_all_rows_equal_the_exact_model():
    X, y = friedman(120, 0)
    new, _ = friedman(40, 1)
    exact = LSSVR(gamma=0.5, C=10.0).fit(X, y)
    model = NystromLSSVR(gamma=0.5, C=10.0, landmarks=np.arange(120)).fit(X, y)
    np.testing.assert_allclose(model.predict(new, return_std=True)[1], exact.predict(new, return_std=True)[1], rtol=1e-4)
    for local in (False, True):
        ours, theirs = (m.predict_interval(new, 0.8, local=local) for m in (model, exact))
        # The exact model includes the change of the other widths when a row is left out.
        np.testing.assert_allclose(ours, theirs, rtol=1e-4 if not local else 0.02)


@pytest.mark.parametrize("kind", ["nystrom", "fourier"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_equals_jackknife_plus_with_a_fit_for_each_row(kind, dtype):
    X, y = friedman(60, 0)
    X = X.astype(dtype)
    new = friedman(20, 1)[0].astype(dtype)
    points = friedman(15, 2)[0].astype(dtype)

    def make():
        if kind == "nystrom":
            return NystromLSSVR(gamma=0.5, C=10.0, landmarks=points)
        return FourierLSSVR(gamma=0.5, C=10.0, n_components=30, random_state=0)

    rows = np.arange(60)
    without = [make().fit(X[rows != i], y[rows != i]) for i in rows]
    centre = np.stack([model.predict(new) for model in without], axis=1)
    residuals = np.array([y[i] - model.predict(X[[i]])[0] for i, model in enumerate(without)])
    truth = np.stack(jackknife_plus(centre, np.abs(residuals), 0.8), axis=1)
    rtol = 1e-6 if dtype == "float64" else 1e-2
    np.testing.assert_allclose(make().fit(X, y).predict_interval(new, 0.8), truth, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_deviations_equal_dense_algebra_with_the_landmark_covariance(dtype):
    """Dense algebra: covariance Q = K_nm K_mm^-1 K_mn, plus k(x, x) - q(x, x) on the diagonal for each new row."""
    from sklearn.metrics.pairwise import rbf_kernel

    X, y = friedman(80, 0)
    new, points, C = friedman(25, 1)[0], friedman(12, 2)[0], 10.0
    model = NystromLSSVR(gamma=0.5, C=C, landmarks=points.astype(dtype)).fit(X.astype(dtype), y)
    Kmm, Kmn, Kms = (rbf_kernel(points, other, gamma=0.5) for other in (points, X, new))
    Q, q, own = (A.T @ np.linalg.solve(Kmm, B) for A, B in ((Kmn, Kmn), (Kmn, Kms), (Kms, Kms)))
    inverse = np.linalg.inv(Q + np.eye(80) / C)
    u = inverse.sum(axis=1)
    lost = 1 - u @ q
    variances = np.diag(own) - np.sum(q * (inverse @ q), axis=0) + lost**2 / u.sum() + 1 - np.diag(own)
    found = model.predict(new.astype(dtype), return_std=True)[1]
    rtol = 1e-6 if dtype == "float64" else 1e-2
    np.testing.assert_allclose((found / found[0]) ** 2, variances / variances[0], rtol=rtol)


@pytest.mark.parametrize("coverage", [0.8, 0.95])
@pytest.mark.parametrize(
    "model",
    [
        NystromLSSVR(C=10.0, n_landmarks=100, random_state=0),
        FourierLSSVR(C=10.0, n_components=300, random_state=0),
        LSSVR(C="loo", Cs=[10.0]),
    ],
    ids=lambda model: type(model).__name__,
)
def test_intervals_have_the_requested_coverage(model, coverage):
    X, y = friedman(600, 0)
    X_new, y_new = friedman(4000, 1)
    for local in (False, True):
        ends = model.fit(X, y).predict_interval(X_new, coverage, local=local)
        inside = np.mean((ends[:, 0] <= y_new) & (y_new <= ends[:, 1]))
        assert abs(inside - coverage) < 3 * np.sqrt(coverage * (1 - coverage) * (1 / 400 + 1 / 4000))


def test_search_has_the_intervals_of_its_best_model(tmp_path):
    X, y = friedman(100, 0)
    search = LSSVR(C="loo", Cs=[1.0, 10.0], gamma=[0.5]).fit(X, y, sample_weight=np.arange(100) % 3)
    same = LSSVR(C=search.C_, gamma=0.5).fit(X, y, sample_weight=np.arange(100) % 3)
    assert search.optimism_ < 1.05  # two settings, of which one is far better
    search.optimism_ = 1.0
    np.testing.assert_allclose(search.predict_interval(X, 0.8), same.predict_interval(X, 0.8), rtol=1e-6)
    save(search, tmp_path / "m.skops")
    deviations = load(tmp_path / "m.skops").predict(X, return_std=True)[1]
    np.testing.assert_allclose(deviations, same.predict(X, return_std=True)[1], rtol=1e-6)


def test_intervals_of_batches_files_weights_and_outputs_agree(tmp_path):
    X, y = friedman(300, 0)
    settings = {"gamma": 0.5, "C": 10.0, "landmarks": X[:40].copy()}
    whole = NystromLSSVR(**settings, random_state=0).fit(X, y)
    truth = whole.predict_interval(X, 0.9)
    pieces = NystromLSSVR(**settings, random_state=0)
    for start in range(0, 300, 100):
        pieces.partial_fit(X[start : start + 100], y[start : start + 100])
    np.testing.assert_allclose(pieces.predict_interval(X, 0.9), truth, rtol=1e-6)
    pieces.partial_fit(X, 3 * y)
    assert not np.allclose(pieces.predict_interval(X, 0.9), truth), "more rows are another process"
    save(whole, tmp_path / "m.skops")
    np.testing.assert_allclose(load(tmp_path / "m.skops").predict_interval(X, 0.9), truth)
    both = NystromLSSVR(**settings).fit(X, np.column_stack([y, -2 * y]))
    ends = both.predict_interval(X, 0.9)
    np.testing.assert_allclose(ends[:, 0], truth, rtol=1e-6)
    np.testing.assert_allclose(ends[:, 1, ::-1], -2 * truth, rtol=1e-6)
    assert both.predict(X, return_std=True)[1].shape == (300, 2)


def test_models_without_sums_raise():
    X, y = friedman(60, 0)
    with pytest.raises(ValueError, match="no sums"):
        FourierLSSVR(n_components=10, method="online", epochs=1).fit(X, y).predict_interval(X)
    finished = NystromLSSVR(n_landmarks=10).fit(X, y).finish()
    with pytest.raises(ValueError, match="no sums"):
        finished.predict_interval(X, local=True)
    with pytest.raises(ValueError, match="no sums"):
        finished.predict(X, return_std=True)


def test_finished_model_has_intervals_of_constant_width(tmp_path):
    X, y = friedman(2000, 0)
    X_new, y_new = friedman(2000, 1)
    model = NystromLSSVR(n_landmarks=50, C=10.0, random_state=0).fit(X, y)
    before = model.predict_interval(X_new, 0.9)
    save(model.finish(), tmp_path / "m.skops")
    after = load(tmp_path / "m.skops").predict_interval(X_new, 0.9)
    np.testing.assert_allclose(after, before, atol=0.2)
    widths = np.diff(after)[:, 0]
    np.testing.assert_allclose(widths, widths[0])
    assert np.mean((after[:, 0] <= y_new) & (y_new <= after[:, 1])) == pytest.approx(0.9, abs=0.025)


@pytest.mark.parametrize(
    "model",
    [
        NystromLSSVC(C=10.0, n_landmarks=150, probability="temperature", random_state=0),
        NystromLSSVC(C=10.0, n_landmarks=150, probability="sigmoid", random_state=0),
        FourierLSSVC(C=10.0, n_components=300, probability="temperature", random_state=0),
        LSSVC(C="loo", Cs=[10.0]),
    ],
    ids=str,
)
def test_sets_have_the_requested_coverage_and_are_nested(model, tmp_path):
    X, y = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(y))
    X, y = X[order], y[order]
    model.fit(X[:900], y[:900])
    sets = {c: model.predict_set(X[900:], c, random_state=0) for c in (0.8, 0.9, 0.98)}
    for coverage, found in sets.items():
        inside = found[np.arange(len(found)), y[900:]].mean()
        assert abs(inside - coverage) < 3 * np.sqrt(coverage * (1 - coverage) * (1 / 897 + 1 / 900))
    assert (sets[0.8] <= sets[0.9]).all()
    assert (sets[0.9] <= sets[0.98]).all()
    assert model.predict_set(X[900:], 0.9, per_class=True, random_state=0).any()
    save(model, tmp_path / "m.skops")
    np.testing.assert_array_equal(load(tmp_path / "m.skops").predict_set(X[900:], 0.9, random_state=0), sets[0.9])
    if model.probability == "temperature":
        np.testing.assert_array_equal(model.classes_[model.predict_proba(X).argmax(axis=1)], model.predict(X))
    if hasattr(model, "finish"):
        np.testing.assert_array_equal(model.finish().predict_set(X[900:], 0.9, random_state=0), sets[0.9])


def test_sets_without_leave_one_out_probabilities_raise():
    X, y = load_digits(return_X_y=True)
    with pytest.raises(ValueError, match="leave-one-out"):
        NystromLSSVC(n_landmarks=20).fit(X[:100], y[:100]).predict_set(X)


def test_landmarks_are_recognised_among_sparse_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 4)) * (rng.uniform(size=(150, 4)) < 0.6)
    y = X[:, 0] + 0.1 * rng.normal(size=150)
    dense, sparse = (
        NystromLSSVR(gamma=0.5, C=10.0, n_landmarks=60, random_state=0).fit(A, y) for A in (X, sp.csr_matrix(X))
    )
    np.testing.assert_allclose(sparse.predict_interval(X[:20]), dense.predict_interval(X[:20]), rtol=1e-8)
    np.testing.assert_allclose(
        sparse.predict(X[:20], return_std=True)[1], dense.predict(X[:20], return_std=True)[1], rtol=1e-6
    )
