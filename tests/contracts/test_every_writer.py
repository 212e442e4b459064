"""Every writer reports a full disk and a folder without write permission by the name of the file, and leaves the old file.

The full disk is a limit of the size of files: writing beyond it fails as it does on a full disk.
"""

import contextlib
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import gramless
from gramless.callbacks import Checkpoint
from gramless.cli.app import app
from gramless.cli.errors import EXIT_CANNOT_WRITE, explain

resource = pytest.importorskip("resource", reason="needs limits of file sizes")

OLD = b"the old content"
LIMITS = (0, 100, 2000)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Return a folder with a table, a saved model, and a model of the command line."""
    folder = tmp_path_factory.mktemp("inputs")
    X = np.random.default_rng(0).normal(size=(120, 3))
    frame = pd.DataFrame(X, columns=list("abc")).assign(y=np.where(X[:, 0] > 0, "yes", "no"))
    frame.to_csv(folder / "t.csv", index=False)
    run("train", folder / "t.csv", "--target", "y", "--out", folder / "m.skops", "--time", "0.1s")
    return folder


def run(*arguments):
    """Run a command; raise the error that it reports."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output


def save_model(inputs, out):
    gramless.save(gramless.LSSVC().fit(np.eye(30), np.arange(30) % 2), out)


def save_checkpoint(inputs, out):
    X = np.random.default_rng(0).normal(size=(200, 3))
    out.unlink(missing_ok=True)  # a checkpoint of another fit raises ValueError
    gramless.LSSVC(solver="cg", tol=1e-12, callback=Checkpoint(out, every=1)).fit(X, X[:, 0] > 0)


WRITERS = {
    "model.skops": save_model,
    "checkpoint.npz": save_checkpoint,
    "trained.skops": lambda inputs, out: run("train", inputs / "t.csv", "--target", "y", "--out", out, "--time", "0.1s"),
    "predictions.csv": lambda inputs, out: run("predict", inputs / "m.skops", inputs / "t.csv", "--proba", "--out", out),
    "predictions.parquet": lambda inputs, out: run("predict", inputs / "m.skops", inputs / "t.csv", "--out", out),
    "model.onnx": lambda inputs, out: run("export", inputs / "m.skops", out),
}


@contextlib.contextmanager
def file_size_limit(nbytes):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def check_refusal(reason, out):
    """Check that an error is explained, names the file, and has left only the old file."""
    message, code = explain(reason)
    assert code == EXIT_CANNOT_WRITE
    assert str(out) in message or str(out.parent) in message
    assert [path.name for path in out.parent.iterdir() if path.suffix != ".lock"] in ([], [out.name])
    assert not out.exists() or out.read_bytes() == OLD


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("name", WRITERS)
def test_full_disk(name, limit, inputs, tmp_path):
    out = tmp_path / "out" / name
    out.parent.mkdir()
    out.write_bytes(OLD)
    with file_size_limit(limit), pytest.raises(OSError) as caught:
        WRITERS[name](inputs, out)
    check_refusal(caught.value, out)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every folder")
@pytest.mark.parametrize("name", WRITERS)
def test_folder_without_write_permission(name, inputs, tmp_path):
    out = tmp_path / "out" / name
    out.parent.mkdir()
    out.parent.chmod(0o555)
    try:
        with pytest.raises((OSError, ValueError)) as caught:
            WRITERS[name](inputs, out)
    finally:
        out.parent.chmod(0o755)
    check_refusal(caught.value, out)


@pytest.mark.parametrize("name", WRITERS)
def test_missing_folder(name, inputs, tmp_path):
    with pytest.raises(Exception, match="none"):
        WRITERS[name](inputs, Path(tmp_path, "none", name))
    assert not list(tmp_path.iterdir())
