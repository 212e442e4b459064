"""Cost of `import gramless`, and modules that it must not import."""

import json
import subprocess
import sys

import pytest

import gramless

_EXTRAS = [
    "torch",
    "rich",
    "typer",
    "dask",
    "distributed",
    "matplotlib",
    "skimage",
    "pandas",
    "pyarrow",
    "pooch",
    "numba",
    "skops",
]


def extras_after(code: str) -> set[str]:
    script = f"import sys, json\n{code}\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout)) & set(_EXTRAS)


@pytest.fixture(scope="module")
def extras_of_sklearn():
    """Return the extras that scikit-learn imports if they are installed, such as pandas."""
    return extras_after("import sklearn.svm, sklearn.metrics, sklearn.model_selection")


def test_import_loads_no_extra():
    assert not extras_after("import gramless; dir(gramless)")


def test_public_names_load_no_extra(extras_of_sklearn):
    names = "".join(f"gramless.{name}\n" for name in sorted(gramless._EXPORTS))
    assert extras_after(f"import gramless\n{names}") <= extras_of_sklearn


def test_fit_loads_no_extra(extras_of_sklearn):
    code = "import numpy as np, gramless\ngramless.LSSVC(solver='cg').fit(np.eye(9), np.arange(9) % 2).predict(np.eye(9))"
    assert extras_after(code) <= extras_of_sklearn


def seconds(code: str) -> float:
    script = f"import time; t = time.process_time()\n{code}\nprint(time.process_time() - t)"
    return float(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)


def test_import_is_as_fast_as_import_of_sklearn():
    """Compare processor seconds, the minimum of two runs, because other processes can only add time."""
    theirs, ours = (min(seconds(code) for _ in range(2)) for code in ("import sklearn.svm", "import gramless"))
    assert ours < 1.5 * theirs


def test_dir_and_all_list_public_names():
    assert set(gramless._EXPORTS) <= set(dir(gramless))
    assert set(gramless.__all__) >= {"LSSVC", "LSSVR", "estimate", "save", "load", "__version__"}
    with pytest.raises(AttributeError, match="module 'gramless' has no attribute 'Nonsense'"):
        gramless.Nonsense


def test_misspelled_name_error_suggests_correct_name():
    done = subprocess.run([sys.executable, "-c", "import gramless; gramless.LSVC"], capture_output=True, text=True)
    assert "Did you mean: 'LSSVC'" in done.stderr
