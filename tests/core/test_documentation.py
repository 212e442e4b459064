"""Tests that run the code of the documentation."""

import doctest
import importlib
import pkgutil
import re
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pytest

import gramless
from gramless._core.grid import has_integer_products

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(gramless.__path__, "gramless.") if not module.name.endswith("__main__")
)
README = Path(__file__).parents[2] / "README.md"
PAGES = sorted(path for path in (README.parent / "docs").glob("*.md") if "```python" in path.read_text())


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name == "gramless._core.compiled.integer_products" and not has_integer_products():
        pytest.skip("this processor has neither AVX-512 nor AVX2, and LLVM ends a process that compiles for them")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != "triton":  # comes with torch's builds for GPUs only
            raise
        pytest.skip("triton is not there: no GPU build of torch")
    assert doctest.testmod(module, verbose=False).failed == 0


def test_readme_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    run(README.read_text(), names)
    assert names["model"].n_iter_ > 0


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_page_code_runs(page, tmp_path, monkeypatch):
    """Run on a few rows with the shapes of the pages: 784 pixels, and as many edge features."""
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).random((60, 1568)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.arange(60) % 3
    names = {"X": X, "y": y, "X_train": X, "y_train": y}
    with small_cluster(monkeypatch) if "dask" in page.read_text() else nullcontext():
        run(page.read_text(), names)


def run(text, names):
    """Run the Python blocks of a Markdown page in order."""
    exec(compile("".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), "page", "exec"), names)


@contextmanager
def small_cluster(monkeypatch):
    """Replace `Client()` by a client with threads of this process, which start at once."""
    from dask import distributed

    with distributed.Client(processes=False, dashboard_address=":0") as client:
        monkeypatch.setattr(distributed, "Client", lambda: client)
        yield


def test_readme_lists_every_estimator():
    table = README.read_text()
    missing = [name for name in gramless._EXPORTS if name[0].isupper() and name != "Stream" and f"`{name}`" not in table]
    assert not missing


@pytest.mark.parametrize("name", [n for n in sorted(gramless._EXPORTS) if n[0].isupper()])
def test_public_classes_have_runnable_examples(name):
    assert ">>> " in (getattr(gramless, name).__doc__ or "")
