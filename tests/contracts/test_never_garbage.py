"""A fit ends with a model that scores finite numbers, or with an error that says why.

Every public estimator that has a kernel, on problems that break solvers: scales at the ends of floating point, equal and
contradictory rows, bounds that make systems singular, functions that are no kernels.
"""

import inspect
import warnings

import numpy as np
import pytest
from sklearn.base import is_classifier

import gramless

CLASSES = [getattr(gramless, name) for name in sorted(gramless._EXPORTS) if inspect.isclass(getattr(gramless, name))]
ESTIMATORS = [cls.__name__ for cls in CLASSES if "kernel" in getattr(cls, "_get_param_names", list)()]
N = 60


def plain():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4))
    return X, (X[:, 0] + X[:, 1] ** 2 > 0.7).astype(int)


def scaled(factor):
    X, y = plain()
    return X * factor, y


def mixed_scales():
    X, y = plain()
    return X * np.array([1e-8, 1.0, 1e4, 1e8]), y


def equal_rows():
    return np.ones((N, 4)), np.arange(N) % 2


def contradictory_rows():
    X, _ = plain()
    return np.repeat(X[: N // 2], 2, axis=0), np.tile([0, 1], N // 2)


def one_of_a_class():
    X, _ = plain()
    return X, (np.arange(N) == 3).astype(int)


PROBLEMS = {
    "plain": plain,
    "tiny": lambda: scaled(1e-150),
    "smallest": lambda: scaled(1e-305),
    "huge": lambda: scaled(1e150),
    "float32-tiny": lambda: (scaled(1e-30)[0].astype(np.float32), plain()[1]),
    "float32-huge": lambda: (scaled(1e30)[0].astype(np.float32), plain()[1]),
    "mixed": mixed_scales,
    "equal": equal_rows,
    "contradictory": contradictory_rows,
    "one-of-a-class": one_of_a_class,
}


def nan_function(A, B):
    return np.full((A.shape[0], B.shape[0]), np.nan)


def negative_function(A, B):
    return -(A @ B.T)


def zero_function(A, B):
    return np.zeros((A.shape[0], B.shape[0]))


def asymmetric_function(A, B):
    return np.sin(A @ np.diag([1.0, 2.0, 3.0, 4.0]) @ np.roll(B, 1, axis=1).T)


KERNELS = {
    "rbf": {"kernel": "rbf"},
    "wide": {"kernel": "rbf", "gamma": 1e-8},
    "narrow": {"kernel": "rbf", "gamma": 1e8},
    "linear": {"kernel": "linear"},
    "poly-20": {"kernel": "poly", "degree": 20, "gamma": 1.0, "coef0": 1.0},
    "sigmoid": {"kernel": "sigmoid"},
    "nan": {"kernel": nan_function},
    "negative": {"kernel": negative_function},
    "zero": {"kernel": zero_function},
    "asymmetric": {"kernel": asymmetric_function},
}
HARD = [(problem, "rbf") for problem in PROBLEMS] + [("plain", kernel) for kernel in KERNELS if kernel != "rbf"]
HARD += [(problem, kernel) for problem in ("huge", "float32-huge", "mixed", "equal") for kernel in ("linear", "poly-20")]
SINGULAR = ["plain", "equal", "contradictory"]
REFUSALS = (ValueError, TypeError, ArithmeticError, np.linalg.LinAlgError, MemoryError)


def fit(name, problem, kernel, **settings):
    """The fitted estimator and its rows, or None where it refused with a sentence."""
    cls = getattr(gramless, name)
    known = cls._get_param_names()
    settings = {key: value for key, value in {**KERNELS[kernel], **settings, "random_state": 0}.items() if key in known}
    X, y = PROBLEMS[problem]()
    y = y if is_classifier(cls()) else y + X[:, 0].astype(np.float64) / (np.abs(X).max() or 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = cls(**settings).fit(X, y)
        except REFUSALS as reason:
            if len(str(reason)) < 20:
                raise
            return None
    return model, X


def assert_finite(model, X):
    with np.errstate(over="ignore", invalid="ignore"):
        answers = ("decision_function", "predict", "transform")
        scores = next(getattr(model, name) for name in answers if hasattr(model, name))(X)
    assert np.isfinite(scores).all(), f"{model} scores {scores[:3]}"
    for attribute in ("dual_coef_", "intercept_", "coef_"):
        value = vars(model).get(attribute)
        if isinstance(value, np.ndarray):
            assert np.isfinite(value).all(), f"{attribute} of {model}"


@pytest.mark.parametrize(("problem", "kernel"), HARD, ids=str)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_fit_is_finite_or_refused(name, problem, kernel):
    for settings in [{}, {"C": 1e14}] if kernel == "rbf" and problem in SINGULAR else [{}]:
        fitted = fit(name, problem, kernel, **settings)
        if fitted is not None:
            assert_finite(*fitted)
