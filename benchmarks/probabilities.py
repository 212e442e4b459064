"""Quality of probabilities: softmax of least-squares scores against sigmoids fitted on leave-one-out scores.

    python benchmarks/probabilities.py spambase wine_quality bank --out benchmarks/results/probabilities.json

Each table is preprocessed and tuned as by `gramless train`, fitted with both methods, and scored on held-out rows: log
loss, Brier score (sum over classes), and the mean difference between confidence and accuracy in ten groups of equal
size; CPU seconds of each fit. "guess" predicts the class frequencies of the training rows.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import train_test_split

from gramless import TableClassifier
from gramless.cli.scores import log_loss
from gramless.papers.experiments.environment import environment
from gramless.tables.tuning import TUNING
from train_against_svc import table

GROUPS = 10


def scores(y: np.ndarray, classes: np.ndarray, chances: np.ndarray, shares: np.ndarray) -> dict[str, float]:
    """Return measures of the quality of probabilities."""
    truth = (y[:, None] == classes[None, :]).astype(float)
    confidence, right = chances.max(axis=1), classes[chances.argmax(axis=1)] == y
    groups = np.array_split(np.argsort(confidence, kind="stable"), GROUPS)
    gaps = [abs(confidence[g].mean() - right[g].mean()) * len(g) for g in groups]
    return {
        "log_loss": log_loss(y, classes, chances, shares).value,
        "brier": float(((chances - truth) ** 2).sum(axis=1).mean()),
        "gap": float(sum(gaps) / len(y)),
    }


def compare(name: str, seed: int, most: int) -> dict[str, Any]:
    """Measure both kinds of probabilities on one dataset."""
    frame = table(name)
    frame = frame.sample(min(most, len(frame)), random_state=seed)
    X, y = frame.drop(columns="target"), frame["target"].to_numpy()
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=seed, stratify=y)
    single = "lssvm" if len(y_train) <= TUNING.exact_rows else "nystrom"
    fitted = TableClassifier(estimator=single, probability=False, random_state=seed).fit(X_train, y_train)
    ready, unseen = (fitted.columns_.encode(rows).prepared(fitted.preparation_) for rows in (X_train, X_test))
    classes, counts = np.unique(y_train, return_counts=True)
    shares = counts / len(y_train)
    found: dict[str, Any] = {"guess": scores(y_test, classes, np.tile(shares, (len(y_test), 1)), shares)}
    for kind in ("softmax", "sigmoid"):
        began = time.process_time()
        model = clone(fitted.model_).set_params(probability=kind).fit(ready, y_train)
        seconds = time.process_time() - began
        found[kind] = {**scores(y_test, classes, model.predict_proba(unseen), shares), "cpu_seconds": seconds}
    return {"data": name, "seed": seed, "rows": len(y_train), "machine": type(fitted.model_).__name__, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=10**9, help="Rows of a dataset at the most, drawn at random.")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.names:
        rows.append(compare(name, arguments.seed, arguments.most))
        print(json.dumps(rows[-1]), flush=True)
        if arguments.out is not None:
            arguments.out.write_text(json.dumps({"rows": rows, **environment()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
