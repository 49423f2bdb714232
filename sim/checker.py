"""Checks the complete record of a world after its run.

Every call must have one outcome, every reply must belong to its call, and the journal of each run of a broker must show a valid life of
each request. ``sim/watch.py`` has the rules that are checked during the run."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polydomo.journal.reading.audit import audit
from polydomo.journal.reading.rules import RULES
from polydomo.limits import MEMO_ANSWER_TIME
from polydomo.model.outcomes import OUTCOMES
from sim.record import PART

if TYPE_CHECKING:
    from sim.world import World

LONG = 1e9  # seconds, more than any world lasts
JOB_STORE = "the job store"  # the client that the journal names for attempts of durable jobs
KEYED_RUNS = "the broker's keyed requests"  # the worker that holds requests with keys while a request of the broker runs for them


@dataclass
class Breach:
    """A rule that was broken."""

    rule: str
    text: str
    tag: str = ""  # of the call concerned
    detail: str = ""  # a traceback, if any

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


def check(world: "World") -> list[Breach]:
    """Returns all broken rules."""
    found: list[Breach] = []
    _outcomes(world, found)
    _replies(world, found)
    _journal(world, found)
    _audit(world, found)
    return found


def _outcomes(world: "World", found: list[Breach]) -> None:
    """Every call submitted to a client has exactly one outcome."""
    outcomes: dict[str, int] = {}
    for row in world.record.rows:
        if row[2] == "submitted":
            outcomes[_call(str(row[3]))] = 0
        elif row[2] == "outcome":
            call = _call(str(row[3]))
            if call not in outcomes:
                found.append(Breach("one-outcome", f"{call} ended, but was never submitted", str(row[3])))
            else:
                outcomes[call] += 1
    for call, count in outcomes.items():
        if count != 1:
            found.append(Breach("one-outcome", f"{call} has {count} outcomes", f"{call}.0"))


def _replies(world: "World", found: list[Breach]) -> None:
    """A reply belongs to its call, comes from one execution, has all its parts in order, and is the reply that the broker accepted."""
    executions: dict[int, tuple[str, str, int]] = {}  # number -> tag, connection, partials
    enders: dict[str, list[str]] = {}  # tag -> connections of the workers whose reply was accepted
    for row in world.record.rows:
        if row[2] == "job":
            executions[int(str(row[4]))] = (str(row[3]), str(row[5]), int(str(row[6])))
        elif row[2] == "ended" and row[5] == "ok":
            enders.setdefault(str(row[3]), []).append(str(row[7]))
    mixing = world.options.requeue_after_partial
    for call in world.answers:
        parts = [(tag.decode(), int(number), name.decode()) for tag, number, name in PART.findall(b"".join(call.parts))]
        tag = call.tag
        if not parts:
            found.append(Breach("reply", f"{tag} got a reply that no worker sent: {call.parts!r:.200}", tag))
            continue
        number = parts[-1][1]
        whose, connection, partials = executions.get(number, ("", "", 0))
        if any(part[0] != tag for part in parts) or whose != tag:
            found.append(Breach("reply", f"{tag} got the reply to another call: {parts}", tag))
            continue
        names = [f"p{i}" for i in range(partials)] + ["end"]
        got = [part[2] for part in parts if part[1] == number]
        if got != names:
            found.append(Breach("parts", f"{tag} got the parts {got} of execution {number}, which sent {names}", tag))
        if not mixing and any(part[1] != number for part in parts):
            found.append(Breach("parts", f"{tag} got parts of several executions: {parts}", tag))
        if not any(_same(connection, ender) for ender in enders.get(tag, [])):
            found.append(
                Breach(
                    "fencing",
                    f"{tag} got the reply of {connection}, but the broker accepted the reply of {enders.get(tag, [])}",
                    tag,
                )
            )


def _same(worker: str, holder: str) -> bool:
    """Whether both names mean the same worker. A worker over NNG is identified by its process, because it reconnects at any time."""
    return worker == holder or (":" not in worker and holder.startswith(worker + ":"))


def _journal(world: "World", found: list[Breach]) -> None:
    """In one run of a broker, a request is accepted once, is with one worker at a time, ends once, and has no rows after its end."""
    lives: dict[tuple[str, object], Life] = {}
    crashed: set[str] = set()
    memo: set[str] = set()  # connections that speak memo01
    answered: dict[tuple[str, str], float] = {}  # tag and client connection -> time of the reply
    clients: dict[tuple[str, object], str] = {}
    asked: dict[str, int] = {}  # tag -> how often its client has sent it, on any connection
    running: dict[tuple[str, str, str], list[tuple[str, object]]] = {}  # run, client and tag -> its requests
    most = world.options.attempts
    within = 0.0 if world.options.clock_jump else MEMO_ANSWER_TIME  # seconds of the broker's clock, which a jump moves
    for row in world.record.rows:
        run, what, tag = str(row[1]), str(row[2]), str(row[3])
        if what == "crashed":
            crashed.add(run)
        elif what == "opened" and row[5] == "memo":
            memo.add(str(row[6]))
        if what not in (
            "accepted",
            "dispatched",
            "partial",
            "requeued",
            "released",
            "forwarded",
            "ended",
            "joined",
        ) or not run.startswith("b"):
            continue
        key = (run, row[4])
        life = lives.get(key)
        if what == "accepted":
            if life is not None:
                found.append(Breach("journal", f"{run}: request {row[4]} was accepted twice", tag))
            client = str(row[6])
            lives[key] = life = Life(tag, client == JOB_STORE)
            clients[key] = client
            # Another broker may repeat a request that still runs here: by that broker's clock, the first one has timed out.
            if tag and not tag.startswith("garbage") and not client.startswith("b"):
                if ":" in client:
                    asked[tag] = asked.get(tag, 0) + 1
                mine = running.setdefault((run, client, tag), [])
                still = [other[1] for other in mine if not lives[other].outcome]
                # A client of the broker itself (the job store, the relay to process 0) has one for each time that the client has asked.
                if still and (":" in client or len(still) >= asked.get(tag, 0)):
                    found.append(
                        Breach("twice", f"{tag} runs twice at the same time, as requests {still[0]} and {row[4]}", tag)
                    )
                mine.append(key)
                # memo01: a request that is repeated shortly after its reply gets the same reply. MDX: an id can be used again.
                if float(str(row[0])) - answered.get((tag, client), -LONG) < within and client in memo:
                    found.append(Breach("twice", f"{tag} was accepted again after it had been answered", tag))
            continue
        if life is None:
            found.append(Breach("journal", f"{run}: request {row[4]} was {what}, but never accepted", tag))
            continue
        problem = life.take(what, row, most, world.options.bridged)
        if problem:
            found.append(Breach("journal", f"{run}: request {row[4]} {problem}", tag))
        if what == "ended" and row[5] == "ok":
            answered[tag, clients[key]] = float(str(row[0]))
    for (run, number), life in lives.items():
        if not life.outcome and run not in crashed:
            found.append(Breach("journal", f"{run}: request {number} was accepted, but never ended", life.tag))


def _audit(world: "World", found: list[Breach]) -> None:
    """Runs the audit, the one for real journals, on the journal of this world."""
    rules = [rule.id for rule in RULES]
    if world.options.broker_freeze or world.options.clock_jump:
        rules.remove("silence-acted-on")  # a broker that is stopped declares no worker lost
    for breach in audit(world.record.journal, rules):
        tag = ""
        number = breach.about.get("number")
        for row in world.record.rows:
            if row[2] == "accepted" and row[4] == number and _run_number(str(row[1])) == breach.run:
                tag = str(row[3])
        found.append(Breach(f"audit:{breach.rule}", str(breach), tag))


def _run_number(name: str) -> int:
    """The number of a run in the journal: that of ``b1.3`` is 1003."""
    broker, _, run = name[1:].partition(".")
    return 1000 * int(broker) + int(run)


class Life:
    """The state of one request in one run of a broker, as the rows show it."""

    def __init__(self, tag: str, attempt: bool = False) -> None:
        self.tag = tag
        self.attempt = attempt  # of a durable job, which counts the attempts: this request is dispatched once
        self.joined = False  # it waits for the outcome of a durable job
        self.shares = False  # it waits for a run of its key
        self.worker: object = 0  # the worker that holds it
        self.attempts = 0
        self.spent = 0  # attempts that do not count: before it was forwarded, and released before they started
        self.outcome = ""
        self.partials = 0

    def take(self, what: str, row: "tuple[object, ...]", most: int, bridged: bool) -> str:
        """Handles the next row of the request. Returns what is wrong with it, or an empty string."""
        if self.outcome:
            return f"was {what} after it had ended as {self.outcome}"
        if what == "dispatched":
            if self.worker:
                return f"was dispatched to worker {row[6]} while {self.worker} held it"
            self.worker = row[6]
            self.attempts += 1
            self.shares = row[-1] == KEYED_RUNS
            if self.joined or (self.attempt and self.attempts - self.spent > 1):
                return f"was dispatched, but it {'waits for a durable job' if self.joined else 'is a single attempt of a durable job'}"
            if self.attempt:
                return ""
            if row[7] != self.attempts:
                return f"was dispatched as attempt {row[7]}; it is attempt {self.attempts}"
            if self.attempts - self.spent > most:
                return f"was dispatched {self.attempts - self.spent} times; {most} are allowed"
        elif what == "partial":
            if row[5] != self.worker:
                return f"got a partial from worker {row[5]} while {self.worker or 'no worker'} held it"
            self.partials += 1
        elif what == "requeued":
            if row[6] != self.worker:
                return f"was requeued from {row[6]}, but {self.worker or 'no worker'} held it"
            self.worker = 0
        elif what == "released":
            if row[5] != self.worker:
                return f"was released by {row[5]}, but {self.worker or 'no worker'} held it"
            self.worker = 0
            self.spent += 1
        elif what == "forwarded":
            if row[5] != self.worker:
                return f"was forwarded by {row[5]}, but {self.worker or 'no worker'} held it"
            self.worker = 0
            self.spent = self.attempts
        elif what == "joined":
            self.joined = True
        elif what == "ended":
            self.outcome = str(row[5])
            if self.outcome not in OUTCOMES:
                return f"ended as {self.outcome!r}"
            if self.joined or self.attempt:
                return ""  # the audit and the rules about replies check these
            if self.outcome == "ok" and (not self.worker or row[6] != self.worker):
                return f"was answered by {row[6]} while {self.worker or 'no worker'} held it"
            # With bridges, another broker may have used up the attempts.
            if self.outcome == "gave-up" and self.attempts - self.spent < most and not bridged and not self.shares:
                return f"was given up after {self.attempts - self.spent} of {most} attempts"
        return ""


def _call(tag: str) -> str:
    """The call that a tag belongs to. The last part of a tag is the number of the client's attempt."""
    return tag.rpartition(".")[0]
