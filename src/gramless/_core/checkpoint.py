"""Checkpoint files with the state of a running solver, so that a fit can continue after its process was killed.

A checkpoint is one `.npz` file without pickles, replaced atomically, so that a complete file exists at any moment. The file
contains a fingerprint of the problem, the dtype and shape of every array, and a checksum; loading a checkpoint of another
problem raises an error. A lock file makes a second fit with the same path raise an error.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import joblib
import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.files import atomic_write, remove_partial_files

_FORMAT = 2


def fingerprint(*parts: Any) -> str:
    """Return a hash of the arrays and settings of a problem; equal problems have equal hashes in every process."""
    return joblib.hash([_hashable(part) for part in parts])


def _hashable(part: Any) -> Any:
    """Convert `part` to objects whose joblib hash does not depend on the process or on the memory layout."""
    if xa.is_sparse(part):
        return [part.shape, part.data, part.indices, part.indptr]
    if isinstance(part, np.ndarray | np.generic) or (hasattr(part, "shape") and hasattr(part, "dtype")):
        array = np.ascontiguousarray(xa.to_numpy(part))
        # joblib also hashes strides, which are arbitrary for an axis of length one.
        return [array.shape, array.reshape(-1) if array.size > 1 else array.reshape(-1).copy()]
    if hasattr(part, "get_params") and not isinstance(part, type):
        return [type(part).__qualname__, _hashable(sorted(part.get_params(deep=False).items()))]
    if isinstance(part, list | tuple):
        return [_hashable(piece) for piece in part]
    if isinstance(part, dict):
        return [(_hashable(key), _hashable(value)) for key, value in part.items()]
    if isinstance(part, FunctionType):
        # The hash includes the code, because different functions can have the same name, such as all lambdas.
        closure = [cell.cell_contents for cell in part.__closure__ or ()]
        return [part.__qualname__, _hashable([part.__code__, part.__defaults__, part.__kwdefaults__, closure])]
    if isinstance(part, CodeType):
        return [part.co_code, part.co_names, _hashable(part.co_consts)]
    if isinstance(part, partial):
        return _hashable([part.func, part.args, sorted(part.keywords.items())])
    return part if isinstance(part, str | bytes | int | float | complex | None | np.random.RandomState) else repr(part)


def _plain(value: Any) -> Any:
    """Convert NumPy values that a callback added to the history to JSON types."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"the history of a checkpoint may contain numbers, strings and arrays, not {type(value).__name__}")


@dataclass
class SavedState:
    """State of a running solver: coefficients, variables of the solver, random state, history and elapsed seconds."""

    W: np.ndarray
    state: dict[str, Any]
    rng_state: tuple[Any, ...]
    history: list[dict[str, Any]]
    seconds: float


class StateFile:
    """Checkpoint file with the last saved solver state of one problem."""

    def __init__(self, path: str | os.PathLike[str], problem: str, every: int = 10):
        from filelock import FileLock, Timeout  # the import takes 40 ms and is for fits with a checkpoint only

        if every < 1:
            raise ValueError(f"every must be at least 1, got {every!r}")
        self.path = Path(path)
        self.problem = problem
        self.every = every
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"the folder of the checkpoint does not exist: {self.path.parent}")
        # One lock object per path, which a thread can acquire again, because a failed fit releases it late (`__del__`).
        self._lock = FileLock(f"{self.path.resolve()}.lock", blocking=False, is_singleton=True)
        try:
            self._lock.acquire()
        except Timeout:
            message = f"another fit is using the checkpoint {self.path}: wait for it, or give another path"
            raise RuntimeError(message) from None
        self._locked = True
        remove_partial_files(self.path)

    def save(
        self,
        W: Array,
        state: dict[str, Any],
        rng: np.random.RandomState,
        history: list[dict[str, Any]],
        seconds: float,
    ) -> None:
        """Replace the content of the file by the given state."""
        name, keys, position, has_gauss, cached = rng.get_state(legacy=True)
        header = {
            "format": _FORMAT,
            "problem": self.problem,
            "seconds": seconds,
            "history": history,
            "rng": [name, int(position), int(has_gauss), float(cached)],
            "numbers": {k: v for k, v in state.items() if not hasattr(v, "shape")},
        }
        arrays = {f"state_{k}": xa.to_numpy(v) for k, v in state.items() if hasattr(v, "shape")}
        arrays |= {"W": xa.to_numpy(W), "rng_keys": np.asarray(keys)}
        text = json.dumps(header, default=_plain)
        encoded = np.frombuffer(text.encode(), dtype=np.uint8)
        checksum = np.frombuffer(fingerprint(text, sorted(arrays.items())).encode(), dtype=np.uint8)
        with atomic_write(self.path) as part, open(part, "wb") as file:
            np.savez(file, allow_pickle=False, header=encoded, checksum=checksum, **arrays)
            file.flush()
            os.fsync(file.fileno())

    def load(self) -> SavedState | None:
        """Return the saved state, or None if there is no file."""
        if not self.path.exists():
            return None
        try:
            with open(self.path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
                text = file["header"].tobytes().decode()
                arrays = {key: file[key] for key in file.files if key not in ("header", "checksum")}
                if file["checksum"].tobytes().decode() != fingerprint(text, sorted(arrays.items())):
                    raise ValueError("its checksum differs")
            header = json.loads(text)
        except Exception as error:
            raise ValueError(f"{self.path} is not a readable checkpoint; remove it to start anew ({error})") from error
        if header.get("format") != _FORMAT or header.get("problem") != self.problem:
            raise ValueError(
                f"the checkpoint {self.path} belongs to another problem (other data, settings or version); "
                "remove it, or give another path, to start anew"
            )
        name, position, has_gauss, cached = header["rng"]
        state = dict(header["numbers"])
        state |= {key.removeprefix("state_"): v for key, v in arrays.items() if key.startswith("state_")}
        rng_state = (name, arrays["rng_keys"], position, has_gauss, cached)
        return SavedState(arrays["W"], state, rng_state, header["history"], header["seconds"])

    def remove(self) -> None:
        """Remove the checkpoint file and its lock file at the end of a fit."""
        self.path.unlink(missing_ok=True)
        self._release()

    def _release(self) -> None:
        if self._locked:
            self._locked = False
            if self._lock.lock_counter == 1:
                with suppress(OSError):  # on Windows an open file cannot be removed; the release removes it
                    os.unlink(self._lock.lock_file)
            self._lock.release()

    def __del__(self) -> None:
        # After a fit that raised an error the checkpoint file stays, and the lock is released.
        if getattr(self, "_locked", False):
            self._release()
