"""Online least-squares support vector machine on a budget of points.

The model is `f(x) = v^T k(B, x) + b`, with a budget B of `beta` points and `v = alpha y` (a column per class). The dual loss

    L(v, b) = 1/2 v^T K_BB v - y_B^T v + C/2 sum_i (y_i - v^T k(B, x_i) - b)^2

is minimised by mini-batch gradient descent. The gradient for a sampled row j is

    dL/dv = K_BB v - y_B - C n (y_j - f(x_j)) k(B, x_j),     dL/db = -C n (y_j - f(x_j)) .

The term `y_B^T v` counteracts the regularisation: on a budget of all rows the minimiser is `v = K^-1 y, b = 0` for every C,
which interpolates all labels including noise (and does not exist if two equal rows have opposite labels). The model
generalises only by early stopping, so `epochs` regularises as much as `C`. `loss="primal"` omits the term and converges to
the model of `NystromLSSVC` on the same points.

A regressor subtracts the mean of the targets, estimated on a sample of the rows, before the first step.

A multi-class model has one set of points, and the kernel values of a batch are used for all classes (`LandmarkMap`,
`GradientDescent`). The kernel values cost O(beta d) for each row: in every epoch, or once if all values fit into half of
the memory budget. The gradient of the penalty costs O(beta^2), and is added once in several batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils._param_validation import StrOptions

from gramless._core.constraints import FRACTION, POSITIVE, POSITIVE_INTEGER, estimator, inherit_parameter_docs
from gramless.approximation.features.landmark_map import LandmarkMap
from gramless.estimators.one_pass import OnePassEstimator, model_attribute, pass_options
from gramless.inference.probabilities import probability_constraint
from gramless.kernels import kernel_from_parameters
from gramless.streaming.learners.gradient import LOSSES, OPTIMIZERS, GradientDescent
from gramless.streaming.learners.planning import PassSettings

_CONSTRAINTS: dict[str, Any] = {
    "budget": [POSITIVE_INTEGER, FRACTION],
    "loss": [StrOptions(set(LOSSES))],
    "optimizer": [StrOptions(set(OPTIMIZERS))],
    "learning_rate": [POSITIVE, None],
    "batch_size": [POSITIVE_INTEGER],
    "probability": probability_constraint("softmax"),
}


def budget_settings(parameters: Mapping[str, Any], name: str) -> PassSettings:
    """Return the settings of a training pass: kernel values with the points as features, gradient descent, and options."""
    kernel = kernel_from_parameters(parameters)
    feature_map = LandmarkMap(kernel, parameters["budget"], parameters["landmarks"], whiten=False, size_name="budget")
    learner = GradientDescent(
        parameters["C"],
        optimizer=parameters["optimizer"],
        learning_rate=parameters["learning_rate"],
        batch_size=parameters["batch_size"],
        epochs=parameters["epochs"],
        loss=parameters["loss"],
    )
    return PassSettings(feature_map, learner, pass_options(parameters, name, None))


@estimator
class BudgetLSSVC(ClassifierMixin, OnePassEstimator):
    """Least-squares support vector classifier on a fixed number of points, learned online by gradient descent.

    Prefer `BudgetLSSVC` to scikit-learn's `SGDClassifier` on `Nystroem` features if a kernel model must be updated with new
    rows. The step size needs no tuning.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        Kernel function. A name, an expression of `gramless.kernels`, or a function `f(X, Y)` that returns the kernel matrix.
    C : float, default=1.0
        Inverse regularisation strength; a larger value fits the training rows more closely.
    gamma : float, "scale" or "auto", default="scale"
        Coefficient of a kernel given by name; `"scale"` is `1 / (n_features * X.var())` and `"auto"` is `1 / n_features`.
    degree : int, default=3
        Degree of the polynomial kernel; ignored by other kernels.
    coef0 : float, default=0.0
        Constant term of the polynomial and sigmoid kernels; ignored by other kernels.
    budget : int or float, default=500
        Number of points of the model, or a fraction of the rows if it is a float at most 1. `partial_fit` needs an int.
    landmarks : str, LandmarkRule or array, default="uniform"
        Rule that selects the landmarks: a name or object of `gramless.approximation.landmarks`, row indices, or the points
        themselves. A rule selects from a uniform sample of at most 50,000 rows; if a generator yields the rows, the rule
        selects from the first rows (four for each landmark).
    loss : {"dual", "primal"}, default="dual"
        Loss function that the fit minimises. `"dual"` has the term `-y^T v`, with the labels `y` and coefficients `v` of the
        points: each epoch fits these labels more closely, so few epochs are better than many. `"primal"` converges to the
        model of `NystromLSSVC`. Points given as an array have no labels, and both losses are equal.
    optimizer : {"sgd", "averaged_sgd", "adam"}, default="sgd"
        Variant of stochastic gradient descent. `"averaged_sgd"` returns the mean of the coefficients over the second half of
        the steps.
    learning_rate : float or None, default=None
        Constant step size of plain stochastic gradient descent for the mean squared error; for the gradient of `loss` the
        step size is divided by `C n_samples`. None derives decreasing step sizes from the curvature of the loss.
    batch_size : int, default=64
        Number of rows processed at a time. Each step uses one batch.
    epochs : int, default=30
        Number of passes over the rows in `fit`; `partial_fit` makes one pass.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with `sample_weight`; `"balanced"` weights each class by the inverse of its
        frequency.
    probability : {"softmax", False}, default="softmax"
        Method that converts scores to the probabilities of `predict_proba`; False disables `predict_proba`.
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
        returning True stops the fit. The Notes describe when the function is called.
    verbose : int, default=0
        If positive, write progress messages to standard error.
    random_state : int, RandomState or None, default=None
        Seed or generator for all random choices of the fit; an int makes the fit reproducible.

    Attributes
    ----------
    classes_ : ndarray
        Sorted labels.
    points_ : array of shape (m, n_features)
        Points of the budget.
    dual_coef_ : ndarray of shape (m, n_outputs)
        Coefficients of the kernel functions of the points.
    intercept_ : ndarray of shape (n_outputs,)
        Intercept of each output.
    kernel_ : Kernel
        Kernel with numeric parameters.
    C_ : float
        Value of `C` of the model.
    history_ : list of dict
        One record for each epoch of `fit`: n_iter, seconds, loss (mean squared error of the batches, each before the step on
        it) and step (step size).
    pass_ : TrainingPass
        State of the training pass, which `partial_fit` continues.

    See Also
    --------
    NystromLSSVC : Exact solution instead of gradient descent.
    LSSVC : Model with all training rows as points.

    Notes
    -----
    `callback` is called after each epoch.

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

    degree: int = 3
    coef0: float = 0.0
    budget: float = 500
    landmarks: Any = "uniform"
    loss: str = "dual"
    optimizer: str = "sgd"
    learning_rate: float | None = None
    batch_size: int = 64
    epochs: int = 30
    class_weight: Any = None
    probability: str | bool = "softmax"

    _parameter_constraints: ClassVar[dict[str, Any]] = _CONSTRAINTS
    _settings = budget_settings
    _has_sums = False

    dual_coef_ = model_attribute("coef", "Coefficients of the kernel functions of the points.")


@inherit_parameter_docs(BudgetLSSVC)
@estimator
class BudgetLSSVR(RegressorMixin, MultiOutputMixin, OnePassEstimator):
    """Least-squares support vector regressor on a fixed number of points, learned online by gradient descent.

    Prefer `BudgetLSSVR` to scikit-learn's `SGDRegressor` on `Nystroem` features if a kernel model must be updated with new
    rows. The step size needs no tuning.

    Attributes
    ----------
    points_ : array of shape (m, n_features)
        Points of the budget.
    dual_coef_ : ndarray of shape (m, n_outputs)
        Coefficients of the kernel functions of the points.
    intercept_ : ndarray of shape (n_outputs,)
        Intercept of each output.
    kernel_ : Kernel
        Kernel with numeric parameters.
    C_ : float
        Value of `C` of the model.
    history_ : list of dict
        One record for each epoch of `fit`: n_iter, seconds, loss (mean squared error of the batches, each before the step on
        it) and step (step size).
    pass_ : TrainingPass
        State of the training pass, which `partial_fit` continues.

    See Also
    --------
    NystromLSSVR : Exact solution instead of gradient descent.
    LSSVR : Model with all training rows as points.

    Notes
    -----
    `callback` is called after each epoch.

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

    degree: int = 3
    coef0: float = 0.0
    budget: float = 500
    landmarks: Any = "uniform"
    loss: str = "dual"
    optimizer: str = "sgd"
    learning_rate: float | None = None
    batch_size: int = 64
    epochs: int = 30

    _parameter_constraints: ClassVar[dict[str, Any]] = _CONSTRAINTS
    _settings = budget_settings
    _has_sums = False

    dual_coef_ = model_attribute("coef", "Coefficients of the kernel functions of the points.")
