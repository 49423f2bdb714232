"""A flow as data: what a flow file in TOML or JSON and ``POST /v1/flows`` contain.

    name = "nightly"
    on_failure = "continue"              # or cancel
    reuse = false

    [[node]]
    name = "pages"
    service = "ocr"
    map = ["a.png", "b.png"]             # one node for each item: pages-1, pages-2

    [[node]]
    name = "mail"
    service = "mail"
    args = ["ops@example.org", {node = "pages"}]
    # or kwargs = {to = "ops@example.org", pages = {node = "pages"}}, arguments by name
    after = ["audit"]
    retries = 5
    run_timeout = "60s"                  # or seconds

An argument is text, ``{node = NAME}`` for the result of a node (of a ``map``: those of all its nodes), ``{nodes = [NAME, ...]}``,
``{base64 = TEXT}`` for bytes, ``{json = TEXT}`` for a JSON value in text, or any other JSON value. Nodes may stand in any order.
"""

import base64
import binascii
import json
import tomllib
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from polydomo.errors import SettingError
from polydomo.limits import MAX_FLOW_NODES
from polydomo.model import durations
from polydomo.model.flows.flow import Flow, FlowNode
from polydomo.model.retry_policy import backoff_of

Row = dict[str, object]

FLOW_FIELDS = {"name", "key", "on_failure", "reuse", "node", "nodes"}
NODE_FIELDS = {
    "name", "service", "args", "kwargs", "map", "after", "retries", "run_timeout", "priority", "allow_failure", "by_reference", "reuse",
    "group",
}  # fmt: skip


def parse_flow(text: str) -> object:
    """What a flow file contains, for ``read_flow``. Raises SettingError."""
    try:
        return json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingError(f"is neither TOML nor JSON: {error}") from None


def read_flow(given: object, most: int = MAX_FLOW_NODES) -> Flow:
    """Raises SettingError that names the node. ``most``: how many nodes there may be."""
    row = _object("the flow", given)
    _known("the flow", row, FLOW_FIELDS)
    listed = row.get("node", row.get("nodes", []))
    if not isinstance(listed, list) or not listed:
        raise SettingError("the flow: it has no nodes; give a list `node` (in TOML, tables [[node]])")
    flow = Flow(
        _text("the flow", row, "name") or "flow",
        on_failure=_text("the flow", row, "on_failure") or "continue",
        reuse=_flag("the flow", row, "reuse"),
    )
    if len(listed) > most:
        limit = "MAX_FLOW_NODES" if most == MAX_FLOW_NODES else "MAX_GROWTH"
        raise SettingError(f"the flow: it has {len(listed):,} nodes; the limit is {most:,} ({limit})")
    described: dict[str, Row] = {}
    for number, one in enumerate(listed, 1):
        node = _object(f"node {number}", one)
        name = _text(f"node {number}", node, "name") or f"{_text(f'node {number}', node, 'service')}-{number}"
        if name in described:
            raise SettingError(f"node {name!r}: the flow has another node with this name")
        described[name] = node
    made: dict[str, list[FlowNode]] = {}
    for name in _in_order(described):
        made[name] = _add(flow, name, described[name], made)
    return flow


def write_flow(flow: Flow) -> Row:
    """A flow as a flow file has it; ``read_flow`` returns an equal one."""
    nodes: list[Row] = []
    for node in flow.nodes:
        given = node.row
        row: Row = {"name": node.name, "service": given["service"]}
        frames = iter(node.frames)
        arguments = given["args"]
        named = given.get("names", [])
        assert isinstance(arguments, list) and isinstance(named, list)
        written = [_written(flow, value, frames) for value in arguments]
        if named:
            row["kwargs"] = {name: _as_value(value) for name, value in zip(named, written, strict=True)}
        else:
            row["args"] = written
        if "after" in given:
            row["after"] = _names_of(flow, given["after"])
        timeout = given.get("timeout_us")
        if isinstance(timeout, int):
            row["run_timeout"] = timeout / 1e6
        for field in ("retries", "priority", "allow_failure", "by_reference", "reuse", "group"):
            if field in given:
                row[field] = given[field]
        nodes.append(row)
    return {"name": flow.name, "on_failure": flow.on_failure, "node": nodes}


def _written(flow: Flow, value: object, frames: "Iterator[bytes]") -> object:
    """An argument of a message, for a file."""
    if value is None:
        return {"base64": base64.b64encode(next(frames)).decode()}
    if isinstance(value, int):
        return {"node": flow.nodes[value].name}
    return {"nodes": _names_of(flow, value)} if isinstance(value, list) else value


def _as_value(written: object) -> object:
    """An argument by name is JSON in a frame."""
    if isinstance(written, dict) and "base64" in written:
        return {"json": base64.b64decode(written["base64"]).decode()}
    return written


def _names_of(flow: Flow, numbers: object) -> "list[str]":
    assert isinstance(numbers, list)
    found: list[str] = []
    for one in numbers:
        first, last = one if isinstance(one, list) else (one, one)
        found.extend([node.name for node in flow.nodes[first : last + 1]])
    return found


def _in_order(described: "dict[str, Row]") -> "list[str]":
    """The names, each after those that it needs, in the order of the file if possible. Raises SettingError for unknown names and cycles."""
    needs = {name: _needs(name, row, described) for name, row in described.items()}
    left = {name: len(found) for name, found in needs.items()}
    needed_by: dict[str, list[str]] = {}
    for name, found in needs.items():
        for other in found:
            needed_by.setdefault(other, []).append(name)
    places = {name: place for place, name in enumerate(described)}
    listed = list(described)
    # A heap, which keeps the order of the file.
    ready = [places[name] for name, count in left.items() if not count]
    ordered: list[str] = []
    while ready:
        name = listed[heappop(ready)]
        ordered.append(name)
        for other in needed_by.get(name, ()):
            left[other] -= 1
            if not left[other]:
                heappush(ready, places[other])
    if len(ordered) < len(described):
        raise SettingError(f"node {_on_cycle(needs, left)!r}: it needs itself, through other nodes")
    return ordered


def _on_cycle(needs: "dict[str, list[str]]", left: "dict[str, int]") -> str:
    """A node that is part of a cycle."""
    name = next(name for name, count in left.items() if count)
    seen: set[str] = set()
    while name not in seen:
        seen.add(name)
        name = next(other for other in needs[name] if left[other])
    return name


def _needs(name: str, row: Row, described: "dict[str, Row]") -> "list[str]":
    found = list(_names(name, row.get("after", []), "after"))
    for value in (*_list(name, row, "args"), *_object(f"node {name!r}: kwargs", row.get("kwargs", {})).values()):
        found.extend(_references(name, value))
    for other in found:
        if other not in described:
            raise SettingError(f"node {name!r}: it needs {other!r}, which is not a node of the flow")
    return list(dict.fromkeys(found))


def _references(name: str, value: object) -> "Sequence[str]":
    if isinstance(value, dict) and len(value) == 1:
        if "node" in value:
            return _names(name, [value["node"]], "args")
        if "nodes" in value:
            return _names(name, value["nodes"], "args")
    return ()


def _add(flow: Flow, name: str, row: Row, made: "dict[str, list[FlowNode]]") -> "list[FlowNode]":
    what = f"node {name!r}"
    _known(what, row, NODE_FIELDS)
    service = _text(what, row, "service")
    if not service:
        raise SettingError(f"{what}: the service is missing")
    arguments = [_argument(name, value, made) for value in _list(name, row, "args")]
    given = _object(f"{what}: kwargs", row.get("kwargs", {}))
    named = {field: _argument(name, value, made) for field, value in given.items()}
    items: list[object] | None = None
    if "map" in row:
        items = [_argument(name, value, made) for value in _list(name, row, "map")]
    after = [node for other in _names(name, row.get("after", []), "after") for node in made[other]]
    retries, timeout = row.get("retries"), row.get("run_timeout")
    priority = row.get("priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise SettingError(f"{what}: priority: {priority!r} must be a whole number")
    found: list[FlowNode] = []
    for number, item in enumerate(items if items is not None else [None], 1):
        found.append(
            flow.add(
                service,
                [*([item] if items is not None else []), *arguments],
                named,
                name=f"{name}-{number}" if items is not None else name,
                after=after,
                retries=backoff_of(retries) if retries is not None else None,
                run_timeout=_seconds(what, timeout) if timeout is not None else None,
                priority=priority,
                allow_failure=_flag(what, row, "allow_failure"),
                by_reference=_flag(what, row, "by_reference"),
                reuse=_flag(what, row, "reuse") if "reuse" in row else None,
                group=_text(what, row, "group"),
            )
        )
    return found


def _argument(name: str, value: object, made: "dict[str, list[FlowNode]]") -> object:
    if isinstance(value, dict) and len(value) == 1:
        if "node" in value:
            found = made[str(value["node"])]
            return found[0] if len(found) == 1 else found
        if "nodes" in value:
            return [node for other in _names(name, value["nodes"], "args") for node in made[other]]
        if "base64" in value:
            try:
                return base64.b64decode(str(value["base64"]), validate=True)
            except binascii.Error as error:
                raise SettingError(f"node {name!r}: args: base64: {error}") from None
        if "json" in value:
            try:
                return json.loads(str(value["json"]))
            except (ValueError, RecursionError) as error:
                raise SettingError(f"node {name!r}: args: json: {error}") from None
    if isinstance(value, list) and any(isinstance(one, dict) and one.keys() == {"node"} for one in value):
        raise SettingError(
            f"node {name!r}: args: a list of nodes is {{nodes = [NAME, ...]}}; {{json = TEXT}} sends a list with such objects as it is"
        )
    return value


def _seconds(what: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    found = durations.read_duration(value) if isinstance(value, str) else None
    if found is None:
        raise SettingError(f"{what}: run_timeout: {value!r} must be seconds or {durations.EXPECTED}")
    return found


def _object(what: str, value: object) -> Row:
    if not isinstance(value, dict):
        raise SettingError(f"{what}: must be a table or a JSON object, not {value!r:.100}")
    return value


def _known(what: str, row: Row, fields: "set[str]") -> None:
    for name in row:
        if name not in fields:
            raise SettingError(f"{what}: unknown field {name!r}; known are {', '.join(sorted(fields))}")


def _text(what: str, row: Row, field: str) -> str:
    value = row.get(field, "")
    if not isinstance(value, str):
        raise SettingError(f"{what}: {field}: must be text, not {value!r:.100}")
    return value


def _flag(what: str, row: Row, field: str) -> bool:
    value = row.get(field, False)
    if not isinstance(value, bool):
        raise SettingError(f"{what}: {field}: must be true or false, not {value!r:.100}")
    return value


def _list(name: str, row: Row, field: str) -> "list[object]":
    value = row.get(field, [])
    if not isinstance(value, list):
        raise SettingError(f"node {name!r}: {field}: must be a list, not {value!r:.100}")
    return value


def _names(name: str, value: object, field: str) -> "list[str]":
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise SettingError(f"node {name!r}: {field}: must be a list of names, not {value!r:.100}")
    return list(value)
