"""Encodes rows as request bodies and decodes replies to rows: Arrow IPC, JSON, or plain bytes."""

import base64
import json
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

ARROW, JSON, BYTES = "arrow", "json", "bytes"
VALUE = "value"  # JSON of any type, as the value of the only column
REPLIES = (ARROW, JSON, BYTES)


class BadReply(Exception):
    """A reply does not match the schema."""


# --- requests -------------------------------------------------------------------------------------------------------------


def arrow_body(batch: Any) -> bytes:
    """A record batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def row_bodies(batch: Any, columns: Sequence[str], as_object: bool = False) -> list[bytes]:
    """One body per row: the value of a text or binary column unchanged, anything else as JSON; with ``as_object`` always a JSON object."""
    if len(columns) == 1 and not as_object:
        values = batch.column(batch.schema.get_field_index(columns[0]))
        if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
            return [value or b"" for value in values.to_pylist()]
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            return [(value or "").encode() for value in values.to_pylist()]
        return [to_json(value) for value in values.to_pylist()]
    chosen = pa.RecordBatch.from_arrays(
        [batch.column(batch.schema.get_field_index(name)) for name in columns], list(columns)
    )
    return [to_json(row) for row in chosen.to_pylist()]


def to_json(value: Any) -> bytes:
    return json.dumps(value, default=_plain).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be converted to JSON")


# --- replies --------------------------------------------------------------------------------------------------------------


def arrow_rows(frames: Sequence[bytes], schema: Any) -> Any:
    """The rows of a reply: every frame that is not empty is an Arrow IPC stream. Raises BadReply."""
    tables = []
    try:
        for frame in frames:
            if frame:
                tables.append(pa.ipc.open_stream(frame).read_all())
        table = pa.concat_tables(tables) if tables else schema.empty_table()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadReply(f"the reply is not an Arrow IPC stream: {str(error).splitlines()[0]}") from None
    missing = [field.name for field in schema if field.name not in table.schema.names]
    if missing:
        raise BadReply(f"the reply has no column {missing[0]!r}; it has {', '.join(table.schema.names) or 'none'}")
    try:
        return table.select(schema.names).cast(schema).combine_chunks()
    except (pa.ArrowException, ValueError) as error:
        raise BadReply(f"the reply does not fit the schema: {str(error).splitlines()[0]}") from None


def values_of(body: bytes, kind: str, schema: Any) -> list[Any]:
    """The values of one row, in the order of the schema. Raises BadReply."""
    if kind == BYTES:
        field = schema[0]
        return [body.decode(errors="replace") if _is_text(field.type) else body]
    try:
        found = json.loads(body)
    except ValueError:
        raise BadReply(f"the reply is not JSON: {body[:60]!r}") from None
    names = schema.names
    if kind == VALUE:
        return [found]
    if isinstance(found, dict):
        if len(names) > 1 and not any(name in found for name in names):
            raise BadReply(f"the reply has none of the columns {', '.join(names)}")
        return [found.get(name) for name in names]
    if len(names) == 1:
        return [found]
    if isinstance(found, list) and len(found) == len(names):
        return found
    raise BadReply(f"the reply is not an object or a list of {len(names)} values: {body[:60]!r}")


def column(values: Sequence[Any], type: Any) -> Any:
    """Converts JSON values to an Arrow array: text becomes a time, a date or a number as the schema requires. Raises BadReply."""
    try:
        if not _is_text(type) and any(isinstance(value, str) for value in values):
            texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
            if pa.types.is_binary(type):
                return pa.array([None if text is None else base64.b64decode(text) for text in texts], type)
            return pa.array(texts, pa.string()).cast(type)
        if _is_text(type):
            values = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
        return pa.array(values, type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise BadReply(f"a value does not fit the type {type}: {str(error).splitlines()[0]}") from None


def _is_text(type: Any) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))
