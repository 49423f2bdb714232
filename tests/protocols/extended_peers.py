"""Clients and workers of MDX, DCP and eMQP that use the extensions, and their connections to a broker, without I/O."""

from polydomo.model.session import ProtocolSession
from polydomo.protocols.dcp.ends import DcpClientEnd, DcpWorkerEnd
from polydomo.protocols.dcp.session import DcpSession
from polydomo.protocols.emqp.ends import EmqpClientEnd, EmqpWorkerEnd
from polydomo.protocols.emqp.session import EmqpSession
from polydomo.protocols.ends import ANNOUNCED, ClientEnd, Delivery, WorkerEnd
from polydomo.protocols.mdx.ends import MdxClientEnd, MdxWorkerEnd
from polydomo.protocols.mdx.session import MdxSession
from polydomo.wire.zmtp.extensions import Extensions, parse
from tests.protocols.mdx_dcp_rig import Peer, Rig

BROKER = Extensions(
    credit=100,
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
    max_message=5_000_000,
)
SESSIONS: dict[str, type[ProtocolSession]] = {"mdx": MdxSession, "dcp": DcpSession, "emqp": EmqpSession}
CLIENTS: dict[str, type[ClientEnd]] = {"mdx": MdxClientEnd, "dcp": DcpClientEnd, "emqp": EmqpClientEnd}
WORKERS: dict[str, type[WorkerEnd]] = {"mdx": MdxWorkerEnd, "dcp": DcpWorkerEnd, "emqp": EmqpWorkerEnd}


def peer_of(rig: Rig, kind: type[ProtocolSession], extensions: Extensions | None = None) -> Peer:
    peer = rig.peer(kind)
    peer.link.extensions = extensions if extensions is not None else parse(ANNOUNCED)
    if isinstance(peer.session, MdxSession):
        peer.session.extended = peer.link.extensions
    return peer


def client_of(rig: Rig, protocol: str) -> "tuple[ClientEnd, Peer]":
    end = CLIENTS[protocol]()
    end.agreed = BROKER
    return end, peer_of(rig, SESSIONS[protocol])


def worker_of(rig: Rig, protocol: str, slots: int = 1, prefetch: int = 0) -> "tuple[WorkerEnd, Peer]":
    end = WORKERS[protocol]()
    end.agreed = BROKER
    peer = peer_of(rig, SESSIONS[protocol])
    end.open([b"echo"], slots, prefetch)
    for message in end.out:
        peer.say(*message)
    end.out.clear()
    return end, peer


def jobs_of(end: WorkerEnd, peer: Peer) -> list[Delivery]:
    """Records everything it gets, and what it asks for."""
    found: list[Delivery] = []
    while True:
        events = peer.exchange(end)
        found += [event for event in events if isinstance(event, Delivery)]
        if not events and not end.out:
            return found
