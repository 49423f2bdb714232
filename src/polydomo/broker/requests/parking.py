"""Requests that wait for the job store: open, but neither queued nor held by a worker."""

from polydomo.broker.guard import backpressure
from polydomo.broker.requests import deadlines, transitions
from polydomo.broker.state import State
from polydomo.model.records import Request, new_time_limits


def open_parked(state: State, request: Request, deadline: float) -> None:
    """Accepts a client's request and parks it until the job store answers."""
    session = request.session
    transitions.accept(state, request)
    transitions.park(request)
    if deadline:
        request.time_limits = new_time_limits(deadline, 0.0, 0.0)
        deadlines.arm(state, request, request.time_limits)
    if state.records_messages:
        state.recorder.accepted(request, True, 0)
    if backpressure.at_limit(state, session, request.service):
        backpressure.pause(state, session, request.service)
