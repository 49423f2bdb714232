"""What happened, row by row: what the brokers journal and what the peers saw, in one order.

A row is ``(time, who, what, request tag, ...)``. Every body carries the tag of the call it belongs to, and every part of a reply the number of the
execution it comes from, so that the record can tell whose is what without trusting the broker.
"""

import hashlib
import re
from typing import TYPE_CHECKING

from polydomo.broker.record import Recorder
from polydomo.protocols.verbs import Request, Session, Worker

if TYPE_CHECKING:
    from sim.brokers import BrokerNode

Row = tuple[object, ...]

TAG = re.compile(rb"<([a-z0-9.]+)>")
PART = re.compile(rb"\{([a-z0-9.]+)\|(\d+)\|(\w+)\}")


def tag_of(body: "bytes | memoryview") -> str:
    """The tag in a request's body; empty for one that has none."""
    found = TAG.search(bytes(body[:256]))
    return found[1].decode() if found else ""


class Record:
    """All rows of one world."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, when: float, who: str, what: str, tag: str = "", *more: object) -> None:
        self.rows.append((round(when, 6), who, what, tag, *more))

    def digest(self) -> str:
        """The same seed gives the same record, byte for byte."""
        return hashlib.sha256("\n".join(map(repr, self.rows)).encode()).hexdigest()

    def story(self, tag: str, most: int = 200) -> list[str]:
        """The rows about one request, and about the workers that had it."""
        lines = [f"{row[0]:10.4f}  {row[1]:<14} {row[2]:<12} {' '.join(map(str, row[3:]))}" for row in self.rows if row[3] == tag]
        return lines if len(lines) <= most else [*lines[: most // 2], "...", *lines[-most // 2 :]]


class SimRecorder(Recorder):
    """The journal of one run of one broker, kept in memory. ``seq`` is the row's number in the record."""

    wants_requests = True
    wants_messages = True

    def __init__(self, node: "BrokerNode", record: Record) -> None:
        self.node = node
        self.record = record
        self.tags: dict[int, str] = {}  # of open requests, by number

    def _row(self, what: str, tag: str, *more: object) -> None:
        self.record.add(self.node.now, self.node.run_name, what, tag, *more)

    def _tag(self, request: Request) -> str:
        return self.tags.get(request.number, "")

    def accepted(self, request: Request) -> None:
        tag = tag_of(request.body)
        self.tags[request.number] = tag
        self._row("accepted", tag, request.number, _name(request.service.name), _peer(request.session))
        self.node.watcher.accepted(request)

    def dispatched(self, request: Request, worker: Worker) -> None:
        self._row(
            "dispatched",
            self._tag(request),
            request.number,
            _name(request.service.name),
            worker.number,
            request.attempts,
            request.token.decode(),
            _peer(worker.session),
        )
        self.node.watcher.dispatched(request, worker)

    def partial(self, request: Request, worker: Worker, size: int) -> None:
        self._row("partial", self._tag(request), request.number, worker.number, size)

    def ended(self, request: Request) -> None:
        worker = request.worker
        number = worker.number if worker is not None else 0
        holder = _peer(worker.session) if worker is not None else ""
        self._row("ended", self._tag(request), request.number, request.outcome, number, holder, request.reason)
        self.tags.pop(request.number, None)
        self.node.watcher.ended(request)

    def opened(self, session: Session) -> None:
        self._row("opened", "", session.number, session.protocol, _peer(session))

    def closed(self, session: Session, why: str) -> None:
        self._row("closed", "", session.number, _peer(session), why)

    def registered(self, worker: Worker) -> None:
        names = sorted(_name(service.name) for service in worker.services)
        self._row("registered", "", worker.number, worker.session.protocol, _peer(worker.session), *names)

    def left(self, worker: Worker, state: str, why: str) -> None:
        self._row("left", "", worker.number, _peer(worker.session), state, why)
        self.node.watcher.hasty(worker, why)
        for request in worker.held.values():
            self._row("lost", self._tag(request), request.number, worker.number, why)

    def requeued(self, request: Request, worker: Worker, why: str) -> None:
        self._row("requeued", self._tag(request), request.number, _name(request.service.name), worker.number, request.attempts)

    def forwarded(self, request: Request, worker: Worker, service: bytes) -> None:
        self._row("forwarded", self._tag(request), request.number, worker.number, _name(service))

    def stale(self, worker: Worker, token: bytes, what: str, size: int) -> None:
        self._row("stale", "", worker.number, token.decode(errors="backslashreplace"), what, size)

    def refused(self, session: Session, what: str) -> None:
        self._row("refused", "", session.number, _peer(session), what)

    def violated(self, session: Session, what: str) -> None:
        self._row("violated", "", session.number, session.protocol, _peer(session), what)


def _peer(session: Session) -> str:
    return session.link.peer


def _name(service: bytes) -> str:
    return service.decode(errors="backslashreplace")
