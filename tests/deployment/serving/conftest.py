"""Fixtures: model files, and a server of them."""

import numpy as np
import pytest
from rich.console import Console
from running_servers import plants, running

import gramless
from gramless import LSSVC
from gramless.cli.options import TrainSettings
from gramless.cli.train import train

pytest.importorskip("uvicorn", reason="the extra serve is not installed")


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Write three models: a table classifier (kinds), a regression pipeline (weights) and an estimator of arrays (plain)."""
    folder = tmp_path_factory.mktemp("models")
    frame, quiet = plants(), Console(quiet=True)
    frame.drop(columns="weight").to_csv(folder / "kinds.csv", index=False)
    frame.drop(columns=["kind", "planted"]).to_csv(folder / "weights.csv", index=False)
    train(TrainSettings(folder / "kinds.csv", "kind", folder / "kinds.skops", time=0.5), quiet)
    train(TrainSettings(folder / "weights.csv", "weight", folder / "weights.skops", estimator="lssvm", tune="none"), quiet)
    X = np.random.default_rng(0).normal(size=(40, 3))
    gramless.save(LSSVC(probability="softmax").fit(X, (X[:, 0] > 0).astype(int)), folder / "plain.skops")
    return folder


@pytest.fixture(scope="module")
def address(files):
    from gramless.cli.serve import load_scorer
    from gramless.deployment.serving.app import scoring_app

    named = {name: files / f"{name}.skops" for name in ("kinds", "weights", "plain")}
    with running(scoring_app(named, load_scorer)) as found:
        yield found
