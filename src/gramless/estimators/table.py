"""Tables as people have them, predicted by exact least-squares kernel machines: numbers, words, dates and gaps.

A fit finds what each column is (`gramless.tables.columns`), searches over how columns are prepared, the kernel, its width
and C by closed-form leave-one-out on a sample that grows (`gramless.tables.search`), fits the best setting, or the average
of the best, to all rows (`gramless.tables.members`) and calibrates probabilities on the leave-one-out scores of all rows
(`gramless.inference.softmax_link`). O(n^3) up to some ten thousand rows, O(n p^2) in neighbourhoods of p rows beyond.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

from gramless._core.doc_links import link_documentation
from gramless._core.memory import parse_budget
from gramless._core.progress import log_progress, report_compilation
from gramless._core.validation import (
    atomic_fit,
    check_choice,
    check_labels,
    check_outputs,
    check_positive,
    check_weights,
)
from gramless.inference.prediction_sets import adaptive_scores, prediction_sets, score_threshold
from gramless.inference.softmax_link import fit_link, link_probabilities, link_scores
from gramless.tables.columns import Encoded, TableColumns, frame_rows, is_frame
from gramless.tables.losses import ClassLoss, ValueLoss
from gramless.tables.members import Fitted, Member, TablePlan, fit_members, plan_table
from gramless.tables.search import KERNELS

_MOST_SEARCH_ROWS = 20_000


def default_seconds(n: int) -> float:
    """45 seconds for fifty thousand rows, 450 for half a million; small tables do not use up what this allows them."""
    return max(3.0, 45.0 * (n / 50_000) ** 0.5, 9e-4 * n)


@link_documentation
class TableClassifier(ClassifierMixin, BaseEstimator):
    """Classes from a table: a DataFrame (pandas, polars, arrow) or an array.

    Parameters
    ----------
    kernel : {"auto", "rbf", "matern52", "exponential", "laplacian"}, default="auto"
        `"auto"` tries them all.
    metric : {"plain", "learned"}, default="learned"
        `"learned"` also tries a scale for each column, by the slopes of the leave-one-out loss.
    text : {"leave out", "hash"}, default="leave out"
        What happens to a column of words that differ in almost every row.
    class_weight : dict, "balanced" or None, default=None
        Multiplies `sample_weight`.
    time_budget : float or None, default=None
        Seconds that the fit aims at; None is about 15 for 5,000 rows, 45 for 50,000 and 450 for 500,000, and 1,000 rows take
        2 to 3. It sets how many rows the search sees, how many settings are averaged and how large neighbourhoods are; it is
        not a limit to the second.
    memory_budget : str, int, float or None, default=None
        Bound on the memory of the fit: `"4GB"`, bytes, a fraction of what is free; None is 70 % of it.
    callback : callable(str) or None, default=None
        Hears what the fit is doing.
    verbose : int, default=0
        1 says what is tried and how it went.
    random_state : int, RandomState or None, default=None
        Draws the rows of subsets and the solver's choices.

    Attributes
    ----------
    classes_ : ndarray
    columns_ : TableColumns
        What each column is, and which are left out and why.
    members_, member_weights_ : list of Member, ndarray
        The fitted settings and their weights in the average.
    link_ : ndarray
        The numbers of the calibrated softmax.
    loo_probabilities_ : ndarray of shape (n, n_classes)
        Of the training rows (those with a positive weight), each predicted without itself.
    calibration_scores_ : ndarray of shape (n,)
        The score of each row's true class in `predict_set`, by the model without the row.
    calibration_codes_ : ndarray of int of shape (n,)
        The classes of those rows, as positions in `classes_`.
    summary_ : str
        What was chosen.
    gave_up_ : list of str
        What time or memory did not allow.

    See Also
    --------
    TableRegressor : the same for values.
    LSSVC : one kernel machine with settings of your own.

    References
    ----------
    Suykens and Vandewalle, "Least squares support vector machine classifiers", 1999.
    Cawley and Talbot, "Fast exact leave-one-out cross-validation of sparse least-squares support vector machines", 2004.

    Examples
    --------
    >>> import pandas as pd
    >>> from gramless import TableClassifier
    >>> frame = pd.DataFrame({"height": [1.0, 1.2, 5.0, 5.5] * 10, "leaf": ["oval", "oval", "needle", None] * 10})
    >>> model = TableClassifier(random_state=0).fit(frame, ["bush", "bush", "tree", "tree"] * 10)
    >>> model.predict(pd.DataFrame({"height": [5.2], "leaf": ["needle"]}))
    array(['tree'], dtype='<U4')
    """

    def __init__(
        self,
        *,
        kernel: str = "auto",
        metric: str = "learned",
        text: str = "leave out",
        class_weight: Any = None,
        time_budget: float | None = None,
        memory_budget: str | float | None = None,
        callback: Callable[[str], Any] | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.metric = metric
        self.text = text
        self.class_weight = class_weight
        self.time_budget = time_budget
        self.memory_budget = memory_budget
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    @atomic_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TableClassifier:
        """Fit to labels.

        Parameters
        ----------
        X : DataFrame (pandas, polars, arrow) or array of shape (n, n_features)
            The table.
        y : array of shape (n,)
            What is to be predicted.
        sample_weight : array of shape (n,), optional
            A row of weight 2 counts as two copies; rows of weight zero are as if they were not there.

        Returns
        -------
        self
            Fitted.
        """
        X, n = check_table(self, X, reset=True)
        self.classes_, codes = check_labels(y, n)
        weights = check_weights(sample_weight, np.empty((n, 1)), codes, self.classes_, self.class_weight)
        kept = np.arange(n) if weights is None else np.flatnonzero(weights)
        if len(np.unique(codes[kept])) < 2:
            raise ValueError("The number of classes with a positive sample weight has to be greater than one; got 1 class")
        self.columns_ = TableColumns(text=check_choice("text", self.text, {"leave out", "hash"})).fit(X)
        encoded = self.columns_.encode(X).take(kept)
        codes, weights = codes[kept], None if weights is None else weights[kept]
        loss = ClassLoss(codes, len(self.classes_), weights)
        fitted = fit_table(self, encoded, loss, weights)
        take_members(self, fitted)
        self.link_ = fit_link(fitted.predictions, codes, len(self.classes_), weights)
        self.loo_probabilities_ = link_probabilities(fitted.predictions, self.link_)
        share = check_random_state(self.random_state).random_sample(len(codes))
        scores = adaptive_scores(self.loo_probabilities_, share)
        self.calibration_scores_, self.calibration_codes_ = scores[np.arange(len(codes)), codes], codes
        return self

    def predict_set(self, X: Any, coverage: float = 0.9, *, per_class: bool = False, random_state: Any = None) -> np.ndarray:
        """Sets of classes that contain the true one with a chosen probability.

        Adaptive prediction sets on leave-one-out probabilities: rows that are hard get large sets. A set may be empty where
        the coverage is below the accuracy.

        Parameters
        ----------
        X : DataFrame or array
            The columns of the training table.
        coverage : float, default=0.9
            Between 0 and 1.
        per_class : bool, default=False
            Whether the rows of every class are to be covered so often, or all rows together.
        random_state : int, RandomState or None, default=None
            Draws the random share of a class's own probability that makes the coverage exact.

        Returns
        -------
        ndarray of bool of shape (n, n_classes)
            Columns in the order of `classes_`.
        """
        chances = self.predict_proba(X)
        own, codes = self.calibration_scores_, self.calibration_codes_
        return prediction_sets(chances, own, codes, coverage, per_class=per_class, random_state=random_state)

    def decision_function(self, X: Any) -> np.ndarray:
        """Calibrated class scores, whose softmax `predict_proba` is; for two classes the log odds of the second.

        Parameters
        ----------
        X : DataFrame or array
            The columns of the training table.

        Returns
        -------
        ndarray of shape (n,) or (n, n_classes)
            One column for two classes, where positive means `classes_[1]`.
        """
        scores = link_scores(self._scores(X), self.link_)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "members_")
        X, _ = check_table(self, X, reset=False)
        encoded = self.columns_.encode(X)
        return sum(w * member.scores(encoded) for w, member in zip(self.member_weights_, self.members_, strict=True))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Calibrated probability of each class, columns in the order of `classes_`.

        Parameters
        ----------
        X : DataFrame or array
            The columns of the training table.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Columns in the order of `classes_`.
        """
        return link_probabilities(self._scores(X), self.link_)

    def plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> TablePlan:
        """What a fit of this size would hold.

        Parameters
        ----------
        n, d, n_outputs : int
            Rows, prepared columns (a category has one for each level), and columns of targets.
        dtype : dtype
            Of the data.
        device : str
            Where to compute.

        Returns
        -------
        TablePlan
            Or a `MemoryError` where that is too much.
        """
        return plan_table(n, d, n_outputs, parse_budget(self.memory_budget, "cpu"))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row.

        Parameters
        ----------
        X : DataFrame or array
            The columns of the training table.

        Returns
        -------
        ndarray of shape (n,)
            A prediction for each row.
        """
        most_probable = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most_probable]


@link_documentation
class TableRegressor(RegressorMixin, BaseEstimator):
    """Values from a table: a DataFrame (pandas, polars, arrow) or an array.

    Parameters
    ----------
    kernel : {"auto", "rbf", "matern52", "exponential", "laplacian"}, default="auto"
        `"auto"` tries them all.
    metric : {"plain", "learned"}, default="learned"
        `"learned"` also tries a scale for each column, by the slopes of the leave-one-out loss.
    loss : {"squared_error", "absolute_error"}, default="squared_error"
        What settings are compared by, in the target's own units. A skewed positive target may be fitted as its logarithm.
    text : {"leave out", "hash"}, default="leave out"
        What happens to a column of words that differ in almost every row.
    time_budget : float or None, default=None
        Seconds that the fit aims at; None is about 15 for 5,000 rows, 45 for 50,000 and 450 for 500,000, and 1,000 rows take
        2 to 3. It sets how many rows the search sees, how many settings are averaged and how large neighbourhoods are; it is
        not a limit to the second.
    memory_budget : str, int, float or None, default=None
        Bound on the memory of the fit: `"4GB"`, bytes, a fraction of what is free; None is 70 % of it.
    callback : callable(str) or None, default=None
        Hears what the fit is doing.
    verbose : int, default=0
        1 says what is tried and how it went.
    random_state : int, RandomState or None, default=None
        Draws the rows of subsets and the solver's choices.

    Attributes
    ----------
    columns_ : TableColumns
        What each column is, and which are left out and why.
    members_, member_weights_ : list of Member, ndarray
        The fitted settings and their weights in the average.
    loo_predictions_ : ndarray of shape (n,)
        Of the training rows (those with a positive weight), each predicted without itself.
    loo_residuals_ : ndarray of shape (n,)
        Their values minus those predictions.
    summary_ : str
        What was chosen.
    gave_up_ : list of str
        What time or memory did not allow.

    See Also
    --------
    TableClassifier : the same for classes.
    LSSVR : one kernel machine with settings of your own.

    References
    ----------
    Cawley and Talbot, "Fast exact leave-one-out cross-validation of sparse least-squares support vector machines", 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import TableRegressor
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> TableRegressor(random_state=0).fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])) > 0.99
    True
    """

    def __init__(
        self,
        *,
        kernel: str = "auto",
        metric: str = "learned",
        loss: str = "squared_error",
        text: str = "leave out",
        time_budget: float | None = None,
        memory_budget: str | float | None = None,
        callback: Callable[[str], Any] | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.metric = metric
        self.loss = loss
        self.text = text
        self.time_budget = time_budget
        self.memory_budget = memory_budget
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    @atomic_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TableRegressor:
        """Fit to values.

        Parameters
        ----------
        X : DataFrame (pandas, polars, arrow) or array of shape (n, n_features)
            The table.
        y : array of shape (n,)
            What is to be predicted.
        sample_weight : array of shape (n,), optional
            A row of weight 2 counts as two copies; rows of weight zero are as if they were not there.

        Returns
        -------
        self
            Fitted.
        """
        check_choice("loss", self.loss, {"squared_error", "absolute_error"})
        X, n = check_table(self, X, reset=True)
        values = column_or_1d(check_outputs(y, n), warn=True)
        weights = check_weights(sample_weight, np.empty((n, 1)))
        kept = np.arange(n) if weights is None else np.flatnonzero(weights)
        self.columns_ = TableColumns(text=check_choice("text", self.text, {"leave out", "hash"})).fit(X)
        encoded = self.columns_.encode(X).take(kept)
        values, weights = values[kept].astype(np.float64), None if weights is None else weights[kept]
        loss = ValueLoss(values, self.loss, weights)
        fitted = fit_table(self, encoded, loss, weights)
        take_members(self, fitted)
        self.target_scales_ = loss.scales()
        self.loo_predictions_ = fitted.predictions
        self.loo_residuals_ = values - np.asarray(fitted.predictions).reshape(len(values))
        self._weights = weights
        return self

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Intervals that contain the value of a new row with a chosen probability, by leave-one-out residuals.

        Parameters
        ----------
        X : DataFrame or array
            The columns of the training table.
        coverage : float, default=0.9
            Between 0 and 1: the share of new values inside, of rows that come from where the training rows came from.

        Returns
        -------
        ndarray of shape (n, 2)
            Lower and upper ends; infinite where there are too few training rows for the coverage.
        """
        values = self.predict(X)
        length = score_threshold(np.abs(self.loo_residuals_), coverage, self._weights)
        return np.column_stack([values - length, values + length])

    def plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> TablePlan:
        """What a fit of this size would hold.

        Parameters
        ----------
        n, d, n_outputs : int
            Rows, prepared columns (a category has one for each level), and columns of targets.
        dtype : dtype
            Of the data.
        device : str
            Where to compute.

        Returns
        -------
        TablePlan
            Or a `MemoryError` where that is too much.
        """
        return plan_table(n, d, n_outputs, parse_budget(self.memory_budget, "cpu"))

    def predict(self, X: Any) -> np.ndarray:
        """Predicted values.

        Parameters
        ----------
        X : DataFrame or array
            The columns of the training table.

        Returns
        -------
        ndarray of shape (n,)
            A prediction for each row.
        """
        check_is_fitted(self, "members_")
        X, _ = check_table(self, X, reset=False)
        encoded = self.columns_.encode(X)
        total = np.zeros(len(encoded))
        for w, member in zip(self.member_weights_, self.members_, strict=True):
            total += w * ValueLoss.from_scores(member.scores(encoded), self.target_scales_, member.log, member.factor)
        return total


def check_table(estimator: Any, X: Any, *, reset: bool) -> tuple[Any, int]:
    """A frame as it is or an array of any dtype, with its columns counted and named; and its number of rows.

    Rows that the model's columns have encoded before are what they are.
    """
    if isinstance(X, Encoded) and not reset:
        return X, len(X)
    if is_frame(X):
        n = frame_rows(X)
        if n == 0 or len(getattr(X, "column_names", getattr(X, "columns", []))) == 0:
            raise ValueError(
                f"Found array with {n} sample(s) and shape {getattr(X, 'shape', None)}: a minimum of 1 is required."
            )
        if hasattr(X, "iloc"):
            validate_data(estimator, X, reset=reset, skip_check_array=True)
        else:
            _check_names(estimator, X, reset)
        return X, n
    if hasattr(X, "indptr"):
        raise TypeError("Sparse data was passed, and tables are dense: use X.toarray(), or LSSVC, which takes sparse rows")
    checked = validate_data(estimator, X, reset=reset, dtype=None, ensure_all_finite=False)
    if checked.dtype.kind in "fc":
        check_array(checked, ensure_all_finite="allow-nan")
    elif checked.dtype.kind == "O":
        _check_objects(checked)
    return checked, len(checked)


def _check_names(estimator: Any, X: Any, reset: bool) -> None:
    from gramless.tables.columns import column_names

    names = np.array(column_names(X), dtype=object)
    if reset:
        estimator.feature_names_in_, estimator.n_features_in_ = names, len(names)
    elif not np.array_equal(names, getattr(estimator, "feature_names_in_", names)):
        raise ValueError(
            f"The feature names should match those that were passed during fit: {list(estimator.feature_names_in_)}, "
            f"got {list(names)}"
        )


def _check_objects(X: np.ndarray) -> None:
    for value in X.ravel():
        if isinstance(value, (dict, list, tuple, np.ndarray)):
            raise TypeError(f"argument must be a string or a number, not {type(value).__name__!r}")
        if isinstance(value, float) and np.isinf(value):
            raise ValueError("Input X contains infinity: leave such cells empty (NaN)")


def fit_table(estimator: Any, encoded: Any, loss: Any, weights: np.ndarray | None) -> Fitted:
    """The search and the fit, with the settings of `estimator`."""
    if len(encoded) < 2:
        raise ValueError(f"Found array with {len(encoded)} sample(s) of positive weight while a minimum of 2 is required.")
    kernels = KERNELS if estimator.kernel == "auto" else (check_choice("kernel", estimator.kernel, {"auto", *KERNELS}),)
    seconds = estimator.time_budget
    if seconds is not None:
        check_positive("time_budget", seconds)
    infinite = np.isinf(encoded.numbers).any(axis=0) if encoded.numbers.size else np.zeros(0, bool)
    if infinite.any():
        raise ValueError("Input X contains infinity: leave such cells empty (NaN)")

    def tell(doing: str) -> None:
        log_progress(estimator.verbose, doing)
        if estimator.callback is not None:
            estimator.callback(doing)

    with report_compilation(tell) as told:
        return fit_members(
            encoded,
            loss,
            weights,
            n_levels=[len(levels) for levels in estimator.columns_.levels_],
            kernels=kernels,
            metric=check_choice("metric", estimator.metric, {"plain", "learned"}),
            seconds=default_seconds(len(encoded)) if seconds is None else float(seconds),
            memory=parse_budget(estimator.memory_budget, "cpu"),
            most_rows=_MOST_SEARCH_ROWS,
            seed=check_random_state(estimator.random_state).randint(2**31 - 1),
            tell=told,
        )


def take_members(estimator: Any, fitted: Fitted) -> None:
    """Make the fitted members the estimator's model, and say what they are."""
    members: list[Member] = fitted.members
    estimator.members_, estimator.member_weights_ = members, fitted.weights
    estimator.gave_up_ = fitted.gave_up
    shares = zip(fitted.weights, members, strict=True)
    estimator.summary_ = "; ".join((f"{w:.0%} " if len(members) > 1 else "") + member.about for w, member in shares)
