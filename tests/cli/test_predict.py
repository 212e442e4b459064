"""`gramless predict` and `gramless evaluate` with a saved model."""

import csv
import io

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import gramless
from gramless.cli.options import PredictSettings
from gramless.cli.predict import predict


def rows_of(text):
    return list(csv.reader(io.StringIO(text)))


def test_predict_writes_one_line_per_row(run, plants, model):
    done = run("predict", model, plants / "more.csv")
    heading, *rows = rows_of(done.out)
    assert heading == ["prediction"]
    assert len(rows) == 60
    truth = pd.read_csv(plants / "more.csv")["kind"]
    assert np.mean([row[0] for row in rows] == truth) > 0.85


def test_probabilities_are_written_to_a_file(run, plants, model, tmp_path):
    out = tmp_path / "predicted.csv"
    done = run("predict", model, plants / "more.csv", "--proba", "--out", out, "--json")
    assert done.json["rows"] == 60
    heading, *rows = rows_of(out.read_text())
    assert heading == ["prediction", "p(ash)", "p(birch)", "p(cedar)"]
    chances = np.array([row[1:] for row in rows], dtype=float)
    assert np.allclose(chances.sum(axis=1), 1, atol=1e-4)
    assert [row[0] for row in rows] == [heading[1 + k][2:-1] for k in chances.argmax(axis=1)]


def test_predictions_do_not_depend_on_the_batch_size(run, plants, model, tmp_path):
    whole = run("predict", model, plants / "more.csv", "--proba").out
    out = tmp_path / "o.csv"
    predict(PredictSettings(model, plants / "more.csv", proba=True, out=out), Console(quiet=True), batch_rows=7)
    assert out.read_text() == whole


def test_further_columns_are_ignored_and_missing_columns_raise(run, plants, model, tmp_path):
    frame = pd.read_csv(plants / "more.csv")
    frame.assign(extra=1)[["soil", "extra", "leaves", "sheltered", "height"]].to_csv(tmp_path / "a.csv", index=False)
    assert run("predict", model, tmp_path / "a.csv").out == run("predict", model, plants / "more.csv").out
    frame.drop(columns=["soil", "height"]).to_csv(tmp_path / "b.csv", index=False)
    done = run("predict", model, tmp_path / "b.csv")
    assert done.code == 3
    assert "lacks the columns 'height', 'soil'" in done.err


def test_unseen_categories_are_counted_in_a_message(run, plants, model, tmp_path):
    frame = pd.read_csv(plants / "more.csv")
    frame.loc[:4, "soil"] = "moon dust"
    frame.to_csv(tmp_path / "moon.csv", index=False)
    done = run("predict", model, tmp_path / "moon.csv", "--out", tmp_path / "o.csv", "--json")
    assert done.code == 0
    assert done.json["unseen"] == {"soil": 5}
    assert "5 values of soil did not occur" in done.err


def test_text_in_a_number_column_raises_with_its_row(run, plants, model, tmp_path):
    frame = pd.read_csv(plants / "more.csv").astype({"height": object})
    frame.loc[7, "height"] = "tall"
    frame.to_csv(tmp_path / "tall.csv", index=False)
    done = run("predict", model, tmp_path / "tall.csv", "--out", tmp_path / "o.csv")
    assert done.code == 3
    assert "row 8, column 'height': 'tall' is not a number" in done.err
    assert not list(tmp_path.glob("o.csv*"))


def test_evaluate(run, plants, model):
    done = run("evaluate", model, plants / "more.csv", "--json")
    assert done.json["rows"] == 60
    assert done.json["scores"][0]["value"] > 0.85
    assert "95 % interval" in run("evaluate", model, plants / "more.csv").out
    wrong = run("evaluate", model, plants / "more.csv", "--target", "nothing")
    assert wrong.code == 3


def test_rows_without_a_target_are_not_scored(run, plants, model, tmp_path):
    frame = pd.read_csv(plants / "more.csv")
    frame.loc[:9, "kind"] = None
    frame.to_csv(tmp_path / "gaps.csv", index=False)
    done = run("evaluate", model, tmp_path / "gaps.csv", "--json")
    assert done.json["rows"] == 50
    assert "10 rows without a target" in done.err
    frame.assign(kind=None).to_csv(tmp_path / "none.csv", index=False)
    refused = run("evaluate", model, tmp_path / "none.csv")
    assert refused.code == 3
    assert "no target in any row" in refused.err


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_files_that_are_not_models_raise(run, plants, tmp_path, command):
    (tmp_path / "text.skops").write_text("hello")
    gramless.save(gramless.LSSVC().fit([[0.0], [1.0]], [0, 1]), tmp_path / "bare.skops")
    for name, words in [("text.skops", "not a"), ("bare.skops", "LSSVC"), ("none.skops", "there is no file")]:
        done = run(command, tmp_path / name, plants / "more.csv")
        assert done.code == 3
        assert words in done.err


def test_invalid_input_raises_before_the_output_is_opened(run, plants, model, tmp_path):
    done = run("predict", model, tmp_path / "none.csv")
    assert (done.code, done.out) == (3, "")
    done = run("predict", model, plants / "more.csv", "--out", tmp_path / "no" / "p.csv")
    assert done.code == 3
    assert "there is no folder" in done.err
    done = run("predict", model, plants / "more.csv", "--out", tmp_path)
    assert done.code == 3
    assert "is a folder" in done.err


def test_json_without_an_output_file_raises(run, plants, model):
    done = run("predict", model, plants / "more.csv", "--json")
    assert done.code == 3
    assert "--out" in done.err


def test_regression_has_no_probabilities(run, plants, tmp_path):
    run("train", plants / "weights.tsv", "--target", "weight", "--out", tmp_path / "m.skops")
    done = run("predict", tmp_path / "m.skops", plants / "weights.tsv", "--proba")
    assert done.code == 3
    assert "no probabilities" in done.err
    numbers = [float(row[0]) for row in rows_of(run("predict", tmp_path / "m.skops", plants / "weights.tsv").out)[1:]]
    assert len(numbers) == 240


def test_rows_unlike_the_training_rows_are_reported_one_by_one(run, plants, model, tmp_path):
    frame = pd.read_csv(plants / "more.csv")
    frame["leaves"] = frame["leaves"].astype(float)
    frame.loc[0, "leaves"] = 4000
    frame.loc[1, "soil"] = "lava"
    frame.loc[2, ["leaves", "soil"]] = [-900, "lava"]
    frame.to_csv(tmp_path / "odd.csv", index=False)
    out = tmp_path / "o.csv"
    done = run("predict", model, tmp_path / "odd.csv", "--novelty", "--out", out, "--json")
    reasons = pd.read_csv(out, keep_default_na=False)["novelty"].tolist()
    assert reasons[0].startswith("leaves out of range")
    assert reasons[1].startswith("soil unseen category")
    assert "leaves out of range" in reasons[2]
    assert "soil unseen category" in reasons[2]
    assert sum(reason == "" for reason in reasons[3:]) > 40
    assert done.json["reasons"]["leaves out of range"] == sum("leaves out of range" in reason for reason in reasons)
    assert "Values outside of the training range: " in done.err
    assert "novelty" not in run("predict", model, tmp_path / "odd.csv").out.splitlines()[0]


def test_amounts_have_the_separators_of_the_training_file(run, tmp_path):
    rng = np.random.default_rng(0)
    values = rng.uniform(100, 5000, 80).round(2)
    texts = [f"{value:,.2f}".translate(str.maketrans(",.", ".,")) for value in values]
    pd.DataFrame({"price": texts, "y": values}).to_csv(tmp_path / "train.csv", sep=";", index=False)
    out = tmp_path / "model.skops"
    settings = ["--target", "y", "--out", out, "--time", "2", "--no-importance"]
    assert run("train", tmp_path / "train.csv", *settings, "--test", tmp_path / "train.csv").code == 0
    (tmp_path / "new.csv").write_text("price\n1.200\n4.000\n")
    predicted = [float(row[0]) for row in rows_of(run("predict", out, tmp_path / "new.csv").out)[1:]]
    np.testing.assert_allclose(predicted, [1200, 4000], rtol=0.05)
