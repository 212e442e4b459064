"""The five documents and the experiments declared for each."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from gramless.experiments.spec import Spec


@dataclass(frozen=True)
class Document:
    """What the report says about a document before it shows its experiments."""

    title: str
    citation: str
    summary: str


DOCUMENTS: dict[str, Document] = {
    "randomized": Document(
        "Randomized block solvers",
        "M. Andrecut, Randomized Kernel Methods for Least-Squares Support Vector Machines, 2016",
        "Solve the least-squares SVM a random block of equations at a time, so that no more than one "
        "block of the kernel matrix ever exists: a Nyström committee, block Kaczmarz, block matching "
        "pursuit and their hybrid.",
    ),
    "budget": Document(
        "Learning on a budget",
        "Large-scale least-squares SVMs: online learning on a budget",
        "Keep only a share of the training points in the model and learn their coefficients online, "
        "against Nyström and random Fourier features of the same size.",
    ),
    "risvo": Document(
        "Multiclass RiSVO",
        "Multiclass ridge-adjusted slack variable optimisation with a selected kernel basis",
        "Ridge regression on a chosen kernel basis, repeated on the patterns that still matter: "
        "outliers and patterns that are already clear leave the active set.",
    ),
    "prototypes": Document(
        "Prototypes and patches",
        "The k-means kernel classifier",
        "Spherical k-means shrinks each class to a few prototypes, a least-squares SVM is fitted on "
        "those, and overlapping patches of an image vote.",
    ),
    "smo": Document(
        "Kernel SVM by SMO",
        "M. Elbayad, Machine Learning with Kernel Methods, project report",
        "Support vector machines from the ground up on 5,000 digits: deskewing, blurring and HOG "
        "features, sums and products of kernels, multiple kernel learning, one-vs-one and one-vs-rest.",
    ),
}


def specs(document: str = "all") -> tuple[Spec, ...]:
    """The declared experiments of one document, or of all five in order.

    Examples
    --------
    >>> from gramless.experiments import specs
    >>> all(spec.document == "smo" for spec in specs("smo"))
    True
    """
    if document == "all":
        return tuple(spec for name in DOCUMENTS for spec in specs(name))
    if document not in DOCUMENTS:
        raise ValueError(f"unknown document {document!r}; known are {', '.join(DOCUMENTS)} and all")
    return tuple(importlib.import_module(f"gramless.experiments.{document}").SPECS)
