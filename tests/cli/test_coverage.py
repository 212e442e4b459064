"""`--interval` and `--set`: intervals and prediction sets of saved models, and their coverage."""

import io

import numpy as np
import pandas as pd
import pytest

ESTIMATORS = [["--time", "1s"], ["--estimator", "lssvm"], ["--estimator", "nystrom"]]


@pytest.fixture
def yields(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"rain": rng.normal(size=400), "soil": rng.choice(["sand", "clay"], size=400)})
    frame["yield"] = frame["rain"] * 2 + (frame["soil"] == "clay") + rng.normal(size=400)
    frame.to_csv(tmp_path / "yields.csv", index=False)
    return tmp_path


@pytest.mark.parametrize("options", ESTIMATORS, ids=str)
def test_intervals_of_values(run, yields, options):
    out = yields / "model.skops"
    done = run("train", yields / "yields.csv", "--target", "yield", "--out", out, "--interval", "0.8", *options, "--json")
    assert done.code == 0, done.err
    predicted = run("predict", out, yields / "yields.csv", "--interval", "0.8")
    found = pd.read_csv(io.StringIO(predicted.out))
    assert list(found.columns) == ["prediction", "low", "high"]
    assert ((found.low < found.prediction) & (found.prediction < found.high)).all()
    truth = pd.read_csv(yields / "yields.csv")["yield"]
    assert 0.7 < ((found.low <= truth) & (truth <= found.high)).mean() < 0.95
    wide = pd.read_csv(io.StringIO(run("predict", out, yields / "yields.csv", "--interval", "0.99").out))
    assert (wide.high - wide.low > found.high - found.low).all()


@pytest.mark.parametrize("options", ESTIMATORS, ids=str)
def test_sets_of_classes(run, plants, tmp_path, options):
    out = tmp_path / "model.skops"
    done = run("train", plants / "plants.csv", "--target", "kind", "--out", out, "--interval", "0.9", *options)
    assert done.code == 0, done.err
    assert "sets of" in done.out
    predicted = run("predict", out, plants / "plants.csv", "--set", "0.95", "--proba")
    found = pd.read_csv(io.StringIO(predicted.out))
    assert list(found.columns) == ["prediction", "p(ash)", "p(birch)", "p(cedar)", "set"]
    truth = pd.read_csv(plants / "plants.csv")["kind"]
    inside = [kind in str(held).split(";") for kind, held in zip(truth, found["set"], strict=True)]
    assert np.mean(inside) > 0.88


def test_intervals_and_sets_of_the_wrong_task_raise(run, plants, yields, tmp_path):
    out = tmp_path / "model.skops"
    run("train", yields / "yields.csv", "--target", "yield", "--out", out, "--time", "1s")
    assert "sets are only for classes" in run("predict", out, yields / "yields.csv", "--set", "0.9").err
    assert "between 0 and 1" in run("predict", out, yields / "yields.csv", "--interval", "90").err
    run("train", yields / "yields.csv", "--target", "yield", "--out", out, "--estimator", "svm")
    assert "no intervals" in run("predict", out, yields / "yields.csv", "--interval", "0.9").err
    run("train", plants / "plants.csv", "--target", "kind", "--out", out, "--time", "1s")
    assert "intervals are only for quantities" in run("predict", out, plants / "plants.csv", "--interval", "0.9").err
    asked = run("train", plants / "plants.csv", "--target", "kind", "--out", out, "--interval", "0.9", "--cv", "3")
    assert "--cv" in asked.err


def test_card_shows_the_coverage(run, yields, plants, tmp_path):
    for data, target in ((yields / "yields.csv", "yield"), (plants / "plants.csv", "kind")):
        out = tmp_path / "model.skops"
        assert run("train", data, "--target", target, "--out", out, "--report", "--time", "1s").code == 0
        page = out.with_suffix(".html").read_text()
        assert "<h2>Coverage</h2>" in page
        assert "measured against requested coverage" in page
