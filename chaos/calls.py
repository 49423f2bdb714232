"""The calls that clients make: the service, the expected reply, and the outcome of each call."""

import random
import threading
from dataclasses import dataclass

from chaos.record import Record
from polydomo.errors import CallFailed, CallTimeout, ConnectionLost, NoSuchService, NotConnected, ProtocolViolation

ECHO, SLOW, STREAM, POISON, NOBODY = "echo", "slow", "stream", "poison", "nobody"
CHAIN = "chain"  # its workers pass each call on to the service ``echo``
FAR = "far"  # its workers are at another broker, over a bridge
PARTS = 3  # partial replies of a stream
SIZES = (0, 10, 100, 1_000, 20_000, 200_000)  # of padding; the large ones are rare
SLOWEST = 0.5  # seconds that the slow service takes at most


@dataclass
class Options:
    """The arguments of an actor."""

    url: str
    name: str  # with its incarnation: the prefix of every call id, and the name of its record
    record: Record
    seed: int
    lanes: int  # calls open at a time; of a worker: calls served at a time
    rate: float  # calls per second, in all lanes together
    timeout: float
    beat: float


@dataclass
class Plan:
    """One call."""

    call: str
    service: str
    body: bytes
    attempts: int

    @property
    def expected(self) -> bytes:
        if self.service == STREAM:
            return b"".join(pieces(self.call))
        return self.body


def pieces(call: str) -> list[bytes]:
    return [f"{call}|{part}".encode() for part in (*range(PARTS), "end")]


def named(body: bytes) -> str:
    """The id in a body."""
    return body.partition(b"|")[0].decode()


class Caller:
    """Chooses the next call and records its outcome."""

    def __init__(self, options: Options, services: dict[str, float], retries: int = 0) -> None:
        self.options = options
        self.record = options.record
        self.dice = random.Random(options.seed)
        self.services = list(services)
        self.weights = list(services.values())
        self.retries = retries
        self.count = 0
        self.lock = threading.Lock()
        self.stopping = threading.Event()

    def next(self) -> Plan:
        with self.lock:
            self.count += 1
            service = self.dice.choices(self.services, self.weights)[0]
            call = f"{self.options.name}.{self.count}"
            size = self.dice.choices(SIZES, (40, 30, 20, 8, 1.5, 0.5))[0]
            # An echo may be retried. The other services show that nothing is retried unless the caller allowed it.
            attempts = 1 + (self.retries if service == ECHO and self.dice.random() < 0.5 else 0)
        plan = Plan(call, service, call.encode() + b"|" + bytes(size), attempts)
        self.record.submitted(call, service, attempts)
        return plan

    def pause(self) -> float:
        return self.dice.expovariate(self.options.rate / self.options.lanes)

    def failed(self, error: Exception) -> str:
        """The outcome for an exception. An exception that the library does not document is a fault."""
        if isinstance(error, CallTimeout):
            return "timeout"
        if isinstance(error, NoSuchService):
            return "no-service"
        if isinstance(error, CallFailed):
            return f"failed:{error.code}"
        if isinstance(error, NotConnected):
            return "not-connected"
        if isinstance(error, ConnectionLost):
            return "connection-lost"
        if isinstance(error, ProtocolViolation):
            return "violation"
        return f"untyped:{type(error).__name__}"


EVERYTHING = {ECHO: 45.0, CHAIN: 5.0, SLOW: 25.0, STREAM: 12.0, FAR: 10.0, NOBODY: 2.0, POISON: 0.15}
PLAIN = {ECHO: 53.0, CHAIN: 7.0, SLOW: 28.0, FAR: 10.0, NOBODY: 2.0}
