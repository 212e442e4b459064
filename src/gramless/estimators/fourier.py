"""Least-squares support vector machine on random Fourier features.

    f(x) = w . phi(x) + b,   min_{w, b}  1/2 ||w||^2 + C/2 sum_i (z_i - f(x_i))^2

is solved in the primal, with features `phi` of `FourierMap`, whose inner products approximate an RBF, Laplacian or Matern
kernel. `method="exact"` sums the normal equations in one pass (`NormalEquations`): the model does not depend on the order of
the rows or on their batches. `method="online"` takes a gradient step for each mini-batch (`GradientDescent`).

Cost for D features: O(d D + D^2) time for each row (exact), O(D^2) memory for any number of rows; a prediction is O(d D).

Reference: Rahimi and Recht, "Random features for large-scale kernel machines", 2007.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils._param_validation import StrOptions

from gramless._core.constraints import POSITIVE, estimator, inherit_parameter_docs
from gramless.approximation.features.fourier_map import DRAWS, FourierMap
from gramless.estimators.one_pass import OnePassEstimator, model_attribute, pass_options
from gramless.inference.probabilities import LEAVE_ONE_OUT_METHODS, probability_constraint
from gramless.kernels import kernel_from_parameters
from gramless.streaming.learners.gradient import OPTIMIZERS, GradientDescent
from gramless.streaming.learners.normal_equations import C_PATH, NormalEquations
from gramless.streaming.learners.planning import PassSettings

_CONSTRAINTS: dict[str, Any] = {
    "C": [POSITIVE, StrOptions({"loo"})],
    "draw": [StrOptions(set(DRAWS))],
    "method": [StrOptions({"exact", "online"})],
    "optimizer": [StrOptions(set(OPTIMIZERS))],
    "probability": probability_constraint("softmax", *LEAVE_ONE_OUT_METHODS),
}


def fourier_settings(parameters: Mapping[str, Any], name: str) -> PassSettings:
    """Return the settings of a training pass: Fourier features, the learner that `method` names, and options."""
    probability, batch_size = parameters.get("probability"), parameters["batch_size"]
    leave_one_out = probability in LEAVE_ONE_OUT_METHODS
    feature_map = FourierMap(kernel_from_parameters(parameters), parameters["n_components"], parameters["draw"])
    if parameters["method"] == "exact":
        learner = NormalEquations(
            parameters["C"],
            parameters["Cs"],
            forgetting_factor=parameters["forgetting_factor"],
            leave_one_out=leave_one_out,
            keep_rows="probability" not in parameters,  # regressors need a sample of the rows for intervals
        )
        return PassSettings(feature_map, learner, pass_options(parameters, name, batch_size))
    if leave_one_out:
        raise ValueError(f"probability={probability!r} needs leave-one-out scores: use method='exact'")
    if parameters["forgetting_factor"] != 1:
        raise ValueError("forgetting_factor needs method='exact'")
    steps = GradientDescent(
        parameters["C"],
        optimizer=parameters["optimizer"],
        batch_size=64 if batch_size is None else batch_size,
        epochs=parameters["epochs"],
    )
    return PassSettings(feature_map, steps, pass_options(parameters, name, None))


@estimator
class FourierLSSVC(ClassifierMixin, OnePassEstimator):
    """Least-squares support vector classifier on random Fourier features, for data of any length.

    Prefer `FourierLSSVC` to scikit-learn's `RBFSampler` with a linear classifier if the data exceed the memory or arrive in
    batches; its orthogonal frequencies also approximate the kernel with fewer features.

    Parameters
    ----------
    kernel : {"rbf", "laplacian", "exponential", "matern32", "matern52"} or Kernel, default="rbf"
        Kernel function. The kernel must be stationary; inner products of the features approximate the kernel.
    C : float or "loo", default=1.0
        Inverse regularisation strength; a larger value fits the training rows more closely. `"loo"` selects the value of
        `Cs` with the smallest leave-one-out error, without refitting.
    gamma : float, "scale" or "auto", default="scale"
        Coefficient of a kernel given by name; `"scale"` is `1 / (n_features * X.var())` and `"auto"` is `1 / n_features`.
    n_components : int, default=500
        Number of features. The number is rounded up to an even number: one half are cosines, the other half are sines.
    draw : {"auto", "plain", "orthogonal", "structured"}, default="auto"
        Distribution of the random frequencies. `"plain"`: independent; `"orthogonal"`: orthogonal to each other, with
        smaller variance; `"structured"`: products of Hadamard matrices, faster for many columns. `"auto"` is `"plain"` for
        the Laplacian kernel of the city-block norm, `"structured"` for at least 2048 columns, and `"orthogonal"` otherwise.
    method : {"exact", "online"}, default="exact"
        Training method. `"exact"` sums the normal equations in one pass, `"online"` takes gradient steps in several passes.
    Cs : sequence of float, default=1e-3 to 1e6 in half decades
        Values of `C` that `C="loo"` compares.
    forgetting_factor : float, default=1.0
        Factor by which the weight of earlier rows is multiplied for each new row. 1 weights all rows equally.
    optimizer : {"sgd", "averaged_sgd", "adam"}, default="sgd"
        Variant of stochastic gradient descent. `"averaged_sgd"` returns the mean of the coefficients over the second half of
        the steps.
    epochs : int, default=30
        Number of passes over the rows in `fit`; `partial_fit` makes one pass.
    batch_size : int or None, default=None
        Number of rows processed at a time. The Notes give the meaning of None.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with `sample_weight`; `"balanced"` weights each class by the inverse of its
        frequency.
    probability : {"softmax", "sigmoid", "temperature", False}, default="softmax"
        Method that converts scores to the probabilities of `predict_proba`; False disables `predict_proba`. `"sigmoid"` and
        `"temperature"` are fitted to leave-one-out scores, and `predict_set` needs one of them.
    dtype : {"float32", "float64"} or None, default=None
        Floating-point precision of the computation; None uses float32 for float32 and uint8 data, else float64.
    device : {"cpu", "cuda", "auto"}, CUDA or None, default=None
        Device of the computation; None uses the device of the data. A `gramless.CUDA` object also sets precision and
        storage.
    memory_budget : str, int, float or None, default=None
        Upper bound on the memory that the fit allocates: a string such as `"4GB"`, a number of bytes, or a fraction of the
        free memory if at most 1; None is 70 % of the free memory.
    callback : callable, Checkpoint, a list of these, or None, default=None
        Function `callback(estimator, record)` called with the partially fitted estimator and a dict of progress values;
        returning True stops the fit. The function is called after each pass over the rows. A `gramless.callbacks.Checkpoint`
        saves the state of the pass, and the same fit resumes from the saved file.
    verbose : int, default=0
        If positive, write progress messages to standard error.
    random_state : int, RandomState or None, default=None
        Seed or generator for all random choices of the fit; an int makes the fit reproducible.

    Attributes
    ----------
    classes_ : ndarray
        Sorted labels.
    coef_ : ndarray of shape (n_components, n_outputs)
        Coefficients of the features.
    intercept_ : ndarray of shape (n_outputs,)
        Intercept of each output.
    features_ : Features
        Feature map: `decision_function(X) = features_(X) @ coef_ + intercept_`.
    kernel_ : Kernel
        Kernel with numeric parameters.
    C_ : float
        Value of `C` of the model.
    loo_errors_ : ndarray
        With `C="loo"`, the leave-one-out squared error for each value of `Cs`.
    history_ : list of dict
        One record for each pass of `fit`: n_iter, seconds and, with `method="online"`, loss and step.
    pass_ : TrainingPass
        State of the training pass, which `partial_fit` continues.

    See Also
    --------
    NystromLSSVC : Landmark features instead of random features.
    LSSVC : Classifier with the exact kernel.

    Notes
    -----
    `C="loo"`, `forgetting_factor`, `probability="sigmoid"` and `"temperature"` need `method="exact"`; `optimizer` and
    `epochs` are used by `method="online"`. `class_weight="balanced"` needs `X` and `y` as arrays.

    `batch_size=None` is 4096 rows, or fewer if the memory budget requires it; with `method="online"`, the batch of one step
    has 64 rows. A `Checkpoint` needs `method="exact"`.

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

    n_components: int = 500
    draw: str = "auto"
    method: str = "exact"
    Cs: Any = C_PATH
    forgetting_factor: float = 1.0
    optimizer: str = "sgd"
    epochs: int = 30
    batch_size: int | None = None
    class_weight: Any = None
    probability: str | bool = "softmax"

    _parameter_constraints: ClassVar[dict[str, Any]] = _CONSTRAINTS
    _settings = fourier_settings

    coef_ = model_attribute("coef", "Coefficients of the features.")
    features_ = model_attribute("features", "Feature map with its random frequencies.")


@inherit_parameter_docs(FourierLSSVC)
@estimator
class FourierLSSVR(RegressorMixin, MultiOutputMixin, OnePassEstimator):
    """Least-squares support vector regressor on random Fourier features, for data of any length.

    Prefer `FourierLSSVR` to scikit-learn's `RBFSampler` with `Ridge` if the data exceed the memory or arrive in batches, or
    if prediction intervals are needed.

    Attributes
    ----------
    coef_ : ndarray of shape (n_components, n_outputs)
        Coefficients of the features.
    intercept_ : ndarray of shape (n_outputs,)
        Intercept of each output.
    features_ : Features
        Feature map: `predict(X) = features_(X) @ coef_ + intercept_`.
    kernel_ : Kernel
        Kernel with numeric parameters.
    C_ : float
        Value of `C` of the model.
    loo_errors_ : ndarray
        With `C="loo"`, the leave-one-out squared error for each value of `Cs`.
    history_ : list of dict
        One record for each pass of `fit`: n_iter, seconds and, with `method="online"`, loss and step.
    pass_ : TrainingPass
        State of the training pass, which `partial_fit` continues.

    See Also
    --------
    NystromLSSVR : Landmark features instead of random features.
    LSSVR : Regressor with the exact kernel.

    Notes
    -----
    `C="loo"`, `forgetting_factor` and a `Checkpoint` need `method="exact"`; `optimizer` and `epochs` are used by
    `method="online"`. `batch_size=None` is 4096 rows, or fewer if the memory budget requires it; with `method="online"`, the
    batch of one step has 64 rows.

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

    n_components: int = 500
    draw: str = "auto"
    method: str = "exact"
    Cs: Any = C_PATH
    forgetting_factor: float = 1.0
    optimizer: str = "sgd"
    epochs: int = 30
    batch_size: int | None = None

    _parameter_constraints: ClassVar[dict[str, Any]] = _CONSTRAINTS
    _settings = fourier_settings

    coef_ = model_attribute("coef", "Coefficients of the features.")
    features_ = model_attribute("features", "Feature map with its random frequencies.")
