"""Solvers of `op @ W = Z` with many right-hand sides, and the function `solve`, which runs a solver."""

from gramless.linalg.solvers.averaged import Averaged, NystromCommittee
from gramless.linalg.solvers.base import Solver, SolveResult, Status, Step, check_requirements, solve
from gramless.linalg.solvers.cg import CG
from gramless.linalg.solvers.cholesky import Cholesky
from gramless.linalg.solvers.kaczmarz import Kaczmarz, KaczmarzMP, MatchingPursuit
from gramless.linalg.solvers.sketch_project import SketchProject

SOLVERS: dict[str, type[Solver]] = {
    "cholesky": Cholesky,
    "cg": CG,
    "kaczmarz": Kaczmarz,
    "matching_pursuit": MatchingPursuit,
    "kaczmarz_mp": KaczmarzMP,
    "nystrom_committee": NystromCommittee,
    "sketch_project": SketchProject,
}
"""Classes of the solvers, by the names that least-squares estimators accept as `solver`."""

__all__ = [
    "CG",
    "SOLVERS",
    "Averaged",
    "Cholesky",
    "Kaczmarz",
    "KaczmarzMP",
    "MatchingPursuit",
    "NystromCommittee",
    "SketchProject",
    "SolveResult",
    "Solver",
    "Status",
    "Step",
    "check_requirements",
    "solve",
]
