"""Normalisation of the intensities of each image, and smoothing filters.

    UnitNormalizer    x <- x - mean(x),  x <- x / ||x||
    Scale01           x <- (x - min(x)) / (max(x) - min(x))
    GaussianWindow    x[i, j] <- x[i, j] exp(-c ((i - L/2)^2 + (j - L/2)^2)),    i, j = 1..L,    c = 4 / L^2 by default
    MedianFilter      x[i, j] <- median of the square window around (i, j)
    GaussianBlur      x <- convolution of x with a Gaussian

`UnitNormalizer` and `Scale01` map a constant image to zeros. The Gaussian window of an image that is not square uses the
factor 4 / height^2 for rows and 4 / width^2 for columns. The median removes isolated outlying pixels and preserves edges;
the blur increases the overlap of similar strokes, which lowers the variance within a class. Both filters are those of SciPy
and treat each channel of each image separately. Time O(n d), for the filters O(n d size^2) and O(n d sigma).

Reference: Andrecut, "Randomized kernel methods for least-squares support vector machines", 2016, eqs. (61)-(62) and (76).
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from scipy.ndimage import gaussian_filter, median_filter
from sklearn.base import OneToOneFeatureMixin

from gramless._core.constraints import NON_NEGATIVE, POSITIVE_INTEGER, estimator
from gramless.images.transformer import ImageTransformer


def centre_and_normalise(V: np.ndarray) -> np.ndarray:
    """Centre the rows of a float array and scale them to unit norm, in place; constant rows become zero."""
    mean = V.mean(axis=1, keepdims=True)
    V -= mean
    norm = np.sqrt(np.einsum("ij,ij->i", V, V))[:, None]
    # Centring a constant row leaves the rounding error of its mean, which must not be scaled to unit norm.
    noise = 16 * np.finfo(V.dtype).eps * np.abs(mean) * V.shape[1] ** 0.5
    V *= np.divide(1, norm, out=np.zeros_like(norm), where=norm > noise)
    return V


@estimator
class UnitNormalizer(OneToOneFeatureMixin, ImageTransformer):
    """Centre every image and scale it to unit norm, all channels together.

    Inner products of the results are cosines, so that polynomial kernels of them stay in [-1, 1]. Unlike
    `sklearn.preprocessing.Normalizer`, it centres each image.

    Parameters
    ----------
    shape : (height, width) or (height, width, channels), optional
        Shape of one image if the rows of X are flat; None assumes square grey images.
    n_jobs : int, optional
        Number of threads; None is 1 unless a joblib context sets another number.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.images import UnitNormalizer
    >>> images = np.array([[[0, 2], [2, 0]], [[7, 7], [7, 7]]], dtype=np.uint8)
    >>> UnitNormalizer().fit_transform(images)
    array([[-0.5,  0.5,  0.5, -0.5],
           [ 0. ,  0. ,  0. ,  0. ]], dtype=float32)
    """

    _vectors_allowed = True

    def _transform_block(self, images: np.ndarray, dtype: np.dtype) -> np.ndarray:
        return centre_and_normalise(images.reshape(len(images), -1).astype(dtype))


@estimator
class Scale01(OneToOneFeatureMixin, ImageTransformer):
    """Scale the intensities of every image to [0, 1], all channels together.

    Unlike `sklearn.preprocessing.MinMaxScaler`, it scales each image, not each column.

    Parameters
    ----------
    shape : (height, width) or (height, width, channels), optional
        Shape of one image if the rows of X are flat; None assumes square grey images.
    n_jobs : int, optional
        Number of threads; None is 1 unless a joblib context sets another number.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.images import Scale01
    >>> Scale01().fit_transform(np.array([[0, 51, 255], [9, 9, 9]], dtype=np.uint8))
    array([[0. , 0.2, 1. ],
           [0. , 0. , 0. ]], dtype=float32)
    """

    _vectors_allowed = True

    def _transform_block(self, images: np.ndarray, dtype: np.dtype) -> np.ndarray:
        lowest = images.min(axis=(1, 2, 3), keepdims=True).astype(dtype)
        spread = images.max(axis=(1, 2, 3), keepdims=True).astype(dtype) - lowest
        out = images.astype(dtype)
        out -= lowest
        out /= np.where(spread > 0, spread, 1)
        return out


@estimator
class GaussianWindow(OneToOneFeatureMixin, ImageTransformer):
    """Multiply every image by a Gaussian centred on it, which fades out the border.

    Parameters
    ----------
    c : float, optional
        Decay per squared pixel; None is 4 / L^2 for images of side L.
    shape : (height, width) or (height, width, channels), optional
        Shape of one image if the rows of X are flat; None assumes square grey images.
    n_jobs : int, optional
        Number of threads; None is 1 unless a joblib context sets another number.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.images import GaussianWindow
    >>> GaussianWindow().fit_transform(np.ones((1, 4, 4)))[0].round(2)
    array([[0.61, 0.78, 0.61, 0.29],
           [0.78, 1.  , 0.78, 0.37],
           [0.61, 0.78, 0.61, 0.29],
           [0.29, 0.37, 0.29, 0.14]])
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {"c": [NON_NEGATIVE, None]}

    c: float | None = field(default=None, kw_only=False)

    def _transform_block(self, images: np.ndarray, dtype: np.dtype) -> np.ndarray:
        def profile(side: int) -> np.ndarray:
            c = 4 / side**2 if self.c is None else self.c
            return np.exp(-c * (np.arange(1, side + 1) - side / 2) ** 2)

        return images * np.outer(profile(images.shape[1]), profile(images.shape[2])).astype(dtype)[:, :, None]


@estimator
class MedianFilter(OneToOneFeatureMixin, ImageTransformer):
    """Replace every pixel by the median of the window around it.

    Parameters
    ----------
    size : int
        Side of the window in pixels; the image is reflected at its border.
    shape : (height, width) or (height, width, channels), optional
        Shape of one image if the rows of X are flat; None assumes square grey images.
    n_jobs : int, optional
        Number of threads; None is 1 unless a joblib context sets another number.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.images import MedianFilter
    >>> image = np.zeros((1, 5, 5), dtype=np.uint8)
    >>> image[0, 2, 2] = 255
    >>> float(MedianFilter(3).fit_transform(image).max())
    0.0
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {"size": [POSITIVE_INTEGER]}

    size: int = field(default=3, kw_only=False)

    def _transform_block(self, images: np.ndarray, dtype: np.dtype) -> np.ndarray:
        return median_filter(images, size=int(self.size), axes=(1, 2))


@estimator
class GaussianBlur(OneToOneFeatureMixin, ImageTransformer):
    """Convolve every image with a Gaussian.

    Parameters
    ----------
    sigma : float
        Standard deviation of the Gaussian in pixels; pixels outside the image are zero.
    shape : (height, width) or (height, width, channels), optional
        Shape of one image if the rows of X are flat; None assumes square grey images.
    n_jobs : int, optional
        Number of threads; None is 1 unless a joblib context sets another number.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.images import GaussianBlur
    >>> image = np.zeros((1, 3, 3))
    >>> image[0, 1, 1] = 1
    >>> GaussianBlur(0.5).fit_transform(image)[0].round(2)
    array([[0.01, 0.08, 0.01],
           [0.08, 0.62, 0.08],
           [0.01, 0.08, 0.01]])
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {"sigma": [NON_NEGATIVE]}

    sigma: float = field(default=1.0, kw_only=False)

    def _transform_block(self, images: np.ndarray, dtype: np.dtype) -> np.ndarray:
        return gaussian_filter(images, self.sigma, output=dtype, mode="constant", axes=(1, 2))
