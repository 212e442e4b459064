"""Straighten slanted images by a shear along the rows.

    out[r, c] = in[r, c + a (r - r0)],    r0 the image's centre of mass

with the slope a of each image from its second moments, a = sum I (r - r0)(c - c0) / sum I (r - r0)^2, or from
its dominant line: the Hough transform adds the intensities along every line c cos(t) - r sin(t) = rho with
|t| up to `max_angle`, and a = tan(t) of the strongest. The transform is linear in the image, so for all images
of a block it is one product with a sparse matrix. Time O(n d) for the moments, O(n d n_angles) for the Hough
transform; temporaries of one block.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import OneToOneFeatureMixin

from gramless._core.doc_links import link_documentation
from gramless.images.resample import sample_columns
from gramless.images.transformer import ImageShape, ImageTransformer, Plan

# Lines within this share of the strongest one count as the same stroke.
DOMINANT = 0.9


def hough_matrix(height: int, width: int, angles: np.ndarray, dtype: np.dtype) -> tuple[csr_array, int]:
    """The (n_angles * n_offsets, height * width) matrix that sums a flat image along lines, and n_offsets.

    A pixel votes for the two offsets around c cos t - r sin t, in proportion to its nearness: rounding to one
    of them would let some angles collect more by chance than the true one.
    """
    r, c = np.divmod(np.arange(height * width), width)
    reach = int(np.ceil(np.hypot(height, width)))
    n_offsets = 2 * reach + 2
    rho = np.outer(np.cos(angles), c) - np.outer(np.sin(angles), r) + reach
    below = np.floor(rho).astype(np.int64)
    share = rho - below
    lines = below + n_offsets * np.arange(len(angles))[:, None]
    votes = np.stack([1 - share, share]).astype(dtype)
    pixels = np.broadcast_to(np.arange(height * width), votes.shape)
    entries = (votes.ravel(), (np.stack([lines, lines + 1]).ravel(), pixels.ravel()))
    return csr_array(entries, (len(angles) * n_offsets, height * width)), n_offsets


@link_documentation
class Deskew(OneToOneFeatureMixin, ImageTransformer):
    """Straighten slanted images, bright on black, by a shear along the rows.

    A blank image comes back as it is.

    Parameters
    ----------
    method : "moments" or "hough"
        Take the slant from the second moments, or from the dominant line.
    max_angle : float
        Largest slant from the vertical that is looked for, in degrees. Above 30 the Hough transform takes
        strokes that belong to the character, the bar of a 7 or the foot of a 2, for its slant.
    angle_step : float
        Resolution of the Hough transform in degrees.
    shape : (height, width) or (height, width, channels), optional
        Shape of one image when rows are flat; square grey images need none.
    n_jobs : int, optional
        Threads; None is one unless a joblib context says otherwise.

    See Also
    --------
    Crop : Trims the black border.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.images import Deskew
    >>> slanted = np.zeros((1, 5, 5))
    >>> slanted[0, [0, 1, 2, 3, 4], [1, 1, 2, 2, 3]] = 1
    >>> Deskew("moments").fit_transform(slanted)[0].round(1)
    array([[0. , 0. , 1. , 0. , 0. ],
           [0. , 0.5, 0.5, 0. , 0. ],
           [0. , 0. , 1. , 0. , 0. ],
           [0. , 0.5, 0.5, 0. , 0. ],
           [0. , 0. , 1. , 0. , 0. ]])
    """

    def __init__(
        self,
        method: str = "moments",
        *,
        max_angle: float = 30.0,
        angle_step: float = 1.0,
        shape: Any = None,
        n_jobs: int | None = None,
    ):
        self.method = method
        self.max_angle = max_angle
        self.angle_step = angle_step
        self.shape = shape
        self.n_jobs = n_jobs

    def _plan(self, shape: ImageShape, dtype: np.dtype) -> Plan:
        if self.method not in ("moments", "hough"):
            raise ValueError(f"method must be 'moments' or 'hough', got {self.method!r}.")
        if not 0 < self.max_angle < 90:
            raise ValueError(f"max_angle must lie between 0 and 90 degrees, got {self.max_angle}.")
        if not self.angle_step > 0:
            raise ValueError(f"angle_step must be positive, got {self.angle_step}.")
        height, width, _ = shape
        rows = np.arange(height, dtype=dtype)[:, None]
        columns = np.arange(width, dtype=dtype)
        working = 8 * prod(shape) * dtype.itemsize

        if self.method == "hough":
            count = int(self.max_angle / self.angle_step)
            angles = np.deg2rad(self.angle_step * np.arange(-count, count + 1))
            lines, n_offsets = hough_matrix(height, width, angles, dtype)
            working += lines.shape[0] * dtype.itemsize

            def slope(grey: np.ndarray, centre: np.ndarray) -> np.ndarray:
                sums = lines @ np.ascontiguousarray(grey.reshape(len(grey), -1).T)
                strongest = sums.reshape(len(angles), n_offsets, len(grey)).max(axis=1)
                # A thick stroke holds strong lines over some degrees and follows the middle of them; so does
                # the blank image, for which all are equal and the middle is upright.
                strong = strongest >= DOMINANT * strongest.max(axis=0)
                return np.tan(angles @ strong / strong.sum(axis=0)).astype(dtype)

        else:
            steepest = np.tan(np.deg2rad(self.max_angle))

            def slope(grey: np.ndarray, centre: np.ndarray) -> np.ndarray:
                r = rows[:, 0] - centre[:, None]
                mass = grey.sum(axis=2)
                spread = np.einsum("nr,nr->n", r**2, mass)
                # sum I (r - r0) vanishes, so the columns need no centring.
                joint = np.einsum("nr,nr->n", r, grey @ columns)
                found = np.divide(joint, spread, out=np.zeros_like(joint), where=spread > 0)
                return np.clip(found, -steepest, steepest)

        def apply(images: np.ndarray) -> np.ndarray:
            grey = images.mean(axis=3, dtype=dtype)
            mass = grey.sum(axis=(1, 2))
            moment = grey.sum(axis=2) @ rows[:, 0]
            middle = np.full_like(mass, (height - 1) / 2)
            centre = np.divide(moment, mass, out=middle, where=mass > 0)
            shift = slope(grey, centre)[:, None] * (rows[:, 0] - centre[:, None])
            return sample_columns(images, columns + shift[:, :, None])

        return Plan(apply, None, working)
