"""Which estimator for how many rows, and its settings by closed-form leave-one-out on a sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import gramless
from gramless.program.errors import InputError

# Name on the command line -> (classifier, regressor).
MACHINES = {
    "lssvm": ("LSSVC", "LSSVR"),
    "nystrom": ("NystromLSSVC", "NystromLSSVR"),
    "svm": ("KernelSVC", "KernelSVR"),
}
KERNELS_WITH_GAMMA = ("rbf", "laplacian", "poly")
KERNELS = ("linear", *KERNELS_WITH_GAMMA)

EXACT_UP_TO = 20_000
LANDMARKS = 3000
COARSE_ROWS = 1000
FINE_ROWS = 2500
CS = tuple(float(c) for c in np.logspace(-1, 4, 11))
COARSE_FACTORS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
FINE_FACTORS = (0.6, 1.0, 1.7, 3.0)


@dataclass(frozen=True)
class Settings:
    """What decides a machine, and where each part came from."""

    machine: str
    kernel: str
    C: float
    gamma: float | None
    reason: str
    tuned: str


def choose_machine(name: str, n: int) -> tuple[str, str]:
    """The machine to use for `n` rows, and why."""
    if name == "auto":
        if n <= EXACT_UP_TO:
            return "lssvm", f"{n:,} rows are few enough to use every one of them"
        return "nystrom", f"{n:,} rows: {LANDMARKS:,} of them carry the model, all are learnt from"
    if name not in MACHINES:
        raise InputError(f"unknown estimator {name!r}; known are auto, {', '.join(MACHINES)}")
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
    search = gramless.LSSVCCV if task == "classification" else gramless.LSSVRCV
    order = np.random.default_rng(seed).permutation(X.shape[0])
    Cs = CS if C is None else [C]

    def best(rows: np.ndarray, gammas: list[float] | None) -> dict[str, Any]:
        grid = {} if gammas is None else {"gamma": gammas}
        found = search(Cs=Cs, kernel=kernel, param_grid=grid, memory_budget=memory_budget)
        return found.fit(X[rows], y[rows]).best_params_

    fine = order[:FINE_ROWS]
    if scale is None:
        chosen, tried = best(fine, None), len(Cs)
    elif gamma is not None:
        chosen, tried = best(fine, [gamma]), len(Cs)
    else:
        # More rows can tell finer detail: the width found on few rows is looked at again on more, and
        # narrower.
        coarse = best(order[:COARSE_ROWS], [scale * factor for factor in COARSE_FACTORS])["gamma"]
        chosen = best(fine, [coarse * factor for factor in FINE_FACTORS])
        tried = len(Cs) * (len(COARSE_FACTORS) + len(FINE_FACTORS))
    tuned = f"leave-one-out on {len(fine):,} rows, {tried} settings"
    return Settings(machine, kernel, chosen["C"], chosen.get("gamma"), reason, tuned)


def make_machine(settings: Settings, *, task: str, n: int, seed: int, device: str | None, memory_budget: str | None) -> Any:
    """The estimator, not fitted yet."""
    wanted: dict[str, Any] = {
        "C": settings.C,
        "kernel": settings.kernel,
        "gamma": settings.gamma,
        "device": device,
        "memory_budget": memory_budget,
        "random_state": seed,
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
