"""What every fitted machine here is: a kernel expansion on some points, plus a bias.

    f(x) = sum_i a_i K(x, b_i) + c

Scores are computed tile by tile, so prediction needs a few megabytes beside its input and output whatever the number of
points. NumPy in, NumPy out; a tensor in, a tensor out on the same device.

An expansion is any object with `kernel_`, `points_`, `dual_coef_`, `intercept_` and `device_`; what is done with one is a
function here. `ExpansionClassifier` and `ExpansionRegressor` add scikit-learn's methods of prediction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.dask_dispatch import dispatch_prediction
from gramless._core.device import precision_of
from gramless._core.threads import slices
from gramless._core.validation import check_X
from gramless.inference.platt import sigmoid_probabilities
from gramless.inference.temperature import temperature_probabilities
from gramless.kernels import Kernel, as_kernel
from gramless.linalg.operators import expand

# What a model keeps only because it has computed it: a file or a copy makes it anew.
# Sparse rows that are scored on a device at a time.
_SPARSE_ROWS_AT_A_TIME = 8192
_NOT_SAVED = {"_moved", "_posterior", "_kept_likelihood"}


def kernel_from_settings(estimator: Any) -> Kernel:
    """The kernel that an estimator's `kernel`, `gamma`, `degree` and `coef0` mean."""
    settings = {name: value for name, value in vars(estimator).items() if name in ("gamma", "degree", "coef0")}
    return as_kernel(estimator.kernel, **settings)


def is_pairwise(kernel: Any) -> bool:
    """Whether `kernel=` means that `X` holds kernel values; true for a list of kernels with such a one."""
    if isinstance(kernel, list | tuple):
        return any(map(is_pairwise, kernel))
    return kernel == "precomputed" if isinstance(kernel, str) else isinstance(kernel, Kernel) and not kernel.uses_points


def set_input_tags(tags: Any, kernel: Any) -> Any:
    """scikit-learn's tags of an estimator with a kernel: sparse rows, and kernel values where it is precomputed."""
    tags.input_tags.pairwise = is_pairwise(kernel)
    tags.input_tags.sparse = True
    return tags


def score_expansion(model: Any, X: Any) -> Array:
    """`f(x)` for each row, one column for each output, in the library and on the device of `X`."""
    check_is_fitted(model, "dual_coef_")
    dtype, kernel = xa.numpy_dtype(model.dual_coef_), model.kernel_
    checked = check_X(model, X, dtype=dtype, reset=False, accept_sparse=kernel.accepts_sparse)
    device = xa.device_of(checked) if xa.is_torch(checked) else model.device_
    # A basis of all rows may still be in an order of its own.
    if not kernel.uses_points and not np.array_equal(model.support_, np.arange(checked.shape[1])):
        checked = checked[:, xa.indices(model.support_, checked)]
    points, coef = expansion_on(model, device)
    precision = precision_of(getattr(model, "device", None))
    # Sparse rows are dense on a device: some at a time.
    step = checked.shape[0] if device == "cpu" or not xa.is_sparse(checked) else _SPARSE_ROWS_AT_A_TIME
    parts = [
        expand(kernel, xa.to_device(checked[rows], device), points, coef, precision)
        for rows in slices(checked.shape[0], max(1, step))
    ]
    scores = parts[0] if len(parts) == 1 else xa.namespace(coef).concat(parts)
    # A regressor's bias holds the mean of the targets: where that is large, float32 has no digits left for the rest.
    scores = xa.astype(scores, np.result_type(dtype, xa.numpy_dtype(model.intercept_)))
    scores += xa.like(model.intercept_, scores)
    return scores if xa.is_torch(X) else xa.to_numpy(scores)


def expansion_on(model: Any, device: str) -> tuple[Array, Array]:
    """Points and coefficients on a device; the points stay there, since moving them costs more than using them."""
    if device == "cpu":
        return model.points_, model.dual_coef_
    kept = getattr(model, "_moved", None)
    if kept is None or kept[0] is not model.points_ or xa.device_of(kept[1]) != device:
        kept = model.points_, xa.to_device(model.points_, device, xa.numpy_dtype(model.dual_coef_))
        keep_on_device(model, kept[1])
    return kept[1], xa.to_device(model.dual_coef_, device)


def keep_on_device(model: Any, points: Array | None) -> None:
    """Keep the copy of `points_` that is already where it will be used again."""
    model._moved = (model.points_, points) if xa.is_torch(points) else None


def set_training_points(model: Any, points: Array, on_device: Array, rows: np.ndarray) -> None:
    """Take the training rows `rows` as the model's points: kept in NumPy, and where they already are."""
    model.support_ = rows
    vars(model).pop("compression_", None)  # of another set of points
    if not model.kernel_.uses_points:
        model.points_ = np.empty((len(rows), 0), xa.numpy_dtype(points))
    else:
        model.points_ = points if xa.is_sparse(points) else xa.to_numpy(points)
    keep_on_device(model, on_device if model.kernel_.uses_points else None)


def set_single_output(model: Any, single: bool) -> None:
    """Whether `predict` of a regressor gives one value for each row, or a row of values."""
    model._single_output = single


def scores_to_labels(classes: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The class of the largest score; for two classes, of the score's sign."""
    if len(classes) == 2:
        return classes[(scores.reshape(-1) > 0).astype(int)]
    return classes[scores.argmax(axis=1)]


def scores_to_probabilities(model: Any, scores: np.ndarray) -> np.ndarray:
    """Class probabilities by what the model's `probability` says.

    Parameters
    ----------
    model : classifier
        With `classes_`, and with `sigmoids_` or `temperature_` where they are asked for.
    scores : ndarray of shape (n, n_outputs)

    Returns
    -------
    ndarray of shape (n, n_classes)
    """
    scores = scores.astype(np.float64)
    if model.probability == "sigmoid":
        check_is_fitted(model, "sigmoids_", msg="%(name)s has no sigmoids: they are fitted at the end of fit")
        return sigmoid_probabilities(scores, model.sigmoids_)
    if model.probability in ("temperature", "auto"):
        check_is_fitted(model, "temperature_", msg="%(name)s has no temperature: it is fitted at the end of fit")
        return temperature_probabilities(scores, model.temperature_)
    return temperature_probabilities(scores, 1.0)


def has_probabilities(estimator: Any) -> bool:
    """True, or an AttributeError that says what to set."""
    if estimator.probability is False:
        raise AttributeError("predict_proba needs probability='softmax' or 'sigmoid'; this estimator has probability=False")
    return True


class ExpansionClassifier(ClassifierMixin, BaseEstimator):
    """A kernel expansion whose outputs are class scores: what its subclasses fit, this class predicts with.

    Attributes
    ----------
    kernel_ : Kernel
        With every setting a number.
    points_ : array of shape (m, n_features)
    dual_coef_ : ndarray of shape (m, n_outputs)
    intercept_ : ndarray of shape (n_outputs,)
    classes_ : ndarray
    """

    kernel_: Kernel
    points_: Array
    dual_coef_: np.ndarray
    intercept_: np.ndarray
    classes_: np.ndarray
    device_: str
    support_: Any
    kernel: Any
    probability: str | bool

    @dispatch_prediction
    def decision_function(self, X: Any) -> Array:
        """Class scores.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            The rows; kernel values with the training rows where the kernel is precomputed.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_classes)
            One column for two classes, where positive means `classes_[1]`.
        """
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    @dispatch_prediction
    def predict(self, X: Any) -> np.ndarray:
        """The class of each row.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            The rows; kernel values with the training rows where the kernel is precomputed.

        Returns
        -------
        ndarray of shape (n_samples,)
            Always NumPy, since labels may be strings.
        """
        scores = xa.to_numpy(self._scores(X))
        return scores_to_labels(self.classes_, scores)

    @available_if(has_probabilities)
    @dispatch_prediction
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class.

        `probability="softmax"` is the softmax of the scores; `"sigmoid"` is Platt's sigmoid of each score,
        normalised; `"temperature"` the softmax of the scores divided by a temperature; `"auto"` the same where the
        temperature costs no more than the fit, else the softmax.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            The rows; kernel values with the training rows where the kernel is precomputed.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`.
        """
        return scores_to_probabilities(self, xa.to_numpy(self._scores(X)))

    def _scores(self, X: Any) -> Array:
        return score_expansion(self, X)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key not in _NOT_SAVED}

    def __sklearn_tags__(self) -> Any:
        return set_input_tags(super().__sklearn_tags__(), self.kernel)


class ExpansionRegressor(RegressorMixin, MultiOutputMixin, BaseEstimator):
    """A kernel expansion whose outputs are the predicted values: what its subclasses fit, this class predicts with.

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
    device_: str
    support_: Any
    kernel: Any
    _single_output: bool

    @dispatch_prediction
    def predict(self, X: Any) -> Array:
        """Predicted values.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            The rows; kernel values with the training rows where the kernel is precomputed.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_outputs)
            As `y` was at fit.
        """
        scores = self._scores(X)
        return scores[:, 0] if self._single_output else scores

    def _scores(self, X: Any) -> Array:
        return score_expansion(self, X)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key not in _NOT_SAVED}

    def __sklearn_tags__(self) -> Any:
        return set_input_tags(super().__sklearn_tags__(), self.kernel)
