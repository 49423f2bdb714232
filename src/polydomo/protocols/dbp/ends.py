"""DBP for clients that look up services and for services that register.

DBP has no requests, so this is not a ``ClientEnd``, but it is used like one: calls append messages to ``out``, and ``receive`` turns a
message into events. ``now`` is seconds since the epoch.

On a REQ socket, each call has one answer. On a DEALER, a service also receives the broker's heartbeats and answers them.
"""

import json
from dataclasses import dataclass, field

from polydomo.errors import ProtocolViolation
from polydomo.protocols.dbp import session as dbp
from polydomo.protocols.dbp.info import ERROR

Frames = list[bytes]


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


Event = Info | Approved | Denied | Acknowledged | Disconnected


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

    def info(self, names: list[str], now: float) -> None:
        """Asks for these services, or for all."""
        self._say(dbp.INFO_REQUEST, ",".join(names).encode(), now)

    def register(self, info: dict[str, object], now: float) -> None:
        """``info`` has at least a ``name``; ``heartbeat`` is the proposed heartbeat interval in seconds."""
        self.name = str(info.get("name", ""))
        self._say(dbp.REGISTRATION, json.dumps(info).encode(), now)

    def update(self, changes: dict[str, object], now: float) -> None:
        self._say(dbp.UPDATE, json.dumps({"name": self.name, **changes}).encode(), now)

    def beat(self, now: float) -> None:
        self._say(dbp.HEARTBEAT, self.name.encode(), now)

    def disconnect(self, now: float) -> None:
        """Leaves; there is no answer."""
        self._say(dbp.DISCONNECT, self.name.encode(), now)
        self.left = True

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
            self._say(dbp.ACKNOWLEDGE, b"", now)
            return []
        if command in (dbp.DISCONNECT, dbp.EXIT_SEEN):
            self.left = True
            return [Disconnected()]
        raise ProtocolViolation("an unknown command, or one that a broker does not send")

    def _say(self, command: bytes, body: bytes, now: float) -> None:
        if not self.left:
            self.out.append([b"", command, dbp.write_time(now, self.time), body])


def _object(body: bytes) -> dict[str, object]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ProtocolViolation("a body that is not a JSON object")
    return document
