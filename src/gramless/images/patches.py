"""All square patches of every image as normalised vectors.

An image of h x w pixels has ((h - l) / s + 1) ((w - l) / s + 1) patches of side l at stride s: 16 patches of 25 x 25 for a
digit of 28 x 28. Each patch is centred and scaled to unit norm; a constant patch becomes zero. Patches are views of the
images until a block of patches is normalised, so `iterate` never stores more than one block. Time O(l^2) for each patch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gramless._core.constraints import POSITIVE_INTEGER, estimator
from gramless._core.threads import slices
from gramless.images.filters import centre_and_normalise
from gramless.images.transformer import ImageTransformer, integer_pair, patch_positions


@estimator
class Patches(ImageTransformer):
    """Extract all patches of every image, one row per patch, ordered by image.

    The result has more rows than there are images, so `Patches` cannot be a step of a pipeline with `y`; use
    `gramless.PatchClassifier` instead. Unlike `sklearn.feature_extraction.image.PatchExtractor`, `Patches` normalises
    patches and can iterate over patches in bounded memory.

    Parameters
    ----------
    patch_size : int, (int, int) or None, default=None
        Height and width of the patches in pixels. None is 25 / 28 of the shorter side of the images.
    shape : (height, width) or (height, width, channels), optional
        Shape of one image if the rows of X are flat; None assumes square grey images.
    n_jobs : int, optional
        Number of threads; None is 1 unless a joblib context sets another number.
    stride : int, default=1
        Distance between neighbouring patches in pixels.
    normalise : bool, default=True
        Whether inputs are normalised before use. Each patch is centred and scaled to unit norm.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.images import Patches
    >>> images = np.zeros((10, 28, 28), dtype=np.uint8)
    >>> patches = Patches()
    >>> patches.fit_transform(images).shape, patches.per_image((28, 28))
    ((160, 625), 16)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {"stride": [POSITIVE_INTEGER]}

    patch_size: Any = field(default=None, kw_only=False)
    stride: int = 1
    normalise: bool = True

    def per_image(self, shape: tuple[int, ...]) -> int:
        """Return the number of patches of an image.

        Parameters
        ----------
        shape : tuple of int
            (height, width) or (height, width, channels) of the image.

        Returns
        -------
        int
            Number of patches.
        """
        return prod(patch_positions(shape, self._size(shape), int(self.stride)))

    def transform(self, X: Any) -> np.ndarray:
        """Return the patches of all images.

        Parameters
        ----------
        X : array of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            Images.

        Returns
        -------
        array of shape (n * per_image, patch_height * patch_width * channels)
            One row per patch; all patches of the first image, then all patches of the second image, and so on.
        """
        rows = super().transform(X)
        return rows.reshape(rows.shape[0] * rows.shape[1], rows.shape[2])

    def sizes(self, X: Any) -> tuple[int, int, int, np.dtype]:
        """Return the size of the result of `transform` without computing it.

        Parameters
        ----------
        X : array of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            Images.

        Returns
        -------
        tuple
            Number of images, patches per image, values per patch, and the dtype of the values.
        """
        images, _, dtype = self._read(X, reset=False)
        return len(images), self.per_image(images.shape[1:]), self._width(images.shape[1:]), dtype

    def iterate(self, X: Any, max_bytes: int) -> Iterator[tuple[slice, np.ndarray]]:
        """Iterate over the patches in blocks of consecutive images.

        Parameters
        ----------
        X : array of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            Images.
        max_bytes : int
            Maximum size of a block of patches in bytes; a block has at least the patches of one image.

        Yields
        ------
        rows : slice
            Slice of the images in the block.
        patches : array of shape (images * per_image, patch_height * patch_width * channels)
            Patches of the images in the block.
        """
        images, _, dtype = self._read(X, reset=False)
        width = self._width(images.shape[1:])
        image_bytes = self.per_image(images.shape[1:]) * width * dtype.itemsize
        for rows in slices(len(images), max(1, max_bytes // image_bytes)):
            yield rows, self._transform_blocks(images[rows], dtype).reshape(-1, width)

    def _size(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the height and width of a patch; by default 25 / 28 of the shorter side of the image, rounded."""
        side = max(1, round(min(shape[0], shape[1]) * 25 / 28))
        return (side, side) if self.patch_size is None else integer_pair("patch_size", self.patch_size)

    def _width(self, shape: tuple[int, ...]) -> int:
        """Return the number of values of a patch of images (height, width, channels)."""
        return prod(self._size(shape)) * shape[2]

    def _transform_block(self, images: np.ndarray, dtype: np.dtype) -> np.ndarray:
        each, stride = self.per_image(images.shape[1:]), int(self.stride)
        windows = sliding_window_view(images, self._size(images.shape[1:]), axis=(1, 2))[:, ::stride, ::stride]
        # Move the channels to the last axis, as in the input images.
        rows = windows.transpose(0, 1, 2, 4, 5, 3).reshape(len(images) * each, -1).astype(dtype)
        if self.normalise:
            centre_and_normalise(rows)
        return rows.reshape(len(images), each, -1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # The result has several rows per image, which checks of scikit-learn for tables of samples do not allow.
        tags.input_tags.two_d_array = False
        return tags
