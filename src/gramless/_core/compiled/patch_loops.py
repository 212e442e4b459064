"""Compiled loops over image patches: extract and normalise the patches, and threshold and pool their activations.

The caller computes the activations between the two loops by one matrix product. All three steps process a few images at a
time, so that activations are still in the cache when they are pooled and no array of shape (images, positions, atoms) is
allocated.
"""

from __future__ import annotations

import numpy as np

from gramless._core.compiled.compiler import numba


@numba.njit("void(f4[:, :, :, ::1], i8, i8, i8, f4, f4[:, ::1])", cache=True, nogil=True, fastmath={"reassoc", "contract"})
def gather(images: np.ndarray, height: int, width: int, stride: int, floor: float, out: np.ndarray) -> None:
    """Write all patches of the images to the rows of `out`, ordered by image, and ones to the last column of `out`.

    Each patch is shifted to mean zero and divided by sqrt(variance + floor).
    """
    n, h, w, c = images.shape
    d = height * width * c
    row = 0
    for i in range(n):
        image = images[i]
        for top in range(0, h - height + 1, stride):
            for left in range(0, w - width + 1, stride):
                patch = out[row]
                k = 0
                for y in range(height):
                    line = image[top + y, left : left + width].reshape(-1)
                    for x in range(line.shape[0]):
                        patch[k] = line[x]
                        k += 1
                total = np.float32(0)
                for k in range(d):
                    total += patch[k]
                mean = total / np.float32(d)
                square = np.float32(0)
                for k in range(d):
                    patch[k] -= mean
                    square += patch[k] * patch[k]
                factor = np.float32(1) / np.sqrt(square / np.float32(d) + floor)
                for k in range(d):
                    patch[k] *= factor
                patch[d] = np.float32(1)
                row += 1


@numba.njit("void(f4[:, ::1], i8[::1], i8[::1], f4[::1], f4, b1, f4[:, ::1])", cache=True, nogil=True)
def pool(
    activations: np.ndarray,
    positions: np.ndarray,
    cells: np.ndarray,
    weights: np.ndarray,
    threshold: float,
    both: bool,
    out: np.ndarray,
) -> None:
    """Compute weighted sums of max(0, a - threshold) over the activations `a` of one image, for each pooling cell.

    Entry e adds `weights[e]` times the activations at position `positions[e]` to `out[cells[e]]`. With `both`, the second
    half of the columns contains the sums of max(0, -a - threshold).
    """
    k = activations.shape[1]
    zero = np.float32(0)
    out[:] = zero
    for e in range(positions.shape[0]):
        a, cell, weight = activations[positions[e]], out[cells[e]], weights[e]
        plus = cell[:k]
        if both:
            minus = cell[k:]
            for j in range(k):
                high, low = a[j] - threshold, -a[j] - threshold
                plus[j] += weight * (high if high > zero else zero)
                minus[j] += weight * (low if low > zero else zero)
        else:
            for j in range(k):
                high = a[j] - threshold
                plus[j] += weight * (high if high > zero else zero)
