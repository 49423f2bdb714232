"""The brokers of ``sim.durable``: machines that crash and freeze, each with workers and one client."""

from collections.abc import Callable
from datetime import UTC, tzinfo
from random import Random
from typing import TYPE_CHECKING, Any

from polydomo.broker.broker import Broker
from polydomo.broker.entropy import Entropy
from polydomo.broker.flows.events import FlowEvent
from polydomo.broker.flows.flow import NodeEnd
from polydomo.broker.guard.rules import AccessRule, AccessRules
from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.durable import Durable
from polydomo.broker.jobs.events import JobEvent
from polydomo.broker.jobs.job import Job
from polydomo.broker.jobs.policy import JobListener, JobPolicy
from polydomo.broker.observe.recorder import Recorder
from polydomo.broker.sharing.memoised import Memoiser
from polydomo.journal import schema
from polydomo.journal.recording import event_fields
from polydomo.model.detached_link import DetachedLink
from polydomo.model.name_patterns import PatternMap, chosen
from polydomo.model.records import Request, Worker
from polydomo.model.registration import WorkerTerms
from polydomo.model.retry_policy import Backoff
from polydomo.model.session import ProtocolSession
from polydomo.model.shared_run import first_ref
from polydomo.protocols.memo.store_api import MemoValues
from polydomo.wire.close_reason import CloseCause, CloseReason
from polydomo.wire.frames import Body, frame, split
from polydomo.wire.link import Hub, LinkHandler
from sim.durable_flows import MARK
from sim.durable_store import Breach, DiskStore
from sim.suspended import excuse_suspension

if TYPE_CHECKING:
    from sim.durable import World

Row = dict[str, Any]
START = 1_700_000_000.0  # the wall clock when a world begins
STREAMED = b"streamed "  # workers send parts of the reply to such a body
DOOMED = b"doomed "  # the body of a job that can never succeed begins with this, and workers say so
SERVICES = ("work", "kept.work")  # the second is durable for plain requests
OWNER, POOL, OUTSIDER = "owner", "pool", "outsider"
RULES = [
    AccessRule(1, [OWNER], {"admin": ["*"]}),
    AccessRule(2, [POOL], {"offer": ["*"]}),
    AccessRule(3, [OUTSIDER], {"call": ["work", "titanic.*"]}),  # the same services, and none of the owner's jobs
]


def part_text(body: bytes, run: int, number: int) -> bytes:
    """A part of a reply: it differs in each run of the body."""
    return b"%b run %d part %d" % (body, run, number)


class Dice(Entropy):
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def take(self, size: int) -> bytes:
        return self.random.randbytes(size)


class Peer(ProtocolSession):
    """A connection of a simulated client or worker."""

    def __init__(self, broker: Broker, principal: str) -> None:
        self.protocol = "sim"
        super().__init__(broker, DetachedLink(Hub(), LinkHandler(), "sim"))
        self.principal = self.link.principal = principal

    def send_final(self, request: Request, body: Body) -> None:
        if callable(request.ref):
            request.ref(split(body) if body else [], "", "")

    def send_failure(self, request: Request, code: str, text: str) -> None:
        if callable(request.ref):
            request.ref([], code, text)

    def deliver(self, worker: Worker, request: Request) -> None:
        raise NotImplementedError


class Journal(JobListener):
    """The journal of one run of a broker. What all of them have in common: nothing that must happen once is recorded twice (rules
    ``job-one-outcome`` and ``schedule-fires-once``). The rows about flows are audited at the end."""

    def __init__(self, once: set[tuple[bool, str]], rows: list[Row], run: int) -> None:
        self.once = once
        self.rows = rows  # of all runs
        self.run = run

    def add(self, event: str, fields: Row) -> None:
        place: Row = {"time": len(self.rows), "run": self.run, "seq": len(self.rows), "event": event}
        self.rows.append(schema.row(schema.MESSAGES, **place, **fields))

    def flow_event(self, event: FlowEvent) -> None:
        self.add(schema.FLOW, event_fields.of_flow(event))

    def node_ended(self, end: NodeEnd) -> None:
        self.add(schema.NODE, event_fields.of_node(end))

    def job_event(self, event: JobEvent) -> None:
        if event.flow:
            self.add(schema.JOB, event_fields.of_job(event))
        if event.once:
            seen = (event.what in states.ENDED, event.once)
            if seen in self.once:
                raise Breach(f"{event.what} of {event.once} was recorded twice")
            self.once.add(seen)


class Lookups(Recorder):
    """Passes what the memo store was asked for nodes of flows to the journal."""

    def __init__(self, journal: Journal) -> None:
        self.kept_by = journal

    def memoised(self, request: Request, how: str) -> None:
        fields = event_fields.of_lookup(request, how)
        if fields.get("flow"):
            self.kept_by.add(schema.MEMO, fields)


class Hands(Peer):
    """A worker: answers, fails, or is lost with its requests."""

    def __init__(self, host: "Host") -> None:
        super().__init__(host.broker, POOL)
        self.host = host
        self.worker: Worker | None = None

    def deliver(self, worker: Worker, request: Request) -> None:
        world = self.host.world
        world.limits.started(self.host, request)
        frames = split(request.body) if request.body else []
        token, body = request.token, b"".join(frames)
        answer = body.upper()
        if body.startswith(MARK):
            job = first_ref(request.ref)
            answer = world.flows[int(frames[0].split()[1])].run(
                frames, self.host.store, job.id if isinstance(job, Job) else ""
            )
            body = body if answer else DOOMED + body
        elif body not in world.bodies:
            raise Breach(f"a worker got {body!r}, which no client submitted")
        world.runs[body] += 1
        fails = world.faulty and world.dice.random() < world.plan.fails

        # Some workers send the answer in parts, each with the number of the run, which is not in the result's last part.
        run = world.runs[body]
        wait = world.dice.choice([0.001, 0.05, 1.0, 5.0])
        parts = world.parts.choice([0, 1, 3, 6]) if body.startswith(STREAMED) else 0
        for number in range(1, parts + 1):
            said = frame(part_text(body, run, number), False)
            late = number == parts and world.parts.random() < 0.5  # it comes after the end of the attempt
            at = wait + 2.0 * world.parts.random() if late else 0.9 * wait * world.parts.random()

            def send(said: bytes = said) -> None:
                self.host.broker.partial(worker, token, said)  # also if the worker was declared lost

            world.later(at, self.host.guarded(lambda send=send: self.host.turn(send)))  # type: ignore[misc]

        def end() -> None:
            if worker.alive:
                if body.startswith(DOOMED):
                    self.host.broker.fail(worker, token, "permanent", "it can never succeed\0")
                elif fails:
                    self.host.broker.fail(worker, token, "failed", "no luck")
                else:
                    self.host.broker.final(worker, token, frame(answer, False))

        world.later(wait, self.host.guarded(lambda: self.host.turn(end)))


class Host:
    """A machine with one broker at a time."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.life = 0  # number of starts: events of an earlier one are dropped
        self.up = False
        self.frozen_until = 0.0
        self.put_off: list[Callable[[], None]] = []
        self.memo = MemoValues()  # on its disk
        self.start()

    def start(self) -> None:
        world = self.world
        self.life += 1
        self.up = True
        self.broker = Broker(world.now, Dice(world.dice.randrange(2**32)), world.limits.policy(), wall=START)
        self.broker.limiter.start_at(world.now)  # as the server does
        self.store = DiskStore(self)
        policy = JobPolicy()
        policy.backoff = Backoff(attempts=4, first=0.5, most=5.0)
        policy.keep = policy.keep_dead = 1e6
        policy.repeat = 600.0
        names = chosen(["kept.*"])
        journal = Journal(world.once, world.rows, world.started())
        self.durable = Durable(self.broker, self.broker, self.store, policy, names, zone, journal)
        broker, memo = self.broker, self.memo
        broker.record_to(Lookups(journal))
        broker.reuse_replies(lambda: Memoiser(broker, broker, memo, PatternMap({}), PatternMap({})))
        self.broker.use_jobs(self.durable)
        self.timer_at = 0.0
        self.hands: list[Hands] = []
        self.broker.access.replace(AccessRules([OWNER, POOL, OUTSIDER], RULES))
        self.client, self.outsider = Peer(self.broker, OWNER), Peer(self.broker, OUTSIDER)
        self.turn(lambda: self.broker.session_opened(self.client))
        self.turn(lambda: self.broker.session_opened(self.outsider))
        for _ in range(2):
            self.hire()
        self.store.tick()

    def hire(self) -> None:
        hands = Hands(self)

        def register() -> None:
            self.broker.session_opened(hands)
            worker = self.broker.register_worker(hands, [name.encode() for name in SERVICES], None, WorkerTerms(1, 1))
            assert isinstance(worker, Worker)
            hands.worker = worker

        self.hands.append(hands)
        self.turn(register)

    def lose(self) -> None:
        """A worker's connection breaks; a new worker replaces it."""
        if self.hands:
            hands = self.hands.pop(self.world.dice.randrange(len(self.hands)))
            self.turn(lambda: self.broker.session_closed(hands, CloseReason(CloseCause.CONNECTION_LOST)))
            self.world.later(1.0, self.guarded(self.hire))

    def crash(self) -> None:
        """Everything that is not in the store is lost. A commit in progress is complete or has no effect."""
        if not self.up:
            return
        self.world.faults["crashes"] += 1
        self.up = False
        self.life += 1
        self.put_off = []
        self.world.later(self.world.dice.choice([0.1, 2.0, 15.0]), self.start)

    def freeze(self, seconds: float) -> None:
        self.world.faults["freezes"] += 1
        self.frozen_until = max(self.frozen_until, self.world.now + seconds)
        self.world.later(seconds, self.thaw)

    def thaw(self) -> None:
        if self.world.now >= self.frozen_until:
            waiting, self.put_off = self.put_off, []
            for function in waiting:
                function()

    def guarded(self, function: Callable[[], None]) -> Callable[[], None]:
        """Schedules a call, unless the broker has been restarted by then; delayed while it is frozen."""
        life = self.life

        def run() -> None:
            if self.life != life:
                return
            if self.world.now < self.frozen_until:
                self.put_off.append(run)
            else:
                function()

        return run

    def turn(self, function: Callable[[], object]) -> None:
        """One turn of the broker's loop."""
        broker = self.broker
        broker.now = self.world.now
        function()
        broker.end_turn()
        when = broker.next_deadline()
        if when is not None and (not self.timer_at or when < self.timer_at or self.timer_at <= self.world.now):
            self.timer_at = when
            self.world.later(max(0.0, when - self.world.now), self.guarded(self.timer))

    def timer(self) -> None:
        self.timer_at = 0.0
        self.turn(self._run_timers)
        self.broker.check_invariants()

    def _run_timers(self) -> None:
        excuse_suspension(self.broker)
        self.broker.run_timers()


def zone(name: str) -> tzinfo:
    return UTC
