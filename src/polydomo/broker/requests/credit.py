"""Credit: workers that hold several requests at a time, and requests that leave a worker without a reply.

A worker names a window, the number of requests that it may hold. If it runs fewer than that at once, it prefetches the others, and the
broker may ask it to release one that it has not started (``dispatch.rebalance``). The worker decides: it releases the request and will not
run it, or it keeps it. So a request never runs at two workers at the same time.
"""

from polydomo.broker.requests import dispatch, replies
from polydomo.broker.state import State
from polydomo.broker.workers import registration
from polydomo.limits import WORK_REQUEST
from polydomo.model.records import ASKED, DONE, KEPT, QUEUED, Request, Worker


def set_window(state: State, worker: Worker, window: int, runs: int) -> None:
    if not worker.alive:
        return
    before = worker.drained_auto if worker.draining else worker.auto_credit
    if state.records_messages:
        state.recorder.window_set(worker, window - before, runs)
    if worker.draining:
        worker.runs = runs if runs < window else 0
        worker.drained_auto = window
        _recount(state, worker)
        return
    credit = max(0, window - len(worker.held))
    if not credit:
        dispatch.mark_unavailable(worker)
    elif worker.runs:
        for service in worker.services:
            service.prefetching.pop(worker, None)
    worker.runs = runs if runs < window else 0
    worker.auto_credit = window
    worker.credit = credit
    _recount(state, worker)
    if credit:
        dispatch.serve_worker(state, worker)


def _recount(state: State, worker: Worker) -> None:
    """The worker runs another number of requests at once: some of those that it holds may wait now, or none."""
    if not worker.runs:
        for service in worker.services:
            service.backlogged.pop(worker, None)
        return
    dispatch.note_backlog(worker)
    dispatch.rebalance_services(state, worker)


def released(state: State, worker: Worker, token: bytes) -> bool:
    """The worker will not run the request: it had not started it, or it stopped after the request was cancelled."""
    request = _no_longer_held(state, worker, token, "release")
    if request is None:
        return False
    if request.state != DONE:
        registration.take_back(state, request, worker)
        _serve_before(state, request)
    dispatch.request_answered(state, worker)
    return True


def kept(state: State, worker: Worker, token: bytes) -> None:
    """The worker has started the request: another one may still wait behind it."""
    request = worker.held.get(token)
    if request is not None and request.history.revoked == ASKED:
        request.own_history().revoked = KEPT
        dispatch.rebalance_services(state, worker)  # the revocation reserved a free worker of each of its services


def given_back(state: State, worker: Worker, token: bytes, why: str) -> bool:
    """The worker failed: one of the request's attempts is used up, and the worker stays."""
    request = _no_longer_held(state, worker, token, "return")
    if request is None:
        return False
    if request.state != DONE:
        registration.requeue(state, request, worker, why)
        _serve_before(state, request)
    dispatch.request_answered(state, worker)
    return True


def _no_longer_held(state: State, worker: Worker, token: bytes, what: str) -> Request | None:
    """Removes the request from what the worker holds. None if the worker does not hold it."""
    request = worker.held.pop(token, None)
    if request is None:
        replies.stale(state, worker, token, what, 0)
        return None
    dispatch.put_down(state, request)
    worker.last_heard = state.now
    worker.session.link.charge(WORK_REQUEST)
    if request.state == DONE and state.records_messages:
        state.recorder.reply_ignored(request, worker)
    return request


def _serve_before(state: State, request: Request) -> None:
    """Other workers are served before the one that had the request."""
    if request.state == QUEUED:
        dispatch.serve_queue(state, request.service)
