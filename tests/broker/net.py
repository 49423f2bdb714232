"""Several brokers without a wire. Bridges between them carry messages on request, and can be cut."""

import itertools

from polydomo.broker.broker import Broker
from polydomo.broker.entropy import Entropy
from polydomo.broker.observe.recorder import Recorder
from polydomo.broker.policy import Policy
from polydomo.model.records import Publication, Request, Session, Worker
from polydomo.model.registration import WorkerTerms
from polydomo.model.request_options import options_of
from polydomo.model.session import ProtocolSession
from polydomo.model.tuning import Tuning
from polydomo.protocols.bridge.session import BridgeSession
from polydomo.wire.frames import Body, bounds, join, split
from polydomo.wire.link import Hub, Link, LinkHandler
from polydomo.wire.zmtp.extensions import Extensions


class Named(Entropy):
    """Bytes that name the broker."""

    def __init__(self, name: str) -> None:
        self.name = name

    def take(self, size: int) -> bytes:
        return self.name.encode().rjust(size, b"-")


class Notes(Recorder):
    def __init__(self) -> None:
        self.wants_requests = True
        self.outcomes: dict[int, str] = {}
        self.routes: dict[int, list[str]] = {}
        self.requeues = 0
        self.violations: list[str] = []

    def ended(self, request: Request) -> None:
        assert request.number not in self.outcomes, "a request ended twice"
        self.outcomes[request.number] = request.outcome

    def routed(self, request: Request, route: list[str]) -> None:
        self.routes[request.number] = route

    def requeued(self, request: Request, worker: Worker, why: str, *facts: object) -> None:
        self.requeues += 1

    def violated(self, session: Session, what: str) -> None:
        self.violations.append(what)


class Peer(ProtocolSession):
    """A client, a worker or a subscriber, reduced to what the broker needs."""

    def __init__(self, node: "Node") -> None:
        self.protocol = "plain"
        self.takes_partials = True
        super().__init__(node.broker, Link(node.net.hub, LinkHandler(), f"peer of {node.name}"))
        self.node = node
        self.answers: list[tuple[object, str, bytes]] = []  # ref, "partial" or an outcome, content
        self.jobs: list[tuple[Worker, Request, bytes]] = []  # worker, request, token
        self.heard: list[tuple[bytes, ...]] = []
        self.me: Worker | None = None
        self.identity = b""  # of its next request, which may become a job
        self.link.handler = self
        node.broker.session_opened(self)

    # a client
    def ask(
        self, service: bytes, ref: object = None, body: bytes = b"hello", timeout: float = 0.0, key: bytes = b""
    ) -> Request | None:
        deadline = self.broker.now + timeout if timeout else 0.0
        return self.broker.request(self, service, join([body]) if body else b"", ref, deadline, options_of(False, key))

    def identity_of(self, ref: object) -> bytes:
        return self.identity

    def send_partial(self, request: Request, body: Body) -> None:
        self.answers.append((request.ref, "partial", b"".join(split(body))))

    def send_final(self, request: Request, body: Body) -> None:
        self.answers.append((request.ref, "ok", b"".join(split(body))))

    def send_failure(self, request: Request, code: str, text: str) -> None:
        self.answers.append((request.ref, code, text.encode()))

    # a worker
    def offer(self, *services: bytes, credit: int = 1) -> "Peer":
        worker = self.broker.register_worker(self, list(services), None, WorkerTerms(credit))
        assert isinstance(worker, Worker)
        self.me = worker
        return self

    def deliver(self, worker: Worker, request: Request) -> None:
        self.jobs.append((worker, request, request.token))

    def partial(self, body: bytes) -> None:
        worker, _, token = self.jobs[0]
        self.broker.partial(worker, token, join([body]))

    def final(self, body: bytes = b"done", again: bool = True) -> None:
        worker, _, token = self.jobs.pop(0)
        self.broker.final(worker, token, join([body]))
        if again and worker.alive:
            self.broker.add_credit(worker)

    def forward(self, service: bytes) -> None:
        worker, request, token = self.jobs.pop(0)
        self.broker.forward(worker, token, service, request.body, request.ref)

    def fail(self, code: str, text: str) -> None:
        worker, _, token = self.jobs.pop(0)
        self.broker.fail(worker, token, code, text)

    # a subscriber
    def send_publication(self, publication: Publication) -> None:
        self.heard.append(tuple(split(publication.message)))

    def send_last_value(self, publication: Publication) -> None:
        self.send_publication(publication)

    def close(self) -> None:
        self.link.lost()


class Node:
    """One broker."""

    def __init__(self, net: "Net", name: str, policy: Policy | None, tuning: Tuning | None) -> None:
        self.net = net
        self.name = name
        self.notes = Notes()
        self.broker = Broker(net.now, Named(name), policy, tuning, self.notes)

    @property
    def identity(self) -> bytes:
        return self.broker.identity()

    def peer(self) -> Peer:
        return Peer(self)

    def worker(self, *services: bytes, credit: int = 1) -> Peer:
        return self.peer().offer(*services, credit=credit)

    def knows(self, service: bytes) -> int:
        """How far away the service is: 0 is here, -1 nowhere."""
        known = self.broker.services.get(service)
        if known is None:
            return -1
        return 0 if known.workers else min(map(len, known.remote.values()), default=-1)


class Bridge:
    """A connection between two brokers, whose messages wait until they are carried."""

    def __init__(self, near: Node, far: Node, sibling: bool = False) -> None:
        self.nodes = (near, far)
        self.ends: list[BridgeSession] = []
        self.up = True
        for node, caller in ((near, True), (far, False)):
            link = Link(node.net.hub, LinkHandler(), f"tcp://192.0.2.9:{len(node.net.bridges) + 1}")
            link.extensions = Extensions(catalog=True)
            session = BridgeSession(node.broker, link, caller, sibling)
            link.handler = session
            node.broker.session_opened(session)
            self.ends.append(session)
        self.ends[0].on_open()

    def waiting(self) -> bool:
        return self.up and any(end.link.out for end in self.ends)

    def carry(self, end: int, most: int = 1_000_000) -> int:
        """Carries up to ``most`` messages that one end has said to the other; returns how many."""
        link, target = self.ends[end].link, self.ends[1 - end]
        data = b"".join(bytes(piece) for piece in link.out)
        link.out.clear()
        count = position = 0
        while position < len(data) and count < most:
            start = position
            while True:
                _, position, flags = bounds(data, position)
                if not flags & 1:
                    break
            count += 1
            target.on_message(b"\x00\x00" + data[start:position] + b"\x00", 2, 2 + position - start)
            assert target.link.closing is None, target.link.closing
        if position < len(data):
            link.out.insert(0, data[position:])
        return count

    def cut(self) -> None:
        if self.up:
            self.up = False
            for end in self.ends:
                end.link.lost()


class Net:
    def __init__(self) -> None:
        self.hub = Hub()
        self.now = 1000.0
        self.nodes: list[Node] = []
        self.bridges: list[Bridge] = []

    def node(self, name: str, policy: Policy | None = None, tuning: Tuning | None = None) -> Node:
        self.nodes.append(Node(self, name, policy, tuning))
        return self.nodes[-1]

    def bridge(self, near: Node, far: Node, sibling: bool = False) -> Bridge:
        self.bridges.append(Bridge(near, far, sibling))
        return self.bridges[-1]

    def processes(self, *names: str) -> list[Node]:
        """The processes of one broker."""
        nodes = [self.node(name) for name in names]
        for index, node in enumerate(nodes):
            node.broker.siblings.become(index, len(nodes))
            for other in nodes[:index]:
                self.bridge(node, other, True)
        self.settle()
        return nodes

    def ring(self, *names: str) -> list[Node]:
        nodes = [self.node(name) for name in names]
        for near, far in zip(nodes, [*nodes[1:], nodes[0]], strict=True):
            self.bridge(near, far)
        self.settle()
        return nodes

    def chain(self, *names: str) -> list[Node]:
        nodes = [self.node(name) for name in names]
        for near, far in itertools.pairwise(nodes):
            self.bridge(near, far)
        self.settle()
        return nodes

    def settle(self) -> int:
        """Delivers all messages until there are no more; returns how many there were."""
        count = 0
        while True:
            for node in self.nodes:
                node.broker.end_turn()
            if not any(bridge.waiting() for bridge in self.bridges):
                break
            for bridge in self.bridges:
                if bridge.up:
                    count += bridge.carry(0) + bridge.carry(1)
            assert count < 100_000, "they go on for ever"
        self.check()
        return count

    def wait(self, seconds: float, settle: bool = True) -> None:
        """Time passes for all of them."""
        until = self.now + seconds
        while True:
            due = [when for node in self.nodes if (when := node.broker.next_deadline()) is not None]
            if not due or min(due) > until:
                break
            self._at(max(min(due), self.now))
            for node in self.nodes:
                node.broker.run_timers()
            if settle:
                self.settle()
        self._at(until)

    def _at(self, now: float) -> None:
        self.now = now
        for node in self.nodes:
            node.broker.now = now

    def check(self) -> None:
        for node in self.nodes:
            node.broker.check_invariants()
