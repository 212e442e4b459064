"""Smoothing filters of SciPy: the median of a square window, and convolution with a Gaussian.

The median removes isolated outlying pixels and preserves edges; the Gaussian blur increases the overlap of similar strokes,
which lowers the variance within a class. Both filter each channel of each image separately. Time O(n d size^2) and
O(n d sigma); temporaries of one block.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from scipy.ndimage import gaussian_filter, median_filter
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils._param_validation import Interval

from gramless._core.constraints import POSITIVE_INTEGER
from gramless._core.doc_links import link_documentation
from gramless.images.reading import ImageShape
from gramless.images.transformer import BlockTransform, ImageTransformer


@link_documentation
@dataclass(eq=False, repr=False)
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

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **ImageTransformer._parameter_constraints,
        "size": [POSITIVE_INTEGER],
    }

    size: int = 3

    def _block_transform(self, shape: ImageShape, dtype: np.dtype) -> BlockTransform:
        def apply(images: np.ndarray) -> np.ndarray:
            return median_filter(images, size=int(self.size), axes=(1, 2))

        return BlockTransform(apply, None, 2 * prod(shape) * dtype.itemsize)


@link_documentation
@dataclass(eq=False, repr=False)
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

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **ImageTransformer._parameter_constraints,
        "sigma": [Interval(Real, 0, None, closed="left")],
    }

    sigma: float = 1.0

    def _block_transform(self, shape: ImageShape, dtype: np.dtype) -> BlockTransform:
        def apply(images: np.ndarray) -> np.ndarray:
            return gaussian_filter(images, self.sigma, output=dtype, mode="constant", axes=(1, 2))

        return BlockTransform(apply, None, 2 * prod(shape) * dtype.itemsize)
