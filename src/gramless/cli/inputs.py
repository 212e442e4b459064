"""Description of the training inputs of a model: names, types, ranges and counts as JSON, stored with the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

# Number of levels of a category that are stored with their counts.
_LEVELS = 100


def describe_inputs(X: pd.DataFrame, types: dict[str, str]) -> list[dict[str, Any]]:
    """Return one record for each input column of typed training rows."""
    found = []
    for name, kind in types.items():
        known = X[name].dropna()
        record: dict[str, Any] = {"name": name, "kind": "word", "missing": int(len(X) - len(known))}
        if kind == "number":
            values = known.to_numpy(dtype=np.float64)
            middle = np.median(values)
            # The lower median: the mean of two integers may be a value that does not occur.
            typical = np.partition(values, (len(values) - 1) // 2)[(len(values) - 1) // 2] if len(values) else middle
            record |= {"kind": "number", "low": values.min(), "high": values.max(), "typical": typical}
            record |= {"mean": values.mean(), "deviation": values.std()}
            record = {key: float(value) if isinstance(value, np.floating) else value for key, value in record.items()}
        elif kind == "date":
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
