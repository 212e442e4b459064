"""The image beside the square root of its spectrum.

    xi = x - mean(x),    phi = |FFT(xi)|^(1/2),    phi <- phi - mean(phi),
    features = [xi / ||xi||, phi / ||phi||] / sqrt(2)

The transform is one-dimensional over the vectorised image, columns one after the other and channel after
channel; of its symmetric magnitudes the first half is kept, so d values become d + ceil(d / 2). The
magnitudes do not change when the image is shifted around, which the pixels alone do not offer. Time O(n d log
d); temporaries of one block. Reference: Andrecut, "Randomized kernel methods for least-squares support vector
machines", 2016, eqs. (69)-(75).
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from scipy.fft import rfft
from sklearn.base import ClassNamePrefixFeaturesOutMixin

from gramless._core.doc_links import link_documentation
from gramless.images.normalise import centre_and_normalise
from gramless.images.transformer import ImageShape, ImageTransformer, Plan


@link_documentation
class FourierFeatures(ClassNamePrefixFeaturesOutMixin, ImageTransformer):
    """Normalised pixels and the normalised square root of the Fourier magnitudes, side by side.

    Parameters
    ----------
    shape : (height, width) or (height, width, channels), optional
        Shape of one image when rows are flat. Flat rows without it are transformed in the order they come in.
    n_jobs : int, optional
        Threads; None is one unless a joblib context says otherwise.

    See Also
    --------
    HOG : Features from the directions of edges.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.images import FourierFeatures
    >>> images = np.zeros((3, 28, 28), dtype=np.uint8)
    >>> images[:2, 10, 10:20] = 255
    >>> features = FourierFeatures().fit_transform(images)
    >>> features.shape
    (3, 1176)
    >>> np.linalg.norm(features, axis=1).round(4)
    array([1., 1., 0.], dtype=float32)
    """

    _vectors_allowed = True

    def __init__(self, *, shape: Any = None, n_jobs: int | None = None):
        self.shape = shape
        self.n_jobs = n_jobs

    def _plan(self, shape: ImageShape, dtype: np.dtype) -> Plan:
        d = prod(shape)
        half = (d + 1) // 2

        def apply(images: np.ndarray) -> np.ndarray:
            n = len(images)
            out = np.empty((n, d + half), dtype)
            pixels, magnitudes = out[:, :d], out[:, d:]
            pixels[:] = images.reshape(n, d)
            # Normalised first: the spectrum's scale cancels in its own normalisation, and a constant image,
            # whose centring leaves rounding errors, is exactly zero by then.
            centre_and_normalise(pixels)
            columns = pixels.reshape(n, *shape).transpose(0, 3, 2, 1).reshape(n, d)
            np.sqrt(np.abs(rfft(columns, axis=1)[:, :half]), out=magnitudes)
            centre_and_normalise(magnitudes)
            out *= 0.5**0.5
            return out

        return Plan(apply, (d + half,), 5 * d * dtype.itemsize)
