"""Experiments of the paper "smo": its table of kernels, its two algorithms, and one-vs-one against one-vs-rest.

The paper names cleaning steps only in the last rows of its table, and neither the cells nor the normalisation of its
histograms of gradients. The other rows are therefore run on unchanged and on trimmed images, with two kinds of histograms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gramless.papers.datasets import Dataset
from gramless.papers.experiments.declarations import Params

# Histograms of gradients: sums of magnitudes as they are, or each histogram scaled to unit length. Of six combinations of
# cells and normalisations, the first had the highest cross-validated accuracy without normalisation, and the second the
# accuracies nearest to those of the paper.
HISTOGRAMS: dict[str, dict[str, Any]] = {
    "plain": {"cell": 4, "norm": "none"},
    "unit length": {"cell": 7, "norm": "l2"},
}
# Penalty of the kernel weights with which their sum is about one.
WEIGHT_PENALTY = 100.0

# Weight of the positive class in the one-vs-rest problems of a row of the table; 1 for the other rows.
POSITIVE_WEIGHTS = {
    "product": 2.0,
    "product with sums": 3.0,
    "mkl": 3.0,
    "raw rbf 4": 2.0,
    "raw rbf 7": 2.0,
    "raw rbf 10": 2.0,
}


def pixels_and_gradients(params: Params, seed: int) -> Any:
    """Return a transformer to the pixels of the cleaned images in [0, 1], followed by histograms of their gradients."""
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.preprocessing import FunctionTransformer

    from gramless.images import HOG, Crop, Deskew, GaussianBlur, MedianFilter, Scale01

    steps: list[Any] = []
    if "deskewed" in params["images"]:
        steps.append(Deskew("moments" if "moments" in params["images"] else "hough"))
    if "trimmed" in params["images"]:
        steps.append(Crop())
    if "blurred" in params["images"]:
        steps.append(GaussianBlur(1.0))
    if "median" in params["images"]:
        steps.append(MedianFilter(3))
    parts: list[Any] = [FunctionTransformer()]
    if "histograms" in params:
        parts.append(HOG(bins=9, blocks=1, **HISTOGRAMS[params["histograms"]]))
    return make_pipeline(*steps, Scale01(), make_union(*parts))


def _kernel(row: str, n_pixels: int) -> Any:
    """Return the kernel of a row of the table on the columns that it uses; for "mkl", the list of kernels."""
    from gramless.kernels import RBF, Chi2, Columns, ExpChi2, Intersection, Linear, Polynomial

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
        kernel = {"linear": Linear, "intersection": Intersection, "chi2": Chi2, "expchi2": ExpChi2}[family]()
    return Columns(kernel, pixels if columns == "raw" else gradients)


def classifier(params: Params, seed: int) -> Any:
    """Return the one-vs-rest support vector machines of a row, with C = 10 for the negative class.

    Multiple kernel learning has other weights in each one-vs-rest problem. With `solver="simple_smo"` the algorithms are
    those of the paper.
    """
    from sklearn.multiclass import OneVsRestClassifier

    from gramless import KernelSVC, MKLClassifier

    row = params["kernel"]
    kernel = _kernel(row, params.get("n_pixels", 784))
    settings = {
        "C": 10.0,
        "positive_weight": POSITIVE_WEIGHTS.get(row, 1.0),
        "solver": params.get("solver", "smo"),
        "memory_budget": "3GB",
        "random_state": seed,
    }
    if row == "mkl":
        return OneVsRestClassifier(MKLClassifier(kernel, weight_penalty=WEIGHT_PENALTY, **settings))
    return KernelSVC(kernel, multi_class="ovr", **settings)


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
