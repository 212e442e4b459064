"""What every image transformer shares: reading images, cutting them into blocks, running blocks in parallel.

A transformer states a `Plan` for one image shape and dtype: a function from a block of images to a block of
results. The parent validates the input, allocates the result once, and applies the plan block by block, so
the memory beyond input and output is a few `BLOCK_BYTES` per thread whatever the number of images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isqrt, prod
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import validate_data

# Small enough for a few temporaries to stay in the outer caches, large enough to hide NumPy's call overhead.
BLOCK_BYTES = 8 * 2**20

ImageShape = tuple[int, int, int]


class Plan(NamedTuple):
    """How one block of images, (b, height, width, channels), becomes its results.

    `row_shape` is the shape of one result, None for an image of the input's layout. `bytes_per_image` is the
    working memory of one image, which sets the size of the blocks.
    """

    apply: Callable[[np.ndarray], np.ndarray]
    row_shape: tuple[int, ...] | None
    bytes_per_image: int


def image_shape(row_shape: tuple[int, ...], shape: Any, *, vectors_allowed: bool) -> ImageShape:
    """(height, width, channels) of one row, from what the rows look like and what the user said."""
    if shape is not None:
        stated = tuple(shape) if isinstance(shape, tuple | list) else ()
        if len(stated) not in (2, 3) or any(int(side) != side or side < 1 for side in stated):
            raise ValueError(f"shape must be (height, width) or (height, width, channels), got {shape!r}.")
        fits = prod(stated) == prod(row_shape)
        if not fits or (len(row_shape) > 1 and (*stated, 1)[:3] != (*row_shape, 1)[:3]):
            raise ValueError(f"Images of shape {row_shape} do not have the stated shape {shape!r}.")
        row_shape = tuple(int(side) for side in stated)
    if len(row_shape) == 1:
        (d,) = row_shape
        if vectors_allowed:
            return d, 1, 1
        side = isqrt(d)
        if side * side != d:
            raise ValueError(f"Rows of {d} values are not square images: say shape=(height, width[, channels]).")
        return side, side, 1
    if len(row_shape) > 3:
        raise ValueError(f"Images are (n, height, width[, channels]) or flat, got rows of shape {row_shape}.")
    height, width, channels = (*row_shape, 1)[:3]
    return height, width, channels


def blocks(n: int, bytes_per_row: int) -> Iterator[slice]:
    """Slices of 0..n whose rows need about BLOCK_BYTES together."""
    step = max(1, BLOCK_BYTES // max(1, bytes_per_row))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


class ImageTransformer(TransformerMixin, BaseEstimator):
    """Parent of the image transformers; children write `_plan`."""

    shape: Any
    n_jobs: int | None
    # True where the image's geometry does not matter, so that any vector will do.
    _vectors_allowed = False

    def fit(self, X: Any, y: Any = None) -> Any:
        """Check the settings against the images; nothing is learned.

        Parameters
        ----------
        X : array of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            The images.
        y : object, optional
            Ignored.

        Returns
        -------
        self : object
            The transformer.
        """
        images, _ = self._read(X, reset=True)
        plan = self._plan(images.shape[1:], np.result_type(images.dtype, np.float32))
        self._n_features_out = self.n_features_in_ if plan.row_shape is None else plan.row_shape[-1]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Transform the images.

        Parameters
        ----------
        X : array of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            The images; uint8 and other small types give float32, float64 gives float64.

        Returns
        -------
        array of floats
            One result per image: of the images' own layout for transformers that give images, flat for
            features.
        """
        images, layout = self._read(X, reset=False)
        dtype = np.result_type(images.dtype, np.float32)
        plan = self._plan(images.shape[1:], dtype)
        row_shape = images.shape[1:] if plan.row_shape is None else plan.row_shape
        out = np.empty((len(images), *row_shape), dtype)

        def work(rows: slice) -> None:
            out[rows] = plan.apply(images[rows])

        parallel = Parallel(n_jobs=self.n_jobs, require="sharedmem")
        parallel(delayed(work)(rows) for rows in blocks(len(images), plan.bytes_per_image))
        return out.reshape(len(images), *layout) if plan.row_shape is None else out

    def _plan(self, shape: ImageShape, dtype: np.dtype) -> Plan:
        raise NotImplementedError

    def _read(self, X: Any, *, reset: bool) -> tuple[np.ndarray, tuple[int, ...]]:
        """The images as (n, height, width, channels), and the layout of one row of X."""
        layout: tuple[int, ...] = ()
        X = np.asarray(X) if isinstance(X, list | tuple) else X
        if getattr(X, "ndim", 2) > 2:
            X = np.asarray(X)
            layout = X.shape[1:]
            X = X.reshape(len(X), prod(layout))
        X = validate_data(self, X, reset=reset)
        if X.dtype == np.float16:  # which SciPy's filters do not take
            X = X.astype(np.float32)
        layout = layout or X.shape[1:]
        shape = image_shape(layout, self.shape, vectors_allowed=self._vectors_allowed)
        return X.reshape(len(X), *shape), layout

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.three_d_array = True
        # A flat row is an image only with a shape.
        tags.input_tags.two_d_array = self._vectors_allowed or self.shape is not None
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
