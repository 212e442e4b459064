"""Which column of a table holds the targets, and tables as feature matrices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gramless.streaming.sources import TARGET_NAMES


def import_reader(what: str) -> Any:
    """Import what reads files, or say how to get it."""
    import importlib

    try:
        return importlib.import_module(what)
    except ImportError as error:
        raise ImportError("CSV and Parquet files need pandas and pyarrow: pip install 'gramless[files]'") from error


def target_column(names: Sequence[str], target: str | int | None, path: Path) -> int:
    """Position of the column that holds the targets."""
    if isinstance(target, (int, np.integer)):
        if not -len(names) <= target < len(names):
            raise ValueError(f"{path} has {len(names)} columns; there is no column {target} to take as the target")
        return int(target) % len(names)
    wanted = (target,) if target is not None else TARGET_NAMES
    found = [i for i, name in enumerate(names) if name in wanted]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(map(repr, names[:12])) + (", ..." if len(names) > 12 else "")
    if target is None:
        raise ValueError(
            f"{path} has {'no' if not found else 'more than one'} column named {', '.join(map(repr, TARGET_NAMES))}: "
            f"say which holds the targets with y='name' or y=position; the columns are {shown}"
        )
    raise ValueError(
        f"{path} has {'no column' if not found else 'several columns'} named {target!r}; the columns are {shown}"
    )


def matrix(table: Any, target: int) -> tuple[np.ndarray, np.ndarray]:
    """Features as float64, missing values as NaN, and the target column, of an Arrow record batch."""
    n, width = table.num_rows, table.num_columns - 1
    X = np.empty((n, width))
    features = (column for i, column in enumerate(table.columns) if i != target)
    for j, column in enumerate(features):
        X[:, j] = column.to_numpy(zero_copy_only=False)
    return X, table.column(target).to_numpy(zero_copy_only=False)
