"""A fitted kernel expansion that answers at once: no checks, no choices, everything that does not change computed before.

    f(x) = sum_i a_i K(x, b_i) + c

For the RBF kernel the exponent is one product with the points and two sums that are known beforehand; other kernels are
called as they are. One row of 50 features and 2,000 points takes some ten microseconds of arithmetic, and validation in
scikit-learn's way several times that: here the caller promises rows of the right width, finite, in a dense array. Several
rows go through the compiled loop of `gramless.linalg.operators.blocks`, with points that were packed for it once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from gramless.kernels import RBF, ScaledColumns
from gramless.kernels.stationary import in_registers
from gramless.linalg.operators.blocks import PackedGaussian
from gramless.models.expansion import scores_to_labels, scores_to_probabilities

# As many rows cost no more in the compiled loop, which computes whole strips of rows, than by matrix products.
_SEVERAL_ROWS = 4


class CompiledModel:
    """Predictions of a fitted model without checks; made by `gramless.compiled`.

    Attributes
    ----------
    classes_ : ndarray
        Of a classifier.
    n_features_in_ : int
        Columns that rows must have.
    dtype : dtype
        In which kernel values are computed.

    Parameters
    ----------
    model : estimator
        Fitted, with points and coefficients.
    dtype : {"float32", "float64"} or None, default=None
        None is the dtype of the model's coefficients.
    """

    def __init__(self, model: Any, dtype: str | None = None):
        self._model = model
        self.n_features_in_ = int(model.n_features_in_)
        self.dtype = np.dtype(model.dual_coef_.dtype if dtype is None else dtype)
        self._coef = np.ascontiguousarray(model.dual_coef_, dtype=self.dtype)
        self._bias = np.asarray(model.intercept_, dtype=np.float64)
        points = model.points_.toarray() if sp.issparse(model.points_) else model.points_
        self._kernel, self._scales = model.kernel_, None
        if type(self._kernel) is ScaledColumns:
            scales = np.asarray(self._kernel.scales, dtype=np.float64)
            points, self._kernel, self._scales = points * scales, self._kernel.kernel, scales.astype(self.dtype)
        self._points = np.ascontiguousarray(points, dtype=self.dtype)
        self._kernel_values = kernel_values(self._kernel, points, self._points)
        self._packed: PackedGaussian | None = None
        self._classifies = is_classifier(model)
        if self._classifies:
            self.classes_ = model.classes_
        self._single = not self._classifies and bool(model._single_output)

    def _scores(self, X: Any) -> np.ndarray:
        rows = np.asarray(X, dtype=self.dtype)
        if self._scales is not None:
            rows = rows * self._scales
        kernel, points = self._kernel, self._points
        if (
            len(rows) < _SEVERAL_ROWS
            or type(kernel) is not RBF
            or not in_registers(rows, points, len(rows) * len(points), 0)
        ):
            return self._kernel_values(rows) @ self._coef + self._bias
        if self._packed is None:
            self._packed = PackedGaussian(float(kernel.gamma), points, self._coef)
        scores = np.zeros((len(rows), self._coef.shape[1]))
        self._packed.add(rows, scores)
        scores += self._bias
        return scores

    def decision_function(self, X: Any) -> np.ndarray:
        """Class scores, as the model's own.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Finite and dense; not checked.

        Returns
        -------
        ndarray of shape (n,) or (n, n_classes)
            One column for two classes.
        """
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> np.ndarray:
        """Labels or values, as the model's own.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Finite and dense; not checked.

        Returns
        -------
        ndarray of shape (n,) or (n, n_outputs)
            A prediction for each row.
        """
        scores = self._scores(X)
        if self._classifies:
            return scores_to_labels(self.classes_, scores)
        return scores[:, 0] if self._single else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, as the model's own.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Finite and dense; not checked.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Columns in the order of `classes_`.
        """
        return scores_to_probabilities(self._model, self._scores(X))

    def predict_one(self, x: Any) -> Any:
        """The label or the value of one row.

        Parameters
        ----------
        x : array of shape (n_features,)
            Finite and dense; not checked.

        Returns
        -------
        object
            An element of `classes_`, a number, or an array of numbers where the model has several outputs.
        """
        scores = self._scores(np.asarray(x, dtype=self.dtype)[None, :])[0]
        if not self._classifies:
            return scores[0] if self._single else scores
        return self.classes_[int(scores[0] > 0) if len(scores) == 1 else int(scores.argmax())]


def compiled(model: Any, *, dtype: str | None = None) -> CompiledModel:
    """A fitted model for single rows and small batches: the same predictions, in a fraction of the time.

    Parameters
    ----------
    model : estimator
        A fitted kernel expansion: `LSSVC`, `LSSVR`, their searches, the one-pass machines on landmarks, `PrototypeLSSVC`,
        `RiSVOClassifier`.
    dtype : {"float32", "float64"} or None, default=None
        In which kernel values are computed; None is that of the model. `"float32"` is faster, and rounds.

    Returns
    -------
    CompiledModel
        With `predict`, `predict_one`, `predict_proba` and `decision_function`, which check nothing.

    See Also
    --------
    to_onnx : The model for other runtimes.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramless import LSSVC, compiled
    >>> X, y = load_iris(return_X_y=True)
    >>> quick = compiled(LSSVC().fit(X, y))
    >>> quick.predict_one([5.0, 3.4, 1.5, 0.2])
    np.int64(0)
    """
    missing = [name for name in ("kernel_", "points_", "dual_coef_", "intercept_") if not hasattr(model, name)]
    if missing:
        check_is_fitted(model)
        raise ValueError(f"{type(model).__name__} is not a kernel expansion with {missing[0]}, and cannot be compiled")
    if not model.kernel_.uses_points or not isinstance(model.points_, np.ndarray | sp.spmatrix | sp.sparray):
        raise ValueError(f"{type(model).__name__} has no points of its own in memory, and cannot be compiled")
    return CompiledModel(model, dtype)


def kernel_values(kernel: Any, given: Any, points: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A function of rows that gives their kernel values with `points`, which are the `given` ones in another dtype."""
    dtype = points.dtype
    if type(kernel) is not RBF:
        return lambda X: kernel(X, points)
    gamma = float(kernel.gamma)
    exact = np.asarray(given, dtype=np.float64)
    centre = exact.mean(axis=0)  # the exponent is a difference of squares, with more digits near the middle
    exact = exact - centre
    # exp(-gamma |x - b|^2) = exp([x, -gamma |x|^2, 1] . [2 gamma b, 1, -gamma |b|^2]): one product is the whole exponent.
    width = exact.shape[1]
    factors = np.empty((width + 2, len(exact)), dtype=dtype)
    factors[:width] = 2 * gamma * exact.T
    factors[width] = 1.0
    factors[width + 1] = -gamma * np.einsum("ij,ij->i", exact, exact)
    middle = centre.astype(dtype)

    def values(X: np.ndarray) -> np.ndarray:
        rows = np.empty((len(X), width + 2), dtype=dtype)
        inside = rows[:, :width]
        np.subtract(X, middle, out=inside)
        rows[:, width] = np.einsum("ij,ij->i", inside, inside)
        rows[:, width] *= -gamma
        rows[:, width + 1] = 1.0
        block = rows @ factors
        np.minimum(block, 0.0, out=block)
        return np.exp(block, out=block)

    return values
