"""Single precision on the workers: the fits of one machine, whatever the targets' mean and the number of features."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import r2_score

from gramless import LSSVC, LSSVR, FourierLSSVR, NystromLSSVR

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("dask.distributed")


@pytest.fixture(scope="module", autouse=True)
def client():
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def cut(*arrays, rows=700):
    return [da.from_array(a, chunks=(rows, *a.shape[1:])) for a in arrays]


def smooth(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(np.float32)
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, -1] / 2 + 0.05 * rng.normal(size=n)
    return X, (y - y.mean()) / y.std()


@pytest.mark.parametrize("precision", [np.float32, np.float64])
@pytest.mark.parametrize(
    "machine",
    [
        LSSVR(solver="cg", random_state=0),
        NystromLSSVR(n_landmarks=100, random_state=0),
        FourierLSSVR(n_components=200, random_state=0),
    ],
    ids=lambda machine: type(machine).__name__,
)
def test_targets_of_a_large_mean(machine, precision):
    X, y = smooth(2000, 5)
    X, y = X.astype(precision), (y + 1e6).astype(np.float32)
    ours, theirs = clone(machine).fit(*cut(X, y)), clone(machine).fit(X, y)
    local = theirs.predict(X)
    # Of the spread, which is 1; a float32 prediction near 1e6 would be rounded to multiples of 0.06.
    np.testing.assert_allclose(ours.predict(X), local, rtol=0, atol=1e-4)
    np.testing.assert_allclose(ours.predict(cut(X)[0]).compute(), local, rtol=0, atol=1e-4)
    truth = clone(machine).fit(X.astype(np.float64), y.astype(np.float64) - 1e6).predict(X.astype(np.float64))
    assert np.abs(local - 1e6 - truth).max() < 0.02


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("n", [1000, 5000])
def test_few_features_and_defaults(d, n):
    X, y = smooth(n, d)
    labels = (y > 0).astype(int)
    ours = LSSVC(solver="cg", random_state=0).fit(*cut(X, labels))
    theirs = LSSVC(solver="cg", random_state=0).fit(X, labels)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=2e-3)
    exact = LSSVC(solver="cholesky").fit(X[:4000].astype(np.float64), labels[:4000])
    if n <= 4000:
        assert np.mean(ours.predict(X) != exact.predict(X.astype(np.float64))) < 0.01


def test_targets_of_a_large_mean_keep_their_score():
    X, y = smooth(2000, 5)
    y = (y + 1e5).astype(np.float32)
    ours = LSSVR(solver="cg", C=10.0, random_state=0).fit(*cut(X, y))
    theirs = LSSVR(solver="cg", C=10.0, random_state=0).fit(X, y)
    expected = r2_score(y.astype(np.float64), theirs.predict(X))
    assert expected > 0.95
    assert abs(r2_score(y.astype(np.float64), ours.predict(X)) - expected) < 1e-3


def test_workers_that_are_threads_do_not_share_a_block():
    """Many small pieces at once on two threads: each fit is the same as the first."""
    X, y = smooth(4000, 5)
    expected = NystromLSSVR(n_landmarks=100, random_state=0).fit(X, y).predict(X)
    for _ in range(5):
        ours = NystromLSSVR(n_landmarks=100, random_state=0).fit(*cut(X, y.astype(np.float32), rows=200))
        np.testing.assert_allclose(ours.predict(X), expected, atol=1e-3)
