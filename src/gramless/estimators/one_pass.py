"""Base class of the one-pass estimators: training passes, predictions and calibration.

    settings = pass_settings() = (feature map, learner, options),     f(x) = Phi(x) A + b

`OnePassEstimator` implements the methods of the classifiers and regressors on landmarks, random features or a budget of
points. A public subclass declares its parameters, inherits the scikit-learn mixin of its task, and sets `_settings`, a
function that converts the parameters to the settings of a training pass.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, ClassVar, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.constraints import estimator
from gramless._core.dask_dispatch import dispatch_fit, dispatch_prediction
from gramless._core.device import precision_of
from gramless._core.memory import parse_budget
from gramless._core.targets.columns import scores_to_labels
from gramless._core.targets.streamed import LabelTargets, Targets, ValueTargets
from gramless._core.validation import atomic_fit, check_X, working_dtype
from gramless.callbacks import read_callbacks
from gramless.inference.feature_process import OnePassProcess, constant_width_intervals, fit_process
from gramless.inference.intervals import prediction_intervals, prediction_sets, standard_deviations
from gramless.inference.probabilities import LEAVE_ONE_OUT_METHODS, calibrate, has_probabilities, probabilities_by_method
from gramless.kernels import set_input_tags
from gramless.streaming.from_user import further_labels, further_rows, training_rows
from gramless.streaming.learners.base import PassSize
from gramless.streaming.learners.loop import continue_pass, run_pass
from gramless.streaming.learners.planning import BatchPlan, PassOptions, PassSettings, plan_pass
from gramless.streaming.learners.training_pass import (
    CollectingPass,
    FinishedPass,
    LearningPass,
    OnePassModel,
    PassOfVersion01,
    TrainingPass,
)
from gramless.streaming.stream import is_stream_like


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


def _classifies(estimator: OnePassEstimator) -> bool:
    if not isinstance(estimator, ClassifierMixin):
        raise AttributeError(f"{type(estimator).__name__} is a regressor and has no classes")
    return True


def _has_probabilities(estimator: OnePassEstimator) -> bool:
    return _classifies(estimator) and has_probabilities(estimator)


def _has_intervals(estimator: OnePassEstimator) -> bool:
    if isinstance(estimator, ClassifierMixin) or not estimator._has_sums:
        raise AttributeError(f"{type(estimator).__name__} has no intervals, which need a regressor with sums over its rows")
    return True


@estimator
class OnePassEstimator(BaseEstimator):
    """Base class of one-pass estimators; `_settings` converts the parameters to the settings of the training pass."""

    kernel: Any = "rbf"
    C: float | str = 1.0
    gamma: float | str = "scale"
    dtype: Any = None
    device: Any = None
    memory_budget: str | float | None = None
    callback: Any = None
    verbose: int = 0
    random_state: Any = None

    _settings: ClassVar[Callable[[Mapping[str, Any], str], PassSettings]]
    _has_sums: ClassVar[bool] = True
    """Whether the learner stores sums over the rows."""

    # Attributes of fitted models have no annotation, because annotations declare constructor parameters.
    pass_ = cast("TrainingPass | None", None)
    _posterior = cast("tuple[OnePassModel, OnePassProcess | None] | None", None)

    points_ = model_attribute("features.points", "Points of the model, such as landmarks.")
    intercept_ = model_attribute("intercept", "Intercept of each output.")
    kernel_ = model_attribute("features.kernel", "Kernel with numeric parameters.")
    C_ = model_attribute("C", "Value of `C` used.")
    loo_errors_ = model_attribute("loo_errors", "Leave-one-out squared error for each value of `Cs`.")
    jitter_ = model_attribute("jitter", "Number added to the diagonal of the kernel matrix of the landmarks.")

    @atomic_fit
    @dispatch_fit
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model to all rows.

        Parameters
        ----------
        X : array, path, iterable or Stream
            An array (a `np.memmap` is read in batches); the path of a CSV, Parquet or npz file; an iterable of `(X, y)` or
            `(X, y, sample_weight)` batches; or a `Stream`.
        y : array, or the name of the target column of a file
            Labels or values; not given with batches or a `Stream`, which contain the targets.
        sample_weight : array, optional
            Weight of each row, if `X` is an array; weight 2 equals two copies of the row.

        Returns
        -------
        self : estimator
            Fitted estimator.
        """
        settings, callbacks = self.pass_settings(), read_callbacks(self.callback)
        self.__dict__.pop("feature_names_in_", None)  # names of an earlier fit
        classification, class_weight = isinstance(self, ClassifierMixin), getattr(self, "class_weight", None)
        rows = self._checked(X, reset=True)
        stream, targets = training_rows(rows, y, sample_weight, classification=classification, class_weight=class_weight)
        result = run_pass(
            stream,
            settings,
            targets,
            random_state=self.random_state,
            callbacks=callbacks,
            show=self.set_pass,
            previous=self.pass_.solved if getattr(self, "warm_start", False) and self.pass_ is not None else None,
        )
        return self.set_pass(result)

    def _fit_collections(self, rows: Any, solve: Callable[[], TrainingPass]) -> Self:
        """Store the training pass that `solve` makes over rows on dask workers."""
        validate_data(self, rows.example, skip_check_array=True, reset=True)
        return self.set_pass(solve())

    @atomic_fit
    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn from more rows in one pass; with an exact learner, the model equals one `fit` to the rows of all calls.

        Parameters
        ----------
        X : array, path, iterable or Stream
            Rows, as in `fit`.
        y : array, or the name of the target column of a file
            Labels or values, as in `fit`.
        classes : array, optional
            All labels that occur in any call; required in the first call of a classifier.
        sample_weight : array, optional
            Weights, as in `fit`.

        Returns
        -------
        self : estimator
            Estimator with the rows added.
        """
        settings, state = self.pass_settings(), self.pass_
        known = None if state is None else copy.copy(state.targets)
        targets: Targets = ValueTargets() if known is None else known
        if isinstance(self, ClassifierMixin):
            targets = further_labels(None if known is None else _labels(known), classes, self.class_weight)
        elif classes is not None:
            raise ValueError(f"{type(self).__name__} is a regressor and has no classes: pass sample_weight by its name")
        stream, checked = further_rows(self._checked(X, reset=state is None), y, sample_weight, targets)
        if state is None:
            state, _ = CollectingPass.start(stream.first(), targets, settings.learner, settings.options, self.random_state)
        elif not isinstance(state, FinishedPass):
            # An invalid row that is found while reading must leave the model unchanged, so the state is copied.
            state = replace(state.copy(own_state=not checked), targets=targets)
        return self.set_pass(continue_pass(state, stream, settings))

    def pass_settings(self) -> PassSettings:
        """Return the feature map, the learner and the options given by the parameters.

        Returns
        -------
        PassSettings
            Arguments of the training pass.
        """
        return type(self)._settings(vars(self), type(self).__name__)

    def set_pass(self, state: TrainingPass) -> Self:
        """Store a training pass with the settings `pass_settings()`, run in this process or by distributed workers.

        Parameters
        ----------
        state : TrainingPass
            Training pass with the model.

        Returns
        -------
        self : estimator
            Fitted estimator.
        """
        if isinstance(self, ClassifierMixin):
            self.classes_ = _labels(state.targets).close()
        else:
            self._single_output = state.targets.single
        self.pass_, self.history_ = state, state.history
        self.n_features_in_, self.device_ = state.format.n_columns, state.format.device
        return self

    def _fit_plan(self, n: int | None, d: int, n_outputs: int, dtype: Any, device: str) -> BatchPlan:
        """Return the memory plan of a fit of `n` rows and `d` features; `MemoryError` if `memory_budget` is too small."""
        self._validate_params()
        return plan_pass(self.pass_settings(), PassSize(n, d, n_outputs, np.dtype(dtype), device))

    def finish(self) -> Self:
        """Delete the sums of the normal equations and the stored rows; the predicted values do not change.

        In memory and in a saved file, the model then has `m` points instead of `m^2` sums. Later calls of `partial_fit`
        raise ValueError, as standard deviations and intervals with `local=True` do, because all of these need the sums.

        Returns
        -------
        self : estimator
            Estimator with the same model.
        """
        state, settings = self._fitted_pass(), self.pass_settings()
        if isinstance(self, ClassifierMixin):
            if self.probability in LEAVE_ONE_OUT_METHODS:
                self._calibrated(*LEAVE_ONE_OUT_METHODS)
        elif (process := self._process()) is not None:
            left_out = process.leave_one_out
            process.model.calibration = left_out.residuals, left_out.weights
        self.pass_, self._posterior = state.finish(settings), None
        return self

    @dispatch_prediction
    def _predicted(self, X: Any) -> Any:
        """Return the classes, or the values in the shape of the targets."""
        scores = self._scores(X)
        if isinstance(self, ClassifierMixin):
            return scores_to_labels(self.classes_, xa.to_numpy(scores))
        return scores[:, 0] if self._single_output else scores

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the predicted class or value of each row; regressors optionally return standard deviations too.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows.
        return_std : bool, default=False
            Whether a regressor also returns standard deviations of the function, without the noise of a new value, by a
            Gaussian process scaled to the leave-one-out residuals of a sample of the rows. Needs an exact learner.

        Returns
        -------
        predicted : array of shape (n_samples,) or (n_samples, n_outputs)
            Classes, always in NumPy because labels may be strings; or values in the shape of `y` in `fit`.
        deviations : ndarray of the same shape
            Standard deviations; only with `return_std=True`.
        """
        predicted = self._predicted(X)
        if not return_std:
            return predicted
        if isinstance(self, ClassifierMixin):
            raise ValueError(f"return_std needs a regressor, and {type(self).__name__} is a classifier")
        deviations = standard_deviations(self._required_process(), self._new_rows(X))
        return predicted, deviations[:, 0] if self._single_output else deviations

    @available_if(_classifies)
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

    @available_if(_has_probabilities)
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
        return probabilities_by_method(self, xa.to_numpy(self._scores(X)))

    @available_if(_classifies)
    def predict_set(self, X: Any, coverage: float = 0.9, *, per_class: bool = False, random_state: Any = None) -> np.ndarray:
        """Return sets of classes that contain the true class with a chosen probability.

        The sets are adaptive prediction sets from leave-one-out probabilities: rows that are hard to classify get large
        sets. A set may be empty if the coverage is below the accuracy.

        Parameters
        ----------
        X : array, sparse matrix or tensor of shape (n_samples, n_features)
            Rows.
        coverage : float, default=0.9
            Probability between 0 and 1 that a set contains the true class.
        per_class : bool, default=False
            Whether the coverage holds for the rows of each class separately, instead of for all rows together.
        random_state : int, RandomState or None, default=None
            Seed or generator of the random numbers that make the coverage exact.

        Returns
        -------
        ndarray of bool of shape (n_samples, n_classes)
            Columns in the order of `classes_`. With the same `random_state`, the set for a larger coverage contains the set
            for a smaller coverage.
        """
        self._fitted_pass()
        if self.probability not in LEAVE_ONE_OUT_METHODS:
            raise ValueError(
                "predict_set needs leave-one-out probabilities: fit with probability='temperature' or 'sigmoid'"
            )
        probabilities = np.asarray(self.predict_proba(X))
        own, codes = self._calibrated(*LEAVE_ONE_OUT_METHODS).calibration
        return prediction_sets(probabilities, own, codes, coverage, per_class=per_class, random_state=random_state)

    @available_if(_has_intervals)
    def predict_interval(self, X: Any, coverage: float = 0.9, *, local: bool = False) -> np.ndarray:
        """Return intervals that contain the value of a new row with a chosen probability, by the jackknife+.

        The intervals use the leave-one-out models of a uniform sample of up to 8,192 training rows, in closed form.

        Parameters
        ----------
        X : array, sparse matrix or tensor of shape (n_samples, n_features)
            Rows.
        coverage : float, default=0.9
            Probability between 0 and 1. If new rows have the distribution of the training rows, a value is in its interval
            with probability at least `1 - 2 (1 - coverage)`, and in practice about `coverage`.
        local : bool, default=False
            Whether intervals are wider where the standard deviation is larger.

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

    @property
    def sigmoids_(self) -> np.ndarray:
        """Slope and offset of each of Platt's sigmoids, which are fitted to leave-one-out scores."""
        return self._calibrated("sigmoid").sigmoids

    @property
    def temperature_(self) -> float:
        """Divisor of the scores before their softmax, fitted to leave-one-out scores."""
        return self._calibrated("temperature").temperature

    def _calibrated(self, *methods: str) -> Any:
        """Return the model, calibrated at the first call; raise AttributeError if `probability` is not in `methods`."""
        if self.pass_ is None or getattr(self, "probability", None) not in methods:
            raise AttributeError(f"this attribute is fitted with probability={' or '.join(map(repr, methods))}")
        model = self.pass_.model(self.pass_settings())
        fitted = model.sigmoids if self.probability == "sigmoid" else model.temperature
        if fitted is None or model.calibration is None:
            if model.left_out is None:
                raise ValueError(f"{type(self).__name__} has no leave-one-out scores: fit it with its present parameters")
            scores, encoded, weights = model.left_out
            codes = np.argsort(_labels(self.pass_.targets).sorted()[1])[encoded]
            rng = check_random_state(self.pass_.seed)
            found = calibrate(scores, codes, len(self.classes_), self.probability, weights, rng)
            model.calibration = cast(np.ndarray, found.true_scores), codes
            if self.probability == "sigmoid":
                model.sigmoids = found.sigmoids
            else:
                model.temperature = found.temperature
        return model

    def _process(self) -> OnePassProcess | None:
        """Return the Gaussian process of the model, cached until rows are added; None without sums of normal equations."""
        state, settings = self._fitted_pass(), self.pass_settings()
        model = state.model(settings)
        if self._posterior is None or self._posterior[0] is not model:
            learning = state.learn_stored_rows(settings) if isinstance(state, CollectingPass) else state
            budget = parse_budget(self.memory_budget, self.device_)
            process = fit_process(learning, model, budget) if isinstance(learning, LearningPass) else None
            self._posterior = model, process
        return self._posterior[1]

    def _required_process(self) -> OnePassProcess:
        process = self._process()
        if process is None:
            raise ValueError(
                f"{type(self).__name__} has no sums over its rows: this needs method='exact' or solver='sums', and a model "
                "that finish() was not called on"
            )
        return process

    def _fitted_pass(self) -> TrainingPass:
        if self.pass_ is None:
            raise NotFittedError(f"This {type(self).__name__} instance is not fitted yet. Call 'fit' before using it.")
        return self.pass_

    def _checked(self, X: Any, *, reset: bool) -> Any:
        """Validate an array in its own dtype; streams and arrays on disk are validated while they are read."""
        if is_stream_like(X):
            return X
        kind: Any = working_dtype(X, self.dtype) if xa.is_torch(X) else "numeric"
        return check_X(self, X, dtype=kind, reset=reset, accept_sparse=self.pass_settings().feature_map.accepts_sparse)

    def _new_rows(self, X: Any) -> Array:
        """Validate rows for a prediction, and convert them to the precision and device of the pass."""
        format, feature_map = self._fitted_pass().format, self.pass_settings().feature_map
        checked = check_X(self, X, dtype=np.dtype(format.dtype), reset=False, accept_sparse=feature_map.accepts_sparse)
        return format.convert(checked, type(self).__name__)

    def _scores(self, X: Any) -> Array:
        """Return `f(x)` for each row, one column per output, in the array namespace and on the device of `X`."""
        settings = self.pass_settings()
        model, sparse = self._fitted_pass().model(settings), settings.feature_map.accepts_sparse
        checked = check_X(self, X, dtype=model.coef.dtype, reset=False, accept_sparse=sparse)
        device = xa.device_of(checked) if xa.is_torch(checked) else self.device_
        rows, coef = xa.to_device(checked, device), xa.to_device(model.coef, device)
        scores = model.features.scores(rows, coef, precision_of(settings.options.device))
        # The intercept of a regressor contains the mean of the targets. Adding a large mean in float32 would lose digits of
        # the scores.
        scores = xa.astype(scores, np.result_type(model.coef, model.intercept))
        scores += xa.like(model.intercept, scores)
        return xa.in_namespace_of(scores, X)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key != "_posterior"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if isinstance(self.pass_, PassOfVersion01):
            self.pass_ = self.pass_.convert()

    def __sklearn_tags__(self) -> Any:
        return set_input_tags(super().__sklearn_tags__(), self.kernel)


def pass_options(parameters: Mapping[str, Any], name: str, batch_rows: int | None) -> PassOptions:
    """Return the options of a training pass from the parameters of an estimator of the class `name`."""
    return PassOptions(
        name, batch_rows, parameters["dtype"], parameters["device"], parameters["memory_budget"], parameters["verbose"]
    )


def _labels(targets: Targets) -> LabelTargets:
    """Return the targets of a classifier; raise TypeError for the targets of a regressor."""
    if not isinstance(targets, LabelTargets):
        raise TypeError("a classifier needs a training pass with labels, not with values")
    return targets
