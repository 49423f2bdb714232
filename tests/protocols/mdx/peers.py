"""MDX peers of the broker's tests, frame by frame."""

from polydomo.protocols.mdx.session import MdxSession
from tests.protocols.mdx_dcp_rig import Frames, Peer, Rig

C, W = b"MDXC01", b"MDXW01"
DISCONNECT = [[b"MDPW02", b"\x06"]]
PONG = [[W, b"PONG"]]


def worker_of(rig: Rig, service: bytes = b"echo") -> Peer:
    peer = rig.peer(MdxSession)
    peer.say(W, b"\x01", service)
    assert peer.heard() == []  # "There is no response to a READY."
    return peer


def client_of(rig: Rig) -> Peer:
    return rig.peer(MdxSession)


def job_of(worker: Peer) -> Frames:
    """The one REQUEST a worker has just got."""
    (message,) = worker.heard()
    assert message[:2] == [W, b"\x02"] and message[2] and message[3] == b"" and message[4]
    return message


def failure(client: Peer, identity: bytes = b"id") -> str:
    ((*envelope, empty, mark, code, text),) = client.heard()
    assert envelope == [C, b"\x03", b"echo", identity]
    assert [empty, mark] == [b"", b"polydomo-failure"]
    assert text
    return code.decode()


def worker_of_busy(rig: Rig) -> Peer:
    worker = rig.peer(MdxSession)
    worker.say(W, b"\x01", b"echo")
    job_of(worker)
    return worker
