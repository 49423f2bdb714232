"""DBP over UDP: the beacon for discovery, and heartbeats.

The beacon is the text ``SHALOM <router port>``, sent from the broker's address. A heartbeat has the frames of the corresponding message,
``"" command time name``, packed into one datagram as ZMTP short frames. The name is the service's, or, in the broker's broadcast, the
number of its port, because several brokers may share a network.

A datagram can be forged, so it is only a hint: the broker counts a heartbeat only for a service that registered from the sender's address,
and a DISCONNECT only makes it probe the service over the connection.
"""

from typing import NamedTuple

from polydomo.limits import DBP_LATE, MAX_DATAGRAM
from polydomo.protocols.dbp import session as dbp
from polydomo.protocols.dbp.info import wrong_name
from polydomo.wire import frames

SHALOM = b"SHALOM "


def beacon(port: int) -> bytes:
    """
    >>> beacon(5246)
    b'SHALOM 5246'
    """
    return SHALOM + str(port).encode()


def read_beacon(data: bytes) -> int:
    """The port in a beacon; 0 if it is not a beacon.

    >>> read_beacon(b"SHALOM 5246"), read_beacon(b"SHALOM 99999"), read_beacon(b"SHALOM  1"), read_beacon(b"hello")
    (5246, 0, 0, 0)
    """
    number = data[len(SHALOM) :]
    if not data.startswith(SHALOM) or not number.isdigit() or len(number) > 5 or number.startswith(b"0"):
        return 0
    port = int(number)
    return port if port <= 65535 else 0


class Datagram(NamedTuple):
    """A heartbeat or a DISCONNECT."""

    command: bytes  # HEARTBEAT or DISCONNECT
    name: str
    time: str  # the sender's time format


def write(command: bytes, name: str, now: float, time: str = dbp.FLOAT) -> bytes:
    """``now`` is seconds since the epoch. All frames are short, because a name has at most 255 bytes."""
    return frames.join([b"", command, dbp.write_time(now, time), name.encode()])


def read(data: bytes) -> Datagram | None:
    """Parses a datagram. Returns None unless it is exactly one heartbeat or DISCONNECT in short frames."""
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
    """Splits short frames. Returns None unless all but the last have MORE and nothing follows the last."""
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
    """Chooses the transport of a service's next heartbeat: UDP while the broker's broadcast arrives, otherwise the connection.

    Pure: ``now`` is any clock. The service sends its first heartbeats over UDP, which makes the broker broadcast.
    """

    def __init__(self, name: str, interval: float, router_port: int, now: float, time: str = dbp.FLOAT) -> None:
        self.name = name
        self.interval = interval
        self.router_port = router_port
        self.time = time
        self.heard: float | None = None  # time of the broker's last broadcast, or of our first heartbeat before that
        self.next = now  # time of the next heartbeat

    def receive(self, now: float, data: bytes) -> bool:
        """Handles a datagram from the broker's address. Returns True if it was our broker's heartbeat."""
        datagram = read(data)
        if datagram is None or datagram.command != dbp.HEARTBEAT or datagram.name != str(self.router_port):
            return False
        self.heard = now
        return True

    def by_datagram(self, now: float) -> bool:
        """ "In the event of a missing beat, heartbeats will switch over to reliable TCP connections": and back, with the next one heard."""
        return self.heard is None or now < self.heard + self.interval * DBP_LATE

    def beat(self, now: float, epoch: float) -> bytes | None:
        """Called at ``next``. Returns the datagram to send, or None if the heartbeat must go over the connection."""
        self.next = now + self.interval
        if self.heard is None:
            self.heard = now
        return write(dbp.HEARTBEAT, self.name, epoch, self.time) if self.by_datagram(now) else None

    def goodbye(self, epoch: float) -> bytes:
        """A hint that the service leaves. Only a DISCONNECT over the connection removes it."""
        return write(dbp.DISCONNECT, self.name, epoch, self.time)
