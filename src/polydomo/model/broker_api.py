"""The interface of the broker to sessions. ``broker.broker.Broker`` implements it; tests of a protocol may use another implementation."""

from typing import TYPE_CHECKING

from polydomo.model.directory_api import DirectoryApi
from polydomo.model.records import Path, Request, Worker
from polydomo.model.registration import Refusal, WorkerTerms
from polydomo.model.request_options import PLAIN, RequestOptions
from polydomo.model.tuning import Tuning
from polydomo.native import trait
from polydomo.wire.close_reason import CloseReason
from polydomo.wire.frames import Body

if TYPE_CHECKING:
    from polydomo.model.records import Session


@trait
class BrokerApi:
    now: float  # the time of the current turn of the loop, in monotonic seconds; set by the owner of the loop
    wall: float  # add to ``now`` for seconds since the epoch
    tuning: Tuning
    memo_workers: dict[bytes, Worker]  # memo01's workers by id; an id may continue on any connection
    schedulers: "dict[Session, None]"  # eMQP's connected schedulers, the longest connected first
    directory: DirectoryApi

    def denial(self, session: "Session", right: str, name: str) -> str:
        """Why the peer does not have a right now; "" if it has it. Rights are those of the access file. A denial is recorded."""
        raise NotImplementedError

    def denial_as(self, principal: str, session: "Session", right: str, name: str) -> str:
        """The same for the origin of a message that another process of this broker passed on over ``session``."""
        raise NotImplementedError

    def is_reserved(self, name: bytes) -> bool:
        """Whether the broker itself answers requests to this name."""
        return False

    # --- requests of a client

    def request(
        self,
        session: "Session",
        service: bytes,
        body: Body,
        ref: object,
        deadline: float = 0.0,
        options: RequestOptions = PLAIN,
    ) -> Request | None:
        """Accepts a request, or rejects it: then it returns None, and ``send_failure`` has been called.

        ``deadline`` is absolute; 0 is none. The broker answers reserved names (``mmi.*``, ``polydomo.*``) itself, through ``send_final``.
        """
        raise NotImplementedError

    def schedule(
        self, session: "Session", principal: str, service: bytes, message: bytes, when: str, headers: str, add: bool
    ) -> bool:
        """eMQP's SCHEDULE and UNSCHEDULE, if no scheduler is connected: adds or removes a schedule that submits this body for
        ``principal``, whose right to call the service was checked. ``when`` is a cron expression or an interval; ``headers`` are passed
        to the worker. Returns False if the broker has no job store."""
        return False

    def request_batch(self, session: "Session", service: bytes, bodies: "list[bytes]", ref: object) -> int:
        """The same for several requests without their own limits. Returns how many were accepted; fewer if the link was paused."""
        raise NotImplementedError

    def cancel(self, request: Request, why: str, expired: bool = False) -> None:
        """The client cancels an open request: it ends as CANCELLED, or as TIMEOUT if the client's timeout passed (``expired``). Nothing
        is sent to the client."""
        raise NotImplementedError

    # --- workers

    def register_worker(
        self,
        session: "Session",
        services: "list[bytes]",
        ref: object,
        terms: WorkerTerms,
        weights: "list[int] | None" = None,
    ) -> Worker | Refusal:
        """Registers a worker, unless it is refused (a reserved name, too many services). It may get a request before this returns, so the
        session must be ready for ``deliver(worker, ...)``. ``weights``: one for each service; the highest is served first."""
        raise NotImplementedError

    def add_service(self, worker: Worker, service: bytes, weight: int = 0) -> Refusal | None:
        """Adds a service to a worker, unless it is refused."""
        raise NotImplementedError

    def add_credit(self, worker: Worker, count: int = 1) -> None:
        """The worker asks for ``count`` more requests."""
        raise NotImplementedError

    def clear_credit(self, worker: Worker) -> None:
        """Withdraws the worker's credit; it stays registered."""
        raise NotImplementedError

    def set_credit(self, worker: Worker, window: int, runs: int) -> None:
        """Sets how many requests the worker may hold (``window``) and how many of them it runs at once (``runs``; 0: all of them).
        Requests that it already holds beyond that stay with it."""
        raise NotImplementedError

    def release(self, worker: Worker, token: bytes) -> bool:
        """The worker has not started the request, or has stopped a cancelled one, and does not hold it any more. False if it did not."""
        raise NotImplementedError

    def kept(self, worker: Worker, token: bytes) -> None:
        """The worker was asked to release the request and has started it already."""
        raise NotImplementedError

    def give_back(self, worker: Worker, token: bytes, why: str) -> bool:
        """The worker failed and its protocol has no message for failures: the request is tried again, like that of a worker that left.
        False if the worker does not hold it."""
        raise NotImplementedError

    def heartbeat(self, worker: Worker) -> None:
        """A heartbeat of the worker. From the first one it sends while it holds a request, it must keep sending them while busy."""
        raise NotImplementedError

    def partial(self, worker: Worker, token: bytes, body: Body) -> bool:
        """A partial reply for the attempt ``token``. False, and recorded as stale, if the worker does not hold it."""
        raise NotImplementedError

    def progress(self, worker: Worker, token: bytes, share: float, text: str) -> bool:
        """How far the attempt ``token`` is: a share from 0 to 1, and a text. False, and recorded as stale, if the worker does not hold
        it."""
        raise NotImplementedError

    def final(self, worker: Worker, token: bytes, body: Body) -> bool:
        """The final reply for the attempt ``token``. False, and recorded as stale, if the worker does not hold it."""
        raise NotImplementedError

    def fail(self, worker: Worker, token: bytes, code: str, text: str) -> bool:
        """The worker reports that the request failed, which ends the request. False if the worker does not hold it."""
        raise NotImplementedError

    def forward(self, worker: Worker, token: bytes, service: bytes, body: Body, ref: object) -> bool:
        """The worker forwards a request that it holds to another service (DCP chaining). The worker is free, and the reply comes from that
        service. ``ref`` replaces the request's. Returns False if the worker does not hold it."""
        raise NotImplementedError

    def worker_left(self, worker: Worker, why: str) -> None:
        """The worker leaves (DISCONNECT, or a violation). Its requests are requeued at the head of their queues."""
        raise NotImplementedError

    def orphan_worker(self, worker: Worker, seconds: float) -> None:
        """The worker's connection is gone, but it may continue on another one (memo01). It gets no requests until then, and is lost after
        ``seconds`` unless ``adopt_worker`` is called."""
        raise NotImplementedError

    def adopt_worker(self, worker: Worker, session: "Session") -> None:
        """The worker continues on this connection."""
        raise NotImplementedError

    # --- connections

    def session_opened(self, session: "Session") -> None:
        """The session is attached to a connection."""
        raise NotImplementedError

    def session_closed(self, session: "Session", reason: CloseReason) -> None:
        """The connection is gone: its workers are lost, its queued requests are cancelled, replies to those a worker holds are dropped."""
        raise NotImplementedError

    def report_violation(self, session: "Session", what: str) -> None:
        """Reports a protocol violation: logs peer, protocol and ``what``. The session decides what to send to the peer."""
        raise NotImplementedError

    def report_refusal(self, session: "Session", what: str, refusal: Refusal) -> None:
        """Reports that the registration in the message ``what`` was refused. It counts as a violation, unless access control denied it: a
        denial has been logged and counted as such."""
        raise NotImplementedError

    def report_slow_subscriber(self, session: "Session", what: str) -> None:
        """Logs that a subscriber reads too slowly."""
        raise NotImplementedError

    def has_worker(self, service: bytes) -> bool:
        """Whether a worker currently offers the service (``mmi.service``)."""
        raise NotImplementedError

    def window(self, session: "Session", service: bytes) -> int:
        """The number of open requests for the service that keeps its workers busy."""
        raise NotImplementedError

    def set_timer(self, seconds: float, session: "Session", key: object) -> None:
        """Calls ``session.on_timer(key)`` after ``seconds``, unless the connection is gone by then."""
        raise NotImplementedError

    def random_bytes(self, size: int) -> bytes:
        """Random bytes, from the source that the owner of the broker provides."""
        raise NotImplementedError

    # --- publishing

    def publish(self, session: "Session", topic: bytes, body: Body) -> int:
        """Sends a message to every subscriber whose prefix matches ``topic``; returns how many. Messages under ``monitor.`` and malformed
        log records are not published."""
        raise NotImplementedError

    def last_values(self, session: "Session", prefix: bytes, limit: int) -> "list[bytes]":
        """The last value of each topic under ``prefix`` that the peer may receive, in topic order, at most ``limit``."""
        raise NotImplementedError

    def subscribe(self, session: "Session", prefix: bytes) -> None:
        """Subscribes the session: it gets the last value of every topic under ``prefix``, then new messages, each once."""
        raise NotImplementedError

    def unsubscribe(self, session: "Session", prefix: bytes) -> bool:
        """Unsubscribes. Returns False if the session has no subscription to this prefix."""
        raise NotImplementedError

    # --- bridges: another broker is a worker for the services offered there, and a client for the requests made there

    def open_bridge(self, session: "Session", peer: bytes, window: int) -> Worker | Refusal:
        """Opens a bridge to the broker ``peer``, which accepts ``window`` requests at a time, and offers it every service, unless the
        bridge is refused."""
        raise NotImplementedError

    def bridge_offers(self, worker: Worker, service: bytes, path: Path) -> None:
        """The service is offered behind the bridge; ``path`` has the brokers on the route, the nearest first. An empty path withdraws
        it."""
        raise NotImplementedError

    def bridge_entry(self, worker: Worker, name: bytes, path: Path, address: bytes, info: bytes) -> None:
        """A service is registered in the catalog of the last broker of ``path``, which has this address. An empty path withdraws it."""
        raise NotImplementedError

    def pass_schedule(self, principal: str, raw: bytes) -> bool:
        """Passes an eMQP schedule of the principal to process 0 of this broker; False if there is no such process, or it is this one."""
        raise NotImplementedError

    def bridge_final(self, worker: Worker, token: bytes, body: Body) -> None:
        """The other broker sent the final reply to a request; the bridge can take one more."""
        raise NotImplementedError

    def bridge_failed(self, worker: Worker, token: bytes, code: str, text: str, runs: bool = False) -> None:
        """The other broker ended the request without a reply. If it did not accept the request, the request is requeued. ``runs``: its
        worker still has the request."""
        raise NotImplementedError

    def sibling_message(self, worker: Worker, word: bytes, rest: "list[bytes]") -> bool:
        """A message that only the processes of one broker exchange. False if there is no such message."""
        return False

    def record_route(self, request: Request, route: "list[str]") -> None:
        """A reply came over a bridge: the brokers that the request passed, the nearest first, each with the request's name there."""
        raise NotImplementedError

    def relay_publication(self, session: "Session", topic: bytes, body: Body, origin: bytes, number: int) -> None:
        """A message that was published at another broker. A duplicate, over whichever bridge, is dropped."""
        raise NotImplementedError

    def identity(self) -> bytes:
        """The name of this run of the broker among brokers: 16 hexadecimal digits."""
        raise NotImplementedError

    def request_name(self, request: Request) -> str:
        """The name of the request across brokers."""
        raise NotImplementedError
