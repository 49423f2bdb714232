"""One flow for each row: a flow file in which ``{column = NAME}`` stands for the value of a column.

It may stand as an argument or inside one (``args``, ``kwargs``), as the ``map`` or the ``group`` of a node, and as the ``key`` of the flow.
"""

import asyncio
from base64 import b64encode
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polydomo.client.aio import AsyncClient
from polydomo.client.jobs import STORE_FULL
from polydomo.client.message import Result
from polydomo.client.retry import ReconnectDelay
from polydomo.errors import CallFailed, SettingError
from polydomo.model.flows.flow import Flow
from polydomo.model.flows.flow_file import parse_flow, read_flow
from polydomo.model.outcomes import KEY_REUSED
from polydomo.spark.keys import RequestKeys, job_prefix
from polydomo.spark.row_bodies import to_json

Row = dict[str, Any]

COLUMN = "column"
REFERENCES = ("node", "nodes", "base64", "json")  # arguments with a meaning of their own
NEEDS_ARRAY = "{}: map: column {!r} must be an array, not {:.100}"


@dataclass(frozen=True)
class RowFlow:
    """A flow file with columns. It is sent to executors, so it has only plain values."""

    where: str  # the path of the file, for errors
    given: Row
    columns: tuple[str, ...]  # that it uses

    @staticmethod
    def of(option: str, columns: Sequence[str]) -> "RowFlow":
        """``option`` is the path of the file, or its content. Raises SettingError."""
        inline = "\n" in option or option.lstrip().startswith("{")
        where = "the text" if inline else option
        try:
            text = option if inline else Path(option).read_text(encoding="utf-8")
            given = parse_flow(text)
            if not isinstance(given, dict):
                raise SettingError("must be a JSON object")
        except (OSError, UnicodeDecodeError, SettingError) as error:
            raise SettingError(f"format polydomo: option flow: {where}: cannot be read: {error}") from None
        found = RowFlow(where, given, tuple(dict.fromkeys(_named(given))))
        for name in found.columns:
            if name not in columns:
                raise SettingError(
                    f"format polydomo: option flow: {where}: unknown column {name!r}; the columns are {', '.join(columns)}"
                )
        mapped = {_column(node.get("map")) for node in _nodes(given)}
        found.flow({name: [""] if name in mapped else "" for name in found.columns})  # finds unknown fields and names
        return found

    def flow(self, row: Row) -> Flow:
        """The flow of a row. Raises SettingError."""
        try:
            return read_flow(_filled_flow(self.given, row))
        except SettingError as error:
            raise SettingError(f"format polydomo: option flow: {self.where}: {error}") from None

    def key(self, row: Row) -> str:
        """The key of the flow, if the file says which column has it."""
        return _text(self.given.get("key"), row)

    def rows(self, batch: Any) -> "list[Row]":
        """The values that it uses, of each row of a record batch."""
        found: list[Row] = batch.select(list(self.columns)).to_pylist() if self.columns else [{}] * batch.num_rows
        return found


def starter(
    flow: RowFlow, name: str, patience: float
) -> "Callable[[AsyncClient, bytes | list[bytes], Row], Coroutine[Any, Any, Result]]":
    """Starts one flow for each row. Unless the file names a column with the key, the key is that of a durable job of the same row: a
    repeated task or batch finds the flow of the first one, even if the file has changed since then."""
    keys = RequestKeys(job_prefix(name))

    async def begin(client: AsyncClient, made: Flow, key: str, own: bool) -> Result:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        waits = ReconnectDelay()
        while True:
            try:
                return Result([(await client.start(made, key)).id.encode()])
            except CallFailed as error:
                if error.code == KEY_REUSED and not own:
                    return Result([b""])
                wait = waits.next()
                if error.code != STORE_FULL or loop.time() + wait >= deadline:
                    raise
            await asyncio.sleep(wait)  # the broker has as many open nodes as it may have

    def keyed(client: AsyncClient, body: "bytes | list[bytes]", row: Row) -> Coroutine[Any, Any, Result]:
        frames = [body] if isinstance(body, bytes) else body
        own = flow.key(row)
        return begin(client, flow.flow(row), own or keys.key_of(frames), bool(own))

    return keyed


# --- columns --------------------------------------------------------------------------------------------------------------


def _column(value: object) -> str | None:
    """The name of a column, if the value stands for one."""
    if isinstance(value, dict) and len(value) == 1 and isinstance(value.get(COLUMN), str):
        return str(value[COLUMN])
    return None


def _named(value: object) -> Iterator[str]:
    """The columns in a value."""
    name = _column(value)
    if name is not None:
        yield name
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _named(one)


def _nodes(given: Row) -> "list[Row]":
    listed = given.get("node", given.get("nodes"))
    return [node for node in listed if isinstance(node, dict)] if isinstance(listed, list) else []


def _filled_flow(given: Row, row: Row) -> Row:
    found = {name: value for name, value in given.items() if name not in ("key", "node", "nodes")}
    for field in ("node", "nodes"):
        if field in given:
            listed = given[field]
            found[field] = [_filled_node(node, row) for node in listed] if isinstance(listed, list) else listed
    return found


def _filled_node(node: object, row: Row) -> object:
    if not isinstance(node, dict):
        return node
    found = dict(node)
    if isinstance(node.get("args"), list):
        found["args"] = [_argument(value, row) for value in node["args"]]
    if isinstance(node.get("kwargs"), dict):
        found["kwargs"] = {name: _argument(value, row) for name, value in node["kwargs"].items()}
    if "map" in node:
        name = _column(node["map"])
        items = row[name] if name is not None else node["map"]
        if name is not None and not isinstance(items, list | None):
            raise SettingError(NEEDS_ARRAY.format(f"node {node.get('name', '')!r}", name, repr(items)))
        found["map"] = [_value(item) if name is not None else _argument(item, row) for item in items or []]
    if "group" in node:
        found["group"] = _text(node["group"], row)
    return found


def _argument(value: object, row: Row) -> object:
    """An argument of a flow file, with the values of columns. They are wrapped, so that no value is taken for a reference."""
    name = _column(value)
    if name is not None:
        return _value(row[name])
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)) in REFERENCES:
        return value
    return {"json": to_json(_inside(value, row)).decode()} if next(_named(value), None) is not None else value


def _value(value: object) -> object:
    """The value of a column as an argument: text and bytes as they are, anything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    return {"json": to_json(value).decode()}


def _text(value: object, row: Row) -> str:
    """The text of a key or a group; a null is none."""
    found = _inside(value, row)
    return "" if found is None else found if isinstance(found, str) else to_json(found).decode()


def _inside(value: object, row: Row) -> object:
    """A value in which columns may stand."""
    name = _column(value)
    if name is not None:
        return row[name]
    if isinstance(value, dict):
        return {field: _inside(one, row) for field, one in value.items()}
    return [_inside(one, row) for one in value] if isinstance(value, list) else value
