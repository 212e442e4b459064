"""A dataset as arrays: training rows, test rows, and the names that a report shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.model_selection import train_test_split


class DatasetError(RuntimeError):
    """Error of a dataset that is missing, cannot be downloaded or has unexpected contents."""


@dataclass(frozen=True)
class Dataset:
    """Arrays of one dataset, split into training and test rows.

    Images are flattened to rows, and `image_shape` is their height, width and number of channels. `class_names` follow the
    order of the sorted labels. `categorical` are the indices of columns with category codes. `split` is the origin
    of the split: "original", or a description of the random split.
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

    @classmethod
    def unsplit(cls, x: np.ndarray, y: np.ndarray, **fields: object) -> Dataset:
        """Return a dataset whose rows are all training rows."""
        return cls(x_train=x, y_train=y, x_test=x[:0], y_test=y[:0], **fields)  # type: ignore[arg-type]

    def pooled(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the features and labels of all rows, training rows first."""
        return np.concatenate([self.x_train, self.x_test]), np.concatenate([self.y_train, self.y_test])

    def resplit(self, test_size: float | int, *, seed: int = 0) -> Dataset:
        """Shuffle all rows and split them again, stratified by class; `test_size` is a fraction or a number of rows."""
        x, y = self.pooled()
        stratified = self.task == "classification" and np.unique(y, return_counts=True)[1].min() > 1
        x_train, x_test, y_train, y_test = train_test_split(
            x, y, test_size=test_size, random_state=seed, stratify=y if stratified else None
        )
        arrays = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
        return replace(self, **arrays, split=f"random, seed {seed}")

    def sample(self, n: int, *, seed: int = 0) -> Dataset:
        """Keep at most `n` training rows drawn at random without replacement, and all test rows."""
        rng = np.random.default_rng(seed)
        n = min(n, len(self.y_train))
        return self._with_training_rows(np.sort(rng.choice(len(self.y_train), size=n, replace=False)))

    def only(self, labels: Sequence[int]) -> Dataset:
        """Keep the training and test rows of these classes."""
        train, test = np.isin(self.y_train, labels), np.isin(self.y_test, labels)
        names = self.class_names
        if names is not None:
            known = np.unique(np.concatenate([self.y_train, self.y_test]))
            names = tuple(name for name, label in zip(names, known, strict=True) if label in labels)
        kept = replace(self, x_test=self.x_test[test], y_test=self.y_test[test], class_names=names)
        return kept._with_training_rows(train)

    def _with_training_rows(self, rows: np.ndarray) -> Dataset:
        return replace(self, x_train=self.x_train[rows], y_train=self.y_train[rows])
