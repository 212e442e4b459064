"""Start time of the `gramless` command: CPU seconds (user and system) of whole processes.

    python benchmarks/start.py [--repeats 5] [--out benchmarks/results/start.json]

Measures `predict` of two rows by a model of 2,000 rows and 20 columns, `info` of that model, and `--help`; and, for
comparison, the import of scikit-learn, which loading a model needs, and the import of skops. Medians of alternating
runs, after one run that fills the caches of compiled code. Other programs increase all times, so compare ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from gramless.cli.options import TrainSettings
from gramless.cli.train import train
from gramless.papers.experiments.environment import environment as machine
from serve import make_table


def processor_seconds(command: list[str], environment: dict[str, str]) -> float:
    """Return the CPU seconds of a process and its children."""
    before = os.times()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Train, start the commands, print and write the records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "start.json")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data, model, rows = (Path(folder, name) for name in ("table.csv", "model.skops", "rows.csv"))
        make_table(2000).to_csv(data, index=False)
        train(TrainSettings(data, "answer", model, time=1.0), Console(quiet=True))
        make_table(2, seed=1).drop(columns="answer").to_csv(rows, index=False)
        gramless = [sys.executable, "-m", "gramless"]
        commands = {
            "gramless --help": [*gramless, "--help"],
            "gramless info MODEL": [*gramless, "info", str(model)],
            "gramless predict MODEL two_rows.csv": [*gramless, "predict", str(model), str(rows)],
            "import sklearn.base": [sys.executable, "-c", "import sklearn.base"],
            "import sklearn, pandas, skops.io": [sys.executable, "-c", "import sklearn, pandas, skops.io"],
        }
        # As after an installation: Python's own compiled files are cached.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = str(Path(folder, "compiled"))
        for command in commands.values():
            processor_seconds(command, environment)
        runs = [
            {name: processor_seconds(command, environment) for name, command in commands.items()}
            for _ in range(asked.repeats)
        ]
    results = {
        "processor_seconds": {name: round(statistics.median(run[name] for run in runs), 2) for name in commands},
        "fewest": {name: round(min(run[name] for run in runs), 2) for name in commands},
        "repeats": asked.repeats,
        "load_average": os.getloadavg()[0],
        "environment": machine(),
    }
    asked.out.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
