"""Experiments of the paper "risvo": its tables, both readings of its objective, costs, support vector machines.

Eq. (2) of the paper prints an expectation over the active set, eq. (6) sums over it. They differ in the ridge for each
active pattern, so every experiment of the active set has both readings: "mean" and "sum".
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from gramless.approximation.landmarks import BasisConstruction
from gramless.estimators.risvo import RiSVOClassifier
from gramless.kernels import Polynomial
from gramless.linalg.operators import evaluate
from gramless.papers.datasets import Dataset, load
from gramless.papers.experiments.claims import Comparison, Printed, read_claims
from gramless.papers.experiments.measures import Measure
from gramless.papers.experiments.results import Record
from gramless.papers.experiments.spec import Params
from gramless.streaming.learners.active_set import ActiveRule, signed_targets
from gramless.streaming.learners.ridge_sums import RidgeSums

# Number of training patterns in Table 1.
USPS_ROWS, PENDIGITS_ROWS = 3035, 1500
# Table 2 of the paper: error in percent by landmark rule, for each size of the basis.
BASIS_SIZES = (100, 700, 1000, 1300, 1600, 1900)
TABLE_2 = {
    "uniform": ("10.12", "4.20", "3.57", "3.38", "3.0", "2.99"),
    "basis": ("9.78", "3.98", "3.51", "3.33", "2.95", "2.92"),
}


# Data


def _transformed(data: Dataset, function: Any) -> Dataset:
    x_train, x_test = (function(np.asarray(x, dtype=np.float32)) for x in (data.x_train, data.x_test))
    return replace(data, x_train=x_train, x_test=x_test)


def _unit_length(data: Dataset) -> Dataset:
    """Scale images to unit length: the paper does not specify this; it was chosen because its errors are then reached."""
    return _transformed(data, lambda x: x / np.linalg.norm(x, axis=1, keepdims=True))


def mnist(seed: int) -> Dataset:
    return _unit_length(_transformed(load("mnist"), lambda x: x / np.float32(255)))


def usps(seed: int) -> Dataset:
    return _unit_length(_transformed(load("usps"), lambda x: (x + 1) / 2))  # pixels from -1 to 1


def usps_sample(seed: int) -> Dataset:
    return usps(seed).sample(USPS_ROWS, seed=seed)


def usps_pooled(seed: int) -> Dataset:
    """Draw the 3,035 training patterns from all 9,298 images; the others are the test patterns."""
    return usps(seed).resplit(9298 - USPS_ROWS, seed=seed)


def pendigits(seed: int) -> Dataset:
    """Return the standard split with features scaled from [0, 100] to [-1, 1]."""
    return _transformed(load("pendigits"), lambda x: x / np.float32(50) - 1)


def pendigits_sample(seed: int) -> Dataset:
    return pendigits(seed).sample(PENDIGITS_ROWS, seed=seed)


def pendigits_writers(seed: int) -> Dataset:
    """Draw the 1,500 training patterns from the training file and test on its other 5,994, which have the same writers."""
    data = pendigits(seed)
    data = replace(data, x_test=data.x_test[:0], y_test=data.y_test[:0])
    return data.resplit(len(data.y_train) - PENDIGITS_ROWS, seed=seed)


def letter(seed: int) -> Dataset:
    return _transformed(load("letter"), np.asarray)


def letter_fold(seed: int) -> Dataset:
    """Return one of five random folds of all 20,000 patterns as test rows."""
    return letter(seed).resplit(4000, seed=seed)


def digits(seed: int) -> Dataset:
    return _transformed(load("digits", seed=seed), lambda x: x / 16)


# Classifiers

QUADRATIC = {"kernel": "poly", "degree": 2, "gamma": 1.0, "coef0": 0.0}
SIGMA_5 = {"gamma": 1 / (2 * 5**2), "dtype": "float64"}
SIGMA_1 = {"gamma": 1 / 2}


def _classifier(params: Params, seed: int, **settings: Any) -> RiSVOClassifier:
    """Return a classifier with `settings`, replaced by those of the grid point."""
    return RiSVOClassifier(random_state=seed, **{"rho": 1e-3, **settings, **params})


def mnist_classifier(params: Params, seed: int) -> RiSVOClassifier:
    basis = BasisConstruction(epsilon=0.5)
    return _classifier(params, seed, n_landmarks=3500, landmarks=basis, check_inclusion=True, **QUADRATIC)


def usps_classifier(params: Params, seed: int) -> RiSVOClassifier:
    return _classifier(
        params, seed, n_landmarks=USPS_ROWS, landmarks="uniform", check_inclusion=True, memory_budget="8GB", **QUADRATIC
    )


def letter_classifier(params: Params, seed: int) -> RiSVOClassifier:
    bounds = {"gamma_l": -1.2, "gamma_u": 1.2, "zeta_l": -0.7, "zeta_u": 0.7}
    basis = BasisConstruction(epsilon=0.3)
    return _classifier(params, seed, n_landmarks=4000, landmarks=basis, check_inclusion=True, **bounds, **SIGMA_5)


def pendigits_classifier(params: Params, seed: int) -> RiSVOClassifier:
    settings = {"n_landmarks": PENDIGITS_ROWS, "landmarks": "uniform", "gamma_l": -1.0, "gamma_u": 1.0, **SIGMA_1}
    return _classifier(params, seed, check_inclusion=True, **settings)


def digits_classifier(params: Params, seed: int) -> RiSVOClassifier:
    return _classifier(params, seed, n_landmarks=200, gamma=0.1, dtype="float64", check_inclusion=True)


def basis_size_classifier(params: Params, seed: int) -> RiSVOClassifier:
    return _classifier(params, seed, max_iter=30, **QUADRATIC)


def landmark_rule_classifier(params: Params, seed: int) -> RiSVOClassifier:
    return _classifier(params, seed, max_iter=1, **SIGMA_5)


class PseudoInverseRiSVO(ClassifierMixin, BaseEstimator):
    """Eqs. (5) and (6) as printed, `[A; b] = Omega^+ (K_GS + E) T`, with the kernel `<x, y>^2` and a random basis.

    `Omega` has m rows and m + 1 columns, so the pseudo-inverse selects the solution of minimum norm. Dense in float64.
    """

    rule = ActiveRule(-1.1, 1.1, -0.5, 0.5)

    def __init__(self, n_landmarks: int = 100, rho: float = 1e-3, max_iter: int = 30, random_state: int = 0):
        self.n_landmarks = n_landmarks
        self.rho = rho
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: np.ndarray, y: np.ndarray) -> PseudoInverseRiSVO:
        self.classes_, codes = np.unique(y, return_inverse=True)
        X, T = np.asarray(X, dtype=np.float64), signed_targets(codes, len(self.classes_))
        self.points_ = X[np.random.default_rng(self.random_state).permutation(len(X))[: self.n_landmarks]]
        K, gram = self._kernel_values(X), self._kernel_values(self.points_)
        for _ in range(self.max_iter):
            left = K.T + 1
            omega = np.column_stack([left @ K + self.rho * gram, K.sum(axis=0) + len(K)])
            self.solution_ = np.linalg.pinv(omega) @ (left @ T)
            kept = self.rule.stays(T * (K @ self.solution_[:-1] + self.solution_[-1]), codes)
            if kept.all():
                break
            K, T, codes = K[kept], T[kept], codes[kept]
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        scores = self._kernel_values(np.asarray(X, dtype=np.float64)) @ self.solution_[:-1] + self.solution_[-1]
        return self.classes_[scores.argmax(axis=1)]

    def _kernel_values(self, X: np.ndarray) -> np.ndarray:
        return (X @ self.points_.T) ** 2


class AveragedRiSVO(ClassifierMixin, BaseEstimator):
    """Mean of the solutions of `estimator` on disjoint chunks of the rows, all with the landmarks of a common basis."""

    def __init__(self, estimator: RiSVOClassifier, n_chunks: int = 2):
        self.estimator = estimator
        self.n_chunks = n_chunks

    def fit(self, X: np.ndarray, y: np.ndarray) -> AveragedRiSVO:
        self.classes_ = np.unique(y)
        order = np.random.default_rng(self.estimator.random_state).permutation(len(X))
        fixed = clone(self.estimator).set_params(landmarks=X[order[: self.estimator.n_landmarks]])
        fits = [clone(fixed).fit(X[rows], y[rows]) for rows in np.array_split(order, self.n_chunks)]
        self.model_ = fits[0]
        self.model_.dual_coef_ = np.mean([fit.dual_coef_ for fit in fits], axis=0)
        self.model_.intercept_ = np.mean([fit.intercept_ for fit in fits], axis=0)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.model_.predict(X)


def solution_classifier(params: Params, seed: int) -> Any:
    """Return the normal equations in A and b, the pseudo-inverse of eq. (5), or an average over chunks."""
    n_landmarks, chunks = params.get("n_landmarks", 700), params["chunks"]
    if params["solution"] == "pseudo-inverse":
        return PseudoInverseRiSVO(n_landmarks=n_landmarks, random_state=seed)
    settings = {"max_iter": 30, "landmarks": "uniform", "n_landmarks": n_landmarks}
    model = _classifier(settings, seed, **QUADRATIC)
    return model if chunks == 1 else AveragedRiSVO(model, chunks)


def support_vector_machine(params: Params, seed: int) -> Any:
    """Return a support vector machine with C = 1 and the kernel of RiSVO's row in Table 1."""
    from gramless import KernelSVC

    kernel = Polynomial(2, gamma=1.0, coef0=0.0) if params["kernel"] == "quadratic" else "rbf"
    return KernelSVC(kernel, gamma=params.get("gamma", "scale"), C=1.0, memory_budget="8GB", random_state=seed)


# Further metrics


def active_set_sizes(model: RiSVOClassifier, data: Dataset) -> dict[str, float]:
    """Return the sizes of basis and active set, the violations of the inclusion property, and the number of steps.

    `violation_share` is the percentage of the training rows that were discarded and satisfy the criteria of a later step.
    """
    violations = len(getattr(model, "inclusion_violations_", ()))
    return {
        "n_vectors": len(model.points_),
        "active": len(model.active_set_),
        "violations": violations,
        "violation_share": 100 * violations / len(data.y_train),
        "discarded_last": model.history_[-1]["discarded"],
    }


def kernel_error(model: RiSVOClassifier, data: Dataset) -> dict[str, float]:
    """Return the percentage of the kernel's trace outside the span of the landmarks, on 2,000 random rows."""
    sample = np.random.default_rng(0).permutation(len(data.x_train))[:2000]
    X, points = data.x_train[sample].astype(np.float64), np.asarray(model.points_, dtype=np.float64)
    K = evaluate(model.kernel_, points, points)
    values, vectors = np.linalg.eigh(K)
    keep = values > len(K) * np.finfo(np.float64).eps * values[-1]
    projected = evaluate(model.kernel_, X, points) @ (vectors[:, keep] / np.sqrt(values[keep]))
    outside = 100 * (1 - (projected**2).sum() / model.kernel_.diag(X).sum())
    return {"kernel_error": float(outside), "n_vectors": len(points)}


def solution_seconds(model: RiSVOClassifier, data: Dataset) -> dict[str, float]:
    """Return the CPU seconds to solve eq. (5) for all classes and for two classes, given the sums over the patterns."""
    points, rows = np.asarray(model.points_, dtype=np.float64), slice(0, 2 * len(model.points_))
    features = evaluate(model.kernel_, data.x_train[rows].astype(np.float64), points)
    targets = signed_targets(np.searchsorted(model.classes_, data.y_train[rows]), len(model.classes_))
    gram, seconds = evaluate(model.kernel_, points, points), {}
    for name, n_classes in (("solution_seconds", targets.shape[1]), ("two_class_seconds", 2)):
        sums = RidgeSums(len(points), n_classes)
        sums.add(features, targets[:, :n_classes])
        started = time.process_time()
        sums.solve(model.rho, gram)
        seconds[name] = time.process_time() - started
    return seconds


def support_vectors(model: Any, data: Dataset) -> dict[str, float]:
    return {"n_vectors": len(model.support_)}


def _change(record: Record, key: str) -> float | None:
    """Return the change of an entry of the history from the first to the last step."""
    course = [row[key] for row in record["history"] if key in row]
    return course[-1] - course[0] if course else None


def _classes_factor(record: Record) -> float | None:
    metrics = record["metrics"]
    return metrics["solution_seconds"] / metrics["two_class_seconds"] if "two_class_seconds" in metrics else None


TRAINING_ERROR_CHANGE = Measure(
    "change of the training error (fraction) over the steps", partial(_change, key="training_error")
)
TEST_ERROR_CHANGE = Measure(
    "change of the test error over the steps, percentage points", partial(_change, key="error"), is_difference=True
)
CLASSES_FACTOR = Measure("CPU seconds for 26 classes over CPU seconds for two", _classes_factor)


_SUM = {"reduction": "sum", "max_iter": 30}
_ALL_ROWS = {"solution": "normal equations", "chunks": 1}
_IN_THE_PAPER = ("mnist", "usps", "letter", "pendigits")


def _errors(value: str, *names: str) -> tuple[Comparison, ...]:
    """Return the comparisons of a printed error with both readings of the objective on each data set."""
    return tuple(
        Comparison(
            name,
            {"reduction": reduction, "max_iter": 30},
            "near",
            Printed(value, other_rows=name not in _IN_THE_PAPER),
            reading=f"{reduction}, {name}",
        )
        for name in names
        for reduction in ("sum", "mean")
    )


def _stable(relation: str, bound: float, *measures: Any, within: float | None = None) -> tuple[Comparison, ...]:
    """Return the comparisons of the stable active set for each reading and each row of Table 1."""
    return tuple(
        Comparison(
            name,
            {"reduction": reduction, "max_iter": 30},
            relation,
            bound,
            measure,
            within=within,
            reading=reduction,
        )
        for reduction in ("mean", "sum")
        for measure in measures
        for name in _IN_THE_PAPER
    )


def _table_2(rule: str) -> tuple[Comparison, ...]:
    return tuple(
        Comparison("basis-size", {"reduction": "sum", "landmarks": rule, "n_landmarks": m}, "near", Printed(error))
        for m, error in zip(BASIS_SIZES, TABLE_2[rule], strict=True)
    )


def _with_svm(name: str, relation: str, measure: str = "error") -> Comparison:
    """Return the comparison of RiSVO with the support vector machine on one data set."""
    counted = measure == "n_vectors"
    return Comparison(name, _SUM, relation, {}, measure, other_experiment=f"svm-{name}", deterministic=counted)


def _svm_values(name: str, error: str, vectors: str) -> tuple[Comparison, ...]:
    return (
        Comparison(name, {}, "near", Printed(error, other_rows=True), deterministic=True),
        Comparison(name, {}, "near", Printed(vectors), "n_vectors", within=float(vectors) / 10, deterministic=True),
    )


CLAIMS = read_claims(
    "risvo",
    {
        "mnist-error": _errors("2.33", "mnist"),
        "usps-error": _errors("4.81", "usps", "usps-3035", "usps-pooled"),
        "letter-error": _errors("2.56", "letter", "letter-20000"),
        "pendigits-error": _errors("0.60", "pendigits", "pendigits-1500", "pendigits-writers"),
        "active-set": _stable("below", 0.0, TEST_ERROR_CHANGE),
        "inclusion": _stable("at most", 0.0, "violation_share", within=0.01),
        "convergence": _stable("at most", 0.0, "discarded_last", TRAINING_ERROR_CHANGE),
        "basis-construction": tuple(
            Comparison(
                "basis-size",
                {"reduction": reduction, "landmarks": "basis"},
                "below",
                {"reduction": reduction, "landmarks": "uniform"},
                along="n_landmarks",
                reading=reduction,
            )
            for reduction in ("sum", "mean")
        ),
        "random-bases": _table_2("uniform"),
        "constructed-bases": _table_2("basis"),
        "pseudo-inverse": (Comparison("solutions", {"solution": "pseudo-inverse"}, "at most", _ALL_ROWS),),
        "averaging": tuple(
            Comparison("solutions", {"chunks": chunks}, "at most", _ALL_ROWS, within=0.2) for chunks in (2, 4, 8)
        ),
        "cubic-cost": tuple(
            Comparison("cost", {"n_landmarks": 2 * m}, "at most", {"n_landmarks": m}, "solution_seconds", factor=8.0)
            for m in (1000, 2000)
        ),
        "classes-cost": (Comparison("cost", {"n_landmarks": 4000}, "at most", 1.5, CLASSES_FACTOR),),
        "svm-pendigits": _svm_values("svm-pendigits", "2.03", "1200"),
        "svm-letter": _svm_values("svm-letter", "5.75", "8400"),
        "better-than-svm": (_with_svm("pendigits", "below"), _with_svm("letter", "below")),
        "fewer-vectors": (_with_svm("letter", "below", "n_vectors"), _with_svm("pendigits", "above", "n_vectors")),
        "svm-images": (_with_svm("mnist", "at least"), _with_svm("usps", "at least")),
    },
)
