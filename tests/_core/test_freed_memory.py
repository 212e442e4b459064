"""Compiled loops read no freed memory: glibc overwrites freed memory in a process with MALLOC_PERTURB_."""

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np
from scipy.spatial.distance import cdist
from gramless.kernels import RBF, Laplacian
from gramless.linalg.operators import KernelOperator
from gramless.linalg.operators.blocks import expand

rng = np.random.default_rng(0)
for dtype, tolerance in ((np.float32, 1e-4), (np.float64, 1e-9)):
    X, Y = rng.normal(size=(2048, 5)).astype(dtype), rng.normal(size=(1500, 5)).astype(dtype)
    V = rng.normal(size=(1500, 3)).astype(dtype)
    gaussian, city_block = np.exp(-0.1 * cdist(X, Y, "sqeuclidean")), np.exp(-0.1 * cdist(X, Y, "cityblock"))
    symmetric = np.exp(-0.1 * cdist(Y, Y, "sqeuclidean")) + 0.5 * np.eye(1500)
    for found, truth in (
        (RBF(gamma=0.1)(X, Y), gaussian),
        (Laplacian(gamma=0.1)(X, Y), city_block),
        (expand(RBF(gamma=0.1), X, Y, V), gaussian @ V),
        (KernelOperator(Y, RBF(gamma=0.1), 0.5, cache=True) @ V, symmetric @ V),
        (KernelOperator(Y, RBF(gamma=0.1), 0.5, cache=False) @ V, symmetric @ V),
    ):
        np.testing.assert_allclose(found, truth, atol=tolerance * np.abs(truth).max())
bits = (rng.random((2048, 64)) < 0.3).astype(np.float32)
truth = np.exp(-0.02 * cdist(bits, bits[:1500], "sqeuclidean"))
np.testing.assert_allclose(RBF(gamma=0.02)(bits, bits[:1500]), truth, atol=1e-5)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="MALLOC_PERTURB_ is a setting of glibc")
def test_values_and_products_do_not_depend_on_freed_memory():
    done = subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, "MALLOC_PERTURB_": "165"}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
