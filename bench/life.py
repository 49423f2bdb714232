"""The words of generated journals, and rows as columns of numbers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from polydomo.journal import schema
from polydomo.protocols.bridge import BridgeSession
from polydomo.protocols.request import CANCELLED, FAILED, INTERRUPTED, NO_WORKER, OK

Array = np.ndarray
START = int(datetime(2026, 1, 31, 6, 10, tzinfo=UTC).timestamp() * 1e6)
SERVICES = ["echo", "resize", "ocr", "mail", "index", "search", "far", "absent", "fragile", "long"]
LANES = 6  # workers of a service, one job at a time each
FAR, ABSENT, FRAGILE, LONG = (SERVICES.index(name) for name in ("far", "absent", "fragile", "long"))
SERVED = FAR  # services below this one have workers of their own
PROTOCOLS = ["", "mdp1", "mdp2", "dcp", "emqp", "memo", BridgeSession.protocol]
SILENCE, INFO = "silence", "info"  # the outcome of a worker that was lost without a word; the level of a log record
OUTCOMES = ["", OK, FAILED, NO_WORKER, SILENCE, INTERRUPTED, INFO, CANCELLED]
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
]
LEVELS = ["", "requests", "messages"]
TOPICS = ["", "status.echo", "status.resize", "load.index"]
EVENTS = ["", *schema.EVENTS]
EV = {name: number for number, name in enumerate(EVENTS)}
FINISHED = -1  # in ``event``: the row of kind ``requests``
LOST_ROWS = 1000
CLIENTS = 40  # connections 1 to 40 are clients
SPARE_CREDIT = 1 << 27
# orders of events at the same microsecond
O_ACCEPT, O_QUEUE, O_EXTRA, O_DISPATCH, O_PARTIAL, O_FINAL, O_RECORD, O_AFTER = range(8)
O_LOST = 20

MESSAGE_FIELDS = (
    "t order event connection client service number attempt hop worker released size queue workers credit auto silence allowed outcome "
    "reason topic level covers_run covers_first covers_last"
).split()
RECORD_FIELDS = (
    "number service last_service client worker accepted first dispatched partial ended attempts max_attempts dispatches hops partials "
    "request_bytes reply_bytes outcome reason child wrong_total"
).split()


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

    def done(self) -> dict[str, Array]:
        return {
            name: np.concatenate(self.parts[name]) if name in self.parts else np.zeros(0, np.int64)
            for name in self.fields
        }


@dataclass
class Life:
    """What one run of one broker is to do."""

    name: str
    run: int
    requests: int
    seconds: float
    breaches: int  # of each rule
    bridge: bool = False  # its ``far`` is another broker
    loses: bool = False  # some of its rows are lost, and it says so
    killed: bool = False  # it ends without a word, in the middle
    begins: float = 0.0  # seconds after START
    level: str = schema.MESSAGES
    covers: tuple[int, int, int] = (0, 0, 0)  # the run before it, and the first and last of the rows that one lost
    visitors: dict[str, Array] | None = (
        None  # requests that come over a bridge: service, accepted, ended, parent (run, number, ms)
    )


@dataclass
class Changes:
    """What is changed once all rows are there. A number below zero is that of a worker."""

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
    seq: Array
    planted: list[tuple[str, int, dict[str, Any]]]
    leaving: dict[str, Array] | None  # what crosses the bridge
    lost: tuple[int, int] = (0, 0)  # rows that a killed broker had counted and not written


def spare(service: Any) -> Any:
    """The number of a service's worker that asks for very many at once."""
    return np.asarray(service) + 1
