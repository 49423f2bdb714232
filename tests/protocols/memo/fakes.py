"""A broker with a given clock, and memo01 peers that speak to it in bytes. Their CBOR is cbor2's, not ours."""

from io import BytesIO

import cbor2

from polydomo.broker.broker import Broker
from polydomo.broker.observe.recorder import Recorder
from polydomo.broker.policy import Policy
from polydomo.model.records import Departure, Request, Session, Worker
from polydomo.model.registration import WorkerTerms
from polydomo.model.session import ProtocolSession
from polydomo.protocols.memo.session import MemoSession
from polydomo.wire import frames, sp
from polydomo.wire.frames import Body
from polydomo.wire.link import Hub, Link, LinkHandler
from polydomo.wire.sp import SpLink
from tests.entropy import Counting

Header = list[object]
READY, JOB, RESULT, HEARTBEAT, DISCONNECT = 1, 2, 3, 4, 5


class Notes(Recorder):
    def __init__(self) -> None:
        self.wants_requests = True
        self.outcomes: list[str] = []
        self.violations: list[str] = []
        self.departures: list[str] = []

    def ended(self, request: Request) -> None:
        self.outcomes.append(request.outcome)

    def left(self, worker: Worker, departure: Departure, why: str, *facts: object) -> None:
        self.departures.append(why)

    def violated(self, session: Session, what: str) -> None:
        self.violations.append(what)


class World:
    """One broker, its clock and its notes."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.notes = Notes()
        self.broker = Broker(1000.0, Counting(), policy, recorder=self.notes)
        self.hub = Hub()

    def connect(self) -> "Peer":
        return Peer(self)

    def foreigner(self, takes_partials: bool = False) -> "Foreigner":
        session = Foreigner(self.broker, Link(self.hub, LinkHandler(), "foreigner"))
        session.takes_partials = takes_partials
        self.broker.session_opened(session)
        return session

    def wait(self, seconds: float) -> None:
        """Lets time pass, with every deadline kept on the way."""
        end = self.broker.now + seconds
        while True:
            due = self.broker.next_deadline()
            if due is None or due > end:
                break
            self.broker.now = max(self.broker.now, due) + 0.0001  # a loop wakes a little late
            self.broker.run_timers()
        self.broker.now = max(self.broker.now, end)
        self.broker.end_turn()


class Peer:
    """One NNG connection; each request id on it is a client or a worker of its own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.link = SpLink(world.hub, LinkHandler(), "peer")
        self.session = MemoSession(world.broker, self.link)
        self.link.handler = self.session
        world.broker.session_opened(self.session)
        self.link.receive(sp.hello(sp.REQ))
        self.link.out.clear()

    def raw(self, rid: int, body: bytes) -> None:
        self.link.receive(sp.message(rid.to_bytes(4, "big"), body))

    def say(self, rid: int, *header: object, payload: bytes = b"") -> None:
        self.raw(0x80000000 | rid, cbor2.dumps(["memo01", *header], canonical=True) + payload)

    def ready(self, rid: int, *services: str) -> None:
        self.say(rid, READY, b"", list(services))

    def job(self, rid: int, service: str, payload: bytes = b"", timeout: int = 5000) -> None:
        self.say(rid, JOB, b"", service, timeout, payload=payload)

    def result(self, rid: int, worker: bytes, payload: bytes = b"") -> None:
        self.say(rid, RESULT, worker, payload=payload)

    def heartbeat(self, rid: int, worker: bytes) -> None:
        self.say(rid, HEARTBEAT, worker)

    def heard(self) -> list[tuple[int, Header, bytes]]:
        """What the broker sent since the last look: (request id, header after "memo01", payload)."""
        stream = BytesIO(b"".join(bytes(piece) for piece in self.link.out))
        self.link.out.clear()
        found = []
        while length := stream.read(8):
            message = BytesIO(stream.read(int.from_bytes(length, "big")))
            rid = int.from_bytes(message.read(4), "big")
            header = cbor2.load(message)
            assert header[0] == "memo01"
            found.append((rid & 0x7FFFFFFF, header[1:], message.read()))
        return found

    def worker(self, rid: int, *services: str) -> bytes:
        """Registers a worker and lets it beat once, so that it knows its id; its poll is ``rid + 1`` then."""
        self.ready(rid, *services)
        ref = next(reversed(self.session.mine))
        worker = self.session.mine[ref]
        self.session.broker.clear_credit(worker)
        self.session.send_heartbeat(worker)
        [(answered, header, _)] = self.heard()
        assert answered == rid and header == [HEARTBEAT, ref]
        self.heartbeat(rid + 1, ref)
        return ref

    def close(self) -> None:
        self.link.lost()


class Foreigner(ProtocolSession):
    """A client and worker of another protocol, whose bodies are lists of frames."""

    def __init__(self, broker: Broker, link: Link) -> None:
        self.protocol = "foreign"
        super().__init__(broker, link)
        self.finals: list[tuple[object, list[bytes]]] = []
        self.partials: list[tuple[object, list[bytes]]] = []
        self.failures: list[tuple[object, str]] = []
        self.jobs: list[tuple[Worker, bytes, list[bytes]]] = []

    def ask(self, ref: object, service: bytes, *body: bytes, deadline: float = 0.0) -> None:
        self.broker.request(self, service, frames.join(list(body)), ref, deadline=deadline)

    def work(self, service: bytes) -> None:
        self.broker.register_worker(self, [service], None, WorkerTerms(1, 1))

    def send_partial(self, request: Request, body: Body) -> None:
        self.partials.append((request.ref, frames.split(body)))

    def send_final(self, request: Request, body: Body) -> None:
        self.finals.append((request.ref, frames.split(body)))

    def send_failure(self, request: Request, code: str, text: str) -> None:
        self.failures.append((request.ref, code))

    def deliver(self, worker: Worker, request: Request) -> None:
        self.jobs.append((worker, request.token, frames.split(request.body)))
