"""NystromNovelty against the exact Gaussian process, and its false-positive rate."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics import roc_auc_score
from sklearn.metrics.pairwise import rbf_kernel

import gramless
from gramless import NystromNovelty
from gramless.inference.feature_process import FeatureProcess
from gramless.streaming.learners.ridge_sums import RidgeSums


def rows(n=400, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def test_equals_the_exact_gaussian_process_if_all_rows_are_landmarks():
    X, new, gamma, C = rows(80), 2 * rows(50, seed=1), 0.3, 10.0
    model = NystromNovelty(gamma=gamma, C=C, landmarks=X).fit(X)
    process = GaussianProcessRegressor(RBF((2 * gamma) ** -0.5), alpha=1 / C, optimizer=None).fit(X, X[:, 0])
    truth = process.predict(new, return_std=True)[1] ** 2
    np.testing.assert_allclose(-model.score_samples(new), truth, atol=1e-6)


def test_calibration_scores_each_row_given_the_other_rows():
    X, gamma, C = rows(40), 0.3, 10.0
    model = NystromNovelty(gamma=gamma, C=C, landmarks=X).fit(X)
    alone = []
    for i in range(40):
        others = np.delete(X, i, axis=0)
        K, k = rbf_kernel(others, gamma=gamma), rbf_kernel(X[[i]], others, gamma=gamma)[0]
        alone.append(1 - k @ np.linalg.solve(K + np.eye(39) / C, k))
    np.testing.assert_allclose(model.calibration_, np.sort(alone), atol=1e-6)


def test_landmark_variance_equals_the_formula():
    X, gamma, C, chosen = rows(200), 0.3, 5.0, np.arange(0, 200, 10)
    model = NystromNovelty(gamma=gamma, C=C, landmarks=chosen).fit(X)
    new = 2 * rows(30, seed=1)
    Kmm, Kmn, Km = (rbf_kernel(X[chosen], other, gamma=gamma) for other in (X[chosen], X, new))
    inner = np.linalg.inv(Kmn @ Kmn.T + Kmm / C)
    truth = 1 - np.sum(Km * np.linalg.solve(Kmm, Km), axis=0) + np.sum(Km * (inner @ Km), axis=0) / C
    np.testing.assert_allclose(-model.score_samples(new), truth, atol=1e-6)


@pytest.mark.parametrize("n", [400, 3000])
def test_the_false_positive_rate_is_the_requested_one(n):
    """Means over fits, so that the coverage of one sample of rows does not matter."""
    shares = []
    for seed in range(8):
        model = NystromNovelty(false_alarms=0.1, n_landmarks=100, random_state=seed).fit(rows(n, seed=seed))
        shares.append((model.predict(rows(4000, seed=100 + seed)) == -1).mean())
    assert np.mean(shares) == pytest.approx(0.1, abs=0.015)


def test_p_values_are_uniform_for_inliers_and_small_for_outliers():
    model = NystromNovelty(random_state=0).fit(rows(5000))
    usual = model.p_values(rows(4000, seed=1))
    np.testing.assert_allclose(np.quantile(usual, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.03)
    far = rows(50, seed=2) + 8
    assert model.p_values(far).max() < 0.001
    assert (model.predict(far) == -1).all()
    np.testing.assert_allclose(model.score_samples(1e6 * far), -1.0)


def test_rows_between_two_clusters_are_novel():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(2000, 2)) - 4, rng.normal(size=(2000, 2)) + 4])
    fresh = np.concatenate([rng.normal(size=(300, 2)) - 4, rng.normal(size=(300, 2)) + 4])
    strangers = rng.normal(size=(300, 2))  # at the mean of all rows, where there are none
    model = NystromNovelty(gamma=0.5, n_landmarks=200, random_state=0).fit(X)
    scores = np.concatenate([model.decision_function(fresh), model.decision_function(strangers)])
    assert roc_auc_score(np.repeat([1, 0], [600, 300]), scores) > 0.97


def test_sparse_float32_and_files(tmp_path):
    X = np.where(rows() > -0.7, rows(), 0.0)
    model = NystromNovelty(n_landmarks=50, gamma=0.3, random_state=0).fit(X)
    # A narrow kernel, whose landmark matrix is well conditioned: a wide one amplifies rounding errors of sparse products.
    dense, sparse = (NystromNovelty(n_landmarks=50, gamma=3.0, random_state=0).fit(rows) for rows in (X, sp.csr_matrix(X)))
    np.testing.assert_allclose(sparse.score_samples(sp.csr_matrix(X)), dense.score_samples(X), atol=1e-9)
    single = NystromNovelty(n_landmarks=50, gamma=0.3, random_state=0).fit(X.astype(np.float32))
    # Directions below the rounding of float32 count as unknown.
    np.testing.assert_allclose(single.score_samples(X), model.score_samples(X), atol=0.05)
    assert np.mean(np.abs(single.score_samples(X) - model.score_samples(X))) < 2e-3
    gramless.save(model, tmp_path / "m.skops")
    np.testing.assert_array_equal(gramless.load(tmp_path / "m.skops").p_values(X), model.p_values(X))


@pytest.mark.parametrize("constant", [True, False])
def test_the_process_from_sums_equals_that_from_rows(constant):
    """Leverages by the hat matrix of a ridge regression, with an unpenalised bias or none."""
    rng = np.random.default_rng(0)
    Phi, ridge = rng.normal(size=(60, 5)) + 1, 0.7
    sums = RidgeSums(5, 1)
    sums.add(Phi, np.zeros((60, 1)))
    process = FeatureProcess.from_sums(sums, ridge, constant=constant)
    design = np.column_stack([Phi, np.ones(60)]) if constant else Phi
    penalty = ridge * np.diag([1.0] * 5 + [0.0] * constant)
    hat = design @ np.linalg.solve(design.T @ design + penalty, design.T)
    np.testing.assert_allclose(process.leverages(Phi), np.diag(hat), atol=1e-10)


@pytest.mark.parametrize("settings", [{"C": 0}, {"n_landmarks": 2.5}, {"false_alarms": 0}, {"false_alarms": "auto"}])
def test_invalid_settings_raise(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        NystromNovelty(**settings).fit(rows(30))


def test_landmarks_that_are_all_rows_leave_no_row_for_the_threshold():
    with pytest.raises(ValueError, match="every row is a landmark"):
        NystromNovelty(landmarks=np.arange(10)).fit(np.random.RandomState(0).normal(size=(10, 2)))
