"""Titanic (ZeroMQ RFC 9): ``titanic.request``, ``titanic.reply`` and ``titanic.close``, served from the job store.

A reply begins with a status: 200 OK, 300 Pending, 400 Unknown, 500 if the job failed or the store is not available.
"""

from polydomo.broker.guard.rules import CALL
from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.durable import Durable
from polydomo.broker.jobs.job import Job
from polydomo.broker.jobs.ops import StoreError
from polydomo.broker.reserved_names import is_reserved
from polydomo.limits import MAX_SERVICE_NAME
from polydomo.model.jobs.messages import read_id, uuid_text
from polydomo.model.records import Request
from polydomo.wire.frames import Body, bounds, frame, join, split


def submit(durable: Durable, request: Request, body: Body) -> None:
    frames = split(body) if body else []
    service = frames[0] if frames else b""
    if not 0 < len(service) <= MAX_SERVICE_NAME or is_reserved(service):
        durable.answer(request, frame(b"400", False))
        return
    if durable.state.rights.denial_of(request, CALL, service):
        durable.answer(request, frame(b"400", False))
        return
    end = bounds(body, 0)[1]
    job = Job(durable.new_id(), service, bytes(body[end:]), durable.now())
    job.origin = states.TITANIC
    job.principal = request.origin

    def stored(found: Job | None, error: StoreError | None) -> None:
        durable.answer(request, frame(b"500", False) if found is None else join([b"200", uuid_text(found.id).encode()]))

    durable.submit(job, stored)


def _id(durable: Durable, request: Request, body: Body) -> str:
    """The id of a job; empty if there is none, and the request was answered."""
    frames = split(body) if body else []
    id = read_id(frames[0].decode(errors="replace")) if frames else ""
    if not id:
        durable.answer(request, frame(b"400", False))
    return id


def reply(durable: Durable, request: Request, body: Body) -> None:
    id = _id(durable, request, body)

    def found(job: Job | None, error: StoreError | None) -> None:
        if error is not None:
            durable.answer(request, frame(b"500", False))
        elif job is None or durable.denial_of_use(request, job):
            durable.answer(request, frame(b"400", False))
        elif job.id in durable.jobs.open:
            durable.answer(request, frame(b"300", False))
        elif job.state == states.DONE:
            durable.answer(request, frame(b"200", bool(job.result)) + job.result)
        else:
            durable.answer(request, join([b"500", f"{job.outcome}: {job.reason}".encode()]))

    if id:
        durable.jobs.find(id, found)


def close(durable: Durable, request: Request, body: Body) -> None:
    """Removes the result, or cancels an open job. "200" also if there is nothing to close: a client repeats a request whose answer was
    lost, and the Guide's Titanic is idempotent too."""
    id = _id(durable, request, body)

    def removed(done: bool, error: StoreError | None) -> None:
        durable.answer(request, frame(b"500" if error is not None else b"200", False))

    def ended(job: Job | None, error: StoreError | None) -> None:
        if error is not None:
            removed(False, error)
        else:
            durable.jobs.remove(id, removed)

    def found(job: Job | None, error: StoreError | None) -> None:
        if error is not None:
            removed(False, error)
        elif job is None:
            removed(False, None)
        elif durable.denial_of_use(request, job):
            durable.answer(request, frame(b"400", False))
        elif id in durable.jobs.open:
            durable.jobs.cancel(id, "closed by its client", ended)
        else:
            durable.jobs.remove(id, removed)

    if id:
        durable.jobs.find(id, found)
