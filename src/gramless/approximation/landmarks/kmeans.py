"""Landmarks at the centroids of k-means clusters (Zhang, Tsang and Kwok 2008).

The Nyström error of a smooth kernel is bounded by the quantisation error of the landmarks, which k-means minimises.
Centroids are new points, not rows of `X`. Mini-batches limit the memory to a batch and the centroids. The time is O(m d) for
each row of a mini-batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.cluster import MiniBatchKMeans

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless.approximation.landmarks.rule import LandmarkRule
from gramless.kernels.base import Kernel


@dataclass(eq=False, repr=False)
class KMeans(LandmarkRule):
    """Compute the centroids of mini-batch k-means.

    Parameters
    ----------
    batch_size : int, default=1024
        Number of rows in a mini-batch, at least the number of centroids.
    max_iter : int, default=10
        Maximum number of passes over the data.

    See Also
    --------
    Uniform : Draws rows uniformly.

    References
    ----------
    Zhang, Tsang and Kwok, "Improved Nyström low-rank approximation and error analysis", 2008.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless.kernels import RBF
    >>> from gramless.approximation.landmarks import KMeans
    >>> X = np.repeat([[0.0], [1.0], [5.0]], 20, axis=0)
    >>> np.sort(KMeans().select(X, RBF(gamma=1.0), 3, np.random.RandomState(0)).ravel())
    array([0., 1., 5.])
    """

    batch_size: int = 1024
    max_iter: int = 10

    def select(self, X: Array, kernel: Kernel, m: int, rng: np.random.RandomState) -> Array:
        if not kernel.uses_points:
            raise ValueError("k-means landmarks are new points, for which a precomputed kernel has no values")
        data = X if xa.is_sparse(X) else xa.to_numpy(X)
        clustering = MiniBatchKMeans(
            n_clusters=m, batch_size=max(self.batch_size, m), max_iter=self.max_iter, n_init=1, random_state=rng
        )
        centres = clustering.fit(data).cluster_centers_
        if xa.is_sparse(X):
            return type(X)(centres.astype(X.dtype, copy=False))
        return xa.like(centres, X)
