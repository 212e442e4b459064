"""The state of a running solve in a file, so that a killed process can go on.

One `.npz` without pickles, replaced atomically: a kill at any moment leaves the old file or the new one. The file carries a
fingerprint of the problem; a file of another problem is refused, not silently overwritten or mixed in. One fit at a time
has a file; a second one on the same path is refused. Every array that comes back has the dtype and the shape that were
written down with it, and a checksum of all of them.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import joblib
import numpy as np

from gramless._core import arrays as xa
from gramless._core.arrays import Array
from gramless._core.files import Lock, atomic_write, remove_partial_files

_FORMAT = 2


def fingerprint(*parts: Any) -> str:
    """A short hash of arrays and settings that changes when the problem does, and not from one process to the next."""
    return joblib.hash([_lasting(part) for part in parts])


def _lasting(part: Any) -> Any:
    """The part in a form whose hash is the same in another process, wherever and however it lies in memory."""
    if xa.is_sparse(part):
        return [part.shape, part.data, part.indices, part.indptr]
    if isinstance(part, np.ndarray | np.generic) or (hasattr(part, "shape") and hasattr(part, "dtype")):
        array = np.ascontiguousarray(xa.to_numpy(part))
        # Steps between entries enter the hash, also those of a side of length one, which mean nothing.
        return [array.shape, array.reshape(-1) if array.size > 1 else array.reshape(-1).copy()]
    if hasattr(part, "get_params") and not isinstance(part, type):
        return [type(part).__qualname__, _lasting(sorted(part.get_params(deep=False).items()))]
    if isinstance(part, list | tuple):
        return [_lasting(piece) for piece in part]
    if isinstance(part, dict):
        return [(_lasting(key), _lasting(value)) for key, value in part.items()]
    if isinstance(part, FunctionType):
        # By name alone, another function would be the same, and one that has no name could not be hashed.
        closed = [cell.cell_contents for cell in part.__closure__ or ()]
        return [part.__qualname__, _lasting([part.__code__, part.__defaults__, part.__kwdefaults__, closed])]
    if isinstance(part, CodeType):
        return [part.co_code, part.co_names, _lasting(part.co_consts)]
    if isinstance(part, partial):
        return _lasting([part.func, part.args, sorted(part.keywords.items())])
    return part if isinstance(part, str | bytes | int | float | complex | None | np.random.RandomState) else repr(part)


def _plain(value: Any) -> Any:
    """NumPy numbers and arrays that a callback put into the history, as JSON has them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a checkpoint can keep numbers, text and arrays in the history, not {type(value).__name__}")


@dataclass
class SavedState:
    W: np.ndarray
    state: dict[str, Any]
    rng_state: tuple[Any, ...]
    history: list[dict[str, Any]]
    seconds: float


class StateFile:
    """A file that holds the last saved iteration of one problem."""

    def __init__(self, path: str | os.PathLike[str], problem: str, every: int = 10):
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every!r}")
        self.path = Path(path)
        self.problem = problem
        self.every = every
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"the folder of the checkpoint does not exist: {self.path.parent}")
        self._lock = Lock(self.path, f"another fit is using the checkpoint {self.path}: wait for it, or give another path")
        remove_partial_files(self.path)

    def save(
        self,
        W: Array,
        state: dict[str, Any],
        rng: np.random.RandomState,
        history: list[dict[str, Any]],
        seconds: float,
    ) -> None:
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
        sum_ = np.frombuffer(fingerprint(text, sorted(arrays.items())).encode(), dtype=np.uint8)
        with atomic_write(self.path) as part, open(part, "wb") as file:
            np.savez(file, allow_pickle=False, header=encoded, checksum=sum_, **arrays)
            file.flush()
            os.fsync(file.fileno())

    def load(self) -> SavedState | None:
        """The saved state, or None where nothing was saved yet."""
        if not self.path.exists():
            return None
        try:
            with open(self.path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
                text = file["header"].tobytes().decode()
                arrays = {key: file[key] for key in file.files if key not in ("header", "checksum")}
                same = file["checksum"].tobytes().decode() == fingerprint(text, sorted(arrays.items()))
            header = json.loads(text)
        except Exception as error:
            raise ValueError(f"{self.path} is not a readable checkpoint; remove it to start anew ({error})") from error
        if not same:
            raise ValueError(f"{self.path} is not a readable checkpoint; remove it to start anew (its checksum differs)")
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
        """The fit has ended: nothing is left behind."""
        self.path.unlink(missing_ok=True)
        self._lock.release()

    def __del__(self) -> None:
        # A fit that ended by an error keeps its file to go on from, but not others from it.
        if hasattr(self, "_lock"):
            self._lock.release()
