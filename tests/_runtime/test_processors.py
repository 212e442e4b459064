"""On a processor without AVX-512 the plain ways give the same answers: loops that it cannot run are never compiled."""

import os
import subprocess
import sys

import pytest

_FIT = """
import numpy as np
from gramless import LSSVC
from gramless._runtime.grid import on_grid
from gramless.operators import blocks, tile_product

blocks._MANY_OPERATIONS = tile_product._MANY_ENTRIES = 0
rng = np.random.default_rng(0)
X = rng.integers(0, 256, (300, 64)).astype(np.float32)
y = (X[:, 0] > 128).astype(int) + (X[:, 1] > 128)
print(on_grid(X) is None, LSSVC(solver="cg", random_state=0).fit(X, y).score(X, y) > 0.9)
"""


@pytest.mark.parametrize("setting", [{"NUMBA_CPU_NAME": "generic"}, {"NUMBA_ENABLE_AVX": "0"}, {"NUMBA_DISABLE_JIT": "1"}])
def test_a_fit_on_pixels(setting):
    done = subprocess.run([sys.executable, "-c", _FIT], capture_output=True, text=True, env={**os.environ, **setting})
    assert (done.stdout.split(), done.returncode) == (["True", "True"], 0), done.stderr
