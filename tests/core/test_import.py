"""What `import gramless` costs and what it must not bring along."""

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
def scikit_learns_own():
    """scikit-learn itself imports pandas and others where it finds them."""
    return extras_after("import sklearn.svm, sklearn.metrics, sklearn.model_selection")


def test_importing_the_library_imports_no_extra():
    assert not extras_after("import gramless; dir(gramless)")


def test_neither_does_any_public_name(scikit_learns_own):
    names = "".join(f"gramless.{name}\n" for name in sorted(gramless._EXPORTS))
    assert extras_after(f"import gramless\n{names}") <= scikit_learns_own


def test_neither_does_a_fit(scikit_learns_own):
    code = "import numpy as np, gramless\ngramless.LSSVC(solver='cg').fit(np.eye(9), np.arange(9) % 2).predict(np.eye(9))"
    assert extras_after(code) <= scikit_learns_own


def seconds(code: str) -> float:
    script = f"import time; t = time.process_time()\n{code}\nprint(time.process_time() - t)"
    return float(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)


def test_importing_is_as_fast_as_importing_scikit_learn():
    """In seconds of the processor, the better of two runs: other processes only ever add."""
    theirs, ours = (min(seconds(code) for _ in range(2)) for code in ("import sklearn.svm", "import gramless"))
    assert ours < 1.5 * theirs


def test_names():
    assert set(gramless._EXPORTS) <= set(dir(gramless))
    assert set(gramless.__all__) >= {"LSSVC", "LSSVR", "estimate", "save", "load", "__version__"}
    with pytest.raises(AttributeError, match="module 'gramless' has no attribute 'Nonsense'"):
        gramless.Nonsense


def test_a_name_that_is_nearly_right_is_answered_with_the_right_one():
    done = subprocess.run([sys.executable, "-c", "import gramless; gramless.LSVC"], capture_output=True, text=True)
    assert "Did you mean: 'LSSVC'" in done.stderr
