"""FastAPI application that serves models over HTTP.

    POST /predict                 predictions, probabilities or intervals of the first model for rows in JSON or CSV
    GET  /schema                  the columns of the first model
    POST /models/NAME/predict     predictions of the model with this name; also GET /models/NAME/schema
    GET  /models, /healthz, /metrics, /openapi.json
    GET  /                        a page with an input form for the columns
    GET  /docs                    a page that lists the routes and their fields, from /openapi.json

Every error is answered with a 4xx or 5xx status and a JSON object with the reason under "error".
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect

from gramless._version import __version__
from gramless.deployment.serving.metrics import Metrics, MetricsMiddleware
from gramless.deployment.serving.models import LoadScorer, ModelStore, ServedModel
from gramless.deployment.serving.requests import CSV, JSON, BodyReader
from gramless.deployment.serving.scorer import RequestError, Scores, effects_of_columns, row_count, with_typical_values
from gramless.deployment.serving.server import AccessMiddleware, error_response, page
from gramless.deployment.tuning import LIMITS, Limits

_CLIENT_CLOSED_REQUEST = 499  # status in the metrics of a request whose client has disconnected


class ErrorResponse(BaseModel):
    """Reason why a request failed."""

    error: str


class HealthResponse(BaseModel):
    """State of the server and the names of its models."""

    status: str
    models: list[str]


class ColumnEffect(BaseModel):
    """Change of a prediction caused by the difference between a column's value and its typical value."""

    column: str
    change: float


class UnusualValue(BaseModel):
    """Column of a row whose value is outside of the training range or is a category that training did not have."""

    column: str
    reason: Literal["out of range", "unseen category"]


class PredictionResponse(BaseModel):
    """Predictions for the rows of a request; `classes` has the order of the probabilities of each row."""

    model: str
    predictions: list[Any]
    classes: list[Any] | None = None
    probabilities: list[list[float]] | None = None
    intervals: list[tuple[float, float]] | None = None
    novel: list[bool] | None = None
    unusual: list[list[UnusualValue]] | None = None
    moved: list[list[ColumnEffect]] | None = None


_PREDICTION_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": description}
    for status, description in {
        400: "The body cannot be parsed.",
        401: "The token is missing or wrong.",
        403: "A page of another origin sent the request.",
        404: "There is no model with this name.",
        408: "The body was not sent in time.",
        413: "The body has too many bytes or rows.",
        415: "The media type is not supported.",
        422: "A row lacks a column, or a value has the wrong type.",
        503: "Too many rows are waiting, or the server is stopping.",
        504: "The prediction took too long.",
    }.items()
}


def scoring_app(
    files: dict[str, Path],
    load: LoadScorer,
    *,
    limits: Limits = LIMITS,
    token: str | None = None,
    hosts: list[str] | None = None,
    watch_seconds: float | None = None,
) -> FastAPI:
    """Return an application that serves model files by name; `/predict` and `/schema` use the first model.

    With a `token`, all routes except `/`, `/docs` and `/healthz` require the header `Authorization: Bearer TOKEN`. Requests
    must use one of `hosts` as host name (default: the names of the loopback interface; `["*"]` allows any name). Every
    `watch_seconds`, changed files are loaded again; the signal SIGHUP loads all files again.
    """
    metrics, reader = Metrics(), BodyReader(limits)
    models = ModelStore(files, load, limits, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            with suppress(NotImplementedError, RuntimeError, ValueError, AttributeError):
                # Signal handlers can be added only in the main thread, and not on Windows.
                loop = asyncio.get_running_loop()
                loop.add_signal_handler(signal.SIGHUP, lambda: tasks.create_task(models.reload()))
            watching = tasks.create_task(models.reload_changed_files(watch_seconds))
            yield
            watching.cancel()

    app = FastAPI(
        title="gramless",
        version=__version__,
        description="Predictions of fitted models.",
        openapi_url=None,  # a route below returns the schema, which includes the columns of the models
        lifespan=lifespan,
        middleware=[
            Middleware(MetricsMiddleware, metrics=metrics),
            Middleware(AccessMiddleware, hosts=hosts, token=token),
        ],
        exception_handlers=dict.fromkeys((RequestError, HTTPException, ClientDisconnect, Exception), _on_exception),
    )
    app.router.route_class = _RequestRoute
    prediction: dict[str, Any] = {"response_model": PredictionResponse, "responses": _PREDICTION_RESPONSES}

    # The OpenAPI document lists the routes in the order of registration; of two decorators, the lower one registers first.
    @app.post("/models/{name}/predict", summary="Predictions of a model", **prediction)
    @app.post("/predict", summary="Predictions of the first model", **prediction)
    async def predict(request: Request) -> Response:
        return await _predict(request, models.get(request.path_params.get("name")), reader, limits)

    @app.get("/models/{name}/schema", summary="Columns of a model")
    @app.get("/schema", summary="Columns of the first model")
    async def schema(request: Request) -> JSONResponse:
        return JSONResponse(models.get(request.path_params.get("name")).as_json())

    @app.get("/models", summary="Names of the models")
    async def list_models(_: Request) -> JSONResponse:
        return JSONResponse({"models": models.names})

    @app.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
    async def read_metrics(_: Request) -> Response:
        return Response(generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    @app.get("/healthz", summary="State of the server", response_model=HealthResponse)
    async def health(_: Request) -> JSONResponse:
        return JSONResponse({"status": "ok", "models": models.names})

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi(_: Request) -> JSONResponse:
        return JSONResponse(_openapi(app, models, with_token=token is not None))

    app.get("/", include_in_schema=False)(page("scoring.html"))
    app.get("/docs", include_in_schema=False)(page("docs.html"))
    return app


class _RequestRoute(APIRoute):
    """Route that calls its endpoint with the request only: without dependency injection, a request takes 20 us less."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return self.endpoint


def _openapi(app: FastAPI, models: ModelStore, *, with_token: bool) -> dict[str, Any]:
    """Return the OpenAPI document, in which the request body of each route for predictions has the columns of its model."""
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    paths = document["paths"]
    templates = {kind: paths.pop(f"/models/{{name}}/{kind}") for kind in ("predict", "schema")}
    for name in models.names:
        for kind, template in templates.items():
            paths[f"/models/{name}/{kind}"] = {
                method: {**operation, "operationId": f"{kind}_{name}"} for method, operation in template.items()
            }
    by_path = {"/predict": models.get(None)} | {f"/models/{name}/predict": models.get(name) for name in models.names}
    for path, model in by_path.items():
        content = {JSON: {"schema": model.rows.json_schema()}, CSV: {"schema": {"type": "string"}}}
        paths[path]["post"]["requestBody"] = {"required": True, "content": content}
    if with_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


async def _on_exception(request: Request, reason: Exception) -> Response:
    """Return an error response, with a status and the reason, for a request that raised an exception."""
    if isinstance(reason, RequestError):
        return error_response(reason.status, str(reason))
    if isinstance(reason, HTTPException):
        error = f"{request.method} {request.url.path[:80]}: {reason.detail}"
        return error_response(reason.status_code, error, reason.headers)
    if isinstance(reason, ClientDisconnect):
        return Response(status_code=_CLIENT_CLOSED_REQUEST)
    return error_response(500, "the server failed on this request; the reason is in its log")


async def _predict(request: Request, model: ServedModel, reader: BodyReader, limits: Limits) -> Response:
    """Return the response to a request for predictions."""
    table, explain = await reader.read(request, model.rows)
    n = row_count(table)
    if explain:
        if n > limits.explained_rows:
            raise RequestError(413, f"explain accepts at most {limits.explained_rows} rows, and this request has {n:,}")
        table, varied = with_typical_values(table, model.scorer.columns)
    try:
        async with asyncio.timeout(limits.seconds):
            scores = await model.batcher.submit(table)
    except TimeoutError:
        raise RequestError(504, f"the prediction took more than {limits.seconds:g} seconds") from None
    effects = None
    if explain:
        effects = effects_of_columns(model.scorer.task, scores, varied, n)
        scores = scores.rows(0, n)
    if CSV in request.headers.get("accept", ""):
        return Response(await asyncio.to_thread(_as_csv, model.scorer.classes, scores), media_type=CSV)
    classes = None if scores.probabilities is None else model.scorer.classes
    content = {"model": model.name, "classes": classes, **vars(scores), "moved": effects}
    known = {key: value for key, value in content.items() if value is not None}
    return Response(to_json(known, inf_nan_mode="null", fallback=np.ndarray.tolist), media_type=JSON)


def _as_csv(classes: list[Any] | None, scores: Scores) -> str:
    """Return scores as CSV with the column names of `gramless predict`."""
    columns: dict[str, np.ndarray] = {"prediction": scores.predictions}
    if scores.probabilities is not None:
        columns |= {f"p({label})": column for label, column in zip(classes or [], scores.probabilities.T, strict=True)}
    if scores.intervals is not None:
        columns |= {"low": scores.intervals[:, 0], "high": scores.intervals[:, 1]}
    if scores.novel is not None:
        columns["novel"] = scores.novel
    return pd.DataFrame(columns).to_csv(index=False)
