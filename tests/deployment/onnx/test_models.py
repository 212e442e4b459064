"""Every estimator as ONNX operators: predictions in onnxruntime equal those in Python."""

import numpy as np
import onnxruntime
import pytest
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_digits, make_regression

import gramless
from gramless import to_onnx
from gramless.deployment.onnx.convert import MODEL_GRAPHS
from gramless.kernels import RBF, Linear

SETTINGS = {
    "KernelSVC": [{"probability": "sigmoid"}, {"multi_class": "ovr", "probability": "sigmoid"}],
    "KernelSVR": [{}, {"loss": "pinball", "quantile": [0.9, 0.1, 0.5]}, {"nu": 0.3}],
    "LSSVC": [{}, {"probability": "sigmoid"}, {"probability": "temperature"}, {"kernel": RBF(0.02) + 0.1 * Linear()}],
    "MKLClassifier": [{"kernels": [RBF(0.02), Linear()]}],
    "NystromLSSVC": [{"n_landmarks": 40}, {"n_landmarks": 40, "probability": "sigmoid"}],
    "PrototypeLSSVC": [{"n_prototypes": 20}],
}
LABELS = {"whole numbers": lambda y: y, "two strings": lambda y: np.where(y > 4, "large", "small")}
CASES = [
    (cls, setting)
    for cls in sorted(MODEL_GRAPHS, key=lambda c: c.__name__)
    if "Table" not in cls.__name__
    for setting in SETTINGS.get(cls.__name__, [{}])
]


def run(model, X):
    session = onnxruntime.InferenceSession(to_onnx(model).SerializeToString())
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"X": X}), strict=True))


def rounding(model, dtype):
    """Return a bound on the effect of another order of summation, in which each term is rounded."""
    coef = next(getattr(model, name) for name in ("coef_", "dual_coef_") if hasattr(model, name))
    return max(1e-5, 8 * np.finfo(dtype).eps * np.abs(coef).sum())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("cls", "setting"), CASES, ids=lambda c: getattr(c, "__name__", str(c)))
def test_graph_equals_model(cls, setting, dtype):
    random = {"random_state": 0} if "random_state" in cls().get_params() else {}
    model = cls(**setting, **random)
    if not is_classifier(model):
        X, y = make_regression(150, 6, n_targets=1, noise=0.1, random_state=0)
        X, y = X.astype(dtype), (y / y.std()).astype(dtype)
        model.fit(X, y)
        if hasattr(model, "decision_function"):
            scores = model.decision_function(X)
            np.testing.assert_allclose(run(model, X)["scores"][:, 0], scores, rtol=1e-5, atol=rounding(model, dtype))
            X = X[np.abs(scores) > 2 * rounding(model, dtype)]
        np.testing.assert_allclose(run(model, X)["prediction"], model.predict(X), rtol=1e-5, atol=rounding(model, dtype))
        return
    X, y = load_digits(return_X_y=True)
    X, y = X[:300].astype(dtype) / 16, y[:300]
    for make in LABELS.values():
        model = clone(model).fit(X, make(y))
        found, scores = run(model, X), model.decision_function(X)
        atol = rounding(model, dtype)
        np.testing.assert_allclose(found["scores"].reshape(scores.shape), scores, rtol=1e-5, atol=atol)
        ordered = np.sort(scores, axis=-1)
        margin = np.abs(scores) if scores.ndim == 1 else ordered[:, -1] - ordered[:, -2]
        clear = margin > 2 * atol
        assert clear.mean() > 0.9
        np.testing.assert_array_equal(found["label"][clear], model.predict(X)[clear])
        if hasattr(model, "predict_proba"):
            np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), rtol=1e-5, atol=10 * atol)


def test_unsupported_estimator_error_has_its_name():
    for name in gramless.__all__:
        estimator = getattr(gramless, name)
        if isinstance(estimator, type) and hasattr(estimator, "fit") and estimator not in MODEL_GRAPHS:
            with pytest.raises(ValueError, match=name):
                to_onnx(estimator())
