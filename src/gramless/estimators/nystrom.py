"""Fixed-size least-squares support vector machine on landmarks (Nyström), in one pass over the data.

    f(x) = sum_{j <= m} a_j K(x, l_j) + b,   (K_mn K_nm + (1 / C) K_mm) a = K_mn (z - b)

is the least-squares SVM in the primal, on features from the m landmarks `l_j` (`LandmarkMap`). The normal equations are
summed over the rows (`NormalEquations`) and solved in coordinates in which the penalty `K_mm` is the identity, so another
order or other batches of the rows change the model by at most 1e-12, even if `K_mm` is singular to rounding.

Cost: O(m d + m^2) time for each row, O(m^2) memory for any number of rows, O(m^3) once; a prediction needs m kernel values.

References: Suykens et al., "Least Squares Support Vector Machines", 2002; De Brabanter et al., "Optimized fixed-size kernel
models for large data sets", 2010.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils._param_validation import StrOptions

from gramless._core.constraints import POSITIVE, estimator, inherit_parameter_docs
from gramless.approximation.features.landmark_map import LandmarkMap
from gramless.estimators.one_pass import OnePassEstimator, model_attribute, pass_options
from gramless.inference.probabilities import LEAVE_ONE_OUT_METHODS, probability_constraint
from gramless.kernels import kernel_from_parameters
from gramless.linalg.solvers import CG
from gramless.streaming.learners.normal_equations import C_PATH, NormalEquations
from gramless.streaming.learners.planning import PassSettings

_CONSTRAINTS: dict[str, Any] = {
    "C": [POSITIVE, StrOptions({"loo"})],
    "solver": [StrOptions({"auto", "sums", "cg"}), CG],
    "probability": probability_constraint("softmax", *LEAVE_ONE_OUT_METHODS),
}


def landmark_settings(parameters: Mapping[str, Any], name: str) -> PassSettings:
    """Return the settings of a training pass: landmark features, the normal equations as learner, and options."""
    learner = NormalEquations(
        parameters["C"],
        parameters["Cs"],
        forgetting_factor=parameters["forgetting_factor"],
        leave_one_out=parameters.get("probability") in LEAVE_ONE_OUT_METHODS,
        keep_rows="probability" not in parameters,  # regressors need a sample of the rows for intervals
        solver=parameters["solver"],
    )
    kernel = kernel_from_parameters(parameters)
    feature_map = LandmarkMap(kernel, parameters["n_landmarks"], parameters["landmarks"])
    return PassSettings(feature_map, learner, pass_options(parameters, name, parameters["batch_size"]))


@estimator
class NystromLSSVC(ClassifierMixin, OnePassEstimator):
    """Least-squares support vector classifier on landmarks, fitted in one pass over data of any length.

    Prefer `NystromLSSVC` to scikit-learn's `Nystroem` with a linear classifier if the data exceed the memory or arrive in
    batches: `fit` reads files and streams, gives the same model for any batches, and selects `C` without refitting.

    Parameters
    ----------
    kernel : str, Kernel or callable, default="rbf"
        Kernel function. A name, an expression of `gramless.kernels`, or a function `f(X, Y)` that returns the kernel matrix.
    C : float or "loo", default=1.0
        Inverse regularisation strength; a larger value fits the training rows more closely. `"loo"` selects the value of
        `Cs` with the smallest leave-one-out error, without refitting.
    gamma : float, "scale" or "auto", default="scale"
        Coefficient of a kernel given by name; `"scale"` is `1 / (n_features * X.var())` and `"auto"` is `1 / n_features`.
    degree : int, default=3
        Degree of the polynomial kernel; ignored by other kernels.
    coef0 : float, default=0.0
        Constant term of the polynomial and sigmoid kernels; ignored by other kernels.
    n_landmarks : int or float, default=500
        Number of landmarks. A float at most 1 is a fraction of the rows; `partial_fit` needs an int.
    landmarks : str, LandmarkRule or array, default="uniform"
        Rule that selects the landmarks: a name or object of `gramless.approximation.landmarks`, row indices, or the points
        themselves. A rule selects from a uniform sample of at most 50,000 rows; if a generator yields the rows, the rule
        selects from the first rows (four for each landmark).
    Cs : sequence of float, default=1e-3 to 1e6 in half decades
        Values of `C` that `C="loo"` compares.
    solver : {"auto", "sums", "cg"} or CG, default="auto"
        Algorithm that solves the optimisation problem. With m landmarks, `"sums"` adds up the normal equations in one pass,
        O(m^2) for each row. `"cg"` is block conjugate gradients, O(m) for each row in each of several passes, until the
        predictions have converged. A `gramless.linalg.solvers.CG` object has its own tolerance. `"auto"` chooses by the
        sizes and the memory; the reason is in `solver_reason_`.
    forgetting_factor : float, default=1.0
        Factor by which the weight of earlier rows is multiplied for each new row. 1 weights all rows equally.
    batch_size : int or None, default=None
        Number of rows processed at a time. The Notes give the meaning of None.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with `sample_weight`; `"balanced"` weights each class by the inverse of its
        frequency.
    probability : {"softmax", "sigmoid", "temperature", False}, default="softmax"
        Method that converts scores to the probabilities of `predict_proba`; False disables `predict_proba`. `"sigmoid"` and
        `"temperature"` are fitted to leave-one-out scores, and `predict_set` needs one of them.
    warm_start : bool, default=False
        Whether to start from the coefficients of the previous fit if the shapes agree.
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
    points_ : array of shape (m, n_features)
        Landmarks.
    dual_coef_ : ndarray of shape (m, n_outputs)
        Coefficients of the kernel functions of the landmarks.
    intercept_ : ndarray of shape (n_outputs,)
        Intercept of each output.
    kernel_ : Kernel
        Kernel with numeric parameters.
    C_ : float
        Value of `C` of the model.
    loo_errors_ : ndarray
        With `C="loo"`, the leave-one-out squared error for each value of `Cs`.
    solver_ : {"sums", "cg"}
        Solver that was used.
    solver_reason_ : str
        Why the solver was chosen.
    jitter_ : float
        Number added to the diagonal of `K_mm`.
    history_ : list of dict
        One record for each pass of `fit`: n_iter, seconds and, with `solver="cg"`, residual.
    pass_ : TrainingPass
        State of the training pass, which `partial_fit` continues.

    See Also
    --------
    FourierLSSVC : Random features instead of landmarks.
    BudgetLSSVC : Gradient steps instead of normal equations, for very many landmarks.
    LSSVC : Classifier with all rows as landmarks.

    Notes
    -----
    `gamma="scale"` uses the variance of the rows from which the landmarks are selected. With `partial_fit` these are the
    first rows, so pass a number if the variance of later rows differs. `class_weight="balanced"` needs arrays.

    `batch_size=None` is 4096 rows, or fewer if the memory budget requires it; the model does not depend on `batch_size`.

    `warm_start=True` saves passes of `solver="cg"` if only `C`, weights or targets change between fits. Set `random_state`
    or `landmarks`, so that the landmarks are the same. `solver="sums"` sums over all rows in each fit; use `C="loo"`.

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

    degree: int = 3
    coef0: float = 0.0
    n_landmarks: float = 500
    landmarks: Any = "uniform"
    Cs: Any = C_PATH
    solver: Any = "auto"
    forgetting_factor: float = 1.0
    batch_size: int | None = None
    class_weight: Any = None
    probability: str | bool = "softmax"
    warm_start: bool = False

    _parameter_constraints: ClassVar[dict[str, Any]] = _CONSTRAINTS
    _settings = landmark_settings

    dual_coef_ = model_attribute("coef", "Coefficients of the kernel functions of the landmarks.")
    solver_ = model_attribute("solver", "Solver that was used.")
    solver_reason_ = model_attribute("reason", "Why the solver was chosen.")


@inherit_parameter_docs(NystromLSSVC)
@estimator
class NystromLSSVR(RegressorMixin, MultiOutputMixin, OnePassEstimator):
    """Least-squares support vector regressor on landmarks, fitted in one pass over data of any length.

    Prefer `NystromLSSVR` to scikit-learn's `Nystroem` with `Ridge` if the data exceed the memory or arrive in batches, or if
    prediction intervals are needed.

    Attributes
    ----------
    points_ : array of shape (m, n_features)
        Landmarks.
    dual_coef_ : ndarray of shape (m, n_outputs)
        Coefficients of the kernel functions of the landmarks.
    intercept_ : ndarray of shape (n_outputs,)
        Intercept of each output.
    kernel_ : Kernel
        Kernel with numeric parameters.
    C_ : float
        Value of `C` of the model.
    loo_errors_ : ndarray
        With `C="loo"`, the leave-one-out squared error for each value of `Cs`.
    solver_ : {"sums", "cg"}
        Solver that was used.
    solver_reason_ : str
        Why the solver was chosen.
    jitter_ : float
        Number added to the diagonal of `K_mm`.
    history_ : list of dict
        One record for each pass of `fit`: n_iter, seconds and, with `solver="cg"`, residual.
    pass_ : TrainingPass
        State of the training pass, which `partial_fit` continues.

    See Also
    --------
    FourierLSSVR : Random features instead of landmarks.
    BudgetLSSVR : Gradient steps instead of normal equations, for very many landmarks.
    LSSVR : Regressor with all rows as landmarks.

    Notes
    -----
    `batch_size=None` is 4096 rows, or fewer if the memory budget requires it; the model does not depend on `batch_size`.

    `warm_start=True` saves passes of `solver="cg"` if only `C`, weights or targets change between fits. Set `random_state`
    or `landmarks`, so that the landmarks are the same. `solver="sums"` sums over all rows in each fit; use `C="loo"`.

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

    degree: int = 3
    coef0: float = 0.0
    n_landmarks: float = 500
    landmarks: Any = "uniform"
    Cs: Any = C_PATH
    solver: Any = "auto"
    forgetting_factor: float = 1.0
    batch_size: int | None = None
    warm_start: bool = False

    _parameter_constraints: ClassVar[dict[str, Any]] = _CONSTRAINTS
    _settings = landmark_settings

    dual_coef_ = model_attribute("coef", "Coefficients of the kernel functions of the landmarks.")
    solver_ = model_attribute("solver", "Solver that was used.")
    solver_reason_ = model_attribute("reason", "Why the solver was chosen.")
