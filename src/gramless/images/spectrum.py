"""Pixels and the square root of their Fourier magnitudes as features.

    xi = x - mean(x),    phi = |FFT(xi)|^(1/2),    phi <- phi - mean(phi),
    features = [xi / ||xi||, phi / ||phi||] / sqrt(2)

The transform is one-dimensional over the image as a vector, column by column and channel by channel; the first half of its
symmetric magnitudes is kept, so d values become d + ceil(d / 2). The magnitudes are invariant to cyclic shifts of the
image. Time O(n d log d); memory of one block of images. Reference: Andrecut, "Randomized kernel methods for least-squares
support vector machines", 2016, eqs. (69)-(75).
"""

from __future__ import annotations

from math import prod

import numpy as np
from scipy.fft import rfft
from sklearn.base import ClassNamePrefixFeaturesOutMixin

from gramless._core.doc_links import link_documentation
from gramless.images.normalise import centre_and_normalise
from gramless.images.reading import ImageShape
from gramless.images.transformer import BlockTransform, ImageTransformer


@link_documentation
class SpectrumFeatures(ClassNamePrefixFeaturesOutMixin, ImageTransformer):
    """Normalised pixels, followed by the normalised square roots of the Fourier magnitudes.

    Flat rows without `shape` are transformed in the order of their values.

    Parameters
    ----------
    shape : (height, width) or (height, width, channels), optional
        Shape of one image if the rows of X are flat; None assumes square grey images.
    n_jobs : int, optional
        Number of threads; None is 1 unless a joblib context sets another number.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.images import SpectrumFeatures
    >>> images = np.zeros((3, 28, 28), dtype=np.uint8)
    >>> images[:2, 10, 10:20] = 255
    >>> features = SpectrumFeatures().fit_transform(images)
    >>> features.shape
    (3, 1176)
    >>> np.linalg.norm(features, axis=1).round(4)
    array([1., 1., 0.], dtype=float32)
    """

    _vectors_allowed = True

    def _block_transform(self, shape: ImageShape, dtype: np.dtype) -> BlockTransform:
        d = prod(shape)
        half = (d + 1) // 2

        def apply(images: np.ndarray) -> np.ndarray:
            n = len(images)
            out = np.empty((n, d + half), dtype)
            pixels, magnitudes = out[:, :d], out[:, d:]
            pixels[:] = images.reshape(n, d)
            # Pixels are normalised before the transform: the scale of the spectrum cancels in its own normalisation, and a
            # constant image, whose centring leaves rounding errors, is then exactly zero.
            centre_and_normalise(pixels)
            columns = pixels.reshape(n, *shape).transpose(0, 3, 2, 1).reshape(n, d)
            np.sqrt(np.abs(rfft(columns, axis=1)[:, :half]), out=magnitudes)
            centre_and_normalise(magnitudes)
            out *= 0.5**0.5
            return out

        return BlockTransform(apply, (d + half,), 5 * d * dtype.itemsize)
