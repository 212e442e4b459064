"""The linear system of a least-squares machine, in the form that the solver takes.

    A [V, u] = [Z, 1],  b = sum V / sum u,  a = V - u b      one more right-hand side, A positive definite
    [[A, 1], [1^T, 0]] [a; b] = [Z; 0]                       one more unknown, indefinite
    A a = Z                                                  without a bias

The first two have the same solution. Solvers that need a positive definite matrix get the first; the randomised block
methods are defined on the rows of the second.
"""

from __future__ import annotations

import numpy as np

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array
from gramless.operators import BorderedOperator, Operator
from gramless.targets.columns import split_bias


class LinearSystem:
    """Matrix and right-hand sides for targets `Z`, and the way back from a solution to coefficients and bias.

    Parameters
    ----------
    op : KernelOperator
        Or another operator with `dtype` and `reference`.
    Z : ndarray of shape (n, k)
    bordered : bool
        Whether the bias is an unknown (else one more right-hand side).
    intercept : bool, default=True
        Whether there is a bias at all.
    """

    def __init__(self, op: Operator, Z: np.ndarray, *, bordered: bool, intercept: bool = True):
        self.intercept, self.bordered = intercept, bordered
        self.op: Operator = BorderedOperator(op) if bordered and intercept else op
        rhs = Z
        if intercept:
            extra = np.zeros((1, Z.shape[1])) if bordered else np.ones((Z.shape[0], 1))
            rhs = np.concatenate([Z, extra], axis=0 if bordered else 1)
        self.rhs: Array = xa.to_device(rhs.astype(op.dtype), xa.device_of(op.reference))

    def split(self, W: Array) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients of shape (n, k) and bias of shape (k,), as NumPy arrays."""
        solution = xa.to_numpy(W)
        if not self.intercept:
            return solution, np.zeros(solution.shape[1], solution.dtype)
        return (solution[:-1], solution[-1]) if self.bordered else split_bias(solution)
