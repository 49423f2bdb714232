"""Detects the protocol of a peer from its socket type and its first message, never from the port."""

from collections.abc import Callable

from polydomo.errors import ProtocolViolation
from polydomo.model.broker_api import BrokerApi
from polydomo.model.listener_roles import SHARED, Role
from polydomo.model.records import Session
from polydomo.native import mypyc_attr
from polydomo.protocols import registry
from polydomo.protocols.registry import Protocol
from polydomo.wire.frames import join, split
from polydomo.wire.link import Link, LinkHandler
from polydomo.wire.zmtp.link import ZmtpLink

SCHEDULES = (b"SCHEDULE", b"UNSCHEDULE")

Divert = Callable[[Protocol, bytes], bool]  # True: the connection is taken elsewhere, with its first message


def belongs_to_first(protocol: Protocol, message: bytes) -> bool:
    """Whether a connection that begins with this message needs process 0."""
    if protocol.name == "dbp":
        return True
    if protocol.name == "emqp":
        frames = split(message)
        return len(frames) > 2 and (frames[2] in SCHEDULES or (frames[2] == b"INFORM" and b"scheduler" in frames[3:]))
    return False


@mypyc_attr(allow_interpreted_subclasses=True)
class Detector(LinkHandler):
    """The handler of a connection until its protocol is known."""

    def __init__(self, broker: BrokerApi, role: Role = SHARED, divert: Divert | None = None) -> None:
        self.broker = broker
        self.role = role  # role of the listener
        self.divert = divert
        self.link: Link | None = None

    def attach(self, link: Link) -> None:
        self.link = link

    def on_open(self) -> None:
        link = self.link
        assert link is not None
        protocol = registry.for_socket(link.wire, link.our_type if isinstance(link, ZmtpLink) else b"")
        if protocol is not None and self._become(protocol):
            link.handler.on_open()

    def on_message(self, data: bytes, start: int, end: int) -> None:
        link = self.link
        assert link is not None
        protocol = registry.for_message(self.broker.tuning, data, start)
        if protocol is not None:
            if self.divert is not None and self.divert(protocol, data[start:end]):
                return
            if self._become(protocol):
                link.handler.on_message(data, start, end)
            return
        frames = split(data[start:end])
        plain = join(frames)
        if plain != data[start:end]:  # frames in the long form where the short form would suffice
            self.on_message(plain, 0, len(plain))
            return
        first = [frame[:12] for frame in frames[:3]]
        link.violation(ProtocolViolation(f"unknown protocol: the first message has the frames {first!r}"))

    def make_session(self, protocol: Protocol, link: Link) -> Session:
        return protocol.session(self.broker, link)

    def handler_of(self, session: Session) -> LinkHandler:
        """What receives the link's messages from now on. A subclass may return a handler that observes them and passes them on."""
        return session

    def _become(self, protocol: Protocol) -> bool:
        """Passes the connection to a session. Returns False if the listener does not serve this protocol."""
        link = self.link
        role = self.role
        assert link is not None
        if not role.allows_protocol(protocol.name):
            link.violation(ProtocolViolation(f"the listener {role.name} does not accept {protocol.name}"))
            return False
        session = self.make_session(protocol, link)
        if role is not SHARED:
            session.role = role
            session.may_request = role.allows_requests
        link.handler = self.handler_of(session)
        self.broker.session_opened(session)
        return True
