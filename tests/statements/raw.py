"""Peers that send and receive frames with pyzmq and nothing else, as a reader of a document would write them."""

from types import TracebackType
from typing import Self

import zmq

WAIT = 60_000  # milliseconds
PATIENT: dict[str, object] = {
    "beat": 60
}  # no heartbeat of the broker comes between, and no peer is lost, if the machine pauses


class RawPeer:
    """A socket of libzmq, connected to a broker."""

    def __init__(self, url: str, kind: int = zmq.DEALER, identity: bytes = b"") -> None:
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
        self.socket.setsockopt(zmq.LINGER, 0)
        if identity:
            self.socket.setsockopt(zmq.IDENTITY, identity)
        self.socket.connect(url)

    def say(self, *frames: bytes) -> None:
        self.socket.send_multipart(frames)

    def hear(self) -> list[bytes]:
        """The next message."""
        assert self.socket.poll(WAIT), "no message"
        return self.socket.recv_multipart()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()
