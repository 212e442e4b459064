"""Ranks among quantiles and quantiles of the normal distribution, which ONNX does not have as operators.

The normal quantile is Wichura's pair of rational functions ("Algorithm AS 241: The percentage points of the normal
distribution", 1988), accurate to float64 rounding for ranks from 1e-7 to 1 - 1e-7.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from gramless.deployment.onnx.graph import Tensor

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


def normal_quantile(p: Tensor) -> Tensor:
    """Return the standard normal quantiles of ranks strictly between 0 and 1."""
    q = p - 0.5
    r = _MIDDLE**2 - q * q
    middle = q * (_polynomial(r, _A) / _polynomial(r, _B))
    t = p.op("Min", 1.0 - p).op("Log").op("Neg").op("Sqrt") - 1.6
    tail = _polynomial(t, _C) / _polynomial(t, _D) * q.op("Sign")
    return (q.op("Abs") <= _MIDDLE).where(middle, tail)


def _polynomial(x: Tensor, coefficients: list[float]) -> Tensor:
    return reduce(lambda value, coefficient: value * x + coefficient, coefficients[-2::-1], coefficients[-1])  # type: ignore[return-value]


def ranks_among(x: Tensor, quantiles: np.ndarray, references: np.ndarray, edge: float) -> Tensor:
    """Return the rank of each value among the sorted quantiles of its column, whose ranks are the references.

    As in scikit-learn, the rank is the mean of the interpolations from below and from above, which differ for repeated
    quantiles; values within `edge` of the outermost quantiles have the rank 0 or 1.
    """
    return x.graph.concat([_rank(x.columns(k), column, references, edge) for k, column in enumerate(quantiles.T)])


def _rank(x: Tensor, quantiles: np.ndarray, references: np.ndarray, edge: float) -> Tensor:
    last = len(quantiles) - 1
    op = x.graph.op

    def interpolated(n_below: Tensor, from_low: bool) -> Tensor:
        """Interpolate linearly between the last quantile below and the next quantile, starting from one of the two."""
        low = (n_below.cast(np.int64).sum(1) - 1).op("Clip", np.array(0), np.array(max(last - 1, 0)))
        high = (low + 1).op("Min", np.array([[last]]))
        q0, q1, r0, r1 = (op("Gather", table, place, axis=0) for table in (quantiles, references) for place in (low, high))
        flat = op("Equal", q1, q0)
        slope = (r1 - r0) / flat.where(1.0, q1 - q0)
        start, value = (q0, r0) if from_low else (q1, r1)
        return flat.where(value, value + slope * (x - start))

    row = quantiles[None, :]
    rank = (interpolated(x >= row, True) + interpolated(x > row, False)) * 0.5
    rank = (x + edge > float(quantiles[-1])).where(1.0, rank)
    return (x - edge < float(quantiles[0])).where(0.0, rank)
