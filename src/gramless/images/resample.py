"""Read images between their pixels along one axis, every image at positions of its own.

Shearing and stretching move pixels along rows or columns only, so linear interpolation in one dimension,
vectorised over images, is all that deskewing and cropping need.
"""

from __future__ import annotations

import numpy as np


def sample_columns(images: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Linear interpolation along the columns.

    Parameters
    ----------
    images : array of shape (n, h, w, c)
    positions : float array of shape (n, h, m) or (n, 1, m)
        Where to read each row, in pixels; outside the image there is zero.

    Returns
    -------
    float array of shape (n, h, m, c), of the positions' dtype
    """
    width = images.shape[2]
    left = np.floor(positions)
    share = (positions - left)[..., None]
    left = left.astype(np.int32)

    def read(columns: np.ndarray, weight: np.ndarray) -> np.ndarray:
        weight = weight * ((columns >= 0) & (columns < width))[..., None]
        columns = np.clip(columns, 0, width - 1)[..., None]
        return np.take_along_axis(images, columns, axis=2) * weight

    out = read(left, 1 - share)
    out += read(left + 1, share)
    return out


def sample_rows(images: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Linear interpolation along the rows: `sample_columns` of the transposed images."""
    return sample_columns(images.transpose(0, 2, 1, 3), positions).transpose(0, 2, 1, 3)
