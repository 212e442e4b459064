"""Experiments of the paper "smo": its table of kernels, and one-vs-one in comparison with one-vs-rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gramless.papers.datasets import Dataset, load
from gramless.papers.experiments.claims import Claim, Comparison, Printed
from gramless.papers.experiments.spec import Confusion, Gallery, Params, Reference, Spec, Table, product

PER_CLASS = 500
ALL_STEPS = "deskewed, trimmed, blurred"
TRIMMED_ONLY = "trimmed"
NOT_TRIMMED = "deskewed, blurred"
BY_MOMENTS = "deskewed by moments, trimmed, blurred"
UNCHANGED = "unchanged"  # for digits of 8 x 8 pixels, where the other steps increase the error

# Weight of the positive class in each one-vs-rest problem, by row of the table.
POSITIVE_WEIGHTS: dict[str, float] = {
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

# Table 1 of the paper: accuracy in percent by cross-validation and on the leader board, by kernel and images.
TABLE_1: dict[tuple[str, str], tuple[float, float | None]] = {
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


def first_of_each_class(seed: int) -> Dataset:
    """Return the first 500 training images of each digit; the 10,000 test images replace the leader board."""
    return replace(load("mnist").head(PER_CLASS), split="first 500 of each class")


def pixels_and_gradients(params: Params, seed: int) -> Any:
    """Return a transformer to the pixels of the cleaned images in [0, 1], followed by histograms of their gradients."""
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


def _kernel(row: str, n_pixels: int) -> Any:
    """Return the kernel of a row of the table on the columns that it uses; for "mkl", the list of kernels."""
    from gramless.kernels import RBF, Columns, Intersection, Linear, Polynomial

    def gaussian(sigma: float) -> RBF:
        return RBF(gamma=1 / (2 * sigma**2))

    pixels, gradients = slice(0, n_pixels), slice(n_pixels, None)
    k1, k2, k3 = Columns(gaussian(7), pixels), Columns(gaussian(4), gradients), Columns(Linear(), gradients)
    combined = {"product": k1 * k2, "product with sums": k1 * (k2 + k3 + k2 * k3), "mkl": [k1, k2, k3]}
    if row in combined:
        return combined[row]
    columns, family, *number = row.split()
    if family == "rbf":
        kernel: Any = gaussian(float(number[0]))
    elif family == "poly":
        kernel = Polynomial(int(number[0]), gamma=1.0, coef0=1.0)
    else:
        kernel = {"linear": Linear, "intersection": Intersection}[family]()
    return Columns(kernel, pixels if columns == "raw" else gradients)


def classifier(params: Params, seed: int) -> Any:
    """Return the support vector machine of a row, with C = 10 for the negative class."""
    from gramless import KernelSVC, MKLClassifier

    row = params["kernel"]
    kernel = _kernel(row, params.get("n_pixels", 784))
    settings = {
        "C": 10.0,
        "multi_class": "ovr",
        "positive_weight": POSITIVE_WEIGHTS[row],
        "memory_budget": "3GB",
        "random_state": seed,
    }
    return MKLClassifier(kernel, p=2.0, **settings) if row == "mkl" else KernelSVC(kernel, **settings)


def classifier_of_strategy(params: Params, seed: int) -> Any:
    """Return a one-vs-one or one-vs-rest support vector machine with equal weights of the classes."""
    from gramless import KernelSVC

    return KernelSVC(
        _kernel(params["kernel"], params.get("n_pixels", 784)),
        C=10.0,
        multi_class=params["strategy"],
        break_ties=True,
        probability="sigmoid",
        memory_budget="3GB",
        random_state=seed,
    )


def error_of_probabilities(estimator: Any, dataset: Dataset) -> Mapping[str, float]:
    """Return the error of the class with the highest probability."""
    predicted = estimator.classes_[estimator.predict_proba(dataset.x_test).argmax(axis=1)]
    return {"error_of_probabilities": 100 * float(np.mean(predicted != dataset.y_test))}


def _quick_grid(**axes: Any) -> tuple[dict[str, Any], ...]:
    return tuple({**params, "n_pixels": 64} for params in product(**axes))


SPECS = (
    Spec(
        "smo",
        "table",
        "Kernels on pixels and gradients",
        data=first_of_each_class,
        data_label="MNIST, the first 500 images of each digit",
        about="One-vs-rest support vector machines: kernels on pixels, kernels on histograms of gradients, their products "
        "and sums, and a learned sum.",
        finding="The last two rows deskew the digits by their moments instead of a Hough transform, which is not in the "
        "paper.",
        features=pixels_and_gradients,
        estimator=classifier,
        grid=product(kernel=list(POSITIVE_WEIGHTS), images=[ALL_STEPS])
        + product(kernel=["product with sums"], images=[TRIMMED_ONLY, NOT_TRIMMED])
        + product(kernel=["product", "product with sums"], images=[BY_MOMENTS]),
        folds=5,
        views=(
            Table(metrics=("cv_error", "error", "seconds", "predict_seconds", "peak_mb"), rows=("kernel", "images")),
            Confusion(),
            Gallery(),
        ),
        references=tuple(
            Reference(round(100 - accuracy, 2), "Table 1", {"kernel": row, "images": images}, metric)
            for (row, images), accuracies in TABLE_1.items()
            for metric, accuracy in zip(("cv_error", "error"), accuracies, strict=True)
            if accuracy is not None
        ),
        quick={
            "grid": _quick_grid(kernel=["raw rbf 7", "hog intersection", "product", "mkl"], images=[UNCHANGED]),
            "folds": 3,
        },
    ),
    Spec(
        "smo",
        "strategies",
        "One-vs-one and one-vs-rest",
        data=first_of_each_class,
        data_label="MNIST, the first 500 images of each digit",
        about="Ten classifiers of one class against the rest, or 45 classifiers of pairs that vote. The additional column "
        "is the error of the most probable class: coupled pairwise probabilities for one-vs-one, normalised sigmoids for "
        "one-vs-rest.",
        features=pixels_and_gradients,
        estimator=classifier_of_strategy,
        grid=product(kernel=["raw rbf 7", "hog rbf 4", "product"], images=[ALL_STEPS], strategy=["ovo", "ovr"]),
        extras=error_of_probabilities,
        views=(
            Table(
                metrics=("error", "error_of_probabilities", "seconds", "predict_seconds", "peak_mb"),
                rows=("kernel", "strategy"),
            ),
        ),
        headline={"kernel": "product", "strategy": "ovr"},
        headline_reason="the strategy of the paper with its product of kernels",
        quick={"grid": _quick_grid(kernel=["raw rbf 7", "product"], images=[UNCHANGED], strategy=["ovo", "ovr"])},
    ),
)


def _row(kernel: str, images: str = ALL_STEPS) -> Params:
    return {"kernel": kernel, "images": images}


def _lower_cv_error(one: Params, other: Params) -> Comparison:
    return Comparison("table", one, "below", other, "cv_error", within=0.0)


_BEST = _row("product with sums")
CLAIMS = (
    Claim(
        "table-1",
        "Fifteen settings have the cross-validated accuracies of Table 1, from 87.3 to 97.2 %.",
        "Section 6.4, Table 1",
        tuple(
            Comparison("table", _row(row, images), "near", Printed(f"{accuracies[0]:g}"), "cv_accuracy")
            for (row, images), accuracies in TABLE_1.items()
        ),
        reason="The paper does not describe its features in full detail. Our error is lower in every row.",
    ),
    Claim(
        "leader-board",
        "On new images the product with sums reaches 97.26 %, and 97.08 % without blurring and deskewing.",
        "Section 6.4, Table 1",
        (
            Comparison("table", _BEST, "near", Printed("97.26", other_rows=True), "accuracy"),
            Comparison(
                "table", _row("product with sums", TRIMMED_ONLY), "near", Printed("97.08", other_rows=True), "accuracy"
            ),
        ),
        reason="The new images of the paper are those of a leader board, ours are the 10,000 test images of MNIST.",
    ),
    Claim(
        "cleaning",
        "Blurring and deskewing improve the best kernel, and trimming improves it more.",
        "Section 6.4, Table 1",
        tuple(_lower_cv_error(_BEST, _row("product with sums", images)) for images in (TRIMMED_ONLY, NOT_TRIMMED)),
    ),
    Claim(
        "products",
        "Products of kernels on pixels and gradients have a lower error than any kernel on one of the two.",
        "Section 6.4, Table 1",
        tuple(_lower_cv_error(_row("product"), _row(row)) for row in POSITIVE_WEIGHTS if row.split()[0] in ("raw", "hog")),
    ),
    Claim(
        "products-and-mkl",
        "Products of kernels generally have a lower error than a learned sum, multiple kernel learning.",
        "Conclusion",
        tuple(_lower_cv_error(one, _row("mkl")) for one in (_row("product"), _BEST)),
        reason="In Table 1 of the paper the learned sum is better by 0.1 percentage points.",
    ),
    Claim(
        "mkl-time",
        "Multiple kernel learning by SMO is much slower than a support vector machine with one kernel.",
        "Conclusion",
        (Comparison("table", _row("mkl"), "above", _row("product"), "seconds", factor=2.0, within=0.0),),
        reason="Much slower means more than twice the time here. The library's solver is not that of the paper.",
    ),
    Claim(
        "one-vs-one",
        "One-vs-one is generally less accurate than one-vs-rest with Platt's probabilities.",
        "Conclusion",
        (Comparison("strategies", {"strategy": "ovo"}, "above", {"strategy": "ovr"}, along="kernel", within=0.0),),
    ),
)
