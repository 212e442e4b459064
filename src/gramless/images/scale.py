"""Stretch the intensities of every image to [0, 1].

    x <- (x - min(x)) / (max(x) - min(x))

A constant image, whose every pixel is its minimum, becomes zero. Time O(n d); temporaries of one block.
Reference: the last pre-processing step of "Kernel SVM from scratch" on MNIST.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin

from gramless._core.doc_links import link_documentation
from gramless.images.transformer import ImageShape, ImageTransformer, Plan


@link_documentation
class Scale01(OneToOneFeatureMixin, ImageTransformer):
    """Stretch the intensities of every image to [0, 1], its channels together.

    Parameters
    ----------
    shape : (height, width) or (height, width, channels), optional
        Shape of one image, checked against the input. Not needed.
    n_jobs : int, optional
        Threads; None is one unless a joblib context says otherwise.

    See Also
    --------
    UnitNormalizer : Centres every image and scales it to unit norm.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.images import Scale01
    >>> Scale01().fit_transform(np.array([[0, 51, 255], [9, 9, 9]], dtype=np.uint8))
    array([[0. , 0.2, 1. ],
           [0. , 0. , 0. ]], dtype=float32)
    """

    _vectors_allowed = True

    def __init__(self, *, shape: Any = None, n_jobs: int | None = None):
        self.shape = shape
        self.n_jobs = n_jobs

    def _plan(self, shape: ImageShape, dtype: np.dtype) -> Plan:
        def apply(images: np.ndarray) -> np.ndarray:
            lowest = images.min(axis=(1, 2, 3), keepdims=True).astype(dtype)
            spread = images.max(axis=(1, 2, 3), keepdims=True).astype(dtype) - lowest
            out = images.astype(dtype)
            out -= lowest
            out /= np.where(spread > 0, spread, 1)
            return out

        return Plan(apply, None, 2 * prod(shape) * dtype.itemsize)
