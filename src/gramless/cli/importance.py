"""Permutation importance of columns on rows that the model was not fitted to.

The importance is the mean loss of score if the values of one column are permuted (Breiman, "Random forests", 2001). It costs
one prediction of at most `ROWS` rows for each column and permutation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.inspection import permutation_importance

ROWS = 500
_PERMUTATIONS = 3


def importance(pipeline: Any, X: pd.DataFrame, y: np.ndarray, task: str, seed: int) -> dict[str, float]:
    """Return the loss of accuracy or of R² for each column, largest first."""
    sample = np.random.default_rng(seed).permutation(len(y))[:ROWS]
    scoring = "accuracy" if task == "classification" else "r2"
    if task == "regression" and (len(sample) < 2 or np.ptp(y[sample]) == 0):
        return {}
    found = permutation_importance(
        pipeline, X.iloc[sample], y[sample], scoring=scoring, n_repeats=_PERMUTATIONS, random_state=seed
    ).importances_mean
    order = np.argsort(-found, kind="stable")
    return {str(X.columns[k]): round(float(found[k]), 6) for k in order}
