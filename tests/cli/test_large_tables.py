"""Training files that exceed the memory budget are read in batches."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import gramless
from gramless.cli.options import TrainSettings
from gramless.cli.training_table import large_table

BUDGET = ["--memory-budget", "20MB"]
ROWS = 120_000


def make_rows(n=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=n), rng.normal(size=n)
    code = rng.integers(0, 4, n)
    score = np.sin(2 * a) + 0.5 * b + 0.4 * (code == 3) + 0.2 * rng.normal(size=n)
    frame = pd.DataFrame({"a": a, "b": b, "code": np.array(["01", "02", "2A", "x"])[code], "constant": 1})
    frame.loc[rng.random(n) < 0.03, "b"] = np.nan
    return frame.assign(kind=np.where(score > 0, "yes", "no"), value=score)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, frame = tmp_path_factory.mktemp("large"), make_rows()
    frame.loc[[7, 70_000], "kind"] = None
    frame.drop(columns="value").to_parquet(folder / "rows.parquet", row_group_size=5000)
    frame.drop(columns="value").to_csv(folder / "rows.csv.gz", index=False, sep=";")
    make_rows(3 * ROWS).drop(columns="kind").to_feather(folder / "values.feather")
    return folder


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv.gz"])
def test_classifier_is_fitted_in_batches(run, files, tmp_path, name):
    out = tmp_path / "m.skops"
    done = run("train", files / name, "--target", "kind", "--out", out, *BUDGET)
    assert done.code == 0, done.err
    assert "exceeds the budget of 20.0 MB" in done.out.replace("\n", " ")
    model = gramless.load(out)
    about, rows = model.about, model.about["rows"]
    assert rows["train"] + rows["held_out"] == ROWS - 2
    assert rows["saved"] == rows["train"] > 90_000
    assert about["scores"][0]["value"] > 0.88
    assert model.column_types == {"a": "number", "b": "number", "code": "category"}
    assert model.novelty is not None
    new = make_rows(500, seed=1)
    new.drop(columns=["kind", "value"]).to_csv(tmp_path / "new.csv", index=False)
    predicted = run("predict", out, tmp_path / "new.csv", "--out", tmp_path / "p.csv", "--proba")
    assert predicted.code == 0, predicted.err
    assert (pd.read_csv(tmp_path / "p.csv").iloc[:, 0] == new["kind"]).mean() > 0.88


def test_batches_equal_a_fit_to_the_same_rows_in_memory(files, run, tmp_path):
    options = ["--memory-budget", "60MB", "--no-importance"]
    done = run("train", files / "values.feather", "--target", "value", "--out", tmp_path / "m.skops", *options)
    assert done.code == 0, done.err
    table = gramless.load(tmp_path / "m.skops")
    estimator, model, frame = table.estimator, table.estimator.model_, pd.read_feather(files / "values.feather")
    draws = np.concatenate(
        [np.random.Generator(np.random.PCG64(0).advance(start)).random(20_000) for start in range(0, len(frame), 20_000)]
    )
    training = np.sort(np.argsort(draws)[table.about["rows"]["held_out"] :])  # the held-out rows have the smallest numbers
    again = clone(model).set_params(landmarks=model.points_)
    again.fit(estimator._scaled(frame.iloc[training][["a", "b", "code"]]), frame["value"].to_numpy()[training])
    new = make_rows(500, seed=1)
    np.testing.assert_allclose(table.predict(new), again.predict(estimator._scaled(new[["a", "b", "code"]])), atol=1e-4)
    assert table.about["scores"][0]["value"] > 0.85


def test_weights_classes_and_rare_classes(run, files, tmp_path):
    frame = make_rows().drop(columns="value").assign(weight=1.0)
    frame.loc[79_990, "kind"] = "rare"
    frame.loc[frame["kind"] == "no", "weight"] = 0.0
    frame.loc[:3, "weight"] = 1.0
    frame.to_parquet(tmp_path / "t.parquet")
    done = run(
        *("train", tmp_path / "t.parquet", "--target", "kind", "--weights", "weight", "--no-importance"),
        *("--out", tmp_path / "m.skops", *BUDGET, "--no-proba"),
    )
    assert done.code == 0, done.err
    model = gramless.load(tmp_path / "m.skops")
    assert list(model.classes_) == ["no", "rare", "yes"]
    assert (model.predict(frame[:1000]) == "yes").mean() > 0.95


def test_balanced_classes(run, tmp_path):
    frame = make_rows().drop(columns="value")
    frame = frame.assign(kind=np.where((frame["a"] > 1.2) & (frame["kind"] == "yes"), "yes", "no"))
    frame.to_parquet(tmp_path / "t.parquet")
    shares = []
    for options in ([], ["--class-weight", "balanced"]):
        done = run(
            "train",
            tmp_path / "t.parquet",
            "--target",
            "kind",
            "--no-importance",
            "--no-proba",
            *options,
            "--out",
            tmp_path / "m.skops",
            *BUDGET,
        )
        assert done.code == 0, done.err
        shares.append((gramless.load(tmp_path / "m.skops").predict(frame[:2000]) == "yes").mean())
    assert shares[1] > shares[0]


def test_a_wrong_value_names_the_row_of_the_file(run, tmp_path):
    frame = make_rows().drop(columns="value").astype({"a": object})
    frame.loc[75_431, "a"] = "broken"
    frame.to_csv(tmp_path / "t.csv", index=False)
    done = run("train", tmp_path / "t.csv", "--target", "kind", "--out", tmp_path / "m.skops", *BUDGET)
    assert done.code == 3
    assert "row 75,432" in done.err
    assert "'broken'" in done.err
    assert not (tmp_path / "m.skops").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--estimator", "table"], "--estimator table needs all rows in memory"),
        (["--cv", "3"], "--cv needs all rows in memory"),
        (["--time", "30s"], "--time needs all rows in memory"),
    ],
)
def test_options_that_need_all_rows_raise(run, files, tmp_path, options, message):
    done = run("train", files / "rows.parquet", "--target", "kind", "--out", tmp_path / "m.skops", *BUDGET, *options)
    assert done.code == 3
    assert message in done.err.replace("\n", " ")


def test_table_within_the_budget_is_read_as_a_whole(files):
    settings = TrainSettings(files / "rows.parquet", "kind", memory_budget="1GB")
    with large_table(settings, lambda message: None) as large:
        assert large is None


def test_the_sample_does_not_depend_on_the_held_out_rows(tmp_path, monkeypatch):
    make_rows(40_000).to_parquet(tmp_path / "rows.parquet")
    monkeypatch.setattr("gramless.cli.training_table._SAMPLE_ROWS", 1000)  # fewer than the held-out rows
    settings = TrainSettings(data=tmp_path / "rows.parquet", target="kind", memory_budget="5MB")
    with large_table(settings, lambda message: None) as table:
        assert table is not None
        assert 800 < len(pd.read_parquet(table.sample)) < 1200
