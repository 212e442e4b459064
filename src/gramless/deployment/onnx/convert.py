"""A fitted model as an ONNX graph.

    to_onnx(model)     input "X" of shape (n, n_features), or one input for each column of a table;
                       outputs "label" (or "prediction"), "probabilities", "scores"

`scores` is what `decision_function` gives, `probabilities` what `predict_proba` gives. Numbers are those of the model:
float32 where its points are. Only operators of the ONNX standard are used. What one estimator computes is one function,
found by type in `MODEL_GRAPHS`; a type that is not there is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from gramless._version import __version__
from gramless.deployment.onnx.graph import Graph
from gramless.deployment.onnx.kernels import kernel_block
from gramless.deployment.onnx.probabilities import coupled, label_values, pick_labels, sigmoids, softmax, vote_scores
from gramless.deployment.onnx.tables import link, table_columns, table_scores
from gramless.deployment.onnx.transformers import column_parts, named_columns, transformed
from gramless.estimators.budget import BudgetLSSVC, BudgetLSSVR
from gramless.estimators.fourier import FourierLSSVC, FourierLSSVR
from gramless.estimators.lssvm import LSSVC, LSSVR
from gramless.estimators.lssvm_cv import LSSVCCV, LSSVRCV
from gramless.estimators.mkl import MKLClassifier
from gramless.estimators.nystrom import NystromLSSVC, NystromLSSVR
from gramless.estimators.one_class import KernelOneClassSVM
from gramless.estimators.prototypes import PrototypeLSSVC
from gramless.estimators.risvo import RiSVOClassifier
from gramless.estimators.svc import KernelSVC
from gramless.estimators.svr import KernelSVR
from gramless.estimators.table import TableClassifier, TableRegressor
from gramless.svm.multiclass import SupportVectorModel

Outputs = dict[str, str]
ModelGraph = Callable[[Graph, Any, str], Outputs]


def to_onnx(model: Any) -> Any:
    """A fitted model for ONNX runtimes.

    Parameters
    ----------
    model : estimator
        A fitted estimator of this library, a scikit-learn pipeline that ends with one, or what `gramless train` saved.

    Returns
    -------
    onnx.ModelProto
        With the input `X`, in the dtype of the model's coefficients (float64 behind other steps); or, for tables and
        pipelines that begin with a `ColumnTransformer`, one input of shape (n, 1) for each column: float64 with NaN for a
        gap, strings with "" for one, dates as days since 1970. And the outputs `label` and `scores` (and
        `probabilities` where the model has `predict_proba`), or `prediction` (and `scores` of an outlier detector, whose
        predictions are 1 and -1).

    See Also
    --------
    gramless.save : A file that this library reads again.

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
    try:
        from onnx import TensorProto, helper
    except ImportError:
        raise ImportError("writing ONNX needs the package onnx: pip install 'gramless[onnx]'") from None
    model = getattr(model, "onnx_source", model)  # what `gramless train` saves holds a pipeline
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    machine = steps[-1]
    _check_known(machine)
    check_is_fitted(machine)
    if getattr(machine, "multilabel_", False):
        raise ValueError(f"this {type(machine).__name__} gives several labels to a row, which cannot be written as ONNX yet")
    by_column = type(machine) in TABLE_MODELS or isinstance(steps[0], ColumnTransformer)
    # What stands before a machine computes in float64, whatever the machine does.
    dtype = _number_type(machine) if len(steps) == 1 and not by_column else np.dtype(np.float64)
    graph = Graph(dtype)
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    if by_column:
        columns = table_columns(machine) if type(machine) in TABLE_MODELS else named_columns(steps[0])
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.STRING if words else kind, ["n", 1]) for name, words in columns
        ]
        named = {name: name for name, _ in columns}
    else:
        width = int(getattr(steps[0], "n_features_in_", machine.n_features_in_))
        inputs = [helper.make_tensor_value_info("X", kind, ["n", width])]
    if type(machine) in TABLE_MODELS:
        if len(steps) > 1:
            raise ValueError(f"{type(machine).__name__} prepares columns itself: export it without steps before it")
        outputs = _table(graph, machine, named)
    else:
        x, rest = (column_parts(graph, steps[0], named), steps[1:-1]) if by_column else ("X", steps[:-1])
        for step in rest:
            x = transformed(graph, step, x)
        outputs = MODEL_GRAPHS[type(machine)](graph, machine, x)
    infos = []
    for name, value in outputs.items():
        graph.nodes.append(helper.make_node("Identity", [value], [name]))
        labels = label_values(machine.classes_) if name == "label" else None
        element = kind if labels is None else _element_type(labels)
        flat = name == "label" or (name == "prediction" and _is_single(machine))
        infos.append(helper.make_tensor_value_info(name, element, ["n"] if flat else ["n", None]))
    return graph.model(inputs, infos, f"{type(machine).__name__}, gramless {__version__}")


def _check_known(machine: Any) -> None:
    """Refuse by name what has no graph."""
    if type(machine) not in MODEL_GRAPHS and type(machine) not in TABLE_MODELS:
        known = ", ".join(sorted(cls.__name__ for cls in (*MODEL_GRAPHS, *TABLE_MODELS)))
        raise ValueError(f"{type(machine).__name__} cannot be written as ONNX operators; those that can: {known}")


def _table(graph: Graph, model: Any, columns: dict[str, str]) -> Outputs:
    """All members of a table model, their average, and the calibrated softmax."""
    scores = table_scores(graph, model, columns)
    if not is_classifier(model):
        return {"prediction": graph.op("Squeeze", scores, graph.axes(1))}
    k = len(model.classes_)
    linked = link(graph, scores, model.link_, k)
    codes = graph.op("ArgMax", linked, axis=1, keepdims=0)
    shown = linked
    if k == 2:
        first, second = (graph.op("Gather", linked, graph.axes(place), axis=1) for place in (0, 1))
        shown = graph.op("Sub", second, first)
    return {
        "label": graph.op("Gather", label_values(model.classes_), codes, axis=0),
        "scores": shown,
        "probabilities": graph.op("Softmax", linked, axis=1),
    }


def _number_type(model: Any) -> np.dtype:
    """The dtype in which the model computes: that of the points, or of the coefficients of features."""
    carried = next(getattr(model, name) for name in ("points_", "support_vectors_", "coef_") if hasattr(model, name))
    return np.dtype(np.float32 if carried.dtype == np.float32 else np.float64)


def _is_single(model: Any) -> bool:
    """Whether a regressor predicts one number for each row."""
    return bool(getattr(model, "_single_output", True)) and not getattr(model, "_gives_columns", False)


def _element_type(labels: np.ndarray) -> int:
    from onnx import TensorProto, helper

    return TensorProto.STRING if labels.dtype == object else helper.np_dtype_to_tensor_dtype(labels.dtype)


def _dense(points: Any) -> np.ndarray:
    return points.toarray() if sp.issparse(points) else np.asarray(points)


def _expansion(graph: Graph, model: Any, x: str) -> Outputs:
    """Kernel values with the points, times the coefficients."""
    block = kernel_block(graph, model.kernel_, x, _dense(model.points_))
    return _from_linear(graph, model, block, model.dual_coef_)


def _fourier(graph: Graph, model: Any, x: str) -> Outputs:
    """Cosines and sines of random projections, times the coefficients."""
    phases = graph.op("MatMul", x, graph.number(model.features_.frequencies()))
    features = graph.op("Concat", graph.op("Cos", phases), graph.op("Sin", phases), axis=1)
    features = graph.op("Mul", features, float((model.features_.n_features // 2) ** -0.5))
    return _from_linear(graph, model, features, model.coef_)


def _from_linear(graph: Graph, model: Any, features: str, coef: np.ndarray) -> Outputs:
    scores = graph.op("Add", graph.op("MatMul", features, graph.number(coef)), graph.number(model.intercept_))
    if not is_classifier(model):
        return {"prediction": graph.op("Squeeze", scores, graph.axes(1)) if _is_single(model) else scores}
    k = len(model.classes_)
    outputs = {"label": pick_labels(graph, scores, model.classes_), "scores": scores}
    if model.probability == "sigmoid":
        outputs["probabilities"] = sigmoids(graph, scores, model.sigmoids_, k)
    elif model.probability is not False:
        cooled = graph.op("Div", scores, float(getattr(model, "temperature_", 1.0)))
        outputs["probabilities"] = softmax(graph, cooled, k)
    return outputs


def _support_vectors(graph: Graph, model: Any, x: str) -> Outputs:
    """Two-class machines on shared support vectors; their votes, or the largest score."""
    block = kernel_block(graph, model.kernel_, x, _dense(model.support_vectors_))
    dual = _dense(model.dual_coef_)
    if not is_classifier(model):
        scores = graph.op("Add", graph.op("MatMul", block, graph.number(dual.T)), graph.number(model.intercept_))
        if _is_single(model):
            return {"prediction": graph.op("Squeeze", scores, graph.axes(1))}
        ranks = np.argsort(np.argsort(model.quantile, kind="stable"))
        ordered = graph.smallest_first(scores, len(ranks))
        return {"prediction": graph.op("Gather", ordered, graph.axes(*ranks), axis=1)}
    coef = SupportVectorModel(model.support_, model.n_support_, dual, model.intercept_, []).by_problem().T
    pairs = graph.op("Add", graph.op("MatMul", block, graph.number(coef)), graph.number(model.intercept_))
    k = len(model.classes_)
    one_vs_one = k > 2 and model.multi_class == "ovo"
    scores = vote_scores(graph, pairs, k) if one_vs_one else pairs
    shown = pairs if getattr(model, "decision_function_shape", "ovr") == "ovo" else scores
    outputs = {"label": pick_labels(graph, scores, model.classes_), "scores": shown}
    if getattr(model, "probability", False):
        write = coupled if one_vs_one else sigmoids
        outputs["probabilities"] = write(graph, pairs, model.sigmoids_, k)
    return outputs


def _one_class(graph: Graph, model: Any, x: str) -> Outputs:
    """How far inside each row is, and 1 or -1."""
    block = kernel_block(graph, model.kernel_, x, _dense(model.support_vectors_))
    inside = graph.op("MatMul", block, graph.number(_dense(model.dual_coef_).T))
    scores = graph.op("Sub", inside, graph.number([model.offset_]))
    outlier = graph.op("Less", scores, graph.number([0.0]))
    sides = graph.op("Where", outlier, graph.number([-1.0]), graph.number([1.0]))
    return {"prediction": graph.op("Squeeze", sides, graph.axes(1)), "scores": scores}


MODEL_GRAPHS: dict[type, ModelGraph] = {
    **dict.fromkeys(
        (
            LSSVC,
            LSSVR,
            LSSVCCV,
            LSSVRCV,
            NystromLSSVC,
            NystromLSSVR,
            BudgetLSSVC,
            BudgetLSSVR,
            RiSVOClassifier,
            PrototypeLSSVC,
        ),
        _expansion,
    ),
    **dict.fromkeys((FourierLSSVC, FourierLSSVR), _fourier),
    **dict.fromkeys((KernelSVC, KernelSVR, MKLClassifier), _support_vectors),
    KernelOneClassSVM: _one_class,
}
"""How each estimator is written as ONNX operators."""
TABLE_MODELS = (TableClassifier, TableRegressor)
"""Estimators of tables, which have an input for each column."""
