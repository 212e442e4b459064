"""Other processors give the same answers: loops that one cannot run are never compiled for it."""

import os
import subprocess
import sys

import pytest

from gramless._core.compiled import simd

_FIT = """
from dataclasses import replace
import numpy as np
from gramless import LSSVC
from gramless._core.grid import on_grid
from gramless.linalg.operators import blocks, tile_product

blocks.TUNING = tile_product.TUNING = replace(blocks.TUNING, min_operations_for_bytes=0, min_entries_to_compile=0)
rng = np.random.default_rng(0)
X = rng.integers(0, 256, (300, 64)).astype(np.float32)
y = (X[:, 0] > 128).astype(int) + (X[:, 1] > 128)
print(on_grid(X) is not None, LSSVC(solver="cg", random_state=0).fit(X, y).score(X, y) > 0.9)
"""


@pytest.mark.parametrize("setting", [{"NUMBA_CPU_NAME": "generic"}, {"NUMBA_ENABLE_AVX": "0"}, {"NUMBA_DISABLE_JIT": "1"}])
def test_a_fit_on_pixels_without_vector_units(setting):
    assert fit_with(setting) == ["False", "True"]


@pytest.mark.skipif(not simd.available("avx2", "fma"), reason="this processor cannot run what is compiled for AVX2")
def test_a_fit_on_pixels_compiled_for_avx2():
    assert fit_with({"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma"}) == ["True", "True"]


def fit_with(setting):
    done = subprocess.run([sys.executable, "-c", _FIT], capture_output=True, text=True, env={**os.environ, **setting})
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
