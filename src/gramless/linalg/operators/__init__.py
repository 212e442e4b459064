"""Matrices as operators: multiplied with, and not necessarily stored."""

from gramless.linalg.operators.base import BorderedOperator, DenseOperator, LinearSystem, Operator
from gramless.linalg.operators.blocks import byte_rows, cross, evaluate, expand
from gramless.linalg.operators.kernel import KernelOperator, check_diagonal, nbytes_cached

__all__ = [
    "BorderedOperator",
    "DenseOperator",
    "KernelOperator",
    "LinearSystem",
    "Operator",
    "byte_rows",
    "check_diagonal",
    "cross",
    "evaluate",
    "expand",
    "nbytes_cached",
]
