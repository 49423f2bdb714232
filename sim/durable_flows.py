"""Flows in ``sim.durable``: random graphs that are started, followed, cancelled and run again while everything fails.

- a node starts only after all that it needs has ended, and gets the right results;
- a skipped node does not run, and a node is skipped only if one that it needs has failed;
- a node whose worker answered with a flow has the outcome and the result of the last node of that flow;
- a flow that was acknowledged ends, every node has one outcome, and its counters agree with its nodes;
- a client that follows it hears of each outcome once, and nothing that is not in the store;
- another principal neither sees nor changes it.
"""

import hashlib
import json
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from polydomo.broker.flows import flow as flows
from polydomo.broker.flows.flow import NodeRow
from polydomo.broker.jobs import job as states
from polydomo.model.flows.flow import Flow, FlowNode
from polydomo.model.flows.growth import write_growth
from polydomo.model.jobs.messages import make_id, read_answer, write_message
from polydomo.wire.frames import flat
from sim.durable_store import Breach, DiskStore

if TYPE_CHECKING:
    from sim.durable import World

MARK = b"flow "
HOPELESS = b" doomed "  # the worker reports a permanent failure
GROWS = b" grows "  # the worker answers with a flow
DEEPEST = 3  # answers with a flow inside of each other
Row = dict[str, object]


def result_of(body: "list[bytes]") -> bytes:
    """What a worker answers to the frames of a node."""
    return hashlib.sha256(b"\0".join(body)).hexdigest()[:16].encode()


class SimulatedFlow:
    """One flow, its client, and what it has seen."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.number = number
        self.dice = Random(world.plan.seed * 6_700_417 + number)
        self.flow = self._draw()
        self.id = make_id(world.wall(), self.dice.randbytes(10))
        self.key = f"flow{number}" if self.dice.random() < 0.5 else ""
        self.acknowledged = False
        self.position = 0
        self.seen: set[int] = set()  # positions that the client heard of
        self.cancels = self.dice.random() < 0.2
        self.retries = self.dice.choice([0, 1, 1, 2])

    def _draw(self) -> Flow:
        dice = self.dice
        flow = Flow(f"graph{self.number}", on_failure=dice.choice(["continue", "continue", "cancel"]))
        self._add(flow, dice, dice.choice([1, 3, 8, 20, 40]), "", 0.05)
        return flow

    def _add(self, flow: Flow, dice: Random, count: int, prefix: str, growing: float) -> None:
        """Adds random nodes. The place of a node is its number; of one that another adds, the place of that, a dot and its number. In a
        third of the flows results are reused, and some nodes are equal to others."""
        reuse = Random(self.world.plan.seed * 200_055_301 + self.number).random() < 0.33
        equal = Random(f"equal {self.world.plan.seed} {self.number} {prefix}")
        known_calls: list[
            tuple[list[object], bool]
        ] = []  # that another node may repeat: arguments, and whether by reference
        for n in range(count):
            if reuse and known_calls and equal.random() < 0.3:
                arguments, referring = equal.choice(known_calls[-5:])
                later = [flow.nodes[-1]] if equal.random() < 0.7 else []  # otherwise both may run at the same time
                flow.call("work", *arguments, name=f"{prefix}{n}", after=later, by_reference=referring, reuse=True)
                continue
            chance = dice.random()
            kind = HOPELESS if chance < 0.05 else GROWS if chance < 0.05 + growing else b" "
            given: list[object] = [MARK + b"%d node %b" % (self.number, f"{prefix}{n}".encode()) + kind]
            known = flow.nodes[-10:]
            if known and dice.random() < 0.8:
                given.append(dice.choice(known))
            if known and dice.random() < 0.4:
                given.append([dice.choice(known) for _ in range(dice.randint(1, 6))])
            after: list[FlowNode] = [dice.choice(known)] if known and dice.random() < 0.2 else []
            allow_failure, by_reference = dice.random() < 0.3, dice.random() < 0.1
            flow.call(
                "work",
                *given,
                name=f"{prefix}{n}",
                after=after,
                allow_failure=allow_failure,
                by_reference=by_reference,
                reuse=reuse,
            )
            if kind == b" " and not after:
                known_calls.append((given, by_reference))

    def growth(self, place: str) -> Flow:
        """What the worker of a node answers; each attempt answers the same."""
        dice = Random(f"{self.world.plan.seed} {self.number} {place}")
        flow = Flow("growth")
        self._add(flow, dice, dice.choice([1, 1, 2, 4]), f"{place}.", 0.2 if place.count(".") + 1 < DEEPEST else 0.0)
        return flow

    def node(self, place: str) -> FlowNode:
        """A node as it was described."""
        above, dot, number = place.rpartition(".")
        return (self.growth(above) if dot else self.flow).nodes[int(number)]

    def needs(self, place: str) -> "list[str]":
        prefix = place[: place.rfind(".") + 1]
        return [f"{prefix}{number}" for number in self.node(place).needs]

    def rows(self) -> "dict[str, NodeRow]":
        """The stored nodes by their places."""
        return {row.name.rpartition("/")[2]: row for row in self.world.database.tables.nodes[self.id].values()}

    # --- the client

    def start(self) -> None:
        """Sends the flow in random parts. The whole start is repeated if anything fails."""
        flow, world = self.flow, self.world
        header: Row = {
            "id": self.id, "name": flow.name, "total": len(flow), "edges": flow.edges, "services": ["work"],
            "on_failure": flow.on_failure, "fingerprint": flow.fingerprint(),
        }  # fmt: skip
        if self.key:
            header["key"] = self.key
        nodes = [node.row for node in flow.nodes]
        frames = [frame for node in flow.nodes for frame in node.frames]
        messages: list[list[bytes]] = []
        if self.dice.random() < 0.5:
            messages.append(write_message({**header, "nodes": nodes, "open": True}, frames))
        else:
            messages.append(write_message(header))
            cut = self.dice.randint(0, len(flow))
            for first, part in ((0, flow.nodes[:cut]), (cut, flow.nodes[cut:])):
                if part:
                    own = [frame for node in part for frame in node.frames]
                    rows: Row = {"flow": self.id, "first": first, "nodes": [node.row for node in part]}
                    messages.append(write_message(rows, own))
            messages.append(write_message({"flow": self.id, "open": True}))
        again = 1.0

        def send(at: int) -> None:
            def answered(reply: list[bytes], code: str, text: str) -> None:
                row, _ = read_answer(reply) if reply else ({"error": code}, [])
                if row.get("error") is not None:
                    if row["error"] in ("invalid", "key-reused"):
                        raise Breach(f"the start of {flow.name} was refused: {row}")
                    world.later(again, self.start)
                elif at + 1 < len(messages):
                    send(at + 1)
                else:
                    self._started(str(row["flow"]))

            world.ask("polydomo.flow.start", messages[at], answered)

        send(0)

    def _started(self, id: str) -> None:
        world = self.world
        stored = world.database.tables.flows.get(id)
        if id != self.id or stored is None or stored.state == flows.STORING:
            raise Breach(f"flow {id} was acknowledged, and the store has {stored.state if stored else None}")
        if self.acknowledged:
            return
        self.acknowledged = True
        self.follow()
        if self.cancels:
            world.later(self.dice.uniform(0, 20), lambda: self.order("cancel"))
        world.later(self.dice.uniform(0, 20), self.trespass)

    def follow(self) -> None:
        world = self.world
        after = self.position

        def answered(reply: list[bytes], code: str, text: str) -> None:
            row, _ = read_answer(reply) if reply else ({"error": code}, [])
            if row.get("error") is not None:
                if row["error"] == "not-found":
                    raise Breach(f"flow {self.id} was acknowledged and is not found")
                world.later(2.0, self.follow)
                return
            self._read(row)
            if row["state"] not in flows.ENDED or self.position < int(str(row["position"])):
                world.later(0.1, self.follow)
            elif row["state"] != flows.DONE and self.retries:
                self.retries -= 1
                self.order("retry", self.follow)

        world.ask(
            "polydomo.flow.steps", write_message({"flow": self.id, "after": after, "wait_us": 10_000_000}), answered
        )

    def _read(self, row: Row) -> None:
        steps = row["steps"]
        assert isinstance(steps, list)
        for step in steps:
            position = int(step["position"])
            if position in self.seen or position <= self.position:
                raise Breach(f"flow {self.id}: position {position} was reported twice, or not in order")
            self.seen.add(position)
            self.position = position
            if step["state"] not in flows.NODE_ENDED:
                raise Breach(f"flow {self.id}: a step is {step['state']}")
            grown = self.world.database.tables.nodes[self.id][int(step["number"])].grown >= 0
            if step["state"] in (states.DONE, states.DEAD) and not grown:  # otherwise its job has an outcome of its own
                self.world.database.heard(step["job"], step["state"])

    def order(self, what: str, then: "Callable[[], None] | None" = None) -> None:
        def answered(reply: list[bytes], code: str, text: str) -> None:
            row, _ = read_answer(reply) if reply else ({"error": code}, [])
            if row.get("error") is not None and row["error"] not in ("invalid", "not-found"):
                self.world.later(2.0, lambda: self.order(what, then))
            elif then is not None:
                then()

        self.world.ask(f"polydomo.flow.{what}", write_message({"flow": self.id}), answered)

    def trespass(self) -> None:
        """Another principal tries to see or change the flow."""
        act = self.dice.choice(["show", "steps", "result", "cancel", "retry", "remove", "start"])

        def answered(reply: list[bytes], code: str, text: str) -> None:
            if not code and reply and read_answer(reply)[0].get("error") is None:
                raise Breach(f"another principal was allowed flow.{act} of {self.id}: {reply!r:.200}")

        header: Row = {"flow": self.id, "node": self.flow.nodes[0].name} if act == "result" else {"flow": self.id}
        if act == "start":
            header["open"] = True
        self.world.ask(f"polydomo.flow.{act}", write_message(header), answered, outside=True)

    # --- the worker

    def run(self, frames: "list[bytes]", store: DiskStore, job: str) -> bytes:
        """A worker got these frames of a node. Returns its answer, or b"" if it can never succeed."""
        place = frames[0].split()[3].decode()
        if store.leads and store.epoch == self.world.database.tables.epoch:
            self._check_run(place, frames)
        # Otherwise the broker leads no longer: what it runs is not recorded, and may be out of date.
        if HOPELESS in frames[0]:
            return b""
        return write_growth(job, self.growth(place)) if GROWS in frames[0] else result_of(frames)

    def _check_run(self, place: str, frames: "list[bytes]") -> None:
        rows = self.rows()
        for source in self.needs(place):
            if rows[source].state not in flows.NODE_ENDED:
                raise Breach(f"{self._named(place)} runs, but {source}, which it needs, is {rows[source].state}")
            if has_failed(rows[source]):
                raise Breach(f"{self._named(place)} runs, but {source}, which it needs, has failed")
        wanted = self._inputs(place, rows)
        if wanted is not None and frames != wanted:
            raise Breach(f"{self._named(place)} got {frames!r:.300} instead of {wanted!r:.300}")

    def _named(self, place: str) -> str:
        return f"node {place} of flow {self.id}"

    def _last(self, place: str, rows: "dict[str, NodeRow]") -> str:
        """The place of the node that has the result of this one."""
        while rows[place].grown >= 0:
            place = f"{place}.{len(self.growth(place)) - 1}"
        return place

    def _inputs(self, place: str, rows: "dict[str, NodeRow]") -> "list[bytes] | None":
        """The frames that a node must get, from the store; None if damaged jobs are among them."""
        database = self.world.database
        node = self.node(place)
        if any(rows[self._last(source, rows)].job in database.flipped for source in self.needs(place)):
            return None
        prefix = place[: place.rfind(".") + 1]
        given = node.row["args"]
        assert isinstance(given, list)
        by_reference = node.row.get("by_reference") is True
        own = iter(node.frames)
        frames: list[bytes] = []
        for value in given:
            if value is None:
                frames.append(next(own))
                continue
            listed = expand(value) if isinstance(value, list) else [value]
            found = [self._value(rows[self._last(f"{prefix}{source}", rows)].job, by_reference) for source in listed]
            if by_reference and isinstance(value, list):
                frames.append(json.dumps([one.decode() for one in found]).encode())
            else:
                frames.extend(found)
        return frames

    def _value(self, id: str, by_reference: bool) -> bytes:
        if by_reference:
            return id.encode()
        job = self.world.database.tables.jobs.get(id)
        if job is None:
            return json.dumps({"error": "skipped", "text": "a node that it needs has failed"}).encode()
        if job.state == states.DONE:
            return flat(job.result)
        return json.dumps({"error": job.outcome, "text": job.reason}).encode()

    # --- the rules, once the faults are over

    def check(self) -> None:
        tables, database = self.world.database.tables, self.world.database
        if not self.acknowledged:
            raise Breach(f"flow {self.id} could not be started")
        row = tables.flows.get(self.id)
        if row is None:
            raise Breach(f"flow {self.id} was acknowledged, but the store does not have it")
        nodes = self.rows()
        if row.state not in flows.ENDED:
            left = {place: node.state for place, node in nodes.items() if node.state not in flows.NODE_ENDED}
            raise Breach(f"flow {self.id} is {row.state}, {row.over()} of {row.total} have ended: {left}")
        added = sum(len(self.growth(place)) for place, node in nodes.items() if node.grown >= 0)
        if not len(tables.nodes[self.id]) == len(nodes) == row.total == len(self.flow) + added or row.added != added:
            raise Breach(f"flow {self.id} has {len(nodes)} nodes, counts {row.total}, and {added} were added")
        for place, node in nodes.items():
            self._check_node(place, node, nodes, row.state)
        counts = [sum(node.state == state for node in nodes.values()) for state in flows.NODE_ENDED]
        if (
            counts != [row.done, row.dead, row.cancelled, row.skipped]
            or row.over() != row.total
            or row.failed != sum(has_failed(node) for node in nodes.values())
        ):
            raise Breach(f"flow {self.id} counts {row.done}, {row.dead}, {row.cancelled}, {row.skipped}: {counts}")
        last = max(node.position for node in nodes.values())
        if self.position < last and not database.flipped:
            raise Breach(f"flow {self.id}: the client heard of {self.position} of {last} outcomes")

    def _check_node(self, place: str, node: NodeRow, nodes: "dict[str, NodeRow]", state: str) -> None:
        database = self.world.database
        job = database.tables.jobs.get(node.job)
        failing = [source for source in self.needs(place) if has_failed(nodes[source])]
        if node.state not in flows.NODE_ENDED:
            raise Breach(f"{self._named(place)} is {node.state}")
        if node.state == states.CANCELLED and state not in (flows.CANCELLED, flows.FAILED):
            raise Breach(f"{self._named(place)} is cancelled, and its flow is {state}")
        if node.grown >= 0:
            self._check_grown(place, node, nodes)
            return
        if node.state == flows.SKIPPED and not failing:
            raise Breach(f"{self._named(place)} is skipped, and all that it needs is done")
        if node.state == states.DONE and failing:
            raise Breach(f"{self._named(place)} is done, and {failing} failed")
        if node.job in database.flipped:
            return
        if node.state == states.DONE:
            wanted = self._inputs(place, nodes)
            if any(nodes[source].position > node.position for source in self.needs(place)):
                wanted = None  # it got the failure of a node that was retried since
            if job is None or (wanted is not None and flat(job.result) != result_of(wanted)):
                raise Breach(f"{self._named(place)} has the result {job.result if job else None!r}")
        elif node.state == states.DEAD and (job is None or job.state != states.DEAD):
            raise Breach(f"{self._named(place)} is dead, and its job is {job.state if job else None}")

    def _check_grown(self, place: str, node: NodeRow, nodes: "dict[str, NodeRow]") -> None:
        """Its worker answered with a flow: it has the outcome of the last node of that."""
        last = nodes[f"{place}.{len(self.growth(place)) - 1}"]
        if node.state != last.state or node.allowed != last.allowed:
            raise Breach(f"{self._named(place)} is {node.state}, and {last.name}, which replaces it, is {last.state}")
        if node.grown != nodes[self._last(place, nodes)].number:
            raise Breach(f"{self._named(place)} has the result of node {node.grown}")
        if node.position < last.position:
            raise Breach(f"{self._named(place)} ended before {last.name}, which replaces it")


def has_failed(node: NodeRow) -> bool:
    """Whether the nodes that need it must not run; written apart from the rules that are tested."""
    return node.state in (states.DEAD, flows.SKIPPED, states.CANCELLED) and not node.allowed


def expand(value: "list[Any]") -> "list[int]":
    """The numbers of a list in which [first, last] is a range."""
    found: list[int] = []
    for one in value:
        ends = one if isinstance(one, list) else [one, one]
        found.extend(range(ends[0], ends[1] + 1))
    return found
