"""The least-squares support vector machine, for classes and for values.

    min_f  1/2 ||f||^2 + C/2 sum_i w_i (z_i - f(x_i) - b)^2

The solution is one linear system in as many unknowns as there are rows, shared by all classes or outputs. Exact, it costs
O(n^3) time and n^2 numbers; conjugate gradients on a streamed kernel matrix cost O(n^2 d) an iteration and a few megabytes.
The fit is `gramless.models.least_squares.fit_expansion`; here are the targets: classes as +-1 or one-hot columns, values
standardised.

References: Suykens and Vandewalle, "Least squares support vector machine classifiers", 1999; Suykens et al., "Weighted least
squares support vector machines", 2002, for weights.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.dask_dispatch import dispatch_fit, dispatch_prediction
from gramless._core.device import Device
from gramless._core.doc_links import link_documentation
from gramless._core.targets.columns import Standardised, class_targets
from gramless._core.validation import (
    atomic_fit,
    check_choice,
    check_indicator,
    check_labels,
    check_outputs,
    check_weights,
    is_indicator,
)
from gramless.inference.leave_one_out import leave_one_out_scores
from gramless.inference.on_demand import scores_on_demand
from gramless.inference.platt import fit_sigmoids
from gramless.inference.prediction_sets import adaptive_scores, prediction_sets
from gramless.inference.regression import posterior_of, prediction_intervals, standard_deviations
from gramless.inference.temperature import fit_temperature
from gramless.linalg.planning.plan import Plan
from gramless.linalg.solvers import Solver
from gramless.models.expansion import (
    ExpansionClassifier,
    ExpansionRegressor,
    has_probabilities,
    kernel_from_settings,
    scores_to_labels,
    scores_to_probabilities,
)
from gramless.models.least_squares import check_rows, check_settings, fit_expansion, generator, plan_fit


@link_documentation
class LSSVC(ExpansionClassifier):
    """Least-squares support vector classifier.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        `"linear"`, `"poly"`, `"rbf"`, `"laplacian"`, `"precomputed"`, a `gramless.kernels` expression, or `f(X, Y)`.
    C : float, default=1.0
        Regularisation: the ridge on the kernel's diagonal is `1 / C`. Larger fits closer.
    gamma : float or str, default="scale"
        Of a kernel given by name: a number, `"scale"` or `"auto"`, as in `sklearn.svm.SVC`; `"weighted_scale"` is
        `"scale"` with the variance of the rows counted by their sample weights.
    degree : int, default=3
        Of the polynomial kernel.
    coef0 : float, default=0.0
        Of the polynomial kernel.
    solver : str or Solver, default="auto"
        `"cholesky"` is exact; `"cg"` is block conjugate gradients with a Nyström preconditioner; `"sketch_project"` is
        faster than `"cg"` to a loose `tol` on very large streamed data; `"auto"` chooses from the sizes, `tol`, the memory
        and the device, and says in `solver_` what it chose. The randomised `"matching_pursuit"`, `"kaczmarz"`,
        `"kaczmarz_mp"` and `"nystrom_committee"` (whose members `max_iter` counts) read a block of rows at a time. An
        object of `gramless.linalg.solvers` brings its own settings: `CG(n_landmarks=2000)`,
        `MatchingPursuit(block_size=2000)`,
        `Averaged(Kaczmarz(), n_runs=5)`.
    tol : float or "auto", default="auto"
        Relative residual `||Z - A W|| / ||Z||` at which a solver given by name stops; a solver object has a `tol` of its
        own, and this one is not used. `"auto"` ends conjugate gradients when predictions have settled: when what is left of
        the residual, which bounds what the scores of the training rows still lack, is a twentieth of the machine's own
        errors there, in every output, or 5e-3 of the targets. For other solvers it is 1e-3.
    max_iter : int or None, default=None
        Limit on the iterations of a solver given by name; None, or -1 as in `SVC`, is the solver's own. Not used with a
        solver object.
    class_weight : dict, "balanced" or None, default=None
        Multiplies `sample_weight`: the ridge of a sample is `1 / (C w)`, so weight 2 equals two copies.
    probability : {"auto", "softmax", "sigmoid", "temperature", False}, default="auto"
        What `predict_proba` is: the softmax of the scores; Platt's sigmoid of each; or the softmax of the scores divided by
        a temperature, whose largest probability is always that of `predict`. Sigmoids and the temperature are fitted on
        closed-form leave-one-out scores, without a refit, and `predict_set` needs them. `"auto"` is the temperature,
        fitted when it is first needed, for models of up to 10,000 points, and the softmax for larger ones, for kernels
        that are precomputed or functions, and for models from a cluster. `predict` does not depend on it.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        Whether `decision_function` has a column for each class, its score, or for each pair of classes, the difference of
        their scores, in the order and with the signs of `sklearn.svm.SVC`. Ignored for two classes.
    warm_start : bool, default=False
        Start from the last solution when the data has the same number of rows.
    dtype : {"float32", "float64"} or None, default=None
        None computes float32 and byte data in float32 and everything else in float64.
    device : {"cpu", "cuda", "auto"}, CUDA or None, default=None
        Where to compute; None follows the data. `gramless.CUDA` has the precision and the storage of a graphics card.
    memory_budget : str, int, float or None, default=None
        Bound on the peak of what a fit allocates, beside loaded libraries: `"4GB"`, bytes, a fraction of what is free; None
        is 70 % of it.
    callback : callable, Checkpoint, EarlyStopping, a list of these, or None, default=None
        `callback(estimator, record) -> bool` is called after each iteration with an estimator that can already predict; a
        true answer stops the fit. `gramless.callbacks` has checkpoints to go on from, and stopping on held-out rows.
    verbose : int, default=0
        1 shows progress.
    random_state : int, RandomState or None, default=None
        Draws landmarks, blocks and held-out rows.

    Attributes
    ----------
    classes_ : ndarray
        The labels; with an indicator matrix, the numbers of its columns.
    multilabel_ : bool
        Whether `y` was an indicator matrix: each row may have several labels, or none.
    sigmoids_ : ndarray of shape (n_outputs, 2)
        With `probability="sigmoid"`, slope and offset of each sigmoid.
    temperature_ : float, or ndarray of shape (n_labels,) with an indicator matrix
        With `probability="temperature"` or `"auto"`.
    calibration_scores_ : ndarray of shape (m,)
        With either of the three, the score of each row's true class in `predict_set`, by the model without the row.
    calibration_codes_ : ndarray of int of shape (m,)
        The classes of those rows, as positions in `classes_`.
    kernel_ : Kernel
        With every setting a number.
    points_ : array of shape (m, n_features)
        The rows that carry the model: `decision_function(X) = kernel_(X, points_) @ dual_coef_ + intercept_`.
    dual_coef_ : ndarray of shape (m, n_outputs)
        One column for two classes, else one for each class.
    intercept_ : ndarray of shape (n_outputs,)
        The bias.
    support_ : ndarray of int
        Which training rows `points_` are.
    solver_ : str
        What was chosen.
    solver_reason_ : str
        Why.
    history_ : list of dict
        One record for each iteration: n_iter, seconds (callbacks excluded), residual, and what the callback added.
    n_iter_ : int
        Iterations made.
    residual_ : float
        The relative residual at the end.

    See Also
    --------
    LSSVR : The regressor.
    LSSVCCV : Chooses C and the kernel by closed-form leave-one-out.
    NystromLSSVC : The same on landmarks, in one pass over the data.

    References
    ----------
    Suykens and Vandewalle, "Least squares support vector machine classifiers", 1999.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gramless import LSSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> LSSVC(C=10.0).fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]) > 0.95
    True
    """

    multilabel_: bool = False

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        C: float = 1.0,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        solver: str | Solver = "auto",
        tol: float | str = "auto",
        max_iter: int | None = None,
        class_weight: Any = None,
        probability: str | bool = "auto",
        decision_function_shape: str = "ovr",
        warm_start: bool = False,
        dtype: Any = None,
        device: Device = None,
        memory_budget: str | float | None = None,
        callback: Any = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.C = C
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.probability = probability
        self.decision_function_shape = decision_function_shape
        self.warm_start = warm_start
        self.dtype = dtype
        self.device = device
        self.memory_budget = memory_budget
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state

    @atomic_fit
    @dispatch_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LSSVC:
        """Fit to labels.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Kernel values of shape (n_samples, n_samples) with `kernel="precomputed"`.
        y : array of shape (n_samples,), or indicator matrix of shape (n_samples, n_labels)
            Labels. A matrix of zeros and ones, dense or sparse, says which of several labels each row has; all of them
            are solved for together.
        sample_weight : array of shape (n_samples,), optional
            Rows of weight zero do not take part in the fit.

        Returns
        -------
        self
            Fitted.
        """
        check_settings(self)
        check_choice("decision_function_shape", self.decision_function_shape, {"ovr", "ovo"})
        if self.probability is not False:
            check_choice("probability", self.probability, {"auto", "softmax", "sigmoid", "temperature"})
        X = check_rows(self, X)
        self.multilabel_ = is_indicator(y)
        if self.multilabel_:
            codes = check_indicator(y, X.shape[0], self.class_weight)
            self.classes_, classes = np.arange(codes.shape[1]), None
            weights = check_weights(sample_weight, X)
            targets = np.where(codes, 1.0, -1.0)
        else:
            self.classes_, codes = check_labels(y, X.shape[0])
            classes, weights = codes, check_weights(sample_weight, X, codes, self.classes_, self.class_weight)
            if weights is not None and len(np.unique(codes[weights > 0])) < 2:
                raise ValueError(
                    "The number of classes with a positive sample weight has to be greater than one; got 1 class"
                )
            targets = class_targets(codes, len(self.classes_))
        for name in ("sigmoids_", "_calibration", "_codes", "_weights"):
            self.__dict__.pop(name, None)  # those of an earlier fit must not meet this one's scores in a callback
        calibrated = self.probability in ("sigmoid", "temperature")
        op, plan = fit_expansion(
            self,
            X,
            targets,
            weights,
            classes=classes,
            validation_error=_share_of_wrong_signs if self.multilabel_ else _share_of_wrong_labels,
            leave_one_out=calibrated,
        )
        rows = self.support_
        self._codes = codes[rows].astype(np.min_scalar_type(len(self.classes_)), copy=False)
        self._weights = None if weights is None else weights[rows]
        self._calibration: dict[str, Any] = {}  # filled now, or when probabilities are first asked for
        if calibrated:
            rng = generator(self, X, targets)
            self._calibrate(leave_one_out_scores(op, targets[rows], self.dual_coef_, plan.probes, random_state=rng), rng)
        return self

    def _calibrate(self, scores: np.ndarray, rng: np.random.RandomState) -> None:
        """Sigmoids or temperatures from leave-one-out scores, and what `predict_set` compares new rows with."""
        truth, weights, k = self._codes, self._weights, len(self.classes_)
        labels = [(scores[:, [j]], truth[:, j]) for j in range(k)] if self.multilabel_ else [(scores, truth)]
        if self.probability == "sigmoid":
            found = [fit_sigmoids(s, codes, 2 if self.multilabel_ else k, weights) for s, codes in labels]
            self.sigmoids_ = np.concatenate(found)
        else:
            fitted = [fit_temperature(s, codes.astype(np.intp), weights) for s, codes in labels]
            self._calibration["temperature"] = np.array(fitted) if self.multilabel_ else fitted[0]
        if not self.multilabel_:
            share = adaptive_scores(scores_to_probabilities(self, scores), rng.random_sample(len(truth)))
            self._calibration["scores"] = share[np.arange(len(truth)), truth]

    def _calibrated(self) -> dict[str, Any]:
        """What calibration found; with `probability="auto"` it is made now, where it costs no more than the fit."""
        check_is_fitted(self)
        found: dict[str, Any] = vars(self).get("_calibration", {})
        if self.probability == "auto" and "_calibration" in vars(self) and not found:
            k = len(self.classes_)
            targets = np.where(self._codes, 1.0, -1.0) if self.multilabel_ else class_targets(self._codes, k)
            scores = scores_on_demand(self, targets)
            if scores is None:
                found["temperature"] = np.ones(k) if self.multilabel_ else 1.0
            else:
                self._calibrate(scores, check_random_state(self.random_state))
        return found

    @property
    def temperature_(self) -> Any:
        """What scores are divided by before their softmax; one for each label of an indicator matrix."""
        if self.probability not in ("temperature", "auto"):
            raise AttributeError(f"probability={self.probability!r} has no temperature")
        # In a callback the solve is still under way.
        return self._calibrated().get("temperature", np.ones(len(self.classes_)) if self.multilabel_ else 1.0)

    @property
    def calibration_scores_(self) -> np.ndarray:
        """The score of each row's true class in `predict_set`, by the model without the row."""
        if self.multilabel_:
            raise AttributeError("rows with several labels have no true class: there are no sets of classes for them")
        try:
            return self._calibrated()["scores"]
        except KeyError:
            raise AttributeError(
                "predict_set needs leave-one-out probabilities: fit with probability='temperature' or 'sigmoid' "
                "('auto' has them for up to 10,000 points, within the memory budget)"
            ) from None

    @property
    def calibration_codes_(self) -> np.ndarray:
        """The classes of the rows of `calibration_scores_`, as positions in `classes_`."""
        return self._codes.astype(np.intp)

    def predict_set(self, X: Any, coverage: float = 0.9, *, per_class: bool = False, random_state: Any = None) -> np.ndarray:
        """Sets of classes that contain the true one with a chosen probability.

        Adaptive prediction sets on leave-one-out probabilities: rows that are hard get large sets. A set may be empty where
        the coverage is below the accuracy.

        Parameters
        ----------
        X : array, sparse matrix or tensor of shape (n_samples, n_features)
            The rows; kernel values with the training rows where the kernel is precomputed.
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
        check_is_fitted(self)
        try:
            own, codes = self.calibration_scores_, self.calibration_codes_
        except AttributeError as reason:
            raise ValueError(str(reason)) from None
        chances = np.asarray(self.predict_proba(X))
        return prediction_sets(chances, own, codes, coverage, per_class=per_class, random_state=random_state)

    @dispatch_prediction
    def decision_function(self, X: Any) -> Array:
        """Class scores, or with `decision_function_shape="ovo"` their differences for each pair of classes.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            The rows; kernel values with the training rows where the kernel is precomputed.

        Returns
        -------
        array of shape (n_samples,), (n_samples, n_classes) or (n_samples, n_classes * (n_classes - 1) / 2)
            One column for two classes, where positive means `classes_[1]`; else one for each class, or for each pair of
            classes, where positive means the first of them. After a fit to an indicator matrix one for each label, where
            positive means that the row has it.
        """
        scores = self._scores(X)
        if self.multilabel_:
            return scores
        if len(self.classes_) == 2:
            return scores[:, 0]
        if self.decision_function_shape == "ovr":
            return scores
        first, second = map(list, zip(*combinations(range(len(self.classes_)), 2), strict=True))
        return scores[:, first] - scores[:, second]

    @dispatch_prediction
    def predict(self, X: Any) -> np.ndarray:
        """The class of each row, or the labels that it has.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            The rows; kernel values with the training rows where the kernel is precomputed.

        Returns
        -------
        ndarray of shape (n_samples,), or (n_samples, n_labels) after a fit to an indicator matrix
            Always NumPy, since labels may be strings; zeros and ones where each row may have several labels.
        """
        scores = xa.to_numpy(self._scores(X))
        return (scores > 0).astype(np.int64) if self.multilabel_ else scores_to_labels(self.classes_, scores)

    @available_if(has_probabilities)
    @dispatch_prediction
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, or of each label; what `probability` says it is.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            The rows; kernel values with the training rows where the kernel is precomputed.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or (n_samples, n_labels) after a fit to an indicator matrix
            Columns in the order of `classes_`; of labels each is between zero and one on its own.
        """
        scores = xa.to_numpy(self._scores(X))
        if not self.multilabel_:
            return scores_to_probabilities(self, scores)
        scores = scores.astype(np.float64)
        if self.probability == "sigmoid":
            return expit(-(scores * self.sigmoids_[:, 0] + self.sigmoids_[:, 1]))
        return expit(scores / (1.0 if self.probability == "softmax" else self.temperature_))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> Plan:
        """How a fit of this size would be solved.

        Parameters
        ----------
        n, d, n_outputs : int
            Rows, features, and columns of targets.
        dtype : dtype
            Of the data.
        device : str
            Where to compute.

        Returns
        -------
        Plan
            Or a `MemoryError` that says why it cannot be.
        """
        loo = self.probability in ("sigmoid", "temperature")
        return plan_fit(self, kernel_from_settings(self), (n, d), n_outputs, dtype, device, leave_one_out=loo)


def _share_of_wrong_labels(scores: np.ndarray, Z: np.ndarray) -> float:
    labels = np.arange(max(2, Z.shape[1]))
    return float(np.mean(scores_to_labels(labels, scores) != scores_to_labels(labels, Z)))


def _share_of_wrong_signs(scores: np.ndarray, Z: np.ndarray) -> float:
    return float(np.mean((scores > 0) != (Z > 0)))


@link_documentation
class LSSVR(ExpansionRegressor):
    """Least-squares support vector regressor: kernel ridge with an unpenalised bias; many outputs at once.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        `"linear"`, `"poly"`, `"rbf"`, `"laplacian"`, `"precomputed"`, a `gramless.kernels` expression, or `f(X, Y)`.
    C : float, default=1.0
        Regularisation: the ridge on the kernel's diagonal is `1 / C` (the `alpha` of `sklearn.kernel_ridge.KernelRidge`).
    gamma : float or str, default="scale"
        Of a kernel given by name: a number, `"scale"` or `"auto"`, as in `sklearn.svm.SVR`; `"weighted_scale"` is
        `"scale"` with the variance of the rows counted by their sample weights.
    degree : int, default=3
        Of the polynomial kernel.
    coef0 : float, default=0.0
        Of the polynomial kernel.
    solver : str or Solver, default="auto"
        A name or an object of `gramless.linalg.solvers`, as in `LSSVC`.
    tol : float or "auto", default="auto"
        Relative residual `||Z - A W|| / ||Z||` at which a solver given by name stops; a solver object has a `tol` of its
        own, and this one is not used. `"auto"` ends conjugate gradients when predictions have settled: when what is left of
        the residual, which bounds what the scores of the training rows still lack, is a twentieth of the machine's own
        errors there, in every output, or 1e-3 of the targets. For other solvers it is 1e-3.
    max_iter : int or None, default=None
        Limit on the iterations of a solver given by name; None, or -1 as in `SVR`, is the solver's own. Not used with a
        solver object.
    fit_intercept : bool, default=True
        Whether there is a bias; without one this is kernel ridge regression.
    warm_start : bool, default=False
        Start from the last solution when the data has the same number of rows.
    dtype : {"float32", "float64"} or None, default=None
        None computes float32 and byte data in float32 and everything else in float64.
    device : {"cpu", "cuda", "auto"}, CUDA or None, default=None
        Where to compute; None follows the data. `gramless.CUDA` has the precision and the storage of a graphics card.
    memory_budget : str, int, float or None, default=None
        Bound on the peak of what a fit allocates, beside loaded libraries: `"4GB"`, bytes, a fraction of what is free; None
        is 70 % of it.
    callback : callable, Checkpoint, EarlyStopping, a list of these, or None, default=None
        As in `LSSVC`; see `gramless.callbacks`.
    verbose : int, default=0
        1 shows progress.
    random_state : int, RandomState or None, default=None
        Draws landmarks, blocks and held-out rows.

    Attributes
    ----------
    kernel_ : Kernel
        With every setting a number.
    points_ : array of shape (m, n_features)
        The rows that carry the model: `predict(X) = kernel_(X, points_) @ dual_coef_ + intercept_`.
    dual_coef_ : ndarray of shape (m, n_outputs)
        Their coefficients.
    intercept_ : ndarray of shape (n_outputs,)
        The bias.
    support_ : ndarray of int
        Which training rows `points_` are.
    solver_ : str
        What was chosen.
    solver_reason_ : str
        Why.
    history_ : list of dict
        One record for each iteration: n_iter, seconds (callbacks excluded), residual, and what the callback added.
    n_iter_ : int
        Iterations made.
    residual_ : float
        The relative residual at the end, of standardised targets.

    See Also
    --------
    LSSVC : The classifier.
    LSSVRCV : Chooses C and the kernel by closed-form leave-one-out.
    NystromLSSVR : The same on landmarks, in one pass over the data.

    References
    ----------
    Suykens et al., "Weighted least squares support vector machines: robustness and sparse approximation", 2002.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import LSSVR
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> LSSVR(C=100.0).fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])) > 0.999
    True
    """

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        C: float = 1.0,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        solver: str | Solver = "auto",
        tol: float | str = "auto",
        max_iter: int | None = None,
        fit_intercept: bool = True,
        warm_start: bool = False,
        dtype: Any = None,
        device: Device = None,
        memory_budget: str | float | None = None,
        callback: Any = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.C = C
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.warm_start = warm_start
        self.dtype = dtype
        self.device = device
        self.memory_budget = memory_budget
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state

    @atomic_fit
    @dispatch_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LSSVR:
        """Fit to values.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Kernel values of shape (n_samples, n_samples) with `kernel="precomputed"`.
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            Values.
        sample_weight : array of shape (n_samples,), optional
            Rows of weight zero do not take part in the fit.

        Returns
        -------
        self
            Fitted.
        """
        check_settings(self)
        X = check_rows(self, X)
        targets = check_outputs(y, X.shape[0])
        self._single_output = targets.ndim == 1
        weights = check_weights(sample_weight, X)
        self._weights = None if weights is None else weights[weights > 0]
        standardised = Standardised.of(targets.reshape(X.shape[0], -1), weights, shifted=self.fit_intercept)
        fit_expansion(
            self,
            X,
            standardised.Z,
            weights,
            validation_error=_mean_squared_error,
            rescale=standardised.model,
            fit_intercept=self.fit_intercept,
        )
        if weights is not None:
            self._weights = weights[self.support_]
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predicted values, and how sure the machine is of the function behind them.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            The rows; kernel values with the training rows where the kernel is precomputed.
        return_std : bool, default=False
            Whether to return the standard deviation of the Gaussian process too: that of the function, without the noise of
            a new value. Its scale is the one that the leave-one-out residuals have. The first call factors the kernel
            matrix, or for more rows than the memory budget allows solves a system for each new row.

        Returns
        -------
        values : array of shape (n_samples,) or (n_samples, n_outputs)
            As `y` was at fit.
        deviations : ndarray of the same shape
            With `return_std` only.
        """
        values = super().predict(X)
        if not return_std:
            return values
        deviations = standard_deviations(self, X)
        return values, deviations[:, 0] if self._single_output else deviations

    def predict_interval(self, X: Any, coverage: float = 0.9, *, local: bool = False) -> np.ndarray:
        """Intervals that contain the value of a new row with a chosen probability, by the jackknife+.

        They need no held-out rows: the models without each training row are known in closed form. Where there are too many
        rows for a factorisation within the memory budget, the residuals are estimated and the intervals are those of the
        plain jackknife.

        Parameters
        ----------
        X : array, sparse matrix or tensor of shape (n_samples, n_features)
            The rows; kernel values with the training rows where the kernel is precomputed.
        coverage : float, default=0.9
            Between 0 and 1. For rows that come from where the training rows came from, the share of new values inside is
            at least `1 - 2 (1 - coverage)`, and in practice close to `coverage`.
        local : bool, default=False
            Whether intervals are wider where the machine is less sure.

        Returns
        -------
        ndarray of shape (n_samples, 2), or (n_samples, n_outputs, 2)
            Lower and upper ends. Infinite where there are too few training rows for the coverage.
        """
        ends = prediction_intervals(self, X, coverage, local=local)
        return ends[:, 0] if self._single_output else ends

    @property
    def log_marginal_likelihood_(self) -> Any:
        """Log likelihood of the training values under the Gaussian process; of each output where there are several.

        Exact where the factor of the kernel matrix fits the memory budget; else from Lanczos' method on random signs, with
        the standard error `log_marginal_likelihood_error_`.
        """
        values = self._likelihood[0]
        return float(values[0]) if self._single_output else values

    @property
    def log_marginal_likelihood_error_(self) -> float:
        """Standard error of `log_marginal_likelihood_`: 0 where it is exact."""
        return self._likelihood[1]

    @property
    def _likelihood(self) -> tuple[np.ndarray, float]:
        process = posterior_of(self)
        kept = getattr(self, "_kept_likelihood", None)
        if kept is None or kept[0] is not process:
            self._kept_likelihood = kept = (process, process.log_likelihood())
        return kept[1]

    def plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> Plan:
        """How a fit of this size would be solved.

        Parameters
        ----------
        n, d, n_outputs : int
            Rows, features, and columns of targets.
        dtype : dtype
            Of the data.
        device : str
            Where to compute.

        Returns
        -------
        Plan
            Or a `MemoryError` that says why it cannot be.
        """
        return plan_fit(self, kernel_from_settings(self), (n, d), n_outputs, dtype, device)


def _mean_squared_error(scores: np.ndarray, Z: np.ndarray) -> float:
    return float(np.mean((scores - Z) ** 2))
