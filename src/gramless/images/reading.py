"""Conversion of arrays, tensors and streams of images, flat or not, to arrays of shape (n, height, width, channels)."""

from __future__ import annotations

from math import isqrt, prod
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.validation import check_X
from gramless.streaming.stream import Stream

ImageShape = tuple[int, int, int]


def flatten_images(X: Any) -> tuple[Any, tuple[int, ...]]:
    """Return X with one flat row per image, and the shape of one image in X, which is () if X was flat."""
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
    """Return finite images (n, height, width, channels) in their own dtype.

    In `fit`, `expected` is None; later it is the shape of the training images, and other shapes raise `ValueError`.
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
    """Return at most n images drawn at random from an array or a stream, for a fit."""
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
    """Return the rows and columns of the positions of a patch in an image."""
    height, width = image_shape[:2]
    if patch[0] > height or patch[1] > width:
        raise ValueError(f"patch_size {patch[0]} x {patch[1]} is larger than the images of {height} x {width} pixels.")
    return (height - patch[0]) // stride + 1, (width - patch[1]) // stride + 1
