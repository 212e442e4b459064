"""The interface of a server in OpenAPI, made from the columns of its models."""

from __future__ import annotations

from typing import Any

from gramless._version import __version__
from gramless.deployment.serving.bodies import ARROW_FILE, ARROW_STREAM
from gramless.deployment.serving.models import Models, Served
from gramless.deployment.serving.scorer import Column

_REFUSALS = {
    "400": "The body cannot be read.",
    "401": "The token is missing or wrong.",
    "408": "The body came too slowly.",
    "413": "Too many bytes or rows.",
    "415": "A body of another type.",
    "422": "A row lacks a column, or a value is of the wrong kind.",
    "503": "Too many rows wait already, or the server is stopping.",
    "504": "The answer would come too late.",
}


def openapi(models: Models, *, with_token: bool) -> dict[str, Any]:
    """What the server understands, in the form of OpenAPI.

    Parameters
    ----------
    models : Models
    with_token : bool
        Whether requests need a token.

    Returns
    -------
    dict
        Plain JSON.
    """
    paths: dict[str, Any] = {
        "/healthz": {"get": _get("Whether the server answers, and its models.")},
        "/metrics": {"get": _get("Figures for Prometheus.", "text/plain")},
        "/models": {"get": _get("The names of all models.")},
        "/predict": {"post": _predict(models.get(None))},
        "/schema": {"get": _get("The columns of the first model.")},
    }
    for name in models.names:
        paths[f"/models/{name}/predict"] = {"post": _predict(models.get(name))}
        paths[f"/models/{name}/schema"] = {"get": _get(f"The columns of {name}.")}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "gramless", "version": __version__, "description": "Predictions of fitted models."},
        "paths": paths,
    }
    if with_token:
        document["components"] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        document["security"] = [{"token": []}]
    return document


def _get(summary: str, kind: str = "application/json") -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": {"description": "Found.", "content": {kind: {}}}}}


def _predict(served: Served) -> dict[str, Any]:
    scorer = served.scorer
    row = {
        "type": "object",
        "required": [column.name for column in scorer.columns],
        "properties": {column.name: _property(column) for column in scorer.columns},
    }
    asked = {
        "type": "object",
        "required": ["rows"],
        "properties": {
            "rows": {"type": "array", "minItems": 1, "items": row},
            "explain": {"type": "boolean", "description": "Also which inputs moved each prediction."},
        },
    }
    value: dict[str, Any] = {"type": "number"} if scorer.classes is None else {"enum": scorer.classes}
    numbers = {"type": "array", "items": {"type": "number"}}
    answered = {
        "type": "object",
        "required": ["model", "predictions"],
        "properties": {
            "model": {"type": "string"},
            "predictions": {"type": "array", "items": value},
            "classes": {"type": "array", "description": "In the order of the probabilities."},
            "probabilities": {"type": "array", "items": numbers},
            "intervals": {"type": "array", "items": numbers},
            "novel": {"type": "array", "items": {"type": "boolean"}},
            "moved": {"type": "array", "items": {"type": "array"}},
        },
    }
    texts = {"text/csv": {"schema": {"type": "string"}}}
    binary = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in (ARROW_STREAM, ARROW_FILE)}
    sentence = {"application/json": {"schema": {"type": "object", "properties": {"error": {"type": "string"}}}}}
    refusals = {status: {"description": why, "content": sentence} for status, why in _REFUSALS.items()}
    return {
        "summary": f"Predictions of {served.name}.",
        "requestBody": {"required": True, "content": {"application/json": {"schema": asked}, **texts, **binary}},
        "responses": {
            "200": {"description": "One prediction for each row.", "content": {"application/json": {"schema": answered}}},
            **refusals,
        },
    }


def _property(column: Column) -> dict[str, Any]:
    kind = {"number": "number", "word": "string", "date": "string"}[column.kind]
    found: dict[str, Any] = {"type": [kind, "null"] if column.gaps else kind}
    if column.kind == "date":
        found["format"] = "date-time"
    if column.typical is not None:
        found["examples"] = [column.typical]
    if column.levels:
        found["description"] = "Known: " + ", ".join(column.levels[:20]) + (" and others" if len(column.levels) > 20 else "")
    elif column.low is not None:
        found["description"] = f"Training saw {column.low} to {column.high}."
    return found
