"""Runs durable jobs in the broker.

``Durable`` connects the state machine of jobs (``broker.jobs``) with the rest of the broker. An attempt of a job is a request of an
internal client, ``JobSession``; queues, workers, time limits and the journal treat it like any other request. A client's request that
waits for the store or for a job is PARKED: it is open, but neither queued nor held by a worker.

Finished attempts are collected and handled at the end of the turn, so that the state machine can start new requests without being called
in the middle of another operation.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import tzinfo

from polydomo.broker import sessions
from polydomo.broker.flows.flow import FlowRow
from polydomo.broker.flows.flows import Flows
from polydomo.broker.flows.growth import Growth
from polydomo.broker.guard.rules import ADMIN, CALL
from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.durable_order import KEYED, DurableOrder
from polydomo.broker.jobs.failures import NOT_SAID, failure_reason, retry_after
from polydomo.broker.jobs.job import Job, Row
from polydomo.broker.jobs.job_session import JobSession, Recording
from polydomo.broker.jobs.job_waiters import JobWaiters
from polydomo.broker.jobs.jobs import EXPIRED, Answer, Jobs
from polydomo.broker.jobs.ops import UNAVAILABLE, Loaded, ScheduleRow, Store, StoreError
from polydomo.broker.jobs.policy import JobListener, JobPolicy
from polydomo.broker.jobs.schedules import STARTS_FLOW, Schedules
from polydomo.broker.requests import outcomes, parking, progress, transitions
from polydomo.broker.reserved_names import TITANIC, is_reserved
from polydomo.broker.state import State
from polydomo.broker.timers import TIME_TOLERANCE
from polydomo.errors import SettingError
from polydomo.limits import JOB_RELEASED, STORE_ANSWER
from polydomo.model.broker_api import BrokerApi
from polydomo.model.jobs.messages import answer_body, error_header, make_id
from polydomo.model.json_form import iso_time
from polydomo.model.name_patterns import PatternMap
from polydomo.model.outcomes import DENIED, FAILED, KEY_REUSED, OK, REFUSED, SHUTDOWN, TIMEOUT
from polydomo.model.progress import progress_row
from polydomo.model.records import DONE, PARKED, QUEUED, Request, Session
from polydomo.model.request_options import RequestOptions
from polydomo.wire.frames import Body, frame, join

Zones = Callable[[str], tzinfo]

NOT_FOUND = "not-found"
OTHER_BODY = "a job with this key or id has another body, service or principal; use a new key for another job"
PENDING = "pending"
NO_OUTCOME = "the job has no outcome yet"
ANOTHERS = "the job of another principal"
ANOTHERS_FLOW = "the flow of another principal"
NO_PRINCIPAL = "it has no principal, because it was stored without access control; an operator has to submit it again"
UNIQUE_ID = 16  # bytes: a request id of at least this length is assumed to be unique across clients and restarts


class Wait:
    """The job or operation that a parked request waits for. ``job`` is known once it is stored."""

    __slots__ = ("answer", "deadline", "job", "leave", "over", "plain", "relayed")

    def __init__(self, plain: bool, deadline: float) -> None:
        self.plain = plain  # a request to a durable service, not to a built-in service
        self.relayed = False  # another process of this broker sent it on behalf of its client (``relay``)
        # When the client gets an error because the store has not answered. Ignored for ordinary requests whose job is stored.
        self.deadline = deadline
        self.job = ""
        self.answer: Callable[[Job | None, StoreError | None], None] | None = None
        self.over: Callable[[], None] | None = None  # called instead of an error when the deadline has passed
        self.leave: Callable[[], None] | None = None  # called if the client is gone


class Durable:
    def __init__(
        self,
        api: BrokerApi,
        state: State,
        store: Store,
        policy: JobPolicy,
        names: "PatternMap[bool]",
        zones: Zones,
        listener: JobListener | None = None,
    ) -> None:
        self.state = state
        self.names = names  # of services whose requests are durable
        self.jobs = Jobs(store, self, policy, listener if listener is not None else Recording(state))
        self.schedules = Schedules(self.jobs, self)
        self.flows = Flows(self.jobs)
        self.jobs.on_growth = self.growth_problem
        self.session = JobSession(api)
        self.parked: dict[Request, Wait] = {}
        self.waiters = JobWaiters()
        self.running: dict[Job, Request] = {}  # running attempts: job -> request
        self._attempts: dict[Request, Job] = {}  # the reverse: request -> job
        self.wall_shift = 0.0  # correction for changes of the wall clock since startup
        # Is given the epoch and what the store has, before any job starts.
        self.on_lead: Callable[[int, Loaded], None] | None = None
        self._zones = zones
        self._sweep_at = 0.0
        self.session.on_due = self.on_timer
        self.session.on_progress = self._progressed
        self.session.on_partial = self._partial
        sessions.internal(state, self.session)

    # --- leadership: called by the owner of the store ---------------------------------------------------------------------------

    def lead(self, epoch: int, loaded: Loaded) -> None:
        if self.on_lead is not None:
            self.on_lead(epoch, loaded)
        self.jobs.lead(epoch, loaded)
        self.schedules.load(loaded.schedules)
        self.flows.load(loaded.flows)

    def follow(self, leader: str, why: str) -> None:
        self.schedules.clear()
        self.jobs.follow(leader, why)
        self.flows.clear()

    def withdraw(self) -> None:
        """Attempts that wait for a worker go back to the jobs, because another broker may lead by now."""
        for request in list(self._attempts):
            worker = request.worker
            if request.state == QUEUED or (worker is not None and not worker.session.has_begun(request)):
                outcomes.cancel_and_tell(self.state, request, "the lease of the job store has run out", SHUTDOWN)

    def suspend(self, suspended: bool) -> None:
        self.jobs.suspend(suspended)

    # --- Runner and ScheduleContext -----------------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self.state.now + self.state.wall + self.wall_shift

    def chance(self) -> float:
        return int.from_bytes(self.state.entropy.take(4), "big") / 2**32

    def new_id(self) -> str:
        return make_id(self.now(), self.state.entropy.take(10))

    def zone(self, name: str) -> tzinfo:
        return self._zones(name)

    def capacity(self, service: bytes) -> int:
        """Twice the capacity of the workers, so that none has to wait for the next job; 0 without workers."""
        known = self.state.services.get(service)
        if known is None or not (known.workers or known.remote) or known.paused:
            return 0
        held = sum([worker.credit + len(worker.held) for worker in known.workers])
        return JOB_RELEASED + 2 * held

    def refusal_of(self, job: Job) -> str:
        """Why the principal of a job may not call its service now; "" if it may."""
        why = self.state.rights.denial_as(job.principal, self.session, CALL, job.service)
        return why if not why or job.principal else NO_PRINCIPAL

    def submit(self, job: Job, answer: Answer) -> None:
        """Stores a job of a principal whose right was checked."""
        job.allowed = self.state.rights.recorded_job(job.principal, job.service)
        self.jobs.submit(job, answer)

    def denial_of_use(self, request: Request, job: Job) -> str:
        """Why the client may not see, cancel or remove a job; "" if it may: its own with the right to call the service, and that of another
        principal with the right ADMIN."""
        rights = self.state.rights
        if not rights.in_force or (job.principal and job.principal == request.origin):
            return rights.denial_of(request, CALL, job.service)
        return rights.denial_of(request, ADMIN, ANOTHERS)

    def denial_of_flow(self, request: Request, row: FlowRow) -> str:
        """The same for a flow. Its nodes need the right to call their services when they run."""
        rights = self.state.rights
        if not rights.in_force or (row.principal and row.principal == request.origin):
            return ""
        return rights.denial_of(request, ADMIN, ANOTHERS_FLOW)

    def growth_problem(self, job: Job, growth: Growth) -> tuple[str, str]:
        """Why a worker that runs a job may not answer with this flow: a code and a reason; both are empty if it may."""
        if not job.flow:
            return FAILED, "only a worker that runs the node of a flow can answer with a flow"
        why = self.denial_of_services(job.principal, growth.services)
        if why:
            return DENIED, why
        return self.flows.growth_problem(job, growth)

    def denial_of_services(self, principal: str, services: "list[bytes]") -> str:
        """Why a principal may not start a flow of these services; "" if it may."""
        for service in services:
            if is_reserved(service):
                return f"{service.decode(errors='replace')!r} is a built-in service, and cannot run jobs"
            why = self.state.rights.denial_as(principal, self.session, CALL, service)
            if why:
                return why if principal else NO_PRINCIPAL
        return ""

    def flow_started(self, row: FlowRow) -> None:
        self.flows.adopt(row)

    def start(self, job: Job) -> None:
        group, near = job.group.encode("utf-8", "surrogateescape"), job.near.encode("utf-8", "surrogateescape")
        options = RequestOptions(max_run=job.run, attempts=job.attempts + 1, group=group, near=near)
        options.reuse = job.reuse
        body = job.input if job.input is not None else job.body
        request = self.session.broker.request(self.session, job.service, body, job, 0.0, options)
        if request is None:
            refused, _, why, _ = self.session.ended.pop()  # ``send_failure`` was called
            if refused.outcome == DENIED:
                self.jobs.attempt_ended(job, DENIED, why if job.principal else NO_PRINCIPAL, b"", False)
            else:
                self.jobs.attempt_ended(job, REFUSED, why, b"", False)
        else:
            self.running[job] = request
            self._attempts[request] = job

    def stop(self, job: Job) -> None:
        request = self.running.pop(job, None)
        if request is not None:
            self._attempts.pop(request, None)
        if request is not None and request.state != DONE:
            outcomes.cancel(self.state, request, "the job has ended")

    def _partial(self, attempt: Request, body: Body) -> None:
        """A worker sent a partial reply for the attempt of a job. It is stored now, and it will also be part of the result."""
        job = self._attempts.get(attempt)
        if job is None or job.phase != states.RUNNING or self.jobs.open.get(job.id) is not job:
            return
        held = attempt.history.held_partials
        if held is not None and len(held.bodies) == 1:
            self.jobs.parts.begin(job)  # another worker has it now: what the first one sent is dropped from the result
        self.jobs.parts.add(job, bytes(body), self.now())

    def _progressed(self, attempt: Request, share: float, text: str) -> None:
        """A worker reports how far the attempt of a job is. It is shown to the clients that wait for the job, and not stored."""
        job = self._attempts.get(attempt)
        if job is not None:
            job.progress = progress_row(share, text)
            for request in self.waiters.of(job.id):
                progress.show(request, share, text)
            if job.flow:
                self.flows.progressed(job)

    # --- turns and time -----------------------------------------------------------------------------------------------------------

    def end_turn(self) -> None:
        """Handles the attempts that ended in this turn. This may start new ones."""
        while self.session.ended:
            ended, self.session.ended = self.session.ended, []
            for request, code, text, body in ended:
                job = self._attempts.pop(request, None)
                if job is None:
                    continue
                self.running.pop(job, None)
                worker = request.worker
                if worker is not None:
                    job.worker = worker.name or f"w{worker.number}"
                taken = request.attempts > job.attempts
                after = retry_after(code) if request.outcome == FAILED else NOT_SAID
                reason = failure_reason(code, text) if request.outcome == FAILED else text
                self.jobs.attempt_ended(job, request.outcome, reason, bytes(body), taken, after)
            self._serve_offered()
        self._serve_offered()

    def _serve_offered(self) -> None:
        offered = self.state.offered
        if offered:
            self.state.offered = {}
            for service in offered:
                self.jobs.service_changed(service)

    def next_deadline(self) -> float | None:
        first = self.jobs.next_deadline()
        planned = self.schedules.next_deadline()
        if planned and (not first or planned < first):
            first = planned
        when = first - self.state.wall - self.wall_shift if first else None
        if self.parked and (when is None or self._sweep_at < when):
            return max(self._sweep_at, self.state.now)
        return when

    def run_due(self) -> None:
        self.jobs.run_due()
        self.schedules.run_due()
        if self.parked and self.state.now >= self._sweep_at:
            self._sweep_at = self.state.now + 1.0
            for request in [found for found, wait in self.parked.items() if wait.deadline <= self.state.now]:
                self.on_timer(request)

    # --- ordinary requests to durable services -----------------------------------------------------------------------------------------

    def covers(self, name: bytes) -> bool:
        """Whether ordinary requests to this service are durable."""
        return self.names.get(name) is True

    def accept(self, request: Request, order: DurableOrder, deadline: float) -> Request | None:
        """Turns an ordinary request into a job and waits for its result. None: it was rejected."""
        state = self.state
        error = self.jobs.refusal(len(request.body))
        if error is not None:
            self._refuse(request, error)
            return None
        parking.open_parked(state, request, deadline)
        wait = self.parked[request] = Wait(True, state.now + STORE_ANSWER)
        self._store(request, wait, order)
        return request

    def accept_relayed(self, request: Request, order: DurableOrder) -> None:
        """The same for a request of another process, which is parked here. The right is checked again where the job is stored."""
        why = self.state.rights.denial_of(request, CALL, order.service)
        if why:
            self.fail(request, DENIED, why)
            return
        error = self.jobs.refusal(len(order.body))
        if error is not None:
            self.refuse(request, error)
            return
        wait = self.parked[request]
        wait.relayed = True
        self._store(request, wait, order)

    def _store(self, request: Request, wait: Wait, order: DurableOrder) -> None:
        """Stores the job of a request, or finds the job of an earlier, identical one."""
        name, content = order.service, order.body
        unique = order.identity if len(order.identity) >= UNIQUE_ID else b""
        owner = order.principal.encode("utf-8", "replace") + b"\0" if order.principal else b""
        digest = hashlib.sha256(b"%b%d:%b%b" % (owner, len(name), name, content)).digest()
        if not unique:
            claimed = self.jobs.claim(digest)
            if claimed:
                self._join(request, wait, claimed)
                return
        now = self.now()
        # A relayed request may arrive again while the first one still waits here, over a connection that is lost: both have one id.
        job = Job(order.job or self.new_id(), name, content, now)
        job.origin = states.REQUEST
        job.run = order.run
        job.principal = order.principal
        job.headers, job.trace = order.headers, order.trace
        job.group, job.near = order.group, order.near
        if order.attempts:
            job.backoff = replace(self.jobs.backoff_of(job), attempts=order.attempts)
        if order.ttl:
            job.expires = now + order.ttl
        if unique.startswith(KEYED):
            job.set_key("key:" + hashlib.sha256(unique).hexdigest())
        elif unique:
            job.key = "id:" + hashlib.sha256(b"%b\0%b\0%b" % (unique, name, content)).hexdigest()
        else:
            job.digest = digest

        def stored(found: Job | None, error: StoreError | None) -> None:
            if found is None:
                self._lost(request, error)
            elif found is not job and not job.repeats(found):
                self._lost(request, StoreError(KEY_REUSED, OTHER_BODY))
            elif found.state in states.ENDED:
                if request.state == PARKED and not wait.relayed:
                    self.state.recorder.joined(request, found.id)
                self._deliver(request, found)
            else:
                self._join(request, wait, found.id)

        self.submit(job, stored)

    def schedule_for(
        self, session: Session, principal: str, service: bytes, message: bytes, when: str, headers: str, add: bool
    ) -> None:
        """eMQP's SCHEDULE and UNSCHEDULE. The principal, the queue and the message identify the schedule."""
        owner = principal.encode("utf-8", "replace") + b"\0" if principal else b""
        name = "emqp-" + hashlib.sha256(b"%b%b\0%b" % (owner, service, message)).hexdigest()[:16]
        if not add:
            self.schedules.drop(name, lambda done, error: None)
            return
        row = ScheduleRow(name, service, frame(message, False), when, "UTC", self.now())
        pattern = Job("", service, b"", 0.0)
        pattern.headers = headers
        pattern.principal = principal
        row.settings = pattern.settings()
        try:
            self.put_schedule(row, None)
        except SettingError as error:
            sessions.violated(self.state, session, str(error))

    def _refuse(self, request: Request, error: StoreError) -> None:
        """Rejects the request. Its client gets the code if the protocol has one."""
        outcomes.count_refusal(self.state, request, REFUSED, error.text)
        request.session.send_failure(request, error.code, error.text)

    def _join(self, request: Request, wait: Wait, id: str) -> None:
        """Answers the request with the outcome of this job, now or later."""
        wait.job = id
        if wait.relayed:
            wait.deadline = math.inf  # the other process knows how long its client waits
        elif request.state == PARKED:
            self.state.recorder.joined(request, id)

        def ended(job: Job | None, error: StoreError | None) -> None:
            if job is None:
                self._lost(request, error)
            else:
                self._deliver(request, job)

        wait.answer = ended
        if request.state != PARKED:
            self.jobs.abandon(id)
        elif self.jobs.wait(id, ended):
            self.waiters.add(id, request)
        else:

            def found(job: Job | None, error: StoreError | None) -> None:
                if request.state == PARKED and job is not None and job.digest:
                    self.jobs.collected(id)
                ended(job, error)

            self.jobs.find(id, found)

    def _deliver(self, request: Request, job: Job) -> None:
        """Sends the outcome to the client, once it is on disk."""
        if request.state != PARKED:
            return
        outcome = job.outcome if job.outcome in outcomes.KNOWN else TIMEOUT if job.outcome == EXPIRED else FAILED
        if self.parked[request].relayed:
            header: Row = {"job": job.id, "state": job.state, "outcome": outcome, "reason": job.reason}
            self.reply(request, header, job.result)
            return
        self._unpark(request)
        if job.state == states.DONE:
            request.reply_size = len(job.result)
            outcomes.end(self.state, request, OK, "")
            request.session.send_final(request, job.result)
        else:
            outcomes.end(self.state, request, outcome, job.reason)
            request.session.send_failure(request, outcome, job.reason)

    def _lost(self, request: Request, error: StoreError | None) -> None:
        """Fails the request: the store failed, another broker is the leader, or the stored job is gone."""
        if request.state != PARKED:
            return
        code = error.code if error is not None else REFUSED
        text = error.text if error is not None else "the job is no longer in the store"
        if self.parked[request].relayed:
            self.fail(request, code, text)
            return
        self._unpark(request)
        outcomes.end(self.state, request, REFUSED, text)
        request.session.send_failure(request, code, text)

    # --- requests to built-in services ------------------------------------------------------------------------------------------------

    def serve(self, request: Request, job: Callable[[Request, Body], None]) -> None:
        """Handles a request to one of the job services (``BuiltinService.job``). It may be answered later."""
        self.parked[request] = Wait(False, self.state.now + STORE_ANSWER)
        body, request.body = request.body, b""
        transitions.accept(self.state, request)
        transitions.park(request)
        try:
            job(request, body)
        except SettingError as error:
            self.fail(request, "invalid", str(error))

    def reply(self, request: Request, header: Row, body: Body = b"") -> None:
        self.answer(request, answer_body(header, body))

    def fail(self, request: Request, code: str, text: str, leader: str = "") -> None:
        """Answers with an error, in the form of the service: Titanic's answers begin with a status."""
        if request.service.name.startswith(TITANIC):
            self.answer(request, join([b"500", text.encode()]))
            return
        header = error_header(code, text)
        if leader:
            header["leader"] = leader
        self.answer(request, answer_body(header))

    def refuse(self, request: Request, error: StoreError) -> None:
        self.fail(request, error.code, error.text, self.jobs.leader)

    def why_pending(self, service: bytes) -> str:
        """Why a job has no result."""
        return f"{NO_OUTCOME}: its service is paused" if service in self.jobs.paused else NO_OUTCOME

    def put_schedule(self, row: ScheduleRow, request: Request | None) -> None:
        """Stores a schedule and answers the client. Raises SettingError."""
        if is_reserved(row.service) and row.service != STARTS_FLOW:
            raise SettingError(
                f"service: {row.service.decode(errors='replace')!r} is a built-in service, and cannot run jobs"
            )
        self.schedules.check(row)

        def stored(done: bool, error: StoreError | None) -> None:
            if request is None:
                return
            if error is not None:
                self.refuse(request, error)
            else:
                self.reply(request, {"name": row.name, "next": iso_time(row.next)})

        self.schedules.put(row, stored)

    def answer(self, request: Request, body: Body) -> None:
        """Answers a parked request to a built-in service."""
        if request.state == PARKED and request in self.parked:
            self._close(request)
            request.session.send_final(request, body)

    def _unpark(self, request: Request) -> None:
        wait = self.parked.pop(request, None)
        if wait is not None and wait.job:
            self.waiters.remove(wait.job, request)

    def _close(self, request: Request) -> None:
        """Ends a request to a built-in service. Such requests are not recorded."""
        self._unpark(request)
        transitions.end(self.state, request, OK, "")

    # --- end of parked requests -----------------------------------------------------------------------------------------------------

    def abandoned(self, request: Request) -> bool:
        """The client of a parked request disconnected, or its deadline passed. The job continues. Returns True if nothing else is left to
        end."""
        wait = self.parked.get(request)
        if wait is None:
            return False
        if wait.job and wait.answer is not None:
            self.jobs.stop_waiting(wait.job, wait.answer)
        if wait.leave is not None:
            wait.leave()
        if wait.plain:
            self._unpark(request)
            return False
        self._close(request)
        return True

    def goes_on(self, request: Request) -> bool:
        return True  # the store has it

    def on_timer(self, request: Request) -> None:
        """Called when the store has not answered in time, or a wait for a result has timed out."""
        wait = self.parked.get(request)
        if wait is None or wait.deadline > self.state.now + TIME_TOLERANCE:
            return
        if not wait.plain:
            self._wait_over(request, wait)
        elif not wait.job:
            self._lost(
                request, StoreError(UNAVAILABLE, "the job store does not answer; the job may or may not be stored")
            )

    def _wait_over(self, request: Request, wait: Wait) -> None:
        """A request to a built-in service has waited long enough."""
        if wait.over is not None:
            wait.over()
            return
        if not wait.job:
            text = "the job store does not answer; the operation may or may not have been done"
            self.fail(request, "store-unavailable", text)
            return
        job = self.jobs.open.get(wait.job)
        if wait.answer is not None:
            self.jobs.stop_waiting(wait.job, wait.answer)
        if job is not None:
            pending = {"error": PENDING, "text": self.why_pending(job.service)}
            self.reply(request, {"job": job.id, "state": job.phase, **pending})
        else:
            self.fail(request, PENDING, NO_OUTCOME)

    def drain(self) -> None:
        """At shutdown: running jobs may finish. The others stay in the store, and requests that wait for them end."""
        self.jobs.draining = True
        for request, wait in list(self.parked.items()):
            if not wait.plain and not wait.relayed:
                self.fail(request, SHUTDOWN, "the broker is shutting down")
                continue
            job = self.jobs.open.get(wait.job)
            if job is None or job.phase not in (states.DELAYED, states.QUEUED):
                continue
            text = "the broker is shutting down; the job stays in the store"
            if wait.relayed:
                self.fail(request, SHUTDOWN, text)
            else:
                self.abandoned(request)
                outcomes.fail(self.state, request, SHUTDOWN, text)

    def figures(self) -> "dict[str, object]":
        """The numbers for `polydomo status`, ``polydomo.figures`` and metrics."""
        counters = self.jobs.counters
        return {
            "leads": self.jobs.leads and not self.jobs.suspended,
            "leader": self.jobs.leader,
            "open": self.jobs.phases(),
            "open_bytes": self.jobs.bytes,
            "submitted": counters.accepted,
            "repeated": counters.repeated,
            "refused": counters.refused,
            "done": counters.done,
            "dead": counters.dead,
            "cancelled": counters.cancelled,
            "retried": counters.retried,
            "schedules": len(self.schedules.plans),
            "fired": counters.fired,
        }

    def parks(self, request: Request) -> bool:
        return request in self.parked

    def check_invariants(self) -> None:
        self.jobs.check()
        self.flows.check()
        for request in self.parked:
            assert request.state == PARKED and request in request.session.requests, (
                f"request {request.number} is not parked"
            )
        for id, request in self.waiters:
            assert self.parked[request].job == id, f"request {request.number} does not wait for the job {id}"
        for job, request in self.running.items():
            assert self._attempts[request] is job and self.jobs.open.get(job.id) is job, (
                f"job {job.id} is running but not open"
            )
