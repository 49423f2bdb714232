"""The names in generated journals, and rows as columns of numbers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from polydomo.journal import schema
from polydomo.model.outcomes import CANCELLED, FAILED, INTERRUPTED, NO_WORKER, OK, REUSED
from polydomo.protocols.bridge.session import BridgeSession

Array = np.ndarray
START = int(datetime(2026, 1, 31, 6, 10, tzinfo=UTC).timestamp() * 1e6)
SERVICES = ["echo", "resize", "ocr", "mail", "index", "search", "far", "absent", "fragile", "long", "billing", "lint"]
LANES = 6  # workers of a service, one job at a time each
# ``billing`` is durable, ``lint`` is memoised.
SEARCH, FAR, ABSENT, FRAGILE, LONG, BILLING, LINT = (
    SERVICES.index(name) for name in ("search", "far", "absent", "fragile", "long", "billing", "lint")
)
SERVED = FAR  # services below this one have workers of their own
PROTOCOLS = ["", "mdp1", "mdp2", "dcp", "emqp", "memo", BridgeSession.protocol, "memoised", "job", "keyed"]
PRINCIPALS = ["", "anna", "bert", "carl"]
SILENCE, INFO = "silence", "info"  # the outcome of a worker that was lost without a message; the level of a log record
OUTCOMES = [
    "", OK, FAILED, NO_WORKER, SILENCE, INTERRUPTED, INFO, CANCELLED,
    "hit", "miss", "joined", "accepted", "retry", "done", "dead", "cancelled", "fired", "skipped", "first",
    "started", "retrying", "reopened", "cancelling",
]  # fmt: skip
REASONS = [
    "",
    "the worker failed",
    "no worker offers it",
    "no heartbeat",
    "a heartbeat was missed",
    "started",
    "image scaled",
    "the disk did not keep up",
    "the client has left",
    "no more attempts",
    "an operator cancelled it",
    "a node that it needs has failed",
]
ORIGINS = ["", "job", "request", "titanic", "schedule", "flow"]
CODES = ["", OK, FAILED, CANCELLED, REUSED]
LEVELS = ["", "requests", "messages"]
TOPICS = ["", "status.echo", "status.resize", "load.index"]
EVENTS = ["", *schema.EVENTS]
EV = {name: number for number, name in enumerate(EVENTS)}
FINISHED = -1  # in ``event``: the row of kind ``requests``
LOST_ROWS = 1000
CLIENTS = 40  # connections 1 to 40 are clients: the last three are the broker's own
# They send the runs of requests with a key and of memoised services, and the attempts of durable jobs.
KEY_CLIENT, MEMO_CLIENT, JOB_CLIENT = CLIENTS - 2, CLIENTS - 1, CLIENTS
MEMO_STORE, KEY_HOLDER = len(SERVICES) + 1, len(SERVICES) + 2  # the workers that hold the requests that share a run
MINUTE = 60_000_000
SPARE_CREDIT = 1 << 27
# orders of events at the same microsecond
O_ACCEPT, O_QUEUE, O_EXTRA, O_DISPATCH, O_PARTIAL, O_FINAL, O_RECORD, O_AFTER = range(8)
O_LOST = 20

MESSAGE_FIELDS = (
    "t order event connection client service number attempt hop worker released size queue workers credit auto silence allowed outcome "
    "reason topic level covers_run covers_first covers_last extra"
).split()  # ``extra``: the row of JOB_FIELDS that has the rest; 0 is none
RECORD_FIELDS = (
    "number service last_service client worker accepted first dispatched partial ended attempts max_attempts dispatches hops partials "
    "request_bytes reply_bytes outcome reason child wrong_total job"
).split()
# Columns of an event of a job, a flow, a schedule or a key. ``home`` is the run whose number the ids of its flow and its jobs have, 0 if it
# is the run of the row. ``name`` and ``needs`` are places in ``Life.texts``.
JOB_FIELDS = (
    "job created key client origin schedule code wait once reopened home flow flow_created node name needs position since nodes"
).split()
FLOW_JOBS = 1 << 18  # the first number of jobs of flows


@dataclass
class Blocks:
    """Rows as columns of numbers, gathered piece by piece."""

    fields: list[str]
    parts: dict[str, list[Array]] = field(default_factory=dict)

    def add(self, **columns: Any) -> None:
        n = max(np.size(value) for value in columns.values())
        if not n or any(np.ndim(value) and not np.size(value) for value in columns.values()):
            return
        for name in self.fields:
            value = columns.pop(name, 0)
            self.parts.setdefault(name, []).append(np.broadcast_to(np.asarray(value, np.int64), (n,)))
        assert not columns, f"no such columns: {columns}"

    @property
    def count(self) -> int:
        return sum(part.size for part in self.parts.get(self.fields[0], []))

    def done(self) -> dict[str, Array]:
        return {
            name: np.concatenate(self.parts[name]) if name in self.parts else np.zeros(0, np.int64)
            for name in self.fields
        }


@dataclass
class Life:
    """The plan of one run of one broker."""

    name: str
    run: int
    requests: int
    seconds: float
    breaches: int  # of each rule
    bridge: bool = False  # its ``far`` is another broker
    loses: bool = False  # some of its rows are lost, and a row states it
    killed: bool = False  # it ends in the middle, without a last row
    begins: float = 0.0  # seconds after START
    level: str = schema.MESSAGES
    covers: tuple[int, int, int] = (0, 0, 0)  # the run before it, and the first and last of the rows that one lost
    visitors: dict[str, Array] | None = (
        None  # requests that come over a bridge: service, accepted, ended, parent (run, number, ms)
    )
    taken_over: list[Any] = field(default_factory=list)  # the rest of flows of another broker (``flow_lives.Played``)
    texts: list[str] = field(default_factory=lambda: [""])  # that rows name by their place

    @property
    def times(self) -> tuple[int, int]:
        """Its first and its last moment."""
        start = START + int(self.begins * 1e6)
        return start, start + int(self.seconds * 1e6)


@dataclass
class Changes:
    """A change that is made after all rows are there. A negative number is that of a worker."""

    drop: list[tuple[int, int]] = field(default_factory=list)  # number, event
    set: list[tuple[int, int, str, int]] = field(default_factory=list)  # number, event, column, value
    record: list[tuple[int, str, int]] = field(default_factory=list)  # number, column, value
    hole: list[int] = field(default_factory=list)  # whose partial reply is not there
    twice: list[int] = field(default_factory=list)  # whose partial reply is there twice


Planted = list[tuple[str, int, dict[str, Any]]]  # rule, run, what it is about
Facts = dict[str, Array]
Plant = Callable[["Life", "Blocks", "Blocks", Facts, Facts, int, np.random.Generator], tuple[Planted, Changes]]


@dataclass
class Made:
    messages: dict[str, Array]  # and the places of records among them
    records: dict[str, Array]
    jobs: dict[str, Array]  # by ``extra``
    seq: Array
    planted: list[tuple[str, int, dict[str, Any]]]
    leaving: dict[str, Array] | None  # what crosses the bridge
    lost: tuple[int, int] = (0, 0)  # rows that a killed broker had counted and not written
    moving: list[Any] = field(default_factory=list)  # what the next broker takes over

    def of_jobs(self, name: str) -> Array:
        """A column that all rows about a job have in common, by its number."""
        found = np.zeros(int(self.jobs["job"].max()) + 1, np.int64)
        found[self.jobs["job"]] = self.jobs[name]
        return found


def spare(service: Any) -> Any:
    """The number of the service's worker that has credit for any number of requests."""
    return np.asarray(service) + 1


def visitor(
    rows: Blocks, records: Blocks, number: Any, service: Any, accepted: Any, ended: Any, child: Any = 0, **changes: Any
) -> None:
    """Requests that the service's spare worker, or another one, takes at once. ``failed`` is 1 for those that end with a failure."""
    number, service, accepted, ended = np.broadcast_arrays(number, service, accepted, ended)
    client = changes.pop("client", 1)
    about = {"number": number, "service": service, "client": client}
    worker = changes.pop("worker", spare(service))
    began = np.minimum(accepted + 2, ended)
    began = changes.pop("began", began)
    order = changes.pop("order", O_DISPATCH)
    connection = changes.pop("connection", np.asarray(worker) + CLIENTS)
    failed = np.asarray(changes.pop("failed", 0))
    job = changes.pop("job", 0)
    assert not changes
    rows.add(t=accepted, event=EV[schema.ACCEPTED], order=O_ACCEPT, connection=client, size=100, **about)
    rows.add(
        t=began,
        event=EV[schema.DISPATCHED],
        order=order,
        connection=connection,
        worker=worker,
        attempt=1,
        size=100,
        **about,
    )
    rows.add(
        t=ended,
        event=np.where(failed, EV[schema.FAILED], EV[schema.FINAL]),
        order=O_FINAL,
        connection=client,
        worker=worker,
        attempt=1,
        released=1,
        size=np.where(failed, 0, 50),
        outcome=1 + failed,
        reason=failed,
        **about,
    )
    records.add(
        number=number,
        service=service,
        last_service=service,
        client=client,
        worker=worker,
        accepted=accepted,
        first=began,
        dispatched=began,
        ended=ended,
        attempts=1,
        max_attempts=3,
        dispatches=1,
        request_bytes=100,
        reply_bytes=np.where(failed, 0, 50),
        outcome=1 + failed,
        reason=failed,
        child=child,
        job=job,
    )
    rows.add(t=ended, event=FINISHED, order=O_RECORD, number=number)
