"""Beyond the papers: images by a dictionary of patches. How many atoms it needs, and what each of its steps is worth."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from gramless.papers.datasets import Dataset
from gramless.papers.experiments.spec import Params, Spec, product
from gramless.papers.experiments.views import Confusion, Curve, Gallery, Pictures, Table

SHAPES = {256: (16, 16), 784: (28, 28), 64: (8, 8), 3072: (32, 32, 3)}
STEPS = ("nothing", "whitening", "signs", "square root", "grid of cells")
SHOWN = 48


def classifier_16(params: Params, seed: int) -> Any:
    """The library's classifier of images of 16 x 16 pixels."""
    return _classifier(params, seed, SHAPES[256])


def classifier_28(params: Params, seed: int) -> Any:
    return _classifier(params, seed, SHAPES[784])


def classifier_8(params: Params, seed: int) -> Any:
    return _classifier(params, seed, SHAPES[64])


def _classifier(params: Params, seed: int, shape: tuple[int, ...]) -> Any:
    from gramless import ImageClassifier

    return ImageClassifier(n_atoms=params["n_atoms"], mirror=False, shape=shape, random_state=seed)


def dictionary_16(params: Params, seed: int) -> Any:
    """The dictionary with one of its steps left out, for images of 16 x 16 pixels."""
    return _dictionary(params, seed, SHAPES[256])


def dictionary_8(params: Params, seed: int) -> Any:
    return _dictionary(params, seed, SHAPES[64])


def _dictionary(params: Params, seed: int, shape: tuple[int, ...]) -> Any:
    from gramless.images import PatchDictionary

    settings: dict[str, dict[str, Any]] = {
        "nothing": {},
        "whitening": {"whitening": np.inf},
        "signs": {"signs": 1},
        "square root": {"root": False},
        "grid of cells": {"pooling": 1},
    }
    without = settings[params["without"]]
    return PatchDictionary(params["n_atoms"], n_components=1000, shape=shape, random_state=seed, **without)


def cosine_machine(params: Params, seed: int) -> Any:
    """The machine of `ImageClassifier` on given features, with C = 100 for all of them."""
    from gramless import LSSVC
    from gramless.kernels import Polynomial

    return LSSVC(kernel=Polynomial(degree=4, gamma=0.5, coef0=0.5), C=100.0, tol=1e-2, random_state=seed)


def atoms_and_hard_images(model: Any, dataset: Dataset) -> Mapping[str, Any]:
    """The atoms as patches of pixels, and the test images with the least margin: the worst mistakes, the closest calls."""
    patches = model.dictionary_.patches_
    spread = np.abs(patches).max(axis=(1, 2, 3), keepdims=True)
    grey = 127.5 * (1 + patches / np.where(spread == 0, 1, spread))
    scores = model.decision_function(dataset.x_test)
    scores = np.column_stack([-scores, scores]) if scores.ndim == 1 else scores
    true = np.searchsorted(model.classes_, dataset.y_test)
    of_true = scores[np.arange(len(true)), true].copy()
    rivals = scores.copy()
    rivals[np.arange(len(true)), true] = -np.inf
    margin = of_true - rivals.max(axis=1)
    names = list(dataset.class_names or map(str, model.classes_))

    def shown(rows: np.ndarray) -> dict[str, Any]:
        return {
            "image_shape": dataset.image_shape,
            "images": [
                {
                    "said": f"{names[true[row]]} or {names[rivals[row].argmax()]}? margin {margin[row]:+.2f}".replace(
                        "-", "−"
                    ),
                    "pixels": _encoded(dataset.x_test[row], dataset.x_test.min(), dataset.x_test.max()),
                }
                for row in rows
            ],
        }

    order = np.argsort(margin)
    shape = patches.shape[1:3] if patches.shape[3] == 1 else patches.shape[1:]
    return {
        "atoms": {
            "image_shape": shape,
            "images": [{"said": f"atom {k + 1}", "pixels": _encoded(atom, 0.0, 255.0)} for k, atom in enumerate(grey[:256])],
        },
        "worst": shown(order[margin[order] <= 0][:SHOWN]),
        "closest": shown(order[margin[order] > 0][:SHOWN]),
    }


def _encoded(pixels: np.ndarray, low: float, high: float) -> str:
    scaled = (np.asarray(pixels, dtype=np.float64) - low) * (255 / max(float(high) - float(low), 1e-12))
    return base64.b64encode(np.rint(scaled).astype(np.uint8).tobytes()).decode()


_ATOMS_VIEWS = (
    Pictures("atoms", "The atoms, as patches of pixels", captions=False),
    Curve(x="n_atoms", log_x=True, title="Error against the number of atoms"),
    Table(metrics=("error", "seconds", "predict_seconds", "peak_mb"), rows=("n_atoms",)),
    Pictures("worst", "The worst mistakes: the true class, its rival, and how far behind it is"),
    Pictures("closest", "The closest calls among what is right"),
    Confusion(),
    Gallery(),
)


def _atoms(name: str, on: str, estimator: Any, finding: str) -> Spec:
    return Spec(
        paper="images",
        name=name,
        title="Error against the number of atoms",
        on=on,
        about="ImageClassifier: patches are compared with the atoms of a dictionary, their likenesses averaged over a "
        "grid of cells, and a least-squares machine is fitted to all images. C is chosen by leave-one-out.",
        finding=finding,
        data=name.split("-")[0],
        estimator=estimator,
        grid=product(n_atoms=[32, 64, 128, 256]),
        seeds=(0, 1, 2),
        pictures=atoms_and_hard_images,
        views=_ATOMS_VIEWS,
        headline={"n_atoms": 256},
        chosen="the library's default for grey images",
        quick={"estimator": classifier_8, "grid": product(n_atoms=[8, 16, 32, 64]), "seeds": (0,)}
        if name.startswith("usps")
        else None,
    )


SPECS: tuple[Spec, ...] = (
    _atoms("usps-atoms", "USPS", classifier_16, "The best figure of the papers is 4.81 %, of RiSVO."),
    _atoms("mnist-atoms", "MNIST", classifier_28, "The best figure of the papers is 0.85 %."),
    Spec(
        paper="images",
        name="usps-steps",
        title="What each step of the dictionary is worth",
        on="USPS",
        about="PatchDictionary with one of its steps left out at a time: whitening of the patches, the negatives of the "
        "atoms, the square root of the averages, and the grid of cells (then one average over the whole image). The same "
        "machine, with C = 100, on each.",
        data="usps",
        features=dictionary_16,
        estimator=cosine_machine,
        grid=product(without=STEPS, n_atoms=[256]),
        seeds=(0, 1, 2),
        views=(Table(metrics=("error", "feature_seconds", "seconds"), rows=("without",)), Confusion(), Gallery()),
        headline={"without": "nothing"},
        chosen="all steps, with the library's default number of atoms",
        quick={"features": dictionary_8, "grid": product(without=STEPS, n_atoms=[32]), "seeds": (0,)},
    ),
)
