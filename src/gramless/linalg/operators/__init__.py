"""Matrices as operators: objects that can be multiplied with vectors and need not store their entries."""

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
