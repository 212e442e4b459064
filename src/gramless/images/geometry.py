"""Cropping and deskewing of images by linear interpolation along an axis; reflections, rotations and shifts of pixels.

    Crop      stretch the bounding box of the pixels above a threshold to the full image, rows first, then columns
    Deskew    out[r, c] = in[r, c + a (r - r0)],    r0 the centre of mass

The slope a of each image comes from the second moments of its intensities I, a = sum I (r - r0)(c - c0) / sum I (r - r0)^2,
or from its dominant line: the Hough transform sums the intensities along every line c cos(t) - r sin(t) = rho with |t| up to
`max_angle`, and a = tan(t) for the largest sum. The Hough transform is linear, so that one product with a sparse matrix
transforms all images of a block. Time O(n d), with the Hough transform O(n d n_angles), for n images of d values; memory for
one block of images. `scipy.ndimage.map_coordinates` returns the same values in four times the time.

Reflections, rotations and small shifts only reorder or repeat pixels. Each transform is a row of pixel indices, so that
`flat[:, row]` are the transformed images; the first row is the identity. `gramless.kernels.Invariant` averages a kernel over
transforms, and `virtual_examples` returns transformed copies of training images (DeCoste and Schoelkopf, "Training invariant
support vector machines", 2002).
"""

from __future__ import annotations

from dataclasses import field
from functools import lru_cache
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils._param_validation import Interval, StrOptions

from gramless._core.constraints import POSITIVE, estimator
from gramless.images.transformer import ImageTransformer, image_shape

# Lines whose sum of intensities is at least this fraction of the largest sum belong to the same stroke.
_DOMINANT = 0.9


def _sample_columns(images: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Interpolate each row of images (n, h, w, c) at column positions (n, h or 1, m) in pixels; zero outside the image."""
    width = images.shape[2]
    left = np.floor(positions)
    share = (positions - left)[..., None]
    left = left.astype(np.int32)

    def weighted(columns: np.ndarray, weight: np.ndarray) -> np.ndarray:
        weight = weight * ((columns >= 0) & (columns < width))[..., None]
        columns = np.clip(columns, 0, width - 1)[..., None]
        return np.take_along_axis(images, columns, axis=2) * weight

    out = weighted(left, 1 - share)
    out += weighted(left + 1, share)
    return out


def _extent(occupied: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each row, the index of the first True and the length up to the last True; 0 and the full width if none."""
    side = occupied.shape[1]
    not_empty = occupied.any(axis=1)
    first = np.where(not_empty, occupied.argmax(axis=1), 0)
    last = np.where(not_empty, side - 1 - occupied[:, ::-1].argmax(axis=1), side - 1)
    return first, last - first + 1


@lru_cache(maxsize=4)
def hough_matrix(height: int, width: int, angles: tuple[float, ...], dtype: np.dtype) -> tuple[csr_array, int]:
    """Return the (n_angles * n_offsets, height * width) matrix that sums a flat image along lines, and n_offsets.

    A pixel is added to the two integer offsets next to c cos t - r sin t, with weights of linear interpolation, because
    rounding to one offset would favour some angles by chance.
    """
    r, c = np.divmod(np.arange(height * width), width)
    reach = int(np.ceil(np.hypot(height, width)))
    n_offsets = 2 * reach + 2
    rho = np.outer(np.cos(angles), c) - np.outer(np.sin(angles), r) + reach
    below = np.floor(rho).astype(np.int64)
    share = rho - below
    lines = below + n_offsets * np.arange(len(angles))[:, None]
    weights = np.stack([1 - share, share]).astype(dtype)
    pixels = np.broadcast_to(np.arange(height * width), weights.shape)
    entries = (weights.ravel(), (np.stack([lines, lines + 1]).ravel(), pixels.ravel()))
    return csr_array(entries, (len(angles) * n_offsets, height * width)), n_offsets


@estimator
class Crop(OneToOneFeatureMixin, ImageTransformer):
    """Remove the dark border of every image and stretch the rest to the full size.

    A blank image stays unchanged.

    Parameters
    ----------
    threshold : float
        A pixel belongs to the border if no channel exceeds this value.
    shape : (height, width) or (height, width, channels), optional
        Shape of one image if the rows of X are flat; None assumes square grey images.
    n_jobs : int, optional
        Number of threads; None is 1 unless a joblib context sets another number.
    keep_aspect : bool
        False stretches the content to the full image; True stretches both axes by the smaller of the two factors and
        centres the result.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.images import Crop
    >>> image = np.zeros((1, 4, 4))
    >>> image[0, 1:3, 2:4] = [[1, 1], [1, 0]]
    >>> Crop().fit_transform(image)[0]
    array([[1.    , 1.    , 1.    , 1.    ],
           [1.    , 0.9375, 0.8125, 0.75  ],
           [1.    , 0.8125, 0.4375, 0.25  ],
           [1.    , 0.75  , 0.25  , 0.    ]])
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "threshold": [Real],
        "keep_aspect": ["boolean"],
    }

    threshold: float = field(default=0, kw_only=False)
    keep_aspect: bool = False

    _copies = 8

    def _transform_block(self, images: np.ndarray, dtype: np.dtype) -> np.ndarray:
        content = np.max(images, axis=3) > self.threshold
        boxes = [_extent(np.max(content, axis=axis)) for axis in (2, 1)]
        sides = images.shape[1:3]
        steps = [length / side for (_, length), side in zip(boxes, sides, strict=True)]
        if self.keep_aspect:
            steps = [np.maximum(*steps)] * 2
        for (first, length), side, step in zip(boxes, sides, steps, strict=True):
            centre = first + (length - 1) / 2
            where = centre[:, None] + (np.arange(side) - (side - 1) / 2) * step[:, None]
            if not self.keep_aspect:
                # The outermost positions are up to half a pixel outside the bounding box: repeat the pixels at its edge
                # instead of interpolating with zeros.
                where = np.clip(where, first[:, None], (first + length - 1)[:, None])
            # The first pass interpolates along the rows of the image, the second along its columns.
            images = _sample_columns(images.transpose(0, 2, 1, 3), where.astype(dtype)[:, None, :])
        return images


@estimator
class Deskew(OneToOneFeatureMixin, ImageTransformer):
    """Straighten slanted bright strokes on a dark background by a shear along the rows.

    A blank image stays unchanged.

    Parameters
    ----------
    method : {"moments", "hough"}
        Estimate the slant from the second moments, or from the dominant line.
    shape : (height, width) or (height, width, channels), optional
        Shape of one image if the rows of X are flat; None assumes square grey images.
    n_jobs : int, optional
        Number of threads; None is 1 unless a joblib context sets another number.
    max_angle : float
        Largest slant from the vertical in degrees. Above 30 the Hough transform mistakes strokes of the character, such as
        the bar of a 7, for its slant.
    angle_step : float
        Resolution of the Hough transform in degrees.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.images import Deskew
    >>> slanted = np.zeros((1, 5, 5))
    >>> slanted[0, [0, 1, 2, 3, 4], [1, 1, 2, 2, 3]] = 1
    >>> Deskew("moments").fit_transform(slanted)[0].round(1)
    array([[0. , 0. , 1. , 0. , 0. ],
           [0. , 0.5, 0.5, 0. , 0. ],
           [0. , 0. , 1. , 0. , 0. ],
           [0. , 0.5, 0.5, 0. , 0. ],
           [0. , 0. , 1. , 0. , 0. ]])
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "method": [StrOptions({"moments", "hough"})],
        "max_angle": [Interval(Real, 0, 90, closed="neither")],
        "angle_step": [POSITIVE],
    }

    method: str = field(default="moments", kw_only=False)
    max_angle: float = 30.0
    angle_step: float = 1.0

    _copies = 16

    def _transform_block(self, images: np.ndarray, dtype: np.dtype) -> np.ndarray:
        _, height, width, _ = images.shape
        rows, columns = np.arange(height, dtype=dtype), np.arange(width, dtype=dtype)
        grey = images.mean(axis=3, dtype=dtype)
        mass = grey.sum(axis=2)
        total = mass.sum(axis=1)
        centre = np.divide(mass @ rows, total, out=np.full_like(total, (height - 1) / 2), where=total > 0)
        r = rows - centre[:, None]
        if self.method == "hough":
            count = int(self.max_angle / self.angle_step)
            angles = np.deg2rad(self.angle_step * np.arange(-count, count + 1))
            lines, n_offsets = hough_matrix(height, width, tuple(angles.tolist()), dtype)
            sums = lines @ np.ascontiguousarray(grey.reshape(len(grey), -1).T)
            strongest = sums.reshape(len(angles), n_offsets, len(grey)).max(axis=1)
            # A thick stroke has strong lines over a range of angles; the mean of these angles is the slant. For a blank
            # image all sums are equal and the mean angle is 0.
            strong = strongest >= _DOMINANT * strongest.max(axis=0)
            slope = np.tan(angles @ strong / strong.sum(axis=0)).astype(dtype)
        else:
            # Column indices need no centring, because the sum of the intensities times r - r0 is zero.
            joint, spread = np.sum(r * (grey @ columns), axis=1), np.sum(r**2 * mass, axis=1)
            steepest = np.tan(np.deg2rad(self.max_angle))
            slope = np.divide(joint, spread, out=np.zeros_like(joint), where=spread > 0).clip(-steepest, steepest)
        return _sample_columns(images, columns + (slope[:, None] * r)[:, :, None])


def _pixel_indices(shape: Any) -> np.ndarray:
    """Return the flat indices of the pixels in an array of the shape of the image."""
    return np.arange(int(np.prod(shape))).reshape(image_shape(tuple(shape), None, vectors_allowed=False))


def mirror_columns(shape: Any) -> np.ndarray:
    """Return the pixel indices of the identity and of the reflection that swaps left and right.

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
    """Return the pixel indices of the rotations of square images by 0, 90, 180 and 270 degrees.

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
    """Return the pixel indices of all shifts by at most `pixels` rows and columns, which repeat pixels of the border.

    Parameters
    ----------
    shape : (height, width) or (height, width, channels)
        Shape of one image.
    pixels : int, default=1
        Largest shift along each axis, in pixels.

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
    """Return a copy of all images for each transform, and the labels of the copies.

    Parameters
    ----------
    X : array of shape (n, height, width), (n, height, width, channels) or (n, n_pixels)
        Images.
    y : array of shape (n,)
        Labels.
    transforms : array of int of shape (n_transforms, n_pixels)
        Result of `mirror_columns`, `rotation_columns` or `shift_columns`, or several such arrays concatenated.

    Returns
    -------
    X : array of shape (n * n_transforms, ...)
        All images under the first transform, then under the second, and so on.
    y : array of shape (n * n_transforms,)
        Labels of the transformed images.

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
