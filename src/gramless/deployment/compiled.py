"""Predictions of fitted models without input validation, with constants computed in advance.

    expansion   f(x) = sum_i a_i K(x, b_i) + c
    novelty     v(x) = k(x, x) - |P k(x)|^2,    P = M^(1/2) L^-1,  M = I - ridge (Phi^T Phi + ridge I)^-1

The RBF kernel is computed from one matrix product with precomputed factors; other kernels are called directly. For one row
with 50 features and 2,000 points, the kernel values take about ten microseconds and scikit-learn's validation several times
as long; here the caller guarantees finite, dense rows of the right width. Batches of rows use the compiled loop of
`gramless.linalg.operators.blocks`. The novelty v(x) is the predictive variance of `NystromNovelty`: k(x) has the kernel
values with m landmarks, L L^T is their Gram matrix, Phi has the training features; O(m d + m^2) per row and O(m^3) once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh, solve_triangular
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.targets.columns import scores_to_labels
from gramless._core.threads import slices
from gramless.deployment.tuning import TUNING
from gramless.estimators.novelty import NystromNovelty
from gramless.inference.probabilities import probabilities_by_method
from gramless.kernels import RBF, Kernel, ScaledColumns
from gramless.kernels.stationary import can_use_register_tiles
from gramless.linalg.operators import expand
from gramless.linalg.operators.blocks import PackedGaussian


@dataclass(frozen=True)
class KernelExpansion:
    """Function `K(x, points) @ coef + bias` of rows x; `coef` has shape (n_points, n_outputs)."""

    kernel: Kernel
    points: Any
    coef: Any
    bias: Any

    def __call__(self, X: Any) -> Any:
        """Return the scores of rows in float64, on the device of the rows."""
        scores = xa.astype(expand(self.kernel, X, self.points, xa.like(self.coef, X)), np.float64)
        return scores + xa.like(self.bias, scores)


def expansion_of(model: Any, action: str) -> KernelExpansion:
    """Return the expansion of a fitted model with dense points; ValueError if it cannot be compiled or compressed."""
    missing = [name for name in ("kernel_", "points_", "dual_coef_", "intercept_") if not hasattr(model, name)]
    if missing:
        check_is_fitted(model)
        raise ValueError(f"{type(model).__name__} is not a kernel expansion with {missing[0]}, and cannot be {action}")
    if not model.kernel_.uses_points or not isinstance(model.points_, np.ndarray | sp.spmatrix | sp.sparray):
        raise ValueError(f"{type(model).__name__} does not have its points in memory, and cannot be {action}")
    points: Any = model.points_
    points = np.asarray(points.toarray() if sp.issparse(points) else points)
    return KernelExpansion(model.kernel_, points, model.dual_coef_, np.asarray(model.intercept_))


class CompiledModel:
    """Predictions of a fitted model without input validation; created by `gramless.compiled`.

    Parameters
    ----------
    model : estimator
        Fitted model that provides the class labels and the calibration of the probabilities.
    expansion : KernelExpansion
        Kernel, points and coefficients of the model.
    dtype : {"float32", "float64"} or None, default=None
        Floating-point precision of the kernel values; None uses the dtype of the model's coefficients.

    Attributes
    ----------
    classes_ : ndarray
        Class labels, of classifiers only.
    n_features_in_ : int
        Number of columns of the rows.
    dtype : dtype
        Floating-point precision of the kernel values.
    """

    def __init__(self, model: Any, expansion: KernelExpansion, dtype: str | None = None):
        self._model = model
        self.n_features_in_ = int(model.n_features_in_)
        self.dtype = np.dtype(expansion.coef.dtype if dtype is None else dtype)
        self._coef = np.ascontiguousarray(expansion.coef, dtype=self.dtype)
        self._bias = np.asarray(expansion.bias, dtype=np.float64)
        self._kernel, self._scales, points = expansion.kernel, None, expansion.points
        if type(self._kernel) is ScaledColumns:
            scales = np.asarray(self._kernel.scales, dtype=np.float64)
            points, self._kernel, self._scales = points * scales, self._kernel.kernel, scales.astype(self.dtype)
        self._points = np.ascontiguousarray(points, dtype=self.dtype)
        self._kernel_values = kernel_values(self._kernel, points, self.dtype)
        if is_classifier(model):
            self.classes_ = model.classes_
        self._multilabel = bool(getattr(model, "multilabel_", False))
        # Results are vectors instead of matrices for two classes and for regression models fitted to a target vector.
        single = len(self.classes_) == 2 if is_classifier(model) else model._single_output
        self._has_one_output = bool(single) and not self._multilabel

    @cached_property
    def _packed(self) -> PackedGaussian:
        return PackedGaussian(float(self._kernel.gamma), self._points, self._coef)

    def _scores(self, X: Any) -> np.ndarray:
        rows = np.asarray(X, dtype=self.dtype)
        if self._scales is not None:
            rows = rows * self._scales
        is_batch = len(rows) >= TUNING.min_loop_rows and type(self._kernel) is RBF
        if not is_batch or not can_use_register_tiles(rows, self._points, len(rows) * len(self._points), 0):
            return self._kernel_values(rows) @ self._coef + self._bias
        scores = np.zeros((len(rows), self._coef.shape[1]))
        self._packed.add(rows, scores)
        scores += self._bias
        return scores

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores of a classifier, or the predictions of a regressor.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Finite, dense rows; not validated.

        Returns
        -------
        ndarray of shape (n,) or (n, n_classes)
            Scores of the classes; for two classes, the score of the second class.
        """
        scores = self._scores(X)
        return scores[:, 0] if self._has_one_output else scores

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted class labels or target values.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Finite, dense rows; not validated.

        Returns
        -------
        ndarray of shape (n,) or (n, n_outputs)
            One prediction for each row.
        """
        outputs = self.decision_function(X)
        if not hasattr(self, "classes_"):
            return outputs
        return (outputs > 0).astype(np.int64) if self._multilabel else scores_to_labels(self.classes_, outputs)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the class probabilities of the model.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Finite, dense rows; not validated.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Probabilities in the order of `classes_`.
        """
        return probabilities_by_method(self._model, self._scores(X))

    def predict_one(self, x: Any) -> Any:
        """Return the predicted class label or target value of one row.

        Parameters
        ----------
        x : array of shape (n_features,)
            Finite, dense row; not validated.

        Returns
        -------
        object
            An element of `classes_`, a number, or an array of numbers if the model has several outputs.
        """
        return self.predict(np.asarray(x, dtype=self.dtype)[None, :])[0]


def compiled(model: Any, *, dtype: str | None = None) -> CompiledModel:
    """Return a faster version of a fitted model, with the same predictions, for single rows and small batches.

    Parameters
    ----------
    model : estimator
        Fitted kernel expansion: `LSSVC`, `LSSVR`, `NystromLSSVC`, `NystromLSSVR`, `BudgetLSSVC`,
        `BudgetLSSVR`, `PrototypeLSSVC` or `RiSVOClassifier`.
    dtype : {"float32", "float64"} or None, default=None
        Floating-point precision of the kernel values; None uses the dtype of the model's coefficients.

    Returns
    -------
    CompiledModel
        Object with `predict`, `predict_one`, `predict_proba` and `decision_function`, which do not validate their input.

    See Also
    --------
    to_onnx : Convert a fitted model to ONNX.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramless import LSSVC, compiled
    >>> X, y = load_iris(return_X_y=True)
    >>> quick = compiled(LSSVC().fit(X, y))
    >>> quick.predict_one([5.0, 3.4, 1.5, 0.2])
    np.int64(0)
    """
    return CompiledModel(model, expansion_of(model, "compiled"), dtype)


def kernel_values(kernel: Kernel, points: np.ndarray, dtype: np.dtype) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that computes the kernel values between rows and the given points in the given dtype."""
    if type(kernel) is not RBF:
        converted = np.ascontiguousarray(points, dtype=dtype)
        return lambda X: np.asarray(kernel(X, converted))
    gamma = float(kernel.gamma)
    exact = np.asarray(points, dtype=np.float64)
    centre = exact.mean(axis=0)  # the exponent is a difference of squared norms, which rounds less if the norms are small
    exact = exact - centre
    # exp(-gamma |x - b|^2) = exp([x, -gamma |x|^2, 1] . [2 gamma b, 1, -gamma |b|^2]): one product gives all exponents.
    width = exact.shape[1]
    factors = np.empty((width + 2, len(exact)), dtype=dtype)
    factors[:width] = 2 * gamma * exact.T
    factors[width] = 1.0
    factors[width + 1] = -gamma * np.einsum("ij,ij->i", exact, exact)
    middle = centre.astype(dtype)

    def values(X: np.ndarray) -> np.ndarray:
        rows = np.empty((len(X), width + 2), dtype=dtype)
        centred = rows[:, :width]
        np.subtract(X, middle, out=centred)
        rows[:, width] = np.einsum("ij,ij->i", centred, centred)
        rows[:, width] *= -gamma
        rows[:, width + 1] = 1.0
        block = rows @ factors
        np.minimum(block, 0.0, out=block)
        return np.exp(block, out=block)

    return values


def compiled_novelty(detector: NystromNovelty) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that marks the novel rows of a finite float64 array, for a detector fitted to dense rows."""
    features, process = detector.features_, detector._process
    kernel = features.kernel_
    root = process.root
    eigenvalues, vectors = eigh(np.eye(len(root)) - process.ridge * (root @ root.T))
    half = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    projection = np.ascontiguousarray(solve_triangular(features.factor_, half, lower=True, trans="T"))
    values = kernel_values(kernel, features.points_, np.dtype(np.float64))
    threshold = -detector.offset_

    def novel(X: np.ndarray) -> np.ndarray:
        flags = np.empty(len(X), dtype=bool)
        for rows in slices(len(X), TUNING.novelty_rows):
            part = X[rows]
            projected = values(part) @ projection
            flags[rows] = np.asarray(kernel.diag(part)) - np.einsum("ij,ij->i", projected, projected) > threshold
        return flags

    return novel
