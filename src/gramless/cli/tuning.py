"""The width of a kernel and C, by leave-one-out: first a grid on few rows, then uphill on many.

More rows can tell finer detail, so what is best for a thousand rows is too smooth for all of them. A grid for every row
would cost an eigendecomposition for each width; a walk from the small sample's optimum visits some ten settings, and
each costs one Cholesky factorisation and inverse,

    f_-i(x_i) = z_i - a_i / (M^-1)_ii

(see `gramless.inference.leave_one_out`): O(n^3) for a setting, n at most `WALK_ROWS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import gramless
from gramless._core.memory import format_bytes, parse_budget
from gramless._core.targets.columns import class_targets
from gramless.inference.leave_one_out import dense_scores
from gramless.kernels import as_kernel

# Of the size of the kernel's, in float64, that a search holds: the matrix, its eigenvectors, what is computed of them; half
# of one for the path of C.
_MATRICES = 3.5
_FEWEST_ROWS = 100
GRID_ROWS = 1000
WALK_ROWS = 4000
MOST_STEPS = 12
CS = tuple(float(c) for c in np.logspace(-1, 4, 11))
WIDTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
GAMMA_STEP = 2.0
C_STEP = 10**0.5


@dataclass(frozen=True)
class Tuned:
    """What was found, and how."""

    C: float
    gamma: float | None
    rows: int
    tried: int


def tune(
    X: Any,
    y: np.ndarray,
    *,
    task: str,
    kernel: str,
    C: float | None,
    gamma: float | None,
    scale: float | None,
    seed: int,
    memory_budget: str | float | None = None,
) -> Tuned:
    """Settle what is open (None) of `C` and `gamma`; a `scale` of None says that the kernel has no `gamma`."""
    budget = parse_budget(memory_budget)
    grid_rows, walk_rows = (min(most, int((budget / (8 * _MATRICES)) ** 0.5)) for most in (GRID_ROWS, WALK_ROWS))
    if grid_rows < min(_FEWEST_ROWS, len(y)):
        raise MemoryError(
            f"leave-one-out on {_FEWEST_ROWS} rows takes {format_bytes(8 * _MATRICES * _FEWEST_ROWS**2)}, and "
            f"memory_budget allows {format_bytes(budget)}; allow more, or choose C and gamma with tune='none'"
        )
    order = np.random.default_rng(seed).permutation(X.shape[0])
    if task == "classification":
        order = _rare_first(order, y)
    few, many = order[:grid_rows], order[:walk_rows]
    search = gramless.LSSVCCV if task == "classification" else gramless.LSSVRCV
    widths = {} if scale is None else {"gamma": [gamma] if gamma is not None else [scale * w for w in WIDTHS]}
    grid = search(Cs=CS if C is None else [C], kernel=kernel, param_grid=widths).fit(X[few], y[few])
    start = (grid.best_params_["C"], grid.best_params_.get("gamma"))
    if len(many) == len(few):
        return Tuned(*start, len(few), grid.scores_.size)
    rate = _rater(X[many], y[many], task, kernel)
    moves = []
    if scale is not None and gamma is None:
        moves += [(1.0, GAMMA_STEP), (1.0, 1 / GAMMA_STEP)]
    if C is None:
        moves += [(C_STEP, 1.0), (1 / C_STEP, 1.0)]
    best, visited = _walk(rate, start, moves)
    return Tuned(*best, len(many), grid.scores_.size + visited)


def _rare_first(order: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The order with two rows of each class in front that the first rows would show fewer than two of.

    A class in a thousand is in a sample of a thousand by luck only, and without it there is nothing to tell apart.
    """
    classes, codes = np.unique(y[order], return_inverse=True)
    seen = np.bincount(codes[:GRID_ROWS], minlength=len(classes))
    front = np.concatenate([np.flatnonzero(codes == k)[:2] for k in np.flatnonzero(seen < 2)] or [np.empty(0, dtype=int)])
    return np.concatenate([order[front], np.delete(order, front)])


def _walk(
    rate: Callable[[float, float | None], float],
    start: tuple[float, float | None],
    moves: list[tuple[float, float]],
) -> tuple[tuple[float, float | None], int]:
    """Uphill by the first move that helps, the last one that did first."""
    here, value = start, rate(*start)
    visited = {_rounded(start)}
    moves = list(moves)
    while len(visited) < MOST_STEPS:
        for move in moves:
            there = (here[0] * move[0], None if here[1] is None else here[1] * move[1])
            if _rounded(there) in visited:
                continue
            visited.add(_rounded(there))
            found = rate(*there)
            if found > value:
                here, value = there, found
                moves.remove(move)
                moves.insert(0, move)
                break
            if len(visited) >= MOST_STEPS:
                break
        else:
            break
    return here, len(visited)


def _rounded(setting: tuple[float, float | None]) -> tuple[str, ...]:
    return tuple("" if part is None else f"{part:.6g}" for part in setting)


def _rater(X: Any, y: np.ndarray, task: str, kernel: str) -> Callable[[float, float | None], float]:
    """A function that rates (C, gamma): leave-one-out accuracy, or minus the mean squared error."""
    if task == "classification":
        classes, codes = np.unique(y, return_inverse=True)
        Z = class_targets(codes, len(classes))
    else:
        Z = y.astype(np.float64)[:, None]

    def rate(C: float, gamma: float | None) -> float:
        settings = {} if gamma is None else {"gamma": gamma}
        K = np.asarray(as_kernel(kernel, **settings)(X, X), dtype=np.float64)
        scores = dense_scores(K, Z, C)
        if scores is None:
            return -np.inf
        if task != "classification":
            return -float(np.mean((scores - Z) ** 2))
        winner = scores[:, 0] > 0 if Z.shape[1] == 1 else scores.argmax(axis=1)
        return float(np.mean(winner == codes))

    return rate
