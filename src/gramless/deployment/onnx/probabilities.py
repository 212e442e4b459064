"""Labels and probabilities from scores, as ONNX operators."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from gramless.deployment.onnx.graph import Tensor

# Pairwise probabilities are clipped as in `gramless.inference.coupling`.
_SMALLEST = 1e-7
# Diagonal added to the coupling matrix, which is singular if all pairwise probabilities are consistent.
_RIDGE = 1e-12


def pick_labels(scores: Tensor, classes: np.ndarray, *, one_column: bool) -> Tensor:
    """Return the class with the largest score, of shape (n,); the sign of the scores decides if they are one column."""
    codes = (scores.flat() > 0.0).cast(np.int64) if one_column else scores.op("ArgMax", axis=1, keepdims=0)
    return codes.graph.op("Gather", label_values(classes), codes, axis=0)


def label_values(classes: np.ndarray) -> np.ndarray:
    """Return labels in a type of ONNX: int64 for integers and booleans, float64 for other numbers, else strings."""
    if classes.dtype.kind in "iub":
        return classes.astype(np.int64)
    return classes.astype(np.float64) if classes.dtype.kind == "f" else classes.astype(str).astype(object)


def softmax(scores: Tensor, n_classes: int) -> Tensor:
    """Return the softmax of scores; of one column the sigmoid and its complement."""
    return scores.op("Softmax", axis=1) if n_classes > 2 else _with_complement(scores.op("Sigmoid"))


def sigmoids(scores: Tensor, parameters: np.ndarray, n_classes: int) -> Tensor:
    """Return Platt's sigmoid of each score, normalised over the classes; parameters are slopes and offsets."""
    p = _sigmoid(scores, parameters)
    if n_classes == 2:
        return _with_complement(p)
    total = p.sum(1)
    share = p / total.op("Max", float(np.finfo(p.graph.dtype).tiny))
    return (total > 0.0).where(share, 1.0 / n_classes)


def coupled(scores: Tensor, parameters: np.ndarray, n_classes: int) -> Tensor:
    """Return one distribution from the sigmoids of all pairs of classes: the solution of `Q p = c 1`.

    `Q` is the positive semi-definite matrix of `gramless.inference.coupling`, so Gaussian elimination needs no pivoting;
    the graph has one step for each class.
    """
    k, pairs = n_classes, list(combinations(range(n_classes), 2))
    r = _sigmoid(scores, parameters).op("Clip", _SMALLEST, 1 - _SMALLEST)
    other = 1.0 - r
    # Entries of Q are sums of products of pairs: constant matrices arrange them.
    squares, products = np.zeros((2, len(pairs), k * k)), np.zeros((len(pairs), k * k))
    for number, (i, j) in enumerate(pairs):
        squares[0, number, j * k + j] = squares[1, number, i * k + i] = 1.0
        products[number, i * k + j] = products[number, j * k + i] = -1.0
    Q = (r * r) @ squares[0] + (other * other) @ squares[1] + (r * other) @ products
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
    """Return the votes of the pairs for each class, plus a confidence below one half that breaks ties."""
    pairs = list(combinations(range(n_classes), 2))
    first, second = np.zeros((2, len(pairs), n_classes))
    for p, (i, j) in enumerate(pairs):
        first[p, i] = second[p, j] = 1.0
    wins = (scores > 0.0).as_float()
    confidence = scores @ (first - second)
    return wins @ first + (1.0 - wins) @ second + confidence / ((confidence.op("Abs") + 1.0) * 3.0)


def _sigmoid(scores: Tensor, parameters: np.ndarray) -> Tensor:
    slope, offset = np.asarray(parameters, dtype=np.float64).T
    return (scores * -slope - offset).op("Sigmoid")


def _with_complement(p: Tensor) -> Tensor:
    return (1.0 - p).op("Concat", p, axis=1)
