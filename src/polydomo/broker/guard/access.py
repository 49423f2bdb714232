"""Access control inside the broker: every operation is checked against the current rules when it happens.

Without an access file there are no rules, and everything is allowed. With one, whoever has no principal may do nothing. The rights
of the broker's own principals are in ``authority``, those of built-in services in ``builtin/registry``.
"""

from collections.abc import Callable

from polydomo.broker.builtin.service import ITSELF, PROCESSES
from polydomo.broker.guard import backpressure
from polydomo.broker.guard.authority import CARRIED, own_allows
from polydomo.broker.guard.rules import (
    ADMIN,
    BRIDGE,
    CALL,
    INSPECT,
    NO_QUOTA,
    OFFER,
    PUBLISH,
    REGISTER,
    SUBSCRIBE,
    TAP,
    AccessRules,
    Quota,
)
from polydomo.broker.interfaces import Nodes, Rights
from polydomo.broker.reserved_names import MONITOR, is_reserved
from polydomo.broker.state import State
from polydomo.errors import SettingError
from polydomo.limits import ACCESS_ANSWERS, RESUME_FRACTION
from polydomo.model.principals import NAMED, accountable, is_own, named_by
from polydomo.model.records import Request, Session
from polydomo.wire.frames import Body

__all__ = ["ADMIN", "BRIDGE", "CALL", "INSPECT", "OFFER", "PUBLISH", "REGISTER", "SUBSCRIBE", "TAP", "Access"]


class Usage:
    """The request rate of one principal: a token bucket that holds one second's worth."""

    __slots__ = ("then", "tokens")

    def __init__(self, now: float, tokens: float) -> None:
        self.then = now
        self.tokens = tokens


class Access(Rights):
    __slots__ = ("_free", "_known", "_state", "_usage", "in_force", "nodes", "resume_at", "rules")

    def __init__(self, state: State) -> None:
        self._state = state
        self.rules: AccessRules | None = None
        self.in_force = False
        self.nodes: Nodes | None = None  # with ``dbp.registered_only``
        self.resume_at = 0.0  # when the next throttled client may continue; 0: no client is throttled
        self._known: dict[tuple[str, str, str], bool] = {}  # decisions already sent to the recorder
        self._usage: dict[str, Usage] = {}
        # Principal without a quota -> services that it may call by the rules in force.
        self._free: dict[str, set[bytes]] = {}

    def replace(self, rules: AccessRules) -> None:
        """Replaces the rules. Recorded decisions that change are recorded again."""
        if self.rules is None:
            for session in self._state.sessions:
                session.may_request = session.may_request and session.is_sibling
        self.rules = rules
        self.in_force = True
        self._free = {}
        for key, allowed in list(self._known.items()):
            principal, right, name = key
            now_allowed = self.allows(principal, right, name)
            if now_allowed != allowed:
                self._record(key, now_allowed)

    def allows(self, principal: str, right: str, name: str) -> bool:
        """The decision: whether the principal has the right by the current rules. Every other method here asks this one."""
        rules = self.rules
        if rules is None:
            return True
        peer, named, _ = principal.partition(NAMED)
        if not peer:
            return False
        if named:
            if right not in CARRIED or is_reserved(name.encode(errors="surrogateescape")):
                return False
            right = BRIDGE
        return own_allows(peer, right, name) if is_own(peer) else rules.allows(peer, right, name)

    def denial(self, session: Session, right: str, name: bytes | str) -> str:
        """Why the peer does not have the right now; "" if it has it. A denial is counted and recorded."""
        if self.nodes is not None:
            why = self.nodes.denial(session, right)
            if why:
                principal = acting(session, right)
                text = name if isinstance(name, str) else name.decode(errors="backslashreplace")
                return self._denied(session, principal, right, text, why)
        return "" if self.rules is None else self._decide(session, acting(session, right), right, name)

    def denial_of(self, request: Request, right: str, name: bytes | str) -> str:
        """The same for the origin of a request."""
        return "" if self.rules is None else self._decide(request.session, request.origin, right, name)

    def denial_as(self, principal: str, session: Session, right: str, name: bytes | str) -> str:
        """The same for a principal whose request another process passed on over ``session``."""
        return "" if self.rules is None else self._decide(session, principal, right, name)

    def _decide(self, session: Session, principal: str, right: str, name: bytes | str) -> str:
        text = name if isinstance(name, str) else name.decode(errors="backslashreplace")
        allowed = self.allows(principal, right, text)
        key = (principal, right, text)
        if self._known.get(key) is not allowed:
            self._record(key, allowed)
        if allowed:
            return ""
        return self._denied(session, principal, right, text, denial(principal, right, text))

    def _denied(self, session: Session, principal: str, right: str, text: str, why: str) -> str:
        state = self._state
        state.counters.denied[right] = state.counters.denied.get(right, 0) + 1
        state.recorder.denied(session, principal, right, text, why)
        return why

    def builtin_denial(self, request: Request) -> str:
        """Why the origin of a request may not use the built-in service that it names; "" if it may."""
        if self.rules is None:
            return ""
        name = request.service.name
        right = self._state.builtin.right(name, request.body)
        session = request.session
        if right == ITSELF:  # a bridge may not use built-in services on behalf of any principal
            return "" if session.is_sibling or not session.is_bridge else self.denial_of(request, ADMIN, name)
        if right == PROCESSES:
            if session.is_sibling or is_own(session.principal):
                return ""
            right = ADMIN  # for the text of the denial; no principal of the access file may use it
            return self._decide(session, "", right, name)
        return self.denial_of(request, right, name)

    def call_denial(self, request: Request, service: bytes) -> str:
        """``denial_of`` for calls. An allowed call is cached until the rules change."""
        session = request.session
        why = self.denial_of(request, CALL, service)
        if why:
            return why
        if session.origin_is_principal and self.quota(session.principal) is NO_QUOTA and session.role.allows_requests:
            services = self._free.setdefault(session.principal, set())
            if len(services) < ACCESS_ANSWERS:
                services.add(service)
        return ""

    def calls_freely(self, session: Session, service: bytes) -> bool:
        """The fast path: true if the current rules are known to allow the call and no quota applies."""
        services = self._free.get(session.principal)
        return (
            services is not None
            and service in services
            and session.origin_is_principal
            and session.role.allows_requests
        )

    def recorded_call(self, request: Request, name: bytes) -> int:
        """The access column of the journal for an accepted or forwarded request: 1 if the current rules allow it, 2 if not. It is
        evaluated again, independently of the check that admitted the request, so that the audit finds a missing or outdated check."""
        if self.rules is None:
            return 0
        if request.session.is_sibling:
            return 1  # the process that the request came from has checked it
        if is_reserved(name):  # on its way to process 0
            right = self._state.builtin.right(name, request.body)
            if right == ITSELF or (right == PROCESSES and is_own(request.session.principal)):
                return 1
            return 1 if self.allows(request.origin, right, name.decode(errors="backslashreplace")) else 2
        return 1 if self.allows(request.origin, CALL, name.decode(errors="backslashreplace")) else 2

    def recorded_job(self, principal: str, service: bytes) -> int:
        """The same for a durable job, when it is submitted. Its row is written when it is stored; the rules may have changed by then."""
        if self.rules is None:
            return 0
        return 1 if self.allows(principal, CALL, service.decode(errors="backslashreplace")) else 2

    def recorded_offer(self, session: Session, name: bytes) -> int:
        """The same for the worker of a dispatched request."""
        if self.rules is None:
            return 0
        if session.runs_shared or session.is_sibling:
            return 1  # the broker itself: it sends the request on, and where a worker gets it, the worker's right is recorded
        return 1 if self.allows(acting(session, OFFER), OFFER, name.decode(errors="backslashreplace")) else 2

    def hears(self, session: Session, topic: bytes) -> bool:
        """Whether a subscriber may receive a message of this topic. Checked for every message, and not recorded."""
        return self.rules is None or self.allows_topic(acting(session, SUBSCRIBE), topic)

    def allows_topic(self, principal: str, topic: bytes) -> bool:
        return self.allows(principal, right_to_hear(topic), topic.decode(errors="backslashreplace"))

    def may_know(self, session: Session, service: bytes) -> bool:
        """Whether this broker announces a service to another one: only if that one may call it. Not recorded."""
        if self.rules is None or session.is_sibling:
            return True
        return self.allows(acting(session, CALL), CALL, service.decode(errors="backslashreplace"))

    def subscription_denial(self, session: Session, prefix: bytes) -> str:
        """Why the peer may not subscribe; "" if it may. A prefix is allowed if a rule names it or something below it. Messages that the
        rules do not cover are not delivered."""
        rules = self.rules
        if rules is None or session.is_bridge:
            return ""  # each message is checked
        text = prefix.decode(errors="backslashreplace")
        if rules.covers_prefix(session.principal, right_to_hear(prefix), text):
            return ""
        return self.denial(session, right_to_hear(prefix), prefix)

    def _record(self, key: tuple[str, str, str], allowed: bool) -> None:
        if len(self._known) >= ACCESS_ANSWERS:
            self._known.clear()
        self._known[key] = allowed
        self._state.recorder.access(key[0], key[1], key[2], allowed)

    def request_denial(self, request: Request) -> str:
        """Why the origin of an open request has no right to it any more; "" if it has."""
        name = request.service.name
        return self.builtin_denial(request) if is_reserved(name) else self.denial_of(request, CALL, name)

    # --- quotas

    def quota(self, principal: str) -> Quota:
        return self.rules.quota(accountable(principal)) if principal and self.rules is not None else NO_QUOTA

    def spend(self, request: Request, units: "Callable[[Body], int] | None" = None) -> bool:
        """Counts a request against its origin's quota, as ``units`` of its body says or once. Returns False, and counts nothing, if it
        exceeds the quota and the session cannot be paused. If it uses up the quota, all connections of the principal are paused."""
        session = request.session
        principal = accountable(request.origin)
        quota = self.quota(principal)
        if quota is NO_QUOTA:
            return True
        over = bool(quota.open_requests) and self._open(principal) + 1 > quota.open_requests
        if session.worker_count or session.refuses_at_limit:
            if over or not self._below(principal, 1.0, 0):
                return False
        if quota.requests_per_second:
            self._refill(principal, quota).tokens -= 1.0 if units is None else _count(units, request)
        if not self._below(principal, 1.0, 1):
            for other in self._sessions(principal):
                backpressure.pause(self._state, other, request.service)
        return True

    def has_room(self, session: Session) -> bool:
        """Whether a paused client may continue."""
        return self._below(session.principal, RESUME_FRACTION, 0)

    def _sessions(self, principal: str) -> "list[Session]":
        return [session for session in self._state.sessions if session.principal == principal]

    def _open(self, principal: str) -> int:
        """The open requests of a principal. Attempts of its jobs and shared runs are not counted: the requests that caused them are."""
        count = sum(len(session.requests) for session in self._sessions(principal))
        for session in self._state.sessions:
            if session.charges_origin:
                count += sum(accountable(request.origin) == principal for request in session.requests)
        return count

    def _below(self, principal: str, part: float, more: int) -> bool:
        """Whether the principal is below this fraction of its quota, with ``more`` requests."""
        quota = self.quota(principal)
        if quota is NO_QUOTA:
            return True
        if quota.open_requests and self._open(principal) + more >= max(1, quota.open_requests * part):
            return False
        if quota.held_bytes:
            held = sum(session.held_bytes for session in self._sessions(principal))
            if held >= quota.held_bytes * part:
                return False
        if quota.requests_per_second:
            usage = self._refill(principal, quota)
            if usage.tokens < 1.0:
                when = self._state.now + (1.0 - usage.tokens) / quota.requests_per_second
                self.resume_at = min(self.resume_at, when) if self.resume_at else when
                return False
        return True

    def _refill(self, principal: str, quota: Quota) -> Usage:
        now = self._state.now
        most = max(1.0, quota.requests_per_second)
        usage = self._usage.get(principal)
        if usage is None:
            usage = self._usage[principal] = Usage(now, most)
        usage.tokens = min(most, usage.tokens + (now - usage.then) * quota.requests_per_second)
        usage.then = now
        return usage


def _count(units: "Callable[[Body], int]", request: Request) -> int:
    try:
        return units(request.body)
    except SettingError:
        return 1  # it will be refused


def acting(session: Session, right: str) -> str:
    """The principal that a session's own operations need rights for: a bridge acts for principals of the other broker."""
    if session.is_bridge and not session.is_sibling and right != BRIDGE:
        return named_by(session.principal, "")
    return session.principal


def right_to_hear(topic: bytes) -> str:
    return TAP if topic.startswith(MONITOR) else SUBSCRIBE


def denial(principal: str, right: str, name: str) -> str:
    if not principal:
        principal = "a peer without a principal"
    elif principal.endswith(NAMED):
        principal = f"the bridge {principal[: -len(NAMED)]}"
    if right == ADMIN and name:
        return f"{principal} may not use {name!r}: it needs the right admin"
    return f"{principal} may not {right} {name!r}" if name else f"{principal} may not {right}"
