"""All square windows of every image, vectorised and normalised one by one.

An image of h x w pixels has ((h - l) / s + 1) ((w - l) / s + 1) windows of side l at stride s: sixteen views
of 25 x 25 for a digit of 28 x 28. Each is centred and scaled to unit norm; a constant window becomes zero.
The windows are views of the images until a block of them is normalised, so `iterate` never holds more than
one block. Time O(n p l^2).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gramless._core.doc_links import link_documentation
from gramless.images.normalise import centre_and_normalise
from gramless.images.transformer import ImageShape, ImageTransformer, Plan, blocks


@link_documentation
class Patches(ImageTransformer):
    """All windows of every image, one row each, those of one image after the other.

    The result has more rows than there are images, so this does not fit into a pipeline that also carries
    `y`; `gramless.PatchClassifier` does that work.

    Parameters
    ----------
    patch_size : int or (int, int)
        Height and width of the windows.
    stride : int
        Pixels from one window to the next.
    normalise : bool
        Centre every window and scale it to unit norm.
    shape : (height, width) or (height, width, channels), optional
        Shape of one image when rows are flat; square grey images need none.
    n_jobs : int, optional
        Threads; None is one unless a joblib context says otherwise.

    See Also
    --------
    gramless.PatchClassifier : Lets the windows of an image vote.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.images import Patches
    >>> images = np.zeros((10, 28, 28), dtype=np.uint8)
    >>> patches = Patches(25)
    >>> patches.fit_transform(images).shape, patches.per_image((28, 28))
    ((160, 625), 16)
    """

    def __init__(
        self, patch_size: Any = 25, *, stride: int = 1, normalise: bool = True, shape: Any = None, n_jobs: int | None = None
    ):
        self.patch_size = patch_size
        self.stride = stride
        self.normalise = normalise
        self.shape = shape
        self.n_jobs = n_jobs

    def per_image(self, shape: tuple[int, ...]) -> int:
        """Count the windows of an image.

        Parameters
        ----------
        shape : tuple of int
            The image's (height, width) or (height, width, channels).

        Returns
        -------
        int
            The number of windows.
        """
        size = self._size(shape)
        return prod((side - length) // int(self.stride) + 1 for side, length in zip(shape, size, strict=False))

    def transform(self, X: Any) -> np.ndarray:
        """The windows of all images.

        Parameters
        ----------
        X : array of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            The images.

        Returns
        -------
        array of shape (n * per_image, patch_height * patch_width * channels)
            One row for each window, those of one image after the other.
        """
        rows = super().transform(X)
        return rows.reshape(rows.shape[0] * rows.shape[1], rows.shape[2])

    def sizes(self, X: Any) -> tuple[int, int, int, np.dtype]:
        """Say how large the result of `transform` would be.

        Parameters
        ----------
        X : array
            As in `transform`.

        Returns
        -------
        tuple
            How many images there are, windows of each, values of a window, and their dtype.
        """
        images, _ = self._read(X, reset=False)
        dtype = np.result_type(images.dtype, np.float32)
        plan = self._plan(images.shape[1:], dtype)
        assert plan.row_shape is not None
        return len(images), plan.row_shape[0], plan.row_shape[1], dtype

    def iterate(self, X: Any, max_bytes: int) -> Iterator[tuple[slice, np.ndarray]]:
        """Windows of some images at a time.

        Parameters
        ----------
        X : array of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            The images.
        max_bytes : int
            Size of a block of windows; at least one image is taken.

        Yields
        ------
        which : slice
            The images the block belongs to.
        windows : array of shape (images * per_image, patch_height * patch_width * channels)
            Their windows.
        """
        images, _ = self._read(X, reset=False)
        dtype = np.result_type(images.dtype, np.float32)
        plan = self._plan(images.shape[1:], dtype)
        assert plan.row_shape is not None
        step = max(1, max_bytes // (prod(plan.row_shape) * dtype.itemsize))
        for start in range(0, len(images), step):
            part = slice(start, min(start + step, len(images)))
            out = np.empty((part.stop - start, *plan.row_shape), dtype)
            for rows in blocks(len(out), plan.bytes_per_image):
                out[rows] = plan.apply(images[part][rows])
            yield part, out.reshape(-1, plan.row_shape[1])

    def _size(self, shape: tuple[int, ...]) -> tuple[int, int]:
        size = tuple(self.patch_size) if np.ndim(self.patch_size) else (self.patch_size,) * 2
        if len(size) != 2 or any(int(side) != side or side < 1 for side in size):
            raise ValueError(f"patch_size must be one or two whole numbers, got {self.patch_size!r}.")
        if int(self.stride) != self.stride or self.stride < 1:
            raise ValueError(f"stride must be a whole number of pixels, at least 1, got {self.stride}.")
        if size[0] > shape[0] or size[1] > shape[1]:
            raise ValueError(
                f"patch_size {size[0]} x {size[1]} is larger than the images of {shape[0]} x {shape[1]} pixels."
            )
        return int(size[0]), int(size[1])

    def _plan(self, shape: ImageShape, dtype: np.dtype) -> Plan:
        size, stride = self._size(shape), int(self.stride)
        p, d = self.per_image(shape), prod(size) * shape[2]

        def apply(images: np.ndarray) -> np.ndarray:
            windows = sliding_window_view(images, size, axis=(1, 2))[:, ::stride, ::stride]
            # Channels last, as in the images.
            rows = windows.transpose(0, 1, 2, 4, 5, 3).reshape(-1, d).astype(dtype)
            if self.normalise:
                centre_and_normalise(rows)
            return rows.reshape(len(images), p, d)

        return Plan(apply, (p, d), 2 * p * d * dtype.itemsize)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # One image gives many rows, which no check for tables of samples expects.
        tags.input_tags.two_d_array = False
        return tags
