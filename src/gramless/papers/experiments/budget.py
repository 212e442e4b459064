"""Experiments of the paper "budget": budgets from 20 % to 100 % of the training rows.

The methods of the paper are a budget model trained online, Nyström and online random Fourier features. The budget model is
trained with the step sizes of the library, derived from the curvature of the loss, and by eq. (2) of the paper as printed,
which is plain stochastic gradient descent with a constant step size. The experiments `why-budget-*` and `why-fourier`
examine the causes of differences from the paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import pinvh
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from gramless.estimators.budget import BudgetLSSVC
from gramless.estimators.fourier import FourierLSSVC
from gramless.estimators.nystrom import NystromLSSVC
from gramless.kernels import RBF
from gramless.papers.datasets import Dataset
from gramless.papers.experiments.declarations import Params

# Number of epochs of plain stochastic gradient descent, which the paper does not state.
SGD_EPOCHS = 10
# Eigenvalues of the system below this multiple of the largest eigenvalue are treated as zero (rounding errors of float64).
# The solution has no component along their eigenvectors, because the dual loss is unbounded in these directions.
FLAT = 1e-13


class ExactBudgetLSSVC(ClassifierMixin, BaseEstimator):
    """Exact minimiser of the loss of a binary `BudgetLSSVC` with an RBF kernel, the limit of infinitely many epochs.

        (K_BB + C G^T G) [v; b] = C G^T y + [y_B; 0]     (last term only with loss="dual"),     G = [K(X, B), 1]

    `landmarks` are the indices of the beta rows in the budget B. Cost: O(n beta + beta^2) memory, O(n beta^2 + beta^3) time.
    """

    def __init__(self, *, landmarks: Any, loss: str = "dual", C: float = 1.0, gamma: float = 1.0):
        self.landmarks = landmarks
        self.loss = loss
        self.C = C
        self.gamma = gamma

    def fit(self, X: np.ndarray, y: np.ndarray) -> ExactBudgetLSSVC:
        X = np.asarray(X, dtype=np.float64)
        self.classes_ = np.unique(y)
        Z = np.where(y == self.classes_[1], 1.0, -1.0)
        rows = np.asarray(self.landmarks)
        self.points_ = X[rows]
        kernel = RBF(gamma=self.gamma)
        G = np.column_stack([kernel(X, self.points_), np.ones(len(X))])
        H, target = self.C * (G.T @ G), self.C * (G.T @ Z)
        H[:-1, :-1] += kernel(self.points_, self.points_)
        if self.loss == "dual":
            target[:-1] += Z[rows]
        solution = pinvh(H, atol=0.0, rtol=FLAT) @ target
        self.dual_coef_, self.intercept_ = solution[:-1], solution[-1]
        return self

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        kernel = RBF(gamma=self.gamma)
        return kernel(np.asarray(X, dtype=np.float64), self.points_) @ self.dual_coef_ + self.intercept_

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.classes_[(self.decision_function(X) > 0).astype(int)]


def unit_pixels(params: Params, seed: int) -> Any:
    return FunctionTransformer(_divide_by_maximum)


def _divide_by_maximum(x: np.ndarray) -> np.ndarray:
    return np.asarray(x, dtype=np.float32) / max(1.0, float(np.max(x)))


def one_hot_and_standardised(params: Params, seed: int) -> Any:
    """Return a transformer that standardises seven numeric columns and one-hot encodes nine categorical columns."""
    categories = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return ColumnTransformer([("numbers", StandardScaler(), slice(0, 7)), ("categories", categories, slice(7, 16))])


def classifier_of_method(params: Params, seed: int, C: float, gamma: float) -> Any:
    """Return the classifier of a method, whose number of points or features is a fraction of the number of training rows.

    The step size of plain stochastic gradient descent is 1 / b for a budget of b points. Of 0.3 / b, 1 / b, 3 / b and
    10 / b, the step size 1 / b gives the highest accuracy on a held-out fifth of the training rows of MNIST and Bank.
    """
    settings: dict[str, Any] = {"C": C, "gamma": gamma, "random_state": seed}
    method, share = params["method"], float(params["share"])
    n_points = max(2, round(share * params["rows"]))
    if method == "budget":
        return BudgetLSSVC(budget=share, **settings)
    if method == "budget_sgd":
        plain = {"learning_rate": 1 / n_points, "batch_size": 1, "epochs": SGD_EPOCHS}
        return BudgetLSSVC(budget=share, **plain, **settings)
    if method == "nystrom":
        return NystromLSSVC(n_landmarks=share, **settings)
    return FourierLSSVC(n_components=n_points, method="online", **settings)


def classifier_of_loss(params: Params, seed: int, C: float, gamma: float) -> Any:
    """Return a budget classifier with the given loss, which is minimised exactly or by online training."""
    rows = params["rows"]
    budget = np.random.default_rng(seed).permutation(rows)[: max(2, round(params["share"] * rows))]
    settings: dict[str, Any] = {"landmarks": budget, "loss": params["loss"], "C": C, "gamma": gamma}
    if params["solution"] == "exact":
        return ExactBudgetLSSVC(**settings)
    return BudgetLSSVC(epochs=params["epochs"], random_state=seed, **settings)


def train_accuracy(estimator: Any, dataset: Dataset) -> dict[str, float]:
    return {"train_accuracy": 100 * float(estimator.score(dataset.x_train, dataset.y_train))}
