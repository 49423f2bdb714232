"""memo01 for clients and workers.

We choose the request ids of each connection: they count up, as in NNG. A worker connection has several *slots*; each is a separate worker
for the broker, with its own id and request, like the document's contexts.
"""

from polydomo.errors import NoSuchService, ProtocolViolation
from polydomo.limits import BUSY_TIMEOUT, MEMO_IDLE, MEMO_SLOTS
from polydomo.model.outcomes import ABANDON, ABANDON_MARK
from polydomo.model.request_options import PLAIN, RequestOptions
from polydomo.protocols.ends import Delivery, Dismissed, Event, Frames, HeldParts, NumberedClientEnd, Reply, WorkerEnd
from polydomo.protocols.memo import messages

FIRST_ID = 0x80000000  # "a request id with the top bit set"


class RequestIds:
    """Ids that no other open request of the connection has: 2**31 of them, in order."""

    def __init__(self) -> None:
        self._next = 0

    def take(self) -> bytes:
        rid = FIRST_ID | self._next
        self._next = (self._next + 1) & 0x7FFFFFFF
        return rid.to_bytes(4, "big")


def _take_apart(message: Frames) -> "tuple[bytes, messages.MemoMessage, bytes]":
    """The request id, the header and the payload of a broker's message."""
    if len(message) != 2:
        raise ProtocolViolation("an SP message is a request id and a body")
    rid, body = message
    header = messages.parse(body, 0, len(body))
    return rid, header, body[header.payload :]


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return bool(name)


class MemoClientEnd(NumberedClientEnd):
    """Any number of clients in the document's sense: each JOB has its own request id."""

    protocol = "memo"
    wire = "sp"
    socket_type = b"REQ"

    def __init__(self) -> None:
        super().__init__()
        self._ids = RequestIds()

    def request(
        self,
        key: int,
        service: bytes,
        body: Frames,
        timeout: float = 0.0,
        headers: bytes = b"",
        options: RequestOptions = PLAIN,
    ) -> None:
        if not _is_text(service):
            raise NoSuchService(f"memo01 cannot express the service name {service!r}: a name is UTF-8 and not empty")
        rid = self._ids.take()
        self.track(key, rid)
        milliseconds = max(1, int((timeout or BUSY_TIMEOUT) * 1000 + 0.5))
        self.out.append([rid, b"".join([messages.job(b"", service, milliseconds), *body])])

    @property
    def cancels(self) -> bool:
        return True

    def cancellation(self, identity: bytes, expired: bool) -> Frames:
        """memo01 has no message for cancellation: a built-in service takes the id. Other brokers do not offer it and drop the JOB."""
        body = identity.hex().encode() + (ABANDON_MARK + b"timeout" if expired else b"")
        return [self._ids.take(), messages.job(b"", ABANDON, 1000) + body]

    def receive(self, message: Frames) -> list[Event]:
        rid, header, payload = _take_apart(message)
        if header.kind != messages.RESULT or header.worker:
            raise ProtocolViolation(f"{messages.NAMES[header.kind]} to a client that waits for a RESULT")
        key = self.settle(rid)
        return [] if key is None else [Reply(key, [payload])]


class Slot:
    """One worker in the document's sense, from its READY to its DISCONNECT."""

    def __init__(self, again: bool) -> None:
        self.id = b""  # until the first answer to READY
        self.again = again  # its READY followed a DISCONNECT, and nothing else has arrived since
        self.delivery: Delivery | None = None
        self.failed = False  # it has reported to the broker that it abandoned its job
        self.parts = HeldParts("memo01")


class MemoWorkerEnd(WorkerEnd):
    """Up to ``slots`` workers on one connection.

    memo01 has no message for failures. A slot whose job failed asks for the next one with HEARTBEAT. The broker, which expects a RESULT, is
    "out of sync with the worker", answers DISCONNECT and requeues the job; the slot then registers again. The jobs of the other slots
    continue.
    """

    protocol = "memo"
    wire = "sp"
    socket_type = b"REQ"
    slots = MEMO_SLOTS
    interval = MEMO_IDLE  # the broker asks for heartbeats, so there is nothing to send in between
    patience = 0.0  # while all slots are busy, the broker may send nothing for minutes

    def __init__(self) -> None:
        super().__init__()
        self._ids = RequestIds()
        self._polls: dict[bytes, Slot] = {}  # request id -> the slot that waits on it
        self._slots: list[Slot] = []
        self._ready = b""
        self._leaving = False

    def open(self, services: list[bytes], slots: int = 1, prefetch: int = 0) -> None:
        for name in services:
            if not _is_text(name):
                raise ValueError(f"memo01 cannot express the service name {name!r}: a name is UTF-8 and not empty")
        self._ready = messages.ready(services)
        # The broker cannot see which slots share a worker's turns, and would prefer one that only prefetches to an idle worker.
        self.grow(max(1, min(slots, self.slots)))

    def grow(self, count: int) -> None:
        for _ in range(count):
            self._register(again=False)

    def receive(self, message: Frames) -> list[Event]:
        rid, header, payload = _take_apart(message)
        slot = self._polls.pop(rid, None)
        if slot is None or self._leaving:
            return []
        if header.kind == messages.DISCONNECT:
            return self._disconnected(slot)
        if slot.id and header.worker != slot.id:
            raise ProtocolViolation("the broker changed the id of a worker")
        slot.id = header.worker
        slot.again = False
        if header.kind == messages.HEARTBEAT:
            # "A worker that receives a HEARTBEAT should reply immediately with another HEARTBEAT"
            self._say(slot, messages.heartbeat(slot.id))
            return []
        if header.kind != messages.JOB:
            raise ProtocolViolation(f"{messages.NAMES[header.kind]} to a worker that waits for a JOB")
        slot.delivery = Delivery(header.service, [payload], slot, header.timeout / 1000)
        return [slot.delivery]

    def _disconnected(self, slot: Slot) -> list[Event]:
        """ "the worker should disconnect, reset its state, and connect again with a new READY request" """
        self._slots.remove(slot)
        alone = all(other.again for other in self._slots)
        if not slot.failed and (slot.again or alone):
            return [Dismissed()]  # the broker does not know any of our workers, or rejects them
        self._register(again=not slot.failed)
        return []

    def partial(self, delivery: Delivery, body: Frames) -> None:
        slot = self._holder(delivery)
        if slot is not None:
            slot.parts.add(body)

    def final(self, delivery: Delivery, body: Frames) -> None:
        slot = self._holder(delivery)
        if slot is not None:
            header = messages.result(slot.id, self._leaving)
            self._say(slot, b"".join([header, *slot.parts.join(body)]))
            self._free(slot)

    def fail(self, delivery: Delivery, code: str, text: str) -> bool:
        slot = self._holder(delivery)
        if slot is not None:
            slot.failed = True
            self._say(slot, messages.heartbeat(slot.id))
            self._free(slot)
        return False

    def drain(self) -> None:
        self.close()

    def close(self) -> None:
        """ "If the optional bool is present and true, the worker cannot handle any more jobs": the RESULTs from now on say so. An idle
        worker has no message to leave with; it closes the connection."""
        self._leaving = True

    def _register(self, again: bool) -> None:
        slot = Slot(again)
        self._slots.append(slot)
        self._say(slot, self._ready)

    def _say(self, slot: Slot, body: bytes) -> None:
        rid = self._ids.take()
        self._polls[rid] = slot
        self.out.append([rid, body])

    def _holder(self, delivery: Delivery) -> Slot | None:
        slot = delivery.ref
        assert isinstance(slot, Slot)
        return slot if slot.delivery is delivery else None

    def _free(self, slot: Slot) -> None:
        slot.delivery = None
        slot.parts = HeldParts("memo01")
