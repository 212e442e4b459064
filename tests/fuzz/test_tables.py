"""150 malformed tables on the command line: a short message, a valid exit code and no lost file."""

import bz2
import gzip
import io

import numpy as np
import pandas as pd
import pytest
from mutations import damaged
from typer.testing import CliRunner

from gramless.cli.app import app
from gramless.cli.errors import EXIT_BAD_INPUT, EXIT_OUT_OF_MEMORY, explain

N = 40
CODES = {0, EXIT_BAD_INPUT, EXIT_OUT_OF_MEMORY}


def tables():
    rng = np.random.default_rng(0)
    a = rng.normal(size=N)
    frame = pd.DataFrame({"a": a, "b": rng.integers(0, 9, N), "c": np.array(["u", "v"])[rng.integers(0, 2, N)]})
    frame["y"] = np.where(a > 0, "yes", "no")
    text = frame.to_csv(index=False)
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    numbers = io.BytesIO()
    np.savez(numbers, X=frame[["a", "b"]].to_numpy(), y=(a > 0).astype(int))
    sparse = "".join(f"{int(x > 0)} 1:{x:.3f} {k % 5 + 2}:1\n" for k, x in enumerate(a))
    return {
        "t.csv": text.encode(),
        "t.tsv": frame.to_csv(index=False, sep="\t").encode(),
        "t.csv.gz": gzip.compress(text.encode()),
        "t.csv.bz2": bz2.compress(text.encode()),
        "t.parquet": buffer.getvalue(),
        "t.npz": numbers.getvalue(),
        "t.svm": sparse.encode(),
    }


WORDS = [
    b"",
    b"nan",
    b"inf",
    b"-1e309",
    b"1e308",
    b"9" * 400,
    b"\x00",
    b'"',
    b"\xff\xfe",
    b",,,,,",
    b"\r",
    b"a\nb",
    b"=1+1",
    b"None",
]


def rewritten(content, rng):
    """Return a table with changed cells, lines and headings."""
    lines = content.split(b"\n")
    at = int(rng.integers(len(lines)))
    kind = rng.integers(5)
    word = WORDS[int(rng.integers(len(WORDS)))]
    if kind == 0:
        cells = lines[at].split(b",")
        cells[int(rng.integers(len(cells)))] = word
        lines[at] = b",".join(cells)
    elif kind == 1:
        lines[0] = lines[0].replace(b"a", b"y", 1) if rng.random() < 0.5 else word
    elif kind == 2:
        lines[at] += b"," + word
    elif kind == 3:
        lines = lines[: int(rng.integers(0, 4))]
    else:
        lines = [word if rng.random() < 0.3 else line for line in lines]
    return b"\n".join(lines)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    made = {}
    for name, content in tables().items():
        (folder / name).write_bytes(content)
        target = [] if name.endswith(("npz", "svm")) else ["--target", "y"]
        done = CliRunner().invoke(
            app, ["train", str(folder / name), *target, *QUICK, "--out", str(folder / f"{name}.skops")]
        )
        assert done.exit_code == 0, done.output
        made[name] = folder / f"{name}.skops"
    return made


QUICK = ["--tune", "none", "--C", "1", "--no-proba"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(5))
def test_malformed_tables_give_no_traceback(part, model, tmp_path):
    names = list(tables())
    for number in range(30 * part, 30 * (part + 1)):
        rng = np.random.default_rng(number)
        name = names[number % len(names)]
        spoil = rewritten if name in ("t.csv", "t.tsv", "t.svm") and number % 3 else damaged
        content = spoil(tables()[name], rng)
        path, out = tmp_path / name, tmp_path / "out"
        path.write_bytes(content)
        out.write_text("what was there before")
        target = [] if name.endswith(("npz", "svm")) else ["--target", "y"]
        command = [
            ["train", str(path), *target, *QUICK, "--out", str(out)],
            ["predict", str(model[name]), str(path), "--out", str(out)],
            ["evaluate", str(model[name]), str(path)],
        ][int(rng.integers(3))]
        done = CliRunner().invoke(app, command)
        code, said = done.exit_code, ""
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            explained = explain(done.exception)
            assert explained is not None, (number, command, repr(done.exception))
            said, code = explained
        assert code in CODES, (number, command, done.output)
        if code:
            assert 0 < len(said) < 1000, (number, said)
            assert len(said.splitlines()) <= 4, (number, said)
            assert out.read_text() == "what was there before", (number, command)
        assert path.read_bytes() == content
        card = tmp_path / "out.card.md"  # written beside each model
        assert card.exists() == (command[0] == "train" and code == 0), (number, command)
        card.unlink(missing_ok=True)
        assert {child.name for child in tmp_path.iterdir()} == {name, "out"} | ({path.name} if path.exists() else set())
        path.unlink()
