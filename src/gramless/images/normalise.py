"""Centre every image and scale it to unit norm.

    x <- x - mean(x),    x <- x / ||x||

Inner products of the results are cosines, so that polynomial kernels of them stay in [-1, 1]. A constant
image has no direction and becomes zero. Time O(n d); temporaries of one block. Reference: Andrecut,
"Randomized kernel methods for least-squares support vector machines", 2016, eqs. (61)-(62).
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin

from gramless._core.doc_links import link_documentation
from gramless.images.transformer import ImageShape, ImageTransformer, Plan


def centre_and_normalise(V: np.ndarray) -> np.ndarray:
    """Centre the rows of a float array and scale them to unit norm, in place; constant rows become zero."""
    mean = V.mean(axis=1, keepdims=True)
    V -= mean
    norm = np.sqrt(np.einsum("ij,ij->i", V, V))[:, None]
    # A constant row leaves the rounding error of its mean behind, which must not be blown up to unit norm.
    noise = 16 * np.finfo(V.dtype).eps * np.abs(mean) * V.shape[1] ** 0.5
    V *= np.divide(1, norm, out=np.zeros_like(norm), where=norm > noise)
    return V


@link_documentation
class UnitNormalizer(OneToOneFeatureMixin, ImageTransformer):
    """Centre every image and scale it to unit norm.

    Parameters
    ----------
    shape : (height, width) or (height, width, channels), optional
        Shape of one image, checked against the input. Not needed: the channels are normalised together.
    n_jobs : int, optional
        Threads; None is one unless a joblib context says otherwise.

    See Also
    --------
    Scale01 : Stretches the intensities to [0, 1].

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

    def __init__(self, *, shape: Any = None, n_jobs: int | None = None):
        self.shape = shape
        self.n_jobs = n_jobs

    def _plan(self, shape: ImageShape, dtype: np.dtype) -> Plan:
        d = prod(shape)

        def apply(images: np.ndarray) -> np.ndarray:
            return centre_and_normalise(images.reshape(len(images), d).astype(dtype))

        return Plan(apply, (d,), 2 * d * dtype.itemsize)
