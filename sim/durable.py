"""Simulates durable jobs with faults: brokers crash and freeze, disks and databases fail, leases expire, workers and clients disconnect.

One seed is one world: one to three brokers of the real code (``Broker`` and ``Durable``) on a store whose faults are drawn from the seed.
The store keeps only committed data. A commit in progress when its broker crashes is either complete or has no effect. A transaction may be
rolled back, or its answer may be lost, so that it is applied again with what came since. After some time the faults stop, and then every
rule must hold:

- every acknowledged job has one recorded outcome, which never changed, and a correct result;
- nothing is acknowledged, and no outcome is reported, before it is in the store;
- submissions with the same key have one job;
- a job whose worker reported a permanent failure has no further attempt;
- no run of a schedule is stored twice, and none is missing;
- partial replies: none is shown before it is in the store; a client that continues behind the last one it has gets each once, in order,
  without a gap; those of an attempt are never mixed with those of another; the rest of the result is shown at the end;
- limits of a service: no window holds more starts than allowed, over all brokers of the store; no leader runs more than allowed;
- flows: see ``sim.durable_flows``; their journals break no rule of the audit about nodes;
- another principal, which may call the same service, neither gets nor ends a job, and its use of the same key makes another job;
- a stored job whose bytes flipped is dead with that reason, or has the right result if it was in memory: no wrong body reaches a worker,
  and no wrong result a client.

    python -m sim.durable --seeds 1000 --first 1
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random

from polydomo.broker.flows import flow as flows
from polydomo.broker.jobs import job as states
from polydomo.journal.reading.audit import audit
from polydomo.journal.reading.rules import FLOWS, RULES
from polydomo.model.flows.flow import Flow
from polydomo.model.flows.growth import write_stored_flow
from polydomo.model.jobs.messages import make_id, read_answer, write_message
from polydomo.model.outcomes import KEY_REUSED
from polydomo.stores.memory_tables import MemoryTables
from polydomo.wire.frames import frame, join
from sim.durable_flows import SimulatedFlow
from sim.durable_hosts import DOOMED, START, STREAMED, Host, Row
from sim.durable_limits import JobLimits
from sim.durable_store import Breach, Database
from sim.durable_streams import Follower, result_fits

KEYS = 5
FLOW_RULES = [rule.id for rule in RULES if rule.shape == FLOWS]
CALM = 420.0  # seconds without faults at the end: flows that grow need more than others


@dataclass
class Plan:
    """The parameters that a seed draws."""

    seed: int
    brokers: int = 1
    shared: bool = False
    jobs: int = 20
    plain: int = 8
    schedules: int = 1
    flows: int = 0
    trouble: float = 60.0  # seconds in which faults happen
    crashes: int = 3
    freezes: int = 2
    outages: int = 2
    worker_losses: int = 6
    fails: float = 0.2
    lost_answers: float = 0.1
    fails_alone: float = 0.0  # operations that the store cannot do, while it does others
    disk: float = 0.02  # seconds that a commit takes
    flips: int = 0  # stored jobs of which a byte changes
    running: int = 0  # limits of the service, per group; 0: none
    rate: int = 0
    window: float = 1.0
    stored: bool = False  # the limits are those that an operator has set, not those of the settings


def draw(seed: int) -> Plan:
    dice = Random(seed)
    plan = Plan(seed)
    plan.shared = dice.random() < 0.6
    plan.brokers = dice.choice([1, 2, 2, 3]) if plan.shared else 1
    plan.jobs = dice.randint(5, 40)
    plan.plain = dice.randint(0, 15)
    plan.schedules = dice.randint(0, 2)
    plan.crashes = dice.randint(0, 6)
    plan.freezes = dice.randint(0, 4)
    plan.outages = dice.randint(0, 3)
    plan.worker_losses = dice.randint(0, 10)
    plan.fails = dice.choice([0.0, 0.2, 0.5])
    plan.lost_answers = dice.choice([0.0, 0.1, 0.4])
    plan.disk = dice.choice([0.001, 0.02, 0.3])
    plan.flips = Random(seed * 104_729).choice([0, 0, 2, 6])
    plan.fails_alone = Random(seed * 141_650_939).choice([0.0, 0.0, 0.02, 0.2])
    plan.flows = Random(seed * 6_700_417).choice([0, 1, 2, 4])
    limits = Random(seed * 122_949_823)
    if limits.random() < 0.5:
        plan.running = limits.choice([0, 1, 3])
        plan.rate = limits.choice([0, 2, 5]) if plan.running else limits.choice([2, 5])
        plan.window = limits.choice([0.5, 2.0])
        plan.stored = limits.random() < 0.5
        if plan.running == 1:
            plan.flows = 0  # they would take longer than the calm at the end
    return plan


@dataclass
class World:
    plan: Plan
    now: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    runs: Counter[bytes] = field(default_factory=Counter)
    acknowledged: dict[str, bytes] = field(default_factory=dict)  # job -> body
    keys: dict[str, str] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)  # job -> the outcome that a client received
    replies: int = 0
    bodies: set[bytes] = field(default_factory=set)  # of all that was submitted
    once: set[tuple[bool, str]] = field(default_factory=set)  # what was recorded that must happen once
    rows: list[Row] = field(default_factory=list)  # of the journals of all brokers, about flows
    brokers_started: int = 0
    faulty: bool = True

    def __post_init__(self) -> None:
        self.dice = Random(self.plan.seed * 7919 + 1)
        self.damage = Random(self.plan.seed * 104_729 + 1)
        self.outside = Random(self.plan.seed * 15_485_863 + 1)
        self.parts = Random(self.plan.seed * 32_452_843 + 1)
        self.undone = Random(self.plan.seed * 86_028_121 + 1)
        self.alone = Random(self.plan.seed * 141_650_939 + 1)
        self.streams = 0  # that a client followed to their end
        self.foreign: set[str] = set()  # jobs of the other principal
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = count()
        self.database = Database(MemoryTables(), self.plan.shared)
        self.limits = JobLimits(self)
        self.flows = [SimulatedFlow(self, n) for n in range(self.plan.flows)]
        self.hosts = [Host(self, f"host{n}") for n in range(self.plan.brokers)]

    def started(self) -> int:
        """The number of a new run of a broker."""
        self.brokers_started += 1
        return self.brokers_started

    def wall(self) -> float:
        return START + self.now

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        heappush(self.queue, (self.now + seconds, next(self.numbers), function))

    def latency(self) -> float:
        slow = self.now < self.database.slow_until
        return self.plan.disk * self.dice.uniform(0.5, 2.0) + (self.dice.uniform(1.0, 12.0) if slow else 0.0)

    def run(self) -> "World":
        plan, dice = self.plan, self.dice
        for n in range(plan.jobs):
            self.later(dice.uniform(0, plan.trouble), lambda n=n: self.submit(n))  # type: ignore[misc]
        for n in range(plan.plain):
            self.later(dice.uniform(0, plan.trouble), lambda n=n: self.plain(b"plain %d" % n, 0))  # type: ignore[misc]
        for n in range(plan.schedules):
            self.later(dice.uniform(5, 10), lambda n=n: self.schedule(n))  # type: ignore[misc]
        for n in range(KEYS):
            self.later(self.outside.uniform(0, plan.trouble / 2), lambda n=n: self.use_key(n))  # type: ignore[misc]
        for flow in self.flows:
            self.later(flow.dice.uniform(0, plan.trouble / 2), flow.start)
        for _ in range(plan.crashes):
            self.later(dice.uniform(0, plan.trouble), lambda: dice.choice(self.hosts).crash())
        for _ in range(plan.freezes):
            self.later(
                dice.uniform(0, plan.trouble), lambda: dice.choice(self.hosts).freeze(dice.choice([1.0, 8.0, 25.0]))
            )
        for _ in range(plan.worker_losses):
            self.later(dice.uniform(0, plan.trouble), lambda: self.lose_worker())
        for _ in range(plan.outages):
            self.later(dice.uniform(0, plan.trouble), self.outage)
        for _ in range(plan.flips):
            self.later(self.damage.uniform(0, plan.trouble), self.flip)
        self.later(plan.trouble, self.heal)
        end = plan.trouble + CALM
        while self.queue and self.queue[0][0] <= end:
            self.now, _, function = heappop(self.queue)
            self.database.now = self.now
            function()
        self.check()
        return self

    def lose_worker(self) -> None:
        host = self.dice.choice(self.hosts)
        if host.up:
            self.faults["workers lost"] += 1
            host.guarded(host.lose)()

    def outage(self) -> None:
        until = self.now + self.dice.choice([0.5, 5.0, 20.0])
        kind = self.dice.choice(["away", "full", "slow"])
        self.faults[f"store {kind}"] += 1
        if kind == "away":
            self.database.away_until = until
        elif kind == "full":
            self.database.full_until = until
        else:
            self.database.slow_until = until

    def flip(self) -> None:
        """A byte of a stored job changes on disk."""
        found = [job for job in self.database.tables.jobs.values() if job.id not in self.database.flipped]
        if not found:
            return
        job = self.damage.choice(found)
        parts = [name for name in ("body", "result", "service") if getattr(job, name)]
        name = self.damage.choice(parts)
        content = bytearray(getattr(job, name))
        content[self.damage.randrange(len(content))] ^= 1 << self.damage.randrange(5)
        setattr(job, name, bytes(content))
        self.database.flipped.add(job.id)
        self.faults[f"{name} flipped"] += 1

    def heal(self) -> None:
        self.faulty = False
        self.database.away_until = self.database.full_until = self.database.slow_until = 0.0

    # --- clients

    def ask(
        self,
        service: str,
        frames: list[bytes],
        answer: Callable[[list[bytes], str, str], None],
        outside: bool = False,
    ) -> None:
        """Sends one request to a broker. Without an answer, it ends after a timeout. ``outside``: from the principal without rights to the
        jobs."""
        host = self.dice.choice(self.hosts)
        done: list[bool] = []

        def once(reply: list[bytes], code: str, text: str) -> None:
            if not done:
                done.append(True)
                answer(reply, code, text)

        def send() -> None:
            peer = host.outsider if outside else host.client
            host.turn(lambda: host.broker.request(peer, service.encode(), join(frames), once))

        if host.up:
            host.guarded(send)()
        self.later(30.0, lambda: once([], "no-answer", ""))

    def submit(self, n: int) -> None:
        dice = self.dice
        body = b"job %d" % n
        key = f"key{n % KEYS}" if n % 4 == 0 else ""
        if key:
            body = b"job of " + key.encode()
        elif n % 7 == 3:
            body = DOOMED + body
        elif n % 3 == 1:
            body = STREAMED + body
        self.bodies.add(body)
        header: dict[str, object] = {"service": "work", "id": make_id(self.wall(), dice.randbytes(10))}
        if key:
            header["key"] = key
        if dice.random() < 0.2:
            header["delay_us"] = dice.randint(0, 20_000_000)
        if self.limits.limits is not None:
            header["group"] = f"group{n % 2}"
        if dice.random() < 0.1:
            header["ttl_us"] = dice.randint(1_000_000, 60_000_000)
        message = write_message(header, [body])

        def answered(reply: list[bytes], code: str, text: str) -> None:
            row, _ = read_answer(reply) if reply else ({"error": code}, [])
            if row.get("error") is not None:
                self.later(1.0, lambda: self.ask("polydomo.submit", message, answered))
                return
            id = str(row["job"])
            if id not in self.database.tables.jobs:
                raise Breach(f"job {id} was acknowledged and is not in the store")
            if key and self.keys.setdefault(key, id) != id:
                raise Breach(f"{key} is job {self.keys[key]} and job {id}")
            self.acknowledged[id] = body
            self.later(self.outside.uniform(0, 20), lambda: self.trespass(id))
            self.later(dice.uniform(0, 40), lambda: self.fetch(id, body))
            if body.startswith(STREAMED):
                self.later(self.parts.uniform(0, 10), Follower(self, id, body).ask)

        self.ask("polydomo.submit", message, answered)

    def trespass(self, id: str) -> None:
        """Another principal tries to get or to end a job."""
        act = self.outside.choice(
            ["polydomo.job", "polydomo.result", "polydomo.cancel", "titanic.reply", "titanic.close"]
        )
        titanic = act.startswith("titanic")

        def answered(reply: list[bytes], code: str, text: str) -> None:
            if code or not reply:
                return
            allowed = reply[0] not in (b"400", b"500") if titanic else read_answer(reply)[0].get("error") is None
            if allowed:
                raise Breach(f"another principal was allowed {act} of job {id}: {reply!r:.200}")

        self.ask(act, [id.encode()] if titanic else write_message({"job": id}), answered, outside=True)

    def use_key(self, n: int) -> None:
        """Another principal submits a job under a key of the owner."""
        body = b"outside %d" % n
        self.bodies.add(body)

        def answered(reply: list[bytes], code: str, text: str) -> None:
            row, _ = read_answer(reply) if reply else ({"error": code}, [])
            if row.get("error") == KEY_REUSED:
                raise Breach(f"key{n} of one principal is taken for another")
            if row.get("error") is None:
                self.foreign.add(str(row["job"]))

        header: dict[str, object] = {"service": "work", "key": f"key{n}"}
        self.ask("polydomo.submit", write_message(header, [body]), answered, outside=True)

    def fetch(self, id: str, body: bytes) -> None:
        def answered(reply: list[bytes], code: str, text: str) -> None:
            row, result = read_answer(reply) if reply else ({"error": code}, [])
            if row.get("error") is not None:
                if row["error"] == "not-found":
                    raise Breach(f"job {id} was acknowledged and is not found")
                self.later(2.0, lambda: self.fetch(id, body))
                return
            self.tell(id, str(row["state"]), str(row["outcome"]), b"".join(result), body)

        self.ask("polydomo.result", write_message({"job": id, "wait_us": 10_000_000}), answered)

    def tell(self, id: str, state: str, outcome: str, result: bytes, body: bytes) -> None:
        if outcome == states.DAMAGED:
            if id not in self.database.flipped or result:
                raise Breach(f"job {id} is called damaged, and it has the result {result!r}")
            self.told[id] = state
            return
        recorded = self.database.outcomes.get(id)
        if recorded is None or recorded[0] != state:
            raise Breach(f"a client received {state} for job {id}, but the store has {recorded}")
        if state == states.DONE and not result.endswith(body.upper()):
            raise Breach(f"job {id} gave {result!r} for {body!r}")
        self.told[id] = state

    def plain(self, body: bytes, tries: int) -> None:
        """A plain request to a durable service; repeated until it is answered."""

        def answered(reply: list[bytes], code: str, text: str) -> None:
            if code in ("failed", "gave-up", "timeout"):
                return  # an outcome
            if code or not reply:
                if tries < 60:
                    self.later(self.dice.uniform(0.5, 3.0), lambda: self.plain(body, tries + 1))
                return
            if b"".join(reply) != body.upper():
                raise Breach(f"{reply!r} for {body!r}")
            stored = [job for job in self.database.tables.jobs.values() if job.result == frame(body.upper(), False)]
            if not stored and not self.database.flipped:
                raise Breach(f"the reply to {body!r} was sent and is not in the store")
            self.replies += 1

        self.bodies.add(body)
        self.ask("kept.work", [body], answered)

    def schedule(self, n: int) -> None:
        header: dict[str, object] = {"name": f"tick{n}", "service": "work", "when": f"every {3 + n}s"}
        self.bodies.add(b"tick %d" % n)
        message = write_message(header, [b"tick %d" % n])
        if Random(self.plan.seed * 31 + n).random() < 0.5:  # it starts a flow of two nodes
            del header["service"]
            header["when"] = f"every {9 + n}s"
            flow = Flow("ticks")
            flow.call("work", b"tick %d" % n, after=[flow.call("work", b"tick %d" % n)])
            message = write_message({**header, "flow": True}, [write_stored_flow(flow)])

        def answered(reply: list[bytes], code: str, text: str) -> None:
            row, _ = read_answer(reply) if reply else ({"error": code}, [])
            if row.get("error") is not None:
                self.later(1.0, lambda: self.ask("polydomo.schedule", message, answered))

        self.ask("polydomo.schedule", message, answered)

    # --- the rules, once the faults are over

    def check(self) -> None:
        tables = self.database.tables
        for found in audit(self.rows, FLOW_RULES):
            raise Breach(f"audit: {found}")
        for flow in self.flows:
            flow.check()
        if self.foreign & self.acknowledged.keys():
            raise Breach(f"jobs of two principals are the same: {self.foreign & self.acknowledged.keys()}")
        for id, body in self.acknowledged.items():
            job = tables.jobs.get(id)
            if job is None:
                raise Breach(f"job {id} was acknowledged, but the store does not have it")
            if job.state not in states.ENDED:
                raise Breach(
                    f"job {id} has no outcome: {job.state}, {job.attempts} attempts, due {job.due - START:.1f}"
                )
            if job.state == states.DONE and id not in self.database.flipped and not result_fits(job.result, body):
                raise Breach(f"job {id} has the result {job.result!r} for {body!r}")
            if id not in self.told:
                raise Breach(f"no client could fetch the outcome of job {id}")
        scheduled = {row.id: row for row in tables.flows.values() if row.key.startswith("tick")}
        for row in scheduled.values():
            if row.state not in flows.ENDED and row.created < self.wall() - 120.0:
                raise Breach(f"the flow of a schedule is {row.state}: {row.key}")
        for job in tables.jobs.values():
            doomed = DOOMED in job.body
            again = max((at for at, row in enumerate(job.story) if row["outcome"] == states.REOPENED), default=-1)
            before = job.story[again + 1 : -1]
            if doomed and (job.state == states.DONE or any("permanent" in str(row["reason"]) for row in before)):
                raise Breach(f"job {job.id} cannot succeed, but was tried again: {job.state}, {job.attempts} attempts")
            if job.state not in states.ENDED and not job.schedule and job.flow not in scheduled:
                raise Breach(f"job {job.id} was stored and never ended: {job.attempts} attempts")
            if job.attempts > 4:
                raise Breach(f"job {job.id} was tried {job.attempts} times")
        for (name, fired), times in self.database.fired.items():
            if times != 1:
                raise Breach(f"{name} ran {times} times for {fired - START:.1f}")
        for name, planned in tables.schedules.items():
            if planned.next and planned.next < self.wall() - 60.0:
                raise Breach(f"{name} should have run at {planned.next - START:.1f}, and it is {self.now:.1f}")


def run_seed(seed: int) -> tuple[int, str, Counter[str], int]:
    """(seed, what broke or "", faults, acknowledged jobs)."""
    world = World(draw(seed))
    try:
        world.run()
    except Breach as breach:
        return seed, str(breach), world.faults, len(world.acknowledged)
    except AssertionError as error:
        return seed, f"invariant: {error}", world.faults, len(world.acknowledged)
    except Exception as error:
        return seed, f"fault: {error!r}", world.faults, len(world.acknowledged)
    return seed, "", world.faults, len(world.acknowledged)


def main() -> int:
    parser = argparse.ArgumentParser(description="Simulate durable jobs.")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    faults: Counter[str] = Counter()
    acknowledged = 0
    broken = 0
    with ProcessPoolExecutor(given.jobs) as pool:
        for seed, breach, found, jobs in pool.map(
            run_seed, range(given.first, given.first + given.seeds), chunksize=20
        ):
            faults.update(found)
            acknowledged += jobs
            if breach:
                broken += 1
                print(f"seed {seed}: {breach}", flush=True)
    counts = ", ".join(f"{number:,} {name}" for name, number in faults.most_common())
    print(f"{given.seeds} seeds, {acknowledged:,} jobs acknowledged, faults: {counts}")
    print("every seed held" if not broken else f"{broken} seeds broke a rule")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
