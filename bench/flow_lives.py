"""Flows in generated journals: graphs of durable jobs for ``billing``.

Chains, joins of many nodes, nodes that fail and what needs them is skipped, retries, cancelled flows, workers that answer with more nodes,
nodes whose result
is in the memo store, and flows that another broker goes on with. Each flow is played node by node, in the order of time.
"""

import heapq
from dataclasses import dataclass, field, replace

import numpy as np

from bench.durable_lives import ONCE_JOB
from bench.life import (
    BILLING,
    CODES,
    EV,
    FLOW_JOBS,
    JOB_CLIENT,
    KEY_CLIENT,
    LINT,
    MEMO_CLIENT,
    MEMO_STORE,
    MINUTE,
    O_RECORD,
    ORIGINS,
    OUTCOMES,
    REASONS,
    Blocks,
    Life,
    Planted,
    visitor,
)
from polydomo.journal import schema
from polydomo.journal.reading.flow_audit import AFTER_NEEDS, HIT, ONE_OUTCOME, REUSED_NOT_RUN
from polydomo.model.flows.needs import needs_text
from polydomo.model.outcomes import REUSED

FLOWS = 0.0005  # per request of the other services
SHAPES = 10
CHAIN, JOIN, FAILING, RETRIED, GROWING, STOPPED, LONG_CHAIN, MOVED, WIDE, REUSING = range(SHAPES)
GOES_ON = 20_000_000  # the time after which another broker has a flow that moves
DONE, DEAD, SKIPPED, CANCELLED = "done", "dead", "skipped", "cancelled"
_NEEDED_HAS_FAILED, _BY_HAND, _FAILS = 11, 10, 1  # REASONS
assert REASONS[_NEEDED_HAS_FAILED].startswith("a node")


@dataclass
class Node:
    needs: list[int]
    takes: int
    fails: int = 0  # so many attempts fail; 3 of them are the end
    grows: int = 0  # its worker answers with so many nodes
    memo: str = ""  # what the memo store has for it: a hit, or a miss
    state: str = ""
    job: int = 0
    created: int = 0
    reopened: int = 0
    since: int = 0
    position: int = 0
    replaces: int = -1


@dataclass
class Row:
    """A row of ``messages``: its time and event, and the columns of life.JOB_FIELDS by name."""

    t: int
    event: str
    outcome: str
    reason: int = 0
    attempt: int = 0
    size: int = 0
    about: dict[str, int] = field(default_factory=dict)
    needs: str = ""
    name: str = ""
    service: int = BILLING
    lookup: "Attempt | None" = None  # the request for which the memo store was asked


@dataclass
class Attempt:
    """A request of the broker for a node."""

    began: int
    ended: int
    job: int
    created: int
    failed: int
    memo: str = ""
    number: int = 0  # once it is written


@dataclass
class Played:
    """What happened in one flow."""

    rows: list[Row] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def last(self) -> int:
        return max(max(row.t for row in self.rows), max((one.ended for one in self.attempts), default=0))

    def split(self, t: int) -> "tuple[Played, Played]":
        """What happened before and after a time. An attempt belongs to the broker that began it."""
        parts = [
            Played(
                [row for row in self.rows if (row.t >= t) == later],
                [one for one in self.attempts if (one.began >= t) == later],
            )
            for later in (False, True)
        ]
        return parts[0], parts[1]


class _Flow:
    """Plays one flow: ``at`` has what is to happen, by time."""

    def __init__(
        self, life: Life, number: int, shape: int, created: int, first_job: int, dice: np.random.Generator
    ) -> None:
        self.home, self.number, self.shape, self.created = life.run, number, shape, created
        self.next_job = first_job
        self.width = max(8, min(300, life.requests // 50))
        self.dice = dice
        self.nodes = self._nodes()
        self.played = Played()
        self.position = 0
        self.state = "running"
        self.retries = 1 if shape in (RETRIED,) else 0
        self.at: list[tuple[int, int, str, int]] = []
        self.counted = 0

    def _nodes(self) -> list[Node]:
        def takes(mean: int = 2_000) -> int:
            return max(50, int(self.dice.lognormal(0, 0.8) * mean))

        if self.shape == LONG_CHAIN:  # 10 to 20 minutes, over the end of the hour
            return [Node([i - 1] if i else [], 2 * MINUTE + takes()) for i in range(5 + self.number % 4)]
        if self.shape in (JOIN, WIDE):
            width = self.width if self.shape == WIDE else 8
            return [
                Node([], takes()),
                *(Node([0], takes()) for _ in range(width)),
                Node(list(range(1, width + 1)), takes()),
            ]
        nodes = [Node([i - 1] if i else [], takes()) for i in range(4)]  # a chain, and a second way to its end
        nodes += [Node([0], takes(9_000)), Node([3, 4], takes())]
        if self.shape == CHAIN:
            nodes[1].fails = 1
        elif self.shape in (FAILING, RETRIED):
            nodes[2].fails = 3
        elif self.shape == GROWING:
            nodes[1].grows = 3
        elif self.shape == REUSING:
            nodes[1].memo, nodes[3].memo = HIT, "miss"
            nodes[1].takes = 7
        elif self.shape == MOVED:
            nodes[2].takes = 2 * GOES_ON
        return nodes

    def push(self, t: int, what: str, node: int = -1) -> None:
        self.counted += 1
        heapq.heappush(self.at, (t, self.counted, what, node))

    def play(self) -> Played:
        self._told(self.created, "started")
        for number, node in enumerate(self.nodes):
            if not node.needs:
                self._release(number, self.created + 2)
        if self.shape == STOPPED:
            self.push(self.created + 1_500, "stop")
        while self.at:
            t, _, what, number = heapq.heappop(self.at)
            if what == "stop":
                self._stop(t)
            elif what == "again":
                self._retry(t)
            elif self.nodes[number].state == "open":
                self._answered(t, number)
        return self.played

    # --- rows -----------------------------------------------------------------------------------------------------------------

    def _about(self, **more: int) -> dict[str, int]:
        return {"home": self.home, "flow": self.number, "flow_created": self.created, **more}

    def _told(self, t: int, what: str) -> None:
        """A row about the flow as a whole."""
        client = 1 + self.number % (KEY_CLIENT - 1)
        about = self._about(
            created=self.created, client=client, key=self.number if self.number % 2 else 0, position=self.position
        )
        self.played.rows.append(
            Row(t, schema.FLOW, what, about={**about, "nodes": len(self.nodes)}, name=f"flow {self.shape}")
        )

    def _row(self, t: int, event: str, outcome: str, number: int, needs: str = "", **more: int) -> None:
        """A row about a node. ``more`` has columns of ``messages`` and of life.JOB_FIELDS."""
        node = self.nodes[number]
        row = Row(t, event, outcome, needs=needs, name=f"step {number}", service=LINT if node.memo else BILLING)
        row.attempt, row.size, row.reason = (more.pop(name, 0) for name in ("attempt", "size", "reason"))
        row.about = self._about(node=number, **more)
        if event == schema.JOB:
            row.about |= {
                "job": node.job, "created": node.created, "origin": ORIGINS.index("flow"), "reopened": node.reopened,
                "client": 1 + self.number % (KEY_CLIENT - 1),
            }  # fmt: skip
        self.played.rows.append(row)

    # --- what happens ---------------------------------------------------------------------------------------------------------

    def _release(self, number: int, t: int) -> None:
        node = self.nodes[number]
        if node.state == DEAD:  # a retry: its job is tried again
            node.reopened += 1
            what = "reopened"
        else:
            node.job, self.next_job = self.next_job, self.next_job + 1
            node.created = t
            what = "accepted"
        node.state = "open"
        needs = needs_text(node.needs, 2048)
        self._row(t, schema.JOB, what, number, position=self.position + 1, since=node.since, needs=needs, size=40)
        fails = 0 if node.reopened else node.fails
        began = t + 1_000
        for attempt in range(1, min(3, fails + 1) + 1):
            failed = attempt <= fails
            ended = began + node.takes
            made = Attempt(began, ended, node.job, node.created, int(failed), node.memo)
            self.played.attempts.append(made)
            if node.memo:
                about = self._about(node=number, job=node.job, created=node.created, client=JOB_CLIENT)
                self.played.rows.append(
                    Row(
                        began + 2, schema.MEMO, node.memo, about=about, name=f"step {number}", service=LINT, lookup=made
                    )
                )
            if failed and attempt < 3:
                self._row(
                    ended + 2,
                    schema.JOB,
                    "retry",
                    number,
                    attempt=attempt,
                    reason=_FAILS,
                    wait=1_000_000,
                    code=CODES.index("failed"),
                )
                began = ended + 1_000_000
        self.push(ended + 3, "ended", number)

    def _answered(self, t: int, number: int) -> None:
        node = self.nodes[number]
        dead = node.fails >= 3 and not node.reopened
        attempts = 3 if dead else node.fails + 1 if not node.reopened else 4
        if node.grows and not dead:
            self._grow(t, number)
            return
        node.state = DEAD if dead else DONE
        self._ended(node)
        code = CODES.index("failed" if dead else REUSED if node.memo == HIT else "ok")
        self._row(
            t, schema.JOB, node.state, number, attempt=attempts, code=code, once=ONCE_JOB, position=node.position, since=node.since,
            reason=9 if dead else 0, wait=1_000_000 * (attempts - 1), size=30,
        )  # fmt: skip
        self._follow(number, t)
        if self._replaced(number, t):
            return
        self._over(t)

    def _ended(self, node: Node) -> None:
        self.position += 1
        node.position = self.position

    def _grow(self, t: int, number: int) -> None:
        """Its worker answers with a chain of nodes, of which the last one replaces it."""
        node, first = self.nodes[number], len(self.nodes)
        for i in range(node.grows):
            self.nodes.append(Node([first + i - 1] if i else [], 700 + 90 * i))
        self.nodes[-1].replaces = number
        node.state = "grown"
        self._row(
            t, schema.JOB, DONE, number, attempt=1, code=CODES.index("ok"), once=ONCE_JOB, nodes=node.grows, size=60
        )
        self._release(first, t)

    def _replaced(self, number: int, t: int) -> bool:
        """Ends the node that this one replaces."""
        replaced = self.nodes[number].replaces
        if replaced < 0:
            return False
        node = self.nodes[replaced]
        node.state = self.nodes[number].state
        self._ended(node)
        self._row(t, schema.NODE, node.state, replaced, position=node.position, since=node.since, needs=str(number))
        self._follow(replaced, t)
        self._over(t)
        return True

    def _follow(self, number: int, t: int) -> None:
        """Releases or skips the nodes that need this one."""
        for other, node in enumerate(self.nodes):
            if node.state or number not in node.needs:
                continue
            if self.state == "cancelling":
                continue
            states = [self.nodes[need].state for need in node.needs]
            if any(state in (DEAD, SKIPPED, CANCELLED) for state in states):
                self._without_job(other, t, SKIPPED, _NEEDED_HAS_FAILED)
            elif all(state == DONE for state in states):
                self._release(other, t)

    def _without_job(self, number: int, t: int, state: str, reason: int) -> None:
        node = self.nodes[number]
        node.state = state
        self._ended(node)
        self._row(t, schema.NODE, state, number, position=node.position, since=node.since, reason=reason)
        self._follow(number, t)

    def _over(self, t: int) -> None:
        """Ends the flow if all nodes have ended."""
        states = {node.state for node in self.nodes}
        if self.state == "ended" or states - {DONE, DEAD, SKIPPED, CANCELLED}:
            return
        what = "cancelled" if self.state == "cancelling" else "failed" if states - {DONE} else "done"
        self.state = "ended"
        self._told(t + 4 + self.number % 3 * 1_000, what)
        if what == "failed" and self.retries:
            self.retries -= 1
            self.push(t + 5_000_000, "again")

    def _stop(self, t: int) -> None:
        """An operator cancels the flow: what waits ends at once, and what is open a moment later."""
        if self.state != "running":
            return
        self.state = "cancelling"
        self._told(t, "cancelling")
        for number, node in enumerate(self.nodes):
            if not node.state:
                self._without_job(number, t + 1, CANCELLED, _BY_HAND)
        for number, node in enumerate(self.nodes):
            if node.state == "open":  # the worker finishes in peace; its reply does not count
                node.state = CANCELLED
                self._ended(node)
                self._row(
                    t + 2, schema.JOB, CANCELLED, number, attempt=1, code=CODES.index("cancelled"), once=ONCE_JOB,
                    position=node.position, since=node.since, reason=_BY_HAND,
                )  # fmt: skip
        self._over(t + 3)

    def _retry(self, t: int) -> None:
        self.state = "running"
        self._told(t, "retrying")
        reset = [number for number, node in enumerate(self.nodes) if node.state != DONE]
        for number in reset:
            node = self.nodes[number]
            node.since = self.position
            if node.state != DEAD:
                node.state = ""
        for number in reset:
            if self.nodes[number].state == DEAD:
                self._release(number, t + 2)


class Flows:
    """Writes what happened in flows into the rows of one broker."""

    def __init__(self, life: Life, blocks: tuple[Blocks, Blocks, Blocks], number: int) -> None:
        self.life = life
        self.rows, self.records, self.jobs = blocks
        self.number = number  # of the next request
        self.texts: dict[str, int] = {text: place for place, text in enumerate(life.texts)}

    def _text(self, text: str) -> int:
        place = self.texts.setdefault(text, len(self.life.texts))
        if place == len(self.life.texts):
            self.life.texts.append(text)
        return place

    def write(self, played: list[Played]) -> None:
        for attempt in [attempt for one in played for attempt in one.attempts]:
            attempt.number, self.number = self.number, self.number + 1
        for memo in ("", HIT, "miss"):
            self._requests([attempt for one in played for attempt in one.attempts if attempt.memo == memo], memo)
        rows = [row for one in played for row in one.rows]
        if not rows:
            return
        names = {name for row in rows for name in row.about}
        columns = {name: np.array([row.about.get(name, 0) for row in rows]) for name in names}
        texts = {
            "needs": np.array([self._text(row.needs) for row in rows]),
            "name": np.array([self._text(row.name) for row in rows]),
        }
        extra = np.arange(self.jobs.count, self.jobs.count + len(rows))
        self.jobs.add(**columns, **texts)
        asked = np.array([row.lookup.number if row.lookup is not None else 0 for row in rows])
        client = np.where(asked > 0, JOB_CLIENT, 0)
        self.rows.add(
            t=np.array([row.t for row in rows]), event=np.array([EV[row.event] for row in rows]), order=O_RECORD,
            service=np.array([row.service for row in rows]), attempt=np.array([row.attempt for row in rows]),
            size=np.array([row.size for row in rows]), outcome=np.array([OUTCOMES.index(row.outcome) for row in rows]),
            reason=np.array([row.reason for row in rows]), number=asked, client=client, connection=client, extra=extra,
        )  # fmt: skip

    def _requests(self, attempts: list[Attempt], memo: str) -> None:
        """The broker's requests for nodes. The memo store holds those that ask it; for a miss, another one runs."""
        if not attempts:
            return
        numbers, began, ended, failed, job = (
            np.array([getattr(one, name) for one in attempts]) for name in ("number", "began", "ended", "failed", "job")
        )
        if not memo:
            visitor(self.rows, self.records, numbers, BILLING, began, ended, client=JOB_CLIENT, failed=failed, job=job)
            return
        visitor(self.rows, self.records, numbers, LINT, began, ended, client=JOB_CLIENT, job=job, worker=MEMO_STORE)
        if memo != HIT:
            runs = np.arange(self.number, self.number + len(attempts))
            self.number += len(attempts)
            visitor(self.rows, self.records, runs, LINT, began + 5, ended - 9, client=MEMO_CLIENT)


def flows(
    life: Life, dice: np.random.Generator, rows: Blocks, records: Blocks, jobs: Blocks, number: int, moves: bool
) -> tuple[int, Planted, list[Played]]:
    """Flows. Returns the next number of a request, the breaches, and what another broker does if ``moves``."""
    start, end = life.times
    count = max(SHAPES * (2 + 2 * life.breaches), int(life.requests * FLOWS))
    begins = np.sort(dice.integers(start + 2_000_000, max(start + 3_000_000, end - 120_000_000), count)).tolist()
    next_job, next_moving = FLOW_JOBS, 2 * FLOW_JOBS
    mine: list[Played] = []
    moving: list[Played] = []
    usual: list[Played] = []
    reusing: list[Played] = []
    for place, created in enumerate(begins):
        shape = place % SHAPES
        if (shape == MOVED and not moves) or (shape == WIDE and place >= SHAPES):
            shape = CHAIN
        made = _Flow(life, place + 1, shape, created, next_moving if shape == MOVED else next_job, dice)
        played = made.play()
        if played.last > end - 1_000_000:
            continue  # the run ends before it does
        if shape == MOVED:
            next_moving = made.next_job
            played, rest = played.split(created + GOES_ON)
            moving.append(rest)
        else:
            next_job = made.next_job
        mine.append(played)
        if shape in (CHAIN, REUSING):
            (usual if shape == CHAIN else reusing).append(played)
    planted = _plant(life, usual, reusing)
    written = Flows(life, (rows, records, jobs), number)
    written.write([*mine, *life.taken_over])
    return written.number, planted, moving


def _plant(life: Life, usual: list[Played], reusing: list[Played]) -> Planted:
    """Breaks the rules as often as asked, each in a flow of its own: a second outcome of the last node, perhaps after the flow has ended,
    a release of the last node in the place of an outcome that it needs, and a run of a node after a hit."""
    planted: Planted = []
    _, end = life.times
    for i in range(life.breaches):
        played = usual[2 * i].rows
        last = next(row for row in played if row.event == schema.JOB and row.outcome == DONE and row.about["node"] == 5)
        later = min(last.t + 20 * MINUTE, end - 1_000_000) if i % 2 else last.t + 1
        about = {
            name: value
            for name, value in last.about.items()
            if name in ("home", "flow", "flow_created", "node", "since")
        }
        about["position"] = last.about["position"] + 1
        played.append(Row(later, schema.NODE, SKIPPED, _NEEDED_HAS_FAILED, about=about, name=last.name))
        planted.append((ONE_OUTCOME, life.run, {"run": life.run}))
        early = next(row for row in usual[2 * i + 1].rows if row.outcome == "accepted" and row.about["node"] == 5)
        early.about["position"] -= 1
        planted.append((AFTER_NEEDS, life.run, {"run": life.run}))
        hit = next(row for row in reusing[i].rows if row.outcome == HIT)
        reusing[i].rows.append(
            replace(hit, t=min(hit.t + 20 * MINUTE, end - 1_000_000) if i % 2 else hit.t + 3, outcome="miss")
        )
        planted.append((REUSED_NOT_RUN, life.run, {"run": life.run}))
    return planted
