"""memo01, the MemoDB protocol: the format of its messages. ``session`` is the broker's side, ``ends`` the peers'.

"Each message consists of a CBOR-encoded header, followed by an optional payload consisting of arbitrary data." It travels on
SP as the body of a request or reply.
"""

from typing import Final

from polydomo.errors import ProtocolViolation
from polydomo.limits import BIG_BODY, MAX_SERVICES_PER_WORKER, MEMO_MAX_ID
from polydomo.wire import cbor, frames
from polydomo.wire.frames import Body

VERSION = "memo01"
READY: Final = 1
JOB: Final = 2
RESULT: Final = 3
HEARTBEAT: Final = 4
DISCONNECT: Final = 5
NAMES = {READY: "READY", JOB: "JOB", RESULT: "RESULT", HEARTBEAT: "HEARTBEAT", DISCONNECT: "DISCONNECT"}

ID_SIZE = 16  # of the worker ids that we assign

# The headers of the hot path up to the first byte that varies. h'' is the id "for all messages to and from clients".
_NAME = cbor.text(VERSION.encode())
CLIENT_RESULT = b"\x83" + _NAME + b"\x03\x40"
WORKER_JOB = b"\x85" + _NAME + b"\x02"  # then the worker's id
WORKER_RESULT = b"\x83" + _NAME + b"\x03" + cbor.head(cbor.BYTES, ID_SIZE)  # then an id of ours


def ready(services: "list[bytes]") -> bytes:
    """Encodes READY. Its services are sorted by length, then bytes, because MemoDB's broker accepts no other order."""
    names = b"".join([cbor.text(name) for name in sorted(set(services), key=lambda name: (len(name), name))])
    return b"\x84" + _NAME + b"\x01\x40" + cbor.head(cbor.ARRAY, len(set(services))) + names


def job(worker: bytes, service: bytes, milliseconds: int) -> bytes:
    return WORKER_JOB + cbor.byte_string(worker) + cbor.text(service) + cbor.uint(milliseconds)


def result(worker: bytes, disconnecting: bool = False) -> bytes:
    if disconnecting:
        return b"\x84" + _NAME + b"\x03" + cbor.byte_string(worker) + b"\xf5"
    return b"\x83" + _NAME + b"\x03" + cbor.byte_string(worker)


def heartbeat(worker: bytes) -> bytes:
    return b"\x83" + _NAME + b"\x04" + cbor.byte_string(worker)


def disconnect(worker: bytes) -> bytes:
    return b"\x83" + _NAME + b"\x05" + cbor.byte_string(worker)


class MemoMessage:
    """A parsed message header; ``payload`` is the position where the payload begins."""

    service = b""  # JOB
    timeout = 0  # JOB, milliseconds
    disconnecting = False  # RESULT

    def __init__(self, kind: int, worker: bytes, payload: int) -> None:
        self.kind = kind
        self.worker = worker  # the id field
        self.payload = payload
        self.services: list[bytes] = []  # READY


def parse(data: bytes, start: int, end: int) -> MemoMessage:
    """Parses the message at ``data[start:end]``. Raises ProtocolViolation if it is invalid."""
    header, payload = cbor.read_header(data, start, end)
    if len(header) < 3 or header[0] != VERSION:
        raise ProtocolViolation("not a memo01 header")
    kind, worker = header[1], header[2]
    if isinstance(kind, bool) or not isinstance(kind, int) or kind not in NAMES:
        raise ProtocolViolation("memo01 message of an unknown type")
    if not isinstance(worker, bytes) or len(worker) > MEMO_MAX_ID:
        raise ProtocolViolation(f"{NAMES[kind]} whose id is not a byte string of at most {MEMO_MAX_ID} bytes")
    message = MemoMessage(kind, worker, payload)
    if kind == READY:
        message.services = _services(header)
    elif kind == JOB:
        message.service, message.timeout = _service_and_timeout(header)
    elif kind == RESULT and len(header) == 4:
        flag = header[3]
        if not isinstance(flag, bool):
            raise ProtocolViolation("RESULT whose disconnecting flag is not a bool")
        message.disconnecting = flag
    elif len(header) != 3:
        raise ProtocolViolation(f"{NAMES[kind]} with {len(header)} fields")
    if kind != JOB and kind != RESULT and payload != end:
        raise ProtocolViolation(f"{NAMES[kind]} with a payload")  # "No payload."
    return message


def _services(header: "list[cbor.Item]") -> "list[bytes]":
    if len(header) != 4:
        raise ProtocolViolation(f"READY with {len(header)} fields")
    if header[2] != b"":
        raise ProtocolViolation("READY with an id: it has been assigned none yet")
    listed = header[3]
    if not isinstance(listed, list) or len(listed) > MAX_SERVICES_PER_WORKER:
        raise ProtocolViolation(f"READY without a list of at most {MAX_SERVICES_PER_WORKER} services")
    services: list[bytes] = []
    for name in listed:
        if not isinstance(name, str) or not name:
            raise ProtocolViolation("READY with a service that is not a non-empty string")
        services.append(name.encode())
    if len(set(services)) != len(services):
        raise ProtocolViolation("READY that lists a service twice")
    return services


def _service_and_timeout(header: "list[cbor.Item]") -> "tuple[bytes, int]":
    if len(header) != 5:
        raise ProtocolViolation(f"JOB with {len(header)} fields")
    service, timeout = header[3], header[4]
    if not isinstance(service, str) or not service:
        raise ProtocolViolation("JOB whose service is not a non-empty string")
    if isinstance(timeout, bool) or not isinstance(timeout, int):
        raise ProtocolViolation("JOB whose timeout is not an unsigned integer")
    return service.encode(), timeout


_SHORT = [frames.head(size, False) for size in range(256)]


def to_body(data: bytes, start: int, end: int) -> bytes:
    """A payload as a body, which is always one frame."""
    size = end - start
    if size < 256:
        return _SHORT[size] + data[start:end]
    if size < BIG_BODY:
        return frames.head(size, False) + data[start:end]
    return frames.head(size, False) + memoryview(data)[start:end]  # copied once, not twice


def to_payload(body: Body) -> Body:
    """A body as a payload: "a multi-frame body going there is joined"."""
    if not body:
        return b""
    flags = body[0]
    if not flags:  # one short frame, by far the most common
        return body[2:]
    if flags & frames.MORE:
        return frames.flat(body)
    start, end, _ = frames.bounds(body, 0)
    if isinstance(body, bytes):
        return frames.cut(body, start, end)
    return body[start:end]
