"""Titanic (ZeroMQ RFC 9): ``titanic.request``, ``titanic.reply`` and ``titanic.close``, served from the job store."""

from typing import TYPE_CHECKING, Final

from polydomo.broker.guard.rules import CALL
from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.job import Job
from polydomo.broker.jobs.ops import StoreError
from polydomo.limits import MAX_SERVICE_NAME
from polydomo.model.job_messages import read_id, uuid_text
from polydomo.model.request import Request
from polydomo.wire.frames import Body, bounds, frame, join, split

if TYPE_CHECKING:
    from polydomo.broker.jobs.durable import Durable

NAMES: Final[frozenset[bytes]] = frozenset((b"titanic.request", b"titanic.reply", b"titanic.close"))


def serve(durable: "Durable", request: Request, name: bytes, body: Body) -> None:
    """RFC 9. A reply begins with a status: 200 OK, 300 Pending, 400 Unknown, 500 if the job failed or the store is not available."""
    frames = split(body) if body else []
    if name == b"titanic.request":
        _request(durable, request, frames, body)
        return
    id = read_id(frames[0].decode(errors="replace")) if frames else ""
    if not id:
        durable.answer(request, frame(b"400", False))
    elif name == b"titanic.reply":
        _reply(durable, request, id)
    else:
        _close(durable, request, id)


def _request(durable: "Durable", request: Request, frames: "list[bytes]", body: Body) -> None:
    service = frames[0] if frames else b""
    if not 0 < len(service) <= MAX_SERVICE_NAME or durable.broker.is_reserved(service):
        durable.answer(request, frame(b"400", False))
        return
    if not durable.broker.access.may_request(request, CALL, service):
        durable.answer(request, frame(b"400", False))
        return
    end = bounds(body, 0)[1]
    job = Job(durable.new_id(), service, bytes(body[end:]), durable.now())
    job.origin = states.TITANIC
    job.principal = request.origin

    def stored(found: Job | None, error: StoreError | None) -> None:
        durable.answer(request, frame(b"500", False) if found is None else join([b"200", uuid_text(found.id).encode()]))

    durable.jobs.submit(job, stored)


def _reply(durable: "Durable", request: Request, id: str) -> None:
    def found(job: Job | None, error: StoreError | None) -> None:
        if error is not None:
            durable.answer(request, frame(b"500", False))
        elif job is None or not durable.may_use(request, job):
            durable.answer(request, frame(b"400", False))
        elif job.id in durable.jobs.open:
            durable.answer(request, frame(b"300", False))
        elif job.state == states.DONE:
            durable.answer(request, frame(b"200", bool(job.result)) + job.result)
        else:
            durable.answer(request, join([b"500", f"{job.outcome}: {job.reason}".encode()]))

    durable.jobs.find(id, found)


def _close(durable: "Durable", request: Request, id: str) -> None:
    """Removes the result, or cancels an open job. "200" also if there is nothing to close: a client repeats a request whose answer was
    lost, and the Guide's Titanic is idempotent too."""

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
        elif not durable.may_use(request, job):
            durable.answer(request, frame(b"400", False))
        elif id in durable.jobs.open:
            durable.jobs.cancel(id, "closed by its client", ended)
        else:
            durable.jobs.remove(id, removed)

    durable.jobs.find(id, found)
