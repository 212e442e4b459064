"""What every fitted machine here is: a kernel expansion on some points, plus a bias.

    f(x) = sum_i a_i K(x, b_i) + c

Scores are computed tile by tile, so prediction needs a few megabytes beside its input and output whatever the number of
points. NumPy in, NumPy out; a tensor in, a tensor out on the same device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless._runtime.dask_hooks import over_partitions
from gramless._runtime.validation import check_X
from gramless.calibration.platt import sigmoid_probabilities
from gramless.kernels import Kernel, as_kernel
from gramless.operators import expand


class KernelExpansion(BaseEstimator):
    """Shared by the estimators whose model is `points_`, `dual_coef_`, `intercept_` and `kernel_`.

    Subclasses fit; this class scores, predicts labels or values, and turns scores into probabilities.

    Attributes
    ----------
    kernel_ : Kernel
        With every setting a number.
    points_ : array of shape (m, n_features)
    dual_coef_ : ndarray of shape (m, n_outputs)
    intercept_ : ndarray of shape (n_outputs,)
    """

    kernel_: Kernel
    points_: Array
    dual_coef_: np.ndarray
    intercept_: np.ndarray
    classes_: np.ndarray
    device_: str
    support_: np.ndarray
    kernel: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        kernel = getattr(self, "kernel", None)
        tags.input_tags.pairwise = kernel == "precomputed" or (isinstance(kernel, Kernel) and not kernel.separable)
        tags.input_tags.sparse = True
        return tags

    def _kernel(self) -> Kernel:
        """The kernel that the constructor's arguments mean."""
        settings = {name: getattr(self, name) for name in ("gamma", "degree", "coef0") if hasattr(self, name)}
        return as_kernel(self.kernel, **settings)

    def _scores(self, X: Any) -> Array:
        """`f(x)` for each row, one column for each output, in the library and on the device of `X`."""
        check_is_fitted(self, "dual_coef_")
        dtype = xa.numpy_dtype(self.dual_coef_)
        checked = check_X(self, X, dtype=dtype, reset=False, accept_sparse=self.kernel_.accepts_sparse)
        device = xa.device_of(checked) if xa.is_torch(checked) else self.device_
        # A basis of all rows may still be in an order of its own.
        if not self.kernel_.separable and not np.array_equal(self.support_, np.arange(checked.shape[1])):
            checked = checked[:, xa.indices(self.support_, checked)]
        points, coef = self._model_on(device)
        precision = getattr(self, "precision", "highest")
        scores = expand(self.kernel_, xa.to_device(checked, device), points, coef, precision)
        scores += xa.like(self.intercept_, scores)
        return scores if xa.is_torch(X) else xa.to_numpy(scores)

    def _model_on(self, device: str) -> tuple[Array, Array]:
        """Points and coefficients on a device; the points stay there, since moving them costs more than using them."""
        if device == "cpu":
            return self.points_, self.dual_coef_
        kept = getattr(self, "_moved", None)
        if kept is None or kept[0] is not self.points_ or xa.device_of(kept[1]) != device:
            kept = self.points_, xa.to_device(self.points_, device, xa.numpy_dtype(self.dual_coef_))
            self._remember(kept[1])
        return kept[1], xa.to_device(self.dual_coef_, device)

    def _set_training_points(self, points: Array, on_device: Array, train: np.ndarray) -> None:
        """Take the training rows `train` as the model's points: kept in NumPy, and where they already are."""
        self.support_ = train
        if not self.kernel_.separable:
            self.points_ = np.empty((len(train), 0), xa.numpy_dtype(points))
        else:
            self.points_ = points if xa.is_sparse(points) else xa.to_numpy(points)
        self._remember(on_device if self.kernel_.separable else None)

    def _remember(self, points_on_device: Array | None) -> None:
        """Keep the copy of `points_` that is already where it will be used again."""
        self._moved = (self.points_, points_on_device) if xa.is_torch(points_on_device) else None

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {key: value for key, value in state.items() if key != "_moved"}


def scores_to_labels(classes: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The class of the largest score; for two classes, of the score's sign."""
    if len(classes) == 2:
        return classes[(scores.reshape(-1) > 0).astype(int)]
    return classes[scores.argmax(axis=1)]


def _has_probabilities(estimator: Any) -> bool:
    if estimator.probability is False:
        raise AttributeError("predict_proba needs probability='softmax' or 'sigmoid'; this estimator has probability=False")
    return True


class ExpansionClassifier(KernelExpansion):
    """A kernel expansion whose outputs are class scores."""

    @over_partitions
    def decision_function(self, X: Any) -> Array:
        """Class scores: shape (n,) for two classes (positive means `classes_[1]`), (n, n_classes) for more."""
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    @over_partitions
    def predict(self, X: Any) -> np.ndarray:
        """The class of each row; always NumPy, since labels may be strings."""
        scores = xa.to_numpy(self._scores(X))
        return scores_to_labels(self.classes_, scores)

    @available_if(_has_probabilities)
    @over_partitions
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, columns in the order of `classes_`.

        `probability="softmax"` is the softmax of the scores; `"sigmoid"` is Platt's sigmoid of each score, normalised.
        """
        scores = xa.to_numpy(self._scores(X)).astype(np.float64)
        if self.probability == "sigmoid":
            check_is_fitted(self, "sigmoids_", msg="%(name)s has no sigmoids: they are fitted at the end of fit")
            return sigmoid_probabilities(scores, self.sigmoids_)
        if len(self.classes_) == 2:
            positive = expit(scores[:, 0])
            return np.column_stack([1 - positive, positive])
        return softmax(scores, axis=1)


class ExpansionRegressor(KernelExpansion):
    """A kernel expansion whose outputs are the predicted values."""

    _single_output: bool

    @over_partitions
    def predict(self, X: Any) -> Array:
        """Predicted values, of the shape `y` had at fit."""
        scores = self._scores(X)
        return scores[:, 0] if self._single_output else scores
