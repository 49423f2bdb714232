"""Expiry: what happens to a request whose time limit has passed, and to the queue of a service that has had no worker for too long."""

from polydomo.broker.requests import deadlines, dispatch, outcomes, queues
from polydomo.broker.state import State
from polydomo.broker.timers import TIME_TOLERANCE
from polydomo.broker.workers import registration
from polydomo.model.outcomes import NO_WORKER, TIMEOUT
from polydomo.model.records import DONE, HELD, PARKED, QUEUED, Departure, Request, Service, TimeLimits

PASSED = "the deadline passed"
PASSED_PAUSED = "the deadline passed: the service is paused"


def request_due(state: State, request: Request, limits: TimeLimits) -> None:
    limits.timer = 0
    if request.state == DONE:
        return
    now = state.now + TIME_TOLERANCE
    worker = request.worker
    if limits.deadline and now >= limits.deadline:
        # A request with a key, or to a memoised service, is held until the shared run has its outcome.
        waited = request.service.paused and (worker is None or worker.session.runs_shared)
        why = PASSED_PAUSED if waited else PASSED
        if request.state == QUEUED:
            queues.remove(request.service, request)
        elif request.state == PARKED and outcomes.unpark(state, request):
            return
        elif worker is not None and not worker.session.is_bridge:  # another broker knows the deadline
            if outcomes.taken_back(worker, request):  # otherwise the worker holds it until it answers
                del worker.held[request.token]
                dispatch.put_down(state, request)
                outcomes.fail(state, request, TIMEOUT, why)
                dispatch.request_released(state, worker)
                return
        outcomes.fail(state, request, TIMEOUT, why)
    elif request.state == QUEUED and limits.queue_deadline and now >= limits.queue_deadline:
        queues.remove(request.service, request)
        outcomes.fail(state, request, NO_WORKER, "no worker was free in time")
    elif request.state == HELD and limits.max_run and now >= request.dispatched + limits.max_run:
        outcomes.fail(state, request, TIMEOUT, f"the worker took longer than {limits.max_run:g} s")
    else:
        deadlines.arm(state, request, limits)
        return
    if worker is not None and worker.session.polls:
        # memo01: "the broker assumes that the worker has disconnected"
        registration.lose(state, worker, Departure.LOST, "the job took longer than its timeout")


def service_due(state: State, service: Service) -> None:
    """Ends the requests that have waited too long for a worker to offer the service."""
    service.timer = 0
    if service.workers or service.remote or state.services.get(service.name) is not service:
        return
    for request in queues.waiting(service):
        if deadlines.expires(state, service, request) <= state.now + TIME_TOLERANCE:
            queues.remove(service, request)
            expiry = deadlines.expiry_of(state, request)
            outcomes.fail(state, request, NO_WORKER, f"no worker offered the service within {expiry:g} s")
    if service.queue_length:
        deadlines.watch_service(state, service)
