"""A dictionary of patches: what the small windows of an image have in common with typical ones, averaged by region.

1. Every window is centred and divided by sqrt(variance + contrast); pixels are in units of their range.
2. The windows are whitened: their covariance, plus `whitening` on its eigenvalues, becomes the identity.
3. The atoms are the centroids of spherical k-means on a sample of windows.
4. A window activates an atom, and its negative, by max(0, +-<atom, window> - threshold).
5. Activations are averaged over a grid of cells; then square root, minus the mean of the sample, unit norm.
6. Where `n_components` says so, rows are projected on the leading directions of the sample.

An inner product of two rows is a cosine. Time 2 n positions atoms d for the product and about half as much for the rest,
memory the result and a few images for each thread: the (images, positions, atoms) activations are never held. References:
Coates and Ng, "The importance of encoding versus training with sparse coding and vector quantization", 2011; Kurugodu and
Kongara, "KMeans kernel classifier", 2023, for spherical k-means on patches.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.doc_links import link_documentation
from gramless._core.memory import MemoryEstimate, format_bytes, parse_budget
from gramless._core.progress import Progress, log_progress, throughput_record
from gramless._core.threads import slices
from gramless._core.validation import atomic_fit, check_choice, check_positive
from gramless.approximation.clustering.directions import common_directions
from gramless.images.activations import Activations, make_pooling
from gramless.images.projection import leading_directions, rows_wanted
from gramless.images.reading import pixel_range, read_images, sample_images

# A row of zeros, that of an image without any contrast, stays one: its norm is rounding.
_NO_NORM = 1e-12
# Of a batch of images and their features beside the result.
_BATCH_BYTES = 256 * 2**20
_ROWS_IN_DOUBLE = 16_384
_CELLS = 4
# Norm, mass, label, cosine and what is computed of these at a time.
_NUMBERS_OF_A_WINDOW = 8


@link_documentation
class PatchDictionary(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Features of images from a dictionary of their patches.

    Parameters
    ----------
    n_atoms : int, default=256
        Atoms in the dictionary. With `mirror` it is rounded up to an even number.
    patch_size : int, (int, int) or None, default=None
        Height and width of the windows; None goes by the images' size: 7 pixels of grey digits of 28, 6 of colour images
        of 32, no fewer than 3.
    pooling : int, (int, int) or None, default=None
        Rows and columns of the grid of cells; None is 4, and fewer where there are not two positions for each.
    stride : int or None, default=None
        Pixels from one window to the next; None is 1 up to images of 63 pixels.
    contrast : float or None, default=None
        Added to a window's variance before it is divided by; None is 0.01, or 0.04 in colour.
    whitening : float or None, default=None
        Added to the eigenvalues of the windows' covariance; None is 0.1, or 0.01 in colour. `numpy.inf` leaves it
        out.
    threshold : float, default=1.0
        What an activation must exceed; of whitened windows one is a standard deviation.
    signs : {1, 2}, default=2
        Whether the negative of an atom counts too, as a feature of its own.
    root : bool, default=True
        Take square roots of the averages.
    mirror : bool, default=False
        Make the dictionary its own mirror image: half of the atoms are mirror images of the others. The features come as
        sums and differences of mirrored pairs, the differences last: mirroring an image changes the signs of its last
        `n_odd_` columns and nothing else, which `gramless.kernels.Reflected` makes use of.
    n_components : int or None, default=None
        Project on so many leading directions of the sample.
    n_images : int, default=10000
        Images that the dictionary is learnt from, drawn at random.
    n_patches : int, default=400000
        Windows that the atoms are learnt from.
    n_passes : int, default=15
        Passes of k-means over them.
    shape : (height, width) or (height, width, channels), optional
        Shape of one image when rows are flat; square grey images need none.
    dtype : {"float32", "float64", "uint8"}, default="float32"
        Of the result. Bytes are the square roots alone, in steps of a 255th of the sample's largest: neither centred nor
        scaled nor projected, which `UnitNormalizer` may do, and a quarter of the memory.
    device : {"cpu", "cuda", "auto"} or None, default=None
        Where to compute; None follows the data.
    memory_budget : str, int, float or None, default=None
        Bound on the result and what is computed beside it.
    verbose : int, default=0
        One says on standard error what is being done.
    random_state : int, RandomState or None, default=None
        Seed of the samples.

    Attributes
    ----------
    atoms_ : array of shape (n_atoms, patch values)
        Unit vectors, in the whitened space.
    patches_ : array of shape (n_atoms, height, width, channels)
        The atoms as patches of pixels, to look at.
    image_shape_ : (height, width, channels)
        Of the training images.
    mean_ : array of shape (n_features,)
        Of the sample's features.
    components_ : list of arrays, or None
        Directions, as columns, of the projection; with `mirror` one array for the sums and one for the differences.
    n_odd_ : int
        The last so many columns change their sign when an image is mirrored; 0 without `mirror`.
    n_features_in_ : int
        Values of an image.

    See Also
    --------
    gramless.ImageClassifier : These features and a least-squares machine.
    gramless.PatchClassifier : Patches that vote.

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

    def __init__(
        self,
        n_atoms: int = 256,
        *,
        patch_size: Any = None,
        pooling: Any = None,
        stride: int | None = None,
        contrast: float | None = None,
        whitening: float | None = None,
        threshold: float = 1.0,
        signs: int = 2,
        root: bool = True,
        mirror: bool = False,
        n_components: int | None = None,
        n_images: int = 10_000,
        n_patches: int = 400_000,
        n_passes: int = 15,
        shape: Any = None,
        dtype: str = "float32",
        device: str | None = None,
        memory_budget: str | float | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.n_atoms = n_atoms
        self.patch_size = patch_size
        self.pooling = pooling
        self.stride = stride
        self.contrast = contrast
        self.whitening = whitening
        self.threshold = threshold
        self.signs = signs
        self.root = root
        self.mirror = mirror
        self.n_components = n_components
        self.n_images = n_images
        self.n_patches = n_patches
        self.n_passes = n_passes
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.memory_budget = memory_budget
        self.verbose = verbose
        self.random_state = random_state

    @atomic_fit
    def fit(self, X: Any, y: Any = None) -> PatchDictionary:
        """Learn the atoms, the mean of the features and, where asked for, their leading directions.

        Parameters
        ----------
        X : array or tensor of shape (n, height, width), (n, height, width, channels) or (n, n_features), or Stream
            The images; `n_images` of them are looked at.
        y : None
            Ignored.

        Returns
        -------
        self
            The fitted estimator.
        """
        self._check_settings()
        random = check_random_state(self.random_state)
        rng = np.random.default_rng(random.randint(np.iinfo(np.int32).max))
        images = sample_images(self, X, self.shape, int(self.n_images), random)
        device = xa.resolve_device(self.device, images)
        self.pixel_range_ = pixel_range(images)
        self._geometry()
        memory, _ = self.fit_memory(images.shape[0], self.image_shape_, device)
        advice = "lower n_images, n_patches, n_atoms or n_components, or raise memory_budget"
        memory.check(parse_budget(self.memory_budget, device), advice)
        images = xa.to_device(images, device)
        start = time.perf_counter()
        self._learn_atoms(images, rng)
        log_progress(self.verbose, f"{len(self.atoms_)} atoms in {time.perf_counter() - start:.1f} s")
        self._learn_features(images, rng)
        self._n_features_out = self.n_features_ if self.components_ is None else sum(c.shape[1] for c in self.components_)
        return self

    def transform(self, X: Any) -> Array:
        """Features of images.

        Parameters
        ----------
        X : array or tensor of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            The images.

        Returns
        -------
        array of shape (n, n_features_out)
            A tensor where X is one.
        """
        check_is_fitted(self)
        images = read_images(self, X, self.shape, reset=False)
        device = xa.resolve_device(self.device, images)
        n, width = images.shape[0], self._n_features_out
        kind = np.dtype(self.dtype)
        budget = parse_budget(self.memory_budget, device)
        result = n * width * kind.itemsize
        batch = self._images_per_batch(budget - result, device)
        if batch < 1:
            raise MemoryError(
                f"the features of {n} images take {format_bytes(result)}, and memory_budget allows {format_bytes(budget)} "
                "for them and for temporary arrays; transform fewer at a time, set n_components or dtype='uint8', or raise "
                "memory_budget"
            )
        out = None
        start = time.perf_counter()
        with Progress(self.verbose, n, "features") as progress:
            for rows in slices(n, batch):
                part = self._finished(self._pooled(xa.to_device(images[rows], device)), kind)
                if out is None:
                    out = xa.empty((n, width), part, kind)
                out[rows] = part
                progress.update(throughput_record(rows.stop, 0, n, time.perf_counter() - start))
        assert out is not None
        return out if xa.is_torch(images) else xa.to_numpy(out)

    @property
    def patches_(self) -> np.ndarray:
        """The atoms as patches of pixels: what activates each of them most among patches of a given contrast."""
        height, width = self._patch
        return self.filters_[:-1].T.reshape(-1, height, width, self.image_shape_[2])

    def per_image(self, image_shape: tuple[int, int, int]) -> int:
        """Count the windows of an image.

        Parameters
        ----------
        image_shape : (int, int, int)
            Its height, width and channels.

        Returns
        -------
        int
            The number of windows.
        """
        trial = clone(self)
        trial.image_shape_ = image_shape
        trial._geometry()
        return trial._positions[0] * trial._positions[1]

    def fit_memory(self, n: int, image_shape: tuple[int, int, int], device: str) -> tuple[MemoryEstimate, int]:
        """Peak of what a fit to `n` images holds beside them, and how many features an image is going to have.

        Parameters
        ----------
        n : int
            Images of the training set.
        image_shape : (int, int, int)
            Their height, width and channels.
        device : str
            Where to compute.

        Returns
        -------
        memory : MemoryEstimate
            Part by part.
        n_features : int
            Columns of what `transform` gives.
        """
        trial = clone(self)
        trial.image_shape_ = image_shape
        trial._geometry()
        return trial._fit_memory(n, device)

    def _fit_memory(self, n: int, device: str) -> tuple[MemoryEstimate, int]:
        some, positions = min(n, int(self.n_images)), self._positions[0] * self._positions[1]
        d = self._patch[0] * self._patch[1] * self.image_shape_[2]
        windows = some * min(positions, -(-int(self.n_patches) // some))
        atoms = min(int(self.n_atoms) + int(bool(self.mirror)), windows)  # more are refused when windows are counted
        width = atoms * self._grid[0] * self._grid[1] * int(self.signs)
        batch = self._batch_bytes(device)
        # As they are sampled, put together, centred and whitened; then what clustering knows of each.
        learning = {"windows": windows * (3 * d * 4 + _NUMBERS_OF_A_WINDOW * 8), "batch": 3 * batch}
        wanted = 0 if self.n_components is None else min(int(self.n_components), width, some)
        drawn = rows_wanted(some, wanted) if wanted else 0
        rows = (2 + (2 if self.mirror else 0)) * drawn * width * 4
        directions = 3 * (drawn * drawn * 8 + width * wanted * 4)
        pooling = {"features of the sample": rows, "leading directions": directions, "batch": 2 * batch}
        stages = [MemoryEstimate(parts, device) for parts in (learning, pooling)]
        return max(stages, key=lambda stage: stage.nbytes), wanted or width

    def _batch_bytes(self, device: str) -> int:
        return min(_BATCH_BYTES, parse_budget(self.memory_budget, device) // 16)

    # -- the steps of a fit, in their order

    def _geometry(self) -> None:
        height, width, channels = self.image_shape_
        colour = channels > 1
        side = min(height, width)
        self.stride_ = int(self.stride) if self.stride is not None else max(1, side // 32)
        if self.patch_size is None:
            size = min(6 if colour else 7, max(3, 2 * round(side / 8) + 1)) + 2 * (self.stride_ - 1)
            self._patch = (min(size, height), min(size, width))
        else:
            self._patch = _pair("patch_size", self.patch_size)
        if self._patch[0] > height or self._patch[1] > width:
            raise ValueError(
                f"patch_size {self._patch[0]} x {self._patch[1]} is larger than the images of {height} x {width} pixels."
            )
        rows, columns = (
            (side - patch) // self.stride_ + 1 for side, patch in zip((height, width), self._patch, strict=True)
        )
        self._positions = rows, columns
        if self.pooling is None:
            self._grid = min(_CELLS, max(1, rows // 2)), min(_CELLS, max(1, columns // 2))
        else:
            self._grid = _pair("pooling", self.pooling)
        if self._grid[0] > self._positions[0] or self._grid[1] > self._positions[1]:
            raise ValueError(
                f"pooling {self._grid[0]} x {self._grid[1]} has more cells than there are positions of a window, "
                f"{self._positions[0]} x {self._positions[1]}."
            )
        self._floor = float(self.contrast) if self.contrast is not None else (0.04 if colour else 0.01)
        self._ridge = float(self.whitening) if self.whitening is not None else (0.01 if colour else 0.1)

    def _encoder(self) -> Activations:
        return Activations(
            self.filters_,
            self._patch,
            self.stride_,
            self._floor,
            float(self.threshold),
            self.signs == 2,
            make_pooling(*self._positions, self._grid),
        )

    def _learn_atoms(self, images: Array, rng: np.random.Generator) -> None:
        height, width = self._patch
        k = int(self.n_atoms)
        if self.mirror:
            k = -(-k // 2)
        patches = self._sample_patches(images, rng)
        if patches.shape[0] < k:
            raise ValueError(f"n_atoms={self.n_atoms} is more than the {patches.shape[0]} windows that there are.")
        d = patches.shape[1]
        # Of a window with its mirror image the first is in the sample; both are in its mean and covariance.
        flip = np.arange(d).reshape(height, width, -1)[:, ::-1].ravel()
        mean, covariance = _moments(xa.to_numpy(patches))
        if self.mirror:
            mean = (mean + mean[flip]) / 2
            covariance = (covariance + covariance[np.ix_(flip, flip)]) / 2
        whiten = np.eye(d)
        if np.isfinite(self._ridge):
            values, vectors = np.linalg.eigh(covariance)
            whiten = (vectors / np.sqrt(np.clip(values, 0, None) + self._ridge)) @ vectors.T
        patches = patches - xa.like(mean, patches)
        patches = patches @ xa.like(whiten, patches)
        with Progress(self.verbose, int(self.n_passes), "atoms") as progress:
            atoms = common_directions(patches, k, int(self.n_passes), rng, lambda done: progress.update({"n_iter": done}))
        atoms = xa.to_numpy(atoms)
        if self.mirror:
            atoms = np.concatenate([atoms, atoms[:, flip]])
        self.atoms_ = atoms
        columns = whiten @ atoms.T.astype(np.float64)
        self.filters_ = np.concatenate([columns, -(mean @ columns)[None]]).astype(np.float32)

    def _sample_patches(self, images: Array, rng: np.random.Generator) -> Array:
        """At most n_patches windows, as many of each image."""
        n, positions = images.shape[0], self._positions[0] * self._positions[1]
        height, width = self._patch
        nothing = np.zeros((height * width * self.image_shape_[2] + 1, 0), np.float32)
        encoder = Activations(
            nothing, self._patch, self.stride_, self._floor, 0.0, False, make_pooling(*self._positions, self._grid)
        )
        each = min(positions, -(-int(self.n_patches) // n))
        parts = []
        at_once = max(1, self._batch_bytes(xa.device_of(images)) // (4 * positions * len(nothing)))
        for rows in slices(n, at_once):
            patches = encoder.patches(self._floats(images[rows]))
            count = rows.stop - rows.start
            if each < positions:
                chosen = np.argpartition(rng.random((count, positions)), each, axis=1)[:, :each]
                patches = xa.take_rows(patches, (chosen + positions * np.arange(count)[:, None]).ravel())
            parts.append(patches)
        return xa.namespace(parts[0]).concat(parts)

    def _learn_features(self, images: Array, rng: np.random.Generator) -> None:
        k, cells, signs = len(self.atoms_), self._grid[0] * self._grid[1], int(self.signs)
        self.n_features_ = k * cells * signs
        self.pairs_ = None
        if self.mirror:
            places = np.arange(self.n_features_).reshape(*self._grid, signs, 2, k // 2)
            self.pairs_ = np.stack([places[:, :, :, 0].ravel(), places[:, ::-1, :, 1].ravel()])
        n = images.shape[0]
        components = None if self.dtype == "uint8" else self.n_components
        wanted = 0 if components is None else min(int(components), self.n_features_, n)
        drawn = np.sort(rng.permutation(n)[: rows_wanted(n, wanted)]) if wanted else np.empty(0, np.intp)
        total, highest, kept = np.zeros(self.n_features_), 0.0, []
        for rows in slices(n, self._images_per_batch(None)):
            part = self._pooled(images[rows])
            highest = max(highest, float(part.max()))
            total += xa.to_numpy(xa.namespace(part).sum(part, axis=0))
            inside = drawn[(drawn >= rows.start) & (drawn < rows.stop)]
            if len(inside):
                kept.append(xa.take_rows(part, inside - rows.start))
        self.highest_ = highest or 1.0
        self.mean_ = (total / n).astype(np.float32)
        self.components_, self.n_odd_ = None, 0
        if self.dtype == "uint8":
            return
        if self.pairs_ is not None:
            # An image and its mirror image are equally likely, so the differences of pairs have the mean zero.
            first, second = self.pairs_
            self.mean_[first] = self.mean_[second] = (self.mean_[first] + self.mean_[second]) / 2
            self.n_odd_ = self.n_features_ // 2
        if not wanted:
            return
        start = time.perf_counter()
        features = xa.namespace(kept[0]).concat(kept)
        del kept
        found = [leading_directions(half, wanted) for half in self._halves(self._unit(features))]
        sizes = np.concatenate([values for _, values in found])
        which = np.repeat(np.arange(len(found)), [len(values) for _, values in found])
        counts = np.bincount(which[np.argsort(-sizes, kind="stable")[:wanted]], minlength=len(found))
        self.components_ = [xa.to_numpy(columns[:, :count]) for (columns, _), count in zip(found, counts, strict=True)]
        self.n_odd_ = int(counts[1]) if self.mirror else 0
        log_progress(self.verbose, f"{wanted} leading directions in {time.perf_counter() - start:.1f} s")

    # -- the steps of a transform

    def _floats(self, images: Array) -> Array:
        """Pixels in units of their range."""
        return xa.astype(images, np.float32) * (1 / self.pixel_range_)

    def _pooled(self, images: Array) -> Array:
        """Averages of what the images activate, or their square roots."""
        images = self._floats(images)
        encoder = self._encoder()
        out = encoder(images, xa.empty((images.shape[0], encoder.n_features), images))
        return xa.sqrt_(out) if self.root else out

    def _unit(self, features: Array) -> Array:
        features -= xa.like(self.mean_, features)
        norms = xa.sqrt_(xa.square_norms(features))
        xp = xa.namespace(features)
        features *= xp.where(norms > _NO_NORM, 1 / xp.where(norms > _NO_NORM, norms, norms + 1), norms * 0)[:, None]
        return features

    def _halves(self, features: Array) -> list[Array]:
        """With a mirror the sums and the differences of mirrored pairs, which are as long as the pairs; else all."""
        if self.pairs_ is None:
            return [features]
        first, second = (features[:, xa.indices(columns, features)] for columns in self.pairs_)
        sums = first + second
        first -= second
        for half in (sums, first):
            half *= 0.5**0.5
        return [sums, first]

    def _finished(self, features: Array, kind: np.dtype) -> Array:
        if kind == np.uint8:
            features *= 255 / self.highest_
            return xa.astype(xa.clip_above_(features + 0.5, 255.0), kind)
        halves = self._halves(self._unit(features))
        if self.components_ is not None:
            halves = [half @ xa.like(columns, half) for half, columns in zip(halves, self.components_, strict=True)]
        return xa.astype(xa.namespace(features).concat(halves, axis=1) if len(halves) > 1 else halves[0], kind)

    def _images_per_batch(self, left: int | None, device: str = "cpu") -> int:
        """Images whose pixels, features and finished rows take no more than a batch, or than is left."""
        per_image = 4 * (2 * int(np.prod(self.image_shape_)) + (4 if self.mirror else 3) * self.n_features_)
        batch = self._batch_bytes(device)
        room = batch if left is None else min(batch if device == "cpu" else 4 * batch, left)
        return max(room // per_image, 1 if left is None else 0)

    def _check_settings(self) -> None:
        for name in ("n_atoms", "n_images", "n_patches", "n_passes"):
            check_positive(name, getattr(self, name), integer=True)
        for name in ("stride", "n_components"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name), integer=True)
        check_choice("dtype", self.dtype, {"float32", "float64", "uint8"})
        if self.signs not in (1, 2):
            raise ValueError(f"signs must be 1 or 2, got {self.signs!r}")
        for name in ("contrast", "whitening", "threshold"):
            value = getattr(self, name)
            if not (value is None and name != "threshold") and not value >= 0:
                raise ValueError(f"{name} must be at least 0, got {value!r}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        # A flat row is an image only with a shape.
        tags.input_tags.two_d_array = self.shape is not None
        tags.transformer_tags.preserves_dtype = []
        return tags


def _moments(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance in float64, some rows at a time."""
    total, squares = np.zeros(rows.shape[1]), np.zeros((rows.shape[1], rows.shape[1]))
    for part in slices(len(rows), _ROWS_IN_DOUBLE):
        wide = rows[part].astype(np.float64)
        total += wide.sum(axis=0)
        squares += wide.T @ wide
    mean = total / len(rows)
    return mean, squares / len(rows) - np.outer(mean, mean)


def _pair(name: str, value: Any) -> tuple[int, int]:
    pair = tuple(value) if np.ndim(value) else (value, value)
    if len(pair) != 2 or any(int(side) != side or side < 1 for side in pair):
        raise ValueError(f"{name} must be one or two whole numbers, at least 1, got {value!r}.")
    return int(pair[0]), int(pair[1])
