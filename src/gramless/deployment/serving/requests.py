"""Reading of request bodies within size limits, and conversion of their rows, in JSON or CSV, to a table of arrays.

The columns of a model define a pydantic type, which validates the rows and describes them in the OpenAPI document. The
memory for the bodies of all requests is bounded, and large bodies are parsed one at a time, because the Python objects that
are parsed from a body of 16 MB can take 400 MB.
"""

from __future__ import annotations

import asyncio
import codecs
import csv
import io
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal, NotRequired

import numpy as np
from fastapi import Request
from pydantic import AfterValidator, BeforeValidator, FailFast, Field, StrictBool, StrictFloat, StrictInt, TypeAdapter
from pydantic import ValidationError as PydanticError
from pydantic_core import from_json
from typing_extensions import TypedDict

from gramless._core.missing_text import ALWAYS_MISSING, MISSING_NUMBERS
from gramless.deployment.serving.scorer import InputColumn, RequestError, Table
from gramless.deployment.tuning import Limits
from gramless.tables.column_types import parsed_date, plain_number

JSON, CSV = "application/json", "text/csv"
# Upper bound on numbers in a request: the sum of the squares of a million numbers of this size does not overflow in float64.
LARGEST = float(np.sqrt(np.finfo(np.float64).max)) / 2**20
_LISTED_NAMES = 10
_SHOWN_CHARACTERS = 60


def _parse_date(value: Any, order: str) -> Any:
    """Return a date as a datetime without time zone, in UTC if the date has a time zone; `order` "" means ISO format."""
    if not isinstance(value, str):
        raise ValueError("not a string")
    if not order:
        datetime.fromisoformat(value)  # raises ValueError for strings in other formats
    moment = parsed_date(value, order)
    if moment is None:
        raise ValueError("not a date")
    return moment.astype(object)


# Strings that mean a missing value in columns of numbers and dates, as in CSV files. In columns of categories, only the
# strings in `ALWAYS_MISSING` mean a missing value.
_MissingString = Annotated[Literal[tuple(sorted((*ALWAYS_MISSING, *MISSING_NUMBERS)))], AfterValidator(lambda _: None)]  # type: ignore[valid-type]
_TYPES: dict[str, Any] = {
    "number": Annotated[float, Field(gt=-LARGEST, lt=LARGEST, allow_inf_nan=False)],
    "category": str | StrictBool | StrictInt | StrictFloat,
    "text": str,
    "date": datetime,
}
_DTYPES: dict[str, Any] = {"number": np.float64, "category": object, "text": object, "date": "datetime64[us]"}
# Examples of dates for error messages, by the date format of the column.
_DATES = {"": "2024-02-29 or 2024-02-29T12:00:00", "day first": "29.02.2024", "month first": "02/29/2024"}


class RequestRows:
    """Validator of requests to one model: the pydantic type of the body, and the conversion of valid rows to arrays."""

    def __init__(self, columns: Sequence[InputColumn], most_rows: int):
        self._columns = columns
        self._most_rows = most_rows
        typed_dict: Any = TypedDict  # mypy accepts TypedDict only with literal keys
        row = typed_dict("Row", {column.name: _cell_type(column) for column in columns})
        rows = Annotated[list[row], Field(min_length=1, max_length=most_rows), FailFast()]  # type: ignore[valid-type]
        explain = Annotated[StrictBool, Field(description="Also return the effect of each column on each prediction.")]
        self._body: TypeAdapter[Any] = TypeAdapter(typed_dict("Body", {"rows": rows, "explain": NotRequired[explain]}))

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema of request bodies."""
        schema = self._body.json_schema()
        schema["properties"]["rows"]["items"] = schema.pop("$defs")["Row"]
        return schema

    def read(self, media_type: str, body: bytes | bytearray) -> tuple[Table, bool]:
        """Return the rows of a body as a table, and whether the effects of the columns are requested."""
        if media_type == JSON:
            try:
                content = from_json(body.removeprefix(codecs.BOM_UTF8), allow_inf_nan=False)
            except ValueError as reason:
                raise RequestError(400, f"the body is not JSON: {reason}; write null for a missing value") from reason
        elif media_type == CSV:
            content = {"rows": self._parse_csv(body)}
        else:
            raise RequestError(415, f"the media type {_shown(media_type)} is not supported: send {JSON} or {CSV}")
        if isinstance(content, list):
            content = {"rows": content}
        try:
            valid = self._body.validate_python(content)
        except PydanticError as error:
            raise self._request_error(error) from None
        table: Table = {}
        for column in self._columns:
            values = [row[column.name] for row in valid["rows"]]
            if column.kind in ("category", "text"):
                values = [_category(value, column) for value in values]
            table[column.name] = np.array(values, dtype=_DTYPES[column.kind])  # None becomes NaN or NaT
        return table, valid.get("explain", False)

    def _parse_csv(self, body: bytes | bytearray) -> list[dict[str, str]]:
        try:
            reader = csv.reader(io.StringIO(body.decode("utf-8-sig"), newline=""), strict=True, skipinitialspace=True)
            header = next(reader, [])
            missing = [column.name for column in self._columns if column.name not in header]
            if missing:
                raise RequestError(422, f"the header lacks {_listed(missing)}")
            repeated = [column.name for column in self._columns if header.count(column.name) > 1]
            if repeated:
                raise RequestError(422, f"the header has {_listed(repeated)} more than once")
            rows: list[dict[str, str]] = []
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    raise RequestError(422, f"row {len(rows) + 1} has {len(cells)} cells, and the header has {len(header)}")
                rows.append(dict(zip(header, cells, strict=True)))
                if len(rows) > self._most_rows:
                    break  # the validation reports that there are too many rows
        except UnicodeDecodeError as reason:
            raise RequestError(400, f"the body is not text in UTF-8: {reason}") from reason
        except csv.Error as reason:
            raise RequestError(400, f"the body is not CSV: {reason}") from reason
        return rows

    def _request_error(self, error: PydanticError) -> RequestError:
        """Return the first validation error as a `RequestError` that names the row, the column and the value."""
        first = error.errors(include_url=False)[0]
        location, value = first["loc"], first["input"]
        if location == ("explain",):
            return RequestError(422, f"explain is {_shown(value)}: send true or false")
        if location == ("rows",) and first["type"] == "too_short":
            return RequestError(422, "there are no rows")
        if location == ("rows",) and first["type"] == "too_long":
            return RequestError(
                413, f"a request has at most {self._most_rows:,} rows, and this one has more: send it in parts"
            )
        if len(location) < 2:
            return RequestError(422, 'send an object with rows: {"rows": [{"column": value, ...}, ...]}')
        row = f"row {int(location[1]) + 1}"
        if len(location) == 2:
            return RequestError(422, f"{row} is {_shown(value)}, not an object with the columns of the model")
        if first["type"] == "missing":
            missing = [str(one["loc"][2]) for one in error.errors(include_url=False) if one["type"] == "missing"]
            return RequestError(422, f"{row} lacks {_listed(missing)}; send null for a missing value")
        column = next(column for column in self._columns if column.name == location[2])
        cell = f"{row}, column {_shown(column.name)}"
        if value is None or (value in (*ALWAYS_MISSING, *MISSING_NUMBERS) and not column.allows_missing):
            return RequestError(422, f"{cell}: the model needs a value here")
        too_large = isinstance(value, int) or first["type"] in ("finite_number", "greater_than", "less_than")
        example = f" such as {_DATES[column.format]}" if column.kind == "date" else ""
        expected = column.kind if column.kind in ("number", "date") else "string"
        problem = "is too large" if too_large else f"is not a {expected}{example}"
        return RequestError(422, f"{cell}: {_shown(value)} {problem}")


class BodyReader:
    """Reader of request bodies that bounds the total memory of the bodies of all requests to a server."""

    def __init__(self, limits: Limits):
        self._limits = limits
        self._bytes = 0  # bytes of all bodies that are being read or parsed
        self._parsing = asyncio.Lock()

    async def read(self, request: Request, rows: RequestRows) -> tuple[Table, bool]:
        """Return the rows of a request as a table, and whether the effects of the columns are requested."""
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.reading_seconds):
                await self._collect(request, body)
            media_type = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
            if len(body) <= self._limits.inline_parsing_bytes:
                return rows.read(media_type, body)
            async with self._parsing:
                return await asyncio.to_thread(rows.read, media_type, body)
        except TimeoutError:
            raise RequestError(408, f"the body was not sent within {self._limits.reading_seconds:g} seconds") from None
        finally:
            self._bytes -= len(body)

    async def _collect(self, request: Request, body: bytearray) -> None:
        """Read a request body; RequestError if this body, or the total size of all bodies, exceeds its limit."""
        most = self._limits.body_bytes
        too_large = RequestError(413, f"a body has at most {most:,} bytes, and this one has more: send it in parts")
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > most:
            raise too_large
        async for part in request.stream():
            if len(body) + len(part) > most:
                raise too_large
            if self._bytes + len(part) > self._limits.all_bodies_bytes:
                raise RequestError(503, "the bodies of other requests fill the memory for bodies: try again later")
            self._bytes += len(part)
            body += part


def _cell_type(column: InputColumn) -> Any:
    """Return the pydantic type of the cells of a column."""
    known = None
    if column.levels:
        shown = ", ".join(column.levels[:20]) + (", ..." if len(column.levels) > 20 else "")
        known = f"Categories of the training rows: {shown}"
    elif column.low is not None:
        ends = (column.low, column.high)
        low, high = (f"{end:.6g}" if column.kind == "number" else end.removesuffix("T00:00:00") for end in ends)
        known = f"Range of the training rows: {low} to {high}"
    about = Field(description=known, examples=None if column.typical is None else [column.typical])
    cell = _TYPES[column.kind]
    if column.kind == "date":
        cell = Annotated[cell, BeforeValidator(partial(_parse_date, order=column.format))]
    elif column.format:
        cell = Annotated[cell, BeforeValidator(partial(plain_number, form=column.format))]
    if column.kind == "text" or not column.allows_missing:
        return Annotated[cell | None if column.allows_missing else cell, about]
    cell = cell | None if column.kind == "category" else cell | _MissingString | None
    return Annotated[cell, Field(union_mode="left_to_right"), about]


def _category(value: Any, column: InputColumn) -> Any:
    """Return a category as in the training table: "True" or "False" for booleans, "3" for 3.0 unless "3.0" is a level."""
    if value is None or (isinstance(value, str) and value.strip() in ALWAYS_MISSING):
        return np.nan
    text = str(value)
    if text.lower() in ("true", "false"):
        return text.capitalize()
    if isinstance(value, float) and value.is_integer() and text not in column.levels:
        return str(int(value))
    return text


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _listed(names: Sequence[str]) -> str:
    listed = ", ".join(map(_shown, names[:_LISTED_NAMES]))
    more = f" and {len(names) - _LISTED_NAMES} more" if len(names) > _LISTED_NAMES else ""
    return f"the column{'s' * (len(names) > 1)} {listed}{more}"
