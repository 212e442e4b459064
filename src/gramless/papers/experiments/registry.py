"""The chapters of the report, the five papers first, and the experiments and claims declared for each."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from gramless.papers.experiments.claims import Claim
from gramless.papers.experiments.spec import Spec


@dataclass(frozen=True)
class Paper:
    """What the report says about a paper before it shows its experiments.

    Parameters
    ----------
    heading : str
        What the chapter is called.
    summary : str
        A sentence or two.
    authors : tuple of str
        As on the title page; empty where it names none.
    title : str
        As on the title page.
    year : int or None
        As on the title page.
    note : str
        What else the title page says.

    See Also
    --------
    specs : The experiments of a paper.
    claims : What the paper claims.

    Examples
    --------
    >>> from gramless.papers.experiments import PAPERS
    >>> PAPERS["prototypes"].citation
    'Karthik Kurugodu and Nikhil Kongara, KMeans Kernel Classifier, 2023. IIT Hyderabad, November 24, 2023.'
    """

    heading: str
    summary: str
    authors: tuple[str, ...] = ()
    title: str = ""
    year: int | None = None
    note: str = ""

    @property
    def citation(self) -> str:
        """Authors, title, year and what else is known, as a sentence; empty for a chapter without a paper."""
        if not self.title:
            return ""
        *most, last = self.authors or ("Anonymous authors",)
        authors = f"{', '.join(most)} and {last}" if most else last
        year = "" if self.year is None else f", {self.year}"
        return f"{authors}, {self.title}{year}. {self.note}".strip()

    def bibtex(self, key: str) -> str:
        """Write the paper as an entry of BibTeX.

        Parameters
        ----------
        key : str
            What the entry is cited by.

        Returns
        -------
        str
            The entry, with what its title page says and nothing else.
        """
        fields = {
            "author": " and ".join(self.authors) or "{Anonymous authors}",
            "title": f"{{{self.title}}}",
            "year": "" if self.year is None else str(self.year),
            "note": self.note.rstrip("."),
        }
        lines = [f"  {name} = {{{given}}}," for name, given in fields.items() if given]
        return "\n".join([f"@misc{{{key},", *lines, "}"])


PAPERS: dict[str, Paper] = {
    "randomized": Paper(
        "Randomized block solvers",
        "Solve the least-squares SVM a random block of equations at a time, so that no more than one "
        "block of the kernel matrix ever exists: a Nyström committee, block Kaczmarz, block matching "
        "pursuit and their hybrid.",
        ("M. Andrecut",),
        "Randomized Kernel Methods for Least-Squares Support Vector Machines",
        2016,
        "June 23, 2016.",
    ),
    "budget": Paper(
        "Learning on a budget",
        "Keep only a share of the training points in the model and learn their coefficients online, "
        "against Nyström and random Fourier features of the same size.",
        (),
        "Large Scale Learning Techniques For Least Squares Support Vector Machines",
        None,
        "A submission under review, without names and year.",
    ),
    "risvo": Paper(
        "Multiclass RiSVO",
        "Ridge regression on a chosen kernel basis, repeated on the patterns that still matter: "
        "outliers and patterns that are already clear leave the active set.",
        ("Yinan Yu", "Konstantinos I. Diamantaras", "Tomas McKelvey", "S.Y. Kung"),
        "Multiclass Ridge-Adjusted Slack Variable Optimization Using Selected Basis for Fast Classification",
        None,
        "No year on the title page.",
    ),
    "prototypes": Paper(
        "Prototypes and patches",
        "Spherical k-means shrinks each class to a few prototypes, a least-squares SVM is fitted on "
        "those, and overlapping patches of an image vote.",
        ("Karthik Kurugodu", "Nikhil Kongara"),
        "KMeans Kernel Classifier",
        2023,
        "IIT Hyderabad, November 24, 2023.",
    ),
    "smo": Paper(
        "Kernel SVM by SMO",
        "Support vector machines from the ground up on 5,000 digits: deskewing, blurring and HOG "
        "features, sums and products of kernels, multiple kernel learning, one-vs-one and one-vs-rest.",
        ("Maha Elbayad",),
        "Machine Learning with Kernel Methods",
        None,
        "Project report, Ecole Normale Supérieure de Cachan, Master MVA. No year on the title page.",
    ),
}
"""The five papers, by the short names that the command line takes."""

CHAPTERS: dict[str, Paper] = {
    **PAPERS,
    "images": Paper(
        "Beyond the papers: images",
        "The patches and the spherical k-means of the prototypes paper, used as features instead of votes: a dictionary of "
        "patches, pooled over a grid, and a least-squares machine on all images.",
    ),
}
"""The papers, and what the library does beyond them."""


def specs(paper: str = "all") -> tuple[Spec, ...]:
    """List the declared experiments of one chapter, or of all in order.

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
    >>> from gramless.papers.experiments import specs
    >>> all(spec.paper == "smo" for spec in specs("smo"))
    True
    """
    if paper == "all":
        return tuple(spec for name in CHAPTERS for spec in specs(name))
    if paper not in CHAPTERS:
        raise ValueError(f"unknown paper {paper!r}; known are {', '.join(CHAPTERS)} and all")
    return tuple(importlib.import_module(f"gramless.papers.experiments.{paper}").SPECS)


def claims(paper: str) -> tuple[Claim, ...]:
    """List what a paper claims.

    Parameters
    ----------
    paper : str
        Its short name.

    Returns
    -------
    tuple of Claim
        In the order of the paper; none for a chapter without a paper.

    See Also
    --------
    specs : The experiments that decide them.

    Examples
    --------
    >>> from gramless.papers.experiments import claims
    >>> claims("prototypes")[0].where
    'Fig. 1'
    """
    return tuple(getattr(importlib.import_module(f"gramless.papers.experiments.{paper}"), "CLAIMS", ()))
