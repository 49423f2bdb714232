"""The other side of the wire: what a client and a worker of each protocol say and hear.

An *end* is pure: it turns calls into messages (appended to ``out``, each a list of frames) and messages into events. The
libraries, the command line, the benchmarks and the simulator put a connection behind it. On SP a message is two frames:
the 4-byte request id and the payload.

``body`` is always a list of frames here: these ends belong to programs that want the contents.
"""

from dataclasses import dataclass, field

from polydomo.errors import CallFailed
from polydomo.limits import MAX_BODY
from polydomo.wire.extensions import NO_EXTENSIONS, Extensions

Frames = list[bytes]


@dataclass
class Reply:
    """To a client: a partial (``final`` false) or the final reply to the request ``key``."""

    key: int
    body: Frames
    final: bool = True


@dataclass
class Failure:
    """To a client: the request ``key`` failed, and the protocol could say so."""

    key: int
    code: str
    text: str


@dataclass
class Job:
    """To a worker: a request. Hand the same object back with ``partial``, ``final`` or ``fail``."""

    service: bytes
    body: Frames
    ref: object = None  # the end's own
    timeout: float = 0.0  # seconds the broker will wait for the result, where the protocol tells; 0: unknown
    headers: dict[str, str] = field(default_factory=dict)  # where the protocol has them
    attempt: bytes = (
        b""  # what the broker calls this attempt, for whatever is written down about it; memo01 does not tell
    )
    job: str = (
        ""  # the id of the durable job that this is an attempt of, and its idempotency key, where the protocol tells
    )
    key: str = ""


@dataclass
class Dismissed:
    """To a worker: DISCONNECT. Close the connection, open a new one, register again."""

    why: str = "DISCONNECT"


@dataclass
class Cancelled:
    """To a worker: nobody waits for this job any more. Answer with ``release`` as soon as it does not run (any more)."""

    job: Job


@dataclass
class Revoked:
    """To a worker: another one could start this job. Answer with ``release`` if it has not been started, else with ``keep``."""

    job: Job


@dataclass
class Published:
    """To a subscriber: a message, or a last value, of a topic it asked for."""

    topic: bytes
    body: Frames


Event = Reply | Failure | Job | Dismissed | Cancelled | Revoked | Published

# What the ends of clients and workers announce to a broker (``wire.extensions``).
ANNOUNCED = Extensions(credit=1, cancel=True, deadline=True, give_back=True).encode()


class ClientEnd:
    """A client of one protocol on one connection."""

    protocol = ""
    wire = "zmtp"
    socket_type = b"DEALER"
    identity = b""  # the ZMTP identity to connect with
    concurrent = False  # several requests may be outstanding on one connection
    agreed: Extensions = NO_EXTENSIONS  # what the broker understands; set once the connection is open
    out: list[Frames]

    def __init__(self) -> None:
        self.out = []

    def request(self, key: int, service: bytes, body: Frames, timeout: float = 0.0, headers: bytes = b"") -> None:
        """Sends a request. ``key`` is the caller's and comes back with its replies. ``timeout`` is sent to the broker if the protocol can.
        ``headers`` are the caller's own, written by ``registry.Protocol.headers``; b"" for a protocol without headers."""
        raise NotImplementedError

    def receive(self, message: Frames) -> list[Event]:
        """Raises ProtocolViolation for what the protocol does not allow."""
        raise NotImplementedError

    def forget(self, key: int) -> None:
        """The caller no longer waits for ``key``: a late reply to it is dropped."""

    @property
    def cancels(self) -> bool:
        """Whether ``cancel`` reaches the broker."""
        return False

    def cancel(self, key: int, expired: bool) -> None:
        """The same, and the broker is told, if it understands that. ``expired``: because the caller's timeout passed."""
        self.forget(key)


class NumberedClientEnd(ClientEnd):
    """A client whose protocol tells replies apart by an id that goes out with each request: any number may be open, in any order."""

    concurrent = True

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[bytes, int] = {}  # id -> the caller's key, of the requests that are open
        self.ids: dict[int, bytes] = {}  # and back

    def track(self, key: int, identity: bytes) -> None:
        if key in self.ids:
            raise ValueError(f"the request {key} is still open")
        self.keys[identity] = key
        self.ids[key] = identity

    def settle(self, identity: bytes) -> int | None:
        """The key of the request that ``identity`` answers for good. None: late, whoever asked has gone."""
        key = self.keys.pop(identity, None)
        if key is not None:
            del self.ids[key]
        return key

    def forget(self, key: int) -> None:
        identity = self.ids.pop(key, None)
        if identity is not None:
            del self.keys[identity]


class HeldParts:
    """Partials of a job whose protocol has none: they wait for the final and go in front of it, within the message bound."""

    def __init__(self, title: str, frames: int = MAX_BODY) -> None:
        self.title = title  # of the protocol, for people
        self.frames: Frames = []
        self._most = frames
        self._size = 0

    def add(self, body: Frames) -> None:
        self.frames += body
        self._size += sum(map(len, body))
        if self._size > MAX_BODY or len(self.frames) > self._most:
            raise CallFailed(
                "too-large",
                f"{self.title} sends partials with the final reply, and together they pass the message bound",
            )

    def join(self, body: Frames) -> Frames:
        """With the final's frames, which count too; nothing is held any more."""
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
    slots = 1  # how many jobs one connection may hold at a time at most; see ``capacity``
    agreed: Extensions = NO_EXTENSIONS  # what the broker understands; set once the connection is open
    interval = 2.5  # call ``beat`` this often
    patience = 10.0  # hearing nothing from the broker for this long means it is gone; 0: never judge
    fails = (
        False  # the protocol can tell of a failure; otherwise ``fail`` leaves, and the connection must be opened anew
    )
    out: list[Frames]

    def __init__(self) -> None:
        self.out = []

    def capacity(self) -> int:
        """How many jobs this connection may hold at a time: 1 where the broker does not understand what is needed for more."""
        return self.slots

    def open(self, services: list[bytes], slots: int = 1, prefetch: int = 0) -> None:
        """Registers, as the first thing on a new connection. The worker runs ``slots`` jobs at once and takes ``prefetch`` more."""
        raise NotImplementedError

    def grow(self, count: int) -> None:
        """The worker runs ``count`` more jobs at once than it said."""

    def receive(self, message: Frames) -> list[Event]:
        raise NotImplementedError

    def beat(self) -> None:
        """Sends a heartbeat, where the protocol wants one now."""

    def partial(self, job: Job, body: Frames) -> None:
        """A partial reply; ends whose protocol has none keep it and join it in front of the final."""
        raise NotImplementedError

    def final(self, job: Job, body: Frames) -> None:
        raise NotImplementedError

    def fail(self, job: Job, code: str, text: str) -> bool:
        """The job failed. True if the connection must now be closed and opened anew (the protocol has no word for failure)."""
        raise NotImplementedError

    def release(self, job: Job) -> bool:
        """The job is not run: it was not started, or was cancelled. False if the protocol has no message for that."""
        return False

    def keep(self, job: Job) -> None:
        """The job was started before the broker asked for it back."""

    def drain(self) -> None:
        """No further jobs are wanted: a protocol that can say so does."""

    def close(self) -> None:
        """Leaves politely."""
