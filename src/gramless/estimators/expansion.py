"""Base class of estimators whose model is a kernel expansion on training rows or other points, plus a bias.

    f(x) = sum_i a_i K(x, b_i) + c

A prediction computes kernel values in tiles, which take a few megabytes in addition to the input and the output. The output
has the array type and the device of the input.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.constraints import estimator
from gramless._core.dask_dispatch import dispatch_prediction, is_dask_collection
from gramless._core.device import Device, precision_of
from gramless._core.targets.columns import scores_to_labels
from gramless._core.threads import slices
from gramless._core.validation import check_positive, check_square, check_X
from gramless.callbacks import read_callbacks, read_functions
from gramless.inference.leave_one_out import Selection, select_model
from gramless.inference.probabilities import LEAVE_ONE_OUT_METHODS, has_probabilities, probabilities_by_method
from gramless.kernels import Kernel, Linear, as_kernel, kernel_candidates, set_input_tags
from gramless.linalg.least_squares import ExpansionFit, LeastSquaresSettings, fit_expansion, warn_of_rounding
from gramless.linalg.operators import expand
from gramless.linalg.tuning import TUNING

CALIBRATION = ("sigmoids_", "_calibration", "_codes", "_weights", "optimism_")
"""Attributes derived from the scores of one fit, which are deleted at the start of the next fit."""
_SEARCH = ("params_", "best_params_", "best_score_", "scores_", "loo_decision_")
_SOLVE = ("n_iter_", "residual_")
# Values that are recomputed on demand and are not part of a copy or a model file.
_NOT_SAVED = {"_device_points", "_process"}


def _check_kernel_input(X: Array, *kernels: Kernel) -> None:
    """Raise an error if the kernels cannot be evaluated on `X`, or if the matrix of a precomputed kernel is not square."""
    if xa.is_sparse(X) and not all(kernel.accepts_sparse for kernel in kernels):
        raise TypeError("Sparse data was passed for X, but dense data is required. Use '.toarray()' to convert X.")
    precomputed = {not kernel.uses_points for kernel in kernels}
    if len(precomputed) > 1:
        raise ValueError(
            "a precomputed kernel cannot be compared with kernels of points: X is either points or kernel values"
        )
    if precomputed == {True}:
        check_square(X)


def _is_classifier(estimator: Any) -> bool:
    return isinstance(estimator, ClassifierMixin)


def former_search_parameters(kernel: Any, param_grid: dict[str, Any] | None) -> dict[str, Any]:
    """Convert `kernel` and `param_grid` of the former search estimators to parameters of `LSSVC` and `LSSVR`."""
    grid = param_grid or {}
    kernels = list(kernel) if isinstance(kernel, list | tuple) else [kernel]
    if set(grid) <= {"gamma", "degree", "coef0"} and all(isinstance(one, str) for one in kernels):
        return {"C": "loo", "kernel": kernel, **{name: list(values) for name, values in grid.items()}}
    candidates = [clone(as_kernel(one)).set_params(**values) for one in kernels for values in ParameterGrid(grid)]
    return {"C": "loo", "kernel": candidates if grid else kernel}


@estimator
class BaseKernelExpansion(BaseEstimator):
    """Base class that predicts with `kernel_`, `points_`, `dual_coef_`, `intercept_` and `device_`, which subclasses fit."""

    kernel: Any = "rbf"
    gamma: Any = "scale"
    degree: Any = 3
    coef0: Any = 0.0
    dtype: Any = None
    device: Device = None
    memory_budget: str | float | None = None
    callback: Any = None
    verbose: int = 0
    random_state: Any = None

    multilabel_ = False
    _tuning = TUNING

    def _kernel(self) -> Kernel:
        """Return the kernel given by `kernel`, `gamma`, `degree` and `coef0`; ValueError if lists give several kernels."""
        (_, kernel), *others = kernel_candidates(vars(self))
        if others:
            remedy = "compares them with C='loo' only" if hasattr(self, "Cs") else "has one kernel"
            raise ValueError(f"{len(others) + 1} kernels are given by lists: {type(self).__name__} {remedy}")
        return kernel

    def _settings(self) -> LeastSquaresSettings:
        """Return the settings of the linear system and of its solver, from the parameters of `LSSVC` and `LSSVR`."""
        tuning, select = self._tuning, self.C == "loo"
        if select and not (isinstance(self.solver, str) and self.solver == "auto"):
            raise ValueError(
                f"C='loo' computes all models from one eigendecomposition: use solver='auto', not {self.solver!r}"
            )
        return LeastSquaresSettings(
            estimator_name=type(self).__name__,
            C=1.0 if self.C == "loo" else float(self.C),
            n_Cs=np.size(self.Cs) if select else 0,
            solver=self.solver,
            tol=self.tol,
            auto_tol=tuning.label_tol if isinstance(self, ClassifierMixin) else tuning.value_tol,
            max_iter=self.max_iter,
            fit_intercept=getattr(self, "fit_intercept", True),
            device=self.device,
            memory_budget=self.memory_budget,
            verbose=self.verbose,
            random_state=self.random_state,
            callbacks=read_functions(self) if select else read_callbacks(self.callback),
            leave_one_out=getattr(self, "probability", False) in LEAVE_ONE_OUT_METHODS,
            tuning=tuning,
        )

    def _solve(self, X: Array, Z: np.ndarray, weights: np.ndarray | None, **options: Any) -> ExpansionFit:
        """Fit and store the model for the targets `Z`; callbacks receive this estimator with the current solution."""
        kernel = self._kernel()
        _check_kernel_input(X, kernel)
        self._delete(*_SEARCH)
        kernel, settings = kernel.resolve(X, weights), self._settings()
        start = vars(self).get("_solution") if self.warm_start else None
        callback = partial(self._store_and_call, settings)
        fit = fit_expansion(X, Z, weights, kernel, settings, start=start, callback=callback, **options)
        self._store_fit(fit, settings.C)
        return fit

    def _store_and_call(self, settings: LeastSquaresSettings, fit: ExpansionFit, record: dict[str, Any]) -> bool:
        """Store the solution of an iteration and call the user's functions; return True if a function requests a stop."""
        self._store_fit(fit, settings.C)
        return settings.callbacks(self, record)

    def _store_fit(self, fit: ExpansionFit, C: float) -> None:
        self._set_points(fit.kernel, fit.points, fit.device_points, fit.support)
        self.dual_coef_, self.intercept_, self.device_, self.C_ = fit.coef, fit.intercept, fit.device, C
        self.solver_, self.solver_reason_ = fit.plan.solver, fit.plan.reason
        if fit.result is not None:
            self.history_, self.n_iter_, self.residual_ = fit.result.history, fit.result.n_iter, fit.result.residual
            if self.warm_start:
                self._solution = xa.to_numpy(fit.result.W)

    def _select(
        self,
        X: Array,
        Z: np.ndarray,
        weights: np.ndarray | None,
        score: Callable[[np.ndarray, np.ndarray, np.ndarray | None], float],
    ) -> None:
        """Select and store the model with the best `score`; callbacks receive this estimator with the best model so far."""
        settings, Cs = self._settings(), np.atleast_1d(np.asarray(self.Cs, dtype=float))
        if Cs.size == 0:
            raise ValueError("Cs is empty: give at least one C")
        for C in Cs:
            check_positive("every C in Cs", float(C))
        self.params_, kernels = map(list, zip(*kernel_candidates(vars(self)), strict=True))
        _check_kernel_input(X, *kernels)
        self._delete(*_SOLVE)

        def report(found: Selection, record: dict[str, Any]) -> bool:
            kernel, C = found.best
            self._store_fit(found.fit, float(Cs[C]))
            # The intercept of a regressor stays in float64: in float32 the mean of the targets would lose digits.
            if isinstance(self, ClassifierMixin):
                self.intercept_ = self.intercept_.astype(self.dual_coef_.dtype)
            self.scores_, self.best_score_ = found.scores, float(found.scores[kernel, C])
            self.best_params_ = {**self.params_[kernel], "C": self.C_}
            self.loo_decision_ = found.loo[:, 0] if Z.shape[1] == 1 else found.loo
            self.history_ = found.history
            return settings.callbacks(self, record)

        found = select_model(X, Z, weights, kernels, Cs, score, settings, report)
        warn_of_rounding(self.kernel_, found.fit.points, self.dual_coef_, Z[self.support_])

    def _fit_collections(self, rows: Any, solve: Callable[..., ExpansionFit]) -> Self:
        """Store the model that `solve(callback)` fits to rows on dask workers."""
        validate_data(self, rows.example, skip_check_array=True, reset=True)
        self._delete(*CALIBRATION, *_SEARCH, "multilabel_")
        if rows.classes is None:
            self._single_output = not rows.target_shape
        else:
            self.classes_ = rows.classes
        settings = self._settings()
        self._store_fit(solve(partial(self._store_and_call, settings)), settings.C)
        return self

    def _model_of_scores(self) -> Self:
        """Return a model that takes scores of this model instead of rows, and predicts the same labels and probabilities."""
        model, k = copy.copy(self), self.dual_coef_.shape[1]
        dtype = np.result_type(self.dual_coef_, self.intercept_)
        model.kernel_, model.points_, model.dual_coef_ = Linear(), np.eye(k, dtype=dtype), np.eye(k, dtype=dtype)
        model.intercept_, model.support_, model.n_features_in_ = np.zeros(k, dtype), np.arange(k), k
        model._delete("feature_names_in_")
        return model

    def _delete(self, *names: str) -> None:
        """Delete the attributes `names` of an earlier fit, if they exist."""
        for name in names:
            self.__dict__.pop(name, None)

    def _set_points(self, kernel: Kernel, points: Array, device_points: Array, rows: Any) -> None:
        """Store training rows as the points of the model, in NumPy and on the device of the computation."""
        self.kernel_, self.support_ = kernel, rows
        self._delete("compression_")
        if kernel.uses_points:
            self.points_ = points if xa.is_sparse(points) or is_dask_collection(points) else xa.to_numpy(points)
        else:
            self.points_ = np.empty((len(rows), 0), xa.numpy_dtype(points))
        # The points on the device are cached, because transferring them takes longer than predicting with them.
        cached = kernel.uses_points and xa.is_torch(device_points)
        self._device_points = (self.points_, device_points) if cached else None

    def _points_on(self, device: str) -> Array:
        if device == "cpu":
            return self.points_
        cached = vars(self).get("_device_points")
        if cached is None or cached[0] is not self.points_ or xa.device_of(cached[1]) != device:
            points = xa.to_device(self.points_, device, xa.numpy_dtype(self.dual_coef_))
            cached = self._device_points = self.points_, points
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
        precision = precision_of(self.device)
        # On a CUDA device, sparse rows are converted to dense rows, a part of the rows at a time.
        step = checked.shape[0] if device == "cpu" or not xa.is_sparse(checked) else self._tuning.sparse_rows_on_device
        parts = [
            expand(kernel, xa.to_device(checked[rows], device), points, coef, precision)
            for rows in slices(checked.shape[0], max(1, step))
        ]
        scores = parts[0] if len(parts) == 1 else xa.namespace(coef).concat(parts)
        # The bias of a regressor contains the mean of the targets. Adding a large mean in float32 would lose digits of the
        # kernel expansion.
        scores = xa.astype(scores, np.result_type(dtype, xa.numpy_dtype(self.intercept_)))
        scores += xa.like(self.intercept_, scores)
        return xa.in_namespace_of(scores, X)

    @available_if(_is_classifier)
    @dispatch_prediction
    def decision_function(self, X: Any) -> Array:
        """Return the class scores, or with `decision_function_shape="ovo"` the score differences of all pairs of classes.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows to classify; kernel values with the training rows if the kernel is precomputed.

        Returns
        -------
        array of shape (n_samples,), (n_samples, n_classes) or (n_samples, n_classes * (n_classes - 1) / 2)
            One column for two classes, positive for `classes_[1]`; otherwise one column for each class, or for each
            pair of classes, positive for the first class of the pair. After a fit to an indicator matrix, one column for
            each label, positive if the label is predicted.
        """
        scores, k = self._scores(X), len(self.classes_)
        if self.multilabel_:
            return scores
        if k == 2:
            return scores[:, 0]
        if getattr(self, "decision_function_shape", "ovr") == "ovr":
            return scores
        first, second = map(list, zip(*combinations(range(k), 2), strict=True))
        return scores[:, first] - scores[:, second]

    @dispatch_prediction
    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each row, or the labels of each row after a fit to an indicator matrix.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows to classify; kernel values with the training rows if the kernel is precomputed.

        Returns
        -------
        ndarray of shape (n_samples,), or (n_samples, n_labels) after a fit to an indicator matrix
            Classes, or zeros and ones after a fit to an indicator matrix. Always NumPy, because class labels may be strings.
        """
        return self._labels(xa.to_numpy(self._scores(X)))

    def _labels(self, scores: np.ndarray) -> np.ndarray:
        return (scores > 0).astype(np.int64) if self.multilabel_ else scores_to_labels(self.classes_, scores)

    @available_if(_is_classifier)
    @available_if(has_probabilities)
    @dispatch_prediction
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class or label, by the method that the parameter `probability` selects.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows to classify; kernel values with the training rows if the kernel is precomputed.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or (n_samples, n_labels) after a fit to an indicator matrix
            Columns in the order of `classes_`; the probabilities of several labels need not sum to one.
        """
        return probabilities_by_method(self, xa.to_numpy(self._scores(X)))

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key not in _NOT_SAVED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        if "param_grid" in state:  # state of the former estimators LSSVCCV and LSSVRCV
            state |= former_search_parameters(state["kernel"], state.pop("param_grid"))
            state["_codes"] = state.pop("calibration_codes_", None)
            found = {"scores": state.pop("calibration_scores_", None), "temperature": state.pop("temperature_", 1.0)}
            state["_calibration"] = {} if found["scores"] is None else found
        elif "dual_coef_" in state and "C" in state:  # state saved by a version without C="loo"
            state.setdefault("C_", state["C"])
        super().__setstate__(state)

    def __sklearn_tags__(self) -> Any:
        return set_input_tags(super().__sklearn_tags__(), self.kernel)

    def _fit_plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> Any:
        """Return the memory plan of a fit of `n` rows and `d` features; `MemoryError` if `memory_budget` is too small."""
        return self._settings().plan(kernel_candidates(vars(self))[0][1], (n, d), n_outputs, dtype, device, dense=True)
