"""ONNX graphs that compute the kernel values between rows (a tensor) and the points of a model (constants).

Inner products and the distances of the RBF kernel, which are relative to the mean of the points to reduce rounding errors,
are matrix products. Other distances and comparisons of features need a temporary array of shape rows x points x features.
"""

from __future__ import annotations

import numpy as np

from gramless import kernels as k
from gramless.deployment.onnx.graph import Tensor


def kernel_block(kernel: k.Kernel, x: Tensor, points: np.ndarray) -> Tensor:
    """Return `K(x, points)` for the kernel `kernel_` of a fitted estimator."""
    points = np.asarray(points, dtype=np.float64)
    is_own = type(kernel).__module__.startswith("gramless.kernels.")  # subclasses outside gramless may compute other values
    match kernel if is_own else None:
        case k.Linear():
            return x @ points.T
        case k.Cosine():
            norms = np.linalg.norm(points, axis=1, keepdims=True)
            length = (x * x).sum(1).op("Sqrt")
            # The cosine between a row of zeros and any other row is defined as zero.
            return x @ (points / np.where(norms > 0, norms, 1.0)).T / length.op("Max", _smallest(x))
        case k.Polynomial():
            return _power(x @ (points.T * kernel.gamma) + float(kernel.coef0), int(kernel.degree))
        case k.Sigmoid():
            return (x @ (points.T * kernel.gamma) + float(kernel.coef0)).op("Tanh")
        case k.RBF():
            return _exp(_square_distances(x, points), kernel.gamma)
        case k.Laplacian(norm="l1"):
            return _exp(_differences(x, points).op("Abs").sum(2, keepdims=False), kernel.gamma)
        case k.Laplacian() | k.Exponential():
            return _exp(_distances(x, points), kernel.gamma)
        case k.Matern32():
            t = _distances(x, points) * (3**0.5 * float(kernel.gamma))
            return (t + 1.0) * _exp(t, 1.0)
        case k.Matern52():
            t = _distances(x, points) * (5**0.5 * float(kernel.gamma))
            return (t * t / 3.0 + t + 1.0) * _exp(t, 1.0)
        case k.Equality():
            same = _each_point(x).op("Equal", points[None, :, :]).as_float().sum(2, keepdims=False)
            return _exp(float(points.shape[1]) - same, kernel.gamma)
        case k.Chi2():
            return _sum_of_ratios(x, points, _each_point(x) * (2.0 * points[None, :, :]))
        case k.ExpChi2():
            difference = _differences(x, points)
            return _exp(_sum_of_ratios(x, points, difference * difference), kernel.gamma)
        case k.Intersection():
            return _each_point(x).op("Min", points[None, :, :]).sum(2, keepdims=False)
        case k.Sum():
            return kernel_block(kernel.left, x, points) + kernel_block(kernel.right, x, points)
        case k.Product():
            return kernel_block(kernel.left, x, points) * kernel_block(kernel.right, x, points)
        case k.Scaled():
            return kernel_block(kernel.kernel, x, points) * float(kernel.scale)
        case k.Power():
            return _power(kernel_block(kernel.kernel, x, points), int(kernel.exponent))
        case k.Columns():
            chosen = np.arange(points.shape[1])[kernel.columns]
            return kernel_block(kernel.kernel, x.columns(*chosen), points[:, chosen])
        case k.ScaledColumns():
            scales = np.asarray(kernel.scales, dtype=np.float64)
            return kernel_block(kernel.kernel, x * scales, points * scales)
    raise ValueError(
        f"the kernel {kernel!r} cannot be written as ONNX operators: precomputed, invariant and reflected kernels, Python "
        "functions and kernels of other packages have no ONNX form"
    )


def _exp(distances: Tensor, gamma: float) -> Tensor:
    return (distances * -float(gamma)).op("Exp")


def _power(values: Tensor, exponent: int) -> Tensor:
    """Return an integer power by repeated squaring: the operator Pow uses logarithms in some runtimes."""
    half = values if exponent < 4 else _power(values, exponent // 2)
    if exponent == 1:
        return values
    return half * half * values if exponent % 2 else half * half


def _square_distances(x: Tensor, points: np.ndarray) -> Tensor:
    """Return squared Euclidean distances, with negative rounding errors set to zero."""
    centre = points.mean(axis=0)
    points = points - centre
    x = x - centre
    return (x @ (-2.0 * points.T) + (x * x).sum(1) + (points**2).sum(axis=1)).op("Max", 0.0)


def _each_point(x: Tensor) -> Tensor:
    """Return rows in the shape (rows, 1, features), which broadcasts with `points[None, :, :]`."""
    return x.op("Unsqueeze", np.array([1]))


def _differences(x: Tensor, points: np.ndarray) -> Tensor:
    return _each_point(x) - points[None, :, :]


def _distances(x: Tensor, points: np.ndarray) -> Tensor:
    """Return Euclidean distances from differences, because inner products are inaccurate for small distances."""
    difference = _differences(x, points)
    return (difference * difference).sum(2, keepdims=False).op("Sqrt")


def _smallest(x: Tensor) -> float:
    return float(np.finfo(x.graph.dtype).tiny)


def _sum_of_ratios(x: Tensor, points: np.ndarray, numerator: Tensor) -> Tensor:
    """Return the sum of `numerator / (x + point)` over the features; a feature that is 0 in both row and point adds 0."""
    total = (_each_point(x) + points[None, :, :]).op("Max", _smallest(x))
    return (numerator / total).sum(2, keepdims=False)
