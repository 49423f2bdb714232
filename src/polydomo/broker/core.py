"""The broker: what may happen next.

One object holds all services, workers and requests, and is the only one to change them. Codecs call its verbs (``protocols.verbs.Verbs``);
it answers by calling their sessions. Time is ``now``, set by the owner of the loop before anything else; ``next_deadline`` says when
``advance`` wants to be called, and ``turn`` is called once per turn of the loop.

A request is QUEUED, then HELD by one worker at a time, then DONE, and ``_end`` is the only way there: one outcome. The token of an attempt
is what a worker answers to, and it counts only from the worker that holds it.
"""

from polydomo import limits
from polydomo.broker import invariants, liveness, queues, reserved
from polydomo.broker.desk import Desk
from polydomo.broker.ledger import Entropy, large
from polydomo.broker.timers import HAIR
from polydomo.limits import SMALL_BODY
from polydomo.protocols.bridge import Journey
from polydomo.protocols.request import (
    CANCELLED,
    DONE,
    HELD,
    NO_WORKER,
    OK,
    QUEUED,
    REFUSED,
    SHUTDOWN,
    TIMEOUT,
    Request,
    Terms,
    new_request,
    new_terms,
)
from polydomo.protocols.verbs import Service, Session, Worker
from polydomo.wire.frames import Body
from polydomo.wire.link import AT_BOUND, SERVED

__all__ = ["Broker", "Entropy"]


class Broker(Desk):
    """See the module's text."""

    __slots__ = ()

    # --- clients ---------------------------------------------------------------------------------------------------------

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
        if target is None or (fallback and not target.workers and not target.away) or not session.asks:
            request = self._unusual(session, service, body, ref, fallback)
            if request is None or request.state == DONE:
                return request
            target = request.service
        else:
            request = new_request(self._requests, session, target, body, ref, self.now)
        if session.workers and self._at_bound(session, target):
            self._refuse(request, "the broker is at a bound, and a connection that carries workers cannot be paused")
            self._reap(target)
            return None
        target.accepted += 1
        session.requests[request] = None
        size = len(body)
        self.held_bytes += size
        if size > SMALL_BODY:
            session.held_bytes += size
            if session.held_bytes >= self.policy.max_client_bytes:
                self._stall(session, target)
        if attempts:
            request.max_attempts = attempts
        if deadline or wait or run:
            request.terms = new_terms(deadline, wait, run)
        if self._wants_messages:
            self.recorder.accepted(request)
        if not target.length and (target.idle or target.spare):
            worker = self._pick(target, request)
            self._unrest(worker)
            worker.credit -= 1
            self._dispatch(request, worker)
            if worker.credit > 0:
                self._rest(worker)
        else:
            queues.push(target, request)
            if request.terms is not None:
                self._await(request, request.terms)
            if not target.workers:
                if target.away:
                    self._pump_away(target)
                elif isinstance(ref, Journey):
                    queues.remove(target, request)
                    self._fail(request, NO_WORKER, "nobody offers it here any more")
                    return request
                elif not target.timer:
                    self._watch(target)
            if target.length >= self._max_queue:
                self._stall(session, target)
        if len(session.requests) >= self._max_outstanding or self.held_bytes >= self._max_held_bytes:
            self._stall(session, target)
        return request

    def requests(self, session: Session, service: bytes, bodies: "list[bytes]", ref: object) -> int:
        target = self.services.get(service)
        size = sum(map(len, bodies))
        if (
            bodies
            and target is not None
            and target.length  # they will wait
            and target.workers
            and target.length + len(bodies) < self._max_queue
            and len(session.requests) + len(bodies) < self._max_outstanding
            and self.held_bytes + size < self._max_held_bytes
            and session.held_bytes + size < self.policy.max_client_bytes
            and session.asks
            and not session.workers
        ):
            number = self._requests
            now = self.now
            waiting = session.requests
            queue = queues.of(target, session)
            before = target.length
            tell = self.recorder.accepted if self._wants_messages else None
            for body in bodies:
                number += 1
                request = new_request(number, session, target, body, ref, now)
                waiting[request] = None
                if tell is not None:
                    tell(request)
                    target.length += 1
                queue.append(request)
            self._requests = number
            self.held_bytes += size
            if size > SMALL_BODY:
                session.held_bytes += sum(map(large, bodies))
            target.accepted += len(bodies)
            target.length = before + len(bodies)
            return len(bodies)
        taken = 0
        for body in bodies:
            self.request(session, service, body, ref)
            taken += 1
            if session.link.halted:
                break
        return taken

    def _unusual(self, session: Session, name: bytes, body: Body, ref: object, fallback: bytes) -> Request | None:
        """A request whose name is reserved, unknown or not allowed, or that comes to the wrong listener or while the broker is leaving."""
        if not session.role.requests:
            self._refuse(
                new_request(self._requests, session, Service(name), body, ref, self.now),
                f"no requests are taken at {session.role.name}",
            )
            return None
        if reserved.is_reserved(name):
            request = new_request(self._requests, session, Service(name), body, ref, self.now)
            request.state = DONE
            request.outcome = OK
            answer = reserved.answer(self, session, name, body)
            session.send_final(request, answer)
            self._share(session, len(answer))
            return request
        target = self.services.get(name)
        if fallback and (target is None or not (target.workers or target.away)):
            other = self.services.get(fallback)
            if other is not None and any(worker.session.protocol == session.protocol for worker in other.workers):
                target = other
        request = new_request(
            self._requests, session, target if target is not None else Service(name), body, ref, self.now
        )
        if self.draining:
            self._refuse(request, "the broker is shutting down", SHUTDOWN)
            return None
        if target is None:
            if len(name) > limits.MAX_SERVICE_NAME:
                self._refuse(request, f"service name of {len(name)} bytes")
                return None
            if self._short_of(1):
                self._refuse(request, self.refusal)
                return None
            self.services[name] = request.service
            request.service.empty_since = self.now
        return request

    def _refuse(self, request: Request, text: str, outcome: str = REFUSED) -> None:
        request.state = DONE
        request.outcome = outcome
        request.own_course().reason = text
        self.monitor.refused += 1
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
        elif worker is not None and self._reachable(worker) and worker.session.cancel(worker, request):
            del worker.held[request.token]
            self._end(request, CANCELLED, why)
            self._settle(worker)
            return
        self._end(request, CANCELLED, why)

    def _reachable(self, worker: Worker) -> bool:
        return not worker.orphaned and not worker.session.over

    def turn(self) -> None:
        """Once per turn of the loop: lets stalled clients go on where there is room again, and late subscribers have some values."""
        if self.values.late:
            self.values.serve()
        if self.bridges.missed:
            self._learn_missed()
        if self._shares:
            shares, self._shares = self._shares, {}
            for session in shares:
                session.link.resume(SERVED)
        if self.now >= self.monitor.fold_at:
            self.monitor.fold()
        if not self._stalled:
            return
        policy = self.policy
        low = limits.RESUME_FRACTION
        if self.held_bytes > policy.max_held_bytes * low:
            return
        for session, service in list(self._stalled.items()):
            if (
                len(session.requests) <= policy.max_outstanding * low
                and service.length <= policy.max_queue * low
                and session.held_bytes <= policy.max_client_bytes * low
            ):
                del self._stalled[session]
                session.link.resume(AT_BOUND)

    def unfinished(self) -> bool:
        """Somebody is to be served on in the next turn, which should come soon."""
        return bool(self._shares) or bool(self.values.late and self.values.behind())

    # --- connections -----------------------------------------------------------------------------------------------------

    def opened(self, session: Session) -> None:
        self._sessions += 1
        session.number = self._sessions
        if self.draining:
            session.asks = False
        self.sessions[session] = None
        self.monitor.opened(session)
        self.recorder.opened(session)

    def closed(self, session: Session, why: str) -> None:
        if session.over:
            return
        session.over = True
        self.sessions.pop(session, None)
        self._stalled.pop(session, None)
        self._shares.pop(session, None)
        self.schedulers.pop(session, None)
        self.subscriptions.drop(session)
        self.values.part(session)
        self.monitor.closed(session, why)
        self.recorder.closed(session, why)
        for request in list(session.requests):
            self._abandon(request, "the client has gone")
        crew = list(self.crews.get(session, ()))
        for worker in crew:
            self.revoke(worker)  # what one of them gives back must not go to another of them
        for worker in crew:
            self.lose(worker, "lost", why)

    def violated(self, session: Session, what: str) -> None:
        self.monitor.violations += 1
        self.recorder.violated(session, what)

    def lags(self, session: Session, what: str) -> None:
        self.recorder.lagged(session, what)

    # --- time ------------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """When ``advance`` must be called next, if nothing else happens."""
        mine = self.timers.next()
        catalog = self.catalog.next_deadline()
        if mine is None or (catalog is not None and catalog < mine):
            return catalog
        return mine

    def advance(self) -> None:
        """Does everything that is due at ``now``."""
        due = self.next_deadline()
        if due is not None and self.now - due > limits.OVERSLEPT:
            liveness.overslept(self, self.now - due)
        fault: Exception | None = None
        for key, item in self.timers.due(self.now):
            try:
                self._item_due(key, item)
            except Exception as error:  # a fault met in one must not cost the others their time
                fault = error
        self.catalog.advance(self.now)
        self._catalogued("")
        if fault is not None:
            raise fault

    def _item_due(self, key: int, item: object) -> None:
        # What comes first may end what comes later, or set it a new time: then its key is another.
        if isinstance(item, Request):
            if item.terms is not None and item.terms.timer == key:
                self._request_due(item, item.terms)
        elif isinstance(item, Worker):
            if item.timer == key:
                item.timer = 0
                liveness.judge(self, item)
        elif isinstance(item, Service):
            if item.timer == key:
                self._service_due(item)
        elif isinstance(item, Alarm) and not item.session.over:
            item.session.on_timer(item.key)

    def _request_due(self, request: Request, terms: Terms) -> None:
        terms.timer = 0
        if request.state == DONE:
            return
        now = self.now + HAIR
        worker = request.worker
        if terms.deadline and now >= terms.deadline:
            if request.state == QUEUED:
                queues.remove(request.service, request)
            self._fail(request, TIMEOUT, "its deadline passed")
        elif request.state == QUEUED and terms.expiry and now >= terms.expiry:
            queues.remove(request.service, request)
            self._fail(request, NO_WORKER, "no worker took it in time")
        elif request.state == HELD and terms.run and now >= request.dispatched + terms.run:
            self._fail(request, TIMEOUT, f"its worker took longer than {terms.run:g} s")
        else:
            self._arm(request, terms)
            return
        if worker is not None and worker.session.polls:
            # memo01: "the broker assumes that the worker has disconnected"
            self.lose(worker, "lost", "its job took longer than the job's timeout")

    def _service_due(self, service: Service) -> None:
        service.timer = 0
        if service.workers or service.away or self.services.get(service.name) is not service:
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

    # --- leaving ---------------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Accepts nothing more; what has no worker ends now, the rest may finish."""
        self._close_doors()
        for service in list(self.services.values()):
            self._end_waiting(service)

    def _close_doors(self) -> None:
        self.draining = True
        if self.bridges.told:
            self.withdraw_offers()
        for session in self.sessions:
            session.asks = False

    def shutdown(self) -> None:
        """Ends everything that is still open and says goodbye to every worker."""
        self._close_doors()
        for session in list(self.sessions):
            for request in list(session.requests):
                if request.state == QUEUED:
                    queues.remove(request.service, request)
                self._fail(request, SHUTDOWN, "the broker is shutting down")
        for worker in list(self.workers):
            worker.session.dismiss(worker)
            self.lose(worker, "left", "the broker is shutting down")

    # --- what the broker knows -------------------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """For tests: raises AssertionError if anything said twice is not said the same."""
        invariants.check(self)

    def served(self) -> dict[Session, int]:
        """The clients that the broker itself answered in this turn, and how many bytes."""
        return self._shares

    def stalled(self) -> dict[Session, Service]:
        """The clients that are not read because of a bound, and the service that filled it."""
        return self._stalled

    def has_worker(self, service: bytes) -> bool:
        known = self.services.get(service)
        return known is not None and bool(known.workers or known.away)

    def window(self, session: Session, service: bytes) -> int:
        return reserved.window(self, session, service)

    def nonce(self, size: int) -> bytes:
        return self._entropy.take(size)


class Alarm:
    """What a session asked for with ``later``."""

    def __init__(self, session: Session, key: object) -> None:
        self.session = session
        self.key = key
