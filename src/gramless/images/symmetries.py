"""Reflections, rotations and small shifts of images as permutations of pixels.

Each function returns one row of column indices per transform, the identity first: `flat[:, row]` are the transformed images.
`gramless.kernels.Invariant` averages a kernel over them, and `virtual_examples` adds transformed copies to the training
images (DeCoste and Schoelkopf, "Training invariant support vector machines", 2002).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gramless.images.transformer import image_shape


def _pixel_indices(shape: Any) -> np.ndarray:
    """Return the indices of the pixels in an array of the shape of the image."""
    return np.arange(int(np.prod(shape))).reshape(image_shape(tuple(shape), None, vectors_allowed=False))


def mirror_columns(shape: Any) -> np.ndarray:
    """Return the identity and the reflection that swaps left and right.

    Parameters
    ----------
    shape : (height, width) or (height, width, channels)
        Shape of one image.

    Returns
    -------
    array of int of shape (2, n_pixels)
        For each transform, the source pixel of every pixel.

    Examples
    --------
    >>> from gramless.images import mirror_columns
    >>> mirror_columns((2, 2))
    array([[0, 1, 2, 3],
           [1, 0, 3, 2]])
    """
    image = _pixel_indices(shape)
    return np.stack([image.ravel(), image[:, ::-1].ravel()])


def rotation_columns(shape: Any) -> np.ndarray:
    """Return the rotations of square images by 0, 90, 180 and 270 degrees.

    Parameters
    ----------
    shape : (side, side) or (side, side, channels)
        Shape of one image.

    Returns
    -------
    array of int of shape (4, n_pixels)
        For each transform, the source pixel of every pixel.

    Examples
    --------
    >>> from gramless.images import rotation_columns
    >>> rotation_columns((2, 2))[1]
    array([1, 3, 0, 2])
    """
    image = _pixel_indices(shape)
    if image.shape[0] != image.shape[1]:
        raise ValueError(f"only square images can be rotated by 90 degrees, got {image.shape[0]} x {image.shape[1]}.")
    return np.stack([np.rot90(image, turns).ravel() for turns in range(4)])


def shift_columns(shape: Any, pixels: int = 1) -> np.ndarray:
    """Return the shifts by at most `pixels` rows and columns; the border is repeated.

    Parameters
    ----------
    shape : (height, width) or (height, width, channels)
        Shape of one image.
    pixels : int, default=1
        Largest shift along each axis.

    Returns
    -------
    array of int of shape ((2 pixels + 1)^2, n_pixels)
        For each transform, the source pixel of every pixel.

    Examples
    --------
    >>> from gramless.images import shift_columns
    >>> shift_columns((1, 3))[:3]
    array([[0, 1, 2],
           [0, 0, 1],
           [1, 2, 2]])
    """
    image = _pixel_indices(shape)
    steps = sorted(range(-pixels, pixels + 1), key=abs)
    down = [np.clip(np.arange(image.shape[0]) + step, 0, image.shape[0] - 1) for step in steps]
    across = [np.clip(np.arange(image.shape[1]) + step, 0, image.shape[1] - 1) for step in steps]
    return np.stack([image[rows][:, columns].ravel() for rows in down for columns in across])


def virtual_examples(X: Any, y: Any, transforms: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels together with those of all transformed copies.

    Parameters
    ----------
    X : array of shape (n, height, width), (n, height, width, channels) or (n, n_pixels)
        Images.
    y : array of shape (n,)
        Labels.
    transforms : array of int of shape (n_transforms, n_pixels)
        Result of `mirror_columns`, `rotation_columns` or `shift_columns`, or several of them concatenated.

    Returns
    -------
    X : array of shape (n * n_transforms, ...)
        All images under the first transform, then under the second, and so on.
    y : array of shape (n * n_transforms,)
        Their labels.

    References
    ----------
    DeCoste and Schoelkopf, "Training invariant support vector machines", 2002.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.images import mirror_columns, virtual_examples
    >>> X, y = virtual_examples(np.array([[[1, 2]]]), ["left"], mirror_columns((1, 2)))
    >>> X[1], y[1]
    (array([[2, 1]]), np.str_('left'))
    """
    X, y, transforms = np.asarray(X), np.asarray(y), np.asarray(transforms)
    flat = X.reshape(len(X), -1)
    if transforms.ndim != 2 or transforms.shape[1] != flat.shape[1]:
        raise ValueError(f"transforms of shape {transforms.shape} do not fit images of {flat.shape[1]} values.")
    transformed = np.concatenate([flat[:, columns] for columns in transforms])
    return transformed.reshape(-1, *X.shape[1:]), np.tile(y, len(transforms))
