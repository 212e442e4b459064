"""After operations are killed by signal 9 at random times, files are complete or absent, and the next run succeeds.

By default there are eight kills of each operation, and three of `reproduce`, whose fits are separate processes;
`GRAMLESS_KILLS=100 pytest tests/fuzz/test_kills.py` uses a hundred of each.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
KILLS = os.environ.get("GRAMLESS_KILLS")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
@pytest.mark.parametrize(
    ("operation", "kills"), [("train", 8), ("predict", 8), ("streamed", 8), ("checkpoint", 8), ("reproduce", 3)]
)
def test_files_are_complete_after_kills(operation, kills, tmp_path):
    done = subprocess.run(
        [sys.executable, HERE / "kills.py", operation, tmp_path, KILLS or str(kills)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env=os.environ | dict.fromkeys(ONE_THREAD, "1"),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["left"] == []
    assert found["killed"] == int(KILLS or kills)
