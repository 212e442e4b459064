"""The interface of operators: every operator has products `A @ V`, and declares which further capabilities it has.

    capability         meaning
    "spd"              symmetric positive definite
    "rows"             `rows(idx)`: any block of rows
    "dense"            `dense(dtype)`: the full matrix
    "rows_times"       `rows_times(idx, V)`: the product of a subset of rows with `V`, without storing the rows
    "diagonal_block"   `diagonal_block(idx)`: the entries in a subset of the rows and in the same columns
    "ridge"            `ridge`: the diagonal that was added to a semi-definite matrix

A solver lists the capabilities that it needs in `Solver.requires`; `solve` checks them before it computes anything.

`LinearSystem` is the system of a least-squares model in the form that the solver requires:

    A [V, u] = [Z, 1],  b = sum V / sum u,  a = V - u b      one more right-hand side, A positive definite
    [[A, 1], [1^T, 0]] [a; b] = [Z; 0]                       one more unknown, indefinite
    A a = Z                                                  without a bias

with `A = K + diag(ridge)`. The first two systems have the same solution. Solvers that need a positive definite matrix get
the first system. The randomised block methods use rows of the second system, whose matrix is symmetric and nonsingular. The
border is the last row and column of this matrix, so that the kernel values of a row start where its memory starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.targets.columns import split_bias
from gramless.linalg.tuning import TUNING

CAPABILITIES = frozenset({"spd", "rows", "dense", "rows_times", "diagonal_block", "ridge"})


class Operator:
    """A square matrix that need not be stored; subclasses define `shape`, `@`, `diag` and the methods in `capabilities`.

    Kernel matrices also have `ridge`, the `dtype` of the entries, and `reference`, an array with the array type, device and
    dtype of the vectors.
    """

    shape: tuple[int, int]
    capabilities: frozenset[str] = frozenset()
    ridge: Array
    dtype: np.dtype
    reference: Array

    def __matmul__(self, V: Array) -> Array:
        raise NotImplementedError

    def diag(self) -> Array:
        """Return the diagonal of the matrix."""
        raise NotImplementedError

    def rows(self, idx: np.ndarray, out: Array | None = None) -> Array:
        """Return the rows `idx` as one block of shape (len(idx), n), written to `out` if it is given."""
        raise NotImplementedError

    def dense(self, dtype: Any = None) -> Array:
        """Return the full matrix as a new array, computed in `dtype`."""
        raise NotImplementedError

    def rows_times(self, idx: np.ndarray, V: Array) -> Array:
        """Return `rows(idx) @ V`, without storing the rows if possible."""
        return self.rows(idx) @ V

    def diagonal_block(self, idx: np.ndarray) -> Array:
        """Return `A[idx, idx]` as a new array."""
        raise NotImplementedError


class DenseOperator(Operator):
    """A stored matrix as an operator, for tests and small systems."""

    def __init__(self, A: Array, *, spd: bool = True):
        self.A = A
        self.shape = (A.shape[0], A.shape[1])
        self.capabilities = CAPABILITIES - ({"ridge"} if spd else {"ridge", "spd"})

    def __matmul__(self, V: Array) -> Array:
        return self.A @ V

    def rows(self, idx: np.ndarray, out: Array | None = None) -> Array:
        return xa.copied(xa.take_rows(self.A, np.asarray(idx)), out)

    def diagonal_block(self, idx: np.ndarray) -> Array:
        return xa.submatrix(self.A, idx, idx) + 0

    def diag(self) -> Array:
        return xa.namespace(self.A).linalg.diagonal(self.A)

    def dense(self, dtype: Any = None) -> Array:
        return (self.A if dtype is None else xa.astype(self.A, dtype)) + 0


class BorderedOperator(Operator):
    """The matrix `[[A, 1], [1^T, 0]]` of a system with a bias, for an operator `A` that includes the ridge."""

    capabilities = frozenset({"rows"})

    def __init__(self, inner: Operator):
        self.inner = inner
        self.shape = (inner.shape[0] + 1, inner.shape[1] + 1)

    def __matmul__(self, V: Array) -> Array:
        coef, bias = V[:-1], V[-1:]
        xp = xa.namespace(V)
        # A float32 sum of n terms of both signs would lose the digits that decide whether the sum is zero.
        total = xp.sum(coef, axis=0, keepdims=True, dtype=xp.float64)
        return xp.concat([self.inner @ coef + bias, xa.astype(total, xa.numpy_dtype(V))])

    def rows(self, idx: np.ndarray, out: Array | None = None) -> Array:
        """Return the rows `idx` as one block, written to `out` if it is given; row `n` is the border."""
        idx, n = np.asarray(idx), self.inner.shape[0]
        if out is None:
            width = n + 1 + (-(n + 1)) % TUNING.row_alignment
            out = xa.empty((len(idx), width), self.inner.diag())[:, : n + 1]
        # The border has no kernel values: row 0 is a placeholder, which the ones of the border overwrite.
        self.inner.rows(np.where(idx == n, 0, idx), out=out[:, :n])
        out[:, n] = 1
        for at in np.flatnonzero(idx == n):
            out[int(at), :] = 1
            out[int(at), n] = 0
        return out

    def diag(self) -> Array:
        """Return the diagonal of `A`, followed by the zero of the border."""
        inner = self.inner.diag()
        return xa.namespace(inner).concat([inner, xa.zeros((1,), inner)])


class LinearSystem:
    """Matrix and right-hand sides for targets `Z`; the bias adds an unknown if `bordered`, else a right-hand side."""

    def __init__(self, op: Operator, Z: np.ndarray, *, bordered: bool, intercept: bool = True):
        self.intercept, self.bordered = intercept, bordered
        self._ridge = op.ridge
        self.op: Operator = BorderedOperator(op) if bordered and intercept else op
        rhs = Z
        if intercept:
            extra = np.zeros((1, Z.shape[1])) if bordered else np.ones((Z.shape[0], 1))
            rhs = np.concatenate([Z, extra], axis=0 if bordered else 1)
        self.rhs: Array = xa.to_device(rhs.astype(op.dtype), xa.device_of(op.reference))

    def with_exact_bias(self, W: Array, kernel_product: Callable[[Array], Array], tol: float) -> Array:
        """Return the bordered solution with a recomputed bias if the solver's tolerance leaves the bias undetermined.

        If the ridge is far above the kernel values, `K a` is smaller than the residual that `tol` allows. Then `a = z /
        ridge`, `b = 0` meet the tolerance, but the coefficients do not sum to zero. In this case the coefficients are
        shifted to sum zero, and `b` is the mean of `z - K a` weighted by `1 / ridge`, as the optimality conditions require.
        """
        if not (self.bordered and self.intercept):
            return W
        Z, ridge, coef = self.rhs[:-1], self._ridge[:, None], W[:-1]
        if xa.norm(Z - ridge * coef - W[-1:]) > tol * xa.norm(Z):
            return W
        xp = xa.namespace(W)
        weights = ridge.min() / ridge  # scaled to at most one, because ridges may have any magnitude
        total = weights.sum()
        coef = coef - weights * (xp.sum(coef, axis=0) / total)
        bias = xp.sum(weights * (Z - kernel_product(coef)), axis=0) / total
        return xp.concat([coef, bias[None]], axis=0)

    def split(self, W: Array) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients of shape (n, k) and bias of shape (k,) as NumPy arrays."""
        solution = xa.to_numpy(W)
        if not self.intercept:
            return solution, np.zeros(solution.shape[1], solution.dtype)
        return (solution[:-1], solution[-1]) if self.bordered else split_bias(solution)
