"""Backpressure: the broker stops reading from a client at a limit until there is room again.

A connection with a worker is never paused, because its replies must get through. Its requests over a limit are rejected instead.
"""

from typing import TYPE_CHECKING

from polydomo.limits import RESUME_FRACTION, SMALL_BODY, SMALL_PEER
from polydomo.model.service import Service
from polydomo.model.session import Session
from polydomo.wire.link import PAUSE_AT_LIMIT

if TYPE_CHECKING:
    from polydomo.broker.broker import Broker


class Backpressure:
    __slots__ = ("_broker", "paused")

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.paused: dict[Session, Service] = {}  # paused clients, and the service whose queue they filled

    def at_limit(self, session: Session, service: Service) -> bool:
        broker = self._broker
        if len(session.requests) >= broker.max_outstanding:
            return True
        if session.windowed:  # its window replaces the other limits
            return session.held_bytes > broker.tuning.bridge_bytes
        return (
            service.queue_length >= broker.max_queue
            or (broker.held_bytes >= broker.max_held_bytes and self._holds_much(session))
            or session.held_bytes >= broker.policy.max_client_bytes
        )

    def pause(self, session: Session, service: Service) -> None:
        """Pauses the client: its requests for this service have reached a limit."""
        if not (session.worker_count or session.refuses_at_limit or session.is_internal or session.disconnected):
            self.paused[session] = service
            session.link.pause(PAUSE_AT_LIMIT)

    def full(self, session: Session, service: Service) -> None:
        """Whether the client has reached its limit of open requests, or the broker its limit of bytes. The limit of bytes applies only to
        clients that hold many bytes, so that large requests do not block clients with small ones."""
        if len(session.requests) >= self._broker.max_outstanding or self._holds_much(session):
            self.pause(session, service)

    def _holds_much(self, session: Session) -> bool:
        small = min(SMALL_PEER, self._broker.max_held_bytes >> 3)
        return session.held_bytes + SMALL_BODY * len(session.requests) > small

    def first_worker(self, session: Session) -> None:
        """Called when the connection gets its first worker."""
        if self.paused.pop(session, None) is not None:
            session.link.resume(PAUSE_AT_LIMIT)

    def no_worker_left(self, session: Session) -> None:
        """Called when the connection loses its last worker. Pauses it if it is at a limit."""
        last = next(reversed(session.requests), None)
        if last is not None and not session.disconnected and self.at_limit(session, last.service):
            self.pause(session, last.service)

    def forget(self, session: Session) -> None:
        self.paused.pop(session, None)

    def end_turn(self) -> None:
        """Resumes the clients that have room again."""
        self._broker.access.resume_at = 0.0  # ``has_room`` sets it again for clients that are still throttled
        if not self.paused:
            return
        broker = self._broker
        low = RESUME_FRACTION
        if broker.held_bytes > broker.max_held_bytes * low:
            return
        for session, service in list(self.paused.items()):
            if (
                len(session.requests) <= broker.max_outstanding * low
                and service.queue_length <= broker.max_queue * low
                and session.held_bytes <= broker.policy.max_client_bytes * low
                and (not session.principal or broker.access.has_room(session))
            ):
                del self.paused[session]
                session.link.resume(PAUSE_AT_LIMIT)
