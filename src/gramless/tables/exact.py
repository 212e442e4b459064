"""Kernel least squares with leave-one-out scores from one dense factorisation, and the gradient of the leave-one-out loss.

    (K + diag(ridge)) a + b = z,    sum a = 0,         f_-i(x_i) = z_i - a_i / ((A^-1)_ii - u_i^2 / sum u),   u = A^-1 1

(see `gramless.inference.leave_one_out`), with `A = K + diag(ridge) = L L^T`. The diagonal of `A^-1` has the squared column
norms of `L^-1`: `2 n^3 / 3` operations, one `n x n` matrix. Float32 is used if its rounding errors are far below the ridge.

Column scales minimise the loss of the leave-one-out residuals `r_i = a_i / G_ii`, where `G = A^-1 - u u^T / sum u` and
`a = G z`. A change `dK` of the kernel matrix changes `a` by `-G dK a` and `G_ii` by `-(G dK G)_ii`. The derivative of the
loss with respect to a kernel parameter `t` is therefore one sum,

    dL/dt = sum_ij W_ij dK_ij/dt,    W = G diag(sum_c l_ic a_ic / G_ii^2) G - sum_c p_c a_c^T,   p_c = G (l_c / diag G)

with `l = dL/dr`. The derivatives with respect to all column scales and `C` take about 2 n^3 + O(n^2 d) operations. L-BFGS
minimises the loss with a normal prior on the logarithms of the scales, because the scales of many columns can overfit.
Columns without information get small scales; a column along which the function varies quickly gets a large scale.

References: Cawley and Talbot, "Preventing over-fitting during model selection via Bayesian regularisation of the
hyper-parameters", 2007; Chapelle, Vapnik, Bousquet and Mukherjee, "Choosing multiple parameters for support vector
machines", 2002.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.optimize import minimize

from gramless._core.lapack import gram_of_lower_in_place
from gramless._core.targets.columns import split_bias
from gramless._core.threads import CPU_TILE, one_blas_thread, slices
from gramless.inference.leave_one_out import inverse_factor, solve_dense
from gramless.kernels import Kernel, as_kernel
from gramless.kernels.stationary import Laplacian, euclidean_distances
from gramless.linalg.operators import KernelOperator
from gramless.tables.losses import ClassLoss, ValueLoss
from gramless.tables.tuning import TUNING

SINGLE_FROM = 600
"""Fewest rows for which float32 is considered."""

SHARED_FROM = 3000
"""Fewest rows for which a factorisation uses all BLAS threads; below, synchronising threads takes most time (measured)."""

# Number of rows of a small kernel matrix that are computed at a time, so that intermediate arrays stay in the cache.
# Matrices of up to 1,000 rows use no compiled code, because loading compiled code takes almost a second, which is more time
# than compiled code saves for matrices of this size.
_STRIP_ROWS = 256
# Smallest ridge for float32, in units of the float32 rounding error of the largest eigenvalue. With this ridge, rounding
# changes predictions by less than 2 % of the prediction error, and the prediction error by less than 0.03 % (measured on
# four tables).
_ROUNDINGS = 4.0
# Number of sampled rows for the estimate of the largest eigenvalue.
_ESTIMATION_ROWS = 256
# Precision (inverse variance) of the normal prior on the logarithms of the column scales, around their mean: one standard
# deviation is a factor of two.
PRIOR = 2.0
# Largest absolute value of the logarithm of a column scale.
_LARGEST_LOG_SCALE = np.log(100.0)
# Loss of column scales whose kernel matrix cannot be factored: larger than any loss that occurs.
_FAILED_LOSS = 1e6
# Fewest values of a matrix for which compiled code is used: loading compiled code takes almost a second (measured).
COMPILED_VALUES = 1 << 18


@dataclass
class ExactSolution:
    """Coefficients, bias, leave-one-out scores, and the training points in the precision of the factorisation."""

    points: np.ndarray
    coef: np.ndarray
    bias: np.ndarray
    scores: np.ndarray


CachedMatrices: TypeAlias = dict[type, np.ndarray]
"""Kernel matrix of one kernel and one set of points, by the data type of its values."""


def solve_exact(
    X: np.ndarray, kernel: Kernel, Z: np.ndarray, ridge: np.ndarray, cached: CachedMatrices | None = None
) -> ExactSolution | None:
    """Solve least squares for the target columns `Z`; return None if the matrix cannot be factored even in float64.

    `ridge` is `1 / (C w_i)` for row weights `w`. Float32 is tried first if its rounding error is small relative to `ridge`.
    `cached` contains kernel matrices of earlier calls with the same kernel and points, and the call adds its kernel matrix.
    """
    n = len(X)
    for dtype in [np.float32, np.float64] if float32_suffices(X, kernel, ridge) else [np.float64]:
        points = X.astype(dtype, copy=False)
        with one_blas_thread() if n < SHARED_FROM else nullcontext():
            if cached is None or n >= SHARED_FROM:
                A = upper_kernel_matrix(points, kernel)
            else:
                if dtype not in cached:
                    cached[dtype] = upper_kernel_matrix(points, kernel)
                A = cached[dtype].copy()
            A.flat[:: n + 1] += ridge.astype(dtype)
            found = solve_dense(A, Z)
        if found is not None:
            return ExactSolution(points, *found)
    return None


def upper_kernel_matrix(points: np.ndarray, kernel: Kernel) -> np.ndarray:
    """Return a kernel matrix whose upper triangle and diagonal are computed; the values below the diagonal are undefined.

    Small matrices are computed in blocks of rows that skip most values below the diagonal, larger ones by `KernelOperator`.
    """
    n = len(points)
    if n >= CPU_TILE:
        return KernelOperator(points, kernel, np.zeros(n, points.dtype)).dense()
    K = np.zeros((n, n), points.dtype)
    for rows in slices(n, _STRIP_ROWS):
        kernel(points[rows], points[rows.start :], out=K[rows, rows.start :])
    return K


def float32_suffices(X: np.ndarray, kernel: Kernel, ridge: np.ndarray) -> bool:
    """Return True for `SINGLE_FROM` rows or more and a ridge well above the float32 error of the largest eigenvalue."""
    if len(X) < SINGLE_FROM:
        return False
    sample = X[:: max(1, len(X) // _ESTIMATION_ROWS)]
    largest = float(np.abs(kernel(sample, sample)).mean()) * len(X)
    return float(ridge.min()) > _ROUNDINGS * float(np.finfo(np.float32).eps) * largest


def kernel_and_slopes(name: str, X: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the kernel matrix of scaled points, and the factor that its derivatives by the scales of all columns share.

    For the scale `s_k` of column k, `dK_ij / d log s_k` is the factor times `|x_ik - x_jk|^q`, q = 1 (Laplacian) or q = 2.
    """
    if name == "laplacian":
        K = Laplacian(gamma)(X, X)
        return K, -gamma * K
    distances = euclidean_distances(X, X)
    if name == "rbf":
        K = np.exp(-gamma * distances**2)
        return K, -2 * gamma * K
    if name == "exponential":
        K = np.exp(-gamma * distances)
        # The kernel is not differentiable at distance zero, where the derivative is set to 0.
        return K, -gamma * K / np.where(distances > 0, distances, np.inf)
    t = 5**0.5 * gamma * distances
    decay = np.exp(-t)
    return (1 + t + t**2 / 3) * decay, -5 / 3 * gamma**2 * (1 + t) * decay


def scale_slopes(name: str, X: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Return `sum_ij V_ij |x_ik - x_jk|^q` for each column k and symmetric `V`; q = 1 for the Laplacian kernel, else 2."""
    if name != "laplacian":
        return _square_sums(V, X)
    if V.size < COMPILED_VALUES:
        return _absolute_sums(V, X)
    from gramless._core.compiled.difference_sums import absolute_difference_sums

    return absolute_difference_sums(np.ascontiguousarray(V, np.float64), np.ascontiguousarray(X, np.float64))


def _square_sums(V: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return `sum_ij V_ij (x_ik - x_jk)^2` for each column k."""
    return 2 * (V.sum(axis=1) @ X**2 - np.einsum("ij,ij->j", X, V @ X))


def _absolute_sums(V: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return `absolute_difference_sums(V, X)` without compiled code; columns with two values need only matrix products."""
    sums = np.zeros(X.shape[1])
    low, high = X.min(axis=0), X.max(axis=0)
    two_valued = ((low == X) | (high == X)).all(axis=0) & (high > low)
    if two_valued.any():
        sums[two_valued] = _square_sums(V, X[:, two_valued]) / (high - low)[two_valued]
    differences = np.empty(V.shape)
    for k in np.flatnonzero(~two_valued & (high > low)):
        np.abs(np.subtract.outer(X[:, k], X[:, k], out=differences), out=differences)
        sums[k] = np.vdot(V, differences)
    return sums


def _inverse(factor: np.ndarray) -> np.ndarray:
    """Return `A^-1` from a column-major `L^-1`, which is overwritten."""
    gram_of_lower_in_place(factor)
    lower = np.tril(factor)
    G = lower + lower.T
    G.flat[:: len(G) + 1] /= 2
    return G


def _weighted_square(G: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return `G diag(weights) G` of a symmetric `G` as a difference of two symmetric products, at half the operations."""
    roots = np.sqrt(np.abs(weights)).astype(G.dtype)[:, None]
    plus, minus = (G[own] * roots[own] for own in (weights > 0, weights < 0))
    W = plus.T @ plus
    W -= minus.T @ minus
    return W


@dataclass(frozen=True)
class ScaleProblem:
    """Leave-one-out loss as a function of the scales of column groups and of `C`; `rows` are the indices of the rows `X`."""

    X: np.ndarray
    groups: np.ndarray
    kernel: str
    gamma: float
    loss: ClassLoss | ValueLoss
    rows: np.ndarray
    log: bool

    def loss_and_slopes(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the leave-one-out loss plus negative log prior, and the gradient of the sum with respect to `parameters`.

        `parameters` has the logarithm of the scale of each group of columns, and the logarithm of `C` last.
        """
        n = len(self.X)
        logs, C = parameters[:-1], np.exp(parameters[-1])
        ridge = self.loss.ridge(C, self.rows, self.log)
        scaled = self.X * np.exp(logs)[self.groups]
        if float32_suffices(scaled, as_kernel(self.kernel, gamma=self.gamma), ridge):
            scaled = scaled.astype(np.float32)
        K, common = kernel_and_slopes(self.kernel, scaled, self.gamma)
        K.flat[:: n + 1] += ridge.astype(K.dtype)
        inverse = inverse_factor(K)
        if inverse is None:
            return _FAILED_LOSS, np.zeros_like(parameters)
        Z = self.loss.targets(self.rows, self.log)
        right = np.column_stack([Z, np.ones(n)]).astype(K.dtype)
        solution = (inverse.T @ (inverse @ right)).astype(np.float64)
        a, _ = split_bias(solution)
        u = solution[:, -1]
        G = _inverse(inverse)
        G -= np.outer(u, u / u.sum()).astype(G.dtype)
        leverage = G.diagonal().astype(np.float64)
        if not (leverage > 0).all():
            return _FAILED_LOSS, np.zeros_like(parameters)
        value, by_score = self.loss.gradient(Z - a / leverage[:, None], self.rows, self.log)
        by_residual = -by_score
        p = G @ (by_residual / leverage[:, None]).astype(G.dtype)
        W = _weighted_square(G, (by_residual * a).sum(axis=1) / leverage**2)
        cross = p @ a.T.astype(G.dtype)
        W -= (cross + cross.T) / 2
        slopes = np.empty_like(parameters)
        slopes[-1] = -ridge @ W.diagonal()
        slopes[:-1] = np.bincount(self.groups, scale_slopes(self.kernel, scaled, W * common), minlength=len(logs))
        centred = logs - logs.mean()
        slopes[:-1] += PRIOR / n * centred
        return value + PRIOR / (2 * n) * float(centred @ centred), slopes

    def learn(self, logs: np.ndarray, C: float, steps: int) -> tuple[np.ndarray, float]:
        """Return the logarithms of the scales and `C` after `steps` L-BFGS iterations that start from `logs` and `C`."""
        start = np.append(np.clip(logs, -_LARGEST_LOG_SCALE, _LARGEST_LOG_SCALE), np.log(C))
        bounds = [(-_LARGEST_LOG_SCALE, _LARGEST_LOG_SCALE)] * len(logs)
        bounds.append((np.log(TUNING.smallest_C), np.log(TUNING.largest_C)))

        def total(parameters: np.ndarray) -> tuple[float, np.ndarray]:
            # Minimise the sum over the rows: the first L-BFGS step is at most as long as the gradient, and the gradient of
            # the mean is too short.
            value, slopes = self.loss_and_slopes(parameters)
            return len(self.X) * value, len(self.X) * slopes

        options = {"maxiter": steps, "maxfun": steps + steps // 2}
        found = minimize(total, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        return found.x[:-1], float(np.exp(found.x[-1]))
