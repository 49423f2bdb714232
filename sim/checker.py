"""Checks the record as a whole: every call has one outcome, every reply belongs to its call, and the journal of each run shows a valid
life of each request."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polydomo.journal.audit import audit
from polydomo.journal.rules import RULES
from polydomo.limits import MEMO_ANSWER_TIME
from polydomo.protocols.request import OUTCOMES
from sim.record import PART

if TYPE_CHECKING:
    from sim.world import World

LONG = 1e9  # seconds
JOB_STORE = "the job store"  # the peer of the attempts of durable jobs


@dataclass
class Breach:
    rule: str
    text: str
    tag: str = ""  # the call concerned
    detail: str = ""  # a traceback, if any

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


def check(world: "World") -> list[Breach]:
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
                found.append(Breach("one-outcome", f"{call} ended and was never submitted", str(row[3])))
            else:
                outcomes[call] += 1
    for call, count in outcomes.items():
        if count != 1:
            found.append(Breach("one-outcome", f"{call} has {count} outcomes", f"{call}.0"))


def _replies(world: "World", found: list[Breach]) -> None:
    """A reply belongs to its call, comes from one execution, is complete and in order, and is the answer that the broker accepted."""
    executions: dict[int, tuple[str, str, int]] = {}  # number -> tag, connection, partials
    enders: dict[str, list[str]] = {}  # tag -> connections of the workers whose answer was accepted
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
                    f"{tag} got the reply of {connection}, and the broker accepted {enders.get(tag, [])}",
                    tag,
                )
            )


def _same(worker: str, holder: str) -> bool:
    """A worker over NNG is known by its process: its connections come and go."""
    return worker == holder or (":" not in worker and holder.startswith(worker + ":"))


def _journal(world: "World", found: list[Breach]) -> None:
    """The life of each request in one run: accepted, dispatched to one worker at a time, requeued, ended once, and then nothing."""
    lives: dict[tuple[str, object], Life] = {}
    crashed: set[str] = set()
    memo: set[str] = set()  # connections that speak memo01
    answered: dict[tuple[str, str], float] = {}  # tag and client connection -> when it was answered
    clients: dict[tuple[str, object], str] = {}
    running: dict[tuple[str, str, str], list[tuple[str, object]]] = {}  # requests of one client with one tag
    most = world.options.attempts
    within = 0.0 if world.options.clock_jump else MEMO_ANSWER_TIME  # in the broker's time
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
            # A request that another broker repeats may still run here: it ended there first, by another clock.
            if tag and not tag.startswith("garbage") and not client.startswith("b"):
                for other in running.setdefault((run, client, tag), []):
                    if not lives[other].outcome:
                        found.append(Breach("twice", f"{tag} runs as request {other[1]} and as {row[4]}", tag))
                running[run, client, tag].append(key)
                # memo01: "one shortly after its answer gets the same answer"; MDX: an id that was answered is free again.
                if float(str(row[0])) - answered.get((tag, client), -LONG) < within and client in memo:
                    found.append(Breach("twice", f"{tag} was answered and then accepted again", tag))
            continue
        if life is None:
            found.append(Breach("journal", f"{run}: request {row[4]} was {what} and never accepted", tag))
            continue
        problem = life.take(what, row, most, world.options.bridged)
        if problem:
            found.append(Breach("journal", f"{run}: request {row[4]} {problem}", tag))
        if what == "ended" and row[5] == "ok":
            answered[tag, clients[key]] = float(str(row[0]))
    for (run, number), life in lives.items():
        if not life.outcome and run not in crashed:
            found.append(Breach("journal", f"{run}: request {number} was accepted and never ended", life.tag))


def _audit(world: "World", found: list[Breach]) -> None:
    """Runs the audit of real journals on the journal of this world."""
    rules = [rule.id for rule in RULES]
    if world.options.broker_freeze or world.options.clock_jump:
        rules.remove("silence-acted-on")  # a broker that does not run cannot declare a worker lost
    for breach in audit(world.record.journal, rules):
        tag = ""
        number = breach.about.get("number")
        for row in world.record.rows:
            if row[2] == "accepted" and row[4] == number and _run_number(str(row[1])) == breach.run:
                tag = str(row[3])
        found.append(Breach(f"audit:{breach.rule}", str(breach), tag))


def _run_number(name: str) -> int:
    """``b1.3`` is run 1003."""
    broker, _, run = name[1:].partition(".")
    return 1000 * int(broker) + int(run)


class Life:
    """One request in one run of a broker."""

    def __init__(self, tag: str, attempt: bool = False) -> None:
        self.tag = tag
        self.attempt = attempt  # of a durable job: it is dispatched once, and the job counts the attempts
        self.joined = False  # it waits for the outcome of a durable job
        self.worker: object = 0  # the worker that holds it
        self.attempts = 0
        self.spent = 0  # before it was forwarded, or released without having been started
        self.outcome = ""
        self.partials = 0

    def take(self, what: str, row: "tuple[object, ...]", most: int, bridged: bool) -> str:
        """Handles the next row about it; returns the problem, or an empty text."""
        if self.outcome:
            return f"was {what} after it had ended as {self.outcome}"
        if what == "dispatched":
            if self.worker:
                return f"was dispatched to worker {row[6]} while {self.worker} held it"
            self.worker = row[6]
            self.attempts += 1
            if self.joined or (self.attempt and self.attempts - self.spent > 1):
                return f"was dispatched, but {'waits for a job' if self.joined else 'is one attempt of a job'}"
            if self.attempt:
                return ""
            if row[7] != self.attempts:
                return f"was dispatched for the {self.attempts}. time, but the row says {row[7]}"
            if self.attempts - self.spent > most:
                return f"was dispatched {self.attempts - self.spent} times; {most} are allowed"
        elif what == "partial":
            if row[5] != self.worker:
                return f"got a partial of worker {row[5]} while {self.worker or 'no worker'} held it"
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
                return ""  # the audit and the rules for replies check these
            if self.outcome == "ok" and (not self.worker or row[6] != self.worker):
                return f"was answered by {row[6]} while {self.worker or 'no worker'} held it"
            if (
                self.outcome == "gave-up" and self.attempts - self.spent < most and not bridged
            ):  # else another broker may have
                return f"was given up after {self.attempts - self.spent} of {most} attempts"
        return ""


def _call(tag: str) -> str:
    """The call of a tag, for any attempt."""
    return tag.rpartition(".")[0]
