"""Models in files that cannot run code.

A file is a skops archive of the estimator, a format version and the library's version. Reading it builds only what skops
itself trusts (NumPy arrays, SciPy matrices, scikit-learn objects) and instances of this library's classes; any other type,
and any function, is refused by name.
"""

from __future__ import annotations

import copy
import errno
import importlib
import os
import zipfile
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator

from gramless._runtime.files import replaced
from gramless._version import __version__

FORMAT_VERSION = 1
# The quickest: one-hot columns and images shrink to a sixth or a tenth of their size, and more effort gains little.
_LEVEL = 1
# Data and nothing that runs: the type that imputers remember, and the points of a machine fitted on sparse rows.
_TRUSTED_TYPES = {"numpy.dtype", "scipy.sparse._csr.csr_matrix", "scipy.sparse._csr.csr_array"}


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator (or a scikit-learn pipeline that holds one) to a file.

    Callbacks are not part of a model: an estimator with one is saved without it. What `load` would refuse, such as a kernel
    that is a Python function, is refused here already.

    Parameters
    ----------
    estimator : estimator
        Fitted.
    path : path-like
        The file to write; an older one is replaced only when the new one is complete.

    See Also
    --------
    load : Reads it.

    Examples
    --------
    >>> import os, tempfile
    >>> import gramless
    >>> model = gramless.LSSVC().fit([[0.0], [1.0]], [0, 1])
    >>> path = os.path.join(tempfile.mkdtemp(), "model.skops")
    >>> gramless.save(model, path)
    >>> gramless.load(path).predict([[0.1]])
    array([0])
    """
    import skops.io

    payload = {"format_version": FORMAT_VERSION, "gramless": __version__, "estimator": _without_callbacks(estimator)}
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "this is a folder, and a model is a file", str(target))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder to save a model in", str(target.parent))
    with replaced(target) as partial:
        skops.io.dump(payload, partial, compression=zipfile.ZIP_DEFLATED, compresslevel=_LEVEL)
        refused = _refused(skops.io.get_untrusted_types(file=partial))
        if refused:
            raise ValueError(
                f"{type(estimator).__name__} holds types that a model file cannot have: {', '.join(refused)}; "
                "save the fitted estimator itself (of a search, its best_estimator_), and write a kernel given as a "
                "function as a gramless.kernels expression"
            )


def _without_callbacks(value: Any) -> Any:
    """An estimator, or a list or dict of them, copied only as far as a callback has to be left out of what it holds."""
    if type(value) in (list, tuple):
        items = [_without_callbacks(item) for item in value]
        return type(value)(items) if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if not isinstance(value, BaseEstimator) and type(value) is not dict:
        return value
    is_estimator = isinstance(value, BaseEstimator)
    held = vars(value) if is_estimator else value
    stripped = {key: None if is_estimator and key == "callback" else _without_callbacks(held[key]) for key in held}
    changed = {key: part for key, part in stripped.items() if part is not held[key]}
    if not changed:
        return value
    stored = copy.copy(value)
    (vars(stored) if is_estimator else stored).update(changed)
    return stored


def _refused(types: list[str]) -> list[str]:
    return sorted({name for name in types if name not in _TRUSTED_TYPES and not _is_own(name)})


def _is_own(name: str) -> bool:
    """Whether a dotted name is a class of this library: instances are rebuilt from their attributes, nothing is called."""
    module, _, attribute = name.rpartition(".")
    if module.split(".")[0] != "gramless":
        return False
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError:
        return False
    return isinstance(found, type) and found.__module__ == module


def load(path: str | os.PathLike[str]) -> Any:
    """Read an estimator that `save` wrote; nothing in the file is executed.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    estimator
        As it was saved, without callbacks.

    See Also
    --------
    save : Writes it.

    Examples
    --------
    >>> import os, tempfile
    >>> import gramless
    >>> path = os.path.join(tempfile.mkdtemp(), "model.skops")
    >>> gramless.save(gramless.LSSVC(C=10.0).fit([[0.0], [1.0]], [0, 1]), path)
    >>> gramless.load(path).C
    10.0
    """
    import skops.io

    source = Path(path)
    if not source.exists():
        raise FileNotFoundError(f"no such model file: {source}")
    if source.is_dir():
        raise IsADirectoryError(f"{source} is a folder, not a model file")
    try:
        unknown = skops.io.get_untrusted_types(file=source)
    except (zipfile.BadZipFile, KeyError, EOFError, OSError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{source} is not a complete gramless model file ({type(error).__name__}: {error})") from error
    refused = _refused(unknown)
    if refused:
        raise ValueError(
            f"{source} holds types that a gramless {__version__} model does not have, and is not loaded: "
            f"{', '.join(refused)}"
        )
    try:
        payload = skops.io.load(source, trusted=unknown)
    except (zipfile.BadZipFile, KeyError, EOFError, OSError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{source} is not a complete gramless model file ({type(error).__name__}: {error})") from error
    if not isinstance(payload, dict) or "format_version" not in payload:
        raise ValueError(f"{source} is a skops file, but not one that gramless.save wrote")
    if payload["format_version"] != FORMAT_VERSION:
        raise ValueError(
            f"{source} has format {payload['format_version']} (gramless {payload.get('gramless')}); "
            f"this gramless {__version__} reads format {FORMAT_VERSION}"
        )
    return payload["estimator"]
