"""Labels and probabilities from scores, as ONNX operators."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from gramless.deployment.onnx.graph import Graph

# Pairwise probabilities are clipped as in `gramless.inference.coupling`.
_SMALLEST = 1e-7
# Diagonal added to the coupling matrix, which is singular if all pairwise probabilities are consistent.
_RIDGE = 1e-12


def pick_labels(graph: Graph, scores: str, classes: np.ndarray) -> str:
    """Return the class with the largest score, of shape (n,); for two classes the sign of one column decides."""
    if len(classes) == 2:
        flat = graph.op("Squeeze", scores, graph.axes(1))
        codes = graph.cast(graph.op("Greater", flat, 0.0), np.int64)
    else:
        codes = graph.op("ArgMax", scores, axis=1, keepdims=0)
    return graph.op("Gather", label_values(classes), codes, axis=0)


def label_values(classes: np.ndarray) -> np.ndarray:
    """Return labels in a type of ONNX: int64 for integers and booleans, float64 for other numbers, else strings."""
    if classes.dtype.kind in "iub":
        return classes.astype(np.int64)
    return classes.astype(np.float64) if classes.dtype.kind == "f" else classes.astype(str).astype(object)


def softmax(graph: Graph, scores: str, n_classes: int) -> str:
    """Return the softmax of scores; of one column the sigmoid and its complement."""
    if n_classes > 2:
        return graph.op("Softmax", scores, axis=1)
    return _with_complement(graph, graph.op("Sigmoid", scores))


def sigmoids(graph: Graph, scores: str, parameters: np.ndarray, n_classes: int) -> str:
    """Return Platt's sigmoid of each score, normalised over the classes; parameters are slopes and offsets."""
    p = _sigmoid(graph, scores, parameters)
    if n_classes == 2:
        return _with_complement(graph, p)
    total = graph.row_sums(p)
    share = graph.op("Div", p, graph.op("Max", total, float(np.finfo(graph.dtype).tiny)))
    return graph.op("Where", graph.op("Greater", total, 0.0), share, 1.0 / n_classes)


def coupled(graph: Graph, scores: str, parameters: np.ndarray, n_classes: int) -> str:
    """Return one distribution from the sigmoids of all pairs of classes: the solution of `Q p = c 1`.

    `Q` is the positive semi-definite matrix of `gramless.inference.coupling`, so Gaussian elimination needs no pivoting;
    the graph has one step for each class.
    """
    k, pairs = n_classes, list(combinations(range(n_classes), 2))
    r = graph.op("Clip", _sigmoid(graph, scores, parameters), _SMALLEST, 1 - _SMALLEST)
    other = graph.op("Sub", 1.0, r)
    # Entries of Q are sums of products of pairs: constant matrices arrange them.
    squares, products = np.zeros((2, len(pairs), k * k)), np.zeros((len(pairs), k * k))
    for number, (i, j) in enumerate(pairs):
        squares[0, number, j * k + j] = squares[1, number, i * k + i] = 1.0
        products[number, i * k + j] = products[number, j * k + i] = -1.0
    parts = [
        graph.op("MatMul", graph.op("Mul", r, r), graph.number(squares[0])),
        graph.op("MatMul", graph.op("Mul", other, other), graph.number(squares[1])),
        graph.op("MatMul", graph.op("Mul", r, other), graph.number(products)),
    ]
    Q = graph.op("Reshape", graph.op("Sum", *parts), np.array([-1, k, k], dtype=np.int64))
    rows = graph.op("Add", Q, graph.number(_RIDGE * np.eye(k)))
    ones = graph.op(
        "Expand", graph.number(np.ones((1, k, 1))), graph.op("Shape", graph.op("Gather", rows, graph.axes(0), axis=2))
    )
    system = graph.op("Concat", rows, ones, axis=2)
    for step in range(k):
        pivot_row = graph.column(system, step)
        pivot_row = graph.op("Div", pivot_row, graph.op("Gather", pivot_row, graph.axes(step), axis=2))
        factors = graph.op("Gather", system, graph.axes(step), axis=2)
        others = graph.number((np.arange(k) != step)[None, :, None])
        eliminated = graph.op("Sub", system, graph.op("Mul", graph.op("Mul", factors, others), pivot_row))
        system = graph.op("Where", others > 0, eliminated, pivot_row)
    solution = graph.op("Squeeze", graph.op("Gather", system, graph.axes(k), axis=2), graph.axes(2))
    p = graph.op("Max", graph.op("Div", solution, graph.row_sums(solution)), 0.0)
    return graph.op("Div", p, graph.row_sums(p))


def vote_scores(graph: Graph, scores: str, n_classes: int) -> str:
    """Return the votes of the pairs for each class, plus a confidence below one half that breaks ties."""
    pairs = list(combinations(range(n_classes), 2))
    first, second = np.zeros((2, len(pairs), n_classes))
    for p, (i, j) in enumerate(pairs):
        first[p, i] = second[p, j] = 1.0
    wins = graph.cast(graph.op("Greater", scores, 0.0), graph.dtype)
    losses = graph.op("Sub", 1.0, wins)
    count = graph.op("Add", graph.op("MatMul", wins, graph.number(first)), graph.op("MatMul", losses, graph.number(second)))
    confidence = graph.op("MatMul", scores, graph.number(first - second))
    bound = graph.op("Mul", graph.op("Add", graph.op("Abs", confidence), 1.0), 3.0)
    return graph.op("Add", count, graph.op("Div", confidence, bound))


def _sigmoid(graph: Graph, scores: str, parameters: np.ndarray) -> str:
    slope, offset = np.asarray(parameters, dtype=np.float64).T
    return graph.op("Sigmoid", graph.op("Add", graph.op("Mul", scores, graph.number(-slope)), graph.number(-offset)))


def _with_complement(graph: Graph, p: str) -> str:
    return graph.op("Concat", graph.op("Sub", 1.0, p), p, axis=1)
