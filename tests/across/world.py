"""A broker without I/O, its clock, and peers whose bytes reach it through real ZMTP and SP links, both ends in memory."""

import json
from collections.abc import Callable

from polydomo.broker.broker import Broker
from polydomo.broker.guard.rules import AccessRule, AccessRules
from polydomo.broker.policy import Policy
from polydomo.model.listener_roles import SHARED, Role
from polydomo.model.name_patterns import chosen
from polydomo.model.tuning import Tuning
from polydomo.protocols.detect import Detector
from polydomo.protocols.ends import ANNOUNCED, ClientEnd, Delivery, Dismissed, Event, Failure, Frames, Reply, WorkerEnd
from polydomo.protocols.memo.store_api import MemoValues
from polydomo.server.http.site import mount_pages
from polydomo.stores.memory import MemoryBackend
from polydomo.web.api import HttpApi
from polydomo.web.session import HttpSession, Site
from polydomo.wire import frames, sp
from polydomo.wire.http.link import HttpLink
from polydomo.wire.link import DEFAULT_BOUNDS, Bounds, Hub, Link, LinkHandler
from polydomo.wire.security.mechanism import Null
from polydomo.wire.sp import SpLink
from polydomo.wire.zmtp.extensions import Extensions
from polydomo.wire.zmtp.link import ZmtpLink
from sim.http_ends import HttpPeerLink
from tests.broker.jobs.kept import keep_jobs
from tests.entropy import Counting
from tests.protocols.mdx_dcp_rig import Notes
from tests.wire.security.curve_rig import World as CurveWorld

BUSY_TIMEOUT = 30.0  # silence allowed to a busy worker; the default would only make the tests longer
# "client", "worker": whose ZMTP connections are encrypted, and known to the broker.
CURVE_SIDES: frozenset[str] = frozenset()
# "client", "worker": whose ZMTP connections announce polydomo's extensions.
EXTENDED_SIDES: frozenset[str] = frozenset()
CREDIT = 1  # jobs that a worker with extensions holds
EXTENDED = Bounds(extensions=ANNOUNCED)
BROKER_EXTENSIONS = Extensions(
    100,
    cancel=True,
    deadline=True,
    options=True,
    give_back=True,
    key=True,
    cancel_jobs=True,
    deadline_jobs=True,
    window=True,
    fail=True,
    progress=True,
)
PIECE = 65536  # bytes that arrive at once, as from a socket


class World:
    """``disk`` makes requests for ``work`` durable: a second world with the same disk is the broker after a crash."""

    def __init__(self, disk: MemoryBackend | None = None) -> None:
        self.notes = Notes()
        self.broker = Broker(1000.0, Counting(), Policy(), Tuning(busy_timeout=BUSY_TIMEOUT), self.notes)
        self.site = Site(self.broker)
        HttpApi(self.broker, MemoValues()).mount(self.site, self.broker.schemas.encoding_of, lambda session: {})
        mount_pages(self.site, self.broker)
        self.store = keep_jobs(self.broker, chosen(["work"]), disk) if disk is not None else None
        self.lines: list[Line] = []
        self.curve = CurveWorld() if CURVE_SIDES else None
        if CURVE_SIDES:
            everyone = ["alice", "anonymous"]
            rule = AccessRule(
                1, everyone, {"call": ["*"], "offer": ["*"], "inspect": ["*"], "publish": ["*"], "register": ["*"]}
            )
            self.broker.access.replace(AccessRules(everyone, [rule]))

    def settle(self) -> None:
        """Delivers all messages, and the answers to them, until there are no more."""
        while sum(line.pump() for line in self.lines) or self._stored():
            pass
        self.lines = [line for line in self.lines if line.open]
        self.broker.end_turn()
        self.broker.check_invariants()

    def _stored(self) -> bool:
        """Writes what the store has collected; False if there is nothing."""
        self.broker.end_turn()
        if self.store is None or not self.store.ops:
            return False
        self.store.sync()
        self.broker.end_turn()
        return True

    def wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Time passes, and everything due on the way, at the broker's and at the peers', happens when it is due."""
        broker = self.broker
        end = broker.now + seconds
        self.settle()
        while not until() and broker.now < end:
            dues = [end, *(line.beat_at for line in self.lines if line.beat_at and not line.frozen)]
            due = broker.next_deadline()
            if due is not None:
                dues.append(due)
            broker.now = max(broker.now, min(dues))
            for line in self.lines:
                line.beat()
            broker.run_timers()
            self.settle()


class Line(LinkHandler):
    """One connection: the peer's end, its link, and the broker's link."""

    def __init__(self, world: World, end: ClientEnd | WorkerEnd, role: Role = SHARED) -> None:
        self.world = world
        self.end = end
        self.open = True
        self.frozen = False  # the peer's program hangs: it neither hears nor speaks
        self.events: list[Event] = []
        self.messages = 0  # that came, understood or not
        self.beat_at = world.broker.now + end.interval if isinstance(end, WorkerEnd) else 0.0
        self.hub = hub = Hub()
        detector = Detector(world.broker, role)
        self.near: Link  # the peer's
        self.far: Link  # the broker's
        if end.wire == "http":
            self.near = HttpPeerLink(hub, self, "broker")
            self.far = HttpLink(hub, "tcp://127.0.0.1:1")
            HttpSession(world.broker, self.far, world.site)
        elif end.wire == "sp":
            self.near = SpLink(hub, self, "broker", listener=False)
            self.far = SpLink(hub, detector, "tcp://127.0.0.1:1")
        else:
            side = "worker" if isinstance(end, WorkerEnd) else "client"
            curve = world.curve if side in CURVE_SIDES else None
            kind, name = end.socket_type, end.identity
            near = curve.client(socket_type=kind, identity=name) if curve is not None else Null(False, kind, name)
            select = (lambda name: curve.server()) if curve is not None else None
            bounds = EXTENDED if side in EXTENDED_SIDES else DEFAULT_BOUNDS
            self.near = ZmtpLink(hub, self, "broker", socket_type=kind, bounds=bounds, mechanism=near)
            ours = Bounds(extensions=BROKER_EXTENSIONS.encode())
            self.far = ZmtpLink(hub, detector, "tcp://127.0.0.1:1", bounds=ours, select=select)
            if CURVE_SIDES and curve is None:
                self.far.principal = "anonymous"
        if end.wire != "http":
            detector.attach(self.far)
        world.lines.append(self)
        world.settle()

    def pump(self) -> bool:
        """Carries bytes both ways; False if there were none."""
        if not self.open:
            return False
        moved = False
        if not self.frozen:
            if self.near.open:
                self._hand_over()
            moved = carry(self.near, self.far)
            moved = carry(self.far, self.near) or moved
            while self.hub.resumed:
                self.hub.resumed.pop().receive(b"")
                moved = True
        if self.far.closing is not None and not self.far.out:
            self.close()
        return moved

    def _hand_over(self) -> None:
        for message in self.end.out:
            if isinstance(self.near, SpLink):
                self.near.send_message(message[0], b"", message[1])
            elif self.end.wire == "http":
                self.near.send(message[0])
            else:
                self.near.send(frames.join(message))
        self.end.out.clear()

    def on_open(self) -> None:
        self.end.agreed = self.near.extensions

    def on_message(self, data: bytes, start: int, end: int) -> None:
        if self.end.wire == "http":
            # pieces of responses, of which only some are a message to the peer's program
            found = self.end.receive([part.encode("latin-1") for part in json.loads(data[start:end])])
            self.messages += len(found)
            self.events += found
            return
        self.messages += 1
        message = sp.split(data, start, end) if self.end.wire == "sp" else frames.split(data[start:end])
        self.events += self.end.receive(message)

    def beat(self) -> None:
        if self.open and not self.frozen and isinstance(self.end, WorkerEnd) and self.world.broker.now >= self.beat_at:
            self.beat_at = self.world.broker.now + self.end.interval
            self.end.beat()

    def close(self) -> None:
        if self.open:
            self.open = False
            self.near.lost()
            self.far.lost()


def carry(source: Link, target: Link) -> bool:
    data = b"".join(bytes(piece) for piece in source.take())
    for start in range(0, len(data), PIECE):
        target.receive(data[start : start + PIECE])
    return bool(data)


class Client:
    """A client: it sends requests and records replies."""

    def __init__(self, world: World, make: Callable[[], ClientEnd]) -> None:
        self.world = world
        self.end = make()
        self.line = Line(world, self.end)

    def ask(self, service: bytes, body: Frames, timeout: float = 0.0) -> None:
        self.end.request(1, service, body, timeout)
        self.world.settle()

    @property
    def heard(self) -> list[tuple[str, Frames]]:
        """("partial" or "final", body) and ("failure", [code]) in order; ("late", []) for each message that the client's end dropped."""
        found: list[tuple[str, Frames]] = [("late", [])] * (self.line.messages - len(self.line.events))
        for event in self.line.events:
            if isinstance(event, Reply):
                found.append(("final" if event.final else "partial", event.body))
            elif isinstance(event, Failure):
                found.append(("failure", [event.code.encode()]))
        return found

    @property
    def finals(self) -> list[Frames]:
        return [body for kind, body in self.heard if kind == "final"]

    def wait_for_final(self) -> Frames:
        """An undecided libmdp worker's first reply counts only after its next beat: a few seconds are allowed."""
        self.world.wait(5.0, lambda: bool(self.finals))
        (body,) = self.finals
        return body


class Worker:
    """A worker: it registers, and opens a new connection after DISCONNECT or if its protocol offers nothing else."""

    def __init__(self, world: World, make: Callable[[], WorkerEnd], service: bytes = b"work") -> None:
        self.world = world
        self.make = make
        self.service = service
        self.jobs: list[Delivery] = []
        self.open()

    def open(self) -> None:
        self.end = self.make()
        if CREDIT == 1 and "worker" not in EXTENDED_SIDES:
            self.end.open([self.service])
            self.line = Line(self.world, self.end)
        else:
            self.line = Line(self.world, self.end)
            self.end.open([self.service], CREDIT)
            self.world.settle()

    def look(self) -> None:
        """Reads what has arrived."""
        events, self.line.events = self.line.events, []
        for event in events:
            if isinstance(event, Delivery):
                self.jobs.append(event)
            elif isinstance(event, Dismissed):
                self.line.close()
                self.open()
        if not self.line.open:
            self.open()

    def take(self) -> Delivery:
        """The one job that it has been given since the last."""
        self.look()
        (job,) = self.jobs
        self.jobs = []
        return job

    def idle(self) -> bool:
        self.look()
        return not self.jobs

    def final(self, delivery: Delivery, body: Frames) -> None:
        self.end.final(delivery, body)
        self.world.settle()

    def fail(self, delivery: Delivery, code: str, text: str) -> None:
        again = self.end.fail(delivery, code, text)
        self.world.settle()
        if again:
            self.line.close()
            self.open()
        self.look()
