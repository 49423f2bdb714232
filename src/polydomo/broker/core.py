"""The broker: what may happen next.

One object holds all services, workers and requests, and is the only one to change them. Codecs call its verbs (``protocols.verbs.Verbs``); it
answers by calling their sessions. Time is ``now``, set by the owner of the loop before anything else; ``next_deadline`` says when
``advance`` wants to be called, and ``turn`` is called once per turn of the loop.

A request is QUEUED, then HELD by one worker at a time, then DONE, and ``_end`` is the only way there: one outcome. The token of an attempt
is what a worker answers to, and it counts only from the worker that holds it.
"""

from polydomo import limits
from polydomo.broker import choice, liveness, queues, reserved
from polydomo.broker.catalog import Catalog
from polydomo.broker.policy import Policy
from polydomo.broker.pubsub import Subscriptions
from polydomo.broker.record import Recorder
from polydomo.broker.timers import HAIR, Timers
from polydomo.protocols.tuning import Tuning
from polydomo.protocols.verbs import (
    CANCELLED,
    DONE,
    FAILED,
    GAVE_UP,
    HELD,
    INTERRUPTED,
    NO_WORKER,
    OK,
    QUEUED,
    REFUSED,
    SHUTDOWN,
    TIMEOUT,
    TOO_LARGE,
    Request,
    Service,
    Session,
    Verbs,
    Worker,
)
from polydomo.wire.frames import Body, chain
from polydomo.wire.link import AT_BOUND


class Entropy:
    """Where unguessable bytes come from; the owner of the broker gives one."""

    def take(self, size: int) -> bytes:
        raise NotImplementedError


class Broker(Verbs):
    """See the module's text."""

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
        self.now = now
        self.wall = wall
        self.started = now
        self.address = address  # where peers reach us; the catalog tells it for services of other protocols
        self.policy = policy if policy is not None else Policy()
        self.tuning = tuning if tuning is not None else Tuning()
        self.recorder = recorder if recorder is not None else Recorder()
        self._entropy = entropy
        self._wants_requests = self.recorder.wants_requests
        self._wants_messages = self.recorder.wants_messages
        self.services: dict[bytes, Service] = {}
        self.workers: dict[Worker, None] = {}
        self.sessions: dict[Session, None] = {}
        self.crews: dict[Session, dict[Worker, None]] = {}  # the workers of each connection that has any
        self.held_bytes = 0  # bodies of open requests
        self.open_requests = 0
        self.draining = False
        self.timers = Timers()
        self.catalog = Catalog(self.tuning)
        self.subscriptions = Subscriptions()
        self.memo_workers = {}
        self.schedulers = {}
        self.refusal = ""
        self._max_queue = self.policy.max_queue
        self._max_outstanding = self.policy.max_outstanding
        self._max_held_bytes = self.policy.max_held_bytes
        self._stalled: dict[Session, Service] = {}  # clients that are not read, and the service they filled
        self._requests = 0
        self._attempts = 0
        self._sessions = 0
        self._workers = 0

    # --- clients ----------------------------------------------------------------------------------------------------------

    def request(
        self,
        session: Session,
        service: bytes,
        body: Body,
        ref: object,
        deadline: float = 0.0,
        wait: float = 0.0,
        run: float = 0.0,
        attempts: int = 0,
        fallback: bytes = b"",
    ) -> Request | None:
        target = self.services.get(service)
        self._requests += 1
        if target is None or (fallback and not target.workers) or self.draining:
            request = self._unusual(session, service, body, ref, fallback)
            if request is None or request.state == DONE:
                return request
            target = request.service
        else:
            request = Request(self._requests, session, target, body, ref, self.now)
        if session.workers and self._at_bound(session, target):
            self._refuse(request, "the broker is at a bound, and a connection that carries workers cannot be paused")
            return None
        target.accepted += 1
        session.requests[request] = None
        self.open_requests += 1
        self.held_bytes += len(body)
        if attempts:
            request.max_attempts = attempts
        if deadline or wait or run:
            request.timed = True
            request.deadline = deadline
            request.wait = wait
            request.run = run
        if self._wants_messages:
            self.recorder.accepted(request)
        if not target.length and (target.idle or target.spare):
            worker = self._pick(target, request)
            self._unrest(worker)
            self._dispatch(request, worker)
            if worker.credit > 0:
                self._rest(worker)
        else:
            queues.push(target, request)
            self._await(request)
            if not target.workers and not target.timer:
                self._watch(target)
            if target.length >= self._max_queue:
                self._stall(session, target)
        if len(session.requests) >= self._max_outstanding or self.held_bytes >= self._max_held_bytes:
            self._stall(session, target)
        return request

    def _unusual(self, session: Session, name: bytes, body: Body, ref: object, fallback: bytes) -> Request | None:
        """A request whose name is reserved, unknown or not allowed, or that comes while the broker is leaving."""
        if reserved.is_reserved(name):
            request = Request(self._requests, session, Service(name), body, ref, self.now)
            request.state = DONE
            request.outcome = OK
            session.send_final(request, reserved.answer(self, session, name, body))
            return request
        target = self.services.get(name)
        if fallback and (target is None or not target.workers):
            other = self.services.get(fallback)
            if other is not None and any(worker.session.protocol == session.protocol for worker in other.workers):
                target = other
        request = Request(self._requests, session, target if target is not None else Service(name), body, ref, self.now)
        if self.draining:
            self._refuse(request, "the broker is shutting down", SHUTDOWN)
            return None
        if target is None:
            if len(name) > limits.MAX_SERVICE_NAME:
                self._refuse(request, f"service name of {len(name)} bytes")
                return None
            if len(self.services) >= self.policy.max_services:
                self._refuse(request, f"already {len(self.services)} services")
                return None
            self.services[name] = request.service
            request.service.empty_since = self.now
        return request

    def _refuse(self, request: Request, text: str, outcome: str = REFUSED) -> None:
        request.state = DONE
        request.outcome = outcome
        request.reason = text
        self.recorder.refused(request.session, text)
        request.session.send_failure(request, outcome, text)

    def withdraw(self, request: Request, why: str) -> None:
        if request.state != DONE:
            self._abandon(request, why)

    def _abandon(self, request: Request, why: str) -> None:
        """Nobody waits for it any more. A worker that holds it may finish, unless it can be told."""
        worker = request.worker
        if request.state == QUEUED:
            queues.remove(request.service, request)
        elif worker is not None and worker.session.cancel(worker, request):
            del worker.held[request.token]
            self._end(request, CANCELLED, why)
            self._settle(worker)
            return
        self._end(request, CANCELLED, why)

    def _at_bound(self, session: Session, service: Service) -> bool:
        policy = self.policy
        return (
            len(session.requests) >= policy.max_outstanding
            or service.length >= policy.max_queue
            or self.held_bytes >= policy.max_held_bytes
        )

    def _stall(self, session: Session, service: Service) -> None:
        """At a bound the sender is slowed: it is not read until there is room again."""
        if not session.workers:
            self._stalled[session] = service
            session.link.pause(AT_BOUND)

    def turn(self) -> None:
        """Once per turn of the loop: lets stalled clients go on where there is room again."""
        if not self._stalled:
            return
        policy = self.policy
        low = limits.RESUME_FRACTION
        if self.held_bytes > policy.max_held_bytes * low:
            return
        for session, service in list(self._stalled.items()):
            if len(session.requests) <= policy.max_outstanding * low and service.length <= policy.max_queue * low:
                del self._stalled[session]
                session.link.resume(AT_BOUND)

    # --- handing out ------------------------------------------------------------------------------------------------------

    def _dispatch(self, request: Request, worker: Worker) -> None:
        self._attempts += 1
        now = self.now
        token = b"%012x" % self._attempts  # printable, since some peers take it for text; always 12 bytes
        request.token = token
        request.worker = worker
        request.state = HELD
        request.attempts += 1
        request.dispatched = now
        if request.attempts == 1:
            request.first_dispatched = now
        worker.held[token] = request
        worker.credit -= 1
        worker.told = now
        if request.timed:
            self._arm(request)
        worker.session.deliver(worker, request)
        if self._wants_messages:
            self.recorder.dispatched(request, worker)

    def _pick(self, service: Service, request: Request) -> Worker:
        """Least recently used first; busy ones that asked for more come after idle ones."""
        if service.weighted:
            return choice.heaviest(service)
        pool = service.idle if service.idle else service.spare
        avoid = request.lost_by
        if avoid is not None:
            for worker in pool:
                if worker.session is not avoid:
                    return worker
        return next(iter(pool))

    def _feed(self, worker: Worker) -> None:
        """The worker has credit: give it what waits, or let it rest."""
        home = worker.home
        if home is not None:
            while worker.credit > 0 and home.length:
                self._dispatch(queues.pop(home), worker)
        else:
            while worker.credit > 0:
                service = choice.neediest(worker)
                if service is None:
                    break
                self._dispatch(queues.pop(service), worker)
        if worker.credit > 0:
            self._rest(worker)

    def _rest(self, worker: Worker) -> None:
        busy = bool(worker.held)
        for service in worker.services:
            if busy:
                service.idle.pop(worker, None)
                service.spare[worker] = None
            else:
                service.spare.pop(worker, None)
                service.idle[worker] = None

    def _unrest(self, worker: Worker) -> None:
        for service in worker.services:
            service.idle.pop(worker, None)
            service.spare.pop(worker, None)

    def _pump(self, service: Service) -> None:
        """Requests wait and workers may be free: bring them together."""
        while service.length and (service.idle or service.spare):
            request = queues.pop(service)
            worker = self._pick(service, request)
            self._unrest(worker)
            self._dispatch(request, worker)
            if worker.credit > 0:
                self._rest(worker)

    # --- workers ----------------------------------------------------------------------------------------------------------

    def register(
        self,
        session: Session,
        services: "list[bytes]",
        ref: object,
        credit: int,
        auto_credit: bool,
        beat: float,
        silence: float,
        weights: "list[int] | None" = None,
    ) -> Worker | None:
        for name in services:
            if not self._allowed(name):
                return None
        if len(services) > limits.MAX_SERVICES_PER_WORKER:
            self.refusal = f"a worker of {len(services)} services"
            return None
        worker = Worker(session, ref, credit, auto_credit, beat, silence)
        self._workers += 1
        worker.number = self._workers
        worker.seen = worker.told = worker.since = worker.state_since = self.now
        worker.waiting = session.polls
        self.workers[worker] = None
        self._join_crew(worker, session)
        for i, name in enumerate(services):
            self._enroll(worker, name, weights[i] if weights is not None else 0)
        liveness.schedule(self, worker)
        self.recorder.registered(worker)
        if worker.credit > 0:
            self._feed(worker)
        return worker

    def _allowed(self, name: bytes) -> bool:
        if reserved.is_reserved(name):
            self.refusal = f"the name {name.decode(errors='replace')!r} is reserved"
        elif len(name) > limits.MAX_SERVICE_NAME:
            self.refusal = f"service name of {len(name)} bytes"
        elif name not in self.services and len(self.services) >= self.policy.max_services:
            self.refusal = f"already {len(self.services)} services"
        elif self.draining:
            self.refusal = "the broker is shutting down"
        else:
            return True
        return False

    def _enroll(self, worker: Worker, name: bytes, weight: int) -> None:
        service = self.services.get(name)
        if service is None:
            service = self.services[name] = Service(name)
        worker.services[service] = weight
        worker.home = service if len(worker.services) == 1 else None
        service.workers[worker] = weight
        if weight:
            service.weighted = True
        if service.timer:
            self.timers.remove(service.timer, service)
            service.timer = 0

    def offer(self, worker: Worker, service: bytes, weight: int = 0) -> bool:
        if not worker.alive or not self._allowed(service):
            return False
        if len(worker.services) >= limits.MAX_SERVICES_PER_WORKER:
            self.refusal = f"a worker of more than {limits.MAX_SERVICES_PER_WORKER} services"
            return False
        self._enroll(worker, service, weight)
        self.recorder.registered(worker)
        if worker.credit > 0:
            self._feed(worker)
        return True

    def grant(self, worker: Worker, count: int = 1) -> None:
        if worker.alive:
            worker.credit += count
            self._feed(worker)

    def revoke(self, worker: Worker) -> None:
        if worker.credit:
            worker.credit = 0
            self._unrest(worker)

    def heard(self, worker: Worker) -> None:
        worker.seen = self.now
        if worker.held and not worker.beats_busy:
            worker.beats_busy = True
            liveness.reschedule(self, worker)

    def partial(self, worker: Worker, token: bytes, body: Body) -> bool:
        request = worker.held.get(token)
        if request is None:
            self.recorder.stale(worker, token, "partial", len(body))
            return False
        worker.seen = self.now
        if request.state == DONE:
            return True  # nobody waits for it any more
        if not request.first_partial:
            request.first_partial = self.now
        if self._wants_messages:
            self.recorder.partial(request, worker, len(body))
        session = request.session
        if session.takes_partials:
            request.partials += 1
            request.reply_size += len(body)
            session.send_partial(request, body)
            return True
        if request.parts is None:
            request.parts = []
        request.parts_size += len(body)
        if request.parts_size > self.policy.max_message:
            self._too_large(request)
        else:
            request.parts.append(body)
            self.held_bytes += len(body)
        return True

    def _too_large(self, request: Request) -> None:
        self._fail(request, TOO_LARGE, f"its partials passed {self.policy.max_message} bytes in all")

    def final(self, worker: Worker, token: bytes, body: Body) -> bool:
        request = worker.held.pop(token, None)
        if request is None:
            self.recorder.stale(worker, token, "final", len(body))
            return False
        worker.seen = self.now
        worker.done += 1
        if request.state != DONE:
            if request.parts is not None and request.parts_size + len(body) > self.policy.max_message:
                self._too_large(request)
            else:
                if request.parts is not None:
                    body = chain([*request.parts, body])
                request.reply_size += len(body)
                session = request.session
                self._end(request, OK, "")
                session.send_final(request, body)
        if worker.auto_credit and not worker.held and not worker.credit:
            worker.credit = 1
        if worker.credit > 0:
            self._feed(worker)
        return True

    def fail(self, worker: Worker, token: bytes, code: str, text: str) -> bool:
        request = worker.held.pop(token, None)
        if request is None:
            self.recorder.stale(worker, token, "failure", len(text))
            return False
        worker.seen = self.now
        worker.done += 1
        if request.state != DONE:
            self._end(request, FAILED, f"{code}: {text}")
            request.session.send_failure(request, code, text)
        self._settle(worker)
        return True

    def _settle(self, worker: Worker) -> None:
        """The worker is free of one request; free of all, it takes another by itself, if its protocol says so."""
        if worker.auto_credit and not worker.held and not worker.credit:
            worker.credit = 1
        if worker.credit > 0:
            self._feed(worker)

    def forward(self, worker: Worker, token: bytes, service: bytes, body: Body, ref: object) -> bool:
        request = worker.held.get(token)
        if request is None:
            self.recorder.stale(worker, token, "forward", len(body))
            return False
        worker.seen = self.now
        if request.state != DONE and not self._allowed_target(service):
            del worker.held[token]
            self._fail(request, REFUSED, self.refusal)
        else:
            del worker.held[token]
            worker.done += 1
            if request.state != DONE:
                self.recorder.forwarded(request, worker, service)
                self._pass_on(request, service, body, ref)
        self._settle(worker)
        return True

    def _allowed_target(self, name: bytes) -> bool:
        """Whether a held request may be passed on to this service."""
        return name in self.services or self._allowed(name)

    def _pass_on(self, request: Request, name: bytes, body: Body, ref: object) -> None:
        self.held_bytes += len(body) - len(request.body)
        before = request.service
        service = self.services.get(name)
        if service is None:
            service = self.services[name] = Service(name)
            service.empty_since = self.now
        request.service = service
        request.body = body
        request.ref = ref
        request.worker = None
        request.hops += 1
        request.attempts = 0
        request.state = QUEUED
        queues.push(service, request)
        self._await(request)
        if not service.workers and not service.timer:
            self._watch(service)
        self._pump(service)
        self._reap(before)

    def leave(self, worker: Worker, why: str) -> None:
        self.lose(worker, "left", why)

    def lose(self, worker: Worker, state: str, why: str) -> None:
        """The worker is no more: what it held goes back to the head of its queues."""
        if not worker.alive:
            return
        worker.alive = False
        worker.state = state
        worker.state_since = self.now
        worker.state_cause = why
        worker.credit = 0
        self._unrest(worker)
        if worker.timer:
            self.timers.remove(worker.timer, worker)
        del self.workers[worker]
        self._leave_crew(worker)
        for service in worker.services:
            del service.workers[worker]
            if not service.workers:
                service.empty_since = self.now
                service.weighted = False
        self.recorder.left(worker, state, why)
        held = list(worker.held.values())
        worker.held.clear()
        for request in reversed(held):
            self._give_back(request, worker, why)
        for service in list(worker.services):
            if service.length:
                if not service.workers and not service.timer:
                    self._watch(service)
                self._pump(service)
            else:
                self._reap(service)
        worker.session.gone(worker)

    def _give_back(self, request: Request, worker: Worker, why: str) -> None:
        request.worker = None
        if request.state == DONE:
            return
        if request.parts is not None:
            self.held_bytes -= request.parts_size
            request.parts = None  # "partials that were only held are dropped with the attempt"
            request.parts_size = 0
        allowed = request.max_attempts or self.policy.attempts
        if request.partials and not self.policy.requeue_after_partial:
            self._fail(request, INTERRUPTED, f"its worker was lost after {request.partials} partials ({why})")
        elif request.attempts >= allowed:
            self._fail(request, GAVE_UP, f"{request.attempts} workers were lost with it, the last one: {why}")
        elif self.draining:
            self._fail(request, SHUTDOWN, "the broker is shutting down")
        else:
            request.state = QUEUED
            request.lost_by = worker.session
            request.service.requeued += 1
            queues.push_back(request.service, request)
            self._await(request)
            self.recorder.requeued(request, worker, why)

    def orphan(self, worker: Worker, seconds: float) -> None:
        if worker.alive:
            self.revoke(worker)
            worker.waiting = False
            worker.orphaned = self.now + seconds
            self._leave_crew(worker)
            liveness.reschedule(self, worker)

    def adopt(self, worker: Worker, session: Session) -> None:
        if worker.alive:
            self._leave_crew(worker)
            worker.session = session
            worker.orphaned = 0.0
            worker.seen = self.now
            self._join_crew(worker, session)
            liveness.reschedule(self, worker)

    def _join_crew(self, worker: Worker, session: Session) -> None:
        self.crews.setdefault(session, {})[worker] = None
        session.workers += 1
        if self._stalled.pop(session, None) is not None:
            session.link.resume(AT_BOUND)  # a connection that carries a worker is never paused

    def _leave_crew(self, worker: Worker) -> None:
        session = worker.session
        crew = self.crews.get(session)
        if crew is not None and worker in crew:
            del crew[worker]
            session.workers -= 1
            if not crew:
                del self.crews[session]

    # --- connections ------------------------------------------------------------------------------------------------------

    def opened(self, session: Session) -> None:
        self._sessions += 1
        session.number = self._sessions
        self.sessions[session] = None
        self.recorder.opened(session)

    def closed(self, session: Session, why: str) -> None:
        if session.over:
            return
        session.over = True
        self.sessions.pop(session, None)
        self._stalled.pop(session, None)
        self.schedulers.pop(session, None)
        self.subscriptions.drop(session)
        self.recorder.closed(session, why)
        for request in list(session.requests):
            self._abandon(request, "the client has gone")
        for worker in list(self.crews.get(session, ())):
            self.lose(worker, "lost", why)

    def violated(self, session: Session, what: str) -> None:
        self.recorder.violated(session, what)

    # --- endings ----------------------------------------------------------------------------------------------------------

    def _end(self, request: Request, outcome: str, reason: str) -> None:
        """The one place where a request ends."""
        assert request.state != DONE
        request.state = DONE
        request.outcome = outcome
        request.reason = reason
        if request.timer:
            self.timers.remove(request.timer, request)
            request.timer = 0
        del request.session.requests[request]
        self.open_requests -= 1
        self.held_bytes -= len(request.body) + request.parts_size
        service = request.service
        if outcome == OK:
            service.answered += 1
        else:
            service.failed += 1
        if self._wants_requests:
            self.recorder.ended(request)
        request.body = b""
        request.parts = None
        request.parts_size = 0
        if not service.workers and not service.length:
            self._reap(service)

    def _fail(self, request: Request, outcome: str, reason: str) -> None:
        self._end(request, outcome, reason)
        request.session.send_failure(request, outcome, reason)

    def _reap(self, service: Service) -> None:
        """A name that nobody offers and nobody waits for is forgotten."""
        if not service.workers and not service.length and self.services.get(service.name) is service:
            if service.timer:
                self.timers.remove(service.timer, service)
                service.timer = 0
            del self.services[service.name]

    # --- time -------------------------------------------------------------------------------------------------------------

    def _await(self, request: Request) -> None:
        """The request waits for a worker (again)."""
        if request.timed:
            request.expiry = self.now + request.wait if request.wait else 0.0
            self._arm(request)

    def _arm(self, request: Request) -> None:
        """Sets the request's one timer to whichever of its bounds comes first."""
        if request.timer:
            self.timers.remove(request.timer, request)
            request.timer = 0
        when = request.deadline
        if request.state == QUEUED:
            if request.expiry and (not when or request.expiry < when):
                when = request.expiry
        elif request.run and (not when or request.dispatched + request.run < when):
            when = request.dispatched + request.run
        if when:
            request.timer = self.timers.add(self.now, when, request)

    def _watch(self, service: Service) -> None:
        """The service has no worker: its requests must not wait for ever."""
        first = queues.oldest(service)
        if first is not None:
            when = max(first.accepted, service.empty_since) + self.policy.queue_expiry
            service.timer = self.timers.add(self.now, when, service)

    def next_deadline(self) -> float | None:
        """When ``advance`` must be called next, if nothing else happens."""
        mine = self.timers.next()
        catalog = self.catalog.next_deadline()
        if mine is None or (catalog is not None and catalog < mine):
            return catalog
        return mine

    def advance(self) -> None:
        """Does everything that is due at ``now``."""
        for item in self.timers.due(self.now):
            if isinstance(item, Request):
                self._request_due(item)
            elif isinstance(item, Worker):
                item.timer = 0
                liveness.judge(self, item)
            elif isinstance(item, Service):
                self._service_due(item)
            elif isinstance(item, Alarm) and not item.session.over:
                item.session.on_timer(item.key)
        self.catalog.advance(self.now)

    def _request_due(self, request: Request) -> None:
        request.timer = 0
        if request.state == DONE:
            return
        now = self.now + HAIR
        worker = request.worker
        if request.deadline and now >= request.deadline:
            if request.state == QUEUED:
                queues.remove(request.service, request)
            self._fail(request, TIMEOUT, "its deadline passed")
        elif request.state == QUEUED and request.expiry and now >= request.expiry:
            queues.remove(request.service, request)
            self._fail(request, NO_WORKER, "no worker took it in time")
        elif request.state == HELD and request.run and now >= request.dispatched + request.run:
            self._fail(request, TIMEOUT, f"its worker took longer than {request.run:g} s")
        else:
            self._arm(request)
            return
        if worker is not None and worker.session.polls:
            # memo01: "the broker assumes that the worker has disconnected"
            self.lose(worker, "lost", "its job took longer than the job's timeout")

    def _service_due(self, service: Service) -> None:
        service.timer = 0
        if service.workers or self.services.get(service.name) is not service:
            return
        limit = self.now + HAIR - self.policy.queue_expiry
        if service.empty_since <= limit:
            for request in queues.waiting(service):
                if request.accepted <= limit:
                    queues.remove(service, request)
                    self._fail(request, NO_WORKER, f"no worker offered it within {self.policy.queue_expiry:g} s")
        if service.length:
            self._watch(service)

    def later(self, seconds: float, session: Session, key: object) -> None:
        self.timers.add(self.now, self.now + seconds, Alarm(session, key))

    # --- leaving ----------------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Accepts nothing more; what has no worker ends now, the rest may finish."""
        self.draining = True
        for service in list(self.services.values()):
            if not service.workers:
                for request in queues.waiting(service):
                    queues.remove(service, request)
                    self._fail(request, SHUTDOWN, "the broker is shutting down")

    def shutdown(self) -> None:
        """Ends everything that is still open and says goodbye to every worker."""
        self.draining = True
        for session in list(self.sessions):
            for request in list(session.requests):
                if request.state == QUEUED:
                    queues.remove(request.service, request)
                self._fail(request, SHUTDOWN, "the broker is shutting down")
        for worker in list(self.workers):
            worker.session.dismiss(worker)
            self.lose(worker, "left", "the broker is shutting down")

    # --- what the broker knows ----------------------------------------------------------------------------------------------

    def has_worker(self, service: bytes) -> bool:
        known = self.services.get(service)
        return known is not None and bool(known.workers)

    def window(self, session: Session, service: bytes) -> int:
        return reserved.window(self, session, service)

    def nonce(self, size: int) -> bytes:
        return self._entropy.take(size)

    # --- publishing and the catalog -------------------------------------------------------------------------------------------

    def publish(self, session: Session, topic: bytes, body: Body) -> int:
        subscribers = self.subscriptions.match(topic)
        for subscriber in subscribers:
            subscriber.send_published(topic, body)
        return len(subscribers)

    def subscribe(self, session: Session, prefix: bytes) -> None:
        self.subscriptions.add(session, prefix)

    def unsubscribe(self, session: Session, prefix: bytes) -> None:
        self.subscriptions.remove(session, prefix)

    def enlist(self, session: Session, name: str, address: str, info: "dict[str, object]", beat: float) -> str:
        return self.catalog.enlist(self.now, name, address, info, beat)

    def amend(self, session: Session, name: str, address: str, changes: "dict[str, object]") -> str:
        return self.catalog.amend(self.now, name, address, changes)

    def beaten(self, name: str, address: str) -> bool:
        return self.catalog.beaten(self.now, name, address)

    def delist(self, name: str, address: str, why: str) -> bool:
        return self.catalog.delist(self.now, name, address, why)

    def lookup(self, name: str) -> "dict[str, object] | None":
        return self.catalog.lookup(name) or reserved.foreign(self).get(name)

    def directory(self) -> "dict[str, dict[str, object]]":
        return {**reserved.foreign(self), **self.catalog.directory()}


class Alarm:
    """What a session asked for with ``later``."""

    def __init__(self, session: Session, key: object) -> None:
        self.session = session
        self.key = key
