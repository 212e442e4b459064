"""The Gram matrix of dual problems on a device: stored, or computed tile by tile.

    gram(rows)    the Gram matrix of each working set
    add(...)      adds weighted rows to the sums of their problems, in double precision

The full matrix is stored if its n^2 values fit the budget. Otherwise the rows of a round are computed in tiles and
discarded, because recomputing them costs less than transferring them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gramless._core import arrays as xa
from gramless._core.threads import slices
from gramless.kernels.base import Kernel
from gramless.linalg.operators.fused import Form, fused_form, has_triton
from gramless.svm.gram_rows import Part, as_indices, within
from gramless.svm.tuning import TUNING


@dataclass(frozen=True)
class StoredDeviceGram:
    """A Gram matrix in device memory."""

    K: Any

    @property
    def device(self) -> Any:
        return self.K.device

    @property
    def dtype(self) -> Any:
        return self.K.dtype

    def gram(self, rows: Any, columns: Any) -> Any:
        """Return the Gram matrix of each working set; row a of `rows` and `columns` has the indices of set a in `K`."""
        return self.K[rows[:, :, None], columns[:, None, :]]

    def add(self, total: Any, active: Any, rows: Any, weights: Any, columns: Any, parts: Sequence[Sequence[Part]]) -> None:
        """Compute `total[active[a]] += weights[a] @ K[rows[a]][:, columns[active[a]]]` for each a."""
        if not total.is_cuda:
            for a, p in enumerate(active.tolist()):
                total[p] += weights[a] @ self.K[rows[a]][:, columns[p]].double()
            return
        from gramless._core.compiled.smo_triton import add_rows

        torch = xa.import_torch()
        # Rows with non-zero weights come first; the kernel reads only these.
        order = torch.argsort((weights == 0).to(torch.int8), dim=1, stable=True)
        counts = (weights != 0).sum(1)
        add_rows(self.K, rows.gather(1, order), weights.gather(1, order), counts, columns, active, total)


@dataclass(frozen=True)
class FusedRowSums:
    """Weighted sums of kernel rows on a CUDA device, for kernels that are functions of inner products or distances."""

    X: Any
    norms: Any
    form: Form

    @classmethod
    def of(cls, kernel: Kernel, X: Any, budget: float) -> FusedRowSums | None:
        """Return None if points, kernel or device are unsupported, or if a padded copy of the points exceeds the budget."""
        torch, form = xa.import_torch(), fused_form(kernel)
        width = -(-X.shape[1] // 16) * 16
        if (
            form is None
            or not form.smooth
            or not xa.is_torch(X)
            or not X.is_cuda
            or X.dtype != torch.float32
            or not has_triton()
        ):
            return None
        if 4 * len(X) * (width + 1) > budget:
            return None
        padded = torch.zeros((len(X), width), dtype=X.dtype, device=X.device)
        padded[:, : X.shape[1]] = X
        if form.of_distances:
            # Distances computed from norms lose digits if all points are far from the origin.
            padded[:, : X.shape[1]] -= X.mean(0)
        return cls(padded, (padded**2).sum(1), form)

    def add(self, rows: Any, weights: Any, total: Any, parts: Sequence[slice]) -> None:
        """Compute `total += weights @ K[rows][:, parts]`."""
        from gramless._core.compiled.smo_triton import add_from_points

        start = 0
        for part in parts:
            size = part.stop - part.start
            if size:
                add_from_points(self.X, self.norms, rows, weights, total[start : start + size], part.start, self.form)
            start += size


@dataclass(frozen=True)
class TiledDeviceGram:
    """Kernel values computed from points on the device in tiles of at most `entries` values."""

    kernel: Kernel
    X: Any
    entries: int
    fused: FusedRowSums | None = None

    @property
    def device(self) -> Any:
        return self.X.device

    @property
    def dtype(self) -> Any:
        return self.X.dtype

    def gram(self, rows: Any, columns: Any) -> Any:
        """Return the Gram matrix of each working set; `rows` and `columns` are equal, with one set per row."""
        torch = xa.import_torch()
        out = torch.empty((*rows.shape, rows.shape[1]), dtype=self.dtype, device=self.device)
        for K, idx in zip(out, rows, strict=True):
            points = self.X[idx]
            self.kernel(points, points, out=K)
        return out

    def add(self, total: Any, active: Any, rows: Any, weights: Any, columns: Any, parts: Sequence[Sequence[Part]]) -> None:
        """Compute `total[active[a]] += weights[a] @ K[rows[a]][:, columns]` with the columns in `parts[active[a]]`."""
        torch = xa.import_torch()
        for a, p in enumerate(active.tolist()):
            moved = torch.nonzero(weights[a]).ravel()
            if not len(moved):
                continue
            own = weights[a, moved]
            if self.fused is not None and all(isinstance(part, slice) for part in parts[p]):
                self.fused.add(rows[a, moved], own, total[p], parts[p])
                continue
            points = self.X[rows[a, moved]]
            step = max(TUNING.device_smallest_tile, self.entries // max(len(moved), self.X.shape[1]))
            for places, index in self._tiles(parts[p], step):
                _add_weighted(self.kernel(points, self.X[index]), own, total[p, places])

    def _tiles(self, parts: Sequence[Part], step: int) -> Iterator[tuple[slice, Any]]:
        """Yield ranges of a problem's variables and the corresponding rows of `X`."""
        start = 0
        for part in parts:
            size = as_indices(part).size
            for piece in slices(size, step):
                index = within(part, piece)
                yield (
                    slice(start + piece.start, start + piece.stop),
                    index if isinstance(index, slice) else xa.indices(index, self.X[:0]),
                )
            start += size


def device_gram(kernel: Kernel, X: Any, budget: float) -> StoredDeviceGram | TiledDeviceGram:
    """Return the stored Gram matrix if it fits `budget` bytes, else one that is computed in tiles."""
    if not kernel.uses_points:
        return StoredDeviceGram(X)
    n, itemsize, copies = len(X), X.element_size(), 1 + kernel.temporaries
    entries = int(min(TUNING.device_tile_bytes, budget / 2) // (itemsize * copies))
    full, step = n * n * itemsize, int(min(n, max(1, TUNING.device_tile_bytes // (itemsize * max(n * copies, X.shape[1])))))
    if full + step * n * itemsize * copies <= budget:
        K = xa.import_torch().empty((n, n), dtype=X.dtype, device=X.device)
        for rows in slices(n, step):
            left = X[rows]
            for columns in slices(n, max(TUNING.device_smallest_tile, entries // max(step, X.shape[1]))):
                kernel(left, X[columns], out=K[rows, columns])
        return StoredDeviceGram(K)
    return TiledDeviceGram(kernel, X, entries, FusedRowSums.of(kernel, X, budget / 4))


def least_bytes(kernel: Kernel, X: Any, working_set: int) -> int:
    """Return the smallest memory for kernel values: the points and values of a working set, and a tile."""
    if not kernel.uses_points:
        return 0
    copies, d = 1 + kernel.temporaries, X.shape[1]
    for_set = working_set * (d + working_set * copies)
    return int(X.element_size() * (for_set + 2 * TUNING.device_smallest_tile * max(working_set * copies, d)))


def solve_sets(gram: Any, slope: Any, beta: Any, lower: Any, upper: Any, epsilon: Any, goal: Any, max_moves: Any) -> Any:
    """Maximise over working sets, one per row, with `beta` in place; return the number of pairs moved in each.

    `slope` is the gradient of the smooth part at `beta`, `goal` the violation to reach, `max_moves` the limit of moves.
    """
    torch = xa.import_torch()
    moves = torch.zeros(len(gram), dtype=torch.int64, device=gram.device)
    if gram.is_cuda:
        from gramless._core.compiled.smo_triton import solve_sets as solve_on_device

        solve_on_device(gram, slope, beta, lower, upper, epsilon, goal, max_moves, moves)
        return moves
    from gramless._core.compiled.smo_loops import solve_pairs

    host = [x.numpy() for x in (gram, slope, beta, lower, upper)]
    for p, (tube, tol, limit) in enumerate(zip(epsilon.tolist(), goal.tolist(), max_moves.tolist(), strict=True)):
        K, slopes, variables, low, high = (x[p] for x in host)
        moves[p], _ = solve_pairs(K, slopes, variables, low, high, tube, tol, limit)
    return moves


def _add_weighted(block: Any, weights: Any, target: Any) -> None:
    """Compute `target += weights @ block` in double precision."""
    if not target.is_cuda:
        target += weights @ block.double()
        return
    from gramless._core.compiled.smo_triton import add_rows

    torch = xa.import_torch()
    m, n = block.shape
    rows, columns = torch.arange(m, device=block.device)[None], torch.arange(n, device=block.device)[None]
    counts, first = torch.full_like(rows[:, 0], m), torch.zeros_like(rows[:, 0])
    add_rows(block, rows, weights[None], counts, columns, first, target)
