"""The language between codecs and the broker.

A codec (one ``Session`` per connection) turns messages into calls of ``Verbs``; the broker calls the session back. Both are
plain method calls: no event object is made per message. ``Request``, ``Worker`` and ``Session`` are shared records; a comment
on each field says who writes it.

Nothing here does I/O or reads a clock: ``Verbs.now`` is set by the owner of the loop before anything else is called.
"""

from collections import deque

from polydomo.protocols.request import QUEUED, Request
from polydomo.protocols.roles import SHARED, Role
from polydomo.protocols.tuning import Tuning
from polydomo.wire.frames import Body, head
from polydomo.wire.link import Handler, Link

# --- how a service, a worker or a client is; see ``broker.states`` -----------------------------------------------------------

REGISTERING, READY, BUSY, LATE, LOST, LEFT = "registering", "ready", "busy", "late", "lost", "left"


class Publication:
    """A message published under a topic. Codecs read it, and do not keep it: the last value of a topic changes in place."""

    __slots__ = ("message", "number", "origin", "topic")

    def __init__(self, topic: bytes, message: bytes, origin: bytes = b"", number: int = 0) -> None:
        self.topic = topic
        self.message = message  # the topic's frame and the body, as they go over the wire
        self.origin = origin  # the broker that it was published at; b"" is this one
        self.number = number  # counts up there; 0: it is not for other brokers


class Service:
    """One service by name. Codecs may read ``name``; everything else is the broker's."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.length = 0  # requests waiting
        self.empty_since = 0.0  # since when it has no worker
        self.timer = 0
        self.weighted = False  # some worker has a weight: the highest comes first
        self.accepted = 0
        self.answered = 0
        self.failed = 0
        self.requeued = 0
        self.fresh: dict[
            str, list[float]
        ] = {}  # client's protocol -> durations of answered requests that are not counted yet
        self.state = REGISTERING  # as it was changed last; ``broker.states`` tells how it is
        self.state_since = 0.0
        self.state_cause = ""
        self.workers: dict[Worker, int] = {}  # worker -> weight
        self.away: dict[Worker, tuple[bytes, ...]] = {}  # bridge -> the brokers on the way to a worker there
        self.idle: dict[Worker, None] = {}  # with credit and nothing held, least recently used first
        self.spare: dict[Worker, None] = {}  # with credit but busy: second choice
        self.queues: dict[Session, deque[Request]] = {}  # what waits, by client
        self.turns: deque[deque[Request]] = deque()  # the same, in the order of their turns
        self.returned: deque[Request] = deque()  # given back by lost workers: served first


class Worker:
    """One registered worker. Several may share a connection (memo01). The last group of fields is the broker's."""

    def __init__(
        self, session: "Session", ref: object, credit: int, auto_credit: bool, beat: float, silence: float
    ) -> None:
        self.session = session  # may change when a memo01 worker speaks from a new connection
        self.ref = ref  # the codec's own
        self.credit = credit  # how many more requests it has asked for
        self.auto_credit = (
            auto_credit  # once it holds nothing, it takes one more by itself (else only what ``grant`` gives)
        )
        self.beat = beat  # we beat when we sent nothing for this long; 0: we never do
        self.silence = silence  # it is lost after this much silence; 0: never by silence
        self.waiting = False  # it waits for us (memo01's open poll), so its silence means nothing; the codec's
        self.seen = 0.0  # when it last said anything; codecs set it, or call Verbs.heard
        self.told = 0.0  # when we last said anything to it; the broker and codecs set it
        self.beats_busy = False  # it has beaten while holding a request: normal liveness holds for it from then on
        self.held: dict[bytes, Request] = {}  # token -> request
        self.services: dict[Service, int] = {}  # service -> weight (higher first)
        self.home: Service | None = None  # its service, if it has just one
        self.alive = True
        self.orphaned = 0.0  # its connection is gone; it is lost at this time unless it speaks from another
        self.number = 0  # counts up per broker run
        self.since = 0.0
        self.done = 0  # requests answered
        self.timer = 0
        self.state = READY  # as it was changed last; ``broker.states`` tells how it is
        self.state_since = 0.0
        self.state_cause = ""


class Session(Handler):
    """One connection as its protocol understands it: the codec's end of the language.

    A subclass is one protocol (or dialect). The broker calls the methods below; each sends at most a message or two through
    ``self.link`` and must not call back into the broker.
    """

    protocol = ""  # "mdp1", "mdp2", "memo", "mdx", "dcp", "dbp", "emqp"
    dialect = ""  # which published reading of it, where there are several
    takes_partials = False  # as a client; otherwise the broker holds partials and joins them in front of the final

    polls = False  # its workers ask for each request (memo01): one is delivered only while ``worker.waiting``
    windowed = False  # it was told how much it may have open (a bridge): that is taken also where a line is full, or the broker holds much

    role: Role = SHARED  # of the listener it came in by

    def __init__(self, broker: "Verbs", link: Link) -> None:
        self.broker = broker
        self.link = link
        # the broker's own bookkeeping
        self.asks = True  # its requests are taken: not on a listener for workers, nor once the broker is leaving
        self.counted_as = self.protocol  # the same, on the instance, where it is reached sooner
        self.number = 0
        self.since = 0.0  # when the broker was told of it
        self.over = False  # the connection is gone
        self.workers = 0  # live workers on this connection; such a connection is never paused
        self.requests: dict[Request, None] = {}  # open requests of this client, in order
        self.held_bytes = 0  # their bodies, without the small ones, which their number bounds well enough

    def in_line(self) -> bool:
        last = next(reversed(self.requests), None)
        return last is not None and last.state == QUEUED and not self.workers

    # to a client
    def send_partial(self, request: Request, body: Body) -> None:
        """A partial reply; only called if ``takes_partials``."""
        raise NotImplementedError

    def send_final(self, request: Request, body: Body) -> None:
        """The one final reply, with held partials already joined in front of it."""
        raise NotImplementedError

    def send_failure(self, request: Request, code: str, text: str) -> None:
        """The request ended otherwise. Most protocols have no word for it: silence."""

    # to a worker
    def deliver(self, worker: Worker, request: Request) -> None:
        """Hands a request over. ``request.token`` names the attempt; a body of no frames is b""."""
        raise NotImplementedError

    def beat(self, worker: Worker) -> None:
        """We have said nothing for ``worker.beat`` seconds: send a heartbeat."""

    def expire(self, worker: Worker) -> None:
        """The broker has given up on this silent worker. "it SHOULD stop sending it messages of any type": default, silence."""

    def dismiss(self, worker: Worker) -> None:
        """The broker is leaving or throws the worker out: say DISCONNECT, if the protocol has it, and then nothing more."""

    def gone(self, worker: Worker) -> None:
        """The worker has ended for whatever reason; the codec may forget it. The last call about this worker."""

    def cancel(self, worker: Worker, request: Request) -> bool:
        """The client has gone. True if the protocol could take the request back from the worker."""
        return False

    # to a subscriber
    late = False  # it is still being given last values, and holds back what is published meanwhile; the broker's

    def send_published(self, topic: bytes, body: Body) -> None:
        """A published message whose topic begins with one of the session's prefixes; ``body`` is the frames after the topic."""
        self.send_message(Publication(topic, head(len(topic), bool(body)) + topic + body))

    def send_message(self, publication: Publication) -> None:
        """The same, framed already, one for all subscribers."""

    def send_value(self, publication: Publication) -> None:
        """The last value of a topic, published before the session subscribed; not held back."""

    def room(self) -> bool:
        """Whether it reads what it is sent: only then is it given more last values."""
        return True

    def caught_up(self) -> None:
        """It has all last values now: what was held back follows."""

    # to a service of the catalog
    def probe(self, name: str) -> None:
        """The service missed a beat, or a datagram says that it leaves: ask it over this connection, on which it registered."""

    def on_timer(self, key: object) -> None:
        """What the session asked for with ``Verbs.later``."""

    # from the link
    def on_close(self, reason: str) -> None:
        self.broker.closed(self, reason)


class Verbs:
    """What a codec may ask of the broker. ``broker.core.Broker`` implements it."""

    now = 0.0  # the time of this turn of the loop: monotonic seconds
    wall = 0.0  # add to ``now`` for seconds since the epoch
    tuning: Tuning
    memo_workers: dict[
        bytes, Worker
    ]  # memo01's worker ids, shared by its sessions: an id may speak from any connection
    schedulers: dict[Session, None]  # eMQP's connected schedulers, shared by its sessions, the longest connected first

    # --- as a client
    def request(
        self,
        session: Session,
        service: bytes,
        body: Body,
        ref: object,
        deadline: float = 0.0,
        wait: float = 0.0,
        run: float = 0.0,
        attempts: int = 0,
        fallback: bytes = b"",
    ) -> Request | None:
        """Accepts a request, or refuses it (None; ``send_failure`` has been called where a Request could be made).

        ``deadline`` is absolute, ``wait`` bounds the time in the queue (0: the general expiry, which runs only while the service has no
        worker), ``run`` bounds each attempt (memo01), ``attempts`` overrides the default (0). ``fallback`` names a service to use if nobody
        offers ``service`` (eMQP's ``default``). Reserved names (``mmi.*``, ``polydomo.*``) are answered by the broker itself,
        through ``send_final``.
        """
        raise NotImplementedError

    def requests(self, session: Session, service: bytes, bodies: "list[bytes]", ref: object) -> int:
        """The same for several at once, with nothing that bounds them. Returns how many were taken: not all, if the link was halted."""
        raise NotImplementedError

    def withdraw(self, request: Request, why: str) -> None:
        """The client takes an open request back: it ends as CANCELLED and nothing is sent to the client."""
        raise NotImplementedError

    # --- as a worker
    def register(
        self,
        session: Session,
        services: "list[bytes]",
        ref: object,
        credit: int,
        auto_credit: bool,
        beat: float,
        silence: float,
        weights: "list[int] | None" = None,
    ) -> Worker | None:
        """A new worker, or None with ``refusal`` set (a reserved name, too many services). It may be given a request at once,
        before this returns: the session must be ready for ``deliver(worker, ...)``."""
        raise NotImplementedError

    refusal = ""  # why the last register or offer said no

    def offer(self, worker: Worker, service: bytes, weight: int = 0) -> bool:
        """The worker offers one more service."""
        raise NotImplementedError

    def grant(self, worker: Worker, count: int = 1) -> None:
        """The worker asks for ``count`` more requests."""
        raise NotImplementedError

    def revoke(self, worker: Worker) -> None:
        """The worker takes no more requests for now (credit 0), without leaving."""
        raise NotImplementedError

    def heard(self, worker: Worker) -> None:
        """Any message from the worker; a heartbeat while busy makes normal liveness hold for it."""
        raise NotImplementedError

    def partial(self, worker: Worker, token: bytes, body: Body) -> bool:
        """A partial for the attempt ``token``. False, and journalled as stale, if the worker does not hold it."""
        raise NotImplementedError

    def final(self, worker: Worker, token: bytes, body: Body) -> bool:
        """The final reply for the attempt ``token``; likewise."""
        raise NotImplementedError

    def fail(self, worker: Worker, token: bytes, code: str, text: str) -> bool:
        """The worker reports that the request failed (an outcome, not an attempt); likewise."""
        raise NotImplementedError

    def forward(self, worker: Worker, token: bytes, service: bytes, body: Body, ref: object) -> bool:
        """The worker passes the request it holds on to another service on the client's behalf (DCP chaining): it is free, and
        the client's reply comes from there. ``ref`` replaces the request's. False if the worker does not hold it."""
        raise NotImplementedError

    def leave(self, worker: Worker, why: str) -> None:
        """The worker goes (its DISCONNECT, or a violation): its requests go back to the head of their queues."""
        raise NotImplementedError

    def orphan(self, worker: Worker, seconds: float) -> None:
        """The worker's connection is gone but it may speak again from another one (memo01): it gets nothing meanwhile, and is
        lost after ``seconds`` unless ``adopt`` is called."""
        raise NotImplementedError

    def adopt(self, worker: Worker, session: Session) -> None:
        """The worker speaks from this connection now."""
        raise NotImplementedError

    # --- connections
    def opened(self, session: Session) -> None:
        """The session is attached to a connection."""
        raise NotImplementedError

    def closed(self, session: Session, why: str) -> None:
        """The connection is gone: its workers are lost, its queued requests dropped, its held ones finish unheard."""
        raise NotImplementedError

    def violated(self, session: Session, what: str) -> None:
        """The peer sent something its protocol does not allow: one log line that names peer, protocol and ``what``. Nothing else happens;
        what the peer hears is the codec's business."""
        raise NotImplementedError

    def lags(self, session: Session, what: str) -> None:
        """A subscriber does not read what it asked for: one log line."""
        raise NotImplementedError

    # --- what the broker knows
    def has_worker(self, service: bytes) -> bool:
        """Whether a worker offers the service now (``mmi.service``)."""
        raise NotImplementedError

    def window(self, session: Session, service: bytes) -> int:
        """How many requests this client may usefully have outstanding for the service now (memo01's open question)."""
        raise NotImplementedError

    # --- timers for codecs that need their own
    def later(self, seconds: float, session: Session, key: object) -> None:
        """Calls ``session.on_timer(key)`` after ``seconds``, unless the connection is gone by then."""
        raise NotImplementedError

    # --- randomness comes in from outside
    def nonce(self, size: int) -> bytes:
        """Bytes nobody can guess."""
        raise NotImplementedError

    # --- publishing (eMQP, PUB), and who wants to hear it
    def publish(self, session: Session, topic: bytes, body: Body) -> int:
        """A published message, to every subscriber whose prefix matches ``topic``. Returns how many. A topic that is not the session's to
        publish (``monitor.``, or a log record that is none) reaches nobody."""
        raise NotImplementedError

    def last_values(self, prefix: bytes, most: int) -> "list[bytes]":
        """The last published message of each topic under ``prefix``, in the order of the topics, ``most`` of them at most."""
        raise NotImplementedError

    def subscribe(self, session: Session, prefix: bytes) -> None:
        """The session wants every topic under ``prefix``: first their last values, then what is published, each once."""
        raise NotImplementedError

    def unsubscribe(self, session: Session, prefix: bytes) -> bool:
        """False if the session has not asked for this prefix."""
        raise NotImplementedError

    # --- bridges: another broker, which is a worker for what is offered there and a client for what is asked there
    def bridge(self, session: Session, peer: bytes, window: int) -> Worker | None:
        """The broker ``peer`` is at the other end, and takes ``window`` requests at a time. It is told of every service there is. None,
        with ``refusal`` set, if there must be no such bridge."""
        raise NotImplementedError

    def learn(self, worker: Worker, service: bytes, path: "tuple[bytes, ...]") -> None:
        """The service is offered behind the bridge: the brokers on the way, the nearest first. An empty path: it is no longer."""
        raise NotImplementedError

    def failed_away(self, worker: Worker, token: bytes, code: str, text: str) -> None:
        """The other broker ended the request otherwise than with a reply. Where it only could not take it, the request is given back."""
        raise NotImplementedError

    def travelled(self, request: Request, route: "list[str]") -> None:
        """An answer came over a bridge: the brokers it was at, the nearest first, each with the request's name there."""
        raise NotImplementedError

    def relay(self, session: Session, topic: bytes, body: Body, origin: bytes, number: int) -> None:
        """A message that was published at another broker. One that came before, by whichever way, is dropped."""
        raise NotImplementedError

    def identity(self) -> bytes:
        """What this run of the broker is called by other brokers: 16 hexadecimal digits."""
        raise NotImplementedError

    def name_of(self, request: Request) -> str:
        """What the request is called, across brokers."""
        raise NotImplementedError

    # --- the catalog (DBP): services that register themselves, and everything else the broker knows
    def enlist(self, session: Session, name: str, address: str, info: "dict[str, object]", beat: float) -> str:
        """Registers or replaces a catalog entry; "" is yes, anything else is the reason for the no. ``beat`` 0: no heartbeats agreed,
        it does not expire by silence. ``address`` is the peer's IP address."""
        raise NotImplementedError

    def amend(self, session: Session, name: str, address: str, changes: "dict[str, object]") -> str:
        """Updates an entry; "" or the reason for the no."""
        raise NotImplementedError

    def beaten(self, name: str, address: str) -> bool:
        """A heartbeat of a catalog entry. False if there is no such active entry at that address."""
        raise NotImplementedError

    def by_datagram(self, name: str) -> bool:
        """Whether the service beats by UDP and has missed no beat: our own beats reach it by UDP as well."""
        raise NotImplementedError

    def delist(self, name: str, address: str, why: str) -> bool:
        """The entry leaves. False if there is no such active entry at that address."""
        raise NotImplementedError

    def lookup(self, name: str) -> "dict[str, object] | None":
        """What the catalog says of an active service: its registration, or for a service of another protocol its protocol and
        the broker's own address."""
        raise NotImplementedError

    def directory(self) -> "dict[str, dict[str, object]]":
        """All active services, by name."""
        raise NotImplementedError
