"""Load test of `gramless serve` over the loopback interface: single rows with 1, 8 and 64 clients, batches, memory.

    python benchmarks/serve.py [--requests 20000] [--long 100000] [--out benchmarks/results/serve.json]

A model of 2,000 rows and 20 columns is trained and served by its own process. Each client waits for its answer before
it sends the next request. Every answer is compared with the prediction in Python; an error, a lost request or a wrong
answer ends the run. Clients and server share the cores of one computer, so wall-clock seconds depend on other programs;
CPU seconds of the server and of the clients, which are one process, depend on them less.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import uvloop
from rich.console import Console

import gramless
from gramless.cli.options import TrainSettings
from gramless.cli.train import train
from gramless.papers.experiments.environment import environment

CLIENTS = (1, 8, 64)
BATCH = 1000


def make_table(n: int, seed: int = 0) -> pd.DataFrame:
    """Return eighteen numbers and two categories that determine the class of a row."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 18))
    frame = pd.DataFrame(X, columns=[f"number {k}" for k in range(18)])
    frame["city"] = rng.choice(["Basel", "Bern", "Genf", "Zug"], n)
    frame["sort"] = rng.choice(["a", "b", "c"], n)
    score = X[:, 0] + np.sin(2 * X[:, 1]) + (frame["city"] == "Bern") - (frame["sort"] == "a")
    frame["answer"] = np.where(score + 0.3 * rng.normal(size=n) > 0, "yes", "no")
    return frame


class Client:
    """Persistent connection with a minimal HTTP client, so that the load generator costs little."""

    def __init__(self, port: int):
        self.port = port

    async def __aenter__(self) -> Client:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def ask(self, request: bytes) -> dict:
        """Send a request and read its answer."""
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1])
        body = await self.reader.readexactly(length)
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise RuntimeError(f"{head!r} {body[:200]!r}")
        return json.loads(body)


def request_of(rows: list[dict]) -> bytes:
    """Return the bytes of a POST request."""
    body = json.dumps({"rows": rows}).encode()
    head = (
        f"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def used(process: psutil.Process) -> float:
    """Return the CPU seconds of a process so far."""
    times = process.cpu_times()
    return times.user + times.system


async def load(
    port: int, server: psutil.Process, clients: int, count: int, requests: list[tuple[bytes, list]]
) -> dict[str, float]:
    """`count` requests by some clients at once: latencies and processor time in milliseconds, and rows per second."""
    left = iter(range(count))
    seconds: list[float] = []
    rows = 0

    async def one(client: Client) -> None:
        nonlocal rows
        for number in left:
            request, expected = requests[number % len(requests)]
            began = time.perf_counter()
            answer = await client.ask(request)
            seconds.append(time.perf_counter() - began)
            if answer["predictions"] != expected:
                raise RuntimeError("an answer differs from the model's own")
            rows += len(expected)

    async with AsyncExitStack() as stack:
        connected = [await stack.enter_async_context(Client(port)) for _ in range(clients)]
        before, own, began = used(server), time.process_time(), time.perf_counter()
        await asyncio.gather(*map(one, connected))
        wall = time.perf_counter() - began
    p50, p99 = 1000 * np.quantile(seconds, [0.5, 0.99])
    return {
        "clients": clients,
        "requests": len(seconds),
        "p50_ms": round(float(p50), 3),
        "p99_ms": round(float(p99), 3),
        "rows_per_second": round(rows / wall),
        "server_cpu_ms_per_request": round(1000 * (used(server) - before) / count, 3),
        "client_cpu_ms_per_request": round(1000 * (time.process_time() - own) / count, 3),
    }


def main() -> None:
    """Train, serve, send requests, print and write the records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000, help="single rows at each number of clients")
    parser.add_argument("--long", type=int, default=100_000, help="requests over which memory is watched")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "serve.json")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data, path = Path(folder, "table.csv"), Path(folder, "model.skops")
        make_table(2000).to_csv(data, index=False)
        train(TrainSettings(data, "answer", path, time=1.0), Console(quiet=True))
        some = make_table(BATCH, seed=1).drop(columns="answer")
        model = gramless.load(path)
        expected = model.pipeline.predict(model.ready(some, "rows")).tolist()
        records = some.to_dict(orient="records")
        singles = [(request_of([row]), [label]) for row, label in zip(records, expected, strict=True)]
        batch = [(request_of(records), expected)]
        command = [sys.executable, "-m", "gramless", "serve", str(path), "--port", "0"]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"})
        try:
            port = int(re.search(r":(\d+);", server.stderr.readline())[1])
            results = uvloop.run(measure(port, server.pid, asked, singles, batch))
        finally:
            server.terminate()
            ended = server.wait(60)
    results["exit_code"] = ended
    results["load_average"] = os.getloadavg()[0]
    results["environment"] = environment()
    results["points"] = sum(len(part) for member in model.pipeline[-1].members_ for part in member.points)
    asked.out.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


async def measure(port: int, pid: int, asked: argparse.Namespace, singles: list, batch: list) -> dict[str, object]:
    """All loads, one after the other."""
    process = psutil.Process(pid)
    for _ in range(600):  # Wait until the server listens.
        try:
            await load(port, process, 1, 50, singles)
            break
        except OSError:
            await asyncio.sleep(0.1)
    single = [await load(port, process, clients, asked.requests, singles) for clients in CLIENTS]
    batches = [await load(port, process, clients, 100, batch) for clients in (1, 8)]
    memory = [process.memory_info().rss / 2**20]
    steps = 10
    for _ in range(steps):
        await load(port, process, 8, asked.long // steps, singles)
        memory.append(process.memory_info().rss / 2**20)
    return {
        "single_rows": single,
        f"batches_of_{BATCH}": batches,
        "memory": {"requests": asked.long, "mb": [round(value, 1) for value in memory]},
    }


if __name__ == "__main__":
    main()
