"""A session: the protocol state of one connection.

The wire passes complete messages to the session, which turns them into calls of ``BrokerApi``. The broker answers by calling the methods
below. All of these are method calls; no event object is created per message. This module does no I/O and reads no clock.
"""

from polydomo.limits import COST_CONNECTION, COST_REGISTRATION, COST_REQUEST
from polydomo.model.broker_api import BrokerApi
from polydomo.model.job_facts import JobFacts
from polydomo.model.listener_roles import SHARED, Role
from polydomo.model.request import QUEUED, Request
from polydomo.model.service import Path, Publication, Worker
from polydomo.native import mypyc_attr
from polydomo.wire.close_reason import CloseReason
from polydomo.wire.frames import Body, head
from polydomo.wire.link import Link, LinkHandler


@mypyc_attr(allow_interpreted_subclasses=True)
class Session(LinkHandler):
    """A subclass is one protocol, or one of its dialects. The broker calls the methods below; each sends at most a message or two through
    ``self.link`` and must not call back into the broker."""

    protocol = ""  # "mdp1", "mdp2", "memo", "mdx", "dcp", "dbp", "emqp", ...
    dialect = ""  # the published variant, if a protocol has several
    takes_partials = (
        False  # as a client; otherwise the broker holds partial replies and joins them in front of the final reply
    )

    publishes = False  # a PUB socket: it may publish log records
    polls = False  # its workers ask for each request (memo01): one is delivered only while ``worker.polling``
    windowed = False  # it was granted a window of requests (a bridge): they are accepted even where a queue is full
    refuses_at_limit = (
        False  # a request at a limit is rejected, because the protocol can report it; other clients are paused
    )
    deadline_is_patience = False  # its deadlines are how long the client waits; a durable job continues without it
    is_internal = False  # the broker's own client, which runs jobs
    runs_shared = (
        False  # of ``broker/sharing/shared_runs.py``: its requests are runs that several clients' requests share
    )
    is_bridge = False  # the peer is another broker: the methods of the last group are implemented
    is_sibling = False  # ... another process of this broker (``broker/cluster/siblings.py``)

    # The peer's principal (``principals``): empty without access control; with it, an empty one may do nothing.
    principal = ""
    origin_is_principal = True  # its requests are the peer's own; otherwise ``origin_of`` gives the origin of each
    charges_origin = False  # ... and each is charged to the quota of its origin

    def __init__(self, broker: BrokerApi, link: Link) -> None:
        self.broker = broker
        self.link = link
        self.role: Role = SHARED  # of the listener that accepted the connection
        # the broker's own bookkeeping
        if link.principal:
            self.principal = link.principal
        self.may_request = (
            True  # False: each request takes the slow path (a listener for workers, access control, shutdown)
        )
        self.counted_as = self.protocol  # a copy on the instance, which is faster to read
        self.origin_is_principal = self.origin_is_principal  # likewise
        self.number = 0
        self.since = 0.0  # when it was opened
        self.disconnected = False
        self.worker_count = 0  # live workers on this connection; a connection with a worker is never paused
        self.requests: dict[Request, None] = {}  # open requests of this client, oldest first
        self.partial_bytes = 0  # partial replies of its workers that are held for clients
        self.kept_bytes = 0  # bytes of answers cached for resends
        self.violations = 0  # number of protocol violations
        self.registrations = 0  # services that its workers offer, each counted for each worker
        self.held_bytes = 0  # bodies of the open requests, without small ones, which are limited by their number

    @property
    def peer_name(self) -> str:
        """The peer's name from its ZMTP identity; "" if it is not printable."""
        name = self.link.identity
        return name.decode() if name and name.isascii() and name.decode("ascii").isprintable() else ""

    def held(self) -> int:
        return (
            self.held_bytes
            + self.partial_bytes
            + self.kept_bytes
            + COST_CONNECTION
            + COST_REQUEST * len(self.requests)
            + COST_REGISTRATION * self.registrations
        )

    def origin_of(self, request: Request) -> str:
        """The principal that caused a request of this session."""
        return self.principal

    def has_queued_requests(self) -> bool:
        last = next(reversed(self.requests), None)
        return last is not None and last.state == QUEUED and not self.worker_count

    def find_request(self, identity: bytes) -> Request | None:
        """The open request of this client with this id, where ``polydomo.abandon`` may name one."""
        return None

    def awaits_reply(self, request: Request) -> bool:
        """Whether the client of this open request waits for a reply. If not, the request is run even if the client disconnects."""
        return True

    # --- to a client

    def send_partial(self, request: Request, body: Body) -> None:
        """A partial reply; called only if ``takes_partials``."""
        raise NotImplementedError

    def send_final(self, request: Request, body: Body) -> None:
        """The final reply, with held partial replies joined in front of it."""
        raise NotImplementedError

    def send_failure(self, request: Request, code: str, text: str) -> None:
        """The request ended without a reply. Most protocols have no message for that and send nothing."""

    # --- to a worker

    def deliver(self, worker: Worker, request: Request) -> None:
        """Sends a request. ``request.token`` names the attempt; a body without frames is b""."""
        raise NotImplementedError

    def send_heartbeat(self, worker: Worker) -> None:
        """Nothing was sent for ``worker.heartbeat_interval`` seconds."""

    def on_worker_expired(self, worker: Worker) -> None:
        """The worker was silent for too long and is lost. "it SHOULD stop sending it messages of any type": nothing is sent."""

    def dismiss(self, worker: Worker) -> None:
        """The broker shuts down or rejects the worker. Sends DISCONNECT, if the protocol has it, and nothing after it."""

    def on_worker_gone(self, worker: Worker) -> None:
        """The worker has ended, for any reason. The last call about this worker."""

    def cancel_request(self, worker: Worker, request: Request) -> bool:
        """The client no longer waits for the reply. Returns True if the worker no longer holds the request. Returns False if the worker
        holds it until it answers, whether or not it was notified."""
        return False

    def revoke_request(self, worker: Worker, request: Request) -> None:
        """Another worker could start the request: asks this one to release it if it has not. Called only if ``worker.runs``."""

    # --- to a subscriber

    catching_up = False  # it is still being sent last values, and new publications wait; set by the broker

    def send_published(self, topic: bytes, body: Body) -> None:
        """A message of a subscribed topic; ``body`` is the frames after the topic."""
        self.send_publication(Publication(topic, head(len(topic), bool(body)) + topic + body))

    def send_publication(self, publication: Publication) -> None:
        """The same, already framed; one object shared by all subscribers."""

    def send_last_value(self, publication: Publication) -> None:
        """The last value of a topic, published before the session subscribed; sent even while ``catching_up``."""

    def can_send_values(self) -> bool:
        """Whether the peer reads fast enough; last values are sent only then."""
        return True

    def on_caught_up(self) -> None:
        """All last values were sent; queued messages follow."""

    # --- to a service of the catalog

    def probe(self, name: str) -> None:
        """The service missed a heartbeat, or a datagram announced that it leaves: probes it over this connection, where it registered."""

    def on_timer(self, key: object) -> None:
        """A timer set with ``BrokerApi.set_timer`` is due."""

    # --- durable jobs

    def facts_of(self, ref: object) -> "tuple[str, str]":
        """The headers and W3C trace context of a request of this session, to store with a durable job; "" if there are none."""
        return "", ""

    def job_of(self, request: Request) -> JobFacts | None:
        """The job that a request of the broker's own client (``is_internal``) is an attempt of; None for other requests."""
        return None

    # --- workers in another process of the broker

    def headers_of(self, request: Request) -> bytes:
        """What a worker of the same protocol gets with this session's request, besides the body; b"" for nothing."""
        return b""

    def headers_for(self, request: Request, protocol: str) -> bytes:
        """The same for a request that came from another process, if its client has this protocol."""
        return b""

    # --- to another broker, if ``is_bridge``

    peer_identity = b""  # the other broker's

    def offer_service(self, name: bytes, path: Path) -> None:
        """Offers a service of this broker, or of brokers behind it; ``path`` has the brokers on the route, this one first."""
        raise NotImplementedError

    def withdraw_service(self, name: bytes) -> None:
        """Withdraws the offer of a service."""
        raise NotImplementedError

    def has_room(self) -> bool:
        """Whether the other broker accepts one more request."""
        raise NotImplementedError

    def send_to_sibling(self, word: bytes, rest: "list[bytes]") -> None:
        """A message of ``broker/cluster/siblings.py``, if ``is_sibling``."""
        raise NotImplementedError

    def path_of(self, request: Request) -> Path:
        """The brokers that a request of this session passed before this one."""
        return ()

    def trace_of(self, request: Request) -> "tuple[str, str]":
        """The trace context that a request of this session came with, and its name at the broker it came from; "" for none."""
        return "", ""

    # --- from the link

    def on_close(self, reason: CloseReason) -> None:
        self.broker.session_closed(self, reason)
