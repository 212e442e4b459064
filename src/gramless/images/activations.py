"""Activations of filters on the patches of images, pooled over cells, by compiled loops on a CPU and by tensors on a GPU.

    a = <filter, (patch - mean) / sqrt(var + floor)> + offset
    feature = sum over a cell of weight * max(0, +-a - threshold)

Centring and whitening are linear and contrast normalisation is one factor per patch, so the filters include them and one
matrix product computes all activations. Cells divide the grid of positions into equal areas: a position on the border of
two cells belongs partly to both, so that reflecting an image only reorders its cells. Time O(n positions atoms d), memory
of a few images per thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import blas_threads, run_threads, slices
from gramless.images.tuning import TUNING


def equal_areas(n: int, parts: int) -> np.ndarray:
    """Return the share of each unit of an interval of n units in each of `parts` equal parts, of shape (parts, n)."""
    edges = np.arange(parts + 1) * (n / parts)
    units = np.arange(n)
    overlap = np.minimum(edges[1:, None], units + 1) - np.maximum(edges[:-1, None], units)
    overlap = np.where(overlap > 1e-9, overlap, 0.0)
    return overlap / overlap.sum(axis=1, keepdims=True)


def make_pooling(rows: int, columns: int, grid: tuple[int, int]) -> np.ndarray:
    """Return the matrix (cells, positions) that averages over cells; a grid has at most as many cells as positions."""
    return np.kron(equal_areas(rows, grid[0]), equal_areas(columns, grid[1])).astype(np.float32)


def normalised_patches(images: Array, patch: tuple[int, int], stride: int, floor: float) -> Array:
    """Return every patch of float32 images (n, height, width, channels), centred and divided by sqrt(var + floor)."""
    if xa.is_torch(images):
        return _unfolded(images, patch, stride, floor)
    from gramless._core.compiled.patch_loops import gather

    n, height, width, channels = images.shape
    positions = ((height - patch[0]) // stride + 1) * ((width - patch[1]) // stride + 1)
    d = patch[0] * patch[1] * channels
    rows = np.empty((n * positions, d + 1), np.float32)  # `gather` writes a one after each patch, for the offset
    gather(xa.to_numpy(images), *patch, stride, floor, rows)
    return rows[:, :d]


@dataclass(frozen=True)
class Activations:
    """Function from a block of images to their pooled activations.

    `filters` has one column per atom and a last row of offsets, see `gramless.images.patch_dictionary`; `pooling` is the
    matrix of `make_pooling`.
    """

    filters: np.ndarray
    patch: tuple[int, int]
    stride: int
    floor: float
    threshold: float
    both_signs: bool
    pooling: np.ndarray

    def __call__(self, images: Array, out: Array) -> Array:
        """Write the pooled activations of float32 images (n, height, width, channels) to `out` (n, features)."""
        if xa.is_torch(images):
            return self._by_tensors(images, out)
        height, width = ((images.shape[1 + axis] - self.patch[axis]) // self.stride + 1 for axis in (0, 1))
        values = self.patch[0] * self.patch[1] * images.shape[3]
        # Compiled loops do not check bounds, and models may come from files.
        if len(self.filters) != values + 1 or height * width != self.pooling.shape[1]:
            raise ValueError(f"{len(self.filters)} rows of filters do not match patches of {values} values and an offset")
        self._by_loops(xa.to_numpy(images), xa.to_numpy(out))
        return out

    def _by_loops(self, images: np.ndarray, out: np.ndarray) -> None:
        from gramless._core.compiled.patch_loops import gather, pool

        k, (n_cells, P) = self.filters.shape[1], self.pooling.shape
        positions, cells = (np.ascontiguousarray(index) for index in np.nonzero(self.pooling.T))
        weights = self.pooling[cells, positions]
        width = min(k, max(1, TUNING.activation_cache_bytes // (4 * P)))
        parts = slices(k, -(-k // -(-k // width)))
        filters = [np.ascontiguousarray(self.filters[:, part]) for part in parts]
        signs = 2 if self.both_signs else 1
        workers = max(1, min(blas_threads(), len(images)))

        def work(worker: int) -> None:
            rows = np.empty((P, self.filters.shape[0]), np.float32)
            for i in range(worker, len(images), workers):
                gather(images[i : i + 1], *self.patch, self.stride, self.floor, rows)
                into = out[i].reshape(n_cells, signs, k)
                for part, columns in zip(parts, filters, strict=True):
                    pooled = np.empty((n_cells, signs * columns.shape[1]), np.float32)
                    pool(rows @ columns, positions, cells, weights, self.threshold, self.both_signs, pooled)
                    into[:, :, part] = pooled.reshape(n_cells, signs, -1)

        run_threads(work, workers)

    def _by_tensors(self, images: Array, out: Array) -> Array:
        k, (cells, P) = self.filters.shape[1], self.pooling.shape
        filters, pool = xa.like(self.filters, images), xa.like(self.pooling, images)
        batch = max(1, TUNING.activation_device_bytes // (4 * P * (k + 2 * self.filters.shape[0])))
        for rows in slices(images.shape[0], batch):
            n = rows.stop - rows.start
            patches = _unfolded(images[rows], self.patch, self.stride, self.floor)
            active = (patches @ filters[:-1]) + filters[-1]
            del patches
            into = out[rows].reshape(n, cells, -1, k)
            plus = xa.clip_below_(active - self.threshold, 0.0)
            into[:, :, 0] = pool @ plus.reshape(n, P, k)
            if self.both_signs:
                active *= -1
                active -= self.threshold
                into[:, :, 1] = pool @ xa.clip_below_(active, 0.0).reshape(n, P, k)
        return out


def _unfolded(images: Any, patch: tuple[int, int], stride: int, floor: float) -> Array:
    """Return all normalised patches of a tensor of images."""
    windows = images.unfold(1, patch[0], stride).unfold(2, patch[1], stride)  # (n, rows, columns, channels, height, width)
    windows = windows.permute(0, 1, 2, 4, 5, 3)
    rows = windows.reshape(-1, patch[0] * patch[1] * images.shape[3])
    rows = rows - rows.mean(dim=1, keepdim=True)
    rows /= (rows.square().mean(dim=1, keepdim=True) + floor).sqrt_()
    return rows
