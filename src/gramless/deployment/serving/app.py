"""Models over HTTP: an ASGI application with predictions, their schema, a page, health and figures.

    POST /predict                 rows as JSON, CSV or Arrow; predictions, probabilities or intervals
    GET  /schema                  the columns of the model
    POST /models/NAME/predict     the same for a model by its name, and GET /models/NAME/schema
    GET  /models, /healthz, /metrics, /openapi.json
    GET  /                        a form made from the columns

Each thing that is wrong with a request is answered by a 4xx and a sentence under "error".
"""

from __future__ import annotations

import asyncio
import csv
import hmac
import io
import json
import logging
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from gramless.deployment.serving.bodies import ARROW_STREAM, CSV, JSON, read_table
from gramless.deployment.serving.limits import Limits
from gramless.deployment.serving.metrics import Metrics
from gramless.deployment.serving.models import Load, Models, Served
from gramless.deployment.serving.openapi import openapi
from gramless.deployment.serving.scorer import RequestError, Scores, moved_by, row_count, with_typical
from gramless.deployment.serving.server import HOSTS, PAGE_HEADERS

# Bodies up to this size are parsed at once; larger ones in a thread, so that others are answered meanwhile.
_SMALL = 16 * 1024
_GONE = 499  # what is counted for a client that left; nobody reads the answer

_JSON = json.JSONEncoder(allow_nan=False)  # made once: `json.dumps` would make one for each answer
_log = logging.getLogger("gramless.deployment.serving")

Answer = Callable[[Request], Awaitable[Response]]


def scoring_app(
    files: dict[str, Path],
    load: Load,
    *,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: list[str] | None = None,
    watch_seconds: float | None = None,
) -> Starlette:
    """An ASGI application that serves models.

    Parameters
    ----------
    files : dict of str to Path
        Model files by name; the first is what `/predict` means.
    load : callable(Path) -> Scorer
        Reads one of them.
    limits : Limits, optional
        What is refused; the defaults of `Limits` where none are given.
    token : str, optional
        Requests must then carry it as `Authorization: Bearer TOKEN`; the page and `/healthz` are open.
    hosts : list of str, optional
        Names that requests may call this server by; this machine's own by default, `["*"]` for any.
    watch_seconds : float, optional
        Look so often whether a file was replaced, and load it again. A hang-up signal (SIGHUP) has all of them loaded again.

    Returns
    -------
    Starlette
        For uvicorn, or any other ASGI server.

    See Also
    --------
    serve : Runs an application on this machine.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import gramless
    >>> from gramless.cli.serve import load_scorer
    >>> from gramless.deployment.serving import scoring_app
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "sign.skops"
    ...     gramless.save(gramless.LSSVC().fit([[-1.0], [1.0]], [0, 1]), path)
    ...     app = scoring_app({"sign": path}, load_scorer)
    >>> "/predict" in {route.path for route in app.routes}
    True
    """
    limits = Limits() if limits is None else limits
    metrics = Metrics()
    models = Models(files, load, limits, metrics)
    metrics.watch_waiting(lambda: models.waiting)
    page = resources.files("gramless.deployment.serving").joinpath("scoring.html").read_text(encoding="utf-8")

    def route(path: str, answer: Answer, *, method: str = "GET", is_open: bool = False) -> Route:
        async def answered(request: Request) -> Response:
            began = time.perf_counter()
            response = await _answer(request, answer, None if is_open else token)
            metrics.request(path, response.status_code, time.perf_counter() - began)
            return response

        return Route(path, answered, methods=[method])

    async def show(request: Request) -> Response:
        return HTMLResponse(page, headers=PAGE_HEADERS)

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok", "models": models.names})

    async def figures(request: Request) -> Response:
        text, kind = metrics.text()
        return Response(text, headers={"Content-Type": kind})

    async def listing(request: Request) -> Response:
        return JSONResponse({"models": models.names})

    async def schema(request: Request) -> Response:
        return JSONResponse(models.get(request.path_params.get("name")).as_json())

    async def document(request: Request) -> Response:
        return JSONResponse(openapi(models, with_token=token is not None))

    async def predict(request: Request) -> Response:
        return await _predict(request, models.get(request.path_params.get("name")), limits)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()

        def reload() -> None:
            task = asyncio.create_task(_reload(models))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        with suppress(NotImplementedError, RuntimeError, ValueError, AttributeError):
            # Neither Windows nor a thread other than the first one has this.
            loop.add_signal_handler(signal.SIGHUP, reload)
        if watch_seconds is not None:
            tasks.add(asyncio.create_task(_watch(models, watch_seconds)))
        yield
        for task in tasks:
            task.cancel()
        await models.close()

    routes = [
        route("/predict", predict, method="POST"),  # first, since routes are tried in this order
        route("/", show, is_open=True),
        route("/healthz", health, is_open=True),
        route("/metrics", figures),
        route("/models", listing),
        route("/openapi.json", document),
        route("/schema", schema),
        route("/models/{name}/predict", predict, method="POST"),
        route("/models/{name}/schema", schema),
    ]
    allowed = Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS if hosts is None else hosts)
    return Starlette(
        routes=routes, middleware=[allowed], lifespan=lifespan, exception_handlers={404: _no_page, 405: _no_page}
    )


async def _no_page(request: Request, reason: Exception) -> Response:
    status = getattr(reason, "status_code", 404)
    path = request.url.path[:80]
    told = f"there is no page {path}" if status == 404 else f"{path} does not take {request.method}"
    return JSONResponse({"error": told}, status_code=status, headers=getattr(reason, "headers", None))


async def _answer(request: Request, answer: Answer, token: str | None) -> Response:
    """The answer to a request, or a sentence why there is none."""
    try:
        if token is not None and not _has_token(request, token):
            raise RequestError(401, "this server wants a token: send the header Authorization: Bearer TOKEN")
        return await answer(request)
    except RequestError as reason:
        headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}, 408: {"Connection": "close"}}
        return JSONResponse({"error": str(reason)}, status_code=reason.status, headers=headers.get(reason.status))
    except ClientDisconnect:
        return Response(status_code=_GONE)
    except Exception:
        _log.exception("%s %s", request.method, request.url.path)
        return JSONResponse({"error": "the server failed on this request, and has written down why"}, status_code=500)


def _has_token(request: Request, token: str) -> bool:
    kind, _, sent = request.headers.get("authorization", "").partition(" ")
    return kind.lower() == "bearer" and hmac.compare_digest(sent.strip().encode(), token.encode())


async def _predict(request: Request, served: Served, limits: Limits) -> Response:
    kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    body = await _body(request, limits)
    scorer = served.scorer
    if len(body) <= _SMALL:
        table, asked = read_table(kind, body, scorer.columns, limits.rows)
    else:
        table, asked = await asyncio.to_thread(read_table, kind, body, scorer.columns, limits.rows)
    n = row_count(table)
    explain = asked.get("explain", False)
    if not isinstance(explain, bool):
        raise RequestError(422, "explain is true or false")
    if explain and n > limits.explained_rows:
        raise RequestError(413, f"explain is for up to {limits.explained_rows} rows at a time, and these are {n:,}")
    if explain:
        table, varied = with_typical(table, scorer.columns)
    try:
        async with asyncio.timeout(limits.seconds):
            scores = await served.batches.submit(table)
    except TimeoutError:
        raise RequestError(504, f"there was no answer within {limits.seconds:g} seconds") from None
    moved = None
    if explain:
        changes = moved_by(scores, varied, n, scorer.classes)
        moved = [[{"column": name, "change": change} for name, change in one.changes] for one in changes]
        scores = scores.rows(0, n)
    accept = request.headers.get("accept", "")
    if CSV in accept or ARROW_STREAM in accept:
        return await asyncio.to_thread(_as_table, served, scores, ARROW_STREAM in accept)
    answer: dict[str, Any] = {"model": served.name, "predictions": scores.predictions.tolist()}
    if scores.probabilities is not None:
        answer |= {"classes": scorer.classes, "probabilities": scores.probabilities.tolist()}
    if scores.intervals is not None:
        answer["intervals"] = scores.intervals.tolist()
    if scores.novel is not None:
        answer["novel"] = scores.novel.tolist()
    if moved is not None:
        answer["moved"] = moved
    return Response(_JSON.encode(answer), media_type=JSON)


async def _body(request: Request, limits: Limits) -> bytes:
    """The whole body, within its bounds of size and time."""
    announced = request.headers.get("content-length", "0")
    most = limits.body_bytes
    if not announced.isdigit() or int(announced) > most:
        raise RequestError(413, f"a body may have {most:,} bytes, and this one has {announced[:30]}: send it in parts")
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.reading_seconds):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise RequestError(413, f"a body may have {most:,} bytes, and this one has more: send it in parts")
                parts.append(part)
    except TimeoutError:
        raise RequestError(408, f"the body was not there within {limits.reading_seconds:g} seconds") from None
    return b"".join(parts)


def _as_table(served: Served, scores: Scores, arrow: bool) -> Response:
    """Predictions as columns, with the names that `gramless predict` gives them."""
    columns: dict[str, np.ndarray] = {"prediction": scores.predictions}
    if scores.probabilities is not None:
        named = zip(served.scorer.classes or [], scores.probabilities.T, strict=True)
        columns |= {f"p({label})": chances for label, chances in named}
    if scores.intervals is not None:
        columns |= {"low": scores.intervals[:, 0], "high": scores.intervals[:, 1]}
    if scores.novel is not None:
        columns["novel"] = scores.novel
    if arrow:
        import pyarrow as pa

        table = pa.table({name: pa.array(values.tolist()) for name, values in columns.items()})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return Response(sink.getvalue().to_pybytes(), media_type=ARROW_STREAM)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    return Response(text.getvalue(), media_type=CSV)


async def _reload(models: Models, *, changed_only: bool = False) -> None:
    for name, outcome in (await models.reload(changed_only=changed_only)).items():
        if outcome == "loaded":
            _log.warning("%s was loaded again", name)
        else:
            _log.error("%s stays as it was, since its new file cannot be used: %s", name, outcome)


async def _watch(models: Models, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        await _reload(models, changed_only=True)
