"""How each dataset's stored arrays become a `Dataset`.

One `.npz` file per dataset, opened with ``allow_pickle=False``. A layout is a function of the opened
arrays, the seed and the test share; the last two matter only where no standard split exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gramless.papers.datasets.dataset import Dataset, split_at_random

Arrays = Mapping[str, np.ndarray]
Layout = Callable[[Arrays, int, float], Dataset]

DIGITS = tuple("0123456789")
CIFAR10_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
WINE_QUALITY_FEATURES = (
    "fixed acidity",
    "volatile acidity",
    "citric acid",
    "residual sugar",
    "chlorides",
    "free sulfur dioxide",
    "total sulfur dioxide",
    "density",
    "pH",
    "sulphates",
    "alcohol",
)
HOUSING_FEATURES = (
    "longitude",
    "latitude",
    "housingMedianAge",
    "totalRooms",
    "totalBedrooms",
    "population",
    "households",
    "medianIncome",
)


def _flat(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), -1)


def _pooled(x: np.ndarray, y: np.ndarray, seed: int, test_size: float, **about: Any) -> Dataset:
    empty = np.empty((0, x.shape[1]), dtype=x.dtype), np.empty(0, dtype=y.dtype)
    whole = Dataset(x_train=x, y_train=y, x_test=empty[0], y_test=empty[1], **about)
    return split_at_random(x, y, like=whole, test_size=test_size, seed=seed)


def split_layout(name: str, **about: Any) -> Layout:
    """A dataset stored with its original split, flat or as images."""

    def read(arrays: Arrays, seed: int, test_size: float) -> Dataset:
        return Dataset(
            name=name,
            x_train=_flat(arrays["x_train"]),
            y_train=arrays["y_train"].astype(np.int64),
            x_test=_flat(arrays["x_test"]),
            y_test=arrays["y_test"].astype(np.int64),
            **about,
        )

    return read


def pooled_layout(name: str, *, x_key: str = "x", y_key: str = "y", **about: Any) -> Layout:
    """A dataset stored in one piece, often sorted by class or date, hence shuffled before the split."""

    def read(arrays: Arrays, seed: int, test_size: float) -> Dataset:
        y = arrays[y_key]
        if about.get("task") != "regression":
            y = y.astype(np.int64)
        return _pooled(arrays[x_key], y, seed, test_size, name=name, **about)

    return read


def usps(arrays: Arrays, seed: int, test_size: float) -> Dataset:
    """The original values have three decimals in [-1, 1]; they are stored as integers, a thousand times
    larger.
    """
    return Dataset(
        name="usps",
        x_train=_flat(arrays["x_train"]).astype(np.float32) / 1000,
        y_train=arrays["y_train"].astype(np.int64),
        x_test=_flat(arrays["x_test"]).astype(np.float32) / 1000,
        y_test=arrays["y_test"].astype(np.int64),
        image_shape=(16, 16),
        class_names=DIGITS,
    )


def cifar10(arrays: Arrays, seed: int, test_size: float) -> Dataset:
    """Planes are G, R - G, B - G, differenced down and across the image, all modulo 256."""

    def decode(planes: np.ndarray) -> np.ndarray:
        p = np.cumsum(np.cumsum(planes, axis=2, dtype=np.uint8), axis=3, dtype=np.uint8)
        return _flat(np.stack([p[1] + p[0], p[0], p[2] + p[0]], axis=-1))

    return Dataset(
        name="cifar10",
        x_train=decode(arrays["d_train"]),
        y_train=arrays["y_train"].astype(np.int64),
        x_test=decode(arrays["d_test"]),
        y_test=arrays["y_test"].astype(np.int64),
        image_shape=(32, 32, 3),
        class_names=CIFAR10_CLASSES,
    )


def bank(arrays: Arrays, seed: int, test_size: float) -> Dataset:
    """Seven numeric columns, then nine columns of category codes."""
    numbers, codes = arrays["x_num"], arrays["x_cat"]
    x = np.column_stack([numbers.astype(np.float64), codes.astype(np.float64)])
    return _pooled(
        x,
        arrays["y"].astype(np.int64),
        seed,
        test_size,
        name="bank",
        class_names=("no", "yes"),
        feature_names=(*map(str, arrays["num_names"]), *map(str, arrays["cat_names"])),
        categorical=tuple(range(numbers.shape[1], x.shape[1])),
    )


def covtype(arrays: Arrays, seed: int, test_size: float) -> Dataset:
    """The original split: 11,340 training and 3,780 validation rows (joined here), the other 565,892 for
    testing.
    """
    x, y = arrays["x"], arrays["y"].astype(np.int64)
    cut = 11_340 + 3_780
    return Dataset(name="covtype", x_train=x[:cut], y_train=y[:cut], x_test=x[cut:], y_test=y[cut:])
