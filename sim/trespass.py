"""Peers whose principal has few rights or none, and that try what they may not do: over eMQP, as clients of every protocol, and over HTTP.

The rule ``trespass``: no worker gets a request that its origin may not send, no job or schedule is stored for it, a schedule of another
principal stays, and nothing is shown or given without the right. The rule ``heard``: a stored reply is not sent after the right was
revoked. The rule ``starved``: a principal that exceeds its rate and tries again is served again.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from polydomo.broker.jobs.job import Job
from polydomo.model.jobs.messages import write_message
from polydomo.protocols import registry
from polydomo.protocols.ends import Event
from polydomo.wire.security.curve import KeyPair
from polydomo.wire.security.mechanism import Mechanism
from sim.http_ends import request
from sim.options import FORWARD_TO, PROTOCOLS
from sim.peers import Line, Peer
from sim.record import OUTSIDE
from sim.security import EVALUATOR, FEW, GUEST, HASTY, OUTSIDER, READER

if TYPE_CHECKING:
    from sim.brokers import BrokerNode
    from sim.world import World

STAYS = 8.0  # seconds
FAR = b"1000000"  # the interval of a schedule that never runs
ABSENT = b"absent"  # a service without workers, so that eMQP falls back to its default queue
STARVED = 3.0  # seconds in which a principal with one request per second must have been served
BUILTIN = ("polydomo.pause", "polydomo.clients", "mmi.service")


class EmqpEnd:
    """Sends eMQP messages as they are given, and returns those it receives."""

    protocol = "emqp"
    wire = "zmtp"
    socket_type = b"DEALER"

    def __init__(self) -> None:
        self.out: list[list[bytes]] = []

    def put(self, command: bytes, *rest: bytes) -> None:
        self.out.append([b"", b"eMQP/1.0", command, b"%d" % len(self.out), *rest])

    def receive(self, message: list[bytes]) -> list[list[bytes]]:
        return [message]


class HttpEnd:
    """Sends HTTP requests as they are given, and returns (status, headers, body) of each response."""

    protocol = "http"
    wire = "http"
    socket_type = b""

    def __init__(self) -> None:
        self.out: list[list[bytes]] = []
        self.body = b""

    def receive(self, message: list[bytes]) -> list[tuple[int, dict[str, str], bytes]]:
        status, headers, content, last = message
        self.body += content
        if not last:
            return []
        body, self.body = self.body, b""
        return [(int(status), json.loads(headers), body)]


class Trespasser(Peer):
    """Stays for some seconds and tries one act, again and again over HTTP."""

    def __init__(self, world: "World", node: "BrokerNode") -> None:
        super().__init__(world, f"gt{world.faults.get('trespass', 0)}", node)
        assert world.keys is not None
        self.who = self.rng.choice(FEW)
        self.keys: KeyPair = world.keys.pairs[self.who]
        self.lines: list[Line] = []
        self.sent_at = 0.0
        self.refused_since = 0.0
        self.gone = False

    def mechanism(self, socket_type: bytes, identity: bytes) -> Mechanism:
        assert self.world.keys is not None
        return self.world.keys.client(self.keys, socket_type, identity)

    def start(self) -> None:
        acts = [self.call, self.evaluate, self.topics, self.repeat, self.forward, self.hurry, self.inform]
        if self.options.durable:
            acts += [self.schedule, self.unschedule, self.guarantee, self.call]
        act = self.rng.choice(acts)
        self.note("tries", "", act.__name__, self.who)
        act()
        self.later(STAYS, self.leave)

    def leave(self) -> None:
        self.gone = True
        for line in self.lines:
            line.close(abort=True)
        for node in self.world.nodes:
            tables = node.disk.tables
            stored = [(job.principal, job.service) for job in tables.jobs.values()]
            for row in tables.schedules.values():
                pattern = Job("", row.service, b"", 0.0)
                pattern.configure(row.settings)
                stored.append((pattern.principal, row.service))
            for who, service in stored:
                if who in FEW and not self._may(who, service):
                    self.world.breach("trespass", f"{who} has stored something for {service!r}")

    def _may(self, who: str, service: bytes) -> bool:
        assert self.node.guard is not None
        return self.node.guard.may_call(who, service)

    def _breach(self, text: str) -> None:
        self.world.breach("trespass", f"{self.name} ({self.who}) {text}")

    # --- ZMTP

    def _say(self, heard: Callable[[list[bytes]], None], command: bytes, *rest: bytes) -> None:
        """Sends one eMQP message on a connection of its own."""
        end = EmqpEnd()
        end.put(command, *rest)
        line = Line(self, end, lambda: line.flush(), heard, _ignore)
        self.lines.append(line)

    def _as_honest(self, command: bytes, *rest: bytes) -> None:
        assert self.world.keys is not None
        mine, self.keys = self.keys, self.world.keys.honest
        self._say(_ignore, command, *rest)
        self.keys = mine

    def schedule(self) -> None:
        self._say(_ignore, b"SCHEDULE", FORWARD_TO, b"", b"1", OUTSIDE, b"")

    def unschedule(self) -> None:
        """Removes a schedule that an honest peer has just made."""
        message = b"kept for " + self.name.encode()
        self._as_honest(b"SCHEDULE", FORWARD_TO, b"", FAR, message, b"")

        def stored() -> set[str]:
            return {row.name for node in self.world.nodes for row in node.disk.tables.schedules.values()}

        def check(before: set[str]) -> None:
            if before - stored():
                self._breach("removed the schedule of another principal")

        def remove() -> None:
            before = stored()
            self._say(_ignore, b"UNSCHEDULE", FORWARD_TO, b"", FAR, message, b"")
            self.later(3.0, lambda: check(before))

        self.later(3.0, remove)

    def inform(self) -> None:
        def heard(message: list[bytes]) -> None:
            if message[2] not in (b"DISCONNECT", b"KBYE"):
                self._breach(f"is a scheduler, and got {message[2]!r}")

        self._say(heard, b"INFORM", b"", b"scheduler")

    def guarantee(self) -> None:
        """Asks for a job of a service without workers; a worker of the default queue, which OUTSIDER may call, is there."""
        self._as_honest(b"INFORM", b"default", b"worker")
        self.later(
            1.0, lambda: self._say(_ignore, b"REQUEST", ABSENT, b"reply-requested,guarantee", OUTSIDE + b" guarantee")
        )

    def call(self) -> None:
        """Calls a service that it may not call, directly or as a job."""
        protocol = self.rng.choice(PROTOCOLS[:-1])
        client = registry.client_end(protocol)
        header: dict[str, object] = {"service": FORWARD_TO.decode()}
        service, body = self.rng.choice(
            (
                (FORWARD_TO, [OUTSIDE]),
                (b"titanic.request", [FORWARD_TO, OUTSIDE]),
                (b"polydomo.submit", write_message(header, [OUTSIDE])),
            )
        )

        def opened() -> None:
            client.request(1, service, body, 5.0)
            line.flush()

        line = Line(self, client, opened, _ignore, _ignore)
        self.lines.append(line)

    # --- HTTP

    def _ask(self, who: str, method_and_path: str, headers: dict[str, str], body: bytes, then: "Answered") -> None:
        """Sends a request, and again on a new connection if it is lost."""
        if self.gone:
            return
        self.who = who
        method, _, path = method_and_path.partition(" ")
        data = request(path, {"Authorization": f"Bearer {who}", **headers}, body)
        end = HttpEnd()
        end.out.append([data.replace(b"POST", method.encode(), 1)])
        self.sent_at = self.now

        def heard(response: tuple[int, dict[str, str], bytes]) -> None:
            line.close()
            then(*response)

        def again(why: str) -> None:
            self.later(0.5, lambda: self._ask(who, method_and_path, headers, body, then))

        line = Line(self, end, lambda: line.flush(), heard, again)
        self.lines = [line]

    def evaluate(self) -> None:
        """MemoDB's evaluation of a built-in service, for a principal that may call everything."""
        path = self.rng.choice(BUILTIN)
        argument = json.dumps({"service": self.world.services[0].decode()}).encode()

        def stored(status: int, headers: dict[str, str], body: bytes) -> None:
            if status in (200, 201):
                cid = headers["location"].rpartition("/")[2]
                self._ask(EVALUATOR, f"POST /call/{path}/{cid}/evaluate", {"Prefer": "wait=5"}, b"", done)

        def done(status: int, headers: dict[str, str], body: bytes) -> None:
            if status < 400:
                self._breach(f"evaluated {path}: {status} {body!r:.100}")

        self._ask(EVALUATOR, "POST /cid", {"Content-Type": "application/octet-stream"}, argument, stored)

    def topics(self) -> None:
        def shown(status: int, headers: dict[str, str], body: bytes) -> None:
            if status == 200 and json.loads(body):
                self._breach(f"may not subscribe, and was shown {body!r:.100}")
            self.later(1.0, ask)

        def ask() -> None:
            self._ask(READER, "GET /v1/topics", {}, b"", shown)

        ask()

    def forward(self) -> None:
        """A call that DCP workers forward to a service that it may not call, with a key."""
        key = {"Idempotency-Key": self.name}
        path = f"POST /v1/call/{self.world.services[0].decode()}"
        self._ask(OUTSIDER, path, key, OUTSIDE + self.name.encode(), lambda status, headers, body: None)

    def repeat(self) -> None:
        """Repeats a call with its key, while the right to call is granted and revoked."""
        path = f"POST /v1/call/{self.world.services[0].decode()}"

        def answered(status: int, headers: dict[str, str], body: bytes) -> None:
            guard = self.node.guard
            assert guard is not None
            if status == 200 and guard.changed_at < self.sent_at and not guard.allowed:
                self.world.breach(
                    "heard", f"{self.name} got a reply, and has had no right to call since {guard.changed_at:.3f}"
                )
            self.later(0.3, ask)

        def ask() -> None:
            self._ask(GUEST, path, {"Idempotency-Key": "again"}, b"<garbage>", answered)

        ask()

    def hurry(self) -> None:
        """Calls more often than its quota allows. One peer at a time does, so that it cannot be refused because of another."""
        if self.world.hurrying > self.now:
            return
        self.world.hurrying = self.now + STAYS + STARVED
        path = f"POST /v1/call/{self.world.services[0].decode()}"

        def answered(status: int, headers: dict[str, str], body: bytes) -> None:
            if b"exceeded its quota" not in body:
                self.refused_since = 0.0
            elif not self.refused_since:
                self.refused_since = self.now
            elif self.now - self.refused_since > STARVED:
                self.world.breach("starved", f"{self.name} has been refused since {self.refused_since:.3f}")
            self.later(0.2, ask)

        def ask() -> None:
            self._ask(HASTY, path, {}, b"<garbage>", answered)

        ask()


Answered = Callable[[int, dict[str, str], bytes], None]


def _ignore(event: "Event | list[bytes] | str") -> None: ...
