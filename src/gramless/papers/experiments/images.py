"""Pictures for the experiments beyond the papers: the atoms of a dictionary of patches, and images with small margins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gramless.papers.datasets import Dataset
from gramless.papers.experiments.fit import encode_pixels

MAX_ATOMS_SHOWN = 256
MAX_IMAGES_SHOWN = 48


def atoms_and_margins(model: Any, dataset: Dataset) -> Mapping[str, Any]:
    """Return the atoms as patches of pixels, and the misclassified and the correct test images of smallest margin."""
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
