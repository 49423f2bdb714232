"""A broker with its clock in the test's hand, and peers that talk to it in whole messages, without a wire."""

from polydomo.broker.broker import Broker
from polydomo.broker.observe.recorder import Recorder
from polydomo.broker.policy import Policy
from polydomo.model.records import Departure, Request, Session, Worker
from polydomo.model.session import ProtocolSession
from polydomo.model.tuning import Tuning
from polydomo.protocols.emqp.session import EmqpSession
from polydomo.wire import frames
from polydomo.wire.frames import Body
from polydomo.wire.link import Hub, Link, LinkHandler
from tests.entropy import Counting

WALL = 1_794_724_000.0  # the broker's epoch


class Notes(Recorder):
    """What a log and a journal would hold."""

    def __init__(self) -> None:
        self.wants_requests = True
        self.violations: list[str] = []
        self.stales: list[str] = []
        self.outcomes: list[tuple[str, str]] = []
        self.departures: list[tuple[str, str]] = []

    def ended(self, request: Request) -> None:
        self.outcomes.append((request.service.name.decode(), request.outcome))

    def left(self, worker: Worker, departure: Departure, why: str, *facts: object) -> None:
        state = departure.state
        self.departures.append((state, why))

    def stale(self, worker: Worker, token: bytes, what: str, size: int) -> None:
        self.stales.append(what)

    def violated(self, session: Session, what: str) -> None:
        self.violations.append(what)


class Table:
    """A broker and its peers."""

    def __init__(self, tuning: Tuning | None = None, policy: Policy | None = None) -> None:
        self.notes = Notes()
        self.hub = Hub()
        self.broker = Broker(
            100.0, Counting(), policy, tuning, recorder=self.notes, wall=WALL, address="tcp://127.0.0.1:5246"
        )
        self.peers = 0

    def wait(self, seconds: float) -> None:
        """Lets time pass, with every deadline on the way met in order."""
        end = self.broker.now + seconds
        while True:
            when = self.broker.next_deadline()
            if when is None or when > end:
                break
            self.broker.now = max(self.broker.now, when)
            self.broker.run_timers()
        self.broker.now = end
        self.broker.run_timers()

    def join(self, session_class: type[ProtocolSession], peer: str = "") -> "Peer":
        self.peers += 1
        return Peer(self, session_class, peer or f"tcp://127.0.0.1:{40_000 + self.peers}")


class Peer:
    """The far end of one connection."""

    def __init__(self, table: Table, session_class: type[ProtocolSession], peer: str) -> None:
        self.link = Link(table.hub, LinkHandler(), peer)
        self.session = session_class(table.broker, self.link)
        self.link.handler = self.session
        table.broker.session_opened(self.session)

    def say(self, *message: bytes) -> None:
        raw = b"\x00\x00" + frames.join(list(message))  # never at position 0, as on the wire
        self.session.on_message(raw, 2, len(raw))

    def raw(self, data: bytes) -> None:
        self.session.on_message(data, 0, len(data))

    def hear(self) -> list[list[bytes]]:
        """Every message since the last call."""
        data = b"".join(bytes(piece) for piece in self.link.out)
        self.link.out.clear()
        messages: list[list[bytes]] = []
        message: list[bytes] = []
        position = 0
        while position < len(data):
            start, end, flags = frames.bounds(data, position)
            message.append(data[start:end])
            position = end
            if not flags & frames.MORE:
                messages.append(message)
                message = []
        assert not message, "a message without an end"
        return messages

    def close(self) -> None:
        self.link.lost()


class EchoSession(ProtocolSession):
    """A client and a worker of another protocol, reduced to what the broker needs."""

    def __init__(self, broker: Broker, link: Link) -> None:
        self.protocol = "other"
        self.takes_partials = True
        super().__init__(broker, link)
        self.finals: list[Body] = []
        self.delivered: list[Request] = []

    def send_partial(self, request: Request, body: Body) -> None:
        self.finals.append(body)

    def send_final(self, request: Request, body: Body) -> None:
        self.finals.append(body)

    def deliver(self, worker: Worker, request: Request) -> None:
        self.delivered.append(request)


# --- eMQP in few words ---

HEAD = (b"", b"eMQP/1.0")
JOB = b'["run", {"callable": "job", "path": "job", "args": [0], "kwargs": {}, "class_args": [], "class_kwargs": {}}]'
ASKS = b"reply-requested"


def inform(peer: Peer, queues: bytes = b'[[10, "default"]]', kind: bytes | None = b"worker") -> None:
    """Registers, and reads the answers."""
    rest = (queues,) if kind is None else (queues, kind)
    peer.say(*HEAD, b"INFORM", b"i1", *rest)
    ack, beat = peer.hear()
    assert ack[2] == b"ACK" and beat[2] == b"HEARTBEAT"


def worker_at(
    table: Table, queues: bytes = b'[[10, "default"]]', slots: int = 1, kind: bytes | None = b"worker"
) -> Peer:
    peer = table.join(EmqpSession)
    inform(peer, queues, kind)
    for _ in range(slots):
        peer.say(*HEAD, b"READY", b"r")
    return peer


def request(
    peer: Peer, msgid: bytes = b"m1", queue: bytes = b"default", headers: bytes = ASKS, body: bytes = b"hello"
) -> None:
    peer.say(*HEAD, b"REQUEST", msgid, queue, headers, body)


def only(messages: list[list[bytes]]) -> list[bytes]:
    assert len(messages) == 1, messages
    return messages[0]
