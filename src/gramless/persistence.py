"""Models in files that cannot run code.

A file is a skops archive of the estimator, a format version and the library's version. Reading it builds only NumPy arrays,
SciPy and scikit-learn objects and classes of this library; any other type is refused by name.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

from gramless._version import __version__

FORMAT_VERSION = 1
_TRUSTED_PREFIXES = ("gramless.",)
# Data and nothing that runs: the type that imputers remember, and the points of a machine fitted on sparse rows.
_TRUSTED_TYPES = {"numpy.dtype", "scipy.sparse._csr.csr_matrix", "scipy.sparse._csr.csr_array"}


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator (or a scikit-learn pipeline that holds one) to a file.

    Callbacks are not part of a model: an estimator with one is saved without it.

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
    import copy

    import skops.io

    stored = copy.copy(estimator)
    if getattr(stored, "callback", None) is not None:
        stored.callback = None
    payload = {"format_version": FORMAT_VERSION, "gramless": __version__, "estimator": stored}
    target = Path(path)
    partial = target.with_name(target.name + ".partial")
    try:
        skops.io.dump(payload, partial)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def load(path: str | os.PathLike[str]) -> Any:
    """Read an estimator that `save` wrote; nothing in the file is executed."""
    import skops.io
    from skops.io.exceptions import UntrustedTypesFoundException

    source = Path(path)
    if not source.exists():
        raise FileNotFoundError(f"no such model file: {source}")
    try:
        unknown = skops.io.get_untrusted_types(file=source)
        trusted = [name for name in unknown if name.startswith(_TRUSTED_PREFIXES) or name in _TRUSTED_TYPES]
        refused = sorted(set(unknown) - set(trusted))
        if refused:
            raise UntrustedTypesFoundException(refused)
        payload = skops.io.load(source, trusted=trusted)
    except UntrustedTypesFoundException as error:
        raise ValueError(f"{source} holds types that a gramless model does not have, and is not loaded: {error}") from error
    except (zipfile.BadZipFile, KeyError, EOFError, OSError, ValueError) as error:
        raise ValueError(f"{source} is not a complete gramless model file ({type(error).__name__}: {error})") from error
    if not isinstance(payload, dict) or "format_version" not in payload:
        raise ValueError(f"{source} is a skops file, but not one that gramless.save wrote")
    if payload["format_version"] != FORMAT_VERSION:
        raise ValueError(
            f"{source} has format {payload['format_version']} (gramless {payload.get('gramless')}); "
            f"this gramless {__version__} reads format {FORMAT_VERSION}"
        )
    return payload["estimator"]
