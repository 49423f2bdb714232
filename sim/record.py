"""The record of a run: the journal rows of the brokers and the observations of the peers, in one order.

A row is ``(time, who, what, request tag, ...)``. Every body contains the tag of its call, and every part of a reply the number of the
execution that made it. So the checker can match replies and calls without trusting the broker.
"""

import hashlib
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from polydomo.broker.observe.tallies import STANDING_IN
from polydomo.journal.levels import Levels
from polydomo.journal.recording import chunk as shapes
from polydomo.journal.recording.chunk import Run
from polydomo.journal.recording.recorder import JournalRecorder
from polydomo.journal.schema import MESSAGES
from polydomo.model.outcomes import OK
from polydomo.model.records import Departure, Request, Session, Worker

if TYPE_CHECKING:
    from sim.brokers import BrokerNode

Row = tuple[object, ...]

TAG = re.compile(rb"<([a-z0-9.]+)>")
OUTSIDE = b"<garbage.outside>"  # in requests of principals that may not call the service FORWARD_TO
MAX_CHUNKS = 4  # chunks that may wait to be written; then rows are dropped
PART = re.compile(rb"\{([a-z0-9.]+)\|(\d+)\|(\w+)\}")


def tag_of(body: "bytes | memoryview") -> str:
    """The tag in the body of a request, or an empty string."""
    found = TAG.search(bytes(body[:256]))
    return found[1].decode() if found else ""


class Record:
    """All rows of one world."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.journal: list[dict[str, Any]] = []  # rows that the brokers have written to disk

    def add(self, when: float, who: str, what: str, tag: str = "", *more: object) -> None:
        self.rows.append((round(when, 6), who, what, tag, *more))

    def digest(self) -> str:
        """A hash of all rows. It is the same in every run of a seed."""
        return hashlib.sha256("\n".join(map(repr, [*self.rows, *self.journal])).encode()).hexdigest()

    def history(self, tag: str, most: int = 200) -> list[str]:
        """The rows of one request as lines of text; if there are more than ``most``, the first and the last ones."""
        lines = [
            f"{row[0]:10.4f}  {row[1]:<14} {row[2]:<12} {' '.join(map(str, row[3:]))}"
            for row in self.rows
            if row[3] == tag
        ]
        return lines if len(lines) <= most else [*lines[: most // 2], "...", *lines[-most // 2 :]]


class SimRecorder(JournalRecorder):
    """The real journal of one run of a broker, kept in memory. It also adds a row to the record for each event.

    ``safe`` has the rows that have reached the disk. A crash loses the others, and the next run reports them as lost. While the disk is
    full, rows wait in the queue, and when it is full too, rows are dropped, as in a real broker.
    """

    def __init__(self, node: "BrokerNode", record: Record, run: Run, chunk_rows: int) -> None:
        super().__init__(run, Levels(MESSAGES), chunk_rows=chunk_rows, max_chunks=MAX_CHUNKS)
        self.node = node
        self.record = record
        self.tags: dict[int, str] = {}  # tags of open requests, by number
        self.finished: Counter[tuple[bytes, bool]] = (
            Counter()
        )  # service, whether it was answered; see ``sim/figures.py``
        self.safe: list[dict[str, Any]] = []
        self.disk_full = False

    # --- the disk

    def sync(self) -> None:
        """Writes the queued rows to the disk, unless it is full."""
        self.hand_over()
        if not self.disk_full:
            while self.queue.chunks:
                self.safe += shapes.rows(self.run, self.queue.chunks.popleft(), self.who)

    def lost(self) -> list[tuple[int, int]]:
        """Ranges of rows that were not written, and that no written row reports as lost."""
        there = {int(row["seq"]) for row in self.safe}
        for row in self.safe:
            if row.get("covers_run") == self.run.run:
                there.update(range(row["covers_first"], row["covers_last"] + 1))
        found: list[tuple[int, int]] = []
        for seq in range(1, self.seq + 1):
            if seq not in there:
                if found and found[-1][1] == seq - 1:
                    found[-1] = (found[-1][0], seq)
                else:
                    found.append((seq, seq))
        return found

    # --- rows of the record

    def _row(self, what: str, tag: str, *more: object) -> None:
        self.record.add(self.node.now, self.node.run_name, what, tag, *more)

    def _tag(self, request: Request) -> str:
        return self.tags.get(request.number, "")

    def accepted(self, request: Request, queued: bool, queue_length: int) -> None:
        super().accepted(request, queued, queue_length)
        tag = tag_of(request.body)
        self.tags[request.number] = tag
        self._row("accepted", tag, request.number, _name(request.service.name), _peer(request.session))
        self.node.watcher.accepted(request)

    def dispatched(self, request: Request, worker: Worker) -> None:
        super().dispatched(request, worker)
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
        super().partial(request, worker, size)
        self._row("partial", self._tag(request), request.number, worker.number, size)

    def ended(self, request: Request) -> None:
        super().ended(request)
        if request.session.counts_as(request) not in STANDING_IN:
            self.finished[request.service.name, request.outcome == OK] += 1
        worker = request.worker
        number = worker.number if worker is not None else 0
        holder = _peer(worker.session) if worker is not None else ""
        self._row("ended", self._tag(request), request.number, request.outcome, number, holder, request.history.reason)
        self.tags.pop(request.number, None)
        self.node.watcher.ended(request)

    def joined(self, request: Request, job: str) -> None:
        super().joined(request, job)
        self._row("joined", self._tag(request), request.number, job)

    def opened(self, session: Session) -> None:
        super().opened(session)
        self._row("opened", "", session.number, session.protocol, _peer(session))

    def closed(self, session: Session, why: str) -> None:
        super().closed(session, why)
        self._row("closed", "", session.number, _peer(session), why)

    def registered(self, worker: Worker) -> None:
        super().registered(worker)
        self.node.watcher.registered(worker)
        names = sorted(_name(service.name) for service in worker.services)
        self._row("registered", "", worker.number, worker.session.protocol, _peer(worker.session), *names)

    def left(
        self, worker: Worker, departure: Departure, why: str, held: "list[Request]", silence: float, allowed: float
    ) -> None:
        super().left(worker, departure, why, held, silence, allowed)
        self._row("left", "", worker.number, _peer(worker.session), departure.state, why)
        for request in held:
            self._row("lost", self._tag(request), request.number, worker.number, why)
        if departure is Departure.SILENT:
            self.node.watcher.lost_too_soon(worker)

    def requeued(self, request: Request, worker: Worker, why: str, queue_length: int, workers: int) -> None:
        super().requeued(request, worker, why, queue_length, workers)
        self._row(
            "requeued", self._tag(request), request.number, _name(request.service.name), worker.number, request.attempts
        )
        self.node.watcher.requeued(request)

    def released(self, request: Request, worker: Worker, why: str, queue_length: int, workers: int) -> None:
        super().released(request, worker, why, queue_length, workers)
        self._row("released", self._tag(request), request.number, worker.number)
        self.node.watcher.released(request, worker)

    def forwarded(self, request: Request, worker: Worker, service: bytes, queue_length: int, workers: int) -> None:
        super().forwarded(request, worker, service, queue_length, workers)
        self._row("forwarded", self._tag(request), request.number, worker.number, _name(service))
        self.node.watcher.forwarded(request)

    def stale(self, worker: Worker, token: bytes, what: str, size: int) -> None:
        super().stale(worker, token, what, size)
        self._row("stale", "", worker.number, token.decode(errors="backslashreplace"), what, size)

    def refused(self, session: Session, what: str) -> None:
        super().refused(session, what)
        self._row("refused", "", session.number, _peer(session), what)

    def violated(self, session: Session, what: str) -> None:
        super().violated(session, what)
        self._row("violated", "", session.number, session.protocol, _peer(session), what)


def _peer(session: Session) -> str:
    return session.link.peer


def _name(service: bytes) -> str:
    return service.decode(errors="backslashreplace")
