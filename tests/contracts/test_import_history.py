"""Results depend on data, parameters and `random_state` only, never on the modules that were imported before.

Every public estimator is fitted twice and the bytes of its predictions are hashed: once in a process of its own in which
only the estimator's module is imported before, and once in a process that has imported torch, numba, dask and every module
of gramless. The processes of the first kind are forks of one that has imported scikit-learn, which takes most of the time.
"""

import hashlib
import importlib
import inspect
import json
import multiprocessing
import os
import pkgutil
import subprocess
import sys
import warnings

import pytest

METHODS = ("decision_function", "predict_proba", "predict", "transform", "score_samples")
# Rows and columns. Kernel matrices of 14,400 and of 360,000 values are between and above the sizes from which kernels use
# compiled loops (2^12 and 2^18 values).
SIZES = ((120, 4), (600, 4))


def public_estimators():
    from sklearn.base import BaseEstimator

    import gramless

    exported = [getattr(gramless, name) for name in sorted(gramless._EXPORTS)]
    return [value for value in exported if inspect.isclass(value) and issubclass(value, BaseEstimator)]


def variants(estimator):
    """Return the settings to fit: the defaults, and kernels with separate compiled loops."""
    parameters = estimator.get_params()
    yield {}
    if isinstance(parameters.get("kernel"), str) and parameters["kernel"] == "rbf" and "gamma" in parameters:
        yield {"kernel": "laplacian"}


def data(estimator, n, d):
    import numpy as np
    from sklearn.utils import get_tags

    rng = np.random.RandomState(0)
    tags = get_tags(estimator)
    if not tags.input_tags.two_d_array:
        n = min(n, 40)
        X = rng.randint(0, 256, size=(n, 12, 12)).astype(np.uint8)
        signal = X[:, :6].mean(axis=(1, 2)) - X[:, 6:].mean(axis=(1, 2))
    else:
        X = rng.normal(size=(n, d))
        signal = X[:, 0] + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=n)
    if tags.estimator_type == "regressor":
        return X, signal
    return X, (signal > np.median(signal)).astype(int)


def digest(kind, settings, n, d):
    """Return a hash of all predictions of the fitted estimator for its training rows and for shifted rows."""
    import numpy as np

    import gramless

    estimator = kind()
    known = estimator.get_params()
    small = {"random_state": 0, "n_landmarks": 30, "n_components": 30, "n_patches": 200, "patch_size": 5}
    if kind is gramless.PatchClassifier:
        small["estimator"] = gramless.NystromLSSVC(n_landmarks=30, random_state=0)
    estimator.set_params(**{name: value for name, value in small.items() if name in known}, **settings)
    X, y = data(estimator, n, d)
    estimator.fit(X, y)
    found = hashlib.sha256()
    for rows in (X, X[::-1][: max(1, n // 3)]):
        for method in METHODS:
            if hasattr(estimator, method):
                found.update(np.ascontiguousarray(getattr(estimator, method)(rows)).tobytes())
    return found.hexdigest()


def digests(kind):
    warnings.simplefilter("ignore")
    cases = [(settings, n, d) for n, d in SIZES for settings in variants(kind())]
    return {f"{kind.__name__} {settings} {n} rows": digest(kind, settings, n, d) for settings, n, d in cases}


def import_everything():
    import dask.dataframe
    import numba
    import torch  # noqa: F401

    import gramless

    for module in pkgutil.walk_packages(gramless.__path__, "gramless."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if error.name != "triton":  # Triton is installed only with CUDA
                    raise
    assert numba
    assert dask


def main(everything):
    if everything:
        import_everything()
        results = map(digests, public_estimators())
    else:
        assert not {"numba", "torch", "dask"} & set(sys.modules)
        with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
            results = pool.map(digests, public_estimators(), chunksize=1)
    sys.stdout.write(json.dumps({name: value for found in results for name, value in found.items()}) + "\n")


def run(*arguments):
    # One thread, so that both processes add numbers in the same order whatever else runs on the computer.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, __file__, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that start as copies of another one")
def test_results_do_not_depend_on_earlier_imports():
    alone, after_imports = run(), run("import everything")
    assert len(alone) >= len(SIZES) * 25
    assert {name for name in alone if alone[name] != after_imports[name]} == set()


if __name__ == "__main__":
    main(len(sys.argv) > 1)
