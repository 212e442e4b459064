"""The five papers and the further chapter of the report, and functions that return their experiments and claims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gramless.papers.experiments.claims import Claim, Printed, claims
from gramless.papers.experiments.results import contains
from gramless.papers.experiments.spec import Reference, Spec, read_specs, read_texts


@dataclass(frozen=True)
class Paper:
    """Heading and summary of a chapter of the report, and authors, title, year and note of its paper if it has one."""

    heading: str
    summary: str
    authors: Sequence[str] = ()
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


PAPERS = {name: Paper(**read_texts(name)["paper"]) for name in ("randomized", "budget", "risvo", "prototypes", "smo")}
"""The five papers by the short names of the command line."""

CHAPTERS = {**PAPERS, "images": Paper(**read_texts("images")["paper"])}
"""The papers, and a chapter about methods that are not in the papers."""


def specs(paper: str = "all") -> tuple[Spec, ...]:
    """Return the experiments of one chapter, or of all chapters."""
    if paper == "all":
        return tuple(spec for name in CHAPTERS for spec in specs(name))
    if paper not in CHAPTERS:
        raise ValueError(f"unknown paper {paper!r}; known are {', '.join(CHAPTERS)} and all")
    return tuple(replace(spec, references=tuple(_printed_values(spec))) for spec in read_specs(paper))


def _printed_values(spec: Spec) -> Iterator[Reference]:
    """Yield the values that the paper's claims about an experiment print."""
    for claim in claims(spec.paper):
        for comparison in claim.comparisons:
            metric = comparison.measure if isinstance(comparison.measure, str) else comparison.measure.metric
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


def claim_named(paper: str, name: str) -> Claim:
    """Return one claim of a paper."""
    stated = {claim.name: claim for claim in claims(paper)}
    if name not in stated:
        raise ValueError(f"no claim named {name!r} in {paper}; there are: {', '.join(stated) or 'none'}")
    return stated[name]


def specs_of_claim(paper: str, claim: Claim) -> list[Spec]:
    """Return the experiments of the comparisons of a claim, each with the settings that the claim needs."""
    needed: dict[str, list[Mapping[str, Any]]] = {}
    for comparison in claim.comparisons:
        sides = [(comparison.experiment, comparison.one)]
        if isinstance(comparison.other, Mapping):
            sides.append((comparison.other_experiment or comparison.experiment, comparison.other))
        for name, params in sides:
            needed.setdefault(name, []).append(params)
    return [
        replace(spec, grid=tuple(point for point in spec.grid if any(contains(point, p) for p in needed[spec.name])))
        for spec in specs(paper)
        if spec.name in needed
    ]
