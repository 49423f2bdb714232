"""The messages between a worker and the processes of its pool: each is a length of 8 bytes and MessagePack.

The worker sends ``RunCall`` and, after each ``ReplyPart``, ``Go``. The process answers with parts, reports of progress, and one of
``Final``, ``Onward`` and ``Failed``. To ``RunCalls`` it answers with ``Ended``, or with ``Failed`` for the whole batch. It sends a
``Record`` whenever its program logs something.
"""

import socket

import msgspec

from polydomo.protocols.ends import Delivery
from polydomo.worker.call import Call

LENGTH = 8
Plain = str | int | float | bool | None


class RunCall(msgspec.Struct, tag="call", array_like=True):
    function: bytes  # the name under which the function was added
    service: str
    body: list[bytes]
    timeout: float
    elapsed: float  # seconds since the request arrived
    headers: dict[str, str]
    request: str
    metadata: list[bytes] | None  # None: it cannot be forwarded
    job: str
    key: str

    @classmethod
    def of(cls, function: bytes, call: Call) -> "RunCall":
        elapsed = call.timeout - call.remaining if call.timeout else 0.0
        metadata = call.metadata if call.chains else None
        return cls(
            function, call.service, list(call), call.timeout, elapsed, call.headers,
            call.request, metadata, call.job, call.key,
        )  # fmt: skip

    def call(self, now: float) -> Call:
        delivery = Delivery(
            self.service.encode(),
            self.body,
            timeout=self.timeout,
            headers=self.headers,
            attempt=self.request.encode(),
            metadata=self.metadata,
            job=self.job,
            key=self.key,
        )
        return Call(delivery, now - self.elapsed)


class RunCalls(msgspec.Struct, tag="calls", array_like=True):
    """A batch for one function."""

    function: bytes
    calls: list[RunCall]


class Go(msgspec.Struct, tag="go", array_like=True):
    """The last part was sent; the function may continue."""


class ReplyPart(msgspec.Struct, tag="part", array_like=True):
    body: list[bytes]


class CallReport(msgspec.Struct, tag="progress", array_like=True):
    """How far a call is."""

    call: int  # its place in the batch
    share: float
    text: str


class Final(msgspec.Struct, tag="final", array_like=True):
    body: list[bytes]
    memory: int  # bytes that the process uses after the call


class Onward(msgspec.Struct, tag="onward", array_like=True):
    """The call goes on to another service."""

    service: bytes
    body: list[bytes]
    metadata: list[bytes] | None
    memory: int


class Failed(msgspec.Struct, tag="failed", array_like=True):
    code: str
    text: str
    traceback: str  # empty if the function reported the failure itself
    memory: int


class Ended(msgspec.Struct, tag="ended", array_like=True):
    """The outcomes of a batch."""

    outcomes: list["Final | Onward | Failed"]
    memory: int


class Record(msgspec.Struct, tag="record", array_like=True):
    """A record that the program logged in the process; the fields are those of ``logging.LogRecord``."""

    fields: dict[str, Plain]


ToProcess = RunCall | RunCalls | Go
ToWorker = ReplyPart | CallReport | Final | Onward | Failed | Ended | Record
Outcome = Final | Onward | Failed

_to_process: msgspec.msgpack.Decoder[ToProcess] = msgspec.msgpack.Decoder(ToProcess)
_to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)


def write(message: ToProcess | ToWorker) -> bytes:
    content = msgspec.msgpack.encode(message)
    return len(content).to_bytes(LENGTH, "big") + content


def read_from_process(content: bytes) -> ToWorker:
    return _to_worker.decode(content)


def receive(sock: socket.socket) -> ToProcess | None:
    """The next message, for a process of the pool; None once the worker has closed the connection."""
    head = _exactly(sock, LENGTH)
    content = _exactly(sock, int.from_bytes(head, "big")) if head else b""
    return _to_process.decode(content) if content else None


def _exactly(sock: socket.socket, size: int) -> bytes:
    """``size`` bytes; none if the connection was closed."""
    content = bytearray(size)
    view, filled = memoryview(content), 0
    while filled < size:
        count = sock.recv_into(view[filled:])
        if not count:
            return b""
        filled += count
    return bytes(content)
