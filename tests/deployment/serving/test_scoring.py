"""Models over HTTP: predictions in JSON and CSV, reasons for rejected requests, and limits."""

import asyncio
import io
import json
import os
import shutil
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from running_servers import command, plants, running

import gramless
from gramless.cli.errors import InputError
from gramless.cli.options import TrainSettings
from gramless.cli.serve import load_scorer, named_files
from gramless.cli.train import train
from gramless.deployment.serving.app import scoring_app
from gramless.deployment.serving.metrics import Metrics
from gramless.deployment.serving.models import ModelStore, RequestBatcher
from gramless.deployment.serving.requests import BodyReader, RequestRows
from gramless.deployment.serving.scorer import RequestError, Scores
from gramless.deployment.tuning import Limits
from gramless.tables.preparation import Preparation

ROW = {"height (m)": 4.1, "leaves": 23, "soil": "loam", "planted": "2021-03-01"}


def in_a_loop(work):
    """Run a coroutine in a thread, because the browser of other tests has an event loop in this thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def as_rows(frame):
    """Return a DataFrame as a list of JSON objects."""
    return json.loads(frame.to_json(orient="records", date_format="iso"))


@pytest.fixture(scope="module")
def frame():
    return plants(30, seed=5).drop(columns=["kind", "weight"])


@pytest.fixture(scope="module")
def python_predictions(files, frame):
    model = gramless.load(files / "kinds.skops")
    ready = model.ready(frame, "rows")
    return model.pipeline.predict(ready), model.pipeline.predict_proba(ready)


def test_json_rows_are_predicted_as_in_python(address, frame, python_predictions):
    response = httpx.post(f"{address}/predict", json={"rows": as_rows(frame)})
    assert response.status_code == 200
    found = response.json()
    assert found["model"] == "kinds"
    assert found["predictions"] == python_predictions[0].tolist()
    assert found["classes"] == ["ash", "birch", "cedar"]
    np.testing.assert_allclose(found["probabilities"], python_predictions[1], atol=1e-12)


def test_csv_request_and_response(address, frame, python_predictions):
    body = frame.to_csv(index=False)
    response = httpx.post(f"{address}/predict", content=body, headers={"Content-Type": "text/csv", "Accept": "text/csv"})
    assert response.status_code == 200
    found = pd.read_csv(io.StringIO(response.text))
    assert found["prediction"].tolist() == python_predictions[0].tolist()
    np.testing.assert_allclose(found[["p(ash)", "p(birch)", "p(cedar)"]], python_predictions[1], atol=1e-12)


def test_regression_has_intervals(address, files):
    rows = as_rows(plants(20, seed=6).drop(columns=["kind", "weight", "planted"]))
    found = httpx.post(f"{address}/models/weights/predict", json={"rows": rows}).json()
    predictions, intervals = np.array(found["predictions"]), np.array(found["intervals"])
    bound = gramless.load(files / "weights.skops").about["error_90"]
    np.testing.assert_allclose(intervals, np.column_stack([predictions - bound, predictions + bound]))
    assert "probabilities" not in found


def test_array_estimator(address):
    found = httpx.post(f"{address}/models/plain/predict", json={"rows": [{"x0": 2.0, "x1": 0, "x2": 0}]}).json()
    assert found["predictions"] == [1]
    assert sum(found["probabilities"][0]) == pytest.approx(1)
    refused = httpx.post(f"{address}/models/plain/predict", json={"rows": [{"x0": None, "x1": 0, "x2": 0}]})
    assert (refused.status_code, refused.json()["error"]) == (422, "row 1, column 'x0': the model needs a value here")


def test_effects_of_the_columns_on_a_prediction(address, files):
    schema = httpx.get(f"{address}/schema").json()
    typical = {column["name"]: column["typical"] for column in schema["columns"]}
    found = httpx.post(f"{address}/predict", json={"rows": [typical, ROW], "explain": True}).json()
    still, moved = found["moved"]
    # Equal rows at different places of a batch may differ in the last bits.
    assert all(abs(one["change"]) < 1e-12 for one in still)
    assert {one["column"] for one in moved} == set(ROW)
    sizes = [abs(one["change"]) for one in moved]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 0.01
    # Against the definition: the same row with one column at its typical value.
    first = moved[0]
    both = {"rows": [ROW, {**ROW, first["column"]: typical[first["column"]]}]}
    chances = httpx.post(f"{address}/predict", json=both).json()["probabilities"]
    best = int(np.argmax(chances[0]))
    assert first["change"] == pytest.approx(chances[0][best] - chances[1][best])


def test_rows_far_from_training_are_flagged(address):
    typical = {one["name"]: one["typical"] for one in httpx.get(f"{address}/schema").json()["columns"]}
    far = {**typical, "leaves": 10_000, "height (m)": -500.0}
    assert httpx.post(f"{address}/predict", json={"rows": [typical, far]}).json()["novel"] == [False, True]


def test_missing_values_and_unknown_categories_are_accepted(address):
    rows = [dict.fromkeys(ROW), {**ROW, "soil": "lava"}, {**ROW, "leaves": "23"}]
    response = httpx.post(f"{address}/predict", json={"rows": rows})
    assert response.status_code == 200
    assert len(response.json()["predictions"]) == 3


def test_values_out_of_range_and_unseen_categories_are_reported(address):
    rows = [
        ROW,
        {**ROW, "leaves": 4000, "soil": "lava"},
        {**ROW, "planted": "1850-01-01"},
        {**ROW, "soil": None, "leaves": None},
    ]
    found = httpx.post(f"{address}/predict", json={"rows": rows}).json()["unusual"]
    out_of_range, unseen = {"reason": "out of range"}, {"reason": "unseen category"}
    assert found == [
        [],
        [{"column": "leaves", **out_of_range}, {"column": "soil", **unseen}],
        [{"column": "planted", **out_of_range}],
        [],
    ]


def test_list_of_rows_is_accepted(address, frame):
    body = as_rows(frame)
    response = httpx.post(f"{address}/predict", json=body)
    assert response.json() == httpx.post(f"{address}/predict", json={"rows": body}).json()
    marked = b"\xef\xbb\xbf" + json.dumps(body).encode()
    assert httpx.post(f"{address}/predict", content=marked).json() == response.json()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://example.org"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:9"},
    ],
)
def test_pages_of_other_origins_cannot_send_rows(address, headers):
    """A page can send a body without a media type to any server, and browsers then ask the server for no permission."""
    response = httpx.post(f"{address}/predict", content=json.dumps([ROW]), headers=headers)
    assert (response.status_code, "another origin" in response.json()["error"]) == (403, True)
    own = {"Origin": address, "Sec-Fetch-Site": "same-origin"}
    assert httpx.post(f"{address}/predict", content=json.dumps([ROW]), headers=own).status_code == 200
    assert httpx.get(f"{address}/", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("localhost:1", 200), ("[::1]:80", 200), ("[::1]", 200), ("127.0.0.1.example.org", 400), ("", 400)],
)
def test_host_names(address, host, status):
    assert httpx.get(f"{address}/healthz", headers={"Host": host}).status_code == status


def test_memory_for_bodies_is_bounded(files):
    """Bodies that are being read count until they are parsed; afterwards their bytes are available again."""
    limits = Limits(all_bodies_bytes=30_000, reading_seconds=30)
    body = json.dumps([{"x0": 1.0, "x1": 0.0, "x2": 0.0}] * 200).encode()
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 28000\r\n\r\n"
    with running(scoring_app({"plain": files / "plain.skops"}, load_scorer, limits=limits), limits) as address:
        port = int(address.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.sendall(head + b" " * 27_000)
            time.sleep(0.3)
            response = httpx.post(f"{address}/predict", content=body)
            assert (response.status_code, "memory for bodies" in response.json()["error"]) == (503, True)
        deadline = time.monotonic() + 20
        while httpx.post(f"{address}/predict", content=body).status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_large_bodies_are_parsed_one_at_a_time():
    active, most, lock = 0, 0, threading.Lock()

    class SlowRows:
        def read(self, media_type, body):
            nonlocal active, most
            with lock:
                active += 1
                most = max(most, active)
            time.sleep(0.05)
            with lock:
                active -= 1
            return {}, False

    class BodyRequest:
        headers = {}

        async def stream(self):
            yield b"x" * 20_000

    async def work():
        reader = BodyReader(Limits())
        await asyncio.gather(*(reader.read(BodyRequest(), SlowRows()) for _ in range(6)))
        return reader._bytes

    assert in_a_loop(work()) == 0
    assert most == 1


def without(name):
    return {key: value for key, value in ROW.items() if key != name}


JSON_ERRORS = {
    "no json": (b"{", 400, "the body is not JSON"),
    "not utf-8": (b'{"rows": ["\xff"]}', 400, "the body is not JSON"),
    "no rows": (b"{}", 422, "send an object with rows"),
    "a list": (b"[]", 422, "there are no rows"),
    "a string": (b'"rows"', 422, "send an object with rows"),
    "empty": (b'{"rows": []}', 422, "there are no rows"),
    "a row that is a list": (b'{"rows": [[1]]}', 422, "row 1 is [1], not an object"),
    "a missing column": (json.dumps({"rows": [ROW, without("soil")]}), 422, "row 2 lacks the column 'soil'"),
    "a string for a number": (json.dumps({"rows": [{**ROW, "leaves": "many"}]}), 422, "'leaves': 'many' is not a number"),
    "a list for a number": (json.dumps({"rows": [{**ROW, "leaves": [1]}]}), 422, "'leaves': [1] is not a number"),
    "a list for a category": (json.dumps({"rows": [{**ROW, "soil": ["sand"]}]}), 422, "'soil': ['sand'] is not a string"),
    "no date": (json.dumps({"rows": [{**ROW, "planted": "soon"}]}), 422, "'planted': 'soon' is not a date"),
    "NaN": (json.dumps({"rows": [{**ROW, "leaves": float("nan")}]}), 400, "write null for a missing value"),
    "infinity": (json.dumps({"rows": [{**ROW, "leaves": 0}]}).replace('"leaves": 0', '"leaves": 1e999'), 422, "too large"),
    "a long integer": (json.dumps({"rows": [{**ROW, "leaves": 10**400}]}), 422, "too large"),
    "an integer that is too long to parse": (b'{"rows": [' + b"9" * 10_000 + b"]}", 400, "the body is not JSON"),
    "deep": (b'{"rows": ' + b"[" * 100_000, 400, "recursion limit exceeded"),
    "explain": (json.dumps({"rows": [ROW], "explain": "yes"}), 422, "explain is 'yes': send true or false"),
    "many explained": (
        json.dumps({"rows": [ROW] * 21, "explain": True}),
        413,
        "explain accepts at most 20 rows, and this request has 21",
    ),
    "many rows": (json.dumps({"rows": [ROW] * 10_001}), 413, "a request has at most 10,000 rows"),
}


@pytest.mark.parametrize("name", JSON_ERRORS)
def test_invalid_json_gives_the_reason(address, name):
    body, status, expected = JSON_ERRORS[name]
    response = httpx.post(f"{address}/predict", content=body, headers={"Content-Type": "application/json"})
    assert (response.status_code, expected in response.json()["error"]) == (status, True), response.text


CSV_ERRORS = {
    "empty": (b"", 422, "the header lacks the columns"),
    "no rows": (b"height (m),leaves,soil,planted\n", 422, "there are no rows"),
    "a missing column": (b"leaves,soil,planted\n1,a,\n", 422, "the header lacks the column 'height (m)'"),
    "duplicate columns": (b"height (m),leaves,leaves,soil,planted\n1,2,3,a,\n", 422, "'leaves' more than once"),
    "ragged": (b"height (m),leaves,soil,planted\n1,2\n", 422, "row 1 has 2 cells, and the header has 4"),
    "not UTF-8": (b"\xff\xfe", 400, "not text in UTF-8"),
    "an open quote": (b'height (m),leaves,soil,planted\n1,"2', 400, "not CSV"),
}


@pytest.mark.parametrize("name", CSV_ERRORS)
def test_invalid_csv_gives_the_reason(address, name):
    body, status, expected = CSV_ERRORS[name]
    response = httpx.post(f"{address}/predict", content=body, headers={"Content-Type": "text/csv"})
    assert (response.status_code, expected in response.json()["error"]) == (status, True), response.text


def test_other_invalid_requests(address):
    for path, method, status, expected in [
        ("/nowhere", "GET", 404, "GET /nowhere: Not Found"),
        ("/predict", "GET", 405, "GET /predict: Method Not Allowed"),
        ("/models/none/predict", "POST", 404, "there is no model 'none'; the models are 'kinds', 'weights', 'plain'"),
    ]:
        response = httpx.request(method, address + path)
        assert (response.status_code, response.json()["error"]) == (status, expected)
    response = httpx.post(f"{address}/predict", content=b"x", headers={"Content-Type": "image/png"})
    assert response.status_code == 415
    assert "'image/png' is not supported" in response.json()["error"]
    assert httpx.get(f"{address}/healthz", headers={"host": "example.org"}).status_code == 400


def test_health_schema_openapi_and_metrics(address):
    assert httpx.get(f"{address}/healthz").json() == {"status": "ok", "models": ["kinds", "weights", "plain"]}
    schema = httpx.get(f"{address}/models/kinds/schema").json()
    assert schema == httpx.get(f"{address}/schema").json()
    soil = next(column for column in schema["columns"] if column["name"] == "soil")
    assert sorted(soil["levels"]) == ["clay", "loam", "sand"]
    assert schema["target"] == "kind"
    document = httpx.get(f"{address}/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    body = document["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["properties"]["rows"]["items"]["required"] == [column["name"] for column in schema["columns"]]
    httpx.post(f"{address}/predict", json={"rows": [ROW]})
    before = httpx.get(f"{address}/metrics")
    assert before.headers["content-type"].startswith("text/plain")

    def scored(text):
        return float(text.partition('gramless_rows_total{model="kinds"} ')[2].split()[0])

    httpx.post(f"{address}/predict", json={"rows": [ROW] * 7})
    assert scored(httpx.get(f"{address}/metrics").text) == scored(before.text) + 7


def test_concurrent_clients_get_their_own_responses(address, frame, python_predictions):
    rows = as_rows(frame)

    async def all_of_them():
        async with httpx.AsyncClient(base_url=address, timeout=60) as client:
            return await asyncio.gather(*(client.post("/predict", json={"rows": [rows[k % 30]]}) for k in range(300)))

    responses = in_a_loop(all_of_them())
    assert [response.status_code for response in responses] == [200] * 300
    assert [response.json()["predictions"][0] for response in responses] == [
        python_predictions[0][k % 30] for k in range(300)
    ]


def test_waiting_requests_form_the_next_batch():
    sizes, go = [], threading.Event()

    def score(table):
        sizes.append(len(table["x"]))
        go.wait(10)
        return Scores(2 * table["x"])

    async def work():
        batches = RequestBatcher(score, Limits(waiting_rows=100, batch_rows=8), lambda rows, seconds: None)
        tasks = [asyncio.create_task(batches.submit({"x": np.full(2, float(k))})) for k in range(6)]
        await asyncio.sleep(0.05)
        go.set()
        return await asyncio.gather(*tasks)

    found = in_a_loop(work())
    assert [one.predictions.tolist() for one in found] == [[2.0 * k] * 2 for k in range(6)]
    # All six requests arrive before the first batch starts; a batch has at most eight rows.
    assert sizes == [8, 4]


def test_request_that_is_read_during_a_reload_is_scored_by_the_old_model(files):
    """The model of a request is determined before its body is read, which may take seconds."""

    async def work():
        store = ModelStore({"plain": files / "plain.skops"}, load_scorer, Limits(), Metrics())
        old = store.get(None)
        await store.reload()
        assert store.get(None) is not old
        return old, await old.batcher.submit({name: np.array([2.0]) for name in ("x0", "x1", "x2")})

    old, scores = in_a_loop(work())
    assert scores.predictions.tolist() == [1]
    (thread,) = old.batcher._thread._threads
    del old
    thread.join(10)  # the thread of a replaced model ends
    assert not thread.is_alive()


def test_error_fails_one_request_and_queue_is_bounded():
    go = threading.Event()

    def score(table):
        go.wait(10)
        if (table["x"] < 0).any():
            raise ValueError("below zero")
        return Scores(table["x"])

    async def work():
        batches = RequestBatcher(score, Limits(waiting_rows=3, batch_rows=10), lambda rows, seconds: None)
        first = asyncio.create_task(batches.submit({"x": np.array([0.0])}))
        await asyncio.sleep(0.05)
        tasks = [asyncio.create_task(batches.submit({"x": np.array([x])})) for x in (1.0, -1.0, 2.0)]
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match="3 rows are waiting"):
            await batches.submit({"x": np.array([3.0])})
        go.set()
        return await asyncio.gather(first, *tasks, return_exceptions=True)

    found = in_a_loop(work())
    assert [one.predictions.tolist() for one in (found[0], found[1], found[3])] == [[0.0], [1.0], [2.0]]
    assert isinstance(found[2], ValueError)


def test_fast_model_runs_in_event_loop_and_slow_model_in_thread():
    threads, pause = [], [0.05]

    def score(table):
        threads.append(threading.current_thread().name)
        time.sleep(pause[0])
        return Scores(table["x"])

    async def work(count):
        batches = RequestBatcher(score, Limits(waiting_rows=100, batch_rows=8), lambda rows, seconds: None)
        for k in range(count):
            pause[0] = 0.05 if k in (0, 3) else 0.0  # slow calls, as on a busy computer
            await batches.submit({"x": np.array([float(k)])})
        pause[0] = 0.05
        for _ in range(10):
            await batches.submit({"x": np.array([0.0])})

    in_a_loop(work(6))
    in_thread = [name.startswith("scores") for name in threads]
    assert in_thread[:6] == [True, True, False, False, False, False]
    assert in_thread[-1]


def test_rows_are_encoded_and_prepared_once(files, frame, python_predictions, monkeypatch):
    scorer = load_scorer(files / "kinds.skops")
    table = {name: frame[name].to_numpy() for name in frame}
    calls = []
    plain = Preparation.__call__
    monkeypatch.setattr(Preparation, "__call__", lambda self, encoded: calls.append(self) or plain(self, encoded))
    scores = scorer.score(table)
    np.testing.assert_array_equal(scores.probabilities, python_predictions[1])
    assert scores.novel is not None
    assert len(calls) == len(set(map(id, calls)))


def scorer_after(wait):
    """Return a loader of models whose scores are computed after `wait` returns."""

    def load(path):
        scorer = load_scorer(path)
        plain = scorer.score

        def score(table):
            wait()
            return plain(table)

        scorer.score = score
        return scorer

    return load


def test_slow_prediction_gives_timeout(files):
    limits, go, scored = Limits(seconds=0.2), threading.Event(), threading.Event()

    def wait():
        go.wait(30)
        scored.set()

    with running(scoring_app({"plain": files / "plain.skops"}, scorer_after(wait), limits=limits)) as address:
        response = httpx.post(f"{address}/predict", json={"rows": [{"x0": 2.0, "x1": 0, "x2": 0}]})
        assert response.status_code == 504
        assert not scored.is_set()  # the response was sent while the model was still computing
        go.set()
        assert httpx.get(f"{address}/healthz").status_code == 200


def test_slow_clients_and_large_requests_are_disconnected(files):
    limits = Limits(reading_seconds=0.4, body_bytes=1000)
    with running(scoring_app({"plain": files / "plain.skops"}, load_scorer, limits=limits), limits) as address:
        port = int(address.rsplit(":", 1)[1])
        head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        sent = {
            "headers without an end": (b"POST /predict HTTP/1.1\r\nHost: loc", b""),
            "silence": (b"", b""),
            "a body that does not come": (head + b"Content-Length: 100\r\n\r\n{", b"408"),
            "a body that is announced too large": (head + b"Content-Length: 1000000\r\n\r\n{", b"413"),
            "a body in pieces without an end": (
                head + b"Transfer-Encoding: chunked\r\n\r\n" + b"100\r\n" + b"x" * 256,
                b"408",
            ),
            "headers without measure": (b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000, b""),
        }
        for what, (first, expected) in sent.items():
            with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
                client.sendall(first)
                client.settimeout(5)
                try:
                    response = client.recv(4096)
                except ConnectionResetError:
                    response = b""
                assert expected in response.split(b"\r\n")[0], what
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + (b"400\r\n" + b"x" * 1024 + b"\r\n") * 3)
            assert b" 413 " in client.recv(4096).split(b"\r\n")[0]
        assert httpx.get(f"{address}/healthz").status_code == 200


def test_token_is_required(files):
    with running(scoring_app({"plain": files / "plain.skops"}, load_scorer, token="sesame")) as address:
        body = {"rows": [{"x0": 1, "x1": 0, "x2": 0}]}
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "sesame"},
            {"Authorization": "Bearer sésame"},
        ):
            encoded = {key: value.encode() for key, value in headers.items()}
            response = httpx.post(f"{address}/predict", json=body, headers=encoded)
            assert response.status_code == 401
            assert "requires a token" in response.json()["error"]
        for path in ("/schema", "/metrics", "/models", "/openapi.json"):
            assert httpx.get(address + path).status_code == 401
        assert httpx.get(f"{address}/healthz").status_code == 200
        right = {"Authorization": "Bearer sesame"}
        assert httpx.post(f"{address}/predict", json=body, headers=right).status_code == 200
        assert "security" in httpx.get(f"{address}/openapi.json", headers=right).json()


def test_replaced_file_is_served_without_lost_requests(files, tmp_path):
    path = tmp_path / "model.skops"
    X = np.random.default_rng(0).normal(size=(30, 1))
    for sign, name in ((1, "first"), (-1, "second")):
        gramless.save(gramless.LSSVC().fit(X, np.where(sign * X[:, 0] > 0, "high", "low")), tmp_path / name)
    shutil.copy(tmp_path / "first", path)
    responses, end = [], threading.Event()
    with running(scoring_app({"m": path}, load_scorer, watch_seconds=0.1)) as address:

        def send_requests():
            with httpx.Client(base_url=address) as client:
                while not end.is_set():
                    responses.append(client.post("/predict", json={"rows": [{"x0": 1.0}]}))

        threads = [threading.Thread(target=send_requests) for _ in range(4)]
        for thread in threads:
            thread.start()

        def wait_for(label):
            deadline = time.monotonic() + 30
            while not (responses and responses[-1].json()["predictions"] == [label]):
                assert time.monotonic() < deadline
                time.sleep(0.02)

        wait_for("high")
        (tmp_path / "broken").write_bytes(b"no model")
        os.replace(tmp_path / "broken", path)
        time.sleep(0.3)
        wait_for("high")
        os.replace(tmp_path / "second", path)
        wait_for("low")
        end.set()
        for thread in threads:
            thread.join()
        figures = httpx.get(f"{address}/metrics").text
    assert {response.status_code for response in responses} == {200}
    assert 'gramless_reloads_total{model="m",outcome="loaded"} 1.0' in figures
    assert 'gramless_reloads_total{model="m",outcome="refused"} 1.0' in figures


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_command_reloads_stops_and_restarts_after_kill(files, tmp_path):
    shutil.copy(files / "plain.skops", tmp_path / "plain.skops")
    body = {"rows": [{"x0": 2.0, "x1": 0, "x2": 0}]}
    with command(tmp_path / "plain.skops", f"other={files / 'kinds.skops'}", GRAMLESS_TOKEN="sesame") as (process, address):
        headers = {"Authorization": "Bearer sesame"}
        wait_until_up(address)
        assert httpx.post(f"{address}/predict", json=body).status_code == 401
        assert httpx.post(f"{address}/predict", json=body, headers=headers).json()["predictions"] == [1]
        assert httpx.get(f"{address}/models", headers=headers).json() == {"models": ["plain", "other"]}
        loaded = httpx.get(f"{address}/schema", headers=headers).json()["loaded_at"]
        process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 30
        while httpx.get(f"{address}/schema", headers=headers).json()["loaded_at"] == loaded:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with httpx.Client() as client:
            assert client.post(f"{address}/predict", json=body, headers=headers).status_code == 200
            process.kill()  # during an open connection
            process.wait()
            with pytest.raises(httpx.HTTPError):
                client.post(f"{address}/predict", json=body, headers=headers)
    port = address.rsplit(":", 1)[1]
    with command(tmp_path / "plain.skops", "--port", port) as (process, again):
        assert again == address
        wait_until_up(address)
        with httpx.Client() as client:
            assert client.post(f"{address}/predict", json=body).json()["predictions"] == [1]
            process.terminate()
            assert process.wait(30) == 0


def wait_until_up(address):
    deadline = time.monotonic() + 60
    while True:
        try:
            return httpx.get(f"{address}/healthz")
        except httpx.TransportError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_running_requests_are_completed_at_shutdown(files):
    scoring = threading.Event()

    def wait():
        scoring.set()
        time.sleep(0.5)

    with running(scoring_app({"plain": files / "plain.skops"}, scorer_after(wait))) as address:
        found = []

        def send_requests():
            found.append(httpx.post(f"{address}/predict", json={"rows": [{"x0": 2.0, "x1": 0, "x2": 0}]}, timeout=30))

        thread = threading.Thread(target=send_requests)
        thread.start()
        assert scoring.wait(30)
    thread.join()
    assert found[0].json()["predictions"] == [1]


def test_model_names():
    found = named_files(["a/bank.skops", "homes=b/x.skops", "a/my model.skops"])
    assert {name: path.as_posix() for name, path in found.items()} == {
        "bank": "a/bank.skops",
        "homes": "b/x.skops",
        "my-model": "a/my model.skops",
    }
    with pytest.raises(InputError, match="two models are named 'bank'"):
        named_files(["a/bank.skops", "b/bank.skops"])


def test_model_with_a_text_column(tmp_path):
    rng = np.random.default_rng(0)
    notes = [f"order {k}: {rng.choice(['many thanks', 'it came broken'])}" for k in range(300)]
    table = pd.DataFrame({"note": notes, "x": rng.normal(size=300), "y": ["no" if "broken" in t else "yes" for t in notes]})
    table.to_csv(tmp_path / "t.csv", index=False)
    settings = TrainSettings(tmp_path / "t.csv", "y", tmp_path / "m.skops", time=1, importance=False, report=False)
    train(settings, Console(quiet=True))
    scorer = load_scorer(tmp_path / "m.skops")
    assert {column.name: (column.kind, column.levels) for column in scorer.columns} == {
        "x": ("number", ()),
        "note": ("text", ()),
    }
    body = json.dumps([{"x": 0.1, "note": "order 9: many thanks"}, {"x": 0.1, "note": None}]).encode()
    rows, _ = RequestRows(scorer.columns, 10).read("application/json", body)
    assert scorer.score(rows).predictions[0] == "yes"


def test_table_estimator_that_was_saved_in_python(tmp_path):
    frame = plants()[["height (m)", "soil", "planted", "kind"]].assign(planet="Earth")
    X, y = frame.drop(columns="kind"), frame["kind"]
    with pytest.warns(UserWarning, match="'planet'"):
        model = gramless.TableClassifier(time_budget=0.5, random_state=0).fit(X, y)
    gramless.save(model, tmp_path / "m.skops")
    scorer = load_scorer(tmp_path / "m.skops")
    kinds = {column.name: column.kind for column in scorer.columns}
    assert kinds == {"height (m)": "number", "soil": "category", "planted": "date"}
    records = json.loads(X[:9].to_json(orient="records", date_format="iso"))
    rows, _ = RequestRows(scorer.columns, 10).read("application/json", json.dumps(records).encode())
    np.testing.assert_allclose(scorer.score(rows).probabilities, model.predict_proba(X[:9]))


def test_files_that_cannot_be_served_raise(tmp_path):
    with pytest.raises(InputError, match="there is no file"):
        load_scorer(tmp_path / "none.skops")
    (tmp_path / "x.skops").write_bytes(b"x")
    with pytest.raises(InputError, match="not a complete gramless model file"):
        load_scorer(tmp_path / "x.skops")
