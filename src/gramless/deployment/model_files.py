"""Model files that cannot run code.

A model file is a skops archive of the estimator, a format version and the versions of gramless and scikit-learn. `load`
creates only types that skops trusts (NumPy arrays, SciPy matrices, scikit-learn objects) and instances of gramless classes,
whose attributes it sets: no constructor is called, and no module outside gramless and scikit-learn is imported. Before any
array is read, the sum of the sizes declared in the file is checked, and the shape of every array is compared with the shape
recorded by `save`. Then the values of the arrays are checked, and the model must predict two rows of zeros without an error.

Files of equal models are equal byte for byte: the members of the archive are named by their order, and no content depends
on the current time or on memory addresses. Measured times (seconds of iterations) are in a separate member, `times.json`.
"""

from __future__ import annotations

import copy
import errno
import importlib
import inspect
import io
import json
import os
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags

from gramless._core.files import atomic_write
from gramless._core.untrusted_arrays import check_sparse_arrays, read_npy_header, unzipped_bytes
from gramless._version import __version__
from gramless.deployment.tuning import TUNING

FORMAT_VERSION = 1
_SCHEMA, _TIMES = "schema.json", "times.json"
# A model file may contain every subclass of BaseEstimator that gramless defines. It may also contain these classes, which
# are not estimators.
_STATE_CLASSES = {
    "gramless._core.device.CUDA",
    "gramless._core.targets.streamed.LabelTargets",
    "gramless._core.targets.streamed.ValueTargets",
    "gramless.approximation.features.fourier_map.FourierBasis",
    "gramless.approximation.features.landmark_map.LandmarkFeatures",
    "gramless.inference.feature_process.FeatureProcess",
    "gramless.streaming.learners.gradient.GradientState",
    "gramless.streaming.learners.ridge_sums.RidgeSums",
    "gramless.streaming.learners.training_pass.CollectingPass",
    "gramless.streaming.learners.training_pass.FinishedPass",
    "gramless.streaming.learners.training_pass.LearningPass",
    "gramless.streaming.learners.training_pass.OnePassModel",
    "gramless.streaming.learners.training_pass.RowFormat",
    "gramless.streaming.learners.training_pass.PassOfVersion01",
    "gramless.streaming.reservoir.Reservoir",
}
# Old names of packages, modules and classes -> current names; the longest matching entry applies. Add an entry for each
# class that is moved or renamed, so that files of earlier versions can be read.
RENAMED = {
    # Packages and modules of version 0.1.0
    "gramless._runtime": "gramless._core",
    "gramless.calibration": "gramless.inference",
    "gramless.features": "gramless.approximation.features",
    "gramless.landmarks": "gramless.approximation.landmarks",
    "gramless.learners": "gramless.streaming.learners",
    "gramless.program": "gramless.cli",
    "gramless.solvers": "gramless.linalg.solvers",
    "gramless.solvers.kaczmarz_mp": "gramless.linalg.solvers.kaczmarz",
    "gramless.solvers.matching_pursuit": "gramless.linalg.solvers.kaczmarz",
    "gramless.solvers.nystrom_committee": "gramless.linalg.solvers.averaged",
    "gramless.targets": "gramless._core.targets",
    "gramless.uncertainty": "gramless.inference",
    # Classes and modules of version 0.1.0
    "gramless.images.crop.Crop": "gramless.images.geometry.Crop",
    "gramless.images.deskew.Deskew": "gramless.images.geometry.Deskew",
    "gramless.images.fourier.FourierFeatures": "gramless.images.filters.SpectrumFeatures",
    "gramless.images.hog": "gramless.images.filters",
    "gramless.images.normalise": "gramless.images.filters",
    "gramless.images.scale": "gramless.images.filters",
    "gramless.images.smooth": "gramless.images.filters",
    "gramless.images.window": "gramless.images.filters",
    "gramless.estimators.fourier_features": "gramless.estimators.kernel_features",
    "gramless.estimators.nystrom_features": "gramless.estimators.kernel_features",
    "gramless.estimators.one_class": "gramless.estimators.svm",
    "gramless.estimators.svc": "gramless.estimators.svm",
    "gramless.estimators.svr": "gramless.estimators.svm",
    "gramless.estimators.lssvm_cv.LSSVCCV": "gramless.estimators.lssvm.LSSVC",
    "gramless.estimators.lssvm_cv.LSSVRCV": "gramless.estimators.lssvm.LSSVR",
    "gramless.features.fourier_map.FourierFeatures": "gramless.approximation.features.fourier_map.FourierBasis",
    "gramless.kernels.equality": "gramless.kernels.stationary",
    "gramless.kernels.matern": "gramless.kernels.stationary",
    "gramless.learners.driver.Model": "gramless.streaming.learners.training_pass.OnePassModel",
    "gramless.learners.driver.Pass": "gramless.streaming.learners.training_pass.PassOfVersion01",
    "gramless.learners.steps.StepsRun": "gramless.streaming.learners.gradient.GradientState",
    "gramless.tables.columns": "gramless.tables.column_types",
    "gramless.tables.members.Member": "gramless.tables.members.TableMember",
}
# Renamed attributes: current name of the class -> old name of the attribute -> current name of the attribute.
RENAMED_ATTRIBUTES: dict[str, dict[str, str]] = {
    "gramless.estimators.image.ImageClassifier": {"machine_": "estimator_"},
    "gramless.estimators.table.TableClassifier": {"gave_up_": "reductions_"},
    "gramless.estimators.table.TableRegressor": {"gave_up_": "reductions_"},
    "gramless.tables.members.TableMember": {"about": "description"},
    "gramless.tables.preparation.Preparation": {"way": "scaling", "with_gaps_": "with_missing_"},
}
# Types that run no code when they are loaded: dtypes (stored by imputers) and sparse points of models fitted to sparse rows.
_TRUSTED_TYPES = {"numpy.dtype", "scipy.sparse._csr.csr_matrix", "scipy.sparse._csr.csr_array"}
# Modules of scikit-learn whose compiled code does not check array bounds: a forged file could crash the process.
_UNSAFE_SKLEARN = ("sklearn.svm.", "sklearn.tree.", "sklearn.neighbors.")
_POINTS = ("points", "points_", "support_vectors_", "cluster_centers_")
# Attributes that contain one of these words may be infinite or NaN in a valid model.
_MAY_BE_INFINITE = ("score", "loss", "history", "error")


def save(estimator: Any, path: str | os.PathLike[str], *, times: bool = True) -> None:
    """Write a fitted estimator, or a scikit-learn pipeline that contains a gramless estimator, to a file.

    Unlike pickle files, the file cannot run code when it is loaded. Callbacks are not saved. An estimator that `load` could
    not read, such as one whose kernel is a Python function, raises `ValueError`.

    Parameters
    ----------
    estimator : estimator
        Fitted estimator.
    path : path-like
        File to write; an existing file is replaced only when the new file is complete.
    times : bool, default=True
        Whether to save measured times, such as the seconds in `history_`. Without times, two fits with equal data, settings
        and `random_state` give equal files; with times, the files differ only in the archive member `times.json`.

    See Also
    --------
    load : Read the file.

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

    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "a model cannot be saved to a folder: give the name of a file", str(target))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the folder of the model file does not exist", str(target.parent))
    measured: list[tuple[list[str | int], float]] = []  # path and seconds of each measured time
    payload = {
        "format_version": FORMAT_VERSION,
        "gramless": __version__,
        "scikit-learn": version("scikit-learn"),
        "estimator": _to_stored(estimator, measured, (), {}),
    }
    content = io.BytesIO()  # compressed, because the memory may be nearly full after a fit
    skops.io.dump(payload, content, compression=zipfile.ZIP_DEFLATED, compresslevel=TUNING.compression_level)
    with zipfile.ZipFile(content) as archive:
        schema = json.loads(archive.read(_SCHEMA))
        _, rejected = _checked_types(schema, content)
        if rejected:
            raise ValueError(
                f"{type(estimator).__name__} contains types that a model file cannot have: {', '.join(rejected)}; "
                "save the fitted estimator itself (of a search, its best_estimator_), and write a kernel given as a "
                "function as a gramless.kernels expression"
            )
        names = _make_reproducible(schema, archive)
        with atomic_write(target) as partial, open(partial, "wb") as file:
            _write_archive(file, archive, names, schema, measured if times else [])


def load(path: str | os.PathLike[str], *, max_bytes: int | None = None) -> Any:
    """Read an estimator that `save` wrote; no code of the file is run.

    Parameters
    ----------
    path : path-like
        File to read.
    max_bytes : int, optional
        Maximum size of the uncompressed contents in bytes. None is the larger of 256 MiB and 50 times the size of the file,
        which is enough for models and rejects small files that were forged to fill the memory.

    Returns
    -------
    estimator
        The saved estimator without its callbacks.

    Raises
    ------
    ValueError
        If the file is damaged, contains types that no model contains, or contains arrays with inconsistent shapes.

    See Also
    --------
    save : Write the file.

    Examples
    --------
    >>> import os, tempfile
    >>> import gramless
    >>> path = os.path.join(tempfile.mkdtemp(), "model.skops")
    >>> gramless.save(gramless.LSSVC(C=10.0).fit([[0.0], [1.0]], [0, 1]), path)
    >>> gramless.load(path).C
    10.0
    """
    source = Path(path)
    if not source.exists():
        raise FileNotFoundError(f"no such model file: {source}")
    if source.is_dir():
        raise IsADirectoryError(f"{source} is a folder, not a model file")
    try:
        with open(source, "rb") as file:
            return _read(file, source, max_bytes)
    except MemoryError:
        raise
    except Exception as error:
        damaged = f"{source} is not a complete gramless model file ({type(error).__name__}: {error})"
        message = str(error) if isinstance(error, _RejectedFileError) else damaged
        raise ValueError(message + _version_advice(source)) from error


class _RejectedFileError(ValueError):
    """Error for an undamaged file whose size, types or format `load` does not accept."""


def _read(file: BinaryIO, source: Path, max_bytes: int | None) -> Any:
    """Return the estimator of an open file; check sizes and types before creating objects, and arrays afterwards."""
    import skops.io

    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        if len(set(names)) < len(names):
            raise ValueError("two members have the same name")
        size = os.fstat(file.fileno()).st_size
        limit = max(TUNING.max_unpacked_bytes, TUNING.max_compression_ratio * size) if max_bytes is None else max_bytes
        declared = sum(member.file_size for member in archive.infolist())
        needed = declared if declared > limit else unzipped_bytes(archive)
        if needed > limit:
            raise _RejectedFileError(
                f"{source} would take {needed / 1e6:,.0f} MB, and {limit / 1e6:,.0f} MB are allowed: if you trust its "
                f"origin, load it with max_bytes={needed}"
            )
        schema = json.loads(archive.read(_SCHEMA))
        times = json.loads(archive.read(_TIMES)) if _TIMES in names else []
        _check_saved_shapes(schema, archive)
        if use_current_names(schema, RENAMED):
            file = io.BytesIO()
            _write_archive(file, archive, {name: name for name in names if name not in (_SCHEMA, _TIMES)}, schema, [])
    trusted, rejected = _checked_types(schema, file)
    if rejected:
        raise _RejectedFileError(
            f"{source} contains types that a gramless {__version__} model does not have, and is not loaded: "
            f"{', '.join(rejected)}"
        )
    file.seek(0)
    payload = skops.io.load(file, trusted=trusted)
    if not isinstance(payload, dict) or "format_version" not in payload:
        raise _RejectedFileError(f"{source} is a skops file, but not one that gramless.save wrote")
    if payload["format_version"] != FORMAT_VERSION:
        raise _RejectedFileError(
            f"{source} has format {payload['format_version']} (gramless {payload.get('gramless')}); "
            f"this gramless {__version__} reads format {FORMAT_VERSION}"
        )
    objects = _reachable(payload["estimator"])
    for part in objects:
        if sp.issparse(part):
            check_sparse_arrays(part)
        elif names_of := RENAMED_ATTRIBUTES.get(_full_name(type(part))):
            attributes = vars(part)
            attributes |= {new: attributes.pop(old) for old, new in names_of.items() if old in attributes}
    for path, seconds in times:
        _set_time(payload["estimator"], path, seconds)
    estimators = [part for part in objects if isinstance(part, BaseEstimator) and _is_ours(type(part).__module__)]
    for estimator in estimators:
        _restore(estimator)
    for estimator in estimators:
        _check_estimator(estimator)
    return payload["estimator"]


def _version_advice(source: Path) -> str:
    """Return advice for a file of other gramless or scikit-learn versions; "" if the versions agree or are unknown."""
    here = {"gramless": __version__, "scikit-learn": version("scikit-learn")}
    try:
        with zipfile.ZipFile(source) as archive:
            content = json.loads(archive.read(_SCHEMA))["content"]
        stored = {name: json.loads(content[name]["content"]) for name in here if name in content}
    except Exception:  # the file is damaged, which the original error reports
        return ""
    known = {name: number for name, number in stored.items() if isinstance(number, str) and len(number) < 40}
    if known.items() <= here.items():
        return ""
    then, now = (" and ".join(f"{name} {numbers[name]}" for name in known) for numbers in (known, here))
    needed = " ".join(f"'{name}=={number}'" for name, number in known.items())
    return (
        f". It was written by {then}, and this is {now}: train the model again here, or read it where it was written "
        f"(pip install {needed})"
    )


# Types that a file may contain


def _is_ours(module: str) -> bool:
    return module.split(".")[0] == "gramless"


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _is_loadable(name: str) -> bool:
    """Return True if a model file may contain the type of this name, although skops does not trust it.

    For a name inside gramless, the module is imported to check that the type is a subclass of BaseEstimator.
    """
    if name in _TRUSTED_TYPES or name in _STATE_CLASSES:
        return True
    module, _, short = name.rpartition(".")
    if not _is_ours(module) or not all(part.isidentifier() and not part.startswith("__") for part in module.split(".")):
        return False
    try:
        cls = getattr(importlib.import_module(module), short, None)
    except ImportError:
        return False
    return inspect.isclass(cls) and issubclass(cls, BaseEstimator) and cls.__module__ == module


def _checked_types(schema: Any, file: Any) -> tuple[list[str], list[str]]:
    """Return the types in a file that skops does not trust: first the allowed types, then the rejected types.

    Also rejected are unsafe types of scikit-learn and types of gramless that would not be created from their attributes.
    """
    import skops.io

    rejected = set()
    for _, node in _nodes(schema):
        name = f"{node.get('__module__')}.{node.get('__class__')}"
        wrong = _is_ours(name) and (node.get("__loader__") != "ObjectNode" or not _is_loadable(name))
        if wrong or name.startswith(_UNSAFE_SKLEARN):
            rejected.add(name)
    file.seek(0)
    untrusted = [] if rejected else skops.io.get_untrusted_types(file=file)
    trusted = [name for name in untrusted if _is_loadable(name)]
    return trusted, sorted({*rejected, *untrusted} - {*trusted})


def use_current_names(schema: Any, renamed: dict[str, str]) -> bool:
    """Replace old names of classes and modules by the current names, in place; return True if any were replaced."""
    changed = False
    for _, node in _nodes(schema):
        name = f"{node.get('__module__')}.{node.get('__class__')}"
        old = max((old for old in renamed if f"{name}.".startswith(f"{old}.")), key=len, default=None)
        if old is not None:
            node["__module__"], _, node["__class__"] = (renamed[old] + name[len(old) :]).rpartition(".")
            changed = True
    return changed


def _nodes(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object of a JSON document with its path, such as "estimator.points_", in a fixed order."""
    waiting = [("", schema)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            yield name.lstrip("."), value
        parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        waiting += [(name if key == "content" else f"{name}.{key}", part) for key, part in parts]


# Archives with reproducible bytes


def _make_reproducible(schema: Any, archive: zipfile.ZipFile) -> dict[str, str]:
    """Replace addresses in a schema by consecutive numbers, add array shapes, and return old and new names of members."""
    numbers: dict[int, int] = {}
    names: dict[str, str] = {}
    for number, (_, node) in enumerate(_nodes(schema)):
        if isinstance(node.get("__id__"), int):
            # Equal strings, numbers or tuples are one object in memory or several objects, depending on the history of the
            # process. Each of their occurrences therefore gets a new number.
            is_value = node["__loader__"] not in ("ObjectNode", "DictNode", "ListNode", "NdArrayNode")
            node["__id__"] = number if is_value else numbers.setdefault(node["__id__"], number)
        if isinstance(node.get("file"), str):
            old = node["file"]
            node["file"] = names.setdefault(old, f"{number}{Path(old).suffix}")
            if old.endswith(".npy"):
                node["saved_as"] = _description(archive, old)
    return names


def _description(archive: zipfile.ZipFile, member: str) -> str:
    """Return the shape and dtype of an array in an archive as text."""
    with archive.open(member) as file:
        shape, dtype = read_npy_header(file)  # type: ignore[arg-type]
    return f"shape {shape} and dtype {dtype}"


def _write_archive(file: BinaryIO, source: zipfile.ZipFile, names: dict[str, str], schema: Any, times: list[Any]) -> None:
    """Write an archive that contains the renamed members of a source archive, a schema and measured times."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=TUNING.compression_level) as archive:

        def add(name: str, content: str | bytes) -> None:
            info = zipfile.ZipInfo(name)  # has a fixed date instead of the current time
            info.create_system = 3  # the same on all operating systems
            archive.writestr(info, content, zipfile.ZIP_DEFLATED, TUNING.compression_level)

        for old, new in names.items():
            add(new, source.read(old))
        add(_SCHEMA, json.dumps(schema))
        if times:
            add(_TIMES, json.dumps(times))


def _check_saved_shapes(schema: Any, archive: zipfile.ZipFile) -> None:
    """Raise ValueError if the shape or dtype of an array differs from the shape or dtype recorded by `save`."""
    for name, node in _nodes(schema):
        saved = node.get("saved_as")  # not recorded in files of version 0.1.0
        if isinstance(saved, str) and (found := _description(archive, str(node.get("file")))) != saved:
            raise ValueError(f"the array {name} has {found}, and it was saved with {saved}")


# Attributes as they are stored


def _to_stored(value: Any, times: list[Any], path: tuple[str | int, ...], copies: dict[int, tuple[Any, Any]]) -> Any:
    """Return a copy of an estimator without callbacks and times, with points in half precision if the conversion is exact.

    Times are replaced by 0.0 and appended to `times` with their paths. `copies` maps addresses to originals and copies.
    """
    if id(value) in copies:
        return copies[id(value)][1]
    is_own = _is_ours(type(value).__module__)
    if type(value) in (list, tuple):
        copied = type(value)(_to_stored(part, times, (*path, key), copies) for key, part in enumerate(value))
    elif type(value) is dict or isinstance(value, BaseEstimator) or _full_name(type(value)) in _STATE_CLASSES:
        copied = copy.copy(value)
        parts = copied if type(value) is dict else vars(copied)
        for key, part in parts.items():
            if key == "callback" and isinstance(value, BaseEstimator):
                parts[key] = None
            elif _is_time(key, path) and isinstance(part, float):
                times.append(([*path, key], part))
                parts[key] = 0.0
            elif is_own and isinstance(value, BaseEstimator) and key in _POINTS:  # `_restore` converts back
                parts[key] = _to_half(part)
            else:
                parts[key] = _to_stored(part, times, (*path, key), copies)
    else:
        return value
    copies[id(value)] = value, copied
    return copied


def _is_time(key: Any, path: Sequence[Any]) -> bool:
    """Return True if a key is the name of a measured time: "seconds", "..._seconds", or any key of `timings_`."""
    return isinstance(key, str) and (key == "seconds" or key.endswith("_seconds") or "timings_" in path[-1:])


def _set_time(root: Any, path: list[Any], seconds: Any) -> None:
    """Store a measured time in a loaded estimator; raise ValueError if its path does not lead to a time."""
    *parents, name = path
    for key in parents:
        root = root[key] if isinstance(root, dict | list | tuple) else vars(root)[key]
    attributes = root if isinstance(root, dict) else vars(root)
    if not _is_time(name, parents) or attributes.get(name) != 0.0 or not isinstance(seconds, float):
        raise ValueError(f"there is no time {'.'.join(map(str, path))}")
    attributes[name] = seconds


def _to_half(points: Any) -> Any:
    """Return points in half precision, with the name of their dtype, if the conversion is exact (pixels, small counts)."""
    if type(points) is list:
        return [_to_half(one) for one in points]
    if not isinstance(points, np.ndarray) or points.dtype not in (np.float32, np.float64) or points.size == 0:
        return points
    with np.errstate(over="ignore"):
        half = points.astype(np.float16)
    return {"half": half, "dtype": points.dtype.name} if np.array_equal(half.astype(points.dtype), points) else points


def _from_half(stored: Any) -> Any:
    """Return points in the dtype that they had before `_to_half`."""
    if type(stored) is list:
        return [_from_half(points) for points in stored]
    if not (isinstance(stored, dict) and set(stored) == {"half", "dtype"}):
        return stored
    if stored["dtype"] not in ("float32", "float64") or getattr(stored["half"], "dtype", None) != np.float16:
        raise ValueError("points in half precision do not have a valid dtype")
    return stored["half"].astype(stored["dtype"])


def _restore(estimator: BaseEstimator) -> None:
    """Convert points from half precision to their dtype, and set parameters missing in the file to their defaults."""
    attributes = vars(estimator)
    attributes |= {key: _from_half(attributes[key]) for key in _POINTS if key in attributes}
    for name, parameter in inspect.signature(type(estimator).__init__).parameters.items():
        if parameter.default is not inspect.Parameter.empty and name not in attributes:
            attributes[name] = parameter.default


def _reachable(root: Any) -> list[Any]:
    """Return all objects that are reachable from an object through attributes and containers."""
    waiting, seen, found = [root], set(), []
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        found.append(part)
        if isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list | tuple | set) or (isinstance(part, np.ndarray) and part.dtype.kind == "O"):
            waiting += list(part.flat) if isinstance(part, np.ndarray) else part
        elif hasattr(part, "__dict__") and not isinstance(part, type):
            waiting += vars(part).values()
    return found


# Checks of a loaded estimator


def _check_estimator(estimator: BaseEstimator) -> None:
    """Raise ValueError for arrays that are not finite or whose shapes would make compiled loops read beyond their ends."""
    attributes = vars(estimator)
    name = type(estimator).__name__
    for key, value in attributes.items():
        is_float = isinstance(value, np.ndarray) and value.dtype.kind == "f"
        if is_float and not any(word in key for word in _MAY_BE_INFINITE) and not np.isfinite(value).all():
            raise ValueError(f"{name}.{key} is not finite")
    width = attributes.get("n_features_in_")
    methods = [name for name in ("predict", "decision_function", "transform") if hasattr(estimator, name)]
    if width is None or not methods:
        return
    if not isinstance(width, int | np.integer) or not 1 <= width <= TUNING.max_features:
        raise ValueError(f"{name}.n_features_in_ is {width!r}, not an integer from 1 to {TUNING.max_features}")
    precomputed = attributes.get("kernel") == "precomputed" or type(attributes.get("kernel_")).__name__ == "Precomputed"
    for key in _POINTS:
        if key in attributes and not precomputed and np.shape(attributes[key])[1:] != (width,):
            raise ValueError(f"{name}: {key} does not have the {width} columns that the model was fitted on")
    tags = get_tags(estimator).input_tags
    if not tags.two_d_array or tags.string or tags.categorical:
        return
    X = np.zeros((2, int(width)))
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results = {method: getattr(estimator, method)(X) for method in methods}
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise ValueError(f"the arrays of {name} do not agree: {type(error).__name__}, {error}") from error
    for method, result in results.items():
        values = result.data if sp.issparse(result) else np.asarray(result)
        if result.shape[0] != len(X):
            raise ValueError(f"{method} of {name} returns {result.shape[0]} results for {len(X)} rows")
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise ValueError(f"{method} of {name} returns values that are not finite")
    if "classes_" in attributes and "decision_function" in results:
        k, multilabel = len(attributes["classes_"]), attributes.get("multilabel_", False)
        widths = {k} if multilabel else {1} if k == 2 else {k, k * (k - 1) // 2}  # one-vs-rest and one-vs-one
        scores = results["decision_function"]
        if scores.reshape(len(X), -1).shape[1] not in widths:
            raise ValueError(f"{name} returns scores of shape {scores.shape} for {len(X)} rows and {k} classes")
