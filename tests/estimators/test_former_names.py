"""The former estimators `LSSVCCV` and `LSSVRCV` are functions that return `LSSVC(C="loo")` and `LSSVR(C="loo")`."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

import gramless
from gramless import LSSVC, LSSVR
from gramless.kernels import RBF, Linear


def test_the_former_names_warn_and_return_the_present_estimators():
    with pytest.warns(FutureWarning, match=r'LSSVCCV is deprecated and will be removed: use LSSVC\(C="loo"\)'):
        search = gramless.LSSVCCV(Cs=[0.1, 1.0], param_grid={"gamma": [0.1, 0.2]}, scoring="balanced_accuracy")
    expected = LSSVC(C="loo", Cs=[0.1, 1.0], gamma=[0.1, 0.2], scoring="balanced_accuracy")
    assert search.get_params() == expected.get_params()
    with pytest.warns(FutureWarning, match="use LSSVR"):
        assert gramless.LSSVRCV().get_params() == LSSVR(C="loo").get_params()
    assert "LSSVCCV" not in gramless.__all__


def test_settings_of_kernel_objects_become_a_list_of_kernels():
    with pytest.warns(FutureWarning):
        search = gramless.LSSVRCV(kernel=RBF() * Linear(), param_grid={"left__gamma": [0.1, 1.0]})
    assert [kernel.left.gamma for kernel in search.kernel] == [0.1, 1.0]


def test_all_lists_are_compared_once_each():
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    search = LSSVC(C="loo", Cs=[1.0, 10.0], kernel=["linear", "rbf", "poly"], gamma=np.array([0.05, 0.1]), degree=(2, 3))
    search.fit(X, y)
    assert [params["kernel"] for params in search.params_] == ["linear"] + 2 * ["rbf"] + 4 * ["poly"]
    assert search.params_[4] == {"kernel": "poly", "gamma": 0.05, "degree": 3}
    chosen = clone(search).set_params(**search.best_params_).set_params(degree=3).fit(X, y)
    np.testing.assert_allclose(chosen.decision_function(X), search.decision_function(X), atol=1e-8)


def test_labels_of_several_columns_and_models_without_an_intercept():
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    Y = np.column_stack([y == 0, y < 2, X[:, 0] > 0]).astype(int)
    search = LSSVC(C="loo", gamma=[0.01, 0.1]).fit(X, Y)
    fixed = LSSVC(C=search.C_, gamma=search.best_params_["gamma"]).fit(X, Y)
    np.testing.assert_allclose(search.decision_function(X), fixed.decision_function(X), atol=1e-7)
    assert 0.8 < search.best_score_ <= 1
    values = LSSVR(C="loo", Cs=[0.1, 1.0], gamma=0.1, fit_intercept=False).fit(X, X[:, 0] + 3)
    rest, left_out = np.arange(len(X)) != 7, LSSVR(C=values.C_, gamma=values.kernel_.gamma, fit_intercept=False)
    expected = left_out.fit(X[rest], X[rest, 0] + 3).predict(X[7:8])
    np.testing.assert_allclose(values.loo_decision_[7], expected[0], rtol=1e-8)
    assert values.intercept_ == 0
