"""The experiments of the paper "smo": its table of kernels row by row, and one-vs-one against one-vs-rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gramless.papers.datasets import Dataset, load
from gramless.papers.experiments.claims import Claim, Comparison
from gramless.papers.experiments.spec import Params, Reference, Spec, product
from gramless.papers.experiments.views import Confusion, Gallery, Table

PER_CLASS = 500
ALL_STEPS = "deskewed, trimmed, blurred"
TRIMMED_ONLY = "trimmed"
NOT_TRIMMED = "deskewed, blurred"
BY_MOMENTS = "deskewed by moments, trimmed, blurred"
UNCHANGED = "as they are"  # digits of 8 x 8 pixels lose more than they gain

# Row of the table -> the weight of the positive class in each one-vs-rest problem.
ROWS: dict[str, float] = {
    "raw linear": 1.0,
    "raw poly 3": 1.0,
    "raw poly 5": 1.0,
    "raw rbf 4": 2.0,
    "raw rbf 7": 2.0,
    "raw rbf 10": 2.0,
    "hog linear": 1.0,
    "hog intersection": 1.0,
    "hog rbf 2": 1.0,
    "hog rbf 4": 1.0,
    "product": 2.0,
    "product with sums": 3.0,
    "mkl": 3.0,
}


def first_of_each_class(seed: int) -> Dataset:
    """The first 500 training images of each digit; the 10,000 test images stand in for the leader board."""
    mnist = load("mnist")
    chosen = np.sort(np.concatenate([np.flatnonzero(mnist.y_train == c)[:PER_CLASS] for c in np.unique(mnist.y_train)]))
    return replace(mnist, x_train=mnist.x_train[chosen], y_train=mnist.y_train[chosen], split="first 500 of each class")


def pixels_and_edges(params: Params, seed: int) -> Any:
    """Cleaned images as pixels in [0, 1], followed by histograms of their gradients."""
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.preprocessing import FunctionTransformer

    from gramless.images import HOG, Crop, Deskew, GaussianBlur, Scale01

    steps: list[Any] = []
    if "deskewed" in params["images"]:
        steps.append(Deskew("moments" if "moments" in params["images"] else "hough"))
    if "trimmed" in params["images"]:
        steps.append(Crop())
    if "blurred" in params["images"]:
        steps.append(GaussianBlur(1.0))
    return make_pipeline(*steps, Scale01(), make_union(FunctionTransformer(), HOG(cell=4, bins=9, blocks=2)))


def kernel_of(row: str, n_pixels: int) -> Any:
    """The kernel of a row of the table on the columns it looks at."""
    from gramless.kernels import RBF, Columns, Intersection, Linear, Polynomial

    pixels, edges = slice(0, n_pixels), slice(n_pixels, None)

    def gaussian(sigma: float) -> RBF:
        return RBF(gamma=1 / (2 * sigma**2))

    k1, k2, k3 = Columns(gaussian(7), pixels), Columns(gaussian(4), edges), Columns(Linear(), edges)
    named = {
        "raw linear": Linear(),
        "hog linear": Linear(),
        "hog intersection": Intersection(),
        "product": k1 * k2,
        "product with sums": k1 * (k2 + k3 + k2 * k3),
    }
    if row in named:
        kernel = named[row]
    else:
        _, family, number = row.split()
        kernel = gaussian(float(number)) if family == "rbf" else Polynomial(int(number), gamma=1.0, coef0=1.0)
    if row.startswith("product"):
        return kernel
    return Columns(kernel, pixels if row.startswith("raw") else edges)


def machine(params: Params, seed: int) -> Any:
    """The support vector machine of a row, with C = 10 for the negative side."""
    from gramless import KernelSVC, MKLClassifier

    row, n_pixels = params["kernel"], params.get("n_pixels", 784)
    settings = {"C": 10.0, "multi_class": "ovr", "positive_weight": ROWS[row], "memory_budget": "3GB", "random_state": seed}
    if row == "mkl":
        from gramless.kernels import RBF, Columns, Linear

        pixels, edges = slice(0, n_pixels), slice(n_pixels, None)
        kernels = [Columns(RBF(1 / 98), pixels), Columns(RBF(1 / 32), edges), Columns(Linear(), edges)]
        return MKLClassifier(kernels, p=2.0, **settings)
    return KernelSVC(kernel_of(row, n_pixels), **settings)


def machine_by_strategy(params: Params, seed: int) -> Any:
    """The same machine, one-vs-one or one-vs-rest, both sides of a problem weighted alike."""
    from gramless import KernelSVC

    return KernelSVC(
        kernel_of(params["kernel"], params.get("n_pixels", 784)),
        C=10.0,
        multi_class=params["strategy"],
        break_ties=True,
        probability="sigmoid",
        memory_budget="3GB",
        random_state=seed,
    )


def error_of_probabilities(estimator: Any, dataset: Dataset) -> Mapping[str, float]:
    """The error when the most probable class is named instead of the one with most votes or the largest score."""
    named = estimator.classes_[estimator.predict_proba(dataset.x_test).argmax(axis=1)]
    return {"error_of_probabilities": 100 * float(np.mean(named != dataset.y_test))}


def says(accuracy: float, row: str, images: str = ALL_STEPS, metric: str = "cv_error") -> Reference:
    """A figure of Table 1, turned from accuracy into error."""
    return Reference(round(100 - accuracy, 2), "Table 1", {"kernel": row, "images": images}, metric)


# Accuracy by cross-validation and on the leader board, in percent.
PAPER: dict[tuple[str, str], tuple[float, float | None]] = {
    ("raw linear", ALL_STEPS): (87.3, None),
    ("raw poly 3", ALL_STEPS): (95.8, None),
    ("raw poly 5", ALL_STEPS): (95.1, None),
    ("raw rbf 4", ALL_STEPS): (95.7, None),
    ("raw rbf 7", ALL_STEPS): (96.1, None),
    ("raw rbf 10", ALL_STEPS): (95.9, 95.42),
    ("hog linear", ALL_STEPS): (92.3, None),
    ("hog intersection", ALL_STEPS): (93.7, None),
    ("hog rbf 2", ALL_STEPS): (96.1, None),
    ("hog rbf 4", ALL_STEPS): (96.0, None),
    ("product", ALL_STEPS): (96.9, None),
    ("product with sums", ALL_STEPS): (97.1, 97.26),
    ("product with sums", TRIMMED_ONLY): (97.0, 97.08),
    ("product with sums", NOT_TRIMMED): (94.9, None),
    ("mkl", ALL_STEPS): (97.2, None),
}

TABLE = (
    product(kernel=list(ROWS), images=[ALL_STEPS])
    + product(kernel=["product with sums"], images=[TRIMMED_ONLY, NOT_TRIMMED])
    + product(kernel=["product", "product with sums"], images=[BY_MOMENTS])
)

SPECS = (
    Spec(
        paper="smo",
        name="table",
        title="Kernels on pixels and gradients",
        on="MNIST, the first 500 images of each digit",
        about="Support vector machines, one-vs-rest: each kernel on pixels, on histograms of gradients, their products and "
        "sums, and a learnt sum.",
        finding="The last two rows straighten the digits by their moments instead of a Hough transform, which the paper "
        "does not do.",
        data=first_of_each_class,
        features=pixels_and_edges,
        estimator=machine,
        grid=TABLE,
        folds=5,
        views=(
            Table(metrics=("cv_error", "error", "seconds", "predict_seconds", "peak_mb"), rows=("kernel", "images")),
            Confusion(),
            Gallery(),
        ),
        paper_says=tuple(
            says(accuracy, row, images, metric)
            for (row, images), figures in PAPER.items()
            for metric, accuracy in zip(("cv_error", "error"), figures, strict=True)
            if accuracy is not None
        ),
        quick={
            "grid": tuple(
                {**params, "n_pixels": 64}
                for params in product(kernel=["raw rbf 7", "hog intersection", "product", "mkl"], images=[UNCHANGED])
            ),
            "folds": 3,
        },
    ),
    Spec(
        paper="smo",
        name="strategies",
        title="One-vs-one against one-vs-rest",
        on="MNIST, the first 500 images of each digit",
        about="Ten machines of one class against the rest, or 45 of pairs that vote. The extra column "
        "names the most probable class: coupled pairwise probabilities for the one, normalised sigmoids for the other.",
        headline={"kernel": "product", "strategy": "ovr"},
        chosen="the paper's strategy with its product of kernels",
        data=first_of_each_class,
        features=pixels_and_edges,
        estimator=machine_by_strategy,
        grid=product(kernel=["raw rbf 7", "hog rbf 4", "product"], images=[ALL_STEPS], strategy=["ovo", "ovr"]),
        extras=error_of_probabilities,
        views=(
            Table(
                metrics=("error", "error_of_probabilities", "seconds", "predict_seconds", "peak_mb"),
                rows=("kernel", "strategy"),
            ),
        ),
        quick={
            "grid": tuple(
                {**params, "n_pixels": 64}
                for params in product(kernel=["raw rbf 7", "product"], images=[UNCHANGED], strategy=["ovo", "ovr"])
            ),
        },
    ),
)


def _row(kernel: str, images: str = ALL_STEPS) -> Params:
    return {"kernel": kernel, "images": images}


_BEST = "product with sums"
CLAIMS = (
    Claim(
        "Fifteen settings reach by cross-validation the accuracies of Table 1, from 87.3 to 97.2 %.",
        "Section 6.4, Table 1",
        tuple(
            Comparison("table", _row(row, images), "near", 100 - figures[0], "cv_error")
            for (row, images), figures in PAPER.items()
        ),
        note="The paper does not describe its features to the last detail. Ours err less in every row.",
    ),
    Claim(
        "On new images the product with sums reaches 97.26 %, and 97.08 % without blurring and deskewing.",
        "Section 6.4, Table 1",
        (
            Comparison("table", _row(_BEST), "near", 100 - 97.26),
            Comparison("table", _row(_BEST, TRIMMED_ONLY), "near", 100 - 97.08),
        ),
        note="The paper's new images are a leader board's, ours the 10,000 test images of MNIST.",
    ),
    Claim(
        "Blurring and deskewing help the best kernel, and trimming helps it more.",
        "Section 6.4, Table 1",
        tuple(
            Comparison("table", _row(_BEST), "below", _row(_BEST, images), "cv_error", within=0.0)
            for images in (TRIMMED_ONLY, NOT_TRIMMED)
        ),
    ),
    Claim(
        "Products of kernels on pixels and gradients do better than any kernel on one of the two.",
        "Section 6.4, Table 1",
        tuple(
            Comparison("table", _row("product"), "below", _row(row), "cv_error", within=0.0)
            for row in ROWS
            if row.split()[0] in ("raw", "hog")
        ),
    ),
    Claim(
        "Products of kernels generally do better than a learnt sum, multiple kernel learning.",
        "Conclusion",
        tuple(
            Comparison("table", _row(product_of), "below", _row("mkl"), "cv_error", within=0.0)
            for product_of in ("product", _BEST)
        ),
        note="In the paper's own Table 1 the learnt sum is 0.1 points ahead.",
    ),
    Claim(
        "Multiple kernel learning by SMO is much slower than a plain support vector machine.",
        "Conclusion",
        (Comparison("table", _row("mkl"), "above", _row("product"), "seconds", factor=2.0, within=0.0),),
        note="More than twice the time counts as much slower. The library's solver is not the paper's.",
    ),
    Claim(
        "One-vs-one is generally less accurate than one-vs-rest with Platt's probabilities.",
        "Conclusion",
        (
            Comparison(
                "strategies",
                {"strategy": "ovo"},
                "above",
                {"strategy": "ovr"},
                along="kernel",
                within=0.0,
            ),
        ),
    ),
)
