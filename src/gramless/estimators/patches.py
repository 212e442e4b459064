"""Classify images by their patches: a classifier is fitted to the patches of all images, and the patches of an image vote.

    label(image) = argmax_k #{patches whose predicted class is k},    ties to the larger sum of scores

or, with soft votes, the class with the largest mean probability. Patches are extracted in blocks. `fit` stores the patches
of all training images in memory if they fit, else in a temporary file; `predict` has only one block in memory. Reference:
Kurugodu and Kongara, "KMeans kernel classifier", 2023.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.constraints import POSITIVE_INTEGER, estimator
from gramless._core.memory import MemoryEstimate, format_bytes, parse_budget
from gramless._core.progress import log_progress
from gramless._core.validation import atomic_fit, check_labels, check_weights
from gramless.estimators.prototypes import PrototypeLSSVC
from gramless.images import Patches
from gramless.images.transformer import ImageInputMixin
from gramless.images.tuning import TUNING, ImageTuning
from gramless.linalg.planning.plan import FitPlan

# Number of arrays of the size of a block: the patches, and the temporaries of their normalisation.
_BLOCK_COPIES = 2
_NO_LIMIT = 2**60


def _has_probabilities(self: Any) -> bool:
    if self.vote == "soft" and not hasattr(getattr(self, "estimator_", self._base()), "predict_proba"):
        raise AttributeError("predict_proba with vote='soft' needs an estimator with predict_proba")
    return True


@estimator
class PatchClassifier(ImageInputMixin, MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Majority vote of a classifier's predictions for all patches of an image.

    Prefer `PatchClassifier` over a classifier of full images if the position of an object in the image varies.

    Parameters
    ----------
    estimator : classifier, optional
        Model that is fitted to the preprocessed data. The data are patches, each with the label of its image. None is
        `PrototypeLSSVC` with a polynomial kernel of degree 4 and `C=1e6`.
    patch_size : int, (int, int) or None, default=None
        Height and width of the patches in pixels. None depends on the size of the images as the Notes describe.
    stride : int, default=1
        Distance between neighbouring patches in pixels.
    normalise : bool, default=True
        Whether inputs are normalised before use. The Notes describe the normalisation.
    vote : {"hard", "soft"}, default="hard"
        Whether to count the predicted labels of the patches (`"hard"`), or to average the probabilities (`"soft"`).
    shape : (height, width) or (height, width, channels), optional
        Shape of one image if the rows of X are flat; None assumes square grey images.
    n_jobs : int, optional
        Number of threads; None is 1 unless a joblib context sets another number.
    memory_budget : str, int, float or None, default=None
        Upper bound on the memory that the fit allocates: a string such as `"4GB"`, a number of bytes, or a fraction of the
        free memory if at most 1; None is 70 % of the free memory.
    verbose : int, default=0
        If positive, write progress messages to standard error.

    Attributes
    ----------
    classes_ : ndarray
        Sorted class labels.
    estimator_ : classifier
        Classifier fitted to the patches.
    n_patches_ : int
        Number of patches of an image.

    See Also
    --------
    PrototypeLSSVC : The default classifier of patches.
    gramless.images.Patches : Transformer that extracts the patches.

    Notes
    -----
    Patches that do not fit into `memory_budget` are written to a temporary file.

    If `patch_size` is None, the side of a patch is 25 / 28 of the shorter side of the images: 25 pixels for 28 pixels.

    With `normalise`, each patch is centred and scaled to unit norm.

    References
    ----------
    Kurugodu and Kongara, "KMeans kernel classifier", 2023.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gramless import LSSVC, PatchClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = PatchClassifier(LSSVC(C=10.0), patch_size=7).fit(X[:500], y[:500])
    >>> model.n_patches_, model.score(X[1000:], y[1000:]) > 0.93
    (4, True)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "estimator": [HasMethods(["fit", "predict"]), None],
        "stride": [POSITIVE_INTEGER],
        "vote": [StrOptions({"hard", "soft"})],
    }

    estimator: Any = field(default=None, kw_only=False)
    patch_size: Any = None
    stride: int = 1
    normalise: bool = True
    vote: str = "hard"
    shape: Any = None
    n_jobs: int | None = None
    memory_budget: str | float | None = None
    verbose: int = 0

    @atomic_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> PatchClassifier:
        """Fit the estimator to the patches of all images.

        Parameters
        ----------
        X : array of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            Images.
        y : array of shape (n,)
            Labels.
        sample_weight : array of shape (n,), optional
            Weights of the images, passed to the estimator for each of their patches.

        Returns
        -------
        self
            The fitted estimator.
        """
        estimator = self._base()
        if self.vote == "soft" and not hasattr(estimator, "predict_proba"):
            raise ValueError(f"vote='soft' averages probabilities, which {type(estimator).__name__} does not have")
        self._patches = self._extractor().fit(X)
        self.n_features_in_ = self._patches.n_features_in_
        if hasattr(self._patches, "feature_names_in_"):
            self.feature_names_in_ = self._patches.feature_names_in_
        n, self.n_patches_, width, dtype = self._patches.sizes(X)
        self.classes_, codes = check_labels(y, n)
        weights = check_weights(sample_weight, np.empty((n, 1)))
        options = {} if weights is None else {"sample_weight": np.repeat(weights, self.n_patches_)}
        labels = np.repeat(self.classes_[codes], self.n_patches_)
        estimator, in_memory, memory = self._plan(n * self.n_patches_, width, len(self.classes_), dtype)
        place = "in memory" if in_memory else "in a temporary file"
        needed = format_bytes(n * self.n_patches_ * width * dtype.itemsize)
        log_progress(self.verbose, f"{n * self.n_patches_:,} patches of {n:,} images: {needed} {place}; peak {memory}")
        if in_memory:
            self.estimator_ = estimator.fit(self._patches.transform(X), labels, **options)
            return self
        with tempfile.TemporaryDirectory(prefix="gramless-patches-") as folder:
            shape = (n * self.n_patches_, width)
            file = Path(folder) / "patches"
            _reserve(file, int(np.prod(shape)) * dtype.itemsize)
            patches = np.memmap(file, dtype=dtype, mode="r+", shape=shape)
            for rows, block in self._patches.iterate(X, memory.parts["blocks"] // _BLOCK_COPIES):
                patches[rows.start * self.n_patches_ : rows.stop * self.n_patches_] = block
                log_progress(self.verbose, f"patches of {rows.stop:,} of {n:,} images written")
            self.estimator_ = estimator.fit(patches, labels, **options)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each image.

        Parameters
        ----------
        X : array of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            Images.

        Returns
        -------
        array of shape (n,)
            Labels.
        """
        votes = self._votes(X, break_ties=True)
        return self.classes_[votes.argmax(axis=1)]

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the fraction of votes of each class, or with soft votes the mean probability.

        Parameters
        ----------
        X : array of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            Images.

        Returns
        -------
        array of shape (n, n_classes)
            Probabilities in the order of `classes_`.
        """
        return self._votes(X, break_ties=False)

    def _fit_plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> FitPlan:
        """Return the memory plan of a fit of `n` rows and `d` features; `MemoryError` if `memory_budget` is too small."""
        image = np.zeros((1, d), dtype)
        _, per_image, width, patch_dtype = self._extractor().fit(image).sizes(image)
        _, _, memory = self._plan(n * per_image, width, max(2, n_outputs), patch_dtype)
        return FitPlan(memory)

    def _base(self) -> Any:
        if self.estimator is not None:
            return self.estimator
        return PrototypeLSSVC(kernel="poly", degree=4, gamma=1.0, coef0=0.0, C=1e6)

    def _extractor(self) -> Patches:
        return Patches(self.patch_size, stride=self.stride, normalise=self.normalise, shape=self.shape, n_jobs=self.n_jobs)

    def _plan(self, n: int, d: int, k: int, dtype: np.dtype) -> tuple[Any, bool, MemoryEstimate]:
        """Divide the memory between n patches of d values and the estimator of k classes.

        Returns the estimator with its memory budget, whether the patches are stored in memory, and the peak memory. Patches
        that do not fit in addition to the memory of the estimator are written to a temporary file, whose pages the operating
        system can reclaim at any time.
        """
        budget = parse_budget(self.memory_budget)
        rows = n * d * dtype.itemsize
        block = _BLOCK_COPIES * _block_bytes(budget, TUNING)
        parts = {"blocks": block, "labels": 3 * n * 8}
        estimator, advice = clone(self._base()), "use a larger stride, fewer images, or raise memory_budget"
        if not hasattr(estimator, "_fit_plan"):
            in_memory = rows <= budget // 2  # the other half is for the estimator, whose memory is unknown
            memory = MemoryEstimate({**parts, "windows": rows if in_memory else 0})
            memory.check(budget, advice)
            return estimator, in_memory, memory

        def planned(allowed: int) -> MemoryEstimate:
            trial = clone(estimator)
            if "memory_budget" in trial.get_params() and trial.memory_budget is None:
                trial.set_params(memory_budget=max(1, allowed))
            return trial._fit_plan(n, d, 1 if k == 2 else k, dtype, xa.resolve_device(getattr(trial, "device", None))).memory

        allowed = budget - sum(parts.values())
        counts_rows = "data" in planned(_NO_LIMIT).parts
        counted = rows if counts_rows else 0
        try:
            in_memory, memory = True, planned(allowed + counted - rows)
            allowed += counted - rows
        except MemoryError:
            in_memory, memory = False, planned(allowed + counted)
        memory.parts = {**memory.parts, **parts, "data" if counts_rows else "windows": rows if in_memory else 0}
        memory.check(budget, advice)
        # A budget derived from the free memory varies between runs; as a stored parameter it would make equal models differ.
        if "memory_budget" in estimator.get_params() and estimator.memory_budget is None and self.memory_budget is not None:
            estimator.set_params(memory_budget=allowed)
        return estimator, in_memory, memory

    def _votes(self, X: Any, *, break_ties: bool, tuning: ImageTuning = TUNING) -> np.ndarray:
        """Return the fraction of votes of each class for each image, plus a tie-breaker if requested."""
        check_is_fitted(self)
        votes = []
        p, k = self.n_patches_, len(self.classes_)
        for _, patches in self._patches.iterate(X, _block_bytes(parse_budget(self.memory_budget), tuning)):
            if self.vote == "soft":
                votes.append(np.asarray(self.estimator_.predict_proba(patches)).reshape(-1, p, k).mean(axis=1))
                continue
            codes = np.searchsorted(self.classes_, self.estimator_.predict(patches)).reshape(-1, p)
            counts = (codes[:, :, None] == np.arange(k)).sum(axis=1)
            votes.append(counts / p)
            leading = counts == counts.max(axis=1, keepdims=True)
            tied = np.flatnonzero(leading.sum(axis=1) > 1)
            if break_ties and len(tied):
                scores = self._scores(patches.reshape(len(counts), p, -1)[tied].reshape(-1, patches.shape[1]))
                if scores is not None:
                    sums = scores.reshape(len(tied), p, -1).sum(axis=1)
                    best = np.where(leading[tied], sums, -np.inf).argmax(axis=1)
                    # Tie-breaker below one vote, so the ranking by votes is unchanged.
                    votes[-1][tied, best] += 0.5 / p
        return np.concatenate(votes)

    def _scores(self, patches: np.ndarray) -> np.ndarray | None:
        """Return one score for each patch and class; None if the estimator only predicts labels."""
        for method in ("decision_function", "predict_proba"):
            if hasattr(self.estimator_, method):
                scores = xa.to_numpy(getattr(self.estimator_, method)(patches))
                return np.column_stack([-scores, scores]) if scores.ndim == 1 else scores
        return None


def _block_bytes(budget: int, tuning: ImageTuning) -> int:
    """Return the size of a block of patches in bytes; a block and its copies take at most a quarter of the budget."""
    return min(tuning.patch_block_bytes, budget // (4 * _BLOCK_COPIES))


def _reserve(file: Path, n_bytes: int) -> None:
    """Reserve `n_bytes` for a file: a full disk raises OSError here, instead of ending the process at a write to the map."""
    with open(file, "wb") as opened:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(opened.fileno(), 0, n_bytes)
        else:
            opened.truncate(n_bytes)
