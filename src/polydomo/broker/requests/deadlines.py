"""Deadlines: timers of requests with time limits, and of services that have requests but no worker."""

from polydomo.broker.requests import queues
from polydomo.broker.state import State
from polydomo.model.records import HELD, QUEUED, Request, Service, TimeLimits


def start_waiting(state: State, request: Request, limits: TimeLimits) -> None:
    """Called when the request is queued or requeued."""
    limits.queue_deadline = state.now + limits.max_wait if limits.max_wait else 0.0
    arm(state, request, limits)


def arm(state: State, request: Request, limits: TimeLimits) -> None:
    """Sets the request's timer to the earliest of its limits. An earlier timer is kept: most requests end before it is due, and otherwise
    it is set again then."""
    when = limits.deadline
    if request.state == QUEUED:
        if limits.queue_deadline and (not when or limits.queue_deadline < when):
            when = limits.queue_deadline
    elif request.state == HELD and limits.max_run and (not when or request.dispatched + limits.max_run < when):
        when = request.dispatched + limits.max_run
    timer = limits.timer
    if timer:
        if when and timer <= when * 1000.0:
            return
        state.timers.remove(timer, request)
        limits.timer = 0
    if when:
        limits.timer = state.timers.add(state.now, when, request)


def disarm(state: State, request: Request) -> None:
    limits = request.time_limits
    if limits is not None and limits.timer:
        state.timers.remove(limits.timer, request)
        limits.timer = 0


def watch_service(state: State, service: Service, request: Request | None = None) -> None:
    """Sets the timer that expires the queued requests of a service without workers. ``request`` was just queued, and may expire before all
    others."""
    first = request if request is not None else queues.oldest(service)
    if first is not None:
        when = expires(state, service, first)
        if request is None and not first.session.awaits_reply(first):  # a younger one may expire before it
            for other in queues.waiting(service):
                when = min(when, expires(state, service, other))
        if service.timer:
            if service.timer <= when * 1000.0:
                return
            state.timers.remove(service.timer, service)
        service.timer = state.timers.add(state.now, when, service)


def expires(state: State, service: Service, request: Request) -> float:
    return max(request.accepted, service.no_worker_since) + expiry_of(state, request)


def expiry_of(state: State, request: Request) -> float:
    policy = state.policy
    if request.session.awaits_reply(request):
        return policy.queue_expiry
    return max(policy.queue_expiry, policy.unattended_expiry)


def unwatch_service(state: State, service: Service) -> None:
    if service.timer:
        state.timers.remove(service.timer, service)
        service.timer = 0
