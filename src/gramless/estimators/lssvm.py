"""Least-squares support vector machines for classification and regression.

    min_f  1/2 ||f||^2 + C/2 sum_i w_i (z_i - f(x_i) - b)^2

The coefficients solve a linear system with one unknown for each row; all classes or outputs share the matrix of the system.
An exact solution costs O(n^3) time and the memory of n^2 numbers; conjugate gradients with kernel values computed on demand
cost O(n^2 d) time for each iteration and a few megabytes of memory. `fit` validates the rows, encodes the targets (classes
as -1 and +1 or as indicator columns, values standardised), solves the system (`gramless.linalg.least_squares`) or selects
its settings by leave-one-out (`gramless.inference.leave_one_out`), and stores the model.

References: Suykens and Vandewalle, "Least squares support vector machine classifiers", 1999; Suykens et al., "Weighted least
squares support vector machines", 2002, for weights.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.metrics import accuracy_score, balanced_accuracy_score, mean_absolute_error, mean_squared_error, r2_score
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Options, StrOptions
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.constraints import CONSTRAINTS, POSITIVE, POSITIVE_INTEGER, estimator, inherit_parameter_docs
from gramless._core.dask_dispatch import dispatch_fit, dispatch_prediction
from gramless._core.memory import parse_budget
from gramless._core.targets.columns import Standardised, class_targets, scores_to_labels
from gramless._core.validation import (
    atomic_fit,
    check_indicator,
    check_labels,
    check_outputs,
    check_weights,
    check_X,
    is_indicator,
    warn_caller,
    working_dtype,
)
from gramless.estimators.expansion import CALIBRATION, BaseKernelExpansion, former_search_parameters
from gramless.inference.intervals import prediction_intervals, prediction_sets, standard_deviations
from gramless.inference.leave_one_out import leave_one_out_on_demand, leave_one_out_scores, optimism, scores_without_one_copy
from gramless.inference.posterior import ExactPosterior, IterativePosterior, LeastSquaresModel, make_posterior
from gramless.inference.probabilities import LEAVE_ONE_OUT_METHODS, METHODS, calibrate, probability_constraint
from gramless.linalg.solvers import SOLVERS, Solver

C_PATH = tuple(float(c) for c in np.logspace(-2, 5, 15))
_CLASS_METRICS: dict[str, Callable[..., float]] = {
    "accuracy": accuracy_score,
    "balanced_accuracy": balanced_accuracy_score,
}
_VALUE_METRICS: dict[str, Callable[..., float]] = {
    "neg_mean_squared_error": lambda *args, **kwargs: -mean_squared_error(*args, **kwargs),
    "neg_mean_absolute_error": lambda *args, **kwargs: -mean_absolute_error(*args, **kwargs),
    "r2": r2_score,
}
_CONSTRAINTS: dict[str, Any] = {
    **{name: [*CONSTRAINTS[name], list, tuple, np.ndarray] for name in ("gamma", "degree", "coef0")},
    "C": [POSITIVE, StrOptions({"loo"})],
    "solver": [StrOptions({"auto", *SOLVERS}), Solver],
    "tol": [POSITIVE, StrOptions({"auto"})],
    "max_iter": [POSITIVE_INTEGER, Options(Integral, {-1}), None],
}


@estimator
class LSSVC(ClassifierMixin, BaseKernelExpansion):
    """Least-squares support vector classifier.

    Prefer `LSSVC` to `sklearn.svm.SVC` if there are many classes, which share one linear system, if calibrated probabilities
    are needed, or if the kernel matrix does not fit the memory; prefer SVC if a model with few support vectors is needed.

    Parameters
    ----------
    kernel : str, Kernel, callable or a list of them, default="rbf"
        Kernel function. A name, an expression of `gramless.kernels`, or a function `f(X, Y)` that returns the kernel matrix.
        `C="loo"` compares a list of values.
    C : float or "loo", default=1.0
        Inverse regularisation strength; a larger value fits the training rows more closely. `"loo"` selects the value of
        `Cs` with the smallest leave-one-out error, without refitting.
    gamma : float, "scale", "auto", "weighted_scale" or a list of them, default="scale"
        Coefficient of a kernel given by name; `"scale"` is `1 / (n_features * X.var())` and `"auto"` is `1 / n_features`.
        `"weighted_scale"` is `"scale"` with the variance weighted by `sample_weight`. `C="loo"` compares a list of values.
    degree : int or list of int, default=3
        Degree of the polynomial kernel; ignored by other kernels. `C="loo"` compares a list of values.
    coef0 : float or list of float, default=0.0
        Constant term of the polynomial and sigmoid kernels; ignored by other kernels. `C="loo"` compares a list of values.
    Cs : sequence of float, default=1e-2 to 1e5 in half decades
        Values of `C` that `C="loo"` compares.
    scoring : str or callable(y_true, y_pred, sample_weight=...) -> float, optional
        Metric of the leave-one-out predictions that `C="loo"` maximises. For classes `"accuracy"` (the default) or
        `"balanced_accuracy"`; for values `"neg_mean_squared_error"` (the default), `"neg_mean_absolute_error"` or `"r2"`.
    solver : str or Solver, default="auto"
        Algorithm that solves the optimisation problem. `"cholesky"` is exact; `"cg"` is block conjugate gradients with a
        Nyström preconditioner; `"sketch_project"` reaches a loose `tol` before `"cg"` on very large streamed data; the
        randomised `"matching_pursuit"`, `"kaczmarz"`, `"kaczmarz_mp"` and `"nystrom_committee"` read one block of rows at a
        time. `"auto"` chooses by the sizes, `tol`, the memory and the device; the choice is in `solver_`. An object of
        `gramless.linalg.solvers` has its own settings, for instance `CG(n_landmarks=2000)`.
    tol : float or "auto", default="auto"
        Tolerance at which the solver stops. `tol` bounds the relative residual `||Z - A W|| / ||Z||` of a solver given by
        name; a solver object has its own `tol`. `"auto"` stops conjugate gradients when the residual norm, which bounds the
        error of the training scores, is below 5 % of the training error for every output, or below 5e-3 (classes) or 1e-3
        (values) relative to the targets. For other solvers, and for up to 4,096 rows with `solver="auto"`, `tol` is 1e-3.
    max_iter : int or None, default=None
        Maximum number of solver iterations. The Notes define an iteration and the meaning of None.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with `sample_weight`; `"balanced"` weights each class by the inverse of its
        frequency.
    probability : {"auto", "softmax", "sigmoid", "temperature", False}, default="auto"
        Method that converts scores to the probabilities of `predict_proba`; False disables `predict_proba`. `"softmax"` is
        the softmax of the scores, `"sigmoid"` Platt's sigmoid of each score, normalised, and `"temperature"` the softmax of
        the scores divided by a temperature. Sigmoids and temperature are fitted to closed-form leave-one-out scores, without
        a refit; `predict_set` needs these scores. The Notes describe `"auto"`.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        Shape of the output of `decision_function`: one column per class (`"ovr"`) or per pair of classes (`"ovo"`). The
        Notes describe exceptions.
    warm_start : bool, default=False
        Whether to start from the coefficients of the previous fit if the shapes agree.
    dtype : {"float32", "float64"} or None, default=None
        Floating-point precision of the computation; None uses float32 for float32 and uint8 data, else float64.
    device : {"cpu", "cuda", "auto"}, CUDA or None, default=None
        Device of the computation; None uses the device of the data. A `gramless.CUDA` object also sets precision and
        storage.
    memory_budget : str, int, float or None, default=None
        Upper bound on the memory that the fit allocates: a string such as `"4GB"`, a number of bytes, or a fraction of the
        free memory if at most 1; None is 70 % of the free memory.
    callback : callable, Checkpoint, EarlyStopping, a list of these, or None, default=None
        Function `callback(estimator, record)` called with the partially fitted estimator and a dict of progress values;
        returning True stops the fit. The function is called after each iteration of the solver. `gramless.callbacks` has
        checkpoints and early stopping on held-out rows.
    verbose : int, default=0
        If positive, write progress messages to standard error.
    random_state : int, RandomState or None, default=None
        Seed or generator for all random choices of the fit; an int makes the fit reproducible.

    Attributes
    ----------
    classes_ : ndarray
        Class labels; for an indicator matrix, the column indices.
    multilabel_ : bool
        Whether `y` was an indicator matrix, so that each row may have several labels or none.
    sigmoids_ : ndarray of shape (n_outputs, 2)
        Slope and offset of each sigmoid, with `probability="sigmoid"`.
    temperature_ : float, or ndarray of shape (n_labels,) for an indicator matrix
        Temperature, with `probability="temperature"` or `"auto"`.
    calibration_scores_ : ndarray of shape (m,)
        Score of the true class of each training row by the model fitted without the row, used by `predict_set`.
    calibration_codes_ : ndarray of int of shape (m,)
        Class of each row of `calibration_scores_`, as a position in `classes_`.
    kernel_ : Kernel
        The kernel with all its parameters as numbers.
    points_ : array of shape (m, n_features)
        Training rows of the expansion `kernel_(X, points_) @ dual_coef_ + intercept_`.
    dual_coef_ : ndarray of shape (m, n_outputs)
        Coefficients of the points: one column for two classes, else one for each class.
    intercept_ : ndarray of shape (n_outputs,)
        Bias of each output.
    support_ : ndarray of int
        Row numbers of `points_` in the training data.
    solver_ : str
        Name of the solver that was used.
    solver_reason_ : str
        Why this solver was chosen, and whether the kernel matrix was cached.
    C_ : float
        Value of `C` of the model.
    best_params_ : dict
        Kernel, kernel parameters given as lists, and `C` of the selected model, with `C="loo"`.
    best_score_ : float
        Leave-one-out score of the selected model, with `C="loo"`.
    scores_ : ndarray of shape (n_kernels, n_C)
        Leave-one-out scores of all candidates, with rows as in `params_`; NaN for kernels that a callback skipped, and for
        singular systems. Only with `C="loo"`.
    params_ : list of dict
        Kernels that were compared, with the kernel parameters given as lists; only with `C="loo"`.
    loo_decision_ : ndarray
        Leave-one-out scores of the training rows of positive weight under the selected model, with `C="loo"`.
    history_ : list of dict
        One record for each iteration: `n_iter`, `seconds` (without callbacks), `residual`, and values added by callbacks;
        with `C="loo"` one for each kernel, with `score` (best of all `Cs`) and `best_score` (best of all kernels so far).
    n_iter_ : int
        Number of iterations.
    residual_ : float
        Relative residual at the end of the solve.

    See Also
    --------
    LSSVR : The regressor.
    NystromLSSVC : Least-squares classifier on landmarks, fitted in one pass over the data.

    Notes
    -----
    The ridge on the diagonal of the kernel matrix is `1 / (C w)` for a row of weight `w`, so weight 2 equals two copies.

    `C="loo"` compares every kernel of the lists `kernel`, `gamma`, `degree` and `coef0` with every value of `Cs` by
    `scoring`, in closed form. One eigendecomposition of a kernel matrix gives the leave-one-out predictions and the models
    of all `Cs`; if the decomposition exceeds the memory budget, each value of `Cs` needs one factorisation. `C="loo"` needs
    `solver="auto"`, and `callback` may have functions only, which are called after each kernel with the best model so far.
    Prefer `C="loo"` to `sklearn.model_selection.GridSearchCV` for up to about ten thousand rows.

    `max_iter` applies to a solver given by name, and counts the iterations of that solver or the members of
    `"nystrom_committee"`; None and -1 are the solver's default.

    `probability="auto"` is `"temperature"`, fitted at the first request, for models of up to 10,000 points, and `"softmax"`
    for larger models, for kernels that are precomputed or functions, and for models fitted on a cluster. With
    `decision_function_shape="ovo"`, columns of pairs are differences of scores, in the order and with the signs of
    `sklearn.svm.SVC`; the parameter is ignored for two classes.

    References
    ----------
    Cawley and Talbot, "Fast exact leave-one-out cross-validation of sparse least-squares support vector machines", 2004.

    Suykens and Vandewalle, "Least squares support vector machine classifiers", 1999.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gramless import LSSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> LSSVC(C=10.0).fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]) > 0.95
    True
    >>> LSSVC(C="loo", gamma=[0.0002, 0.0005]).fit(X[:500], y[:500]).best_score_ > 0.97
    True
    """

    C: float | str = 1.0
    Cs: Any = C_PATH
    scoring: Any = None
    solver: str | Solver = "auto"
    tol: float | str = "auto"
    max_iter: int | None = None
    class_weight: Any = None
    probability: str | bool = "auto"
    decision_function_shape: str = "ovr"
    warm_start: bool = False

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **_CONSTRAINTS,
        "scoring": [StrOptions(set(_CLASS_METRICS)), callable, None],
        "probability": probability_constraint(*METHODS),
    }

    @atomic_fit
    @dispatch_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LSSVC:
        """Fit the model to labels.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Training rows; kernel values of shape (n_samples, n_samples) with `kernel="precomputed"`.
        y : array of shape (n_samples,), or indicator matrix of shape (n_samples, n_labels)
            Labels. A dense or sparse indicator matrix has zeros and ones, with one column for each label; a row may have
            several labels.
        sample_weight : array of shape (n_samples,), optional
            Non-negative weights of the rows; rows of weight zero are left out.

        Returns
        -------
        self
            The fitted estimator.
        """
        X = check_X(self, X, dtype=working_dtype(X, self.dtype), reset=True)
        self.multilabel_ = is_indicator(y)
        if self.multilabel_:
            codes = check_indicator(y, X.shape[0], self.class_weight)
            self.classes_, weights = np.arange(codes.shape[1]), check_weights(sample_weight, X)
        else:
            self.classes_, codes = check_labels(y, X.shape[0])
            weights = check_weights(sample_weight, X, codes, self.classes_, self.class_weight)
            if weights is not None and len(np.unique(codes[weights > 0])) < 2:
                raise ValueError(
                    "The number of classes with a positive sample weight has to be greater than one; got 1 class"
                )
        Z = self._targets(codes)
        # The calibration of an earlier fit is deleted first: a callback would combine it with new scores.
        self._delete(*CALIBRATION)
        if self.C == "loo":
            truth = codes.astype(np.int64) if self.multilabel_ else self.classes_[codes]
            metric = self.scoring if callable(self.scoring) else _CLASS_METRICS[self.scoring or "accuracy"]

            def score(loo: np.ndarray, rows: np.ndarray, used: np.ndarray | None) -> float:
                return metric(truth[rows], self._labels(loo), sample_weight=used)

            self._select(X, Z, weights, score)
        else:
            classes, error = (None, _label_error) if self.multilabel_ else (codes, _class_error)
            fit = self._solve(X, Z, weights, validation_error=error, classes=classes)
        rows = self.support_
        self._codes = codes[rows].astype(np.min_scalar_type(len(self.classes_)), copy=False)
        self._weights = None if weights is None else weights[rows]
        self._calibration: dict[str, Any] = {}  # computed below, or at the first request of probabilities
        rng = self._settings().generator(X, Z)
        if self.C == "loo" and self.probability is not False:
            scores = self.loo_decision_.reshape(len(rows), -1)
            self._calibrate(scores_without_one_copy(Z[rows], scores, self.dual_coef_, self.C_, self._weights), rng)
        elif self.probability in LEAVE_ONE_OUT_METHODS:
            scores = leave_one_out_scores(fit.op, Z[rows], fit.coef, fit.plan.probes, random_state=rng)
            self._calibrate(scores, rng)
        return self

    def _targets(self, codes: np.ndarray) -> np.ndarray:
        return np.where(codes, 1.0, -1.0) if self.multilabel_ else class_targets(codes, len(self.classes_))

    def _calibrate(self, scores: np.ndarray, rng: np.random.RandomState) -> None:
        """Fit sigmoids or a temperature to leave-one-out scores, and store the calibration scores of `predict_set`."""
        found = calibrate(scores, self._codes, len(self.classes_), self.probability, self._weights, rng)
        if found.sigmoids is not None:
            self.sigmoids_ = found.sigmoids
        else:
            self._calibration["temperature"] = found.temperature
        if found.true_scores is not None:
            self._calibration["scores"] = found.true_scores

    def _calibrated(self) -> dict[str, Any]:
        """Return the calibration, computed here for `"auto"` if leave-one-out scores cost no more than the fit."""
        check_is_fitted(self)
        found: dict[str, Any] = vars(self).get("_calibration", {})
        if self.probability == "auto" and "_calibration" in vars(self) and not found:
            budget = parse_budget(self.memory_budget, self.device_)
            model = self.kernel_, self.points_, self.dual_coef_, self._targets(self._codes), self.C_, self._weights
            scores = leave_one_out_on_demand(*model, self.device_, budget)
            if scores is None:
                found["temperature"] = self._no_temperature()
            else:
                self._calibrate(scores, check_random_state(self.random_state))
        return found

    def _no_temperature(self) -> Any:
        return np.ones(len(self.classes_)) if self.multilabel_ else 1.0

    @property
    def temperature_(self) -> Any:
        """Divisor of the scores before their softmax; one for each label of an indicator matrix."""
        if self.probability not in ("temperature", "auto"):
            raise AttributeError(f"probability={self.probability!r} has no temperature")
        # A callback may read this attribute before the temperature is fitted: the value is then 1.
        return self._calibrated().get("temperature", self._no_temperature())

    @property
    def calibration_scores_(self) -> np.ndarray:
        """Score of the true class of each training row by the model fitted without the row."""
        if self.multilabel_:
            raise AttributeError(
                "rows with several labels have no true class: prediction sets of classes do not exist for them"
            )
        try:
            return self._calibrated()["scores"]
        except KeyError:
            raise AttributeError(
                "predict_set needs leave-one-out probabilities: fit with probability='temperature' or 'sigmoid' "
                "('auto' has them for up to 10,000 points, within the memory budget)"
            ) from None

    @property
    def calibration_codes_(self) -> np.ndarray:
        """Classes of the rows of `calibration_scores_`, as positions in `classes_`."""
        return self._codes.astype(np.intp)

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
            Whether the coverage holds for the rows of each class separately, instead of for all rows together.
        random_state : int, RandomState or None, default=None
            Seed or generator of the random numbers that make the coverage exact.

        Returns
        -------
        ndarray of bool of shape (n_samples, n_classes)
            Columns in the order of `classes_`. With the same `random_state`, the set for a larger coverage contains the set
            for a smaller coverage.
        """
        check_is_fitted(self)
        try:
            own, codes = self.calibration_scores_, self.calibration_codes_
        except AttributeError as reason:
            raise ValueError(str(reason)) from None
        probabilities = np.asarray(self.predict_proba(X))
        return prediction_sets(probabilities, own, codes, coverage, per_class=per_class, random_state=random_state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def _class_error(scores: np.ndarray, Z: np.ndarray) -> float:
    """Return the fraction of rows with a wrong predicted class."""
    labels = np.arange(max(2, Z.shape[1]))
    return float(np.mean(scores_to_labels(labels, scores) != scores_to_labels(labels, Z)))


def _label_error(scores: np.ndarray, Z: np.ndarray) -> float:
    """Return the fraction of wrong labels of a multilabel problem."""
    return float(np.mean((scores > 0) != (Z > 0)))


@inherit_parameter_docs(LSSVC)
@estimator
class LSSVR(RegressorMixin, MultiOutputMixin, BaseKernelExpansion):
    """Least-squares support vector regressor: kernel ridge regression with an unpenalised bias.

    Prefer `LSSVR` to `sklearn.kernel_ridge.KernelRidge` if the kernel matrix does not fit the memory, or if standard
    deviations and prediction intervals are needed; many outputs share one linear system.

    Parameters
    ----------
    fit_intercept : bool, default=True
        Whether the model has an intercept.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with all its parameters as numbers.
    points_ : array of shape (m, n_features)
        Training rows of the expansion `kernel_(X, points_) @ dual_coef_ + intercept_`.
    dual_coef_ : ndarray of shape (m, n_outputs)
        Coefficients of the points.
    intercept_ : ndarray of shape (n_outputs,)
        Bias of each output.
    support_ : ndarray of int
        Row numbers of `points_` in the training data.
    solver_ : str
        Name of the solver that was used.
    solver_reason_ : str
        Why this solver was chosen, and whether the kernel matrix was cached.
    C_ : float
        Value of `C` of the model.
    best_params_ : dict
        Kernel, kernel parameters given as lists, and `C` of the selected model, with `C="loo"`.
    best_score_ : float
        Leave-one-out score of the selected model, with `C="loo"`.
    scores_ : ndarray of shape (n_kernels, n_C)
        Leave-one-out scores of all candidates, with rows as in `params_`; NaN for kernels that a callback skipped, and for
        singular systems. Only with `C="loo"`.
    params_ : list of dict
        Kernels that were compared, with the kernel parameters given as lists; only with `C="loo"`.
    loo_decision_ : ndarray
        Leave-one-out scores of the training rows of positive weight under the selected model, with `C="loo"`.
    optimism_ : float
        Factor, at least 1, by which errors on new rows are expected to exceed the leave-one-out errors, because the kernel
        and C with the smallest errors were selected; estimated by bootstrap. `predict_interval` multiplies residuals by this
        factor. Only with `C="loo"`.
    history_ : list of dict
        One record for each iteration: `n_iter`, `seconds` (without callbacks), `residual`, and values added by callbacks;
        with `C="loo"` one for each kernel, with `score` (best of all `Cs`) and `best_score` (best of all kernels so far).
    n_iter_ : int
        Number of iterations.
    residual_ : float
        Relative residual at the end of the solve.

    See Also
    --------
    LSSVC : The classifier.
    NystromLSSVR : Least-squares regressor on landmarks, fitted in one pass over the data.

    Notes
    -----
    The ridge on the diagonal of the kernel matrix is `1 / (C w)` for a row of weight `w`, so weight 2 equals two copies.
    `1 / C` is the parameter `alpha` of KernelRidge. Without an intercept the model is kernel ridge regression.

    `C="loo"` compares every kernel of the lists `kernel`, `gamma`, `degree` and `coef0` with every value of `Cs` by
    `scoring`, in closed form. One eigendecomposition of a kernel matrix gives the leave-one-out predictions and the models
    of all `Cs`; if the decomposition exceeds the memory budget, each value of `Cs` needs one factorisation. `C="loo"` needs
    `solver="auto"`, and `callback` may have functions only, which are called after each kernel with the best model so far.
    Prefer `C="loo"` to `sklearn.model_selection.GridSearchCV` for up to about ten thousand rows.

    `max_iter` applies to a solver given by name, and counts the iterations of that solver or the members of
    `"nystrom_committee"`; None and -1 are the solver's default.

    References
    ----------
    Cawley and Talbot, "Fast exact leave-one-out cross-validation of sparse least-squares support vector machines", 2004.

    Suykens et al., "Weighted least squares support vector machines: robustness and sparse approximation", 2002.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import LSSVR
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> LSSVR(C=100.0).fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])) > 0.999
    True
    >>> LSSVR(C="loo", gamma=[0.1, 1.0]).fit(X, np.sin(X[:, 0])).best_score_ > -1e-4
    True
    """

    C: float | str = 1.0
    Cs: Any = C_PATH
    scoring: Any = None
    solver: str | Solver = "auto"
    tol: float | str = "auto"
    max_iter: int | None = None
    fit_intercept: bool = True
    warm_start: bool = False

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **_CONSTRAINTS,
        "scoring": [StrOptions(set(_VALUE_METRICS)), callable, None],
    }

    @atomic_fit
    @dispatch_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LSSVR:
        """Fit the model to values.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Training rows; kernel values of shape (n_samples, n_samples) with `kernel="precomputed"`.
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            Values.
        sample_weight : array of shape (n_samples,), optional
            Non-negative weights of the rows; rows of weight zero are left out.

        Returns
        -------
        self
            The fitted estimator.
        """
        X = check_X(self, X, dtype=working_dtype(X, self.dtype), reset=True)
        y = check_outputs(y, X.shape[0])
        self._single_output = y.ndim == 1
        columns = y.reshape(X.shape[0], -1)
        weights = check_weights(sample_weight, X)
        self._weights = None if weights is None else weights[weights > 0]
        self._delete("optimism_")
        if self.C == "loo":
            metric = self.scoring if callable(self.scoring) else _VALUE_METRICS[self.scoring or "neg_mean_squared_error"]
            squares: list[np.ndarray] = []

            def score(loo: np.ndarray, rows: np.ndarray, used: np.ndarray | None) -> float:
                squares.append(np.sum((columns[rows] - loo) ** 2, axis=1))
                return metric(y[rows], loo.reshape(y[rows].shape), sample_weight=used)

            self._select(X, columns, weights, score)
            self.optimism_ = optimism(np.column_stack(squares), self._weights)
        else:
            targets = Standardised.of(columns, weights, shifted=self.fit_intercept)
            self._solve(X, targets.Z, weights, validation_error=_mean_squared_error, rescale=targets.model)
            self._weights = None if weights is None else weights[self.support_]
        return self

    @dispatch_prediction
    def _values(self, X: Any) -> Array:
        scores = self._scores(X)
        return scores[:, 0] if self._single_output else scores

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the predicted values and, if requested, their standard deviations.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows to predict; kernel values with the training rows if the kernel is precomputed.
        return_std : bool, default=False
            Whether to return standard deviations of the predicted function, by a Gaussian process scaled to the size of the
            leave-one-out residuals; the noise of a new value is not included. The first call factors the kernel matrix. If
            the factor exceeds the memory budget, a system is solved for each new row.

        Returns
        -------
        values : array of shape (n_samples,) or (n_samples, n_outputs)
            One value, or one row of values, for each row.
        deviations : ndarray of the same shape
            Standard deviations; only with `return_std=True`.
        """
        values = self._values(X)
        if not return_std:
            return values
        process = self._posterior()
        deviations = standard_deviations(process, self._rows_of_process(X, process))
        return values, deviations[:, 0] if self._single_output else deviations

    def predict_interval(self, X: Any, coverage: float = 0.9, *, local: bool = False) -> np.ndarray:
        """Return intervals that contain the value of a new row with a given probability, by the jackknife+.

        Leave-one-out models are known in closed form, so no rows are held out. If a factorisation exceeds the memory budget,
        the leave-one-out residuals are estimated, and the intervals are plain jackknife intervals.

        Parameters
        ----------
        X : array, sparse matrix or tensor of shape (n_samples, n_features)
            Rows to predict.
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
        process = self._posterior()
        # `C="loo"` selects settings with small residuals, so the residuals are too small by the factor `optimism_`.
        factor = getattr(self, "optimism_", 1.0)
        rows = self._rows_of_process(X, process)
        ends = prediction_intervals(process, rows, coverage, local=local, factor=factor)
        return ends[:, 0] if self._single_output else ends

    def _posterior(self) -> ExactPosterior | IterativePosterior:
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
            1.0 / self.C_,
            self._weights,
            self.fit_intercept,
            self.device_,
        )
        budget = parse_budget(self.memory_budget, self.device_)
        process = make_posterior(model, budget, random_state=self.random_state, tuning=self._tuning)
        self._process = self.dual_coef_, process
        return process

    def _rows_of_process(self, X: Any, process: ExactPosterior | IterativePosterior) -> Array:
        """Return validated new rows on the device and in the precision of the Gaussian process."""
        dtype, sparse = xa.numpy_dtype(self.dual_coef_), self.kernel_.accepts_sparse
        checked = check_X(self, X, dtype=dtype, reset=False, accept_sparse=sparse)
        return xa.to_device(checked, self.device_, xa.numpy_dtype(process.op.reference))

    @property
    def log_marginal_likelihood_(self) -> Any:
        """Log likelihood of the training values under the Gaussian process, for each output if there are several.

        The value is exact if the factor of the kernel matrix fits the memory budget; else it is estimated by Lanczos' method
        with random sign vectors, with the standard error `log_marginal_likelihood_error_`.
        """
        values = self._posterior().log_likelihood[0]
        return float(values[0]) if self._single_output else values

    @property
    def log_marginal_likelihood_error_(self) -> float:
        """Standard error of `log_marginal_likelihood_`; 0 if the likelihood is exact."""
        return self._posterior().log_likelihood[1]


def _mean_squared_error(scores: np.ndarray, Z: np.ndarray) -> float:
    return float(np.mean((scores - Z) ** 2))


def LSSVCCV(*, kernel: Any = "rbf", param_grid: dict[str, Any] | None = None, **parameters: Any) -> LSSVC:
    """Return `LSSVC(C="loo")` for the parameters of the former class `LSSVCCV`."""
    return LSSVC(**_search_parameters("LSSVC", kernel, param_grid), **parameters)


def LSSVRCV(*, kernel: Any = "rbf", param_grid: dict[str, Any] | None = None, **parameters: Any) -> LSSVR:
    """Return `LSSVR(C="loo")` for the parameters of the former class `LSSVRCV`."""
    return LSSVR(**_search_parameters("LSSVR", kernel, param_grid), **parameters)


def _search_parameters(name: str, kernel: Any, param_grid: dict[str, Any] | None) -> dict[str, Any]:
    warn_caller(
        f'{name}CV is deprecated and will be removed: use {name}(C="loo"), with lists for the values of kernel parameters',
        FutureWarning,
    )
    return former_search_parameters(kernel, param_grid)
