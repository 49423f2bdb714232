"""DCP peers of the broker's tests, part by part."""

from polydomo.protocols.dcp.session import DcpSession
from tests.protocols.mdx_dcp_rig import Frames, Peer, Rig

H = [b"", b"DGBX\x01"]
REGISTER, PING, PONG, REQUEST, REPLY, RECONNECT = (bytes((n,)) for n in range(1, 7))


def client_of(rig: Rig) -> Peer:
    return rig.peer(DcpSession)


def worker_of(rig: Rig, *services: bytes) -> Peer:
    peer = rig.peer(DcpSession)
    for service in services or (b"echo",):
        peer.say(*H, REGISTER, service)
        assert peer.heard()[0] == [*H, REGISTER, service]
    return peer


def ask(client: Peer, body: Frames, metadata: Frames, service: bytes = b"echo") -> None:
    client.say(*H, REQUEST, service, b"", *metadata, b"", *body)


def jobs_of(worker: Peer) -> list[Frames]:
    return [message for message in worker.heard() if message[2] == REQUEST]


def job_of(worker: Peer) -> Frames:
    (message,) = worker.heard()
    assert message[:3] == [*H, REQUEST] and message[4] and message[5] == b""
    return message


def answer(worker: Peer, job: Frames, *body: bytes) -> None:
    """A reply that copies address and metadata, as a worker must."""
    end = job.index(b"", 6)
    worker.say(*H, REPLY, job[4], b"", *job[6:end], b"", *body)


def parts(reply: Frames) -> "tuple[Frames, Frames]":
    """Metadata and data of a reply to a client."""
    assert reply[:3] == [*H, REPLY] and reply[3] and reply[4] == b""
    end = reply.index(b"", 5)
    return reply[5:end], reply[end + 1 :]
