"""Online least-squares support vector machine on a budget of points.

The dual loss, on a budget B of `beta` points (v = alpha y, one column for each class),

    L(v, b) = 1/2 v^T K_BB v - y_B^T v + C/2 sum_i (y_i - v^T k(B, x_i) - b)^2

is minimised a mini-batch at a time. The gradient for a sampled row j, from the loss itself, is

    dL/dv = K_BB v - y_B - C n (y_j - f(x_j)) k(B, x_j),     dL/db = -C n (y_j - f(x_j)) .

The term `y_B^T v` works against the regulariser. On a budget of all rows both parts of the loss are least at the same place,

    v = K^-1 y,  b = 0,     whatever C is:

the minimiser passes through every label, noise included, and where two rows of the budget coincide with opposite labels
there is none (the loss falls without end along their difference). What generalises is the model on the way there: `epochs`
is the regularisation as much as `C`. `loss="primal"` leaves the term out; its minimiser is the model of `NystromLSSVC` on
the same points, and more epochs only come closer to it.

All classes share the budget and one kernel block for each batch. The features are those of `LandmarkMap`; the step size, the
flattening of the leading curvature and the answer to divergence are those of `Steps`. Cost: O(beta d) for each row and epoch
(once, where the kernel values fit half of the memory budget), O(beta^2) for the regulariser once for several batches.
"""

from __future__ import annotations

from typing import Any

from gramless._core.doc_links import link_documentation
from gramless._core.validation import check_choice
from gramless.approximation.features import LandmarkMap
from gramless.models.expansion import kernel_from_settings
from gramless.models.one_pass import OnePassClassifier, OnePassRegressor, Parts
from gramless.streaming.learners import PassOptions, Steps, from_model


@link_documentation
class BudgetLSSVC(OnePassClassifier):
    """Least-squares support vector classifier learnt online on a budget of points.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        Similarity of two rows: a name or an expression of `gramless.kernels`, or a function `f(X, Y)`.
    C : float, default=1.0
        Weight of the errors against the regulariser.
    gamma : float, "scale" or "auto", default="scale"
        Of a kernel given by name. `"scale"` takes the variance of the rows that the features are chosen from; with
        `partial_fit` these are the first ones, so give a number where the pieces differ.
    degree : int, default=3
        Of a polynomial kernel given by name.
    coef0 : float, default=0.0
        Of a polynomial kernel given by name.
    budget : int or float, default=500
        Points that carry the model, as `n_landmarks` of `NystromLSSVC`: a number, or a share of the rows above 0 and at most
        1 (`partial_fit` needs a number).
    landmarks : str, LandmarkRule or array, default="uniform"
        A rule of `gramless.approximation.landmarks` by name or with its settings, row numbers, or the points themselves. A
        rule chooses
        from a uniform sample of at most 50,000 rows (all where there are fewer), of a generator from its first rows (four
        for each landmark).
    class_weight : dict, "balanced" or None, default=None
        `"balanced"` needs arrays, whose labels can be counted beforehand.
    probability : {"softmax", False}, default="softmax"
        What `predict_proba` makes of scores.
    loss : {"dual", "primal"}, default="dual"
        `"dual"` has the term `-y_B^T v`, which pulls the model through the labels of the budget, the closer the more epochs
        are made, so few are better than many. `"primal"` leaves that term out and tends to the model of `NystromLSSVC`.
        Points given as an array have no labels: both are the same then.
    optimizer : {"sgd", "averaged_sgd", "adam"}, default="sgd"
        `"averaged_sgd"` returns the mean of the iterates of the second half.
    batch_size : int, default=64
        Rows in a step; 1 is one point at a time.
    epochs : int, default=30
        Passes over the rows in `fit`; `partial_fit` makes one, and so does a fit on a generator.
    dtype : {"float32", "float64"} or None, default=None
        Of the computation. None is float32 for float32 and byte data, else float64.
    device : {"cpu", "cuda", "auto"} or None, default=None
        None is where the data are.
    memory_budget : str, int, float or None, default=None
        What the fit may take: `"4GB"`, bytes, or a share of what is free; None is 70 % of it.
    callback : callable, a list of these, or None, default=None
        `callback(estimator, record) -> bool` is called after each epoch with an estimator that can already predict; a true
        answer stops the fit.
    verbose : int, default=0
        1 shows rows per second, or the loss of each epoch, and the time left.
    random_state : int, RandomState or None, default=None
        Seed of all that is drawn.

    Attributes
    ----------
    classes_ : ndarray
    points_ : array of shape (m, n_features)
        The budget.
    dual_coef_ : ndarray of shape (m, n_outputs)
    intercept_ : ndarray of shape (n_outputs,)
    kernel_ : Kernel
        With every setting a number.
    C_ : float
        The regularisation used.
    history_ : list of dict
        One record for each epoch of `fit`: n_iter, seconds, loss (mean squared error of the batches as they came), step.
    pass_ : gramless.streaming.learners.Pass
        Where the pass stands: what `partial_fit` goes on with.

    See Also
    --------
    NystromLSSVC : The exact solution on the same points.
    LSSVC : All rows as points.

    References
    ----------
    S. Ma and M. Belkin, "Diving into the shallows: a computational perspective on large-scale shallow learning", 2017.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gramless import BudgetLSSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> model = BudgetLSSVC(budget=200, C=10.0, random_state=0).fit(X[:1000], y[:1000])
    >>> model.score(X[1000:], y[1000:]) > 0.93
    True
    """

    dual_coef_ = from_model("coef", "Coefficients of the points' kernel functions.")
    intercept_ = from_model("intercept", "The biases.")
    points_ = from_model("features.points", "The points that carry the model.")
    kernel_ = from_model("features.kernel", "The kernel, with every setting a number.")
    C_ = from_model("C", "The regularisation used.")

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        C: float = 1.0,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        budget: float = 500,
        landmarks: Any = "uniform",
        class_weight: Any = None,
        probability: str | bool = "softmax",
        loss: str = "dual",
        optimizer: str = "sgd",
        batch_size: int = 64,
        epochs: int = 30,
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
        self.budget = budget
        self.landmarks = landmarks
        self.class_weight = class_weight
        self.probability = probability
        self.loss = loss
        self.optimizer = optimizer
        self.batch_size = batch_size
        self.epochs = epochs
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
            check_choice("probability", self.probability, {"softmax", "sigmoid"})
        if self.probability == "sigmoid":
            raise ValueError("probability='sigmoid' needs leave-one-out scores, which only exact solutions have")
        kernel = kernel_from_settings(self)
        feature_map = LandmarkMap(kernel, self.budget, self.landmarks, whiten=False, size_name="budget")
        learner = Steps(self.C, optimizer=self.optimizer, batch_size=self.batch_size, epochs=self.epochs, loss=self.loss)
        return feature_map, learner, PassOptions.of(self, batch_rows=None)


@link_documentation
class BudgetLSSVR(OnePassRegressor):
    """Least-squares support vector regressor learnt online on a budget of points.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        Similarity of two rows: a name or an expression of `gramless.kernels`, or a function `f(X, Y)`.
    C : float, default=1.0
        Weight of the errors against the regulariser.
    gamma : float, "scale" or "auto", default="scale"
        Of a kernel given by name. `"scale"` takes the variance of the rows that the features are chosen from; with
        `partial_fit` these are the first ones, so give a number where the pieces differ.
    degree : int, default=3
        Of a polynomial kernel given by name.
    coef0 : float, default=0.0
        Of a polynomial kernel given by name.
    budget : int or float, default=500
        Points that carry the model, as `n_landmarks` of `NystromLSSVC`: a number, or a share of the rows above 0 and at most
        1 (`partial_fit` needs a number).
    landmarks : str, LandmarkRule or array, default="uniform"
        A rule of `gramless.approximation.landmarks` by name or with its settings, row numbers, or the points themselves. A
        rule chooses
        from a uniform sample of at most 50,000 rows (all where there are fewer), of a generator from its first rows (four
        for each landmark).
    loss : {"dual", "primal"}, default="dual"
        `"dual"` has the term `-y_B^T v`, which pulls the model through the labels of the budget, the closer the more epochs
        are made, so few are better than many. `"primal"` leaves that term out and tends to the model of `NystromLSSVC`.
        Points given as an array have no labels: both are the same then.
    optimizer : {"sgd", "averaged_sgd", "adam"}, default="sgd"
        `"averaged_sgd"` returns the mean of the iterates of the second half.
    batch_size : int, default=64
        Rows in a step; 1 is one point at a time.
    epochs : int, default=30
        Passes over the rows in `fit`; `partial_fit` makes one, and so does a fit on a generator.
    dtype : {"float32", "float64"} or None, default=None
        Of the computation. None is float32 for float32 and byte data, else float64.
    device : {"cpu", "cuda", "auto"} or None, default=None
        None is where the data are.
    memory_budget : str, int, float or None, default=None
        What the fit may take: `"4GB"`, bytes, or a share of what is free; None is 70 % of it.
    callback : callable, a list of these, or None, default=None
        `callback(estimator, record) -> bool` is called after each epoch with an estimator that can already predict; a true
        answer stops the fit.
    verbose : int, default=0
        1 shows rows per second, or the loss of each epoch, and the time left.
    random_state : int, RandomState or None, default=None
        Seed of all that is drawn.

    Attributes
    ----------
    points_ : array of shape (m, n_features)
        The budget.
    dual_coef_ : ndarray of shape (m, n_outputs)
    intercept_ : ndarray of shape (n_outputs,)
    kernel_ : Kernel
        With every setting a number.
    C_ : float
        The regularisation used.
    history_ : list of dict
        One record for each epoch of `fit`: n_iter, seconds, loss (mean squared error of the batches as they came), step.
    pass_ : gramless.streaming.learners.Pass
        Where the pass stands: what `partial_fit` goes on with.

    See Also
    --------
    NystromLSSVR : The exact solution on the same points.
    LSSVR : All rows as points.

    References
    ----------
    S. Ma and M. Belkin, "Diving into the shallows: a computational perspective on large-scale shallow learning", 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import BudgetLSSVR
    >>> X = np.linspace(0, 6, 1000)[:, None]
    >>> model = BudgetLSSVR(budget=50, C=100.0, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.score(X, np.sin(X[:, 0])) > 0.99
    True
    """

    dual_coef_ = from_model("coef", "Coefficients of the points' kernel functions.")
    intercept_ = from_model("intercept", "The biases.")
    points_ = from_model("features.points", "The points that carry the model.")
    kernel_ = from_model("features.kernel", "The kernel, with every setting a number.")
    C_ = from_model("C", "The regularisation used.")

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        C: float = 1.0,
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        budget: float = 500,
        landmarks: Any = "uniform",
        loss: str = "dual",
        optimizer: str = "sgd",
        batch_size: int = 64,
        epochs: int = 30,
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
        self.budget = budget
        self.landmarks = landmarks
        self.loss = loss
        self.optimizer = optimizer
        self.batch_size = batch_size
        self.epochs = epochs
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
        kernel = kernel_from_settings(self)
        feature_map = LandmarkMap(kernel, self.budget, self.landmarks, whiten=False, size_name="budget")
        learner = Steps(self.C, optimizer=self.optimizer, batch_size=self.batch_size, epochs=self.epochs, loss=self.loss)
        return feature_map, learner, PassOptions.of(self, batch_rows=None)
