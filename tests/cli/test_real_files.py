"""Files as found in practice: CSV dialects, missing values, codes, row numbers, pandas types, and unusable files."""

import decimal
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest
from rich.console import Console

from gramless.cli.app import main
from gramless.cli.options import PredictSettings
from gramless.cli.predict import predict
from gramless.cli.scores import score
from gramless.cli.table_files import batches, read_file

N = 80
RNG = np.random.default_rng(0)
KIND = RNG.integers(0, 2, N)
A = KIND * 3 + RNG.normal(size=N)


def lines(*rows):
    return "\n".join(rows) + "\n"


def train(run, path, *options, out="m"):
    target = [] if path.suffix in (".npz", ".svm") else ["--target", "y"]
    return run("train", path, *target, "--out", path.parent / out, "--tune", "none", "--json", *options)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        (lines("a;b;y", *(f"{a:.2f};{k % 3};x{k % 2}".replace(".", ",") for k, a in enumerate(A))), ["a", "b"]),
        (lines("a\tb\ty", *(f"{a:.2f}\t\tx{k % 2}".replace(".", ",") for k, a in enumerate(A))), ["a"]),
        (lines("a,b,y", *(f"{a:.2f},{'NA' if k % 7 == 0 else k % 5},x{k % 2}" for k, a in enumerate(A))), ["a", "b"]),
        (lines('"a", "b", "y"', *(f'{a:.2f}, {k % 5}, "x{k % 2}"' for k, a in enumerate(A))), ["a", "b"]),
        (lines('\ufeff"a;1";"b";"y"', *(f"{a:.2f};{k % 5};x{k % 2}" for k, a in enumerate(A))), ["a;1", "b"]),
    ],
    ids=["decimal commas", "tabs", "gaps of R", "blanks after commas", "byte order mark"],
)
def test_numbers_are_read_in_all_csv_dialects(tmp_path, text, numbers):
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    for size in (None, 9):
        pieces = list(batches(path, "y", size=size))
        X, y = pd.concat([piece.X for piece in pieces]), np.concatenate([piece.y for piece in pieces])
        assert list(X.columns[: len(numbers)]) == numbers
        assert np.allclose(X[numbers[0]], np.round(A, 2))
        assert all(pd.api.types.is_numeric_dtype(X[name]) for name in numbers)
        assert set(y) == {"x0", "x1"}


def test_strings_of_codes_stay_strings(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(lines("code,size,y", *(f"{'NA' if k % 2 else 'EU'},{'1,5' if k % 3 else 'big'},{k}" for k in range(20))))
    path.write_text(path.read_text().replace(",", ";").replace("1;5", "1,5"))
    X = read_file(path, "y").X
    assert set(X["code"]) == {"NA", "EU"}
    assert set(X["size"]) == {"1,5", "big"}


def test_codes_have_the_same_type_in_every_batch(run, tmp_path, capsys):
    code = [("01", "02", "2A", "")[k % 4] for k in range(N)]
    flag = [("TRUE", "FALSE", "maybe")[k % 3] for k in range(N)]
    data = tmp_path / "codes.csv"
    pairs = zip(code, flag, strict=True)
    data.write_text(lines("code,flag,y", *(f"{c},{f},{'yes' if c == '02' else 'no'}" for c, f in pairs)))
    assert train(run, data).code == 0
    whole = run("predict", tmp_path / "m", data, "--proba").out
    order = np.argsort([code[k] + flag[k] for k in range(N)], kind="stable")
    rows = data.read_text().splitlines()
    (tmp_path / "sorted.csv").write_text(lines(rows[0], *(rows[1 + k].replace("TRUE", "true") for k in order)))
    out = tmp_path / "o.csv"
    settings = PredictSettings(tmp_path / "m", tmp_path / "sorted.csv", proba=True, out=out)
    predict(settings, Console(stderr=True), batch_rows=5)
    assert out.read_text().splitlines()[1:] == [whole.splitlines()[1:][k] for k in order]
    assert "did not occur" not in capsys.readouterr().err


def test_labels_of_different_types_are_compared_by_value(run, tmp_path):
    whole = tmp_path / "whole.csv"
    gaps = tmp_path / "gaps.csv"
    whole.write_text(lines("a,y", *(f"{a:.2f},{k}" for a, k in zip(A, KIND, strict=True))))
    gaps.write_text(lines("a,y", "0.3,", *(f"{a:.2f},{k}" for a, k in zip(A, KIND, strict=True))))
    for learnt, name in [(whole, "w"), (gaps, "g")]:
        assert train(run, learnt, out=name).code == 0
        assert set(run("predict", tmp_path / name, whole).out.split()[1:]) == {"0", "1"}
        for asked in (whole, gaps):
            found = run("evaluate", tmp_path / name, asked, "--json").json
            assert found["rows"] == N
            assert found["scores"][0]["value"] > 0.85
            assert found["scores"][2]["value"] < 0.5


def test_log_loss_matches_labels_of_another_type(run, tmp_path):
    y = np.arange(240) % 12
    x = np.c_[np.cos(y / 2), np.sin(y / 2)] + RNG.normal(size=(240, 2)) * 0.02
    np.savez(tmp_path / "t.npz", X=x, y=y.astype(np.uint8))
    assert train(run, tmp_path / "t.npz", "--C", 100).code == 0
    pd.DataFrame({"x0": x[:, 0], "x1": x[:, 1], "y": y}).to_csv(tmp_path / "t.csv", index=False)
    same = run("evaluate", tmp_path / "m", tmp_path / "t.npz", "--json").json
    other = run("evaluate", tmp_path / "m", tmp_path / "t.csv", "--target", "y", "--json").json
    assert other["scores"] == same["scores"]
    assert (other["trained_on_this_file"], same["trained_on_this_file"]) == (False, True)
    assert same["scores"][2]["value"] < 0.5


def test_the_types_of_parquet(run, tmp_path):
    frame = pd.DataFrame(
        {
            "a": A,
            "whole": pd.array([None if k % 9 == 0 else k % 5 for k in range(N)], dtype="Int64"),
            "price": [decimal.Decimal(f"{a:.2f}") for a in A],
            "kind": pd.Categorical([["u", "v", None][k % 3] for k in range(N)]),
            "lists": [[1, 2]] * N,
            "y": pd.array([None if k == 4 else int(KIND[k]) for k in range(N)], dtype="Int64"),
        }
    )
    frame.to_parquet(tmp_path / "t.parquet")
    done = train(run, tmp_path / "t.parquet")
    assert done.code == 0
    assert done.json["task"] == "classification"
    assert done.json["columns"] == {"numbers": 3, "words": 1, "left_out": {"lists": "lists in cells"}}
    assert set(run("predict", tmp_path / "m", tmp_path / "t.parquet").out.split()[1:]) == {"0", "1"}
    frame.rename(columns={"y": "z", "price": "y"}).to_parquet(tmp_path / "p.parquet")
    assert train(run, tmp_path / "p.parquet").json["task"] == "regression"
    unnamed = pd.DataFrame({0: A, 1: KIND})
    unnamed.to_parquet(tmp_path / "n.parquet")
    assert read_file(tmp_path / "n.parquet", "1").X.columns.tolist() == ["0"]
    twice = pyarrow.Table.from_arrays([pyarrow.array(A), pyarrow.array(A), pyarrow.array(KIND)], names=["a", "a", "y"])
    pyarrow.parquet.write_table(twice, tmp_path / "d.parquet")
    refused = train(run, tmp_path / "d.parquet")
    assert (refused.code, "more than one column named 'a'" in refused.err) == (3, True)


def test_row_numbers_under_an_empty_heading_are_left_out(run, tmp_path):
    rows = [f"{k},{RNG.normal():.2f},{'ab'[k >= N // 2]}" for k in range(N)]
    (tmp_path / "t.csv").write_text(lines(",a,y", *rows))
    done = train(run, tmp_path / "t.csv")
    assert done.json["columns"]["left_out"] == {"Unnamed: 0": "row numbers"}
    assert done.json["scores"][0]["value"] < 0.9  # sorted data: the row number says it all


def test_sparse_columns_keep_their_numbers(run, tmp_path):
    rng = np.random.default_rng(1)
    y, rest = rng.integers(0, 2, N), rng.integers(1, 9, N)
    zero = [f"{2 * k - 1} 0:{rest[i]} 2:{k + 1}" for i, k in enumerate(y)]
    (tmp_path / "zero.svm").write_text(lines(*zero))
    assert train(run, tmp_path / "zero.svm", "--C", 100).code == 0
    (tmp_path / "some.svm").write_text(lines("1 2:2", "-1 2:1"))
    (tmp_path / "same.svm").write_text(lines("1 0:0 2:2", "-1 0:0 2:1"))
    for name in ("same.svm", "some.svm"):
        assert run("predict", tmp_path / "m", tmp_path / name).out.split()[1:] == ["1", "-1"]
    (tmp_path / "wide.svm").write_text("1 0:3 7:1\n")
    wide = run("predict", tmp_path / "m", tmp_path / "wide.svm")
    assert (wide.code, "8 columns, and the model was trained on 3" in wide.err) == (3, True)
    (tmp_path / "one.svm").write_text(lines(*(f"{2 * k - 1} 1:{rest[i]} 3:{k + 1}" for i, k in enumerate(y))))
    assert train(run, tmp_path / "one.svm", out="one").code == 0
    other = run("predict", tmp_path / "one", tmp_path / "zero.svm")
    assert (other.code, "numbers its columns from 0" in other.err) == (3, True)
    (tmp_path / "t.csv").write_text("a,y\n1,2\n")
    table = run("predict", tmp_path / "m", tmp_path / "t.csv")
    assert (table.code, "was trained on svmlight data" in table.err) == (3, True)


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_file_without_rows_raises(run, plants, model, tmp_path, command):
    heading = (plants / "more.csv").read_text().splitlines()[0]
    (tmp_path / "heading.csv").write_text(heading + "\n")
    done = run(command, model, tmp_path / "heading.csv")
    assert (done.code, done.out) == (3, "")
    assert "has no rows" in done.err


@pytest.mark.parametrize(
    ("name", "rows", "words"),
    [
        ("more.csv", [f"{a:.2f},x{k % 2}," for k, a in enumerate(A)], "more values than the header"),
        ("rows.csv", [f"{k},{a:.2f},x{k % 2}" for k, a in enumerate(A)], "more values than the header"),
        ("inf.csv", [f"{'inf' if k == 3 else a},x{k % 2}" for k, a in enumerate(A)], "row 4, column 'a'"),
        ("yinf.csv", [f"{a},{'inf' if k == 3 else a}" for k, a in enumerate(A)], "infinite in 1 rows"),
        ("odd.csv", [f"{a},{'tall' if k == 3 else k}" for k, a in enumerate([*A, *A])], "'tall' is not a number"),
        ("each.csv", [f"{a},name{k}" for k, a in enumerate(A)], "too many to be classes"),
    ],
    ids=["more", "rows", "inf", "yinf", "odd", "each"],
)
def test_unusable_tables_raise(run, tmp_path, name, rows, words):
    (tmp_path / name).write_text(lines("a,y", *rows))
    done = train(run, tmp_path / name)
    assert (done.code, words in done.err) == (3, True), done.err


def test_unusable_files_raise(run, tmp_path):
    for name, content, words in [
        ("latin.csv", lines("größe,y", "1,ä").encode("latin-1"), "not UTF-8 text. Save it again as UTF-8"),
        ("only.csv", lines("y", *(f"x{k % 2}" for k in range(20))).encode(), "no input column besides the target"),
        ("broken.csv.bz2", b"BZh9 no such thing", "cannot be read as a table"),
    ]:
        (tmp_path / name).write_bytes(content)
        done = train(run, tmp_path / name)
        assert (done.code, words in done.err) == (3, True), done.err


def test_arrays_that_are_not_tables_raise(run, tmp_path):
    for x, y, words in [
        (np.float64(3), KIND, "X is a single value"),
        (np.zeros((0, 3)), np.zeros(0), "0 usable rows"),
        (np.full((N, 1), np.inf), KIND, "no column has information"),
        (np.where(np.arange(N)[:, None] == 3, np.inf, A[:, None]), KIND, "row 4, column 'x0': inf is not finite"),
    ]:
        np.savez(tmp_path / "t.npz", X=x, y=y)
        done = train(run, tmp_path / "t.npz")
        assert (done.code, words in done.err) == (3, True), done.err
    np.savez(tmp_path / "t.npz", X_train=A[:, None], y_train=KIND[:, None])
    assert train(run, tmp_path / "t.npz").code == 0


def test_evaluate_reads_the_test_arrays_of_an_archive(run, tmp_path):
    file, model = tmp_path / "t.npz", tmp_path / "m"
    np.savez(file, x_train=A[:, None], y_train=KIND, x_test=A[:20, None], y_test=1 - KIND[:20])
    assert train(run, file).code == 0
    scored = run("evaluate", model, file, "--json").json
    assert scored["rows"] == 20
    assert scored["scores"][0]["value"] < 0.2  # the test half has the opposite labels
    assert len(run("predict", model, file).out.split()) == 1 + 20
    assert run("evaluate", model, file, "--target", "y_train", "--json").json["scores"][0]["value"] > 0.8


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--test-size", "0.99"], "leaves too few training rows"),
        (["--test-size", "0.999"], "leaves too few training rows"),
        (["--target", "a", "--test-size", "0.99"], "leaves too few training rows"),
        (["--target", "a", "--task", "classification"], "fractions, which are quantities"),
        (["--kernel", "linear", "--gamma", "3"], "the linear kernel has no gamma"),
        (["--out", "pipe"], "a pipe or a device"),
    ],
)
def test_contradicting_options_raise(run, tmp_path, options, words, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    (tmp_path / "t.csv").write_text(lines("a,y", *(f"{a:.2f},{k}" for a, k in zip(A, KIND, strict=True))))
    done = train(run, tmp_path / "t.csv", *options)
    assert (done.code, words in done.err) == (3, True), done.err


def test_target_of_another_type_raises_in_evaluate(run, tmp_path):
    (tmp_path / "t.csv").write_text(lines("a,b,y", *(f"{a:.2f},word{k % 3},{2 * a}" for k, a in enumerate(A))))
    assert train(run, tmp_path / "t.csv").code == 0
    for target, words in [
        ("b", "is an input column of"),
        ("c", "predicts a quantity, and the target is not a number everywhere"),
    ]:
        frame = pd.read_csv(tmp_path / "t.csv").assign(c="no number")
        frame.to_csv(tmp_path / "e.csv", index=False)
        done = run("evaluate", tmp_path / "m", tmp_path / "e.csv", "--target", target)
        assert (done.code, words in done.err) == (3, True), done.err


def test_class_of_one_row_is_in_the_training_rows(run, tmp_path):
    (tmp_path / "t.csv").write_text(lines("a,y", *(f"{a:.2f},{'z' if k == 3 else 'x'}" for k, a in enumerate(A))))
    for seed in range(8):
        assert train(run, tmp_path / "t.csv", "--seed", seed).code == 0


def test_undefined_scores_are_null():
    same = {one.metric: one for one in score(np.full(4, 0.1), np.arange(4.0), task="regression", guess=0.0)}
    assert same["R²"].as_json() == {"metric": "R²", "value": None, "low": None, "high": None, "baseline": None}
    few = score(np.array([0.1, 1.3, 2.7]), np.array([0.2, 1.1, 2.0]), task="regression", guess=1.0)[0]
    assert few.low > -100  # not a quotient of rounding errors
    wrong = score(np.array(["a"] * 120), np.array(["b"] * 120), task="classification", guess="b")[0]
    assert wrong.low == 0


def test_one_row_is_scored_without_intervals(run, plants, model, tmp_path):
    regressor = tmp_path / "regressor.skops"
    run("train", plants / "weights.tsv", "--target", "weight", "--out", regressor, "--tune", "none", "--no-importance")
    for saved, name in ((model, "plants.csv"), (regressor, "weights.tsv")):
        one_row = tmp_path / name
        one_row.write_text("\n".join((plants / name).read_text().splitlines()[:2]))
        done = run("evaluate", saved, one_row, "--json")
        assert done.code == 0
        assert done.json["rows"] == 1
        last = done.json["scores"][-1]
        assert last["value"] >= 0
        assert last["low"] is last["high"] is None


def test_brackets_in_names_are_not_markup(run, tmp_path, monkeypatch, capsys):
    path = tmp_path / "t.csv"
    path.write_text(
        lines("weight [kg],end [/b],y [z]", *(f"{a:.2f},{k % 5},{'' if k == 1 else k % 2}" for k, a in enumerate(A)))
    )
    monkeypatch.setattr(sys, "argv", ["gramless", "train", str(path), "--target", "y"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 3
    assert "it has 'weight [kg]', 'end [/b]', 'y [z]'" in capsys.readouterr().err.replace("\n", " ")
    done = run("train", path, "--target", "y [z]", "--out", tmp_path / "m", "--tune", "none")
    assert "rows without 'y [z]' are left out" in done.out


def test_predictions_can_be_written_to_a_stream(run, plants, model, tmp_path):
    printed = run("predict", model, plants / "more.csv").out
    assert run("predict", model, plants / "more.csv", "--out", "-").out == printed
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE, text=True)
    assert run("predict", model, plants / "more.csv", "--out", tmp_path / "pipe").code == 0
    assert reader.communicate(timeout=30)[0] == printed
    (tmp_path / "link.csv").symlink_to(tmp_path / "file.csv")
    (tmp_path / "file.csv").write_text("old")
    run("predict", model, plants / "more.csv", "--out", tmp_path / "link.csv")
    assert (tmp_path / "file.csv").read_text() == printed
    assert (tmp_path / "link.csv").is_symlink()
