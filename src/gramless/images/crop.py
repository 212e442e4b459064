"""Trim the black border of every image and stretch what is left back to the full size.

The bounding box of the pixels above a threshold is found for all images at once and read bilinearly, one axis
after the other. The box never exceeds the image, so pixels are only ever spread out and need no
anti-aliasing. Time O(n d); temporaries of one block.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin

from gramless._core.doc_links import link_documentation
from gramless.images.resample import sample_columns, sample_rows
from gramless.images.transformer import ImageShape, ImageTransformer, Plan


def extent(occupied: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First occupied position of each row and the length up to its last one; all of an empty row."""
    side = occupied.shape[1]
    any_ink = occupied.any(axis=1)
    first = np.where(any_ink, occupied.argmax(axis=1), 0)
    last = np.where(any_ink, side - 1 - occupied[:, ::-1].argmax(axis=1), side - 1)
    return first, last - first + 1


@link_documentation
class Crop(OneToOneFeatureMixin, ImageTransformer):
    """Trim the black border of every image, then resize it back.

    A blank image comes back as it is.

    Parameters
    ----------
    threshold : float
        A pixel belongs to the border as long as no channel exceeds this value.
    keep_aspect : bool
        False fills the whole image, which makes narrow and wide writing alike; True stretches both axes by
        the smaller of the two factors and centres the result.
    shape : (height, width) or (height, width, channels), optional
        Shape of one image when rows are flat; square grey images need none.
    n_jobs : int, optional
        Threads; None is one unless a joblib context says otherwise.

    See Also
    --------
    Deskew : Straightens slanted images.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.images import Crop
    >>> image = np.zeros((1, 4, 4))
    >>> image[0, 1:3, 2:4] = [[1, 1], [1, 0]]
    >>> Crop().fit_transform(image)[0]
    array([[1.    , 1.    , 1.    , 1.    ],
           [1.    , 0.9375, 0.8125, 0.75  ],
           [1.    , 0.8125, 0.4375, 0.25  ],
           [1.    , 0.75  , 0.25  , 0.    ]])
    """

    def __init__(self, threshold: float = 0, *, keep_aspect: bool = False, shape: Any = None, n_jobs: int | None = None):
        self.threshold = threshold
        self.keep_aspect = keep_aspect
        self.shape = shape
        self.n_jobs = n_jobs

    def _plan(self, shape: ImageShape, dtype: np.dtype) -> Plan:
        height, width, _ = shape

        def apply(images: np.ndarray) -> np.ndarray:
            ink = np.max(images, axis=3) > self.threshold
            top, rows = extent(np.max(ink, axis=2))
            left, columns = extent(np.max(ink, axis=1))
            row_step, column_step = rows / height, columns / width
            if self.keep_aspect:
                row_step = column_step = np.maximum(row_step, column_step)

            def positions(first: np.ndarray, length: np.ndarray, step: np.ndarray, side: int) -> np.ndarray:
                centre = first + (length - 1) / 2
                where = centre[:, None] + (np.arange(side) - (side - 1) / 2) * step[:, None]
                if not self.keep_aspect:
                    # Half a pixel at each end lies beyond the box: repeat the edge rather than fade it.
                    where = np.clip(where, first[:, None], (first + length - 1)[:, None])
                return where.astype(dtype)[:, None, :]

            stretched = sample_rows(images, positions(top, rows, row_step, height))
            return sample_columns(stretched, positions(left, columns, column_step, width))

        return Plan(apply, None, 8 * prod(shape) * dtype.itemsize)
