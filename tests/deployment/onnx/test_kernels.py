"""Every kernel of the registry as ONNX operators, in onnxruntime."""

import numpy as np
import onnxruntime
import pytest

from gramless.deployment.onnx.graph import Graph
from gramless.deployment.onnx.kernels import kernel_block
from gramless.kernels import KERNELS, RBF, Callable_, Columns, Linear, Polynomial, ScaledColumns

UNSUPPORTED = {"precomputed": "its values are not computed from rows"}
COMBINED = [RBF(0.3) + 2.0 * Linear(), RBF(0.3) * Polynomial(2, 0.5, 1.0), RBF(0.1) ** 3, Columns(RBF(0.2), [0, 2])]
COMBINED += [ScaledColumns(RBF(0.2), [1.0, 0.5, 2.0, 0.0, 1.0])]


def run(kernel, X, points, dtype):
    graph = Graph(dtype)
    x = graph.input("x", dtype, ["n", X.shape[1]])
    graph.output("K", kernel_block(kernel, x, points), dtype, ["n", len(points)])
    return onnxruntime.InferenceSession(graph.model("a kernel").SerializeToString()).run(None, {"x": X.astype(dtype)})[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", [*sorted(set(KERNELS) - set(UNSUPPORTED)), *COMBINED], ids=str)
def test_graph_equals_kernel(kernel, dtype):
    rng = np.random.default_rng(0)
    X, points = rng.random((20, 5)), rng.random((30, 5))
    X[3] = points[4]  # a distance of zero
    X[5, 1] = points[6, 1] = 0.0
    X, points = X.astype(dtype), points.astype(dtype)
    if isinstance(kernel, str):
        kernel = KERNELS[kernel]()
    kernel = kernel.resolve(points)
    np.testing.assert_allclose(run(kernel, X, points, dtype), kernel(X, points), rtol=1e-5, atol=1e-5)


def test_large_offset_keeps_precision():
    rng = np.random.default_rng(1)
    X, points = rng.random((20, 3)) + 1e3, rng.random((30, 3)) + 1e3
    np.testing.assert_allclose(run(RBF(1.0), X, points, np.float64), RBF(1.0)(X, points), rtol=1e-9)


def test_python_function_raises():
    with pytest.raises(ValueError, match="cannot be written as ONNX operators"):
        kernel_block(Callable_(np.dot), Graph(np.float32).input("x", np.float32, ["n", 2]), np.eye(2))
