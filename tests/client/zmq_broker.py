"""A broker's socket as libzmq makes it, for tests that play the broker by hand."""

import time
from types import TracebackType
from typing import Self

import zmq

WAIT = 60_000  # ms: far more than anything here takes


class Router:
    """A ROUTER on a port of its own. ``expect`` gives what came: who from, and the frames."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.port = 0
        self.bind()

    def bind(self) -> None:
        """Opens, or opens again at the same address."""
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.router_mandatory = True
        self._bind()
        endpoint = self.socket.last_endpoint
        assert isinstance(endpoint, bytes)
        self.url = endpoint.rstrip(b"\0").decode()
        self.port = int(self.url.rpartition(":")[2])

    def _bind(self) -> None:
        limit = time.monotonic() + WAIT / 1000
        while True:
            try:
                self.socket.bind(f"tcp://127.0.0.1:{self.port or '*'}")
                return
            except zmq.ZMQError:
                # libzmq's own thread closes the socket before this one, in its own time
                if time.monotonic() > limit:
                    raise
                time.sleep(0.005)

    def unbind(self) -> None:
        """Breaks every connection."""
        self.socket.close(0)

    def expect(self, *but: bytes) -> tuple[bytes, list[bytes]]:
        """The next message, other than those that consist of the command ``but`` after the header (heartbeats)."""
        while True:
            assert self.socket.poll(WAIT), "nothing came"
            peer, *frames = self.socket.recv_multipart()
            if not but or frames[-1] not in but:
                return peer, frames

    def send(self, peer: bytes, *frames: bytes) -> None:
        self.socket.send_multipart([peer, *frames])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.unbind()
        self.context.term()
