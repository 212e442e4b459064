"""k-means on the unit sphere: rows are clustered by the cosine with their centroid.

    label_i = argmax_q <x_i, m_q>,    m_q <- sum_{label_i = q} x_i / ||x_i||, scaled to unit norm,

until the centroids stop rotating: 1 - mean_q <m_q new, m_q old> < tol. An iteration is one matrix product in tiles: O(n k d)
time, and O(n + k d) memory in addition to the data. Points whose label cannot change, as proved by bounds
(`gramless.approximation.clustering.bounds`), are skipped. Sums are updated only with points that changed cluster.

References: Dhillon and Modha, "Concept decompositions for large sparse text data using clustering", 2001; Sculley,
"Web-scale k-means clustering", 2010, for mini-batches.
"""

from __future__ import annotations

import time
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.constraints import NON_NEGATIVE, POSITIVE_INTEGER, estimator
from gramless._core.device import Device
from gramless._core.memory import MemoryEstimate
from gramless._core.progress import log_progress
from gramless._core.threads import CPU_TILE, blas_threads, slices
from gramless._core.validation import atomic_fit, check_weights, check_X, warn_caller, working_dtype
from gramless.approximation.clustering.bounds import AngleBounds
from gramless.approximation.clustering.steps import (
    deviation_of,
    inertia_of,
    mass_of,
    nearest,
    plus_plus,
    random_points,
    reseed,
    update_centroids,
    workers_for,
)
from gramless.callbacks import read_functions
from gramless.linalg.planning.plan import FitPlan

# Float64 numbers per point: norm, mass, weight, label, previous label, cosine, two bounds on the angle, and temporaries.
_NUMBERS_PER_POINT = 14


def kmeans_memory(n: int, d: int, k: int, itemsize: int, device: str) -> MemoryEstimate:
    """Return the memory of clustering `n` points of `d` features."""
    workers = max(1, min(blas_threads(), n // max(1, k)))
    tile = min(n, CPU_TILE)
    parts = {
        "data": n * d * itemsize,
        "labels and bounds": _NUMBERS_PER_POINT * n * 8,
        "centroids": k * d * ((workers + 2) * 8 + 4 * itemsize),
        "tiles": workers * tile * (min(k, CPU_TILE) + 2 * d) * itemsize,
    }
    return MemoryEstimate(parts, device)


@estimator
class SphericalKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Spherical k-means: clustering of rows by their direction, with the cosine as similarity.

    Prefer `SphericalKMeans` to `sklearn.cluster.KMeans` if only the direction of a row matters. Rows of zeros get a label
    but do not change the centroids. `X` may be a memory map larger than the memory, or a torch tensor on any device.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    init : {"k-means++", "random"} or array of shape (n_clusters, n_features), default="k-means++"
        Method that initialises the centroids. `"k-means++"` draws points far from each other, `"random"` draws points
        uniformly; an array has the centroids themselves.
    max_iter : int, default=100
        Maximum number of solver iterations. The Notes define an iteration.
    tol : float, default=1e-6
        Tolerance at which the solver stops. The Notes define the quantity that `tol` bounds.
    batch_size : int or None, default=None
        Number of rows processed at a time. The Notes give the meaning of None.
    device : {"cpu", "cuda", "auto"}, CUDA or None, default=None
        Device of the computation; None uses the device of the data. A `gramless.CUDA` object also sets precision and
        storage.
    callback : callable, a list of these, or None, default=None
        Function `callback(estimator, record)` called with the partially fitted estimator and a dict of progress values;
        returning True stops the fit. The Notes describe when the function is called.
    verbose : int, default=0
        If positive, write progress messages to standard error.
    random_state : int, RandomState or None, default=None
        Seed or generator for all random choices of the fit; an int makes the fit reproducible.

    Attributes
    ----------
    cluster_centers_ : array of shape (n_clusters, n_features)
        Centroids of unit norm.
    labels_ : int array of shape (n_samples,)
        Cluster of each training row.
    inertia_ : float
        Sum over the training rows of 1 - cos, with the cosine to the centroid of the cluster.
    n_iter_ : int
        Number of passes.
    history_ : list of dict
        One record for each pass: n_iter, seconds since the start, inertia before the update of the centroids, deviation (1 -
        mean <new, old> of the centroids), moved (rows that changed their cluster) and reseeded (clusters that were empty).

    See Also
    --------
    PrototypeLSSVC : Least-squares classifier on the centroids of each class.

    Notes
    -----
    An iteration is one pass over the rows, and `callback` is called after each pass with an entry of `history_`. `tol`
    bounds the mean of 1 - <new, old>, where new and old are a centroid after and before a pass. With a number as
    `batch_size`, the centroids are updated after each random batch, and the sums of earlier passes decay by half in each
    pass; None updates the centroids after each pass.

    References
    ----------
    Dhillon and Modha, "Concept decompositions for large sparse text data using clustering", 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from gramless import SphericalKMeans
    >>> X = np.array([[1.0, 0.1], [5.0, 0.4], [0.1, 1.0], [0.0, 3.0]])
    >>> kmeans = SphericalKMeans(2, random_state=0).fit(X)
    >>> bool(kmeans.labels_[0] == kmeans.labels_[1] != kmeans.labels_[2] == kmeans.labels_[3])
    True
    """

    n_clusters: int = field(default=8, kw_only=False)
    init: Any = "k-means++"
    max_iter: int = 100
    tol: float = 1e-6
    batch_size: int | None = None
    device: Device = None
    callback: Any = None
    verbose: int = 0
    random_state: Any = None

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_clusters": [POSITIVE_INTEGER],
        "init": [StrOptions({"k-means++", "random"}), "array-like"],
        "tol": [NON_NEGATIVE],
    }

    @atomic_fit
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> SphericalKMeans:
        """Compute the centroids.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, n_features)
            Rows.
        y : object, optional
            Ignored; present for scikit-learn's pipelines.
        sample_weight : array of shape (n_samples,), optional
            Weights of the rows; None is a weight of 1.

        Returns
        -------
        self
            The fitted estimator.
        """
        read_functions(self)  # raises an error for an invalid callback before the first pass
        X = self._read(X, reset=True)
        n = X.shape[0]
        if self.n_clusters > n:
            raise ValueError(f"n_clusters={self.n_clusters} is more than the {n} samples of X.")
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        rng = np.random.default_rng(seed)
        weights = check_weights(sample_weight, X)
        scale = self._scales(X)
        # The sums add w x / ||x||, so the data is neither weighted nor normalised in memory.
        scale_and_weight = scale if weights is None else scale * xa.like(weights, scale)
        mass = mass_of(scale, weights)
        centres = self._start(X, scale, mass, rng)
        self.history_: list[dict[str, float]] = []
        passes = self._passes if self.batch_size is None else self._batches
        labels, inertia = passes(X, centres, scale, scale_and_weight, mass, rng)
        self.cluster_centers_ = centres
        self._n_features_out = centres.shape[0]
        self.labels_ = xa.to_numpy(labels).astype(np.int32)
        self.inertia_ = inertia
        self.n_iter_ = len(self.history_)
        distinct = len(np.unique(self.labels_[mass > 0]))
        if distinct < self.n_clusters:
            warn_caller(
                f"Only {distinct} of n_clusters={self.n_clusters} clusters have points: the data has too few "
                "different directions.",
                ConvergenceWarning,
            )
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the cluster of each row.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        int array of shape (n_samples,)
            Indices of rows of `cluster_centers_`.
        """
        check_is_fitted(self)
        labels, _ = nearest(self._read(X, reset=False), self._centres_for(X))
        return xa.to_numpy(labels).astype(np.int32)

    def transform(self, X: Any) -> Array:
        """Return the cosine distance, 1 - cos, of each row to each centroid.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        array of shape (n_samples, n_clusters)
            Distances; zero if a row has the direction of a centroid.
        """
        check_is_fitted(self)
        X = self._read(X, reset=False)
        out = X @ self._centres_for(X).T
        out *= -self._scales(X)[:, None]
        out += 1
        return out

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return minus the inertia of `X`.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, n_features)
            Rows.
        y : object, optional
            Ignored; present for scikit-learn's pipelines.
        sample_weight : array of shape (n_samples,), optional
            Weights of the rows; None is a weight of 1.

        Returns
        -------
        float
            Minus the sum of 1 - cos to the nearest centroid; larger is better.
        """
        check_is_fitted(self)
        X = self._read(X, reset=False)
        _, cosines = nearest(X, self._centres_for(X))
        weights = check_weights(sample_weight, X)
        scale = self._scales(X)
        return -inertia_of(cosines, scale, mass_of(scale, weights))

    def _fit_plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> FitPlan:
        """Return the memory plan of a fit of `n` rows and `d` features; `MemoryError` if `memory_budget` is too small."""
        return FitPlan(kmeans_memory(n, d, int(self.n_clusters), np.dtype(dtype).itemsize, device))

    def _passes(
        self, X: Array, centres: Array, scale: Array, weight: Array, mass: np.ndarray, rng: np.random.Generator
    ) -> tuple[Array, float]:
        """Run Lloyd's iterations in place on `centres`; return the labels and the inertia of the final centroids."""
        n, k = X.shape[0], centres.shape[0]
        sums = [xa.zeros((k, X.shape[1]), X, np.float64) for _ in range(workers_for(X, k))]
        old = xa.zeros((n,), X, np.int64) - 1
        # On a CUDA device, the product with all points costs less than the evaluation of the bounds.
        bounds = AngleBounds(X, scale) if xa.device_of(X) == "cpu" else None
        labels = xa.zeros((n,), X, np.int64) if bounds is None else bounds.labels
        drift = None

        def move(worker: int, rows: slice, part: Array, found: Array) -> None:
            xa.move_rows_(sums[worker], part, old[rows], found, weight[rows])

        start = time.perf_counter()
        for iteration in range(1, self.max_iter + 1):
            if bounds is None:
                nearest(X, centres, labels, visit=move)
            else:
                bounds.assign(centres, drift, move)
            # The cosines of a cluster add up to the inner product of its sum and its centroid.
            inertia = max(0.0, float(mass.sum()) - float((sum(sums[1:], sums[0]) * centres).sum()))
            counts = np.bincount(xa.to_numpy(labels), mass > 0, minlength=k)
            reseeded = 0
            if not counts.all():
                empty, worst = reseed(nearest(X, centres)[1], scale, mass, counts)
                idx, to = xa.indices(worst, X), xa.indices(empty, X)
                xa.move_rows_(sums[0], X[idx], labels[idx], to, weight[idx])
                labels[idx] = to
                counts = np.bincount(xa.to_numpy(labels), mass > 0, minlength=k)
                reseeded = len(empty)
                if bounds is not None:
                    bounds.reset(worst)
            moved = int((labels != old).sum())
            chords = update_centroids(centres, sum(sums[1:], sums[0]), counts)
            drift = 2 * np.arcsin(np.minimum(chords / 2, 1))
            stopped = self._record(centres, iteration, inertia, deviation_of(chords), moved, reseeded, start)
            if stopped or moved == 0 or deviation_of(chords) < self.tol:
                break
            old[:] = labels
        if moved == 0:
            return labels, inertia
        labels, cosines = nearest(X, centres)
        return labels, inertia_of(cosines, scale, mass)

    def _batches(
        self, X: Array, centres: Array, scale: Array, weight: Array, mass: np.ndarray, rng: np.random.Generator
    ) -> tuple[Array, float]:
        """Run mini-batch iterations in place on `centres`; return the labels and the inertia of the final centroids."""
        n, k = X.shape[0], centres.shape[0]
        batch_size = min(int(self.batch_size or n), n)
        sums = xa.zeros((k, X.shape[1]), X, np.float64)
        labels = xa.zeros((n,), X, np.int64) - 1
        start = time.perf_counter()
        for iteration in range(1, self.max_iter + 1):
            before = centres + 0
            counts = np.zeros(k)
            sums *= 0.5
            order = rng.permutation(n)
            moved, reseeded, inertia = 0, 0, 0.0
            for part in slices(n, batch_size):
                chosen = np.sort(order[part])
                rows = xa.indices(chosen, X)
                batch = xa.take_rows(X, chosen)
                found, cosines = nearest(batch, centres)
                inertia += inertia_of(cosines, scale[rows], mass[chosen])
                if part.stop == n:
                    # The centroids of clusters without a point in this pass are set to points of the last batch.
                    found_counts = counts + np.bincount(xa.to_numpy(found), mass[chosen] > 0, minlength=k)
                    empty, worst = reseed(cosines, scale[rows], mass[chosen], found_counts)
                    found[xa.indices(worst, X)] = xa.indices(empty, X)
                    reseeded = len(empty)
                moved += int((found != labels[rows]).sum())
                labels[rows] = found
                counts += np.bincount(xa.to_numpy(found), mass[chosen] > 0, minlength=k)
                xa.move_rows_(sums, batch, found * 0 - 1, found, weight[rows])
                update_centroids(centres, sums, counts)
            deviation = 1 - float((before * centres).sum()) / k
            stopped = self._record(centres, iteration, inertia, deviation, moved, reseeded, start)
            if stopped or deviation < self.tol:
                break
        labels, cosines = nearest(X, centres)
        return labels, inertia_of(cosines, scale, mass)

    def _record(
        self, centres: Array, n_iter: int, inertia: float, deviation: float, moved: int, reseeded: int, start: float
    ) -> bool:
        """Append the record of a pass to the history; return whether a callback stops the fit."""
        clock = {"n_iter": n_iter, "seconds": time.perf_counter() - start}
        record = {**clock, "inertia": inertia, "deviation": deviation, "moved": moved, "reseeded": reseeded}
        self.history_.append(record)
        log_progress(self.verbose, f"pass {n_iter} of at most {self.max_iter}: inertia {inertia:.6g}, {moved} points moved")
        callbacks = read_functions(self)
        if not callbacks.functions:
            return False
        self.cluster_centers_, self._n_features_out = centres, centres.shape[0]
        return callbacks(self, record)

    def _start(self, X: Array, scale: Array, mass: np.ndarray, rng: np.random.Generator) -> Array:
        def unit(idx: np.ndarray) -> Array:
            return xa.take_rows(X, idx) * xa.take_rows(scale, idx)[:, None]

        def cosines(X: Array, centres: Array) -> Array:
            return nearest(X, centres)[1] * scale

        if not isinstance(self.init, str):
            centres = xa.like(xa.to_numpy(self.init), X)
            if tuple(centres.shape) != (self.n_clusters, X.shape[1]):
                raise ValueError(f"init has shape {tuple(centres.shape)}; expected ({self.n_clusters}, {X.shape[1]}).")
            return centres * self._scales(centres)[:, None]
        if self.init == "random":
            return unit(random_points(mass, self.n_clusters, rng))
        return unit(plus_plus(X, unit, cosines, mass, self.n_clusters, rng))

    def _scales(self, X: Array) -> Array:
        """Return 1 / norm of each row, 0 for zero rows."""
        xp = xa.namespace(X)
        norms = xa.sqrt_(xa.square_norms(X))
        return xp.where(norms > 0, 1 / xp.where(norms > 0, norms, norms + 1), norms)

    def _centres_for(self, X: Array) -> Array:
        device = xa.resolve_device(self.device, X)
        return xa.to_device(self.cluster_centers_, device)

    def _read(self, X: Any, *, reset: bool) -> Array:
        dtype = working_dtype(X, None) if reset else xa.numpy_dtype(self.cluster_centers_)
        checked = check_X(self, X, dtype=dtype, accept_sparse=False, reset=reset)
        return xa.to_device(checked, xa.resolve_device(self.device, X))

    def __getstate__(self) -> dict[str, Any]:
        # Files store NumPy arrays only, because they may be read on a computer without the device.
        state = super().__getstate__()
        if "cluster_centers_" in state:
            state = {**state, "cluster_centers_": xa.to_numpy(state["cluster_centers_"])}
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
