"""Base class of the image transformers: read the images, transform them block by block in parallel threads.

A transformer defines a function from a block of images to a block of results. The base class validates the input, allocates
the result once and applies the function block by block, so that the memory beyond input and output is a few
`ImageTuning.block_bytes` per thread for any number of images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import validate_data

from gramless._core.threads import slices
from gramless.images.reading import flatten_images, image_shape
from gramless.images.tuning import TUNING, ImageTuning


@dataclass(kw_only=True, eq=False, repr=False)
class ImageTransformer(TransformerMixin, BaseEstimator):
    """Base class of the image transformers; subclasses define `_transform_block`."""

    # True if the transformation does not depend on the geometry of the image, so that any vector is accepted.
    _vectors_allowed = False
    # Temporary arrays of a block, each of the size of the images or of the results, whichever is larger.
    _copies = 2

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
        images, _, dtype = self._read(X, reset=True)
        one = self._transform_block(images[:1], dtype)
        self._n_features_out = self.n_features_in_ if one.ndim == 4 else one.shape[-1]
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
        images, layout, dtype = self._read(X, reset=False)
        out = self._transform_blocks(images, dtype, self.n_jobs)
        return out.reshape(len(images), *layout) if out.ndim == 4 else out

    def _transform_block(self, images: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Return the results for images (n, height, width, channels): such images, or rows of features."""
        raise NotImplementedError

    def _transform_blocks(
        self, images: np.ndarray, dtype: np.dtype, n_jobs: int | None = None, tuning: ImageTuning = TUNING
    ) -> np.ndarray:
        """Return the results of all images, computed in blocks by `n_jobs` threads."""
        one = self._transform_block(images[:1], dtype)
        out = np.empty((len(images), *one.shape[1:]), dtype)

        def work(rows: slice) -> None:
            out[rows] = self._transform_block(images[rows], dtype)

        step = max(1, tuning.block_bytes // (self._copies * dtype.itemsize * max(one.size, images[0].size)))
        Parallel(n_jobs=n_jobs, require="sharedmem")(delayed(work)(rows) for rows in slices(len(images), step))
        return out

    def _read(self, X: Any, *, reset: bool) -> tuple[np.ndarray, tuple[int, ...], np.dtype]:
        """Return images (n, height, width, channels), the shape of a row of X, and the dtype of the results."""
        self._validate_params()
        X, layout = flatten_images(X)
        X = validate_data(self, X, reset=reset)
        if X.dtype == np.float16:  # SciPy filters do not accept this dtype
            X = X.astype(np.float32)
        layout = layout or X.shape[1:]
        images = X.reshape(len(X), *image_shape(layout, self.shape, vectors_allowed=self._vectors_allowed))
        return images, layout, np.result_type(images.dtype, np.float32)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.three_d_array = True
        tags.input_tags.two_d_array = self._vectors_allowed or self.shape is not None
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
