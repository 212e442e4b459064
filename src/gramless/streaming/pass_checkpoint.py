"""Checkpoint file of a training pass: the sums, and the number of rows that they contain.

The file is replaced atomically between two batches, so sums and count always agree: after an interruption the
resumed pass skips exactly the rows that the sums contain.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from gramless._core import arrays as xa
from gramless._core.checkpoint import StateFile, fingerprint
from gramless._core.untrusted_arrays import build_checked_csr
from gramless.streaming.stream import Stream

_SPARSE = ("data", "indices", "indptr", "shape")


class PassCheckpoint:
    """Checkpoint file of one pass, identified by its settings and its data."""

    def __init__(self, path: str | os.PathLike[str], every: int, settings: list[Any], stream: Stream):
        self.every = every
        self._file = StateFile(path, fingerprint("pass", settings, stream.identity()), every)

    def save(self, state: dict[str, Any], seconds: float) -> None:
        """Replace the content of the file."""
        flat: dict[str, Any] = {}
        for key, value in state.items():
            if xa.is_sparse(value):
                flat |= {f"{key}:{part}": np.asarray(getattr(value, part)) for part in _SPARSE}
            else:
                flat[key] = value
        self._file.save(np.empty((0, 0)), flat, np.random.RandomState(0), [], seconds)

    def load(self) -> dict[str, Any] | None:
        """Return the last saved state, or None if there is no file."""
        saved = self._file.load()
        if saved is None:
            return None
        state = {key: value for key, value in saved.state.items() if ":" not in key}
        for key in {key.split(":")[0] for key in saved.state if ":" in key}:
            data, indices, indptr, shape = (saved.state[f"{key}:{part}"] for part in _SPARSE)
            state[key] = build_checked_csr(data, indices, indptr, tuple(int(side) for side in shape))
        return state

    def remove(self) -> None:
        self._file.remove()
