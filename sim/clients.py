"""Simulated clients. Every call ends in exactly one outcome, by the rules of the client library.

A call is sent on a connection. It ends with its final reply, with a failure that the protocol can report, when its timeout passes, or
because its connection was lost or could not be opened. A call that is safe to repeat is sent again in the cases in which the library does
so.
"""

from collections import deque
from typing import TYPE_CHECKING

from polydomo.limits import CONNECT_TIME
from polydomo.model.outcomes import GAVE_UP, INTERRUPTED, SHUTDOWN
from polydomo.model.request_options import PLAIN, options_of
from polydomo.protocols.ends import ClientEnd, Dismissed, Event, Failure, Reply
from polydomo.protocols.memo.ends import MemoClientEnd
from sim.clock import Event as Timer
from sim.document_ends import client_end_of
from sim.http_ends import client_end
from sim.peers import Line, NngSocket, Peer

if TYPE_CHECKING:
    from sim.brokers import BrokerNode
    from sim.world import World

KEYS = 3  # that calls name, if they prefer the worker that served their key last
POOL = 3  # connections over a protocol without request ids
REPEATABLE = (GAVE_UP, INTERRUPTED, SHUTDOWN)


class Call:
    def __init__(self, client: "Client", number: int, service: bytes, timeout: float, retries: int, pad: int) -> None:
        self.client = client
        self.number = number
        self.service = service
        self.deadline = client.now + timeout
        self.retries = retries
        self.pad = pad
        self.attempt = 0
        self.key = 0  # of this attempt
        self.line: Line | NngSocket | None = None  # the connection that it was sent on
        self.parts: list[bytes] = []
        self.outcome = ""
        self.timers: list[Timer] = []

    @property
    def tag(self) -> str:
        return f"{self.client.name}.{self.number}.{self.attempt}"

    def body(self) -> list[bytes]:
        tag = b"<%s>" % self.tag.encode()
        if self.pad:
            return [tag, b"." * self.pad]
        return [tag] if self.number % 3 else [tag, b"", b"end"]


class Client(Peer):
    def __init__(self, world: "World", name: str, node: "BrokerNode", protocol: str) -> None:
        super().__init__(world, name, node)
        self.protocol = protocol
        self.nng = protocol == "memo" and world.options.nng
        self.concurrent = client_end(protocol).concurrent
        self.numbers = 0
        self.keys = 0
        self.open: dict[int, Call] = {}  # calls that were sent, by key
        self.calls: dict[Call, None] = {}  # calls without an outcome
        self.waiting: deque[Call] = deque()  # calls that wait for a connection
        self.lines: dict[Line, Call | None] = {}  # with the call on each, if the protocol has no request ids
        self.socket: NngSocket | None = None
        self.failures = 0
        self.dialing = 0
        self.closed = False
        self._begin()

    def _begin(self) -> None:
        self.up = True
        if self.nng:
            self.socket = NngSocket(self, client_end("memo"), self._on_event)
        self.later(self.rng.random() * self.options.pace, self._burst)

    # --- calls

    def _burst(self) -> None:
        world = self.world
        if not world.troubled:
            return
        options = self.options
        rng = self.rng
        for _ in range(rng.randint(1, options.burst)):
            service = world.pick_service(self)
            timeout = rng.uniform(0.05, 0.5) if rng.random() < options.give_up else rng.uniform(2.0, 15.0)
            pad = 0
            if rng.random() < options.big:
                pad = rng.choice((300, 3_000, 40_000))
            self.submit(service, timeout, options.retries if rng.random() < 0.5 else 0, pad)
        self.flush()
        self.later(rng.expovariate(1.0 / options.pace), self._burst)

    def submit(self, service: bytes, timeout: float, retries: int = 0, pad: int = 0) -> Call:
        self.numbers += 1
        call = Call(self, self.numbers, service, timeout, retries, pad)
        self.calls[call] = None
        self.note("submitted", call.tag, service.decode(), round(timeout, 6))
        self.world.submitted += 1
        call.timers.append(self.later(timeout, lambda: self._expire(call)))
        if self.world.troubled and self.options.cancelling and self.rng.random() < self.options.cancelling:
            call.timers.append(self.later(self.rng.expovariate(5.0), lambda: self._cancel(call)))
        self._ask(call)
        return call

    def _expire(self, call: Call) -> None:
        self._end(call, "timeout")
        self.flush()

    def _cancel(self, call: Call) -> None:
        self.world.count("call cancelled")
        self._end(call, "cancelled")
        self.flush()

    def _ask(self, call: Call) -> None:
        """Sends the call on a connection, or waits for one."""
        if self.socket is not None:
            self._ask_on(self.socket, call)
            return
        for line, taken in self.lines.items():
            if line.alive and line.opened and (self.concurrent or taken is None):
                self._ask_on(line, call)
                return
        self.waiting.append(call)
        call.timers.append(self.later(CONNECT_TIME, lambda: self._not_connected(call)))
        self._dial()

    def _ask_on(self, line: Line | NngSocket, call: Call) -> None:
        end = line.end
        assert isinstance(end, ClientEnd)
        self.keys += 1
        call.key = self.keys
        call.line = line
        call.parts = []
        self.open[call.key] = call
        if isinstance(line, Line):
            self.lines[line] = call
        options = PLAIN
        if self.options.groups:
            options = options_of(False, b"", b"group %d" % self.rng.randrange(self.options.groups))
        elif self.options.near and self.rng.random() < self.options.near:
            options = options_of(False, b"", b"", b"key %d" % self.rng.randrange(KEYS))
        end.request(call.key, call.service, call.body(), call.deadline - self.now, options=options)
        self.note("asked", call.tag, call.service.decode(), line.name if isinstance(line, Line) else self.name)
        if self.protocol == "mdx" and self.rng.random() < self.options.repeating and self.world.troubled:
            self.world.count("repeated request")
            end.out.append(end.out[-1])

    def _not_connected(self, call: Call) -> None:
        if call in self.waiting:
            self._end(call, "not-connected")

    # --- connections

    def _dial(self) -> None:
        """Opens one connection for all calls; without request ids, one for each waiting call, up to the size of the pool."""
        alive = sum(line.alive for line in self.lines)
        wanted = 1 if self.concurrent else min(POOL, alive - self.dialing + len(self.waiting))
        while self.waiting and alive < wanted and not self.closed:
            alive += 1
            self.dialing += 1
            self._dial_once()

    def _dial_once(self) -> None:
        line = Line(
            self,
            client_end_of(self.protocol, self.name),
            lambda: self._opened(line),
            self._on_event,
            lambda why: self._lost(line, why),
        )
        self.lines[line] = None

    def _opened(self, line: Line) -> None:
        self.dialing -= 1
        self.failures = 0
        while self.waiting and (self.concurrent or self.lines.get(line) is None):
            self._ask_on(line, self.waiting.popleft())
        self._dial()

    def _lost(self, line: Line, why: str) -> None:
        self.lines.pop(line, None)
        if not line.opened:
            self.dialing -= 1
            self.failures += 1
        for call in [call for call in self.open.values() if call.line is line]:
            self._failed(call, "lost", why)
        self.later(self.backoff(self.failures), self._dial)

    def flush(self) -> None:
        if self.socket is not None:
            self.socket.flush()
        for line in list(self.lines):
            if line.alive:
                line.flush()

    def hang_up(self) -> None:
        """Closes the client, as the library's ``close`` does: open calls end as lost."""
        self.note("closed")
        for line in list(self.lines):
            line.close()
            self._hung_up(line)
        if self.socket is not None:
            self.socket.close()
            for call in list(self.open.values()):
                self._failed(call, "lost", "closed")
            if not self.closed:
                self.socket = NngSocket(self, client_end("memo"), self._on_event)

    def _hung_up(self, line: Line) -> None:
        if not line.opened:
            self.dialing -= 1
        self.lines.pop(line, None)
        for call in [call for call in self.open.values() if call.line is line]:
            self._failed(call, "lost", "closed")

    # --- replies and outcomes

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Reply):
            call = self.open.get(event.key)
            if call is None:
                self.world.breach("unasked", f"{self.name}: a reply to a call that is not open: {event.body!r:.200}")
                return
            call.parts += event.body
            self.note("reply" if event.final else "part", call.tag, len(event.body))
            if event.final:
                self._end(call, "reply")
        elif isinstance(event, Failure):
            call = self.open.get(event.key)
            if call is not None:
                self._failed(call, "failed", event.code)
        elif isinstance(event, Dismissed):
            for line in list(self.lines):
                line.close()
                self._hung_up(line)

    def _failed(self, call: Call, kind: str, detail: str) -> None:
        """Ends the call, or repeats it if that is safe and may help."""
        if detail == "denied":
            self.world.breach("turned-away", f"{self.name} was denied, although it has all rights", call.tag)
        helps = kind == "lost" or detail in REPEATABLE
        if not helps or call.attempt >= call.retries or self.now + 1.0 >= call.deadline:
            self._end(call, kind, detail)
            return
        self._release(call)
        self.note("again", call.tag, kind, detail)
        call.attempt += 1
        self.world.count("retry")
        self.later(self.backoff(call.attempt), lambda: self._again(call))

    def _again(self, call: Call) -> None:
        if not call.outcome:
            self._ask(call)
            self.flush()

    def _end(self, call: Call, outcome: str, detail: str = "") -> None:
        if call.outcome:
            if outcome not in ("timeout", "cancelled"):
                self.world.breach("one-outcome", f"{call.tag} ended as {call.outcome} and then as {outcome}", call.tag)
            return
        call.outcome = outcome
        self.note("outcome", call.tag, outcome, detail)
        self.world.ended(call, outcome)
        del self.calls[call]
        for timer in call.timers:
            timer.cancel()
        self._release(call)

    def _release(self, call: Call) -> None:
        """Frees the connection of a call that does not wait for a reply any more. Without request ids, the connection is closed."""
        if call in self.waiting:
            self.waiting.remove(call)
        line = call.line
        call.line = None
        if self.open.pop(call.key, None) is None or line is None:
            return
        end = line.end
        assert isinstance(end, ClientEnd)
        if isinstance(line, NngSocket) and isinstance(end, MemoClientEnd):
            line.forget(end.ids.get(call.key, b""))
        if isinstance(line, Line) and self.extended and end.cancels:
            end.cancel(call.key, call.outcome == "timeout")
        else:
            end.forget(call.key)
        if isinstance(line, Line) and not self.concurrent and line in self.lines:
            self.lines[line] = None
            if getattr(end, "spent", False):
                line.close(abort=True)
                self.lines.pop(line)
                self._dial()
            elif self.waiting:
                self._ask_on(line, self.waiting.popleft())
                line.flush()

    # --- faults

    def crash(self, restart_after: float) -> None:
        if not self.up:
            return
        self.note("crashed")
        for line in list(self.lines):
            line.close(abort=True)
        if self.socket is not None:
            self.socket.close(abort=True)
            self.socket = None
        self.die()
        self.open = {}
        self.waiting.clear()
        self.lines = {}
        self.dialing = 0
        for call in list(self.calls):
            self._end(call, "died")
        self.world.scheduler.at(self.now + restart_after, self.restart)

    def restart(self) -> None:
        if not self.up:
            self._begin()

    def mute(self, seconds: float) -> None:
        """Stops reading for a while."""
        lines: list[Line] = list(self.lines)
        if self.socket is not None and self.socket.line is not None:
            lines.append(self.socket.line)
        for line in lines:
            if line.endpoint is not None:
                endpoint = line.endpoint
                endpoint.read(False)
                self.world.scheduler.at(self.now + seconds, lambda endpoint=endpoint: endpoint.read(True))  # type: ignore[misc]

    def leave(self) -> None:
        self.closed = True
        self.hang_up()
