"""Matrices that are multiplied with, not held."""

from gramless.operators.base import DenseOperator, Operator
from gramless.operators.blocks import evaluate, expand
from gramless.operators.kernel import KernelOperator, nbytes_cached

__all__ = ["DenseOperator", "KernelOperator", "Operator", "evaluate", "expand", "nbytes_cached"]
