"""Learners convert batches of features and targets to coefficients; `loop.run_pass` applies them to a stream."""

from gramless.streaming.learners.base import Learner
from gramless.streaming.learners.gradient import GradientDescent
from gramless.streaming.learners.normal_equations import NormalEquations

LEARNERS: dict[str, type[Learner]] = {"sums": NormalEquations, "steps": GradientDescent}
"""Every learner; the contract tests run over it."""
