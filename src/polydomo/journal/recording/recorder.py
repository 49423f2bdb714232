"""The journal's recorder on the broker's loop: an event costs one append, and nothing waits for the disk.

Events are collected in a chunk. A full chunk, or at each tick an incomplete one, is queued for the writer's thread. The queue is bounded:
if the disk is too slow, the oldest chunk is dropped, and a row states which rows are missing.
"""

from collections.abc import Callable
from typing import Any

from polydomo import limits
from polydomo.broker.broker import Broker
from polydomo.broker.flows.events import FlowEvent
from polydomo.broker.flows.flow import NodeEnd
from polydomo.broker.jobs.events import JobEvent
from polydomo.broker.jobs.job import Job
from polydomo.broker.observe.recorder import Recorder
from polydomo.broker.topics.logs import LogRecord
from polydomo.journal import schema
from polydomo.journal.ids import id_text
from polydomo.journal.levels import Levels
from polydomo.journal.recording import chunk as shapes
from polydomo.journal.recording import event_fields
from polydomo.journal.recording.chunk import ACCEPTED, DISPATCHED, ENDED, Chunk, EndDetails, Peer, RareEvent, Run
from polydomo.journal.recording.chunk_queue import ChunkQueue
from polydomo.journal.recording.known_peers import KnownPeers
from polydomo.journal.recording.trace_origin import TraceOrigin
from polydomo.journal.schema import MESSAGES, OFF
from polydomo.model.name_patterns import PatternMap, chosen
from polydomo.model.outcomes import OK
from polydomo.model.records import NO_HISTORY, Departure, Request, Session, Worker
from polydomo.native import mypyc_attr
from polydomo.wire.frames import Body

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
        bodies: "PatternMap[bool] | None" = None,
        trace_parts: bool = False,
        chunk_rows: int = limits.JOURNAL_CHUNK,
        max_chunks: int = limits.JOURNAL_CHUNKS,
    ) -> None:
        self.run = run
        self.levels = levels
        self.inner = inner if inner is not None else Recorder()
        self.queue = ChunkQueue(run.run, max_chunks)
        self.peers = KnownPeers()
        self.wants_requests = levels.most != OFF
        self.wants_messages = levels.most == MESSAGES
        self.wants_bodies = bool(bodies) and self.wants_messages
        self.status: Callable[[bool], dict[str, object]] | None = None  # how the journal is; set by its owner
        # the last sequence number, in memory that survives a crash of the process
        self._mark = mark if mark is not None else [0]
        self._bodies = bodies if bodies is not None else chosen([])
        self._chunk_rows = chunk_rows
        self._mixed = bool(levels.services)
        self._traces = TraceOrigin(trace_parts)
        self._peeks = self._mixed or self.wants_bodies or trace_parts  # requests may need additional fields
        self._messages = levels.level == MESSAGES
        self._seq = 0
        self._pack_accepted = ACCEPTED.struct.pack
        self._pack_dispatched = DISPATCHED.struct.pack
        self._pack_ended = ENDED.struct.pack
        self._first_service: dict[int, bytes] = {}  # of forwarded requests
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
        self._services = self.chunk.services

    def count_in(self, mark: memoryview) -> None:
        """Stores the last sequence number there from now on."""
        mark[0] = self._seq
        self._mark = mark

    def hand_over(self) -> None:
        """Queues the collected events for the writer."""
        self._close_chunk()
        while self.queue.is_overfull():
            self._drop()

    def _close_chunk(self) -> None:
        if self._seq >= self.chunk.first:
            self.chunk.last = self._seq
            self.queue.chunks.append(self.chunk)
            self._open()

    def rows(self, kinds: "tuple[str, ...]" = schema.KINDS) -> list[dict[str, Any]]:
        """Events that no writer has taken yet, in order."""
        chunks = [*self.queue.chunks, self.chunk]
        return [row for chunk in chunks for row in shapes.rows(self.run, chunk, self.who, kinds)]

    def _drop(self) -> None:
        for run, first, last, reason in self.queue.drop_oldest():
            self.missing(run, first, last, reason)

    def who(self, connection: int) -> Peer:
        """Called by the writer's thread too."""
        return self.peers.who(connection)

    def memory(self) -> int:
        return self.chunk.memory() + self.queue.memory()

    def figures(self) -> dict[str, float]:
        failing = self.status is not None and bool(self.status(False).get("trouble"))
        own = {"rows": self._seq, "rows_dropped": self.queue.dropped, "failing": int(failing)}
        return {**self.inner.figures(), **own}

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
        self._close_chunk()  # even if the queue is full: no row could state a chunk that is dropped now

    # --- every message ---------------------------------------------------------------------------------------------------

    def accepted(self, request: Request, queued: bool, queue_length: int) -> None:
        service = request.service
        if self._mixed and self.levels.of(service.name) != MESSAGES:
            return
        seq = self._seq + 1
        self._seq = self._mark[0] = seq + 1 if queued else seq
        self.chunk.accepted += self._pack_accepted(
            seq,
            request.accepted,
            request.number,
            request.session.number,
            self._services[service.name],
            len(request.body),
            queue_length,
            len(service.workers),
            int(queued),
        )
        session = request.session
        if session.principal:
            self.chunk.allowed[seq] = self._broker.access.recorded_call(request, service.name)
            if not session.origin_is_principal:
                self.chunk.origins[seq] = session.origin_of(request)
        if self.wants_bodies and self._bodies.get(service.name):
            self.chunk.bodies[seq] = body = bytes(request.body[: self.run.max_body + 1])
            self.chunk.body_bytes += len(body)
        if session.has_client_ids:
            self._client_id(seq, request)

    def _client_id(self, seq: int, request: Request) -> None:
        identity = request.session.client_id_of(request)
        if identity:
            self.chunk.client_ids.add(seq, identity[: limits.JOURNAL_CLIENT_ID])

    def dispatched(self, request: Request, worker: Worker) -> None:
        service = request.service
        if self._mixed and not self._records_messages(request):
            return
        self._seq = self._mark[0] = seq = self._seq + 1
        self.chunk.dispatched += self._pack_dispatched(
            seq,
            request.dispatched,
            request.number,
            request.session.number,
            worker.session.number,
            self._services[service.name],
            worker.number,
            request.attempts - request.history.attempts_before_forward,
            request.history.forwards,
            len(request.body),
            service.queue_length,
        )
        if worker.session.principal:
            self.chunk.allowed[seq] = self._broker.access.recorded_offer(worker.session, service.name)

    def ended(self, request: Request) -> None:
        worker = request.worker
        if (
            worker is None
            or request.history is not NO_HISTORY
            or request.outcome != OK
            or request.max_attempts
            or (not request.session.origin_is_principal and request.origin)
            or (request.session.may_withhold and request.session.withheld(request))
            or (self._peeks and self._has_more(request))
        ):
            self._ended(request)
            return
        seq = self._seq + 1
        self._seq = self._mark[0] = seq + 1 if self._messages else seq
        self.chunk.ended += self._pack_ended(
            seq,
            self._broker.now,
            request.number,
            request.session.number,
            worker.session.number,
            self._services[request.service.name],
            worker.number,
            request.accepted,
            request.dispatched,
            len(request.body),
            request.reply_size,
        )
        if request.session.has_client_ids:
            self._client_id(seq, request)
        if seq >= self._full:
            self.hand_over()

    def _has_more(self, request: Request) -> bool:
        return self._mixed or self.wants_bodies or bool(self._traces.of(request)[0])

    def _ended(self, request: Request) -> None:
        """The slow path: a request that was not answered by its first worker, or that needs additional fields."""
        asked = self._first_service.pop(request.number, b"")
        number, connection = self._lost.pop(request.number, (0, 0))
        body, self._body = self._body, b""
        job = self._jobs.pop(request.number, "")
        principal = "" if request.session.origin_is_principal else request.origin
        if request.session.is_internal and isinstance(request.ref, Job):
            job = request.ref.id
        level = self.levels.of(asked or request.service.name)
        if level == OFF:
            return
        worker = request.worker
        if worker is not None:
            number, connection = worker.number, worker.session.number
        has_message_row = int(level == MESSAGES)
        history = request.history
        seq = self._seq + 1
        self._seq = self._mark[0] = seq + has_message_row
        self.chunk.body_bytes += len(body)
        trace, parent = self._traces.of(request)
        self.chunk.more[seq] = EndDetails(
            message_rows=has_message_row,
            held=int(worker is not None),
            released=int(worker is not None and request.token not in worker.held),
            attempts=request.attempts,
            spent=history.attempts_before_forward,
            max_attempts=self._max_attempts(request),
            hops=history.forwards,
            first_dispatched=history.first_dispatched or request.dispatched,
            first_partial=history.first_partial,
            partials=history.partials,
            outcome=request.outcome,
            reason=history.reason or self._withheld(request),
            asked=asked,
            trace=trace,
            parent=parent,
            job=job,
            origin=principal,
            body=bytes(body),
        )
        self.chunk.ended += self._pack_ended(
            seq,
            self._broker.now,
            request.number,
            request.session.number,
            connection,
            self._services[request.service.name],
            number,
            request.accepted,
            request.dispatched,
            len(request.body),
            request.reply_size,
        )
        if request.session.has_client_ids:
            self._client_id(seq, request)
        if seq >= self._full:
            self.hand_over()

    def _withheld(self, request: Request) -> str:
        """Why an answered request's reply is not sent."""
        session = request.session
        return session.withheld(request) if request.outcome == OK and session.may_withhold else ""

    def _records_messages(self, request: Request) -> bool:
        """Whether to record the request's messages. Its first service decides, so that all its rows are recorded, or none."""
        return self.levels.of(self._first_service.get(request.number, request.service.name)) == MESSAGES

    def reply_body(self, request: Request, body: Body) -> None:
        if self._bodies.get(self._first_service.get(request.number, request.service.name)):
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
        kept = bytes(body[: self.run.max_body + 1]) if self.wants_bodies and self._bodies.get(topic) else b""
        self._step(schema.PUBLISHED, connection=session.number, topic=topic, size=len(body), body=kept)

    # --- infrequent events -----------------------------------------------------------------------------------------------------

    def request_id(self, number: int, accepted: float) -> str:
        return id_text(shapes.microseconds(self.run, accepted) // 1000, self.run.run, number)

    def routed(self, request: Request, route: "list[str]") -> None:
        self.inner.routed(request, route)

    def opened(self, session: Session) -> None:
        self.inner.opened(session)
        self.peers.add(session)
        self._count(session, 1)
        self._step(schema.CONNECTED, connection=session.number)

    def closed(self, session: Session, why: str) -> None:
        self.inner.closed(session, why)
        self.peers.close(session)
        self._count(session, -1)
        self._step(schema.DISCONNECTED, connection=session.number, reason=why)

    def _count(self, session: Session, by: int) -> None:
        self._traces.count(session, by)
        self._peeks = self._traces.possible or self._mixed or self.wants_bodies

    def registered(self, worker: Worker) -> None:
        self.inner.registered(worker)
        known = worker.number in self._known
        self._known.add(worker.number)
        self._step(schema.REGISTERED, **event_fields.of_registration(worker, known))

    def late(self, worker: Worker, silence: float, allowed: float) -> None:
        self.inner.late(worker, silence, allowed)
        fields = event_fields.of_silence(worker, len(worker.held), silence, allowed)
        self._step(schema.LATE, reason="a heartbeat was missed", **fields)

    def left(
        self, worker: Worker, departure: Departure, why: str, held: "list[Request]", silence: float, allowed: float
    ) -> None:
        self.inner.left(worker, departure, why, held, silence, allowed)
        self._known.discard(worker.number)
        for request in held:
            self._lost[request.number] = (worker.number, worker.session.number)
        event = schema.LEFT if departure is Departure.LEFT else schema.LOST
        outcome = SILENT if departure is Departure.SILENT else ""
        fields = event_fields.of_silence(worker, len(held), silence, allowed)
        self._step(event, outcome=outcome, reason=why, **fields)

    def requeued(self, request: Request, worker: Worker, why: str, queue_length: int, workers: int) -> None:
        self.inner.requeued(request, worker, why, queue_length, workers)
        self._requeue(request, worker, why, queue_length, workers)

    def released(self, request: Request, worker: Worker, why: str, queue_length: int, workers: int) -> None:
        self.inner.released(request, worker, why, queue_length, workers)
        self._requeue(request, worker, why, queue_length, workers)

    def _requeue(self, request: Request, worker: Worker, why: str, queue_length: int, workers: int) -> None:
        free = int(worker.alive)  # one that is not lost can take another request
        how = schema.LIMITED if request.service.limits is not None else ""
        self._about(
            schema.REQUEUED,
            request,
            worker,
            released=free,
            queue=queue_length,
            workers=workers,
            reason=why,
            outcome=how,
        )

    def forwarded(self, request: Request, worker: Worker, service: bytes, queue_length: int, workers: int) -> None:
        self.inner.forwarded(request, worker, service, queue_length, workers)
        self._first_service.setdefault(request.number, request.service.name)
        right = self._broker.access.recorded_call(request, service)
        queue = queue_length + 1
        self._about(
            schema.FORWARDED, request, worker, service=service, released=1, queue=queue, workers=workers, allowed=right
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

    def denied(self, session: Session, principal: str, right: str, name: str, what: str) -> None:
        self.inner.denied(session, principal, right, name, what)
        self._step(schema.REFUSED, **event_fields.of_denial(session, principal, name, what))

    def access(self, principal: str, right: str, name: str, allowed: bool) -> None:
        self.inner.access(principal, right, name, allowed)
        service = name.encode(errors="surrogateescape")
        self._step(schema.ACCESS, service=service, outcome=right, principal=principal, allowed=1 if allowed else 2)

    def internal(self, session: Session) -> None:
        self.inner.internal(session)
        self.peers.add(session)

    def job(self, event: JobEvent) -> None:
        self.inner.job(event)
        self._step(schema.JOB, **event_fields.of_job(event))

    def flow(self, event: FlowEvent) -> None:
        self.inner.flow(event)
        self._step(schema.FLOW, **event_fields.of_flow(event))

    def node_ended(self, end: NodeEnd) -> None:
        self.inner.node_ended(end)
        self._step(schema.NODE, **event_fields.of_node(end))

    def joined(self, request: Request, job: str) -> None:
        self.inner.joined(request, job)
        if self.wants_requests:
            self._jobs[request.number] = job

    def memoised(self, request: Request, how: str) -> None:
        self.inner.memoised(request, how)
        if self.levels.of(request.service.name) != OFF:
            self._step(schema.MEMO, **event_fields.of_lookup(request, how))

    def keyed(self, request: Request, how: str, key: bytes, run: int) -> None:
        self.inner.keyed(request, how, key, run)
        if self.levels.of(request.service.name) != OFF:
            text = key.decode("utf-8", "backslashreplace")
            fields = event_fields.of_request(request)
            self._step(schema.KEYED, outcome=how, key=text, reason=f"request #{run} runs", **fields)

    def violated(self, session: Session, what: str) -> None:
        self.inner.violated(session, what)
        self._step(schema.VIOLATED, connection=session.number, reason=what)

    def slow_subscriber(self, session: Session, what: str) -> None:
        self.inner.slow_subscriber(session, what)
        self._step(schema.LAGGED, connection=session.number, reason=what)

    def log_record(self, session: Session, record: LogRecord) -> None:
        self.inner.log_record(session, record)
        self._step(schema.LOG, **event_fields.of_log(session, record))

    def _about(self, event: str, request: Request, worker: Worker, **fields: "int | str | bytes") -> None:
        fields.setdefault("service", request.service.name)
        self._step(
            event,
            connection=worker.session.number,
            client=request.session.number,
            number=request.number,
            attempt=request.attempts - request.history.attempts_before_forward,
            hop=request.history.forwards,
            worker=worker.number,
            **fields,
        )

    def _step(self, event: str, **fields: "int | str | bytes") -> None:
        if not self.wants_requests:
            return
        self._seq = self._mark[0] = seq = self._seq + 1
        step = RareEvent(seq, self._broker.now, event, **fields)
        self.chunk.steps.append(step)
        self.chunk.body_bytes += len(step.body)
        if seq >= self._full:
            self._full = seq + self._chunk_rows  # handing over may itself write a row
            self.hand_over()
