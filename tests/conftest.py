"""Fixtures of several packages, and the division of the cores between test processes."""

import os
import signal

# Children of a shell in the background ignore SIGINT, which tests send to the processes that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Set before NumPy is imported. Each process of pytest-xdist uses its share of the cores: BLAS threads without a core wait
# actively, and small products take ten times as long. Child processes inherit these settings.
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    _cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    _threads = str(max(1, _cores // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])))
    for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(_name, _threads)

import shutil

import numpy as np
import pytest
from sklearn.datasets import load_digits

# The slowest files, which are started first, because each file is run by one process.
LONGEST = (
    "distributed/test_distributed.py",
    "peers/test_peers.py",
    "contracts/test_every_estimator.py",
    "contracts/test_every_budget.py",
    "contracts/test_every_solver.py",
    "core/test_documentation.py",
    "fuzz/test_kills.py",
    "cli/test_train.py",
    "contracts/test_every_kernel.py",
    "contracts/test_never_garbage.py",
    "_core/test_memory_budget.py",
    "_core/test_processors.py",
    "estimators/test_table.py",
)


def pytest_collection_modifyitems(items):
    def rank(item):
        path = item.path.as_posix()
        return next((i for i, name in enumerate(LONGEST) if path.endswith(name)), len(LONGEST))

    items.sort(key=rank)


def pytest_terminal_summary(terminalreporter):
    """Print the results of the test suites of other projects (tests/peers)."""
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if getattr(report, "when", "") == "call":
            for name, line in report.user_properties:
                if name == "peers":
                    terminalreporter.write_line(f"peers: {line}")


@pytest.fixture(scope="session")
def browser():
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        reason = "Chromium is not installed (Debian: apt-get install chromium)"
        pytest.fail(reason) if os.environ.get("GRAMLESS_REQUIRE_BROWSER") else pytest.skip(reason)
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def digit_images():
    """Return the 1,797 digit images (bytes, shape (n, 8, 8)) and labels, shuffled because they are ordered by writer."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    return data.images[order].astype(np.uint8) * 15, data.target[order]


@pytest.fixture(scope="session")
def digits(digit_images):
    """Return the digit images as rows of 64 numbers from 0 to 1, and their labels."""
    images, y = digit_images
    return images.reshape(len(images), -1) / 240, y
