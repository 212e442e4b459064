"""Matrices that are close to `A` and cheap to invert."""

from gramless.preconditioners.nystrom import NystromPreconditioner

__all__ = ["NystromPreconditioner"]
