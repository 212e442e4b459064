"""The commands of the documentation page on production run as printed."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "production.md").read_text()
COMMANDS = [line[2:] for line in re.search(r"```console\n(.*?)```", PAGE, re.DOTALL)[1].splitlines()]


def test_registry_lists_six_papers():
    assert [command.split()[0] for command in COMMANDS] == ["pip", "gramless", "gramless", "gramless", "gramless", "curl"]


@pytest.mark.skipif(os.name == "nt", reason="a shell with curl")
def test_from_a_table_to_a_scored_request(tmp_path):
    pytest.importorskip("uvicorn", reason="the extra serve is not installed")
    rng = np.random.default_rng(0)
    n = 300
    frame = pd.DataFrame(
        {"age": rng.integers(18, 80, n), "city": rng.choice(["Bern", "Zug"], n), "visits": rng.poisson(2, n)}
    )
    frame["buys"] = np.where(frame["visits"] + (frame["city"] == "Bern") + 0.3 * rng.normal(size=n) > 2.4, "yes", "no")
    frame.to_csv(tmp_path / "customers.csv", index=False)
    frame.drop(columns="buys").iloc[:20].to_csv(tmp_path / "new.csv", index=False)
    _, train, info, predict, serve, curl = COMMANDS

    def run(command):
        arguments = shlex.split(command)
        if arguments[0] == "gramless":
            arguments = [sys.executable, "-m", *arguments]
        return subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True)

    assert run(train + " --time 1s").returncode == 0
    assert "buys" in run(info).stdout
    assert run(predict).returncode == 0
    scored = pd.read_parquet(tmp_path / "scored.parquet")
    assert scored.columns.tolist() == ["age", "city", "visits", "prediction"]
    assert np.mean(scored["prediction"] == frame["buys"].iloc[:20]) > 0.7
    call = shlex.split(serve.removesuffix(" &").replace("8000", "0"))
    server = subprocess.Popen(
        [sys.executable, "-m", *call], cwd=tmp_path, stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"}
    )
    try:
        port = re.search(r":(\d+);", server.stderr.readline())[1]
        asked = curl.replace("localhost:8000", f"localhost:{port}")
        deadline = time.monotonic() + 60
        while not (answer := run(asked).stdout):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        found = json.loads(answer)
        shown = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])
        assert set(found) == set(shown)
        assert found["predictions"] == shown["predictions"]
        server.terminate()
        assert server.wait(30) == 0
    finally:
        if server.poll() is None:
            server.kill()
        server.wait()
        server.stderr.close()
