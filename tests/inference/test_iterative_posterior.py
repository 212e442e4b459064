"""`IterativePosterior` (conjugate gradients) against `ExactPosterior` (factorisation)."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from gramless import LSSVR
from gramless.inference import posterior
from gramless.inference.posterior import ExactPosterior, IterativePosterior, LeastSquaresModel
from gramless.inference.tuning import TUNING
from gramless.linalg.least_squares import planned_preconditioner

BUDGET = 10**9


def fitted_model(n=1500, d=4, *, gamma=0.2, C=10.0, fit_intercept=True, weighted=False, noise=0.3, dtype=np.float32):
    rng = np.random.default_rng(n + d)
    X, new = rng.normal(size=(n, d)).astype(dtype), rng.normal(size=(40, d)).astype(dtype)
    y = np.sin(X[:, 0]) + X[:, 1] + noise * rng.normal(size=n)
    w = rng.uniform(0.5, 2.0, size=n) if weighted else None
    model = LSSVR(C=C, gamma=gamma, fit_intercept=fit_intercept, solver="cholesky").fit(X, y, sample_weight=w)
    model = LeastSquaresModel(
        model.kernel_, model.points_, model.dual_coef_, model.intercept_, 1 / C, model._weights, fit_intercept
    )
    return model, new


def exact_variances(model, new):
    (batch,) = ExactPosterior(model).batches(new.astype(np.float64))
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
    model, new = fitted_model(**settings)
    (batch,) = IterativePosterior(model, BUDGET, random_state=0).batches(new)
    np.testing.assert_allclose(batch.variances, exact_variances(model, new), rtol=0.01)


def test_variances_do_not_depend_on_the_number_of_landmarks():
    model, new = fitted_model(gamma=1.0, C=100.0, dtype=np.float64)
    for m in (0, 50, 400):
        process = IterativePosterior(model, BUDGET, random_state=0)
        process.preconditioner = planned_preconditioner(process.op, replace(process.plan, n_landmarks=m), process.rng)
        (batch,) = process.batches(new)
        np.testing.assert_allclose(batch.variances, exact_variances(model, new), rtol=0.01)


def test_missing_part_of_a_form_is_at_most_its_bound():
    model, new = fitted_model(n=800, gamma=0.5, C=30.0, dtype=np.float64)
    process = IterativePosterior(model, BUDGET, random_state=0)
    K = posterior.evaluate(model.kernel, process.op.X, new)
    truth = np.sum(K * np.linalg.solve(process.op.dense(np.float64), K), axis=0)
    forms = posterior._QuadraticForms(K, process.op, process.preconditioner)
    steps = posterior.CG(tol=1e-12, preconditioner=forms).steps(process.op, K, np.zeros_like(K), np.random.RandomState(0))
    for _ in range(4):
        forms.update(next(steps).W)
        missing = truth - forms.values
        assert (missing >= -1e-10).all()
        assert (missing <= forms.bound * forms.residual_forms[-1] + 1e-10).all()


def test_variances_do_not_depend_on_batches_or_on_the_first_request():
    model, new = fitted_model()
    whole = IterativePosterior(model, BUDGET, random_state=0)
    (first,) = whole.batches(new)
    (second,) = whole.batches(new)  # without the probes
    np.testing.assert_allclose(second.variances, first.variances, rtol=5e-3)
    parts = IterativePosterior(model, BUDGET, random_state=0)
    parts.rows_per_batch = 16
    alone = parts.scale  # before any new row
    np.testing.assert_allclose(alone, whole.scale, rtol=5e-3)
    np.testing.assert_allclose(np.concatenate([b.variances for b in parts.batches(new)]), first.variances, rtol=5e-3)


def test_means_alone_need_no_iterations():
    model, new = fitted_model(n=500)
    process = IterativePosterior(model, BUDGET, random_state=0)
    (batch,) = process.batches(new, variances=False)
    assert process._estimates is None
    assert np.isnan(batch.variances).all()
    (full,) = process.batches(new)
    np.testing.assert_array_equal(batch.means, full.means)


def test_warning_if_the_iterations_end_early():
    model, new = fitted_model(n=500, gamma=1.0, C=1e4)
    process = IterativePosterior(model, BUDGET, random_state=0, tuning=replace(TUNING, variance_iterations=1))
    process.preconditioner = None
    with pytest.warns(ConvergenceWarning, match="may still fall"):
        list(process.batches(new))


def test_scale_equals_the_exact_scale_in_the_mean_over_seeds():
    model, _ = fitted_model(n=3000, gamma=1.0, C=10.0, dtype=np.float64)
    exact = ExactPosterior(model).scale
    found = [IterativePosterior(model, BUDGET, random_state=seed).scale for seed in range(3)]
    np.testing.assert_allclose(np.mean(found, axis=0), exact, rtol=5e-3)
