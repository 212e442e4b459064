"""Word of compilation: heard where loops are compiled, and not where they are found on disk."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gramless
from gramless._core.compiled.compilation_events import compilation_listener
from gramless._core.progress import COMPILING, Progress, report_compilation
from gramless.tables import search


def new_loop():
    """A function that numba has not compiled, which calls another."""
    import numba

    import gramless._core.compiled.compiler  # noqa: F401

    @numba.njit
    def inner(x):
        return 2 * x

    @numba.njit
    def outer(x):
        return inner(x) + 1

    return outer


def test_the_beginning_and_the_end_are_heard_once_for_each_kind_of_argument():
    loop, heard = new_loop(), []
    with compilation_listener(heard.append):
        assert loop(3) == 7
        assert heard == [True, False]
        assert loop(4) == 9
        assert heard == [True, False]
        assert loop(0.5) == 2.0
        assert heard == [True, False, True, False]
    assert new_loop()(3) == 7
    assert heard == [True, False, True, False]


def test_what_is_being_done_is_said_before_and_after():
    said, loop = [], new_loop()
    with report_compilation(said.append) as tell:
        tell("learning")
        loop(1)
        tell("fitting")
    assert said == ["learning", f"{COMPILING}; learning", "learning", "fitting"]


def test_loops_on_disk_are_loaded_without_a_word(tmp_path):
    code = (
        "import json, numpy as np\n"
        "from gramless._core.compiled.compilation_events import compilation_listener\n"
        "heard = []\n"
        "with compilation_listener(heard.append):\n"
        "    from gramless._core.compiled.scatter import move_rows\n"
        "    rows = np.zeros(1, dtype=np.intp)\n"
        "    move_rows(np.zeros((2, 3)), np.ones((1, 3)), rows, rows + 1, np.ones(1))\n"
        "print(json.dumps(heard))"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    found = [
        json.loads(subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout)
        for _ in range(2)
    ]
    assert found == [[True, False], []]


def test_every_compiled_module_gets_numba_where_it_is_listened_to():
    source = Path(gramless.__file__).parent
    plain = [
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if re.search(r"^(import numba|from numba import .*n?jit)", path.read_text(), re.MULTILINE)
    ]
    assert plain == ["_core/compiled/compiler.py"]


@pytest.mark.parametrize("verbose", [0, 1])
def test_a_fit_of_a_table_says_that_it_compiles(monkeypatch, capsys, verbose):
    loop, made = new_loop(), search.make_kernel

    def compiling(*arguments):
        loop(1)
        return made(*arguments)

    monkeypatch.setattr(search, "make_kernel", compiling)
    X = np.random.default_rng(0).normal(size=(60, 2))
    said: list[str] = []
    model = gramless.TableRegressor(kernel="rbf", metric="plain", callback=said.append, verbose=verbose, random_state=0)
    model.fit(X, X[:, 0])
    place = next(k for k, text in enumerate(said) if text.startswith(COMPILING))
    assert said[place].startswith(f"{COMPILING}; trying every preparation")
    assert said[place + 1].startswith("trying every preparation")
    assert sum(text.startswith(COMPILING) for text in said) == 1
    assert (COMPILING in capsys.readouterr().err) == bool(verbose)


@pytest.mark.parametrize("verbose", [0, 1])
def test_so_does_any_fit_with_a_bar(capsys, verbose):
    loop = new_loop()
    with Progress(verbose, 10, "solve"):
        loop(1)
    loop(0.5)
    assert capsys.readouterr().err == (f"[gramless] solve: {COMPILING}\n" if verbose else "")
