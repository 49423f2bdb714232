"""Access control inside the broker: every operation is checked against the current rules when it happens.

A session without a principal is not checked: access control is off, or the broker opened the connection itself.
"""

from typing import TYPE_CHECKING

from polydomo.broker.access_rules import (
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
from polydomo.broker.topics import MONITOR
from polydomo.limits import ACCESS_ANSWERS, RESUME_FRACTION
from polydomo.protocols.model import Service
from polydomo.protocols.session import Session

if TYPE_CHECKING:
    from polydomo.broker.broker import Broker

__all__ = ["ADMIN", "BRIDGE", "CALL", "INSPECT", "OFFER", "PUBLISH", "REGISTER", "SUBSCRIBE", "TAP", "Access"]


class Usage:
    """The request rate of one principal: a token bucket that holds one second's worth."""

    __slots__ = ("then", "tokens")

    def __init__(self, now: float, tokens: float) -> None:
        self.then = now
        self.tokens = tokens


class Access:
    __slots__ = ("_broker", "_free", "_known", "_usage", "resume_at", "rules")

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.rules: AccessRules | None = None
        self.resume_at = 0.0  # when the next throttled client may continue; 0: no client is throttled
        self._known: dict[tuple[str, str, str], bool] = {}  # decisions already sent to the recorder
        self._usage: dict[str, Usage] = {}
        self._free: dict[
            str, set[bytes]
        ] = {}  # principal without a quota -> services that it may call by the rules in force

    def replace(self, rules: AccessRules) -> None:
        """Replaces the rules. Recorded decisions that change are recorded again."""
        self.rules = rules
        self._free = {}
        for key, allowed in list(self._known.items()):
            principal, right, name = key
            now_allowed = rules.allows(principal, right, name)
            if now_allowed != allowed:
                self._record(key, now_allowed)

    def may(self, session: Session, right: str, name: bytes | str) -> bool:
        """Whether the session has the right now. A denial is counted and recorded, and its text is in ``broker.refusal``."""
        if not session.principal or self.rules is None:
            return True
        text = name if isinstance(name, str) else name.decode(errors="backslashreplace")
        key = (session.principal, right, text)
        # the right BRIDGE covers everything that a bridge does
        allowed = (session.is_bridge and right != BRIDGE) or self.rules.allows(session.principal, right, text)
        if self._known.get(key) is not allowed:
            self._record(key, allowed)
        if allowed:
            return True
        broker = self._broker
        broker.refusal = refusal = denial(session.principal, right, text)
        broker.denied = True
        broker.monitor.denied[right] = broker.monitor.denied.get(right, 0) + 1
        broker.recorder.denied(session, right, text, refusal)
        return False

    def may_call(self, session: Session, service: bytes) -> bool:
        """``may`` for requests. An allowed call is cached until the rules change."""
        if not self.may(session, CALL, service):
            return False
        if self.quota(session) is NO_QUOTA and session.role.allows_requests:
            services = self._free.setdefault(session.principal, set())
            if len(services) < ACCESS_ANSWERS:
                services.add(service)
        return True

    def calls_freely(self, session: Session, service: bytes) -> bool:
        """The fast path: true if the current rules are known to allow the call and no quota applies."""
        services = self._free.get(session.principal)
        return services is not None and service in services and session.role.allows_requests

    def recorded(self, session: Session, right: str, name: bytes) -> int:
        """The access column of the journal for an accepted or dispatched request: 1 if the current rules allow it, 2 if not. It is
        evaluated again, independently of the check that admitted the request, so that the audit finds a missing or outdated check."""
        if self.rules is None:
            return 0
        text = name.decode(errors="backslashreplace")
        if session.is_sibling:
            return 1  # the process that the request came from has checked it
        if session.is_bridge:
            return 1 if self.rules.allows(session.principal, BRIDGE, "") else 2
        return 1 if self.rules.allows(session.principal, right, text) else 2

    def hears(self, session: Session, topic: bytes) -> bool:
        """Whether a subscriber may receive a message of this topic. Checked for every message, and not recorded."""
        if not session.principal or self.rules is None or session.is_bridge:
            return True
        return self.rules.allows(session.principal, right_to_hear(topic), topic.decode(errors="backslashreplace"))

    def may_subscribe(self, session: Session, prefix: bytes) -> bool:
        """A prefix is allowed if a rule names it or something below it. Messages that the rules do not cover are not delivered."""
        if not session.principal or self.rules is None or session.is_bridge:
            return True
        text = prefix.decode(errors="backslashreplace")
        if self.rules.covers_prefix(session.principal, right_to_hear(prefix), text):
            return True
        return self.may(session, right_to_hear(prefix), prefix)

    def _record(self, key: tuple[str, str, str], allowed: bool) -> None:
        if len(self._known) >= ACCESS_ANSWERS:
            self._known.clear()
        self._known[key] = allowed
        self._broker.recorder.access(key[0], key[1], key[2], allowed)

    # --- a reload

    def lost_right(self, session: Session) -> str:
        """An operation of the session that is no longer allowed; empty if there is none."""
        broker = self._broker
        if not session.principal:
            return ""
        if session.is_bridge:
            rules = self.rules
            gone = rules is not None and not rules.allows(session.principal, BRIDGE, "")
            return f"{session.principal} may not bridge" if gone else ""
        for worker in broker.session_workers.get(session, ()):
            for service in worker.services:
                if not self.may(session, OFFER, service.name):
                    return broker.refusal
        for request in session.requests:
            if not self.may(session, CALL, request.service.name):
                return broker.refusal
        for prefix in broker.publishing.subscriptions.prefixes(session):
            if not self.may_subscribe(session, prefix):
                return broker.refusal
        for entry in broker.catalog.registered_by(session):
            if not self.may(session, REGISTER, entry):
                return broker.refusal
        return ""

    # --- quotas

    def quota(self, session: Session) -> Quota:
        return self.rules.quota(session.principal) if session.principal and self.rules is not None else NO_QUOTA

    def spend(self, session: Session, service: Service) -> bool:
        """Counts a request of the session. Returns False if it exceeds the quota and the session cannot be paused. If it uses up the quota,
        all connections of the principal are paused."""
        quota = self.quota(session)
        if quota is NO_QUOTA:
            return True
        if quota.requests_per_second:
            self._refill(session.principal, quota).tokens -= 1.0
        mine = [other for other in self._broker.sessions if other.principal == session.principal]
        over = bool(quota.open_requests) and sum(len(other.requests) for other in mine) + 1 > quota.open_requests
        if (session.worker_count or session.refuses_at_limit) and (over or not self._below(session, 1.0, 0)):
            return False
        if not self._below(session, 1.0, 1):
            for other in mine:
                self._broker.backpressure.pause(other, service)
        return True

    def has_room(self, session: Session) -> bool:
        """Whether a paused client may continue."""
        return self._below(session, RESUME_FRACTION, 0)

    def _below(self, session: Session, part: float, more: int) -> bool:
        """Whether the principal is below this fraction of its quota, with ``more`` requests."""
        quota = self.quota(session)
        if quota is NO_QUOTA:
            return True
        mine = [other for other in self._broker.sessions if other.principal == session.principal]
        if quota.open_requests and sum(len(other.requests) for other in mine) + more >= max(
            1, quota.open_requests * part
        ):
            return False
        if quota.held_bytes and sum(other.held_bytes for other in mine) >= quota.held_bytes * part:
            return False
        if quota.requests_per_second:
            usage = self._refill(session.principal, quota)
            if usage.tokens < 1.0:
                when = self._broker.now + (1.0 - usage.tokens) / quota.requests_per_second
                self.resume_at = min(self.resume_at, when) if self.resume_at else when
                return False
        return True

    def _refill(self, principal: str, quota: Quota) -> Usage:
        now = self._broker.now
        most = max(1.0, quota.requests_per_second)
        usage = self._usage.get(principal)
        if usage is None:
            usage = self._usage[principal] = Usage(now, most)
        usage.tokens = min(most, usage.tokens + (now - usage.then) * quota.requests_per_second)
        usage.then = now
        return usage


def right_to_hear(topic: bytes) -> str:
    return TAP if topic.startswith(MONITOR) else SUBSCRIBE


def denial(principal: str, right: str, name: str) -> str:
    if right == ADMIN and name:
        return f"{principal} may not use {name!r}: it needs the right admin"
    return f"{principal} may not {right} {name!r}" if name else f"{principal} may not {right}"
