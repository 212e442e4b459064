"""A training table, and servers in a thread of this process or as a command."""

import os
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pandas as pd


def plants(n=200, seed=0):
    """Return a table of three kinds of plants with numbers, a category, a date, missing values and a weight."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, n)
    frame = pd.DataFrame(
        {
            "height (m)": kind * 2.0 + rng.normal(size=n) * 0.6,
            "leaves": kind * 10 + rng.integers(0, 8, n),
            "soil": np.array(["sand", "clay", "loam"])[np.where(rng.random(n) < 0.8, kind, rng.integers(0, 3, n))],
            "planted": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
            "kind": np.array(["ash", "birch", "cedar"])[kind],
            "weight": 3.0 * kind + rng.normal(size=n) * 0.1 + 10,
        }
    )
    frame.loc[rng.random(n) < 0.05, "height (m)"] = np.nan
    frame.loc[rng.random(n) < 0.05, "soil"] = None
    return frame


@contextmanager
def running(app, limits=None):
    """Serve an application on a free port in a thread and yield its address."""
    import uvicorn

    from gramless.deployment.serving.server import protocol_with_header_timeout
    from gramless.deployment.tuning import Limits

    limits = Limits() if limits is None else limits
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    # On a busy computer, the default of 5 s closes connections that a client is about to use again.
    timeouts = {"timeout_keep_alive": 60, "timeout_graceful_shutdown": 10}
    config = uvicorn.Config(app, log_level="error", http=protocol_with_header_timeout(limits), **timeouts)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()


@contextmanager
def command(*arguments, **environment):
    """Run `gramless serve` as a process and yield the process and its address."""
    call = [sys.executable, "-m", "gramless", "serve", *map(str, arguments)]
    if "--port" not in call:
        call += ["--port", "0"]
    process = subprocess.Popen(
        call, env={**os.environ, "COLUMNS": "200", **environment}, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        printed = ""
        while (found := re.search(r"http://[\w.:\[\]]+:\d+", printed)) is None:
            line = process.stderr.readline()
            assert line, printed
            printed += line
        yield process, found[0]
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stderr.close()
        process.stdout.close()
