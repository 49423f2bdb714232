"""The broker without a wire: peers are scripted sessions, time is set by hand, and the invariants are checked after every step."""

from polydomo.broker.broker import Broker
from polydomo.broker.observe.recorder import Recorder
from polydomo.broker.policy import Policy
from polydomo.model.outcomes import OUTCOMES
from polydomo.model.records import DONE, Departure, Request, Session, Worker
from polydomo.model.registration import Refusal, WorkerTerms
from polydomo.model.request_options import PLAIN, RequestOptions
from polydomo.model.session import ProtocolSession
from polydomo.model.tuning import Tuning
from polydomo.wire.frames import Body, join, split
from polydomo.wire.link import Hub, Link, LinkHandler
from tests.entropy import Zeros

START = 1000.0


class Notes(Recorder):
    """Records everything that the broker reports. A request may end once, and only after it was accepted."""

    def __init__(self) -> None:
        self.wants_requests = True
        self.wants_messages = True
        self.open: dict[Request, None] = {}
        self.outcomes: list[tuple[int, str]] = []  # request number, outcome
        self.reasons: dict[int, str] = {}
        self.attempts: list[tuple[int, int]] = []  # request number, worker number
        self.requeues: list[int] = []
        self.stales: list[tuple[int, str]] = []  # worker number, what
        self.lefts: list[tuple[int, str, str]] = []
        self.refusals: list[str] = []
        self.violations: list[str] = []
        self.hops: list[bytes] = []
        self.partials = 0

    def accepted(self, request: Request, queued: bool, queue_length: int) -> None:
        assert request not in self.open
        self.open[request] = None

    def dispatched(self, request: Request, worker: Worker) -> None:
        assert request in self.open, "a request that has ended, or was never accepted, went to a worker"
        self.attempts.append((request.number, worker.number))

    def partial(self, request: Request, worker: Worker, size: int) -> None:
        self.partials += 1

    def ended(self, request: Request) -> None:
        del self.open[request]
        assert request.state == DONE and request.outcome in OUTCOMES
        self.outcomes.append((request.number, request.outcome))
        self.reasons[request.number] = request.history.reason

    def left(self, worker: Worker, departure: Departure, why: str, *facts: object) -> None:
        state = departure.state
        self.lefts.append((worker.number, state, why))

    def requeued(self, request: Request, worker: Worker, why: str, *facts: object) -> None:
        self.requeues.append(request.number)

    def forwarded(self, request: Request, worker: Worker, service: bytes, *facts: object) -> None:
        self.hops.append(service)

    def stale(self, worker: Worker, token: bytes, what: str, size: int) -> None:
        self.stales.append((worker.number, what))

    def refused(self, session: Session, what: str) -> None:
        self.refusals.append(what)

    def violated(self, session: Session, what: str) -> None:
        self.violations.append(what)

    @property
    def how(self) -> list[str]:
        return [outcome for _, outcome in self.outcomes]


class World:
    def __init__(self, policy: Policy | None = None, tuning: Tuning | None = None) -> None:
        self.notes = Notes()
        self.hub = Hub()
        self.broker = Broker(START, Zeros(), policy, tuning, self.notes)

    @property
    def now(self) -> float:
        return self.broker.now - START

    def client(self, takes_partials: bool = False) -> "Peer":
        peer = Peer(self)
        peer.takes_partials = takes_partials
        return peer

    def worker(self, *services: bytes, **options: object) -> "Peer":
        peer = Peer(self)
        peer.register(*(services or (b"echo",)), **options)
        return peer

    def check(self) -> None:
        self.broker.check_invariants()

    def wait(self, seconds: float) -> None:
        """Advances the clock; timers run exactly when ``next_deadline`` says."""
        broker = self.broker
        until = broker.now + seconds
        looks = 0
        while True:
            due = broker.next_deadline()
            if due is None or due > until:
                break
            looks += 1
            assert looks < 10_000, "looking again and again does not come to an end"
            broker.now = max(due, broker.now)
            broker.run_timers()
            broker.end_turn()
            self.check()
        broker.now = until
        broker.run_timers()
        broker.end_turn()
        self.check()


class Peer(ProtocolSession):
    """One connection: a client, a worker, or both. Messages from the broker are kept in lists."""

    def __init__(self, world: World, protocol: str = "scripted") -> None:
        self.protocol = protocol
        super().__init__(world.broker, Link(world.hub, LinkHandler(), "scripted"))
        self.link.handler = self
        self.world = world
        self.core = world.broker
        self.worker: Worker | None = None
        self.jobs: list[Request] = []  # delivered and not yet answered, in order
        self.tokens: list[bytes] = []  # of all deliveries ever
        self.finals: list[list[bytes]] = []
        self.partials: list[list[bytes]] = []
        self.failures: list[str] = []
        self.beats: list[float] = []
        self.said: list[str] = []  # expire, dismiss, gone
        self.answered: dict[Request, int] = {}
        self.can_cancel = False
        self.refused = ""  # why its registration was refused
        self.core.session_opened(self)

    # --- as a client

    def client_id_of(self, request: Request) -> bytes:
        return request.ref if isinstance(request.ref, bytes) else b""

    def ask(self, body: bytes = b"body", service: bytes = b"echo", **options: float) -> Request | None:
        return self.ask_with_key(b"", body, service, **options)

    def ask_with_key(
        self, key: bytes, body: bytes = b"body", service: bytes = b"echo", **options: float
    ) -> Request | None:
        deadline = options.pop("deadline", 0.0)
        request = self.core.request(
            self,
            service,
            join([body]) if body else b"",
            body,
            self.core.now + deadline if deadline else 0.0,
            RequestOptions(
                max_wait=options.pop("wait", 0.0),
                max_run=options.pop("run", 0.0),
                attempts=int(options.pop("attempts", 0)),
                fallback=b"default" if options.pop("fallback", 0) else b"",
                key=key,
            )
            if options or key
            else PLAIN,
        )
        assert not options
        self.world.check()
        return request

    def send_partial(self, request: Request, body: Body) -> None:
        assert self.takes_partials and request.state != DONE
        self.partials.append(split(body))

    def send_final(self, request: Request, body: Body) -> None:
        self._once(request)
        assert request.session is self
        self.finals.append(split(body))

    def send_failure(self, request: Request, code: str, text: str) -> None:
        self._once(request)
        assert text
        self.failures.append(code)

    def _once(self, request: Request) -> None:
        assert request.state == DONE and request not in self.answered, "a client is told of an end twice"
        self.answered[request] = 1

    # --- as a worker

    def register(self, *services: bytes, **options: object) -> Worker | None:
        weights = options.pop("weights", None)
        assert weights is None or isinstance(weights, list)
        numbers = {"credit": 1.0, "auto_credit": 1.0, "beat": 2.5, "silence": 7.5}
        for name, value in options.items():
            assert name in numbers and isinstance(value, (int, float))
            numbers[name] = float(value)
        terms = WorkerTerms(int(numbers["credit"]), bool(numbers["auto_credit"]), numbers["beat"], numbers["silence"])
        worker = self.core.register_worker(self, list(services), None, terms, weights)
        self.world.check()
        if isinstance(worker, Refusal):
            self.refused = worker.text
            return None
        self.worker = worker
        return worker

    @property
    def me(self) -> Worker:
        assert self.worker is not None
        return self.worker

    def deliver(self, worker: Worker, request: Request) -> None:
        assert not self.disconnected and worker.alive and not self.said, (
            "a worker that was told to go, or is gone, gets a request"
        )
        assert worker.credit >= 0 and request.token not in self.tokens, "more than it asked for, or under an old token"
        self.jobs.append(request)
        self.tokens.append(request.token)

    def send_heartbeat(self, worker: Worker) -> None:
        assert worker.alive and not self.said
        self.beats.append(round(self.world.now, 3))

    def on_worker_expired(self, worker: Worker) -> None:
        self.said.append("expire")

    def dismiss(self, worker: Worker) -> None:
        self.said.append("dismiss")

    def on_worker_gone(self, worker: Worker) -> None:
        assert "gone" not in self.said and not worker.alive
        self.said.append("gone")

    def cancel_request(self, worker: Worker, request: Request) -> bool:
        if self.can_cancel:
            self.jobs.remove(request)
        return self.can_cancel

    def bodies(self) -> list[bytes]:
        """The requests that it holds, by body."""
        return [request.ref for request in self.jobs if isinstance(request.ref, bytes)]

    def _token(self, index: int) -> bytes:
        return self.jobs.pop(index).token

    def answer(self, *frames: bytes, index: int = 0) -> bool:
        known = self.core.final(self.me, self._token(index), join(list(frames or (b"done",))))
        self.world.check()
        return known

    def part(self, *frames: bytes, index: int = 0) -> bool:
        known = self.core.partial(self.me, self.jobs[index].token, join(list(frames)))
        self.world.check()
        return known

    def fail(self, code: str = "oops", index: int = 0) -> bool:
        known = self.core.fail(self.me, self._token(index), code, "it went wrong")
        self.world.check()
        return known

    def forward(self, service: bytes, body: bytes = b"on", index: int = 0) -> bool:
        known = self.core.forward(self.me, self._token(index), service, join([body]), body)
        self.world.check()
        return known

    def say_beat(self) -> None:
        self.core.heartbeat(self.me)
        self.world.check()

    def leave(self, why: str = "DISCONNECT") -> None:
        self.core.worker_left(self.me, why)
        self.world.check()

    def close(self) -> None:
        self.link.lost()
        self.world.check()
