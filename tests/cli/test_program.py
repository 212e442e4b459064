"""`gramless reproduce`, `report` and `info`, exit codes, and the installed command in its own process."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import pytest
from sklearn.linear_model import RidgeClassifier

import gramless.cli.reproduce as reproduce_module
from gramless.cli import app as cli
from gramless.cli.errors import InputError, explain
from gramless.cli.options import papers
from gramless.papers.experiments.declarations import Claim, Comparison, Gallery, Spec, Table, product


def ridge(params, seed):
    return RidgeClassifier(alpha=params["alpha"])


DEMO = Spec(
    "smo",
    "demo",
    "A demonstration",
    "mnist",
    ridge,
    product(alpha=[1, 10]),
    views=(Table(), Gallery()),
    quick={"grid": product(alpha=[1, 100])},
    data_label="MNIST",
)


@pytest.fixture
def demo(monkeypatch):
    monkeypatch.setattr(reproduce_module, "specs", lambda paper: [DEMO] if paper in ("all", "smo") else [])


def test_reproduce_writes_results_and_a_report(run, demo, tmp_path):
    done = run("reproduce", "smo", "--quick", "--out", tmp_path / "out", "--json")
    assert done.code == 0
    assert done.json["finished"] == 2
    assert done.json["failed"] == 0
    lines = Path(done.json["results"]).read_text().splitlines()
    assert [json.loads(line)["params"]["alpha"] for line in lines] == [1, 100]
    report = Path(done.json["report"]).read_text()
    assert "smo · demo" in done.err
    assert "scikit-learn's digits: a demonstration" in report.replace("&#39;", "'")
    assert "MNIST" not in report
    again = run("reproduce", "smo", "--quick", "--out", tmp_path / "out", "--json")
    assert again.json["finished"] == 2
    assert Path(done.json["results"]).read_text().splitlines() == lines
    run("reproduce", "smo", "--quick", "--out", tmp_path / "out", "--fresh")
    assert Path(done.json["results"]).read_text().splitlines() != lines


def test_one_fit_is_selected_by_its_settings_and_seed(run, demo, tmp_path):
    done = run("reproduce", "smo", "--quick", "--where", "alpha=100", "--seed", 3, "--out", tmp_path, "--json")
    assert done.json["finished"] == 1
    (record,) = map(json.loads, Path(done.json["results"]).read_text().splitlines())
    assert (record["params"], record["seed"]) == ({"alpha": 100}, 3)
    wrong = run("reproduce", "smo", "--quick", "--where", "alpha=7", "--out", tmp_path)
    assert (wrong.code, "no setting with alpha=7" in wrong.err) == (3, True)
    wrong = run("reproduce", "smo", "--quick", "--where", "alpha", "--out", tmp_path)
    assert (wrong.code, "--where takes name=value" in wrong.err) == (3, True)


def test_list_shows_the_experiments(run, demo, tmp_path):
    shown = run("reproduce", "smo", "--list", "--out", tmp_path / "out")
    assert shown.code == 0
    assert "alpha 1, 10" in shown.out
    (listed,) = run("reproduce", "smo", "--list", "--quick", "--json").json
    assert [params["alpha"] for params in listed["grid"]] == [1, 100]
    assert not (tmp_path / "out").exists()


def test_summary_shows_one_setting_over_its_seeds(run, monkeypatch, tmp_path):
    seeds = replace(DEMO, quick={"grid": product(alpha=[1, 100]), "seeds": (0, 1, 2)})
    monkeypatch.setattr(reproduce_module, "specs", lambda paper: [seeds])
    done = run("reproduce", "smo", "--quick", "--out", tmp_path)
    errors = {}
    for record in map(json.loads, (tmp_path / "results.jsonl").read_text().splitlines()):
        errors.setdefault(record["params"]["alpha"], []).append(record["metrics"]["error"])
    best = min(errors.values(), key=fmean)
    assert f"{fmean(best):.2f} ± {stdev(best):.2f}" in done.out
    assert "smallest mean error on the test rows" in " ".join(done.out.split())


def test_report_is_written_again_from_its_records(run, demo, tmp_path):
    done = run("reproduce", "smo", "--quick", "--out", tmp_path, "--json")
    again = run("report", done.json["results"], "--out", tmp_path / "again.html", "--json")
    assert again.json == {"report": str(tmp_path / "again.html"), "records": 2, "unknown": 0}
    assert (tmp_path / "again.html").read_text() == Path(done.json["report"]).read_text()
    lost = run("report", tmp_path / "nothing.jsonl", "--out", tmp_path / "again.html")
    assert (lost.code, "is not a file" in lost.err) == (3, True)


def test_claim_runs_its_experiments_and_prints_its_verdict(run, monkeypatch, tmp_path):
    digits = replace(DEMO, data="digits", data_label="Digits", grid=product(alpha=[1]), seeds=(0, 1, 2))
    comparison = Comparison("demo", {"alpha": 1}, "at most", 20.0)
    claim = Claim(
        "works", "The classifier works.", "Fig. 1", (comparison,), reason="Less than 20 % of the digits are wrong."
    )
    monkeypatch.setattr(reproduce_module, "claim_named", lambda paper, name: claim)
    monkeypatch.setattr(reproduce_module, "specs_of_claim", lambda paper, claim: [digits])
    done = run("reproduce", "smo", "--claim", "works", "--out", tmp_path)
    assert done.code == 0
    said = " ".join(done.out.split())
    assert "The classifier works. Fig. 1" in said
    assert "Verdict yes reproduced. Less than 20 % of the digits are wrong." in said
    records = (tmp_path / "results.jsonl").read_text()
    run("reproduce", "smo", "--claim", "works", "--device", "cuda", "--out", tmp_path)
    assert (tmp_path / "results.jsonl").read_text() == records  # fits of another device count
    one = run("reproduce", "smo", "--claim", "works", "--seed", 0, "--out", tmp_path)
    assert "Verdict too few seeds" in " ".join(one.out.split())


def test_unknown_claim_raises_with_the_known_claims(run, tmp_path):
    done = run("reproduce", "prototypes", "--claim", "nonesuch", "--out", tmp_path)
    assert (done.code, "error-4000" in done.err) == (3, True)
    done = run("reproduce", "prototypes", "--claim", "robust", "--out", tmp_path)
    assert (done.code, "is not tested" in done.err) == (3, True)
    done = run("reproduce", "prototypes", "--claim", "error-4000", "--quick", "--out", tmp_path)
    assert (done.code, "leave out --quick" in done.err) == (3, True)


def test_missing_data_fails_the_fits_and_names_the_file(run, demo, tmp_path, monkeypatch):
    monkeypatch.delenv("GRAMLESS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(reproduce_module, "obtain", lambda *a, **k: None)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mnist.npz").write_text("not an archive")
    done = run("reproduce", "smo", "--out", tmp_path / "out", "--data", tmp_path / "data", "--json")
    assert done.code == 1
    assert done.json["failed"] == 2
    assert "cannot be read" in Path(done.json["report"]).read_text()


def test_unknown_names_raise_with_the_known_names(run, demo, tmp_path):
    done = run("reproduce", "sno", "--out", tmp_path)
    assert (done.code, "randomized, budget" in done.err) == (3, True)
    done = run("reproduce", "smo", "--only", "dema", "--out", tmp_path)
    assert (done.code, "there are: demo" in done.err) == (3, True)


def test_output_folder_that_is_a_file_raises_before_the_first_fit(run, demo, tmp_path, monkeypatch):
    (tmp_path / "out").write_text("")
    monkeypatch.setattr(reproduce_module, "run", lambda *a, **k: pytest.fail("a fit was started"))
    done = run("reproduce", "smo", "--quick", "--out", tmp_path / "out")
    assert (done.code, "is a file: give --out the name of a folder" in done.err) == (3, True)
    (tmp_path / "results.jsonl").mkdir()
    done = run("reproduce", "smo", "--quick", "--out", tmp_path)
    assert (done.code, "is a folder" in done.err) == (3, True)


def test_info_describes_the_computer_and_the_choices(run):
    found = run("info", "--rows", 60_000, "--columns", 784, "--classes", 10, "--json").json
    assert found["devices"][0]["device"] == "cpu"
    assert found["hardware"]["cores"] >= 1
    assert found["plan"]["train"] == "table"
    assert "the model uses all rows" in found["plan"]["train_why"]
    assert found["plan"]["lssvc"] in ("cg", None)
    assert "processor" in run("info").out


def test_expected_errors_have_a_message_and_an_exit_code():
    cases = [
        (KeyboardInterrupt(), 130, "interrupted"),
        (InputError("no column"), 3, "no column"),
        (MemoryError("the fit needs 9 GB"), 4, "out of memory: the fit needs 9 GB"),
        (
            OSError(errno.ENOSPC, "No space left", "m.skops"),
            5,
            "the disk is full for m.skops: delete files, or choose another disk with --out",
        ),
        (
            OSError(errno.EFBIG, "File too large", "m.skops"),
            5,
            "m.skops exceeds the largest file size: choose another disk with --out",
        ),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "a/b"), 5, "a/b: Not a directory"),
        (PermissionError(errno.EACCES, "Permission denied", "m.skops"), 5, "not permitted: m.skops"),
    ]
    for reason, code, words in cases:
        assert explain(reason) == (words, code)
    assert explain(ZeroDivisionError()) is None


def command(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "gramless", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_full_disk_is_reported_and_leaves_no_file(plants, model):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "gramless", "predict", str(model), str(plants / "more.csv")],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert process.returncode == 5
    assert "the disk is full" in process.stderr
    assert "Traceback" not in process.stderr


def test_closed_pipe_ends_without_a_traceback(plants, model):
    process = command("predict", model, plants / "more.csv")
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 0
    assert err == ""


def test_out_of_memory_is_reported(plants, tmp_path):
    process = command(
        "train", plants / "plants.csv", "--target", "kind", "--out", tmp_path / "m.skops", "--memory-budget", "10KB"
    )
    _, err = process.communicate()
    assert process.returncode == 4
    assert "out of memory" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(("end", "sign"), [(os.killpg, signal.SIGINT), (os.kill, signal.SIGTERM)], ids=["Ctrl-C", "SIGTERM"])
def test_interrupted_run_writes_a_valid_partial_report(tmp_path, end, sign):
    process = command("reproduce", "randomized", "--quick", "--out", tmp_path, start_new_session=True)
    results = tmp_path / "results.jsonl"
    deadline = time.monotonic() + 60
    while not results.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    end(process.pid, sign)
    _, err = process.communicate(timeout=30)
    assert process.returncode in (0, 130)  # 0 when the run ended before the signal came
    assert "Traceback" not in err
    for line in results.read_text().splitlines():
        json.loads(line)
    assert (tmp_path / "report.html").read_text().endswith("</html>\n")


def test_completion_lists_papers():
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    out, _ = command("--show-completion", "bash", env=environment).communicate()
    assert "complete" in out.lower()
    assert papers("r") == ["randomized", "risvo"]


def test_warnings_are_single_messages(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        cli.main(lambda **_: warnings.warn("mind the [gap]", stacklevel=1))
    assert capsys.readouterr().err == "gramless: mind the [gap]\n"


def test_version():
    process = command("--version")
    out, _ = process.communicate()
    from gramless import __version__

    assert out.strip() == __version__


def test_missing_extra_is_reported_with_the_installation_command():
    code = "import sys; sys.modules['typer'] = None; from gramless.__main__ import main; main()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr == "gramless: the command line needs typer; install it with: pip install 'gramless[cli]'\n"
