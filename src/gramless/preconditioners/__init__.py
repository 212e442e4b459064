"""Matrices that are close to `A` and cheap to invert."""

from gramless.preconditioners.low_rank import LowRankPreconditioner
from gramless.preconditioners.nystrom import NystromPreconditioner

__all__ = ["LowRankPreconditioner", "NystromPreconditioner"]
