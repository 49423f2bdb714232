"""HTTP workers: ``POST /v1/work/{service}`` waits for a request, ``POST /v1/reply`` answers it.

A worker may use a new connection for every message, so it has a session without a connection. It is identified by the name in its first
response and by the token of the request that it holds. It holds one request at a time, and has credit only while one of its polls is
open.
"""

from typing import Final
from urllib.parse import quote

from polydomo.limits import (
    HTTP_LEASE,
    HTTP_LEASE_MOST,
    HTTP_POLL,
    HTTP_POLL_MOST,
    HTTP_WORKER_IDLE,
    MAX_FAILURE_CODE,
    MAX_FAILURE_TEXT,
    MAX_HTTP_WORKERS,
)
from polydomo.model.alarm import Alarm
from polydomo.model.broker_api import BrokerApi
from polydomo.model.detached_link import DetachedLink
from polydomo.model.progress import read_share, read_text
from polydomo.model.records import DONE, Request, Worker
from polydomo.model.registration import Refusal, WorkerTerms
from polydomo.model.session import ProtocolSession
from polydomo.model.shared_run import first_ref
from polydomo.web.call import NO_STORE, duration, read_frames, service_name
from polydomo.web.content import (
    FRAMES_JSON,
    JSON,
    MULTIPART,
    OCTETS,
    TEXT,
    choose,
    response_body,
)
from polydomo.web.session import Endpoint, Exchange, HttpSession, Poll
from polydomo.wire.close_reason import CloseCause, CloseReason
from polydomo.wire.http.head import HttpError, RequestHead
from polydomo.wire.link import Hub, LinkHandler

OFFERED: Final = (OCTETS, TEXT, MULTIPART, JSON, FRAMES_JSON)
NAME_BYTES: Final = 9  # of a worker's name, which must not be guessable: a client that knows it can act as the worker

# timers
POLL_OVER: Final = "poll over"
LEASE_OVER: Final = "lease over"
IDLE_OVER: Final = "idle over"


class WorkPoll(Poll):
    """An open ``POST /v1/work``."""

    def __init__(self, session: HttpSession, worker: "HttpWorker", media: str) -> None:
        self.session = session
        self.worker = worker
        self.media = media

    def abandoned(self) -> None:
        self.worker.poll_ended(self)


class HttpWorkers:
    """All HTTP workers of a broker, by name and by the token of the request they hold."""

    def __init__(self, broker: BrokerApi) -> None:
        self.broker = broker
        self.hub = Hub()
        self.by_name: dict[str, HttpWorker] = {}
        self.by_token: dict[str, HttpWorker] = {}

    def new(self, service: bytes, peer: str) -> "HttpWorker":
        """Raises HttpError."""
        if len(self.by_name) >= MAX_HTTP_WORKERS:
            raise HttpError(503, f"the limit of {MAX_HTTP_WORKERS} HTTP workers is reached", close=False)
        name = self.broker.random_bytes(NAME_BYTES).hex()
        worker = HttpWorker(self, name, peer)
        self.by_name[name] = worker
        return worker


class HttpWorker(ProtocolSession):
    """One HTTP worker."""

    protocol = "http"

    def __init__(self, workers: HttpWorkers, name: str, peer: str) -> None:
        super().__init__(workers.broker, DetachedLink(workers.hub, LinkHandler(), peer))
        self.all = workers
        self.name = name
        self.worker: Worker | None = None
        self.poll: WorkPoll | None = None
        self.token = ""  # of the request it holds
        self.lease = HTTP_LEASE
        self.bound_to: HttpSession | None = None
        self._alarm = Alarm(self)
        self._ends = ""  # what the alarm is for

    # --- from the worker

    def work(self, session: HttpSession, service: bytes, media: str, wait: float) -> None:
        """A poll: waits for a request. Raises HttpError."""
        why = self.broker.denial(self, "offer", service.decode("utf-8", "backslashreplace"))
        if why:
            if self.worker is None:
                self.forget()
            raise HttpError(403, why, close=False)
        if self.token:
            raise HttpError(409, "the worker holds a request that it has not answered; answer it first", close=False)
        self._end_poll()  # the newer of two polls counts
        self.poll = session.carried = WorkPoll(session, self, media)
        self.set_alarm(POLL_OVER, wait)
        broker = self.broker
        if self.worker is None:
            broker.session_opened(self)
            worker = broker.register_worker(self, [service], None, WorkerTerms())
            if isinstance(worker, Refusal):
                self.poll = session.carried = None
                self.forget()
                broker.session_closed(self, CloseReason(CloseCause.REFUSED))
                raise HttpError(503, worker.text, close=False)
            self.worker = worker
        elif not any(known.name == service for known in self.worker.services):
            refusal = broker.add_service(self.worker, service)
            if refusal is not None:
                self.poll = session.carried = None
                raise HttpError(503, refusal.text, close=False)
        self.worker.last_heard = broker.now
        broker.add_credit(self.worker)

    def poll_ended(self, poll: WorkPoll) -> None:
        """The connection of the poll was closed."""
        if self.poll is poll:
            self.poll = None
            self._no_poll()

    def _no_poll(self) -> None:
        if self.worker is not None and not self.token:
            self.broker.clear_credit(self.worker)
            self.set_alarm(IDLE_OVER, HTTP_WORKER_IDLE)

    def _end_poll(self) -> None:
        """Answers an open poll with 204: no request arrived."""
        poll, self.poll = self.poll, None
        if poll is not None:
            poll.session.carried = None
            poll.session.respond(204, b"Polydomo-Worker: %b\r\n" % self.name.encode())
            self._no_poll()

    def bind(self, session: HttpSession) -> None:
        """Binds the worker to this connection: if the connection breaks, its request is requeued at once."""
        if self.bound_to is not None:
            self.bound_to.bound.pop(self, None)
        self.bound_to = session
        session.bound[self] = None

    def heard(self) -> None:
        """The worker still works on its request."""
        if self.worker is not None:
            self.worker.last_heard = self.broker.now
        if self.token:
            self.set_alarm(LEASE_OVER, self.lease)

    # --- timeouts; at most one is active

    def set_alarm(self, what: str, seconds: float) -> None:
        self._ends = what
        self._alarm.set(seconds)

    def on_timer(self, key: object) -> None:
        if key is not self._alarm or not self._alarm.rings() or self.worker is None:
            return
        what = self._ends
        if what == POLL_OVER:
            self._end_poll()
        elif what == LEASE_OVER:
            self.broker.session_closed(
                self, CloseReason(CloseCause.SILENT, f"no answer and no heartbeat for {self.lease:g} s")
            )
        else:
            self.broker.session_closed(
                self, CloseReason(CloseCause.SILENT, f"it has not polled for {HTTP_WORKER_IDLE:g} s")
            )

    # --- from the broker

    def deliver(self, worker: Worker, request: Request) -> None:
        poll, self.poll = self.poll, None
        if poll is None:
            return  # it has credit only while a poll is open
        # The broker's tokens can be guessed. The worker's name, which cannot, makes the token a secret.
        self.token = f"{self.name}-{request.token.decode('latin-1')}"
        self.all.by_token[self.token] = self
        self.set_alarm(LEASE_OVER, self.lease)
        poll.session.carried = None
        content_type, content = response_body(poll.media, request.body, self.broker.random_bytes)
        service = quote(
            request.service.name.decode("utf-8", "surrogateescape").encode("utf-8", "replace").decode(), safe=""
        )
        headers = [
            f"Polydomo-Token: {self.token}",
            f"Polydomo-Worker: {self.name}",
            f"Polydomo-Service: {service}",
            f"Polydomo-Request: {self.broker.request_name(request)}",
        ]
        left = request.time_left(self.broker.now)
        if left:
            headers.append(f"Polydomo-Timeout: {left:.3f}")
        job = request.session.job_of(request)
        if job is not None:
            headers.append(f"Polydomo-Job: {job.id}")
            headers.append(f"Polydomo-Attempt: {request.attempts}")
            if job.key:
                headers.append(f"Idempotency-Key: {quote(job.key, safe='')}")
        ref = first_ref(request.ref)
        trace = ref.trace if isinstance(ref, Exchange) else job.trace if job is not None else ""
        if trace:
            headers.append(f"traceparent: {trace}")
        poll.session.reply(200, content_type, content, NO_STORE + "".join(f"{line}\r\n" for line in headers).encode())

    def cancel_request(self, worker: Worker, request: Request) -> bool:
        return False  # the response to its next message says so: 410

    def dismiss(self, worker: Worker) -> None:
        self._end_poll()

    def on_worker_gone(self, worker: Worker) -> None:
        self._end_poll()
        self.forget()

    def forget(self) -> None:
        self.all.by_name.pop(self.name, None)
        if self.bound_to is not None:
            self.bound_to.bound.pop(self, None)
        self.release()

    def release(self) -> None:
        """It no longer holds a request."""
        self.all.by_token.pop(self.token, None)
        self.token = ""


class WorkEndpoint(Endpoint):
    """``POST /v1/work/{service}?wait=30&lease=60``"""

    methods: "tuple[str, ...]" = ("POST",)

    def __init__(self, workers: HttpWorkers) -> None:
        self.workers = workers

    def check(self, session: HttpSession, head: RequestHead, path: "list[str]") -> None:
        service_name(path)

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        service = service_name(path)
        known = head.headers.get("polydomo-worker", "")
        worker = self.workers.by_name.get(known)
        if worker is None:
            worker = self.workers.new(service, session.http.peer)
            worker.principal = session.principal
        start_poll(session, head, worker, service)


def start_poll(session: HttpSession, head: RequestHead, worker: HttpWorker, service: bytes) -> None:
    if session.principal != worker.principal:
        raise HttpError(403, "the worker belongs to another principal", close=False)
    parameters = head.parameters()
    if "bound" in parameters:
        worker.bind(session)
    wait = min(duration(parameters.get("wait", str(HTTP_POLL)), "wait"), HTTP_POLL_MOST)
    if "lease" in parameters:
        worker.lease = max(1.0, min(duration(parameters["lease"], "lease"), HTTP_LEASE_MOST))
    worker.work(session, service, choose(head.headers.get("accept", ""), OFFERED) or OCTETS, wait)


class ReplyEndpoint(Endpoint):
    """``POST /v1/reply`` with ``Polydomo-Token``; ``?partial``, ``?progress=SHARE``, ``?failure=CODE``, ``?heartbeat``, ``?next``."""

    methods: "tuple[str, ...]" = ("POST",)
    takes_payload = True

    def __init__(self, workers: HttpWorkers) -> None:
        self.workers = workers

    def check(self, session: HttpSession, head: RequestHead, path: "list[str]") -> None:
        if "polydomo-token" not in head.headers:
            raise HttpError(400, "a reply needs the header Polydomo-Token", close=False)

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        token = head.headers["polydomo-token"]
        holder = self.workers.by_token.get(token)
        worker = holder.worker if holder is not None else None
        if holder is None or worker is None or holder.principal != session.principal:
            raise HttpError(
                409,
                "the broker no longer waits for this reply: the request has ended or went to another worker",
                close=False,
            )
        parameters = head.parameters()
        attempt = token.removeprefix(f"{holder.name}-").encode("latin-1")
        request = worker.held.get(attempt)
        service = request.service.name if request is not None else b""
        if request is not None and request.state == DONE and "next" not in parameters:
            self._ended(holder, worker, attempt, request)
        if "heartbeat" in parameters:
            holder.heard()
            session.respond(204, b"")
            return
        content_type = head.headers.get("content-type", "")
        if "progress" in parameters:
            self._progress(session, holder, worker, attempt, parameters["progress"], body)
            return
        if "failure" in parameters and "partial" not in parameters:
            self._reply(session, head, holder, attempt, service, b"", body)
        else:
            read_frames(
                session,
                content_type,
                body,
                lambda frames: self._reply(session, head, holder, attempt, service, frames, b""),
            )

    def _progress(
        self, session: HttpSession, holder: HttpWorker, worker: Worker, attempt: bytes, share: str, text: bytes
    ) -> None:
        found = read_share(share.encode("ascii", "replace"))
        if found is None:
            raise HttpError(400, "progress must be a share from 0 to 1", close=False)
        holder.heard()
        session.broker.progress(worker, attempt, found, read_text(text))
        session.respond(204, b"")

    def _reply(
        self,
        session: HttpSession,
        head: RequestHead,
        holder: HttpWorker,
        attempt: bytes,
        service: bytes,
        frames: bytes,
        text: bytes,
    ) -> None:
        worker = holder.worker
        parameters = head.parameters()
        broker = session.broker
        if worker is None:
            raise HttpError(409, "the broker no longer waits for this reply: the worker has ended", close=False)
        if "partial" in parameters:
            holder.heard()
            broker.partial(worker, attempt, frames)
            session.respond(204, b"")
            return
        holder.release()
        holder.set_alarm(IDLE_OVER, HTTP_WORKER_IDLE)
        worker.last_heard = broker.now
        if "failure" in parameters:
            code = parameters["failure"][:MAX_FAILURE_CODE] or "failed"
            broker.fail(worker, attempt, code, text[:MAX_FAILURE_TEXT].decode("utf-8", "replace"))
        else:
            broker.final(worker, attempt, frames)
        if "next" in parameters and worker.alive:
            start_poll(session, head, holder, service)
        else:
            session.respond(204, b"")

    def _ended(self, holder: HttpWorker, worker: Worker, attempt: bytes, request: Request) -> None:
        """The request ended while the worker had it: the worker is free, whatever it says. Raises HttpError."""
        holder.release()
        holder.set_alarm(IDLE_OVER, HTTP_WORKER_IDLE)
        holder.broker.release(worker, attempt)
        reason = request.history.reason or request.outcome
        detail = f"the request has ended ({request.outcome}: {reason}); stop working on it and ask for the next one"
        raise HttpError(410, detail, close=False, type_=request.outcome)
