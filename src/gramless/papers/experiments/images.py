"""Experiments beyond the papers: image classification by a dictionary of patches, its size and the effect of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gramless.papers.datasets import Dataset
from gramless.papers.experiments.fit import encode_pixels
from gramless.papers.experiments.spec import Params

# Parameters of `PatchDictionary` that omit one step.
WITHOUT: dict[str, dict[str, Any]] = {
    "nothing": {},
    "whitening": {"whitening": np.inf},
    "signs": {"signs": 1},
    "square root": {"root": False},
    "grid of cells": {"pooling": 1},
}
MAX_ATOMS_SHOWN = 256
MAX_IMAGES_SHOWN = 48


def classifier_16(params: Params, seed: int) -> Any:
    return _classifier(params, seed, (16, 16))


def classifier_28(params: Params, seed: int) -> Any:
    return _classifier(params, seed, (28, 28))


def classifier_8(params: Params, seed: int) -> Any:
    return _classifier(params, seed, (8, 8))


def _classifier(params: Params, seed: int, shape: tuple[int, ...]) -> Any:
    from gramless import ImageClassifier

    return ImageClassifier(n_atoms=params["n_atoms"], mirror=False, shape=shape, random_state=seed)


def dictionary_16(params: Params, seed: int) -> Any:
    return _dictionary(params, seed, (16, 16))


def dictionary_8(params: Params, seed: int) -> Any:
    return _dictionary(params, seed, (8, 8))


def _dictionary(params: Params, seed: int, shape: tuple[int, ...]) -> Any:
    from gramless.images import PatchDictionary

    settings = WITHOUT[params["without"]]
    return PatchDictionary(params["n_atoms"], n_components=1000, shape=shape, random_state=seed, **settings)


def classifier_of_features(params: Params, seed: int) -> Any:
    """Return the classifier that `ImageClassifier` fits to its features, with C = 100."""
    from gramless import LSSVC
    from gramless.kernels import Polynomial

    return LSSVC(kernel=Polynomial(degree=4, gamma=0.5, coef0=0.5), C=100.0, tol=1e-2, random_state=seed)


def atoms_and_margins(model: Any, dataset: Dataset) -> Mapping[str, Any]:
    """Return the atoms as patches of pixels, and the test images with the smallest margins, wrong and right."""
    patches = model.dictionary_.patches_
    scale = np.abs(patches).max(axis=(1, 2, 3), keepdims=True)
    grey = 127.5 * (1 + patches / np.where(scale == 0, 1, scale))
    scores = model.decision_function(dataset.x_test)
    scores = np.column_stack([-scores, scores]) if scores.ndim == 1 else scores
    rows = np.arange(len(scores))
    true = np.searchsorted(model.classes_, dataset.y_test)
    rivals = scores.copy()
    rivals[rows, true] = -np.inf
    margin = scores[rows, true] - rivals.max(axis=1)
    names = list(dataset.class_names or map(str, model.classes_))
    low, high = dataset.x_test.min(), dataset.x_test.max()

    def picture(row: int) -> dict[str, str]:
        caption = f"{names[true[row]]} or {names[rivals[row].argmax()]}? margin {margin[row]:+.2f}".replace("-", "−")
        return {"said": caption, "pixels": encode_pixels(dataset.x_test[row], low, high)}

    atoms = [
        {"said": f"atom {number}", "pixels": encode_pixels(atom, 0.0, 255.0)}
        for number, atom in enumerate(grey[:MAX_ATOMS_SHOWN], start=1)
    ]
    order = np.argsort(margin)
    wrong, right = order[margin[order] <= 0][:MAX_IMAGES_SHOWN], order[margin[order] > 0][:MAX_IMAGES_SHOWN]
    atom_shape = patches.shape[1:3] if patches.shape[3] == 1 else patches.shape[1:]
    return {
        "atoms": {"image_shape": atom_shape, "images": atoms},
        "worst": {"image_shape": dataset.image_shape, "images": [picture(row) for row in wrong]},
        "closest": {"image_shape": dataset.image_shape, "images": [picture(row) for row in right]},
    }
