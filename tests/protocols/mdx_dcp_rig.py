"""The real broker without I/O: a clock set by hand, and peers whose messages are lists of frames."""

from polydomo.broker.broker import Broker
from polydomo.broker.observe.recorder import Recorder
from polydomo.broker.policy import Policy
from polydomo.model.records import Departure, Request, Session, Worker
from polydomo.model.session import ProtocolSession
from polydomo.model.tuning import Tuning
from polydomo.protocols.ends import ClientEnd, Event, WorkerEnd
from polydomo.wire.frames import bounds, join
from polydomo.wire.link import Hub, Link, LinkHandler
from tests.entropy import Counting

Frames = list[bytes]


class Notes(Recorder):
    """Records what the broker reports, as text."""

    def __init__(self) -> None:
        self.wants_requests = True
        self.violations: list[str] = []
        self.stales: list[str] = []
        self.lefts: list[str] = []
        self.requeues = 0
        self.outcomes: list[str] = []
        self.hops: list[bytes] = []

    def ended(self, request: Request) -> None:
        self.outcomes.append(request.outcome)

    def left(self, worker: Worker, departure: Departure, why: str, *facts: object) -> None:
        self.lefts.append(why)

    def requeued(self, request: Request, worker: Worker, why: str, *facts: object) -> None:
        self.requeues += 1

    def forwarded(self, request: Request, worker: Worker, service: bytes, *facts: object) -> None:
        self.hops.append(service)

    def stale(self, worker: Worker, token: bytes, what: str, size: int) -> None:
        self.stales.append(what)

    def violated(self, session: Session, what: str) -> None:
        self.violations.append(what)


class Rig:
    """One broker and its clock."""

    def __init__(self, tuning: Tuning | None = None, policy: Policy | None = None) -> None:
        self.notes = Notes()
        self.hub = Hub()
        self.broker = Broker(1000.0, Counting(), policy, tuning, self.notes)

    def peer(self, kind: type[ProtocolSession]) -> "Peer":
        return Peer(self, kind)

    def wait(self, seconds: float) -> None:
        """Time passes, and everything due on the way happens when it is due."""
        broker = self.broker
        until = broker.now + seconds
        while True:
            due = broker.next_deadline()
            if due is None or due > until:
                break
            broker.now = max(due, broker.now)
            broker.run_timers()
        broker.now = until


class Peer:
    """One connection to the broker, seen from outside."""

    def __init__(self, rig: Rig, kind: type[ProtocolSession]) -> None:
        self.rig = rig
        self.link = Link(rig.hub, LinkHandler(), f"peer {kind.protocol}")
        self.session = kind(rig.broker, self.link)
        self.link.handler = self.session
        rig.broker.session_opened(self.session)

    def say(self, *frames: bytes) -> None:
        self.say_raw(join(list(frames)))

    def say_raw(self, message: bytes) -> None:
        """A message may be anywhere in the bytes read from the socket: other bytes precede and follow it."""
        self.session.on_message(b"\x01\x05before" + message + b"\x01\x05after", 8, 8 + len(message))

    def heard(self) -> list[Frames]:
        """The messages sent to this peer since the last call."""
        data = b"".join(bytes(piece) for piece in self.link.out)
        self.link.out.clear()
        messages: list[Frames] = []
        frames: Frames = []
        position = 0
        while position < len(data):
            start, position, flags = bounds(data, position)
            assert position <= len(data)
            frames.append(data[start:position])
            if not flags & 1:
                messages.append(frames)
                frames = []
        assert not frames, "the last message says MORE"
        return messages

    def close(self) -> None:
        self.link.lost()

    def exchange(self, end: "ClientEnd | WorkerEnd") -> list[Event]:
        """Carries what ``end`` has to say to the broker, and what the broker has said to ``end``."""
        for message in end.out:
            self.say(*message)
        end.out.clear()
        events: list[Event] = []
        for message in self.heard():
            events.extend(end.receive(message))
        return events


def long_form(frames: Frames) -> bytes:
    """The same message with every length in eight bytes, which ZMTP allows although no peer does it."""
    last = len(frames) - 1
    return b"".join(bytes((3 if i < last else 2,)) + len(f).to_bytes(8, "big") + f for i, f in enumerate(frames))
