"""Paused services: their requests are parked until the service is resumed (``workers.control``)."""

from polydomo.broker.requests import deadlines, transitions
from polydomo.broker.reserved_names import ACCEPT, JOIN
from polydomo.broker.state import State
from polydomo.model.records import Request, Service


def mark(state: State, service: Service) -> None:
    """Called when a service is new in the table, or its pause or drain state has changed."""
    durable = state.durable_requests
    service.paused = service.name in state.paused
    service.drained = service.name in state.drained
    service.limits = state.limits.queue(service.name)
    covered = durable is not None and durable.covers(service.name)
    service.special = service.paused or service.drained or covered or service.name in (ACCEPT, JOIN)


def hold(state: State, request: Request) -> None:
    """Parks an accepted request to a paused service. It does not expire, except by its own deadline."""
    transitions.park(request)
    state.paused[request.service.name][request] = None
    limits = request.time_limits
    if limits is not None:
        limits.queue_deadline = 0.0
        deadlines.arm(state, request, limits)


def holds(state: State, request: Request) -> bool:
    """Whether the request waits for a paused service."""
    return request in state.paused.get(request.service.name, ())


def release(state: State, request: Request) -> bool:
    """The request is about to end. Returns False if it does not wait for a paused service."""
    held = state.paused.get(request.service.name)
    if held is None or request not in held:
        return False
    del held[request]
    return True
