"""File formats of inputs and outputs, standard input, repeated columns, and the reported or rejected choices."""

import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import gramless

QUICK = ["--tune", "none", "--C", 10, "--no-importance"]


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    a = rng.normal(size=80).round(3)
    return pd.DataFrame({"a": a, "kind": rng.choice(["x", "y"], 80), "target": np.where(a > 0, "yes", "no")})


def write(frame, path):
    writers = {".xlsx": frame.to_excel, ".csv": frame.to_csv}
    if path.suffix in writers:
        writers[path.suffix](path, index=False)
    elif path.suffix in (".feather", ".arrow"):
        frame.to_feather(path)
    else:
        frame.to_json(path, orient="records", lines=True)
    return path


@pytest.mark.parametrize("suffix", [".xlsx", ".feather", ".arrow", ".jsonl", ".ndjson"])
def test_formats_give_the_model_of_the_csv_file(run, frame, tmp_path, suffix):
    for name in ("t.csv", f"t{suffix}"):
        done = run("train", write(frame, tmp_path / name), "--target", "target", *QUICK, "--out", tmp_path / "m.skops")
        assert done.code == 0, done.err
        assert gramless.load(tmp_path / "m.skops").column_types == {"a": "number", "kind": "category"}
        assert run("evaluate", tmp_path / "m.skops", tmp_path / name, "--json").json["rows"] == 80
    expected = run("predict", tmp_path / "m.skops", tmp_path / "t.csv").out
    assert run("predict", tmp_path / "m.skops", tmp_path / f"t{suffix}").out == expected


@pytest.mark.parametrize("suffix", [".csv", ".xlsx", ".feather", ".jsonl"])
def test_train_reads_standard_input(run, frame, tmp_path, suffix):
    content = write(frame, tmp_path / f"t{suffix}").read_bytes()
    done = run("train", "-", "--target", "target", *QUICK, "--out", tmp_path / "m.skops", "--json", stdin=content)
    assert done.code == 0, done.err
    assert done.json["rows"]["saved"] == 80


def test_predictions_as_excel_and_json_lines(run, frame, tmp_path):
    data = write(frame, tmp_path / "t.csv")
    run("train", data, "--target", "target", *QUICK, "--out", tmp_path / "m.skops")
    expected = [line.split(",")[0] for line in run("predict", tmp_path / "m.skops", data).out.split()[1:]]
    for name, read in [("o.xlsx", pd.read_excel), ("o.jsonl", lambda path: pd.read_json(path, lines=True))]:
        done = run("predict", tmp_path / "m.skops", data, "--proba", "--keep", "--out", tmp_path / name)
        assert f"Predictions of 80 rows  {tmp_path / name}" in done.err.replace("\n", "")
        found = read(tmp_path / name)
        assert list(found.columns) == ["a", "kind", "target", "prediction", "p(no)", "p(yes)"]
        assert found["prediction"].tolist() == expected
        assert np.allclose(found["p(no)"] + found["p(yes)"], 1)


@pytest.mark.parametrize("name", ["o.pkl", "o.xls", "o.json", "o.npz"])
def test_predictions_in_unknown_formats_raise(run, frame, tmp_path, name):
    data = write(frame, tmp_path / "t.csv")
    run("train", data, "--target", "target", *QUICK, "--out", tmp_path / "m.skops")
    done = run("predict", tmp_path / "m.skops", data, "--out", tmp_path / name)
    assert (done.code, "known extensions are .csv" in done.err) == (3, True)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["m.pkl", "m.joblib", "m.onnx"])
def test_model_names_with_extensions_of_other_formats_raise(run, frame, tmp_path, name):
    done = run("train", write(frame, tmp_path / "t.csv"), "--target", "target", "--out", tmp_path / name)
    assert (done.code, "name it m.skops" in done.err) == (3, True)


def test_repeated_columns_are_renamed_with_a_warning(run, tmp_path):
    rows = [f"{k % 7},{k},{'yes' if k % 7 > 3 else 'no'}" for k in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["a,a,y", *rows]) + "\n")
    with pytest.warns(UserWarning, match=r"more than one column named 'a'; the second is read as 'a.1'"):
        done = run("train", tmp_path / "t.csv", "--target", "y", *QUICK, "--out", tmp_path / "m", "--json")
    assert done.code == 0, done.err
    assert "a" in gramless.load(tmp_path / "m").column_types


def test_nested_columns_are_left_out_and_nested_targets_raise(run, tmp_path):
    records = [{"a": [k], "place": {"x": k}, "b": k % 5, "y": k % 2, "z": [k % 2]} for k in range(40)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, records)))
    options = ["--out", tmp_path / "m", "--tune", "none", "--no-importance", "--json"]
    done = run("train", tmp_path / "t.jsonl", "--target", "y", *options)
    assert done.code == 0, done.err
    assert done.json["columns"]["left_out"] == dict.fromkeys(["a", "place", "z"], "lists in cells")
    assert run("train", tmp_path / "t.jsonl", "--target", "y", "--drop", "a,place,z", *options).code == 0
    assert len(run("predict", tmp_path / "m", tmp_path / "t.jsonl").out.split()) == 1 + 40
    done = run("train", tmp_path / "t.jsonl", "--target", "z", *options)
    assert (done.code, "column 'z' has nested values" in done.err) == (3, True)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (np.arange(200) % 11, "the 11 values of the target are classes; --task regression predicts a quantity"),
        (np.arange(200) / 7, "the target, with 200 values, is a quantity"),
        (np.arange(200) % 40, "with 40 values, is a quantity; --task classification predicts classes"),
    ],
)
def test_the_guessed_task_is_reported(run, tmp_path, target, words):
    rng = np.random.default_rng(0)
    pd.DataFrame({"a": rng.normal(size=200), "y": target}).to_csv(tmp_path / "t.csv", index=False)
    done = run("train", tmp_path / "t.csv", "--target", "y", *QUICK, "--out", tmp_path / "m")
    assert words in done.out.replace("\n", " ")


def test_a_wrong_estimator_is_rejected_before_the_file_is_read(run, tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe no table")
    done = run("train", tmp_path / "t.csv", "--target", "y", "--estimator", "svn")
    assert (done.code, "unknown estimator 'svn'" in done.err) == (3, True)


def test_a_broken_picture_is_left_out_with_a_warning(run, tmp_path):
    rng = np.random.default_rng(0)
    for name, level in [("dark", 60), ("light", 200)]:
        (tmp_path / "p" / name).mkdir(parents=True)
        for k in range(12):
            pixels = (level + rng.integers(0, 40, (10, 10))).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "p" / name / f"{k}.png")
    whole = (tmp_path / "p" / "dark" / "3.png").read_bytes()
    (tmp_path / "p" / "dark" / "3.png").write_bytes(whole[:60])
    (tmp_path / "p" / "light" / "5.png").write_bytes(b"no picture")
    with pytest.warns(UserWarning, match="it is left out"):
        done = run("train", tmp_path / "p", "--out", tmp_path / "m.skops", "--json")
    assert done.code == 0, done.err
    assert sum(done.json["rows"].values()) == 22
    with pytest.warns(UserWarning, match="it is left out"):
        assert len(run("predict", tmp_path / "m.skops", tmp_path / "p").out.splitlines()) == 1 + 22
    with pytest.warns(UserWarning, match="it is left out"):
        assert run("evaluate", tmp_path / "m.skops", tmp_path / "p", "--json").json["rows"] == 22
