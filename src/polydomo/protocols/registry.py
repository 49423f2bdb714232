"""The protocols: one entry each, for both sides of the wire.

The broker learns a peer's protocol from its socket type and its first message (``protocols.detect``). Clients and
workers choose theirs by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from polydomo.errors import SettingError
from polydomo.model.records import Session
from polydomo.model.tuning import Tuning
from polydomo.protocols.bridge import session as bridge
from polydomo.protocols.bridge.session import BridgeSession
from polydomo.protocols.dbp import session as dbp
from polydomo.protocols.dbp.ends import DbpWorkerEnd
from polydomo.protocols.dbp.session import DbpSession
from polydomo.protocols.dcp.ends import DcpClientEnd, DcpWorkerEnd
from polydomo.protocols.dcp.session import DcpSession
from polydomo.protocols.emqp import headers as emqp_headers
from polydomo.protocols.emqp.ends import EmqpClientEnd, EmqpWorkerEnd
from polydomo.protocols.emqp.session import EmqpSession
from polydomo.protocols.ends import ClientEnd, WorkerEnd
from polydomo.protocols.mdp.ends import Mdp1ClientEnd, Mdp1WorkerEnd, Mdp2ClientEnd, Mdp2WorkerEnd
from polydomo.protocols.mdp.mdp1 import Mdp1Session
from polydomo.protocols.mdp.mdp2 import Mdp2Session
from polydomo.protocols.mdx.ends import MdxClientEnd, MdxWorkerEnd
from polydomo.protocols.mdx.session import MdxSession
from polydomo.protocols.memo.ends import MemoClientEnd, MemoWorkerEnd
from polydomo.protocols.memo.session import MemoSession
from polydomo.protocols.pubsub.session import PublisherSession, SubscriberSession
from polydomo.wire.frames import DELIMITER, frame, head

DEFAULT = "mdx"  # it has ids, so one connection carries many requests, and partials


def _no_client(**options: object) -> ClientEnd:
    raise SettingError("protocol: this one has no client library")


def _no_worker(**options: object) -> WorkerEnd:
    raise SettingError("protocol: this one has no worker library")


@dataclass(frozen=True)
class Protocol:
    """A protocol. One that clients and workers do not choose by name (bridges, topics) has no ends; DBP has workers only."""

    name: str
    title: str  # for people
    session: Callable[..., Session]  # the broker's side
    beginnings: "tuple[bytes, ...]" = ()  # how its first message begins on a ROUTER socket
    wire: str = "zmtp"  # on "sp" there is one protocol
    socket_type: bytes = b"ROUTER"  # ours towards its peers; XPUB and XSUB have one protocol each
    client: Callable[..., ClientEnd] = _no_client
    worker: Callable[..., WorkerEnd] = _no_worker
    several: bool = False  # one worker connection may offer several services
    alone: bool = False  # a service has one worker connection, which runs one call at a time
    headers: "Callable[[Mapping[str, str | float | None]], bytes] | None" = None  # writes those of a request


def _after_empty(name: bytes) -> bytes:
    return DELIMITER + frame(name, True)


PROTOCOLS = (
    Protocol("mdx", "MDX/0.1", MdxSession, client=MdxClientEnd, worker=MdxWorkerEnd),  # its headers are settings
    Protocol(
        "mdp1",
        "MDP/0.1",
        Mdp1Session,
        (_after_empty(b"MDPC01"), _after_empty(b"MDPW01")),
        client=Mdp1ClientEnd,
        worker=Mdp1WorkerEnd,
    ),
    Protocol(
        "mdp2",
        "MDP/0.2",
        Mdp2Session,
        (frame(b"MDPC02", True), frame(b"MDPW02", True), _after_empty(b"MDPC02"), _after_empty(b"MDPW02")),
        client=Mdp2ClientEnd,
        worker=Mdp2WorkerEnd,
    ),
    Protocol(
        "dcp",
        "DCP v1",
        DcpSession,
        (DELIMITER + head(5, True) + b"DGBX",),  # and a version of one byte
        client=DcpClientEnd,
        worker=DcpWorkerEnd,
        several=True,
    ),
    Protocol("memo", "memo01", MemoSession, wire="sp", client=MemoClientEnd, worker=MemoWorkerEnd, several=True),
    Protocol(
        "emqp",
        "eMQP/1.0",
        EmqpSession,
        (_after_empty(b"eMQP/1.0"),),
        client=EmqpClientEnd,
        worker=EmqpWorkerEnd,
        several=True,
        headers=emqp_headers.write,
    ),
    Protocol(
        "dbp",
        "DBP",
        DbpSession,
        tuple(_after_empty(command) for command in sorted(dbp.COMMANDS)),
        worker=DbpWorkerEnd,
        alone=True,
    ),
    Protocol("bridge", "the bridge between brokers", BridgeSession, (bridge.BEGINNING,)),
    Protocol("sub", "subscribers", SubscriberSession, socket_type=b"XPUB"),
    Protocol("pub", "publishers", PublisherSession, socket_type=b"XSUB"),
)

ALIASES = {
    "mdp/0.1": "mdp1",
    "mdp01": "mdp1",
    "mdp/0.2": "mdp2",
    "mdp02": "mdp2",
    "mdp": "mdp2",
    "mdx/0.1": "mdx",
    "mdx01": "mdx",
    "dagbox": "dcp",
    "dcp/1": "dcp",
    "dcp1": "dcp",
    "memo01": "memo",
    "memodb": "memo",
    "emqp/1.0": "emqp",
    "eventmq": "emqp",
}

_BY_NAME = {protocol.name: protocol for protocol in PROTOCOLS}
_CHOSEN = {protocol.name: protocol for protocol in PROTOCOLS if protocol.client is not _no_client}
_OFFERED = {protocol.name: protocol for protocol in PROTOCOLS if protocol.worker is not _no_worker}


def find(protocol: str) -> Protocol:
    """The protocol of that name for a client or worker, in any case and under any of its usual spellings. Raises SettingError.

    >>> find("MDP/0.2").name
    'mdp2'
    """
    return _find(protocol, _CHOSEN)


def find_worker(protocol: str) -> Protocol:
    """The same for a worker, which has one protocol more.

    >>> find_worker("DBP").name
    'dbp'
    """
    return _find(protocol, _OFFERED)


def _find(protocol: str, among: Mapping[str, Protocol]) -> Protocol:
    name = protocol.strip().lower()
    found = among.get(ALIASES.get(name, name))
    if found is None:
        raise SettingError(f"protocol: {protocol!r} is not one of {', '.join(among)}")
    return found


def names() -> list[str]:
    """The protocols that clients and workers can choose."""
    return list(_CHOSEN)


def client_end(protocol: str, **options: object) -> ClientEnd:
    """A client of ``protocol`` for one new connection."""
    return find(protocol).client(**options)


def worker_end(protocol: str, **options: object) -> WorkerEnd:
    """A worker of ``protocol`` for one new connection."""
    return find_worker(protocol).worker(**options)


def for_socket(wire: str, our_type: bytes) -> Protocol | None:
    """The one protocol of a wire and socket type; None on a ROUTER socket, where the first message decides."""
    for protocol in PROTOCOLS:
        if protocol.wire == wire and not protocol.beginnings and protocol.name != "mdx":
            if wire != "zmtp" or protocol.socket_type == our_type:
                return protocol
    return None


def for_message(tuning: Tuning, data: bytes, start: int) -> Protocol | None:
    """The protocol of a first message. MDX is tried first: its headers are settings and may be anything."""
    for header in (tuning.mdx_client_header, tuning.mdx_worker_header):
        if data.startswith(frame(header, True), start):
            return _BY_NAME["mdx"]
    for protocol in PROTOCOLS:
        if protocol.beginnings and data.startswith(protocol.beginnings, start):
            return protocol
    return None
