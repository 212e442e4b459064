"""Export of fitted models as ONNX graphs.

    to_onnx(model)     input "X" of shape (n, n_features), or one input for each column of a table;
                       outputs "label" (or "prediction"), "probabilities", "scores"

`scores` equals `decision_function` and `probabilities` equals `predict_proba`; the graph computes in the precision of the
model. `MODEL_GRAPHS` has one function for each supported type of estimator; other types raise an error with the type's name.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

import gramless
from gramless._version import __version__
from gramless.deployment.onnx.graph import Graph, Tensor
from gramless.deployment.onnx.kernels import kernel_block
from gramless.deployment.onnx.tables import link, table_columns, table_inputs, table_scores
from gramless.deployment.onnx.transformers import column_parts, named_columns, transformed
from gramless.svm.multiclass import SupportVectorModel

Outputs = dict[str, Tensor]
ModelGraph = Callable[[Any, Any], Outputs]
# Pairwise probabilities are clipped at this distance from 0 and 1, as in `gramless.inference.probabilities`.
_SMALLEST = 1e-7
# Value added to the diagonal of the coupling matrix, which is singular if all pairwise probabilities are consistent.
_RIDGE = 1e-12


def to_onnx(model: Any) -> Any:
    """Convert a fitted model to ONNX.

    Parameters
    ----------
    model : estimator
        Fitted gramless estimator, scikit-learn pipeline that ends with such an estimator, or model of `gramless train`.

    Returns
    -------
    onnx.ModelProto
        Model with the input `X` in the dtype of the coefficients (float64 in a pipeline). Table models and pipelines that
        begin with a `ColumnTransformer` have one input of shape (n, 1) for each column: float64 with NaN for missing
        values, strings with "" for missing values, or dates as days since 1970. Outputs of classifiers are `label`,
        `scores` and, if the model has `predict_proba`, `probabilities`. The output of regressors is `prediction`. Outputs of
        outlier detectors are `prediction` (1 for inliers, -1 for outliers) and `scores`.

    See Also
    --------
    gramless.save : Write a file that gramless can load.

    Examples
    --------
    >>> import numpy as np
    >>> import onnxruntime
    >>> from sklearn.datasets import load_iris
    >>> from gramless import LSSVC, to_onnx
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LSSVC().fit(X, y)
    >>> session = onnxruntime.InferenceSession(to_onnx(model).SerializeToString())
    >>> label, scores = session.run(["label", "scores"], {"X": X})
    >>> bool((label == model.predict(X)).all())
    True
    """
    if importlib.util.find_spec("onnx") is None:
        raise ImportError("writing ONNX needs the package onnx: pip install 'gramless[onnx]'")
    model = getattr(model, "pipeline", model)  # models saved by `gramless train` have a pipeline
    *steps, estimator = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    name, is_table = type(estimator).__name__, isinstance(estimator, gramless.TableClassifier | gramless.TableRegressor)
    if type(estimator) not in MODEL_GRAPHS:
        known = ", ".join(sorted(cls.__name__ for cls in MODEL_GRAPHS))
        raise ValueError(f"{name} cannot be written as ONNX operators; supported estimators: {known}")
    check_is_fitted(estimator)
    if getattr(estimator, "multilabel_", False):
        raise ValueError(f"this {name} predicts several labels for each row, which cannot be written as ONNX operators")
    if is_table and steps:
        raise ValueError(f"{name} preprocesses columns itself: export it without steps before it")
    # Transformers compute in float64, also before a float32 estimator.
    dtype = np.dtype(np.float64) if steps or is_table else _precision(estimator)
    graph = Graph(dtype)
    x: Any
    if is_table:
        x = _inputs_of_columns(graph, table_columns(estimator))
    elif steps and isinstance(steps[0], ColumnTransformer):
        x = column_parts(steps[0], _inputs_of_columns(graph, named_columns(steps[0])))
        steps = steps[1:]
    else:
        width = int(getattr((*steps, estimator)[0], "n_features_in_", estimator.n_features_in_))
        x = graph.input("X", dtype, ["n", width])
    for step in steps:
        x = transformed(step, x)
    for output, value in MODEL_GRAPHS[type(estimator)](estimator, x).items():
        element = label_values(estimator.classes_).dtype if output == "label" else dtype
        flat = output == "label" or (output == "prediction" and _has_one_output(estimator))
        graph.output(output, value, element, ["n"] if flat else ["n", None])
    return graph.model(f"{name}, gramless {__version__}")


def _inputs_of_columns(graph: Graph, columns: list[tuple[str, bool]]) -> dict[str, Tensor]:
    """Add an input of shape (n, 1) for each column; `columns` has pairs of a name and True if the column has strings."""
    return {name: graph.input(name, object if strings else graph.dtype, ["n", 1]) for name, strings in columns}


def _precision(model: Any) -> np.dtype:
    """Return the dtype of the points of a model, or of the coefficients of a model without points."""
    array = next(getattr(model, name) for name in ("points_", "support_vectors_", "coef_") if hasattr(model, name))
    return np.dtype(np.float32 if array.dtype == np.float32 else np.float64)


def _has_one_output(model: Any) -> bool:
    """Return True if a regressor predicts one number for each row."""
    if isinstance(model, gramless.KernelSVR):
        return not model._predicts_quantiles or np.ndim(model.quantile) == 0
    return bool(getattr(model, "_single_output", True))


def _dense(points: Any) -> np.ndarray:
    return points.toarray() if sp.issparse(points) else np.asarray(points)


def _table(model: Any, columns: dict[str, Tensor]) -> Outputs:
    """Return the outputs of a table model from the weighted scores of its members, for classifiers with probabilities."""
    if model.model_ is not None:
        return MODEL_GRAPHS[type(model.model_)](model.model_, table_inputs(model, columns))
    scores = table_scores(model, columns)
    if not is_classifier(model):
        return {"prediction": scores.flat()}
    k = len(model.classes_)
    linked = link(scores, model.link_, k)
    return {
        "label": pick_labels(linked, model.classes_, one_column=False),
        "scores": linked if k > 2 else linked.columns(1) - linked.columns(0),
        "probabilities": linked.op("Softmax", axis=1),
    }


def _expansion(model: Any, x: Tensor) -> Outputs:
    """Return the outputs of a kernel expansion in the points of a model."""
    return _least_squares(model, kernel_block(model.kernel_, x, _dense(model.points_)) @ model.dual_coef_ + model.intercept_)


def _fourier(model: Any, x: Tensor) -> Outputs:
    """Return the outputs of a linear model on random Fourier features."""
    phases = x @ model.features_.frequencies()
    features = phases.op("Cos").op("Concat", phases.op("Sin"), axis=1) * float((model.features_.n_features // 2) ** -0.5)
    return _least_squares(model, features @ model.coef_ + model.intercept_)


def _least_squares(model: Any, scores: Tensor) -> Outputs:
    """Return the predictions and probabilities of a least-squares model."""
    if not is_classifier(model):
        return {"prediction": scores.flat() if _has_one_output(model) else scores}
    k = len(model.classes_)
    outputs = {"label": pick_labels(scores, model.classes_, one_column=k == 2), "scores": scores}
    if model.probability == "sigmoid":
        outputs["probabilities"] = sigmoids(scores, model.sigmoids_, k)
    elif model.probability is not False:
        outputs["probabilities"] = softmax(scores / float(getattr(model, "temperature_", 1.0)), k)
    return outputs


def _support_vectors(model: Any, x: Tensor) -> Outputs:
    """Return the outputs of a support vector regressor, or of binary classifiers combined by votes or one-vs-rest scores."""
    block = kernel_block(model.kernel_, x, _dense(model.support_vectors_))
    dual = _dense(model.dual_coef_)
    if not is_classifier(model):
        scores = block @ dual.T + model.intercept_
        if _has_one_output(model):
            return {"prediction": scores.flat()}
        ranks = np.argsort(np.argsort(model.quantile, kind="stable"))
        ascending = scores.op("TopK", np.array([len(ranks)]), axis=1, largest=0, sorted=1)
        return {"prediction": ascending.columns(*ranks)}
    problems = SupportVectorModel(model.support_, model.n_support_, dual, model.intercept_, [])
    pairs = block @ problems.by_problem().T + model.intercept_
    k = len(model.classes_)
    one_vs_one = k > 2 and model.multi_class == "ovo"
    scores = vote_scores(pairs, k) if one_vs_one else pairs
    by_pair = getattr(model, "decision_function_shape", "ovr") == "ovo"
    outputs = {"label": pick_labels(scores, model.classes_, one_column=k == 2), "scores": pairs if by_pair else scores}
    if getattr(model, "probability", False):
        probabilities = coupled if one_vs_one else sigmoids
        outputs["probabilities"] = probabilities(pairs, model.sigmoids_, k)
    return outputs


def _one_class(model: Any, x: Tensor) -> Outputs:
    """Return the scores of an outlier detector, with their signs as predictions."""
    block = kernel_block(model.kernel_, x, _dense(model.support_vectors_))
    scores = block @ _dense(model.dual_coef_).T - float(model.offset_)
    return {"prediction": (scores >= 0.0).where(1.0, -1.0).flat(), "scores": scores}


# Labels and probabilities from scores


def pick_labels(scores: Tensor, classes: np.ndarray, *, one_column: bool) -> Tensor:
    """Return the label of the largest score of each row, shape (n,); for one column of scores, the label by the sign."""
    codes = (scores.flat() > 0.0).cast(np.int64) if one_column else scores.op("ArgMax", axis=1, keepdims=0)
    return codes.graph.op("Gather", label_values(classes), codes, axis=0)


def label_values(classes: np.ndarray) -> np.ndarray:
    """Return labels in a dtype of ONNX: int64 for integers and booleans, float64 for other numbers, else strings."""
    if classes.dtype.kind in "iub":
        return classes.astype(np.int64)
    return classes.astype(np.float64) if classes.dtype.kind == "f" else classes.astype(str).astype(object)


def softmax(scores: Tensor, n_classes: int) -> Tensor:
    """Return the softmax of scores; for two classes, the sigmoid of the only score and its complement."""
    return scores.op("Softmax", axis=1) if n_classes > 2 else _with_complement(scores.op("Sigmoid"))


def sigmoids(scores: Tensor, parameters: np.ndarray, n_classes: int) -> Tensor:
    """Return Platt's sigmoids of scores, normalised over the classes; `parameters` has their slopes and offsets."""
    p = _sigmoid(scores, parameters)
    if n_classes == 2:
        return _with_complement(p)
    total = p.sum(1)
    share = p / total.op("Max", float(np.finfo(p.graph.dtype).tiny))
    return (total > 0.0).where(share, 1.0 / n_classes)


def coupled(scores: Tensor, parameters: np.ndarray, n_classes: int) -> Tensor:
    """Return class probabilities `p` from the sigmoids of all pairs of classes: `Q p = c 1`, with c such that p sums to 1.

    `Q` is the positive semi-definite matrix of `gramless.inference.probabilities`. Gaussian elimination therefore needs no
    pivoting; the graph has one elimination step for each class.
    """
    k, (first, second) = n_classes, _pairs(n_classes)
    r = _sigmoid(scores, parameters).op("Clip", _SMALLEST, 1 - _SMALLEST)
    other = 1.0 - r
    # Each entry of Q is a sum of products of pairwise probabilities, computed by a product with a constant matrix.
    products = -np.einsum("pi,pj->pij", first + second, first + second) * (1 - np.eye(k))
    Q = (r * r) @ _diagonals(second) + (other * other) @ _diagonals(first) + (r * other) @ products.reshape(-1, k * k)
    rows = Q.op("Reshape", np.array([-1, k, k])) + _RIDGE * np.eye(k)
    ones = rows.op("Gather", np.array([0]), axis=2) * 0.0 + 1.0
    system = rows.op("Concat", ones, axis=2)
    for step in range(k):
        pivot_row = system.columns(step)
        pivot_row = pivot_row / pivot_row.op("Gather", np.array([step]), axis=2)
        is_pivot = (np.arange(k) == step)[None, :, None]
        eliminated = system - system.op("Gather", np.array([step]), axis=2) * pivot_row
        system = system.graph.op("Where", is_pivot, pivot_row, eliminated)
    solution = system.op("Gather", np.array([k]), axis=2).op("Squeeze", np.array([2]))
    p = (solution / solution.sum(1)).op("Max", 0.0)
    return p / p.sum(1)


def vote_scores(scores: Tensor, n_classes: int) -> Tensor:
    """Return the number of pairwise votes for each class, plus a confidence below one half that breaks ties."""
    first, second = _pairs(n_classes)
    wins = (scores > 0.0).as_float()
    confidence = scores @ (first - second)
    return wins @ first + (1.0 - wins) @ second + confidence / ((confidence.op("Abs") + 1.0) * 3.0)


def _pairs(n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return indicators of the first and of the second class of each pair, of shape (n_pairs, n_classes)."""
    first, second = np.triu_indices(n_classes, 1)
    return np.eye(n_classes)[first], np.eye(n_classes)[second]


def _diagonals(indicators: np.ndarray) -> np.ndarray:
    """Return, for each row, the diagonal matrix with the entries of the row, flattened."""
    return np.stack([np.diag(row).ravel() for row in indicators])


def _sigmoid(scores: Tensor, parameters: np.ndarray) -> Tensor:
    slope, offset = np.asarray(parameters, dtype=np.float64).T
    return (scores * -slope - offset).op("Sigmoid")


def _with_complement(p: Tensor) -> Tensor:
    return (1.0 - p).op("Concat", p, axis=1)


MODEL_GRAPHS: dict[type, ModelGraph] = {
    **dict.fromkeys((gramless.LSSVC, gramless.LSSVR, gramless.NystromLSSVC, gramless.NystromLSSVR), _expansion),
    **dict.fromkeys((gramless.BudgetLSSVC, gramless.BudgetLSSVR), _expansion),
    **dict.fromkeys((gramless.RiSVOClassifier, gramless.PrototypeLSSVC), _expansion),
    **dict.fromkeys((gramless.FourierLSSVC, gramless.FourierLSSVR), _fourier),
    **dict.fromkeys((gramless.KernelSVC, gramless.KernelSVR, gramless.MKLClassifier), _support_vectors),
    gramless.KernelOneClassSVM: _one_class,
    **dict.fromkeys((gramless.TableClassifier, gramless.TableRegressor), _table),
}
"""Functions that write estimators as ONNX nodes, by estimator type; functions of table models take a dict of columns."""
