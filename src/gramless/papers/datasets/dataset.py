"""What `load` returns: a train and a test half of plain arrays, and what a report needs to name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.model_selection import train_test_split


class DatasetError(RuntimeError):
    """A dataset is not here, cannot be fetched or is not what it should be; the message says what to do.

    See Also
    --------
    load : Raises it.

    Examples
    --------
    >>> from gramless.papers.datasets import DatasetError, load
    >>> try:
    ...     load("mnits")
    ... except DatasetError as reason:
    ...     print(str(reason)[:23])
    unknown dataset 'mnits'
    """


@dataclass(frozen=True)
class Dataset:
    """Arrays of one dataset, split into a training and a test half.

    Parameters
    ----------
    name : str
        The name `gramless.papers.datasets.load` knows it by.
    x_train : ndarray of shape (n, d)
        One row per sample. Images are flat; `image_shape` folds them back.
    y_train : ndarray of shape (n,)
        Labels, or numbers when `task` is ``"regression"``.
    x_test : ndarray of shape (m, d)
        The rows to test on.
    y_test : ndarray of shape (m,)
        Their labels or numbers.
    image_shape : tuple of int, optional
        ``(height, width)`` or ``(height, width, channels)``.
    class_names : tuple of str, optional
        Names of the classes in the order of the sorted labels.
    feature_names : tuple of str, optional
        One name per column.
    categorical : tuple of int, optional
        Columns that hold category codes, to be one-hot encoded rather than scaled.
    task : {"classification", "regression"}
        What `y` is.
    split : str
        Where the split comes from: ``"original"``, or how it was drawn.

    See Also
    --------
    load : Returns one.

    Examples
    --------
    >>> from gramless.papers.datasets import load
    >>> digits = load("digits")
    >>> digits.x_train.shape, digits.image_shape
    ((1347, 64), (8, 8))
    """

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    image_shape: tuple[int, ...] | None = None
    class_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    categorical: tuple[int, ...] = ()
    task: str = "classification"
    split: str = "original"

    def pooled(self) -> tuple[np.ndarray, np.ndarray]:
        """Join the two halves.

        Returns
        -------
        x : ndarray of shape (n + m, d)
            All rows, the training half first.
        y : ndarray of shape (n + m,)
            Their labels or numbers.
        """
        return np.concatenate([self.x_train, self.x_test]), np.concatenate([self.y_train, self.y_test])

    def resplit(self, test_size: float | int, *, seed: int = 0) -> Dataset:
        """Shuffle the pooled rows and split them anew, class by class for a classification.

        Parameters
        ----------
        test_size : float or int
            Share or number of test rows.
        seed : int, default=0
            Decides the order.

        Returns
        -------
        Dataset
            The same rows in other halves.
        """
        x, y = self.pooled()
        return split_at_random(x, y, like=self, test_size=test_size, seed=seed)

    def head(self, per_class: int) -> Dataset:
        """Keep the first training rows of each class, in their original order; the test half stays.

        Parameters
        ----------
        per_class : int
            At most so many rows of a class.

        Returns
        -------
        Dataset
            With fewer training rows.
        """
        rows = [np.flatnonzero(self.y_train == label)[:per_class] for label in np.unique(self.y_train)]
        return self._keep_train(np.sort(np.concatenate(rows)))

    def sample(self, n: int, *, seed: int = 0) -> Dataset:
        """Draw training rows at random without replacement; the test half stays.

        Parameters
        ----------
        n : int
            At most so many rows.
        seed : int, default=0
            Decides which.

        Returns
        -------
        Dataset
            With fewer training rows.
        """
        rng = np.random.default_rng(seed)
        n = min(n, len(self.y_train))
        return self._keep_train(np.sort(rng.choice(len(self.y_train), size=n, replace=False)))

    def only(self, labels: Sequence[int]) -> Dataset:
        """Keep the rows of some classes, such as two digits for a two-class problem.

        Parameters
        ----------
        labels : sequence of int
            The classes to keep.

        Returns
        -------
        Dataset
            With the rows of these classes in both halves.
        """
        train, test = np.isin(self.y_train, labels), np.isin(self.y_test, labels)
        names = self.class_names
        if names is not None:
            known = np.unique(np.concatenate([self.y_train, self.y_test]))
            names = tuple(name for name, label in zip(names, known, strict=True) if label in labels)
        return replace(
            self,
            x_train=self.x_train[train],
            y_train=self.y_train[train],
            x_test=self.x_test[test],
            y_test=self.y_test[test],
            class_names=names,
        )

    def _keep_train(self, rows: np.ndarray) -> Dataset:
        return replace(self, x_train=self.x_train[rows], y_train=self.y_train[rows])


def split_at_random(x: np.ndarray, y: np.ndarray, *, like: Dataset, test_size: float | int, seed: int) -> Dataset:
    """Split rows at random; `like` supplies everything but the arrays."""
    stratify = None
    if like.task == "classification" and np.unique(y, return_counts=True)[1].min() > 1:
        stratify = y
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=test_size, random_state=seed, stratify=stratify)
    return replace(like, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test, split=f"random, seed {seed}")
