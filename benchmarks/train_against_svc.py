"""`gramless train` with defaults against a tuned scikit-learn SVC pipeline on the same held-out rows.

    python benchmarks/train_against_svc.py wine_quality bank --seeds 1 2 --out comparison.json

The search of `gramless train` was developed with seed 0; other seeds were not used. The SVC is tuned by five-fold
cross-validation over 12 settings on at most 6,000 training rows and then fitted to all of them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from gramless.cli.options import TrainSettings
from gramless.cli.train import train
from gramless.papers.datasets import load
from gramless.papers.experiments.environment import environment

GRIDS = {
    "wine_quality": {"svc__C": [1, 10, 100], "svc__gamma": [0.1, 0.3, 1, 3]},
    "bank": {"svc__C": [0.3, 1, 3, 10], "svc__gamma": [0.01, 0.03, 0.1]},
}
TUNING_ROWS = 6000


def table(name: str) -> pd.DataFrame:
    """Return the dataset as a user has it, with category codes as strings."""
    data = load(name)
    x, y = data.pooled()
    frame = pd.DataFrame(x, columns=list(data.feature_names or [f"x{k}" for k in range(x.shape[1])]))
    for column in data.categorical:
        frame[frame.columns[column]] = [f"level {int(code)}" for code in x[:, column]]
    return frame.assign(target=[f"class {label}" for label in y])


def svc_accuracy(name: str, frame: pd.DataFrame, seed: int) -> tuple[float, int]:
    """Return the held-out accuracy of the tuned pipeline, and the number of held-out rows."""
    x, y = frame.drop(columns="target"), frame["target"].to_numpy()
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.2, random_state=seed, stratify=y)
    numbers = x.select_dtypes("number").columns.tolist()
    words = [column for column in x if column not in numbers]
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    prepare = make_column_transformer((StandardScaler(), numbers), (encoder, words))
    pipeline = make_pipeline(prepare, SVC(cache_size=1000))
    rows = np.random.default_rng(seed).permutation(len(y_train))[:TUNING_ROWS]
    search = GridSearchCV(pipeline, GRIDS[name], cv=5).fit(x_train.iloc[rows], y_train[rows])
    best = pipeline.set_params(**search.best_params_).fit(x_train, y_train)
    return float(best.score(x_test, y_test)), len(y_test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=sorted(GRIDS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.names:
        frame = table(name)
        for seed in arguments.seeds:
            with tempfile.TemporaryDirectory() as folder:
                frame.to_csv(Path(folder) / "data.csv", index=False)
                model = Path(folder) / "model.skops"
                began = time.perf_counter()
                trained = train(TrainSettings(Path(folder) / "data.csv", "target", model, seed=seed), Console(quiet=True))
                seconds = time.perf_counter() - began
            ours = trained.about["scores"][0]["value"]
            theirs, n = svc_accuracy(name, frame, seed)
            error = float(np.sqrt(theirs * (1 - theirs) / n))
            rows.append(
                {
                    "data": name,
                    "seed": seed,
                    "gramless": ours,
                    "svc": theirs,
                    "standard_error": error,
                    "seconds": seconds,
                    "within": ours >= theirs - error,
                }
            )
            print(json.dumps(rows[-1]), flush=True)
            if arguments.out is not None:
                arguments.out.write_text(json.dumps({"rows": rows, **environment()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
