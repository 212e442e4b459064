"""Base classes of estimators whose model is a kernel expansion on training rows or other points, plus a bias.

    f(x) = sum_i a_i K(x, b_i) + c

Scores are computed tile by tile, so a prediction needs a few megabytes in addition to its input and output.
The output has the array type and the device of the input.
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
from gramless._core.memory import parse_budget
from gramless._core.targets.columns import scores_to_labels
from gramless._core.threads import slices
from gramless._core.validation import check_square, check_X, working_dtype
from gramless.inference.intervals import prediction_intervals, prediction_sets, standard_deviations
from gramless.inference.iterative import Posterior, make_posterior
from gramless.inference.posterior import LeastSquaresModel
from gramless.inference.probabilities import ProbabilityMixin, has_probabilities
from gramless.kernels import Kernel, kernel_from_parameters
from gramless.kernels.tags import set_input_tags
from gramless.linalg.operators import expand
from gramless.linalg.tuning import TUNING, LinalgTuning

# Values that are recomputed on demand and are not part of a copy or a model file.
_NOT_SAVED = {"_device_points", "_process"}


def check_kernel_input(X: Array, *kernels: Kernel) -> None:
    """Raise an error if the kernels cannot be evaluated on `X`, or if precomputed kernel values are not square."""
    if xa.is_sparse(X) and not all(kernel.accepts_sparse for kernel in kernels):
        raise TypeError("Sparse data was passed for X, but dense data is required. Use '.toarray()' to convert X.")
    precomputed = {not kernel.uses_points for kernel in kernels}
    if len(precomputed) > 1:
        raise ValueError(
            "a precomputed kernel cannot be compared with kernels of points: X is either points or kernel values"
        )
    if precomputed == {True}:
        check_square(X)


class BaseKernelExpansion(BaseEstimator):
    """Estimator with `kernel_`, `points_`, `dual_coef_`, `intercept_` and `device_`; subclasses fit, this class scores."""

    kernel_: Kernel
    points_: Array
    dual_coef_: np.ndarray
    intercept_: np.ndarray
    device_: str
    support_: Any
    kernel: Any
    dtype: Any
    _tuning: LinalgTuning = TUNING

    def _kernel(self) -> Kernel:
        """Return the kernel given by the parameters `kernel`, `gamma`, `degree` and `coef0`."""
        return kernel_from_parameters(vars(self))

    def _check_rows(self, X: Any) -> Array:
        """Return the validated training rows in the working precision."""
        return check_X(self, X, dtype=working_dtype(X, self.dtype), reset=True)

    def _set_points(self, kernel: Kernel, points: Array, device_points: Array, rows: np.ndarray) -> None:
        """Store training rows as the points of the model, in NumPy and on the device of the computation."""
        self.kernel_, self.support_ = kernel, rows
        self.__dict__.pop("compression_", None)  # attribute of an earlier fit
        if kernel.uses_points:
            self.points_ = points if xa.is_sparse(points) else xa.to_numpy(points)
        else:
            self.points_ = np.empty((len(rows), 0), xa.numpy_dtype(points))
        self._cache_device_points(device_points if kernel.uses_points else None)

    def _cache_device_points(self, points: Array | None) -> None:
        """Cache the copy of `points_` on a device, because transferring the points takes longer than using them."""
        self._device_points = (self.points_, points) if xa.is_torch(points) else None

    def _points_on(self, device: str) -> Array:
        if device == "cpu":
            return self.points_
        cached = vars(self).get("_device_points")
        if cached is None or cached[0] is not self.points_ or xa.device_of(cached[1]) != device:
            points = xa.to_device(self.points_, device, xa.numpy_dtype(self.dual_coef_))
            self._cache_device_points(points)
            return points
        return cached[1]

    def _scores(self, X: Any) -> Array:
        """Return `f(x)` for each row, with one column for each output, in the array type and on the device of `X`."""
        check_is_fitted(self, "dual_coef_")
        dtype, kernel = xa.numpy_dtype(self.dual_coef_), self.kernel_
        checked = check_X(self, X, dtype=dtype, reset=False, accept_sparse=kernel.accepts_sparse)
        device = xa.device_of(checked) if xa.is_torch(checked) else self.device_
        # `support_` may be a subset or a permutation of the columns of a precomputed kernel.
        if not kernel.uses_points and not np.array_equal(self.support_, np.arange(checked.shape[1])):
            checked = checked[:, xa.indices(self.support_, checked)]
        points, coef = self._points_on(device), xa.to_device(self.dual_coef_, device)
        precision = precision_of(getattr(self, "device", None))
        # On a device sparse rows are converted to dense rows, one part at a time.
        step = checked.shape[0] if device == "cpu" or not xa.is_sparse(checked) else self._tuning.sparse_rows_on_device
        parts = [
            expand(kernel, xa.to_device(checked[rows], device), points, coef, precision)
            for rows in slices(checked.shape[0], max(1, step))
        ]
        scores = parts[0] if len(parts) == 1 else xa.namespace(coef).concat(parts)
        # The bias of a regressor contains the mean of the targets. Adding a large mean in float32 would lose the digits of
        # the other terms.
        scores = xa.astype(scores, np.result_type(dtype, xa.numpy_dtype(self.intercept_)))
        scores += xa.like(self.intercept_, scores)
        return xa.in_namespace_of(scores, X)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key not in _NOT_SAVED}

    def __sklearn_tags__(self) -> Any:
        return set_input_tags(super().__sklearn_tags__(), self.kernel)


class ExpansionClassifier(ProbabilityMixin, ClassifierMixin, BaseKernelExpansion):
    """Classifier whose scores are a kernel expansion with one output for two classes, else one for each class."""

    classes_: np.ndarray

    @dispatch_prediction
    def decision_function(self, X: Any) -> Array:
        """Return the class scores.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows to score; kernel values with the training rows if the kernel is precomputed.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_classes)
            One column for two classes, positive for `classes_[1]`.
        """
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    @dispatch_prediction
    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each row.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows to classify; kernel values with the training rows if the kernel is precomputed.

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
        """Return the probability of each class, by the method that the parameter `probability` selects.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows to classify; kernel values with the training rows if the kernel is precomputed.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`.
        """
        return self._probabilities(xa.to_numpy(self._scores(X)))


class LeastSquaresClassifier(ExpansionClassifier):
    """Classifier with prediction sets that are computed from the leave-one-out scores of its training rows."""

    calibration_scores_: np.ndarray
    calibration_codes_: np.ndarray

    def predict_set(self, X: Any, coverage: float = 0.9, *, per_class: bool = False, random_state: Any = None) -> np.ndarray:
        """Return sets of classes that contain the true class with a given probability.

        The sets are adaptive prediction sets from leave-one-out probabilities: rows that are hard to classify get large
        sets. A set may be empty if the coverage is below the accuracy.

        Parameters
        ----------
        X : array, sparse matrix or tensor of shape (n_samples, n_features)
            Rows to classify; kernel values with the training rows if the kernel is precomputed.
        coverage : float, default=0.9
            Probability between 0 and 1 that a set contains the true class.
        per_class : bool, default=False
            Whether the rows of each class have this coverage, instead of all rows together.
        random_state : int, RandomState or None, default=None
            Seed or generator of the random fraction of a class's own probability that makes the coverage exact.

        Returns
        -------
        ndarray of bool of shape (n_samples, n_classes)
            Columns in the order of `classes_`. With the same `random_state`, sets of a larger coverage contain those of a
            smaller one.
        """
        check_is_fitted(self)
        try:
            own, codes = self.calibration_scores_, self.calibration_codes_
        except AttributeError as reason:
            raise ValueError(str(reason)) from None
        probabilities = np.asarray(self.predict_proba(X))
        return prediction_sets(probabilities, own, codes, coverage, per_class=per_class, random_state=random_state)


class ExpansionRegressor(RegressorMixin, MultiOutputMixin, BaseKernelExpansion):
    """Regressor whose predicted values are a kernel expansion."""

    _single_output: bool

    @dispatch_prediction
    def predict(self, X: Any) -> Array:
        """Return the predicted values.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows to predict; kernel values with the training rows if the kernel is precomputed.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_outputs)
            One value, or one row of values, for each row.
        """
        scores = self._scores(X)
        return scores[:, 0] if self._single_output else scores


class LeastSquaresRegressor(ExpansionRegressor):
    """Regressor that is the posterior mean of a Gaussian process, with standard deviations and prediction intervals."""

    memory_budget: str | float | None
    _weights: np.ndarray | None
    _process: tuple[np.ndarray, Posterior]

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the predicted values and, if requested, their standard deviations.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows to predict; kernel values with the training rows if the kernel is precomputed.
        return_std : bool, default=False
            Whether to return the standard deviation of the Gaussian process: that of the function, without the noise of a
            new value, scaled to the size of the leave-one-out residuals. The first call factors the kernel matrix or, if
            that exceeds the memory budget, solves a system for each new row.

        Returns
        -------
        values : array of shape (n_samples,) or (n_samples, n_outputs)
            One value, or one row of values, for each row.
        deviations : ndarray of the same shape
            Only with `return_std`.
        """
        values = super().predict(X)
        if not return_std:
            return values
        process = self._posterior()
        deviations = standard_deviations(process, self._rows_of_process(X, process))
        return values, deviations[:, 0] if self._single_output else deviations

    def predict_interval(self, X: Any, coverage: float = 0.9, *, local: bool = False) -> np.ndarray:
        """Return intervals that contain the value of a new row with a given probability, by the jackknife+.

        No rows are held out: the models without each training row are known in closed form. If a factorisation exceeds the
        memory budget, the residuals are estimated and the intervals are those of the plain jackknife.

        Parameters
        ----------
        X : array, sparse matrix or tensor of shape (n_samples, n_features)
            Rows to predict.
        coverage : float, default=0.9
            Probability between 0 and 1. If new rows have the distribution of the training rows, at least
            `1 - 2 (1 - coverage)` of the values are inside, and in practice about `coverage`.
        local : bool, default=False
            Whether intervals are wider where the standard deviation is larger.

        Returns
        -------
        ndarray of shape (n_samples, 2), or (n_samples, n_outputs, 2)
            Lower and upper ends; infinite if there are too few training rows for the coverage.
        """
        process = self._posterior()
        # LSSVRCV chose its settings by these residuals, which are therefore too small by the factor `optimism_`.
        factor = getattr(self, "optimism_", 1.0)
        rows = self._rows_of_process(X, process)
        ends = prediction_intervals(process, rows, coverage, local=local, factor=factor)
        return ends[:, 0] if self._single_output else ends

    def _posterior(self) -> Posterior:
        """Return the Gaussian process of the fitted model, which is computed at the first call."""
        check_is_fitted(self, "dual_coef_")
        cached = vars(self).get("_process")
        if cached is not None and cached[0] is self.dual_coef_:
            return cached[1]
        if hasattr(self, "compression_"):
            raise ValueError("a compressed model no longer has its training rows: use the model that was compressed")
        if not self.kernel_.uses_points:
            raise ValueError("intervals need the data and a kernel: a precomputed kernel has no values k(x, x) of new rows")
        model = LeastSquaresModel(
            self.kernel_,
            self.points_,
            self.dual_coef_,
            self.intercept_,
            1.0 / float(getattr(self, "C_", None) or self.C),
            self._weights,
            getattr(self, "fit_intercept", True),
            self.device_,
        )
        budget = parse_budget(self.memory_budget, self.device_)
        process = make_posterior(model, budget, random_state=getattr(self, "random_state", None), tuning=self._tuning)
        self._process = self.dual_coef_, process
        return process

    def _rows_of_process(self, X: Any, process: Posterior) -> Array:
        """Return validated new rows on the device and in the precision of the Gaussian process."""
        own = xa.numpy_dtype(self.dual_coef_)
        checked = check_X(self, X, dtype=own, reset=False, accept_sparse=self.kernel_.accepts_sparse)
        return xa.to_device(checked, self.device_, np.float64 if process.exact else own)
