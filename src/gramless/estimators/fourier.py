"""Least-squares support vector machine on random Fourier features.

    f(x) = w . phi(x) + b,   min_{w, b}  1/2 ||w||^2 + C/2 sum_i (z_i - f(x_i))^2

in the primal, with features `phi` of `FourierMap`, whose inner products approximate an RBF or Laplacian kernel.
`method="exact"` adds up the normal equations in one pass (`Sums`): the same answer in any order and any grouping of the
rows. `method="online"` takes a step for each mini-batch (`Steps`).

Cost: O(d D + D^2) time for each row (exact), O(D^2) memory whatever the number of rows; a prediction is O(d D).

Reference: Rahimi and Recht, "Random features for large-scale kernel machines", 2007.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._core.doc_links import link_documentation
from gramless._core.validation import check_choice
from gramless.approximation.features import FourierMap
from gramless.inference.one_pass import prediction_intervals, standard_deviations
from gramless.models.expansion import kernel_from_settings
from gramless.models.one_pass import OnePassClassifier, OnePassRegressor, Parts
from gramless.streaming.learners import C_PATH, Learner, PassOptions, Steps, Sums, from_model


def _sums_or_steps(settings: Any, *, leave_one_out: bool = False, keep_rows: bool = False) -> Learner:
    """The learner that `method` and its settings mean."""
    check_choice("method", settings.method, {"exact", "online"})
    factor = settings.forgetting_factor
    if settings.method == "exact":
        return Sums(settings.C, settings.Cs, forgetting_factor=factor, leave_one_out=leave_one_out, keep_rows=keep_rows)
    if factor != 1:
        raise ValueError("forgetting_factor goes with method='exact'")
    batch_size = 64 if settings.batch_size is None else settings.batch_size
    return Steps(settings.C, optimizer=settings.optimizer, batch_size=batch_size, epochs=settings.epochs)


@link_documentation
class FourierLSSVC(OnePassClassifier):
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
    probability : {"softmax", "sigmoid", "temperature", False}, default="softmax"
        What `predict_proba` makes of scores; `"sigmoid"` and `"temperature"` (whose largest probability is that of
        `predict`) are fitted on closed-form leave-one-out scores, with `method="exact"`, and `predict_set` needs one of
        them.
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
    pass_ : gramless.streaming.learners.Pass
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
        if left_out and self.method == "online":
            raise ValueError(f"probability={self.probability!r} needs leave-one-out scores: use method='exact'")
        feature_map = FourierMap(kernel_from_settings(self), self.n_components, self.draw)
        learner = _sums_or_steps(self, leave_one_out=left_out)
        return feature_map, learner, PassOptions.of(self, batch_rows=self.batch_size if self.method == "exact" else None)


@link_documentation
class FourierLSSVR(OnePassRegressor):
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
    pass_ : gramless.streaming.learners.Pass
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
        feature_map = FourierMap(kernel_from_settings(self), self.n_components, self.draw)
        learner = _sums_or_steps(self, keep_rows=True)
        return feature_map, learner, PassOptions.of(self, batch_rows=self.batch_size if self.method == "exact" else None)
