"""A classifier of images: a dictionary of patches, and a least-squares machine on cosines.

    f(image) = sum_i a_i k(x, x_i) + b,    k(x, y) = ((1 + <x, y>) / 2)^degree

where x are the features of `gramless.images.PatchDictionary`. With mirror images, k is averaged over both images and their
mirror images (`gramless.kernels.Reflected`): the dictionary is its own mirror image, so this costs no second product. What
is left to "auto" is chosen by the squares of the closed-form leave-one-out errors on a sample of the training images, before
the fit: of a few thousand images the share of wrong labels is a count that chance moves further than most choices do.
Time O(n positions atoms d) for the features and O(n^2 n_components) for the machine; memory the
projected features and what `LSSVC` holds. Reference: Coates and Ng, "The importance of encoding versus training with sparse
coding and vector quantization", 2011, for the features; Suykens and Vandewalle, "Least squares support vector machine
classifiers", 1999.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.doc_links import link_documentation
from gramless._core.memory import MemoryEstimate, format_bytes, parse_budget
from gramless._core.progress import log_progress
from gramless._core.targets.columns import class_targets
from gramless._core.validation import atomic_fit, check_labels, check_positive, check_weights
from gramless.estimators.lssvm import LSSVC
from gramless.images.patch_dictionary import PatchDictionary
from gramless.images.reading import read_images
from gramless.images.transformer import image_shape
from gramless.inference.leave_one_out import dense_scores
from gramless.kernels import Kernel, Polynomial, Reflected
from gramless.models.expansion import scores_to_labels

# Leave-one-out takes the cube of so many operations in float64, some tenths of a second, for each candidate.
_SAMPLE = 2000
_FEWEST = 100
# Of the sample, in float64: the kernel values, in single precision before, and their inverse.
_SAMPLE_MATRICES = 3
# The dictionary that tells whether mirror images help need not be a good one.
_PILOT_ATOMS = 64
_PILOT_PATCHES = 100_000
_CS = (1.0, 10.0, 100.0, 1000.0)


@dataclass
class ImagePlan:
    """The peak memory of a fit, and the images from which C is chosen."""

    memory: MemoryEstimate
    sample: int


@link_documentation
class ImageClassifier(ClassifierMixin, BaseEstimator):
    """Classify images by a dictionary of their patches and a least-squares support vector machine.

    Parameters
    ----------
    C : float or "auto", default="auto"
        Regularisation of the machine; "auto" chooses among powers of ten by leave-one-out.
    degree : int, default=4
        Of the kernel ((1 + cos) / 2)^degree; with thousands of atoms 2 or 3 serve better.
    mirror : bool or "auto", default="auto"
        Whether an image and its mirror image are the same thing, as for photographs and unlike letters; "auto" asks the
        leave-one-out errors of a small dictionary.
    n_atoms : int or None, default=None
        Atoms of the dictionary; None is 256, or 400 for colour images, and no more than there are windows.
    patch_size : int, (int, int) or None, default=None
        See `gramless.images.PatchDictionary`.
    pooling : int, (int, int) or None, default=None
        See `gramless.images.PatchDictionary`.
    n_components : int, None or "auto", default="auto"
        Leading directions that the features are projected on; None projects nothing. "auto" is 1,000, where a product of
        all pairs of images on a CPU costs a tenth, and None on a CUDA device.
    shape : (height, width) or (height, width, channels), optional
        Shape of one image when rows are flat; square grey images need none.
    tol : float, default=1e-2
        Relative residual at which the machine's iterations stop.
    class_weight : dict, "balanced" or None, default=None
        As in `LSSVC`.
    device : {"cpu", "cuda", "auto"} or None, default=None
        Where to compute; None follows the data.
    memory_budget : str, int, float or None, default=None
        Bound on what a fit allocates: `"4GB"`, bytes, a fraction of what is free; None is 70 % of it.
    callback : callable(estimator, record) -> bool, optional
        Called after each iteration of the machine, with the machine; a true answer stops the fit.
    verbose : int, default=0
        One says on standard error what is being done.
    random_state : int, RandomState or None, default=None
        Seed of the samples.

    Attributes
    ----------
    classes_ : ndarray
        The labels, sorted.
    dictionary_ : PatchDictionary
        Makes features of images.
    machine_ : LSSVC
        Classifies them.
    image_shape_ : (height, width, channels)
        Of the training images.
    chosen_ : dict
        C and mirror as they were used, and the leave-one-out error on the sample where C was chosen by it.
    n_features_in_ : int
        Values of an image.

    See Also
    --------
    PatchClassifier : Any classifier on windows, which vote.
    gramless.images.PatchDictionary : The features.

    References
    ----------
    Coates and Ng, "The importance of encoding versus training with sparse coding and vector quantization", 2011.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gramless import ImageClassifier
    >>> images, y = load_digits().images, load_digits().target
    >>> model = ImageClassifier(n_atoms=64, random_state=0).fit(images[:1000], y[:1000])
    >>> model.score(images[1000:], y[1000:]) > 0.97
    True
    """

    def __init__(
        self,
        *,
        C: float | str = "auto",
        degree: int = 4,
        mirror: bool | str = "auto",
        n_atoms: int | None = None,
        patch_size: Any = None,
        pooling: Any = None,
        n_components: int | str | None = "auto",
        shape: Any = None,
        tol: float = 1e-2,
        class_weight: Any = None,
        device: str | None = None,
        memory_budget: str | float | None = None,
        callback: Callable[..., Any] | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.C = C
        self.degree = degree
        self.mirror = mirror
        self.n_atoms = n_atoms
        self.patch_size = patch_size
        self.pooling = pooling
        self.n_components = n_components
        self.shape = shape
        self.tol = tol
        self.class_weight = class_weight
        self.device = device
        self.memory_budget = memory_budget
        self.callback = callback
        self.verbose = verbose
        self.random_state = random_state

    @atomic_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ImageClassifier:
        """Learn a dictionary from the images, and a machine from its features.

        Parameters
        ----------
        X : array or tensor of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            The images, as bytes or floats of any range.
        y : array of shape (n,)
            Their labels.
        sample_weight : array of shape (n,), optional
            For the machine; the dictionary takes all images alike.

        Returns
        -------
        self
            The fitted estimator.
        """
        self._check_settings()
        images = read_images(self, X, self.shape, reset=True)
        self.classes_, codes = check_labels(y, images.shape[0])
        check_weights(sample_weight, images)
        random = check_random_state(self.random_state)
        seeds = random.randint(np.iinfo(np.int32).max, size=3)
        device = xa.resolve_device(self.device, images)
        images = xa.to_device(images, device)  # features stay where they are computed
        plan = self._plan(images.shape[0], len(self.classes_) if len(self.classes_) > 2 else 1, device)
        sample = np.sort(random.permutation(len(codes))[: plan.sample])
        mirror = self.mirror
        if mirror == "auto":
            mirror = self._mirror_helps(xa.take_rows(images, sample), codes[sample], int(seeds[0]))
        self.dictionary_ = self._dictionary(len(codes), bool(mirror), device, int(seeds[1])).fit(images)
        features = self.dictionary_.transform(images)
        C, wrong = self._choose(xa.take_rows(features, sample), codes[sample])
        self.chosen_ = {"C": C, "mirror": bool(mirror), "leave_one_out_error": wrong}
        log_progress(self.verbose, f"C={C:g}, mirror={bool(mirror)}")
        self.machine_ = LSSVC(
            kernel=self._kernel(self.dictionary_),
            C=C,
            tol=self.tol,
            class_weight=self.class_weight,
            device=self.device,
            memory_budget=self.memory_budget,
            callback=self.callback,
            verbose=self.verbose,
            random_state=int(seeds[2]),
        ).fit(features, self.classes_[codes], sample_weight)
        return self

    def decision_function(self, X: Any) -> Array:
        """Class scores.

        Parameters
        ----------
        X : array or tensor of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            The images.

        Returns
        -------
        array of shape (n,) for two classes, (n, n_classes) for more
            A tensor where X is one.
        """
        scores = self._machine().decision_function(self._features(X))
        return scores if xa.is_torch(X) else xa.to_numpy(scores)

    def predict(self, X: Any) -> np.ndarray:
        """The class of each image.

        Parameters
        ----------
        X : array or tensor of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            The images.

        Returns
        -------
        array of shape (n,)
            Labels as they were at the fit.
        """
        return self._machine().predict(self._features(X))

    def predict_proba(self, X: Any) -> np.ndarray:
        """The softmax of the class scores.

        Parameters
        ----------
        X : array or tensor of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            The images.

        Returns
        -------
        array of shape (n, n_classes)
            Columns in the order of `classes_`.
        """
        return self._machine().predict_proba(self._features(X))

    def plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> ImagePlan:
        """What a fit of this size would hold.

        Parameters
        ----------
        n, d, n_outputs : int
            Rows, pixels of an image, and columns of targets.
        dtype : dtype
            Of the data.
        device : str
            Where to compute.

        Returns
        -------
        ImagePlan
            Or a `MemoryError` where that is too much.
        """
        trial = clone(self)
        trial.image_shape_ = image_shape((d,), self.shape, vectors_allowed=False)
        return trial._plan(n, n_outputs, device)

    def _plan(self, n: int, n_outputs: int, device: str) -> ImagePlan:
        """The largest of what the dictionary, the choice of C and the machine hold; sizes of images are known."""
        budget = parse_budget(self.memory_budget, device)
        learning, width = self._dictionary(n, bool(self.mirror), device, 0).fit_memory(n, self.image_shape_, device)
        learning.check(budget, "lower n_atoms or n_components, or raise memory_budget")
        held = n * width * 4
        sample = min(_SAMPLE, n)
        if self.C == "auto" or self.mirror == "auto":
            sample = min(sample, int((max(0, budget - held) / (_SAMPLE_MATRICES * 8)) ** 0.5))
        if sample < min(n, _FEWEST):
            raise MemoryError(
                f"the features of {n:,} images take {format_bytes(held)}, and memory_budget allows {format_bytes(budget)}: "
                "too little is left to choose C; give C and mirror, lower n_components, or raise memory_budget"
            )
        choosing = MemoryEstimate(
            {"features": held, "kernel matrices of a sample": _SAMPLE_MATRICES * sample**2 * 8}, device
        )
        machine = LSSVC(kernel=Polynomial(self.degree), tol=self.tol, device=self.device, memory_budget=self.memory_budget)
        solving = machine.plan(n, width, n_outputs, np.float32, device).memory
        return ImagePlan(max((learning, choosing, solving), key=lambda stage: stage.nbytes), sample)

    def _machine(self) -> LSSVC:
        check_is_fitted(self)
        return self.machine_

    def _features(self, X: Any) -> Array:
        images = read_images(self, X, self.shape, reset=False)
        return self.dictionary_.transform(xa.to_device(images, xa.resolve_device(self.device, images)))

    def _dictionary(self, n: int, mirror: bool, device: str, seed: int) -> PatchDictionary:
        """The dictionary of n images, not fitted yet."""
        components: Any = self.n_components
        if components == "auto":
            components = None if device.startswith("cuda") else 1000
        dictionary = PatchDictionary(
            patch_size=self.patch_size,
            pooling=self.pooling,
            mirror=mirror,
            n_components=components,
            device=self.device,
            memory_budget=self.memory_budget,
            verbose=self.verbose,
            random_state=seed,
        )
        atoms = self.n_atoms
        if atoms is None:
            atoms = min(400 if self.image_shape_[2] > 1 else 256, n * dictionary.per_image(self.image_shape_))
        return dictionary.set_params(n_atoms=atoms)

    def _kernel(self, dictionary: PatchDictionary) -> Kernel:
        cosine = Polynomial(degree=self.degree, gamma=0.5, coef0=0.5)
        return Reflected(cosine, dictionary.n_odd_) if dictionary.mirror else cosine

    def _mirror_helps(self, images: Array, codes: np.ndarray, seed: int) -> bool:
        """Whether the kernel that knows mirror images leaves out fewer of a sample's images wrongly classified."""
        if images.shape[2] < 2:
            return False
        pilot = PatchDictionary(
            patch_size=self.patch_size,
            pooling=self.pooling,
            mirror=True,
            n_patches=_PILOT_PATCHES,
            device=self.device,
            memory_budget=self.memory_budget,
            random_state=seed,
        )
        pilot.set_params(n_atoms=min(_PILOT_ATOMS, images.shape[0] * pilot.per_image(self.image_shape_)))
        features = pilot.fit_transform(images)
        plain = Polynomial(degree=self.degree, gamma=0.5, coef0=0.5)
        plain_best, mirror_best = (
            min(leave_one_out(kernel, features, codes, _CS), key=lambda found: found.squares)
            for kernel in (plain, Reflected(plain, pilot.n_odd_))
        )
        log_progress(self.verbose, f"leave-one-out error {plain_best.wrong:.2%}, with mirror images {mirror_best.wrong:.2%}")
        return mirror_best.squares < plain_best.squares

    def _choose(self, features: Array, codes: np.ndarray) -> tuple[float, float | None]:
        """C, the user's or that with the least squares of leave-one-out errors on a sample, and its wrong labels."""
        if self.C != "auto":
            return float(self.C), None
        tried = leave_one_out(self._kernel(self.dictionary_), features, codes, _CS)
        best = min(range(len(_CS)), key=lambda i: tried[i].squares)
        return _CS[best], tried[best].wrong

    def _check_settings(self) -> None:
        if self.C != "auto":
            check_positive("C", self.C)
        check_positive("degree", self.degree, integer=True)
        if self.mirror not in (True, False, "auto"):
            raise ValueError(f"mirror must be True, False or 'auto', got {self.mirror!r}")
        if self.n_components not in (None, "auto"):
            check_positive("n_components", self.n_components, integer=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        # A flat row is an image only with a shape.
        tags.input_tags.two_d_array = self.shape is not None
        return tags


@dataclass(frozen=True)
class LeftOut:
    """How wrong machines are about the one point each that they were fitted without; infinite where there is no solution."""

    squares: float
    """Mean square of the distance between score and target, over points and classes."""
    wrong: float
    """Share of wrong labels."""


def leave_one_out(kernel: Kernel, X: Array, codes: np.ndarray, Cs: Sequence[float]) -> list[LeftOut]:
    """Leave-one-out errors for each C."""
    nothing = LeftOut(float("inf"), float("inf"))
    present, codes = np.unique(codes, return_inverse=True)
    if len(present) < 2:
        return [nothing] * len(Cs)
    K = xa.to_numpy(kernel(X, X)).astype(np.float64)
    targets = class_targets(codes, len(present))
    found = []
    for C in Cs:
        scores = dense_scores(K.copy(), targets, C)
        if scores is None:
            found.append(nothing)
            continue
        labels = scores_to_labels(np.arange(len(present)), scores)
        found.append(LeftOut(float(np.mean((scores - targets) ** 2)), float(np.mean(labels != codes))))
    return found
