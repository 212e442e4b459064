"""The five papers and the further chapter of the report, and functions that return their experiments and claims."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gramless.papers.experiments.claims import Claim, Printed
from gramless.papers.experiments.results import contains
from gramless.papers.experiments.spec import Reference, Spec


@dataclass(frozen=True)
class Paper:
    """Heading and summary of a chapter of the report, and authors, title, year and note of its paper if it has one."""

    heading: str
    summary: str
    authors: tuple[str, ...] = ()
    title: str = ""
    year: int | None = None
    note: str = ""

    @property
    def citation(self) -> str:
        """Return authors, title, year and note as a sentence, or an empty string for a chapter without a paper."""
        if not self.title:
            return ""
        *most, last = self.authors or ("Anonymous authors",)
        authors = f"{', '.join(most)} and {last}" if most else last
        year = "" if self.year is None else f", {self.year}"
        return f"{authors}, {self.title}{year}. {self.note}".strip()

    def bibtex(self, key: str) -> str:
        """Return the BibTeX entry of the paper."""
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
        "Solve the least-squares SVM one random block of equations at a time, with only one block of the kernel matrix in "
        "memory: a Nyström committee, block Kaczmarz, block matching pursuit and the hybrid of the last two.",
        ("M. Andrecut",),
        "Randomized Kernel Methods for Least-Squares Support Vector Machines",
        2016,
        "June 23, 2016.",
    ),
    "budget": Paper(
        "Learning on a budget",
        "Use a random subset of the training rows as the points of the model and learn their coefficients online, in "
        "comparison with Nyström and random Fourier features of the same size.",
        (),
        "Large Scale Learning Techniques For Least Squares Support Vector Machines",
        None,
        "A submission under review, without names and year.",
    ),
    "risvo": Paper(
        "Multiclass RiSVO",
        "Ridge regression on a selected kernel basis, repeated on an active set of patterns: outliers and clearly "
        "classified patterns are removed from it.",
        ("Yinan Yu", "Konstantinos I. Diamantaras", "Tomas McKelvey", "S.Y. Kung"),
        "Multiclass Ridge-Adjusted Slack Variable Optimization Using Selected Basis for Fast Classification",
        None,
        "No year on the title page.",
    ),
    "prototypes": Paper(
        "Prototypes and patches",
        "Spherical k-means replaces each class by prototypes, a least-squares SVM is fitted to the prototypes, and "
        "overlapping patches of an image vote.",
        ("Karthik Kurugodu", "Nikhil Kongara"),
        "KMeans Kernel Classifier",
        2023,
        "IIT Hyderabad, November 24, 2023.",
    ),
    "smo": Paper(
        "Kernel SVM by SMO",
        "Support vector machines on 5,000 digits: deskewing, blurring and HOG features, sums and products of kernels, "
        "multiple kernel learning, one-vs-one and one-vs-rest.",
        ("Maha Elbayad",),
        "Machine Learning with Kernel Methods",
        None,
        "Project report, Ecole Normale Supérieure de Cachan, Master MVA. No year on the title page.",
    ),
}
"""The five papers by the short names of the command line."""

CHAPTERS: dict[str, Paper] = {
    **PAPERS,
    "images": Paper(
        "Beyond the papers: images",
        "The patches and the spherical k-means of the prototypes paper used as features instead of votes: a dictionary of "
        "patches, pooled over a grid, and a least-squares SVM on all images.",
    ),
}
"""The papers, and a chapter about methods that are not in the papers."""


def specs(paper: str = "all") -> tuple[Spec, ...]:
    """Return the experiments of one chapter, or of all chapters."""
    if paper == "all":
        return tuple(spec for name in CHAPTERS for spec in specs(name))
    if paper not in CHAPTERS:
        raise ValueError(f"unknown paper {paper!r}; known are {', '.join(CHAPTERS)} and all")
    declared = importlib.import_module(f"gramless.papers.experiments.{paper}").SPECS
    return tuple(replace(spec, references=(*spec.references, *_printed_values(spec))) for spec in declared)


def _printed_values(spec: Spec) -> Iterator[Reference]:
    """Yield the values that the paper's claims about an experiment print."""
    for claim in claims(spec.paper):
        for comparison in claim.comparisons:
            metric = comparison.measure if isinstance(comparison.measure, str) else getattr(comparison.measure, "key", None)
            if comparison.experiment == spec.name and isinstance(comparison.other, Printed) and metric:
                spread = float(comparison.other.plus_minus) or None
                yield Reference(comparison.other.value, claim.where, comparison.one, metric, spread)


def records_of(selected: Sequence[Spec], records: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return the records whose keys are those of fits of the experiments; others are of earlier declarations."""
    by_name = {(spec.paper, spec.name): spec for spec in selected}
    found = []
    for record in records:
        spec = by_name.get((record["paper"], record["experiment"]))
        if spec is not None and record["key"] == spec.key(record["params"], record["seed"], record.get("device")):
            found.append(record)
    return found


def claims(paper: str) -> tuple[Claim, ...]:
    """Return the claims of a paper; a chapter without a paper has none."""
    return tuple(getattr(importlib.import_module(f"gramless.papers.experiments.{paper}"), "CLAIMS", ()))


def claim_named(paper: str, name: str) -> Claim:
    """Return one claim of a paper."""
    stated = {claim.name: claim for claim in claims(paper)}
    if name not in stated:
        raise ValueError(f"no claim named {name!r} in {paper}; there are: {', '.join(stated) or 'none'}")
    return stated[name]


def specs_of_claim(paper: str, claim: Claim) -> list[Spec]:
    """Return the experiments of the comparisons of a claim, each with the settings that the claim needs."""
    declared = {(spec.paper, spec.name): spec for spec in specs()}
    needed: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for comparison in claim.comparisons:
        sides = [(comparison.experiment, comparison.one)]
        if isinstance(comparison.other, Mapping):
            sides.append((comparison.other_experiment or comparison.experiment, comparison.other))
        for name, params in sides:
            other_paper, _, experiment = name.rpartition("/")
            needed.setdefault((other_paper or paper, experiment), []).append(params)
    return [
        replace(spec, grid=tuple(point for point in spec.grid if any(contains(point, params) for params in needed[key])))
        for key, spec in declared.items()
        if key in needed
    ]
