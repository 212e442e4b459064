"""Support vector classification.

    maximise    sum_i alpha_i - sum_ij alpha_i alpha_j y_i y_j K(x_i, x_j) / 2
    subject to  0 <= alpha_i <= C_i,  sum_i alpha_i y_i = 0

for each pair of classes (one-vs-one) or each class against the others (one-vs-rest). `C_i` is `C` times the weights of the
sample and of its class. Most of the cost is the computation of the kernel rows of the points that become support vectors.
With `nu` instead of `C`, the sum of the multipliers is fixed and the solution determines their bound (`gramless.svm.nu_qp`).

Reference: Cortes and Vapnik (1995), Support-vector networks; Schölkopf, Smola, Williamson and Bartlett (2000), New support
vector algorithms.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from gramless._core.constraints import estimator
from gramless._core.targets.columns import scores_to_labels
from gramless._core.validation import check_class_weights, check_labels
from gramless.inference.probabilities import couple, fit_sigmoid, fit_sigmoids, sigmoid_probabilities
from gramless.kernels import Kernel
from gramless.models.kernel_svm import BaseKernelSVM, check_class_bounds, rows_on, scale_bound, support_rows
from gramless.svm.multiclass import (
    SupportVectorModel,
    class_scores,
    most_votes,
    problem_scores,
    solve_multiclass,
    votes,
)
from gramless.svm.resources import DualFit

# Folds of the out-of-fold scores to which the sigmoids are fitted, as in LIBSVM.
_N_FOLDS = 5


def _has_probabilities(estimator: KernelSVC) -> bool:
    if estimator.probability is False:
        raise AttributeError("probabilities need probability='sigmoid'; this estimator has probability=False")
    return True


@estimator
class KernelSVC(ClassifierMixin, BaseKernelSVM):
    """Support vector classifier for any kernel of the library.

    Prefer it to `sklearn.svm.SVC` for more than a few thousand rows, for kernels that scikit-learn computes in Python, or
    on a graphics card.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        Kernel function. A name, an expression of `gramless.kernels`, or a function `f(X, Y)` that returns the kernel matrix.
    C : float, default=1.0
        Inverse regularisation strength; a larger value fits the training rows more closely.
    gamma : float, "scale", "auto" or "weighted_scale", default="scale"
        Coefficient of a kernel given by name; `"scale"` is `1 / (n_features * X.var())` and `"auto"` is `1 / n_features`.
        `"weighted_scale"` is `"scale"` with the variance weighted by `sample_weight`.
    degree : int, default=3
        Degree of the polynomial kernel; ignored by other kernels.
    coef0 : float, default=0.0
        Constant term of the polynomial and sigmoid kernels; ignored by other kernels.
    nu : float or None, default=None
        Fraction in (0, 1] that replaces a penalty parameter. At least this fraction of the rows are support vectors. At most
        this fraction are margin errors in classification, where `nu` replaces `C`, or outside the tube in regression, where
        `nu` replaces `epsilon`.
    solver : {"smo", "simple_smo"}, default="smo"
        Algorithm that solves the optimisation problem. `"smo"` optimises large working sets on cached kernel rows;
        `"simple_smo"` moves one pair of multipliers at a time, for small data.
    tol : float, default=1e-3
        Tolerance at which the solver stops. The Notes define the quantity that it bounds.
    max_iter : int or None, default=None
        Maximum number of solver iterations. The Notes define an iteration and the meaning of None.
    multi_class : {"ovo", "ovr"}, default="ovo"
        Decomposition of a multiclass problem: one-vs-one or one-vs-rest.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        Shape of the output of `decision_function`: one column per class (`"ovr"`) or per pair of classes (`"ovo"`). The
        Notes describe exceptions.
    break_ties : bool, default=False
        Whether ties between classes with equal votes are resolved by the scores instead of by the order of the classes;
        requires `decision_function_shape="ovr"`.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with `sample_weight`; `"balanced"` weights each class by the inverse of its
        frequency.
    positive_weight : float, default=1.0
        Factor of `C` for the positive class of each one-vs-rest problem, or for `classes_[1]` of two classes.
    probability : {False, "sigmoid", True}, default=False
        Method that converts scores to the probabilities of `predict_proba`; False disables `predict_proba`. `"sigmoid"`, or
        True, fits Platt's sigmoids to out-of-fold scores of five more fits.
    shrinking : bool, default=True
        Accepted for compatibility with scikit-learn and ignored; the solver decides by itself.
    cache_size : float or None, default=None
        Size of the kernel cache in megabytes, used if `memory_budget` is None.
    dtype : {"float32", "float64"} or None, default=None
        Floating-point precision of the computation; None uses float32 for float32 and uint8 data, else float64.
    device : {"cpu", "cuda", "auto"}, CUDA or None, default=None
        Device of the computation; None uses the device of the data. A `gramless.CUDA` object also sets precision and
        storage.
    memory_budget : str, int, float or None, default=None
        Upper bound on the memory that the fit allocates: a string such as `"4GB"`, a number of bytes, or a fraction of the
        free memory if at most 1; None is 70 % of the free memory.
    callback : callable, a list of these, or None, default=None
        Function `callback(estimator, record)` called with the partially fitted estimator and a dict of progress values;
        returning True stops the fit. The Notes describe when it is called.
    verbose : int, default=0
        If positive, write progress messages to standard error.
    random_state : int, RandomState or None, default=None
        Seed or generator for all random choices of the fit; an int makes the fit reproducible.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Sorted class labels.
    class_weight_ : ndarray of shape (n_classes,)
        Factor of `C` for each class.
    support_ : ndarray of shape (n_SV,)
        Indices of the support vectors, class by class.
    support_vectors_ : array of shape (n_SV, n_features)
        The support vectors; an empty array for a precomputed kernel.
    n_support_ : ndarray of shape (n_classes,)
        Number of support vectors of each class.
    dual_coef_ : array of shape (n_classes - 1, n_SV), or (n_classes, n_SV) for one-vs-rest
        Multipliers times labels; in one-vs-one, the coefficients of a vector against the other classes in their order.
        Sparse after a fit to sparse rows.
    coef_ : array of shape (n_problems, n_features)
        Weights of the features for a linear kernel, read-only; sparse after a fit to sparse rows.
    intercept_ : ndarray of shape (n_problems,)
        Bias of each two-class problem.
    kernel_ : Kernel
        The kernel with numeric settings.
    device_ : str
        Device of the fit and of predictions.
    dual_objective_ : ndarray of shape (n_problems,)
        Objective value of each dual problem.
    kkt_violation_ : ndarray of shape (n_problems,)
        Violation of the optimality conditions that the solver reached.
    n_iter_ : ndarray of shape (n_problems,)
        Number of pairs of multipliers moved.
    fit_status_ : int
        0 if every problem converged, else 1.
    shape_fit_ : tuple
        Shape of `X` in `fit`.
    sigmoids_ : ndarray of shape (n_problems, 2)
        Slope and offset of each sigmoid, if `probability="sigmoid"`.
    n_features_in_ : int
        Number of features in `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if `X` had column names.

    See Also
    --------
    KernelSVR : Support vector regression.
    KernelOneClassSVM : Outlier detection.
    MKLClassifier : Support vector classifier that learns the weights of several kernels.
    LSSVC : Squared loss instead of the hinge loss; all rows are support vectors, and probabilities need no more fits.

    Notes
    -----
    `C=inf` forbids training errors. A kernel function also accepts sparse rows and sequences of objects such as texts. On a
    graphics card all problems are solved at the same time; kernel functions, `nu` and `solver="simple_smo"` need the CPU.

    `tol` bounds the violation of the optimality conditions, in units of the decision function. An iteration moves one pair
    of multipliers; `max_iter=None` or -1 is ten million for each problem. `callback` is called between rounds of the solver;
    its record has `n_iter` (pairs of multipliers moved so far), `violation`, `solved`, `n_problems` and `seconds`.

    The fraction `nu` refers to the rows of each two-class problem. One-vs-rest models always have one column per class in
    `decision_function`.

    References
    ----------
    .. [1] C. Cortes and V. Vapnik, "Support-vector networks", Machine Learning, 1995.
    .. [2] R.-E. Fan, P.-H. Chen and C.-J. Lin, "Working set selection using second order information for training support
           vector machines", Journal of Machine Learning Research, 2005.
    .. [3] J. Platt, "Probabilistic outputs for support vector machines and comparisons to regularized likelihood methods",
           Advances in Large Margin Classifiers, 1999.
    .. [4] B. Schölkopf, A. J. Smola, R. C. Williamson and P. L. Bartlett, "New support vector algorithms", Neural
           Computation, 2000.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramless import KernelSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> KernelSVC(C=10.0).fit(X, y).score(X, y) > 0.97
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseKernelSVM._parameter_constraints,
        "break_ties": ["boolean"],
        "probability": ["boolean", StrOptions({"sigmoid"})],
    }

    multi_class: str = "ovo"
    decision_function_shape: str = "ovr"
    break_ties: bool = False
    class_weight: dict[Any, float] | str | None = None
    positive_weight: float = 1.0
    probability: bool | str = False

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores of the classes, or of the pairs of classes.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows; with a precomputed kernel, their kernel values with all training rows.

        Returns
        -------
        ndarray of shape (n,), (n, n_classes) or (n, n_pairs)
            For two classes one score, positive for `classes_[1]`; otherwise one score for each class, or for each pair if
            `decision_function_shape="ovo"` and the model is one-vs-one.
        """
        scores = self._scores(X)
        return class_scores(scores, len(self.classes_), self._one_vs_one and self.decision_function_shape == "ovr")

    def predict(self, X: Any) -> np.ndarray:
        """Return the class with the most votes, or with the largest score in one-vs-rest.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows; with a precomputed kernel, their kernel values with all training rows.

        Returns
        -------
        ndarray of shape (n,)
            A label for each row.
        """
        if self.break_ties and self.decision_function_shape == "ovo" and hasattr(self, "dual_coef_"):
            raise ValueError("break_ties must be False with decision_function_shape='ovo', where no class has a score")
        scores = self._scores(X)
        if not self._one_vs_one:
            return scores_to_labels(self.classes_, scores)
        if self.break_ties:
            return self.classes_[votes(scores, len(self.classes_)).argmax(axis=1)]
        return self.classes_[most_votes(scores, len(self.classes_))]

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return class probabilities: sigmoids of the scores, coupled over pairs or normalised in one-vs-rest.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows; with a precomputed kernel, their kernel values with all training rows.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Probabilities with columns in the order of `classes_`.
        """
        scores = self._scores(X)
        check_is_fitted(
            self,
            "sigmoids_",
            msg="predict_proba is not available when fitted with probability=False, or when a callback ended the fit before "
            "the sigmoids; fit %(name)s again with probability='sigmoid'",
        )
        if self._one_vs_one:
            a, b = self.sigmoids_.T
            return couple(expit(-(scores * a + b)), len(self.classes_))
        return sigmoid_probabilities(scores, self.sigmoids_)

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithm of the class probabilities.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows; with a precomputed kernel, their kernel values with all training rows.

        Returns
        -------
        ndarray of shape (n, n_classes)
            Log-probabilities with columns in the order of `classes_`.
        """
        with np.errstate(divide="ignore"):  # a probability that underflows to zero has the logarithm -inf, without a warning
            return np.log(self.predict_proba(X))

    @property
    def _one_vs_one(self) -> bool:
        """Whether the fitted model has one problem for each pair of more than two classes."""
        return self.multi_class == "ovo" and len(self.classes_) > 2

    @property
    def _reports_arrays(self) -> bool:
        return True

    @property
    def _n_problems(self) -> int:
        return self._n_scores * (1 + (_N_FOLDS if self.probability else 0))

    @property
    def _n_scores(self) -> int:
        """Number of two-class problems of one model."""
        k = len(self.classes_)
        return 1 if k == 2 else (k * (k - 1) // 2 if self._one_vs_one else k)

    def _read_targets(self, y: Any, weights: np.ndarray | None, n: int) -> tuple[np.ndarray, np.ndarray]:
        self.classes_, codes = check_labels(y, n)
        self.class_weight_ = np.ones(len(self.classes_))
        if isinstance(self.class_weight, dict):
            check_class_weights(self.class_weight)
        if self.class_weight is not None:
            # "balanced" counts rows, without their weights, as scikit-learn's SVC does.
            labels = self.classes_[codes]
            self.class_weight_ = compute_class_weight(self.class_weight, classes=self.classes_, y=labels).astype(np.float64)
        factors = self.class_weight_[codes] * (1.0 if weights is None else weights)
        C = scale_bound(self._bound, factors)
        check_class_bounds(self.classes_, codes, C, self.positive_weight, self._one_vs_one)
        return codes, factors

    @property
    def _bound(self) -> float:
        """Upper bound of a multiplier of weight one; with `nu` the solution determines its scale."""
        return self.C if self.nu is None else 1.0

    def _solve(self, fit: DualFit, targets: np.ndarray, weights: np.ndarray) -> SupportVectorModel:
        return solve_multiclass(
            fit,
            targets,
            scale_bound(self._bound, weights),
            n_classes=len(self.classes_),
            one_vs_one=self.multi_class == "ovo",
            positive_weight=self.positive_weight,
            nu=self.nu,
        )

    def _calibrate(self, fit: DualFit, targets: np.ndarray, weights: np.ndarray) -> None:
        self.__dict__.pop("sigmoids_", None)
        if self.probability and not fit.progress.stopped:
            sigmoids = self._fit_sigmoids(fit, targets, weights)
            if not fit.progress.stopped:
                self.sigmoids_ = sigmoids

    def _fit_sigmoids(self, fit: DualFit, codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return sigmoids of the scores that each row gets from models that were fitted without it."""
        kernel, k, nonzero = fit.kernel, len(self.classes_), np.flatnonzero(weights)
        codes, weights = codes[nonzero], weights[nonzero]
        X = fit.X
        if nonzero.size < X.shape[0]:
            X = _gram_or_rows(X, kernel, nonzero, nonzero)
        scores = np.empty((codes.size, self._n_scores))
        fold_of = _stratified_folds(codes, np.random.default_rng(fit.resources.seed))
        for fold in np.unique(fold_of):
            train, test = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
            part = replace(fit, X=_gram_or_rows(X, kernel, train, train))
            # A class without training rows loses every pair, because the bias of a problem with one class is its label.
            model = self._solve(part, codes[train], weights[train])
            rows = _gram_or_rows(X, kernel, test, train[model.support])
            vectors = support_rows(part.X, model.support, kernel)
            scores[test] = problem_scores(kernel, rows_on(rows, self.device_), rows_on(vectors, self.device_), model)
        if not self._one_vs_one:
            return fit_sigmoids(scores, codes, k, weights)
        members = [(np.isin(codes, pair), pair[0]) for pair in combinations(range(k), 2)]
        return np.array([fit_sigmoid(scores[m, p], codes[m] == first, weights[m]) for p, (m, first) in enumerate(members)])


def _gram_or_rows(X: Any, kernel: Kernel, rows: np.ndarray, columns: np.ndarray) -> Any:
    """Return a subset of the rows of `X`, or of the rows and columns of a matrix of kernel values."""
    return X[rows] if kernel.uses_points else X[np.ix_(rows, columns)]


def _stratified_folds(codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a random fold for each row; the rows of each class are distributed evenly over the folds."""
    fold_of = np.empty(codes.size, dtype=np.intp)
    for c in np.unique(codes):
        members = rng.permutation(np.flatnonzero(codes == c))
        fold_of[members] = (np.arange(members.size) + rng.integers(_N_FOLDS)) % _N_FOLDS
    return fold_of
