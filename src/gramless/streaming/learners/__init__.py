"""From batches of features and targets to coefficients; `run_pass` drives a feature map and a learner over a stream."""

from gramless.streaming.learners.base import Fit, Learner, Run
from gramless.streaming.learners.driver import Model, Pass, PassOptions, PassPlan, from_model, more_rows, plan_pass, run_pass
from gramless.streaming.learners.ridge_sums import RidgeSums
from gramless.streaming.learners.steps import Steps
from gramless.streaming.learners.sums import C_PATH, Sums

LEARNERS: dict[str, type[Learner]] = {"sums": Sums, "steps": Steps}
"""Every learner; the contract tests run over it."""

__all__ = [
    "C_PATH",
    "LEARNERS",
    "Fit",
    "Learner",
    "Model",
    "Pass",
    "PassOptions",
    "PassPlan",
    "RidgeSums",
    "Run",
    "Steps",
    "Sums",
    "from_model",
    "more_rows",
    "plan_pass",
    "run_pass",
]
