"""Least-squares support vector machine on random Fourier features.

    f(x) = w . phi(x) + b,   min_{w, b}  1/2 ||w||^2 + C/2 sum_i (z_i - f(x_i))^2

in the primal, with features `phi` of `FourierMap`, whose inner products approximate an RBF or Laplacian kernel.
`method="exact"` adds up the normal equations in one pass (`Sums`): the same answer in any order and any grouping of the
rows. `method="online"` takes a step for each mini-batch (`Steps`).

Cost: O(d D + D^2) time for each row (exact), O(D^2) memory whatever the number of rows; a prediction is O(d D).

Reference: Rahimi and Recht, "Random features for large-scale kernel machines", 2007.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless._runtime.dask_hooks import fits_collections
from gramless._runtime.validation import all_or_nothing, check_choice, check_X
from gramless.calibration.platt import left_out_sigmoids
from gramless.callbacks import read_callbacks
from gramless.features import FeatureMap, FourierMap
from gramless.learners import (
    C_PATH,
    Learner,
    Pass,
    PassOptions,
    PassPlan,
    Steps,
    Sums,
    from_model,
    more_rows,
    plan_pass,
    run_pass,
)
from gramless.models.expansion import ExpansionClassifier, ExpansionRegressor, kernel_from_settings
from gramless.streaming.from_user import further_labels, further_rows, rows_and_labels, rows_and_values
from gramless.targets.streamed import LabelTargets, ValueTargets

_SCORED_ROWS = 4096


def score_features(model: Any, X: Any) -> Array:
    """`features_(X) @ coef_ + intercept_`, in the library and on the device of `X`."""
    check_is_fitted(model, "coef_")
    coef = model.coef_
    checked = check_X(model, X, dtype=coef.dtype, reset=False, accept_sparse=True)
    device = xa.device_of(checked) if xa.is_torch(checked) else model.device_
    coef, bias = xa.to_device(coef, device), xa.to_device(model.intercept_, device)
    scores = xa.empty((int(checked.shape[0]), int(coef.shape[1])), bias)
    for start in range(0, int(checked.shape[0]), _SCORED_ROWS):
        rows = slice(start, start + _SCORED_ROWS)
        scores[rows] = model.features_(xa.to_device(checked[rows], device)) @ coef + bias
    return scores if xa.is_torch(X) else xa.to_numpy(scores)


class FourierLSSVC(ExpansionClassifier):
    """Least-squares support vector classifier on random Fourier features, for data of any length.

    Parameters
    ----------
    kernel : {"rbf", "laplacian"} or Kernel, default="rbf"
        The kernel that the features stand for.
    C : float or "loo", default=1.0
        Regularisation: the ridge is `1 / C`. `"loo"`, with `method="exact"`, takes the value of `Cs` with the smallest
        closed-form leave-one-out squared error; nothing is refitted.
    gamma : float, "scale" or "auto", default="scale"
        Of a kernel given by name. `"scale"` takes the variance of the rows that the features are chosen from; with
        `partial_fit` these are the first ones, so give a number where the pieces differ.
    n_components : int, default=500
        Features: cosines and sines of half as many frequencies (rounded up to an even number).
    draw : {"auto", "plain", "orthogonal", "structured"}, default="auto"
        How frequencies are drawn: independent; orthogonal to each other (smaller variance); orthogonal through Hadamard
        matrices (cheaper for many columns). `"auto"` is orthogonal, structured from 2048 columns on, and plain for the
        Laplacian in the city-block norm.
    method : {"exact", "online"}, default="exact"
        Sums in one pass, or steps in several.
    Cs : sequence of float
        The path for `C="loo"`: 1e-3 to 1e6 in half decades by default.
    class_weight : dict, "balanced" or None, default=None
        `"balanced"` needs arrays, whose labels can be counted beforehand.
    probability : {"softmax", "sigmoid", False}, default="softmax"
        What `predict_proba` makes of scores; `"sigmoid"`, with `method="exact"`, is fitted on leave-one-out scores.
    forgetting_factor : float, default=1.0
        With `method="exact"`: the weight of all earlier rows is multiplied by this with each new row.
    optimizer : {"sgd", "averaged_sgd", "adam"}, default="sgd"
        Of `method="online"`; `"averaged_sgd"` returns the mean of the iterates of the second half.
    epochs : int, default=30
        With `method="online"`, passes over the rows in `fit`; `partial_fit` makes one, and so does a fit on a generator.
    batch_size : int or None, default=None
        Rows at a time, as in `NystromLSSVC`; with `method="online"` rows in a step, where None is 64.
    dtype : {"float32", "float64"} or None, default=None
        Of the features; sums and solution are in float64. None is float32 for float32 and byte data, else float64.
    device : {"cpu", "cuda", "auto"} or None, default=None
        None is where the data are.
    memory_budget : str, int, float or None, default=None
        What the fit may take: `"4GB"`, bytes, or a share of what is free; None is 70 % of it.
    callback : callable, Checkpoint, a list of these, or None, default=None
        `callback(estimator, record) -> bool` is called after each epoch with an estimator that can already predict; a true
        answer stops the fit. `gramless.callbacks.Checkpoint`, with `method="exact"`, is as in `NystromLSSVC`.
    verbose : int, default=0
        1 shows rows per second, or the loss of each epoch, and the time left.
    random_state : int, RandomState or None, default=None
        Seed of all that is drawn.

    Attributes
    ----------
    classes_ : ndarray
    coef_ : ndarray of shape (n_components, n_outputs)
    intercept_ : ndarray of shape (n_outputs,)
    features_ : FourierFeatures
        `decision_function(X) = features_(X) @ coef_ + intercept_`.
    kernel_ : Kernel
        With every setting a number.
    C_ : float
        The regularisation used.
    loo_errors_ : ndarray
        With `C="loo"`, the leave-one-out squared error at each of `Cs`.
    history_ : list of dict
        One record for each pass of `fit`: n_iter, seconds and, with `method="online"`, loss and step.
    pass_ : gramless.learners.Pass
        Where the pass stands: what `partial_fit` goes on with.

    See Also
    --------
    NystromLSSVC : Features chosen from the rows.
    LSSVC : The kernel itself.

    References
    ----------
    A. Rahimi and B. Recht, "Random features for large-scale kernel machines", 2007.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gramless import FourierLSSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> FourierLSSVC(n_components=400, C=10.0, random_state=0).fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]) > 0.9
    True
    """

    pass_: Pass | None = None
    coef_ = from_model("coef", "Coefficients of the features.")
    intercept_ = from_model("intercept", "The biases.")
    features_ = from_model("features", "The features.")
    kernel_ = from_model("features.kernel", "The kernel, with every setting a number.")
    C_ = from_model("C", "The regularisation used.")
    loo_errors_ = from_model("loo_errors", "The leave-one-out squared error at each C tried.")

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        C: float | str = 1.0,
        gamma: float | str = "scale",
        n_components: int = 500,
        draw: str = "auto",
        method: str = "exact",
        Cs: Any = C_PATH,
        class_weight: Any = None,
        probability: str | bool = "softmax",
        forgetting_factor: float = 1.0,
        optimizer: str = "sgd",
        epochs: int = 30,
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
        self.n_components = n_components
        self.draw = draw
        self.method = method
        self.Cs = Cs
        self.class_weight = class_weight
        self.probability = probability
        self.forgetting_factor = forgetting_factor
        self.optimizer = optimizer
        self.epochs = epochs
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
        if self.probability == "sigmoid" and self.method == "online":
            raise ValueError("probability='sigmoid' needs leave-one-out scores: use method='exact'")
        check_choice("method", self.method, {"exact", "online"})
        feature_map = FourierMap(kernel_from_settings(self), self.n_components, self.draw)
        learner: Learner
        if self.method == "exact":
            learner = Sums(
                self.C, self.Cs, forgetting_factor=self.forgetting_factor, leave_one_out=self.probability == "sigmoid"
            )
        else:
            if self.forgetting_factor != 1:
                raise ValueError("forgetting_factor goes with method='exact'")
            batch_size = 64 if self.batch_size is None else self.batch_size
            learner = Steps(self.C, optimizer=self.optimizer, batch_size=batch_size, epochs=self.epochs)
        return feature_map, learner, PassOptions.of(self, batch_rows=self.batch_size if self.method == "exact" else None)

    @all_or_nothing
    @fits_collections
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> FourierLSSVC:
        """Fit in one pass, or in `epochs` of them with `method="online"`.

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
        self : FourierLSSVC
            Fitted.
        """
        feature_map, learner, options = self.parts()
        stream, targets = rows_and_labels(self, X, y, sample_weight, accept_sparse=feature_map.accepts_sparse)
        how = {"random_state": self.random_state, "callbacks": read_callbacks(self.callback), "show": self.adopt}
        return self.adopt(run_pass(stream, feature_map, learner, targets, options, **how))

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> FourierLSSVC:
        """Add rows to the model; with `method="exact"` the result is that of one `fit` on all rows together.

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
        self : FourierLSSVC
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

    def adopt(self, state: Pass) -> FourierLSSVC:
        """Take a pass, made here or on other machines, as the model's.

        Parameters
        ----------
        state : Pass
            Made with this estimator's `parts()`.

        Returns
        -------
        self : FourierLSSVC
            With that model.
        """
        self.pass_, self.n_features_in_, self.device_ = state, state.n_columns, state.device
        self.history_ = state.history
        assert isinstance(state.targets, LabelTargets)
        self.classes_ = state.targets.close()
        return self

    def finish(self) -> FourierLSSVC:
        """Keep the model and let go of what only `partial_fit` needs: the sums, and rows held back or sampled.

        In memory and in a saved file, `m` points are left instead of `m^2` sums; `partial_fit` is refused from then on.

        Returns
        -------
        self : FourierLSSVC
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

    def _scores(self, X: Any) -> Array:
        return score_features(self, X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = False
        return tags


class FourierLSSVR(ExpansionRegressor):
    """Least-squares support vector regressor on random Fourier features, for data of any length.

    Parameters
    ----------
    kernel : {"rbf", "laplacian"} or Kernel, default="rbf"
        The kernel that the features stand for.
    C : float or "loo", default=1.0
        Regularisation: the ridge is `1 / C`. `"loo"`, with `method="exact"`, takes the value of `Cs` with the smallest
        closed-form leave-one-out squared error; nothing is refitted.
    gamma : float, "scale" or "auto", default="scale"
        Of a kernel given by name. `"scale"` takes the variance of the rows that the features are chosen from; with
        `partial_fit` these are the first ones, so give a number where the pieces differ.
    n_components : int, default=500
        Features: cosines and sines of half as many frequencies (rounded up to an even number).
    draw : {"auto", "plain", "orthogonal", "structured"}, default="auto"
        How frequencies are drawn: independent; orthogonal to each other (smaller variance); orthogonal through Hadamard
        matrices (cheaper for many columns). `"auto"` is orthogonal, structured from 2048 columns on, and plain for the
        Laplacian in the city-block norm.
    method : {"exact", "online"}, default="exact"
        Sums in one pass, or steps in several.
    Cs : sequence of float
        The path for `C="loo"`: 1e-3 to 1e6 in half decades by default.
    forgetting_factor : float, default=1.0
        With `method="exact"`: the weight of all earlier rows is multiplied by this with each new row.
    optimizer : {"sgd", "averaged_sgd", "adam"}, default="sgd"
        Of `method="online"`; `"averaged_sgd"` returns the mean of the iterates of the second half.
    epochs : int, default=30
        With `method="online"`, passes over the rows in `fit`; `partial_fit` makes one, and so does a fit on a generator.
    batch_size : int or None, default=None
        Rows at a time, as in `NystromLSSVC`; with `method="online"` rows in a step, where None is 64.
    dtype : {"float32", "float64"} or None, default=None
        Of the features; sums and solution are in float64. None is float32 for float32 and byte data, else float64.
    device : {"cpu", "cuda", "auto"} or None, default=None
        None is where the data are.
    memory_budget : str, int, float or None, default=None
        What the fit may take: `"4GB"`, bytes, or a share of what is free; None is 70 % of it.
    callback : callable, Checkpoint, a list of these, or None, default=None
        `callback(estimator, record) -> bool` is called after each epoch with an estimator that can already predict; a true
        answer stops the fit. `gramless.callbacks.Checkpoint`, with `method="exact"`, is as in `NystromLSSVC`.
    verbose : int, default=0
        1 shows rows per second, or the loss of each epoch, and the time left.
    random_state : int, RandomState or None, default=None
        Seed of all that is drawn.

    Attributes
    ----------
    coef_ : ndarray of shape (n_components, n_outputs)
    intercept_ : ndarray of shape (n_outputs,)
    features_ : FourierFeatures
        `decision_function(X) = features_(X) @ coef_ + intercept_`.
    kernel_ : Kernel
        With every setting a number.
    C_ : float
        The regularisation used.
    loo_errors_ : ndarray
        With `C="loo"`, the leave-one-out squared error at each of `Cs`.
    history_ : list of dict
        One record for each pass of `fit`: n_iter, seconds and, with `method="online"`, loss and step.
    pass_ : gramless.learners.Pass
        Where the pass stands: what `partial_fit` goes on with.

    See Also
    --------
    NystromLSSVR : Features chosen from the rows.
    LSSVR : The kernel itself.

    References
    ----------
    A. Rahimi and B. Recht, "Random features for large-scale kernel machines", 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import FourierLSSVR
    >>> X = np.linspace(0, 6, 1000)[:, None]
    >>> model = FourierLSSVR(n_components=50, C=100.0, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.score(X, np.sin(X[:, 0])) > 0.99
    True
    """

    pass_: Pass | None = None
    coef_ = from_model("coef", "Coefficients of the features.")
    intercept_ = from_model("intercept", "The biases.")
    features_ = from_model("features", "The features.")
    kernel_ = from_model("features.kernel", "The kernel, with every setting a number.")
    C_ = from_model("C", "The regularisation used.")
    loo_errors_ = from_model("loo_errors", "The leave-one-out squared error at each C tried.")

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        C: float | str = 1.0,
        gamma: float | str = "scale",
        n_components: int = 500,
        draw: str = "auto",
        method: str = "exact",
        Cs: Any = C_PATH,
        forgetting_factor: float = 1.0,
        optimizer: str = "sgd",
        epochs: int = 30,
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
        self.n_components = n_components
        self.draw = draw
        self.method = method
        self.Cs = Cs
        self.forgetting_factor = forgetting_factor
        self.optimizer = optimizer
        self.epochs = epochs
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
        check_choice("method", self.method, {"exact", "online"})
        feature_map = FourierMap(kernel_from_settings(self), self.n_components, self.draw)
        learner: Learner
        if self.method == "exact":
            learner = Sums(self.C, self.Cs, forgetting_factor=self.forgetting_factor)
        else:
            if self.forgetting_factor != 1:
                raise ValueError("forgetting_factor goes with method='exact'")
            batch_size = 64 if self.batch_size is None else self.batch_size
            learner = Steps(self.C, optimizer=self.optimizer, batch_size=batch_size, epochs=self.epochs)
        return feature_map, learner, PassOptions.of(self, batch_rows=self.batch_size if self.method == "exact" else None)

    @all_or_nothing
    @fits_collections
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> FourierLSSVR:
        """Fit in one pass, or in `epochs` of them with `method="online"`.

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
        self : FourierLSSVR
            Fitted.
        """
        feature_map, learner, options = self.parts()
        stream, targets = rows_and_values(self, X, y, sample_weight, accept_sparse=feature_map.accepts_sparse)
        how = {"random_state": self.random_state, "callbacks": read_callbacks(self.callback), "show": self.adopt}
        return self.adopt(run_pass(stream, feature_map, learner, targets, options, **how))

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> FourierLSSVR:
        """Add rows to the model; with `method="exact"` the result is that of one `fit` on all rows together.

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
        self : FourierLSSVR
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

    def adopt(self, state: Pass) -> FourierLSSVR:
        """Take a pass, made here or on other machines, as the model's.

        Parameters
        ----------
        state : Pass
            Made with this estimator's `parts()`.

        Returns
        -------
        self : FourierLSSVR
            With that model.
        """
        self.pass_, self.n_features_in_, self.device_ = state, state.n_columns, state.device
        self.history_ = state.history
        self._single_output = state.targets.single
        return self

    def finish(self) -> FourierLSSVR:
        """Keep the model and let go of what only `partial_fit` needs: the sums, and rows held back or sampled.

        In memory and in a saved file, `m` points are left instead of `m^2` sums; `partial_fit` is refused from then on.

        Returns
        -------
        self : FourierLSSVR
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

    def _scores(self, X: Any) -> Array:
        return score_features(self, X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = False
        return tags
