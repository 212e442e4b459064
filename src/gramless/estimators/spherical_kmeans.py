"""k-means on the unit sphere: directions are grouped by the cosine with their centroid.

    label_i = argmax_q <x_i, m_q>,    m_q <- sum_{label_i = q} x_i / ||x_i||, scaled to unit norm,

until the centroids stop turning: 1 - mean_q <m_q new, m_q old> < tol. An iteration is one matrix product, cut into
tiles whose largest entries are found while they are in cache, O(n k d) time and O(n + k d) memory beside the data, less what
bounds on the angles show to be unchanged (`kmeans_bounds`); the sums are carried from iteration to iteration and only the
points that changed their cluster are moved between them.
References: Dhillon and Modha, "Concept decompositions for large sparse text data using clustering", 2001; Sculley,
"Web-scale k-means clustering", 2010, for the mini-batch form.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.device import Device
from gramless._core.doc_links import link_documentation
from gramless._core.memory import MemoryEstimate
from gramless._core.progress import log_progress
from gramless._core.threads import CPU_TILE, blas_threads, slices
from gramless._core.validation import atomic_fit, check_choice, check_positive, check_weights, check_X, working_dtype
from gramless.approximation.clustering.bounds import Bounds
from gramless.approximation.clustering.starts import plus_plus, random_points
from gramless.approximation.clustering.steps import deviation_of, inertia_of, mass_of, nearest, reseed, turn, workers_for
from gramless.callbacks import read_functions
from gramless.linalg.planning.plan import FitPlan

# Of a point: its norm, mass, weight, label, the label before, the cosine, two bounds on its angle, and what is computed of
# these at a time.
_NUMBERS_OF_A_POINT = 14


def kmeans_memory(n: int, d: int, k: int, itemsize: int, device: str) -> MemoryEstimate:
    """What clustering `n` points of `d` features takes."""
    workers = max(1, min(blas_threads(), n // max(1, k)))
    tile = min(n, CPU_TILE)
    parts = {
        "data": n * d * itemsize,
        "labels and bounds": _NUMBERS_OF_A_POINT * n * 8,
        "centroids": k * d * ((workers + 2) * 8 + 4 * itemsize),
        "tiles": workers * tile * (min(k, CPU_TILE) + 2 * d) * itemsize,
    }
    return MemoryEstimate(parts, device)


@link_documentation
class SphericalKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Clustering of directions by k-means with the cosine.

    Rows need not have unit norm; only their direction counts. A zero row has none, belongs to some cluster and moves
    no centroid. Data may be a memory map larger than the memory, or a torch tensor on any device.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    init : {"k-means++", "random"} or array of shape (n_clusters, n_features), default="k-means++"
        How the first centroids are chosen among the points, or the centroids themselves.
    max_iter : int, default=100
        Passes over the data, at most.
    tol : float, default=1e-6
        Stop when the mean deviation of the centroids' alignment, 1 - <new, old>, falls below.
    batch_size : int, optional
        Update the centroids after every batch of so many random points instead of after every pass. What earlier
        passes have added to a centroid fades by half with each.
    device : {"cpu", "cuda", "auto"}, CUDA or None, default=None
        Where to compute; None follows the data.
    callback : callable(estimator, record) -> bool, or a list of them, optional
        Called after each pass with an estimator that can already predict; a true answer stops the fit.
    verbose : int, default=0
        1 shows progress.
    random_state : int, RandomState or None, default=None
        Draws the start and the batches.

    Attributes
    ----------
    cluster_centers_ : array of shape (n_clusters, n_features)
        Centroids of unit norm.
    labels_ : int array of shape (n_samples,)
        Cluster of each training point.
    inertia_ : float
        Sum of 1 - cos over the training points.
    n_iter_ : int
        Passes made.
    history_ : list of dict
        For each pass: n_iter, seconds since the start, inertia before the centroids were updated, deviation, moved (points
        that changed their cluster), reseeded (clusters that were empty).

    See Also
    --------
    PrototypeLSSVC : A classifier on such centroids.

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

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        max_iter: int = 100,
        tol: float = 1e-6,
        batch_size: int | None = None,
        device: Device = None,
        callback: Any = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.n_clusters = n_clusters
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.batch_size = batch_size
        self.device = device
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state

    @atomic_fit
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> SphericalKMeans:
        """Find the centroids.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, n_features)
            The points.
        y : object, optional
            Not used; here for scikit-learn's pipelines.
        sample_weight : array of shape (n_samples,), optional
            How much each point counts; one by default.

        Returns
        -------
        self
            Fitted.
        """
        self._check_settings()
        read_functions(self)  # what cannot be used is refused before the first pass
        X = self._read(X, reset=True)
        n = X.shape[0]
        if self.n_clusters > n:
            raise ValueError(f"n_clusters={self.n_clusters} is more than the {n} samples of X.")
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        rng = np.random.default_rng(seed)
        weights = check_weights(sample_weight, X)
        scale = self._scales(X)
        # The sums add w x / ||x||, so neither weights nor norms ever touch a copy of the data.
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
            warnings.warn(
                f"Only {distinct} of n_clusters={self.n_clusters} clusters have points: the data has too few "
                "different directions.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Cluster of each point.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, n_features)
            The points.

        Returns
        -------
        int array of shape (n_samples,)
            Numbers of rows of `cluster_centers_`.
        """
        check_is_fitted(self)
        labels, _ = nearest(self._read(X, reset=False), self._centres_for(X))
        return xa.to_numpy(labels).astype(np.int32)

    def transform(self, X: Any) -> Array:
        """Cosine distance, 1 - cos, of each point to each centroid.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, n_features)
            The points.

        Returns
        -------
        array of shape (n_samples, n_clusters)
            Zero where a point has the direction of a centroid.
        """
        check_is_fitted(self)
        X = self._read(X, reset=False)
        out = X @ self._centres_for(X).T
        out *= -self._scales(X)[:, None]
        out += 1
        return out

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the inertia of X.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, n_features)
            The points.
        y : object, optional
            Not used; here for scikit-learn's pipelines.
        sample_weight : array of shape (n_samples,), optional
            How much each point counts; one by default.

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

    def plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> FitPlan:
        """What a fit of this size would hold.

        Parameters
        ----------
        n, d, n_outputs : int
            Rows, features, and columns of targets.
        dtype : dtype
            Of the data.
        device : str
            Where to compute.

        Returns
        -------
        FitPlan
            Or a `MemoryError` where that is too much.
        """
        return FitPlan(kmeans_memory(n, d, int(self.n_clusters), np.dtype(dtype).itemsize, device))

    def _passes(
        self, X: Array, centres: Array, scale: Array, weight: Array, mass: np.ndarray, rng: np.random.Generator
    ) -> tuple[Array, float]:
        """Lloyd's iteration, in place on `centres`; labels and inertia with respect to the final ones."""
        n, k = X.shape[0], centres.shape[0]
        sums = [xa.zeros((k, X.shape[1]), X, np.float64) for _ in range(workers_for(X, k))]
        old = xa.zeros((n,), X, np.int64) - 1
        # On a device a product costs less than to find out which part of it could be left out.
        bounds = Bounds(xa.cast_numpy(X), xa.cast_numpy(scale)) if xa.device_of(X) == "cpu" else None
        labels = xa.zeros((n,), X, np.int64) if bounds is None else bounds.labels
        drift = None

        def move(worker: int, rows: slice, part: Array, found: Array) -> None:
            xa.move_rows_(sums[worker], part, old[rows], found, weight[rows])

        start = time.perf_counter()
        for iteration in range(1, self.max_iter + 1):
            if bounds is None:
                nearest(X, centres, labels, visit=move)
            else:
                bounds.assign(xa.cast_numpy(centres), drift, move)
            # The sums hold every cosine: those of a cluster add up to <sum, centre>.
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
            chords = turn(centres, sum(sums[1:], sums[0]), counts)
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
        """The mini-batch form, in place on `centres`."""
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
                    # Whoever has not got a point in the whole pass takes one of this last batch.
                    found_counts = counts + np.bincount(xa.to_numpy(found), mass[chosen] > 0, minlength=k)
                    empty, worst = reseed(cosines, scale[rows], mass[chosen], found_counts)
                    found[xa.indices(worst, X)] = xa.indices(empty, X)
                    reseeded = len(empty)
                moved += int((found != labels[rows]).sum())
                labels[rows] = found
                counts += np.bincount(xa.to_numpy(found), mass[chosen] > 0, minlength=k)
                xa.move_rows_(sums, batch, found * 0 - 1, found, weight[rows])
                turn(centres, sums, counts)
            deviation = 1 - float((before * centres).sum()) / k
            stopped = self._record(centres, iteration, inertia, deviation, moved, reseeded, start)
            if stopped or deviation < self.tol:
                break
        labels, cosines = nearest(X, centres)
        return labels, inertia_of(cosines, scale, mass)

    def _record(
        self, centres: Array, n_iter: int, inertia: float, deviation: float, moved: int, reseeded: int, start: float
    ) -> bool:
        """Add a pass to the history; whether a callback wants it to be the last."""
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

        def served(X: Array, centres: Array) -> Array:
            return nearest(X, centres)[1] * scale

        if not isinstance(self.init, str):
            centres = xa.like(xa.to_numpy(self.init), X)
            if tuple(centres.shape) != (self.n_clusters, X.shape[1]):
                raise ValueError(f"init has the shape {tuple(centres.shape)}, needed is ({self.n_clusters}, {X.shape[1]}).")
            return centres * self._scales(centres)[:, None]
        if self.init == "random":
            return unit(random_points(mass, self.n_clusters, rng))
        return unit(plus_plus(X, unit, served, mass, self.n_clusters, rng))

    def _scales(self, X: Array) -> Array:
        """1 / norm of every row, 0 for zero rows."""
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

    def _check_settings(self) -> None:
        check_positive("n_clusters", self.n_clusters, integer=True)
        check_positive("max_iter", self.max_iter, integer=True)
        if self.batch_size is not None:
            check_positive("batch_size", self.batch_size, integer=True)
        if isinstance(self.init, str):
            check_choice("init", self.init, {"k-means++", "random"})
        if not self.tol >= 0:
            raise ValueError(f"tol must be at least 0, got {self.tol!r}")

    def __getstate__(self) -> dict[str, Any]:
        # A file takes NumPy arrays only, and may be read where there is no such device.
        state = super().__getstate__()
        if "cluster_centers_" in state:
            state = {**state, "cluster_centers_": xa.to_numpy(state["cluster_centers_"])}
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
