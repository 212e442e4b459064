"""Experiments of the paper "risvo": its tables, both readings of its objective, its costs, and support vector machines.

Eq. (2) of the paper has an expectation over the active training rows, and eq. (6) has sums over the active rows. The two
readings differ in the ridge penalty per active row, so experiments with an active set use both readings, "mean" and "sum".
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from gramless.estimators.risvo import RiSVOClassifier
from gramless.linalg.operators import evaluate
from gramless.papers.datasets import Dataset
from gramless.papers.experiments.declarations import Params
from gramless.streaming.learners.active_set import ActiveRule, signed_targets
from gramless.streaming.learners.ridge_sums import RidgeSums


class PseudoInverseRiSVO(ClassifierMixin, BaseEstimator):
    """Classifier by eqs. (5) and (6) as printed, `[A; b] = Omega^+ (K_GS + E) T`, with kernel `<x, y>^2` and random basis.

    `Omega` has m rows and m + 1 columns for m landmarks, so the pseudo-inverse selects the solution of minimum norm.
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
    """Classifier with the mean of the solutions of `estimator` on disjoint chunks of the rows, with common landmarks."""

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
    """Return RiSVO with the normal equations, with the pseudo-inverse of eq. (5), or averaged over chunks of the rows."""
    n_landmarks, chunks = params.get("n_landmarks", 700), params["chunks"]
    if params["solution"] == "pseudo-inverse":
        return PseudoInverseRiSVO(n_landmarks=n_landmarks, random_state=seed)
    kernel = {"kernel": "poly", "degree": 2, "gamma": 1.0, "coef0": 0.0}
    settings: dict[str, Any] = {"rho": 1e-3, "max_iter": 30, "landmarks": "uniform", **kernel}
    model = RiSVOClassifier(n_landmarks=n_landmarks, random_state=seed, **settings)
    return model if chunks == 1 else AveragedRiSVO(model, chunks)


# Further metrics


def active_set_sizes(model: RiSVOClassifier, data: Dataset) -> dict[str, float]:
    """Return the sizes of basis and active set, violations of the inclusion property, and discarded rows of the last step.

    `violation_share` is the percentage of the training rows that were discarded and would be active in a later step.
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
    """Return the percentage of the trace of the kernel of 2,000 random rows that is outside the span of the landmarks."""
    sample = np.random.default_rng(0).permutation(len(data.x_train))[:2000]
    X, points = data.x_train[sample].astype(np.float64), np.asarray(model.points_, dtype=np.float64)
    K = evaluate(model.kernel_, points, points)
    values, vectors = np.linalg.eigh(K)
    keep = values > len(K) * np.finfo(np.float64).eps * values[-1]
    projected = evaluate(model.kernel_, X, points) @ (vectors[:, keep] / np.sqrt(values[keep]))
    outside = 100 * (1 - (projected**2).sum() / model.kernel_.diag(X).sum())
    return {"kernel_error": float(outside), "n_vectors": len(points)}


def solution_seconds(model: RiSVOClassifier, data: Dataset) -> dict[str, float]:
    """Return the CPU seconds to solve eq. (5) for all classes and for two classes, without the sums over training rows."""
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
