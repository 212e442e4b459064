"""Fits of every public estimator under other circumstances: is the model the same, byte by byte?

    python tests/contracts/determinism_table.py [--rows 1500] [--only LSSVC KernelSVC]

Every estimator is fitted in a process of its own with one thread, and then

    again     once more in the same process
    process   in a new process
    imports   in a process that has imported torch, numba, dask and every module of gramless
    2, 4      with two and with four threads
    load      with two threads beside as many busy processes as there are cores

The table has "same" where all predictions are equal to those of the first fit byte by byte, and otherwise the largest
difference of the scores relative to the largest score. "load" is compared with "2".
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import multiprocessing
import os
import pkgutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

METHODS = ("decision_function", "predict_proba", "predict", "transform", "score_samples")
CIRCUMSTANCES = ("again", "process", "imports", "2", "4", "load")
FIRST = "first"
REFERENCE = {"load": "2"}
"""The circumstances that a column is compared with, if these are not those of the first fit."""
SMALL = {"random_state": 0, "n_landmarks": 30, "n_components": 30, "n_patches": 200, "patch_size": 5}


def public_estimators():
    """Return the classes of all public estimators."""
    from sklearn.base import BaseEstimator

    import gramless

    exported = [getattr(gramless, name) for name in sorted(gramless._EXPORTS)]
    return [value for value in exported if inspect.isclass(value) and issubclass(value, BaseEstimator)]


def variants(estimator):
    """Yield the settings to fit: the default ones, and a kernel that has compiled loops of its own."""
    parameters = estimator.get_params()
    yield {}
    if isinstance(parameters.get("kernel"), str) and parameters["kernel"] == "rbf" and "gamma" in parameters:
        yield {"kernel": "laplacian"}


def data(estimator, n, dtype):
    """Return rows and targets of the type that an estimator takes."""
    import numpy as np
    from sklearn.utils import get_tags

    rng = np.random.RandomState(0)
    tags = get_tags(estimator)
    if not tags.input_tags.two_d_array:
        n = min(n, 40)
        X = rng.randint(0, 256, size=(n, 12, 12)).astype(np.uint8)
        signal = X[:, :6].mean(axis=(1, 2)) - X[:, 6:].mean(axis=(1, 2))
    else:
        X = rng.normal(size=(n, 4)).astype(dtype)
        signal = X[:, 0] + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=n)
    if tags.estimator_type == "regressor":
        return X, signal
    return X, (signal > np.median(signal)).astype(int)


def predictions(kind, settings, n, dtype):
    """Return everything that the fitted estimator predicts for its training rows and for some of them in reverse order."""
    import numpy as np

    import gramless

    estimator = kind()
    known = estimator.get_params()
    small = dict(SMALL)
    if kind is gramless.PatchClassifier:
        small["estimator"] = gramless.NystromLSSVC(n_landmarks=30, random_state=0)
    estimator.set_params(**{name: value for name, value in small.items() if name in known}, **settings)
    X, y = data(estimator, n, dtype)
    estimator.fit(X, y)
    rows = (X, X[::-1][: max(1, n // 3)])
    methods = [name for name in METHODS if hasattr(estimator, name)]
    return [np.asarray(getattr(estimator, name)(part)) for part in rows for name in methods]


def fit_all(kind, sizes, twice):
    """Return the predictions of one class for all its settings and sizes by the name of the case."""
    warnings.simplefilter("ignore")
    found = {}
    for n, dtype in sizes:
        for settings in variants(kind()):
            name = " ".join([kind.__name__, *map(str, settings.values()), str(n), dtype])
            found[name] = [predictions(kind, settings, n, dtype) for _ in range(1 + twice)]
    return found


def import_everything():
    """Import all modules that could change how a fit is computed."""
    for name in ("dask.dataframe", "numba", "torch"):
        importlib.import_module(name)
    import gramless

    for module in pkgutil.walk_packages(gramless.__path__, "gramless."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if error.name != "triton":  # Triton is installed only with CUDA
                    raise


def work(out, sizes, only, imports, twice):
    """Fit the estimators and write their predictions to a file."""
    import joblib

    if imports:
        import_everything()
    kinds = [kind for kind in public_estimators() if not only or kind.__name__ in only]
    tasks = [(kind, sizes, twice) for kind in kinds]
    if imports:
        results = [fit_all(*task) for task in tasks]
    else:
        # Each class in a fork of this process, which has imported scikit-learn only: that takes most of the time.
        assert not {"numba", "torch", "dask"} & set(sys.modules)
        with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
            results = pool.starmap(fit_all, tasks, chunksize=1)
    joblib.dump({name: value for found in results for name, value in found.items()}, out)


def run(folder, circumstances, sizes, only):
    """Return the predictions under the circumstances, computed in a new process."""
    import joblib

    threads = circumstances if circumstances.isdigit() else "2" if circumstances == "load" else "1"
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
    out = Path(folder) / circumstances
    task = {"sizes": sizes, "only": only, "imports": circumstances == "imports", "twice": circumstances == FIRST}
    command = [sys.executable, __file__, "--worker", str(out), json.dumps(task)]
    busy = []
    try:
        if circumstances == "load":
            busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
        done = subprocess.run(command, env={**os.environ, **limits}, capture_output=True, text=True)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    if done.returncode:
        raise RuntimeError(done.stderr)
    return joblib.load(out)


def difference(first, second):
    """Return None for equal bytes, and otherwise the largest difference relative to the largest number of the first."""
    import numpy as np

    if all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True)):
        return None
    worst = 0.0
    for a, b in zip(first, second, strict=True):
        if a.shape != b.shape:
            return np.inf
        if a.dtype.kind == "f":
            worst = max(worst, float(np.abs(a - b).max() / (np.abs(a).max() or 1.0)))
        else:
            worst = max(worst, float(np.mean(a != b)))
    return worst


def table(sizes, only=(), circumstances=CIRCUMSTANCES):
    """Return `{case: {circumstances: None or difference}}`."""
    with tempfile.TemporaryDirectory() as folder:
        results = {one: run(folder, one, sizes, only) for one in (FIRST, *(c for c in circumstances if c != "again"))}
    found = {}
    for case, (first, *again) in results[FIRST].items():
        found[case] = {}
        for one in circumstances:
            if one == "again":
                found[case][one] = difference(first, again[0])
            else:
                reference = results[REFERENCE[one]][case][0] if one in REFERENCE else first
                found[case][one] = difference(reference, results[one][case][0])
    return found


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="*", default=[300, 1500])
    parser.add_argument("--only", nargs="*", default=[], help="names of classes")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker[0], **json.loads(args.worker[1]))
        return
    sizes = [(n, dtype) for n in args.rows for dtype in ("float32", "float64")]
    found = table(sizes, args.only)
    width = max(map(len, found))
    lines = [["", *CIRCUMSTANCES]]
    for case, cells in found.items():
        lines.append([case, *("same" if cells[one] is None else f"{cells[one]:.1e}" for one in CIRCUMSTANCES)])
    for case, *cells in lines:
        sys.stdout.write("".join([f"{case:{width}}", *(f"{cell:>9}" for cell in cells), "\n"]))


if __name__ == "__main__":
    main()
