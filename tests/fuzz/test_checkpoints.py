"""500 damaged checkpoints: each is refused with advice, or is the state that was saved."""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_no_checkpoint_does_harm(tmp_path):
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
