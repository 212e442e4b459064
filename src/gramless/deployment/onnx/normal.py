"""Ranks among quantiles and quantiles of the normal distribution, which ONNX does not have as operators.

The normal quantile is Wichura's pair of rational functions ("Algorithm AS 241: The percentage points of the normal
distribution", 1988), accurate to float64 rounding for ranks from 1e-7 to 1 - 1e-7.
"""

from __future__ import annotations

import numpy as np

from gramless.deployment.onnx.graph import Graph

# Polynomial coefficients in ascending order: the centre is the ratio a / b, the tails are the ratio c / d.
_A = [3.3871328727963666080, 133.14166789178437745, 1971.5909503065514427, 13731.693765509461125]
_A += [45921.953931549871457, 67265.770927008700853, 33430.575583588128105, 2509.0809287301226727]
_B = [1.0, 42.313330701600911252, 687.18700749205790830, 5394.1960214247511077]
_B += [21213.794301586595867, 39307.895800092710610, 28729.085735721942674, 5226.4952788528545610]
_C = [1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550, 3.64784832476320460504]
_C += [1.27045825245236838258, 0.241780725177450611770, 0.0227238449892691845833, 7.74545014278341407640e-4]
_D = [1.0, 2.05319162663775882187, 1.67638483018380384940, 0.689767334985100004550]
_D += [0.148103976427480074590, 0.0151986665636164571966, 5.47593808499534494600e-4, 1.05075007164441684324e-9]
_MIDDLE = 0.425


def normal_quantile(graph: Graph, p: str) -> str:
    """Return the standard normal quantiles of ranks strictly between 0 and 1."""
    q = graph.op("Sub", p, 0.5)
    r = graph.op("Sub", _MIDDLE**2, graph.op("Mul", q, q))
    middle = graph.op("Mul", q, graph.op("Div", _polynomial(graph, r, _A), _polynomial(graph, r, _B)))
    smaller = graph.op("Min", p, graph.op("Sub", 1.0, p))
    t = graph.op("Sub", graph.op("Sqrt", graph.op("Neg", graph.op("Log", smaller))), 1.6)
    tail = graph.op("Div", _polynomial(graph, t, _C), _polynomial(graph, t, _D))
    tail = graph.op("Mul", tail, graph.op("Sign", q))
    return graph.op("Where", graph.op("LessOrEqual", graph.op("Abs", q), _MIDDLE), middle, tail)


def _polynomial(graph: Graph, x: str, coefficients: list[float]) -> str:
    value = graph.op("Add", graph.op("Mul", x, coefficients[-1]), coefficients[-2])
    for coefficient in coefficients[-3::-1]:
        value = graph.op("Add", graph.op("Mul", value, x), coefficient)
    return value


def rank_among(graph: Graph, x: str, quantiles: np.ndarray, references: np.ndarray, edge: float) -> str:
    """Return the rank of each value of a column among sorted quantiles, whose ranks are the references.

    As in scikit-learn, the rank is the mean of the interpolations from below and from above, which differ for repeated
    quantiles; values within `edge` of the outermost quantiles have the rank 0 or 1.
    """
    last = len(quantiles) - 1
    row = graph.number(quantiles[None, :])

    def count(kind: str) -> str:
        return graph.row_sums(graph.cast(graph.op(kind, row, x), np.int64))

    def interpolated(low: str, from_low: bool) -> str:
        """Interpolate linearly between quantile `low` and the next quantile, starting from one of the two."""
        low = graph.op("Clip", low, np.array(0), np.array(max(last - 1, 0)))
        high = graph.op("Min", graph.op("Add", low, np.array([[1]])), np.array([[last]]))
        q, r = graph.number(quantiles), graph.number(references)
        q0, q1, r0, r1 = (graph.op("Gather", table, place, axis=0) for table in (q, r) for place in (low, high))
        width = graph.op("Sub", q1, q0)
        flat = graph.op("Equal", width, 0.0)
        slope = graph.op("Div", graph.op("Sub", r1, r0), graph.op("Where", flat, 1.0, width))
        start, value = (q0, r0) if from_low else (q1, r1)
        moved = graph.op("Add", value, graph.op("Mul", slope, graph.op("Sub", x, start)))
        return graph.op("Where", flat, value, moved)

    one = np.array([[1]])
    up = interpolated(graph.op("Sub", count("LessOrEqual"), one), True)
    down = interpolated(graph.op("Sub", count("Less"), one), False)
    rank = graph.op("Mul", graph.op("Add", up, down), 0.5)
    rank = graph.op("Where", graph.op("Greater", graph.op("Add", x, edge), float(quantiles[-1])), 1.0, rank)
    return graph.op("Where", graph.op("Less", graph.op("Sub", x, edge), float(quantiles[0])), 0.0, rank)
