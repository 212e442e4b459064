"""Selection by leave-one-out within a memory budget."""

import numpy as np
import pytest

from gramless import LSSVC, LSSVR


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_factorisations_and_eigenvectors_give_the_same_selection(weighted, intercept):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.sin(X).sum(axis=1) + 0.1 * rng.normal(size=300)
    weights = rng.uniform(0.5, 2.0, 300) if weighted else None
    settings = {"C": "loo", "Cs": [0.1, 1.0, 10.0], "gamma": [0.1, 1.0], "fit_intercept": intercept}
    matrix = 300 * 300 * 8
    by_eigenvectors = LSSVR(**settings, memory_budget=4 * matrix).fit(X, y, weights)
    by_factorisations = LSSVR(**settings, memory_budget=2 * matrix).fit(X, y, weights)
    assert by_eigenvectors.solver_ == "eigenvectors"
    assert by_factorisations.solver_ == "cholesky"
    assert by_factorisations.best_params_ == by_eigenvectors.best_params_
    np.testing.assert_allclose(by_factorisations.scores_, by_eigenvectors.scores_, rtol=1e-8)
    np.testing.assert_allclose(by_factorisations.predict(X), by_eigenvectors.predict(X), rtol=1e-7, atol=1e-7)
    with pytest.raises(MemoryError, match="leave-one-out needs the full kernel matrix"):
        LSSVR(**settings, memory_budget=matrix).fit(X, y)


def test_a_singular_system_is_not_selected():
    X = np.repeat(np.arange(30.0), 20)[:, None]  # each point twenty times
    y = (X[:, 0] > 15).astype(int)
    search = LSSVC(C="loo", Cs=[1.0, 1e300], kernel="linear", memory_budget=2 * 600**2 * 8).fit(X, y)
    assert search.solver_ == "cholesky"
    assert np.isnan(search.scores_[0, 1])
    assert search.C_ == 1.0
