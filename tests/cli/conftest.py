"""Small tables of every kind, and the command run in this process."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from gramless.cli.app import app
from gramless.cli.errors import explain


class Outcome:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def run():
    """Return a function that runs a command line and returns its exit code and output."""

    def call(*arguments, stdin=None):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
        code, err = result.exit_code, result.stderr
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            explained = explain(result.exception)
            if explained is None:
                raise result.exception
            err, code = err + explained[0], explained[1]
        return Outcome(code, result.stdout, err)

    return call


def make_table(n=240, seed=0):
    """Return three kinds of plants that two numbers and a category predict; missing values, an identifier and a constant."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, n)
    frame = pd.DataFrame(
        {
            "height": kind * 2.0 + rng.normal(size=n) * 0.6,
            "leaves": kind * 10 + rng.integers(0, 8, n),
            "soil": np.array(["sand", "clay", "loam"])[np.where(rng.random(n) < 0.8, kind, rng.integers(0, 3, n))],
            "sheltered": rng.random(n) < 0.5,
            "label": [f"plant-{seed}-{k}" for k in range(n)],
            "planet": "Earth",
            "kind": np.array(["ash", "birch", "cedar"])[kind],
            "weight": 3.0 * kind + rng.normal(size=n) * 0.1 + 10,
        }
    )
    frame.loc[rng.random(n) < 0.05, "height"] = np.nan
    frame.loc[rng.random(n) < 0.05, "soil"] = None
    return frame


@pytest.fixture(scope="session")
def plants(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plants")
    frame = make_table()
    frame.drop(columns="weight").to_csv(folder / "plants.csv", index=False)
    frame.drop(columns="weight").to_csv(folder / "semicolon.csv.gz", index=False, sep=";")
    frame.drop(columns="weight").to_parquet(folder / "plants.parquet")
    frame.drop(columns="kind").to_csv(folder / "weights.tsv", index=False, sep="\t")
    make_table(60, seed=1).drop(columns=["weight"]).to_csv(folder / "more.csv", index=False)
    return folder


@pytest.fixture(scope="session")
def model(plants):
    path = plants / "model.skops"
    result = CliRunner().invoke(app, ["train", str(plants / "plants.csv"), "--target", "kind", "--out", str(path)])
    assert result.exit_code == 0, result.output
    return path
