"""Converts a chunk to Arrow columns in the writer's thread, column by column.

``chunk.rows`` does the same in Python and is easier to read; a test compares the two.
"""

from collections.abc import Callable, Sequence
from struct import pack
from typing import Any

import numpy as np
import pyarrow as pa

from polydomo.journal import schema
from polydomo.journal.ids import ALPHABET, NUMBER_CHARACTERS, TIME_CHARACTERS, run_name
from polydomo.journal.recording import chunk as shapes
from polydomo.journal.recording.chunk import (
    ACCEPTED,
    DISPATCHED,
    ENDED,
    NO_PEER,
    Chunk,
    Layout,
    Peer,
    RareEvent,
    Run,
    text,
)
from polydomo.journal.schema import MESSAGES, NOTHING, REQUESTS, SHORT, TEXT, TIME
from polydomo.limits import JOURNAL_CHUNK
from polydomo.model.outcomes import OK

Who = Callable[[int], Peer]
Ints = Any  # np.ndarray of int64
Block = dict[str, Any]  # column -> np.ndarray, pa.Array, or one value for all rows

_TYPES = {
    column.type: field.type
    for kind in schema.KINDS
    for column, field in zip(schema.COLUMNS[kind], schema.arrow(kind), strict=True)
}
_DIGITS = np.frombuffer(ALPHABET.encode(), np.uint8)
_LOG = np.log(1.02)


def tables(run: Run, chunk: Chunk, who: Who) -> dict[str, pa.Table]:
    """The chunk's rows by kind; a kind without rows is absent. Within a kind they are not sorted."""
    messages: list[tuple[int, Block]] = []
    if chunk.accepted:
        messages += _accepted(run, chunk)
    if chunk.dispatched:
        messages.append(_dispatched(run, chunk))
    found = {}
    if chunk.ended:
        message_rows, finished = _ended(run, chunk, who)
        if message_rows[0]:
            messages.append(message_rows)
        found[REQUESTS] = pa.Table.from_batches([_batch(run, REQUESTS, *finished)])
    if chunk.steps:
        messages.append(_steps(run, chunk.steps))
    if messages:
        found[MESSAGES] = pa.Table.from_batches(
            [_batch(run, MESSAGES, size, _with_peers(block, who)) for size, block in messages]
        )
    return found


def _accepted(run: Run, chunk: Chunk) -> list[tuple[int, Block]]:
    events = _Events(chunk, chunk.accepted, ACCEPTED)
    seq = events.ints("seq")
    client = events.ints("client")
    queue = events.same_or_ints("queue")
    block: Block = {
        "event": schema.ACCEPTED,
        "seq": seq,
        "time": _since_epoch(run, events.times("time")),
        "number": events.ints("number"),
        "client": client,
        "connection": client,
        "service": events.services(),
        "size": events.same_or_ints("size"),
        "queue": queue,
        "workers": events.same_or_ints("workers"),
    }
    waits = events.ints("waits").astype(bool)
    later = _some({**block, "seq": seq + 1, "queue": queue + 1}, waits)
    later["event"] = schema.QUEUED
    if chunk.allowed:
        block["allowed"] = np.array([chunk.allowed.get(n, 0) for n in seq.tolist()], np.int64)
    if chunk.origins:
        block["principals"] = [chunk.origins.get(n, "") for n in seq.tolist()]
    if chunk.bodies:
        bodies = [shapes.capped(run, chunk.bodies.get(n, b"")) for n in seq.tolist()]
        block["body"] = pa.array([body for body, _ in bodies], pa.binary())
        block["body_cut"] = np.array([cut for _, cut in bodies])
    waiting = int(waits.sum())
    return [(events.size, block), (waiting, later)] if waiting else [(events.size, block)]


def _dispatched(run: Run, chunk: Chunk) -> tuple[int, Block]:
    events = _Events(chunk, chunk.dispatched, DISPATCHED)
    block: Block = {name: events.ints(name) for name in ("seq", "number", "client", "connection", "worker")}
    block |= {name: events.same_or_ints(name) for name in ("attempt", "hop", "size", "queue")}
    block["event"] = schema.DISPATCHED
    if chunk.allowed:
        block["allowed"] = np.array([chunk.allowed.get(n, 0) for n in block["seq"].tolist()], np.int64)
    block["time"] = _since_epoch(run, events.times("time"))
    block["service"] = events.services()
    return events.size, block


def _ended(run: Run, chunk: Chunk, who: Who) -> tuple[tuple[int, Block], tuple[int, Block]]:
    """The ``final`` and ``failed`` rows, and those of ``requests``."""
    events = _Events(chunk, chunk.ended, ENDED)
    size = events.size
    seq = events.ints("seq")
    ended_at = events.times("time")
    accepted_at = events.times("accepted")
    dispatched_at = events.times("dispatched")
    time = _since_epoch(run, ended_at)
    accepted = _since_epoch(run, accepted_at)
    number = events.ints("number")
    client = events.ints("client")
    connection = events.ints("connection")
    worker = events.ints("worker")
    service = events.services()
    reply = events.same_or_ints("reply_bytes")
    more = _EndDetails(chunk, seq)
    has_message_row = more.has_message_row
    first_at = more.first_dispatched(dispatched_at)
    wait = _spans(accepted_at, np.where(first_at > 0, first_at, ended_at))
    ran = np.where(dispatched_at > 0, _spans(dispatched_at, ended_at), 0)
    total = _spans(accepted_at, ended_at)
    dispatched = _moments(run, dispatched_at)
    finished: Block = {
        "seq": seq + has_message_row,
        "time": time,
        "request": _request_ids(run, accepted, number),
        "number": number,
        "service": more.asked(service, events),
        "last_service": service,
        "client": client,
        "worker": worker,
        "accepted": accepted,
        "first_dispatched": dispatched if first_at is dispatched_at else _moments(run, first_at),
        "dispatched": dispatched,
        "first_partial": _moments(run, more.floats("first_partial")),
        "wait_us": wait,
        "run_us": ran,
        "total_us": total,
        "wait_bucket": _buckets(wait),
        "run_bucket": _buckets(ran),
        "total_bucket": _buckets(total),
        "attempts": more.attempt,
        "max_attempts": more.max_attempts(run),
        "dispatches": more.ints("attempts"),
        "hops": more.ints("hops"),
        "partials": more.ints("partials"),
        "request_bytes": events.same_or_ints("request_bytes"),
        "reply_bytes": reply,
        "outcome": more.texts("outcome"),
        "reason": more.texts("reason"),
        "trace": more.texts("trace"),
        "parent": more.texts("parent"),
        "job": more.texts("job"),
    }
    finished["client_peer"], finished["client_protocol"], _, principal = _peers(client, who)
    finished["principal"] = _principals(principal, more.given("principal"))
    finished["worker_peer"], finished["worker_protocol"], _, finished["worker_principal"] = _peers(connection, who)
    if not has_message_row.any():
        return (0, {}), (size, finished)
    outcome = more.texts("outcome")
    held = more.ints("held")
    block: Block = {
        "seq": seq,
        "time": time,
        "event": more.event(),
        "connection": connection if held is USUAL_END_INTS["held"] else np.where(held, connection, client),
        "client": client,
        "service": service,
        "number": number,
        "attempt": more.attempt,
        "hop": more.ints("hops"),
        "worker": worker if held is USUAL_END_INTS["held"] else np.where(held, worker, 0),
        "released": more.ints("released"),
        "size": more.reply(reply),
        "outcome": outcome,
        "reason": more.texts("reason"),
    }
    if more.any:
        bodies = [shapes.capped(run, one.body) for one in more.all]
        block["body"] = pa.array([body for body, _ in bodies], pa.binary())
        block["body_cut"] = np.array([cut for _, cut in bodies])
    if not has_message_row.all():
        return (int(has_message_row.sum()), _some(block, has_message_row.astype(bool))), (size, finished)
    return (size, block), (size, finished)


USUAL_END_INTS = {name: value for name, value in shapes.USUAL_END._asdict().items() if isinstance(value, int)}


class _EndDetails:
    """The additional fields of ENDEDs as columns; a single value if none has them."""

    def __init__(self, chunk: Chunk, seq: Ints) -> None:
        self.any = bool(chunk.more)
        self.size = len(seq)
        self.all = [chunk.more.get(n, shapes.USUAL_END) for n in seq.tolist()] if self.any else []
        if self.any:
            self.has_message_row = np.array(
                [chunk.has_message_row if one.has_message_row < 0 else one.has_message_row for one in self.all],
                np.int64,
            )
        else:
            self.has_message_row = np.full(self.size, int(chunk.has_message_row), np.int64)

    def ints(self, name: str) -> Any:
        return np.array([getattr(one, name) for one in self.all], np.int64) if self.any else USUAL_END_INTS[name]

    def floats(self, name: str) -> Any:
        return np.array([getattr(one, name) for one in self.all]) if self.any else np.zeros(1)

    def texts(self, name: str) -> Any:
        if not self.any:
            return getattr(shapes.USUAL_END, name)
        return pa.array([getattr(one, name) for one in self.all], pa.string()).dictionary_encode()

    def given(self, name: str) -> list[str] | None:
        """Texts that replace those of the connection; None if there are none."""
        found = [getattr(one, name) for one in self.all]
        return found if any(found) else None

    @property
    def attempt(self) -> Any:
        return self.ints("attempts") - self.ints("spent")

    def max_attempts(self, run: Run) -> Any:
        return np.array([one.max_attempts or run.attempts for one in self.all]) if self.any else run.attempts

    def first_dispatched(self, dispatched: Any) -> Any:
        if not self.any:
            return dispatched
        first = self.floats("first_dispatched")
        return np.where(first < 0, dispatched, first)

    def asked(self, last: Any, events: "_Events") -> Any:
        if not any(one.asked for one in self.all):
            return last
        return _names([one.asked or name for one, name in zip(self.all, events.service_names(), strict=True)])

    def event(self) -> Any:
        if not self.any:
            return schema.FINAL
        return pa.array(
            [schema.FINAL if one.outcome == OK else schema.FAILED for one in self.all], pa.string()
        ).dictionary_encode()

    def reply(self, sizes: Any) -> Any:
        return np.where([one.outcome == OK for one in self.all], sizes, 0) if self.any else sizes


def _steps(run: Run, steps: list[RareEvent]) -> tuple[int, Block]:
    columns = dict(zip(RareEvent._fields, zip(*steps, strict=True), strict=True))
    block: Block = {}
    for name, values in columns.items():
        if name == "time":
            block[name] = _times(run, values)
        elif name == "created":
            if any(values):
                block[name] = pa.array([value or None for value in values], pa.timestamp("us", tz="UTC"))
        elif name in ("service", "topic"):
            block[name] = _names(values)
        elif name == "principal":
            if any(values):
                block["principals"] = values
        elif name == "body":
            bodies = [shapes.capped(run, body) for body in values]
            block["body"] = pa.array([body for body, _ in bodies], pa.binary())
            block["body_cut"] = np.array([cut for _, cut in bodies])
        elif isinstance(values[0], str):
            block[name] = pa.array(values, pa.string()).dictionary_encode()
        else:
            block[name] = _ints(values)
    return len(steps), block


# --- from packed events and lists to arrays ---------------------------------------------------------------------------


class _Events:
    """The packed events of one form, column by column."""

    def __init__(self, chunk: Chunk, packed: bytearray, layout: Layout) -> None:
        self._names = list(chunk.services)
        self._fields = layout.fields
        self._values = np.frombuffer(packed, np.int64).reshape(-1, len(layout.fields))
        self.size = len(self._values)

    def ints(self, name: str) -> Ints:
        return self._values[:, self._fields.index(name)].copy()

    def same_or_ints(self, name: str) -> Any:
        """A single number if it is the same in all rows, as is common."""
        values = self._values[:, self._fields.index(name)]
        first = values[0]
        return int(first) if (values == first).all() else values.copy()

    def times(self, name: str) -> Any:
        return self.ints(name).view(np.float64)

    def services(self) -> Any:
        places = self.same_or_ints("service")
        if isinstance(places, int):
            return text(self._names[places])
        names = pa.array([text(name) for name in self._names], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int32)), names)

    def service_names(self) -> list[bytes]:
        return [self._names[place] for place in self.ints("service").tolist()]


def _ints(values: Sequence[int]) -> Ints:
    return np.frombuffer(pack(f"{len(values)}q", *values), np.int64)  # the quickest way there is


def _times(run: Run, values: Sequence[float]) -> Ints:
    return _since_epoch(run, np.fromiter(values, np.float64, len(values)))


def _since_epoch(run: Run, values: Any) -> Ints:
    """The clock's times as microseconds since the epoch."""
    return np.rint((values + run.wall) * 1e6).astype(np.int64)


def _moments(run: Run, values: Any) -> Any:
    """The same for optional times, which are 0 if missing."""
    never = values == 0
    if never.all():
        return None
    if not never.any():
        return _since_epoch(run, values)
    return pa.array(_since_epoch(run, values), pa.int64(), mask=never).cast(pa.timestamp("us", tz="UTC"))


def _spans(start: Any, end: Any) -> Ints:
    return np.rint((end - start) * 1e6).astype(np.int64)


def _buckets(us: Ints) -> Ints:
    return (np.log(np.maximum(us, 1)) / _LOG).astype(np.int64)


def _names(values: Sequence[bytes]) -> Any:
    first = values[0]
    if list(values).count(first) == len(values):
        return text(first)
    return pa.array([text(name) for name in values], pa.string()).dictionary_encode()


def _peers(connections: Ints, who: Who) -> tuple[Any, Any, Any, Any]:
    """Address, protocol, dialect and principal of each connection, by its number."""
    encoded = pa.array(connections).dictionary_encode()
    known = [who(number) if number else NO_PEER for number in encoded.dictionary.to_pylist()]
    first = known[0]
    found: list[Any] = []
    for i in range(4):
        if all(peer[i] == first[i] for peer in known):
            found.append(first[i])
        else:
            found.append(
                pa.DictionaryArray.from_arrays(encoded.indices, pa.array([peer[i] for peer in known], pa.string()))
            )
    return found[0], found[1], found[2], found[3]


def _with_peers(block: Block, who: Who) -> Block:
    block["peer"], block["protocol"], block["dialect"], principal = _peers(block["connection"], who)
    named = block.pop("principals", None)  # rows that name a principal themselves
    block["principal"] = _principals(principal, named)
    return block


def _principals(connections: Any, named: Sequence[str] | None) -> Any:
    """The principals of connections, except in rows that name one themselves."""
    if named is None:
        return connections
    known = connections.to_pylist() if isinstance(connections, pa.Array) else [connections] * len(named)
    found = pa.array([own or other for own, other in zip(named, known, strict=True)], pa.string())
    return found.dictionary_encode()


def _request_ids(run: Run, accepted: Ints, numbers: Ints) -> Any:
    """``str(RequestId(...))`` for all rows at once: every character is a table lookup."""
    width = TIME_CHARACTERS + len(run_name(run.run)) + NUMBER_CHARACTERS
    digits = np.empty((len(numbers), width), np.uint8)
    milliseconds = accepted // 1000
    for i in range(TIME_CHARACTERS):
        digits[:, i] = _DIGITS[milliseconds >> 5 * (TIME_CHARACTERS - 1 - i) & 31]
    digits[:, TIME_CHARACTERS : width - NUMBER_CHARACTERS] = np.frombuffer(run_name(run.run).encode(), np.uint8)
    for i in range(NUMBER_CHARACTERS):
        digits[:, width - NUMBER_CHARACTERS + i] = _DIGITS[numbers >> 5 * (NUMBER_CHARACTERS - 1 - i) & 31]
    offsets = np.arange(0, (len(numbers) + 1) * width, width, dtype=np.int32)
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(digits))


def _some(block: Block, mask: Any) -> Block:
    """The rows for which ``mask`` holds."""
    if mask.all():
        return dict(block)
    picked = pa.array(mask)
    return {
        name: value[mask]
        if isinstance(value, np.ndarray)
        else value.filter(picked)
        if isinstance(value, pa.Array)
        else value
        for name, value in block.items()
    }


# --- from arrays to a batch -------------------------------------------------------------------------------------------


def _batch(run: Run, kind: str, size: int, block: Block) -> pa.RecordBatch:
    block["broker"] = run.broker
    block["run"] = run.run
    arrays = [_column(column, block.get(column.name, NOTHING[column.type]), size) for column in schema.COLUMNS[kind]]
    return pa.RecordBatch.from_arrays(arrays, schema=_stored(kind))


def _column(column: schema.Column, value: Any, size: int) -> Any:
    if isinstance(value, np.ndarray):
        if column.type == TIME:
            return pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), size, [None, pa.py_buffer(value)])
        if column.type != schema.LONG:
            value = value.astype(np.int16 if column.type == SHORT else np.int32)
        return pa.array(value)
    return value if isinstance(value, pa.Array) else _same(column.type, value, size)


_SAME: dict[tuple[str, Any], Any] = {}
_MOST_SAME = 1_000  # values of which a column is kept; names and reasons come and go


def _same(word: str, value: Any, size: int) -> Any:
    """A column with one value in all rows: a slice of a cached one, if there is one."""
    known = _SAME.get((word, value))
    if known is None or len(known) < size:
        length = max(size, JOURNAL_CHUNK)
        if word == TEXT:
            known = pa.DictionaryArray.from_arrays(pa.array(np.zeros(length, np.int32)), pa.array([value], pa.string()))
        elif value is None:
            known = pa.nulls(length, _TYPES[word])
        else:
            known = pa.repeat(pa.scalar(value, _TYPES[word]), length)
        if len(_SAME) >= _MOST_SAME:
            _SAME.clear()
        _SAME[word, value] = known
    return known.slice(0, size)


_STORED: dict[str, Any] = {}


def _stored(kind: str) -> Any:
    """The schema in memory before writing: texts, except the id, are dictionary-encoded."""
    if kind not in _STORED:
        fields = [
            pa.field(field.name, pa.dictionary(pa.int32(), pa.string()), nullable=False)
            if column.type == TEXT and column.name != "request"
            else field
            for column, field in zip(schema.COLUMNS[kind], schema.arrow(kind), strict=True)
        ]
        _STORED[kind] = pa.schema(fields)
    return _STORED[kind]
