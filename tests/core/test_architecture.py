"""docs/architecture.md agrees with the code: its files exist, its layers are the import contract, its paths are traced."""

from __future__ import annotations

import re
import sys
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pytest

import gramless

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "gramless"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PACKAGES = sorted(
    path.name + ("/" if path.is_dir() else "")
    for path in PACKAGE.iterdir()
    if path.name not in ("__init__.py", "__pycache__") and (path.is_dir() or path.suffix == ".py")
)
LAYERS = re.search(r"```\n(.*?)```", PAGE, re.DOTALL).group(1)
PATHS = {
    title: re.findall(r"^\d+\. `([\w/]+\.py)`", text, re.MULTILINE)
    for title, text in re.findall(r"^### (.*?)\n(.*?)(?=^##)", PAGE, re.DOTALL | re.MULTILINE)
}


def files_in(text):
    """Return the names in backticks that look like files or folders of the package."""
    return [name for name in re.findall(r"`([^`\s]+)`", text) if re.fullmatch(r"[\w/]+(\.py|/)", name)]


@pytest.mark.parametrize("name", sorted(set(files_in(PAGE)) - {"src/gramless/"}))
def test_named_files_exist(name):
    assert (ROOT / name if name.startswith("tests/") else PACKAGE / name).exists()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_listed(package):
    assert re.search(rf"(^|\s){re.escape(package)}(\s|$)", LAYERS, re.MULTILINE)


def test_at_most_fifteen_packages():
    assert sum(name.endswith("/") for name in PACKAGES) <= 15


def test_package_list_equals_import_contract():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    layers = [sorted(re.findall(r"\w+", layer)) for layer in contract["layers"]]
    listed = [re.findall(r"(?:^|\s)(\w+)(?:/|\.py)(?=\s|$)", line) for line in LAYERS.splitlines()]
    assert [sorted(line) for line in listed] == layers


def traced_files(call):
    """Return the files of the package in the order in which `call` first enters one of their functions."""
    call()  # imports everything, so that only function calls are traced
    files = {}
    prefix = f"{PACKAGE}/"

    def profile(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(prefix) and code.co_name != "<module>":
            files.setdefault(code.co_filename.removeprefix(prefix))

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(files)


def rows():
    """Return 600 rows of five normal features and two classes."""
    X = np.random.default_rng(0).standard_normal((600, 5)).astype(np.float32)
    return X, (X[:, 0] > 0).astype(int)


def fit(_):
    gramless.LSSVC(random_state=0).fit(*rows())


def predict(_):
    X, y = rows()
    model = gramless.LSSVC(random_state=0).fit(X, y)
    return lambda: model.predict(X[:50])


def partial_fit(_):
    gramless.NystromLSSVC(n_landmarks=50, random_state=0).partial_fit(*rows(), classes=[0, 1])


def run_command(*arguments):
    from gramless.cli.app import app

    with pytest.raises(SystemExit) as ended:
        app([str(argument) for argument in arguments])
    assert ended.value.code == 0


def train(folder):
    X, y = rows()
    table = np.column_stack([X[:100].round(3).astype(str), np.where(y[:100], "yes", "no")])
    np.savetxt(folder / "table.csv", table, fmt="%s", delimiter=",", header="a,b,c,d,e,label", comments="")
    run_command("train", folder / "table.csv", "--target", "label", "--out", folder / "model.skops")


def reproduce(folder):
    run_command("reproduce", "risvo", "--quick", "--only", "mnist", "--fresh", "--out", folder / "report")


def one_fit(_):
    from gramless.papers.experiments.declarations import specs
    from gramless.papers.experiments.fit import run_fit

    spec = next(spec for spec in specs("risvo") if spec.name == "mnist").quick_form()
    run_fit(spec, spec.grid[0], 0, notify=lambda *_: None)


CALLS = {
    "LSSVC().fit": fit,
    "LSSVC().predict": predict,
    "NystromLSSVC().partial_fit": partial_fit,
    "gramless train": train,
    "gramless reproduce": reproduce,
    "one fit of gramless reproduce": one_fit,
}


def disagreements(listed, traced):
    """Return the differences between a list of the page and a trace: files that are not entered, or another order."""
    found = [f"{name} is not entered" for name in listed if name not in traced]
    order = [name for name in traced if name in listed]
    if not found and order != listed:
        found.append(f"the order is {order}")
    return found


def test_every_traced_call_is_documented():
    assert list(PATHS) == list(CALLS)


@pytest.mark.parametrize("title", CALLS)
def test_documented_order_equals_traced_order(title, tmp_path, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = CALLS[title](tmp_path) if title == "LSSVC().predict" else None
        traced = traced_files(prepared or (lambda: CALLS[title](tmp_path)))
    assert disagreements(PATHS[title], traced) == []


def test_wrong_order_is_detected():
    traced = ["estimators/lssvm.py", "kernels/base.py", "linalg/least_squares.py"]
    assert disagreements(traced, traced) == []
    assert disagreements(["kernels/base.py", "estimators/lssvm.py"], traced)
    assert disagreements(["estimators/lssvm.py", "svm/smo.py"], traced)
