"""Matrices that are multiplied with, not held."""

from gramless.operators.base import DenseOperator, Operator
from gramless.operators.blocks import compact, evaluate, expand
from gramless.operators.bordered import BorderedOperator
from gramless.operators.kernel import KernelOperator, nbytes_cached
from gramless.operators.low_rank import LowRankPreconditioner
from gramless.operators.ridge_sums import LandmarkFeatures, RidgeSums

__all__ = [
    "BorderedOperator",
    "DenseOperator",
    "KernelOperator",
    "LandmarkFeatures",
    "LowRankPreconditioner",
    "Operator",
    "RidgeSums",
    "compact",
    "evaluate",
    "expand",
    "nbytes_cached",
]
