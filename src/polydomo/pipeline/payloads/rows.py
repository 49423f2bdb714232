"""Decodes payloads in tasks: JSON objects and Arrow streams become rows of the columns that a table has."""

import json
import math
import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from polydomo.pipeline.tables.table import arrow_type

BASE = ("time", "broker", "run", "seq", "event", "source", "number", "peer")
JSON, ARROW = "json", "arrow"
FIELDS = "name STRING, kind STRING, run BIGINT, seq BIGINT, place INT"
Rows = list[dict[str, Any]]


def content(body: bytes, cut: int) -> bytes:
    """The only frame of a body, without its header of two or nine bytes. Raises ValueError with the reason if there is none."""
    if cut:
        raise ValueError("only its beginning was recorded")
    if body[:1] == b"\x00":
        return body[2:]
    if body[:1] == b"\x02":
        return body[9:]
    raise ValueError("it has several frames")


def json_object(data: bytes) -> dict[str, Any]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    try:
        found = json.loads(text)
    except ValueError:
        raise ValueError("it is not JSON") from None
    if not isinstance(found, dict):
        raise ValueError("it is JSON, but not an object")
    return found


def arrow_table(data: bytes) -> pa.Table:
    try:
        with pa.ipc.open_stream(data) as reader:
            return reader.read_all()
    except pa.ArrowException as error:
        raise ValueError(str(error).splitlines()[0]) from None


def kind_of_json(value: Any) -> str:
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "BIGINT" if -(2**63) <= value < 2**63 else "STRING"
    return "DOUBLE" if isinstance(value, float) else "STRING"


def kind_of_arrow(kind: Any) -> str:
    if pa.types.is_boolean(kind):
        return "BOOLEAN"
    if pa.types.is_integer(kind):
        return "BIGINT"
    if pa.types.is_floating(kind):
        return "DOUBLE"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP"
    return "DATE" if pa.types.is_date(kind) else "STRING"


def fitted(value: Any, kind: str) -> Any:
    """A value as its column has it. Raises ValueError if it does not fit."""
    if value is None:
        return None
    if kind == "STRING":
        if isinstance(value, str):
            return value
        return json.dumps(value) if isinstance(value, dict | list | bool | int | float) else str(value)
    if kind == "BOOLEAN":
        if str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
    elif kind == "BIGINT":
        if not isinstance(value, bool) and re.fullmatch(r"-?\d+", str(value)) and -(2**63) <= int(value) < 2**63:
            return int(value)
    elif kind == "DOUBLE":
        if not isinstance(value, bool):
            number = float(value)
            if math.isfinite(number) or isinstance(value, float):
                return number
    elif kind == "TIMESTAMP":
        found = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    elif kind == "DATE":
        return value if isinstance(value, date) else date.fromisoformat(str(value))
    raise ValueError("it does not fit")


def find_fields(format: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task: the fields of readable payloads, each with its first place."""
    shape = pa.schema([(name, arrow_type(kind)) for name, kind in map(str.split, FIELDS.split(", "))])

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            known: dict[tuple[str, str], tuple[int, int, int]] = {}
            for row in batch.to_pylist():
                try:
                    data = content(row["body"], row["body_cut"])
                    if format == JSON:
                        found = json_object(data).items()
                        fields = [(name, kind_of_json(value)) for name, value in found if value is not None]
                    else:
                        fields = [(one.name, kind_of_arrow(one.type)) for one in arrow_table(data).schema]
                except ValueError:
                    continue
                for place, field in enumerate(fields):
                    here = (row["run"], row["seq"], place)
                    known[field] = min(known.get(field, here), here)
            rows = [dict(zip(shape.names, (*field, *place), strict=True)) for field, place in known.items()]
            yield pa.RecordBatch.from_pylist(rows, shape)

    return task


def decode(
    format: str, columns: dict[str, str], titles: dict[str, str], row_name: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task: the rows of payloads. ``reason`` says why a payload could not be read; such a row has its body and no fields."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            base = [batch.schema.field(name) for name in (*BASE, "date", "hour")]
            wanted = pa.schema([*base, (row_name, pa.int32()), *((titles[name], arrow_type(kind)) for name, kind in columns.items()),
                                ("polydomo_reason", pa.string()), ("polydomo_body", pa.binary())])  # fmt: skip
            made: Rows = []
            for row in batch.to_pylist():
                common = {one.name: row[one.name] for one in base}
                try:
                    made += [{**common, **fields} for fields in _decoded(row, format, columns, titles, row_name)]
                except ValueError as error:
                    made.append({**common, "polydomo_reason": str(error), "polydomo_body": row["body"]})
            yield pa.RecordBatch.from_pylist(made, wanted)

    return task


def _decoded(row: dict[str, Any], format: str, columns: dict[str, str], titles: dict[str, str], row_name: str) -> Rows:
    data = content(row["body"], row["body_cut"])
    rows: Rows = [json_object(data)] if format == JSON else arrow_table(data).to_pylist()
    made: Rows = []
    for place, fields in enumerate(rows):
        one: dict[str, Any] = {row_name: place}
        for name, kind in columns.items():
            try:
                one[titles[name]] = fitted(fields.get(name), kind)
            except (ValueError, OverflowError):
                raise ValueError(f"{name} is not {kind}") from None
        made.append(one)
    return made
