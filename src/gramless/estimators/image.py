"""Classifier of images: an LS-SVM on the features of a patch dictionary.

    f(image) = sum_i a_i k(x, x_i) + b,    k(x, y) = ((1 + <x, y>) / 2)^degree

Here x are the features of an image by `gramless.images.PatchDictionary`. With `mirror`, k is averaged over images and their
mirror images (`gramless.kernels.Reflected`); the dictionary has the mirror image of every atom, so reflecting an image only
changes the signs of some features. `"auto"` selects values with the smallest squared leave-one-out errors on a sample of
images, in closed form; error rates are not compared, because they vary more by chance than between the values. For n images
and patches of d values, the features take O(n positions atoms d) time and the LS-SVM O(n^2 n_components); memory as for
`LSSVC`. References: Coates and Ng, "The importance of encoding versus training with sparse coding and vector quantization",
2011; Suykens and Vandewalle, "Least squares support vector machine classifiers", 1999.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.constraints import POSITIVE, POSITIVE_INTEGER, estimator
from gramless._core.memory import MemoryEstimate, format_bytes, parse_budget
from gramless._core.progress import log_progress
from gramless._core.targets.columns import class_targets, scores_to_labels
from gramless._core.validation import atomic_fit, check_labels, check_weights
from gramless.estimators.lssvm import LSSVC
from gramless.images.patch_dictionary import PatchDictionary
from gramless.images.transformer import ImageInputMixin, ImageShape, image_shape, read_images
from gramless.images.tuning import TUNING
from gramless.inference.leave_one_out import solve_dense
from gramless.kernels import Kernel, Polynomial, Reflected
from gramless.linalg.planning.plan import FitPlan

# Number of square float64 matrices during the selection of C: the kernel matrix, its float32 source, and its inverse.
_SAMPLE_MATRICES = 3
_CS = (1.0, 10.0, 100.0, 1000.0)


@estimator
class ImageClassifier(ImageInputMixin, ClassifierMixin, BaseEstimator):
    """Classify images by a dictionary of their patches and a least-squares support vector machine.

    Without a pretrained network, prefer `ImageClassifier` to classifiers of pixels for photographs, digits and other images.

    Parameters
    ----------
    C : float or "auto", default="auto"
        Inverse regularisation strength; a larger value fits the training rows more closely. `"auto"` selects 1, 10, 100 or
        1000 by leave-one-out on a sample of the images.
    degree : int, default=4
        Degree of the polynomial kernel; ignored by other kernels.
    mirror : bool or "auto", default="auto"
        Whether an image and its mirror image have the same class: True for photographs, False for letters; `"auto"` compares
        the leave-one-out errors of both values with a small dictionary.
    n_atoms : int or None, default=None
        Number of atoms of the dictionary. None is 256, or 400 for colour images, and at most the number of patches.
    patch_size : int, (int, int) or None, default=None
        Height and width of the patches in pixels. None depends on the size of the images as the Notes describe.
    pooling : int, (int, int) or None, default=None
        Rows and columns of the grid of cells; None is 4, or fewer if a cell would have less than two positions.
    n_components : int, None or "auto", default="auto"
        Number of features. The features of the dictionary are projected on this number of leading directions; None does not
        project. `"auto"` is 1,000 on a CPU, for kernel values that cost a tenth of the time, and None on a CUDA device.
    shape : (height, width) or (height, width, channels), optional
        Shape of one image if the rows of X are flat; None assumes square grey images.
    tol : float, default=1e-2
        Tolerance at which the solver stops. The Notes define the quantity that `tol` bounds.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with `sample_weight`; `"balanced"` weights each class by the inverse of its
        frequency.
    device : {"cpu", "cuda", "auto"} or None, default=None
        Device of the computation; None uses the device of the data.
    memory_budget : str, int, float or None, default=None
        Upper bound on the memory that the fit allocates: a string such as `"4GB"`, a number of bytes, or a fraction of the
        free memory if at most 1; None is 70 % of the free memory.
    callback : callable, Checkpoint, EarlyStopping, a list of these, or None, default=None
        Function `callback(estimator, record)` called with the partially fitted estimator and a dict of progress values;
        returning True stops the fit. The function is called after each iteration of the solver. `gramless.callbacks` has
        checkpoints and early stopping on held-out rows.
    verbose : int, default=0
        If positive, write progress messages to standard error.
    random_state : int, RandomState or None, default=None
        Seed or generator for all random choices of the fit; an int makes the fit reproducible.

    Attributes
    ----------
    classes_ : ndarray
        Sorted class labels.
    dictionary_ : PatchDictionary
        Transformer of images to features.
    estimator_ : LSSVC
        Classifier of the features.
    image_shape_ : (height, width, channels)
        Shape of the training images.
    chosen_ : dict
        Values of `C` and `mirror`, and the leave-one-out error rate on the sample of images if `C` was selected.
    n_features_in_ : int
        Number of values of an image.

    See Also
    --------
    PatchClassifier : Majority vote of any classifier over the patches of an image.
    gramless.images.PatchDictionary : Transformer of images to the features of this classifier.

    Notes
    -----
    If `patch_size` is None, patches are at least 3 pixels wide: 7 for grey images of 28 pixels, 6 for colour images of 32.

    The kernel is `((1 + cos) / 2)^degree`; with thousands of atoms a `degree` of 2 or 3 is more accurate. `tol` bounds the
    relative residual of the least-squares support vector machine. `callback` receives the `LSSVC` as `estimator`.

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

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "C": [POSITIVE, StrOptions({"auto"})],
        "degree": [POSITIVE_INTEGER],
        "mirror": ["boolean", StrOptions({"auto"})],
        "n_atoms": [POSITIVE_INTEGER, None],
        "pooling": [POSITIVE_INTEGER, "array-like", None],
        "n_components": [POSITIVE_INTEGER, StrOptions({"auto"}), None],
    }

    C: float | str = "auto"
    degree: int = 4
    mirror: bool | str = "auto"
    n_atoms: int | None = None
    patch_size: Any = None
    pooling: Any = None
    n_components: int | str | None = "auto"
    shape: Any = None
    tol: float = 1e-2
    class_weight: Any = None
    device: str | None = None
    memory_budget: str | float | None = None
    callback: Callable[..., Any] | None = None
    verbose: int = 0
    random_state: Any = None

    @atomic_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ImageClassifier:
        """Learn a dictionary of patches of the images, and fit an LS-SVM to the features of the images.

        Parameters
        ----------
        X : array or tensor of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            Images, as uint8 or floats of any range.
        y : array of shape (n,)
            Labels.
        sample_weight : array of shape (n,), optional
            Weights of the images in the LS-SVM; the dictionary weights all images equally.

        Returns
        -------
        self
            The fitted estimator.
        """
        images = read_images(self, X, self.shape)
        _, height, width, channels = images.shape
        self.image_shape_ = int(height), int(width), int(channels)
        self.classes_, codes = check_labels(y, images.shape[0])
        weights = check_weights(sample_weight, images)
        random = check_random_state(self.random_state)
        pilot_seed, dictionary_seed, solver_seed = map(int, random.randint(np.iinfo(np.int32).max, size=3))
        device = xa.resolve_device(self.device, images)
        images = xa.to_device(images, device)  # features are computed and stored on this device
        n, k = len(codes), len(self.classes_)
        _, n_sampled = self._plan(n, self.image_shape_, k if k > 2 else 1, device)
        used = np.arange(n) if weights is None else np.flatnonzero(weights)
        sample = np.sort(random.permutation(used)[:n_sampled])
        mirror = self.mirror
        if mirror == "auto":
            mirror = self._mirror_helps(xa.take_rows(images, sample), codes[sample], pilot_seed)
        self.dictionary_ = self._dictionary(n, self.image_shape_, bool(mirror), device, dictionary_seed).fit(images)
        features = self.dictionary_.transform(images)
        kernel: Kernel = Polynomial(degree=self.degree, gamma=0.5, coef0=0.5)
        if mirror:
            kernel = Reflected(kernel, self.dictionary_.n_odd_)
        C, error_rate = self.C, None
        if C == "auto":
            squares, rates = leave_one_out_errors(kernel, xa.take_rows(features, sample), codes[sample], _CS)
            C, error_rate = _CS[squares.argmin()], float(rates[squares.argmin()])
        self.chosen_ = {"C": float(C), "mirror": bool(mirror), "leave_one_out_error": error_rate}
        log_progress(self.verbose, f"C={float(C):g}, mirror={bool(mirror)}")
        self.estimator_ = LSSVC(
            kernel=kernel,
            C=float(C),
            tol=self.tol,
            class_weight=self.class_weight,
            device=self.device,
            memory_budget=self.memory_budget,
            callback=self.callback,
            verbose=self.verbose,
            random_state=solver_seed,
        ).fit(features, self.classes_[codes], sample_weight)
        return self

    def decision_function(self, X: Any) -> Array:
        """Return the class scores.

        Parameters
        ----------
        X : array or tensor of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            Images.

        Returns
        -------
        array of shape (n,) for two classes, (n, n_classes) for more
            Scores; a tensor if X is a tensor.
        """
        features = self._features(X)
        return xa.in_namespace_of(self.estimator_.decision_function(features), X)

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each image.

        Parameters
        ----------
        X : array or tensor of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            Images.

        Returns
        -------
        array of shape (n,)
            Labels.
        """
        features = self._features(X)
        return self.estimator_.predict(features)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class, by the method `probability="auto"` of `LSSVC`.

        For up to 10,000 training images, the probabilities are the softmax of the scores divided by a temperature.

        Parameters
        ----------
        X : array or tensor of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            Images.

        Returns
        -------
        array of shape (n, n_classes)
            Probabilities in the order of `classes_`.
        """
        features = self._features(X)
        return self.estimator_.predict_proba(features)

    def _fit_plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> FitPlan:
        """Return the memory plan of a fit of `n` rows and `d` features; `MemoryError` if `memory_budget` is too small."""
        memory, _ = self._plan(n, image_shape((d,), self.shape, vectors_allowed=False), n_outputs, device)
        return FitPlan(memory)

    def _plan(self, n: int, shape: ImageShape, n_outputs: int, device: str) -> tuple[MemoryEstimate, int]:
        """Return the peak memory of the stages of a fit, and the number of images on which C and mirror are selected.

        The stages are: learn the dictionary, select C, fit the LS-SVM.
        """
        budget = parse_budget(self.memory_budget, device)
        learning, width = self._dictionary(n, shape, bool(self.mirror), device, 0).fit_memory(n, shape, device)
        learning.check(budget, "lower n_atoms or n_components, or raise memory_budget")
        feature_bytes = n * width * 4
        sample = min(TUNING.selection_rows, n)
        if self.C == "auto" or self.mirror == "auto":
            sample = min(sample, int((max(0, budget - feature_bytes) / (_SAMPLE_MATRICES * 8)) ** 0.5))
        if sample < min(n, TUNING.min_selection_rows):
            raise MemoryError(
                f"the features of {n:,} images take {format_bytes(feature_bytes)}, and memory_budget allows "
                f"{format_bytes(budget)}: too little remains to select C; set C and mirror, lower n_components, or raise "
                "memory_budget"
            )
        matrices = _SAMPLE_MATRICES * sample**2 * 8
        selection = MemoryEstimate({"features": feature_bytes, "kernel matrices of a sample": matrices}, device)
        lssvm = LSSVC(kernel=Polynomial(self.degree), tol=self.tol, device=self.device, memory_budget=self.memory_budget)
        solving = lssvm._fit_plan(n, width, n_outputs, np.float32, device).memory
        return max((learning, selection, solving), key=lambda stage: stage.nbytes), sample

    def _features(self, X: Any) -> Array:
        check_is_fitted(self)
        images = read_images(self, X, self.shape, expected=self.image_shape_)
        return self.dictionary_.transform(xa.to_device(images, xa.resolve_device(self.device, images)))

    def _dictionary(self, n: int, shape: ImageShape, mirror: bool, device: str, seed: int) -> PatchDictionary:
        """Return the unfitted dictionary for n images."""
        components: Any = self.n_components
        if components == "auto":
            components = None if device.startswith("cuda") else 1000
        dictionary = self._small_dictionary(
            n, shape, 400 if shape[2] > 1 else 256, seed, mirror=mirror, n_components=components, verbose=self.verbose
        )
        return dictionary if self.n_atoms is None else dictionary.set_params(n_atoms=self.n_atoms)

    def _small_dictionary(self, n: int, shape: ImageShape, atoms: int, seed: int, **options: Any) -> PatchDictionary:
        """Return an unfitted dictionary for n images; the number of atoms is at most the number of patches."""
        dictionary = PatchDictionary(
            patch_size=self.patch_size,
            pooling=self.pooling,
            device=self.device,
            memory_budget=self.memory_budget,
            random_state=seed,
            **options,
        )
        return dictionary.set_params(n_atoms=min(atoms, n * dictionary.per_image(shape)))

    def _mirror_helps(self, images: Array, codes: np.ndarray, seed: int) -> bool:
        """Return True if the reflected kernel has smaller leave-one-out errors on a small dictionary."""
        n, height, width, channels = images.shape
        if width < 2:
            return False
        shape = height, width, channels
        pilot = self._small_dictionary(n, shape, TUNING.pilot_atoms, seed, mirror=True, n_patches=TUNING.pilot_patches)
        features = pilot.fit_transform(images)
        cosine = Polynomial(degree=self.degree, gamma=0.5, coef0=0.5)
        kernels = (cosine, Reflected(cosine, pilot.n_odd_))
        plain, reflected = (min(zip(*leave_one_out_errors(one, features, codes, _CS), strict=True)) for one in kernels)
        log_progress(self.verbose, f"leave-one-out error {plain[1]:.2%}, with mirror images {reflected[1]:.2%}")
        return bool(reflected[0] < plain[0])


def leave_one_out_errors(kernel: Kernel, X: Array, codes: np.ndarray, Cs: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean squared errors and the error rates of leave-one-out predictions of the LS-SVM for each C.

    Both errors are infinite for a C whose system has no solution.
    """
    squares, rates = np.full((2, len(Cs)), np.inf)
    present, codes = np.unique(codes, return_inverse=True)
    if len(present) < 2:
        return squares, rates
    K = xa.to_numpy(kernel(X, X)).astype(np.float64)
    targets = class_targets(codes, len(present))
    for i, C in enumerate(Cs):
        fit = solve_dense(K + np.eye(len(K)) / C, targets)
        if fit is not None:
            squares[i] = np.mean((fit.scores - targets) ** 2)
            rates[i] = np.mean(scores_to_labels(np.arange(len(present)), fit.scores) != codes)
    return squares, rates
