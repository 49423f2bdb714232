"""Requests that wait for the job store: open, but neither queued nor held by a worker."""

from polydomo.broker.guard import backpressure
from polydomo.broker.requests import deadlines, transitions
from polydomo.broker.state import State
from polydomo.model.records import Request, new_time_limits


def open_parked(broker: State, request: Request, deadline: float) -> None:
    """Accepts a client's request and parks it until the job store answers."""
    session = request.session
    transitions.accept(broker, request)
    transitions.park(request)
    if deadline:
        request.time_limits = new_time_limits(deadline, 0.0, 0.0)
        deadlines.arm(broker, request, request.time_limits)
    if broker.records_messages:
        broker.recorder.accepted(request, True, 0)
    if backpressure.at_limit(broker, session, request.service):
        backpressure.pause(broker, session, request.service)
