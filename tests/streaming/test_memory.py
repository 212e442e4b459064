"""Memory is bounded by the budget, not by the number of rows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
import numpy as np
from gramless import NystromLSSVC
from gramless.papers.experiments.environment import peak_mb, reset_peak

rows = int(sys.argv[1])

def batches():
    rng = np.random.RandomState(0)
    for _ in range(rows // 2000):
        X = rng.random_sample((2000, 80)).astype(np.float32)
        yield X, (X[:, 0] > 0.5).astype(int)

settings = dict(n_landmarks=50, gamma=0.1, memory_budget="60MB", random_state=0)
NystromLSSVC(**settings).fit([(X, y) for (X, y), _ in zip(batches(), range(4))])  # everything is loaded and warm
assert reset_peak()
before = peak_mb()
NystromLSSVC(**settings).fit(batches())
print(peak_mb() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of a process is read from Linux's /proc")
def test_ten_times_the_rows_take_no_more_memory():
    def peak(rows):
        done = subprocess.run([sys.executable, "-c", SCRIPT, str(rows)], env=os.environ, stdout=subprocess.PIPE, check=True)
        return float(done.stdout)

    few, many = peak(20_000), peak(200_000)
    assert many < 60  # MB; the rows are 64 MB
    assert many < few + 10
