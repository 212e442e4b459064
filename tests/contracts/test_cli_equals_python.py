"""`gramless train` and the table estimators give equal column types and predictions for the same table."""

import io

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import gramless
from gramless import TableClassifier, TableRegressor
from gramless.cli.app import app

N = 120
OPTIONS = [
    {},
    {"estimator": "table", "kernel": "laplacian"},
    {"estimator": "lssvm"},
    {"estimator": "lssvm", "kernel": "matern32", "C": 3.0},
    {"estimator": "nystrom"},
    {"estimator": "svm"},
    {"gamma": 0.1, "kernel": "exponential"},
    {"tune": "none"},
    {"kernel": "linear", "device": "cpu"},
]
TYPES = {
    "number": "number",
    "missing": "number",
    "flag": "category",
    "kind": "category",
    "code": "category",
    "seen": "date",
    "text number": "number",
    "decimal": "number",
}


def messy_table() -> pd.DataFrame:
    """Return a table with every kind of column that a CSV file and a DataFrame show differently."""
    rng = np.random.default_rng(0)
    number = rng.normal(size=N).round(4)
    frame = pd.DataFrame(
        {
            "counter": np.arange(1, N + 1),
            "number": number,
            "missing": np.where(rng.random(N) < 0.2, np.nan, rng.normal(size=N).round(4)),
            "flag": rng.random(N) < 0.5,
            "constant": np.where(rng.random(N) < 0.3, np.nan, 7.0),
            "kind": rng.choice(["oak", "elm", "NA", "ash"], N),
            "code": rng.choice(["01", "02", "2A"], N),
            "seen": pd.date_range("2024-01-30", periods=N).strftime("%Y-%m-%d"),
            "text number": [f"{value:.3f}" if k % 9 else "-" for k, value in enumerate(rng.normal(size=N))],
            "decimal": [str(value) for value in rng.integers(0, 50, N)],
            "name": [f"row {k} of the table" for k in range(N)],
        }
    )
    frame.loc[::11, "kind"] = None
    frame.loc[::13, "seen"] = None
    return frame


def target(frame: pd.DataFrame, task: str) -> np.ndarray:
    score = frame["number"] + (frame["flag"] & (frame["kind"] == "oak")) + 0.3 * frame["missing"].fillna(1.0)
    return np.where(score > 0.5, "yes", "no") if task == "classification" else score.round(5).to_numpy()


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_predictions_are_equal(tmp_path, task, options):
    frame = messy_table()
    y = target(frame, task)
    frame.assign(y=y).to_csv(tmp_path / "t.csv", index=False)
    arguments = ["train", tmp_path / "t.csv", "--target", "y", "--test", tmp_path / "t.csv", "--out", tmp_path / "m.skops"]
    for name, value in options.items():
        arguments += [f"--{name}", value]
    done = CliRunner().invoke(app, [str(one) for one in [*arguments, "--time", "60"]])
    assert done.exit_code == 0, done.output + repr(done.exception)
    stored = gramless.load(tmp_path / "m.skops")
    cls = TableClassifier if task == "classification" else TableRegressor
    model = cls(time_budget=60, random_state=0, **options).fit(frame, y)
    assert model.columns_.type_of == stored.column_types == TYPES
    assert set(model.columns_.left_out_) == {"counter", "constant", "name"}
    predicted = CliRunner().invoke(app, ["predict", str(tmp_path / "m.skops"), str(tmp_path / "t.csv")])
    printed = pd.read_csv(io.StringIO(predicted.stdout))["prediction"].to_numpy()
    np.testing.assert_array_equal(printed, model.predict(frame))
    np.testing.assert_array_equal(stored.predict(frame), model.predict(frame))
    if hasattr(model, "predict_proba"):
        np.testing.assert_array_equal(stored.predict_proba(frame), model.predict_proba(frame))
