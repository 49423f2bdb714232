"""MDX as a client and a worker speak it: see ``mdx.py`` for the words, docs/protocols/mdx.md for the dialog."""

from polydomo.errors import NoSuchService, ProtocolViolation
from polydomo.limits import MDX_BEAT, MDX_PATIENCE
from polydomo.protocols.ends import Dismissed, Event, Failure, Frames, Job, NumberedClientEnd, Reply, WorkerEnd
from polydomo.protocols.job_facts import read_mark
from polydomo.protocols.mdx import (
    DISCONNECT_HEADER,
    FINAL,
    LEAVE,
    PARTIAL,
    PING,
    PONG,
    READY,
    REQUEST,
    WORK,
    WORKER_FINAL,
    WORKER_PARTIAL,
)
from polydomo.protocols.request import FAILURE_MARK


class MdxClientEnd(NumberedClientEnd):
    """ "multiple requests to be sent without waiting for a reply": each has an id, and replies come in any order."""

    protocol = "mdx"

    def __init__(self, header: bytes = b"MDXC01") -> None:
        super().__init__()
        self.header = header
        self.last = 0  # ids count up, so that a late reply is never taken for another request's

    def request(self, key: int, service: bytes, body: Frames, timeout: float = 0.0, headers: bytes = b"") -> None:
        if not service:
            raise NoSuchService("MDX has no word for a service without a name")
        self.last += 1
        identity = self.last.to_bytes(8, "big")
        self.track(key, identity)  # "The client MUST keep track of REQUEST messages issued"
        self.out.append([self.header, REQUEST, service, identity, *(body or [b""])])  # "Frames 4+": one at least

    def receive(self, message: Frames) -> list[Event]:
        if len(message) < 5 or message[0] != self.header or message[1] not in (PARTIAL, FINAL):
            raise ProtocolViolation("not an MDX PARTIAL or FINAL to a client")
        key = self.keys.get(message[3])
        if key is None:
            return []  # late: whoever asked has gone
        body = message[4:]
        if message[1] == PARTIAL:
            return [Reply(key, body, False)]
        self.forget(key)
        if len(body) == 4 and not body[0] and body[1] == FAILURE_MARK:
            return [Failure(key, body[2].decode("utf-8", "replace"), body[3].decode("utf-8", "replace"))]
        return [Reply(key, body)]


class MdxWorkerEnd(WorkerEnd):
    """ "One worker handles precisely one service", one request at a time, and pings while it works."""

    protocol = "mdx"
    interval = MDX_BEAT
    patience = MDX_PATIENCE
    fails = True

    def __init__(self, header: bytes = b"MDXW01") -> None:
        super().__init__()
        self.header = header
        self.service = b""
        self.job: Job | None = None  # the request this worker holds
        self.left = False  # DISCONNECT was sent or received: "no further commands"
        self.spoke = False  # since the last beat
        self.heard = False

    def open(self, services: list[bytes], slots: int = 1) -> None:
        if len(services) != 1:
            raise ValueError('an MDX worker offers one service: "One worker handles precisely one service"')
        self.service = services[0]
        self.say(READY, [self.service])

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
        if message[1] != WORK:
            raise ProtocolViolation(f"command {message[1]!r} from a broker to a worker")
        if len(message) < 5 or message[3]:
            raise ProtocolViolation("a REQUEST without client address, empty frame and request id")
        if self.job is not None:
            raise ProtocolViolation("a REQUEST to a worker that holds one")
        # the envelope goes back as it came
        self.job = Job(self.service, message[5:], message[2:5], attempt=message[2])
        self.job.job, self.job.key = read_mark(message[4])
        return [self.job]

    def beat(self) -> None:
        # "Peers SHOULD NOT send HEARTBEAT commands while also sending other commands": but if the broker has said nothing
        # meanwhile, only a PING makes it speak.
        if not (self.spoke and self.heard):
            self.say(PING, [])
        self.spoke = False
        self.heard = False

    def partial(self, job: Job, body: Frames) -> None:
        self.answer(WORKER_PARTIAL, job, body)

    def final(self, job: Job, body: Frames) -> None:
        self.answer(WORKER_FINAL, job, body)
        self.job = None

    def fail(self, job: Job, code: str, text: str) -> bool:
        self.final(job, [b"", FAILURE_MARK, code.encode("utf-8", "replace"), text.encode("utf-8", "replace")])
        return False

    def close(self) -> None:
        if not self.left:
            self.left = True
            self.out.append([DISCONNECT_HEADER, LEAVE])

    def say(self, command: bytes, rest: Frames) -> None:
        if not self.left:
            self.spoke = True
            self.out.append([self.header, command, *rest])

    def answer(self, command: bytes, job: Job, body: Frames) -> None:
        if job is not self.job:
            raise ValueError("a reply to a request that this worker does not hold")
        assert isinstance(job.ref, list)
        self.say(command, [*job.ref, *body])
