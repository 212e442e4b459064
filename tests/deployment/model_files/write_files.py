"""Script that writes the model files of this version, which later versions must read: `python
tests/deployment/model_files/write_files.py`.

Run once for each release; files of earlier releases stay as they are.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gramless

FILES = Path(__file__).parent / "files"


def rows():
    """Return the rows that the models of all files predict."""
    rng = np.random.default_rng(7)
    frame = pd.DataFrame({"a": rng.normal(size=24).round(3), "b": rng.normal(size=24).round(3)})
    frame["c"] = rng.choice(["x", "y"], 24)
    return frame


def models():
    """Return a fitted estimator, a pipeline and a table model."""
    frame = rows()
    X, y = frame[["a", "b"]].to_numpy(), np.where(frame["a"] > frame["b"], "more", "less")
    return {
        "lssvc": gramless.LSSVC(C=3.0, probability="sigmoid").fit(X, y),
        "pipeline": make_pipeline(StandardScaler(), gramless.LSSVR(kernel="laplacian")).fit(X, X[:, 0]),
        "table": gramless.TableClassifier(time_budget=0.1, random_state=0).fit(frame, y),
    }


def predictions(model):
    """Return the predictions of a model for the rows."""
    frame = rows()
    X = frame if isinstance(model, gramless.TableClassifier) else frame[["a", "b"]].to_numpy()
    method = model.predict_proba if hasattr(model, "predict_proba") else model.predict
    return method(X).tolist()


if __name__ == "__main__":
    folder = FILES / gramless.__version__
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in models().items():
        gramless.save(model, folder / f"{name}.skops")
        (folder / f"{name}.json").write_text(json.dumps(predictions(model)) + "\n")
