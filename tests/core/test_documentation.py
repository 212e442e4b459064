"""What the documentation shows must run."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import gramless

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(gramless.__path__, "gramless.") if not module.name.endswith("__main__")
)
README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != "triton":  # comes with torch's builds for GPUs only
            raise
        pytest.skip("triton is not there: no GPU build of torch")
    assert doctest.testmod(module, verbose=False).failed == 0


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "".join(re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL))
    assert "LSSVC" in code
    exec(compile(code, "README.md", "exec"), {})


def test_the_readme_lists_every_estimator():
    table = README.read_text()
    missing = [name for name in gramless._EXPORTS if name[0].isupper() and name != "Stream" and f"`{name}`" not in table]
    assert not missing


@pytest.mark.parametrize("name", [n for n in sorted(gramless._EXPORTS) if n[0].isupper()])
def test_public_classes_have_runnable_examples(name):
    assert ">>> " in (getattr(gramless, name).__doc__ or "")
