"""The target column of a table file, and Arrow tables as feature matrices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gramless.streaming.sources import TARGET_NAMES


def import_reader(name: str) -> Any:
    """Import a package that reads files; raise ImportError with the command that installs it."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError("CSV and Parquet files need pandas and pyarrow: pip install 'gramless[files]'") from error


def target_column(names: Sequence[str], target: str | int | None, path: Path) -> int:
    """Return the position of the target column."""
    if isinstance(target, (int, np.integer)):
        if not -len(names) <= target < len(names):
            raise ValueError(f"{path} has {len(names)} columns; column {target} does not exist")
        return int(target) % len(names)
    wanted = (target,) if target is not None else TARGET_NAMES
    found = [i for i, name in enumerate(names) if name in wanted]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(map(repr, names[:12])) + (", ..." if len(names) > 12 else "")
    if target is None:
        raise ValueError(
            f"{path} has {'no' if not found else 'more than one'} column named {', '.join(map(repr, TARGET_NAMES))}: "
            f"pass the target column as y='name' or y=position; the columns are {shown}"
        )
    raise ValueError(
        f"{path} has {'no column' if not found else 'several columns'} named {target!r}; the columns are {shown}"
    )


def matrix(table: Any, target: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the features (float64, missing values as NaN) and the target column of an Arrow record batch."""
    n, width = table.num_rows, table.num_columns - 1
    X = np.empty((n, width))
    features = (column for i, column in enumerate(table.columns) if i != target)
    for j, column in enumerate(features):
        X[:, j] = column.to_numpy(zero_copy_only=False)
    return X, table.column(target).to_numpy(zero_copy_only=False)
