"""What every one-pass estimator does with its three parts: learn from rows as they pass by, and predict.

    parts() = (feature map, learner, options),     f(x) = Phi(x) A + b

`parts()` is all that an estimator says beside its settings. `fit` hands the parts and a stream to `run_pass`, `partial_fit`
goes on with the pass that is there, and a prediction asks the features of the pass for their scores. `OnePassClassifier` and
`OnePassRegressor` differ in how targets are read and in what is made of scores.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.dask_dispatch import dispatch_fit, dispatch_prediction
from gramless._core.device import precision_of
from gramless._core.targets.streamed import LabelTargets, Targets, ValueTargets
from gramless._core.validation import atomic_fit, check_X
from gramless.approximation.features import FeatureMap
from gramless.callbacks import read_callbacks
from gramless.inference.one_pass import keep_residuals
from gramless.inference.platt import left_out_sigmoids
from gramless.inference.prediction_sets import adaptive_scores, prediction_sets
from gramless.inference.temperature import left_out_temperature
from gramless.models.expansion import has_probabilities, scores_to_labels, scores_to_probabilities, set_single_output
from gramless.streaming.from_user import further_labels, further_rows, rows_and_labels, rows_and_values
from gramless.streaming.learners import Learner, Pass, PassOptions, PassPlan, more_rows, plan_pass, run_pass

Parts = tuple[FeatureMap, Learner, PassOptions]
"""What a pass is made with: the features, how coefficients are found from them, and how rows are read."""


def learn(estimator: Any, read: Callable[..., Any], X: Any, y: Any, sample_weight: Any) -> Pass:
    """A new pass over all rows; `read` makes of them a stream and its targets."""
    feature_map, learner, options = estimator.parts()
    stream, targets = read(estimator, X, y, sample_weight, accept_sparse=feature_map.accepts_sparse)
    how = {"callbacks": read_callbacks(estimator.callback), "show": estimator.adopt}
    return run_pass(stream, feature_map, learner, targets, options, random_state=estimator.random_state, **how)


def learn_more(estimator: Any, targets: Targets, X: Any, y: Any, sample_weight: Any) -> Pass:
    """The estimator's pass, or a new one, with more rows."""
    feature_map, learner, options = estimator.parts()
    before, sparse = estimator.pass_, feature_map.accepts_sparse
    stream, checked = further_rows(estimator, X, y, sample_weight, targets, first=before is None, accept_sparse=sparse)
    # Rows that are checked as they pass may turn out bad after good ones, and must leave the model as it was.
    state = Pass.going_on(before, targets, learner, estimator.random_state, own_sums=not checked)
    more_rows(state, stream, feature_map, learner, options)
    return state


def known_targets(estimator: Any) -> Any:
    """A copy of the targets of the rows so far; None before the first."""
    return None if estimator.pass_ is None else copy.copy(estimator.pass_.targets)


def score_rows(estimator: Any, X: Any) -> Array:
    """`f(x)` for each row, one column for each output, in the library and on the device of `X`."""
    check_is_fitted(estimator, "intercept_")
    feature_map, learner, options = estimator.parts()
    model = estimator.pass_.model(feature_map, learner, options)
    checked = check_X(estimator, X, dtype=model.coef.dtype, reset=False, accept_sparse=feature_map.accepts_sparse)
    device = xa.device_of(checked) if xa.is_torch(checked) else estimator.device_
    rows, coef = xa.to_device(checked, device), xa.to_device(model.coef, device)
    scores = model.features.scores(rows, coef, precision_of(options.device))
    # A regressor's bias holds the mean of the targets: where that is large, float32 has no digits left for the rest.
    scores = xa.astype(scores, np.result_type(model.coef, model.intercept))
    scores += xa.like(model.intercept, scores)
    return scores if xa.is_torch(X) else xa.to_numpy(scores)


def plan_parts(parts: Parts, n: int | None, d: int, n_outputs: int, dtype: Any, device: str) -> PassPlan:
    """Rows in a batch and the peak memory of a pass with these parts."""
    return plan_pass(*parts, n_rows=n, n_columns=d, n_targets=n_outputs, dtype=dtype, device=device)


class OnePassClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that learns from rows as they pass by; a subclass has settings and says in `parts()` what they mean.

    Attributes
    ----------
    classes_ : ndarray
        The labels, sorted.
    pass_ : gramless.streaming.learners.Pass
        Where the pass stands: what `partial_fit` goes on with.
    history_ : list of dict
        One record for each pass of `fit` over all rows.
    """

    pass_: Pass | None = None
    history_: list[dict[str, Any]]
    classes_: np.ndarray
    class_weight: Any
    probability: str | bool

    def parts(self) -> Parts:
        """The feature map, the learner and the options of the pass that the settings mean.

        Returns
        -------
        tuple of FeatureMap, Learner and PassOptions
            What `run_pass` is called with.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what its parts are")

    @atomic_fit
    @dispatch_fit
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit in one pass, or in as many epochs as the settings ask for.

        Parameters
        ----------
        X : array, path, iterable or Stream
            An array (a `np.memmap` is read in batches); the path of a CSV, Parquet or npz file; an iterable of `(X, y)` or
            `(X, y, sample_weight)` batches; or a `Stream`.
        y : array, or the name of the target column of a file
            Labels; none beside batches or a `Stream`, which carry their own.
        sample_weight : array, optional
            With an array, one weight for each row: weight 2 equals two copies.

        Returns
        -------
        self : estimator
            Fitted.
        """
        return self.adopt(learn(self, rows_and_labels, X, y, sample_weight))

    @atomic_fit
    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn from more rows, once each; where sums are learnt, the result is that of one `fit` on all rows together.

        Parameters
        ----------
        X : array, path, iterable or Stream
            As in `fit`.
        y : array, or the name of the target column of a file
            As in `fit`.
        classes : array, optional
            All labels that will ever come; needed in the first call.
        sample_weight : array, optional
            As in `fit`.

        Returns
        -------
        self : estimator
            With the rows added.
        """
        targets = further_labels(known_targets(self), classes, self.class_weight)
        return self.adopt(learn_more(self, targets, X, y, sample_weight))

    def adopt(self, state: Pass) -> Self:
        """Take a pass, made here or on other machines, as the model's.

        Parameters
        ----------
        state : Pass
            Made with this estimator's `parts()`.

        Returns
        -------
        self : estimator
            With that model.
        """
        assert isinstance(state.targets, LabelTargets)
        self.classes_ = state.targets.close()
        self.pass_, self.history_ = state, state.history
        self.n_features_in_, self.device_ = state.n_columns, state.device
        return self

    def finish(self) -> Self:
        """Keep the model and let go of what only `partial_fit` needs: the sums, and rows held back or sampled.

        In memory and in a saved file, `m` points are left instead of `m^2` sums; `partial_fit` is refused from then on.

        Returns
        -------
        self : estimator
            Smaller, with the same model.
        """
        check_is_fitted(self, "intercept_")
        assert self.pass_ is not None
        if self.probability in ("sigmoid", "temperature"):
            self._calibration(self.pass_.model(*self.parts()))
        self.pass_ = self.pass_.finish(*self.parts())
        return self

    def plan(self, n: int | None, d: int, n_outputs: int, dtype: Any, device: str) -> PassPlan:
        """Rows in a batch and the peak memory of a fit.

        Parameters
        ----------
        n : int or None
            Rows; None where nobody knows.
        d : int
            Columns.
        n_outputs : int
            Columns of targets.
        dtype : dtype
            Of the computation.
        device : str
            Where it is made.

        Returns
        -------
        PassPlan
            With `batch_rows` and `memory`; a `MemoryError` is raised where no plan fits.
        """
        return plan_parts(self.parts(), n, d, n_outputs, dtype, device)

    @property
    def sigmoids_(self) -> np.ndarray:
        """Platt's sigmoids, fitted to leave-one-out scores."""
        if self.probability != "sigmoid" or self.pass_ is None:
            raise AttributeError("sigmoids are fitted with probability='sigmoid'")
        return left_out_sigmoids(self.pass_.model(*self.parts()), self.pass_.targets)

    @property
    def temperature_(self) -> float:
        """What scores are divided by before their softmax, fitted to leave-one-out scores."""
        if self.probability != "temperature" or self.pass_ is None:
            raise AttributeError("a temperature is fitted with probability='temperature'")
        return left_out_temperature(self.pass_.model(*self.parts()), self.pass_.targets)

    def predict_set(self, X: Any, coverage: float = 0.9, *, per_class: bool = False, random_state: Any = None) -> np.ndarray:
        """Sets of classes that contain the true one with a chosen probability.

        Adaptive prediction sets on leave-one-out probabilities: rows that are hard get large sets. A set may be empty where
        the coverage is below the accuracy.

        Parameters
        ----------
        X : array, sparse matrix or tensor of shape (n_samples, n_features)
            Rows.
        coverage : float, default=0.9
            Between 0 and 1.
        per_class : bool, default=False
            Whether the rows of every class are to be covered so often, or all rows together.
        random_state : int, RandomState or None, default=None
            Draws the random share of a class's own probability that makes the coverage exact.

        Returns
        -------
        ndarray of bool of shape (n_samples, n_classes)
            Columns in the order of `classes_`. Sets for a larger coverage contain those for a smaller one, at the same
            `random_state`.
        """
        check_is_fitted(self, "intercept_")
        assert self.pass_ is not None
        if self.probability not in ("temperature", "sigmoid"):
            raise ValueError(
                "predict_set needs leave-one-out probabilities: fit with probability='temperature' or 'sigmoid'"
            )
        model = self.pass_.model(*self.parts())
        chances = np.asarray(self.predict_proba(X))
        own, codes = self._calibration(model)
        return prediction_sets(chances, own, codes, coverage, per_class=per_class, random_state=random_state)

    def _calibration(self, model: Any) -> tuple[np.ndarray, np.ndarray]:
        """Scores of the true classes of the rows that were left out, and those classes; kept with the model."""
        if model.calibration is None:
            assert self.pass_ is not None
            assert isinstance(self.pass_.targets, LabelTargets)
            scores, encoded, _ = model.left_out
            codes = np.argsort(self.pass_.targets.sorted()[1])[encoded]
            share = check_random_state(self.pass_.seed).random_sample(len(codes))
            own = adaptive_scores(scores_to_probabilities(self, scores), share)[np.arange(len(codes)), codes]
            model.calibration = own, codes
        return model.calibration

    @dispatch_prediction
    def decision_function(self, X: Any) -> Array:
        """Class scores.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_classes)
            One score for two classes, where positive means `classes_[1]`; else one for each class.
        """
        scores = score_rows(self, X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    @dispatch_prediction
    def predict(self, X: Any) -> np.ndarray:
        """The class of each row.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Always NumPy, since labels may be strings.
        """
        scores = xa.to_numpy(score_rows(self, X))
        return scores_to_labels(self.classes_, scores)

    @available_if(has_probabilities)
    @dispatch_prediction
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class: the softmax of the scores, or Platt's sigmoid of each score, normalised.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`.
        """
        scores = xa.to_numpy(score_rows(self, X))
        return scores_to_probabilities(self, scores)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class OnePassRegressor(RegressorMixin, MultiOutputMixin, BaseEstimator):
    """A regressor that learns from rows as they pass by; a subclass has settings and says in `parts()` what they mean.

    Attributes
    ----------
    pass_ : gramless.streaming.learners.Pass
        Where the pass stands: what `partial_fit` goes on with.
    history_ : list of dict
        One record for each pass of `fit` over all rows.
    """

    pass_: Pass | None = None
    history_: list[dict[str, Any]]
    _single_output: bool

    def parts(self) -> Parts:
        """The feature map, the learner and the options of the pass that the settings mean.

        Returns
        -------
        tuple of FeatureMap, Learner and PassOptions
            What `run_pass` is called with.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what its parts are")

    @atomic_fit
    @dispatch_fit
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit in one pass, or in as many epochs as the settings ask for.

        Parameters
        ----------
        X : array, path, iterable or Stream
            An array (a `np.memmap` is read in batches); the path of a CSV, Parquet or npz file; an iterable of `(X, y)` or
            `(X, y, sample_weight)` batches; or a `Stream`.
        y : array of shape (n,) or (n, n_outputs), or the name of the target column of a file
            Values; none beside batches or a `Stream`, which carry their own.
        sample_weight : array, optional
            With an array, one weight for each row: weight 2 equals two copies.

        Returns
        -------
        self : estimator
            Fitted.
        """
        return self.adopt(learn(self, rows_and_values, X, y, sample_weight))

    @atomic_fit
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from more rows, once each; where sums are learnt, the result is that of one `fit` on all rows together.

        Parameters
        ----------
        X : array, path, iterable or Stream
            As in `fit`.
        y : array, or the name of the target column of a file
            As in `fit`.
        sample_weight : array, optional
            As in `fit`.

        Returns
        -------
        self : estimator
            With the rows added.
        """
        return self.adopt(learn_more(self, known_targets(self) or ValueTargets(), X, y, sample_weight))

    def adopt(self, state: Pass) -> Self:
        """Take a pass, made here or on other machines, as the model's.

        Parameters
        ----------
        state : Pass
            Made with this estimator's `parts()`.

        Returns
        -------
        self : estimator
            With that model.
        """
        set_single_output(self, state.targets.single)
        self.pass_, self.history_ = state, state.history
        self.n_features_in_, self.device_ = state.n_columns, state.device
        return self

    def finish(self) -> Self:
        """Keep the model and let go of what only `partial_fit` needs: the sums, and rows held back.

        In memory and in a saved file, `m` points are left instead of `m^2` sums; `partial_fit` is refused from then on, and
        what needs the sums: deviations, and intervals that are not all of one width.

        Returns
        -------
        self : estimator
            Smaller, with the same model.
        """
        check_is_fitted(self, "intercept_")
        assert self.pass_ is not None
        keep_residuals(self)
        self.__dict__.pop("_posterior", None)
        self.pass_ = self.pass_.finish(*self.parts())
        return self

    def plan(self, n: int | None, d: int, n_outputs: int, dtype: Any, device: str) -> PassPlan:
        """Rows in a batch and the peak memory of a fit.

        Parameters
        ----------
        n : int or None
            Rows; None where nobody knows.
        d : int
            Columns.
        n_outputs : int
            Columns of targets.
        dtype : dtype
            Of the computation.
        device : str
            Where it is made.

        Returns
        -------
        PassPlan
            With `batch_rows` and `memory`; a `MemoryError` is raised where no plan fits.
        """
        return plan_parts(self.parts(), n, d, n_outputs, dtype, device)

    @dispatch_prediction
    def predict(self, X: Any) -> Array:
        """Predicted values.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_outputs)
            As `y` was at fit.
        """
        scores = score_rows(self, X)
        return scores[:, 0] if self._single_output else scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
