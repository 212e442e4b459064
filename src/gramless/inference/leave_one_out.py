"""Leave-one-out predictions without refitting, and selection of C and the kernel by leave-one-out scores.

Let `M` be `A = K + diag(1 / (C w))` bordered by ones, and let `M [a; b] = [z; 0]`. The model fitted without row i predicts

    f_-i(x_i) = z_i - a_i / (M^-1)_ii,     (M^-1)_ii = (A^-1)_ii - u_i^2 / sum u,     u = A^-1 1

for row i, exactly and with weights (Cawley and Talbot 2004). With `A = L L^T`, the entries of the diagonal of `A^-1` are
the squared column norms of `L^-1`, which take `2 n^3 / 3` operations. If the kernel matrix does not fit the memory, the
diagonal is estimated from the solutions for right-hand sides of random signs.

A row of weight `w > 1` stands for `w` copies, one of which is left out: with `g = 1 / C` and smoothing weights `h`,

    r_i = g a_i / (w - 1 + g (M^-1)_ii / w)            f_-i(x) = f(x) - g a_i / (w (w - 1) + g (M^-1)_ii) h_i(x)

`select_model` selects C and the kernel by leave-one-out scores. One eigendecomposition `K = Q diag(lambda) Q^T` for each
kernel gives the model and the leave-one-out scores of every `C`: `A^-1` has the same eigenvectors with the eigenvalues
`1 / (lambda + 1/C)`. Cost: O(n^3) for each kernel, O(n^2) for each `C`, and 24 n^2 bytes. If 24 n^2 bytes exceed the memory
budget, the matrix of each `C` is factored: O(n^3) for each `C`, and 8 n^2 bytes.

The smallest leave-one-out error of many settings is lower than the error on new rows. `optimism` draws bootstrap samples of
the rows, selects the best setting on the drawn rows, and measures the error of this setting on the other rows.

References: Cawley and Talbot, "Fast exact leave-one-out cross-validation of sparse least-squares support vector machines",
2004; Tsamardinos, Greasidou and Borboudakis, "Bootstrapping the out-of-sample predictions for efficient and accurate
cross-validation", 2018.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.lapack import factor_lower_in_place, invert_lower_in_place
from gramless._core.progress import Progress
from gramless._core.targets.columns import split_bias
from gramless.inference.tuning import TUNING, InferenceTuning
from gramless.kernels import Kernel
from gramless.linalg.least_squares import ExpansionFit, LeastSquaresSettings, planned_preconditioner, rows_of
from gramless.linalg.operators import KernelOperator
from gramless.linalg.planning.plan import ProblemSize, SolverPlan, leave_one_out_memory
from gramless.linalg.solvers import CG, solve
from gramless.linalg.tuning import TUNING as LINALG_TUNING


@dataclass(frozen=True)
class LeaveOneOut:
    """Effect of leaving out each row: the leave-one-out residual of the row, and the change of other predictions."""

    residuals: np.ndarray
    """`y_i - f_-i(x_i)`, of shape (n, k)."""
    changes: np.ndarray
    """Factors in `f_-i(x) = f(x) - changes_i h_i(x)`, of shape (n, k)."""
    weights: np.ndarray
    """Number of copies that each row stands for."""

    @property
    def copies(self) -> np.ndarray | None:
        """Weights of the rows; None if all weights are one."""
        return None if (self.weights == 1).all() else self.weights

    @classmethod
    def from_solution(
        cls, coef: np.ndarray, inverse_diagonal: np.ndarray, ridge: float, weights: np.ndarray | None = None
    ) -> LeaveOneOut:
        """Compute the effect from coefficients, the diagonal of the inverse of the bordered matrix, and `ridge = 1 / C`."""
        coef = np.asarray(coef, dtype=np.float64).reshape(len(inverse_diagonal), -1)
        p = np.asarray(inverse_diagonal, dtype=np.float64)[:, None]
        w = np.ones(len(p)) if weights is None else np.asarray(weights, dtype=np.float64)
        rest = np.maximum(w - 1.0, 0.0)[:, None]
        copies = np.maximum(w, 1.0)[:, None]  # a row of weight at most one is left out entirely
        residuals = ridge * coef / (rest + ridge * p / copies)
        changes = ridge * coef / (copies * rest + ridge * p)
        return cls(residuals, changes, w)


class DenseFit(NamedTuple):
    """Coefficients, bias and leave-one-out scores of a least-squares system."""

    coef: np.ndarray
    bias: np.ndarray
    scores: np.ndarray


def dense_fit(Z: np.ndarray, solution: np.ndarray, diagonal: np.ndarray, intercept: bool = True) -> DenseFit:
    """Return the model and its leave-one-out scores from `A^-1 [Z, 1]` and the diagonal of `A^-1`."""
    if not intercept:
        coef = solution[:, :-1]
        return DenseFit(coef, np.zeros(Z.shape[1]), Z - coef / diagonal[:, None])
    coef, bias = split_bias(solution)
    return DenseFit(coef, bias, scores_without_each_row(Z, coef, diagonal, solution[:, -1]))


def scores_without_each_row(Z: np.ndarray, coef: np.ndarray, diagonal: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return the leave-one-out scores `f_-i(x_i)` from the coefficients, the diagonal of `A^-1` and `u = A^-1 1`."""
    return Z - coef / (diagonal - u**2 / u.sum())[:, None]


def leave_one_out_scores(
    op: KernelOperator, Z: np.ndarray, coef: np.ndarray, plan: SolverPlan | None, *, random_state: Any = None
) -> np.ndarray:
    """Return the leave-one-out scores of the rows; with a `plan`, an iterative solver estimates the scores."""
    if plan is None:
        diagonal, u = exact_diagonal(op)
    else:
        rng = check_random_state(random_state)
        solver = CG(tol=1e-2, preconditioner=planned_preconditioner(op, plan, rng))
        probes = diagonal_probes(op.shape[0], rng)
        W = solve(op, xa.like(probes, op.reference), solver, random_state=rng).W
        diagonal, u = diagonal_from_probes(op, probes, W)
    return scores_without_each_row(Z, coef, diagonal, u)


def solve_dense(A: np.ndarray, Z: np.ndarray) -> DenseFit | None:
    """Return the fit for the matrix `A = K + diag(ridge)`, which is overwritten; None if `A` cannot be factored."""
    inverse = inverse_factor(A)
    if inverse is None:
        return None
    right = np.column_stack([Z, np.ones(len(Z))]).astype(A.dtype)
    solution = (inverse.T @ (inverse @ right)).astype(np.float64)
    diagonal = np.einsum("ij,ij->j", inverse, inverse, dtype=np.float64)
    u = solution[:, -1]
    if not np.isfinite(solution).all() or not (diagonal - u**2 / u.sum() > 0).all():
        return None
    return dense_fit(Z, solution, diagonal)


def inverse_factor(A: np.ndarray) -> np.ndarray | None:
    """Return the lower triangular `L^-1` of `A = L L^T` in the memory of `A`; None if `A` is not positive definite."""
    # LAPACK needs a column-major array. The transpose of the symmetric row-major array is column-major, without a copy.
    factor = A.T if A.flags.c_contiguous else np.asfortranarray(A.T)
    if factor_lower_in_place(factor) or invert_lower_in_place(factor):
        return None
    columns = factor.T
    for i in range(len(columns)):
        columns[i, :i] = 0.0
    return factor


def exact_diagonal(op: KernelOperator) -> tuple[np.ndarray, np.ndarray]:
    """Return the diagonal of `A^-1` and `A^-1 1` in float64, on the device of the operator."""
    op.drop_cache()
    return diagonal_and_u(xa.invert_lower_(xa.cholesky_(op.dense(np.float64))))


def solve_with_inverse(inverse: Array, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return `A^-1 Z` and the diagonal of `A^-1` from the inverse of the lower Cholesky factor of `A`."""
    return xa.to_numpy(inverse.T @ (inverse @ xa.like(Z, inverse))), xa.to_numpy(xa.square_norms(inverse.T))


def diagonal_and_u(inverse: Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the diagonal of `A^-1` and `A^-1 1` from the inverse of the lower Cholesky factor of `A`."""
    solution, diagonal = solve_with_inverse(inverse, np.ones((inverse.shape[0], 1)))
    return diagonal, solution[:, 0]


def diagonal_probes(n: int, rng: np.random.RandomState) -> np.ndarray:
    """Return the right-hand sides for the estimate of the diagonal: columns of random signs, and a column of ones."""
    return np.column_stack([rng.choice(np.array([-1.0, 1.0]), size=(n, LINALG_TUNING.n_probes)), np.ones(n)])


def diagonal_from_probes(op: KernelOperator, probes: np.ndarray, W: Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of `s * A^-1 s` over the random signs `s`, and `A^-1 1`, from the solutions `W` for the probes."""
    solution = xa.to_numpy(W)
    samples = probes[:, :-1] * solution[:, :-1]
    # A diagonal entry of `A^-1` is at least the inverse of the diagonal entry of `A`; noise must not violate this bound.
    floor = 1.0 / xa.to_numpy(op.diag()).astype(np.float64)
    u = solution[:, -1].astype(np.float64)
    diagonal = np.maximum(np.mean(samples, axis=1), floor + u**2 / u.sum())
    # Callers divide by the estimates p. Noise in p increases the mean of 1 / p by the fraction var(p) / p^2, so p is
    # increased by the same fraction.
    return diagonal + np.var(samples, axis=1, ddof=1) / samples.shape[1] / diagonal, u


def leave_one_out_on_demand(
    kernel: Kernel,
    points: Array,
    coef: np.ndarray,
    targets: np.ndarray,
    C: float,
    weights: np.ndarray | None,
    device: str,
    budget: int,
    tuning: InferenceTuning = TUNING,
) -> np.ndarray | None:
    """Return exact leave-one-out scores of the points, or None if the scores would cost more than the fit.

    A row of weight w stands for w copies, one of which is left out.
    """
    m, d = points.shape
    if m > tuning.calibrated_max_points or not kernel.uses_points or not kernel.thread_safe:
        return None
    dtype = xa.numpy_dtype(coef)
    if leave_one_out_memory(ProblemSize(m, d, targets.shape[1], dtype, device, kernel)).nbytes > budget:
        return None
    ridge = 1.0 / (C * (np.ones(m) if weights is None else weights))
    diagonal, u = exact_diagonal(KernelOperator(xa.to_device(points, device, dtype), kernel, ridge))
    return targets - LeaveOneOut.from_solution(coef, diagonal - u**2 / u.sum(), 1.0 / C, weights).residuals


def scores_without_one_copy(
    Z: np.ndarray, scores: np.ndarray, coef: np.ndarray, C: float, weights: np.ndarray | None
) -> np.ndarray:
    """Convert scores for which all w copies of a row of weight w are left out to scores for which one copy is left out."""
    if weights is None:
        return scores
    residuals = Z - scores
    largest = np.abs(residuals).argmax(axis=1)[:, None]
    # A leave-one-out residual is a coefficient divided by an entry of the diagonal of the inverse, which all columns share.
    diagonal = np.take_along_axis(coef.astype(np.float64), largest, 1) / np.take_along_axis(residuals, largest, 1)
    return Z - LeaveOneOut.from_solution(residuals * diagonal, diagonal[:, 0], 1.0 / C, weights).residuals


@dataclass
class Selection:
    """Model with the largest leave-one-out score among the kernels that were compared so far."""

    scores: np.ndarray
    """Score of each kernel and each C, NaN for kernels that were not compared."""
    history: list[dict[str, Any]] = field(default_factory=list)
    best: tuple[int, int] = (0, 0)
    """Positions of the selected kernel and of the selected C."""
    fit: ExpansionFit = field(init=False)
    loo: np.ndarray = field(init=False)
    """Leave-one-out scores of the rows of positive weight."""


def select_model(
    X: Array,
    Z: np.ndarray,
    weights: np.ndarray | None,
    kernels: Sequence[Kernel],
    Cs: np.ndarray,
    score: Callable[[np.ndarray, np.ndarray, np.ndarray | None], float],
    settings: LeastSquaresSettings,
    callback: Callable[[Selection, dict[str, Any]], bool],
) -> Selection:
    """Compare all kernels and all `Cs` on the rows of positive weight.

    `score(loo, rows, weights)` is a metric of leave-one-out scores, where larger is better. `callback` is called after each
    kernel; the comparison ends if the callback returns True.
    """
    rows = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights)
    if len(rows) < 2:
        raise ValueError(f"leave-one-out needs at least 2 samples of positive weight, got n_samples = {len(rows)}")
    used = None if weights is None else weights[rows]
    solved = False
    device = xa.resolve_device(settings.device, X)
    dtype = xa.numpy_dtype(X)
    plan = settings.plan(kernels[0], (len(rows), X.shape[1]), Z.shape[1], dtype, device)
    points = X if len(rows) == X.shape[0] else rows_of(X, rows, rows, kernels[0])
    on_device = xa.to_device(points, device)
    path = path_by_eigenvectors if plan.solver == "eigenvectors" else _path_by_factorisations
    found, best, elapsed = Selection(np.full((len(kernels), len(Cs)), np.nan)), -np.inf, 0.0
    with Progress(settings.verbose, len(kernels), settings.estimator_name) as progress:
        for i, kernel in enumerate(kernels):
            clock = time.perf_counter()
            resolved = kernel.resolve(X, weights)
            for j, fit in enumerate(path(on_device, resolved, Z[rows], Cs, used, settings.fit_intercept)):
                if fit is None:
                    continue
                solved = True
                found.scores[i, j] = score(fit.scores, rows, used)
                if found.scores[i, j] > best:
                    best, found.best, found.loo = float(found.scores[i, j]), (i, j), fit.scores
                    found.fit = ExpansionFit(resolved, points, on_device, rows, device, plan)
                    found.fit.coef, found.fit.intercept = fit.coef.astype(dtype), fit.bias
            elapsed += time.perf_counter() - clock
            own = float(np.fmax.reduce(found.scores[i]))
            record = {"n_iter": i + 1, "seconds": elapsed, "score": own, "best_score": best}
            found.history.append(record)
            progress.update(record)
            if best > -np.inf and callback(found, record):
                break
    if not solved:
        raise np.linalg.LinAlgError(
            "no system is positive definite, for any kernel and any C of Cs: the kernel is not positive semi-definite, or "
            "every C is too large; change the kernel or lower Cs"
        )
    if best == -np.inf:
        raise ValueError("scoring returned NaN for every kernel and every C")
    return found


def path_by_eigenvectors(
    points: Array, kernel: Kernel, Z: np.ndarray, Cs: np.ndarray, weights: np.ndarray | None, intercept: bool
) -> Iterator[DenseFit | None]:
    """Yield the model and its leave-one-out scores for every `C`, or None if the matrix is not positive definite."""
    n = len(Z)
    root = np.ones(n) if weights is None else np.sqrt(weights)
    K = KernelOperator(points, kernel).dense(np.float64)
    scale = xa.like(root, K)
    K *= scale[:, None]
    K *= scale[None, :]
    values, vectors = xa.eigh(K)
    spectrum = xa.to_numpy(values)
    # Rounding makes zero eigenvalues slightly negative; the larger negative eigenvalues of an indefinite kernel are kept.
    eps = np.finfo(np.float64 if kernel.uses_points else xa.numpy_dtype(points)).eps
    rounding = n**0.5 * float(eps) * np.abs(spectrum).max()
    spectrum = np.where(np.abs(spectrum) <= rounding, np.maximum(spectrum, 0.0), spectrum)
    Q = xa.to_numpy(vectors)
    projected = Q.T @ (np.column_stack([Z, np.ones(n)]) * root[:, None])
    shifted = spectrum[None, :] + 1.0 / np.asarray(Cs)[:, None]
    inverses = 1.0 / np.where(shifted > 0, shifted, np.inf)
    diagonals = (Q * Q) @ inverses.T
    for inverse, diagonal, least in zip(inverses, diagonals.T, shifted.min(axis=1), strict=True):
        if least > 0:
            solution = (Q @ (inverse[:, None] * projected)) * root[:, None]
            yield dense_fit(Z, solution, diagonal * root**2, intercept)
        else:
            yield None


def _path_by_factorisations(
    points: Array, kernel: Kernel, Z: np.ndarray, Cs: np.ndarray, weights: np.ndarray | None, intercept: bool
) -> Iterator[DenseFit | None]:
    """Yield the model and its leave-one-out scores for every `C`, or None if the matrix is not positive definite."""
    for C in Cs:
        ridge = 1.0 / (C * (np.ones(len(Z)) if weights is None else weights))
        try:
            inverse = xa.invert_lower_(xa.cholesky_(KernelOperator(points, kernel, ridge).dense(np.float64)))
        except xa.NotPositiveDefiniteError:
            yield None
            continue
        solution, diagonal = solve_with_inverse(inverse, np.column_stack([Z, np.ones(len(Z))]))
        del inverse
        yield dense_fit(Z, solution, diagonal, intercept)


def optimism(squares: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Return the factor, at least 1, by which root mean squared errors on new rows exceed the leave-one-out errors.

    `squares` of shape (n, n_settings) has the squared leave-one-out residuals of all settings.
    """
    n = len(squares)
    chance = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
    least = float((chance @ squares).min())
    if n < 2 or squares.shape[1] < 2 or not least > 0:
        return 1.0
    rng = np.random.RandomState(0)
    counts = rng.multinomial(n, chance, size=TUNING.bootstrap_draws).astype(np.float64)
    left_out = np.where(counts == 0, chance, 0.0)
    valid = left_out.sum(axis=1) > 0
    best = (counts[valid] @ squares).argmin(axis=1)
    missed = (left_out[valid] / left_out[valid].sum(axis=1, keepdims=True)) @ squares
    return max(1.0, float(np.sqrt(missed[np.arange(len(best)), best].mean() / least)))
