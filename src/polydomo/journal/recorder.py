"""The journal's recorder on the broker's loop: an event costs one append, and nothing waits for the disk.

Events are collected in a chunk. A full chunk, or at each tick an incomplete one, is queued for the writer's thread. The queue is bounded:
if the disk is too slow, the oldest chunk is dropped, and a row states which rows are missing.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from polydomo import limits
from polydomo.broker.access import CALL, OFFER
from polydomo.broker.broker import Broker
from polydomo.broker.jobs.events import JobEvent
from polydomo.broker.jobs.job import Job
from polydomo.broker.log_records import LogRecord
from polydomo.broker.recorder import Recorder
from polydomo.journal import chunk as shapes
from polydomo.journal import context, schema
from polydomo.journal.chunk import Chunk, EndDetails, Peer, RareEvent, Run, peer_of, services_of
from polydomo.journal.ids import id_text
from polydomo.journal.levels import Levels
from polydomo.journal.schema import MESSAGES, OFF
from polydomo.native import mypyc_attr
from polydomo.protocols.bridge import bridge_trace_of
from polydomo.protocols.model import Departure, Worker
from polydomo.protocols.request import NO_HISTORY, OK, Request
from polydomo.protocols.session import Session
from polydomo.wire.frames import Body

HEADERS = ("emqp", "http")  # protocols whose requests have headers
SILENT = "silence"  # the ``outcome`` of a worker that was lost because of its silence


@mypyc_attr(allow_interpreted_subclasses=True)
class JournalRecorder(Recorder):
    """Collects the broker's events, and passes infrequent ones on to ``inner``, the server's log."""

    def __init__(
        self,
        run: Run,
        levels: Levels,
        inner: Recorder | None = None,
        mark: "memoryview | list[int] | None" = None,
        bodies: frozenset[bytes] = frozenset(),
        trace_parts: bool = False,
        chunk_rows: int = limits.JOURNAL_CHUNK,
        max_chunks: int = limits.JOURNAL_CHUNKS,
    ) -> None:
        self.run = run
        self.levels = levels
        self.inner = inner if inner is not None else Recorder()
        self.line: deque[Chunk] = deque()  # for the writer, oldest first
        self.again: deque[tuple[int, int, int]] = (
            deque()
        )  # what rows that could not be written accounted for: run, first, last
        self.dropped = 0  # rows, in all
        self._gap = (0, -1)  # the first and the last of the rows that were dropped one after the other
        self.wants_requests = levels.most != OFF
        self.wants_messages = levels.most == MESSAGES
        self.wants_bodies = bool(bodies) and self.wants_messages
        self.status: Callable[[bool], dict[str, object]] | None = None  # how the journal is; set by its owner
        self._mark = (
            mark if mark is not None else [0]
        )  # the last sequence number, in memory that survives a crash of the process
        self._bodies = bodies
        self._chunk_rows = chunk_rows
        self._max_chunks = max_chunks
        self._mixed = bool(levels.services)
        self._trace_parts = trace_parts
        self._headers = 0  # open connections of a protocol that has headers
        self._bridges = 0  # ... and to other brokers
        self._peeks = self._mixed or self.wants_bodies or trace_parts  # requests may need additional fields
        self._messages = levels.level == MESSAGES
        self._seq = 0
        self._peers: dict[int, Session | Peer] = {}
        self._closed: list[int] = []  # connections that went since the last tick
        self._first_service: dict[int, bytes] = {}  # of requests that were passed on
        self._lost: dict[int, tuple[int, int]] = {}  # requeued requests -> the worker and connection that had them
        self._jobs: dict[int, str] = {}  # requests that wait for the outcome of a durable job -> the job
        self._known: set[int] = set()  # workers that have a row
        self._body: Body = b""
        self._open()

    def attach(self, broker: Broker) -> None:
        """Sets the broker whose clock is used. Called once, before anything is recorded."""
        self._broker = broker

    # --- queue to the writer ---------------------------------------------------------------------------------------------

    @property
    def seq(self) -> int:
        """The last sequence number."""
        return self._seq

    def _open(self) -> None:
        self.chunk = Chunk(self._seq + 1, self._messages)
        self._full = self._seq + self._chunk_rows
        self._accept = self.chunk.accepted.extend
        self._dispatch = self.chunk.dispatched.extend
        self._finish = self.chunk.ended.extend

    def count_in(self, mark: memoryview) -> None:
        """Stores the last sequence number there from now on."""
        mark[0] = self._seq
        self._mark = mark

    def hand_over(self) -> None:
        """Queues the collected events for the writer."""
        self._line_up()
        while len(self.line) > self._max_chunks:
            self._drop()

    def _line_up(self) -> None:
        if self._seq >= self.chunk.first:
            self.chunk.last = self._seq
            self.line.append(self.chunk)
            self._open()

    def rows(self) -> list[dict[str, Any]]:
        """Events that no writer has taken yet, in order."""
        chunks = [*self.line, self.chunk]
        return [row for chunk in chunks for row in shapes.rows(self.run, chunk, self.who)]

    def _drop(self) -> None:
        try:
            chunk = self.line.popleft()
        except IndexError:  # the writer has taken it in the meantime
            return
        self.dropped += chunk.last - chunk.first + 1
        # As long as the disk is full, what is dropped is one range that grows: a row about each piece of it would be dropped, told again,
        # dropped again, and in the end there would be no other rows.
        if chunk.first != self._gap[1] + 1:
            self._gap = (chunk.first, chunk.last)
        self._gap = first, last = self._gap[0], chunk.last
        self.missing(self.run.run, first, last, "the disk did not keep up")
        for step in chunk.steps:
            # What a dropped row accounted for is still to be accounted for, unless the row just written does.
            if step.covers_run and not (
                step.covers_run == self.run.run and first <= step.covers_first and step.covers_last <= last
            ):
                self.missing(step.covers_run, step.covers_first, step.covers_last, step.reason)

    def who(self, connection: int) -> Peer:
        """Called by the writer's thread too."""
        found = self._peers.get(connection)
        if found is None:
            return shapes.NO_PEER
        return found if isinstance(found, Peer) else peer_of(found)

    def forget(self, connections: list[int]) -> None:
        """Removes connections that no unwritten row refers to."""
        for connection in connections:
            self._peers.pop(connection, None)

    def take_closed(self) -> list[int]:
        """The connections that have gone since the last call: to be forgotten once all that was in line by now is written."""
        closed, self._closed = self._closed, []
        return closed

    def memory(self) -> int:
        return limits.COST_ROW * (len(self.line) * self._chunk_rows + self._seq - self.chunk.first + 1)

    def figures(self) -> dict[str, float]:
        return {**self.inner.figures(), "rows": self._seq, "rows_dropped": self.dropped}

    def journal(self, flush: bool) -> dict[str, object]:
        return self.status(flush) if self.status is not None else super().journal(flush)

    # --- the run ---------------------------------------------------------------------------------------------------------

    def begin(self, reason: str, before: int = 0, first: int = 1, last: int = 0) -> None:
        """Records the first row: the previous run, and which of its rows are lost."""
        self._step(
            schema.STARTED,
            reason=reason,
            level=self.levels.most,
            covers_run=before,
            covers_first=first,
            covers_last=last,
        )

    def missing(self, run: int, first: int, last: int, reason: str) -> None:
        self._step(schema.MISSING, reason=reason, covers_run=run, covers_first=first, covers_last=last)

    def end(self, reason: str) -> None:
        """Records the last row of a run that ends normally."""
        self._step(schema.STOPPED, reason=reason)
        self._line_up()  # one more than fits, if need be: what a drop now would have to tell, nobody would take any more

    # --- every message ---------------------------------------------------------------------------------------------------

    def accepted(self, request: Request, queued: bool, queue_length: int) -> None:
        service = request.service
        if self._mixed and self.levels.of(service.name) != MESSAGES:
            return
        seq = self._seq + 1
        self._seq = self._mark[0] = seq + 1 if queued else seq
        self._accept(
            (
                seq,
                request.accepted,
                request.number,
                request.session.number,
                service.name,
                len(request.body),
                queue_length,
                len(service.workers),
                int(queued),
            )
        )
        if request.session.principal:
            self.chunk.allowed[seq] = self._broker.access.recorded(request.session, CALL, service.name)
        if self._bodies and service.name in self._bodies:
            self.chunk.bodies[seq] = bytes(request.body[: self.run.max_body + 1])

    def dispatched(self, request: Request, worker: Worker) -> None:
        service = request.service
        if self._mixed and not self._records_messages(request):
            return
        self._seq = self._mark[0] = seq = self._seq + 1
        self._dispatch(
            (
                seq,
                request.dispatched,
                request.number,
                request.session.number,
                worker.session.number,
                service.name,
                worker.number,
                request.attempts - request.history.attempts_before_forward,
                request.history.forwards,
                len(request.body),
                service.queue_length,
            )
        )
        if worker.session.principal:
            self.chunk.allowed[seq] = self._broker.access.recorded(worker.session, OFFER, service.name)

    def ended(self, request: Request) -> None:
        worker = request.worker
        if (
            worker is None
            or request.history is not NO_HISTORY
            or request.outcome != OK
            or request.max_attempts
            or (self._peeks and self._has_more(request))
        ):
            self._ended(request)
            return
        seq = self._seq + 1
        self._seq = self._mark[0] = seq + 1 if self._messages else seq
        self._finish(
            (
                seq,
                self._broker.now,
                request.number,
                request.session.number,
                worker.session.number,
                request.service.name,
                worker.number,
                request.accepted,
                request.dispatched,
                len(request.body),
                request.reply_size,
            )
        )
        if seq >= self._full:
            self.hand_over()

    def _has_more(self, request: Request) -> bool:
        return self._mixed or self.wants_bodies or bool(self._origin(request)[0])

    def _origin(self, request: Request) -> tuple[str, str]:
        """The trace context it came with, or got where it went on to another broker; and its id at the broker it came from."""
        if self._bridges:
            trace, parent = bridge_trace_of(request)
            if trace:
                return trace, parent
        if request.session.is_internal and isinstance(request.ref, Job):
            return request.ref.trace, ""
        found = context.of_header(request) if self._headers else ""
        return found or (context.of_parts(request) if self._trace_parts else ""), ""

    def _ended(self, request: Request) -> None:
        """The slow path: a request that was not answered by its first worker, or that needs additional fields."""
        asked = self._first_service.pop(request.number, b"")
        number, connection = self._lost.pop(request.number, (0, 0))
        body, self._body = self._body, b""
        job, principal = self._jobs.pop(request.number, ""), ""
        if request.session.is_internal and isinstance(request.ref, Job):
            job, principal = request.ref.id, request.ref.principal
        level = self.levels.of(asked or request.service.name)
        if level == OFF:
            return
        worker = request.worker
        if worker is not None:
            number, connection = worker.number, worker.session.number
        has_message_row = int(level == MESSAGES)
        course = request.history
        seq = self._seq + 1
        self._seq = self._mark[0] = seq + has_message_row
        self.chunk.more[seq] = EndDetails(
            has_message_row,
            int(worker is not None),
            int(worker is not None and request.token not in worker.held),
            request.attempts,
            course.attempts_before_forward,
            self._max_attempts(request),
            course.forwards,
            course.first_dispatched or request.dispatched,
            course.first_partial,
            course.partials,
            request.outcome,
            course.reason,
            asked,
            *self._origin(request),
            job=job,
            principal=principal,
            body=bytes(body),
        )
        self._finish(
            (
                seq,
                self._broker.now,
                request.number,
                request.session.number,
                connection,
                request.service.name,
                number,
                request.accepted,
                request.dispatched,
                len(request.body),
                request.reply_size,
            )
        )
        if seq >= self._full:
            self.hand_over()

    def _records_messages(self, request: Request) -> bool:
        """Whether to record the request's messages. Its first service decides, so that all its rows are recorded, or none."""
        return self.levels.of(self._first_service.get(request.number, request.service.name)) == MESSAGES

    def reply_body(self, request: Request, body: Body) -> None:
        if self._first_service.get(request.number, request.service.name) in self._bodies:
            self._body = body[: self.run.max_body + 1]

    def partial(self, request: Request, worker: Worker, size: int) -> None:
        if not self._mixed or self._records_messages(request):
            body, self._body = self._body, b""
            self._about(schema.PARTIAL, request, worker, size=size, body=bytes(body))

    def reply_ignored(self, request: Request, worker: Worker) -> None:
        if not self._mixed or self._records_messages(request):
            self._about(schema.UNHEARD, request, worker, released=1)

    def credit_added(self, worker: Worker, count: int) -> None:
        self._step(schema.GRANTED, connection=worker.session.number, worker=worker.number, credit=count)

    def window_set(self, worker: Worker, change: int, runs: int) -> None:
        self._step(
            schema.GRANTED, connection=worker.session.number, worker=worker.number, credit=change, auto=max(1, runs)
        )

    def _max_attempts(self, request: Request) -> int:
        """How many attempts it may have, those included that were not started; 0: as many as other requests."""
        releases = request.history.releases
        return (request.max_attempts or self.run.attempts) + releases if releases else request.max_attempts

    def published(self, session: Session, topic: bytes, body: Body) -> None:
        self.inner.published(session, topic, body)
        kept = bytes(body[: self.run.max_body + 1]) if self._bodies and self._records(topic) else b""
        self._step(schema.PUBLISHED, connection=session.number, topic=topic, size=len(body), body=kept)

    def _records(self, topic: bytes) -> bool:
        """Whether the topic is named among the payloads to record, or is under a name there that ends with a dot."""
        return topic in self._bodies or any(name.endswith(b".") and topic.startswith(name) for name in self._bodies)

    # --- infrequent events -----------------------------------------------------------------------------------------------------

    def request_id(self, number: int, accepted: float) -> str:
        return id_text(shapes.microseconds(self.run, accepted) // 1000, self.run.run, number)

    def routed(self, request: Request, route: "list[str]") -> None:
        self.inner.routed(request, route)

    def opened(self, session: Session) -> None:
        self.inner.opened(session)
        self._peers[session.number] = session
        self._count(session, 1)
        self._step(schema.CONNECTED, connection=session.number)

    def closed(self, session: Session, why: str) -> None:
        self.inner.closed(session, why)
        self._peers[session.number] = peer_of(session)
        self._closed.append(session.number)
        self._count(session, -1)
        self._step(schema.DISCONNECTED, connection=session.number, reason=why)

    def _count(self, session: Session, by: int) -> None:
        """Updates whether requests may carry a trace context, depending on the connected peers."""
        if session.is_bridge:
            self._bridges += by
        elif session.protocol in HEADERS:
            self._headers += by
        else:
            return
        self._peeks = self._bridges > 0 or self._headers > 0 or self._mixed or self.wants_bodies or self._trace_parts

    def registered(self, worker: Worker) -> None:
        self.inner.registered(worker)
        known = worker.number in self._known
        self._known.add(worker.number)
        self._step(
            schema.REGISTERED,
            connection=worker.session.number,
            worker=worker.number,
            service=services_of(worker),
            credit=0 if known else worker.credit,
            auto=1 if worker.auto_credit else 0,
            reason="one more service" if known else "",
        )

    def late(self, worker: Worker, silence: float, allowed: float) -> None:
        self.inner.late(worker, silence, allowed)
        self._worker(schema.LATE, worker, "a heartbeat was missed", len(worker.held), silence, allowed)

    def left(
        self, worker: Worker, departure: Departure, why: str, held: "list[Request]", silence: float, allowed: float
    ) -> None:
        self.inner.left(worker, departure, why, held, silence, allowed)
        self._known.discard(worker.number)
        for request in held:
            self._lost[request.number] = (worker.number, worker.session.number)
        event = schema.LEFT if departure is Departure.LEFT else schema.LOST
        outcome = SILENT if departure is Departure.SILENT else ""
        self._worker(event, worker, why, len(held), silence, allowed, outcome)

    def _worker(
        self, event: str, worker: Worker, why: str, held: int, silence: float, allowed: float, outcome: str = ""
    ) -> None:
        self._step(
            event,
            connection=worker.session.number,
            worker=worker.number,
            service=services_of(worker),
            size=held,
            silence_us=max(0, round(silence * 1e6)),
            allowed_us=round(allowed * 1e6),
            outcome=outcome,
            reason=why,
        )

    def requeued(self, request: Request, worker: Worker, why: str, queue_length: int, workers: int) -> None:
        self.inner.requeued(request, worker, why, queue_length, workers)
        self._requeue(request, worker, why, queue_length, workers)

    def released(self, request: Request, worker: Worker, why: str, queue_length: int, workers: int) -> None:
        self.inner.released(request, worker, why, queue_length, workers)
        self._requeue(request, worker, why, queue_length, workers)

    def _requeue(self, request: Request, worker: Worker, why: str, queue_length: int, workers: int) -> None:
        free = int(worker.alive)  # one that is not lost can take another request
        self._about(schema.REQUEUED, request, worker, released=free, queue=queue_length, workers=workers, reason=why)

    def forwarded(self, request: Request, worker: Worker, service: bytes, queue_length: int, workers: int) -> None:
        self.inner.forwarded(request, worker, service, queue_length, workers)
        self._first_service.setdefault(request.number, request.service.name)
        self._about(
            schema.FORWARDED, request, worker, service=service, released=1, queue=queue_length + 1, workers=workers
        )

    def stale(self, worker: Worker, token: bytes, what: str, size: int) -> None:
        self.inner.stale(worker, token, what, size)
        self._step(
            schema.STALE,
            connection=worker.session.number,
            worker=worker.number,
            size=size,
            reason=f"{what} for an attempt that w{worker.number} does not hold",
        )

    def refused(self, session: Session, what: str) -> None:
        self.inner.refused(session, what)
        self._step(schema.REFUSED, connection=session.number, client=session.number, outcome="refused", reason=what)

    def denied(self, session: Session, right: str, name: str, what: str) -> None:
        self.inner.denied(session, right, name, what)
        service = name.encode(errors="surrogateescape")
        self._step(
            schema.REFUSED,
            connection=session.number,
            client=session.number,
            service=service,
            outcome="denied",
            reason=what,
        )

    def access(self, principal: str, right: str, name: str, allowed: bool) -> None:
        self.inner.access(principal, right, name, allowed)
        service = name.encode(errors="surrogateescape")
        self._step(schema.ACCESS, service=service, outcome=right, principal=principal, allowed=1 if allowed else 2)

    def internal(self, session: Session) -> None:
        self.inner.internal(session)
        self._peers[session.number] = session

    def job(self, event: JobEvent) -> None:
        self.inner.job(event)
        self._step(
            schema.JOB,
            service=event.service,
            attempt=event.attempts,
            size=event.size,
            outcome=event.what,
            reason=event.reason,
            principal=event.principal,
            job=event.id,
            key=event.key,
            origin=event.origin,
            schedule=event.schedule,
            code=event.code,
            wait_us=round(event.wait * 1e6),
            created=round(event.created * 1e6),
            once=event.once,
        )

    def joined(self, request: Request, job: str) -> None:
        self.inner.joined(request, job)
        if self.wants_requests:
            self._jobs[request.number] = job

    def memoised(self, request: Request, how: str) -> None:
        self.inner.memoised(request, how)
        if self.levels.of(request.service.name) != OFF:
            self._step(
                schema.MEMO,
                connection=request.session.number,
                client=request.session.number,
                service=request.service.name,
                number=request.number,
                outcome=how,
            )

    def keyed(self, request: Request, how: str, key: bytes, run: int) -> None:
        self.inner.keyed(request, how, key, run)
        if self.levels.of(request.service.name) != OFF:
            self._step(
                schema.KEYED,
                connection=request.session.number,
                client=request.session.number,
                service=request.service.name,
                number=request.number,
                outcome=how,
                key=key.decode("utf-8", "backslashreplace"),
                reason=f"request #{run} runs",
            )

    def violated(self, session: Session, what: str) -> None:
        self.inner.violated(session, what)
        self._step(schema.VIOLATED, connection=session.number, reason=what)

    def slow_subscriber(self, session: Session, what: str) -> None:
        self.inner.slow_subscriber(session, what)
        self._step(schema.LAGGED, connection=session.number, reason=what)

    def log_record(self, session: Session, record: LogRecord) -> None:
        self.inner.log_record(session, record)
        self._step(
            schema.LOG,
            connection=session.number,
            number=record.request,
            service=record.service.encode("utf-8", "backslashreplace"),
            size=record.size,
            outcome=record.level,
            reason=record.message,
        )

    def _about(
        self,
        event: str,
        request: Request,
        worker: Worker,
        service: bytes = b"",
        released: int = 0,
        size: int = 0,
        queue: int = 0,
        workers: int = 0,
        reason: str = "",
        body: bytes = b"",
    ) -> None:
        self._step(
            event,
            connection=worker.session.number,
            client=request.session.number,
            service=service or request.service.name,
            number=request.number,
            attempt=request.attempts - request.history.attempts_before_forward,
            hop=request.history.forwards,
            worker=worker.number,
            released=released,
            size=size,
            queue=queue,
            workers=workers,
            reason=reason,
            body=body,
        )

    def _step(self, event: str, **fields: "int | str | bytes") -> None:
        if not self.wants_requests:
            return
        self._seq = self._mark[0] = seq = self._seq + 1
        self.chunk.steps.append(RareEvent(seq, self._broker.now, event, **fields))  # type: ignore[arg-type]
        if seq >= self._full:
            self._full = seq + self._chunk_rows  # handing over may itself write a row
            self.hand_over()
