"""Methods for `op @ W = Z` with many right-hand sides; `solve` drives them."""

from gramless.solvers.base import Solver, SolveResult, Step, solve
from gramless.solvers.cg import CG
from gramless.solvers.checkpoint import Checkpoint, fingerprint
from gramless.solvers.cholesky import Cholesky
from gramless.solvers.normal_equations import NormalEquations
from gramless.solvers.whitened import WhitenedRidge

SOLVERS: dict[str, type[Solver]] = {
    "cholesky": Cholesky,
    "cg": CG,
}
"""The names that least-squares estimators accept as `solver=`."""

__all__ = [
    "CG",
    "SOLVERS",
    "Checkpoint",
    "Cholesky",
    "NormalEquations",
    "SolveResult",
    "Solver",
    "Step",
    "WhitenedRidge",
    "fingerprint",
    "solve",
]
