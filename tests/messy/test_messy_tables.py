"""Each messy table trained and predicted by the command, in Python and over HTTP: equal types, warnings and predictions."""

import asyncio
import io
import json
import warnings
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pandas as pd
import pytest
from messy_tables import TABLES
from typer.testing import CliRunner

import gramless
from gramless.cli.app import app
from gramless.cli.errors import explain

QUICK = ["--time", "1s", "--no-importance"]


def run(*arguments):
    """Return exit code, standard output and standard error of a command in this process."""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    err, code = result.stderr + "\n".join(str(one.message) for one in raised), result.exit_code
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        explained = explain(result.exception)
        if explained is None:
            raise result.exception
        err, code = err + explained[0], explained[1]
    return code, result.stdout, err


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a function that writes a table, trains on it, and returns file, model file and outcome; each table once."""
    folder, known = tmp_path_factory.mktemp("messy"), {}

    def train(name):
        if name not in known:
            table = TABLES[name]
            place = folder / f"{len(known)}"
            data, model = place.with_suffix(table.suffix), place.with_suffix(".skops")
            content = table.content()
            if table.suffix == ".xlsx":
                content.to_excel(data, index=False)
            elif table.suffix == ".feather":
                content.to_feather(data)
            else:
                data.write_bytes(content if isinstance(content, bytes) else content.encode())
            outcome = run("train", data, "--target", table.target, "--out", model, *QUICK, *table.options)
            known[name] = data, model, outcome
        return known[name]

    return train


def in_pandas(path, table):
    """Return the file as a user of pandas reads it, inputs and target."""
    readers = {".xlsx": pd.read_excel, ".feather": pd.read_feather, ".csv": pd.read_csv}
    if table.suffix == ".jsonl":
        frame = pd.read_json(path, lines=True)
    else:
        frame = readers[table.suffix](path, **table.read)
    return frame.drop(columns=table.target), frame[table.target]


def words(text):
    return " ".join(text.split())


@pytest.mark.parametrize("name", TABLES)
def test_command_line(trained, name):
    table = TABLES[name]
    _, model, (code, out, err) = trained(name)
    assert code == table.exit_code, err
    for part in (*table.warnings, *table.notes, table.error):
        assert part in words(out + err)
    if code:
        assert not model.exists()
        return
    found = gramless.load(model)
    assert found.column_types == {name: kind for name, kind in table.types.items() if kind != "left out"}
    assert list(found.about["columns"]["left_out"]) == [name for name, kind in table.types.items() if kind == "left out"]


@pytest.mark.parametrize("name", [name for name in TABLES if TABLES[name].in_python])
def test_python(trained, name):
    table = TABLES[name]
    data, *_ = trained(name)
    X, y = in_pandas(data, table)
    cls = gramless.TableRegressor if y.dtype.kind == "f" else gramless.TableClassifier
    estimator = cls(tune="none", random_state=0)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        if table.exit_code:
            with pytest.raises(ValueError, match=table.error):
                estimator.fit(X, y)
            return
        estimator.fit(X, y)
    messages = [str(one.message) for one in raised]
    assert (len(messages) > 0) == bool(table.warnings), messages
    for part in table.warnings:
        assert part in " ".join(messages)
    assert dict(zip(estimator.columns_.names_, estimator.columns_.kinds_, strict=True)) == table.types
    assert len(estimator.predict(X[:5])) == 5


async def responses(served, rows, wrong_rows):
    """Return the responses of a server to requests for its columns, for predictions, and for predictions of wrong rows."""
    transport = httpx.ASGITransport(app=served)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return (
            await client.get("/schema"),
            await client.post("/predict", json=rows),
            await client.post("/predict", json=wrong_rows),
        )


@pytest.mark.parametrize("name", [name for name in TABLES if not TABLES[name].exit_code])
def test_http(trained, name):
    from gramless.cli.serve import load_scorer
    from gramless.deployment.serving.app import scoring_app

    table = TABLES[name]
    data, model, _ = trained(name)
    code, out, err = run("predict", model, data)
    assert code == 0, err
    expected = pd.read_csv(io.StringIO(out), dtype=str)["prediction"][:10]
    rows = json.loads(in_pandas(data, table)[0][:10].to_json(orient="records", date_format="iso"))
    wrong_rows = [rows[0], rows[1] | dict([table.wrong_value])] if table.wrong_value else []
    with ThreadPoolExecutor(1) as thread:  # the main thread may have a running event loop of the browser tests
        requests = responses(scoring_app({"m": model}, load_scorer), rows, wrong_rows)
        schema, answer, wrong = thread.submit(asyncio.run, requests).result()
    assert answer.status_code == 200, answer.text
    predictions = answer.json()["predictions"]
    kinds = {column["name"]: column["kind"] for column in schema.json()["columns"]}
    if wrong_rows:
        assert wrong.status_code == 422
        assert f"row 2, column '{table.wrong_value[0]}'" in wrong.json()["error"]
    assert kinds == {name: kind for name, kind in table.types.items() if kind != "left out"}
    if isinstance(predictions[0], float):
        np.testing.assert_allclose(predictions, expected.astype(float), rtol=1e-9)
    else:
        assert list(map(str, predictions)) == list(expected)
