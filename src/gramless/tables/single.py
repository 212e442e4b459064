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
from gramless.tables.members import plan_table, sample_order
from gramless.tables.preparation import Preparation
from gramless.tables.search import WIDTHS, SearchOptions, SettingSearch, kernel_gamma


@dataclass(frozen=True)
class SingleSettings:
    """Fitted scaling and hyperparameters of a single model, the selection method, and its time in seconds."""

    preparation: Preparation
    C: float
    gamma: float | None
    tuned: str
    seconds: float


def tune_single(encoded: Encoded, loss: ClassLoss | ValueLoss, options: SearchOptions) -> SingleSettings:
    """Return the settings of a single model; select `C` and `gamma` that are None, or use defaults if `tune` is "none"."""
    began = time.perf_counter()
    C, gamma, tune, (kernel,) = options.C, options.gamma, options.tune, options.kernels
    options.report("columns", "preparing the columns")
    n_levels, effects = options.encodings[""]
    preparation = Preparation("standard", n_levels, options.seed, effects).fit(encoded)
    has_gamma = len(WIDTHS[kernel]) > 1
    if isinstance(gamma, str) or (gamma is None and tune == "none"):
        variance = 1.0 if gamma == "auto" else float(np.var(preparation(encoded)))
        gamma = 1.0 / (max(1, preparation.n_columns) * variance) if variance > 0 else 1.0
    gamma = gamma if has_gamma else None
    if tune == "none" or (C is not None and (gamma is not None or not has_gamma)):
        return SingleSettings(preparation, 1.0 if C is None else C, gamma, "no", time.perf_counter() - began)
    plan = plan_table(len(encoded), preparation.n_columns, loss.n_targets, options)
    order = sample_order(len(encoded), loss.codes, options.tuning.first_rows, np.random.RandomState(options.seed))
    rows = order[: min(options.tuning.single_rows, plan.most_rows)]
    search = SettingSearch(encoded.take(rows), rows, {"standard": preparation}, loss, options, gamma)
    best = search.run_single().setting
    if has_gamma and gamma is None:
        gamma = kernel_gamma(kernel, best.width, search.spread["standard"])
    tuned = f"leave-one-out on {len(rows):,} rows, {search.n_evaluated} settings"
    return SingleSettings(preparation, best.C, gamma, tuned, time.perf_counter() - began)
