"""The interfaces of the client and worker sides ("ends") of each protocol.

An *end* is pure: it turns calls into messages (appended to ``out``, each a list of frames) and messages into events. The
libraries, the command line, the benchmarks and the simulator connect it to a transport. On SP a message is two frames:
the 4-byte request id and the payload.

``body`` is always a list of frames here, because programs use the contents.
"""

from dataclasses import dataclass, field

from polydomo.errors import CallFailed
from polydomo.limits import MAX_BODY
from polydomo.model.request_options import PLAIN, RequestOptions
from polydomo.wire.zmtp.extensions import NO_EXTENSIONS, Extensions

Frames = list[bytes]


@dataclass
class Reply:
    """To a client: a partial (``final`` false) or the final reply to the request ``key``."""

    key: int
    body: Frames
    final: bool = True


@dataclass
class Failure:
    """To a client: the request ``key`` failed, in a protocol that reports failures."""

    key: int
    code: str
    text: str


@dataclass
class Progressed:
    """To a client: how far the request ``key`` is, if the protocol says."""

    key: int
    share: float  # from 0 to 1
    text: str


@dataclass
class Delivery:
    """To a worker: a request. Pass the same object to ``partial``, ``final`` or ``fail``."""

    service: bytes
    body: Frames
    ref: object = None  # data of the end
    timeout: float = 0.0  # seconds the broker will wait for the result; 0 if the protocol does not say
    headers: dict[str, str] = field(default_factory=dict)  # headers, if the protocol has them
    attempt: bytes = b""  # the broker's token of this attempt, for logs; empty in memo01
    metadata: "Frames | None" = None  # the metadata parts of DCP; None if the protocol has no chains of services
    job: str = ""  # the id and idempotency key of the durable job that this is an attempt of, if the protocol says
    key: str = ""


@dataclass
class Dismissed:
    """To a worker: DISCONNECT. Close the connection, open a new one, register again."""

    why: str = "DISCONNECT"


@dataclass
class Cancelled:
    """To a worker: the client no longer waits for this request. Answer with ``release`` once it is not running."""

    delivery: Delivery


@dataclass
class Revoked:
    """To a worker: another worker could start this request. Answer with ``release`` if it has not started, otherwise with ``keep``."""

    delivery: Delivery


@dataclass
class Published:
    """To a subscriber: a message or a last value of a subscribed topic."""

    topic: bytes
    body: Frames


Event = Reply | Progressed | Failure | Delivery | Dismissed | Cancelled | Revoked | Published

# The extensions that clients and workers announce to a broker (``wire.zmtp.extensions``).
ANNOUNCED = Extensions(
    credit=1,
    cancel=True,
    deadline=True,
    give_back=True,
    key=True,
    options=True,
    cancel_jobs=True,
    deadline_jobs=True,
    window=True,
    fail=True,
    progress=True,
).encode()


class ClientEnd:
    """A client of one protocol on one connection."""

    protocol = ""
    wire = "zmtp"
    socket_type = b"DEALER"
    identity = b""  # the ZMTP identity to connect with
    concurrent = False  # several requests may be outstanding on one connection
    carries_keys = False  # the protocol can carry an idempotency key, a group, and what a request is near to
    agreed: Extensions = NO_EXTENSIONS  # the broker's extensions; set once the connection is open
    out: list[Frames]

    def __init__(self) -> None:
        self.out = []

    def request(
        self,
        key: int,
        service: bytes,
        body: Frames,
        timeout: float = 0.0,
        headers: bytes = b"",
        options: RequestOptions = PLAIN,
    ) -> None:
        """Sends a request. ``key`` is chosen by the caller and returned with the replies. ``timeout`` is sent to the broker if the protocol
        supports it. ``headers`` are the caller's, encoded by ``registry.Protocol.headers``; b"" for a protocol without headers.
        Of ``options``, the idempotency key and the marks are sent if ``carries_keys``."""
        raise NotImplementedError

    def receive(self, message: Frames) -> list[Event]:
        """Parses a message into events. Raises ProtocolViolation if the message is invalid."""
        raise NotImplementedError

    def forget(self, key: int) -> None:
        """The caller no longer waits for ``key``: a late reply to it is dropped."""

    @property
    def cancels(self) -> bool:
        """Whether ``cancel`` reaches the broker."""
        return False

    def cancel(self, key: int, expired: bool) -> None:
        """The same, and also cancels the request at the broker, if it supports that. ``expired``: because the caller's timeout passed."""
        self.forget(key)


class NumberedClientEnd(ClientEnd):
    """A client of a protocol with request ids: any number of requests may be open, and replies arrive in any order."""

    concurrent = True

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[bytes, int] = {}  # id -> the caller's key, for open requests
        self.ids: dict[int, bytes] = {}  # and back

    def track(self, key: int, identity: bytes) -> None:
        if key in self.ids:
            raise ValueError(f"the request {key} is still open")
        self.keys[identity] = key
        self.ids[key] = identity

    def settle(self, identity: bytes) -> int | None:
        """Removes the request with this id and returns its key. None if it is no longer open."""
        key = self.keys.pop(identity, None)
        if key is not None:
            del self.ids[key]
        return key

    def forget(self, key: int) -> None:
        identity = self.ids.pop(key, None)
        if identity is not None:
            del self.keys[identity]

    @property
    def cancels(self) -> bool:
        return self.agreed.cancel

    def cancel(self, key: int, expired: bool) -> None:
        identity = self.ids.get(key)
        if identity is not None and self.cancels:
            self.out.append(self.cancellation(identity, expired))
        self.forget(key)

    def cancellation(self, identity: bytes, expired: bool) -> Frames:
        """The message that cancels the request with this id."""
        raise NotImplementedError


class HeldParts:
    """Partial replies in a protocol without them: they are held and joined in front of the final reply, within the message limit."""

    def __init__(self, title: str, frames: int = MAX_BODY) -> None:
        self.title = title  # name of the protocol, for messages
        self.frames: Frames = []
        self._most = frames
        self._size = 0

    def add(self, body: Frames) -> None:
        self.frames += body
        self._size += sum(map(len, body))
        if self._size > MAX_BODY or len(self.frames) > self._most:
            raise CallFailed(
                "too-large",
                f"{self.title} sends partial replies joined with the final reply, and together they exceed the message limit",
            )

    def join(self, body: Frames) -> Frames:
        """Returns the held frames followed by the final reply's, and clears them."""
        if not self.frames:
            return body
        self.add(body)
        frames, self.frames, self._size = self.frames, [], 0
        return frames


class WorkerEnd:
    """A worker of one protocol on one connection."""

    protocol = ""
    wire = "zmtp"
    socket_type = b"DEALER"
    identity = b""  # the ZMTP identity to connect with: the worker's name
    slots = 1  # maximum jobs on one connection; see ``capacity``
    agreed: Extensions = NO_EXTENSIONS  # the broker's extensions; set once the connection is open
    interval = 2.5  # interval for calling ``beat``
    patience = 10.0  # silence after which the broker is considered gone; 0: never
    fails = (
        False  # the protocol can report failures; otherwise ``fail`` disconnects, and the connection must be reopened
    )
    out: list[Frames]

    def __init__(self) -> None:
        self.out = []

    def capacity(self) -> int:
        """The number of jobs this connection may hold: 1 if the broker does not support the extension for more."""
        return self.slots

    def open(self, services: list[bytes], slots: int = 1, prefetch: int = 0) -> None:
        """Registers, as the first message on a new connection. The worker runs ``slots`` jobs at once and holds ``prefetch`` more."""
        raise NotImplementedError

    def grow(self, count: int) -> None:
        """Raises the number of jobs that the worker runs at once by ``count``."""

    def receive(self, message: Frames) -> list[Event]:
        raise NotImplementedError

    def beat(self) -> None:
        """Sends a heartbeat, if the protocol needs one now."""

    def heartbeat(self) -> Frames | None:
        """The heartbeat message, for a thread that sends it while the event loop is blocked. Changes nothing. None if there is nothing to
        send: the worker has left, or the protocol's broker asks for heartbeats."""
        return None

    def partial(self, delivery: Delivery, body: Frames) -> None:
        """Sends a partial reply; in protocols without them, it is held and joined in front of the final reply."""
        raise NotImplementedError

    def progress(self, delivery: Delivery, share: float, text: str) -> None:
        """Reports how far the job is, if the protocol has a message for that and the broker understands it."""

    def final(self, delivery: Delivery, body: Frames) -> None:
        raise NotImplementedError

    def forward(self, delivery: Delivery, service: bytes, body: Frames, metadata: "Frames | None" = None) -> None:
        """Lets another service complete the job, if ``Delivery.metadata`` is not None. ``metadata`` is for its worker; None: unchanged."""
        raise NotImplementedError

    def fail(self, delivery: Delivery, code: str, text: str) -> bool:
        """The job failed. Returns True if the connection must be closed and reopened, because the protocol has no message for failures."""
        raise NotImplementedError

    def release(self, delivery: Delivery) -> bool:
        """Returns a job that will not run: it was not started, or was cancelled. Returns False if the protocol has no message for that."""
        return False

    def keep(self, delivery: Delivery) -> None:
        """The job was started before the broker asked for it back."""

    def drain(self) -> None:
        """Asks for no further jobs, if the protocol has a message for that."""

    def close(self) -> None:
        """Leaves politely."""
