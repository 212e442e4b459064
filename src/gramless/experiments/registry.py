"""The five papers and the experiments declared for each."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from gramless.experiments.spec import Spec


@dataclass(frozen=True)
class Paper:
    """What the report says about a paper before it shows its experiments.

    Parameters
    ----------
    title : str
        A heading.
    citation : str
        Authors, title and year.
    summary : str
        A sentence or two.

    See Also
    --------
    specs : The experiments of a paper.

    Examples
    --------
    >>> from gramless.experiments import PAPERS
    >>> PAPERS["risvo"].title
    'Multiclass RiSVO'
    """

    title: str
    citation: str
    summary: str


PAPERS: dict[str, Paper] = {
    "randomized": Paper(
        "Randomized block solvers",
        "M. Andrecut, Randomized Kernel Methods for Least-Squares Support Vector Machines, 2016",
        "Solve the least-squares SVM a random block of equations at a time, so that no more than one "
        "block of the kernel matrix ever exists: a Nyström committee, block Kaczmarz, block matching "
        "pursuit and their hybrid.",
    ),
    "budget": Paper(
        "Learning on a budget",
        "Large-scale least-squares SVMs: online learning on a budget",
        "Keep only a share of the training points in the model and learn their coefficients online, "
        "against Nyström and random Fourier features of the same size.",
    ),
    "risvo": Paper(
        "Multiclass RiSVO",
        "Multiclass ridge-adjusted slack variable optimisation with a selected kernel basis",
        "Ridge regression on a chosen kernel basis, repeated on the patterns that still matter: "
        "outliers and patterns that are already clear leave the active set.",
    ),
    "prototypes": Paper(
        "Prototypes and patches",
        "The k-means kernel classifier",
        "Spherical k-means shrinks each class to a few prototypes, a least-squares SVM is fitted on "
        "those, and overlapping patches of an image vote.",
    ),
    "smo": Paper(
        "Kernel SVM by SMO",
        "M. Elbayad, Machine Learning with Kernel Methods, project report",
        "Support vector machines from the ground up on 5,000 digits: deskewing, blurring and HOG "
        "features, sums and products of kernels, multiple kernel learning, one-vs-one and one-vs-rest.",
    ),
}


def specs(paper: str = "all") -> tuple[Spec, ...]:
    """List the declared experiments of one paper, or of all five in order.

    Parameters
    ----------
    paper : str, default="all"
        Its short name.

    Returns
    -------
    tuple of Spec
        The experiments.

    See Also
    --------
    run : Runs them.

    Examples
    --------
    >>> from gramless.experiments import specs
    >>> all(spec.paper == "smo" for spec in specs("smo"))
    True
    """
    if paper == "all":
        return tuple(spec for name in PAPERS for spec in specs(name))
    if paper not in PAPERS:
        raise ValueError(f"unknown paper {paper!r}; known are {', '.join(PAPERS)} and all")
    return tuple(importlib.import_module(f"gramless.experiments.{paper}").SPECS)
