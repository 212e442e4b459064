"""Operations killed by signal 9 at random moments: files are whole or not there, and the next run puts all in order.

By default twenty kills each, and five of `reproduce`, whose fits are processes of their own and take seconds to start;
`GRAMLESS_KILLS=20 pytest tests/fuzz/test_kills.py` makes it twenty there too, any other number as many of each.
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
    ("operation", "kills"), [("train", 20), ("predict", 20), ("streamed", 20), ("checkpoint", 20), ("reproduce", 5)]
)
def test_a_kill_at_any_moment_loses_nothing(operation, kills, tmp_path):
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
