"""Normalisation of the intensities of each image.

    UnitNormalizer    x <- x - mean(x),  x <- x / ||x||
    Scale01           x <- (x - min(x)) / (max(x) - min(x))
    GaussianWindow    x[i, j] <- x[i, j] exp(-c ((i - L/2)^2 + (j - L/2)^2)),    i, j = 1..L,    c = 4 / L^2 by default

`UnitNormalizer` and `Scale01` map a constant image to zeros. The Gaussian window of an image that is not square uses the
factor 4 / height^2 for rows and 4 / width^2 for columns. Time O(n d); memory of one block of images. Reference: Andrecut,
"Randomized kernel methods for least-squares support vector machines", 2016, eqs. (61)-(62) and (76).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils._param_validation import Interval

from gramless._core.doc_links import link_documentation
from gramless.images.reading import ImageShape
from gramless.images.transformer import BlockTransform, ImageTransformer


def centre_and_normalise(V: np.ndarray) -> np.ndarray:
    """Centre the rows of a float array and scale them to unit norm, in place; constant rows become zero."""
    mean = V.mean(axis=1, keepdims=True)
    V -= mean
    norm = np.sqrt(np.einsum("ij,ij->i", V, V))[:, None]
    # Centring a constant row leaves the rounding error of its mean, which must not be scaled to unit norm.
    noise = 16 * np.finfo(V.dtype).eps * np.abs(mean) * V.shape[1] ** 0.5
    V *= np.divide(1, norm, out=np.zeros_like(norm), where=norm > noise)
    return V


@link_documentation
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

    def _block_transform(self, shape: ImageShape, dtype: np.dtype) -> BlockTransform:
        d = prod(shape)

        def apply(images: np.ndarray) -> np.ndarray:
            return centre_and_normalise(images.reshape(len(images), d).astype(dtype))

        return BlockTransform(apply, (d,), 2 * d * dtype.itemsize)


@link_documentation
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

    def _block_transform(self, shape: ImageShape, dtype: np.dtype) -> BlockTransform:
        def apply(images: np.ndarray) -> np.ndarray:
            lowest = images.min(axis=(1, 2, 3), keepdims=True).astype(dtype)
            spread = images.max(axis=(1, 2, 3), keepdims=True).astype(dtype) - lowest
            out = images.astype(dtype)
            out -= lowest
            out /= np.where(spread > 0, spread, 1)
            return out

        return BlockTransform(apply, None, 2 * prod(shape) * dtype.itemsize)


@link_documentation
@dataclass(eq=False, repr=False)
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

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **ImageTransformer._parameter_constraints,
        "c": [Interval(Real, 0, None, closed="left"), None],
    }

    c: float | None = None

    def _block_transform(self, shape: ImageShape, dtype: np.dtype) -> BlockTransform:
        def profile(side: int) -> np.ndarray:
            c = 4 / side**2 if self.c is None else self.c
            return np.exp(-c * (np.arange(1, side + 1) - side / 2) ** 2)

        window = np.outer(profile(shape[0]), profile(shape[1])).astype(dtype)[:, :, None]
        return BlockTransform(lambda images: images * window, None, prod(shape) * dtype.itemsize)
