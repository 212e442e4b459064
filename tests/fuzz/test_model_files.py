"""500 damaged or forged model files: none crashes the process, none is read as another model without a word.

Damage (flipped, cut, doubled bytes) is refused or read as the same model; a forgery, which is a whole file with other arrays
or types, is refused unless it fits together, and then predicts.
"""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_no_model_file_does_harm(tmp_path):
    done = subprocess.run(
        [sys.executable, HERE / "read_models.py", tmp_path, "500"], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["happened"]["refused"] > 250
