"""Which estimator for how many rows, and its settings by closed-form leave-one-out on a sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import gramless
from gramless.cli import tuning
from gramless.cli.errors import InputError

# Name on the command line -> (classifier, regressor).
MACHINES = {
    "lssvm": ("LSSVC", "LSSVR"),
    "nystrom": ("NystromLSSVC", "NystromLSSVR"),
    "svm": ("KernelSVC", "KernelSVR"),
}
KERNELS_WITH_GAMMA = ("rbf", "laplacian", "poly", "exponential", "matern32", "matern52")
KERNELS = ("linear", *KERNELS_WITH_GAMMA)

EXACT_UP_TO = 20_000
LANDMARKS = 3000


@dataclass(frozen=True)
class Settings:
    """What decides a machine, and where each part came from."""

    machine: str
    kernel: str
    C: float | str
    gamma: float | None
    reason: str
    tuned: str


def choose_machine(name: str, n: int) -> tuple[str, str]:
    """The machine with one kernel to use for `n` rows, and why."""
    if name == "auto":
        if n <= EXACT_UP_TO:
            return "lssvm", f"{n:,} rows are few enough to use every one of them"
        return "nystrom", f"{n:,} rows: the model keeps {LANDMARKS:,} of them and learns from all"
    if name not in MACHINES:
        raise InputError(f"unknown estimator {name!r}; known are auto, table, {', '.join(MACHINES)}")
    return name, "as asked"


def settle(
    X: Any,
    y: np.ndarray,
    *,
    task: str,
    machine: str,
    kernel: str,
    C: float | None,
    gamma: float | None,
    tune: str,
    seed: int,
    memory_budget: str | None = None,
) -> Settings:
    """Fill in what the user left open, by leave-one-out on at most `TUNING_ROWS` prepared rows unless
    ``tune="none"``.
    """
    machine, reason = choose_machine(machine, X.shape[0])
    if kernel not in KERNELS:
        raise InputError(f"unknown kernel {kernel!r}; known are {', '.join(KERNELS)}")
    if tune not in ("loo", "none"):
        raise InputError(f"unknown way of tuning {tune!r}; known are loo and none")
    scale = _scale_gamma(X) if kernel in KERNELS_WITH_GAMMA else None
    open_gamma = gamma is None and scale is not None
    if tune == "none" or (C is not None and not open_gamma):
        return Settings(machine, kernel, 1.0 if C is None else C, scale if open_gamma else gamma, reason, "no")
    found = tuning.tune(
        X, y, task=task, kernel=kernel, C=C, gamma=gamma, scale=scale, seed=seed, memory_budget=memory_budget
    )
    how = f"leave-one-out on {found.rows:,} rows, {found.tried} settings"
    if machine == "nystrom" and C is None:
        # Its own leave-one-out costs no refit and sees every row.
        return Settings(machine, kernel, "loo", found.gamma, reason, f"{how}; C on all rows")
    return Settings(machine, kernel, found.C, found.gamma, reason, how)


def with_probabilities(asked: bool | None, machine: str, task: str) -> bool:
    """Whether to fit probabilities: as asked, else where leave-one-out scores need no refits."""
    if task != "classification":
        if asked:
            raise InputError("a quantity has no probabilities: leave out --proba, or say --task classification")
        return False
    return machine != "svm" if asked is None else asked


def make_machine(
    settings: Settings,
    *,
    task: str,
    n: int,
    proba: bool,
    seed: int,
    device: str | None,
    memory_budget: str | None,
) -> Any:
    """The estimator, not fitted yet."""
    wanted: dict[str, Any] = {
        "C": settings.C,
        "kernel": settings.kernel,
        "gamma": settings.gamma,
        "device": device,
        "memory_budget": memory_budget,
        "random_state": seed,
        "probability": "sigmoid" if proba else False,
        "break_ties": True,  # of pairs of classes, by their scores
        "n_landmarks": min(LANDMARKS, n),
        # Double precision costs twice the memory and buys nothing at the ridges of scaled tables of this
        # size.
        "dtype": "float32" if n > 5000 else None,
    }
    name = MACHINES[settings.machine][task != "classification"]
    cls = getattr(gramless, name)
    known = cls._get_param_names()
    if settings.machine == "lssvm":
        del wanted["n_landmarks"]  # there, landmarks only precondition, and the estimator knows best
    return cls(**{key: value for key, value in wanted.items() if key in known and value is not None})


def _scale_gamma(X: Any) -> float:
    """1 / (d var X), as `gamma="scale"` in scikit-learn."""
    if hasattr(X, "toarray"):
        mean = X.mean()
        variance = X.multiply(X).mean() - mean**2
    else:
        variance = float(np.var(X))
    return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0
