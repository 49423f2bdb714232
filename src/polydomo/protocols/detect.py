"""Which protocol a peer speaks: told by its socket type and its first message, never by the port."""

from polydomo.errors import ProtocolViolation
from polydomo.protocols import bridge, dbp
from polydomo.protocols.bridge import BridgeSession
from polydomo.protocols.broker_api import BrokerApi
from polydomo.protocols.dbp import DbpSession
from polydomo.protocols.dcp import DcpSession
from polydomo.protocols.emqp import EmqpSession
from polydomo.protocols.mdp1 import Mdp1Session
from polydomo.protocols.mdp2 import Mdp2Session
from polydomo.protocols.mdx import MdxSession
from polydomo.protocols.memo_session import MemoSession
from polydomo.protocols.pubsub import PublisherSession, SubscriberSession
from polydomo.protocols.roles import SHARED, Role
from polydomo.protocols.session import Session
from polydomo.wire.frames import head, join, split
from polydomo.wire.link import Handler, Link
from polydomo.wire.sp import SpLink
from polydomo.wire.zmtp import ZmtpLink

EMPTY = b"\x01\x00"


BEGINNINGS: "list[tuple[bytes, type[Session]]]" = [
    (EMPTY + b"\x01\x06MDPC01", Mdp1Session),
    (EMPTY + b"\x01\x06MDPW01", Mdp1Session),
    (b"\x01\x06MDPC02", Mdp2Session),
    (b"\x01\x06MDPW02", Mdp2Session),
    (EMPTY + b"\x01\x06MDPC02", Mdp2Session),
    (EMPTY + b"\x01\x06MDPW02", Mdp2Session),
    (EMPTY + b"\x01\x05DGBX", DcpSession),
    (bridge.BEGINNING, BridgeSession),
    (EMPTY + b"\x01\x08eMQP/1.0", EmqpSession),
    *((EMPTY + head(len(command), True) + command, DbpSession) for command in sorted(dbp.COMMANDS)),
]


def sessions(broker: BrokerApi) -> "list[tuple[bytes, type[Session]]]":
    """How a message of each protocol begins. MDX comes first: its headers are settings, and may be anything."""
    mdx = {broker.tuning.mdx_client_header, broker.tuning.mdx_worker_header}
    return [*((head(len(name), True) + name, MdxSession) for name in sorted(mdx)), *BEGINNINGS]


class Detector(Handler):
    """The handler of a ZMTP or SP connection until its protocol is known."""

    def __init__(self, broker: BrokerApi, role: Role = SHARED) -> None:
        self.broker = broker
        self.role = role  # of the listener
        self.link: Link | None = None

    def attach(self, link: Link) -> None:
        self.link = link

    def on_open(self) -> None:
        link = self.link
        assert link is not None
        if isinstance(link, SpLink):
            self._become(MemoSession(self.broker, link))
        elif isinstance(link, ZmtpLink) and link.our_type == b"XPUB":
            self._become(SubscriberSession(self.broker, link))
        elif isinstance(link, ZmtpLink) and link.our_type == b"XSUB":
            publisher = PublisherSession(self.broker, link)
            if self._become(publisher):
                publisher.on_open()

    def on_message(self, data: bytes, start: int, end: int) -> None:
        link = self.link
        assert link is not None
        for beginning, kind in sessions(self.broker):
            if data.startswith(beginning, start):
                session = kind(self.broker, link)
                if self._become(session):
                    session.on_message(data, start, end)
                return
        frames = split(data[start:end])
        plain = join(frames)
        if plain != data[start:end]:  # frames in long form where the short one does
            self.on_message(plain, 0, len(plain))
            return
        first = [frame[:12] for frame in frames[:3]]
        link.violation(ProtocolViolation(f"no protocol begins with the frames {first!r}"))

    def _become(self, session: Session) -> bool:
        """Hands the connection over; False if its listener is not for this protocol."""
        link = self.link
        role = self.role
        assert link is not None
        if not role.allows_protocol(session.protocol):
            link.violation(ProtocolViolation(f"{session.protocol} is not taken at {role.name}"))
            return False
        if role is not SHARED:
            session.role = role
            session.may_request = role.allows_requests
        link.handler = session
        self.broker.session_opened(session)
        return True
