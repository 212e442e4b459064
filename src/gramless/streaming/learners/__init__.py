"""Learners compute coefficients from batches of features and targets; `loop.run_pass` applies a learner to a stream."""

from gramless.streaming.learners.base import Learner
from gramless.streaming.learners.gradient import GradientDescent
from gramless.streaming.learners.normal_equations import NormalEquations

LEARNERS: dict[str, type[Learner]] = {"sums": NormalEquations, "steps": GradientDescent}
"""All learners by name; the contract tests run for every entry."""
