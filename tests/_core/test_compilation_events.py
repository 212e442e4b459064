"""Compilation events are emitted when loops are compiled, and not when they are loaded from disk."""

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


def test_start_and_end_are_reported_once_for_each_argument_type():
    loop, events = new_loop(), []
    with compilation_listener(events.append):
        assert loop(3) == 7
        assert events == [True, False]
        assert loop(4) == 9
        assert events == [True, False]
        assert loop(0.5) == 2.0
        assert events == [True, False, True, False]
    assert new_loop()(3) == 7
    assert events == [True, False, True, False]


def test_the_current_message_is_repeated_before_and_after_compilation():
    messages, loop = [], new_loop()
    with report_compilation(messages.append) as report:
        report("learning")
        loop(1)
        report("fitting")
    assert messages == ["learning", f"{COMPILING}; learning", "learning", "fitting"]


def test_loops_loaded_from_disk_emit_no_event(tmp_path):
    code = (
        "import json, numpy as np\n"
        "from gramless._core.compiled.compilation_events import compilation_listener\n"
        "events = []\n"
        "with compilation_listener(events.append):\n"
        "    from gramless._core.compiled.scatter import move_rows\n"
        "    rows = np.zeros(1, dtype=np.intp)\n"
        "    move_rows(np.zeros((2, 3)), np.ones((1, 3)), rows, rows + 1, np.ones(1))\n"
        "print(json.dumps(events))"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    found = [
        json.loads(subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout)
        for _ in range(2)
    ]
    assert found == [[True, False], []]


def test_every_compiled_module_imports_numba_from_the_compiler_module():
    source = Path(gramless.__file__).parent
    plain = [
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if re.search(r"^(import numba|from numba import .*n?jit)", path.read_text(), re.MULTILINE)
    ]
    assert plain == ["_core/compiled/compiler.py"]


@pytest.mark.parametrize("verbose", [0, 1, 2])
def test_a_fit_of_a_table_reports_compilation(monkeypatch, capsys, verbose):
    loop, make_kernel = new_loop(), search.make_kernel

    def compiling(*arguments):
        loop(1)
        return make_kernel(*arguments)

    monkeypatch.setattr(search, "make_kernel", compiling)
    X = np.random.default_rng(0).normal(size=(60, 2))
    messages: list[str] = []

    def collect(estimator, record):
        messages.append(record["message"])

    model = gramless.TableRegressor(kernel="rbf", column_scales="equal", callback=collect, verbose=verbose, random_state=0)
    model.fit(X, X[:, 0])
    place = next(k for k, text in enumerate(messages) if text.startswith(COMPILING))
    assert messages[place].startswith(f"{COMPILING}; evaluating every scaling")
    assert messages[place + 1].startswith("evaluating every scaling")
    assert sum(text.startswith(COMPILING) for text in messages) == 1
    assert (COMPILING in capsys.readouterr().err) == (verbose > 1)


@pytest.mark.parametrize("verbose", [0, 1])
def test_a_progress_bar_reports_compilation(capsys, verbose):
    loop = new_loop()
    with Progress(verbose, 10, "solve"):
        loop(1)
    loop(0.5)
    assert capsys.readouterr().err == (f"[gramless] solve: {COMPILING}\n" if verbose else "")
