"""A temperature that is fitted when probabilities are first asked for, so that a fit which needs none pays nothing.

A least-squares classifier keeps the class of each of its points. The leave-one-out scores follow from its points and
coefficients in closed form, O(n^3) and one matrix of n^2 numbers, and the temperature from those. Up to `CALIBRATED_UP_TO`
points that takes about as long as the fit did; with more points, or less memory, the temperature stays at one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.memory import parse_budget
from gramless.inference.jackknife import LeftOut
from gramless.inference.leave_one_out import exact_diagonal, leave_one_out_memory
from gramless.linalg.operators import KernelOperator

CALIBRATED_UP_TO = 10_000
"""Points of a model whose probabilities are calibrated without being asked for."""


def scores_on_demand(model: Any, targets: np.ndarray) -> np.ndarray | None:
    """Leave-one-out scores of the points of a fitted expansion; None where they would cost more than the fit.

    Parameters
    ----------
    model : LSSVC
        Fitted.
    targets : ndarray of shape (m, k)
        What its points were to reproduce.

    Returns
    -------
    ndarray of shape (m, k) or None
        Exact; of a row of weight w, one of its w copies is left out.
    """
    m, d = model.points_.shape
    if m > CALIBRATED_UP_TO or not model.kernel_.uses_points or not model.kernel_.thread_safe:
        return None
    device, dtype = model.device_, xa.numpy_dtype(model.dual_coef_)
    if leave_one_out_memory(m, d, targets.shape[1], dtype, device).nbytes > parse_budget(model.memory_budget, device):
        return None
    ridge = 1.0 / (model.C * (np.ones(m) if model._weights is None else model._weights))
    diagonal, u = exact_diagonal(KernelOperator(xa.to_device(model.points_, device, dtype), model.kernel_, ridge))
    left = LeftOut.from_solution(model.dual_coef_, diagonal - u**2 / u.sum(), 1.0 / model.C, model._weights)
    return targets - left.residuals
