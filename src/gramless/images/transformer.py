"""Base class of the image transformers: read the images, transform them block by block in parallel threads.

A transformer defines a `BlockTransform` for one image shape and dtype: a function from a block of images to a block of
results. The base class validates the input, allocates the result once and applies the function block by block, so that
the memory beyond input and output is a few `ImageTuning.block_bytes` per thread for any number of images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, ClassVar, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import validate_data

from gramless._core.threads import slices
from gramless.images.reading import ImageShape, flatten_images, image_shape
from gramless.images.tuning import TUNING, ImageTuning


class BlockTransform(NamedTuple):
    """Function from a block of images (b, height, width, channels) to their results.

    `row_shape` is the shape of one result; None if results are images like the inputs. `bytes_per_image` is the working
    memory of one image, which determines the size of the blocks.
    """

    apply: Callable[[np.ndarray], np.ndarray]
    row_shape: tuple[int, ...] | None
    bytes_per_image: int


def apply_in_blocks(
    transform: BlockTransform, images: np.ndarray, dtype: np.dtype, n_jobs: int | None = None, tuning: ImageTuning = TUNING
) -> np.ndarray:
    """Return the results of all images, computed in blocks by `n_jobs` threads."""
    out = np.empty((len(images), *(transform.row_shape or images.shape[1:])), dtype)

    def work(rows: slice) -> None:
        out[rows] = transform.apply(images[rows])

    step = max(1, tuning.block_bytes // max(1, transform.bytes_per_image))
    Parallel(n_jobs=n_jobs, require="sharedmem")(delayed(work)(rows) for rows in slices(len(images), step))
    return out


@dataclass(eq=False, repr=False)
class ImageTransformer(TransformerMixin, BaseEstimator):
    """Base class of the image transformers; subclasses define `_block_transform`."""

    # True if the transformation does not depend on the geometry of the image, so that any vector is accepted.
    _vectors_allowed = False
    _parameter_constraints: ClassVar[dict[str, Any]] = {"shape": "no_validation", "n_jobs": [Integral, None]}

    _: KW_ONLY
    shape: Any = None
    n_jobs: int | None = None

    def fit(self, X: Any, y: Any = None) -> Any:
        """Check the parameters against the images; nothing is learned.

        Parameters
        ----------
        X : array of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            Images.
        y : object, optional
            Ignored.

        Returns
        -------
        self : object
            The transformer.
        """
        _, _, transform, _ = self._prepare(X, reset=True)
        self._n_features_out = self.n_features_in_ if transform.row_shape is None else transform.row_shape[-1]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Transform the images.

        Parameters
        ----------
        X : array of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            Images; float64 gives float64, all other types give float32.

        Returns
        -------
        array of floats
            Transformed images in the layout of X, or one row of features per image.
        """
        images, layout, transform, dtype = self._prepare(X, reset=False)
        out = apply_in_blocks(transform, images, dtype, self.n_jobs)
        return out.reshape(len(images), *layout) if transform.row_shape is None else out

    def _block_transform(self, shape: ImageShape, dtype: np.dtype) -> BlockTransform:
        raise NotImplementedError

    def _prepare(self, X: Any, *, reset: bool) -> tuple[np.ndarray, tuple[int, ...], BlockTransform, np.dtype]:
        """Return images (n, height, width, channels), the shape of a row of X, the transform, and the dtype of results."""
        self._validate_params()
        X, layout = flatten_images(X)
        X = validate_data(self, X, reset=reset)
        if X.dtype == np.float16:  # SciPy filters do not accept this dtype
            X = X.astype(np.float32)
        layout = layout or X.shape[1:]
        images = X.reshape(len(X), *image_shape(layout, self.shape, vectors_allowed=self._vectors_allowed))
        dtype = np.result_type(images.dtype, np.float32)
        return images, layout, self._block_transform(images.shape[1:], dtype), dtype

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.three_d_array = True
        tags.input_tags.two_d_array = self._vectors_allowed or self.shape is not None
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
