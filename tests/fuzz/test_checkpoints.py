"""Each of 500 damaged checkpoints raises an error with advice, or is read as the saved state."""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_damaged_checkpoints_raise_or_are_equal(tmp_path):
    done = subprocess.run(
        [sys.executable, HERE / "read_checkpoints.py", tmp_path, "500"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["happened"]["refused"] > 250
