"""Kernels as ONNX graphs: from rows and points to a block of kernel values.

Each kernel has one function, which is selected by type in `KERNEL_GRAPHS`. Inner products and Euclidean distances are matrix
products; kernels that compare features one by one need a temporary of rows x points x features. Stationary kernels are
computed relative to the mean of the points, which reduces rounding errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gramless.deployment.onnx.graph import Graph
from gramless.kernels import (
    RBF,
    Chi2,
    Columns,
    Cosine,
    Equality,
    ExpChi2,
    Exponential,
    Intersection,
    Kernel,
    Laplacian,
    Linear,
    Matern32,
    Matern52,
    Polynomial,
    Power,
    Product,
    Scaled,
    ScaledColumns,
    Sigmoid,
    Sum,
)

KernelGraph = Callable[[Graph, Any, str, np.ndarray], str]


def kernel_block(graph: Graph, kernel: Kernel, x: str, points: np.ndarray) -> str:
    """Add `K(x, points)` of a resolved kernel, the `kernel_` of a fitted estimator, and return the name of the block."""
    if type(kernel) not in KERNEL_GRAPHS:
        known = ", ".join(sorted(cls.__name__ for cls in KERNEL_GRAPHS))
        raise ValueError(f"the kernel {kernel!r} cannot be written as ONNX operators; those that can: {known}")
    return KERNEL_GRAPHS[type(kernel)](graph, kernel, x, points)


def _linear(graph: Graph, kernel: Linear, x: str, points: np.ndarray) -> str:
    return graph.op("MatMul", x, graph.number(points.T))


def _cosine(graph: Graph, kernel: Cosine, x: str, points: np.ndarray) -> str:
    norms = np.linalg.norm(points.astype(np.float64), axis=1, keepdims=True)
    unit = points / np.where(norms > 0, norms, 1.0)
    length = graph.op("Sqrt", graph.row_sums(graph.op("Mul", x, x)))
    # The cosine of a row of zeros with every row is zero.
    return graph.op("Div", graph.op("MatMul", x, graph.number(unit.T)), graph.op("Max", length, _smallest(graph)))


def _sigmoid(graph: Graph, kernel: Sigmoid, x: str, points: np.ndarray) -> str:
    values = graph.op("MatMul", x, graph.number(points.T * kernel.gamma))
    return graph.op("Tanh", graph.op("Add", values, float(kernel.coef0)))


def _polynomial(graph: Graph, kernel: Polynomial, x: str, points: np.ndarray) -> str:
    values = graph.op("MatMul", x, graph.number(points.T * kernel.gamma))
    if kernel.coef0:
        values = graph.op("Add", values, float(kernel.coef0))
    return _power(graph, values, int(kernel.degree))


def _power(graph: Graph, values: str, exponent: int) -> str:
    """Return an integer power by repeated squaring: the operator Pow uses logarithms in some runtimes."""
    result, square = None, values
    while True:
        if exponent & 1:
            result = square if result is None else graph.op("Mul", result, square)
        exponent >>= 1
        if not exponent:
            return str(result)
        square = graph.op("Mul", square, square)


def _square_distances(graph: Graph, x: str, points: np.ndarray) -> str:
    """Return squared Euclidean distances, with negative rounding errors set to zero."""
    points = np.asarray(points, dtype=np.float64)
    centre = points.mean(axis=0)
    points = points - centre
    x = graph.op("Sub", x, graph.number(centre))
    cross = graph.op("MatMul", x, graph.number(-2.0 * points.T))
    norms = graph.row_sums(graph.op("Mul", x, x))
    total = graph.op("Add", graph.op("Add", cross, norms), graph.number((points**2).sum(axis=1)))
    return graph.op("Max", total, 0.0)


def _differences(graph: Graph, x: str, points: np.ndarray) -> str:
    return graph.op("Sub", graph.op("Unsqueeze", x, graph.axes(1)), graph.number(points[None, :, :]))


def _rbf(graph: Graph, kernel: RBF, x: str, points: np.ndarray) -> str:
    return graph.op("Exp", graph.op("Mul", _square_distances(graph, x, points), -float(kernel.gamma)))


def _laplacian(graph: Graph, kernel: Laplacian, x: str, points: np.ndarray) -> str:
    if kernel.norm == "l2":
        distances = _distances(graph, x, points)
    else:
        distances = graph.op("ReduceSum", graph.op("Abs", _differences(graph, x, points)), graph.axes(2), keepdims=0)
    return graph.op("Exp", graph.op("Mul", distances, -float(kernel.gamma)))


def _distances(graph: Graph, x: str, points: np.ndarray) -> str:
    """Return Euclidean distances from differences: the product form is inaccurate for small distances."""
    difference = _differences(graph, x, points)
    return graph.op("Sqrt", graph.op("ReduceSum", graph.op("Mul", difference, difference), graph.axes(2), keepdims=0))


def _exponential(graph: Graph, kernel: Exponential, x: str, points: np.ndarray) -> str:
    return graph.op("Exp", graph.op("Mul", _distances(graph, x, points), -float(kernel.gamma)))


def _matern32(graph: Graph, kernel: Matern32, x: str, points: np.ndarray) -> str:
    t = graph.op("Mul", _distances(graph, x, points), 3**0.5 * float(kernel.gamma))
    return graph.op("Mul", graph.op("Add", t, 1.0), graph.op("Exp", graph.op("Neg", t)))


def _matern52(graph: Graph, kernel: Matern52, x: str, points: np.ndarray) -> str:
    t = graph.op("Mul", _distances(graph, x, points), 5**0.5 * float(kernel.gamma))
    factor = graph.op("Sum", graph.op("Div", graph.op("Mul", t, t), 3.0), t, 1.0)
    return graph.op("Mul", factor, graph.op("Exp", graph.op("Neg", t)))


def _equality(graph: Graph, kernel: Equality, x: str, points: np.ndarray) -> str:
    same = graph.op("Equal", graph.op("Unsqueeze", x, graph.axes(1)), graph.number(points[None, :, :]))
    count = graph.op("ReduceSum", graph.cast(same, graph.dtype), graph.axes(2), keepdims=0)
    differing = graph.op("Sub", float(points.shape[1]), count)
    return graph.op("Exp", graph.op("Mul", differing, -float(kernel.gamma)))


def _smallest(graph: Graph) -> float:
    return float(np.finfo(graph.dtype).tiny)


def _histogram_ratio(graph: Graph, x: str, points: np.ndarray, numerator: str) -> str:
    """Return the sum over bins of numerator / (x + point); bins that are empty in both add nothing."""
    total = graph.op("Add", graph.op("Unsqueeze", x, graph.axes(1)), graph.number(points[None, :, :]))
    ratio = graph.op("Div", numerator, graph.op("Max", total, _smallest(graph)))
    return graph.op("ReduceSum", ratio, graph.axes(2), keepdims=0)


def _chi2(graph: Graph, kernel: Chi2, x: str, points: np.ndarray) -> str:
    numerator = graph.op("Mul", graph.op("Unsqueeze", x, graph.axes(1)), graph.number(2.0 * points[None, :, :]))
    return _histogram_ratio(graph, x, points, numerator)


def _exp_chi2(graph: Graph, kernel: ExpChi2, x: str, points: np.ndarray) -> str:
    difference = _differences(graph, x, points)
    distances = _histogram_ratio(graph, x, points, graph.op("Mul", difference, difference))
    return graph.op("Exp", graph.op("Mul", distances, -float(kernel.gamma)))


def _intersection(graph: Graph, kernel: Intersection, x: str, points: np.ndarray) -> str:
    smaller = graph.op("Min", graph.op("Unsqueeze", x, graph.axes(1)), graph.number(points[None, :, :]))
    return graph.op("ReduceSum", smaller, graph.axes(2), keepdims=0)


def _sum(graph: Graph, kernel: Sum, x: str, points: np.ndarray) -> str:
    return graph.op("Add", kernel_block(graph, kernel.left, x, points), kernel_block(graph, kernel.right, x, points))


def _product(graph: Graph, kernel: Product, x: str, points: np.ndarray) -> str:
    return graph.op("Mul", kernel_block(graph, kernel.left, x, points), kernel_block(graph, kernel.right, x, points))


def _scaled(graph: Graph, kernel: Scaled, x: str, points: np.ndarray) -> str:
    return graph.op("Mul", kernel_block(graph, kernel.kernel, x, points), float(kernel.scale))


def _kernel_power(graph: Graph, kernel: Power, x: str, points: np.ndarray) -> str:
    return _power(graph, kernel_block(graph, kernel.kernel, x, points), int(kernel.exponent))


def _columns(graph: Graph, kernel: Columns, x: str, points: np.ndarray) -> str:
    chosen = np.arange(points.shape[1], dtype=np.int64)[kernel.columns]
    return kernel_block(graph, kernel.kernel, graph.op("Gather", x, chosen, axis=1), points[:, chosen])


def _scaled_columns(graph: Graph, kernel: ScaledColumns, x: str, points: np.ndarray) -> str:
    scales = np.asarray(kernel.scales, dtype=np.float64)
    return kernel_block(graph, kernel.kernel, graph.op("Mul", x, graph.number(scales)), points * scales)


KERNEL_GRAPHS: dict[type[Kernel], KernelGraph] = {
    Linear: _linear,
    Cosine: _cosine,
    Polynomial: _polynomial,
    Sigmoid: _sigmoid,
    RBF: _rbf,
    Laplacian: _laplacian,
    Exponential: _exponential,
    Matern32: _matern32,
    Matern52: _matern52,
    Equality: _equality,
    Chi2: _chi2,
    ExpChi2: _exp_chi2,
    Intersection: _intersection,
    Sum: _sum,
    Product: _product,
    Scaled: _scaled,
    Power: _kernel_power,
    Columns: _columns,
    ScaledColumns: _scaled_columns,
}
"""Functions that write kernels as ONNX operators, by type."""
