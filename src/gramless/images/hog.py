"""Histograms of oriented gradients.

The gradient of every pixel (central differences, zero on the border; of a colour image the channel with the
largest one) votes with its magnitude for one of `bins` directions in [0, 180) degrees. The votes are averaged
over cells of `cell` x `cell` pixels, and the histograms of every block of `blocks` x `blocks` cells are
normalised together and concatenated. Time O(n d + n features); temporaries of one block of images. Reference:
Dalal and Triggs, "Histograms of oriented gradients for human detection", 2005.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.base import ClassNamePrefixFeaturesOutMixin

from gramless._core.doc_links import link_documentation
from gramless.images.transformer import ImageShape, ImageTransformer, Plan

NORMS = ("l2-hys", "l2", "l1", "none")
# Keeps the normalisation of an empty block finite; small against the histogram of any visible edge.
FLOOR = 1e-5


def gradients(images: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vertical and horizontal gradient and magnitude, (n, h, w) each, of float images (n, h, w, c)."""
    down, across = np.zeros_like(images), np.zeros_like(images)
    down[:, 1:-1] = images[:, 2:] - images[:, :-2]
    across[:, :, 1:-1] = images[:, :, 2:] - images[:, :, :-2]
    magnitude = np.hypot(down, across)
    if images.shape[3] == 1:
        return down[..., 0], across[..., 0], magnitude[..., 0]
    strongest = magnitude.argmax(axis=3)[..., None]
    down, across, magnitude = (np.take_along_axis(a, strongest, 3)[..., 0] for a in (down, across, magnitude))
    return down, across, magnitude


def normalise_blocks(V: np.ndarray, norm: str) -> np.ndarray:
    """Normalise the last axis."""
    if norm == "none":
        return V
    if norm == "l1":
        return V / (np.abs(V).sum(axis=-1, keepdims=True) + FLOOR)

    def unit(V: np.ndarray) -> np.ndarray:
        return V / np.sqrt(np.square(V).sum(axis=-1, keepdims=True) + FLOOR**2)

    return unit(np.minimum(unit(V), 0.2)) if norm == "l2-hys" else unit(V)


@link_documentation
class HOG(ClassNamePrefixFeaturesOutMixin, ImageTransformer):
    """Histograms of oriented gradients.

    A blank image has the zero histogram.

    Parameters
    ----------
    cell : int
        Side of a cell in pixels; what is left over at the right and lower border is ignored.
    bins : int
        Directions in a histogram.
    blocks : int
        Side in cells of the blocks that are normalised together; blocks overlap.
    norm : {"l2-hys", "l2", "l1", "none"}
        How blocks are normalised; "l2-hys" is "l2", limited to 0.2, and "l2" again.
    shape : (height, width) or (height, width, channels), optional
        Shape of one image when rows are flat; square grey images need none.
    n_jobs : int, optional
        Threads; None is one unless a joblib context says otherwise.

    See Also
    --------
    FourierFeatures : Features from the spectrum of an image.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.images import HOG
    >>> images = np.zeros((2, 28, 28), dtype=np.uint8)
    >>> images[0, 5:20, 14:16] = 255
    >>> HOG(cell=7, bins=9, blocks=1).fit_transform(images).shape
    (2, 144)
    """

    def __init__(
        self,
        cell: int = 4,
        bins: int = 9,
        blocks: int = 2,
        *,
        norm: str = "l2-hys",
        shape: Any = None,
        n_jobs: int | None = None,
    ):
        self.cell = cell
        self.bins = bins
        self.blocks = blocks
        self.norm = norm
        self.shape = shape
        self.n_jobs = n_jobs

    def _plan(self, shape: ImageShape, dtype: np.dtype) -> Plan:
        for name in ("cell", "bins", "blocks"):
            value = getattr(self, name)
            if int(value) != value or value < 1:
                raise ValueError(f"{name} must be a whole number, at least 1, got {value}.")
        if self.norm not in NORMS:
            raise ValueError(f"norm must be one of {', '.join(NORMS)}, got {self.norm!r}.")
        cell, bins, side = int(self.cell), int(self.bins), int(self.blocks)
        n_rows, n_columns = shape[0] // cell, shape[1] // cell
        if min(n_rows, n_columns) < side:
            raise ValueError(
                f"Images of {shape[0]} x {shape[1]} pixels hold {n_rows} x {n_columns} cells of side {cell}, "
                f"too few for a block of {side} x {side}: choose smaller cells or blocks."
            )
        height, width = n_rows * cell, n_columns * cell
        n_cells = n_rows * n_columns
        cell_of_pixel = (np.arange(height)[:, None] // cell) * n_columns + np.arange(width) // cell
        features = (n_rows - side + 1) * (n_columns - side + 1) * side * side * bins

        def apply(images: np.ndarray) -> np.ndarray:
            n = len(images)
            down, across, votes = (g[:, :height, :width] for g in gradients(images.astype(dtype)))
            # In degrees, in which horizontal and vertical edges fall on the bins' limits exactly. Opposite
            # gradients are one direction; the modulus may round up to 180, which is the last bin.
            degrees = np.mod(np.rad2deg(np.arctan2(down, across)), 180)
            bin_of_pixel = (degrees * bins / 180).astype(np.int64)
            np.minimum(bin_of_pixel, bins - 1, out=bin_of_pixel)
            bin_of_pixel += cell_of_pixel * bins
            bin_of_pixel += (np.arange(n) * (n_cells * bins))[:, None, None]
            sums = np.bincount(bin_of_pixel.ravel(), votes.ravel(), minlength=n * n_cells * bins)
            cells = (sums / cell**2).astype(dtype).reshape(n, n_rows, n_columns, bins)
            windows = sliding_window_view(cells, (side, side), axis=(1, 2)).transpose(0, 1, 2, 4, 5, 3)
            stacked = windows.reshape(*windows.shape[:3], side * side * bins)
            return normalise_blocks(stacked, self.norm).reshape(n, features)

        return Plan(apply, (features,), (10 * prod(shape) + 3 * features) * 8)
