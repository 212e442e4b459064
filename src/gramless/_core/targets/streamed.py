"""Targets that arrive in batches: labels, whose classes may not all be known yet, or regression targets.

Labels are encoded as indicator columns, one per class, so that a class that first occurs in a late batch only adds a column
of zeros to the sums over earlier rows. For two classes the model has one output, which is the difference of the two
indicator columns: -1 or +1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from gramless._core import arrays as xa


class LabelTargets:
    """Class labels as indicator columns, one per class.

    `classes` has all labels, sorted, or is None to collect labels from the batches; `class_weight` maps labels to weights.
    """

    single = False

    def __init__(self, classes: np.ndarray | None = None, class_weight: dict[Any, float] | None = None):
        self.known = np.empty(0) if classes is None else np.asarray(classes)
        self.open = classes is None
        self.class_weight = class_weight

    @property
    def n_columns(self) -> int:
        return len(self.known)

    def read(self, y: Any) -> np.ndarray:
        """Return the positions of the labels `y` in the attribute `known`, to which new labels are appended."""
        y = column_or_1d(xa.to_numpy(y), warn=True)
        codes = self._known_positions(y)
        if codes is not None:
            return codes
        if y.dtype.kind == "f" and not np.isfinite(y).all():
            raise ValueError("Input y contains NaN or infinity")
        check_classification_targets(y)
        present, inverse = np.unique(y, return_inverse=True)
        new = present[~np.isin(present, self.known)] if len(self.known) else present
        if len(new):
            if not self.open:
                raise ValueError(
                    f"labels {list(new[:5])!r} are not among the classes {list(self.known[:20])!r} given before"
                )
            self.known = np.concatenate([self.known, new]) if len(self.known) else new
        labels, order = self.sorted()
        return order[np.searchsorted(labels, present)][inverse]

    def _known_positions(self, y: np.ndarray) -> np.ndarray | None:
        """Return the positions of the labels in `known` without sorting `y`; None if a label is new or the dtype differs."""
        if not len(self.known) or y.dtype != self.known.dtype or y.dtype.kind not in "biu":
            return None
        labels, order = self.sorted()
        at = np.searchsorted(labels, y).clip(max=len(labels) - 1)
        return order[at] if (labels[at] == y).all() else None

    def weights(self, codes: np.ndarray) -> np.ndarray | None:
        """Return the class weight of each row."""
        if self.class_weight is None:
            return None
        table = np.array([float(self.class_weight.get(label, 1.0)) for label in self.known.tolist()])
        return table[codes]

    def matrix(self, codes: np.ndarray) -> np.ndarray:
        """Return the indicator matrix of the rows, with one column for each class known so far."""
        return np.eye(self.n_columns)[codes]

    def sorted(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the sorted classes and the indicator column of each class."""
        order = np.argsort(self.known, kind="stable")
        return self.known[order], order

    def close(self) -> np.ndarray:
        """Exclude new classes in later batches, and return the sorted known classes."""
        self.open = False
        if len(self.known) < 2:
            raise ValueError(f"The number of classes has to be greater than one; got {len(self.known)} class")
        return self.sorted()[0]

    def outputs(self, columns: np.ndarray) -> np.ndarray:
        """Convert scores, coefficients or targets from one column per known class to one column per output of the model."""
        columns = columns[..., self.sorted()[1]]
        return columns[..., 1:] - columns[..., :1] if columns.shape[-1] == 2 else columns

    def columns(self, outputs: np.ndarray) -> np.ndarray:
        """Convert one column per output of the model to one column per known class."""
        columns = np.concatenate([-outputs, outputs], axis=-1) / 2 if outputs.shape[-1] == 1 else outputs
        return columns[..., np.argsort(self.sorted()[1])]

    def state(self) -> dict[str, Any]:
        return {"classes": self.known.tolist(), "classes_dtype": self.known.dtype.str}

    def restore(self, state: dict[str, Any]) -> None:
        self.known = np.array(state["classes"], dtype=state["classes_dtype"])


class ValueTargets:
    """Regression targets with one column per output."""

    open = False
    class_weight = None

    def __init__(self) -> None:
        self.n_columns = 0
        self.single = True

    def read(self, y: Any) -> np.ndarray:
        values = np.asarray(xa.to_numpy(y), dtype=np.float64)
        if not np.isfinite(values).all():
            raise ValueError("Input y contains NaN or infinity")
        if values.ndim not in (1, 2):
            raise ValueError(f"y has {values.ndim} dimensions; expected one value or one row of values per sample")
        single, values = values.ndim == 1, values.reshape(len(values), -1)
        if self.n_columns and (values.shape[1] != self.n_columns or single != self.single):
            before = "(n,)" if self.single else f"(n, {self.n_columns})"
            now = "(n,)" if single else f"(n, {values.shape[1]})"
            raise ValueError(f"y has the shape {now}; the batches before had {before}")
        self.n_columns, self.single = values.shape[1], single
        return values

    def weights(self, values: np.ndarray) -> None:
        return None

    def matrix(self, values: np.ndarray) -> np.ndarray:
        return values

    def outputs(self, columns: np.ndarray) -> np.ndarray:
        return columns

    def columns(self, outputs: np.ndarray) -> np.ndarray:
        return outputs

    def state(self) -> dict[str, Any]:
        return {"n_columns": self.n_columns, "single": self.single}

    def restore(self, state: dict[str, Any]) -> None:
        self.n_columns, self.single = int(state["n_columns"]), bool(state["single"])


Targets = LabelTargets | ValueTargets
