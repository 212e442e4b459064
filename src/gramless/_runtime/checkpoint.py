"""The state of a running solve in a file, so that a killed process can go on.

One `.npz` without pickles, replaced atomically: a kill at any moment leaves the old file or the new one. The file carries a
fingerprint of the problem; a file of another problem is refused, not silently overwritten or mixed in.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from gramless._runtime import arrays as xa
from gramless._runtime.arrays import Array

_FORMAT = 1


def fingerprint(*parts: Any) -> str:
    """A short hash of arrays and settings that changes when the problem does, and not from one process to the next."""
    digest = hashlib.sha256()
    for part in parts:
        _absorb(digest, part)
    return digest.hexdigest()[:32]


def _absorb(digest: Any, part: Any) -> None:
    if xa.is_sparse(part):
        for piece in (part.data, part.indices, part.indptr):
            digest.update(np.ascontiguousarray(piece).data)
    elif hasattr(part, "shape"):
        array = np.ascontiguousarray(xa.to_numpy(part))
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.data)
    elif hasattr(part, "get_params") and not isinstance(part, type):
        # What a kernel prints is shortened in the middle, and so are its arrays.
        _absorb(digest, [type(part).__qualname__, *sorted(part.get_params(deep=False).items())])
    elif isinstance(part, list | tuple):
        digest.update(f"{len(part)}:".encode())
        for piece in part:
            _absorb(digest, piece)
    elif isinstance(part, FunctionType):
        # Printed, a function tells its address, which is another one after a kill.
        closed = [cell.cell_contents for cell in part.__closure__ or ()]
        _absorb(digest, [part.__qualname__, part.__code__, part.__defaults__, part.__kwdefaults__, closed])
    elif isinstance(part, CodeType):
        _absorb(digest, [part.co_code.hex(), part.co_names, part.co_consts])
    elif isinstance(part, partial):
        _absorb(digest, [part.func, part.args, *sorted(part.keywords.items())])
    else:
        digest.update(repr(part).encode())


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


class Checkpoint:
    """A file that holds the last saved iteration of one problem."""

    def __init__(self, path: str | os.PathLike[str], problem: str, every: int = 10):
        if every < 1:
            raise ValueError(f"checkpoint_every must be at least 1, got {every!r}")
        self.path = Path(path)
        self.problem = problem
        self.every = every
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"the folder of the checkpoint does not exist: {self.path.parent}")

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
        encoded = np.frombuffer(json.dumps(header, default=_plain).encode(), dtype=np.uint8)
        arrays = {f"state_{k}": xa.to_numpy(v) for k, v in state.items() if hasattr(v, "shape")}
        partial = self.path.with_name(self.path.name + ".partial")
        with open(partial, "wb") as file:
            np.savez(
                file,
                allow_pickle=False,
                header=encoded,
                W=xa.to_numpy(W),
                rng_keys=keys,
                **arrays,
            )
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, self.path)

    def load(self) -> SavedState | None:
        """The saved state, or None where nothing was saved yet."""
        if not self.path.exists():
            return None
        try:
            with open(self.path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
                header = json.loads(file["header"].tobytes())
                arrays = {key: file[key] for key in file.files if key != "header"}
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
        self.path.unlink(missing_ok=True)
