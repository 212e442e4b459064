"""Matrices that are multiplied with, not held."""

from gramless.operators.base import DenseOperator, Operator
from gramless.operators.blocks import byte_rows, evaluate, expand
from gramless.operators.bordered import BorderedOperator
from gramless.operators.kernel import KernelOperator, check_diagonal, nbytes_cached

__all__ = [
    "BorderedOperator",
    "DenseOperator",
    "KernelOperator",
    "Operator",
    "byte_rows",
    "check_diagonal",
    "evaluate",
    "expand",
    "nbytes_cached",
]
