"""What a session may ask of the broker. ``broker.broker.Broker`` implements it; tests of a protocol may use another implementation."""

from typing import TYPE_CHECKING

from polydomo.protocols.model import Path, Worker
from polydomo.protocols.request import Request
from polydomo.protocols.tuning import Tuning
from polydomo.wire.closing import CloseReason
from polydomo.wire.frames import Body

if TYPE_CHECKING:
    from polydomo.protocols.session import Session


class BrokerApi:
    now = 0.0  # the time of this turn of the loop, in monotonic seconds; set by the owner of the loop before any call
    wall = 0.0  # add to ``now`` for seconds since the epoch
    tuning: Tuning
    memo_workers: dict[bytes, Worker]  # memo01's workers by id; an id may continue on any connection
    schedulers: "dict[Session, None]"  # eMQP's connected schedulers, the longest connected first
    refusal = ""  # why the last ``register_worker``, ``add_service`` or ``open_bridge`` was refused

    def may(self, session: "Session", right: str, name: str) -> bool:
        """Whether the peer has a right; False with ``refusal`` set if it has not. Rights are words of the access file."""
        raise NotImplementedError

    # --- requests of a client

    def request(
        self,
        session: "Session",
        service: bytes,
        body: Body,
        ref: object,
        deadline: float = 0.0,
        max_wait: float = 0.0,
        max_run: float = 0.0,
        attempts: int = 0,
        fallback: bytes = b"",
        needs_worker: bool = False,
        guarantee: bool = False,
        identity: bytes = b"",
    ) -> Request | None:
        """Accepts a request, or refuses it: None, and ``send_failure`` has been called where a Request could be made.

        ``deadline`` is absolute. ``max_wait`` limits the time in the queue (0: the general expiry, which applies only while the service has
        no worker). ``max_run`` limits each attempt (memo01). ``attempts`` overrides the default (0). ``fallback`` names the service to use
        if no worker offers ``service`` (eMQP's ``default``). The broker itself answers reserved names (``mmi.*``, ``polydomo.*``), through
        ``send_final``. ``guarantee``: the request is kept in the job store, if the broker has one, whatever its service. ``identity`` is
        the request's id, if the protocol has ids that are unique across clients: a repeat of a durable request is recognised by it.
        """
        raise NotImplementedError

    def schedule(self, session: "Session", service: bytes, message: bytes, when: str, headers: str, add: bool) -> bool:
        """eMQP's SCHEDULE and UNSCHEDULE, where no scheduler is connected: a job with this body is submitted again and again, or no longer.
        ``when`` is a cron expression or an interval; ``headers`` are those that the worker gets. False: the broker keeps no jobs."""
        return False

    def request_batch(self, session: "Session", service: bytes, bodies: "list[bytes]", ref: object) -> int:
        """The same for several requests without limits of their own. Returns how many were taken: fewer if the link was paused."""
        raise NotImplementedError

    def cancel(self, request: Request, why: str, expired: bool = False) -> None:
        """The client takes an open request back: it ends as CANCELLED, or as TIMEOUT if the client says that its time is over
        (``expired``), and nothing is sent to the client."""
        raise NotImplementedError

    # --- workers

    def register_worker(
        self,
        session: "Session",
        services: "list[bytes]",
        ref: object,
        credit: int,
        auto_credit: int,
        heartbeat_interval: float,
        max_silence: float,
        weights: "list[int] | None" = None,
    ) -> Worker | None:
        """A new worker, or None with ``refusal`` set (a reserved name, too many services). It may be given a request before this
        returns: the session must be ready for ``deliver(worker, ...)``. ``auto_credit`` is how many requests it may hold without asking
        for each; 0: it has ``credit`` and what ``add_credit`` adds."""
        raise NotImplementedError

    def add_service(self, worker: Worker, service: bytes, weight: int = 0) -> bool:
        """The worker offers one more service. False with ``refusal`` set if it may not."""
        raise NotImplementedError

    def add_credit(self, worker: Worker, count: int = 1) -> None:
        """The worker asks for ``count`` more requests."""
        raise NotImplementedError

    def clear_credit(self, worker: Worker) -> None:
        """The worker takes no more requests for now, and stays registered."""
        raise NotImplementedError

    def set_credit(self, worker: Worker, window: int, runs: int) -> None:
        """The worker may hold ``window`` requests from now on, of which it runs ``runs`` at once (0: all of them). What it holds beyond
        that, it keeps."""
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

    def final(self, worker: Worker, token: bytes, body: Body) -> bool:
        """The final reply for the attempt ``token``. False, and recorded as stale, if the worker does not hold it."""
        raise NotImplementedError

    def fail(self, worker: Worker, token: bytes, code: str, text: str) -> bool:
        """The worker reports that the request failed, which ends the request. False if the worker does not hold it."""
        raise NotImplementedError

    def forward(self, worker: Worker, token: bytes, service: bytes, body: Body, ref: object) -> bool:
        """The worker passes a request that it holds on to another service (DCP chaining): the worker is free, and the reply comes from
        that service. ``ref`` replaces the request's. False if the worker does not hold it."""
        raise NotImplementedError

    def worker_left(self, worker: Worker, why: str) -> None:
        """The worker leaves (DISCONNECT, or a violation): its requests go back to the head of their queues."""
        raise NotImplementedError

    def orphan_worker(self, worker: Worker, seconds: float) -> None:
        """The worker's connection is gone but it may continue on another one (memo01). It gets nothing until then, and is lost after
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
        """The peer broke its protocol: one log line that names peer, protocol and ``what``. What the peer is sent is up to the session."""
        raise NotImplementedError

    def report_slow_subscriber(self, session: "Session", what: str) -> None:
        """A subscriber does not read what it subscribed to: one log line."""
        raise NotImplementedError

    def has_worker(self, service: bytes) -> bool:
        """Whether the service is offered now (``mmi.service``)."""
        raise NotImplementedError

    def window(self, session: "Session", service: bytes) -> int:
        """How many requests this client can usefully have open for the service now."""
        raise NotImplementedError

    def set_timer(self, seconds: float, session: "Session", key: object) -> None:
        """Calls ``session.on_timer(key)`` after ``seconds``, unless the connection is gone by then."""
        raise NotImplementedError

    def random_bytes(self, size: int) -> bytes:
        """Unguessable bytes. The owner of the broker provides them."""
        raise NotImplementedError

    # --- publishing

    def publish(self, session: "Session", topic: bytes, body: Body) -> int:
        """Sends a message to every subscriber whose prefix matches ``topic``; returns how many. Messages under ``monitor.`` and malformed
        log records are not published."""
        raise NotImplementedError

    def last_values(self, session: "Session", prefix: bytes, limit: int) -> "list[bytes]":
        """The last published message of each topic under ``prefix`` that the peer may hear, in the order of the topics, at most
        ``limit``."""
        raise NotImplementedError

    def subscribe(self, session: "Session", prefix: bytes) -> None:
        """The session gets the last value of every topic under ``prefix``, then what is published there, each message once."""
        raise NotImplementedError

    def unsubscribe(self, session: "Session", prefix: bytes) -> bool:
        """False if the session has no subscription to this prefix."""
        raise NotImplementedError

    # --- bridges: another broker is a worker for the services offered there, and a client for the requests made there

    def open_bridge(self, session: "Session", peer: bytes, window: int) -> Worker | None:
        """The peer is the broker ``peer`` and accepts ``window`` requests at a time. It is offered every service. None, with ``refusal``
        set, if there must be no such bridge."""
        raise NotImplementedError

    def bridge_offers(self, worker: Worker, service: bytes, path: Path) -> None:
        """The service is offered behind the bridge: the brokers on the way, the nearest first. An empty path: not any more."""
        raise NotImplementedError

    def bridge_failed(self, worker: Worker, token: bytes, code: str, text: str) -> None:
        """The other broker ended the request without a reply. If it only could not accept it, the request is requeued."""
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

    # --- the catalog (DBP): services that register themselves, and everything else the broker knows

    def catalog_register(
        self, session: "Session", name: str, address: str, info: "dict[str, object]", interval: float
    ) -> str:
        """Registers or replaces an entry. Returns "" or the reason for a refusal. ``interval`` 0: no heartbeats were agreed, and silence
        does not end it. ``address`` is the peer's IP address."""
        raise NotImplementedError

    def catalog_update(self, session: "Session", name: str, address: str, changes: "dict[str, object]") -> str:
        """Updates an entry. Returns "" or the reason for a refusal."""
        raise NotImplementedError

    def catalog_heartbeat(self, name: str, address: str) -> bool:
        """A heartbeat of an entry. False if there is no such active entry at that address."""
        raise NotImplementedError

    def catalog_beats_by_udp(self, name: str) -> bool:
        """Whether the service sends its heartbeats by UDP and has missed none: it gets the broker's by UDP too."""
        raise NotImplementedError

    def catalog_remove(self, name: str, address: str, why: str) -> bool:
        """The entry leaves. False if there is no such active entry at that address."""
        raise NotImplementedError

    def catalog_lookup(self, name: str) -> "dict[str, object] | None":
        """The registration of an active service. For a service of another protocol: that protocol and the broker's own address."""
        raise NotImplementedError

    def catalog_entries(self) -> "dict[str, dict[str, object]]":
        """All active services, by name."""
        raise NotImplementedError

    def catalog_text(self, name: str) -> str | None:
        """The same as JSON text."""
        raise NotImplementedError

    def catalog_page(self) -> bytes:
        """All active services, as one JSON object by name. It is shared by all who ask."""
        raise NotImplementedError
