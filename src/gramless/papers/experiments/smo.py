"""Experiments of the paper "smo": its table of kernels, its two algorithms, and one-vs-one against one-vs-rest.

The paper states the cleaning of images only for the last rows of its table, and does not state the cells and normalisation
of its histograms of gradients. The experiments therefore use both unchanged and trimmed images for the rows without a stated
cleaning, and two kinds of histograms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer

from gramless.estimators.mkl import MKLClassifier
from gramless.estimators.svm import KernelSVC
from gramless.images import HOG, Crop, Deskew, GaussianBlur, MedianFilter, Scale01
from gramless.kernels import RBF, Chi2, Columns, ExpChi2, Intersection, Linear, Polynomial
from gramless.papers.datasets import Dataset
from gramless.papers.experiments.declarations import Params


def pixels_and_gradients(params: Params, seed: int, histograms: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return a transformer of images to cleaned pixels in [0, 1], optionally followed by histograms of gradients."""
    cleaning = {
        "deskewed": Deskew("moments" if "moments" in params["images"] else "hough"),
        "trimmed": Crop(),
        "blurred": GaussianBlur(1.0),
        "median": MedianFilter(3),
    }
    steps = [step for name, step in cleaning.items() if name in params["images"]]
    parts: list[Any] = [FunctionTransformer()]
    if "histograms" in params:
        parts.append(HOG(bins=9, blocks=1, **histograms[params["histograms"]]))
    return make_pipeline(*steps, Scale01(), make_union(*parts))


def _gaussian(sigma: float) -> RBF:
    return RBF(gamma=1 / (2 * sigma**2))


def _kernel(params: Params) -> Any:
    """Return the kernel of a row of the paper's table, on the columns that the kernel uses; for "mkl", a list of kernels."""
    n_pixels = params.get("n_pixels", 784)
    pixels, gradients = slice(0, n_pixels), slice(n_pixels, None)
    k1, k2, k3 = Columns(_gaussian(7), pixels), Columns(_gaussian(4), gradients), Columns(Linear(), gradients)
    combined = {"product": k1 * k2, "product with sums": k1 * (k2 + k3 + k2 * k3), "mkl": [k1, k2, k3]}
    if params["kernel"] in combined:
        return combined[params["kernel"]]
    columns, family, *number = params["kernel"].split()
    if family == "rbf":
        kernel: Any = _gaussian(float(number[0]))
    elif family == "poly":
        kernel = Polynomial(int(number[0]), gamma=1.0, coef0=1.0)
    else:
        kernel = {"linear": Linear, "intersection": Intersection, "chi2": Chi2, "expchi2": ExpChi2}[family]()
    return Columns(kernel, pixels if columns == "raw" else gradients)


def classifier(params: Params, seed: int, positive_weights: Mapping[str, float], weight_penalty: float) -> Any:
    """Return the one-vs-rest support vector machines of a row of the paper's table, with C = 10 for the negative class.

    Multiple kernel learning has separate kernel weights for each one-vs-rest problem. The grid parameter
    `solver="simple_smo"` selects the algorithms of the paper.
    """
    settings = {
        "C": 10.0,
        "positive_weight": positive_weights.get(params["kernel"], 1.0),
        "solver": params.get("solver", "smo"),
        "memory_budget": "3GB",
        "random_state": seed,
    }
    if params["kernel"] == "mkl":
        return OneVsRestClassifier(MKLClassifier(_kernel(params), weight_penalty=weight_penalty, **settings))
    return KernelSVC(_kernel(params), multi_class="ovr", **settings)


def classifier_of_strategy(params: Params, seed: int) -> Any:
    """Return a one-vs-one or one-vs-rest support vector machine with equal weights of the classes."""
    settings: dict[str, Any] = {"C": 10.0, "break_ties": True, "probability": "sigmoid", "memory_budget": "3GB"}
    return KernelSVC(_kernel(params), multi_class=params["strategy"], random_state=seed, **settings)


def error_of_probabilities(estimator: Any, dataset: Dataset) -> Mapping[str, float]:
    """Return the percentage of test rows for which the class with the highest probability is wrong."""
    predicted = estimator.classes_[estimator.predict_proba(dataset.x_test).argmax(axis=1)]
    return {"error_of_probabilities": 100 * float(np.mean(predicted != dataset.y_test))}
