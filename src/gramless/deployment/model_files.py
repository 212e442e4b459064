"""Models in files that cannot run code.

A file is a skops archive of the estimator, a format version and the library's version. Reading it builds only what skops
itself trusts (NumPy arrays, SciPy matrices, scikit-learn objects) and instances of the classes of this library that are
listed here, from their attributes: no constructor of ours is called, nothing else is imported. Before that the sizes that
the file announces are added up; after it every array is checked, and a model must answer for two rows of zeros.
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
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp
import sklearn
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags

from gramless._core.files import replaced
from gramless._core.stored import check_sparse, unpacked_bytes
from gramless._version import __version__

FORMAT_VERSION = 1
# The quickest: one-hot columns and images shrink to a sixth or a tenth of their size, and more effort gains little.
_LEVEL = 1
# Data and nothing that runs: the type that imputers remember, and the points of a machine fitted on sparse rows.
_TRUSTED_TYPES = {"numpy.dtype", "scipy.sparse._csr.csr_matrix", "scipy.sparse._csr.csr_array"}
# Every class of this library that a file may have, beside the public ones of these packages; a test saves every estimator.
# They are imported only where a file names one of their classes.
_PUBLIC = (
    "gramless.callbacks",
    "gramless.images",
    "gramless.kernels",
    "gramless.approximation.landmarks",
    "gramless.linalg.solvers",
)
_LOADABLE = {
    "gramless._core.device.CUDA",
    "gramless.estimators.budget.BudgetLSSVC",
    "gramless.estimators.budget.BudgetLSSVR",
    "gramless.estimators.fourier_features.FourierFeatures",
    "gramless.estimators.fourier.FourierLSSVC",
    "gramless.estimators.fourier.FourierLSSVR",
    "gramless.estimators.image.ImageClassifier",
    "gramless.estimators.lssvm.LSSVC",
    "gramless.estimators.lssvm.LSSVR",
    "gramless.estimators.lssvm_cv.LSSVCCV",
    "gramless.estimators.lssvm_cv.LSSVRCV",
    "gramless.estimators.mkl.MKLClassifier",
    "gramless.estimators.novelty.NystromNovelty",
    "gramless.estimators.nystrom.NystromLSSVC",
    "gramless.estimators.nystrom.NystromLSSVR",
    "gramless.estimators.nystrom_features.NystromFeatures",
    "gramless.estimators.one_class.KernelOneClassSVM",
    "gramless.estimators.patches.PatchClassifier",
    "gramless.estimators.prototypes.PrototypeLSSVC",
    "gramless.estimators.risvo.RiSVOClassifier",
    "gramless.estimators.spherical_kmeans.SphericalKMeans",
    "gramless.estimators.svc.KernelSVC",
    "gramless.estimators.svr.KernelSVR",
    "gramless.estimators.table.TableClassifier",
    "gramless.estimators.table.TableRegressor",
    "gramless.approximation.features.fourier_map.FourierFeatures",
    "gramless.approximation.features.landmark_map.LandmarkFeatures",
    "gramless.streaming.learners.driver.Model",
    "gramless.streaming.learners.driver.Pass",
    "gramless.streaming.learners.ridge_sums.RidgeSums",
    "gramless.streaming.learners.steps.StepsRun",
    "gramless.cli.model.TableModel",
    "gramless.cli.pictures.PictureModel",
    "gramless.streaming.reservoir.Reservoir",
    "gramless.tables.columns.TableColumns",
    "gramless.tables.members.Member",
    "gramless.tables.partition.Partition",
    "gramless.tables.preparation.Preparation",
    "gramless.inference.feature_process.FeatureProcess",
    "gramless._core.targets.streamed.LabelTargets",
    "gramless._core.targets.streamed.ValueTargets",
}
# Packages of version 0.1.0 and where their modules are now, for files that version 0.1.0 wrote.
_MOVED = {
    "_runtime": "_core",
    "calibration": "inference",
    "features": "approximation.features",
    "landmarks": "approximation.landmarks",
    "learners": "streaming.learners",
    "program": "cli",
    "solvers": "linalg.solvers",
    "targets": "_core.targets",
    "uncertainty": "inference",
}
# Compiled code of scikit-learn that trusts its arrays: a file could crash the process.
_NOT_FROM_SKLEARN = ("sklearn.svm.", "sklearn.tree.", "sklearn.neighbors.")
_DEEPEST = 200
# A model that shrinks more than that in its file is rare, and a file that was made to fill the memory is not.
_MOST_UNPACKED = 256 * 2**20
_MOST_SHRUNK = 50
_POINTS = ("points", "points_", "support_vectors_", "cluster_centers_")
# These may be infinite or undefined in a good model.
_NOT_ALWAYS_FINITE = ("score", "loss", "history", "error")


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

    payload = {
        "format_version": FORMAT_VERSION,
        "gramless": __version__,
        "scikit-learn": version("scikit-learn"),
        "estimator": _stored(estimator),
    }
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "this is a folder, and a model is a file", str(target))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder to save a model in", str(target.parent))
    with replaced(target) as partial:
        skops.io.dump(payload, partial, compression=zipfile.ZIP_DEFLATED, compresslevel=_LEVEL)
        with open(partial, "rb") as file, zipfile.ZipFile(file) as archive:
            refused = _refused(json.loads(archive.read("schema.json")))
        untrusted = (name for name in skops.io.get_untrusted_types(file=partial) if not _is_loadable(name))
        refused += [name for name in untrusted if name not in refused]
        if refused:
            raise ValueError(
                f"{type(estimator).__name__} holds types that a model file cannot have: {', '.join(refused)}; "
                "save the fitted estimator itself (of a search, its best_estimator_), and write a kernel given as a "
                "function as a gramless.kernels expression"
            )


def _stored(value: Any) -> Any:
    """An estimator, or a list or dict of them, as it goes into a file: without callbacks, points in half precision where
    that changes no digit. Copied only as far as something has to be replaced.
    """
    if type(value) in (list, tuple):
        items = [_stored(item) for item in value]
        return type(value)(items) if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if not isinstance(value, BaseEstimator) and type(value) is not dict:
        return value
    is_estimator = isinstance(value, BaseEstimator)
    held = vars(value) if is_estimator else value
    stripped: dict[Any, Any] = {}
    for key, part in held.items():
        if is_estimator and key == "callback":
            stripped[key] = None
        elif is_estimator and key in _POINTS and type(value).__module__.startswith("gramless."):
            stripped[key] = _each(part, _halved)
        else:
            stripped[key] = _stored(part)
    changed = {key: part for key, part in stripped.items() if part is not held[key]}
    if not changed:
        return value
    stored = copy.copy(value)
    (vars(stored) if is_estimator else stored).update(changed)
    return stored


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """A changed value, or a list of changed values; the same object where nothing changes."""
    if type(value) is not list:
        return change(value)
    items = [change(item) for item in value]
    return items if any(new is not old for new, old in zip(items, value, strict=True)) else value


def _halved(points: Any) -> Any:
    """Points with half the digits and the name of their type, where the other half is zeros: pixels, counts, indicators."""
    if not isinstance(points, np.ndarray) or points.dtype not in (np.float32, np.float64) or points.size == 0:
        return points
    with np.errstate(over="ignore"):
        half = points.astype(np.float16)
    return {"half": half, "dtype": points.dtype.name} if np.array_equal(half.astype(points.dtype), points) else points


def _unhalved(stored: Any) -> Any:
    if not (isinstance(stored, dict) and set(stored) == {"half", "dtype"}):
        return stored
    if stored["dtype"] not in ("float32", "float64") or getattr(stored["half"], "dtype", None) != np.float16:
        raise ValueError("points in half precision that do not say what they were")
    return stored["half"].astype(stored["dtype"])


def _fill_in(part: Any) -> None:
    """Points in their own precision, and settings that did not exist when the file was written at their defaults."""
    held = vars(part)
    for key in _POINTS:
        if key in held:
            held[key] = _each(held[key], _unhalved)
    for name, parameter in inspect.signature(type(part).__init__).parameters.items():
        if parameter.default is not inspect.Parameter.empty and name not in held:
            held[name] = parameter.default


def _is_loadable(name: str) -> bool:
    """Whether a file may have the type of this name, beside those that skops trusts."""
    if name in _LOADABLE or name in _TRUSTED_TYPES:
        return True
    package = next((package for package in _PUBLIC if name.startswith(f"{package}.")), None)
    if package is not None:
        found = importlib.import_module(package)
        public = (getattr(found, one) for one in found.__all__)
        return any(isinstance(one, type) and f"{one.__module__}.{one.__qualname__}" == name for one in public)
    return _is_public_estimator(name)


def _is_public_estimator(name: str) -> bool:
    """Whether a name is that of an estimator which scikit-learn exports; nothing but its public packages is imported."""
    module, _, short = name.rpartition(".")
    package = module.split("._")[0]
    parts = package.split(".")
    if (
        name.startswith(_NOT_FROM_SKLEARN)
        or parts[0] != "sklearn"
        or len(parts) != 2
        or parts[1] not in getattr(sklearn, "__all__", ())
    ):
        return False
    found = importlib.import_module(package)
    one = getattr(found, short, None) if short in getattr(found, "__all__", ()) else None
    return inspect.isclass(one) and issubclass(one, BaseEstimator) and one.__module__ == module


def _refused(schema: Any) -> list[str]:
    """Types of this library in a file that are not listed or not built from their attributes, and dangerous ones."""
    refused = set()
    for node in _nodes(schema):
        module = str(node.get("__module__"))
        name = f"{module}.{node.get('__class__')}"
        ours = module.split(".")[0] == "gramless"
        wrong = ours and (node.get("__loader__") != "ObjectNode" or not _is_loadable(name))
        if wrong or name.startswith(_NOT_FROM_SKLEARN):
            refused.add(name)
    return sorted(refused)


def _use_current_modules(schema: Any) -> bool:
    """Replace module names of version 0.1.0 by the current ones, in place; return True if there were any."""
    moved = False
    for node in _nodes(schema):
        top, _, rest = str(node.get("__module__")).partition(".")
        package, _, module = rest.partition(".")
        if top == "gramless" and package in _MOVED:
            node["__module__"] = f"gramless.{_MOVED[package]}.{module}"
            moved = True
    return moved


def _with_schema(archive: zipfile.ZipFile, schema: Any) -> BinaryIO:
    """Return a copy of a model archive, in memory, with another schema."""
    copied = io.BytesIO()
    with zipfile.ZipFile(copied, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as target:
        for name in archive.namelist():
            target.writestr(name, json.dumps(schema) if name == "schema.json" else archive.read(name))
    copied.seek(0)
    return copied


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object of a JSON text, without recursion; one that lies too deep is refused."""
    level = [schema]
    for _ in range(_DEEPEST):
        yield from (value for value in level if isinstance(value, dict))
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise ValueError(f"objects within objects, more than {_DEEPEST} deep")


def load(path: str | os.PathLike[str], *, max_bytes: int | None = None) -> Any:
    """Read an estimator that `save` wrote; nothing in the file is executed.

    Parameters
    ----------
    path : path-like
        The file.
    max_bytes : int, optional
        How much memory the contents may take. None is 256 MB or 50 times the size of the file, whichever is more: more than
        models need, and too little for a small file that was made to fill the memory.

    Returns
    -------
    estimator
        As it was saved, without callbacks.

    Raises
    ------
    ValueError
        If the file is damaged, holds types that a model does not have, or arrays that do not fit together.

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
    except _Refused as error:
        raise ValueError(f"{error}{_advice(source)}") from error
    except Exception as error:
        told = f"{source} is not a complete gramless model file ({type(error).__name__}: {error})"
        raise ValueError(told + _advice(source)) from error


def _advice(source: Path) -> str:
    """What reads a file that was written by other versions; nothing where the versions are these, or not known."""
    try:
        with zipfile.ZipFile(source) as archive:
            content = json.loads(archive.read("schema.json"))["content"]
            written = {
                name: json.loads(content[name]["content"]) for name in ("gramless", "scikit-learn") if name in content
            }
    except Exception:  # damaged: the error itself says so
        return ""
    here = {"gramless": __version__, "scikit-learn": version("scikit-learn")}
    known = {name: number for name, number in written.items() if isinstance(number, str) and len(number) < 40}
    if all(here[name] == number for name, number in known.items()):
        return ""
    told = " and ".join(f"{name} {number}" for name, number in known.items())
    now = " and ".join(f"{name} {here[name]}" for name in known)
    needed = " ".join(f"'{name}=={number}'" for name, number in known.items())
    return (
        f". It was written by {told}, and this is {now}: train the model again here, or read it where it was written "
        f"(pip install {needed})"
    )


class _Refused(ValueError):
    """A file that is whole, and is not read all the same; the message says why."""


def _read(file: BinaryIO, source: Path, max_bytes: int | None) -> Any:
    import skops.io

    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        if len(set(names)) < len(names):
            raise ValueError("two members of one name")
        limit = max(_MOST_UNPACKED, _MOST_SHRUNK * os.fstat(file.fileno()).st_size) if max_bytes is None else max_bytes
        announced = sum(member.file_size for member in archive.infolist())
        needed = announced if announced > limit else unpacked_bytes(archive)
        if needed > limit:
            raise _Refused(
                f"{source} would take {needed / 1e6:,.0f} MB, and {limit / 1e6:,.0f} MB are allowed: if you know where it "
                f"comes from, load it with max_bytes={needed}"
            )
        schema = json.loads(archive.read("schema.json"))
        moved = _use_current_modules(schema)
        refused = _refused(schema)
        if moved and not refused:
            file = _with_schema(archive, schema)
    trusted: list[str] = []
    if not refused:
        file.seek(0)
        named = skops.io.get_untrusted_types(data=file.read())
        trusted = [name for name in named if _is_loadable(name)]
        refused = sorted(set(named) - set(trusted))
    if refused:
        raise _Refused(
            f"{source} holds types that a gramless {__version__} model does not have, and is not loaded: "
            f"{', '.join(refused)}"
        )
    file.seek(0)
    payload = skops.io.load(file, trusted=trusted)
    if not isinstance(payload, dict) or "format_version" not in payload:
        raise _Refused(f"{source} is a skops file, but not one that gramless.save wrote")
    if payload["format_version"] != FORMAT_VERSION:
        raise _Refused(
            f"{source} has format {payload['format_version']} (gramless {payload.get('gramless')}); "
            f"this gramless {__version__} reads format {FORMAT_VERSION}"
        )
    found = list(_parts(payload["estimator"]))
    ours = [part for part in found if isinstance(part, BaseEstimator) and type(part).__module__.startswith("gramless.")]
    for part in found:
        if sp.issparse(part):
            check_sparse(part)
    for part in ours:
        _fill_in(part)
    for part in ours:
        _check_model(part)
    return payload["estimator"]


def _parts(root: Any, *, within: bool = False) -> Iterator[Any]:
    """Everything that an object holds, sparse matrices before what they belong to; `within`, not other estimators."""
    waiting, seen, found = [root], set(), []
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if within and part is not root and isinstance(part, BaseEstimator):
            continue
        found.append(part)
        if isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list | tuple | set) or (isinstance(part, np.ndarray) and part.dtype.kind == "O"):
            waiting += list(part.flat) if isinstance(part, np.ndarray) else part
        elif hasattr(part, "__dict__") and not isinstance(part, type):
            waiting += vars(part).values()
    return iter(sorted(found, key=lambda part: not sp.issparse(part)))


def _check_model(model: Any) -> None:
    """A model whose arrays have other shapes than its settings say would compute beyond them, or nonsense."""
    fitted = vars(model)
    name = type(model).__name__
    for key, value in fitted.items():
        floats = isinstance(value, np.ndarray) and value.dtype.kind == "f"
        if floats and not any(word in key for word in _NOT_ALWAYS_FINITE) and not np.isfinite(value).all():
            raise ValueError(f"{name}.{key} is not finite")
    width = fitted.get("n_features_in_")
    if width is None or not hasattr(model, "predict"):
        return
    if not isinstance(width, int | np.integer) or width < 1:
        raise ValueError(f"{name}.n_features_in_ is {width!r}")
    precomputed = fitted.get("kernel") == "precomputed" or type(fitted.get("kernel_")).__name__ == "Precomputed"
    for holder in _parts(model, within=True):
        for key in _POINTS:
            points = getattr(holder, "__dict__", {}).get(key)
            if points is None:
                continue
            if getattr(points, "ndim", 0) != 2 or (points.shape[1] != width and not precomputed):
                raise ValueError(f"{name}: {key} does not have the {width} columns that the model was fitted on")
    tags = get_tags(model).input_tags
    if not tags.two_d_array or tags.string or tags.categorical:
        return
    if precomputed and width > 10**7:
        raise ValueError(f"{name}.n_features_in_ is {width}")
    _check_answers(model, np.zeros((2, int(width))))


def _check_answers(model: Any, X: np.ndarray) -> None:
    name = type(model).__name__
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        labels = model.predict(X)
        if len(labels) != len(X):
            raise ValueError(f"{name} answers {len(labels)} times for {len(X)} rows")
        if getattr(model, "multilabel_", False):
            k = len(model.classes_)
            if np.shape(labels) != (len(X), k) or not np.isin(labels, (0, 1)).all():
                raise ValueError(f"{name} answers with labels that it does not know")
            if np.shape(model.decision_function(X)) != (len(X), k):
                raise ValueError(f"{name} gives scores that do not fit its {k} labels")
        elif hasattr(model, "classes_"):
            classes = model.classes_
            if not np.isin(labels, classes).all():
                raise ValueError(f"{name} answers with labels that it does not know")
            if hasattr(model, "decision_function"):
                _check_scores(name, np.asarray(model.decision_function(X)), len(X), len(classes))
        elif np.asarray(labels).dtype.kind == "f" and not np.isfinite(labels).all():
            raise ValueError(f"{name} answers with numbers that are not finite")


def _check_scores(name: str, scores: np.ndarray, n: int, n_classes: int) -> None:
    columns = {1} if n_classes == 2 else {n_classes, n_classes * (n_classes - 1) // 2}  # one-vs-rest or one-vs-one
    if len(scores) != n or scores.reshape(n, -1).shape[1] not in columns:
        raise ValueError(f"{name} gives scores of shape {scores.shape} for {n} rows and {n_classes} classes")
    if not np.isfinite(scores).all():
        raise ValueError(f"{name} gives scores that are not finite")
