"""Two smoothing filters: the median of a square window, and convolution with a Gaussian.

The median removes single outlying pixels and keeps edges; the Gaussian blur makes neighbouring strokes of one
class overlap, which lowers the variance within it. Both act on each channel of each image alone. Time O(n d
size^2) and O(n d sigma); temporaries of one block.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter, median_filter
from sklearn.base import OneToOneFeatureMixin

from gramless._core.doc_links import link_documentation
from gramless.images.transformer import ImageShape, ImageTransformer, Plan


@link_documentation
class MedianFilter(OneToOneFeatureMixin, ImageTransformer):
    """Replace every pixel by the median of the window around it.

    Parameters
    ----------
    size : int
        Side of the window in pixels; beyond the border the image is mirrored.
    shape : (height, width) or (height, width, channels), optional
        Shape of one image when rows are flat; square grey images need none.
    n_jobs : int, optional
        Threads; None is one unless a joblib context says otherwise.

    See Also
    --------
    GaussianBlur : Convolves every image with a Gaussian.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.images import MedianFilter
    >>> speck = np.zeros((1, 5, 5), dtype=np.uint8)
    >>> speck[0, 2, 2] = 255
    >>> float(MedianFilter(3).fit_transform(speck).max())
    0.0
    """

    def __init__(self, size: int = 3, *, shape: Any = None, n_jobs: int | None = None):
        self.size = size
        self.shape = shape
        self.n_jobs = n_jobs

    def _plan(self, shape: ImageShape, dtype: np.dtype) -> Plan:
        if int(self.size) != self.size or self.size < 1:
            raise ValueError(f"size must be a whole number of pixels, at least 1, got {self.size}.")

        def apply(images: np.ndarray) -> np.ndarray:
            return median_filter(images, size=int(self.size), axes=(1, 2))

        return Plan(apply, None, 2 * prod(shape) * dtype.itemsize)


@link_documentation
class GaussianBlur(OneToOneFeatureMixin, ImageTransformer):
    """Convolve every image with a Gaussian.

    Parameters
    ----------
    sigma : float
        Standard deviation of the Gaussian in pixels; beyond the border the image is zero.
    shape : (height, width) or (height, width, channels), optional
        Shape of one image when rows are flat; square grey images need none.
    n_jobs : int, optional
        Threads; None is one unless a joblib context says otherwise.

    See Also
    --------
    MedianFilter : Removes single outlying pixels.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.images import GaussianBlur
    >>> speck = np.zeros((1, 3, 3))
    >>> speck[0, 1, 1] = 1
    >>> GaussianBlur(0.5).fit_transform(speck)[0].round(2)
    array([[0.01, 0.08, 0.01],
           [0.08, 0.62, 0.08],
           [0.01, 0.08, 0.01]])
    """

    def __init__(self, sigma: float = 1.0, *, shape: Any = None, n_jobs: int | None = None):
        self.sigma = sigma
        self.shape = shape
        self.n_jobs = n_jobs

    def _plan(self, shape: ImageShape, dtype: np.dtype) -> Plan:
        if not self.sigma >= 0:
            raise ValueError(f"sigma must be at least 0, got {self.sigma}.")

        def apply(images: np.ndarray) -> np.ndarray:
            return gaussian_filter(images, self.sigma, output=dtype, mode="constant", axes=(1, 2))

        return Plan(apply, None, 2 * prod(shape) * dtype.itemsize)
