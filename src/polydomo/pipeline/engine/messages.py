"""Messages between tasks: Arrow tables with a name and an address."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

DRIVER = "driver"  # the address of the program that started the tasks
ONCE = "once:"  # the task that checks events that must happen only once, over all runs
OTHER_RUNS = "run:*"  # the task for runs without new rows in this batch


@dataclass(frozen=True)
class Message:
    stage: int  # of the receiving task; 0: the driver
    address: str
    name: str
    table: pa.Table


def to_run(run: int) -> str:
    return f"run:{run}"


def to_unit(unit: str) -> str:
    return f"unit:{unit}"


def to_bridges(unit: str) -> str:
    return f"bridges:{unit}"


def to_payload(name: str) -> str:
    return f"payload:{name}"


def note(**values: Any) -> Message:
    """A message for the driver: one row of values."""
    return Message(0, DRIVER, "note", pa.Table.from_pylist([values]))


def packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpacked(content: bytes) -> pa.Table:
    with pa.ipc.open_stream(content) as reader:
        return reader.read_all()


def joined(inbox: Iterable[Message], name: str) -> pa.Table | None:
    """All tables with this name, concatenated; None if there is none."""
    tables = [message.table for message in inbox if message.name == name]
    return pa.concat_tables(tables, promote_options="permissive") if tables else None


def conform(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    """The table with these columns. Columns that an earlier version did not save are empty (text) or null."""
    for field in wanted:
        if field.name not in table.schema.names:
            nothing = "" if pa.types.is_string(field.type) else None
            table = table.append_column(field, pa.array([nothing] * table.num_rows, field.type))
    return table.select(wanted.names).cast(wanted)
