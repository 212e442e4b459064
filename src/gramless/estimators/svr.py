"""Support vector regression: errors below epsilon cost nothing, larger errors cost linearly.

    maximise    sum_i y_i beta_i - epsilon sum_i |beta_i| - sum_ij beta_i beta_j K(x_i, x_j) / 2
    subject to  |beta_i| <= C_i,  sum_i beta_i = 0

The pinball loss (quantiles) and Huber's loss have the same dual problem with other boxes:

    epsilon_insensitive  |beta_i| <= C_i, multiplier `epsilon` of sum |beta| given, or found for a given `nu`
    pinball              -(1 - quantile) C_i <= beta_i <= quantile C_i,  epsilon = 0
    huber                |beta_i| <= epsilon C_i,  epsilon = 0, and 1 / C_i is added to K(x_i, x_i)

Several quantiles are separate problems that share their kernel rows, and the predictions for a row are sorted: the curves do
not cross, and sorting never increases their error.

Reference: Smola and Schölkopf (2004), A tutorial on support vector regression; Takeuchi, Le, Sears and Smola (2006),
Nonparametric quantile estimation; Chernozhukov, Fernández-Val and Galichon (2010), Quantile and probability curves without
crossing; Mangasarian and Musicant (2000), Robust linear and support vector regression.
"""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_pinball_score
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import column_or_1d

from gramless._core.constraints import NON_NEGATIVE, estimator
from gramless._core.validation import check_outputs
from gramless.linalg.operators import byte_rows
from gramless.models.kernel_svm import BaseKernelSVM, scale_bound
from gramless.svm.box_qp import BoxQP, DualSolution
from gramless.svm.gram_rows import RidgedGram
from gramless.svm.multiclass import SupportVectorModel, gram_rows, solve_jointly
from gramless.svm.nu_qp import NuQP
from gramless.svm.resources import DualFit


@estimator
class KernelSVR(RegressorMixin, BaseKernelSVM):
    """Support vector regression for any kernel of the library: values, quantiles, or values robust to outliers.

    Prefer it to `sklearn.svm.SVR` for more than a few thousand rows, for quantiles, for kernels that scikit-learn computes
    in Python, or on a graphics card.

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
    epsilon : float, default=0.1
        Half width of the tube in which errors cost nothing, in units of `y`; with `loss="huber"`, the error above which the
        cost is linear instead of quadratic.
    loss : {"epsilon_insensitive", "quantile", "pinball", "huber"}, default="epsilon_insensitive"
        Loss function that the fit minimises. `"quantile"`, also named `"pinball"`, predicts quantiles; `"huber"` reduces the
        influence of outliers.
    quantile : float or list of float, default=0.5
        Quantile in (0, 1) that `loss="quantile"` predicts; for a list, `predict` returns one column for each quantile.
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
    support_ : ndarray of shape (n_SV,)
        Indices of the support vectors.
    support_vectors_ : array of shape (n_SV, n_features)
        The support vectors; an empty array for a precomputed kernel.
    n_support_ : ndarray of shape (1,)
        Number of support vectors.
    dual_coef_ : array of shape (n_quantiles, n_SV)
        Coefficients of the support vectors, in one row unless `quantile` is a list. Sparse after a fit to sparse rows.
    coef_ : array of shape (n_quantiles, n_features)
        Weights of the features for a linear kernel, read-only; sparse after a fit to sparse rows.
    intercept_ : ndarray of shape (n_quantiles,)
        Bias of each problem.
    epsilon_ : float
        Half width of the tube: `epsilon`, or the half width determined by `nu`; 0 for the other losses.
    kernel_ : Kernel
        The kernel with numeric settings.
    device_ : str
        Device of the fit and of predictions.
    dual_objective_ : float or ndarray of shape (n_quantiles,)
        Objective value of the dual problem.
    kkt_violation_ : float or ndarray of shape (n_quantiles,)
        Violation of the optimality conditions that the solver reached.
    n_iter_ : int or ndarray of shape (n_quantiles,)
        Number of pairs of multipliers moved.
    fit_status_ : int
        0 if every problem converged, else 1.
    shape_fit_ : tuple
        Shape of `X` in `fit`.
    n_features_in_ : int
        Number of features in `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if `X` had column names.

    See Also
    --------
    KernelSVC : Support vector classification.
    KernelOneClassSVM : Outlier detection.
    LSSVR : Squared loss instead of the tube; all rows are support vectors.

    Notes
    -----
    `C=inf` forbids errors beyond the tube. A kernel function also accepts sparse rows and sequences of objects such as
    texts. On a graphics card all quantiles are solved at the same time; kernel functions, `nu`, `loss="huber"` and
    `solver="simple_smo"` need the CPU.

    `tol` bounds the violation of the optimality conditions, in units of the decision function. An iteration moves one pair
    of multipliers; `max_iter=None` or -1 is ten million for each problem. `callback` is called between rounds of the solver;
    its record has `n_iter` (pairs of multipliers moved so far), `violation`, `solved`, `n_problems` and `seconds`.

    References
    ----------
    .. [1] A. J. Smola and B. Schölkopf, "A tutorial on support vector regression", Statistics and Computing, 2004.
    .. [2] B. Schölkopf, A. J. Smola, R. C. Williamson and P. L. Bartlett, "New support vector algorithms", Neural
           Computation, 2000.
    .. [3] I. Takeuchi, Q. V. Le, T. D. Sears and A. J. Smola, "Nonparametric quantile estimation", Journal of Machine
           Learning Research, 2006.
    .. [4] V. Chernozhukov, I. Fernández-Val and A. Galichon, "Quantile and probability curves without crossing",
           Econometrica, 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import KernelSVR
    >>> X = np.linspace(0, 6, 80)[:, None]
    >>> model = KernelSVR(C=10.0, gamma=0.5, epsilon=0.01).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.5]])[0] - np.sin(1.5)) < 0.02)
    True
    >>> noisy = np.sin(X[:, 0]) + np.random.default_rng(0).normal(size=80)
    >>> low, middle, high = KernelSVR(loss="quantile", quantile=[0.1, 0.5, 0.9]).fit(X, noisy).predict([[1.5]])[0]
    >>> bool(low < middle < high)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseKernelSVM._parameter_constraints,
        "epsilon": [NON_NEGATIVE],
        "loss": [StrOptions({"epsilon_insensitive", "quantile", "pinball", "huber"})],
        "quantile": "no_validation",
    }

    epsilon: float = 0.1
    loss: str = "epsilon_insensitive"
    quantile: float | list[float] = 0.5

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted values.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows; with a precomputed kernel, their kernel values with all training rows.

        Returns
        -------
        ndarray of shape (n,), or (n, n_quantiles) if `quantile` is a list
            A value for each row, or one value for each quantile.
        """
        scores = self._scores(X)
        if not self._reports_arrays:
            return scores[:, 0]
        ordered = np.empty_like(scores)
        ordered[:, np.argsort(self.quantile, kind="stable")] = np.sort(scores, axis=1)
        return ordered

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the coefficient of determination, or the explained pinball loss if `quantile` is a list.

        Parameters
        ----------
        X : array-like, sparse matrix or tensor of shape (n, n_features)
            Rows; with a precomputed kernel, their kernel values with all training rows.
        y : array-like of shape (n,)
            True values.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows.

        Returns
        -------
        float
            R², or the mean over the quantiles of the explained fraction of the pinball loss.
        """
        if not self._reports_arrays:
            return super().score(X, y, sample_weight)
        columns = zip(self.predict(X).T, np.asarray(self.quantile), strict=True)
        explained = [d2_pinball_score(y, column, sample_weight=sample_weight, alpha=q) for column, q in columns]
        return float(np.mean(explained))

    @property
    def _predicts_quantiles(self) -> bool:
        return self.loss in ("quantile", "pinball")

    @property
    def _reports_arrays(self) -> bool:
        return self._predicts_quantiles and not isinstance(self.quantile, Real)

    @property
    def _n_problems(self) -> int:
        return np.size(self.quantile) if self._predicts_quantiles else 1

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.loss == "huber" and self.epsilon == 0:
            raise ValueError("epsilon must be above 0 with loss='huber': it is the size from which errors cost linearly")
        if self._predicts_quantiles:
            values: Any = np.asarray(self.quantile, dtype=object).reshape(-1).tolist()
            if np.ndim(self.quantile) > 1 or not values or not all(isinstance(q, Real) and 0 < float(q) < 1 for q in values):
                raise ValueError(f"quantile must be a number between 0 and 1 or a list of them, got {self.quantile!r}")
        if self.nu is not None and self.loss != "epsilon_insensitive":
            raise ValueError(f"nu determines the width of a tube, which loss={self.loss!r} does not have")
        if self.nu is not None and not np.isfinite(self.C):
            raise ValueError("C must be finite if nu is set, because nu is a fraction of C")

    def _cpu_only(self) -> dict[str, Any]:
        return super()._cpu_only() | ({"loss": self.loss} if self.loss == "huber" else {})

    def _read_targets(self, y: Any, weights: np.ndarray | None, n: int) -> tuple[np.ndarray, np.ndarray]:
        return column_or_1d(check_outputs(y, n), warn=True), np.ones(n) if weights is None else weights

    def _solve(self, fit: DualFit, targets: np.ndarray, weights: np.ndarray) -> SupportVectorModel:
        solutions = self._solutions(fit, targets, scale_bound(self.C, weights))
        self.epsilon_ = max(0.0, float(solutions[0].tube_width))
        return SupportVectorModel.of_solutions(solutions)

    def _solutions(self, fit: DualFit, y: np.ndarray, C: np.ndarray) -> list[DualSolution]:
        """Return the solution of the regression, or of one regression for each quantile of the pinball loss."""
        n, resources = len(y), fit.resources
        if resources.device == "cpu":
            fit = replace(fit, X=byte_rows(fit.kernel, fit.X, n // 2))
        if self._predicts_quantiles:
            problems = [BoxQP(y.astype(np.float64), -(1 - q) * C, q * C) for q in np.atleast_1d(self.quantile)]
            return solve_jointly(fit, problems, [[slice(0, n)]] * len(problems))
        if self.loss == "epsilon_insensitive" and self.nu is None:
            return solve_jointly(fit, [BoxQP.regression(y, C, self.epsilon)], [[slice(0, n)]])
        rng = np.random.default_rng(resources.seed)
        rows = gram_rows(fit, [slice(0, n)])
        if self.loss == "huber":
            ridged = RidgedGram(rows, np.divide(1.0, C, out=np.zeros(n), where=C > 0))
            return fit.solver.maximise([BoxQP.regression(y, self.epsilon * C, 0.0)], ridged, rng, fit.progress)
        assert self.nu is not None
        problem = NuQP.of_values(y, C, self.nu)
        [solution] = fit.solver.maximise([problem], rows, rng, fit.progress)
        if solution.tube_width < 0 and not fit.progress.stopped:
            without_tube = BoxQP(problem.linear, problem.lower, problem.upper, 0.0, solution.beta)
            [solution] = fit.solver.maximise([without_tube], rows, rng, fit.progress)
        return [solution]
