"""Events collected on the broker's loop, before they become rows.

The loop only appends. The three events of every request are packed, field by field, into three byte arrays; every other event is a
``RareEvent``. A thread turns a chunk into Arrow columns (``columns.py``): numpy reads the packed fields without creating an object for each
value, so the thread holds the interpreter lock for a short time only, and the loop does not wait for it. ``rows`` does the same in Python,
for the simulator and for rows that are not written yet. A test compares the two.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any, NamedTuple

from polydomo import limits
from polydomo.journal import histogram, schema
from polydomo.journal.ids import RequestId
from polydomo.journal.schema import MESSAGES, REQUESTS
from polydomo.model.outcomes import OK
from polydomo.model.principals import is_own
from polydomo.model.records import Session, Worker

Row = dict[str, Any]


class Layout:
    """The fields of one form of event, in the order in which they are packed: a time as a float, anything else as an integer, of 8 bytes
    each. A service is its place in ``Chunk.services``."""

    def __init__(self, fields: str) -> None:
        self.fields = fields.split()
        self.struct = Struct("=" + "".join("d" if name in _TIMES else "q" for name in self.fields))


_TIMES = ("time", "accepted", "dispatched")  # of the broker's clock

# ``seq`` is that of the event's first row.
ACCEPTED = Layout("seq time number client service size queue workers waits")  # waits: a row ``queued`` follows
DISPATCHED = Layout("seq time number client connection service worker attempt hop size queue")
ENDED = Layout("seq time number client connection service worker accepted dispatched request_bytes reply_bytes")


class EndDetails(NamedTuple):
    """Additional fields of an ENDED. The defaults describe the usual case: the first worker answered with one final reply."""

    has_message_row: int = -1  # 1: a row ``final`` or ``failed`` precedes the row of ``requests``; -1: as for the chunk
    held: int = 1  # 1: ``worker`` held it when it ended; 0: it is the last worker that held it
    released: int = 1  # 1: ... and no longer holds it
    attempts: int = 1
    spent: int = 0
    max_attempts: int = 0
    hops: int = 0
    first_dispatched: float = -1.0  # -1: the same as ``dispatched``
    first_partial: float = 0.0
    partials: int = 0
    outcome: str = OK
    reason: str = ""
    asked: bytes = b""  # the first service, if it was forwarded
    trace: str = ""
    parent: str = ""
    job: str = ""  # the durable job that the request belongs to
    principal: str = ""  # empty: that of the client's connection
    body: bytes = b""  # of the final reply, if payloads are recorded


USUAL_END = EndDetails()


class RareEvent(NamedTuple):
    """Any other event of ``messages``, field by field."""

    seq: int
    time: float
    event: str
    connection: int = 0
    client: int = 0
    service: bytes = b""
    number: int = 0
    attempt: int = 0
    hop: int = 0
    worker: int = 0
    released: int = 0
    size: int = 0
    queue: int = 0
    workers: int = 0
    credit: int = 0
    auto: int = 0
    silence_us: int = 0
    allowed_us: int = 0
    outcome: str = ""
    reason: str = ""
    topic: bytes = b""
    body: bytes = b""
    level: str = ""
    covers_run: int = 0
    covers_first: int = 0
    covers_last: int = 0
    principal: str = ""  # empty: that of the connection
    allowed: int = 0
    job: str = ""
    key: str = ""
    origin: str = ""
    schedule: str = ""
    code: str = ""
    wait_us: int = 0
    created: int = 0  # microseconds since the epoch; 0 is none
    once: str = ""


class Peer(NamedTuple):
    """The peer of a connection."""

    peer: str
    protocol: str
    dialect: str
    principal: str = ""


NO_PEER = Peer("", "", "")


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
        self.steps: list[RareEvent] = []
        self.services = Places()
        self.bodies: dict[
            int, bytes
        ] = {}  # sequence number of an ``accepted`` row -> payload, if payloads are recorded
        self.body_bytes = 0  # of all recorded payloads
        self.allowed: dict[int, int] = {}  # by the sequence number of an ACCEPTED or DISPATCHED, with access control
        self.origins: dict[
            int, str
        ] = {}  # by that of an ACCEPTED that the broker itself or a bridge sent: its principal
        self.more: dict[int, EndDetails] = {}  # by the sequence number of the ENDED

    def memory(self) -> int:
        """Its size in bytes, estimated."""
        packed = len(self.accepted) + len(self.dispatched) + len(self.ended)
        return packed + self.body_bytes + limits.COST_EVENT * (len(self.steps) + len(self.more))


def text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


def microseconds(run: Run, time: float) -> int:
    """The clock's time as microseconds since the epoch."""
    return round((run.wall + time) * 1e6)


def span(start: float, end: float) -> int:
    return round((end - start) * 1e6)


def rows(run: Run, chunk: Chunk, who: Callable[[int], Peer]) -> Iterator[Row]:
    """The chunk's rows in the order of their sequence."""
    made = [
        *_accepted(run, chunk),
        *_dispatched(run, chunk),
        *_ended(run, chunk),
        *(_step(run, step) for step in chunk.steps),
    ]
    made.sort(key=lambda row: int(row["seq"]))
    for row in made:
        row["broker"] = run.broker
        row["run"] = run.run
        if "event" in row:
            row["peer"], row["protocol"], row["dialect"], principal = who(row["connection"])
            row["principal"] = row["principal"] or principal
        else:
            row["client_peer"], row["client_protocol"], _, principal = who(row["client"])
            row["principal"] = row["principal"] or principal
            row["worker_peer"], row["worker_protocol"], _, row["worker_principal"] = who(row.pop("connection"))
        yield row


def events(chunk: Chunk, packed: bytearray, layout: Layout) -> Iterator[dict[str, Any]]:
    """The packed events one by one, with the names of their services."""
    services = list(chunk.services)
    for values in layout.struct.iter_unpack(bytes(packed)):  # of a copy: an array cannot grow while it is read
        event = dict(zip(layout.fields, values, strict=True))
        event["service"] = services[event["service"]]
        yield event


def _accepted(run: Run, chunk: Chunk) -> Iterator[Row]:
    for event in events(chunk, chunk.accepted, ACCEPTED):
        waits = event.pop("waits")
        event["connection"] = event["client"]
        event["time"] = microseconds(run, event["time"])
        event["service"] = text(event["service"])
        body, cut = capped(run, chunk.bodies.get(event["seq"], b""))
        allowed = chunk.allowed.get(event["seq"], 0)
        origin = chunk.origins.get(event["seq"], "")
        more = {"event": schema.ACCEPTED, "body": body, "body_cut": cut, "allowed": allowed, "principal": origin}
        yield schema.row(MESSAGES, **{**event, **more})
        if waits:
            queue = event["queue"] + 1
            yield schema.row(MESSAGES, **{**event, "event": schema.QUEUED, "seq": event["seq"] + 1, "queue": queue})


def _dispatched(run: Run, chunk: Chunk) -> Iterator[Row]:
    for event in events(chunk, chunk.dispatched, DISPATCHED):
        event["time"] = microseconds(run, event["time"])
        event["service"] = text(event["service"])
        allowed = chunk.allowed.get(event["seq"], 0)
        yield schema.row(MESSAGES, **{**event, "event": schema.DISPATCHED, "allowed": allowed})


def _ended(run: Run, chunk: Chunk) -> Iterator[Row]:
    for event in events(chunk, chunk.ended, ENDED):
        more = chunk.more.get(event["seq"], USUAL_END)
        has_message_row = chunk.has_message_row if more.has_message_row < 0 else more.has_message_row
        time = microseconds(run, event["time"])
        attempt = more.attempts - more.spent
        if has_message_row:
            done = more.outcome == OK
            body, cut = capped(run, more.body)
            yield schema.row(
                MESSAGES,
                seq=event["seq"],
                time=time,
                event=schema.FINAL if done else schema.FAILED,
                connection=event["connection"] if more.held else event["client"],
                client=event["client"],
                service=text(event["service"]),
                number=event["number"],
                attempt=attempt,
                hop=more.hops,
                worker=event["worker"] if more.held else 0,
                released=more.released,
                size=event["reply_bytes"] if done else 0,
                outcome=more.outcome,
                reason=more.reason,
                body=body,
                body_cut=cut,
            )
        had = event["dispatched"]
        first = had if more.first_dispatched < 0 else more.first_dispatched
        wait = span(event["accepted"], first or event["time"])
        ran = span(had, event["time"]) if had else 0
        total = span(event["accepted"], event["time"])
        accepted = microseconds(run, event["accepted"])
        finished = schema.row(
            REQUESTS,
            seq=event["seq"] + (1 if has_message_row else 0),
            time=time,
            request=str(RequestId(accepted // 1000, run.run, event["number"])),
            number=event["number"],
            service=text(more.asked or event["service"]),
            last_service=text(event["service"]),
            client=event["client"],
            worker=event["worker"],
            accepted=accepted,
            first_dispatched=_moment(run, first),
            dispatched=_moment(run, had),
            first_partial=_moment(run, more.first_partial),
            wait_us=wait,
            run_us=ran,
            total_us=total,
            wait_bucket=histogram.bucket(wait),
            run_bucket=histogram.bucket(ran),
            total_bucket=histogram.bucket(total),
            attempts=attempt,
            max_attempts=more.max_attempts or run.attempts,
            dispatches=more.attempts,
            hops=more.hops,
            partials=more.partials,
            request_bytes=event["request_bytes"],
            reply_bytes=event["reply_bytes"],
            outcome=more.outcome,
            reason=more.reason,
            trace=more.trace,
            parent=more.parent,
            job=more.job,
            principal=more.principal,
        )
        finished["connection"] = event["connection"]  # names the worker's peer; not a column
        yield finished


def _step(run: Run, step: RareEvent) -> Row:
    event = step._asdict()
    event["time"] = microseconds(run, step.time)
    event["service"] = text(step.service)
    event["topic"] = text(step.topic)
    event["created"] = step.created or None
    event["body"], event["body_cut"] = capped(run, step.body)
    return schema.row(MESSAGES, **event)


def _moment(run: Run, time: float) -> int | None:
    return microseconds(run, time) if time else None


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
