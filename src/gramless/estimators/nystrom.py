"""Fixed-size least-squares support vector machine on landmarks (Nyström), in one pass over the data.

    f(x) = sum_{j <= m} a_j K(x, l_j) + b,   (K_mn K_nm + (1 / C) K_mm) a = K_mn (z - b)

is the least-squares SVM in the primal, on the features that the landmarks `l_j` span. The features are those of
`LandmarkMap`, the sums and their solution those of `Sums`; everything is solved in coordinates in which the penalty `K_mm`
is the identity, so the ill-conditioned normal equations are never solved as they stand, and the model does not depend on the
order and grouping of the rows beyond some 1e-12 even where `K_mm` is singular to rounding.

Cost: O(m d + m^2) time for each row, O(m^2) memory whatever the number of rows, O(m^3) once; a prediction is m kernel
values.

References: Suykens et al., "Least Squares Support Vector Machines", 2002; De Brabanter et al., "Optimized fixed-size kernel
models for large data sets", 2010.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._core.doc_links import link_documentation
from gramless._core.validation import check_choice
from gramless.approximation.features import LandmarkMap
from gramless.inference.one_pass import prediction_intervals, standard_deviations
from gramless.models.expansion import kernel_from_settings
from gramless.models.one_pass import OnePassClassifier, OnePassRegressor, Parts
from gramless.streaming.learners import C_PATH, PassOptions, Sums, from_model


@link_documentation
class NystromLSSVC(OnePassClassifier):
    """Least-squares support vector classifier on landmarks, fitted in one pass over data of any length.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        Similarity of two rows: a name or an expression of `gramless.kernels`, or a function `f(X, Y)`.
    C : float or "loo", default=1.0
        Regularisation: the ridge is `1 / C`. `"loo"` takes the value of `Cs` with the smallest closed-form leave-one-out
        squared error; nothing is refitted.
    gamma : float, "scale" or "auto", default="scale"
        Of a kernel given by name. `"scale"` takes the variance of the rows that the features are chosen from; with
        `partial_fit` these are the first ones, so give a number where the pieces differ.
    degree : int, default=3
        Of a polynomial kernel given by name.
    coef0 : float, default=0.0
        Of a polynomial kernel given by name.
    n_landmarks : int or float, default=500
        How many landmarks: a number, or a share of the rows above 0 and at most 1 (`partial_fit` needs a number).
    landmarks : str, LandmarkRule or array, default="uniform"
        A rule of `gramless.approximation.landmarks` by name or with its settings, row numbers, or the points themselves. A
        rule chooses
        from a uniform sample of at most 50,000 rows (all where there are fewer), of a generator from its first rows (four
        for each landmark).
    Cs : sequence of float
        The path for `C="loo"`: 1e-3 to 1e6 in half decades by default.
    class_weight : dict, "balanced" or None, default=None
        `"balanced"` needs arrays, whose labels can be counted beforehand.
    probability : {"softmax", "sigmoid", "temperature", False}, default="softmax"
        What `predict_proba` makes of scores; `"sigmoid"` and `"temperature"` (whose largest probability is that of
        `predict`) are fitted on closed-form leave-one-out scores, and `predict_set` needs one of them.
    forgetting_factor : float, default=1.0
        The weight of all earlier rows is multiplied by this with each new row, for streams that change.
    batch_size : int or None, default=None
        Rows at a time; None takes 4096, or fewer where the memory budget asks for it. Changes no result.
    dtype : {"float32", "float64"} or None, default=None
        Of the features; sums and solution are in float64. None is float32 for float32 and byte data, else float64.
    device : {"cpu", "cuda", "auto"} or None, default=None
        None is where the data are.
    memory_budget : str, int, float or None, default=None
        What the fit may take: `"4GB"`, bytes, or a share of what is free; None is 70 % of it.
    callback : callable, Checkpoint, a list of these, or None, default=None
        `callback(estimator, record)` is called at the end of the pass. `gramless.callbacks.Checkpoint` saves where the pass
        stands; a fit that finds such a file of its own goes on from there, and no row is counted twice.
    verbose : int, default=0
        1 shows rows per second, or the loss of each epoch, and the time left.
    random_state : int, RandomState or None, default=None
        Seed of all that is drawn.

    Attributes
    ----------
    classes_ : ndarray
    points_ : array of shape (m, n_features)
        The landmarks.
    dual_coef_ : ndarray of shape (m, n_outputs)
    intercept_ : ndarray of shape (n_outputs,)
    kernel_ : Kernel
        With every setting a number.
    C_ : float
        The regularisation used.
    loo_errors_ : ndarray
        With `C="loo"`, the leave-one-out squared error at each of `Cs`.
    jitter_ : float
        What was added to the diagonal of `K_mm`.
    history_ : list of dict
        The record of the pass of `fit`: n_iter, seconds.
    pass_ : gramless.streaming.learners.Pass
        Where the pass stands: what `partial_fit` goes on with.

    See Also
    --------
    FourierLSSVC : Random features instead of landmarks.
    BudgetLSSVC : Steps instead of sums, for very many landmarks.
    LSSVC : All rows as landmarks.

    References
    ----------
    K. De Brabanter, J. De Brabanter, J. A. K. Suykens and B. De Moor, "Optimized fixed-size kernel models for large
    data sets", 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gramless import NystromLSSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> model = NystromLSSVC(n_landmarks=200, C="loo", random_state=0).fit(X[:1000], y[:1000])
    >>> model.score(X[1000:], y[1000:]) > 0.93
    True
    """

    dual_coef_ = from_model("coef", "Coefficients of the points' kernel functions.")
    intercept_ = from_model("intercept", "The biases.")
    points_ = from_model("features.points", "The points that carry the model.")
    kernel_ = from_model("features.kernel", "The kernel, with every setting a number.")
    C_ = from_model("C", "The regularisation used.")
    loo_errors_ = from_model("loo_errors", "The leave-one-out squared error at each C tried.")
    jitter_ = from_model("jitter", "What was added to the diagonal of the landmarks' kernel matrix.")

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        C: float | str = 1.0,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        n_landmarks: float = 500,
        landmarks: Any = "uniform",
        Cs: Any = C_PATH,
        class_weight: Any = None,
        probability: str | bool = "softmax",
        forgetting_factor: float = 1.0,
        batch_size: int | None = None,
        dtype: Any = None,
        device: str | None = None,
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
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.Cs = Cs
        self.class_weight = class_weight
        self.probability = probability
        self.forgetting_factor = forgetting_factor
        self.batch_size = batch_size
        self.dtype = dtype
        self.device = device
        self.memory_budget = memory_budget
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state

    def parts(self) -> Parts:
        """The feature map, the learner and the options of the pass that these settings mean.

        Returns
        -------
        tuple of FeatureMap, Learner and PassOptions
            What `run_pass` is called with.
        """
        if self.probability is not False:
            check_choice("probability", self.probability, {"softmax", "sigmoid", "temperature"})
        left_out = self.probability in ("sigmoid", "temperature")
        kernel = kernel_from_settings(self)
        feature_map = LandmarkMap(kernel, self.n_landmarks, self.landmarks)
        learner = Sums(self.C, self.Cs, forgetting_factor=self.forgetting_factor, leave_one_out=left_out)
        return feature_map, learner, PassOptions.of(self, batch_rows=self.batch_size)


@link_documentation
class NystromLSSVR(OnePassRegressor):
    """Least-squares support vector regressor on landmarks, fitted in one pass over data of any length.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        Similarity of two rows: a name or an expression of `gramless.kernels`, or a function `f(X, Y)`.
    C : float or "loo", default=1.0
        Regularisation: the ridge is `1 / C`. `"loo"` takes the value of `Cs` with the smallest closed-form leave-one-out
        squared error; nothing is refitted.
    gamma : float, "scale" or "auto", default="scale"
        Of a kernel given by name. `"scale"` takes the variance of the rows that the features are chosen from; with
        `partial_fit` these are the first ones, so give a number where the pieces differ.
    degree : int, default=3
        Of a polynomial kernel given by name.
    coef0 : float, default=0.0
        Of a polynomial kernel given by name.
    n_landmarks : int or float, default=500
        How many landmarks: a number, or a share of the rows above 0 and at most 1 (`partial_fit` needs a number).
    landmarks : str, LandmarkRule or array, default="uniform"
        A rule of `gramless.approximation.landmarks` by name or with its settings, row numbers, or the points themselves. A
        rule chooses
        from a uniform sample of at most 50,000 rows (all where there are fewer), of a generator from its first rows (four
        for each landmark).
    Cs : sequence of float
        The path for `C="loo"`: 1e-3 to 1e6 in half decades by default.
    forgetting_factor : float, default=1.0
        The weight of all earlier rows is multiplied by this with each new row, for streams that change.
    batch_size : int or None, default=None
        Rows at a time; None takes 4096, or fewer where the memory budget asks for it. Changes no result.
    dtype : {"float32", "float64"} or None, default=None
        Of the features; sums and solution are in float64. None is float32 for float32 and byte data, else float64.
    device : {"cpu", "cuda", "auto"} or None, default=None
        None is where the data are.
    memory_budget : str, int, float or None, default=None
        What the fit may take: `"4GB"`, bytes, or a share of what is free; None is 70 % of it.
    callback : callable, Checkpoint, a list of these, or None, default=None
        `callback(estimator, record)` is called at the end of the pass. `gramless.callbacks.Checkpoint` saves where the pass
        stands; a fit that finds such a file of its own goes on from there, and no row is counted twice.
    verbose : int, default=0
        1 shows rows per second, or the loss of each epoch, and the time left.
    random_state : int, RandomState or None, default=None
        Seed of all that is drawn.

    Attributes
    ----------
    points_ : array of shape (m, n_features)
        The landmarks.
    dual_coef_ : ndarray of shape (m, n_outputs)
    intercept_ : ndarray of shape (n_outputs,)
    kernel_ : Kernel
        With every setting a number.
    C_ : float
        The regularisation used.
    loo_errors_ : ndarray
        With `C="loo"`, the leave-one-out squared error at each of `Cs`.
    jitter_ : float
        What was added to the diagonal of `K_mm`.
    history_ : list of dict
        The record of the pass of `fit`: n_iter, seconds.
    pass_ : gramless.streaming.learners.Pass
        Where the pass stands: what `partial_fit` goes on with.

    See Also
    --------
    FourierLSSVR : Random features instead of landmarks.
    BudgetLSSVR : Steps instead of sums, for very many landmarks.
    LSSVR : All rows as landmarks.

    References
    ----------
    K. De Brabanter, J. De Brabanter, J. A. K. Suykens and B. De Moor, "Optimized fixed-size kernel models for large
    data sets", 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import NystromLSSVR
    >>> X = np.linspace(0, 6, 1000)[:, None]
    >>> NystromLSSVR(n_landmarks=30, C=100.0, random_state=0).fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])) > 0.999
    True
    """

    dual_coef_ = from_model("coef", "Coefficients of the points' kernel functions.")
    intercept_ = from_model("intercept", "The biases.")
    points_ = from_model("features.points", "The points that carry the model.")
    kernel_ = from_model("features.kernel", "The kernel, with every setting a number.")
    C_ = from_model("C", "The regularisation used.")
    loo_errors_ = from_model("loo_errors", "The leave-one-out squared error at each C tried.")
    jitter_ = from_model("jitter", "What was added to the diagonal of the landmarks' kernel matrix.")

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        C: float | str = 1.0,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        n_landmarks: float = 500,
        landmarks: Any = "uniform",
        Cs: Any = C_PATH,
        forgetting_factor: float = 1.0,
        batch_size: int | None = None,
        dtype: Any = None,
        device: str | None = None,
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
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.Cs = Cs
        self.forgetting_factor = forgetting_factor
        self.batch_size = batch_size
        self.dtype = dtype
        self.device = device
        self.memory_budget = memory_budget
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predicted values, and how sure the machine is of the function behind them.

        Parameters
        ----------
        X : array, sparse matrix, tensor or dask collection of shape (n_samples, n_features)
            Rows.
        return_std : bool, default=False
            Whether to return the standard deviation of the Gaussian process too: that of the function, without the noise of
            a new value. Its scale is the one that the leave-one-out residuals of a sample of the rows have.

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

        The models without each of up to 8,192 rows, a uniform sample, are known in closed form.

        Parameters
        ----------
        X : array, sparse matrix or tensor of shape (n_samples, n_features)
            Rows.
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

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key != "_posterior"}

    def parts(self) -> Parts:
        """The feature map, the learner and the options of the pass that these settings mean.

        Returns
        -------
        tuple of FeatureMap, Learner and PassOptions
            What `run_pass` is called with.
        """
        kernel = kernel_from_settings(self)
        feature_map = LandmarkMap(kernel, self.n_landmarks, self.landmarks)
        learner = Sums(self.C, self.Cs, forgetting_factor=self.forgetting_factor, keep_rows=True)
        return feature_map, learner, PassOptions.of(self, batch_rows=self.batch_size)
