"""The drawing page: its HTTP responses, and drawing with mouse and touch in a browser."""

import os
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from running_servers import running
from sklearn.datasets import load_digits

from gramless import ImageClassifier
from gramless.deployment.serving.drawing import centred, drawing_app

testclient = pytest.importorskip("starlette.testclient", reason="the extra serve is not installed")


@pytest.fixture(scope="module")
def app():
    data = load_digits()
    settings = {"n_atoms": 32, "C": 10.0, "mirror": False, "n_components": 200, "random_state": 0}
    return drawing_app(ImageClassifier(**settings).fit(data.images * (255 / 16), data.target))


@pytest.fixture
def client(app):
    with testclient.TestClient(app, base_url="http://localhost") as found:
        yield found


def stroke():
    drawing = np.zeros((112, 112))
    drawing[20:90, 52:62] = 255
    return drawing


def test_page_and_scores(client):
    page = client.get("/")
    assert page.status_code == 200
    assert "Draw a digit" in page.text
    response = client.post("/scores", json={"drawing": stroke().tolist()})
    assert response.status_code == 200
    chances = dict(response.json()["chances"])
    assert sorted(chances) == [str(digit) for digit in range(10)]
    assert sum(chances.values()) == pytest.approx(1)
    assert max(chances, key=chances.get) == "1"


def test_empty_drawing_has_no_scores(client):
    assert client.post("/scores", json={"drawing": np.zeros((5, 5)).tolist()}).json() == {"chances": None}


@pytest.mark.parametrize(
    "body",
    [
        b"no json",
        b"[]",
        b'{"drawing": "x"}',
        b'{"drawing": [[1, 2], [3]]}',
        b'{"drawing": []}',
        b'{"drawing": [[300]]}',
        b'{"drawing": [[-1]]}',
        b'{"drawing": [[NaN]]}',
        b'{"drawing": [[' + b"0," * 600 + b"0]]}",
    ],
    ids=lambda body: body[:24].decode(),
)
def test_invalid_drawings_give_the_reason(client, body):
    response = client.post("/scores", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]


def test_requests_with_another_host_name_are_rejected(client):
    assert client.get("/", headers={"host": "example.org"}).status_code == 400


@pytest.mark.parametrize(("height", "width"), [(70, 10), (10, 70), (3, 3), (112, 112), (1, 1)])
def test_drawings_are_centred_and_keep_their_proportions(height, width):
    drawing = np.zeros((112, 112))
    drawing[:height, 112 - width :] = 200
    image = centred(drawing, 28)
    rows, columns = np.flatnonzero(image.any(axis=1)), np.flatnonzero(image.any(axis=0))
    assert max(len(rows), len(columns)) == 20
    assert len(rows) == pytest.approx(20 * height / max(height, width), abs=1)
    assert image.max() == pytest.approx(200)
    assert abs(rows.mean() - 13.5) <= 0.5
    assert abs(columns.mean() - 13.5) <= 0.5


@pytest.fixture
def address(app):
    """Serve the application on the loopback interface, in a thread."""
    with running(app) as found:
        yield found


@pytest.mark.parametrize("touch", [False, True], ids=["mouse", "finger"])
def test_vertical_stroke_is_recognised_as_one(browser, address, touch):
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=touch)
    page = context.new_page()
    messages, requests = [], []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda wanted: requests.append(wanted.url))
    page.goto(address)
    box = page.locator("canvas").bounding_box()
    x, top, bottom = box["x"] + box["width"] / 2, box["y"] + 0.15 * box["height"], box["y"] + 0.85 * box["height"]
    if touch:
        session = context.new_cdp_session(page)
        for kind, y in (("touchStart", top), ("touchMove", (top + bottom) / 2), ("touchMove", bottom), ("touchEnd", None)):
            points = [] if y is None else [{"x": x, "y": y}]
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    else:
        page.mouse.move(x, top)
        page.mouse.down()
        page.mouse.move(x, bottom, steps=8)
        page.mouse.up()
    page.get_by_text("This looks like 1.").wait_for(timeout=30_000)
    assert page.locator("#scores li").count() == 10
    assert page.locator("#scores li.best span").inner_text() == "1"
    page.get_by_role("button", name="Clear").click()
    assert page.locator("#scores li").count() == 0
    assert messages == []
    assert all(url.startswith((address, "data:")) for url in requests)
    context.close()


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is a signal")
def test_command_serves_loopback_only_and_stops_on_sigint(tmp_path):
    environment = {**os.environ, "GRAMLESS_DATA": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "COLUMNS": "200"}
    command = [sys.executable, "-m", "gramless", "demo", "--port", "0"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        printed = ""
        while "Draw at" not in printed:
            line = process.stdout.readline()
            assert line, printed
            printed += line
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)", printed)[1])
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                break
            except OSError:
                assert time.monotonic() < deadline
        elsewhere = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {"127.0.0.1"}
        for other in elsewhere:
            if not other.startswith("127."):
                with pytest.raises(OSError):
                    socket.create_connection((other, port), timeout=5)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


def test_error_for_port_in_use_has_the_port():
    from rich.console import Console

    from gramless.cli.errors import InputError
    from gramless.cli.options import DemoSettings
    from gramless.cli.serve import demo

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port}"):
            demo(DemoSettings(port), Console(quiet=True), rows=100, atoms=8)
