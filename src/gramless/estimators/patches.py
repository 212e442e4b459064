"""Classify images by their patches: any classifier learns all windows of all images, and an image's windows vote.

    label(image) = argmax_k #{windows whose predicted class is k},    ties to the larger sum of scores

or, softly, the class with the largest mean probability. The windows come in blocks: those of all training images are put
into memory when they fit, else into a temporary file; at prediction no more than a block of them exists. Kurugodu and
Kongara, "KMeans kernel classifier", 2023.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from gramless._core import arrays as xa
from gramless._core.doc_links import link_documentation
from gramless._core.memory import MemoryEstimate, format_bytes, parse_budget
from gramless._core.progress import log_progress
from gramless._core.validation import atomic_fit, check_choice, check_labels, check_weights
from gramless.estimators.prototypes import PrototypeLSSVC
from gramless.images import Patches
from gramless.linalg.planning.plan import FitPlan

# Windows of so many bytes are scored at once.
BLOCK_BYTES = 256 * 2**20
# A block of windows, and what is computed of its images at a time.
_COPIES_OF_A_BLOCK = 2
_NO_LIMIT = 2**60


def _can_estimate_probability(self: Any) -> bool:
    if self.vote == "soft" and not hasattr(getattr(self, "estimator_", self._base()), "predict_proba"):
        raise AttributeError("predict_proba with vote='soft' needs an estimator that has it")
    return True


@link_documentation
class PatchClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """A vote of a classifier's predictions for all windows of an image.

    Parameters
    ----------
    estimator : classifier, optional
        Fitted to the windows, each with its image's label. None is `PrototypeLSSVC` with a polynomial kernel of degree 4
        and a ridge of 1e-6.
    patch_size : int or (int, int), default=25
        Height and width of the windows.
    stride : int, default=1
        Pixels from one window to the next.
    normalise : bool, default=True
        Centre every window and scale it to unit norm.
    vote : {"hard", "soft"}, default="hard"
        Count the windows' labels, or average their probabilities.
    shape : (height, width) or (height, width, channels), optional
        Shape of one image when rows are flat; square grey images need none.
    memory_budget : str, int, float or None, default=None
        The windows of the training images take half of it at most; else they go to a temporary file.
    n_jobs : int, optional
        Threads that cut out windows.
    verbose : int, default=0
        1 says how many windows there are, where they are kept, and how many images are done.

    Attributes
    ----------
    classes_ : ndarray
        The labels.
    estimator_ : classifier
        Fitted to the windows.
    n_patches_ : int
        Windows of an image.

    See Also
    --------
    PrototypeLSSVC : The classifier of windows by default.
    gramless.images.Patches : Cuts out the windows.

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

    def __init__(
        self,
        estimator: Any = None,
        *,
        patch_size: Any = 25,
        stride: int = 1,
        normalise: bool = True,
        vote: str = "hard",
        shape: Any = None,
        memory_budget: str | float | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ):
        self.estimator = estimator
        self.patch_size = patch_size
        self.stride = stride
        self.normalise = normalise
        self.vote = vote
        self.shape = shape
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.verbose = verbose

    @atomic_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> PatchClassifier:
        """Fit the estimator to the windows of all images.

        Parameters
        ----------
        X : array of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            The images.
        y : array of shape (n,)
            A label for each image.
        sample_weight : array of shape (n,), optional
            Handed to the estimator, an image's weight for each of its windows.

        Returns
        -------
        self
            Fitted.
        """
        check_choice("vote", self.vote, {"hard", "soft"})
        estimator = self._base()
        if self.vote == "soft" and not hasattr(estimator, "predict_proba"):
            raise ValueError(f"vote='soft' averages probabilities, which {type(estimator).__name__} does not give")
        self._patches = Patches(
            self.patch_size, stride=self.stride, normalise=self.normalise, shape=self.shape, n_jobs=self.n_jobs
        ).fit(X)
        self.n_features_in_ = self._patches.n_features_in_
        if hasattr(self._patches, "feature_names_in_"):
            self.feature_names_in_ = self._patches.feature_names_in_
        n, self.n_patches_, width, dtype = self._patches.sizes(X)
        self.classes_, codes = check_labels(y, n)
        weights = check_weights(sample_weight, np.empty((n, 1)))
        options = {} if weights is None else {"sample_weight": np.repeat(weights, self.n_patches_)}
        labels = np.repeat(self.classes_[codes], self.n_patches_)
        estimator, in_memory, memory = self._within(n * self.n_patches_, width, len(self.classes_), dtype)
        place = "in memory" if in_memory else "in a temporary file"
        needed = format_bytes(n * self.n_patches_ * width * dtype.itemsize)
        log_progress(self.verbose, f"{n * self.n_patches_:,} windows of {n:,} images: {needed} {place}; peak {memory}")
        if in_memory:
            self.estimator_ = estimator.fit(self._patches.transform(X), labels, **options)
            return self
        with tempfile.TemporaryDirectory(prefix="gramless-patches-") as folder:
            shape = (n * self.n_patches_, width)
            windows = np.memmap(Path(folder) / "windows", dtype=dtype, mode="w+", shape=shape)
            for part, block in self._patches.iterate(X, memory.parts["blocks"] // _COPIES_OF_A_BLOCK):
                windows[part.start * self.n_patches_ : part.stop * self.n_patches_] = block
                log_progress(self.verbose, f"windows of {part.stop:,} of {n:,} images written")
            self.estimator_ = estimator.fit(windows, labels, **options)
        return self

    def plan(self, n: int, d: int, n_outputs: int, dtype: Any, device: str) -> FitPlan:
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
        FitPlan
            Or a `MemoryError` where that is too much.
        """
        image = np.zeros((1, d), dtype)
        patches = Patches(self.patch_size, stride=self.stride, normalise=self.normalise, shape=self.shape).fit(image)
        _, per_image, width, kind = patches.sizes(image)
        return FitPlan(self._within(n * per_image, width, max(2, n_outputs), kind)[2])

    def _within(self, n: int, d: int, k: int, dtype: np.dtype) -> tuple[Any, bool, MemoryEstimate]:
        """The estimator with its part of the budget, whether windows are held in memory, and the peak.

        Where windows do not fit beside the estimator's own work they are written to a temporary file, whose pages the
        system may take back at any time.
        """
        budget = parse_budget(self.memory_budget)
        rows, block = n * d * dtype.itemsize, _COPIES_OF_A_BLOCK * min(BLOCK_BYTES, budget // (4 * _COPIES_OF_A_BLOCK))
        parts = {"blocks": block, "labels": 3 * n * 8}
        estimator, advice = clone(self._base()), "use a larger stride, fewer images, or raise memory_budget"
        if not hasattr(estimator, "plan"):  # nobody knows what it takes: half of the budget is for windows
            in_memory = rows <= budget // 2
            memory = MemoryEstimate({**parts, "windows": rows if in_memory else 0})
            memory.check(budget, advice)
            return estimator, in_memory, memory

        def planned(allowed: int) -> MemoryEstimate:
            trial = clone(estimator)
            if "memory_budget" in trial.get_params() and trial.memory_budget is None:
                trial.set_params(memory_budget=max(1, allowed))
            return trial.plan(n, d, 1 if k == 2 else k, dtype, xa.resolve_device(getattr(trial, "device", None))).memory

        left = budget - sum(parts.values())
        own = "data" in planned(_NO_LIMIT).parts  # whether it counts its rows
        try:
            allowed, in_memory = left - (0 if own else rows), True
            memory = planned(allowed)
        except MemoryError:
            allowed, in_memory = left, False
            memory = planned(left + (rows if own else 0))
        memory.parts = {**memory.parts, **parts, "data" if own else "windows": rows if in_memory else 0}
        memory.check(budget, advice)
        if "memory_budget" in estimator.get_params() and estimator.memory_budget is None:
            estimator.set_params(memory_budget=allowed)
        return estimator, in_memory, memory

    def predict(self, X: Any) -> np.ndarray:
        """The class of each image.

        Parameters
        ----------
        X : array of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            The images.

        Returns
        -------
        array of shape (n,)
            Labels.
        """
        check_is_fitted(self)
        votes, ties = self._vote(X, break_ties=True)
        return self.classes_[(votes + ties).argmax(axis=1)]

    @available_if(_can_estimate_probability)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Share of the votes (hard) or mean probability (soft) of each class.

        Parameters
        ----------
        X : array of shape (n, height, width), (n, height, width, channels) or (n, n_features)
            The images.

        Returns
        -------
        array of shape (n, n_classes)
            Columns in the order of `classes_`.
        """
        check_is_fitted(self)
        return self._vote(X, break_ties=False)[0]

    def _vote(self, X: Any, *, break_ties: bool) -> tuple[np.ndarray, np.ndarray]:
        """Votes of each image, shares that sum to one, and what is added to those of tied classes to break the tie."""
        votes, ties = [], []
        for _, windows in self._patches.iterate(X, BLOCK_BYTES):
            if self.vote == "soft":
                share = np.asarray(self.estimator_.predict_proba(windows))
                votes.append(share.reshape(-1, self.n_patches_, len(self.classes_)).mean(axis=1))
                ties.append(np.zeros_like(votes[-1]))
                continue
            codes = np.searchsorted(self.classes_, self.estimator_.predict(windows)).reshape(-1, self.n_patches_)
            counts = (codes[:, :, None] == np.arange(len(self.classes_))).sum(axis=1)
            votes.append(counts / self.n_patches_)
            ties.append(np.zeros_like(votes[-1]))
            leading = counts == counts.max(axis=1, keepdims=True)
            tied = np.flatnonzero(leading.sum(axis=1) > 1)
            if break_ties and len(tied):
                of_tied = windows.reshape(len(counts), self.n_patches_, -1)[tied]
                scores = self._scores(of_tied.reshape(-1, windows.shape[1]))
                if scores is not None:
                    scores = scores.reshape(len(tied), self.n_patches_, -1).sum(axis=1)
                    best = np.where(leading[tied], scores, -np.inf).argmax(axis=1)
                    # Less than one vote, so that nobody else is overtaken.
                    ties[-1][tied, best] = 0.5 / self.n_patches_
        return np.concatenate(votes), np.concatenate(ties)

    def _scores(self, windows: np.ndarray) -> np.ndarray | None:
        """One score for each window and class; None where the estimator gives labels only and the first class wins."""
        for method in ("decision_function", "predict_proba"):
            if hasattr(self.estimator_, method):
                scores = xa.to_numpy(getattr(self.estimator_, method)(windows))
                return np.column_stack([-scores, scores]) if scores.ndim == 1 else scores
        return None

    def _base(self) -> Any:
        if self.estimator is not None:
            return self.estimator
        return PrototypeLSSVC(kernel="poly", degree=4, gamma=1.0, coef0=0.0, C=1e6)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        # A flat row is an image only with a shape.
        tags.input_tags.two_d_array = self.shape is not None
        return tags
