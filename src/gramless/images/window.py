"""A Gaussian window that keeps the middle of the image and fades its border.

    G[i, j] = exp(-c ((i - L/2)^2 + (j - L/2)^2)),    i, j = 1..L,    c = 4 / L^2 unless given

applied to each channel by multiplication. Images that are not square use (i - h/2)^2 / h^2 + (j - w/2)^2 /
w^2 with the factor 4 in place of the default c. Time O(n d); temporaries of one block. Reference: Andrecut,
"Randomized kernel methods for least-squares support vector machines", 2016, eq. (76).
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin

from gramless._core.doc_links import link_documentation
from gramless.images.transformer import ImageShape, ImageTransformer, Plan


@link_documentation
class GaussianWindow(OneToOneFeatureMixin, ImageTransformer):
    """Multiply every image with a Gaussian centred on it.

    Parameters
    ----------
    c : float, optional
        Decay per squared pixel; None stands for 4 / L^2 on images of side L.
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
    >>> from gramless.images import GaussianWindow
    >>> GaussianWindow().fit_transform(np.ones((1, 4, 4)))[0].round(2)
    array([[0.61, 0.78, 0.61, 0.29],
           [0.78, 1.  , 0.78, 0.37],
           [0.61, 0.78, 0.61, 0.29],
           [0.29, 0.37, 0.29, 0.14]])
    """

    def __init__(self, c: float | None = None, *, shape: Any = None, n_jobs: int | None = None):
        self.c = c
        self.shape = shape
        self.n_jobs = n_jobs

    def _plan(self, shape: ImageShape, dtype: np.dtype) -> Plan:
        if self.c is not None and not self.c >= 0:
            raise ValueError(f"c must be at least 0, got {self.c}.")

        def profile(side: int) -> np.ndarray:
            c = 4 / side**2 if self.c is None else self.c
            return np.exp(-c * (np.arange(1, side + 1) - side / 2) ** 2)

        window = np.outer(profile(shape[0]), profile(shape[1])).astype(dtype)[:, :, None]
        return Plan(lambda images: images * window, None, prod(shape) * dtype.itemsize)
