"""Converts a chunk to Arrow columns in the writer's thread, column by column.

``schema`` has the source of each column, and ``chunk.Form`` the fields of each event. ``ColumnValues`` reads them for all events of one
form at once; ``chunk.EventValues`` does so for one event.
"""

from collections.abc import Callable, Sequence
from struct import pack
from typing import Any

import numpy as np
import pyarrow as pa

from polydomo.journal import schema
from polydomo.journal.files.id_texts import id_texts
from polydomo.journal.ids import ALPHABET, NUMBER_CHARACTERS, TIME_CHARACTERS, run_name
from polydomo.journal.recording.chunk import (
    ACCEPTED,
    DISPATCHED,
    ENDED,
    FINAL,
    NO_PEER,
    QUEUED,
    RARE,
    USUAL_END,
    Chunk,
    Form,
    Peer,
    RareEvent,
    Run,
    capped,
    table_default,
    text,
)
from polydomo.journal.schema import BYTES, MESSAGES, REQUESTS, SHORT, TEXT, TIME
from polydomo.journal.source import SourceValues
from polydomo.limits import JOURNAL_CHUNK

Who = Callable[[int], Peer]
Ints = Any  # np.ndarray of int64

_TYPES = {
    column.type: field.type
    for kind in schema.KINDS
    for column, field in zip(schema.COLUMNS[kind], schema.arrow(kind), strict=True)
}
_DIGITS = np.frombuffer(ALPHABET.encode(), np.uint8)
_LOG = np.log(1.02)
_OFTEN_SAME = frozenset("service size queue before workers attempt hop request_bytes reply_bytes".split())


def tables(run: Run, chunk: Chunk, who: Who) -> dict[str, pa.Table]:
    """The chunk's rows by kind; a kind without rows is absent. Within a kind they are not sorted."""
    messages: list[Any] = []  # record batches
    found: dict[str, pa.Table] = {}

    def add(form: Form, events: Ints, more: "list[Any] | None" = None) -> None:
        if len(events):
            messages.append(_packed(form, run, chunk, who, events, more).batch(MESSAGES))

    if chunk.accepted:
        events = _matrix(chunk.accepted, ACCEPTED)
        add(ACCEPTED, events)
        waits = events[:, ACCEPTED.packed.index("waits")].astype(bool)
        add(QUEUED, events if waits.all() else events[waits])
    if chunk.dispatched:
        add(DISPATCHED, _matrix(chunk.dispatched, DISPATCHED))
    if chunk.ended:
        events = _matrix(chunk.ended, ENDED)
        more = [chunk.more.get(n, USUAL_END) for n in events[:, 0].tolist()] if chunk.more else None
        ended = _packed(ENDED, run, chunk, who, events, more)
        found[REQUESTS] = pa.Table.from_batches([ended.batch(REQUESTS)])
        shown = ended.get("message_rows")  # whether there is a row of ``messages``, or for each event
        if not isinstance(shown, int) and not shown.all():
            mask = shown.astype(bool)
            events = events[mask]
            more = [one for one, kept in zip(more or (), mask.tolist(), strict=True) if kept]
            shown = 1
        if not isinstance(shown, int) or shown:
            add(FINAL, events, more)
    if chunk.steps:
        columns = dict(zip(RareEvent._fields, zip(*chunk.steps, strict=True), strict=True))
        values = ColumnValues(RARE, run, chunk, who, len(chunk.steps))
        values.given = columns
        messages.append(values.batch(MESSAGES))
    if messages:
        found[MESSAGES] = pa.Table.from_batches(messages)
    return found


def _matrix(packed: bytearray, form: Form) -> Ints:
    """One row per event, one column per field; times have the bits of floats."""
    return np.frombuffer(packed, np.int64).reshape(-1, len(form.packed))


def _packed(form: Form, run: Run, chunk: Chunk, who: Who, events: Ints, more: "list[Any] | None") -> "ColumnValues":
    values = ColumnValues(form, run, chunk, who, len(events))
    values.events = events
    values.more = more
    return values


class ColumnValues(SourceValues):
    """The values of all events of one form in a chunk: arrays and lists, or a single value that all events share, as is common."""

    def __init__(self, form: Form, run: Run, chunk: Chunk, who: Who, size: int) -> None:
        self.form = form
        self.run = run
        self.chunk = chunk
        self.who = who
        self.size = size
        self.events: Ints = None  # packed fields
        self.more: list[Any] | None = None  # EndDetails of each event; None: all are usual
        self.given: dict[str, Any] = {}  # fields of RareEvents
        self._known: dict[str, Any] = {}
        self._peers: dict[str, tuple[Any, ...]] = {}

    def batch(self, kind: str) -> pa.RecordBatch:
        made = {column: self.get(column) for column in self.form.copied[kind]}
        for column, how, arguments in self.form.steps[kind]:
            made[column] = getattr(self, how)(*arguments)
        arrays = [_column(column, made.get(column.name, column.nothing), self.size) for column in schema.COLUMNS[kind]]
        return pa.RecordBatch.from_arrays(arrays, schema=_stored(kind))

    def get(self, name: str) -> Any:
        if name not in self._known:
            derived = self.form.derived.get(name)
            self._known[name] = derived(self) if derived is not None else self._field(name)
        return self._known[name]

    def _field(self, name: str) -> Any:
        form = self.form
        if name in self.given:
            return _listed(self.given[name])
        if name in form.packed:
            values = self.events[:, form.packed.index(name)]
            if form.is_time(name):
                return values.copy().view(np.float64)
            return int(values[0]) if name in _OFTEN_SAME and (values == values[0]).all() else values.copy()
        if name in form.tables:
            nothing = table_default(name)
            if name == "client_id":
                ids = self.chunk.client_ids
                return id_texts(ids, self.events[:, 0]) if ids else nothing
            table = getattr(self.chunk, form.tables[name])
            return _listed([table.get(n, nothing) for n in self.events[:, 0].tolist()]) if table else nothing
        found = getattr(USUAL_END, name) if self.more is None else _listed([getattr(one, name) for one in self.more])
        if name == "message_rows":
            return self.pick(found < 0, int(self.chunk.has_message_row), found)
        return found

    # --- what forms derive fields with

    def pick(self, test: Any, yes: Any, no: Any) -> Any:
        if isinstance(test, bool):
            return yes if test else no
        return yes if test.all() else np.where(test, yes, no)

    def equals(self, name: str, value: str) -> Any:
        found = self.get(name)
        return found == value if isinstance(found, str) else np.array([one == value for one in found])

    def span(self, start: Any, end: Any) -> Any:
        return np.rint((end - start) * 1e6).astype(np.int64)

    # --- the sources of columns

    def clock(self, name: str) -> Ints:
        values = np.broadcast_to(np.asarray(self.get(name), np.float64), self.size)
        return np.rint((values + self.run.wall) * 1e6).astype(np.int64)

    def moment(self, name: str) -> Any:
        values = np.asarray(self.get(name), np.float64)
        never = values == 0
        if never.all():
            return None
        times = np.rint((values + self.run.wall) * 1e6).astype(np.int64)
        return times if not never.any() else pa.array(times, mask=never).cast(_TYPES[TIME])

    def epoch(self, name: str) -> Any:
        values = self.get(name)
        return (
            pa.array(values, mask=values == 0).cast(_TYPES[TIME]) if isinstance(values, np.ndarray) else values or None
        )

    def text(self, *names: str) -> Any:
        """The last name is that of the service, or a field of bytes."""
        for name in names[:-1]:
            found = self.get(name)
            if isinstance(found, list):
                others = self._names(names[-1])
                return _names([one or other for one, other in zip(found, others, strict=True)])
            if found:
                return text(found)
        values = self.get(names[-1])
        if isinstance(values, np.ndarray):
            known = pa.array([text(name) for name in self.chunk.services], pa.string())
            return pa.DictionaryArray.from_arrays(pa.array(values.astype(np.int32)), known)
        if isinstance(values, pa.Array):
            return values
        if isinstance(values, int):
            return text(list(self.chunk.services)[values])
        return _names(values) if isinstance(values, list) else text(values)

    def _names(self, name: str) -> list[bytes]:
        """The services of packed events."""
        services = list(self.chunk.services)
        return [services[place] for place in np.broadcast_to(self.get(name), self.size).tolist()]

    def body(self, name: str) -> Any:
        bodies = self.get(name)
        return [capped(self.run, body)[0] for body in bodies] if isinstance(bodies, list) else bodies

    def body_cut(self, name: str) -> Any:
        bodies = self.get(name)
        return _listed([capped(self.run, body)[1] for body in bodies]) if isinstance(bodies, list) else 0

    def bucket(self, name: str) -> Ints:
        return (np.log(np.maximum(self.get(name), 1)) / _LOG).astype(np.int64)

    def request_id(self, accepted: str, number: str) -> Any:
        return _request_ids(self.run, self.clock(accepted), self.get(number))

    def of_run(self, part: str) -> Any:
        return getattr(self.run, part)

    def of_peer(self, connection: str, part: str) -> Any:
        if connection not in self._peers:
            self._peers[connection] = _peers(self.get(connection), self.who)
        return self._peers[connection][Peer._fields.index(part)]

    def principal(self, given: str, connection: str) -> Any:
        named = self.get(given)
        others = self.of_peer(connection, "principal")
        if not isinstance(named, list):
            return named or others
        known = others.to_pylist() if isinstance(others, pa.Array) else [others] * self.size
        return [own or other for own, other in zip(named, known, strict=True)]


# --- from lists to arrays ---------------------------------------------------------------------------------------------


def _listed(values: Sequence[Any]) -> Any:
    """One value if all are empty, an array of numbers, or a list of anything else."""
    first = values[0]
    if not first and not any(values):
        return first
    if isinstance(first, float):
        return np.fromiter(values, np.float64, len(values))
    return _ints(values) if isinstance(first, int) else list(values)


def _ints(values: Sequence[int]) -> Ints:
    return np.frombuffer(pack(f"{len(values)}q", *values), np.int64)  # the quickest way there is


def _names(values: Sequence[bytes]) -> Any:
    first = values[0]
    if list(values).count(first) == len(values):
        return text(first)
    return pa.array([text(name) for name in values], pa.string()).dictionary_encode()


def _peers(connections: Any, who: Who) -> tuple[Any, ...]:
    """Address, protocol, dialect and principal of each connection, by its number."""
    if isinstance(connections, int):
        return tuple(who(connections)) if connections else NO_PEER
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
    return tuple(found)


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


# --- from arrays to a batch -------------------------------------------------------------------------------------------


def _column(column: schema.Column, value: Any, size: int) -> Any:
    if isinstance(value, list):
        return (
            pa.array(value, pa.binary()) if column.type == BYTES else pa.array(value, pa.string()).dictionary_encode()
        )
    if isinstance(value, np.ndarray):
        if column.type == TEXT:  # one of a few words
            return pa.array(value.tolist(), pa.string()).dictionary_encode()
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
