"""Experiments of the paper "prototypes": error against the number of prototypes, with patches and with whole images.

The classifier is a least-squares SVM with the kernel <x, y>^4 and a ridge of 1e-6, fitted to spherical k-means prototypes.
K-means stops when the mean rotation of the prototypes of a class is below 1e-6, as printed.
"""

from __future__ import annotations

import itertools
from typing import Any

from gramless.papers.datasets import Dataset, load
from gramless.papers.experiments.claims import Comparison, Printed, read_claims
from gramless.papers.experiments.spec import Params

BETA = 1e-6
# A bound that the stopping rule reaches first.
MOST_ITERATIONS = 1000
_KERNEL: dict[str, Any] = {"kernel": "poly", "degree": 4, "gamma": 1.0, "coef0": 0.0, "C": 1e6}


def prototype_classifier(params: Params, seed: int) -> Any:
    """Return the classifier of the paper, whose linear system is solved by a factorisation."""
    from gramless import PrototypeLSSVC

    return PrototypeLSSVC(
        n_prototypes=params["n_prototypes"],
        refit=params.get("refit", False),
        **_KERNEL,
        solver="cholesky",
        kmeans_max_iter=MOST_ITERATIONS,
        kmeans_tol=BETA,
        random_state=seed,
    )


def patch_classifier(params: Params, seed: int) -> Any:
    from gramless import PatchClassifier

    return PatchClassifier(prototype_classifier(params, seed), patch_size=25)


def small_patch_classifier(params: Params, seed: int) -> Any:
    return patch_classifier(params, seed).set_params(patch_size=6)


def classifier_of_method(params: Params, seed: int) -> Any:
    """Return the classifier on 500 prototypes for each class, or a least-squares SVM on all rows."""
    from gramless import LSSVC

    if params["method"] == "prototypes":
        return prototype_classifier({"n_prototypes": 500}, seed)
    return LSSVC(**_KERNEL, solver=params["method"], tol=1e-3, random_state=seed)


def unit_vectors(params: Params, seed: int) -> Any:
    from gramless.images import UnitNormalizer

    return UnitNormalizer()


def part_of_mnist(seed: int) -> Dataset:
    """Return 20,000 random training images, whose matrix fits into the memory of a small computer, and all test images."""
    return load("mnist").sample(20_000, seed=seed)


def _patches(n_prototypes: int) -> Params:
    return {"refit": False, "n_prototypes": n_prototypes}


def _compared(large: int, relation: str, small: int) -> Comparison:
    return Comparison("mnist-patches", _patches(large), relation, _patches(small))


CLAIMS = read_claims(
    "prototypes",
    {
        "error-4000": (Comparison("mnist-patches", _patches(4000), "near", Printed("0.89")),),
        "error-falls": tuple(
            _compared(large, "below", small) for small, large in itertools.pairwise((100, 500, 1000, 2000, 4000))
        ),
        "optimum": (
            _compared(5000, "at least", 4000),
            *(_compared(4000, "below", small) for small in (100, 500, 1000, 2000)),
        ),
        "faster": (
            Comparison("mnist-time", {"method": "prototypes"}, "below", {"method": "cholesky"}, "cpu_seconds", factor=1.0),
        ),
        "robust": (),
    },
)
