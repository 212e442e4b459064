"""None of 500 damaged or forged model files crashes the process or is silently read as another model.

A damaged file (flipped, missing, duplicated bytes) raises an error or is read as the same model. A forgery, which is a valid
archive with other arrays or types, raises an error unless it is consistent, and then predicts.
"""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_damaged_model_files_raise_or_predict(tmp_path):
    done = subprocess.run(
        [sys.executable, HERE / "read_models.py", tmp_path, "500"], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["happened"]["refused"] > 250
