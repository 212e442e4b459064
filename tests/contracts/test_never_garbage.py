"""A fit gives a model with finite scores, or raises an error with the reason.

Every public estimator that has a kernel, on problems that break solvers: scales at the ends of floating point, equal and
contradictory rows, bounds that make systems singular, functions that are no kernels.
"""

import inspect
import warnings

import numpy as np
import pytest
import scipy.linalg
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning

import gramless
from gramless.kernels import as_kernel
from gramless.linalg.solvers import SOLVERS

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
SINGULAR = ["plain", "huge", "equal", "contradictory"]
REFUSALS = (ValueError, TypeError, ArithmeticError, np.linalg.LinAlgError, MemoryError)


def fit(name, problem, kernel, **settings):
    """Return the fitted estimator and its rows, or None if the fit raised an error with a reason."""
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
def test_fit_is_finite_or_raises(name, problem, kernel):
    extremes = [{}, {"C": 1e14}, {"C": 1e-12}] if problem in SINGULAR or kernel in ("wide", "linear") else [{}]
    for settings in extremes:
        fitted = fit(name, problem, kernel, **settings)
        if fitted is not None:
            assert_finite(*fitted)


HARD_SYSTEMS = {
    "wide kernel, large C": ({"kernel": "rbf", "gamma": 1e-8}, 1e14),
    "large C": ({"kernel": "rbf", "gamma": 0.3}, 1e14),
    "tiny C": ({"kernel": "rbf", "gamma": 0.3}, 1e-12),
    "degree 20": ({"kernel": "poly", "degree": 20, "gamma": 1.0, "coef0": 1.0}, 1.0),
}
# This solver has no tolerance: it averages approximations and does not bound its residual.
CLAIMS = sorted(set(SOLVERS) - {"nystrom_committee"})


def dense_scores(K, y, C):
    """Return the training scores of the least-squares model by dense float64 algebra, refined in extended precision."""
    n = len(K)
    A = np.zeros((n + 1, n + 1), np.longdouble)
    A[:n, :n] = K
    A[:n, :n] += np.eye(n, dtype=np.longdouble) / C
    A[n, :n] = A[:n, n] = 1
    scale = np.append(1 / np.sqrt(A.diagonal()[:n]), 1)
    A *= scale[:, None] * scale
    right = np.append(np.where(y, 1.0, -1.0), 0) * scale
    factors = scipy.linalg.lu_factor(A.astype(np.float64))
    solution = np.zeros(n + 1, np.longdouble)
    for _ in range(20):
        solution += scipy.linalg.lu_solve(factors, (right - A @ solution).astype(np.float64))
    solution *= scale
    return (K.astype(np.longdouble) @ solution[:n] + solution[n]).astype(np.float64)


@pytest.mark.parametrize("system", HARD_SYSTEMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("solver", CLAIMS)
def test_solver_without_warning_has_the_solution(solver, dtype, system):
    settings, C = HARD_SYSTEMS[system]
    X, y = plain()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = gramless.LSSVC(C=C, solver=solver, max_iter=100, dtype=dtype, random_state=0, **settings).fit(X, y)
        except REFUSALS as reason:
            if len(str(reason)) < 20:
                raise
            return
    scores = model.decision_function(X)
    assert np.isfinite(scores).all()
    if any(issubclass(one.category, ConvergenceWarning) for one in caught):
        return
    truth = dense_scores(as_kernel(**settings)(X, X), y, C)
    # Labels are not compared if scores differ by less than the float32 rounding error.
    clear = np.abs(truth) > 0.02 * np.abs(truth).max()
    assert np.mean((scores > 0)[clear] == (truth > 0)[clear]) > 0.95
