"""Matrices that are multiplied with, not held."""

from gramless.operators.base import DenseOperator, Operator
from gramless.operators.blocks import evaluate, expand
from gramless.operators.kernel import KernelOperator, nbytes_cached
from gramless.operators.low_rank import LowRankPreconditioner

__all__ = ["DenseOperator", "KernelOperator", "LowRankPreconditioner", "Operator", "evaluate", "expand", "nbytes_cached"]
