"""The process by conjugate gradients against the one by a factorisation."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from gramless import LSSVR
from gramless.inference import posterior
from gramless.inference.posterior import ExactPosterior, IterativePosterior, LeastSquaresModel

BUDGET = 10**9


def machine(n=1500, d=4, *, gamma=0.2, C=10.0, fit_intercept=True, weighted=False, noise=0.3, dtype=np.float32):
    rng = np.random.default_rng(n + d)
    X, new = rng.normal(size=(n, d)).astype(dtype), rng.normal(size=(40, d)).astype(dtype)
    y = np.sin(X[:, 0]) + X[:, 1] + noise * rng.normal(size=n)
    w = rng.uniform(0.5, 2.0, size=n) if weighted else None
    model = LSSVR(C=C, gamma=gamma, fit_intercept=fit_intercept, solver="cholesky").fit(X, y, sample_weight=w)
    kept = LeastSquaresModel(
        model.kernel_, model.points_, model.dual_coef_, model.intercept_, 1 / C, model._weights, fit_intercept
    )
    return kept, new


def exact_variances(kept, new):
    (batch,) = ExactPosterior(kept).batches(new.astype(np.float64))
    return batch.variances


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"C": 0.1},
        {"C": 1000.0, "dtype": np.float64},
        {"gamma": 2.0, "C": 100.0},
        {"d": 20, "gamma": 0.05},
        {"weighted": True},
        {"fit_intercept": False},
    ],
)
def test_variances_are_within_a_hundredth(settings):
    kept, new = machine(**settings)
    (batch,) = IterativePosterior(kept, BUDGET, random_state=0).batches(new)
    np.testing.assert_allclose(batch.variances, exact_variances(kept, new), rtol=0.01)


def test_few_landmarks_cost_iterations_and_not_accuracy():
    kept, new = machine(gamma=1.0, C=100.0, dtype=np.float64)
    for m in (0, 50, 400):
        process = IterativePosterior(kept, BUDGET, random_state=0, n_landmarks=m)
        assert process.plan.n_landmarks == m
        (batch,) = process.batches(new)
        np.testing.assert_allclose(batch.variances, exact_variances(kept, new), rtol=0.01)


def test_what_is_still_to_come_is_never_more_than_the_bound():
    kept, new = machine(n=800, gamma=0.5, C=30.0, dtype=np.float64)
    process = IterativePosterior(kept, BUDGET, random_state=0)
    K = posterior.evaluate(kept.kernel, process.op.X, new)
    truth = np.sum(K * np.linalg.solve(process.op.dense(np.float64), K), axis=0)
    forms = posterior._QuadraticForms(K, process.op, process.preconditioner)
    steps = posterior.CG(tol=1e-12, preconditioner=forms).steps(process.op, K, np.zeros_like(K), np.random.RandomState(0))
    for _ in range(4):
        forms.update(next(steps).W)
        missing = truth - forms.values
        assert (missing >= -1e-10).all()
        assert (missing <= forms.bound * forms.residual_forms[-1] + 1e-10).all()


def test_batches_agree_with_one_another_and_with_the_probes_alone():
    kept, new = machine()
    whole = IterativePosterior(kept, BUDGET, random_state=0)
    (first,) = whole.batches(new)
    (second,) = whole.batches(new)  # without the probes
    np.testing.assert_allclose(second.variances, first.variances, rtol=5e-3)
    parts = IterativePosterior(kept, BUDGET, random_state=0)
    parts.rows_per_batch = 16
    alone = parts.scale  # before any new row
    np.testing.assert_allclose(alone, whole.scale, rtol=5e-3)
    np.testing.assert_allclose(np.concatenate([b.variances for b in parts.batches(new)]), first.variances, rtol=5e-3)


def test_no_variances_no_iterations():
    kept, new = machine(n=500)
    process = IterativePosterior(kept, BUDGET, random_state=0)
    (batch,) = process.batches(new, variances=False)
    assert process._estimates is None
    assert np.isnan(batch.variances).all()
    (full,) = process.batches(new)
    np.testing.assert_array_equal(batch.means, full.means)


def test_warning_if_the_iterations_end_early():
    kept, new = machine(n=500, gamma=1.0, C=1e4)
    process = IterativePosterior(kept, BUDGET, random_state=0, max_iter=1)
    process.preconditioner = None
    with pytest.warns(ConvergenceWarning, match="may still fall"):
        list(process.batches(new))


def test_the_scale_is_that_of_the_leave_one_out_residuals():
    kept, _ = machine(n=3000, gamma=1.0, C=10.0, dtype=np.float64)
    exact = ExactPosterior(kept).scale
    found = [IterativePosterior(kept, BUDGET, random_state=seed).scale for seed in range(3)]
    np.testing.assert_allclose(np.mean(found, axis=0), exact, rtol=5e-3)
