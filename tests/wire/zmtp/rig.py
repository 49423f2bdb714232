"""Two ends of a ZMTP connection in memory, and peers of older versions written down byte by byte."""

from polydomo.wire.close_reason import CloseCause, CloseReason
from polydomo.wire.link import DEFAULT_BOUNDS, Bounds, Hub, LinkHandler
from polydomo.wire.security.mechanism import command, properties
from polydomo.wire.zmtp.handshake import SIGNATURE
from polydomo.wire.zmtp.link import ZmtpLink

GREETING_31 = SIGNATURE + b"\x03\x01NULL" + bytes(16) + bytes(32)
GREETING_30 = SIGNATURE + b"\x03\x00NULL" + bytes(16) + bytes(32)


def ready(socket_type: bytes = b"DEALER", identity: bytes | None = b"") -> bytes:
    pairs = [(b"Socket-Type", socket_type)]
    if identity is not None:
        pairs.append((b"Identity", identity))
    return command(b"READY", properties(pairs))


def greeting_2(number: int = 5, identity: bytes = b"") -> bytes:
    """All that a ZMTP 2.0 peer says before its first message."""
    return SIGNATURE + b"\x01" + bytes((number, 0, len(identity))) + identity


class Log(LinkHandler):
    """Records everything that a link passes on. ``then`` is called after each message, to pause or close in the middle."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.messages: list[bytes] = []
        self.link: ZmtpLink | None = None
        self.pause_after = -1
        self.close_after = -1

    def on_open(self) -> None:
        self.events.append("open")

    def on_message(self, data: bytes, start: int, end: int) -> None:
        self.messages.append(bytes(data[start:end]))
        self.events.append(self.messages[-1])
        self._act(len(self.messages))

    def on_command(self, name: bytes, data: bytes) -> None:
        self.events.append((name, data))
        self._act(len(self.events) - 1)

    def _act(self, count: int) -> None:
        if self.link is not None and count == self.pause_after:
            self.link.pause(1)
        if self.link is not None and count == self.close_after:
            self.link.close(CloseCause.OTHER, "enough")

    def on_close(self, reason: CloseReason) -> None:
        self.events.append(f"closed: {reason}")


def listener(bounds: Bounds = DEFAULT_BOUNDS) -> tuple[ZmtpLink, Log]:
    log = Log()
    log.link = link = ZmtpLink(Hub(), log, "peer", bounds=bounds)
    return link, log


def dialer(socket_type: bytes = b"DEALER", bounds: Bounds = DEFAULT_BOUNDS) -> tuple[ZmtpLink, Log]:
    log = Log()
    log.link = link = ZmtpLink(Hub(), log, "broker", socket_type=socket_type, bounds=bounds)
    return link, log


def in_traffic(bounds: Bounds = DEFAULT_BOUNDS, socket_type: bytes = b"DEALER") -> tuple[ZmtpLink, Log]:
    """A listener whose peer has done its handshake."""
    link, log = listener(bounds)
    link.receive(GREETING_31 + ready(socket_type))
    assert link.open
    taken(link)
    return link, log


def taken(link: ZmtpLink) -> bytes:
    """What the link has sent since the last call."""
    data = b"".join(bytes(piece) for piece in link.out)
    link.out.clear()
    link.hub.dirty.clear()
    return data


def converse(one: ZmtpLink, other: ZmtpLink, step: int = 0) -> None:
    """Carries bytes both ways until both are silent; ``step`` at a time, or all there is."""
    while True:
        there, back = taken(one), taken(other)
        if not there and not back:
            return
        for data, link in ((there, other), (back, one)):
            size = step or len(data) or 1
            for i in range(0, len(data), size):
                link.receive(data[i : i + size])
