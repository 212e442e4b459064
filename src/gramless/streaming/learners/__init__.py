"""Learners convert batches of features and targets to coefficients; `run_pass` applies them to a stream."""

from gramless.streaming.learners.base import LearnedCoefficients, Learner, LearnerState
from gramless.streaming.learners.gradient import GradientDescent
from gramless.streaming.learners.loop import continue_pass, run_pass
from gramless.streaming.learners.normal_equations import C_PATH, NormalEquations
from gramless.streaming.learners.planning import BatchPlan, PassOptions, PassSettings, PassSize, plan_pass
from gramless.streaming.learners.ridge_sums import RidgeSums
from gramless.streaming.learners.training_pass import (
    CollectingPass,
    FinishedPass,
    LearningPass,
    OnePassModel,
    RowFormat,
    TrainingPass,
)

LEARNERS: dict[str, type[Learner]] = {"sums": NormalEquations, "steps": GradientDescent}
"""Every learner; the contract tests run over it."""

__all__ = [
    "C_PATH",
    "LEARNERS",
    "BatchPlan",
    "CollectingPass",
    "FinishedPass",
    "GradientDescent",
    "LearnedCoefficients",
    "Learner",
    "LearnerState",
    "LearningPass",
    "NormalEquations",
    "OnePassModel",
    "PassOptions",
    "PassSettings",
    "PassSize",
    "RidgeSums",
    "RowFormat",
    "TrainingPass",
    "continue_pass",
    "plan_pass",
    "run_pass",
]
