"""Every public estimator, fitted on dense and on sparse rows, is saved and loaded."""

import inspect

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags

import gramless

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 5))
IMAGES = RNG.integers(0, 255, size=(90, 8, 8)).astype(np.uint8)
ESTIMATORS = [
    name
    for name in sorted(gramless._EXPORTS)
    if inspect.isclass(getattr(gramless, name))
    and issubclass(getattr(gramless, name), BaseEstimator)
    and hasattr(getattr(gramless, name), "fit")
]


def targets(estimator):
    if get_tags(estimator).estimator_type == "regressor":
        return X[:, 0] * 2 + 1
    return np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_loaded_model_predicts_the_same(name, tmp_path):
    saved = 0
    for rows in (X, sp.csr_matrix(np.where(X > 0.3, X, 0.0)), X.astype(np.float32)):
        estimator = getattr(gramless, name)()
        if "random_state" in estimator.get_params():
            estimator.set_params(random_state=0)
        if "patch_size" in estimator.get_params():
            estimator.set_params(patch_size=4)
        tags = get_tags(estimator)
        if sp.issparse(rows) and not tags.input_tags.sparse:
            continue
        given = rows if tags.input_tags.two_d_array else IMAGES
        y = targets(estimator) if tags.target_tags.required else None
        estimator.fit(given, y)
        gramless.save(estimator, tmp_path / "m.skops")
        loaded = gramless.load(tmp_path / "m.skops")
        answer = "predict" if hasattr(estimator, "predict") else "transform"
        np.testing.assert_array_equal(getattr(loaded, answer)(given), getattr(estimator, answer)(given))
        saved += 1
    assert saved
