"""MDP/0.1 (RFC 7) and MDP/0.2 (RFC 18) for clients and workers.

Both versions use a DEALER on both sides. MDP/0.1 was designed for REQ clients, so we send "Frame 0: Empty" ourselves; MDP/0.2 has no such
frame. MDP has no request ids: a connection carries one request at a time, and must be closed after an abandoned request, because the late
reply would be taken for the reply to the next request.
"""

from polydomo.errors import NoSuchService, ProtocolViolation
from polydomo.limits import MAX_BODY_FRAMES, MDP_BEAT, MDP_PATIENCE
from polydomo.model.request_options import PLAIN, RequestOptions
from polydomo.protocols.ends import ClientEnd, Delivery, Dismissed, Event, Frames, HeldParts, Reply, WorkerEnd

READY = b"\x01"
REQUEST = b"\x02"


class MdpClientEnd(ClientEnd):
    """The base of MDP/0.1 and MDP/0.2 clients: one outstanding request, because replies have no id."""

    def __init__(self) -> None:
        super().__init__()
        self.key: int | None = None  # the outstanding request
        self.service = b""
        self.spent = False  # a reply to an abandoned request may still arrive, so the connection cannot be used again

    def request(
        self,
        key: int,
        service: bytes,
        body: Frames,
        timeout: float = 0.0,
        headers: bytes = b"",
        options: RequestOptions = PLAIN,
    ) -> None:
        if self.spent or self.key is not None:
            raise ValueError("an MDP connection carries one request at a time, and none after an abandoned request")
        if not service:
            raise NoSuchService("MDP cannot call a service with an empty name")
        self.key = key
        self.service = service
        self.out.append(self.envelope(service) + (body or [b""]))  # "Frames 3+: Request body": one at least

    def forget(self, key: int) -> None:
        if key == self.key:
            self.key = None
            self.spent = True

    def envelope(self, service: bytes) -> Frames:
        """The frames of a REQUEST before its body."""
        raise NotImplementedError

    def reply(self, service: bytes, body: Frames, final: bool) -> list[Event]:
        if self.key is None:
            return []  # late: the request was abandoned
        if service != self.service:
            raise ProtocolViolation(f"a reply from service {service!r} to a request for {self.service!r}")
        key = self.key
        if final:
            self.key = None
        return [Reply(key, body, final)]


class Mdp1ClientEnd(MdpClientEnd):
    """MDP/0.1: ``"" MDPC01 service body+`` both ways."""

    protocol = "mdp1"

    def envelope(self, service: bytes) -> Frames:
        return [b"", b"MDPC01", service]

    def receive(self, message: Frames) -> list[Event]:
        if len(message) < 4 or message[0] or message[1] != b"MDPC01":
            raise ProtocolViolation("not an MDP/0.1 reply to a client")
        return self.reply(message[2], message[3:], True)


class Mdp2ClientEnd(MdpClientEnd):
    """MDP/0.2: REQUEST, then "zero or more PARTIAL" and one FINAL."""

    protocol = "mdp2"

    def envelope(self, service: bytes) -> Frames:
        return [b"MDPC02", b"\x01", service]

    def receive(self, message: Frames) -> list[Event]:
        if len(message) < 4 or message[0] != b"MDPC02" or message[1] not in (b"\x02", b"\x03"):
            raise ProtocolViolation("not an MDP/0.2 PARTIAL or FINAL to a client")
        return self.reply(message[2], message[3:], message[1] == b"\x03")


class MdpWorkerEnd(WorkerEnd):
    """The base of MDP/0.1 and MDP/0.2 workers: one service, one request at a time, heartbeats, DISCONNECT."""

    interval = MDP_BEAT
    patience = MDP_PATIENCE
    header: Frames = []  # the frames before the command
    beat_command = b""
    disconnect = b""

    def __init__(self) -> None:
        super().__init__()
        self.service = b""
        self.delivery: Delivery | None = None  # the request this worker holds
        self.left = False  # DISCONNECT was sent or received: "no further commands"

    def open(self, services: list[bytes], slots: int = 1, prefetch: int = 0) -> None:
        if len(services) != 1:
            raise ValueError('an MDP worker offers one service: "One worker handles precisely one service"')
        self.service = services[0]
        self.say(READY, [self.service])

    def receive(self, message: Frames) -> list[Event]:
        if self.left:
            return []
        mark = len(self.header)
        if len(message) <= mark or message[:mark] != self.header:
            raise ProtocolViolation(f"not {self.protocol} from a broker to a worker")
        command = message[mark]
        rest = message[mark + 1 :]
        if command == self.beat_command:
            return []
        if command == self.disconnect:
            self.left = True
            return [Dismissed()]
        if command != REQUEST:
            raise ProtocolViolation(f"command {command!r} from a broker to a worker")
        if len(rest) < 3 or rest[1]:
            raise ProtocolViolation("a REQUEST without client address, empty frame and body")
        if self.delivery is not None:
            raise ProtocolViolation("a REQUEST to a worker that holds one")
        self.delivery = Delivery(self.service, rest[2:], rest[0], attempt=rest[0])
        return [self.delivery]

    def beat(self) -> None:
        self.say(self.beat_command, [])

    def heartbeat(self) -> Frames | None:
        return None if self.left else [*self.header, self.beat_command]

    def fail(self, delivery: Delivery, code: str, text: str) -> bool:
        self.close()  # MDP has no message for failures: disconnecting makes the broker requeue the request
        return True

    def close(self) -> None:
        self.say(self.disconnect, [])
        self.left = True

    def say(self, command: bytes, rest: Frames) -> None:
        if not self.left:
            self.out.append([*self.header, command, *rest])

    def answer(self, command: bytes, delivery: Delivery, body: Frames) -> None:
        """A reply to the client of ``job``: its address, an empty frame, the body."""
        if delivery is not self.delivery:
            raise ValueError("a reply to a request that this worker does not hold")
        assert isinstance(delivery.ref, bytes)
        self.say(command, [delivery.ref, b"", *(body or [b""])])


class Mdp1WorkerEnd(MdpWorkerEnd):
    """MDP/0.1: one REPLY per REQUEST, so partial replies are held and joined in front of the final one."""

    protocol = "mdp1"
    header = [b"", b"MDPW01"]
    beat_command = b"\x04"
    disconnect = b"\x05"

    def __init__(self) -> None:
        super().__init__()
        self.parts = HeldParts("MDP/0.1", MAX_BODY_FRAMES)

    def partial(self, delivery: Delivery, body: Frames) -> None:
        self.parts.add(body)

    def final(self, delivery: Delivery, body: Frames) -> None:
        self.answer(b"\x03", delivery, self.parts.join(body))
        self.delivery = None


class Mdp2WorkerEnd(MdpWorkerEnd):
    """MDP/0.2: PARTIAL and FINAL."""

    protocol = "mdp2"
    header = [b"MDPW02"]
    beat_command = b"\x05"
    disconnect = b"\x06"

    def partial(self, delivery: Delivery, body: Frames) -> None:
        self.answer(b"\x03", delivery, body)

    def final(self, delivery: Delivery, body: Frames) -> None:
        self.answer(b"\x04", delivery, body)
        self.delivery = None
