"""DCP v1 for clients and workers: see ``session.py`` for the message types, docs/protocols/dcp.md for the protocol.

The DagBox broker supports only a type of 4 bytes: use ``type_size=4`` for it. Both sizes are accepted.
"""

from polydomo.errors import CallFailed, ProtocolViolation
from polydomo.limits import DCP_BEAT, DCP_MAX_HELD, DCP_PATIENCE, MAX_BODY_FRAMES, MDX_MAX_CREDIT
from polydomo.model.jobs.facts import read_mark
from polydomo.model.jobs.messages import PERMANENT_CODES
from polydomo.model.outcomes import FAILED
from polydomo.model.request_options import PLAIN, RequestOptions
from polydomo.protocols.dcp.session import (
    CANCEL,
    CREDIT,
    EXPIRED,
    FAIL,
    GIVE_BACK,
    KEPT,
    PING,
    PONG,
    PROTOCOL,
    RECONNECT,
    REGISTER,
    RELEASED,
    REPLY,
    REQUEST,
    REVOKE,
    TYPE_SIZES,
    WITHIN,
)
from polydomo.protocols.ends import (
    Cancelled,
    Delivery,
    Event,
    Frames,
    HeldParts,
    NumberedClientEnd,
    Reply,
    Revoked,
    WorkerEnd,
)
from polydomo.wire.zmtp.extensions import MAX_DIGITS


def kind_of(message: Frames) -> int:
    """Checks the header of a message and returns its type."""
    if len(message) < 3 or message[0] or message[1] != PROTOCOL or len(message[2]) not in TYPE_SIZES:
        raise ProtocolViolation("not a DCP v1 message")
    return int.from_bytes(message[2], "little")


def parts_of(message: Frames, address: int) -> "tuple[Frames, Frames]":
    """Metadata and data of a request or a reply whose client address is the frame ``address``."""
    if len(message) < address + 3 or not message[address] or message[address + 1]:
        raise ProtocolViolation("no client address and delimiter")
    try:
        delimiter = message.index(b"", address + 2)
    except ValueError:
        raise ProtocolViolation("no metadata delimiter") from None
    return message[address + 2 : delimiter], message[delimiter + 1 :]


class DcpClientEnd(NumberedClientEnd):
    """ "the client SHOULD use the metadata parts to track which reply corresponds to which request": one part, our id."""

    protocol = "dcp"

    def __init__(self, type_size: int = 1) -> None:
        super().__init__()
        self.type_size = type_size
        self.last = 0  # ids count up, so that a late reply is never taken for the reply to another request

    def request(
        self,
        key: int,
        service: bytes,
        body: Frames,
        timeout: float = 0.0,
        headers: bytes = b"",
        options: RequestOptions = PLAIN,
    ) -> None:
        self.last += 1
        identity = self.last.to_bytes(8, "big")
        self.track(key, identity)
        self.out.append([b"", PROTOCOL, REQUEST.to_bytes(self.type_size, "little"), service, b"", identity, b"", *body])

    def cancellation(self, identity: bytes, expired: bool) -> Frames:
        kind = CANCEL.to_bytes(self.type_size, "little")
        return [b"", PROTOCOL, kind, identity, *([EXPIRED] if expired else [])]

    def receive(self, message: Frames) -> list[Event]:
        if kind_of(message) != REPLY:
            raise ProtocolViolation("not a DCP reply to a client")
        metadata, data = parts_of(message, 3)
        if len(metadata) != 1:
            raise ProtocolViolation("a reply without the metadata of its request")
        key = self.settle(metadata[0])
        return [] if key is None else [Reply(key, data)]


class Held:
    """The data that a worker keeps of a request."""

    def __init__(self, address: bytes, metadata: Frames) -> None:
        self.address = address
        self.metadata = metadata
        self.parts = HeldParts("DCP", MAX_BODY_FRAMES)


class DcpWorkerEnd(WorkerEnd):
    """A worker of any number of services that holds several jobs.

    Where the broker understands it, the worker names its window. Otherwise it asks for more jobs by sending pings while it is busy. Its
    heartbeats are pings too, so a worker that is busy for long may then get more jobs than it runs, up to the broker's limit. They are
    passed on as they arrive.
    """

    protocol = "dcp"
    slots = MDX_MAX_CREDIT
    interval = DCP_BEAT
    patience = DCP_PATIENCE

    def __init__(self, type_size: int = 1) -> None:
        super().__init__()
        self.type_size = type_size
        self.services: list[bytes] = []
        self.wanted = 1  # number of jobs to hold at a time
        self.prefetch = 0  # how many of them do not run
        self.credit = 1  # jobs the broker may send now: one if we hold none, plus one for each ping while busy
        self.held: dict[bytes, Delivery] = {}  # address -> job
        self.left = False

    def capacity(self) -> int:
        return self._most() if self.agreed.give_back else 1  # a failure must not take other jobs with it

    def _most(self) -> int:
        return max(1, self.agreed.credit) if self.agreed.window else DCP_MAX_HELD

    def open(self, services: list[bytes], slots: int = 1, prefetch: int = 0) -> None:
        if not services:
            raise ValueError("a DCP worker offers one service or more")
        self.services = list(services)
        self.wanted = min(slots + prefetch, self._most())
        self.prefetch = self.wanted - min(slots, self.wanted)
        self.register()

    def grow(self, count: int) -> None:
        self.wanted = min(self.wanted + count, self._most())
        self._say_window()
        self.ask()

    def drain(self) -> None:
        self.wanted = self.prefetch = 0
        self._say_window()

    def _say_window(self) -> None:
        if self.agreed.window:
            self.say(CREDIT, [b"%d" % self.wanted, b"%d" % (self.wanted - self.prefetch)])

    def ask(self) -> None:
        """ "Respond with a heartbeat to ask for more work": each ping of a busy worker asks for one job."""
        while not self.agreed.window and self.held and len(self.held) + self.credit < self.wanted:
            self.beat()

    def register(self) -> None:
        self.credit = 1
        self.held.clear()  # a broker that does not know us has requeued our requests
        for service in self.services:
            self.say(REGISTER, [service])
        self._say_window()

    def receive(self, message: Frames) -> list[Event]:
        kind = kind_of(message)
        if self.left:
            return []
        if kind == PONG and len(message) == 3:
            return []
        if kind == RECONNECT and len(message) == 3:
            self.register()  # "A worker that receives a reconnect message MUST send a registration message to the broker."
            return []
        if kind == REGISTER and len(message) == 4 and message[3] in self.services:
            return []  # confirmed
        if kind in (CANCEL, REVOKE) and len(message) == 4:
            unwanted = self.held.get(message[3])
            if unwanted is None:
                return []  # its reply is on the way
            return [Cancelled(unwanted) if kind == CANCEL else Revoked(unwanted)]
        timeout = 0.0
        if kind == WITHIN and len(message) > 3 and message[3].isdigit():
            timeout = int(message[3][:MAX_DIGITS]) / 1000
            kind = REQUEST
            del message[3]
        if kind != REQUEST or len(message) < 4:
            raise ProtocolViolation(f"type {kind} with {len(message)} parts from a broker to a worker")
        metadata, data = parts_of(message, 4)
        held = Held(message[4], metadata)
        delivery = Delivery(message[3], data, held, timeout, attempt=message[4], metadata=list(metadata))
        if metadata:
            delivery.job, delivery.key = read_mark(metadata[0])
        self.held[message[4]] = delivery
        self.credit = max(0, self.credit - 1)
        self.ask()
        return [delivery]

    def beat(self) -> None:
        if self.held:
            self.credit += 1
        self.say(PING, [])

    def heartbeat(self) -> Frames | None:
        return None if self.left else self.message(PING, [])

    def partial(self, delivery: Delivery, body: Frames) -> None:
        self.known(delivery).parts.add(body)

    def final(self, delivery: Delivery, body: Frames) -> None:
        held = self.known(delivery)
        self.say(REPLY, [held.address, b"", *held.metadata, b"", *held.parts.join(body)])
        self.freed(held)

    def forward(self, delivery: Delivery, service: bytes, body: Frames, metadata: "Frames | None" = None) -> None:
        """ "Complete the work only partially, then respond with a request for another service to complete the rest": that service's
        reply goes to the client, and this worker is done with the job."""
        held = self.known(delivery)
        if held.parts.frames:
            raise CallFailed(FAILED, "a call that has sent partial replies cannot be forwarded")
        onward = held.metadata if metadata is None else metadata
        self.say(REQUEST, [service, held.address, b"", *onward, b"", *body])
        self.freed(held)

    def fail(self, delivery: Delivery, code: str, text: str) -> bool:
        if self.agreed.fail and code in PERMANENT_CODES:
            self._return(FAIL, delivery, code.encode(), text.encode("utf-8", "replace"))
            return False
        if self.agreed.give_back:
            self._return(GIVE_BACK, delivery)
            return False
        self.close()  # DCP has no message for failures: disconnecting makes the broker requeue the request
        return True

    def release(self, delivery: Delivery) -> bool:
        if not self.agreed.give_back:
            return False
        self._return(RELEASED if self.agreed.window else GIVE_BACK, delivery)
        return True

    def keep(self, delivery: Delivery) -> None:
        self.say(KEPT, [self.known(delivery).address])

    def _return(self, kind: int, delivery: Delivery, *rest: bytes) -> None:
        held = self.known(delivery)
        self.say(kind, [held.address, *rest])
        self.freed(held)

    def freed(self, held: Held) -> None:
        """A job was answered. A worker without jobs implicitly has credit for one."""
        if self.held.pop(held.address, None) is not None and not self.held and not self.credit:
            self.credit = 1
        self.ask()

    def close(self) -> None:
        self.left = True  # DCP has no message for leaving either; closing the connection is enough

    def say(self, kind: int, rest: Frames) -> None:
        if not self.left:
            self.out.append(self.message(kind, rest))

    def message(self, kind: int, rest: Frames) -> Frames:
        return [b"", PROTOCOL, kind.to_bytes(self.type_size, "little"), *rest]

    def known(self, delivery: Delivery) -> Held:
        assert isinstance(delivery.ref, Held)
        return delivery.ref
