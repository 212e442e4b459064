"""Settings of a single model for a table: standardised columns, and settings selected by leave-one-out if not given.

The coordinate search is that of `gramless.tables.search`, restricted to one scaling and one kernel. It solves least-squares
problems, whose leave-one-out scores need no refits; its result is also used for support vector machines.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from gramless.tables.column_types import Encoded
from gramless.tables.losses import ClassLoss, ValueLoss
from gramless.tables.members import column_groups, plan_table, sample_order
from gramless.tables.preparation import Preparation
from gramless.tables.search import WIDTHS, Report, SettingSearch, kernel_gamma
from gramless.tables.tuning import TUNING, TablesTuning


@dataclass(frozen=True)
class SingleSettings:
    """Fitted scaling and hyperparameters of a single model, the selection method, and its time in seconds."""

    preparation: Preparation
    C: float
    gamma: float | None
    tuned: str
    seconds: float


def tune_single(
    encoded: Encoded,
    loss: ClassLoss | ValueLoss,
    weights: np.ndarray | None,
    *,
    n_levels: list[int],
    kernel: str,
    C: float | None,
    gamma: float | str | None,
    tune: str,
    memory: int,
    seed: int,
    report: Report,
    tuning: TablesTuning = TUNING,
) -> SingleSettings:
    """Return the settings of a single model; select `C` and `gamma` that are None, or use defaults if `tune` is "none"."""
    began = time.perf_counter()
    report("columns", "preparing the columns")
    preparation = Preparation("standard", n_levels, seed).fit(encoded)
    has_gamma = len(WIDTHS[kernel]) > 1
    if isinstance(gamma, str) or (gamma is None and tune == "none"):
        variance = 1.0 if gamma == "auto" else float(np.var(preparation(encoded)))
        gamma = 1.0 / (max(1, preparation.n_columns) * variance) if variance > 0 else 1.0
    gamma = gamma if has_gamma else None
    if tune == "none" or (C is not None and (gamma is not None or not has_gamma)):
        return SingleSettings(preparation, 1.0 if C is None else C, gamma, "no", time.perf_counter() - began)
    plan = plan_table(len(encoded), preparation.n_columns, loss.targets(np.arange(1), False).shape[1], memory)
    order = sample_order(len(encoded), loss.codes, tuning.first_rows, np.random.RandomState(seed))
    rows = order[: min(tuning.single_rows, plan.most_rows)]
    search = SettingSearch(
        encoded.take(rows),
        rows,
        {"standard": preparation},
        loss,
        weights,
        column_groups(preparation, encoded),
        kernels=(kernel,),
        C=C,
        gamma=gamma,
        column_scales="equal",
        seconds=np.inf,
        report=report,
        tuning=tuning,
    )
    best = search.run_single().setting
    if has_gamma and gamma is None:
        gamma = kernel_gamma(kernel, best.width, search.spread["standard"])
    tuned = f"leave-one-out on {len(rows):,} rows, {search.n_evaluated} settings"
    return SingleSettings(preparation, best.C, gamma, tuned, time.perf_counter() - began)
