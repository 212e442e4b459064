"""Regression tests: inputs that once caused a traceback, a lost file or a missing message."""

import os
import subprocess
import sys

import numpy as np
import pytest

from gramless.cli.reproduce import RESULTS_FILE
from gramless.papers.experiments.results import Results, ResultsError

N = 60
RNG = np.random.default_rng(0)
A = RNG.normal(size=N)
QUICK = ["--tune", "none", "--C", 1]


def table(path, heading, *columns):
    rows = ["".join(heading), *(",".join(map(str, row)) for row in zip(*columns, strict=True))]
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def yes_no(tmp_path):
    return table(tmp_path / "d.csv", "a,y", A, np.where(A > 0, "yes", "no"))


def test_output_that_is_also_an_input_raises_before_reading(run, yes_no, tmp_path):
    before = yes_no.read_bytes()
    model = tmp_path / "m.skops"
    assert run("train", yes_no, "--target", "y", *QUICK, "--out", model).code == 0
    saved = model.read_bytes()
    (tmp_path / "link.csv").symlink_to(yes_no)
    for command in (
        ["train", yes_no, "--target", "y", "--out", yes_no],
        ["train", yes_no, "--target", "y", "--out", tmp_path / "." / "link.csv"],
        ["predict", model, yes_no, "--out", yes_no],
        ["predict", model, yes_no, "--out", model],
    ):
        done = run(*command)
        assert (done.code, "is also an input" in done.err) == (3, True), done.err
    assert (yes_no.read_bytes(), model.read_bytes()) == (before, saved)


def test_target_with_two_columns_of_its_name_raises(run, tmp_path):
    path = table(tmp_path / "d.csv", "a,y,y", A, (A > 0).astype(int), (A > 0).astype(int))
    done = run("train", path, "--target", "y", *QUICK, "--out", tmp_path / "m")
    assert (done.code, "more than one column named 'y'" in done.err) == (3, True)


def test_evaluate_names_labels_that_are_not_classes_of_the_model(run, yes_no, tmp_path):
    assert run("train", yes_no, "--target", "y", *QUICK, "--out", tmp_path / "m").code == 0
    other = table(tmp_path / "o.csv", "a,y", A, (A > 0).astype(int))
    done = run("evaluate", tmp_path / "m", other)
    assert (done.code, "the model has 'no', 'yes'; the file has '0', '1'" in done.err) == (3, True), done.err


@pytest.mark.parametrize("command", ["train", "predict"])
def test_numbers_too_large_to_square_raise_with_their_row(run, yes_no, tmp_path, command):
    large = table(
        tmp_path / "l.csv", "a,y", [f"{1e308 if k == 7 else a}" for k, a in enumerate(A)], np.where(A > 0, "u", "v")
    )
    if command == "train":
        done = run("train", large, "--target", "y", *QUICK, "--out", tmp_path / "m")
    else:
        assert run("train", yes_no, "--target", "y", *QUICK, "--out", tmp_path / "m").code == 0
        done = run("predict", tmp_path / "m", large)
    assert (done.code, "row 8, column 'a': 1e+308 is too large" in done.err) == (3, True), done.err


def test_target_too_large_to_square_raises(run, tmp_path):
    path = table(tmp_path / "d.csv", "a,y", A, A * 1e307)
    done = run("train", path, "--target", "y", *QUICK, "--out", tmp_path / "m")
    assert (done.code, "'y' has numbers that are too large" in done.err) == (3, True), done.err


def test_structured_arrays_and_unusable_svmlight_raise(run, tmp_path):
    np.savez(tmp_path / "s.npz", X=np.zeros(N, dtype=[("a", "f8"), ("b", "i4")]), y=np.arange(N) % 2)
    (tmp_path / "inf.svm").write_text("".join(f"{int(a > 0)} 1:{a} 2:{'inf' if k == 3 else 1}\n" for k, a in enumerate(A)))
    (tmp_path / "far.svm").write_text("".join(f"{int(a > 0)} 1:{a} 2000000000:1\n" for a in A))
    for name, words in [
        ("s.npz", "and a model takes numbers and strings"),
        ("inf.svm", "row 4: a value is not finite"),
        ("far.svm", "numbers columns up to 2,000,000,000"),
    ]:
        done = run("train", tmp_path / name, *QUICK, "--out", tmp_path / "m")
        assert (done.code, words in done.err) == (3, True), done.err


def test_long_file_names_are_reported(run, yes_no, tmp_path):
    assert run("train", yes_no, "--target", "y", *QUICK, "--out", tmp_path / ("x" * 250)).code == 0
    for command in (
        ["train", yes_no, "--target", "y", "--out", tmp_path / ("x" * 300)],
        ["train", tmp_path / ("x" * 300 + ".csv"), "--target", "y"],
        ["predict", tmp_path / ("x" * 300), yes_no],
    ):
        done = run(*command)
        assert (done.code, "File name too long" in done.err) == (3, True), done.err


def test_memory_budget_accepts_a_share(run, yes_no, tmp_path):
    done = run("train", yes_no, "--target", "y", *QUICK, "--memory-budget", "0.5", "--out", tmp_path / "m")
    assert done.code == 0, done.err


@pytest.mark.parametrize("line", ['{"key": "a"}', '{"key": "a", "status": 3}', "[]", "3"])
def test_record_without_a_status_raises(run, tmp_path, line):
    (tmp_path / RESULTS_FILE).write_text(line + "\n")
    with pytest.raises(ResultsError, match="line 1 is not a result"):
        Results(tmp_path / RESULTS_FILE).records()
    done = run("reproduce", "smo", "--quick", "--only", "strategies", "--out", tmp_path)
    assert (done.code, "line 1 is not a result" in done.err) == (3, True)


@pytest.mark.skipif(os.name == "nt", reason="a shell of its own")
def test_closed_standard_output_is_no_error():
    command = f"{sys.executable} -m gramless.cli.app info"
    closed = subprocess.run(["sh", "-c", f"{command} >&-"], capture_output=True, text=True, check=False)
    assert (closed.returncode, closed.stderr) == (0, "")
    piped = subprocess.run(["sh", "-c", f"{command} --json | true"], capture_output=True, text=True, check=False)
    assert "Traceback" not in piped.stderr
