"""Selection of C and the kernel of a least-squares model by closed-form leave-one-out, without refits.

For each kernel one eigendecomposition `K = Q diag(lambda) Q^T` gives the model and the leave-one-out scores of every `C`,
since `A^-1` has the same eigenvectors with the eigenvalues `1 / (lambda + 1/C)`. Cost: O(n^3) for each kernel, O(n^2) for
each `C`, and 24 n^2 bytes. If these exceed the memory budget, the matrix of each `C` is factored: O(n^3) for each `C`, and
8 n^2 bytes.

The smallest error of many settings is optimistic. `optimism` draws bootstrap samples of the rows, selects the setting that
is best on the drawn rows, and measures its error on the other rows.

References: Cawley and Talbot, "Fast exact leave-one-out cross-validation of sparse least-squares support vector machines",
2004; Tsamardinos, Greasidou and Borboudakis, "Bootstrapping the out-of-sample predictions for efficient and accurate
cross-validation", 2018.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.progress import Progress
from gramless.inference.leave_one_out import DenseFit, dense_fit
from gramless.inference.tuning import TUNING
from gramless.kernels import Kernel
from gramless.linalg.operators import KernelOperator


@dataclass
class Selection:
    """The model with the largest leave-one-out score of the kernels compared so far."""

    support: np.ndarray
    """Numbers of the training rows of positive weight."""
    scores: np.ndarray
    """Score of each kernel and each C, NaN for kernels that were not compared."""
    history: list[dict[str, Any]] = field(default_factory=list)
    best: tuple[int, int] = (0, 0)
    """Positions of the selected kernel and of the selected C."""
    kernel: Kernel = field(init=False)
    points: Array = field(init=False)
    device_points: Array = field(init=False)
    fit: DenseFit = field(init=False)


def select_model(
    X: Array,
    Z: np.ndarray,
    weights: np.ndarray | None,
    kernels: Sequence[Kernel],
    Cs: np.ndarray,
    score: Callable[[np.ndarray, np.ndarray, np.ndarray | None], float],
    *,
    device: str,
    intercept: bool = True,
    by_eigenvectors: bool = True,
    callback: Callable[[Selection, dict[str, Any]], bool],
    verbose: int = 0,
    label: str = "",
) -> Selection:
    """Compare all kernels and all `Cs` on the rows of positive weight.

    `score(loo, rows, weights)` is larger for better leave-one-out scores. `callback` is called after each kernel; the
    comparison ends if it returns True.
    """
    rows = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights)
    if len(rows) < 2:
        raise ValueError(f"leave-one-out needs at least 2 samples of positive weight, got n_samples = {len(rows)}")
    used = None if weights is None else weights[rows]
    solved = False
    found, best, elapsed = Selection(rows, np.full((len(kernels), len(Cs)), np.nan)), -np.inf, 0.0
    with Progress(verbose, len(kernels), label) as progress:
        for i, kernel in enumerate(kernels):
            clock = time.perf_counter()
            resolved, points = kernel.resolve(X, weights), X
            if len(rows) < X.shape[0]:
                points = xa.take_rows(X, rows) if kernel.uses_points else xa.submatrix(X, rows, rows)
            on_device = xa.to_device(points, device)
            path = path_by_eigenvectors if by_eigenvectors else _path_by_factorisations
            for j, fit in enumerate(path(on_device, resolved, Z[rows], Cs, used, intercept)):
                if fit is None:
                    continue
                solved = True
                found.scores[i, j] = score(fit.scores, rows, used)
                if found.scores[i, j] > best:
                    best, found.best, found.fit = float(found.scores[i, j]), (i, j), fit
                    found.kernel, found.points, found.device_points = resolved, points, on_device
            elapsed += time.perf_counter() - clock
            record = {
                "n_iter": i + 1,
                "seconds": elapsed,
                "score": float(np.fmax.reduce(found.scores[i])),
                "best_score": best,
            }
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
    """Yield the model and the leave-one-out scores for every `C`; None if the matrix is not positive definite."""
    n = len(Z)
    root = np.ones(n) if weights is None else np.sqrt(weights)
    K = KernelOperator(points, kernel).dense(np.float64)
    scale = xa.like(root, K)
    K *= scale[:, None]
    K *= scale[None, :]
    values, vectors = xa.eigh(K)
    spectrum = xa.to_numpy(values)
    # Rounding makes zero eigenvalues of a semi-definite kernel slightly negative; an indefinite kernel has others.
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
    """Yield the model and the leave-one-out scores for every `C`; None if the matrix is not positive definite."""
    for C in Cs:
        ridge = 1.0 / (C * (np.ones(len(Z)) if weights is None else weights))
        try:
            inverse = xa.invert_lower_(xa.cholesky_(KernelOperator(points, kernel, ridge).dense(np.float64)))
        except xa.NotPositiveDefiniteError:
            yield None
            continue
        right = xa.like(np.column_stack([Z, np.ones(len(Z))]), inverse)
        solution = xa.to_numpy(inverse.T @ (inverse @ right))
        diagonal = xa.to_numpy(xa.square_norms(inverse.T))
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
