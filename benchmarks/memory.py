"""Peak memory of fits at three budgets, of the calls after them, and of commands, measured from outside the process.

    python benchmarks/memory.py [--only NAME ...] [--out benchmarks/results/memory.json]

Every public estimator is measured; one without an entry in `CASES` is fitted with its default settings. The parent
process loads the library with all compiled loops and forks. It resets the peak of the waiting child
(/proc/PID/clear_refs), lets the child fit, and reads the peak (VmHWM). The memory before the fit is subtracted, so the
table lists the memory of the fit without the data, the budget and the estimate of `gramless.estimate`. If a fit raises
`MemoryError`, the message is recorded instead.

Freed arrays are returned to the system at once (`MALLOC_MMAP_THRESHOLD_`), so that live memory is measured. By default the C
library may keep about 30 MB of freed memory. The last lines list the memory that loading the compiled loops takes, once per
process, which is not part of the budget.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import ctypes
import importlib
import io
import itertools
import json
import os
import pkgutil
import re
import select
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from sklearn.base import BaseEstimator, is_classifier
from sklearn.inspection import permutation_importance

import gramless
import gramless._core.compiled
from gramless._core.memory import COMPILED_LOOPS
from gramless.cli.app import app
from gramless.cli.serve import load_scorer
from gramless.deployment.tuning import Limits

BUDGETS = (30_000_000, 60_000_000, 150_000_000)
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_ARENA_MAX": "2"}
_TICK = 0.002
_HARDLY_ANY = 2_000_000
MOST = 1.05
"""A fit may take so much of its budget."""


@dataclass
class Case:
    """Settings of an estimator and the data of one measured fit."""

    settings: dict[str, Any] = field(default_factory=dict)
    n: int = 2500
    d: int = 20
    outputs: int = 1
    """Of a regressor; a classifier has three classes."""
    dtype: str = "float32"
    images: bool = False
    """Whether rows are square images of d pixels."""
    inner: Any = None
    """What a meta-estimator is made of: a callable that gets the budget."""


def _patch_machine(budget: int) -> Any:
    return gramless.PrototypeLSSVC(n_prototypes=50, kernel="poly", degree=4, gamma=1.0, C=1e3)


TABLE = Case({"time_budget": 1.0, "kernel": "rbf", "column_scales": "equal"}, n=800, d=8)
CASES: dict[str, list[Case]] = {
    "LSSVC": [
        Case({"solver": "cholesky"}, n=1500),
        Case({"solver": "cg"}),
        Case({"solver": "kaczmarz", "max_iter": 4}),
        Case({"solver": "cg", "probability": "sigmoid"}),
        Case({"C": "loo"}, n=1000),
    ],
    "LSSVR": [
        Case(n=2000, dtype="float64"),
        Case({"solver": "cg"}, outputs=300),
        Case({"C": "loo"}, n=900, outputs=5),
    ],
    "NystromLSSVC": [
        Case({"n_landmarks": 300, "C": "loo"}, n=9000),
        Case({"n_landmarks": 300, "probability": "sigmoid"}, n=9000),
        Case({"n_landmarks": 300, "landmarks": "rpcholesky"}, n=9000),
    ],
    "NystromLSSVR": [Case({"n_landmarks": 300, "C": "loo"}, n=4000, outputs=5, dtype="float64")],
    "FourierLSSVC": [
        Case({"n_components": 300, "C": "loo"}, n=4000),
        Case({"n_components": 300, "method": "online", "epochs": 1}, n=4000),
    ],
    "FourierLSSVR": [Case({"n_components": 300}, n=4000, dtype="float64")],
    "BudgetLSSVC": [Case({"epochs": 1, "budget": 300}, n=4000)],
    "BudgetLSSVR": [Case({"epochs": 1, "budget": 300}, n=4000, dtype="float64")],
    "KernelSVC": [Case(), Case({"probability": "sigmoid"}, n=1500)],
    "KernelSVR": [Case()],
    "KernelOneClassSVM": [Case()],
    "MKLClassifier": [Case(n=1500)],
    "PrototypeLSSVC": [Case({"n_prototypes": 100}, n=4000), Case({"n_prototypes": 150, "refit": True}, n=4000)],
    "RiSVOClassifier": [
        Case({"n_landmarks": 300, "max_iter": 2}, n=4000),
        Case({"landmarks": "all", "max_iter": 2}, n=1500),
    ],
    "PatchClassifier": [Case({"patch_size": 12, "stride": 4}, n=1200, d=784, images=True, inner=_patch_machine)],
    "ImageClassifier": [Case({"n_atoms": 32, "n_components": 100, "mirror": False}, n=600, d=256, images=True)],
    "SphericalKMeans": [Case({"n_clusters": 50}, n=20_000)],
    "NystromNovelty": [Case({"n_landmarks": 300}, n=4000)],
    "TableClassifier": [TABLE, replace(TABLE, n=20_000, d=54)],
    "TableRegressor": [TABLE, replace(TABLE, n=20_000, d=54)],
}


def estimators() -> dict[str, type]:
    """Return every public estimator by name."""
    named = {name: getattr(gramless, name) for name in sorted(gramless._EXPORTS)}
    return {name: cls for name, cls in named.items() if isinstance(cls, type) and issubclass(cls, BaseEstimator)}


def cases(name: str) -> list[Case]:
    """Return the cases of an estimator."""
    return CASES.get(name, [Case()])


def make(name: str, case: Case, budget: int | None) -> Any:
    """Return the estimator of a case; None means no budget."""
    cls = estimators()[name]
    known = cls._get_param_names()
    settings = dict(case.settings)
    if case.inner is not None:
        settings["estimator"] = case.inner(budget)
    settings |= {"memory_budget": budget, "random_state": 0}
    return cls(**{key: value for key, value in settings.items() if key in known})


def data(name: str, case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of three groups, and their labels or values."""
    rng = np.random.default_rng(0)
    n = case.n
    group = np.arange(n) % 3
    X = rng.normal(size=(n, case.d)).astype(case.dtype)
    X[:, 0] += 2 * group
    if case.images:
        side = int(case.d**0.5)
        X = np.round(40 * np.abs(X)).clip(0, 255).astype(np.uint8).reshape(n, side, side)
    if is_classifier(estimators()[name]()):
        return X, group
    values = np.sin(X.reshape(n, -1)[:, : 1 + case.outputs % case.d]).sum(axis=1)
    return X, values if case.outputs == 1 else np.add.outer(values, np.arange(case.outputs, dtype=np.float64))


def status(pid: int, name: str) -> int:
    """Return a value of /proc/PID/status in bytes."""
    with open(f"/proc/{pid}/status") as f:
        found = re.search(rf"{name}:\s+(\d+) kB", f.read())
    assert found is not None
    return int(found[1]) * 1024


def start_threads() -> None:
    """Run BLAS and LAPACK on all threads once, because their buffers belong to the process and not to a fit."""
    for dtype in (np.float32, np.float64):
        A = np.ones((512, 512), dtype)
        A @ A
        scipy.linalg.cholesky(A + 512 * np.eye(512, dtype=dtype))


def peak_of(work: Any) -> tuple[int, str]:
    """Return the bytes that `work()` allocates in a forked process, and its result."""
    to_child, to_parent = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            start_threads()
            ctypes.CDLL(None).malloc_trim(0)  # Freed memory must not be reused by the fit.
            os.write(to_parent[1], b".")
            os.read(to_child[0], 1)
            answer = work()
        except BaseException:
            answer = "failed: " + traceback.format_exc()
        os.write(to_parent[1], answer.encode())
        os.read(to_child[0], 1)
        os._exit(0)
    os.read(to_parent[0], 1)
    with open(f"/proc/{pid}/clear_refs", "w") as f:
        f.write("5")
    before, files, own = (status(pid, name) for name in ("VmRSS", "RssFile", "RssAnon"))
    os.write(to_child[1], b".")
    mapped = most = 0
    while not select.select([to_parent[0]], [], [], _TICK)[0]:
        mapped, most = max(mapped, status(pid, "RssFile") - files), max(most, status(pid, "RssAnon") - own)
    answer = os.read(to_parent[0], 1 << 16).decode()
    # The system can reclaim pages of a temporary file at any time, so they are not counted.
    peak = status(pid, "VmHWM") - before if mapped < _HARDLY_ANY else most
    os.write(to_child[1], b".")
    os.waitpid(pid, 0)
    for end in (*to_child, *to_parent):
        os.close(end)
    return peak, answer


def load_everything() -> None:
    """Load all compiled loops, so that no fit includes them."""
    for module in pkgutil.iter_modules(gramless._core.compiled.__path__):
        try:
            importlib.import_module(f"gramless._core.compiled.{module.name}")
        except ModuleNotFoundError as missing:
            if missing.name != "triton":  # These loops need a GPU.
                raise


def measure(name: str, case: Case, budget: int) -> dict[str, Any]:
    """Run one fit."""
    X, y = data(name, case)
    k = 3 if is_classifier(estimators()[name]()) else case.outputs
    model = make(name, case, budget)
    has_budget = "memory_budget" in model.get_params()
    try:
        told: Any = gramless.estimate(model, case.n, case.d, k, dtype=case.dtype).nbytes
    except MemoryError as reason:
        told = str(reason)

    def fit() -> str:
        warnings.simplefilter("ignore")
        try:
            model.fit(X, y)
        except MemoryError as reason:
            return f"refused: {reason}"
        return "fitted"

    peak, answer = peak_of(fit)
    if answer.startswith("failed"):
        raise RuntimeError(f"{name} {case}: {answer}")
    found = {
        "estimator": name,
        "settings": case.settings,
        "rows": case.n,
        "columns": case.d,
        "outputs": k,
        "dtype": case.dtype,
    }
    found |= {"budget": budget if has_budget else None, "estimate": told, "answer": answer.partition(":")[0]}
    if answer == "fitted":
        return found | {"peak": peak, "share": round(peak / budget, 3) if has_budget else None}
    return found | {"sentence": answer.partition(": ")[2]}


TRAIN = {"table": ["--time", "1s"], "lssvm": ["--estimator", "lssvm", "--kernel", "rbf"]}
"""Options of the command line under which `gramless train` is measured."""


def write_table(path: Path, n: int) -> None:
    """Write a table of eight columns and a target."""
    X, y = data("LSSVC", Case(n=n, d=8))
    np.savetxt(path, np.column_stack([X, y]), delimiter=",", header="a,b,c,d,e,f,g,h,y", comments="", fmt="%.5g")


def command(*arguments: Any) -> str:
    """Run a command; return what it printed, or "refused" and the reason of a MemoryError."""
    heard = io.StringIO()
    with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(heard):
        try:
            app([str(argument) for argument in arguments], standalone_mode=False)
        except MemoryError as reason:  # The command explains the error and exits with its own code.
            return f"refused: {reason}"
    return heard.getvalue()


def train(mode: str, budget: int | None, folder: Path) -> str:
    """Run `gramless train` on a table of 2,500 rows."""
    table, out = folder / "t.csv", folder / "m.skops"
    write_table(table, 2500)
    out.unlink(missing_ok=True)
    limit = [] if budget is None else ["--memory-budget", budget]
    heard = command("train", table, "--target", "y", "--task", "classification", "--out", out, *TRAIN[mode], *limit)
    return "fitted" if out.exists() else heard if heard.startswith("refused") else f"failed: {heard}"


def predict(mode: str, budget: int | None, folder: Path) -> str:
    """Run `gramless predict` with the model of `train` on a table of 20,000 rows."""
    table, out = folder / "new.csv", folder / "predictions.csv"
    if not table.exists():
        write_table(table, NEW_ROWS)
    heard = command("predict", folder / "m.skops", table, "--proba", "--out", out)
    return "fitted" if out.exists() else f"failed: {heard}"


def serve(mode: str, budget: int | None, folder: Path) -> str:
    """Load the model of `train` as `gramless serve` does, and score a request with the largest number of rows."""
    scorer = load_scorer(folder / "m.skops")
    scorer.score({column.name: np.linspace(-1.0, 1.0, Limits().rows) for column in scorer.columns})
    return "fitted"


COMMANDS = {"train": train, "predict": predict, "serve": serve}


def measure_command(name: str, mode: str, budget: int, folder: Path) -> dict[str, Any]:
    """Call the command line with the budget of the model; the peak includes reading the files."""
    peak, answer = peak_of(lambda: COMMANDS[name](mode, budget, folder))
    if not answer.startswith(("fitted", "refused")):
        raise RuntimeError(f"gramless {name} {mode}: {answer}")
    found = {"estimator": f"gramless {name}", "settings": {"mode": mode}, "dtype": "float64", "rows": 2500, "columns": 8}
    found |= {"outputs": 3, "budget": budget, "estimate": "", "answer": answer.partition(":")[0]}
    if answer == "fitted":
        return found | {"peak": peak, "share": round(peak / budget, 3)}
    return found | {"sentence": answer.partition(": ")[2]}


CALL_BUDGET = 100_000_000
NEW_ROWS = 20_000
CALL_CASES: dict[str, Case] = {
    "LSSVC": Case({"probability": "auto"}, n=2500),
    "LSSVR": Case({}, n=4000),
    "PrototypeLSSVC": Case({"n_prototypes": 400}, n=4000),
    "RiSVOClassifier": Case({"n_landmarks": 300, "landmarks": "uniform"}, n=4000),
    "NystromLSSVC": Case({"n_landmarks": 300, "probability": "temperature"}, n=20_000),
    "NystromLSSVR": Case({"n_landmarks": 300}, n=20_000, outputs=2),
    "FourierLSSVC": Case({"n_components": 300, "probability": "sigmoid"}, n=20_000),
    "FourierLSSVR": Case({"n_components": 300}, n=20_000),
    "BudgetLSSVC": Case({"epochs": 1, "budget": 300}, n=4000),
    "BudgetLSSVR": Case({"epochs": 1, "budget": 300}, n=4000),
    "NystromNovelty": Case({"n_landmarks": 300}, n=4000),
    "TableClassifier": Case({"time_budget": 0.1}, n=1500),
    "TableRegressor": Case({"time_budget": 0.1}, n=1500),
}
"""Settings and training rows of the estimators whose calls are measured; others have the last of `CASES`."""

CALLS: dict[str, Any] = {
    "predict": lambda model, X, y: model.predict(X),
    "decision_function": lambda model, X, y: model.decision_function(X),
    "score_samples": lambda model, X, y: model.score_samples(X),
    "predict_proba": lambda model, X, y: model.predict_proba(X),
    "predict_set": lambda model, X, y: model.predict_set(X),
    "predict_interval": lambda model, X, y: model.predict_interval(X[:2000]),
    "predict_interval(local=True)": lambda model, X, y: model.predict_interval(X[:500], local=True),
    "predict(return_std=True)": lambda model, X, y: model.predict(X[:500], return_std=True),
    "partial_fit": lambda model, X, y: model.partial_fit(X, y),
    "compress": lambda model, X, y: gramless.compress(model, n_points=100, rounds=2, random_state=0),
    "compiled": lambda model, X, y: gramless.compiled(model).predict(X),
    "to_onnx": lambda model, X, y: gramless.to_onnx(model),
    "permutation_importance": lambda model, X, y: permutation_importance(model, X[:1000], y[:1000], n_repeats=2),
}
"""Public calls after a fit, which have the memory budget of the estimator."""
FUNCTIONS = ("compress", "compiled", "to_onnx", "permutation_importance")
"""The calls that are functions of the fitted estimator, not methods."""


def measure_call(name: str, case: Case, call: str, model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, Any] | None:
    """Run one call of a fitted model; None if the estimator does not have it."""
    method = call.partition("(")[0]
    if not hasattr(model, method) and (method not in FUNCTIONS or not hasattr(model, "predict")):
        return None

    def run(model: Any, n: int) -> str:
        warnings.simplefilter("ignore")
        try:
            CALLS[call](model, X[:n], y[:n])
        except MemoryError as reason:
            return f"refused: {reason}"
        except (TypeError, ValueError, AttributeError) as reason:
            return f"unavailable: {reason}"
        return "done"

    answer = run(copy.deepcopy(model), 300)  # Load what the call loads.
    if answer.startswith("unavailable"):
        return None
    peak, answer = peak_of(lambda: run(model, len(X)))
    if answer.startswith("failed"):
        raise RuntimeError(f"{call} of {name} {case}: {answer}")
    found = {"estimator": f"{name}.{call}", "settings": case.settings, "rows": case.n, "columns": case.d}
    found |= {"dtype": case.dtype, "budget": CALL_BUDGET, "estimate": "", "answer": answer.partition(":")[0]}
    if answer == "done":
        return found | {"answer": "fitted", "peak": peak, "share": round(peak / CALL_BUDGET, 3)}
    return found | {"sentence": answer.partition(": ")[2]}


def measure_calls(name: str) -> Iterator[dict[str, Any]]:
    """Fit an estimator with a memory budget and yield the measurements of its calls."""
    case = CALL_CASES.get(name, cases(name)[-1])
    X, y = data(name, replace(case, n=NEW_ROWS))
    model = make(name, case, CALL_BUDGET).fit(*data(name, case))
    for call in CALLS:
        found = measure_call(name, case, call, model, X, y)
        if found is not None:
            yield found


def measure_loading() -> dict[str, int]:
    """Return the bytes that loading each group of compiled loops takes, each in its own process."""
    script = (
        "import json, re, importlib, gramless, gramless.estimators.lssvm, gramless.estimators.svm\n"
        "def now(): return int(re.search(r'VmRSS:\\s+(\\d+)', open('/proc/self/status').read())[1]) * 1024\n"
        "found, before = {}, now()\n"
        f"for name in {list(COMPILED_LOOPS)!r}:\n"
        "    importlib.import_module(name)\n"
        "    found[name], before = now() - before, now()\n"
        "print(json.dumps(found))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def line(found: dict[str, Any]) -> str:
    """Format a row of the table."""
    settings = ", ".join(f"{key}={value}" for key, value in found["settings"].items())
    what = f"{found['estimator']}({settings})"[:62]
    size = f"{found['rows']:>6} x {found['columns']:<4}{found['dtype'][5:]:>3}"
    budget = "     -" if found["budget"] is None else f"{found['budget'] / 1e6:6.0f}"
    told = "     -" if isinstance(found["estimate"], str) else f"{found['estimate'] / 1e6:6.0f}"
    if found["answer"] != "fitted":
        return f"{what:62} {size} {budget} {told}  {found['answer']}: {found['sentence']}"
    share = "" if found["share"] is None else f" {found['share']:5.2f}"
    return f"{what:62} {size} {budget} {told} {found['peak'] / 1e6:6.1f}{share}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="estimators to measure")
    parser.add_argument("--out", help="write the table as JSON")
    parser.add_argument("--quick", action="store_true", help="the last case of each estimator only")
    parser.add_argument("--lines", action="store_true", help="print one JSON object for each fit instead of a table")
    arguments = parser.parse_args()
    if not ALLOCATOR.items() <= os.environ.items():  # The C library reads this variable when a process starts.
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ALLOCATOR)
    warnings.simplefilter("ignore")
    loading = measure_loading()
    load_everything()
    found: dict[str, list[dict[str, Any]]] = {"fits": [], "calls": []}

    def add(kind: str, one: dict[str, Any]) -> None:
        found[kind].append(one)
        print(json.dumps(one) if arguments.lines else line(one), flush=True)

    if not arguments.lines:
        print(f"{'':62} {'rows x columns':>15} budget  told   peak share   (MB)")
    for name in arguments.only or estimators():
        has_budget = "memory_budget" in estimators()[name]._get_param_names()
        for case in cases(name)[-1:] if arguments.quick else cases(name):
            make(name, case, None).fit(*data(name, case))  # Load what the fit loads.
            for budget in BUDGETS if has_budget else BUDGETS[-1:]:
                add("fits", measure(name, case, budget))
        for one in measure_calls(name) if has_budget else ():
            add("calls", one)
    if not arguments.only:
        with tempfile.TemporaryDirectory() as folder:
            for mode in list(TRAIN)[-1:] if arguments.quick else TRAIN:
                for budget, name in itertools.product(BUDGETS, COMMANDS):
                    COMMANDS[name](mode, budget, Path(folder))  # Load or compile what this budget selects.
                    add("fits", measure_command(name, mode, budget, Path(folder)))
    if not arguments.lines:
        for name, nbytes in loading.items():
            print(f"loading {name}: {nbytes / 1e6:.0f} MB, told {COMPILED_LOOPS[name] / 1e6:.0f}")
    if arguments.out:
        with open(arguments.out, "w") as f:
            json.dump({"loading": loading, **found}, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
