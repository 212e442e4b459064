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

import copy
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gramless._runtime.dask_hooks import fits_collections
from gramless._runtime.validation import all_or_nothing, check_choice
from gramless.calibration.platt import left_out_sigmoids
from gramless.callbacks import read_callbacks
from gramless.features import FeatureMap, LandmarkMap
from gramless.learners import (
    C_PATH,
    Learner,
    Pass,
    PassOptions,
    PassPlan,
    Sums,
    from_model,
    more_rows,
    plan_pass,
    run_pass,
)
from gramless.models.expansion import ExpansionClassifier, ExpansionRegressor, kernel_from_settings
from gramless.streaming.from_user import further_labels, further_rows, rows_and_labels, rows_and_values
from gramless.targets.streamed import LabelTargets, ValueTargets


class NystromLSSVC(ExpansionClassifier):
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
        A rule of `gramless.landmarks` by name or with its settings, row numbers, or the points themselves. A rule chooses
        from a uniform sample of at most 50,000 rows (all where there are fewer), of a generator from its first rows (four
        for each landmark).
    Cs : sequence of float
        The path for `C="loo"`: 1e-3 to 1e6 in half decades by default.
    class_weight : dict, "balanced" or None, default=None
        `"balanced"` needs arrays, whose labels can be counted beforehand.
    probability : {"softmax", "sigmoid", False}, default="softmax"
        What `predict_proba` makes of scores; `"sigmoid"` is fitted on closed-form leave-one-out scores.
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
    pass_ : gramless.learners.Pass
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

    pass_: Pass | None = None
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

    def parts(self) -> tuple[FeatureMap, Learner, PassOptions]:
        """The feature map, the learner and the options of the pass that these settings mean.

        Returns
        -------
        tuple of FeatureMap, Learner and PassOptions
            What `run_pass` is called with.
        """
        if self.probability is not False:
            check_choice("probability", self.probability, {"softmax", "sigmoid"})
        kernel = kernel_from_settings(self)
        feature_map = LandmarkMap(kernel, self.n_landmarks, self.landmarks)
        learner = Sums(
            self.C, self.Cs, forgetting_factor=self.forgetting_factor, leave_one_out=self.probability == "sigmoid"
        )
        return feature_map, learner, PassOptions.of(self, batch_rows=self.batch_size)

    @all_or_nothing
    @fits_collections
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> NystromLSSVC:
        """Fit in one pass.

        Parameters
        ----------
        X : array, path, iterable or Stream
            An array (a `np.memmap` is read in batches); the path of a CSV, Parquet or npz file; an iterable of `(X, y)` or
            `(X, y, sample_weight)` batches; or a `Stream`.
        y : array, or the name of the target column of a file
            Targets; none beside batches or a `Stream`, which carry their own.
        sample_weight : array, optional
            With an array, one weight for each row: weight 2 equals two copies.

        Returns
        -------
        self : NystromLSSVC
            Fitted.
        """
        feature_map, learner, options = self.parts()
        stream, targets = rows_and_labels(self, X, y, sample_weight, accept_sparse=feature_map.accepts_sparse)
        how = {"random_state": self.random_state, "callbacks": read_callbacks(self.callback), "show": self.adopt}
        return self.adopt(run_pass(stream, feature_map, learner, targets, options, **how))

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> NystromLSSVC:
        """Add rows to the model; the result is that of one `fit` on all rows together.

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
        self : NystromLSSVC
            With the rows added.
        """
        feature_map, learner, options = self.parts()
        known = None if self.pass_ is None else copy.copy(self.pass_.targets)
        targets = further_labels(known, classes, self.class_weight)
        stream, checked = further_rows(
            self, X, y, sample_weight, targets, first=self.pass_ is None, accept_sparse=feature_map.accepts_sparse
        )
        # Rows that are checked as they pass may turn out bad after good ones, and must leave the model as it was.
        state = Pass.going_on(self.pass_, targets, learner, self.random_state, own_sums=not checked)
        more_rows(state, stream, feature_map, learner, options)
        return self.adopt(state)

    def adopt(self, state: Pass) -> NystromLSSVC:
        """Take a pass, made here or on other machines, as the model's.

        Parameters
        ----------
        state : Pass
            Made with this estimator's `parts()`.

        Returns
        -------
        self : NystromLSSVC
            With that model.
        """
        self.pass_, self.n_features_in_, self.device_ = state, state.n_columns, state.device
        assert isinstance(state.targets, LabelTargets)
        self.classes_ = state.targets.close()
        return self

    def finish(self) -> NystromLSSVC:
        """Keep the model and let go of what only `partial_fit` needs: the sums, and rows held back or sampled.

        In memory and in a saved file, `m` points are left instead of `m^2` sums; `partial_fit` is refused from then on.

        Returns
        -------
        self : NystromLSSVC
            Smaller, with the same model.
        """
        check_is_fitted(self, "intercept_")
        assert self.pass_ is not None
        if self.probability == "sigmoid":
            _ = self.sigmoids_
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
        return plan_pass(*self.parts(), n_rows=n, n_columns=d, n_targets=n_outputs, dtype=dtype, device=device)

    @property
    def sigmoids_(self) -> np.ndarray:
        """Platt's sigmoids, fitted to leave-one-out scores."""
        if self.probability != "sigmoid" or self.pass_ is None:
            raise AttributeError("sigmoids are fitted with probability='sigmoid'")
        return left_out_sigmoids(self.pass_.model(*self.parts()), self.pass_.targets)


class NystromLSSVR(ExpansionRegressor):
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
        A rule of `gramless.landmarks` by name or with its settings, row numbers, or the points themselves. A rule chooses
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
    pass_ : gramless.learners.Pass
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

    pass_: Pass | None = None
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

    def parts(self) -> tuple[FeatureMap, Learner, PassOptions]:
        """The feature map, the learner and the options of the pass that these settings mean.

        Returns
        -------
        tuple of FeatureMap, Learner and PassOptions
            What `run_pass` is called with.
        """
        kernel = kernel_from_settings(self)
        feature_map = LandmarkMap(kernel, self.n_landmarks, self.landmarks)
        learner = Sums(self.C, self.Cs, forgetting_factor=self.forgetting_factor)
        return feature_map, learner, PassOptions.of(self, batch_rows=self.batch_size)

    @all_or_nothing
    @fits_collections
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> NystromLSSVR:
        """Fit in one pass.

        Parameters
        ----------
        X : array, path, iterable or Stream
            An array (a `np.memmap` is read in batches); the path of a CSV, Parquet or npz file; an iterable of `(X, y)` or
            `(X, y, sample_weight)` batches; or a `Stream`.
        y : array of shape (n,) or (n, n_outputs), or the name of the target column of a file
            Targets; none beside batches or a `Stream`, which carry their own.
        sample_weight : array, optional
            With an array, one weight for each row: weight 2 equals two copies.

        Returns
        -------
        self : NystromLSSVR
            Fitted.
        """
        feature_map, learner, options = self.parts()
        stream, targets = rows_and_values(self, X, y, sample_weight, accept_sparse=feature_map.accepts_sparse)
        how = {"random_state": self.random_state, "callbacks": read_callbacks(self.callback), "show": self.adopt}
        return self.adopt(run_pass(stream, feature_map, learner, targets, options, **how))

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> NystromLSSVR:
        """Add rows to the model; the result is that of one `fit` on all rows together.

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
        self : NystromLSSVR
            With the rows added.
        """
        feature_map, learner, options = self.parts()
        known = None if self.pass_ is None else copy.copy(self.pass_.targets)
        targets = ValueTargets() if known is None else known
        stream, checked = further_rows(
            self, X, y, sample_weight, targets, first=self.pass_ is None, accept_sparse=feature_map.accepts_sparse
        )
        # Rows that are checked as they pass may turn out bad after good ones, and must leave the model as it was.
        state = Pass.going_on(self.pass_, targets, learner, self.random_state, own_sums=not checked)
        more_rows(state, stream, feature_map, learner, options)
        return self.adopt(state)

    def adopt(self, state: Pass) -> NystromLSSVR:
        """Take a pass, made here or on other machines, as the model's.

        Parameters
        ----------
        state : Pass
            Made with this estimator's `parts()`.

        Returns
        -------
        self : NystromLSSVR
            With that model.
        """
        self.pass_, self.n_features_in_, self.device_ = state, state.n_columns, state.device
        self._single_output = state.targets.single
        return self

    def finish(self) -> NystromLSSVR:
        """Keep the model and let go of what only `partial_fit` needs: the sums, and rows held back or sampled.

        In memory and in a saved file, `m` points are left instead of `m^2` sums; `partial_fit` is refused from then on.

        Returns
        -------
        self : NystromLSSVR
            Smaller, with the same model.
        """
        check_is_fitted(self, "intercept_")
        assert self.pass_ is not None
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
        return plan_pass(*self.parts(), n_rows=n, n_columns=d, n_targets=n_outputs, dtype=dtype, device=device)
