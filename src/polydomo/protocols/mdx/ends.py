"""MDX for clients and workers: see ``commands.py`` for the commands, docs/protocols/mdx.md for the protocol."""

from math import ceil

from polydomo.errors import NoSuchService, ProtocolViolation
from polydomo.limits import MDX_BEAT, MDX_MAX_CREDIT, MDX_PATIENCE
from polydomo.model.jobs.facts import read_mark
from polydomo.model.outcomes import FAILURE_MARK
from polydomo.model.progress import read_share, read_text, write_share, write_text
from polydomo.model.request_options import GROUP, NEAR, PLAIN, RequestOptions
from polydomo.protocols.ends import (
    Cancelled,
    Delivery,
    Dismissed,
    Event,
    Failure,
    Frames,
    NumberedClientEnd,
    Progressed,
    Reply,
    Revoked,
    WorkerEnd,
)
from polydomo.protocols.mdx.commands import (
    CANCEL,
    CREDIT,
    DISCONNECT_HEADER,
    EXPIRED,
    FINAL,
    KEPT,
    KEY,
    KEYED,
    LEAVE,
    MAX_WITHIN,
    PARTIAL,
    PING,
    PONG,
    PROGRESS,
    READY,
    RELEASED,
    REQUEST,
    REVOKE,
    TIME,
    WITH,
    WITHIN,
    WORK,
    WORKER_FINAL,
    WORKER_PARTIAL,
)


class MdxClientEnd(NumberedClientEnd):
    """ "multiple requests to be sent without waiting for a reply": each has an id, and replies come in any order."""

    protocol = "mdx"
    carries_keys = True

    def __init__(self, header: bytes = b"MDXC01") -> None:
        super().__init__()
        self.header = header
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
        if not service:
            raise NoSuchService("MDX cannot call a service with an empty name")
        self.last += 1
        identity = self.last.to_bytes(8, "big")
        self.track(key, identity)  # "The client MUST keep track of REQUEST messages issued"
        command = [REQUEST]
        # Milliseconds, without the error of the subtraction that made ``timeout``.
        within = b"%d" % max(1, ceil(timeout * 1000 - 0.01)) if timeout > 0 else b"0"
        if (options.group or options.near) and self.agreed.options:
            command = [WITH]
            named = ((TIME, within), (KEY, options.key), (GROUP, options.group), (NEAR, options.near))
            for name, value in named:
                if value:
                    command += (name, value)
            command.append(b"")
        elif options.key and self.agreed.key:
            command = [KEYED, within, options.key]
        elif timeout > 0 and self.agreed.deadline:
            command = [WITHIN, within]
        self.out.append([self.header, *command, service, identity, *(body or [b""])])  # "Frames 4+": one at least

    def cancellation(self, identity: bytes, expired: bool) -> Frames:
        return [self.header, CANCEL, identity, *([EXPIRED] if expired else [])]

    def receive(self, message: Frames) -> list[Event]:
        if len(message) == 5 and message[0] == self.header and message[1] == PROGRESS:
            share, asked = read_share(message[3]), self.keys.get(message[2])
            if share is None:
                raise ProtocolViolation("an MDX PROGRESS without a share from 0 to 1")
            return [Progressed(asked, share, read_text(message[4]))] if asked is not None else []
        if len(message) < 5 or message[0] != self.header or message[1] not in (PARTIAL, FINAL):
            raise ProtocolViolation("not an MDX PARTIAL or FINAL to a client")
        key = self.keys.get(message[3])
        if key is None:
            return []  # late: the request was abandoned
        body = message[4:]
        if message[1] == PARTIAL:
            return [Reply(key, body, False)]
        self.forget(key)
        if len(body) == 4 and not body[0] and body[1] == FAILURE_MARK:
            return [Failure(key, body[2].decode("utf-8", "replace"), body[3].decode("utf-8", "replace"))]
        return [Reply(key, body)]


class MdxWorkerEnd(WorkerEnd):
    """ "One worker handles precisely one service", and pings while it works. It holds one request at a time, or, where the broker
    understands credit, as many as it asks for."""

    protocol = "mdx"
    slots = MDX_MAX_CREDIT
    interval = MDX_BEAT
    patience = MDX_PATIENCE
    fails = True

    def __init__(self, header: bytes = b"MDXW01") -> None:
        super().__init__()
        self.header = header
        self.service = b""
        self.jobs: dict[bytes, Delivery] = {}  # the requests this worker holds, by token
        self.runs = 1
        self.prefetch = 0
        self.window = 1  # the most requests that it has ever asked for at a time
        self.left = False  # DISCONNECT was sent or received: "no further commands"
        self.spoke = False  # since the last beat
        self.heard = False

    def capacity(self) -> int:
        return max(1, self.agreed.credit)

    def open(self, services: list[bytes], slots: int = 1, prefetch: int = 0) -> None:
        if len(services) != 1:
            raise ValueError('an MDX worker offers one service: "One worker handles precisely one service"')
        self.service = services[0]
        self.say(READY, [self.service])
        if slots + prefetch > 1 and self.agreed.credit:
            self.runs, self.prefetch = slots, prefetch
            self._say_credit(slots + prefetch)

    def grow(self, count: int) -> None:
        if self.agreed.credit:
            self.runs += count
            self._say_credit(self.runs + self.prefetch)

    def drain(self) -> None:
        if self.agreed.credit:
            self._say_credit(0)

    def _say_credit(self, window: int) -> None:
        self.window = max(self.window, window)
        self.say(CREDIT, [b"%d" % window, b"%d" % min(self.runs, window)])

    def receive(self, message: Frames) -> list[Event]:
        if self.left:
            return []
        if message in ([DISCONNECT_HEADER, LEAVE], [self.header, LEAVE]):
            self.left = True
            return [Dismissed()]
        if len(message) < 2 or message[0] != self.header:
            raise ProtocolViolation("not MDX from a broker to a worker")
        self.heard = True
        if message == [self.header, PONG]:
            return []
        if message[1] in (CANCEL, REVOKE) and len(message) == 3:
            held = self.jobs.get(message[2])
            if held is None:
                return []  # its reply is on the way
            return [Cancelled(held) if message[1] == CANCEL else Revoked(held)]
        timeout = 0.0
        if message[1] == WITHIN and len(message) > 2 and message[2].isdigit():
            timeout = int(message[2][:MAX_WITHIN]) / 1000
            message = [self.header, WORK, *message[3:]]
        if message[1] != WORK:
            raise ProtocolViolation(f"command {message[1]!r} from a broker to a worker")
        if len(message) < 5 or message[3]:
            raise ProtocolViolation("a REQUEST without client address, empty frame and request id")
        if len(self.jobs) >= self.window or message[2] in self.jobs:
            raise ProtocolViolation(f"a REQUEST to a worker that holds {len(self.jobs)} and asked for {self.window}")
        # the envelope is returned unchanged
        delivery = self.jobs[message[2]] = Delivery(
            self.service, message[5:], message[2:5], timeout, attempt=message[2]
        )
        delivery.job, delivery.key = read_mark(message[4])
        return [delivery]

    def beat(self) -> None:
        # "Peers SHOULD NOT send HEARTBEAT commands while also sending other commands": but if the broker has said nothing
        # meanwhile, only a PING makes it speak.
        if not (self.spoke and self.heard):
            self.say(PING, [])
        self.spoke = False
        self.heard = False

    def heartbeat(self) -> Frames | None:
        return None if self.left else [self.header, PING]

    def partial(self, delivery: Delivery, body: Frames) -> None:
        self.answer(WORKER_PARTIAL, delivery, body)

    def progress(self, delivery: Delivery, share: float, text: str) -> None:
        if self.agreed.progress and self.jobs.get(delivery.attempt) is delivery:
            self.say(PROGRESS, [delivery.attempt, write_share(share), write_text(text)])

    def final(self, delivery: Delivery, body: Frames) -> None:
        self.answer(WORKER_FINAL, delivery, body)
        del self.jobs[delivery.attempt]

    def release(self, delivery: Delivery) -> bool:
        if not self.agreed.credit:
            return False
        if self.jobs.get(delivery.attempt) is delivery:
            del self.jobs[delivery.attempt]
            self.say(RELEASED, [delivery.attempt])
        return True

    def keep(self, delivery: Delivery) -> None:
        self.say(KEPT, [delivery.attempt])

    def fail(self, delivery: Delivery, code: str, text: str) -> bool:
        self.final(delivery, [b"", FAILURE_MARK, code.encode("utf-8", "replace"), text.encode("utf-8", "replace")])
        return False

    def close(self) -> None:
        if not self.left:
            self.left = True
            self.out.append([DISCONNECT_HEADER, LEAVE])

    def say(self, command: bytes, rest: Frames) -> None:
        if not self.left:
            self.spoke = True
            self.out.append([self.header, command, *rest])

    def answer(self, command: bytes, delivery: Delivery, body: Frames) -> None:
        if self.jobs.get(delivery.attempt) is not delivery:
            raise ValueError("a reply to a request that this worker does not hold")
        assert isinstance(delivery.ref, list)
        self.say(command, [*delivery.ref, *body])
