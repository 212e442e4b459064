"""Images as users pass them, arrays, tensors or streams of flat rows, as one shape: (n, height, width, channels)."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.validation import check_X
from gramless.images.transformer import ImageShape, image_shape
from gramless.streaming.stream import Stream


def read_images(estimator: Any, X: Any, shape: Any, *, reset: bool) -> Array:
    """Finite images (n, height, width, channels) of the dtype they have; flat rows need a shape unless square and grey.

    Parameters
    ----------
    estimator : estimator
        Gets `n_features_in_` and `image_shape_` with `reset`, and is asked for them without.
    X : array or tensor of shape (n, height, width), (n, height, width, channels) or (n, n_features)
    shape : tuple of int or None
        The user's setting.
    reset : bool
        Whether this is a fit.
    """
    X = X if hasattr(X, "ndim") or not isinstance(X, list | tuple) else np.asarray(X)
    layout: tuple[int, ...] = ()
    if getattr(X, "ndim", 2) > 2:
        layout = tuple(X.shape[1:])
        if len(layout) > 3:
            raise ValueError(f"Images are (n, height, width[, channels]) or flat, got rows of shape {layout}.")
        if not reset and (*layout, 1)[:3] != estimator.image_shape_:
            raise ValueError(
                f"X has images of shape {layout}, but {type(estimator).__name__} is expecting {estimator.image_shape_}"
            )
        X = X.reshape(X.shape[0], prod(layout))
    if xa.is_torch(X):
        X = check_X(estimator, X, dtype=xa.numpy_dtype(X), reset=reset)
    else:
        X = validate_data(estimator, X, reset=reset)
    if reset:
        estimator.image_shape_ = image_shape(layout or tuple(X.shape[1:]), shape, vectors_allowed=False)
    return X.reshape(X.shape[0], *estimator.image_shape_)


def sample_images(estimator: Any, X: Any, shape: Any, n: int, rng: np.random.RandomState) -> Array:
    """At most n images drawn at random from an array or a stream, for a fit."""
    if isinstance(X, Stream):
        rows, _, _ = X.sample(n, rng)
        return read_images(estimator, rows, shape, reset=True)
    images = read_images(estimator, X, shape, reset=True)
    if images.shape[0] <= n:
        return images
    return xa.take_rows(images, np.sort(rng.permutation(images.shape[0])[:n]))


def pixel_range(images: Array) -> float:
    """Brightest minus darkest value: 255 for bytes, whatever occurs for others, one where nothing varies."""
    if xa.numpy_dtype(images) == np.uint8:
        return 255.0
    return float(images.max()) - float(images.min()) or 1.0


__all__ = ["ImageShape", "pixel_range", "read_images", "sample_images"]
