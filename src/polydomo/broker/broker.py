"""``Broker`` is the facade of the broker: it creates the parts over one ``State``, connects them, and implements ``BrokerApi``, which
sessions call. ``docs/architecture.md`` says which module answers which question.

The owner of the event loop sets ``now`` at the start of each turn. It calls ``run_timers`` at ``next_deadline``, ``end_turn`` once per
turn, ``tick`` once a second, and ``was_suspended`` when the process did not run for a while.

``requests.transitions`` has the states of a request, and is the only module that changes them.
"""

from collections.abc import Callable

from polydomo.broker import sessions, shutdown, timekeeping
from polydomo.broker.builtin import registry
from polydomo.broker.catalog.bridged_entries import BridgedEntries
from polydomo.broker.catalog.catalog import Catalog
from polydomo.broker.catalog.changes import CatalogChanges
from polydomo.broker.catalog.directory import Directory
from polydomo.broker.catalog.registered_nodes import RegisteredNodes
from polydomo.broker.catalog.service_workers import ServiceWorkers
from polydomo.broker.cluster.bridging import Bridging
from polydomo.broker.cluster.siblings import Siblings
from polydomo.broker.entropy import Entropy
from polydomo.broker.guard import backpressure
from polydomo.broker.guard.access import Access
from polydomo.broker.guard.logins import Logins
from polydomo.broker.guard.memory import (
    CATALOG,
    ERRORS,
    HISTORY,
    LIMITS,
    LOGS,
    SCHEMAS,
    SUBSCRIPTIONS,
    VALUES,
    MemoryAccount,
)
from polydomo.broker.guard.revocation import Revocation
from polydomo.broker.identity import identity
from polydomo.broker.jobs.durable import Durable
from polydomo.broker.jobs.ops import Loaded
from polydomo.broker.jobs.relay import DurableRelay
from polydomo.broker.limiting.job_lanes import LeaderStarts, LimitedJobs
from polydomo.broker.limiting.limiter import Limiter
from polydomo.broker.observe import inspection, invariants
from polydomo.broker.observe.answering import Answering
from polydomo.broker.observe.figures import Figures
from polydomo.broker.observe.history.history import FigureHistory
from polydomo.broker.observe.listings import Listings
from polydomo.broker.observe.monitor import Monitor
from polydomo.broker.observe.parts import Parts
from polydomo.broker.observe.recorder import Recorder
from polydomo.broker.observe.schemas import Schemas
from polydomo.broker.policy import Policy
from polydomo.broker.requests import credit, deadlines, dispatch, outcomes, queues, replies, transitions
from polydomo.broker.requests.admission import Admission
from polydomo.broker.requests.request_names import request_name
from polydomo.broker.requests.transitions import new_request
from polydomo.broker.reserved_names import is_reserved
from polydomo.broker.service_table import has_worker
from polydomo.broker.sharing.keyed import KeyedRequests
from polydomo.broker.sharing.memoised import Memoiser
from polydomo.broker.state import State
from polydomo.broker.topics.publishing import Publishing
from polydomo.broker.workers import liveness, registration
from polydomo.broker.workers.control import Control
from polydomo.limits import COST_SUBSCRIPTION, JOB_MEMORY, SMALL_BODY, WORK_REQUEST
from polydomo.model.broker_api import BrokerApi
from polydomo.model.name_patterns import PatternMap
from polydomo.model.outcomes import CANCELLED, NO_WORKER, OK, TIMEOUT
from polydomo.model.records import DONE, NEW, NO_HISTORY, Departure, Path, Request, Session, Worker, new_time_limits
from polydomo.model.registration import Refusal, WorkerTerms
from polydomo.model.request_options import PLAIN, RequestOptions
from polydomo.model.tuning import Tuning
from polydomo.wire.close_reason import CloseReason
from polydomo.wire.frames import Body


class Broker(State, BrokerApi):
    __slots__ = (
        "access", "admission", "answering", "bridged_entries", "bridging", "catalog", "changes", "control", "directory", "history",
        "limiter", "listings", "logins", "memory", "monitor", "parts", "publishing", "revocation", "schemas", "service_workers", "siblings",
    )  # fmt: skip

    def __init__(
        self,
        now: float,
        entropy: Entropy,
        policy: Policy | None = None,
        tuning: Tuning | None = None,
        recorder: Recorder | None = None,
        wall: float = 0.0,
        address: str = "",
    ) -> None:
        super().__init__(
            now,
            entropy,
            policy if policy is not None else Policy(),
            tuning if tuning is not None else Tuning(),
            recorder if recorder is not None else Recorder(),
            wall,
            address,
        )
        state = self
        self.parts = parts = Parts(state)
        state.limits = self.limiter = parts.limiter = Limiter(state)
        self.access = parts.access = Access(state)
        self.publishing = parts.publishing = Publishing(state, self.access)
        self.catalog = Catalog(self.tuning)
        parts.figures = Figures(state, self.catalog)
        self.monitor = parts.monitor = Monitor(state, self.publishing.subscriptions, self.catalog, parts.figures)
        self.publishing.greeter = self.monitor
        nodes = RegisteredNodes(state, self.catalog) if self.tuning.dbp_registered_only else None
        self.access.nodes = nodes
        self.service_workers = ServiceWorkers(state, self.access, self.catalog)
        self.bridged_entries = BridgedEntries(state, self.access, self.catalog)
        self.changes = CatalogChanges(self.catalog, self.monitor, self.service_workers, self.bridged_entries, nodes)
        self.schemas = parts.schemas = Schemas(state, self.access)
        self.logins = parts.logins = Logins(state)
        self.control = parts.control = Control(state)
        self.directory = parts.directory = Directory(
            state, self.access, self.changes, self.service_workers, self.bridged_entries, self.schemas
        )
        self.memory = parts.memory = MemoryAccount(state, self.policy.max_memory)
        self.memory.book(SUBSCRIPTIONS, lambda: COST_SUBSCRIPTION * len(self.publishing.subscriptions))
        self.memory.book(CATALOG, self.catalog.memory)
        self.memory.book(VALUES, self.publishing.last_values.memory)
        self.memory.book(LOGS, self.publishing.log_records.memory)
        self.memory.book(SCHEMAS, self.schemas.memory)
        self.history = parts.history = FigureHistory(state, self.policy.max_memory)
        self.memory.book(HISTORY, self.history.memory)
        self.memory.book(ERRORS, self.errors.memory)
        self.memory.book(LIMITS, self.limiter.memory)
        parts.figures.recent = self.history.recent
        self.listings = Listings()
        self.siblings = Siblings(state, self, self.listings)
        self.siblings.nodes = nodes
        self.bridging = Bridging(state, self.access, self.siblings, self.bridged_entries)
        self.answering = Answering(parts, self.siblings, self.listings)
        self.siblings.local = self.answering
        self.monitor.gather = self.siblings.gather_figures
        self.admission = Admission(self, state, self.access, self.answering)
        self.revocation = Revocation(state, self.access, self.bridging, self.publishing.subscriptions, self.catalog)
        state.builtin = registry.build(parts)
        state.rights = self.access
        state.routes = self.bridging
        state.observer = self.monitor
        state.listeners = [self.memory, self.publishing, self.monitor]

    @property
    def durable(self) -> Durable | None:
        """Durable jobs, if this process has the job store."""
        return self.parts.durable

    def use_jobs(self, durable: Durable) -> None:
        """This process has the job store. Called before the broker listens."""
        self.parts.durable = durable
        self.durable_requests = durable
        self.offered = {}
        self.control.jobs = durable.jobs
        self.parts.figures.jobs = durable.figures
        durable.on_lead = self._restore
        durable.jobs.lanes = LimitedJobs(self.limiter)
        self.limiter.permits.jobs = LeaderStarts(durable)
        self.limiter.store = durable.jobs.put_limits
        self.limiter.on_change = durable.jobs.limits_changed
        durable.jobs.policy.max_memory = int(self.memory.limit * JOB_MEMORY)
        self.memory.book("jobs", durable.jobs.memory)

    def _restore(self, epoch: int, loaded: Loaded) -> None:
        """This broker leads: services are paused and limited as the store says. What an earlier leader has started is not known."""
        self.limiter.start_at(self.now if epoch > 1 else None)
        self.limiter.restore(loaded.limits)
        for service in loaded.paused:
            self.control.pause(service, True)
        self.siblings.repeat_orders()

    def relay_jobs(self, names: "PatternMap[bool]") -> None:
        """Process 0 has the job store; ``names`` are those of durable services. Called before the broker listens."""
        self.durable_requests = DurableRelay(self, self, names)

    @property
    def memoiser(self) -> Memoiser | None:
        return self.parts.memoiser

    def use_memo(self, memoiser: Memoiser) -> None:
        """Some services are memoised."""
        self.parts.memoiser = self.admission.memoiser = self.admission.reuser = memoiser

    def reuse_replies(self, make: "Callable[[], Memoiser]") -> None:
        """No service is memoised. Only requests with the option ``reuse`` get stored replies; the first one creates the memoiser."""

        def made() -> Memoiser:
            memoiser = self.parts.memoiser = make()
            return memoiser

        self.admission.make_reuser = made

    @property
    def keyed(self) -> KeyedRequests | None:
        return self.admission.keyed

    def denial(self, session: Session, right: str, name: str) -> str:
        return self.access.denial(session, right, name)

    def denial_as(self, principal: str, session: Session, right: str, name: str) -> str:
        return self.access.denial_as(principal, session, right, name)

    # --- requests of clients

    def request(
        self,
        session: Session,
        service: bytes,
        body: Body,
        ref: object,
        deadline: float = 0.0,
        options: RequestOptions = PLAIN,
    ) -> Request | None:
        target = self.services.get(service)
        self.newest_request += 1
        if (
            target is None
            or target.special
            or (not session.may_request and (self.draining or not self.access.calls_freely(session, service)))
            or (
                options is not PLAIN
                and (options.guarantee or (options.fallback and not target.workers and not target.remote))
            )
        ):
            request = self.admission.resolve(session, service, body, ref, deadline, options)
            if request is None or request.state != NEW:
                return request
            target = request.service
        else:
            request = new_request(self.newest_request, session, target, body, ref, self.now)
        if (session.worker_count or session.refuses_at_limit) and backpressure.at_limit(self, session, target):
            self.admission.refuse_at_limit(request)
            return None
        transitions.accept(self, request)
        if len(body) > SMALL_BODY and session.held_bytes >= self.policy.max_client_bytes:
            backpressure.pause(self, session, target)
        if options is not PLAIN:
            request.options = options
            request.max_attempts = options.attempts
            if deadline or options.max_wait or options.max_run:
                request.time_limits = new_time_limits(deadline, options.max_wait, options.max_run)
        elif deadline:
            request.time_limits = new_time_limits(deadline, 0.0, 0.0)
        special = options is not PLAIN and (options.key or options.reuse)
        limits = target.limits
        if limits is None:
            queued = target.queue_length > 0 or not (target.idle or target.partly_busy or target.prefetching)
        else:
            diverted = special or target.paused or self.admission.memoiser is not None
            queued = bool(diverted) or not dispatch.has_worker_free(target) or not limits.starts_now(request)
        if self.records_messages:
            self.recorder.accepted(request, queued, target.queue_length)
        if (special or target.paused or self.admission.memoiser is not None) and self.admission.divert(
            request, options
        ):
            pass
        elif not queued:
            dispatch.assign(self, target, request)
        else:
            queues.push(target, request)
            if request.time_limits is not None:
                deadlines.start_waiting(self, request, request.time_limits)
            if not target.workers:
                if target.remote:
                    self.bridging.send_queued(target)
                elif session.is_bridge or options.needs_worker:
                    queues.remove(target, request)
                    outcomes.fail(self, request, NO_WORKER, "no worker offers it")
                    return request
                else:
                    deadlines.watch_service(self, target, request)
            elif target.remote:
                self.siblings.queued(target)
            if limits is not None and (target.remote or dispatch.has_worker_free(target)):
                dispatch.serve_queue(self, target)
            if target.queue_length >= self.max_queue:
                backpressure.pause(self, session, target)
        if len(session.requests) >= self.max_outstanding or self.held_bytes >= self.max_held_bytes:
            backpressure.full(self, session, target)
        link = session.link
        link.work_left -= WORK_REQUEST
        if link.work_left < 0:
            link.use_up()
        return request

    def request_batch(self, session: Session, service: bytes, bodies: "list[bytes]", ref: object) -> int:
        return self.admission.accept_batch(session, service, bodies, ref)

    def cancel(self, request: Request, why: str, expired: bool = False) -> None:
        if request.state != DONE:
            outcomes.cancel(self, request, why, TIMEOUT if expired else CANCELLED)

    # --- workers

    def register_worker(
        self,
        session: Session,
        services: "list[bytes]",
        ref: object,
        terms: WorkerTerms,
        weights: "list[int] | None" = None,
    ) -> Worker | Refusal:
        return registration.register(self, session, services, ref, terms, weights)

    def add_service(self, worker: Worker, service: bytes, weight: int = 0) -> Refusal | None:
        return registration.add_service(self, worker, service, weight)

    def add_credit(self, worker: Worker, count: int = 1) -> None:
        dispatch.add_credit(self, worker, count)

    def clear_credit(self, worker: Worker) -> None:
        dispatch.clear_credit(worker)

    def set_credit(self, worker: Worker, window: int, runs: int) -> None:
        credit.set_window(self, worker, window, runs)

    def release(self, worker: Worker, token: bytes) -> bool:
        return credit.released(self, worker, token)

    def kept(self, worker: Worker, token: bytes) -> None:
        credit.kept(self, worker, token)

    def give_back(self, worker: Worker, token: bytes, why: str) -> bool:
        return credit.given_back(self, worker, token, why)

    def heartbeat(self, worker: Worker) -> None:
        liveness.heartbeat(self, worker)

    def partial(self, worker: Worker, token: bytes, body: Body) -> bool:
        return replies.partial(self, worker, token, body)

    def progress(self, worker: Worker, token: bytes, share: float, text: str) -> bool:
        return replies.report_progress(self, worker, token, share, text)

    def final(self, worker: Worker, token: bytes, body: Body) -> bool:  # inlined, because it is on the hot path
        request = worker.held.pop(token, None)
        if request is None:
            replies.stale(self, worker, token, "final", len(body))
            return False
        limits = request.service.limits
        if limits is not None:
            limits.returned(request)
        worker.last_heard = now = self.now  # as in ``replies.count_reply``
        worker.done += 1
        took = now - request.dispatched
        worker.busy_time += took
        if took > worker.slowest:
            worker.slowest = took
        if request.state == DONE or request.history is not NO_HISTORY:
            replies.final_with_history(self, request, worker, body)
        else:
            request.reply_size = len(body)
            if self.records_bodies:
                self.recorder.reply_body(request, body)
            outcomes.end(self, request, OK, "")
            request.session.send_final(request, body)
        link = worker.session.link
        link.work_left = left = link.work_left - WORK_REQUEST
        if left < 0:
            link.use_up()
        only = worker.only_service
        if (
            only is None
            or not only.queue_length
            or worker.auto_credit != 1
            or worker.held
            or worker.credit
            or only.limits is not None
            or limits is not None
        ):
            dispatch.request_answered(self, worker)
        elif only.retries:
            dispatch.dispatch(self, queues.pop(only), worker)
        else:  # inlines the common case of ``request_answered`` and ``queues.pop``
            only.queue_length -= 1
            turns = only.round_robin
            queue = turns.popleft()
            request = queue.popleft()
            if queue:
                turns.append(queue)
            else:
                del only.client_queues[request.session]
            dispatch.dispatch(self, request, worker)
        return True

    def fail(self, worker: Worker, token: bytes, code: str, text: str) -> bool:
        return replies.fail(self, worker, token, code, text)

    def forward(self, worker: Worker, token: bytes, service: bytes, body: Body, ref: object) -> bool:
        return replies.forward(self, worker, token, service, body, ref)

    def worker_left(self, worker: Worker, why: str) -> None:
        registration.lose(self, worker, Departure.LEFT, why)

    def orphan_worker(self, worker: Worker, seconds: float) -> None:
        registration.orphan(self, worker, seconds)

    def adopt_worker(self, worker: Worker, session: Session) -> None:
        registration.adopt(self, worker, session)

    # --- connections

    def session_opened(self, session: Session) -> None:
        sessions.opened(self, session)

    def session_closed(self, session: Session, reason: CloseReason) -> None:
        sessions.closed(self, session, reason)

    def report_violation(self, session: Session, what: str) -> None:
        sessions.violated(self, session, what)

    def report_refusal(self, session: Session, what: str, refusal: Refusal) -> None:
        sessions.refused(self, session, what, refusal)

    def report_slow_subscriber(self, session: Session, what: str) -> None:
        self.recorder.slow_subscriber(session, what)

    def schedule(
        self, session: Session, principal: str, service: bytes, message: bytes, when: str, headers: str, add: bool
    ) -> bool:
        durable = self.parts.durable
        if durable is not None:
            durable.schedule_for(session, principal, service, message, when, headers, add)
        return durable is not None

    def is_reserved(self, name: bytes) -> bool:
        return is_reserved(name)

    def pause_service(self, name: bytes, paused: bool) -> None:
        self.control.pause(name, paused)

    def has_worker(self, service: bytes) -> bool:
        return has_worker(self, service)

    def window(self, session: Session, service: bytes) -> int:
        return inspection.window(self, session, service)

    def random_bytes(self, size: int) -> bytes:
        return self.entropy.take(size)

    @property
    def open_requests(self) -> int:
        return sum(len(session.requests) for session in self.sessions)

    # --- turns of the loop, and time

    def end_turn(self) -> None:
        """Called once per turn of the loop: resumes paused clients that have room again, and does a share of long tasks."""
        publishing = self.publishing
        monitor = self.monitor
        if publishing.last_values.catching_up:
            publishing.last_values.serve()
        self.limiter.end_turn()
        if self.bridging.missed:
            self.bridging.retry_missed()
        if self.bridged_entries.pending:
            self.bridged_entries.end_turn()
        if self.siblings.wanted or self.siblings.short:
            self.siblings.end_turn()
        durable = self.parts.durable
        if durable is not None:
            durable.end_turn()
        if publishing.subscriptions.leaving:
            publishing.subscriptions.drop_some()
        if self.listings.open:
            self.listings.end_turn()
        if monitor.greeting:
            monitor.greet_some()
        backpressure.end_turn(self, self.access)
        if self.now >= self.memory.look_at:
            self.memory.end_turn()
        if monitor.frequent:
            monitor.fold_frequent()
        if self.now >= monitor.fold_at:
            monitor.fold()
        if self.history.pending:
            self.history.end_turn()

    def has_more_work(self) -> bool:
        """Whether work is left for the next turn, which should then start soon."""
        publishing = self.publishing
        if publishing.subscriptions.leaving or self.listings.open or self.monitor.greeting or self.history.pending:
            return True
        if self.bridged_entries.pending and self.bridged_entries.has_more_work():
            return True
        return bool(publishing.last_values.catching_up and publishing.last_values.can_serve())

    def own_deadline(self) -> float | None:
        """When the first timer on the broker's own clock is due. Timers of jobs are left out: they follow the wall clock, which can be
        set."""
        own = self.timers.next()
        resume = self.access.resume_at
        if resume and (own is None or resume < own):
            own = resume
        catalog = self.catalog.next_deadline()
        if own is None or (catalog is not None and catalog < own):
            own = catalog
        return own

    def next_deadline(self) -> float | None:
        """When ``run_timers`` must be called next."""
        own = self.own_deadline()
        durable = self.parts.durable
        if durable is not None:
            jobs = durable.next_deadline()
            if own is None or (jobs is not None and jobs < own):
                own = jobs
        return own

    def run_timers(self) -> None:
        """Runs all timers that are due at ``now``."""
        fault = timekeeping.run_timers(self)
        if self.parts.durable is not None:
            self.parts.durable.run_due()
        self.catalog.run_timers(self.now)
        self.changes.report()
        if fault is not None:
            raise fault

    def tick(self) -> None:
        """Called once a second."""
        if self.bridging.learned:
            self.bridging.take_back()
        self.monitor.tick()
        self.history.tick()

    def was_suspended(self, seconds: float) -> None:
        """Called when the process did not run for this time, before ``run_timers``. Messages that arrived meanwhile are not read yet, so
        that time does not count as silence of peers, and questions to the other processes of the broker wait again."""
        liveness.excuse_silence(self, seconds)
        self.catalog.extend_deadlines(self.now, seconds)
        self.siblings.extend_deadlines()

    def set_timer(self, seconds: float, session: Session, key: object) -> None:
        timekeeping.set_timer(self, seconds, session, key)

    # --- shutdown

    def drain(self) -> None:
        """Stops accepting requests. Requests without a worker end now; the others may finish."""
        shutdown.drain(self, self.bridging, self.control, self.parts.durable)

    def shutdown(self) -> None:
        """Ends every open request and dismisses every worker and every service of the catalog."""
        shutdown.shutdown(self, self.bridging, self.catalog)

    # --- publishing

    def publish(self, session: Session, topic: bytes, body: Body) -> int:
        return self.publishing.publish(session, topic, body)

    def last_values(self, session: Session, prefix: bytes, limit: int) -> "list[bytes]":
        values = self.publishing.last_values.under(prefix, limit)
        return [value.message for value in values if self.access.hears(session, value.topic)]

    def subscribe(self, session: Session, prefix: bytes) -> None:
        self.publishing.subscribe(session, prefix)

    def unsubscribe(self, session: Session, prefix: bytes) -> bool:
        return self.publishing.unsubscribe(session, prefix)

    # --- bridges

    def open_bridge(self, session: Session, peer: bytes, window: int) -> Worker | Refusal:
        return self.bridging.open(session, peer, window)

    def bridge_offers(self, worker: Worker, service: bytes, path: Path) -> None:
        self.bridging.bridge_offers(worker, service, path)

    def bridge_entry(self, worker: Worker, name: bytes, path: Path, address: bytes, info: bytes) -> None:
        self.bridged_entries.announced(worker, name, path, address, info)

    def pass_schedule(self, principal: str, raw: bytes) -> bool:
        return self.siblings.pass_schedule(principal, raw)

    def bridge_final(self, worker: Worker, token: bytes, body: Body) -> None:
        if not self.bridging.bridge_final(worker, token, body) and self.final(worker, token, body):
            dispatch.add_credit(self, worker)

    def bridge_failed(self, worker: Worker, token: bytes, code: str, text: str, runs: bool = False) -> None:
        self.bridging.bridge_failed(worker, token, code, text, runs)

    def sibling_message(self, worker: Worker, word: bytes, rest: "list[bytes]") -> bool:
        return self.siblings.message(worker, word, rest)

    def record_route(self, request: Request, route: "list[str]") -> None:
        self.recorder.routed(request, route)

    def relay_publication(self, session: Session, topic: bytes, body: Body, origin: bytes, number: int) -> None:
        self.publishing.relay(session, topic, body, origin, number)

    def identity(self) -> bytes:
        return identity(self)

    def request_name(self, request: Request) -> str:
        return request_name(self, request)

    def check_invariants(self) -> None:
        """For tests: raises AssertionError if the state is inconsistent."""
        shares = [owner.runs for owner in (self.memoiser, self.keyed) if owner is not None]
        invariants.check(self, self.bridging, shares, self.memory.hub)
        self.siblings.check_invariants()
        self.catalog.check_invariants()
        self.service_workers.check_invariants()
        self.bridged_entries.check_invariants()
        self.publishing.subscriptions.check_invariants()
        self.publishing.last_values.check_invariants()
        self.history.check_invariants()
        self.limiter.check_invariants()
