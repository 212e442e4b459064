"""Normalisation of the intensities of each image, smoothing filters, histograms of oriented gradients, and spectra.

    UnitNormalizer    x <- x - mean(x),  x <- x / ||x||
    Scale01           x <- (x - min(x)) / (max(x) - min(x))
    GaussianWindow    x[i, j] <- x[i, j] exp(-c ((i - L/2)^2 + (j - L/2)^2)),    i, j = 1..L,    c = 4 / L^2 by default
    MedianFilter      x[i, j] <- median of the square window around (i, j)
    GaussianBlur      x <- convolution of x with a Gaussian

`UnitNormalizer` and `Scale01` map a constant image to zeros. The Gaussian window of an image that is not square uses the
factor 4 / height^2 for rows and 4 / width^2 for columns. The median removes isolated outlying pixels and preserves edges;
the blur increases the overlap of similar strokes, which lowers the variance within a class. Both filters use SciPy and treat
each channel separately. Time for n images of d values: O(n d size^2) for the median, O(n d sigma) for the blur, else O(n d).

HOG: the magnitude of the gradient at every pixel (central differences, zero at the border; for colour images the channel
with the largest gradient) is added to one of `bins` directions in [0, 180) degrees. The sums are averaged over cells of
`cell` x `cell` pixels, and the histograms of every block of `blocks` x `blocks` cells are normalised together and
concatenated. Time O(n d + n features). The results equal `skimage.feature.hog`, which takes nine times as long for 2,000
random images of 28 x 28 because it is called once per image.

Spectrum: pixels and the square root of their Fourier magnitudes,

    xi = x - mean(x),    phi = |FFT(xi)|^(1/2),    phi <- phi - mean(phi),
    features = [xi / ||xi||, phi / ||phi||] / sqrt(2)

The Fourier transform is one-dimensional over the image as a vector, column by column and channel by channel. The features
have the first half of the magnitudes, which are symmetric, so d pixels give d + ceil(d / 2) features. The magnitudes are
invariant to cyclic shifts of the image. Time O(n d log d).

References: Dalal and Triggs, "Histograms of oriented gradients for human detection", 2005; Andrecut, "Randomized kernel
methods for least-squares support vector machines", 2016, eqs. (61)-(62) and (69)-(76).
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.fft import rfft
from scipy.ndimage import gaussian_filter, median_filter
from sklearn.base import ClassNamePrefixFeaturesOutMixin, OneToOneFeatureMixin
from sklearn.utils._param_validation import StrOptions

from gramless._core.constraints import NON_NEGATIVE, POSITIVE_INTEGER, estimator
from gramless.images.transformer import ImageTransformer

# Added to the norm of a block, as in scikit-image, so that a block of zeros is not divided by zero.
_EPSILON = 1e-5


def centre_and_normalise(V: np.ndarray) -> np.ndarray:
    """Centre the rows of a float array and scale the rows to unit norm, in place; constant rows become zero."""
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

    Inner products of normalised images are cosines in [-1, 1], and so are their powers in polynomial kernels. Unlike
    `sklearn.preprocessing.Normalizer`, `UnitNormalizer` centres each image.

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

    Unlike `sklearn.preprocessing.MinMaxScaler`, `Scale01` scales each image, not each column.

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
    """Multiply every image by a Gaussian around its centre, which darkens the border of the image.

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


def _gradients(images: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return vertical gradient, horizontal gradient and magnitude, (n, h, w) each, of float images (n, h, w, c)."""
    down, across = np.zeros_like(images), np.zeros_like(images)
    down[:, 1:-1] = images[:, 2:] - images[:, :-2]
    across[:, :, 1:-1] = images[:, :, 2:] - images[:, :, :-2]
    magnitude = np.hypot(down, across)
    if images.shape[3] == 1:
        return down[..., 0], across[..., 0], magnitude[..., 0]
    strongest = magnitude.argmax(axis=3)[..., None]
    down, across, magnitude = (np.take_along_axis(a, strongest, 3)[..., 0] for a in (down, across, magnitude))
    return down, across, magnitude


def _normalise_blocks(V: np.ndarray, norm: str) -> np.ndarray:
    """Return the histograms of blocks, on the last axis of `V`, normalised by the norm of the given name."""
    if norm == "none":
        return V
    if norm == "l1":
        return V / (np.abs(V).sum(axis=-1, keepdims=True) + _EPSILON)

    def unit(V: np.ndarray) -> np.ndarray:
        return V / np.sqrt(np.square(V).sum(axis=-1, keepdims=True) + _EPSILON**2)

    return unit(np.minimum(unit(V), 0.2)) if norm == "l2-hys" else unit(V)


@estimator
class HOG(ClassNamePrefixFeaturesOutMixin, ImageTransformer):
    """Histograms of oriented gradients.

    Parameters
    ----------
    cell : int
        Side of a cell in pixels; remaining pixels at the right and lower border are ignored.
    bins : int
        Number of directions in a histogram.
    blocks : int
        Side in cells of the overlapping blocks that are normalised together.
    shape : (height, width) or (height, width, channels), optional
        Shape of one image if the rows of X are flat; None assumes square grey images.
    n_jobs : int, optional
        Number of threads; None is 1 unless a joblib context sets another number.
    norm : {"l2-hys", "l2", "l1", "none"}
        Normalisation of a block; `"l2-hys"` is `"l2"`, clipped at 0.2 and normalised again.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.images import HOG
    >>> images = np.zeros((2, 28, 28), dtype=np.uint8)
    >>> images[0, 5:20, 14:16] = 255
    >>> HOG(cell=7, bins=9, blocks=1).fit_transform(images).shape
    (2, 144)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "cell": [POSITIVE_INTEGER],
        "bins": [POSITIVE_INTEGER],
        "blocks": [POSITIVE_INTEGER],
        "norm": [StrOptions({"l2-hys", "l2", "l1", "none"})],
    }

    cell: int = field(default=4, kw_only=False)
    bins: int = field(default=9, kw_only=False)
    blocks: int = field(default=2, kw_only=False)
    norm: str = "l2-hys"

    # `_copies` is large because the temporary arrays of `_transform_block` have 8 bytes per value.
    _copies = 20

    def _transform_block(self, images: np.ndarray, dtype: np.dtype) -> np.ndarray:
        cell, bins, side = int(self.cell), int(self.bins), int(self.blocks)
        n, n_rows, n_columns = len(images), images.shape[1] // cell, images.shape[2] // cell
        if min(n_rows, n_columns) < side:
            raise ValueError(
                f"Images of {images.shape[1]} x {images.shape[2]} pixels have {n_rows} x {n_columns} cells of side {cell}, "
                f"too few for a block of {side} x {side}: choose smaller cells or blocks."
            )
        height, width, n_cells = n_rows * cell, n_columns * cell, n_rows * n_columns
        cell_of_pixel = (np.arange(height)[:, None] // cell) * n_columns + np.arange(width) // cell
        down, across, magnitude = (g[:, :height, :width] for g in _gradients(images.astype(dtype)))
        # Angles are in degrees, because horizontal and vertical edges are then exactly on the limits of bins. Opposite
        # gradients have the same direction; the modulus may round up to 180 degrees, which belong to the last bin.
        degrees = np.mod(np.rad2deg(np.arctan2(down, across)), 180)
        bin_of_pixel = (degrees * bins / 180).astype(np.int64)
        np.minimum(bin_of_pixel, bins - 1, out=bin_of_pixel)
        bin_of_pixel += cell_of_pixel * bins
        bin_of_pixel += (np.arange(n) * (n_cells * bins))[:, None, None]
        sums = np.bincount(bin_of_pixel.ravel(), magnitude.ravel(), minlength=n * n_cells * bins)
        cells = (sums / cell**2).astype(dtype).reshape(n, n_rows, n_columns, bins)
        windows = sliding_window_view(cells, (side, side), axis=(1, 2)).transpose(0, 1, 2, 4, 5, 3)
        return _normalise_blocks(windows.reshape(*windows.shape[:3], -1), self.norm).reshape(n, -1)


@estimator
class SpectrumFeatures(ClassNamePrefixFeaturesOutMixin, ImageTransformer):
    """Normalised pixels, followed by the normalised square roots of the Fourier magnitudes.

    The Fourier transform of a flat row without `shape` is over the values in their order in the row.

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
    _copies = 4

    def _transform_block(self, images: np.ndarray, dtype: np.dtype) -> np.ndarray:
        n, d = len(images), images[0].size
        half = (d + 1) // 2
        out = np.empty((n, d + half), dtype)
        pixels, magnitudes = out[:, :d], out[:, d:]
        pixels[:] = images.reshape(n, d)
        # Normalise pixels before the Fourier transform, so that a constant image becomes exactly zero, not rounding errors.
        # For other images this scaling has no effect on the magnitudes, because they are normalised too.
        centre_and_normalise(pixels)
        columns = pixels.reshape(images.shape).transpose(0, 3, 2, 1).reshape(n, d)
        np.sqrt(np.abs(rfft(columns, axis=1)[:, :half]), out=magnitudes)
        centre_and_normalise(magnitudes)
        out *= 0.5**0.5
        return out
