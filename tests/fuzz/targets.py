"""Every decoder as a function of bytes. Any bytes give a message or a protocol error: whatever else is raised is a bug.

`make fuzz` runs these with atheris and with a mutator of our own; the tests run them with hypothesis and with the corpus beside this file.
"""

from collections.abc import Callable

from polydomo.broker.broker import Broker
from polydomo.broker.catalog.udp_heartbeats import UdpHeartbeats
from polydomo.broker.policy import Policy
from polydomo.errors import CallFailed, ProtocolViolation, SettingError
from polydomo.protocols import registry
from polydomo.protocols.dbp import udp
from polydomo.protocols.dbp.ends import DbpEnd
from polydomo.protocols.detect import Detector
from polydomo.protocols.emqp import headers
from polydomo.protocols.memo import messages
from polydomo.wire import cbor, frames, sp
from polydomo.wire.address import parse_url
from polydomo.wire.link import Bounds, Hub, Link, LinkHandler
from polydomo.wire.sp import SpLink
from polydomo.wire.zmtp.link import ZmtpLink
from tests.entropy import Counting

GREETING = b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x01NULL" + bytes(48)
HELLO_REQ = sp.hello(sp.REQ)
HELLO_REP = sp.hello(sp.REP)
BOUNDS = Bounds(max_frame=4096, max_frames=64, max_message=8192, max_handshake=1024)
SOCKET_TYPES = (b"DEALER", b"REQ", b"ROUTER", b"SUB", b"XSUB", b"PUB", b"XPUB")

Target = Callable[[bytes], None]
TARGETS: dict[str, Target] = {}


def target(function: Target) -> Target:
    TARGETS[function.__name__] = function
    return function


class Messages(LinkHandler):
    """Keeps what a link hands over."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.commands: list[tuple[bytes, bytes]] = []

    def on_message(self, data: bytes, start: int, end: int) -> None:
        assert 0 <= start < end <= len(data)
        self.taken.append(bytes(data[start:end]))

    def on_command(self, name: bytes, data: bytes) -> None:
        self.commands.append((name, data))


class Room:
    """A broker with some honest peers, and a place for one that is not."""

    def __init__(self) -> None:
        self.detector: type[Detector] = Detector
        self.hub = Hub()
        policy = Policy(max_outstanding=8, max_queue=16, max_services=8, max_message=8192)
        self.broker = Broker(1000.0, Counting(), policy)
        self.links: list[Link] = []

    def zmtp(self, socket_type: bytes = b"DEALER", bounds: Bounds = BOUNDS, said: bytes = b"") -> ZmtpLink:
        detector = self.detector(self.broker)
        link = ZmtpLink(self.hub, detector, "tcp://192.0.2.1:1", bounds=bounds)
        detector.attach(link)
        self.links.append(link)
        link.receive(GREETING + (said or ready(socket_type)))
        return link

    def sp(self) -> SpLink:
        detector = self.detector(self.broker)
        link = SpLink(self.hub, detector, "tcp://192.0.2.2:1", max_message=8192)
        detector.attach(link)
        self.links.append(link)
        link.receive(HELLO_REQ)
        return link

    def honest(self) -> None:
        """A client and a worker of other protocols, so that there is something to be given and to be disturbed."""
        worker = registry.worker_end("mdp2")
        worker.open([b"echo"])
        client = registry.client_end("mdx")
        for key in range(3):
            client.request(key, b"echo", [b"body"])
        for end in (worker, client):
            link = self.zmtp()
            for message in end.out:
                link.receive(frames.join(message))

    def turn(self) -> None:
        self.broker.end_turn()
        while self.hub.resumed:
            link = self.hub.resumed.pop()
            if not link.closed:
                link.receive(b"")
        self.hub.dirty.clear()

    def wait(self, seconds: float) -> None:
        self.broker.now += seconds
        self.hub.now = self.broker.now
        self.broker.run_timers()
        self.turn()

    def close(self) -> None:
        """All peers disconnect: nothing may be left but requests without a client, and those expire."""
        self.turn()
        self.broker.check_invariants()
        for link in self.links:
            link.lost()
        for _ in range(4):
            self.wait(30.0)
        self.broker.check_invariants()
        for session in self.broker.sessions:
            owns = session.requests and all(request in self.broker.unattended.requests for request in session.requests)
            assert session.runs_shared or owns, "a closed session stays without a request of its own"
        for _ in range(2):
            self.wait(self.broker.policy.unattended_expiry)
        self.broker.check_invariants()
        assert not self.broker.unattended.requests
        assert not [session for session in self.broker.sessions if not session.runs_shared]
        assert not [worker for worker in self.broker.workers if not worker.session.runs_shared or worker.held]
        assert not self.broker.open_requests
        assert self.broker.held_bytes == 0 and not self.broker.memo_workers


def ready(socket_type: bytes) -> bytes:
    content = b"\x05READY\x0bSocket-Type" + len(socket_type).to_bytes(4, "big") + socket_type
    return b"\x04" + bytes((len(content),)) + content


# --- wires -------------------------------------------------------------------------------------------------------------------


@target
def zmtp_from_the_first_byte(data: bytes) -> None:
    room = Room()
    detector = Detector(room.broker)
    link = ZmtpLink(room.hub, detector, "tcp://192.0.2.1:1", bounds=BOUNDS)
    detector.attach(link)
    room.links.append(link)
    link.receive(data)
    room.close()


@target
def zmtp_traffic(data: bytes) -> None:
    handler = Messages()
    link = ZmtpLink(Hub(), handler, "peer", bounds=BOUNDS)
    link.receive(GREETING + ready(b"DEALER"))
    link.receive(data)
    for message in handler.taken:
        assert len(message) <= BOUNDS.max_message
        parts = frames.split(message)
        assert 0 < len(parts) <= BOUNDS.max_frames


@target
def zmtp_dialing(data: bytes) -> None:
    link = ZmtpLink(Hub(), Messages(), "peer", socket_type=b"DEALER", bounds=BOUNDS)
    link.receive(data)


@target
def sp_from_the_first_byte(data: bytes) -> None:
    link = SpLink(Hub(), Messages(), "peer", max_message=8192)
    link.receive(data)


@target
def sp_traffic(data: bytes) -> None:
    handler = Messages()
    link = SpLink(Hub(), handler, "peer", max_message=8192)
    link.receive(HELLO_REQ + data)
    for message in handler.taken:
        rid, body = sp.split(message, 0, len(message))
        assert rid + body == message


# --- the broker's sessions -----------------------------------------------------------------------------------------------------


@target
def broker_zmtp(data: bytes) -> None:
    """The first byte chooses the socket type; the rest is what the peer says once hands are shaken."""
    room = Room()
    room.honest()
    link = room.zmtp(SOCKET_TYPES[data[0] % len(SOCKET_TYPES)] if data else b"DEALER")
    link.receive(data[1:])
    room.turn()
    room.wait(3.0)
    room.close()


@target
def broker_sp(data: bytes) -> None:
    room = Room()
    room.honest()
    room.sp().receive(data)
    room.turn()
    room.wait(3.0)
    room.close()


# --- the peers' ends -------------------------------------------------------------------------------------------------------------


def receive(make: Callable[[], object], data: bytes) -> None:
    """Each message of ``data`` to a new end."""
    try:
        message = frames.split(data)
    except ProtocolViolation:
        return
    end = make()
    try:
        end.receive(message)  # type: ignore[attr-defined]
        end.receive(message)  # type: ignore[attr-defined]
    except ProtocolViolation:
        pass


@target
def client_ends(data: bytes) -> None:
    for name in registry.names():

        def make(name: str = name) -> object:
            end = registry.client_end(name)
            end.request(1, b"echo", [b"body"], 1.0)
            return end

        receive(make, data)


@target
def worker_ends(data: bytes) -> None:
    for name in registry.names():

        def make(name: str = name) -> object:
            end = registry.worker_end(name)
            end.open([b"echo"])
            return end

        receive(make, data)


@target
def dbp_end(data: bytes) -> None:
    class End(DbpEnd):
        def receive(self, message: list[bytes]) -> list[object]:  # type: ignore[override]
            return list(super().receive(message, 0.0))

    receive(End, data)


# --- small things ------------------------------------------------------------------------------------------------------------------


@target
def body_frames(data: bytes) -> None:
    try:
        parts = frames.split(data)
    except ProtocolViolation:
        return
    assert frames.split(frames.join(parts)) == parts
    assert frames.count(data) == len(parts)
    assert frames.flat(data) == b"".join(parts)


@target
def cbor_header(data: bytes) -> None:
    try:
        items, end = cbor.read_header(data, 0, len(data))
    except ProtocolViolation:
        return
    assert 0 < end <= len(data)
    assert cbor.encode(items) == data[:end], "deterministic CBOR has one form for each value"


@target
def memo_message(data: bytes) -> None:
    try:
        message = messages.parse(data, 0, len(data))
    except ProtocolViolation:
        return
    assert message.kind in messages.NAMES and 0 < message.payload <= len(data)


@target
def emqp_words(data: bytes) -> None:
    for read in (headers.read, headers.items, headers.read_queues):
        try:
            read(data)
        except ProtocolViolation:
            pass


@target
def datagram(data: bytes) -> None:
    room = Room()
    UdpHeartbeats(room.broker, room.broker.catalog, room.broker.changes).receive(data, "192.0.2.1")
    udp.read_beacon(data)
    found = udp.read(data)
    if found is not None:
        assert udp.read(udp.write(found.command, found.name, 0.0, found.time)) == found


@target
def url(data: bytes) -> None:
    try:
        address = parse_url(data.decode("utf-8", "replace"))
    except SettingError:
        return
    assert parse_url(str(address)) == address


FAILURES = (ProtocolViolation, SettingError, CallFailed)
