"""Without a cluster: nothing of dask is imported, and a collection is answered with how to start one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gramless import NystromLSSVC

da = pytest.importorskip("dask.array")


def test_no_client_is_answered_with_how_to_start_one():
    with pytest.raises(RuntimeError, match=r"Client\(\)"):
        NystromLSSVC().fit(da.ones((10, 2)), da.ones(10))


def test_the_library_alone_imports_no_dask():
    code = (
        "import sys, gramless; gramless.RiSVOClassifier, gramless.LSSVC, gramless.NystromLSSVC\n"
        "print([m for m in ('dask', 'distributed') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
