"""Test of the installed wheel in an environment without extras, run by `make dist`."""

import importlib
import pathlib
import sys
import tempfile

import numpy as np

import gramless

installed = pathlib.Path(gramless.__file__).resolve()
assert "site-packages" in installed.parts, f"not the wheel: {installed}"
for extra in ("torch", "typer", "pandas", "dask", "onnx", "starlette", "matplotlib"):
    try:
        importlib.import_module(extra)
    except ImportError:
        continue
    sys.exit(f"{extra} is here: the environment is not clean")

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 5))
y = (X[:, 0] * X[:, 1] > 0).astype(int)
for name in gramless.__all__:
    getattr(gramless, name)
for model in (gramless.LSSVC(C=10), gramless.KernelSVC(C=10), gramless.NystromLSSVC(n_landmarks=50)):
    assert model.fit(X[:150], y[:150]).score(X[150:], y[150:]) > 0.7, model
with tempfile.TemporaryDirectory() as folder:
    gramless.save(model, pathlib.Path(folder) / "model.skops")
    again = gramless.load(pathlib.Path(folder) / "model.skops")
    assert (again.predict(X) == model.predict(X)).all()
print(f"gramless {gramless.__version__} works without extras")  # noqa: T201
