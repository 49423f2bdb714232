"""Events collected on the broker's loop, before they become rows.

The loop only appends. The three events of every request are packed, field by field, into three byte arrays; every other event is a
``RareEvent``. ``Form`` says which columns an event fills, by their sources in ``schema``. A thread turns a chunk into Arrow columns
(``files/columns.py``): numpy reads the packed fields without creating an object for each value, so the thread holds the interpreter lock
for a short time only, and the loop does not wait for it. ``rows`` reads one event after the other in Python. A test compares the two.
"""

from collections import namedtuple
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any, NamedTuple

from polydomo import limits
from polydomo.journal import histogram, schema
from polydomo.journal.ids import RequestId
from polydomo.journal.recording.client_ids import ClientIds
from polydomo.journal.schema import MESSAGES, REQUESTS, TIME
from polydomo.journal.source import GIVEN, SourceValues
from polydomo.journal.source import fields as fields_of
from polydomo.model.outcomes import OK
from polydomo.model.principals import is_own
from polydomo.model.records import Session, Worker

Row = dict[str, Any]
Derived = dict[str, Callable[[SourceValues], Any]]  # a field that is computed from others
Step = tuple[str, str, tuple[str, ...]]  # a column, a method of ``SourceValues``, and its arguments

_TIMES = ("time", "accepted", "dispatched")  # of the broker's clock

_named: Any = namedtuple  # the fields are those of the schema


class Form:
    """One form of event. Some of its fields are packed, in this order: a time as a float, anything else as an integer, of 8 bytes each; a
    service is its place in ``Chunk.services``. Others are in a table of the chunk by sequence number (``tables``), or are derived."""

    def __init__(
        self, packed: str, derived: Derived, tables: "dict[str, str] | None" = None, more: "tuple[str, ...]" = ()
    ) -> None:
        self.packed = packed.split()
        self.struct = Struct("=" + "".join("d" if name in _TIMES else "q" for name in self.packed))
        self.derived = derived
        self.tables = tables if tables is not None else {}  # field -> attribute of ``Chunk``
        # How to fill the columns of each kind: those that are fields of the event are copied, the others take a step. Columns whose fields
        # the form does not have keep their empty value.
        self.copied: dict[str, list[str]] = {kind: [] for kind in schema.KINDS}
        self.steps: dict[str, list[Step]] = {kind: [] for kind in schema.KINDS}
        known = {*self.packed, *self.tables, *more}
        for kind in schema.KINDS:
            for column in schema.COLUMNS[kind]:
                if column.source == ("get", column.name) and column.name in known:
                    self.copied[kind].append(column.name)
                elif (known | derived.keys()).issuperset(fields_of(column.source)):
                    self.steps[kind].append((column.name, column.source[0], column.source[1:]))

    def is_time(self, name: str) -> bool:
        """Whether a packed field is a float."""
        return name in _TIMES


def table_default(name: str) -> Any:
    """What an event has in a field that its table has no entry for."""
    return _TABLE_DEFAULTS[name]


def _defaults(kind: str, known: "set[str]") -> "dict[str, Any]":
    """The fields that the recorder gives for the columns of a kind, besides the known ones, and what each is if it is not given."""
    found: dict[str, Any] = {}
    for column in schema.COLUMNS[kind]:
        how, *names = column.source
        if how in GIVEN and names[0] not in known:
            found[names[0]] = b"" if how == "text" else 0 if column.type == TIME else column.nothing
    return found


# ``seq`` is that of the event's first row. ``waits``: a row ``queued`` follows.
_PACKED_ACCEPTED = "seq time number client service size queue workers waits"
ACCEPTED = Form(
    _PACKED_ACCEPTED,
    {"event": lambda values: schema.ACCEPTED, "connection": lambda values: values.get("client")},
    {"allowed": "allowed", "principal": "origins", "body": "bodies", "client_id": "client_ids"},
)
QUEUED = Form(
    _PACKED_ACCEPTED.replace("seq", "first_seq").replace("queue", "before"),
    {
        "event": lambda values: schema.QUEUED,
        "connection": lambda values: values.get("client"),
        "principal": lambda values: "",
        "seq": lambda values: values.get("first_seq") + 1,
        "queue": lambda values: values.get("before") + 1,
    },
)
DISPATCHED = Form(
    "seq time number client connection service worker attempt hop size queue",
    {"event": lambda values: schema.DISPATCHED, "principal": lambda values: ""},
    {"allowed": "allowed"},
)

# The end of a request: FINAL is its row ``final`` or ``failed``, if the level has it, and ENDED that of ``requests`` after it.
# ``worker_connection`` and ``last_worker``: of the worker that held it last; ``held``: it held it when it ended.
_PACKED_ENDED = (
    "seq time number client worker_connection service last_worker accepted dispatched request_bytes reply_bytes"
)


def _run_us(values: SourceValues) -> Any:
    dispatched = values.get("dispatched")
    return values.pick(dispatched > 0, values.span(dispatched, values.get("time")), 0)


def _waited_until(values: SourceValues) -> Any:
    first = values.get("first")
    return values.pick(first > 0, first, values.get("time"))


def _first(values: SourceValues) -> Any:
    first = values.get("first_dispatched")
    return values.pick(first < 0, values.get("dispatched"), first)


def _most_attempts(values: SourceValues) -> Any:
    most = values.get("max_attempts")
    return values.pick(most > 0, most, values.of_run("attempts"))


_ENDED: Derived = {
    "last_seq": lambda values: values.get("seq") + values.get("message_rows"),
    "first": _first,
    "wait_us": lambda values: values.span(values.get("accepted"), _waited_until(values)),
    "run_us": _run_us,
    "total_us": lambda values: values.span(values.get("accepted"), values.get("time")),
    "attempt": lambda values: values.get("attempts") - values.get("spent"),
    "most_attempts": _most_attempts,
}
_FINAL: Derived = {
    "attempt": lambda values: values.get("attempts") - values.get("spent"),
    "event": lambda values: values.pick(values.equals("outcome", OK), schema.FINAL, schema.FAILED),
    "connection": lambda values: values.pick(
        values.get("held") > 0, values.get("worker_connection"), values.get("client")
    ),
    "worker": lambda values: values.pick(values.get("held") > 0, values.get("last_worker"), 0),
    "principal": lambda values: "",
    "hop": lambda values: values.get("hops"),
    "size": lambda values: values.pick(values.equals("outcome", OK), values.get("reply_bytes"), 0),
}

# Additional fields. The defaults describe the usual case: the first worker answered with one final reply.
_END: dict[str, Any] = {
    "message_rows": -1,  # 1: a row ``final`` or ``failed`` precedes the row of ``requests``; -1: as for the chunk
    "held": 1,
    "released": 1,  # 1: the worker no longer holds it
    "attempts": 1,
    "spent": 0,  # attempts before it was forwarded
    "max_attempts": 0,  # 0: as many as usual
    "hops": 0,
    "first_dispatched": -1.0,  # -1: the same as ``dispatched``
    "first_partial": 0.0,
    "outcome": OK,
    "body": b"",  # of the final reply, if payloads are recorded
}
_END_TABLES = {"client_id": "client_ids"}
_END |= _defaults(REQUESTS, {*_PACKED_ENDED.split(), *_ENDED, *_END, *_END_TABLES})
EndDetails: Any = _named("EndDetails", list(_END), defaults=list(_END.values()))
USUAL_END = EndDetails()
ENDED = Form(_PACKED_ENDED, _ENDED, _END_TABLES, more=tuple(_END))
FINAL = Form(_PACKED_ENDED, _FINAL, more=("released", "outcome", "reason", "body"))

# Any other event of ``messages``. Only the first three fields have no default.
_RARE = _defaults(MESSAGES, {"seq", "event"})
RareEvent: Any = _named("RareEvent", ["seq", "time", "event", *_RARE], defaults=list(_RARE.values()))
RARE = Form("", {}, more=RareEvent._fields)
_TABLE_DEFAULTS = {name: _RARE[name] for form in (ACCEPTED, DISPATCHED, ENDED) for name in form.tables}


class Peer(NamedTuple):
    """The peer of a connection."""

    peer: str
    protocol: str
    dialect: str
    principal: str = ""


NO_PEER = Peer("", "", "")


class Peers(dict[int, Peer]):
    """The peers of connections, by number; each is looked up once."""

    def __init__(self, who: Callable[[int], Peer]) -> None:
        self._who = who

    def __missing__(self, connection: int) -> Peer:
        peer = self[connection] = self._who(connection)
        return peer


class Run(NamedTuple):
    """The fields that all rows of a run share."""

    broker: str
    run: int
    wall: float  # add to the broker's clock for seconds since the epoch
    attempts: int = limits.ATTEMPTS  # allowed to a request that names no number
    max_body: int = 0  # bytes of a payload that are kept


class Places(dict[bytes, int]):
    """Names, each with its place among them; a new name gets the next place."""

    def __missing__(self, name: bytes) -> int:
        place = self[name] = len(self)
        return place


class Chunk:
    """A batch of some thousand events."""

    __slots__ = (
        "accepted",
        "allowed",
        "bodies",
        "body_bytes",
        "client_ids",
        "dispatched",
        "ended",
        "first",
        "has_message_row",
        "last",
        "more",
        "origins",
        "services",
        "steps",
    )

    def __init__(self, first: int, has_message_row: bool) -> None:
        self.first = first  # the sequence number of its first row
        self.has_message_row = has_message_row  # level ``messages``
        self.last = first - 1  # ... and of its last, once it is closed
        self.accepted = bytearray()  # packed events
        self.dispatched = bytearray()
        self.ended = bytearray()
        self.steps: list[Any] = []  # RareEvents
        self.services = Places()
        # Sequence number of an ``accepted`` row -> payload, if payloads are recorded.
        self.bodies: dict[int, bytes] = {}
        self.body_bytes = 0  # of all recorded payloads
        self.allowed: dict[int, int] = {}  # by the sequence number of an ACCEPTED or DISPATCHED, with access control
        # By that of an ACCEPTED that the broker itself or a bridge sent: its principal.
        self.origins: dict[int, str] = {}
        self.client_ids = ClientIds()  # by the sequence number of an ACCEPTED or ENDED
        self.more: dict[int, Any] = {}  # EndDetails, by the sequence number of the ENDED

    def memory(self) -> int:
        """Its size in bytes, estimated."""
        packed = len(self.accepted) + len(self.dispatched) + len(self.ended)
        ids = self.client_ids.memory()
        return packed + self.body_bytes + ids + limits.COST_EVENT * (len(self.steps) + len(self.more))


def text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


def microseconds(run: Run, time: float) -> int:
    """The clock's time as microseconds since the epoch."""
    return round((run.wall + time) * 1e6)


class EventValues(SourceValues):
    """The values of one event."""

    __slots__ = ("_form", "_known", "_peers", "_run")

    def __init__(self, form: Form, run: Run, peers: Peers, known: Row) -> None:
        self._form = form
        self._run = run
        self._peers = peers
        self._known = known  # its fields

    def row(self, kind: str) -> Row:
        made = schema.empty(kind)
        for column in self._form.copied[kind]:
            made[column] = self._known[column]
        for column, how, arguments in self._form.steps[kind]:
            made[column] = getattr(self, how)(*arguments)
        return made

    def get(self, name: str) -> Any:
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._form.derived[name](self)
        return found

    def pick(self, test: Any, yes: Any, no: Any) -> Any:
        return yes if test else no

    def equals(self, name: str, value: str) -> Any:
        return self.get(name) == value

    def span(self, start: Any, end: Any) -> Any:
        return round((end - start) * 1e6)

    def clock(self, name: str) -> int:
        return microseconds(self._run, self.get(name))

    def moment(self, name: str) -> int | None:
        time = self.get(name)
        return microseconds(self._run, time) if time else None

    def epoch(self, name: str) -> int | None:
        return self.get(name) or None

    def text(self, *names: str) -> str:
        return text(next((found for name in names if (found := self.get(name))), b""))

    def body(self, name: str) -> bytes:
        return capped(self._run, self.get(name))[0]

    def body_cut(self, name: str) -> int:
        return capped(self._run, self.get(name))[1]

    def bucket(self, name: str) -> int:
        return histogram.bucket(self.get(name))

    def request_id(self, accepted: str, number: str) -> str:
        return str(RequestId(self.clock(accepted) // 1000, self._run.run, self.get(number)))

    def of_run(self, part: str) -> Any:
        return getattr(self._run, part)

    def of_peer(self, connection: str, part: str) -> str:
        found: str = getattr(self._peers[self.get(connection)], part)
        return found

    def principal(self, given: str, connection: str) -> str:
        return self.get(given) or self.of_peer(connection, "principal")


def rows(run: Run, chunk: Chunk, who: Callable[[int], Peer], kinds: "tuple[str, ...]" = schema.KINDS) -> Iterator[Row]:
    """The chunk's rows of these kinds, in the order of their sequence."""
    peers = Peers(who)
    made: list[Row] = []

    def add(kind: str, form: Form, fields: Row) -> None:
        if kind in kinds:
            made.append(EventValues(form, run, peers, fields).row(kind))

    for fields in _unpacked(chunk, chunk.accepted, ACCEPTED):
        if fields["waits"]:
            add(MESSAGES, QUEUED, dict(zip(QUEUED.packed, fields.values(), strict=False)))
        add(MESSAGES, ACCEPTED, fields)
    for fields in _unpacked(chunk, chunk.dispatched, DISPATCHED):
        add(MESSAGES, DISPATCHED, fields)
    for fields in _unpacked(chunk, chunk.ended, ENDED):
        more = chunk.more.get(fields["seq"], USUAL_END)._asdict()
        if more["message_rows"] < 0:
            more["message_rows"] = int(chunk.has_message_row)
        if more["message_rows"]:
            add(MESSAGES, FINAL, {**more, **fields})
        add(REQUESTS, ENDED, {**more, **fields})
    for step in chunk.steps:
        add(MESSAGES, RARE, step._asdict())
    made.sort(key=lambda row: int(row["seq"]))
    yield from made


def _unpacked(chunk: Chunk, packed: bytearray, form: Form) -> Iterator[Row]:
    """The fields of packed events one by one, with the names of their services."""
    services = list(chunk.services)
    tables: dict[str, dict[int, Any]] = {}
    for name, table in form.tables.items():
        tables[name] = chunk.client_ids.by_seq() if table == "client_ids" else getattr(chunk, table)
    for values in form.struct.iter_unpack(bytes(packed)):  # of a copy: an array cannot grow while it is read
        fields = dict(zip(form.packed, values, strict=True))
        fields["service"] = services[fields["service"]]
        for name, found in tables.items():
            fields[name] = found.get(fields["seq"], table_default(name))
        yield fields


def capped(run: Run, body: bytes) -> tuple[bytes, int]:
    """The recorded part of a payload, and whether it was truncated."""
    return (bytes(body), 0) if len(body) <= run.max_body else (bytes(body[: run.max_body]), 1)


def peer_of(session: Session) -> Peer:
    principal = "" if is_own(session.principal) else session.principal  # its requests name their origins
    return Peer(session.link.peer, session.protocol, session.dialect, principal)


def services_of(worker: Worker) -> bytes:
    names = [service.name for service in worker.services]
    shown = b",".join(names[: limits.JOURNAL_NAMES])
    return (
        shown if len(names) <= limits.JOURNAL_NAMES else shown + b",and %d more" % (len(names) - limits.JOURNAL_NAMES)
    )
