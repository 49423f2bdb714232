"""The real broker behind real ZMTP bytes, without sockets: what a server would do with them is done here by hand."""

from polydomo.broker.broker import Broker
from polydomo.broker.observe.recorder import Recorder
from polydomo.broker.policy import Policy
from polydomo.model.records import Departure, Request, Session, Worker
from polydomo.model.tuning import Tuning
from polydomo.protocols.detect import Detector
from polydomo.wire.frames import join, split
from polydomo.wire.link import Hub, LinkHandler
from polydomo.wire.zmtp.link import ZmtpLink
from tests.entropy import Zeros
from tests.forms import GeneralDetector

Frames = list[bytes]


class Notes(Recorder):
    def __init__(self) -> None:
        self.wants_requests = True
        self.violations: list[str] = []
        self.outcomes: list[str] = []
        self.stales: list[str] = []
        self.lefts: list[str] = []
        self.requeues = 0

    def ended(self, request: Request) -> None:
        self.outcomes.append(request.outcome)

    def violated(self, session: Session, what: str) -> None:
        self.violations.append(what)

    def stale(self, worker: Worker, token: bytes, what: str, size: int) -> None:
        self.stales.append(what)

    def left(self, worker: Worker, departure: Departure, why: str, *facts: object) -> None:
        self.lefts.append(why)

    def requeued(self, request: Request, worker: Worker, why: str, *facts: object) -> None:
        self.requeues += 1


class Rig:
    def __init__(self, tuning: Tuning | None = None, policy: Policy | None = None, fast: bool = True) -> None:
        self.detector: type[Detector] = Detector if fast else GeneralDetector
        self.notes = Notes()
        self.hub = Hub()
        self.broker = Broker(1000.0, Zeros(), policy, tuning, self.notes)
        self.peers: list[Peer] = []

    def peer(self, socket_type: bytes = b"DEALER") -> "Peer":
        return Peer(self, socket_type)

    def settle(self) -> None:
        """Carries bytes both ways until all are silent, and closes what wants to be closed, as the server does once per turn."""
        while True:
            self.broker.end_turn()
            busy = False
            self.hub.dirty.clear()
            for peer in list(self.peers):
                busy = peer.carry() or busy
            if not busy:
                break
        self.broker.check_invariants()

    def wait(self, seconds: float) -> None:
        """Time passes, and everything due on the way happens when it is due."""
        until = self.broker.now + seconds
        while True:
            due = self.broker.next_deadline()
            if due is None or due > until:
                break
            self.broker.now = max(due, self.broker.now)
            self.broker.run_timers()
            self.settle()
        self.broker.now = until


class Peer(LinkHandler):
    """A peer of some socket type: its own end of a ZMTP connection, and the broker's end of it."""

    def __init__(self, rig: Rig, socket_type: bytes) -> None:
        self.rig = rig
        self.messages: list[Frames] = []
        self.here = ZmtpLink(Hub(), self, "broker", socket_type=socket_type)
        detector = rig.detector(rig.broker)
        self.there = ZmtpLink(rig.hub, detector, f"peer {len(rig.peers)}")
        detector.attach(self.there)
        rig.peers.append(self)
        rig.settle()
        assert self.here.open and self.there.open

    @property
    def session(self) -> Session:
        session = self.there.handler
        assert isinstance(session, Session)
        return session

    def on_message(self, data: bytes, start: int, end: int) -> None:
        self.messages.append(split(data[start:end]))

    def carry(self) -> bool:
        said = b"".join(bytes(piece) for piece in self.here.out)
        observed = b"".join(bytes(piece) for piece in self.there.out)
        self.here.out.clear()
        self.there.out.clear()
        if said and not self.there.pauses:
            self.there.receive(said)
        if observed:
            self.here.receive(observed)
        assert self.here.closing is None, f"the broker sent what no peer can read: {self.here.closing}"
        if self.there.closing is not None and not self.there.closed and not self.there.out:
            self.there.lost()
        return bool(said or observed)

    def say(self, *frames: bytes) -> None:
        self.say_raw(join(list(frames)))

    def say_raw(self, message: bytes) -> None:
        self.here.send(message)
        self.rig.settle()

    def heard(self) -> list[Frames]:
        """What the broker has said since the last call."""
        found = self.messages
        self.messages = []
        return found

    def only(self) -> Frames:
        (message,) = self.heard()
        return message

    @property
    def closed(self) -> str:
        """Why the broker closed the connection; empty if it has not."""
        return self.there.closing or ""

    def lose(self) -> None:
        """The peer's process dies."""
        self.there.lost()
        self.rig.settle()


def long_form(*frames: bytes) -> bytes:
    """The same message with every length in eight bytes, which ZMTP allows although no peer does it."""
    last = len(frames) - 1
    return b"".join(bytes((3 if i < last else 2,)) + len(f).to_bytes(8, "big") + f for i, f in enumerate(frames))
