"""DBP for clients that look up services, for services that register, and for services that take requests.

A DBP client sends no requests to services, so ``DbpEnd`` is not a ``ClientEnd``, but it is used like one: calls append messages to
``out``, and ``receive`` turns a message into events. ``now`` is seconds since the epoch. ``DbpWorkerEnd`` is a worker like those of the
other protocols.

On a REQ socket, each call has one answer. On a DEALER, a service also receives the broker's heartbeats and answers them.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from polydomo.errors import ProtocolViolation
from polydomo.limits import DBP_BEAT, DBP_PATIENCE, MAX_BODY_FRAMES
from polydomo.protocols import ends
from polydomo.protocols.dbp import session as dbp
from polydomo.protocols.dbp.info import ERROR, FUNCTION
from polydomo.protocols.ends import Delivery, Dismissed, Frames, HeldParts, WorkerEnd


@dataclass
class Info:
    """The requested services by name; ``error`` is the broker's warning about unknown names."""

    services: dict[str, object]
    error: str = ""


@dataclass
class Approved:
    """The registration was approved, with the broker's changes: ``heartbeat`` is the agreed interval."""

    changes: dict[str, object] = field(default_factory=dict)


@dataclass
class Denied:
    reason: str


@dataclass
class Acknowledged:
    """Acknowledges an update or a heartbeat; an update with the agreed ``heartbeat`` interval."""

    changes: dict[str, object] = field(default_factory=dict)


@dataclass
class Disconnected:
    """ "it MUST close its socket, and reconnect to the broker on a new socket" """


@dataclass
class Requested:
    """A request to the service, which answers it with ``reply`` or ``refuse``, before the next one comes."""

    body: Frames


Event = Info | Approved | Denied | Acknowledged | Disconnected | Requested


class DbpEnd:
    """A client, a service, or both, on one connection."""

    protocol = "dbp"
    wire = "zmtp"
    socket_type = b"DEALER"

    def __init__(self, time: str = dbp.FLOAT) -> None:
        self.out: list[Frames] = []
        self.time = time
        self.name = ""
        self.left = False  # DISCONNECT was sent or received: "it must send no further commands to the broker"

    def info(self, names: list[str], now: float, functions: list[str] | None = None) -> None:
        """Asks for these services, for those with these functions, or for all."""
        asked = [",".join(names).encode()] if names or not functions else []
        asked += [(FUNCTION + function).encode() for function in functions or ()]
        self._say(dbp.INFO_REQUEST, asked, now)

    def register(self, info: dict[str, object], now: float) -> None:
        """``info`` has at least a ``name``; ``heartbeat`` is the proposed heartbeat interval in seconds."""
        self.name = str(info.get("name", ""))
        self._say(dbp.REGISTRATION, [json.dumps(info).encode()], now)

    def update(self, changes: dict[str, object], now: float) -> None:
        self._say(dbp.UPDATE, [json.dumps({"name": self.name, **changes}).encode()], now)

    def beat(self, now: float) -> None:
        self._say(dbp.HEARTBEAT, [self.name.encode()], now)

    def disconnect(self, now: float) -> None:
        """Leaves; there is no answer."""
        self._say(dbp.DISCONNECT, [self.name.encode()], now)
        self.left = True

    def reply(self, body: Frames, now: float) -> None:
        """Answers the last request."""
        self._say(dbp.INFO_REPLY, body or [b""], now)

    def refuse(self, code: str, reason: str, now: float) -> None:
        """Answers the last request: it failed."""
        self._say(dbp.DENIED, [code.encode(), reason.encode("utf-8", "replace")], now)

    def receive(self, message: Frames, now: float) -> list[Event]:
        """Raises ProtocolViolation for what DBP does not allow from a broker."""
        if self.left:
            return []
        if len(message) < 3 or message[0] or not dbp.kind_of_time(message[2]):
            raise ProtocolViolation("not a DBP message")
        command = message[1]
        body = b"".join(message[3:])
        if command == dbp.INFO_REPLY:
            services = _object(body)
            error = services.pop(ERROR, "")
            return [Info(services, str(error))]
        if command == dbp.APPROVED:
            return [Approved(_object(body) if body else {})]
        if command in (dbp.DENIED, dbp.DENIED_SEEN):
            return [Denied(body.decode(errors="replace"))]
        if command == dbp.ACKNOWLEDGE:
            return [Acknowledged(_object(body) if body else {})]
        if command == dbp.HEARTBEAT:
            self._say(dbp.ACKNOWLEDGE, [b""], now)
            return []
        if command == dbp.INFO_REQUEST:
            return [Requested(message[3:])]
        if command in (dbp.DISCONNECT, dbp.EXIT_SEEN):
            self.left = True
            return [Disconnected()]
        raise ProtocolViolation("an unknown command, or one that a broker does not send")

    def _say(self, command: bytes, body: Frames, now: float) -> None:
        if not self.left:
            self.out.append(self.message(command, body, now))

    def message(self, command: bytes, body: Frames, now: float) -> Frames:
        return [b"", command, dbp.write_time(now, self.time), *body]


def _no_clock() -> float:
    return 0.0


class DbpWorkerEnd(WorkerEnd):
    """A service that takes requests over the connection on which it registers: one service, and one request at a time.

    ``information`` is what the catalog shows about it besides its name. ``clock`` returns seconds since the epoch, which every message
    carries.
    """

    protocol = "dbp"
    interval = DBP_BEAT
    patience = DBP_PATIENCE
    fails = True

    def __init__(self, information: "dict[str, object] | None" = None, clock: Callable[[], float] = _no_clock) -> None:
        self.dbp = DbpEnd()
        self.out = self.dbp.out
        self.information = dict(information or {})
        self.clock = clock
        self.service = b""
        self.delivery: Delivery | None = None
        self.parts = HeldParts("DBP", MAX_BODY_FRAMES)

    def open(self, services: list[bytes], slots: int = 1, prefetch: int = 0) -> None:
        (self.service,) = services
        given = self.information.get("interfaces")
        interfaces: dict[str, object] = {**(given if isinstance(given, dict) else {}), "requests": True}
        info = {"heartbeat": self.interval, **self.information, "name": self.service.decode(), "interfaces": interfaces}
        self.dbp.register(info, self.clock())

    def receive(self, message: Frames) -> list[ends.Event]:
        found: list[ends.Event] = []
        for event in self.dbp.receive(message, self.clock()):
            if isinstance(event, Requested):
                self.delivery = Delivery(self.service, event.body)
                found.append(self.delivery)
            elif isinstance(event, Disconnected):
                found.append(Dismissed())
            elif isinstance(event, Denied):
                found.append(Dismissed(event.reason))
        return found

    def beat(self) -> None:
        self.dbp.beat(self.clock())

    def heartbeat(self) -> Frames | None:
        return None if self.dbp.left else self.dbp.message(dbp.HEARTBEAT, [self.service], self.clock())

    def partial(self, delivery: Delivery, body: Frames) -> None:
        self.parts.add(body)

    def final(self, delivery: Delivery, body: Frames) -> None:
        if delivery is self.delivery:
            self.delivery = None
            self.dbp.reply(self.parts.join(body), self.clock())

    def fail(self, delivery: Delivery, code: str, text: str) -> bool:
        if delivery is self.delivery:
            self.delivery = None
            self.parts = HeldParts("DBP", MAX_BODY_FRAMES)
            self.dbp.refuse(code, text, self.clock())
        return False

    def close(self) -> None:
        self.dbp.disconnect(self.clock())


def _object(body: bytes) -> dict[str, object]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ProtocolViolation("a body that is not a JSON object")
    return document
