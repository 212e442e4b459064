"""Experiments of the paper "prototypes": error against the number of prototypes, with patches and with whole images.

The classifier is a least-squares SVM with the kernel <x, y>^4 and a ridge of 1e-6, fitted to spherical k-means prototypes.
"""

from __future__ import annotations

import itertools
from typing import Any

from gramless.papers.experiments.claims import Cause, Claim, Comparison, Printed
from gramless.papers.experiments.spec import Confusion, Curve, Gallery, Params, Reference, Spec, Table, product

# Fits with more prototypes per class than this do not run within the budget and use all memory of the device.
MAX_PROTOTYPES_IN_BUDGET = 1000
MEMORY_BUDGET = "6GB"
# Further k-means iterations change the error by less than the variation between seeds.
KMEANS_ITERATIONS = 20

SIZES = [100, 500, 1000, 2000, 4000]
GRID = product(n_prototypes=SIZES, refit=[False]) + product(n_prototypes=[100, 500, 1000], refit=[True])
QUICK_GRID = product(n_prototypes=[5, 20, 50], refit=[False, True])


def _memory_budget(params: Params) -> str | None:
    return MEMORY_BUDGET if params["n_prototypes"] <= MAX_PROTOTYPES_IN_BUDGET else None


def prototype_classifier(params: Params, seed: int) -> Any:
    from gramless import PrototypeLSSVC

    return PrototypeLSSVC(
        n_prototypes=params["n_prototypes"],
        refit=params["refit"],
        kernel="poly",
        degree=4,
        gamma=1.0,
        coef0=0.0,
        C=1e6,
        kmeans_max_iter=KMEANS_ITERATIONS,
        memory_budget=_memory_budget(params),
        random_state=seed,
    )


def patch_classifier(params: Params, seed: int) -> Any:
    from gramless import PatchClassifier

    return PatchClassifier(prototype_classifier(params, seed), patch_size=25, memory_budget=_memory_budget(params))


def small_patch_classifier(params: Params, seed: int) -> Any:
    return patch_classifier(params, seed).set_params(patch_size=6)


def unit_vectors(params: Params, seed: int) -> Any:
    from gramless.images import UnitNormalizer

    return UnitNormalizer()


VIEWS = (
    Curve(x="n_prototypes", series=("refit",), log_x=True, log_y=True, title="Error against prototypes per class"),
    Table(metrics=("error", "seconds", "predict_seconds", "peak_mb"), rows=("n_prototypes", "refit")),
    Confusion(),
    Gallery(),
)

SPECS = (
    Spec(
        "prototypes",
        "mnist-patches",
        "Prototypes of overlapping patches that vote",
        data="mnist",
        data_label="MNIST",
        about="Every image is a set of overlapping patches. Spherical k-means computes prototypes of the patches of each "
        "class, and a least-squares SVM with the kernel <x, y>^4 and a ridge of 1e-6 is fitted to the prototypes. With "
        "refit, which is not in the paper, its coefficients are fitted to all patches.",
        finding="Sixteen patches of 25 x 25 pixels for each image, about 96,000 for each class.",
        estimator=patch_classifier,
        grid=GRID,
        views=VIEWS,
        headline={"n_prototypes": 4000, "refit": False},
        headline_reason="the setting of the paper",
        references=(Reference(0.89, "Fig. 1", {"n_prototypes": 4000, "refit": False}),),
        quick={"estimator": small_patch_classifier, "grid": QUICK_GRID},
    ),
    Spec(
        "prototypes",
        "mnist-whole",
        "Prototypes of whole images",
        data="mnist",
        data_label="MNIST",
        about="The same classifier on whole images. The difference is the effect of the patches and their vote.",
        features=unit_vectors,
        estimator=prototype_classifier,
        grid=GRID,
        views=VIEWS,
        quick={"grid": QUICK_GRID},
    ),
)


def _patches(n_prototypes: int) -> Params:
    return {"refit": False, "n_prototypes": n_prototypes}


CLAIMS = (
    Claim(
        "error-4000",
        "4,000 prototypes for each digit have an error of 0.89 %.",
        "Fig. 1",
        (Comparison("mnist-patches", _patches(4000), "near", Printed("0.89")),),
    ),
    Claim(
        "error-falls",
        "The error falls as the number of prototypes grows to 4,000.",
        "Fig. 1",
        tuple(
            Comparison("mnist-patches", _patches(large), "below", _patches(small), within=0.0)
            for small, large in itertools.pairwise(SIZES)
        ),
    ),
    Claim(
        "faster-than-all-images",
        "The classifier is much faster than a least-squares SVM on all images.",
        "Conclusion",
        (
            Comparison(
                "mnist-whole",
                _patches(1000),
                "below",
                {},
                "seconds",
                factor=1.0,
                within=0.0,
                other_experiment="randomized/mnist-exact",
            ),
        ),
        reason="Compared are 1,000 prototypes of whole images, including k-means, with preconditioned conjugate gradients "
        "on all 60,000 images, which is not a solution of cubic cost.",
    ),
    Claim(
        "robust",
        "The classifier is more robust.",
        "Conclusion",
        cause=Cause.UNSPECIFIED,
        reason="The paper names neither a kind of robustness nor a method for comparison.",
    ),
)
