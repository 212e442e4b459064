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

from gramless._runtime import arrays as xa
from gramless._runtime.memory import human, parse_budget
from gramless._runtime.progress import say
from gramless._runtime.reference import described
from gramless._runtime.validation import all_or_nothing, check_choice, check_labels, check_weights
from gramless.estimators.prototypes import PrototypeLSSVC
from gramless.images import Patches

# Windows of so many bytes are scored at once.
BLOCK_BYTES = 256 * 2**20


def _can_estimate_probability(self: Any) -> bool:
    if self.vote == "soft" and not hasattr(getattr(self, "estimator_", self._base()), "predict_proba"):
        raise AttributeError("predict_proba with vote='soft' needs an estimator that has it")
    return True


@described
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

    @all_or_nothing
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
        budget = parse_budget(self.memory_budget)
        needed = n * self.n_patches_ * width * dtype.itemsize
        in_memory = needed <= budget // 2
        place = "in memory" if in_memory else "in a temporary file"
        say(self.verbose, f"{n * self.n_patches_:,} windows of {n:,} images: {human(needed)} {place}")
        if in_memory:
            self.estimator_ = clone(estimator).fit(self._patches.transform(X), labels, **options)
            return self
        with tempfile.TemporaryDirectory(prefix="gramless-patches-") as folder:
            shape = (n * self.n_patches_, width)
            windows = np.memmap(Path(folder) / "windows", dtype=dtype, mode="w+", shape=shape)
            for part, block in self._patches.iterate(X, min(BLOCK_BYTES, budget // 4)):
                windows[part.start * self.n_patches_ : part.stop * self.n_patches_] = block
                say(self.verbose, f"windows of {part.stop:,} of {n:,} images written")
            self.estimator_ = clone(estimator).fit(windows, labels, **options)
        return self

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
