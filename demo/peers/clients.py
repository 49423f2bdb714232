"""Clients of every protocol, with one face: those of polydomo's own library, of pyzmq, and of NNG."""

import json
import struct
import time
from types import TracebackType
from typing import Any, Protocol, Self

import cbor2
import pynng
import zmq

import polydomo
from demo.peers.dialects import Dialect

PATIENCE = 60.0  # seconds for a call that should be answered at once


class Client(Protocol):
    label: str

    def call(self, service: str, text: str) -> str:
        """The reply, parts joined. Raises if there is none."""

    def close(self) -> None: ...


class LibraryClient:
    """``polydomo.Client`` over one of its protocols."""

    def __init__(self, url: str, protocol: str, label: str) -> None:
        self.label = label
        self.client = polydomo.Client(url, protocol, timeout=PATIENCE)

    def call(self, service: str, text: str) -> str:
        return self.client.call(service, text).text

    def close(self) -> None:
        self.client.close()


class MdpClient:
    """A pyzmq socket, and the frames of a dialect."""

    def __init__(self, url: str, dialect: Dialect) -> None:
        self.label = dialect.label
        self.dialect = dialect
        self.req = dialect.name == "rfc18-req"
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.REQ if self.req else zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(url)

    def send(self, service: str, text: str) -> None:
        dialect = self.dialect
        frames = [
            b"MDPC" + dialect.version,
            *([dialect.request] if dialect.request else []),
            service.encode(),
            text.encode(),
        ]
        self.socket.send_multipart(frames if self.req else [*dialect.lead, *frames])

    def receive(self, patience: float = PATIENCE) -> tuple[bool, str]:
        """The next part: whether it is the final one, and its text. Raises TimeoutError."""
        if not self.socket.poll(int(patience * 1000)):
            raise TimeoutError(f"no reply within {patience:g} s")
        frames = self.socket.recv_multipart()
        final, body = self.dialect.to_client([b"", *frames] if self.req else frames)
        return final, b"".join(body).decode()

    def call(self, service: str, text: str) -> str:
        self.send(service, text)
        parts = []
        final = False
        while not final:
            final, part = self.receive()
            parts.append(part)
        return "".join(parts)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class NngClient:
    """memo01 as its document has it: an NNG REQ socket, a CBOR header, and the payload after it."""

    label = "memo01, by NNG"

    def __init__(self, url: str) -> None:
        self.socket = pynng.Req0(dial=url, recv_timeout=int(PATIENCE * 1000), send_timeout=int(PATIENCE * 1000))

    def call(self, service: str, text: str) -> str:
        self.socket.send(cbor2.dumps(["memo01", 2, b"", service, int(PATIENCE * 1000)]) + text.encode())
        reply: bytes = self.socket.recv()
        header = cbor2.dumps(["memo01", 3, b""])
        if not reply.startswith(header):
            raise ValueError(f"not a RESULT: {reply[:16].hex(' ')}")
        return reply[len(header) :].decode()

    def close(self) -> None:
        self.socket.close()


class DcpPeer:
    """A client of DCP that shows its metadata; ``register`` makes it a worker."""

    HEAD = (b"", b"DGBX\x01")

    def __init__(self, url: str) -> None:
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(url)

    def request(self, service: str, metadata: list[bytes], text: str) -> None:
        self.socket.send_multipart([*self.HEAD, b"\x04", service.encode(), b"", *metadata, b"", text.encode()])

    def reply(self) -> tuple[list[bytes], str]:
        """Metadata and data of the next reply."""
        frames = self._next(b"\x05")
        divider = frames.index(b"", 5)
        return frames[5:divider], b"".join(frames[divider + 1 :]).decode()

    def register(self, service: str) -> None:
        self.socket.send_multipart([*self.HEAD, b"\x01", service.encode()])
        self._next(b"\x01")

    def job(self) -> tuple[bytes, list[bytes], str]:
        """Client address, metadata and data of the next request."""
        frames = self._next(b"\x04")
        divider = frames.index(b"", 6)
        return frames[4], frames[6:divider], b"".join(frames[divider + 1 :]).decode()

    def pass_on(self, service: str, address: bytes, metadata: list[bytes], text: str) -> None:
        """The held request, to another service, on its client's behalf."""
        self.socket.send_multipart([*self.HEAD, b"\x04", service.encode(), address, b"", *metadata, b"", text.encode()])

    def _next(self, kind: bytes) -> list[bytes]:
        if not self.socket.poll(int(PATIENCE * 1000)):
            raise TimeoutError(f"nothing heard within {PATIENCE:g} s")
        frames = self.socket.recv_multipart()
        if frames[:3] != [*self.HEAD, kind]:
            raise ValueError(f"not a DCP message of type {kind!r}: {frames[:3]}")
        return frames

    def close(self) -> None:
        self.socket.close()


class CatalogPeer:
    """DBP through a REQ socket, as its published client has it: the time is a 4-byte float."""

    def __init__(self, url: str) -> None:
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.REQ)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(url)

    def ask(self, command: bytes, body: bytes = b"") -> tuple[bytes, Any]:
        """The answer's command, and its body as JSON where it has one."""
        self.socket.send_multipart([command, struct.pack("=f", time.time()), body])
        if not self.socket.poll(int(PATIENCE * 1000)):
            raise TimeoutError(f"no answer within {PATIENCE:g} s")
        answer, _, content = self.socket.recv_multipart()
        return answer, json.loads(content) if content else None

    def close(self) -> None:
        self.socket.close()
