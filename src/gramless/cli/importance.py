"""Which columns a model leans on: permutation importance on rows it never saw.

The loss of score when one column's values are dealt out anew among the rows, mean of a few deals (Breiman, "Random forests",
2001). It costs one prediction for each column and deal, on at most `ROWS` rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.inspection import permutation_importance

ROWS = 500
_DEALS = 3


def importance(pipeline: Any, X: Any, y: np.ndarray, columns: list[str], task: str, seed: int) -> dict[str, float]:
    """Column by column, most important first: the drop of accuracy, or of R²."""
    some = np.random.default_rng(seed).permutation(len(y))[:ROWS]
    scoring = "accuracy" if task == "classification" else "r2"
    if task == "regression" and (len(some) < 2 or np.ptp(y[some]) == 0):
        return {}
    found = permutation_importance(
        pipeline, X.iloc[some], y[some], scoring=scoring, n_repeats=_DEALS, random_state=seed
    ).importances_mean
    order = np.argsort(-found, kind="stable")
    return {columns[k]: round(float(found[k]), 6) for k in order}
