"""What the inputs of a model were in training: names, kinds, ranges, counts; in plain JSON, kept with the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from gramless.cli.columns import Columns

# Levels of a category that are remembered with their counts.
_LEVELS = 100


def describe_inputs(X: Any, columns: Columns) -> list[dict[str, Any]]:
    """One record for each column that a model uses; none for sparse data.

    Parameters
    ----------
    X : DataFrame or sparse matrix
        The training rows, in the kinds of `as_known`.
    columns : Columns
    """
    if not isinstance(X, pd.DataFrame):
        return []
    found = []
    for name in columns.used:
        known = X[name].dropna()
        record: dict[str, Any] = {"name": name, "kind": "word", "missing": int(len(X) - len(known))}
        if name in columns.numbers:
            values = known.to_numpy(dtype=np.float64)
            middle = np.median(values)
            # A median of two whole numbers would be one that a column of counts never has.
            typical = np.partition(values, (len(values) - 1) // 2)[(len(values) - 1) // 2] if len(values) else middle
            record |= {"kind": "number", "low": values.min(), "high": values.max(), "typical": typical}
            record |= {"mean": values.mean(), "deviation": values.std()}
            record = {key: float(value) if isinstance(value, np.floating) else value for key, value in record.items()}
        elif name in columns.dates:
            middle = known.sort_values().iloc[(len(known) - 1) // 2]
            record |= {"kind": "date"} | {
                key: moment.isoformat() for key, moment in (("low", known.min()), ("high", known.max()), ("typical", middle))
            }
        else:
            counts = known.value_counts()
            record |= {
                "typical": str(counts.index[0]),
                "levels": {str(level): int(count) for level, count in counts.iloc[:_LEVELS].items()},
                "distinct": len(counts),
            }
        found.append(record)
    return found
