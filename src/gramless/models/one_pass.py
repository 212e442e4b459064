"""Base classes of the one-pass estimators: training passes, predictions and calibration.

    settings = pass_settings() = (feature map, learner, options),     f(x) = Phi(x) A + b

`OnePassEstimator` stores the training pass and computes scores; `OnePassClassifier` and `OnePassRegressor` add the encoding
of the targets and the predictions. A family of estimators (landmarks, random features, budget) has a base class with
the parameters, `pass_settings` and `fit`, from which its classifier and its regressor inherit.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Options, StrOptions
from sklearn.utils.metaestimators import available_if

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.dask_dispatch import dispatch_prediction
from gramless._core.device import precision_of
from gramless._core.targets.columns import scores_to_labels
from gramless._core.targets.streamed import LabelTargets, Targets, ValueTargets
from gramless._core.validation import atomic_fit, check_X, working_dtype
from gramless.inference.feature_process import OnePassProcess, constant_width_intervals, fit_process
from gramless.inference.intervals import adaptive_scores, prediction_intervals, prediction_sets, standard_deviations
from gramless.inference.probabilities import ProbabilityMixin, fit_sigmoids, fit_temperature, has_probabilities
from gramless.streaming.from_user import further_labels, further_rows, is_streamed, labelled_stream, valued_stream
from gramless.streaming.learners import (
    BatchPlan,
    CollectingPass,
    FinishedPass,
    LearningPass,
    OnePassModel,
    PassOptions,
    PassSettings,
    TrainingPass,
    continue_pass,
    plan_pass,
)
from gramless.streaming.learners.version_0_1 import PassOfVersion01
from gramless.streaming.stream import Stream

_Class = TypeVar("_Class", bound=type)

CALIBRATED_PROBABILITY: dict[str, Any] = {
    "probability": [StrOptions({"softmax", "sigmoid", "temperature"}), Options(bool, {False})]
}
"""Constraint of `probability` for classifiers with leave-one-out scores."""


def model_attribute(path: str, doc: str) -> property:
    """Return a property that reads an attribute of the solved model and raises AttributeError if it is missing."""

    def read(estimator: OnePassEstimator) -> Any:
        if estimator.pass_ is None:
            raise AttributeError(f"this {type(estimator).__name__} is not fitted yet")
        value = attrgetter(path)(estimator.pass_.model(estimator.pass_settings()))
        if value is None:
            raise AttributeError(
                f"this fit of {type(estimator).__name__} has no {path}, because its parameters do not request it"
            )
        return value

    return property(read, doc=doc)


def inherit_parameter_docs(family: type) -> Callable[[_Class], _Class]:
    """Return a class decorator that merges the parameters of `family` into the docstring and signature of the class.

    The parameters of the class itself precede `dtype`, so that all estimators have their parameters in the same order.
    """

    def insert(cls: _Class) -> _Class:
        if cls.__doc__ and family.__doc__:
            first, split, last = family.__doc__.split("----------\n", 1)[1].rstrip(" ").partition("    dtype :")
            heading = "    Parameters\n    ----------\n"
            text, own = cls.__doc__, ""
            if heading in text:
                text, _, rest = text.partition(heading)
                own, _, attributes = rest.partition("\n    Attributes\n")
                text = f"{text}    Attributes\n{attributes}"
            merged = f"{heading}{first}{own}{split}{last}\n    Attributes\n"
            cls.__doc__ = text.replace("    Attributes\n", merged, 1)
        untyped: Any = cls
        signature = inspect.signature(untyped.__init__)
        parameters = list(signature.parameters.values())
        inherited = inspect.signature(family).parameters
        names = [parameter.name for parameter in parameters]
        added = [parameter for parameter in parameters[1:] if parameter.name not in inherited]
        others = [parameter for parameter in parameters if parameter not in added]
        at = names.index("dtype")
        untyped.__init__.__signature__ = signature.replace(parameters=[*others[:at], *added, *others[at:]])
        return cls

    return insert


class OnePassEstimator(BaseEstimator):
    """Estimator that learns from rows in one pass; `pass_settings` converts its parameters to the settings of the pass."""

    pass_: TrainingPass | None = None
    history_: list[dict[str, Any]]
    dtype: Any
    device: Any
    memory_budget: Any
    callback: Any
    verbose: int
    random_state: Any

    def pass_settings(self) -> PassSettings:
        """Return the feature map, the learner and the options given by the parameters."""
        raise NotImplementedError(f"{type(self).__name__} does not implement pass_settings")

    def set_pass(self, state: TrainingPass) -> Self:
        """Store a training pass with the settings `pass_settings()`, run in this process or by distributed workers.

        Parameters
        ----------
        state : TrainingPass
            The pass.

        Returns
        -------
        self : estimator
            Fitted estimator.
        """
        self.pass_, self.history_ = state, state.history
        self.n_features_in_, self.device_ = state.format.n_columns, state.format.device
        return self

    def plan(self, n: int | None, d: int, n_outputs: int, dtype: Any, device: str) -> BatchPlan:
        """Return the batch size and the peak memory of a fit.

        Parameters
        ----------
        n : int or None
            Number of rows; None if unknown.
        d : int
            Number of columns.
        n_outputs : int
            Number of target columns.
        dtype : dtype
            Precision of the computation.
        device : str
            Device of the computation.

        Returns
        -------
        BatchPlan
            Has `batch_rows` and `memory`; a fit that exceeds the memory budget raises MemoryError.
        """
        settings = self.pass_settings()
        return plan_pass(settings, n_rows=n, n_columns=d, n_targets=n_outputs, dtype=dtype, device=device)

    def _options(self, batch_rows: int | None) -> PassOptions:
        name = type(self).__name__
        return PassOptions(name, batch_rows, self.dtype, self.device, self.memory_budget, self.verbose)

    def _read_rows(self, X: Any, y: Any, sample_weight: Any) -> tuple[Stream, Targets]:
        """Return validated rows as a stream, and the encoding of their targets."""
        raise NotImplementedError(f"{type(self).__name__} does not implement _read_rows")

    def _fitted_pass(self) -> TrainingPass:
        if self.pass_ is None:
            raise NotFittedError(f"This {type(self).__name__} instance is not fitted yet. Call 'fit' before using it.")
        return self.pass_

    def _checked(self, X: Any, *, reset: bool) -> Any:
        """Validate an array in its own dtype; streams and arrays on disk are validated while they are read."""
        if is_streamed(X) or isinstance(X, np.memmap):
            return X
        kind: Any = working_dtype(X, self.dtype) if xa.is_torch(X) else "numeric"
        return check_X(self, X, dtype=kind, reset=reset, accept_sparse=self.pass_settings().feature_map.accepts_sparse)

    def _learn_more(self, X: Any, y: Any, sample_weight: Any, targets: Targets) -> Self:
        """Add rows to the training pass, or to a new pass if there is none."""
        settings = self.pass_settings()
        stream, checked = further_rows(self._checked(X, reset=self.pass_ is None), y, sample_weight, targets)
        state = self.pass_
        if state is None:
            state, _ = CollectingPass.start(stream.first(), targets, settings.learner, settings.options, self.random_state)
        elif not isinstance(state, FinishedPass):
            # An invalid row that is found while reading must leave the model unchanged, so the state is copied.
            state = replace(state.copy(own_state=not checked), targets=targets)
        return self.set_pass(continue_pass(state, stream, settings))

    def _scores(self, X: Any) -> Array:
        """Return `f(x)` for each row, one column per output, in the array namespace and on the device of `X`."""
        settings = self.pass_settings()
        model, sparse = self._fitted_pass().model(settings), settings.feature_map.accepts_sparse
        checked = check_X(self, X, dtype=model.coef.dtype, reset=False, accept_sparse=sparse)
        device = xa.device_of(checked) if xa.is_torch(checked) else self.device_
        rows, coef = xa.to_device(checked, device), xa.to_device(model.coef, device)
        scores = model.features.scores(rows, coef, precision_of(settings.options.device))
        # The intercept of a regressor contains the mean of the targets. Adding a large mean in float32 would lose the digits
        # of the other terms.
        scores = xa.astype(scores, np.result_type(model.coef, model.intercept))
        scores += xa.like(model.intercept, scores)
        return xa.in_namespace_of(scores, X)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if isinstance(self.pass_, PassOfVersion01):
            self.pass_ = self.pass_.convert()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class OnePassClassifier(ProbabilityMixin, ClassifierMixin, OnePassEstimator):
    """Classifier that learns from rows in one pass."""

    classes_: np.ndarray
    class_weight: Any

    def _read_rows(self, X: Any, y: Any, sample_weight: Any) -> tuple[Stream, Targets]:
        self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
        return labelled_stream(self._checked(X, reset=True), y, sample_weight, self.class_weight)

    @atomic_fit
    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn from more rows, once each; exact learners return the result of one `fit` on all rows.

        Parameters
        ----------
        X : array, path, iterable or Stream
            Rows, as in `fit`.
        y : array, or the name of the target column of a file
            Labels, as in `fit`.
        classes : array, optional
            All labels of all calls; required in the first call.
        sample_weight : array, optional
            Weights, as in `fit`.

        Returns
        -------
        self : estimator
            Estimator with the rows added.
        """
        self._validate_params()
        known = None if self.pass_ is None else _labels(copy.copy(self.pass_.targets))
        return self._learn_more(X, y, sample_weight, further_labels(known, classes, self.class_weight))

    def set_pass(self, state: TrainingPass) -> Self:
        """Store a training pass with the settings `pass_settings()`, run in this process or by distributed workers.

        Parameters
        ----------
        state : TrainingPass
            The pass.

        Returns
        -------
        self : estimator
            Fitted estimator.
        """
        self.classes_ = _labels(state.targets).close()
        return super().set_pass(state)

    def finish(self) -> Self:
        """Delete the sums and stored rows, which only `partial_fit` needs; the model does not change.

        The model in memory and in a saved file then has `m` points instead of `m^2` sums. Later calls of `partial_fit` raise
        ValueError.

        Returns
        -------
        self : estimator
            Estimator with the same model.
        """
        state = self._fitted_pass()
        if self.probability in ("sigmoid", "temperature"):
            self._calibration()
        self.pass_ = state.finish(self.pass_settings())
        return self

    def _left_out(self, model: OnePassModel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return leave-one-out scores, class codes and weights of the sampled rows."""
        if model.left_out is None:
            raise ValueError(f"this {type(self).__name__} has no leave-one-out scores: fit it with its present parameters")
        scores, encoded, weights = model.left_out
        return scores, np.argsort(_labels(self._fitted_pass().targets).sorted()[1])[encoded], weights

    @property
    def sigmoids_(self) -> np.ndarray:
        """Platt's sigmoids, fitted to leave-one-out scores."""
        if self.probability != "sigmoid" or self.pass_ is None:
            raise AttributeError("sigmoids are fitted with probability='sigmoid'")
        model = self.pass_.model(self.pass_settings())
        if model.sigmoids is None:
            scores, codes, weights = self._left_out(model)
            model.sigmoids = fit_sigmoids(scores, codes, len(self.classes_), weights)
        return model.sigmoids

    @property
    def temperature_(self) -> float:
        """Divisor of the scores before their softmax, fitted to leave-one-out scores."""
        if self.probability != "temperature" or self.pass_ is None:
            raise AttributeError("a temperature is fitted with probability='temperature'")
        model = self.pass_.model(self.pass_settings())
        if model.temperature is None:
            model.temperature = fit_temperature(*self._left_out(model))
        return model.temperature

    def predict_set(self, X: Any, coverage: float = 0.9, *, per_class: bool = False, random_state: Any = None) -> np.ndarray:
        """Return sets of classes that contain the true class with a chosen probability.

        The sets are adaptive prediction sets from leave-one-out probabilities: rows that are hard to classify get large
        sets. A set may be empty if the coverage is below the accuracy.

        Parameters
        ----------
        X : array, sparse matrix or tensor of shape (n_samples, n_features)
            Rows.
        coverage : float, default=0.9
            Probability between 0 and 1.
        per_class : bool, default=False
            Whether the coverage holds for the rows of every class, or for all rows together.
        random_state : int, RandomState or None, default=None
            Seed or generator of the randomisation that makes the coverage exact.

        Returns
        -------
        ndarray of bool of shape (n_samples, n_classes)
            Columns in the order of `classes_`. Sets for a larger coverage contain those for a smaller one, at the same
            `random_state`.
        """
        self._fitted_pass()
        if self.probability not in ("temperature", "sigmoid"):
            raise ValueError(
                "predict_set needs leave-one-out probabilities: fit with probability='temperature' or 'sigmoid'"
            )
        probabilities = np.asarray(self.predict_proba(X))
        own, codes = self._calibration()
        return prediction_sets(probabilities, own, codes, coverage, per_class=per_class, random_state=random_state)

    def _calibration(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the conformal scores of the true classes of the left-out rows, and these classes; the model caches both."""
        state = self._fitted_pass()
        model = state.model(self.pass_settings())
        if model.calibration is None:
            scores, codes, _ = self._left_out(model)
            uniform = check_random_state(state.seed).random_sample(len(codes))
            own = adaptive_scores(self._probabilities(scores), uniform)[np.arange(len(codes)), codes]
            model.calibration = own, codes
        return model.calibration

    @dispatch_prediction
    def decision_function(self, X: Any) -> Array:
        """Return the class scores.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_classes)
            One score for two classes, positive for `classes_[1]`; else one for each class.
        """
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    @dispatch_prediction
    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each row.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows.

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
        """Return the probability of each class.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`.
        """
        return self._probabilities(xa.to_numpy(self._scores(X)))


def _has_intervals(estimator: OnePassRegressor) -> bool:
    if not estimator._exact:
        raise AttributeError(f"{type(estimator).__name__} has no sums over its rows, which prediction intervals need")
    return True


class OnePassRegressor(RegressorMixin, MultiOutputMixin, OnePassEstimator):
    """Regressor that learns from rows in one pass."""

    _exact = True  # Whether the learner stores sums over the rows.
    _single_output: bool
    _posterior: tuple[OnePassModel, OnePassProcess] | None = None

    def _read_rows(self, X: Any, y: Any, sample_weight: Any) -> tuple[Stream, Targets]:
        self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
        return valued_stream(self._checked(X, reset=True), y, sample_weight)

    @atomic_fit
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from more rows, once each; exact learners return the result of one `fit` on all rows.

        Parameters
        ----------
        X : array, path, iterable or Stream
            Rows, as in `fit`.
        y : array, or the name of the target column of a file
            Values, as in `fit`.
        sample_weight : array, optional
            Weights, as in `fit`.

        Returns
        -------
        self : estimator
            Estimator with the rows added.
        """
        self._validate_params()
        targets = ValueTargets() if self.pass_ is None else copy.copy(self.pass_.targets)
        return self._learn_more(X, y, sample_weight, targets)

    def set_pass(self, state: TrainingPass) -> Self:
        """Store a training pass with the settings `pass_settings()`, run in this process or by distributed workers.

        Parameters
        ----------
        state : TrainingPass
            The pass.

        Returns
        -------
        self : estimator
            Fitted estimator.
        """
        self._single_output = state.targets.single
        return super().set_pass(state)

    def finish(self) -> Self:
        """Delete the sums and stored rows, which only `partial_fit` needs; the model does not change.

        The model in memory and in a saved file then has `m` points instead of `m^2` sums. Later calls of `partial_fit` raise
        ValueError, and so do standard deviations and intervals with `local=True`, which need the sums.

        Returns
        -------
        self : estimator
            Estimator with the same model.
        """
        state, settings, process = self._fitted_pass(), self.pass_settings(), self._process()
        if process is not None:
            left_out = process.leave_one_out
            process.model.calibration = left_out.residuals, left_out.weights
        self.pass_, self._posterior = state.finish(settings), None
        return self

    def _process(self) -> OnePassProcess | None:
        """Return the Gaussian process of the model, cached until rows are added; None if the model has no sums."""
        state, settings = self._fitted_pass(), self.pass_settings()
        model = state.model(settings)
        if self._posterior is None or self._posterior[0] is not model:
            learning = state.learn_stored_rows(settings) if isinstance(state, CollectingPass) else state
            process = fit_process(learning, model) if isinstance(learning, LearningPass) else None
            self._posterior = None if process is None else (model, process)
        return None if self._posterior is None else self._posterior[1]

    def _required_process(self) -> OnePassProcess:
        process = self._process()
        if process is None:
            raise ValueError(
                f"{type(self).__name__} has no sums over its rows: this needs method='exact', and a model that finish() was "
                "not called on"
            )
        return process

    def _new_rows(self, X: Any) -> Array:
        format, feature_map = self._fitted_pass().format, self.pass_settings().feature_map
        checked = check_X(self, X, dtype=np.dtype(format.dtype), reset=False, accept_sparse=feature_map.accepts_sparse)
        return format.convert(checked, type(self).__name__)

    @dispatch_prediction
    def _values(self, X: Any) -> Array:
        scores = self._scores(X)
        return scores[:, 0] if self._single_output else scores

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the predicted values, and optionally the standard deviations of the function.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows.
        return_std : bool, default=False
            Whether to return the standard deviation of the Gaussian process too: that of the function, without the noise of
            a new value, scaled to the leave-one-out residuals of a sample of the rows. Needs an exact learner.

        Returns
        -------
        values : array of shape (n_samples,) or (n_samples, n_outputs)
            Shape of `y` in `fit`.
        deviations : ndarray of the same shape
            Only with `return_std`.
        """
        values = self._values(X)
        if not return_std:
            return values
        deviations = standard_deviations(self._required_process(), self._new_rows(X))
        return values, deviations[:, 0] if self._single_output else deviations

    @available_if(_has_intervals)
    def predict_interval(self, X: Any, coverage: float = 0.9, *, local: bool = False) -> np.ndarray:
        """Return intervals that contain the value of a new row with a chosen probability, by the jackknife+.

        The models without each row of a uniform sample of up to 8,192 rows are known in closed form.

        Parameters
        ----------
        X : array, sparse matrix or tensor of shape (n_samples, n_features)
            Rows.
        coverage : float, default=0.9
            Probability between 0 and 1. For rows of the distribution of the training rows, the fraction of new values in the
            intervals is at least `1 - 2 (1 - coverage)`, and in practice close to `coverage`.
        local : bool, default=False
            Whether intervals are wider for rows with a larger standard deviation.

        Returns
        -------
        ndarray of shape (n_samples, 2), or (n_samples, n_outputs, 2)
            Lower and upper ends; infinite if there are too few training rows for the coverage.
        """
        state, rows = self._fitted_pass(), self._new_rows(X)
        if isinstance(state, FinishedPass) and state.solved.calibration is not None and not local:
            ends = constant_width_intervals(state.solved, rows, coverage)
        else:
            ends = prediction_intervals(self._required_process(), rows, coverage, local=local)
        return ends[:, 0] if self._single_output else ends

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key != "_posterior"}


def _labels(targets: Targets) -> LabelTargets:
    """Return the targets of a classifier; raise TypeError for the targets of a regressor."""
    if not isinstance(targets, LabelTargets):
        raise TypeError("a classifier needs a training pass with labels, not with values")
    return targets
