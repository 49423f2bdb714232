"""The floor: workers, and how a request gets to one and back.

A request is dispatched to one worker at a time under a token of its own; what a worker says counts only under a token that it holds. A
worker that is no more gives back what it held.
"""

from polydomo import limits
from polydomo.broker import choice, liveness, queues, reserved
from polydomo.broker.ledger import BLOCK, FIRST_ATTEMPTS, IN_BLOCK, Ledger, large
from polydomo.protocols.request import (
    DONE,
    FAILED,
    GAVE_UP,
    HELD,
    INTERRUPTED,
    OK,
    QUEUED,
    REFUSED,
    SHUTDOWN,
    Parts,
    Request,
)
from polydomo.protocols.verbs import Service, Session, Worker
from polydomo.wire.frames import Body, chain, count
from polydomo.wire.link import AT_BOUND


class Floor(Ledger):
    __slots__ = ()

    # --- handing out -----------------------------------------------------------------------------------------------------

    def _dispatch(self, request: Request, worker: Worker) -> None:
        """Hands over a request, for which the worker's credit was taken."""
        number = request.number
        if not request.attempts and number >> BLOCK == self._block:
            token = self._block_token + FIRST_ATTEMPTS[number & IN_BLOCK]
            request.attempts = 1
        else:
            request.attempts += 1
            token = self._token(number, request.attempts)
            if request.attempts == 2:
                request.own_course().first_dispatched = request.dispatched
        request.token = token
        request.worker = worker
        request.state = HELD
        request.dispatched = now = self.now
        worker.held[token] = request
        worker.told = now
        if request.terms is not None:
            self._arm(request, request.terms)
        worker.session.deliver(worker, request)
        if self._wants_messages:
            self.recorder.dispatched(request, worker)

    def _pick(self, service: Service, request: Request) -> Worker:
        """Least recently used first; busy ones that asked for more come after idle ones."""
        if service.weighted:
            return choice.heaviest(service)
        pool = service.idle if service.idle else service.spare
        avoid = request.course.lost_by
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
                worker.credit -= 1
                self._dispatch(queues.pop(home), worker)
        else:
            while worker.credit > 0:
                service = choice.neediest(worker)
                if service is None:
                    break
                worker.credit -= 1
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
            worker.credit -= 1
            self._dispatch(request, worker)
            if worker.credit > 0:
                self._rest(worker)
        if service.away and service.length and not service.workers:
            self._pump_away(service)

    def _pump_away(self, service: Service) -> None:
        """Requests wait, and only other brokers offer the service. See ``crossing``, as for the next two."""

    def _offer_changed(self, service: Service) -> None:
        """The service has its first local worker, or no longer any."""

    def _bridge_lost(self, worker: Worker, held: "list[Request]") -> None:
        """The worker was a bridge."""

    # --- coming ----------------------------------------------------------------------------------------------------------

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
        if services and not session.role.workers:
            self.refusal = f"no workers are taken at {session.role.name}"
            return None
        for name in services:
            if not self._allowed(name):
                return None
        if len(services) > limits.MAX_SERVICES_PER_WORKER:
            self.refusal = f"a worker of {len(services)} services"
            return None
        if not self._make_room(services):
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
        self.monitor.registered(worker)
        self.recorder.registered(worker)
        if worker.credit > 0:
            self._feed(worker)
        return worker

    def _allowed(self, name: bytes) -> bool:
        if reserved.is_reserved(name):
            self.refusal = f"the name {name.decode(errors='replace')!r} is reserved"
        elif len(name) > limits.MAX_SERVICE_NAME:
            self.refusal = f"service name of {len(name)} bytes"
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
        if self.bridges.told and len(service.workers) == 1:
            self._offer_changed(service)
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
        if not self._make_room([service]):
            return False
        self._enroll(worker, service, weight)
        self.monitor.offered(worker, self.services[service])
        self.recorder.registered(worker)
        if worker.credit > 0:
            self._feed(worker)
            if not worker.credit:  # what waited there took it from the rest it had at its other services
                self._unrest(worker)
        return True

    def grant(self, worker: Worker, count: int = 1) -> None:
        if worker.alive:
            worker.credit += count
            if self._wants_messages:
                self.recorder.granted(worker, count)
            self._feed(worker)

    def revoke(self, worker: Worker) -> None:
        if worker.credit:
            worker.credit = 0
            self._unrest(worker)

    def heard(self, worker: Worker) -> None:
        worker.seen = self.now
        if worker.held and not worker.beats_busy and liveness.busy_beat(self, worker):
            worker.beats_busy = True
            liveness.reschedule(self, worker)

    # --- answering -------------------------------------------------------------------------------------------------------

    def partial(self, worker: Worker, token: bytes, body: Body) -> bool:
        request = worker.held.get(token)
        if request is None:
            self._stale(worker, token, "partial", len(body))
            return False
        worker.seen = self.now
        if request.state == DONE:
            return True  # nobody waits for it any more
        course = request.own_course()
        if not course.first_partial:
            course.first_partial = self.now
        if self._wants_messages:
            if self._wants_bodies:
                self.recorder.replied(request, body)
            self.recorder.partial(request, worker, len(body))
        session = request.session
        if session.takes_partials:
            course.partials += 1
            request.reply_size += len(body)
            session.send_partial(request, body)
            return True
        parts = course.parts
        if parts is None:
            parts = course.parts = Parts()
        if self._joins(parts, body):
            parts.bodies.append(body)
            parts.size += len(body)
            parts.frames += max(1, count(body))
            self.held_bytes += len(body)
        else:
            self._too_large(request)
        return True

    def final(self, worker: Worker, token: bytes, body: Body) -> bool:
        request = worker.held.pop(token, None)
        if request is None:
            self._stale(worker, token, "final", len(body))
            return False
        worker.seen = self.now
        worker.done += 1
        parts = request.course.parts
        if request.state == DONE:
            if self._wants_messages:
                self.recorder.unheard(request, worker)
        elif parts is not None and not self._joins(parts, body):
            self._too_large(request)
        else:
            if parts is not None:
                body = chain([*parts.bodies, body])
            request.reply_size += len(body)
            if self._wants_bodies:
                self.recorder.replied(request, body)
            self._end(request, OK, "")
            request.session.send_final(request, body)
        home = worker.home
        if home is not None and home.length and worker.auto_credit and not worker.held and not worker.credit:
            self._dispatch(queues.pop(home), worker)  # as below, for the usual case
        else:
            self._go_on(worker)
        return True

    def _go_on(self, worker: Worker) -> None:
        """The worker is free of one request. Free of all, it takes another by itself, if its protocol says so."""
        if worker.auto_credit and not worker.held and not worker.credit:
            worker.credit = 1
        if worker.credit > 0:
            self._feed(worker)

    def _stale(self, worker: Worker, token: bytes, what: str, size: int) -> None:
        self.monitor.stale += 1
        self.recorder.stale(worker, token, what, size)

    def fail(self, worker: Worker, token: bytes, code: str, text: str) -> bool:
        request = worker.held.pop(token, None)
        if request is None:
            self._stale(worker, token, "failure", len(text))
            return False
        worker.seen = self.now
        worker.done += 1
        if request.state != DONE:
            self._end(request, FAILED, f"{code}: {text}")
            request.session.send_failure(request, code, text)
        elif self._wants_messages:
            self.recorder.unheard(request, worker)
        self._settle(worker)
        return True

    def _settle(self, worker: Worker) -> None:
        """The worker is free of a request that it did not answer."""
        self._go_on(worker)

    def forward(self, worker: Worker, token: bytes, service: bytes, body: Body, ref: object) -> bool:
        request = worker.held.get(token)
        if request is None:
            self._stale(worker, token, "forward", len(body))
            return False
        worker.seen = self.now
        if request.state != DONE and not self._allowed_target(request, service):
            del worker.held[token]
            self._fail(request, REFUSED, self.refusal)
        else:
            del worker.held[token]
            worker.done += 1
            if request.state != DONE:
                self.recorder.forwarded(request, worker, service)
                self._pass_on(request, service, body, ref)
            elif self._wants_messages:
                self.recorder.unheard(request, worker)
        self._settle(worker)
        return True

    def _allowed_target(self, request: Request, name: bytes) -> bool:
        """Whether a held request may be passed on to this service."""
        if request.course.hops >= limits.MAX_CHAIN:
            self.refusal = f"it was passed on {request.course.hops} times"
            return False
        target = self.services.get(name)
        session = request.session
        if target is not None and target.length >= self._max_queue and session.workers and not session.windowed:
            self.refusal = "its queue is full, and a connection that carries workers cannot be paused"
            return False
        return target is not None or (self._allowed(name) and not self._short_of(1))

    def _pass_on(self, request: Request, name: bytes, body: Body, ref: object) -> None:
        self.held_bytes += len(body) - len(request.body)
        request.session.held_bytes += large(body) - large(request.body)
        before = request.service
        service = self.services.get(name)
        if service is None:
            service = self.services[name] = Service(name)
            service.empty_since = self.now
        request.service = service
        request.body = body
        request.ref = ref
        request.worker = None
        course = request.own_course()
        course.hops += 1
        course.spent = request.attempts
        request.state = QUEUED
        queues.push(service, request)
        if request.terms is not None:
            self._await(request, request.terms)
        if not service.workers and not service.away:
            self._watch(service, request)
        self._pump(service)
        if service.length >= self._max_queue and request.session not in self._stalled:
            self._stall(
                request.session, service
            )  # who asked for what fills this line is slowed, though it asked elsewhere
        self._reap(before)

    # --- going -----------------------------------------------------------------------------------------------------------

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
        self.recorder.left(worker, state, why)
        held = list(worker.held.values())
        worker.held.clear()
        bridge = worker in self.bridges.learned
        for request in reversed(
            held
        ):  # before its services lose it: one that ends here must not take its service along
            if bridge and request.state != DONE:
                self._home(request)
            self._give_back(request, worker, why)
        for service in worker.services:
            del service.workers[worker]
            if not service.workers:
                service.empty_since = self.now
                service.weighted = False
                if self.bridges.told:
                    self._offer_changed(service)
        self.monitor.left(worker)
        for service in list(worker.services):
            if self.draining:
                self._end_waiting(service)
            if service.length:
                if not service.workers and not service.away and not service.timer:
                    self._watch(service)
                self._pump(service)
            else:
                self._reap(service)
        if bridge:
            self._bridge_lost(worker, held)
        worker.session.gone(worker)

    def _end_waiting(self, service: Service) -> None:
        """The broker is leaving: what waits for a worker that will not come ends now."""
        if not service.workers and not service.away:
            for request in queues.waiting(service):
                queues.remove(service, request)
                self._fail(request, SHUTDOWN, "the broker is shutting down")

    def _give_back(self, request: Request, worker: Worker, why: str) -> None:
        request.worker = None
        if request.state == DONE:
            return
        self._drop_parts(request)  # "partials that were only held are dropped with the attempt"
        allowed = request.max_attempts or self.policy.attempts
        course = request.own_course()
        tried = request.attempts - course.spent
        if course.partials and not self.policy.requeue_after_partial:
            self._fail(request, INTERRUPTED, f"its worker was lost after {course.partials} partials ({why})")
        elif tried >= allowed:
            self._fail(request, GAVE_UP, f"{tried} workers were lost with it, the last one: {why}")
        elif self.draining:
            self._fail(request, SHUTDOWN, "the broker is shutting down")
        else:
            request.state = QUEUED
            course.lost_by = worker.session
            request.service.requeued += 1
            queues.push_back(request.service, request)
            if request.terms is not None:
                self._await(request, request.terms)
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

    def _pause_at_bound(self, session: Session) -> None:
        """A connection without a worker (any more) that is at a bound is slowed, as if it had never had one."""
        last = next(reversed(session.requests), None)
        if last is not None and not session.over and self._at_bound(session, last.service):
            self._stall(session, last.service)

    def _leave_crew(self, worker: Worker) -> None:
        session = worker.session
        crew = self.crews.get(session)
        if crew is not None and worker in crew:
            del crew[worker]
            session.workers -= 1
            if not crew:
                del self.crews[session]
                self._pause_at_bound(session)
