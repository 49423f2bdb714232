"""The messages of flows: how a client describes the nodes of a flow to the broker, and how the body of a node is stored.

A node is a JSON object:

    name            unique in the flow
    service         the service that runs it
    args            its arguments: a string is text, null is the next frame of the message's body, a number is the node with that
                    number, a list of numbers is the nodes of a list; [first, last] in it is a range of numbers
    names           the names of its arguments, if the worker gets them as one JSON object
    after           numbers of nodes that must end before it, and whose results it does not get, in the same form
    retries, timeout_us, priority, ttl_us, group
                                              as in ``polydomo.submit``
    allow_failure, by_reference, reuse        true or false

Nodes are numbered from 0 in the order in which they are sent, and a node names only nodes before it. So a graph that can be written down
has no cycle.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from polydomo.errors import SettingError
from polydomo.limits import MAX_BODY_FRAMES, MAX_FLOW_EDGES, MAX_JOB_PRIORITY, MAX_NODE_NAME
from polydomo.model.jobs.messages import ID_LENGTH, Row, is_id, read_duration, read_mark, read_service, read_text
from polydomo.model.json_form import compact
from polydomo.model.retry_policy import Backoff, backoff_of
from polydomo.wire.frames import join, split

FIELDS: Final = frozenset(
    {
        "name", "service", "args", "names", "after", "retries", "timeout_us", "priority", "ttl_us", "allow_failure", "by_reference",
        "reuse", "group",
    }
)  # fmt: skip

PLAIN: Final = frozenset({"name", "service", "args", "after"})  # fields of a node without options

Argument = str | int | list[int] | None  # text, a node, nodes, the next frame

_decode = msgspec.json.Decoder().decode


class NodeSpec:
    """A checked node."""

    __slots__ = (
        "after", "allow_failure", "arguments", "backoff", "by_reference", "frames", "group", "name", "names", "number", "priority", "reuse",
        "run", "service", "template", "ttl",
    )  # fmt: skip

    def __init__(self, number: int, row: object, frames: "list[bytes]") -> None:
        """``frames`` are those of the message that are still to be used, the next one last. Raises SettingError that names the node."""
        if not isinstance(row, dict):
            raise SettingError(f"node {number}: must be a JSON object, not {row!r:.100}")
        self.number = number
        self.name = f"{number}"
        try:
            self._read(row, frames)
        except SettingError as error:
            raise SettingError(f"node {self.name!r}: {error}") from None

    def _read(self, row: Row, frames: "list[bytes]") -> None:
        self.name = read_text(row, "name", MAX_NODE_NAME) or self.name
        check_name(self.name)
        if not row.keys() <= FIELDS:
            unknown = sorted(str(name) for name in row if name not in FIELDS)
            raise SettingError(f"unknown field {unknown[0]!r}; known are {', '.join(sorted(FIELDS))}")
        self.service = read_service(row)
        self.run = self.ttl = 0.0
        self.priority = 0
        self.backoff: Backoff | None = None
        self.allow_failure = self.by_reference = self.reuse = False
        self.group = ""
        if not row.keys() <= PLAIN:
            self._options(row)
        self.after: list[int] = self._numbers("after", row["after"]) if "after" in row else []
        self.arguments: list[Argument] = []
        self.frames: list[bytes] = []
        given = row.get("args", [])
        if not isinstance(given, list):
            raise SettingError(f"args: must be a list, not {given!r:.100}")
        for value in given:
            self._argument(value, frames)
        self.names: list[str] = self._argument_names(row["names"], len(given)) if "names" in row else []
        # Whether its body depends on other nodes, or is put together from names. A list without nodes is no frame.
        self.template = bool(self.names)
        for argument in self.arguments:
            if argument is not None and (argument != [] or self.by_reference):
                self.template = True
        check_frames(self.arguments, self.by_reference or bool(self.names))

    def _options(self, row: Row) -> None:
        self.run = read_duration(row, "timeout_us")
        self.ttl = read_duration(row, "ttl_us")
        priority = row.get("priority", 0)
        if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > MAX_JOB_PRIORITY:
            raise SettingError(f"priority: {priority!r} must be a whole number of at most {MAX_JOB_PRIORITY}")
        self.priority = priority
        self.backoff = backoff_of(row["retries"]) if row.get("retries") is not None else None
        self.allow_failure = _flag(row, "allow_failure")
        self.by_reference = _flag(row, "by_reference")
        self.reuse = _flag(row, "reuse")
        self.group = read_mark(row, "group")

    def _argument_names(self, names: object, count: int) -> "list[str]":
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise SettingError(f"names: must be a list of names, not {names!r:.100}")
        if names and len(names) != count:
            raise SettingError(f"names: {len(names)} names for {count} arguments")
        return [str(name) for name in names]

    def _argument(self, value: object, frames: "list[bytes]") -> None:
        if isinstance(value, str):
            try:
                self.frames.append(value.encode())
            except UnicodeEncodeError:
                raise SettingError("args: is not valid Unicode") from None
            self.arguments.append(None)
        elif value is None:
            if not frames:
                raise SettingError("args: the message has too few frames")
            self.frames.append(frames.pop())
            self.arguments.append(None)
        elif isinstance(value, list):
            self.arguments.append(self._numbers("args", value))
        elif isinstance(value, int) and not isinstance(value, bool):
            self._check("args", value)
            self.arguments.append(value)
        else:
            raise SettingError(f"args: {value!r:.100} must be a string, null, a node's number, or a list of numbers")

    def _numbers(self, field: str, value: object) -> "list[int]":
        if not isinstance(value, list):
            raise SettingError(f"{field}: must be a list of numbers, not {value!r:.100}")
        found: list[int] = []
        for one in value:
            ends = one if isinstance(one, list) and len(one) == 2 else [one, one]
            self._check(field, ends[0])
            self._check(field, ends[1])
            if len(found) + ends[1] - ends[0] >= MAX_FLOW_EDGES:
                raise SettingError(f"{field}: more than {MAX_FLOW_EDGES:,} nodes (MAX_FLOW_EDGES)")
            found.extend(range(ends[0], ends[1] + 1))
        return found

    def _check(self, field: str, number: object) -> None:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < self.number:
            raise SettingError(f"{field}: {number!r:.100} is not the number of a node before it")

    def needs(self) -> "set[int]":
        """The nodes that must end before it."""
        found = set(self.after)
        for value in self.arguments:
            if isinstance(value, int):
                found.add(value)
            elif isinstance(value, list):
                found.update(value)
        return found

    def body(self, base: int = 0) -> bytes:
        """The body that is stored: the frames of the worker, or a template. ``base`` is added to the numbers of nodes."""
        if not self.template:
            return join(self.frames or [b""])
        given: Row = {"args": [_moved(value, base) for value in self.arguments] if base else self.arguments}
        if self.by_reference:
            given["by_reference"] = True
        if self.names:
            given["names"] = self.names
        return join([compact(given).encode(), *self.frames])


def _moved(value: Argument, base: int) -> Argument:
    if isinstance(value, list):
        return [number + base for number in value]
    return value + base if isinstance(value, int) else value


class Template:
    """A stored body that names nodes."""

    __slots__ = ("arguments", "by_reference", "frames", "names")

    def __init__(self, body: bytes) -> None:
        frames = split(body)
        row = _decode(frames[0])
        self.arguments: list[Argument] = row["args"]
        self.by_reference: bool = row.get("by_reference", False)
        self.names: list[str] = row.get("names", [])
        self.frames = frames[1:]

    def nodes(self) -> "list[int]":
        """The nodes whose results it gets, in order; one may occur several times."""
        found: list[int] = []
        for value in self.arguments:
            if isinstance(value, int):
                found.append(value)
            elif isinstance(value, list):
                found.extend(value)
        return found

    def fill(self, results: "dict[int, bytes]") -> bytes:
        """The worker's body: one frame per argument, and one for each node of a list. By reference, ``results`` are ids, and a list is
        one frame, a JSON list of them."""
        own = iter(self.frames)
        if self.names:
            return join([self._object(results, own)])
        frames: list[bytes] = []
        for value in self.arguments:
            if isinstance(value, int):
                frames.append(results[value])
            elif isinstance(value, list) and self.by_reference:
                frames.append(json.dumps([results[number].decode() for number in value]).encode())
            elif isinstance(value, list):
                frames.extend([results[number] for number in value])
            else:
                frames.append(next(own))
        return join(frames or [b""])

    def _object(self, results: "dict[int, bytes]", own: "Iterator[bytes]") -> bytes:
        """The arguments by name, as a JSON object. A result that is not JSON is text."""
        pieces: list[bytes] = []
        for name, value in zip(self.names, self.arguments, strict=True):
            if isinstance(value, int):
                piece = as_json(results[value])
            elif isinstance(value, list):
                piece = b"[" + b",".join([as_json(results[number]) for number in value]) + b"]"
            else:
                piece = as_json(next(own))
            pieces.append(json.dumps(name).encode() + b":" + piece)
        return b"{" + b",".join(pieces) + b"}"


def as_json(content: bytes) -> bytes:
    """Content that is JSON, unchanged; other text as a JSON string; other bytes as a string in base64.

    >>> as_json(b"[1, 2]"), as_json(b"two words"), as_json(b"\xff")
    (b'[1, 2]', b'"two words"', b'"/w=="')
    """
    try:
        _decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        try:
            return json.dumps(content.decode()).encode()
        except UnicodeDecodeError:
            return b'"' + base64.b64encode(content) + b'"'
    return content


def check_frames(arguments: "Sequence[object]", by_reference: bool) -> None:
    """Raises SettingError if a worker would get more frames than a message has."""
    count = len(arguments)
    if not by_reference:
        for value in arguments:
            if isinstance(value, list):
                count += len(value) - 1
    if count > MAX_BODY_FRAMES:
        raise SettingError(
            f"args: {count:,} frames; the limit is {MAX_BODY_FRAMES:,} (MAX_BODY_FRAMES). With by_reference it gets the ids of jobs "
            "instead, a list of nodes in one frame"
        )


def check_name(name: str) -> None:
    """Raises SettingError for a name of the form NUMBER/NAME: such names are given to nodes that other nodes add."""
    number, slash, _ = name.partition("/")
    if slash and number.isdigit():
        raise SettingError("name: NUMBER/NAME is the form of the names of nodes that are added while the flow runs")


def _flag(row: Row, name: str) -> bool:
    value = row.get(name, False)
    if not isinstance(value, bool):
        raise SettingError(f"{name}: must be true or false, not {value!r:.100}")
    return value


def read_flow_id(row: Row, name: str = "flow") -> str:
    """Raises SettingError."""
    given = read_text(row, name, ID_LENGTH + 10).strip().upper()
    if not is_id(given):
        raise SettingError(
            f"{name}: {given!r} is not the id of a flow, which has 26 letters and digits; `polydomo flow ls` lists them"
        )
    return given
