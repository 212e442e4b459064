"""The experiments of the paper "prototypes": error against the number of prototypes, with patches and without."""

from __future__ import annotations

import itertools
from typing import Any

from gramless.papers.experiments.claims import Claim, Comparison
from gramless.papers.experiments.spec import Params, Reference, Spec, product
from gramless.papers.experiments.views import Confusion, Curve, Gallery, Table

# Up to here two cores do it within this memory; beyond, the system is large and a device takes what it has.
LARGEST_WITHIN_BUDGET = 1000
BUDGET = "6GB"

# Later passes turn the centroids by a fraction of a degree, and the error by less than another seed does.
PASSES = 20

SIZES = [100, 500, 1000, 2000, 4000]
GRID = product(n_prototypes=SIZES, refit=[False]) + product(n_prototypes=[100, 500, 1000], refit=[True])


def budget(params: Params) -> str | None:
    return BUDGET if params["n_prototypes"] <= LARGEST_WITHIN_BUDGET else None


def on_prototypes(params: Params, seed: int) -> Any:
    from gramless import PrototypeLSSVC

    return PrototypeLSSVC(
        n_prototypes=params["n_prototypes"],
        refit=params["refit"],
        kernel="poly",
        degree=4,
        gamma=1.0,
        coef0=0.0,
        C=1e6,
        kmeans_max_iter=PASSES,
        memory_budget=budget(params),
        random_state=seed,
    )


def vote_of_patches(params: Params, seed: int) -> Any:
    from gramless import PatchClassifier

    return PatchClassifier(on_prototypes(params, seed), patch_size=25, memory_budget=budget(params))


def vote_of_small_patches(params: Params, seed: int) -> Any:
    return vote_of_patches(params, seed).set_params(patch_size=6)


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
        paper="prototypes",
        name="mnist-patches",
        title="Prototypes of overlapping patches, and a vote",
        on="MNIST",
        about="Every image is a set of overlapping patches; a spherical k-means sums up those of each class, and a "
        "least-squares machine with the kernel <x, y>^4 and a ridge of 1e-6 is solved on the prototypes alone. With refit, "
        "which the paper does not have, the coefficients are fitted to all patches.",
        finding="Sixteen patches of 25 x 25 pixels for each image, 96,000 or so for each class.",
        headline={"n_prototypes": 4000, "refit": False},
        chosen="the paper's setting",
        data="mnist",
        estimator=vote_of_patches,
        grid=GRID,
        views=VIEWS,
        paper_says=(Reference(0.89, "Fig. 1", {"n_prototypes": 4000, "refit": False}),),
        quick={"estimator": vote_of_small_patches, "grid": product(n_prototypes=[5, 20, 50], refit=[False, True])},
    ),
    Spec(
        paper="prototypes",
        name="mnist-whole",
        title="Prototypes of whole images",
        on="MNIST",
        about="The same machine on the images as they are, which shows what the patches and their vote are worth.",
        data="mnist",
        features=unit_vectors,
        estimator=on_prototypes,
        grid=GRID,
        views=VIEWS,
        quick={"grid": product(n_prototypes=[5, 20, 50], refit=[False, True])},
    ),
)


_PLAIN = {"refit": False}
CLAIMS = (
    Claim(
        "4,000 prototypes for each digit err 0.89 %.",
        "Fig. 1",
        (Comparison("mnist-patches", {**_PLAIN, "n_prototypes": 4000}, "near", 0.89),),
    ),
    Claim(
        "The error falls as the number of prototypes grows to 4,000.",
        "Fig. 1",
        tuple(
            Comparison(
                "mnist-patches", {**_PLAIN, "n_prototypes": large}, "below", {**_PLAIN, "n_prototypes": small}, within=0.0
            )
            for small, large in itertools.pairwise(SIZES)
        ),
    ),
    Claim(
        "The classifier is much faster than a least-squares SVM on all images.",
        "Conclusion",
        (
            Comparison(
                "mnist-whole",
                {**_PLAIN, "n_prototypes": 1000},
                "below",
                {},
                "seconds",
                factor=1.0,
                within=0.0,
                other_experiment="randomized/mnist-exact",
            ),
        ),
        note="Compared are 1,000 prototypes of whole images with a solve on all 60,000 by preconditioned conjugate "
        "gradients, not with a solution of cubic cost, and k-means is counted.",
    ),
    Claim("The classifier is more robust.", "Conclusion", note="The paper does not say against what."),
)
