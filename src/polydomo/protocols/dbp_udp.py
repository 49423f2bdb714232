"""DBP without a connection: the beacon by which a broker is found, and heartbeats by UDP.

The beacon is text, ``SHALOM <router port>``, and the sender's address is the broker's. A heartbeat has the frames of the message it stands
for, ``"" command time name``, packed into one datagram as ZMTP short frames. The name is a service's, or, in the broker's broadcast, the
number of its router port, since several brokers may share a network.

A datagram can be forged by anybody, so it is a hint and never an order: the broker counts a beat only for a service that registered from
the sender's address, and a DISCONNECT only makes it ask over the connection.
"""

from typing import NamedTuple

from polydomo.limits import DBP_LATE, MAX_DATAGRAM
from polydomo.protocols import dbp
from polydomo.protocols.dbp_info import wrong_name
from polydomo.wire import frames

SHALOM = b"SHALOM "


def beacon(port: int) -> bytes:
    """
    >>> beacon(5246)
    b'SHALOM 5246'
    """
    return SHALOM + str(port).encode()


def read_beacon(data: bytes) -> int:
    """The router port that a beacon names; 0 if it is no beacon.

    >>> read_beacon(b"SHALOM 5246"), read_beacon(b"SHALOM 99999"), read_beacon(b"SHALOM  1"), read_beacon(b"hello")
    (5246, 0, 0, 0)
    """
    number = data[len(SHALOM) :]
    if not data.startswith(SHALOM) or not number.isdigit() or len(number) > 5 or number.startswith(b"0"):
        return 0
    port = int(number)
    return port if port <= 65535 else 0


class Datagram(NamedTuple):
    """A heartbeat or a goodbye."""

    command: bytes  # HEARTBEAT or DISCONNECT
    name: str
    time: str  # which kind of time the sender uses


def write(command: bytes, name: str, now: float, time: str = dbp.FLOAT) -> bytes:
    """``now`` is seconds since the epoch. Every frame is a short one: a name has at most 255 bytes."""
    return frames.join([b"", command, dbp.write_time(now, time), name.encode()])


def read(data: bytes) -> Datagram | None:
    """None if the datagram is anything else than one whole heartbeat or goodbye in short frames."""
    if len(data) > MAX_DATAGRAM:
        return None
    content = _short_frames(data)
    if content is None or not 3 <= len(content) <= 4 or content[0]:
        return None
    command = dbp.DISCONNECT if content[1] == dbp.EXIT_SEEN else content[1]
    time = dbp.kind_of_time(content[2])
    if command not in (dbp.HEARTBEAT, dbp.DISCONNECT) or not time or len(content) < 4:
        return None
    try:
        name = content[3].decode()
    except UnicodeDecodeError:
        return None
    return None if wrong_name(name) else Datagram(command, name, time)


def _short_frames(data: bytes) -> "list[bytes] | None":
    """None unless these are whole short frames, each but the last with MORE, and nothing after it."""
    found: list[bytes] = []
    position = 0
    while position + 2 <= len(data):
        flags = data[position]
        end = position + 2 + data[position + 1]
        if flags not in (0, frames.MORE) or end > len(data):
            return None
        found.append(data[position + 2 : end])
        position = end
        if not flags:
            return found if position == len(data) else None
    return None


class ServiceBeats:
    """Which way a service's next heartbeat goes: by UDP while the broker's broadcast is heard, over the connection once it was missed.

    Pure: ``now`` is any clock. The service sends its first beats by UDP, and the broker answers that by broadcasting.
    """

    def __init__(self, name: str, interval: float, router_port: int, now: float, time: str = dbp.FLOAT) -> None:
        self.name = name
        self.interval = interval
        self.router_port = router_port
        self.time = time
        self.heard: float | None = (
            None  # when the broker's last broadcast came, or, until there was one, when the first beat went out
        )
        self.next = now  # when to beat next

    def receive(self, now: float, data: bytes) -> bool:
        """A datagram from the broker's address. True if it was our broker's beat."""
        datagram = read(data)
        if datagram is None or datagram.command != dbp.HEARTBEAT or datagram.name != str(self.router_port):
            return False
        self.heard = now
        return True

    def by_datagram(self, now: float) -> bool:
        """ "In the event of a missing beat, heartbeats will switch over to reliable TCP connections": and back, with the next one heard."""
        return self.heard is None or now < self.heard + self.interval * DBP_LATE

    def beat(self, now: float, epoch: float) -> bytes | None:
        """At ``next``: the datagram to send, or None if the beat is to go over the connection."""
        self.next = now + self.interval
        if self.heard is None:
            self.heard = now
        return write(dbp.HEARTBEAT, self.name, epoch, self.time) if self.by_datagram(now) else None

    def goodbye(self, epoch: float) -> bytes:
        """A hint that the service leaves; the word that counts is DISCONNECT over the connection."""
        return write(dbp.DISCONNECT, self.name, epoch, self.time)
