"""The ledger: every open request, what bounds it in time, and the one way it ends.

``Ledger`` is the first floor of the broker: ``floor.Floor`` adds the workers, ``core.Broker`` the verbs. Its state is all of the broker's.
"""

from polydomo.broker import queues
from polydomo.broker.bridges import Bridges
from polydomo.broker.catalog import Catalog
from polydomo.broker.logs import Logs
from polydomo.broker.monitor import Monitor
from polydomo.broker.policy import Policy
from polydomo.broker.pubsub import Subscriptions
from polydomo.broker.record import Recorder
from polydomo.broker.timers import Timers
from polydomo.broker.values import Values
from polydomo.limits import MAX_BODY_FRAMES, OWN_ANSWER, OWN_ANSWERS, SMALL_BODY
from polydomo.protocols.request import DONE, NO_WORKER, OK, PLAIN, QUEUED, TOO_LARGE, Parts, Request, Terms
from polydomo.protocols.tuning import Tuning
from polydomo.protocols.verbs import Service, Session, Verbs, Worker
from polydomo.wire.frames import Body, count
from polydomo.wire.link import AT_BOUND, SERVED


class Entropy:
    """Where unguessable bytes come from; the owner of the broker gives one."""

    def take(self, size: int) -> bytes:
        raise NotImplementedError


# An attempt's token is its request's number in nine hexadecimal digits and the attempt's in three: printable, since some peers take it for
# text, and told to workers, so that whatever they write down under it (a log record) leads back to the request. It counts only from the
# worker that holds it. A number comes again after 2^36 requests, a week at 100,000 a second.
NUMBER_MASK = (1 << 36) - 1
ATTEMPT_MASK = (1 << 12) - 1
TOKEN_SIZE = 12
BLOCK = 12  # bits of the number that change from token to token; the rest of it is made text once for all of them
IN_BLOCK = (1 << BLOCK) - 1
FIRST_ATTEMPTS = tuple([b"%03x001" % number for number in range(1 << BLOCK)])


def number_of(token: bytes, newest: int) -> int:
    """The number of the request that an attempt's token names, the newest being ``newest``; 0 if it is no token."""
    if len(token) != TOKEN_SIZE:
        return 0
    try:
        number = int(token[:9], 16)
        int(token[9:], 16)
    except ValueError:
        return 0
    number |= newest & ~NUMBER_MASK
    if number > newest:
        number -= NUMBER_MASK + 1
    return max(number, 0)


def large(body: Body) -> int:
    """The size that counts against what one client may have held."""
    size = len(body)
    return size if size > SMALL_BODY else 0


class Ledger(Verbs):
    __slots__ = (  # so many attributes are slow to reach otherwise, and the hot path reaches for them all the time
        "_attempts",
        "_block",
        "_block_token",
        "_entropy",
        "_max_held_bytes",
        "_max_outstanding",
        "_max_queue",
        "_requests",
        "_sessions",
        "_shares",
        "_stalled",
        "_wants_bodies",
        "_wants_messages",
        "_wants_requests",
        "_workers",
        "address",
        "catalog",
        "crews",
        "draining",
        "held_bytes",
        "memo_workers",
        "monitor",
        "now",
        "policy",
        "recorder",
        "refusal",
        "schedulers",
        "services",
        "sessions",
        "started",
        "subscriptions",
        "timers",
        "tuning",
        "wall",
        "workers",
    )

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
        self._entropy = entropy
        self.record_by(recorder if recorder is not None else Recorder())
        self.services: dict[bytes, Service] = {}
        self.workers: dict[Worker, None] = {}
        self.sessions: dict[Session, None] = {}
        self.crews: dict[Session, dict[Worker, None]] = {}  # the workers of each connection that has any
        self.held_bytes = 0  # bodies of open requests
        self.draining = False
        self.timers = Timers()
        self.catalog = Catalog(self.tuning)
        self.subscriptions = Subscriptions()
        self.values = Values(self.policy.max_values, self.policy.max_value_bytes)
        self.logs = Logs()
        self.publications = 0  # ever
        self.bridges = Bridges()
        self.memo_workers = {}
        self.schedulers = {}
        self.refusal = ""
        self._max_queue = self.policy.max_queue
        self._max_outstanding = self.policy.max_outstanding
        self._max_held_bytes = self.policy.max_held_bytes
        self._shares: dict[Session, int] = {}  # bytes that the broker itself answered them in this turn
        self._stalled: dict[Session, Service] = {}  # clients that are not read, and the service they filled
        self._requests = 0
        self._block = -1
        self._block_token = b""
        self._sessions = 0
        self._workers = 0
        self.monitor = Monitor(self)

    def record_by(self, recorder: Recorder) -> None:
        """From now on this one is told what happens."""
        self.recorder = recorder
        self._wants_requests = recorder.wants_requests
        self._wants_messages = recorder.wants_messages
        self._wants_bodies = recorder.wants_bodies

    @property
    def open_requests(self) -> int:
        """How many there are."""
        return sum(len(session.requests) for session in self.sessions)

    def _token(self, number: int, attempts: int) -> bytes:
        """The token of an attempt, where it is not at hand."""
        if attempts == 1:
            self._block = number >> BLOCK
            self._block_token = b"%06x" % ((number & NUMBER_MASK) >> BLOCK)
        return b"%09x%03x" % (number & NUMBER_MASK, attempts & ATTEMPT_MASK)

    # --- endings ---------------------------------------------------------------------------------------------------------

    def _end(self, request: Request, outcome: str, reason: str) -> None:
        """The one place where a request ends."""
        assert request.state != DONE
        request.state = DONE
        request.outcome = outcome
        if reason:
            request.own_course().reason = reason
        if request.terms is not None and request.terms.timer:
            self.timers.remove(request.terms.timer, request)
            request.terms.timer = 0
        session = request.session
        del session.requests[request]
        size = len(request.body)
        self.held_bytes -= size
        if size > SMALL_BODY:
            session.held_bytes -= size
        service = request.service
        if outcome == OK:
            service.answered += 1
            try:
                service.fresh[session.counted_as].append(self.now - request.accepted)
            except KeyError:
                self.monitor.tally(service, session.protocol).fresh.append(self.now - request.accepted)
        else:
            service.failed += 1
            self.monitor.tally(service, session.protocol).fail(outcome)
        if self._wants_requests:
            self.recorder.ended(request)
        request.body = b""
        if request.course is not PLAIN:
            self._drop_parts(request)
        if not service.workers and not service.length:
            self._reap(service)

    def _joins(self, parts: Parts, body: Body) -> bool:
        """Whether one more part still makes a message within the bounds, of bytes and of frames."""
        return parts.size + len(body) <= self.policy.max_message and parts.frames + count(body) <= MAX_BODY_FRAMES

    def _too_large(self, request: Request) -> None:
        bound = f"{self.policy.max_message} bytes or {MAX_BODY_FRAMES} frames"
        self._fail(request, TOO_LARGE, f"its partials passed {bound} in all")

    def _drop_parts(self, request: Request) -> None:
        """Partials that were held for the client are not any more."""
        parts = request.course.parts
        if parts is not None:
            self.held_bytes -= parts.size
            request.course.parts = None

    def _fail(self, request: Request, outcome: str, reason: str) -> None:
        self._end(request, outcome, reason)
        request.session.send_failure(request, outcome, reason)

    def _reap(self, service: Service) -> None:
        """A name that nobody offers and nobody waits for is forgotten."""
        if (
            not service.workers
            and not service.length
            and not service.away
            and self.services.get(service.name) is service
        ):
            if service.timer:
                self.timers.remove(service.timer, service)
                service.timer = 0
            del self.services[service.name]
            self.monitor.reaped(service)

    def _short_of(self, wanted: int) -> int:
        """How many places there are too few for so many more names."""
        missing = max(0, len(self.services) + wanted - self.policy.max_services)
        if missing:
            self.refusal = f"already {len(self.services)} services"
        return missing

    def _make_room(self, names: "list[bytes]") -> bool:
        """Room for services that are about to be offered, or were. Where all names are taken, those that only clients wait for give way:
        clients that invent names must not keep workers out. First those that never were offered, then those that have waited longest."""
        offered = set(names)
        wanted = len(offered - self.services.keys())
        missing = self._short_of(wanted) if wanted else 0
        if not missing:
            return True
        idle = [
            service
            for name, service in self.services.items()
            if not service.workers and not service.away and name not in offered
        ]
        if len(idle) < missing:
            return False
        idle.sort(key=lambda service: (service.answered > 0, service.empty_since))
        for service in idle[:missing]:
            for request in queues.waiting(service):
                queues.remove(service, request)
                self._fail(
                    request, NO_WORKER, "nobody offers it, and its place was needed for a service that is offered"
                )
            self._reap(service)
        return True

    def _home(self, request: Request) -> None:
        """A request comes back from a bridge: its service may have been forgotten while it was away."""
        name = request.service.name
        if self._make_room([name]):
            request.service = self.services.setdefault(name, request.service)
        else:
            self._fail(request, NO_WORKER, f"nobody offers it any more, and there are {self.refusal}")

    # --- at a bound ------------------------------------------------------------------------------------------------------

    def _at_bound(self, session: Session, service: Service) -> bool:
        if len(session.requests) >= self._max_outstanding:
            return True
        if session.windowed:  # the other bounds are those it was told
            return session.held_bytes > self.tuning.bridge_bytes
        return (
            service.length >= self._max_queue
            or self.held_bytes >= self._max_held_bytes
            or session.held_bytes >= self.policy.max_client_bytes
        )

    def _stall(self, session: Session, service: Service) -> None:
        """At a bound the sender is slowed: it is not read until there is room again."""
        if not session.workers:
            self._stalled[session] = service
            session.link.pause(AT_BOUND)

    def _share(self, session: Session, size: int) -> None:
        """The broker answered by itself: a question costs its client little, an answer may cost us a list of everything."""
        taken = self._shares[session] = self._shares.get(session, 0) + max(size, OWN_ANSWER)
        if taken >= OWN_ANSWERS and not session.workers:
            session.link.pause(SERVED)

    # --- what bounds a request in time -----------------------------------------------------------------------------------

    def _await(self, request: Request, terms: Terms) -> None:
        """The request waits for a worker (again)."""
        terms.expiry = self.now + terms.wait if terms.wait else 0.0
        self._arm(request, terms)

    def _arm(self, request: Request, terms: Terms) -> None:
        """Sees to it that the request's one timer is not later than whichever of its bounds comes first. An earlier one is left alone: most
        requests end before it is due, and otherwise it is set anew then."""
        when = terms.deadline
        if request.state == QUEUED:
            if terms.expiry and (not when or terms.expiry < when):
                when = terms.expiry
        elif terms.run and (not when or request.dispatched + terms.run < when):
            when = request.dispatched + terms.run
        timer = terms.timer
        if timer:
            if when and timer <= when * 1000.0:
                return
            self.timers.remove(timer, request)
            terms.timer = 0
        if when:
            terms.timer = self.timers.add(self.now, when, request)

    def _watch(self, service: Service, request: Request | None = None) -> None:
        """The service has no worker: its requests must not wait for ever. ``request`` is one that was given back or passed on, and may be
        older than all that wait."""
        first = request if request is not None else queues.oldest(service)
        if first is not None:
            when = max(first.accepted, service.empty_since) + self.policy.queue_expiry
            if service.timer:
                if service.timer <= when * 1000.0:
                    return
                self.timers.remove(service.timer, service)
            service.timer = self.timers.add(self.now, when, service)
