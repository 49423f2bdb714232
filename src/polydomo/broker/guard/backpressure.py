"""Backpressure: the broker stops reading from a client at a limit until there is room again.

A connection with a worker is never paused, because its replies must get through. Its requests over a limit are rejected instead.
"""

from typing import Protocol

from polydomo.broker.state import State
from polydomo.limits import RESUME_FRACTION, SMALL_BODY, SMALL_PEER
from polydomo.model.records import Service, Session
from polydomo.wire.link import PAUSE_AT_LIMIT


class Quotas(Protocol):
    """The quotas of principals (``guard.access``)."""

    resume_at: float  # when the next throttled client may continue; 0: no client is throttled

    def has_room(self, session: Session) -> bool:
        """Whether a paused client may continue."""
        raise NotImplementedError


def at_limit(state: State, session: Session, service: Service) -> bool:
    if len(session.requests) >= state.max_outstanding:
        return True
    if session.windowed:  # its window replaces the other limits
        return session.held_bytes > state.tuning.bridge_bytes
    return (
        service.queue_length >= state.max_queue
        or (state.held_bytes >= state.max_held_bytes and _holds_much(state, session))
        or session.held_bytes >= state.policy.max_client_bytes
    )


def pause(state: State, session: Session, service: Service) -> None:
    """Pauses the client: its requests for this service have reached a limit."""
    if not (session.worker_count or session.refuses_at_limit or session.is_internal or session.disconnected):
        state.paused_clients[session] = service
        session.link.pause(PAUSE_AT_LIMIT)


def full(state: State, session: Session, service: Service) -> None:
    """Whether the client has reached its limit of open requests, or the broker its limit of bytes. The limit of bytes applies only to
    clients that hold many bytes, so that large requests do not block clients with small ones."""
    if len(session.requests) >= state.max_outstanding or _holds_much(state, session):
        pause(state, session, service)


def _holds_much(state: State, session: Session) -> bool:
    small = min(SMALL_PEER, state.max_held_bytes >> 3)
    return session.held_bytes + SMALL_BODY * len(session.requests) > small


def first_worker(state: State, session: Session) -> None:
    """Called when the connection gets its first worker."""
    if state.paused_clients.pop(session, None) is not None:
        session.link.resume(PAUSE_AT_LIMIT)


def no_worker_left(state: State, session: Session) -> None:
    """Called when the connection loses its last worker. Pauses it if it is at a limit."""
    last = next(reversed(session.requests), None)
    if last is not None and not session.disconnected and at_limit(state, session, last.service):
        pause(state, session, last.service)


def end_turn(state: State, quotas: Quotas) -> None:
    """Resumes the clients that have room again."""
    quotas.resume_at = 0.0  # ``has_room`` sets it again for clients that are still throttled
    if not state.paused_clients:
        return
    low = RESUME_FRACTION
    if state.held_bytes > state.max_held_bytes * low:
        return
    for session, service in list(state.paused_clients.items()):
        if (
            len(session.requests) <= state.max_outstanding * low
            and service.queue_length <= state.max_queue * low
            and session.held_bytes <= state.policy.max_client_bytes * low
            and (not session.principal or quotas.has_room(session))
        ):
            del state.paused_clients[session]
            session.link.resume(PAUSE_AT_LIMIT)
