"""The dual problems of support vector regression, by loss.

    epsilon_insensitive  |beta_i| <= C_i, multiplier `epsilon` of sum |beta| given, or found for a given `nu`
    pinball              -(1 - quantile) C_i <= beta_i <= quantile C_i,  epsilon = 0
    huber                |beta_i| <= epsilon C_i,  epsilon = 0, and 1 / C_i is added to K(x_i, x_i)

Several quantiles are several problems that share their kernel rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gramless.linalg.operators import byte_rows
from gramless.svm.box_qp import BoxQP, DualSolution
from gramless.svm.gram_rows import GramRows, GramSource, RidgedGram
from gramless.svm.multiclass import solve_jointly
from gramless.svm.nu_qp import NuQP
from gramless.svm.resources import DualFit


def solve_regression(
    fit: DualFit, y: np.ndarray, C: np.ndarray, *, loss: str, epsilon: float, quantile: Any, nu: float | None
) -> list[DualSolution]:
    """Return the solution of the regression, or of one regression for each quantile of the pinball loss."""
    n, resources = len(y), fit.resources
    if resources.device == "cpu":
        fit = replace(fit, X=byte_rows(fit.kernel, fit.X, n // 2))
    if loss == "pinball":
        problems = [BoxQP(y.astype(np.float64), -(1 - q) * C, q * C) for q in np.atleast_1d(quantile)]
        return solve_jointly(fit, problems, [[slice(0, n)]] * len(problems))
    if loss == "epsilon_insensitive" and nu is None:
        return solve_jointly(fit, [BoxQP.regression(y, C, epsilon)], [[slice(0, n)]])
    rng = np.random.default_rng(resources.seed)
    rows: GramSource = GramRows(fit.kernel, fit.X, [slice(0, n)], budget=resources.budget, workers=resources.workers)
    if loss == "huber":
        rows = RidgedGram(rows, np.divide(1.0, C, out=np.zeros(n), where=C > 0))  # type: ignore[arg-type]
        return fit.solver.maximise([BoxQP.regression(y, epsilon * C, 0.0)], rows, rng, fit.progress)
    assert nu is not None
    problem = NuQP.of_values(y, C, nu)
    [solution] = fit.solver.maximise([problem], rows, rng, fit.progress)
    if solution.tube_width < 0 and not fit.progress.stopped:
        without_tube = BoxQP(problem.linear, problem.lower, problem.upper, 0.0, solution.beta)
        [solution] = fit.solver.maximise([without_tube], rows, rng, fit.progress)
    return [solution]
