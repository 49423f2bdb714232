"""Every column of the journal: its type, the version that added it, its meaning, and its source.

This is the only place that declares a column. The rows and tables of the writer, the table in docs/journal.md, and what a reader gives
to rows of an earlier version follow from it. A column without a source has the recorder's field of the same name.

The journal has two kinds of rows. ``messages`` has one row per event: at level ``requests`` only the rare ones (a
worker registered, a peer disconnected, a request was requeued), at level ``messages`` every message too. ``requests``
has one row per finished request, so that the common questions need no shuffle. Both share one sequence: within a
``run`` (one life of one broker process) ``seq`` counts up by one over both kinds.

Rules for change, held by a test:

* A column is only ever added, at the end of its kind, with ``since`` one above ``VERSION`` as it was. None is renamed,
  retyped or given a new meaning.
* No column is null, timestamps aside: "nothing" is 0 or the empty string, so that a sum needs no care. A reader gives
  rows of an earlier version that same "nothing" in the columns they lack.
* A new event may be added at any time; readers pass over events that they do not know.

Segments are Parquet files ``kind=KIND/date=YYYY-MM-DD/hour=HH/RUN-FIRST-LAST.parquet``. The rows of a batch, FIRST to
LAST in the sequence, are shared out over one file of each kind under the same name. Date and hour (UTC) are those of
every row in it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow

VERSION = 5

MESSAGES = "messages"
REQUESTS = "requests"
KINDS = (MESSAGES, REQUESTS)

OFF = "off"
LEVELS = (OFF, REQUESTS, MESSAGES)  # of the writer, from least to most

# --- types: the words used below, in Arrow's and in SQL's -------------------------------------------------------------

TIME = "time"  # microseconds since the epoch, UTC; null if it never happened
LONG = "long"
INT = "int"
SHORT = "short"
TEXT = "text"
BYTES = "bytes"

_ARROW = {TIME: "timestamp", LONG: "int64", INT: "int32", SHORT: "int16", TEXT: "string", BYTES: "binary"}
_SQL = {TIME: "TIMESTAMP", LONG: "BIGINT", INT: "INT", SHORT: "SMALLINT", TEXT: "STRING", BYTES: "BINARY"}
NOTHING: dict[str, Any] = {TIME: None, LONG: 0, INT: 0, SHORT: 0, TEXT: "", BYTES: b""}


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    since: int
    says: str
    given: str = ""

    @property
    def source(self) -> tuple[str, ...]:
        """Where its value comes from (``source.py``): a way to convert, and its arguments."""
        return tuple(self.given.split()) or ("get", self.name)

    @property
    def nothing(self) -> Any:
        """The value if the column does not apply."""
        return NOTHING[self.type]


# --- events of ``messages`` -------------------------------------------------------------------------------------------

# the run
STARTED = "started"  # a run begins; ``covers_*`` names the run before it and the rows that one lost
STOPPED = "stopped"  # a run ends in order: its last row
MISSING = "missing"  # rows of this run were dropped (a full or slow disk): ``covers_*`` says which

# connections
CONNECTED = "connected"
DISCONNECTED = "disconnected"
REFUSED = "refused"  # a request or a peer was refused
VIOLATED = "violated"  # a peer sent what its protocol does not allow

ACCESS = "access"  # whether a principal has a right: on the first use, and when a reload of the access file changes it

# workers
REGISTERED = "registered"  # a worker offers its services; once per further service too
GRANTED = "granted"  # a worker asked for ``credit`` more requests
LATE = "late"  # a beat was missed
LEFT = "left"  # a worker left normally
LOST = "lost"  # a worker is declared lost

# requests
ACCEPTED = "accepted"
QUEUED = "queued"  # it waits for a worker: ``queue`` with it, ``workers`` that offer the service, all busy
DISPATCHED = "dispatched"
PARTIAL = "partial"
FINAL = "final"  # the one final reply
FAILED = "failed"  # it ended otherwise: ``outcome`` and ``reason``
REQUEUED = "requeued"  # its worker was lost: back to the head of the queue, or of its group's queue if ``outcome`` is `limited`
FORWARDED = "forwarded"  # its worker passed it on; ``service`` is where to
UNHEARD = "unheard"  # its worker answered after its outcome: the reply is dropped, and the worker is free
STALE = "stale"  # a reply from a worker that does not hold that attempt: dropped

# durable jobs
JOB = "job"  # an event of a durable job, a schedule or the leadership: ``outcome`` says which

# requeued requests
LIMITED = "limited"  # the service has limits: requests of other groups pass it

# flows
FLOW = "flow"  # an event of a flow: ``outcome`` says which
NODE = "node"  # a node of a flow ended without an attempt: ``outcome`` is its state

# memoised services
MEMO = "memo"  # how a request is answered: ``outcome`` is `hit` (from the store), `miss` (it runs) or `joined` (an identical one runs)

# requests with an idempotency key
KEYED = "keyed"  # ``outcome`` is `first` (it runs) or `joined` (an open request has the same ``key``), ``reason`` names the run

# other
LOG = "log"  # a log record of a service: ``outcome`` is its level, ``reason`` its text, ``number`` the request it was written for
PUBLISHED = "published"  # a value published under ``topic``
LAGGED = "lagged"  # a subscriber reads too slowly

EVENTS = (
    STARTED, STOPPED, MISSING, CONNECTED, DISCONNECTED, REFUSED, VIOLATED, ACCESS, REGISTERED, GRANTED, LATE, LEFT, LOST, ACCEPTED, QUEUED,
    DISPATCHED, PARTIAL, FINAL, FAILED, REQUEUED, FORWARDED, UNHEARD, STALE, JOB, FLOW, NODE, MEMO, KEYED, LOG, PUBLISHED, LAGGED,
)  # fmt: skip

# These are written at level ``messages`` only, the others at level ``requests`` too.
ONLY_MESSAGES = (ACCEPTED, QUEUED, DISPATCHED, PARTIAL, FINAL, FAILED, UNHEARD, GRANTED, PUBLISHED)

# --- columns ----------------------------------------------------------------------------------------------------------

_COMMON = (
    Column("time", TIME, 1, "when the event happened; in `requests`, when the request ended", "clock time"),
    Column("broker", TEXT, 1, "name of the broker", "of_run broker"),
    Column("run", LONG, 1, "one run of one broker process: 40 random bits", "of_run run"),
    Column("seq", LONG, 1, "sequence number within the run, counted over both kinds, from 1"),
)

_MESSAGES = (
    *_COMMON,
    Column("event", TEXT, 1, "the event: see below"),
    Column(
        "peer",
        TEXT,
        1,
        "address of the peer: the client for events between client and broker, else the worker",
        "of_peer connection peer",
    ),
    Column("protocol", TEXT, 1, "protocol of the peer", "of_peer connection protocol"),
    Column("dialect", TEXT, 1, "dialect of the protocol, where there are several", "of_peer connection dialect"),
    Column("connection", INT, 1, "number of the peer's connection in the run"),
    Column("client", INT, 1, "number of the client's connection, in every row about a request"),
    Column(
        "service",
        TEXT,
        1,
        "name of the service; bytes that are not UTF-8 as \\xNN. Several services of a worker are separated by commas",
        "text service",
    ),
    Column("number", LONG, 1, "number of the request in the run; `run` and `number` identify a request"),
    Column("attempt", SHORT, 1, "attempt at this hop, from 1; 0 before the first"),
    Column("hop", SHORT, 1, "how often the request had been forwarded"),
    Column(
        "worker",
        INT,
        1,
        "number of the worker in the run; on `failed`, the worker that held the request, if any",
    ),
    Column("released", SHORT, 1, "1 if this event releases the worker from the request"),
    Column("size", LONG, 1, "size of the body with its framing, in bytes"),
    Column("queue", INT, 1, "length of the service's queue after this event"),
    Column("workers", INT, 1, "workers that offer the service"),
    Column(
        "credit",
        INT,
        1,
        "`registered`, `granted`: credit that the worker gave, in requests; negative if it took some back",
    ),
    Column(
        "auto",
        SHORT,
        1,
        "`registered`: 1 if the worker gets a credit back with each reply; `granted`: requests it runs at once, if it named a window",
    ),
    Column("silence_us", LONG, 1, "`late`, `lost`: how long the worker had been silent"),
    Column("allowed_us", LONG, 1, "`late`, `lost`: how long it may be silent; 0: no limit"),
    Column(
        "outcome",
        TEXT,
        1,
        "`final`, `failed`: how the request ended; `refused`: a code; `lost`: `silence`; `requeued`: `limited` if the service has "
        "limits; `log`: the level; `job`: what happened",
    ),
    Column("reason", TEXT, 1, "the reason, as text"),
    Column("topic", TEXT, 1, "`published`: the topic", "text topic"),
    Column(
        "body",
        BYTES,
        1,
        "the payload with its framing, for services and topics with the option `bodies`, cut at 4 KiB",
        "body body",
    ),
    Column("body_cut", SHORT, 1, "1 if `body` was cut", "body_cut body"),
    Column("level", TEXT, 1, "`started`: journal level of the run"),
    Column("covers_run", LONG, 1, "`started`, `missing`: the run whose missing rows this row states"),
    Column("covers_first", LONG, 1, "sequence number of the first missing row"),
    Column("covers_last", LONG, 1, "... and of the last; below `covers_first` if none is missing"),
    Column(
        "principal",
        TEXT,
        2,
        "who `connection` is, by the access file; of `accepted`, who caused the request; of `access`, whose right it is",
        "principal principal connection",
    ),
    Column(
        "allowed",
        SHORT,
        2,
        "1 if the access file gives the right, 2 if not: of `access`, the right `outcome`; of `accepted` and `forwarded`, that of the "
        "request's principal to call; of `dispatched`, the worker's to offer; of a `job` that was submitted, its principal's to call, at "
        "that time",
    ),
    Column("job", TEXT, 3, "`job`: id of the durable job; `memo`: of the job of which the request is an attempt"),
    Column("key", TEXT, 3, "`job`, `flow`: idempotency key; `keyed`: of the request"),
    Column("origin", TEXT, 3, "`job`: where it came from: `job` (submitted), `request`, `titanic` or `schedule`"),
    Column("schedule", TEXT, 3, "`job`: name of the schedule that submitted it"),
    Column(
        "code",
        TEXT,
        3,
        "`job`: how the attempt (`retry`) or the job ended: `ok`, `reused` (the stored reply to an equal call is its result), "
        "`failed`, `timeout`, `expired`, ...",
    ),
    Column("wait_us", LONG, 3, "`job`: `retry`: time until the next attempt; of an outcome: time between all attempts"),
    Column(
        "created",
        TIME,
        3,
        "`job`, `flow`: when it was submitted; `fired`, `skipped`: the time for which the schedule ran",
        "epoch created",
    ),
    Column("once", TEXT, 3, "`job`: what must happen only once: the outcome of a job, a run of a schedule"),
    Column("client_id", TEXT, 4, "`accepted`: the client's own id of the request, as in `requests`", "text client_id"),
    Column("flow", TEXT, 5, "`job`, `node`, `flow`, `memo`: id of the flow"),
    Column("node", INT, 5, "`job`, `node`, `memo`: number of the node in its flow"),
    Column("name", TEXT, 5, "`job`, `node`, `memo`: name of the node; `flow`: name of the flow"),
    Column(
        "needs",
        TEXT,
        5,
        "`job`: `accepted`, `reopened`: numbers of the nodes that the node needs, with ranges, such as `0-2,7`; at most 2,048 "
        "characters, then `...`. `node`: the node that replaces it",
    ),
    Column(
        "position",
        LONG,
        5,
        "of the end of a node: its place among those of its flow, from 1, also over brokers; of its release: the place of the next end. "
        "0 if the answer of the store was lost",
    ),
    Column("since", LONG, 5, "of the end of a node: the last place when it was reset by a retry; 0: it never was"),
    Column(
        "nodes",
        INT,
        5,
        "`flow`: its nodes; `job`: nodes that the worker answered with, then this is not the end of the node",
    ),
)

_REQUESTS = (
    *_COMMON[:3],
    Column("seq", LONG, 1, _COMMON[3].says, "get last_seq"),
    Column(
        "request",
        TEXT,
        1,
        "id of the request: 26 characters, unique across brokers, sorts by time of acceptance",
        "request_id accepted number",
    ),
    Column("number", LONG, 1, "number of the request in the run"),
    Column("service", TEXT, 1, "the service that the client called", "text asked service"),
    Column(
        "last_service",
        TEXT,
        1,
        "the service at which the request ended; differs from `service` if it was forwarded",
        "text service",
    ),
    Column("client", INT, 1, "number of the client's connection in the run"),
    Column("client_peer", TEXT, 1, "the client's address", "of_peer client peer"),
    Column("client_protocol", TEXT, 1, "the client's protocol", "of_peer client protocol"),
    Column("worker", INT, 1, "number of the last worker that held it; 0: none did", "get last_worker"),
    Column("worker_peer", TEXT, 1, "that worker's address", "of_peer worker_connection peer"),
    Column("worker_protocol", TEXT, 1, "that worker's protocol", "of_peer worker_connection protocol"),
    Column("accepted", TIME, 1, "when the broker accepted it", "clock accepted"),
    Column("first_dispatched", TIME, 1, "when it was first dispatched", "moment first"),
    Column("dispatched", TIME, 1, "when it was last dispatched", "moment dispatched"),
    Column("first_partial", TIME, 1, "when the first partial reply arrived", "moment first_partial"),
    Column("wait_us", LONG, 1, "time from acceptance to the first dispatch, or to the end if it was never dispatched"),
    Column("run_us", LONG, 1, "time from the last dispatch to the end; 0 if it was never dispatched"),
    Column("total_us", LONG, 1, "time from acceptance to the end"),
    Column("wait_bucket", SHORT, 1, "logarithmic bucket of `wait_us`", "bucket wait_us"),
    Column("run_bucket", SHORT, 1, "logarithmic bucket of `run_us`", "bucket run_us"),
    Column("total_bucket", SHORT, 1, "logarithmic bucket of `total_us`", "bucket total_us"),
    Column("attempts", SHORT, 1, "dispatches at its last hop", "get attempt"),
    Column("max_attempts", SHORT, 1, "how many attempts were allowed", "get most_attempts"),
    Column("dispatches", SHORT, 1, "dispatches over all hops", "get attempts"),
    Column("hops", SHORT, 1, "how often it was forwarded"),
    Column("partials", INT, 1, "partial replies delivered to the client"),
    Column("request_bytes", LONG, 1, "size of its body with its framing, as last dispatched"),
    Column(
        "reply_bytes", LONG, 1, "size of its final reply and of the partial replies to its client, with their framing"
    ),
    Column("outcome", TEXT, 1, "`ok`, or the kind of failure"),
    Column("reason", TEXT, 1, "reason of a failure, as text; of `ok`: why the reply was not sent to the client"),
    Column("trace", TEXT, 1, "W3C trace context of the request: version-traceid-parentid-flags"),
    Column("parent", TEXT, 1, "id of the request on the broker that sent it over a bridge"),
    Column(
        "principal", TEXT, 2, "the principal that caused the request, by the access file", "principal origin client"
    ),
    Column("worker_principal", TEXT, 2, "that worker's principal", "of_peer worker_connection principal"),
    Column(
        "job",
        TEXT,
        3,
        "id of the durable job that it is an attempt of (`client_protocol` `job`), or whose outcome it waited for",
    ),
    Column(
        "client_id",
        TEXT,
        4,
        "the client's own id of the request: MDX's request id, eMQP's MSGID, DCP's metadata parts separated by spaces; the first "
        "128 bytes, bytes that are not UTF-8 as \\xNN. HTTP's `traceparent` is in `trace`",
        "text client_id",
    ),
)

COLUMNS: dict[str, tuple[Column, ...]] = {MESSAGES: _MESSAGES, REQUESTS: _REQUESTS}


_EMPTY: dict[str, dict[str, Any]] = {
    kind: {column.name: column.nothing for column in columns} for kind, columns in COLUMNS.items()
}


def names(kind: str) -> list[str]:
    return [column.name for column in COLUMNS[kind]]


def empty(kind: str) -> dict[str, Any]:
    """A row with nothing in every column."""
    return dict(_EMPTY[kind])


def row(kind: str, **values: Any) -> dict[str, Any]:
    """A row with nothing in every column that is not given.

    >>> row(MESSAGES, event=STARTED, seq=1)["reason"]
    ''
    """
    made = {**_EMPTY[kind], **values}
    if len(made) != len(_EMPTY[kind]):
        raise KeyError(f"{kind} has no column {next(name for name in values if name not in _EMPTY[kind])}")
    return made


def arrow(kind: str) -> "pyarrow.Schema":
    """The kind's columns for pyarrow, with the version in the metadata."""
    import pyarrow as pa

    made = {
        word: pa.timestamp("us", tz="UTC") if word == TIME else getattr(pa, name)() for word, name in _ARROW.items()
    }
    return pa.schema(
        [pa.field(column.name, made[column.type], nullable=column.type == TIME) for column in COLUMNS[kind]],
        metadata={"polydomo.version": str(VERSION), "polydomo.kind": kind},
    )


def ddl(kind: str, partitions: bool = False) -> str:
    """The kind's columns as the DDL that Spark takes for a schema; with ``partitions``, the date and hour of the directories too."""
    columns = [f"{column.name} {_SQL[column.type]}" for column in COLUMNS[kind]]
    if partitions:
        columns += ["date DATE", "hour INT"]
    return ", ".join(columns)
