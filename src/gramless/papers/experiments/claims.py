"""What a paper claims, in its terms, and the comparisons that decide whether finished fits reproduce it.

A claim is reproduced when all of its comparisons come out as it says, partly when some do, and not when none does.
A comparison takes the mean over the seeds of some fits and a figure of the paper, or the mean of other fits; fits are
only ever compared with fits on the same device. Its tolerance is a number of its own, or

- against a figure of the paper: one standard error of a share of the test rows, sqrt(p (100 - p) / n) percent for a
  figure of p percent on n rows;
- against other fits: one standard deviation of those over the seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gramless.papers.experiments.measures import Measure

RELATIONS = {
    "near": "within the tolerance of",
    "below": "more than the tolerance below",
    "above": "more than the tolerance above",
    "at most": "no more than the tolerance above",
    "at least": "no more than the tolerance below",
}


@dataclass(frozen=True)
class Comparison:
    """What must be seen for a claim to be reproduced.

    Parameters
    ----------
    experiment : str
        Name of the experiment, as in ``"mnist-solvers"``; of another paper, as in ``"randomized/mnist-exact"``.
    one : mapping
        Grid parameters that pick out the fits spoken of.
    relation : {"near", "below", "above", "at most", "at least"}
        How they must lie to what they are compared with, counting the tolerance.
    other : mapping or float
        Grid parameters of the fits they are compared with, or a figure of the paper.
    measure : str or Measure, default="error"
        What is compared: a metric, or a measure of `gramless.papers.experiments.measures`.
    along : str, optional
        A parameter at each of whose values the two are compared.
    factor : float, optional
        Compare the ratio of the two with this number, instead of their difference with zero.
    within : float, optional
        The tolerance, in the units of the measure or of the ratio; None as in `gramless.papers.experiments.claims`.
    other_experiment : str, optional
        Where the other fits come from, when not from `experiment`.

    See Also
    --------
    Claim : Has comparisons.

    Examples
    --------
    >>> from gramless.papers.experiments import Comparison
    >>> Comparison("mnist", {"max_iter": 30}, "near", 2.33).measure
    'error'
    """

    experiment: str
    one: Mapping[str, Any]
    relation: str
    other: Mapping[str, Any] | float
    measure: str | Measure = "error"
    along: str | None = None
    factor: float | None = None
    within: float | None = None
    other_experiment: str | None = None

    def __post_init__(self) -> None:
        if self.relation not in RELATIONS:
            raise ValueError(f"unknown relation {self.relation!r}; known are {', '.join(RELATIONS)}")

    def holds(self, gap: float, tolerance: float) -> bool:
        """Say whether a gap is as the relation wants it.

        Parameters
        ----------
        gap : float
            The one minus the other, or their ratio minus `factor`.
        tolerance : float
            What does not count.

        Returns
        -------
        bool
            Whether it is.
        """
        return {
            "near": abs(gap) <= tolerance,
            "below": gap < -tolerance,
            "above": gap > tolerance,
            "at most": gap <= tolerance,
            "at least": gap >= -tolerance,
        }[self.relation]


@dataclass(frozen=True)
class Claim:
    """One claim of a paper.

    Parameters
    ----------
    says : str
        What the paper claims, in its terms and our words, as a sentence.
    where : str
        The place in the paper.
    comparisons : tuple of Comparison
        What must be seen; none for a claim that is not tested here.
    note : str
        What a reader should know about the outcome.

    See Also
    --------
    Comparison : One of those that decide it.

    Examples
    --------
    >>> from gramless.papers.experiments import Claim, Comparison
    >>> claim = Claim("MNIST errs 2.33 %.", "Table 1", (Comparison("mnist", {"max_iter": 30}, "near", 2.33),))
    >>> len(claim.comparisons)
    1
    """

    says: str
    where: str
    comparisons: tuple[Comparison, ...] = field(default=())
    note: str = ""
