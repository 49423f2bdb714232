"""Replays a journal against a running broker, or through the broker core with the recorded clock.

Through the core, the actions of peers (connect, register, call, answer, leave) are repeated at the recorded times, and the broker's
reactions (dispatches, requeues) can be compared, so that a journal can become a test. Decisions that depended on settings that are not in
the journal (deadlines, silence) are taken from it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from polydomo.broker.broker import Broker
from polydomo.broker.workers import registration
from polydomo.journal import schema
from polydomo.model.outcomes import FAILED, OK
from polydomo.model.records import Departure, Request, Worker
from polydomo.model.registration import Refusal, WorkerTerms
from polydomo.model.request_options import PLAIN, RequestOptions
from polydomo.model.session import ProtocolSession
from polydomo.wire.close_reason import CloseCause
from polydomo.wire.frames import Body, split
from polydomo.wire.link import Hub, Link, LinkHandler

Row = dict[str, Any]


@dataclass(frozen=True)
class RecordedRequest:
    """A recorded request with its body and outcome."""

    time: float  # seconds since the epoch
    client: int
    protocol: str
    service: str
    number: int
    frames: tuple[bytes, ...]
    outcome: str  # "": it has none on record
    total_us: int


def asked(messages: list[Row], requests: list[Row]) -> tuple[list[RecordedRequest], int]:
    """The clients' requests in order, and the number of requests whose body was not recorded, or only in part."""
    ended = {(row["run"], row["number"]): row for row in requests}
    found: list[RecordedRequest] = []
    without = 0
    for row in messages:
        if row["event"] != schema.ACCEPTED or row["protocol"] in (
            "",
            "job",
        ):  # attempts of durable jobs are the broker's own
            continue
        if row["body_cut"] or len(row["body"]) != row["size"]:
            without += 1
            continue
        end = ended.get((row["run"], row["number"]))
        found.append(
            RecordedRequest(
                seconds(row["time"]),
                row["client"],
                row["protocol"],
                row["service"],
                row["number"],
                tuple(split(row["body"])),
                end["outcome"] if end else "",
                end["total_us"] if end else 0,
            )
        )
    found.sort(key=lambda one: (one.time, one.number))
    return found, without


def seconds(time: Any) -> float:
    """Of a row's time, as a reader or as the core gives it."""
    return float(time.timestamp()) if hasattr(time, "timestamp") else time / 1e6


# --- through the core -------------------------------------------------------------------------------------------------


class ReplayedPeer(ProtocolSession):
    """A recorded peer: it repeats its actions, and the broker's recorder keeps the reactions."""

    def __init__(self, broker: Broker, hub: Hub, row: Row) -> None:
        super().__init__(broker, Link(hub, LinkHandler(), row["peer"]))
        self.link.handler = self
        self.protocol = row["protocol"]
        self.dialect = row["dialect"]

    def send_partial(self, request: Request, body: Body) -> None: ...
    def send_final(self, request: Request, body: Body) -> None: ...
    def deliver(self, worker: Worker, request: Request) -> None: ...


class Core:
    """Drives a broker by the rows of one run, of both kinds and of level ``messages``. Give the broker the recorder whose rows you want."""

    def __init__(self, broker: Broker, rows: list[Row]) -> None:
        self.broker = broker
        self.rows = sorted((row for row in rows if "event" in row), key=lambda row: int(row["seq"]))
        finished = [row for row in rows if "event" not in row]
        self.attempts = {row["number"]: row["max_attempts"] for row in finished}
        self.streams = {row["client"] for row in finished if row["partials"]}  # clients whose protocol has partials
        self.hub = Hub()
        self.actors: dict[int, ReplayedPeer] = {}
        self.workers: dict[int, Worker] = {}
        self.requests: dict[int, Request] = {}
        self.numbers: dict[int, int] = {}  # ours -> the journal's
        self.unlike: list[str] = []  # differences from the recorded outcomes

    def run(self) -> None:
        """From the first row to the last."""
        if not self.rows:
            return
        offset = self.broker.now - seconds(self.rows[0]["time"])
        for row in self.rows:
            self.broker.now = max(self.broker.now, seconds(row["time"]) + offset)
            self.hub.now = self.broker.now
            stimulus = getattr(self, f"_{row['event']}", None)
            if stimulus is not None:
                stimulus(row)
            self.broker.end_turn()

    def _connected(self, row: Row) -> None:
        actor = self.actors[row["connection"]] = ReplayedPeer(self.broker, self.hub, row)
        actor.takes_partials = row["connection"] in self.streams
        self.broker.session_opened(actor)

    def _disconnected(self, row: Row) -> None:
        self.actors[row["connection"]].link.lost(CloseCause.OTHER, row["reason"])

    def _registered(self, row: Row) -> None:
        names = [name.encode() for name in row["service"].split(",")]
        known = self.workers.get(row["worker"])
        if known is not None:
            for name in names[len(known.services) :]:
                self.broker.add_service(known, name)
            return
        terms = WorkerTerms(row["credit"], row["auto"])
        worker = self.broker.register_worker(self.actors[row["connection"]], names, None, terms)
        if isinstance(worker, Refusal):
            self.unlike.append(f"row {row['seq']}: the broker refused a worker: {worker.text}")
        else:
            self.workers[row["worker"]] = worker

    def _granted(self, row: Row) -> None:
        worker = self.workers[row["worker"]]
        if row["auto"]:
            self.broker.set_credit(worker, worker.auto_credit + row["credit"], row["auto"])
        else:
            self.broker.add_credit(worker, row["credit"])

    def _left(self, row: Row) -> None:
        self.broker.worker_left(self.workers[row["worker"]], row["reason"])

    def _lost(self, row: Row) -> None:
        registration.lose(self.broker, self.workers[row["worker"]], Departure.LOST, row["reason"])

    def _accepted(self, row: Row) -> None:
        body = row["body"] if row["body"] and not row["body_cut"] else _filling(row["size"])
        attempts = self.attempts.get(row["number"], 0)
        options = RequestOptions(attempts=attempts) if attempts else PLAIN
        request = self.broker.request(self.actors[row["client"]], row["service"].encode(), body, None, 0.0, options)
        if request is None:
            self.unlike.append(f"row {row['seq']}: the broker refused request {row['number']}")
        else:
            self.requests[row["number"]] = request
            self.numbers[request.number] = row["number"]

    def _partial(self, row: Row) -> None:
        held = self._held(row)
        if held is not None:
            self.broker.partial(*held, _filling(row["size"]))

    def _final(self, row: Row) -> None:
        held = self._held(row)
        if held is not None:
            self.broker.final(*held, row["body"] if row["body"] and not row["body_cut"] else _filling(row["size"]))

    _unheard = _final

    def _failed(self, row: Row) -> None:
        request = self.requests.get(row["number"])
        if row["outcome"] == FAILED:
            held = self._held(row)
            if held is not None:
                code, _, text = row["reason"].partition(": ")
                self.broker.fail(*held, code, text)
        elif request is not None:
            # The clock's decision; where it was something else, it is done already.
            self.broker.cancel(request, row["reason"])

    def _requeued(self, row: Row) -> None:
        if row["released"]:  # otherwise its worker was lost, which is another row
            held = self._held(row)
            if held is not None:
                self.broker.release(*held)

    def _forwarded(self, row: Row) -> None:
        held = self._held(row)
        if held is not None:
            self.broker.forward(*held, row["service"].encode(), _filling(0), None)

    def _held(self, row: Row) -> tuple[Worker, bytes] | None:
        """The worker and the token under which it has the request now, if it does."""
        worker = self.workers[row["worker"]]
        wanted = self.requests.get(row["number"])
        for token, request in worker.held.items():
            if request is wanted:
                return worker, token
        self.unlike.append(
            f"row {row['seq']}: w{row['worker']} answered request {row['number']}, which it was not given"
        )
        return None


def _filling(size: int) -> bytes:
    """A body of one frame with this framed size, if the recorded body is missing."""
    if size < 2:
        return b""
    if size < 258:
        return bytes((0, size - 2)) + bytes(size - 2)
    return b"\x02" + (size - 9).to_bytes(8, "big") + bytes(size - 9)


def comparable_events(rows: list[Row], numbers: dict[int, int] | None = None) -> Iterator[tuple[object, ...]]:
    """The broker's reactions for comparison: dispatches, requeues and outcomes. ``numbers`` translates request numbers."""
    for row in rows:
        event = row.get("event")
        number = numbers.get(row["number"], 0) if numbers is not None else row["number"] if event else 0
        if event == schema.DISPATCHED:
            yield event, number, row["service"], row["worker"], row["attempt"], row["hop"]
        elif event == schema.REQUEUED:
            yield event, number, row["service"], row["worker"]
        elif event in (schema.FINAL, schema.FAILED):
            yield "ended", number, row["outcome"] if row["outcome"] in (OK, FAILED) else "otherwise"
