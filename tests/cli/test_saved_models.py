"""Saved models in Python, in `info`, on streams and Parquet files; and messages of `train` on its columns."""

import io
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from rich.console import Console
from sklearn.metrics import roc_auc_score

import gramless
from gramless.cli.display import Heartbeat
from gramless.cli.scores import roc_auc, verdict
from gramless.cli.scores import score as all_scores
from gramless.cli.table_files import checksum


@pytest.fixture(scope="module")
def yes_no(tmp_path_factory):
    """Return a file with two classes, one of them rare, an identifier and a column of noise."""
    folder = tmp_path_factory.mktemp("yes_no")
    rng = np.random.default_rng(0)
    n = 300
    x = rng.normal(size=n)
    frame = pd.DataFrame(
        {
            "id": np.arange(1, n + 1),
            "x, m": x,
            "z": rng.normal(size=n),
            "answer": np.where(x + 0.5 * rng.normal(size=n) > 1, "yes", "no"),
        }
    )
    frame.to_csv(folder / "data.csv", index=False)
    return folder


QUICK = ("--estimator", "lssvm", "--tune", "none")


@pytest.fixture(scope="module")
def small(yes_no, tmp_path_factory):
    from typer.testing import CliRunner

    from gramless.cli.app import app

    path = yes_no / "model.skops"
    arguments = ["train", str(yes_no / "data.csv"), "--target", "answer", "--out", str(path), *QUICK, "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return path, done


def test_a_saved_model_predicts_in_python(plants, model):
    loaded = gramless.load(model)
    frame = pd.read_csv(plants / "more.csv")
    labels = loaded.predict(frame)
    assert np.mean(labels == frame["kind"]) > 0.85
    chances = loaded.predict_proba(frame)
    assert loaded.classes_[chances.argmax(axis=1)].tolist() == labels.tolist()
    np.testing.assert_array_equal(loaded.predict(pl.from_pandas(frame)), labels)
    np.testing.assert_array_equal(loaded.predict(frame.to_dict(orient="list")), labels)
    np.testing.assert_array_equal(loaded.predict(frame.set_index("label")), labels)
    assert repr(loaded).startswith(
        "<TableModel: TableClassifier for classification of 'kind', 4 columns, 192 rows, accuracy "
    )
    with pytest.raises(ValueError, match="lacks the columns 'soil'"):
        loaded.predict(frame.drop(columns="soil"))
    with pytest.raises(TypeError, match="takes a DataFrame with the columns 'height'"):
        loaded.predict(np.zeros((2, 4)))


def test_info_prints_the_card(run, model):
    done = run("info", model)
    assert done.code == 0
    for told in ("TableClassifier", "height", "sand", "accuracy", "Left out", "planet", "scikit-learn", checksum(model)):
        assert told in done.out.replace("\n", " "), told
    found = run("info", model, "--json").json
    assert found["sha256"] == checksum(model)
    assert found["card_matches"] is True
    assert {one["name"]: one["kind"] for one in found["inputs"]} == {
        "height": "number",
        "leaves": "number",
        "soil": "category",
        "sheltered": "category",
    }
    card = model.with_name("model.card.md").read_text()
    assert card.startswith("# kind")
    assert "| soil | category | " in card


def test_info_of_an_estimator_and_of_a_card_of_another_file(run, tmp_path):
    gramless.save(gramless.LSSVC(C=3.0).fit([[0.0], [1.0]], ["a", "b"]), tmp_path / "m.skops")
    done = run("info", tmp_path / "m.skops")
    assert "LSSVC(C=3.0)" in done.out
    (tmp_path / "m.card.md").write_text(f"SHA-256 `{'0' * 64}`")
    assert run("info", tmp_path / "m.skops", "--json").json["card_matches"] is False
    assert run("info", tmp_path / "none.skops").code == 3


def test_predictions_as_parquet_beside_their_inputs(run, plants, model, tmp_path):
    out = tmp_path / "x.parquet"
    done = run("predict", model, plants / "more.csv", "--proba", "--keep", "--out", out)
    assert done.code == 0
    found, given = pd.read_parquet(out), pd.read_csv(plants / "more.csv")
    assert found.columns.tolist() == [*given.columns, "prediction", "p(ash)", "p(birch)", "p(cedar)"]
    assert found["soil"].isna().equals(given["soil"].isna())
    np.testing.assert_array_equal(found["prediction"], gramless.load(model).predict(given))
    as_text = run("predict", model, plants / "more.csv", "--keep").out
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(as_text))[given.columns], given)
    given.assign(prediction=1).to_csv(tmp_path / "own.csv", index=False)
    refused = run("predict", model, tmp_path / "own.csv", "--keep")
    assert refused.code == 3
    assert "already has a column 'prediction'" in refused.err


def test_predict_reads_standard_input_without_torch(plants, model):
    """A prediction of two rows imports neither torch nor dask."""
    code = (
        "import sys; sys.argv = ['gramless', 'predict', sys.argv[1], '-', '--out', '-']\n"
        "import atexit; atexit.register(lambda: print('torch' in sys.modules, 'dask' in sys.modules))\n"
        "from gramless.cli.app import main; main()"
    )
    text = "\n".join((plants / "more.csv").read_text().splitlines()[:3]) + "\n"
    done = subprocess.run([sys.executable, "-c", code, str(model)], input=text, capture_output=True, text=True)
    heading, *lines = done.stdout.splitlines()
    assert (heading, len(lines), lines[-1]) == ("prediction", 3, "False False"), done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["predict", "--help"], ["--version"]])
def test_help_imports_no_numerical_package(arguments):
    code = (
        f"import sys; sys.argv = ['gramless', *{arguments}]\n"
        "import atexit; atexit.register(lambda: print({'numpy', 'sklearn', 'skops'} & set(sys.modules)))\n"
        "from gramless.cli.app import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "set()"


def test_import_skops_hides_torch_only_during_the_import():
    code = (
        "import gc, sys\n"
        "from gramless.cli.app import _import_skops; _import_skops()\n"
        "print(gc.isenabled(), 'skops.io' in sys.modules, 'torch' in sys.modules, None in sys.modules.values())\n"
        "import sklearn.externals.array_api_compat.torch"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["True", "True", "False", "False"], done.stderr
    assert done.returncode == 0, done.stderr


def test_evaluate_warns_of_the_training_file(run, yes_no, small, tmp_path):
    done = run("evaluate", small[0], yes_no / "data.csv", "--json")
    assert "the file that the model was trained on" in done.err.replace("\n", " ")
    assert done.json["trained_on_this_file"] is True
    other = tmp_path / "other.csv"
    pd.read_csv(yes_no / "data.csv").iloc[:50].to_csv(other, index=False)
    assert run("evaluate", small[0], other, "--json").json["trained_on_this_file"] is False


def test_train_reports_the_type_of_each_column(small):
    done = small[1]
    said = done.stderr.replace("\n", " ")
    assert "numbers: x, m, z" in said
    assert "left out id: row numbers" in said
    assert json.loads(done.stdout)["columns"]["left_out"] == {"id": "row numbers"}


def test_area_under_the_curve(small):
    about = json.loads(small[1].stdout)
    area = next(one for one in about["scores"] if one["metric"] == "ROC AUC")
    assert 0.5 < area["low"] < area["value"] < area["high"] <= 1
    rng = np.random.default_rng(1)
    y = rng.random(200) < 0.3
    chances = np.round(rng.random(200) + 0.4 * y, 1)  # with ties
    found = roc_auc(y, True, chances)
    assert found.value == pytest.approx(roc_auc_score(y, chances))
    # The interval against resampling.
    drawn = [roc_auc_score(y[k], chances[k]) for k in rng.integers(0, 200, (400, 200))]
    assert (found.high - found.low) / 3.92 == pytest.approx(np.std(drawn), rel=0.2)
    assert roc_auc(np.ones(3), 1, np.ones(3)) is None


def test_columns_are_selected_and_dropped(run, yes_no, tmp_path):
    def used(*options):
        done = run(
            "train", yes_no / "data.csv", "--target", "answer", "--out", tmp_path / "m.skops", *QUICK, "--json", *options
        )
        return [one["name"] for one in done.json["inputs"]] if done.code == 0 else done.err.replace("\n", " ")

    assert used("--columns", "z") == ["z"]
    assert used("--columns", "x, m", "--columns", "z") == ["x, m", "z"]
    assert used("--drop", "z,id") == ["x, m"]
    assert "has no column 'w'; it has 'id', 'x, m', 'z'" in used("--drop", "w")
    assert "which another option needs" in used("--drop", "z", "--order", "z")
    assert "--drop removes 'answer', which another option needs" in used("--drop", "answer")
    assert used("--columns", "z,answer") == ["z"]


@pytest.mark.parametrize("estimator", [QUICK, ("--time", "0.3s")], ids=["lssvm", "table"])
def test_class_weights_find_more_of_the_rare_class(run, yes_no, tmp_path, estimator):
    def rare(*options):
        path = tmp_path / "m.skops"
        done = run("train", yes_no / "data.csv", "--target", "answer", "--out", path, *estimator, *options)
        assert done.code == 0, done.err
        return np.mean(gramless.load(path).predict(pd.read_csv(yes_no / "data.csv")) == "yes")

    plain = rare()
    assert rare("--class-weight", "balanced") > plain
    assert rare("--class-weight", "yes=20,no=1") > plain


@pytest.mark.parametrize("given", ["yes", "yes=-1", "maybe=2", "yes=x"])
def test_invalid_class_weights_raise(run, yes_no, tmp_path, given):
    arguments = ("--target", "answer", "--out", tmp_path / "m.skops", *QUICK, "--class-weight", given)
    done = run("train", yes_no / "data.csv", *arguments)
    assert done.code == 3
    assert "--class-weight" in done.err


def test_model_no_better_than_a_constant_is_reported(run, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=200), "y": rng.choice(["a", "b"], 200), "v": rng.normal(size=200)})
    frame.to_csv(tmp_path / "noise.csv", index=False)
    for target in ("y", "v"):
        done = run("train", tmp_path / "noise.csv", "--target", target, "--out", tmp_path / "m.skops", *QUICK)
        assert "this model is not significantly better than always predicting" in done.out.replace("\n", " ")


def test_verdict_compares_the_interval_with_the_constant():
    y = np.arange(100.0)
    assert verdict(all_scores(y, y + 0.1, task="regression", guess=50.0), "regression") is None
    assert "a constant" in verdict(all_scores(y, np.full(100, 50.0), task="regression", guess=50.0), "regression")
    labels = np.repeat(["a", "b"], 50)
    assert verdict(all_scores(labels, labels, task="classification", guess="a"), "classification") is None
    assert "most common" in verdict(all_scores(labels, labels[::-1], task="classification", guess="a"), "classification")


def test_progress_prints_a_line_every_ten_seconds_without_a_terminal(monkeypatch):
    clock = iter([0.0, 1.0, 11.0, 12.0, 22.0])
    file = io.StringIO()
    monkeypatch.setattr("gramless.cli.display.monotonic", lambda: next(clock))
    heartbeat = Heartbeat(Console(file=file))
    for number in range(4):
        heartbeat(f"at {number} of 4")
    assert file.getvalue().split("\n") == ["at 1 of 4", "at 3 of 4", ""]
    terminal = io.StringIO()
    clock = iter([0.0, 100.0])
    Heartbeat(Console(file=terminal, force_terminal=True))("quiet")
    assert terminal.getvalue() == ""


def test_search_reports_progress():
    said = []
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    gramless.TableRegressor(time_budget=0.2, callback=lambda _, record: said.append(record["message"]), random_state=0).fit(
        X, X[:, 0] + 0.1 * rng.normal(size=60)
    )
    counts = [line for line in said if " of at most " in line]
    assert len(counts) > 5
    assert "best so far" in counts[-1]


def test_rows_far_from_training_are_reported(run, plants, model, tmp_path):
    frame = pd.read_csv(plants / "more.csv")
    frame.loc[:9, "height"] = 500.0
    frame.to_csv(tmp_path / "far.csv", index=False)
    done = run("predict", model, tmp_path / "far.csv", "--out", tmp_path / "o.csv", "--json")
    assert done.json["novel"] >= 10
    assert "rows are far from all training rows" in done.err.replace("\n", " ")
    loaded = gramless.load(model)
    flags = loaded.novel(loaded.ready(frame, "rows"))
    assert flags[:10].all()
    assert flags[10:].mean() < 0.1
