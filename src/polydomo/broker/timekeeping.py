"""Timekeeping: timers of requests, workers, services, sessions and questions to other processes, and what is done when they are due."""

from polydomo.broker.cluster.siblings import Expiry, Siblings
from polydomo.broker.limiting.limited_queue import LaneTimer
from polydomo.broker.limiting.permits import LostProcess
from polydomo.broker.requests import dispatch, expiry, progress
from polydomo.broker.state import State
from polydomo.broker.workers import liveness
from polydomo.model.records import Request, Service, Session, Worker


class SessionTimer:
    """A timer that a session set with ``set_timer``."""

    def __init__(self, session: Session, key: object) -> None:
        self.session = session
        self.key = key


def set_timer(state: State, seconds: float, session: Session, key: object) -> None:
    state.timers.add(state.now, state.now + seconds, SessionTimer(session, key))


def run_timers(state: State) -> Exception | None:
    """Runs all timers that are due at ``now``. Returns the last error."""
    fault: Exception | None = None
    for key, item in state.timers.due(state.now):
        try:
            _timer_due(state, key, item)
        except Exception as error:  # the other timers must still run
            fault = error
    return fault


def _timer_due(state: State, key: int, item: object) -> None:
    # An earlier timer may have ended this item or given it a new timer with another key.
    if isinstance(item, Request):
        if item.time_limits is not None and item.time_limits.timer == key:
            expiry.request_due(state, item, item.time_limits)
    elif isinstance(item, Worker):
        if item.timer == key:
            item.timer = 0
            liveness.check_worker(state, item)
    elif isinstance(item, Service):
        if item.timer == key:
            expiry.service_due(state, item)
    elif isinstance(item, SessionTimer):
        if not item.session.disconnected:
            item.session.on_timer(item.key)
    elif isinstance(item, progress.DueProgress):
        progress.due(state, item)
    elif isinstance(item, (LaneTimer, LostProcess)):
        item.on_timer(key)
        dispatch.serve_freed(state)
    elif isinstance(item, (Siblings, Expiry)):
        item.on_timer()
