"""Deadlines: timers of requests with time limits, and of services that have requests but no worker."""

from typing import TYPE_CHECKING

from polydomo.broker.requests import dispatch, outcomes, queues
from polydomo.broker.timers import TIME_TOLERANCE
from polydomo.broker.workers import registration
from polydomo.model.request import DONE, HELD, NO_WORKER, PARKED, QUEUED, TIMEOUT, Request, TimeLimits
from polydomo.model.service import Departure, Service

if TYPE_CHECKING:
    from polydomo.broker.broker import Broker

PASSED = "the deadline passed"
PASSED_PAUSED = "the deadline passed: the service is paused"


def start_waiting(broker: "Broker", request: Request, limits: TimeLimits) -> None:
    """Called when the request is queued or requeued."""
    limits.queue_deadline = broker.now + limits.max_wait if limits.max_wait else 0.0
    arm(broker, request, limits)


def arm(broker: "Broker", request: Request, limits: TimeLimits) -> None:
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
        broker.timers.remove(timer, request)
        limits.timer = 0
    if when:
        limits.timer = broker.timers.add(broker.now, when, request)


def disarm(broker: "Broker", request: Request) -> None:
    limits = request.time_limits
    if limits is not None and limits.timer:
        broker.timers.remove(limits.timer, request)
        limits.timer = 0


def request_due(broker: "Broker", request: Request, limits: TimeLimits) -> None:
    limits.timer = 0
    if request.state == DONE:
        return
    now = broker.now + TIME_TOLERANCE
    worker = request.worker
    if limits.deadline and now >= limits.deadline:
        # A request with a key, or to a memoised service, is held until the shared run has its outcome.
        waited = request.service.paused and (worker is None or worker.session.runs_shared)
        why = PASSED_PAUSED if waited else PASSED
        if request.state == QUEUED:
            queues.remove(request.service, request)
        elif request.state == PARKED and outcomes.unpark(broker, request):
            return
        elif worker is not None and not worker.session.is_bridge:  # another broker knows the deadline
            if outcomes.taken_back(worker, request):  # otherwise the worker holds it until it answers
                del worker.held[request.token]
                outcomes.fail(broker, request, TIMEOUT, why)
                dispatch.request_released(broker, worker)
                return
        outcomes.fail(broker, request, TIMEOUT, why)
    elif request.state == QUEUED and limits.queue_deadline and now >= limits.queue_deadline:
        queues.remove(request.service, request)
        outcomes.fail(broker, request, NO_WORKER, "no worker was free in time")
    elif request.state == HELD and limits.max_run and now >= request.dispatched + limits.max_run:
        outcomes.fail(broker, request, TIMEOUT, f"the worker took longer than {limits.max_run:g} s")
    else:
        arm(broker, request, limits)
        return
    if worker is not None and worker.session.polls:
        # memo01: "the broker assumes that the worker has disconnected"
        registration.lose(broker, worker, Departure.LOST, "the job took longer than its timeout")


def watch_service(broker: "Broker", service: Service, request: Request | None = None) -> None:
    """Sets the timer that expires the queued requests of a service without workers. ``request`` was just queued, and may expire before all
    others."""
    first = request if request is not None else queues.oldest(service)
    if first is not None:
        when = _expires(broker, service, first)
        if request is None and not first.session.awaits_reply(first):  # a younger one may expire before it
            for other in queues.waiting(service):
                when = min(when, _expires(broker, service, other))
        if service.timer:
            if service.timer <= when * 1000.0:
                return
            broker.timers.remove(service.timer, service)
        service.timer = broker.timers.add(broker.now, when, service)


def _expires(broker: "Broker", service: Service, request: Request) -> float:
    return max(request.accepted, service.no_worker_since) + _expiry(broker, request)


def _expiry(broker: "Broker", request: Request) -> float:
    policy = broker.policy
    if request.session.awaits_reply(request):
        return policy.queue_expiry
    return max(policy.queue_expiry, policy.unattended_expiry)


def unwatch_service(broker: "Broker", service: Service) -> None:
    if service.timer:
        broker.timers.remove(service.timer, service)
        service.timer = 0


def service_due(broker: "Broker", service: Service) -> None:
    """Ends the requests that have waited too long for a worker to offer the service."""
    service.timer = 0
    if service.workers or service.remote or broker.services.get(service.name) is not service:
        return
    for request in queues.waiting(service):
        if _expires(broker, service, request) <= broker.now + TIME_TOLERANCE:
            queues.remove(service, request)
            expiry = _expiry(broker, request)
            outcomes.fail(broker, request, NO_WORKER, f"no worker offered the service within {expiry:g} s")
    if service.queue_length:
        watch_service(broker, service)
