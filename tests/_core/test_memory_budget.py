"""Budgets, estimates and what is said when there is not enough."""

import json
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.svm import SVC

import gramless
from gramless import LSSVC, LSSVR, estimate
from gramless._core import memory as _memory
from gramless._core.memory import MemoryEstimate, format_bytes, parse_budget
from gramless.kernels import RBF


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("4GB", 4 * 10**9),
        ("1.5 GB", 1_500_000_000),
        ("512MiB", 512 * 2**20),
        ("100kb", 100_000),
        ("7", 7),
        (12345, 12345),
        (4e9, 4 * 10**9),
    ],
)
def test_sizes(given, expected):
    assert parse_budget(given) == expected


def test_shares_of_what_is_free(monkeypatch):
    monkeypatch.setattr(_memory, "free_memory", lambda device="cpu": 1_000_000)
    assert parse_budget(None) == 700_000
    assert parse_budget(0.25) == 250_000
    assert parse_budget(1.0) == parse_budget(1) == 1_000_000
    assert parse_budget(np.float32(0.5)) == 500_000


@pytest.mark.parametrize("bad", ["", "GB", "-1GB", "4 parsecs", 0, -5, 1.5, 0.0, float("nan"), True, [4]])
def test_no_sizes(bad):
    with pytest.raises(ValueError, match=r"memory_budget must be a size such as '4GB'"):
        parse_budget(bad)


def test_sizes_for_people():
    assert [format_bytes(x) for x in (3, 4_000, 1_230_000, 5e9, 2e12)] == ["3 B", "4 KB", "1.2 MB", "5.0 GB", "2.0 TB"]


def test_free_memory_is_what_the_system_says():
    with open("/proc/meminfo") as f:
        total = int(f.readline().split()[1]) * 1024
    assert 10**6 < _memory.free_memory() <= total


def test_the_message_names_bytes_memory_and_setting():
    with pytest.raises(
        MemoryError, match=r"the fit needs 3.0 GB of memory of cuda:0 \(matrix 3.0 GB\), and memory_budget allows"
    ):
        MemoryEstimate({"matrix": 3 * 10**9}, "cuda:0").check(10**9, "stream")
    with pytest.raises(
        MemoryError, match=r"of host memory .*allows 2.0 GB; use solver='cg', which streams the kernel matrix"
    ):
        LSSVC(solver="cholesky", memory_budget="2GB")._fit_plan(60_000, 784, 10, np.float32, "cpu")


def test_a_budget_decides_between_cached_and_streamed():
    cached = LSSVC(solver="cg", memory_budget="20GB")._fit_plan(60_000, 784, 10, np.float32, "cpu")
    streamed = LSSVC(solver="cg", memory_budget="3GB")._fit_plan(60_000, 784, 10, np.float32, "cpu")
    assert cached.cached
    assert not streamed.cached
    assert cached.memory.nbytes <= 20 * 10**9
    assert streamed.memory.nbytes <= 3 * 10**9
    assert streamed.n_landmarks > 500


PUBLIC = {name: getattr(gramless, name) for name in sorted(gramless._EXPORTS)}
ESTIMATORS = [name for name, value in PUBLIC.items() if isinstance(value, type) and issubclass(value, BaseEstimator)]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_answers(name):
    estimator = getattr(gramless, name)()
    with pytest.raises(TypeError, match="not the class itself"):
        estimate(type(estimator), n=1000, d=10)
    small, large = (estimate(estimator, n=n, d=784, n_classes=3) for n in (500, 1000))
    assert 0 < small.nbytes <= large.nbytes
    assert "of host memory (" in str(large)
    if "memory_budget" in estimator.get_params():
        with pytest.raises(MemoryError, match=r"memory_budget (allows|is)"):
            estimate(estimator.set_params(memory_budget=1000), n=1000, d=784, n_classes=3)


def test_estimators_of_others_are_refused():
    with pytest.raises(TypeError, match="takes an estimator of gramless, such as LSSVC, got SVC"):
        estimate(SVC(), n=1000, d=10)


_LOADING = """
import json, importlib, re
import gramless.estimators.lssvm
from gramless import LSSVC, estimate
from gramless._core.memory import COMPILED_LOOPS
def now():
    return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
told, before = estimate(LSSVC(), n=1000, d=10), now()
for name in COMPILED_LOOPS:
    importlib.import_module(name)
print(json.dumps([told.loading, now() - before, str(told), str(estimate(LSSVC(), n=1000, d=10))]))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="resident memory is read from Linux's /proc")
def test_the_estimate_says_what_compiled_loops_take_to_load():
    done = subprocess.run([sys.executable, "-c", _LOADING], capture_output=True, text=True, check=True)
    told, measured, sentence, once_loaded = json.loads(done.stdout)
    assert told / 2.5 < measured < told
    assert f"compiled loops take up to {format_bytes(told)} more, once, to load" in sentence
    assert once_loaded == sentence  # the estimate does not depend on what was imported before


def test_outputs_of_a_regressor_count_one_by_one():
    one, two = (estimate(LSSVR(solver="cg"), 5000, 10, n_classes=k).parts["solution"] for k in (1, 2))
    assert two > one
    assert estimate(LSSVC(solver="cg"), 5000, 10, n_classes=2).parts["solution"] == one


_MEASURE = """
import json, resource, sys
import numpy as np
import gramless
from gramless import LSSVC, LSSVR
from gramless.kernels import RBF
from gramless.linalg.solvers import CG
n, d, model = int(sys.argv[1]), int(sys.argv[2]), eval(sys.argv[3])
rng = np.random.default_rng(0)
X = rng.normal(size=(n, d)).astype(np.float32)
y = np.arange(n) % 3
X[:, 0] += 3 * y
import warnings; warnings.simplefilter("ignore")
warm = type(model)(**{**model.get_params(deep=False)})
warm.fit(X[:60], y[:60])  # loads and compiles what will be used
from gramless._core.grid import has_integer_products
if has_integer_products():
    # and so do these, for a matrix worth it
    import gramless._core.compiled.tile_loops, gramless._core.compiled.integer_products
    for precision in (np.float32, np.float64):
        RBF(0.1)(X[:600].astype(precision), X[:600].astype(precision))
# BLAS allocates a buffer for each thread at its first product there.
from gramless._core import arrays
arrays.cholesky_(np.eye(1200))
def peak():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))
def now():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS"))
open("/proc/self/clear_refs", "w").write("5")
before = now()
model.fit(X, y)
print(json.dumps({"estimate": gramless.estimate(model, n, d, 3).nbytes - X.nbytes, "measured": peak() - before}))
"""


@pytest.mark.parametrize(
    ("n", "d", "model"),
    [
        (2500, 20, "LSSVC(solver='cholesky', dtype='float64')"),
        (3000, 20, "LSSVC(solver='cholesky')"),
        (4000, 20, "LSSVC(solver=CG(n_landmarks=300, tol=1e-3))"),
        (5000, 20, "LSSVC(solver=CG(n_landmarks=200, tol=1e-3), memory_budget='40MB')"),
        (2500, 20, "LSSVC(solver='cg', probability='sigmoid')"),
        (1200, 20, "LSSVC(C='loo', Cs=[1.0, 10.0], kernel=RBF(gamma=0.1))"),
    ],
)
def test_the_estimate_is_the_peak(n, d, model):
    """Never less than what is measured; at most 2.5 times it: float32 Cholesky keeps room for its recovery in float64."""
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("the peak cannot be reset on this system")
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "MALLOC_ARENA_MAX": "2"}
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(n), str(d), model], capture_output=True, text=True, check=True, env=environment
    )
    figures = json.loads(done.stdout)
    assert figures["measured"] < 1.1 * figures["estimate"] + 8e6
    assert figures["measured"] > figures["estimate"] / 2.5


def test_the_budget_is_read_at_fit(monkeypatch):
    monkeypatch.setattr(_memory, "free_memory", lambda device="cpu": 1000)
    X, y = np.random.default_rng(0).normal(size=(50, 3)), np.arange(50) % 2
    with pytest.raises(MemoryError, match=r"memory_budget allows 700 B"):
        LSSVC().fit(X, y)
    with pytest.raises(MemoryError, match=r"memory_budget allows 700 B"):
        LSSVC(C="loo").fit(X, y)


@pytest.mark.parametrize("model", [LSSVC(solver="cholesky", probability="sigmoid"), LSSVC(C="loo", Cs=[1.0, 10.0])])
def test_the_estimate_counts_the_points_in_double(model):
    n, d = 800, 3000
    X = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    model.fit(X[:50], y[:50])
    RBF(0.1)(X[:600], X[:600])  # loads the compiled loops, which the estimate does not include
    tracemalloc.start()
    model.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    estimated = estimate(model, n, d).nbytes
    assert estimated / 2.5 < peak < estimated + 8e6


@pytest.mark.parametrize(
    ("folder", "limit", "used", "cached"),
    [
        (".", "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ],
)
def test_page_cache_of_a_container_is_free_memory(tmp_path, folder, limit, used, cached):
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / limit).write_text("5000000\n")
    (tmp_path / folder / used).write_text("4000000\n")
    assert _memory.free_memory(cgroup=str(tmp_path)) == 1_000_000
    (tmp_path / folder / "memory.stat").write_text(f"anon 7\n{cached} 2500000\nactive_file 100\n")
    assert _memory.free_memory(cgroup=str(tmp_path)) == 3_500_000
    (tmp_path / folder / limit).write_text("max\n")
    assert _memory.free_memory(cgroup=str(tmp_path)) > 3_500_000
