"""Dispatch: assigns requests to workers.

A worker gets as many requests as it has credit. Each attempt has its own token, and a reply counts only with a token that the worker
holds. Workers are chosen in this order: idle ones, then those that hold requests and can start one more, then those that only
prefetch. Among the workers that can start it now, a request prefers the one that served its key last (``affinity``). A request that waits
unstarted at a worker is taken back when another worker can start it (``rebalance``).
"""

from itertools import islice

from polydomo.broker.requests import deadlines, queues, transitions
from polydomo.broker.state import State
from polydomo.limits import REBALANCE_LOOK
from polydomo.model.records import ASKED, HELD, NOT_ASKED, Request, Service, Worker
from polydomo.model.request_options import PLAIN


def dispatch(state: State, request: Request, worker: Worker) -> None:
    """Sends a request to a worker whose credit has already been reduced."""
    transitions.hold(state, request, worker)
    worker.last_sent = state.now
    if request.time_limits is not None:
        deadlines.arm(state, request, request.time_limits)
    options = request.options
    if options is not PLAIN and options.near and not worker.session.is_bridge and not worker.session.runs_shared:
        state.affinity.served(request.service, options.near, worker)
    worker.session.deliver(worker, request)
    if state.records_messages:
        state.recorder.dispatched(request, worker)


def assign(state: State, service: Service, request: Request) -> None:
    """Dispatches the request to a worker of the service. There must be one with credit."""
    worker = pick_worker(service, request) if request.options is PLAIN else pick_near(state, service, request)
    mark_unavailable(worker)
    worker.credit -= 1
    dispatch(state, request, worker)
    if worker.runs:
        note_backlog(worker)
    if worker.credit > 0:
        mark_available(worker)


def pick_worker(service: Service, request: Request) -> Worker:
    """The least recently used idle worker, then a busy one that can start it now, then one that prefetches; not the one that lost the
    request before, if there is another."""
    if service.weighted:
        return heaviest_worker(service)
    pool = service.idle or service.partly_busy or service.prefetching
    avoid = request.history.lost_by
    if avoid is not None:
        for worker in pool:
            if worker.session is not avoid:
                return worker
    return next(iter(pool))


def pick_near(state: State, service: Service, request: Request) -> Worker:
    """The worker that served the request's key last, if it can start the request now, or if no worker can and it has credit. Otherwise
    the one that ``pick_worker`` chooses: affinity never makes a request wait."""
    near = request.options.near
    usual = pick_worker(service, request)
    last = state.affinity.worker_of(service, near) if near else None
    if last is None or last is usual or last.session is request.history.lost_by:
        return usual
    if service.weighted and service.workers.get(last, 0) < service.workers[usual]:
        return usual
    if last in service.idle or last in service.partly_busy:
        return last
    return last if last in service.prefetching and usual in service.prefetching else usual


def heaviest_worker(service: Service) -> Worker:
    """The worker with the highest weight; among equals an idle one, then the least recently used. At least one must have credit."""
    best: Worker | None = None
    weight = 0
    for pool in (service.idle, service.partly_busy, service.prefetching):
        for worker in pool:
            own = service.workers[worker]
            if best is None or own > weight:
                best = worker
                weight = own
    assert best is not None
    return best


def next_service(worker: Worker) -> Service | None:
    """Among the worker's services with queued requests: the one with the highest weight, then with the longest wait."""
    best: Service | None = None
    weight = 0
    since = 0.0
    for service, own in worker.services.items():
        if not queues.startable(service) or (best is not None and own < weight):
            continue
        first = queues.oldest(service)
        if first is not None and (best is None or own > weight or first.accepted < since):
            best = service
            weight = own
            since = first.accepted
    return best


def serve_worker(state: State, worker: Worker) -> None:
    """Dispatches queued requests to a worker that has credit, or marks it available."""
    only = worker.only_service
    chosen = False  # it was marked as available, and may not be any more
    if only is not None and only.limits is None:
        while worker.credit > 0 and only.queue_length:
            worker.credit -= 1
            dispatch(state, queues.pop(only), worker)
    else:
        while worker.credit > 0:
            service = only if only is not None else next_service(worker)
            if service is None or not queues.startable(service):
                break
            if service.limits is not None and has_worker_free(service):
                # Others are free although requests wait, which were over a limit: one that can start the next request now gets it.
                chosen = True
                mark_available(worker)
                assign(state, service, queues.pop(service))
            else:
                worker.credit -= 1
                dispatch(state, queues.pop(service), worker)
    if worker.runs:
        note_backlog(worker)
    if worker.credit > 0:
        mark_available(worker)
        if only is None:
            rebalance_services(state, worker)
        elif only.backlogged:
            rebalance(state, only)
    elif chosen:
        mark_unavailable(worker)


def has_worker_free(service: Service) -> bool:
    return bool(service.idle or service.partly_busy or service.prefetching)


def serve_queue(state: State, service: Service) -> None:
    """Dispatches as many queued requests of the service as possible."""
    while queues.startable(service) and has_worker_free(service):
        assign(state, service, queues.pop(service))
    if service.remote and queues.startable(service):
        state.routes.queued(service)


def put_down(state: State, request: Request) -> None:
    """No worker holds the request any more. Called before the worker is served again."""
    limits = request.service.limits
    if limits is not None:
        limits.returned(request)


def serve_freed(state: State) -> None:
    """Requests that were over a limit may start now."""
    while state.freed:
        name, _ = state.freed.popitem()
        service = state.services.get(name)
        if service is not None:
            serve_queue(state, service)


def mark_available(worker: Worker) -> None:
    """Marks a worker with credit as available to its services."""
    if worker.runs:
        _mark_prefetcher(worker)
        return
    busy = bool(worker.held)
    for service in worker.services:
        if busy:
            service.idle.pop(worker, None)
            service.partly_busy[worker] = None
        else:
            service.partly_busy.pop(worker, None)
            service.idle[worker] = None


def _mark_prefetcher(worker: Worker) -> None:
    held = len(worker.held)
    for service in worker.services:
        if not held:
            chosen = service.idle
        elif held < worker.runs:
            chosen = service.partly_busy
        else:
            chosen = service.prefetching
        for pool in (service.idle, service.partly_busy, service.prefetching):
            if pool is not chosen:
                pool.pop(worker, None)
        chosen[worker] = None


def mark_unavailable(worker: Worker) -> None:
    runs = worker.runs
    for service in worker.services:
        service.idle.pop(worker, None)
        service.partly_busy.pop(worker, None)
        if runs:
            service.prefetching.pop(worker, None)


def note_backlog(worker: Worker) -> None:
    """A worker that prefetches was given requests: it may have some that it has not started."""
    if len(worker.held) > worker.runs:
        for service in worker.services:
            service.backlogged[worker] = None


def rebalance_services(state: State, worker: Worker) -> None:
    for service in worker.services:
        if service.backlogged:
            rebalance(state, service)


def rebalance(state: State, service: Service) -> None:
    """No request is queued. Asks workers to release requests that they have not started, if other workers can start them now."""
    if state.draining or service.paused or service.limits is not None:
        return  # a request that moves would start twice, as its limits count
    free = 0
    for pool in (service.idle, service.partly_busy):
        for worker in islice(pool, REBALANCE_LOOK):
            free += min(worker.credit, worker.runs - len(worker.held)) if worker.runs else worker.credit
    if free > 0 and state.revoking:
        free -= _revocations(state, service)
    if free <= 0:
        return
    for holder in list(service.backlogged):
        if len(holder.held) <= holder.runs:
            del service.backlogged[holder]
            continue
        # It starts requests in the order in which it got them.
        for request in islice(list(holder.held.values()), holder.runs, None):
            if request.service is service and request.state == HELD and request.history.revoked == NOT_ASKED:
                request.own_history().revoked = ASKED
                state.revoking[request] = None
                holder.session.revoke_request(holder, request)
                free -= 1
                if not free:
                    return


def _revocations(state: State, service: Service) -> int:
    """The number of requests that backlogged workers of the service were asked to release and have not answered yet. Each will need a
    free worker, even if the request has ended meanwhile. Forgets those that were answered, so it does not walk all held requests."""
    count = 0
    for request in list(state.revoking):
        holder = request.worker
        if holder is None or request.history.revoked != ASKED or holder.held.get(request.token) is not request:
            del state.revoking[request]
        elif holder in service.backlogged and len(holder.held) > holder.runs:
            count += 1
    return count


def add_credit(state: State, worker: Worker, count: int = 1) -> None:
    if not worker.alive:
        return
    if worker.draining:
        worker.put_aside += count
        return
    worker.credit += count
    if state.records_messages:
        state.recorder.credit_added(worker, count)
    serve_worker(state, worker)
    if worker.session.is_bridge:
        state.routes.has_room()
    if state.freed:
        serve_freed(state)


def clear_credit(worker: Worker) -> None:
    if worker.credit:
        worker.credit = 0
        mark_unavailable(worker)


def request_answered(state: State, worker: Worker) -> None:
    """The worker has answered a request. It takes another one without asking, if its protocol says so."""
    if len(worker.held) + worker.credit < worker.auto_credit:
        worker.credit += 1
    if worker.credit > 0:
        serve_worker(state, worker)
    # It may have answered a request that it was asked to release: the free worker reserved for that one can start another.
    if worker.runs and not worker.credit and state.revoking:
        rebalance_services(state, worker)
    if state.freed:
        serve_freed(state)


def request_released(state: State, worker: Worker) -> None:
    """Called when the worker no longer holds a request that it did not answer. A bridge gets the credit back."""
    if worker.session.is_bridge:
        add_credit(state, worker)
    else:
        request_answered(state, worker)
