"""The minimiser of the loss that `BudgetLSSVC` approaches, from its normal equations: where endless epochs would end.

    (K_BB + C G^T G) [v; b] = C G^T y + [y_B; 0]     (the last term with loss="dual" only),     G = [K(X, B), 1]

Dense and in float64: O(n beta + beta^2) memory, O(n beta^2 + beta^3) time. For comparison in experiments; as a model it is
either that of `NystromLSSVC` (primal) or a poor one (dual).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import eigh
from sklearn.base import BaseEstimator, ClassifierMixin

from gramless.kernels import RBF

# Below this share of the largest curvature float64 cannot tell a direction from a flat one, along which the dual loss falls
# without end: the step along it is left out.
FLAT = 1e-13


class ExactBudgetLSSVC(ClassifierMixin, BaseEstimator):
    """Two classes, an RBF kernel, the budget given as row numbers.

    Parameters
    ----------
    landmarks : array of int
        Rows of the training data that are the budget.
    loss : {"dual", "primal"}
    C, gamma : float
        As in `BudgetLSSVC`.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.papers.experiments.exact_budget import ExactBudgetLSSVC
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 1, 1])
    >>> ExactBudgetLSSVC(landmarks=[0, 3], gamma=0.5).fit(X, y).predict([[0.2], [2.8]])
    array([0, 1])
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
        curvatures, V = eigh(H, overwrite_a=True)
        kept = curvatures > FLAT * curvatures[-1]
        solution = V[:, kept] @ ((target @ V[:, kept]) / curvatures[kept])
        self.dual_coef_, self.intercept_ = solution[:-1], solution[-1]
        return self

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        kernel = RBF(gamma=self.gamma)
        return kernel(np.asarray(X, dtype=np.float64), self.points_) @ self.dual_coef_ + self.intercept_

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.classes_[(self.decision_function(X) > 0).astype(int)]
