"""Images in any layout as arrays of shape (n, height, width, channels), and the base class of the image transformers.

Input images are arrays, tensors or streams, with or without flat rows. A transformer defines a function from a block of
images to a block of results. The base class validates the input, allocates the result once and applies the function block by
block in parallel threads: memory in addition to input and result is a few `ImageTuning.block_bytes` per thread for any n.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, prod
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import validate_data

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.threads import slices
from gramless._core.validation import check_X
from gramless.images.tuning import TUNING, ImageTuning
from gramless.streaming.stream import Stream

ImageShape = tuple[int, int, int]


def flatten_images(X: Any) -> tuple[Any, tuple[int, ...]]:
    """Return X with one flat row per image, and the shape of one image in X, or () if X has flat rows."""
    X = np.asarray(X) if isinstance(X, list | tuple) else X
    if getattr(X, "ndim", 2) <= 2:
        return X, ()
    layout = tuple(X.shape[1:])
    if len(layout) > 3:
        raise ValueError(f"Images are (n, height, width[, channels]) or flat, got rows of shape {layout}.")
    return X.reshape(X.shape[0], prod(layout)), layout


def image_shape(row_shape: tuple[int, ...], shape: Any, *, vectors_allowed: bool) -> ImageShape:
    """Return (height, width, channels) of an image from the shape of a row of X and the parameter `shape`."""
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
            raise ValueError(f"Rows of {d} values are not square images: set shape=(height, width[, channels]).")
        return side, side, 1
    height, width, channels = (*row_shape, 1)[:3]
    return height, width, channels


def read_images(estimator: Any, X: Any, shape: Any, *, expected: ImageShape | None = None) -> Array:
    """Return images of shape (n, height, width, channels) in the dtype of X, after the input validation of scikit-learn.

    `expected` is None in `fit`, and else the shape of the training images; images of other shapes raise `ValueError`.
    """
    X, layout = flatten_images(X)
    if expected is not None and layout and (*layout, 1)[:3] != expected:
        raise ValueError(f"X has images of shape {layout}, but {type(estimator).__name__} is expecting {expected}")
    reset = expected is None
    if xa.is_torch(X):
        X = check_X(estimator, X, dtype=xa.numpy_dtype(X), reset=reset)
    else:
        X = validate_data(estimator, X, reset=reset)
    return X.reshape(X.shape[0], *(expected or image_shape(layout or tuple(X.shape[1:]), shape, vectors_allowed=False)))


def sample_images(estimator: Any, X: Any, shape: Any, n: int, rng: np.random.RandomState) -> Array:
    """Return at most n random images from the array or stream X."""
    if isinstance(X, Stream):
        rows, _, _ = X.sample(n, rng)
        return read_images(estimator, rows, shape)
    images = read_images(estimator, X, shape)
    if images.shape[0] <= n:
        return images
    return xa.take_rows(images, np.sort(rng.permutation(images.shape[0])[:n]))


def pixel_range(images: Array) -> float:
    """Return 255 for uint8 images, else the largest minus the smallest value, or 1 if all values are equal."""
    if xa.numpy_dtype(images) == np.uint8:
        return 255.0
    return float(images.max()) - float(images.min()) or 1.0


def integer_pair(name: str, value: Any) -> tuple[int, int]:
    """Return a parameter that is one or two positive integers as a pair."""
    pair = tuple(value) if np.ndim(value) else (value, value)
    if len(pair) != 2 or any(int(side) != side or side < 1 for side in pair):
        raise ValueError(f"{name} must be one or two positive integers, got {value!r}.")
    return int(pair[0]), int(pair[1])


def patch_positions(image_shape: tuple[int, ...], patch: tuple[int, int], stride: int) -> tuple[int, int]:
    """Return how many positions a patch has along the height and along the width of an image."""
    height, width = image_shape[:2]
    if patch[0] > height or patch[1] > width:
        raise ValueError(f"patch_size {patch[0]} x {patch[1]} is larger than the images of {height} x {width} pixels.")
    return (height - patch[0]) // stride + 1, (width - patch[1]) // stride + 1


class ImageInputMixin:
    """Mixin that tags an estimator as accepting images, and flat rows if `shape` is given."""

    shape: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.three_d_array = True
        tags.input_tags.two_d_array = self.shape is not None
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class ImageTransformer(TransformerMixin, BaseEstimator):
    """Base class of the image transformers; subclasses define `_transform_block`."""

    # True if the transformation does not depend on the geometry of the image, so that any vector is accepted.
    _vectors_allowed = False
    # Number of temporary arrays of a block, each of the size of the images or of the results, whichever is larger.
    _copies = 2

    shape: Any = None
    n_jobs: int | None = None

    def fit(self, X: Any, y: Any = None) -> Any:
        """Check the parameters against the images; nothing is learned.

        Parameters
        ----------
        X : array of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            Images.
        y : object, optional
            Ignored.

        Returns
        -------
        self : object
            The transformer.
        """
        images, _, dtype = self._read(X, reset=True)
        one = self._transform_block(images[:1], dtype)
        self._n_features_out = self.n_features_in_ if one.ndim == 4 else one.shape[-1]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Transform the images.

        Parameters
        ----------
        X : array of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            Images. The data type of the result is `numpy.result_type(X, numpy.float32)`.

        Returns
        -------
        array of floats
            Transformed images in the layout of X, or one row of features per image.
        """
        images, layout, dtype = self._read(X, reset=False)
        out = self._transform_blocks(images, dtype, self.n_jobs)
        return out.reshape(len(images), *layout) if out.ndim == 4 else out

    def _transform_block(self, images: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Return transformed images of shape (n, height, width, channels), or one row of features for each image."""
        raise NotImplementedError

    def _transform_blocks(
        self, images: np.ndarray, dtype: np.dtype, n_jobs: int | None = None, tuning: ImageTuning = TUNING
    ) -> np.ndarray:
        """Return the results of `_transform_block` for all images, computed in blocks by `n_jobs` threads."""
        one = self._transform_block(images[:1], dtype)
        out = np.empty((len(images), *one.shape[1:]), dtype)

        def work(rows: slice) -> None:
            out[rows] = self._transform_block(images[rows], dtype)

        step = max(1, tuning.block_bytes // (self._copies * dtype.itemsize * max(one.size, images[0].size)))
        Parallel(n_jobs=n_jobs, require="sharedmem")(delayed(work)(rows) for rows in slices(len(images), step))
        return out

    def _read(self, X: Any, *, reset: bool) -> tuple[np.ndarray, tuple[int, ...], np.dtype]:
        """Return images (n, height, width, channels), the shape of a row of X, and the dtype of the results."""
        self._validate_params()
        X, layout = flatten_images(X)
        X = validate_data(self, X, reset=reset)
        if X.dtype == np.float16:  # SciPy filters do not accept this dtype
            X = X.astype(np.float32)
        layout = layout or X.shape[1:]
        images = X.reshape(len(X), *image_shape(layout, self.shape, vectors_allowed=self._vectors_allowed))
        return images, layout, np.result_type(images.dtype, np.float32)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.three_d_array = True
        tags.input_tags.two_d_array = self._vectors_allowed or self.shape is not None
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
