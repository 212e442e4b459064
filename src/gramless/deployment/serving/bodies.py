"""Rows of a request as a checked table: JSON, CSV or Arrow in, arrays out, and a sentence for everything that is wrong.

A body is bounded before it is read, and its rows before they are converted. Arrow buffers are checked in full, since their
offsets are trusted by whoever reads them, and compressed ones are refused: a few bytes may announce gigabytes.
"""

from __future__ import annotations

import csv
import io
import json
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from gramless.deployment.serving.scorer import Column, RequestError, Table
from gramless.streaming.text import GAPS, NOT_KNOWN

# The squares of many such numbers can be added up.
LARGEST = float(np.sqrt(np.finfo(np.float64).max)) / 2**20
# As files are read: some words are gaps among numbers, and words among words.
_WORD_GAPS = frozenset(NOT_KNOWN)
_GAPS = _WORD_GAPS | frozenset(GAPS)
_SHOWN = 60
ARROW_STREAM = "application/vnd.apache.arrow.stream"
ARROW_FILE = "application/vnd.apache.arrow.file"
JSON, CSV = "application/json", "text/csv"
_ARROW_TYPES = ("integer", "floating", "boolean", "string", "large_string", "date", "timestamp", "null")
KINDS = (JSON, CSV, ARROW_STREAM, ARROW_FILE)


def read_table(kind: str, body: bytes, columns: Sequence[Column], most_rows: int) -> tuple[Table, dict[str, Any]]:
    """The rows of a body, checked, and what else the body asks for.

    Parameters
    ----------
    kind : str
        The media type, one of `KINDS`.
    body : bytes
    columns : sequence of Column
    most_rows : int

    Returns
    -------
    table : dict of ndarray
    asked : dict
        Other keys of a JSON object.

    Raises
    ------
    RequestError
        With the status of the answer and a sentence.
    """
    if kind not in KINDS:
        known = ", ".join(KINDS)
        raise RequestError(415, f"a body of the type {shown(kind)} is not understood; send one of {known}")
    asked: dict[str, Any] = {}
    if kind == JSON:
        asked = _json(body)
        cells, n = _json_cells(asked.pop("rows"), columns, most_rows)
    elif kind == CSV:
        cells, n = _csv_cells(body, columns, most_rows)
    else:
        cells, n = _arrow_cells(body, kind == ARROW_FILE, columns, most_rows)
    if n == 0:
        raise RequestError(422, "there are no rows")
    numbers = _all_numbers(cells, columns)
    return {
        column.name: numbers[column.name] if column.name in numbers else _CONVERT[column.kind](cells[column.name], column)
        for column in columns
    }, asked


def shown(value: Any) -> str:
    """A value for a sentence, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _not_a_constant(name: str) -> None:
    raise RequestError(400, f"JSON has no {name}: send null for a missing number")


_JSON = json.JSONDecoder(parse_constant=_not_a_constant)  # made once: `json.loads` would make one for each request


def _json(body: bytes) -> dict[str, Any]:
    try:
        sent = _JSON.decode(body.decode(json.detect_encoding(body), "surrogatepass"))
    except RecursionError:
        raise RequestError(400, "the body is JSON within JSON, too deep to read") from None
    except (ValueError, UnicodeDecodeError) as reason:
        raise RequestError(400, f"the body is not JSON: {str(reason)[:200]}") from reason
    if not isinstance(sent, dict) or not isinstance(sent.get("rows"), list):
        raise RequestError(422, 'send an object with rows: {"rows": [{"column": value, ...}, ...]}')
    return sent


def _json_cells(rows: list[Any], columns: Sequence[Column], most: int) -> tuple[dict[str, list[Any]], int]:
    check_rows(len(rows), most)
    cells: dict[str, list[Any]] = {}
    for column in columns:
        try:
            cells[column.name] = [row[column.name] for row in rows]
        except (KeyError, TypeError, IndexError):
            _complain(rows, columns)
    return cells, len(rows)


def _complain(rows: list[Any], columns: Sequence[Column]) -> None:
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise RequestError(422, f"row {number} is {shown(row)}, not an object with the model's columns")
        missing = [column.name for column in columns if column.name not in row]
        if missing:
            raise RequestError(422, f"row {number} lacks {_listed(missing)}; a value that is not known is null")


def check_rows(n: int, most: int) -> None:
    """Refuse too many rows."""
    if n > most:
        raise RequestError(413, f"a request may have {most:,} rows, and this one has {n:,}: send it in parts")


def _csv_cells(body: bytes, columns: Sequence[Column], most: int) -> tuple[dict[str, list[Any]], int]:
    try:
        lines = csv.reader(io.StringIO(body.decode("utf-8-sig"), newline=""), strict=True, skipinitialspace=True)
        heading = next(lines, [])
        _check_heading(heading, columns)
        rows: list[list[str]] = []
        for row in lines:
            if not row:
                continue
            if len(row) != len(heading):
                raise RequestError(422, f"row {len(rows) + 1} has {len(row)} cells, and the heading has {len(heading)}")
            rows.append(row)
            if len(rows) > most:
                check_rows(len(rows), most)
    except UnicodeDecodeError as reason:
        raise RequestError(400, f"the body is not text in UTF-8: {reason}") from reason
    except csv.Error as reason:
        raise RequestError(400, f"the body is not CSV: {reason}") from reason
    places = {name: place for place, name in enumerate(heading)}
    return {column.name: [row[places[column.name]] for row in rows] for column in columns}, len(rows)


def _check_heading(heading: Sequence[str], columns: Sequence[Column]) -> None:
    missing = [column.name for column in columns if column.name not in heading]
    if missing:
        raise RequestError(422, f"the heading lacks {_listed(missing)}")
    twice = [column.name for column in columns if list(heading).count(column.name) > 1]
    if twice:
        raise RequestError(422, f"the heading has {_listed(twice)} more than once")


def _listed(names: Sequence[str], most: int = 10) -> str:
    told = ", ".join(map(shown, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")
    return f"the column {told}" if len(names) == 1 else f"the columns {told}"


def _arrow_cells(body: bytes, is_file: bool, columns: Sequence[Column], most: int) -> tuple[dict[str, list[Any]], int]:
    try:
        import pyarrow as pa
    except ImportError:
        raise RequestError(415, "this server has no pyarrow to read Arrow with: send JSON or CSV") from None
    try:
        buffer = pa.py_buffer(body)
        if is_file:
            reader = pa.ipc.open_file(buffer)
            inside = body[8:]  # after the magic bytes and their padding, a file is a stream
        else:
            reader = pa.ipc.open_stream(buffer)
            inside = body
        _check_messages(pa, inside)
        _check_heading(reader.schema.names, columns)
        for column in columns:
            kind = reader.schema.field(column.name).type
            plain = kind.value_type if pa.types.is_dictionary(kind) else kind
            if not any(getattr(pa.types, f"is_{name}")(plain) for name in _ARROW_TYPES):
                raise RequestError(422, f"the column {shown(column.name)} is of the Arrow type {kind}, which is not taken")
        batches = (reader.get_batch(k) for k in range(reader.num_record_batches)) if is_file else iter(reader)
        cells: dict[str, list[Any]] = {column.name: [] for column in columns}
        n = 0
        for batch in batches:
            n += batch.num_rows
            check_rows(n, most)
            batch.validate(full=True)
            for column in columns:
                cells[column.name] += _arrow_values(pa, batch.column(batch.schema.get_field_index(column.name)))
    except (pa.ArrowException, OSError, struct.error, IndexError, UnicodeDecodeError, OverflowError) as reason:
        raise RequestError(400, f"the body is not Arrow IPC: {str(reason)[:200]}") from reason
    return cells, n


def _arrow_values(pa: Any, values: Any) -> list[Any]:
    if not pa.types.is_dictionary(values.type):
        return values.to_pylist()
    words = values.dictionary.to_pylist()  # each word once, however often it is used
    return [None if place is None else words[place] for place in values.indices.to_pylist()]


def _check_messages(pa: Any, stream: bytes) -> None:
    """Refuse compressed buffers, by the field `compression` of the messages' flatbuffers."""
    reader = pa.ipc.MessageReader.open_stream(stream)
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return
        data = message.metadata.to_pybytes()
        root = struct.unpack_from("<I", data, 0)[0]
        kind = _field(data, root, 1)
        header = _table(data, root, 2)
        if kind is None or header is None:
            continue
        if data[kind] == 2:  # a dictionary, whose field 1 is a batch
            header = _table(data, header, 1)
        elif data[kind] != 3:  # neither a dictionary nor a batch
            continue
        if header is not None and _field(data, header, 3) is not None:
            raise RequestError(415, "the Arrow buffers are compressed: send them as they are")


def _field(data: bytes, table: int, number: int) -> int | None:
    """Where field `number` of a flatbuffer's table lies; None where it has its default."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    place = 4 + 2 * number
    if vtable < 0 or place >= struct.unpack_from("<H", data, vtable)[0]:
        return None
    offset = struct.unpack_from("<H", data, vtable + place)[0]
    return table + offset if offset else None


def _table(data: bytes, table: int, number: int) -> int | None:
    place = _field(data, table, number)
    return None if place is None else place + struct.unpack_from("<I", data, place)[0]


def _all_numbers(cells: dict[str, list[Any]], columns: Sequence[Column]) -> Table:
    """The columns of numbers, converted together; empty where a value is missing or wrong, and each is to be looked at."""
    names = [column.name for column in columns if column.kind == "number"]
    try:
        block = np.array([cells[name] for name in names], dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        return {}
    if block.ndim != 2 or not np.abs(block).max() < LARGEST:
        return {}
    return dict(zip(names, block, strict=True))


def _numbers(values: list[Any], column: Column) -> np.ndarray:
    try:
        numbers = np.array(values, dtype=np.float64)
        if numbers.ndim != 1:
            raise ValueError
        if (np.abs(numbers) < LARGEST).all():
            return numbers
    except (ValueError, TypeError, OverflowError):
        pass  # a gap, or something that is no number: each value is looked at
    out = np.empty(len(values))
    for row, value in enumerate(values):
        out[row] = _number(value, row, column)
    return out


def _number(value: Any, row: int, column: Column) -> float:
    if _is_gap(value):
        return _gap(row, column)
    try:
        number = float(value) if isinstance(value, int | float | str) else None
    except OverflowError:
        number = float("inf")
    except ValueError:
        number = None
    if number is None:
        raise _wrong(row, column, value, "is not a number")
    if not abs(number) < LARGEST:
        raise _wrong(row, column, value, "is too large to compute with")
    return number


def _is_gap(value: Any, words: frozenset[str] = _GAPS) -> bool:
    return value is None or (isinstance(value, float) and value != value) or (isinstance(value, str) and value in words)


def _gap(row: int, column: Column) -> float:
    if not column.gaps:
        raise RequestError(422, f"row {row + 1}, column {shown(column.name)}: the model needs a value here")
    return float("nan")


def _wrong(row: int, column: Column, value: Any, why: str) -> RequestError:
    return RequestError(422, f"row {row + 1}, column {shown(column.name)}: {shown(value)} {why}")


def _words(values: list[Any], column: Column) -> np.ndarray:
    out = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        if _is_gap(value, _WORD_GAPS):
            out[row] = _gap(row, column)
        elif isinstance(value, str | int | float | bool):
            out[row] = _word(value, column.levels)
        else:
            raise _wrong(row, column, value, "is not a word")
    return out


def _word(value: Any, levels: Sequence[str]) -> str:
    """As training writes it: truth values alike, and 3.0 as 3 where that is the word."""
    text = str(value)
    if text.lower() in ("true", "false"):
        return text.capitalize()
    if isinstance(value, float) and value.is_integer() and text not in levels:
        return str(int(value))
    return text


def _dates(values: list[Any], column: Column) -> np.ndarray:
    out = np.empty(len(values), dtype="datetime64[us]")
    for row, value in enumerate(values):
        if _is_gap(value):
            _gap(row, column)
            out[row] = np.datetime64("NaT")
            continue
        try:
            moment = value if hasattr(value, "isoformat") else datetime.fromisoformat(value)
        except (ValueError, TypeError):
            raise _wrong(row, column, value, "is not a date such as 2024-02-29 or 2024-02-29T12:00:00") from None
        if getattr(moment, "tzinfo", None) is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
        out[row] = np.datetime64(moment, "us")
    return out


_CONVERT: dict[str, Callable[[list[Any], Column], np.ndarray]] = {"number": _numbers, "word": _words, "date": _dates}
