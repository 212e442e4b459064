"""Landmarks drawn uniformly without replacement, in O(m) time without reading the data; a baseline for the other rules."""

from __future__ import annotations

import numpy as np
from sklearn.utils.random import sample_without_replacement

from gramless._core.arrays import Array
from gramless.approximation.landmarks.rule import LandmarkRule
from gramless.kernels.base import Kernel


class Uniform(LandmarkRule):
    """Draw rows uniformly without replacement.

    See Also
    --------
    RPCholesky : Draws rows that approximate the kernel matrix better.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import RBF
    >>> from gramless.approximation.landmarks import Uniform
    >>> X = np.arange(10.0)[:, None]
    >>> len(Uniform().select(X, RBF(gamma=1.0), 4, np.random.RandomState(0)))
    4
    """

    def select(self, X: Array, kernel: Kernel, m: int, rng: np.random.RandomState) -> np.ndarray:
        return np.sort(sample_without_replacement(X.shape[0], m, random_state=rng)).astype(np.intp)
