"""Features of images from a dictionary of patches: rectified correlations with typical patches, averaged by region.

1. Pixels are divided by their range; every patch is centred and divided by sqrt(variance + contrast).
2. The patches are whitened with `whitening` added to the eigenvalues of their covariance.
3. The atoms of the dictionary are the centroids of spherical k-means on a sample of patches.
4. The activation of an atom, or of its negative, by a patch is max(0, +-<atom, patch> - threshold).
5. Activations are averaged over the cells of a grid, and the square roots of the averages are the features of an image.
   The mean features of a sample of images are subtracted, and feature vectors are scaled to unit norm.
6. With `n_components`, feature vectors are projected on the leading right singular vectors of the features of the sample.

Inner products of unit vectors are cosines. For n images with p patches of d values, activations take 2 n p d operations per
atom; the other steps take half of that time. Memory: the result and a few images per thread; activations are not stored.
References: Coates and Ng, "The importance of encoding versus training with sparse coding and vector quantization", 2011;
Kurugodu and Kongara, "KMeans kernel classifier", 2023, for spherical k-means on patches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import field
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, Options, StrOptions
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.constraints import NON_NEGATIVE, POSITIVE_INTEGER, estimator
from gramless._core.memory import MemoryEstimate, format_bytes, parse_budget
from gramless._core.progress import Progress, log_progress, throughput_record
from gramless._core.threads import slices
from gramless._core.validation import atomic_fit
from gramless.approximation.clustering.steps import common_directions
from gramless.images.activations import PatchEncoder, PatchGeometry, normalised_patches, patch_geometry
from gramless.images.projection import leading_directions, n_sample_rows
from gramless.images.transformer import ImageInputMixin, pixel_range, read_images, sample_images
from gramless.images.tuning import TUNING

# Feature vectors with a smaller norm are rounding errors from images without contrast, and are set to zero.
_NO_NORM = 1e-12
# Number of float64 values per patch in spherical k-means: norm, mass, label, cosine and temporary copies of these values.
_CLUSTERING_VALUES = 8


@estimator
class PatchDictionary(ImageInputMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Features of images from a dictionary of their patches.

    scikit-learn has no counterpart: `MiniBatchDictionaryLearning` learns dictionaries, but does not encode images with them.

    Parameters
    ----------
    n_atoms : int, default=256
        Number of atoms of the dictionary. With `mirror` it is rounded up to an even number.
    patch_size : int, (int, int) or None, default=None
        Height and width of the patches in pixels. None depends on the images: 7 for grey images of 28 pixels, 6 for colour
        images of 32 pixels, at least 3.
    pooling : int, (int, int) or None, default=None
        Rows and columns of the grid of cells; None is 4, or fewer if a cell would have less than two positions.
    stride : int or None, default=None
        Distance between neighbouring patches in pixels. None is 1 for images up to 63 pixels.
    contrast : float or None, default=None
        Value added to the variance of a patch; None is 0.01, or 0.04 for colour images.
    whitening : float or None, default=None
        Value added to the eigenvalues of the covariance of the patches; None is 0.1, or 0.01 for colour images. `numpy.inf`
        disables the whitening.
    threshold : float, default=1.0
        Value subtracted from the inner product of an atom and a patch, in standard deviations of whitened patches.
    signs : {1, 2}, default=2
        If 2, the negative of each atom has a feature of its own.
    root : bool, default=True
        Whether features are square roots of the averaged activations.
    mirror : bool, default=False
        If True, half of the atoms are mirror images of the others, and the features are sums and differences of mirrored
        pairs, the differences last: reflecting an image changes the signs of its last `n_odd_` features and nothing else.
        The kernel `gramless.kernels.Reflected` uses this property.
    n_components : int or None, default=None
        Number of features. If given, features are projected on this number of leading singular vectors of the sample.
    n_images : int, default=10000
        Number of random images from which the dictionary is learned.
    n_patches : int, default=400000
        Number of patches from which the atoms are learned.
    n_passes : int, default=15
        Number of passes of k-means.
    shape : (height, width) or (height, width, channels), optional
        Shape of one image if the rows of X are flat; None assumes square grey images.
    dtype : {"float32", "float64", "uint8"}, default="float32"
        Data type of the result. With `"uint8"`, features are the square roots in steps of 1/255 of the largest value in the
        sample, in a quarter of the memory of float32; they are not centred, scaled or projected.
    device : {"cpu", "cuda", "auto"} or None, default=None
        Device of the computation; None uses the device of the data.
    memory_budget : str, int, float or None, default=None
        Upper bound on the memory that the fit allocates: a string such as `"4GB"`, a number of bytes, or a fraction of the
        free memory if at most 1; None is 70 % of the free memory.
    verbose : int, default=0
        If positive, write progress messages to standard error.
    random_state : int, RandomState or None, default=None
        Seed or generator for all random choices of the fit; an int makes the fit reproducible.

    Attributes
    ----------
    atoms_ : array of shape (n_atoms, patch values)
        Unit vectors in the whitened space.
    patches_ : array of shape (n_atoms, height, width, channels)
        Patches of pixels that correspond to the atoms, for display.
    image_shape_ : (height, width, channels)
        Shape of the training images.
    mean_ : array of shape (n_features,)
        Mean features of the random images from which the dictionary is learned.
    components_ : list of arrays, or None
        Directions of the projection as columns; with `mirror` one array for the sums and one for the differences.
    n_odd_ : int
        Number of last columns whose signs change if an image is reflected; 0 without `mirror`.
    n_features_in_ : int
        Number of values of an image.

    References
    ----------
    Coates and Ng, "The importance of encoding versus training with sparse coding and vector quantization", 2011.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gramless.images import PatchDictionary
    >>> images = load_digits().images
    >>> PatchDictionary(32, random_state=0).fit_transform(images).shape
    (1797, 576)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_atoms": [POSITIVE_INTEGER],
        "pooling": [POSITIVE_INTEGER, "array-like", None],
        "stride": [POSITIVE_INTEGER, None],
        "contrast": [NON_NEGATIVE, None],
        "whitening": [Interval(Real, 0, None, closed="both"), None],
        "threshold": [NON_NEGATIVE],
        "signs": [Options(int, {1, 2})],
        "root": ["boolean"],
        "mirror": ["boolean"],
        "n_components": [POSITIVE_INTEGER, None],
        "n_images": [POSITIVE_INTEGER],
        "n_patches": [POSITIVE_INTEGER],
        "n_passes": [POSITIVE_INTEGER],
        "dtype": [StrOptions({"float32", "float64", "uint8"})],
    }

    n_atoms: int = field(default=256, kw_only=False)
    patch_size: Any = None
    pooling: Any = None
    stride: int | None = None
    contrast: float | None = None
    whitening: float | None = None
    threshold: float = 1.0
    signs: int = 2
    root: bool = True
    mirror: bool = False
    n_components: int | None = None
    n_images: int = 10_000
    n_patches: int = 400_000
    n_passes: int = 15
    shape: Any = None
    dtype: str = "float32"
    device: str | None = None
    memory_budget: str | float | None = None
    verbose: int = 0
    random_state: Any = None

    @atomic_fit
    def fit(self, X: Any, y: Any = None) -> PatchDictionary:
        """Learn the atoms, the mean of the features and, with `n_components`, their leading directions.

        Parameters
        ----------
        X : array or tensor of shape (n, height, width), (n, height, width, channels) or (n, n_features), or Stream
            Images, of which at most `n_images` are used.
        y : None
            Ignored.

        Returns
        -------
        self
            The fitted estimator.
        """
        self._validate_params()
        random = check_random_state(self.random_state)
        rng = np.random.default_rng(random.randint(np.iinfo(np.int32).max))
        images = sample_images(self, X, self.shape, int(self.n_images), random)
        device = xa.resolve_device(self.device, images)
        self.pixel_range_ = pixel_range(images)
        _, height, width, channels = images.shape
        self.image_shape_ = int(height), int(width), int(channels)
        memory, _ = self.fit_memory(images.shape[0], self.image_shape_, device)
        advice = "lower n_images, n_patches, n_atoms or n_components, or raise memory_budget"
        memory.check(parse_budget(self.memory_budget, device), advice)
        images = xa.to_device(images, device)
        start = time.perf_counter()
        with Progress(self.verbose, int(self.n_passes), "atoms") as progress:
            patches = self._sample_patches(images, rng)
            self.atoms_, self.filters_ = self._learn_atoms(patches, rng, lambda done: progress.update({"n_iter": done}))
        del patches
        log_progress(self.verbose, f"{len(self.atoms_)} atoms in {time.perf_counter() - start:.1f} s")
        geometry, k = self._geometry, len(self.atoms_)
        self.n_features_ = k * geometry.n_cells * int(self.signs)
        self.pairs_ = None
        if self.mirror:
            places = np.arange(self.n_features_).reshape(*geometry.grid, int(self.signs), 2, k // 2)
            self.pairs_ = np.stack([places[:, :, :, 0].ravel(), places[:, ::-1, :, 1].ravel()])
        self.mean_, self.highest_, self.components_, self.n_odd_ = self._learn_features(images, rng)
        self._n_features_out = self.n_features_ if self.components_ is None else sum(c.shape[1] for c in self.components_)
        return self

    def transform(self, X: Any) -> Array:
        """Return the features of images.

        Parameters
        ----------
        X : array or tensor of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            Images.

        Returns
        -------
        array of shape (n, n_features_out)
            Features; a tensor if X is one.
        """
        check_is_fitted(self)
        images = read_images(self, X, self.shape, expected=self.image_shape_)
        device = xa.resolve_device(self.device, images)
        n, width, dtype = images.shape[0], self._n_features_out, np.dtype(self.dtype)
        budget = parse_budget(self.memory_budget, device)
        result = n * width * dtype.itemsize
        batch_bytes = self._batch_bytes(device) * (1 if device == "cpu" else 4)
        batch = min(batch_bytes, budget - result) // self._bytes_per_image
        if batch < 1:
            raise MemoryError(
                f"the features of {n} images take {format_bytes(result)}, and memory_budget allows {format_bytes(budget)} "
                "including temporaries; transform fewer at a time, set n_components or dtype='uint8', or raise memory_budget"
            )
        out = None
        start = time.perf_counter()
        with Progress(self.verbose, n, "features") as progress:
            for rows in slices(n, batch):
                part = self._finished(self._pooled(xa.to_device(images[rows], device)), dtype)
                if out is None:
                    out = xa.empty((n, width), part, dtype)
                out[rows] = part
                progress.update(throughput_record(rows.stop, 0, n, time.perf_counter() - start))
        assert out is not None
        return xa.in_namespace_of(out, images)

    @property
    def patches_(self) -> np.ndarray:
        """Patches of pixels: for each atom, the patch that activates the atom most among patches of equal contrast."""
        height, width = self._geometry.patch
        return self.filters_[:-1].T.reshape(-1, height, width, self.image_shape_[2])

    def per_image(self, image_shape: tuple[int, int, int]) -> int:
        """Return the number of patches of an image.

        Parameters
        ----------
        image_shape : (int, int, int)
            Height, width and channels of the image.

        Returns
        -------
        int
            Number of patches.
        """
        return patch_geometry(image_shape, self.patch_size, self.stride, self.pooling).n_positions

    def fit_memory(self, n: int, image_shape: tuple[int, int, int], device: str) -> tuple[MemoryEstimate, int]:
        """Return the peak memory of a fit in addition to the images, and the number of features.

        Parameters
        ----------
        n : int
            Number of training images.
        image_shape : (int, int, int)
            Height, width and channels of an image.
        device : str
            Device of the computation.

        Returns
        -------
        memory : MemoryEstimate
            Peak memory by part.
        n_features : int
            Number of columns of the result of `transform`.
        """
        geometry = patch_geometry(image_shape, self.patch_size, self.stride, self.pooling)
        sample = min(n, int(self.n_images))
        patches = sample * min(geometry.n_positions, -(-int(self.n_patches) // sample))
        atoms = min(int(self.n_atoms) + int(bool(self.mirror)), patches)  # `fit` rejects more atoms than patches
        width = atoms * geometry.n_cells * int(self.signs)
        batch = self._batch_bytes(device)
        # Memory for patches (sampled, stacked, whitened) and for the clustering state of each patch.
        learning = {"patches": patches * (3 * geometry.n_values * 4 + _CLUSTERING_VALUES * 8), "batch": 3 * batch}
        k = 0 if self.n_components is None else min(int(self.n_components), width, sample)
        drawn = n_sample_rows(sample, k) if k else 0
        rows = (2 + (2 if self.mirror else 0)) * drawn * width * 4
        directions = 3 * (drawn * drawn * 8 + width * k * 4)
        pooling = {"features of the sample": rows, "leading directions": directions, "batch": 2 * batch}
        stages = [MemoryEstimate(parts, device) for parts in (learning, pooling)]
        return max(stages, key=lambda stage: stage.nbytes), k or width

    @property
    def _geometry(self) -> PatchGeometry:
        return patch_geometry(self.image_shape_, self.patch_size, self.stride, self.pooling)

    @property
    def _contrast(self) -> float:
        """Value added to the variance of a patch."""
        return float(self.contrast) if self.contrast is not None else (0.04 if self.image_shape_[2] > 1 else 0.01)

    @property
    def _bytes_per_image(self) -> int:
        """Bytes of memory for the pixels, the pooled features and the returned features of an image."""
        return 4 * (2 * int(np.prod(self.image_shape_)) + (4 if self.mirror else 3) * self.n_features_)

    def _batch_bytes(self, device: str) -> int:
        return min(TUNING.batch_bytes, parse_budget(self.memory_budget, device) // 16)

    # Steps of `fit`

    def _sample_patches(self, images: Array, rng: np.random.Generator) -> Array:
        """Return about `n_patches` normalised patches, or all if there are fewer, the same number from each image."""
        geometry = self._geometry
        n, positions = images.shape[0], geometry.n_positions
        each = min(positions, -(-int(self.n_patches) // n))
        parts = []
        batch = max(1, self._batch_bytes(xa.device_of(images)) // (4 * positions * (geometry.n_values + 1)))
        for rows in slices(n, batch):
            patches = normalised_patches(self._scaled(images[rows]), geometry, self._contrast)
            count = rows.stop - rows.start
            if each < positions:
                chosen = np.argpartition(rng.random((count, positions)), each, axis=1)[:, :each]
                patches = xa.take_rows(patches, (chosen + positions * np.arange(count)[:, None]).ravel())
            parts.append(patches)
        return xa.namespace(parts[0]).concat(parts)

    def _learn_atoms(
        self, patches: Array, rng: np.random.Generator, callback: Callable[[int], None]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the atoms, and filters that include the whitening, with one column per atom and offsets in the last row."""
        height, width = self._geometry.patch
        n, d = patches.shape
        k = -(-int(self.n_atoms) // 2) if self.mirror else int(self.n_atoms)
        if n < k:
            raise ValueError(f"n_atoms={self.n_atoms} is more than the {n} patches of the sample.")
        mean, covariance = _moments(xa.to_numpy(patches))
        flip = np.arange(d).reshape(height, width, -1)[:, ::-1].ravel()
        if self.mirror:
            # Compute mean and covariance as if the sample also had the mirror images of its patches.
            mean = (mean + mean[flip]) / 2
            covariance = (covariance + covariance[np.ix_(flip, flip)]) / 2
        ridge = self.whitening if self.whitening is not None else (0.01 if self.image_shape_[2] > 1 else 0.1)
        whiten = np.eye(d)
        if np.isfinite(ridge):
            values, vectors = np.linalg.eigh(covariance)
            whiten = (vectors / np.sqrt(np.clip(values, 0, None) + float(ridge))) @ vectors.T
        patches = patches - xa.like(mean, patches)
        patches = patches @ xa.like(whiten, patches)
        atoms = xa.to_numpy(common_directions(patches, k, int(self.n_passes), rng, callback))
        if self.mirror:
            atoms = np.concatenate([atoms, atoms[:, flip]])
        columns = whiten @ atoms.T.astype(np.float64)
        return atoms, np.concatenate([columns, -(mean @ columns)[None]]).astype(np.float32)

    def _learn_features(
        self, images: Array, rng: np.random.Generator
    ) -> tuple[np.ndarray, float, list[np.ndarray] | None, int]:
        """Return `mean_`, the largest pooled feature, `components_` and `n_odd_`."""
        n, p = images.shape[0], self.n_features_
        bytes_only = self.dtype == "uint8"
        k = 0 if self.n_components is None or bytes_only else min(int(self.n_components), p, n)
        drawn = np.sort(rng.permutation(n)[: n_sample_rows(n, k)]) if k else np.empty(0, np.intp)
        total, highest, sample = np.zeros(p), 0.0, []
        for rows in slices(n, max(1, self._batch_bytes("cpu") // self._bytes_per_image)):
            part = self._pooled(images[rows])
            highest = max(highest, float(part.max()))
            total += xa.to_numpy(xa.namespace(part).sum(part, axis=0))
            inside = drawn[(drawn >= rows.start) & (drawn < rows.stop)]
            if len(inside):
                sample.append(xa.take_rows(part, inside - rows.start))
        mean, highest = (total / n).astype(np.float32), highest or 1.0
        if bytes_only:
            return mean, highest, None, 0
        if self.pairs_ is not None:
            # An image and its mirror image are equally likely, so the differences of pairs have mean zero.
            first, second = self.pairs_
            mean[first] = mean[second] = (mean[first] + mean[second]) / 2
        if not k:
            return mean, highest, None, 0 if self.pairs_ is None else p // 2
        start = time.perf_counter()
        features = xa.namespace(sample[0]).concat(sample)
        del sample
        halves = [leading_directions(half, k) for half in self._halves(_to_unit(features, mean))]
        values = np.concatenate([values for _, values in halves])
        which = np.repeat(np.arange(len(halves)), [len(values) for _, values in halves])
        counts = np.bincount(which[np.argsort(-values, kind="stable")[:k]], minlength=len(halves))
        components = [xa.to_numpy(columns[:, :count]) for (columns, _), count in zip(halves, counts, strict=True)]
        log_progress(self.verbose, f"{k} leading directions in {time.perf_counter() - start:.1f} s")
        return mean, highest, components, int(counts[1]) if self.mirror else 0

    # Steps of `transform`

    def _scaled(self, images: Array) -> Array:
        """Return float32 pixels divided by their range."""
        return xa.astype(images, np.float32) * (1 / self.pixel_range_)

    def _pooled(self, images: Array) -> Array:
        """Return the activations averaged by cell, or the square roots of the averages if `root` is True."""
        images = self._scaled(images)
        out = xa.empty((images.shape[0], self.n_features_), images)
        PatchEncoder(self.filters_, self._geometry, self._contrast, float(self.threshold), self.signs == 2).pool(images, out)
        return xa.sqrt_(out) if self.root else out

    def _halves(self, features: Array) -> list[Array]:
        """Return sums and differences of mirrored pairs of features, scaled by sqrt(1/2); without `mirror`, all features."""
        if self.pairs_ is None:
            return [features]
        first, second = (features[:, xa.indices(columns, features)] for columns in self.pairs_)
        sums = first + second
        first -= second
        for half in (sums, first):
            half *= 0.5**0.5
        return [sums, first]

    def _finished(self, features: Array, dtype: np.dtype) -> Array:
        """Return pooled features as uint8, or centred, scaled and projected pooled features as floats."""
        if dtype == np.uint8:
            features *= 255 / self.highest_
            return xa.astype(xa.clip_above_(features + 0.5, 255.0), dtype)
        halves = self._halves(_to_unit(features, self.mean_))
        if self.components_ is not None:
            halves = [half @ xa.like(columns, half) for half, columns in zip(halves, self.components_, strict=True)]
        return xa.astype(xa.namespace(features).concat(halves, axis=1) if len(halves) > 1 else halves[0], dtype)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags


def _to_unit(features: Array, mean: np.ndarray) -> Array:
    """Subtract the mean from the rows of `features` and scale the rows to unit norm, in place."""
    features -= xa.like(mean, features)
    norms = xa.sqrt_(xa.square_norms(features))
    xp = xa.namespace(features)
    features *= xp.where(norms > _NO_NORM, 1 / xp.where(norms > _NO_NORM, norms, norms + 1), norms * 0)[:, None]
    return features


def _moments(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance in float64, computed in blocks of rows."""
    total, squares = np.zeros(rows.shape[1]), np.zeros((rows.shape[1], rows.shape[1]))
    for part in slices(len(rows), TUNING.covariance_rows):
        block = rows[part].astype(np.float64)
        total += block.sum(axis=0)
        squares += block.T @ block
    mean = total / len(rows)
    return mean, squares / len(rows) - np.outer(mean, mean)
