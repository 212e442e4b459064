"""Activations of filters on the patches of images, pooled over cells, by compiled loops on a CPU and by PyTorch on a GPU.

    a = <filter, (patch - mean) / sqrt(var + floor)> + offset          mean and variance of the values of the patch
    feature = sum over a cell of weight * max(0, +-a - threshold)

Filters and offsets include the whitening of patches, which is linear, so one matrix product computes all activations of the
normalised patches. Cells divide the grid of patch positions into equal areas. A position on the border of two cells counts
partly for each of the two, so that reflecting an image only reorders the cells. Time O(n positions filters d) for n images
and patches of d values; memory for a few images per thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import blas_threads, run_threads, slices
from gramless.images.transformer import ImageShape, integer_pair, patch_positions
from gramless.images.tuning import TUNING


def equal_areas(n: int, parts: int) -> np.ndarray:
    """Return (parts, n) weights of n unit intervals in `parts` parts of equal length; the weights of a part sum to 1."""
    edges = np.arange(parts + 1) * (n / parts)
    units = np.arange(n)
    overlap = np.minimum(edges[1:, None], units + 1) - np.maximum(edges[:-1, None], units)
    overlap = np.where(overlap > 1e-9, overlap, 0.0)
    return overlap / overlap.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class PatchGeometry:
    """Sizes of an image, of its patches and of the pooling grid; `positions` has the numbers of patches per axis."""

    image_shape: ImageShape
    patch: tuple[int, int]
    stride: int
    positions: tuple[int, int]
    grid: tuple[int, int]

    @property
    def n_positions(self) -> int:
        """Number of patches of one image."""
        return self.positions[0] * self.positions[1]

    @property
    def n_values(self) -> int:
        """Number of values of one patch."""
        return self.patch[0] * self.patch[1] * self.image_shape[2]

    @property
    def n_cells(self) -> int:
        """Number of cells of the pooling grid."""
        return self.grid[0] * self.grid[1]

    @property
    def pooling(self) -> np.ndarray:
        """Matrix of shape (n_cells, n_positions) that averages the values of the positions in each cell."""
        return np.kron(*map(equal_areas, self.positions, self.grid)).astype(np.float32)


def patch_geometry(image_shape: ImageShape, patch_size: Any, stride: int | None, pooling: Any) -> PatchGeometry:
    """Return the patch geometry for images of the given shape; parameters that are None get defaults for this shape."""
    height, width, channels = image_shape
    side = min(height, width)
    step = int(stride) if stride is not None else max(1, side // 32)
    if patch_size is None:
        size = min(6 if channels > 1 else 7, max(3, 2 * round(side / 8) + 1)) + 2 * (step - 1)
        patch = min(size, height), min(size, width)
    else:
        patch = integer_pair("patch_size", patch_size)
    positions = patch_positions(image_shape, patch, step)
    if pooling is None:
        rows, columns = (min(TUNING.pooling_cells, max(1, count // 2)) for count in positions)
        grid = rows, columns
    else:
        grid = integer_pair("pooling", pooling)
    if grid[0] > positions[0] or grid[1] > positions[1]:
        raise ValueError(
            f"pooling {grid[0]} x {grid[1]} has more cells than there are positions of a patch, "
            f"{positions[0]} x {positions[1]}."
        )
    return PatchGeometry(image_shape, patch, step, positions, grid)


def normalised_patches(images: Array, geometry: PatchGeometry, floor: float) -> Array:
    """Return every patch of float32 images (n, height, width, channels), centred and divided by sqrt(var + floor)."""
    if xa.is_torch(images):
        return _unfolded(images, geometry, floor)
    from gramless._core.compiled.patch_loops import gather

    # `gather` appends a one to each patch, which is multiplied by the offset of a filter.
    rows = np.empty((len(images) * geometry.n_positions, geometry.n_values + 1), np.float32)
    gather(xa.to_numpy(images), *geometry.patch, geometry.stride, floor, rows)
    return rows[:, :-1]


@dataclass(frozen=True)
class PatchEncoder:
    """Filters (one column per atom, offsets in the last row) and the parameters of patch normalisation and activations."""

    filters: np.ndarray
    geometry: PatchGeometry
    floor: float
    threshold: float
    both_signs: bool

    def pool(self, images: Array, out: Array) -> None:
        """Write the pooled activations of float32 images (n, height, width, channels) to `out` (n, features)."""
        if xa.is_torch(images):
            self._pool_by_tensors(images, out)
            return
        from gramless._core.compiled.patch_loops import gather, pool

        filters, geometry = self.filters, self.geometry
        # Compiled loops do not check bounds, and models may come from files.
        if len(filters) != geometry.n_values + 1 or images.shape[1:] != geometry.image_shape:
            raise ValueError(
                f"{len(filters)} rows of filters do not match patches of {geometry.n_values} values and an offset, of "
                f"images of shape {geometry.image_shape}"
            )
        images, out = xa.to_numpy(images), xa.to_numpy(out)
        k, n_positions, n_cells = filters.shape[1], geometry.n_positions, geometry.n_cells
        pooling = geometry.pooling
        positions, cells = (np.ascontiguousarray(index) for index in np.nonzero(pooling.T))
        weights = pooling[cells, positions]
        width = min(k, max(1, TUNING.activation_cache_bytes // (4 * n_positions)))
        parts = slices(k, -(-k // -(-k // width)))
        contiguous = [np.ascontiguousarray(filters[:, part]) for part in parts]
        signs = 2 if self.both_signs else 1
        workers = max(1, min(blas_threads(), len(images)))

        def work(worker: int) -> None:
            rows = np.empty((n_positions, filters.shape[0]), np.float32)
            for i in range(worker, len(images), workers):
                gather(images[i : i + 1], *geometry.patch, geometry.stride, self.floor, rows)
                into = out[i].reshape(n_cells, signs, k)
                for part, columns in zip(parts, contiguous, strict=True):
                    pooled = np.empty((n_cells, signs * columns.shape[1]), np.float32)
                    pool(rows @ columns, positions, cells, weights, self.threshold, self.both_signs, pooled)
                    into[:, :, part] = pooled.reshape(n_cells, signs, -1)

        run_threads(work, workers)

    def _pool_by_tensors(self, images: Any, out: Any) -> None:
        filters, geometry = self.filters, self.geometry
        k, n_positions, n_cells = filters.shape[1], geometry.n_positions, geometry.n_cells
        on_device, pooling = xa.like(filters, images), xa.like(geometry.pooling, images)
        batch = max(1, TUNING.activation_device_bytes // (4 * n_positions * (k + 2 * filters.shape[0])))
        for rows in slices(images.shape[0], batch):
            patches = _unfolded(images[rows], geometry, self.floor)
            active = (patches @ on_device[:-1]) + on_device[-1]
            del patches
            into = out[rows].reshape(rows.stop - rows.start, n_cells, -1, k)
            plus = xa.clip_below_(active - self.threshold, 0.0)
            into[:, :, 0] = pooling @ plus.reshape(-1, n_positions, k)
            if self.both_signs:
                active *= -1
                active -= self.threshold
                into[:, :, 1] = pooling @ xa.clip_below_(active, 0.0).reshape(-1, n_positions, k)


def _unfolded(images: Any, geometry: PatchGeometry, floor: float) -> Array:
    """Return all normalised patches of a tensor of images, one patch per row."""
    (height, width), stride = geometry.patch, geometry.stride
    windows = images.unfold(1, height, stride).unfold(2, width, stride)  # (n, rows, columns, channels, height, width)
    rows = windows.permute(0, 1, 2, 4, 5, 3).reshape(-1, geometry.n_values)
    rows = rows - rows.mean(dim=1, keepdim=True)
    rows /= (rows.square().mean(dim=1, keepdim=True) + floor).sqrt_()
    return rows
