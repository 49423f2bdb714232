"""Flows in every store: in memory, SQLite and PostgreSQL."""

import json
import random
from collections.abc import Sequence

import pytest

from polydomo.broker.flows import flow as flows
from polydomo.broker.flows.flow import FlowRow, NodeRow, Settled, job_id
from polydomo.broker.flows.growth import Growth
from polydomo.broker.flows.ops import (
    BeginFlow,
    ChangeFlow,
    Gather,
    GetFlow,
    Grow,
    OpenFlow,
    PutNodes,
    SelectFlows,
    SelectNodes,
    Settle,
    StartFlow,
)
from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.job import Job
from polydomo.broker.jobs.ops import Finish, Insert, Progress, Purge, Remove, Reopen, Replace
from polydomo.limits import FLOW_SLICE
from polydomo.model.flows.flow import Flow, FlowNode
from polydomo.model.flows.flow_file import write_flow
from polydomo.model.flows.messages import NodeSpec
from polydomo.model.retry_policy import Backoff
from polydomo.wire.frames import join, split
from tests.stores.cases import Case, ended, new
from tests.stores.test_damage import alter

ID = "01KDVDNA000000000000000000"


def rows_of(flow: Flow, id: str = ID) -> "tuple[list[NodeRow], list[tuple[int, int]]]":
    nodes: list[NodeRow] = []
    edges: list[tuple[int, int]] = []
    for described in flow.nodes:
        spec = NodeSpec(described.number, described.row, list(reversed(described.frames)))
        node = NodeRow(id, spec.number, spec.name, spec.service)
        node.job, node.body, node.allowed = job_id(id, spec.number), spec.body(), spec.allow_failure
        pattern = Job("", spec.service, b"", 0.0)
        pattern.flow, pattern.node, pattern.template = id, spec.number, spec.template
        node.settings = pattern.settings()
        node.pending = len(spec.needs())
        nodes.append(node)
        edges += [(source, spec.number) for source in sorted(spec.needs())]
    return nodes, edges


class Running:
    """A flow in a store, and its leader."""

    def __init__(self, case: Case, flow: Flow, id: str = ID, key: str = "") -> None:
        self.case = case
        self.id = id
        self.time = 100.0
        self.jobs: dict[str, Job] = {}
        row = FlowRow(id, flow.name, self.time)
        row.total, row.edges, row.on_failure, row.key = len(flow), flow.edges, flow.on_failure, key
        row.kept, row.kept_failed = 50.0, 60.0
        nodes, edges = rows_of(flow, id)
        self.names = {node.number: node.name for node in nodes}
        self.opened = OpenFlow(id, "", self.time)
        case.apply(BeginFlow(row), PutNodes(id, "", nodes, edges), self.opened)
        self.settle()

    def settle(self, times: int = 100) -> None:
        more = {self.id}
        while self.id in more and times:
            times -= 1
            op = Settle(self.id, self.time)
            self.case.apply(op)
            more = op.settled.more
            self.take(op.settled)

    def name_nodes(self) -> None:
        op = SelectNodes(self.id, -1, 100_000, False)
        self.case.backend.read(op)
        self.names = {found.node.number: found.node.name for found in op.nodes}

    def take(self, settled: Settled | None) -> None:
        for job in settled.released if settled is not None else []:
            self.jobs.setdefault(self.names[job.node], job)

    def end(self, *names: str, state: str = states.DONE, in_doubt: bool = False) -> None:
        """Ends open jobs, in one transaction."""
        self.time += 1.0
        ops = []
        for name in names:
            job = self.jobs.pop(name)
            job.state, job.outcome, job.ended = state, "ok" if state == states.DONE else "failed", self.time
            job.reason = "" if state == states.DONE else "no luck"
            job.result = join([f"result of {name}".encode()]) if state == states.DONE else b""
            ops.append(Finish(job))
        self._apply(ops, in_doubt)

    def grow(self, name: str, growth: Growth, in_doubt: bool = False) -> None:
        """The worker of a node answers with a flow."""
        self.time += 1.0
        job = self.jobs.pop(name)
        job.state, job.outcome, job.ended = states.DONE, "ok", self.time
        self._apply([Grow(job, growth)], in_doubt)

    def _apply(self, ops: "Sequence[Finish]", in_doubt: bool) -> None:
        self.case.apply(*ops)
        self.name_nodes()
        if in_doubt:  # the answer was lost
            for op in ops:
                op.in_doubt = True
            self.case.apply(*ops)
        for op in ops:
            assert op.done
            self.take(op.settled)
            if op.settled is not None and self.id in op.settled.more:
                self.settle()

    def state(self) -> FlowRow:
        op = GetFlow(self.id)
        self.case.backend.read(op)
        assert op.row is not None
        return op.row

    def nodes(self) -> "dict[str, str]":
        op = SelectNodes(self.id, -1, 1000, False)
        self.case.backend.read(op)
        return {found.node.name: found.node.state for found in op.nodes}

    def steps(self) -> "list[tuple[str, str]]":
        op = SelectNodes(self.id, 0, 1000, True)
        self.case.backend.read(op)
        assert [found.node.position for found in op.nodes] == sorted({found.node.position for found in op.nodes})
        return [(found.node.name, found.node.state) for found in op.nodes]

    def input(self, name: str) -> "list[bytes]":
        op = Gather(self.jobs[name], 10_000)
        self.case.backend.read(op)
        assert op.input is not None, op.problem
        assert self.jobs[name].input in (None, op.input)
        return split(op.input)


def diamond(on_failure: str = "continue") -> Flow:
    flow = Flow("diamond", on_failure=on_failure)
    a = flow.call("work", "one", name="a")
    b = flow.call("work", a, name="b")
    c = flow.call("work", b"two", a, name="c")
    flow.call("work", [b, c], "three", name="d")
    return flow


def test_a_node_is_released_with_the_last_one_that_it_needs(case: Case) -> None:
    run = Running(case, diamond())
    assert list(run.jobs) == ["a"]
    assert split(run.jobs["a"].body) == [b"one"]
    run.end("a")
    assert sorted(run.jobs) == ["b", "c"]
    assert run.input("c") == [b"two", b"result of a"]
    run.end("b")
    assert list(run.jobs) == ["c"]
    run.end("c")
    assert run.input("d") == [b"result of b", b"result of c", b"three"]
    assert run.state().state == flows.RUNNING
    run.end("d")
    row = run.state()
    assert (row.state, row.done, row.total, row.ended, row.keep) == (flows.DONE, 4, 4, run.time, run.time + 50.0)
    assert run.steps() == [(name, "done") for name in "abcd"]


def test_nodes_that_end_in_one_transaction_release_their_successor_once(case: Case) -> None:
    run = Running(case, diamond())
    run.end("a")
    run.end("b", "c")
    assert list(run.jobs) == ["d"]


def test_an_answer_that_was_lost_neither_loses_nor_doubles_a_node(case: Case) -> None:
    run = Running(case, diamond())
    run.end("a", in_doubt=True)
    assert sorted(run.jobs) == ["b", "c"]
    run.end("b", in_doubt=True)
    run.end("c", in_doubt=True)
    run.end("d", in_doubt=True)
    row = run.state()
    assert (row.state, row.done) == (flows.DONE, 4)


def test_a_release_that_was_rolled_back_is_not_told(case: Case) -> None:
    """The next transaction has more outcomes. Only what it released is stored."""
    flow = Flow("f")
    flow.call("work", flow.call("work", name="a"), name="b")
    flow.call("work", name="c")
    run = Running(case, flow)
    first, second = Finish(ended(run.jobs["a"], at=101.0)), Finish(ended(run.jobs["c"], at=102.0))
    case.roll_back(first)
    assert first.settled is not None, "what it would have released"
    first.in_doubt = True
    case.apply(first, second)
    assert first.done and second.done and first.settled is None and second.settled is not None
    run.take(second.settled)
    assert run.jobs["b"].created == 102.0
    run.end("b")
    found = case.get(job_id(ID, 1))
    assert (found.damage, found.state) == ("", states.DONE)


def test_answers_of_orders_that_were_rolled_back_are_not_told(case: Case) -> None:
    run = Running(case, diamond())
    cancel = ChangeFlow(ID, flows.CANCELLING, "", 100.0)
    begin = BeginFlow(FlowRow(ID, "diamond", 100.0))
    reopen, insert = Reopen("A", 300.0), Insert(new("A"))
    case.apply(Insert(ended(new("A"), states.DEAD)))
    case.roll_back(cancel, begin, reopen, insert)
    assert cancel.done and begin.existing is not None and reopen.job is not None and insert.existing is not None
    case.apply(Remove("A"))
    run.end("a")
    run.end("b", "c")
    run.end("d")
    case.apply(Purge(1000.0), ChangeFlow(ID, flows.REMOVING, "", 300.0))
    run.settle()
    case.apply(cancel, begin, reopen, insert)
    assert not cancel.done and begin.existing is None and reopen.job is None and insert.existing is None


@pytest.mark.parametrize("seed", range(3))
def test_a_node_is_read_whatever_its_settings_and_leaders(case: Case, seed: int) -> None:
    """Leaders store and load a job one after the other: what one has in memory is what another has stored."""
    dice = random.Random(seed)
    made = growth(random_flow(dice))
    made.principal, made.trace = dice.choice(["", "\u00e4ni \u2603"]), dice.choice(["", "00-1-2-01"])
    case.apply(StartFlow(made.row(ID, 100.0), made))
    now = 100.1
    released: list[Job] = []
    more = True
    while more:
        op = Settle(ID, now)
        case.apply(op)
        released, more = released + op.settled.released, bool(op.settled.more)
    done: set[str] = set()
    while released:
        now += dice.random() * 10
        if dice.random() < 0.3:
            released = case.lead_anew().jobs
        job = dice.choice(released)
        assert not job.damage
        if dice.random() < 0.4:
            job.attempts, job.due = job.attempts + 1, now + dice.random()
            job.tell(job.failed_attempt(now, "failed", "no \u2603"))
            case.apply(Progress(job))
        elif job.level < 2 and dice.random() < 0.1:
            more_nodes = growth(random_flow(dice, 3))
            more_nodes.principal, more_nodes.level, more_nodes.needs = job.principal, job.level + 1, job.needs
            job.state, job.outcome, job.ended = states.DONE, "ok", now
            grow = Grow(job, more_nodes)
            case.apply(grow)
            assert grow.done and grow.settled is not None
            released = [one for one in released if one is not job] + grow.settled.released
            done.add(job.id)
        else:
            op_end = Finish(ended(job, at=now))
            case.apply(op_end)
            assert op_end.done and op_end.settled is not None
            released = [one for one in released if one is not job] + op_end.settled.released
            done.add(job.id)
    assert len(done) >= 12
    for id in done:
        found = case.get(id)
        assert (found.damage, found.state) == ("", states.DONE)


def random_flow(dice: random.Random, size: int = 12) -> Flow:
    flow = Flow("random")
    nodes: list[FlowNode] = []
    for n in range(size):
        needed = dice.sample(nodes, min(len(nodes), dice.randrange(3)))
        nodes.append(
            flow.call(
                "work", "\u00fc", *needed,
                name=dice.choice([f"n{n}", f"\u2603 {n}", f'"{n}"']), priority=dice.randrange(-5, 5),
                retries=dice.choice([None, 3, Backoff(attempts=4, first=0.1 + dice.random(), most=1e3 / 3)]),
                run_timeout=dice.choice([None, 0.1, 1 / 3, 1e5]), group=dice.choice(["", "g", "\u00e9"]),
                allow_failure=dice.random() < 0.5, by_reference=dice.random() < 0.5, reuse=dice.choice([None, True, False]),
            )
        )  # fmt: skip
    return flow


def test_a_failure_skips_what_needs_it_and_the_rest_goes_on(case: Case) -> None:
    run = Running(case, diamond())
    run.end("a")
    run.end("b", state=states.DEAD)
    assert run.nodes() == {"a": "done", "b": "dead", "c": "open", "d": "skipped"}
    run.end("c")
    row = run.state()
    assert (row.state, row.done, row.dead, row.skipped, row.keep) == (flows.FAILED, 2, 1, 1, run.time + 60.0)


def test_a_failure_that_is_allowed_is_a_value(case: Case) -> None:
    flow = Flow("f")
    a = flow.call("work", "x", name="a", allow_failure=True)
    flow.call("work", a, name="b")
    run = Running(case, flow)
    run.end("a", state=states.DEAD)
    assert run.input("b") == [b'{"error": "failed", "text": "no luck"}']
    run.end("b")
    assert run.state().state == flows.DONE


def test_order_without_data(case: Case) -> None:
    flow = Flow("f")
    a = flow.call("work", "x", name="a")
    flow.call("work", "y", after=[a], name="b")
    run = Running(case, flow)
    assert list(run.jobs) == ["a"]
    run.end("a")
    assert split(run.jobs["b"].body) == [b"y"]
    assert not run.jobs["b"].template


def test_a_failure_cancels_the_flow(case: Case) -> None:
    run = Running(case, diamond("cancel"))
    run.end("a")
    run.end("b", state=states.DEAD)
    assert run.nodes() == {"a": "done", "b": "dead", "c": "open", "d": "cancelled"}
    run.end("c", state=states.CANCELLED)
    assert run.state().state == flows.FAILED


def change(run: Running, state: str) -> ChangeFlow:
    run.time += 1.0
    op = ChangeFlow(run.id, state, "because", run.time)
    run.case.apply(op)
    run.settle()
    return op


def test_a_flow_is_cancelled(case: Case) -> None:
    run = Running(case, diamond())
    run.end("a")
    assert change(run, flows.CANCELLING).done
    assert run.nodes() == {"a": "done", "b": "open", "c": "open", "d": "cancelled"}
    run.end("b")
    run.end("c", state=states.CANCELLED)
    row = run.state()
    assert (row.state, row.reason, row.done, row.cancelled) == (flows.CANCELLED, "because", 2, 2)


def test_a_retry_runs_what_failed_and_keeps_what_is_done(case: Case) -> None:
    run = Running(case, diamond())
    run.end("a")
    run.end("b", state=states.DEAD)
    assert not change(run, flows.RETRYING).done  # it still runs
    run.end("c")
    assert change(run, flows.RETRYING).done
    assert list(run.jobs) == ["b"]
    assert run.jobs["b"].reopened()
    assert run.input("b") == [b"result of a"]
    run.end("b")
    run.end("d")
    row = run.state()
    assert (row.state, row.done, row.dead, row.skipped) == (flows.DONE, 4, 0, 0)


def test_a_retry_after_a_cancellation(case: Case) -> None:
    run = Running(case, diamond())
    change(run, flows.CANCELLING)
    run.end("a", state=states.CANCELLED)
    assert run.state().state == flows.CANCELLED
    change(run, flows.RETRYING)
    for name in "abcd":
        run.end(name)
    assert run.state().state == flows.DONE


def test_large_fan_outs_and_skips_are_done_in_slices(case: Case) -> None:
    flow = Flow("wide")
    first = flow.call("work", "x", name="first")
    many = [flow.call("work", first) for _ in range(2 * FLOW_SLICE + 7)]
    flow.call("work", "y", after=many, name="last")
    run = Running(case, flow)
    run.end("first")
    assert len(run.jobs) == len(many)
    run.end(*[node.name for node in many], state=states.DONE)
    assert list(run.jobs) == ["last"]
    failing = Running(case, flow, job_id(ID, 99))
    failing.end("first", state=states.DEAD)
    row = failing.state()
    assert (row.state, row.skipped) == (flows.FAILED, len(many) + 1)


def test_a_new_leader_finds_the_open_nodes(case: Case) -> None:
    run = Running(case, diamond())
    run.end("a")
    run.end("b")
    loaded = case.backend.load(0.0)
    assert [row.id for row in loaded.flows] == [ID]
    assert [(job.node, job.flow, job.template) for job in loaded.jobs] == [(2, ID, True)]


def test_an_incomplete_flow_does_not_exist(case: Case) -> None:
    flow = diamond()
    nodes, edges = rows_of(flow)
    row = FlowRow(ID, "diamond", 100.0)
    row.total, row.edges = 4, flow.edges
    op = OpenFlow(ID, "", 100.0)
    case.apply(BeginFlow(row), PutNodes(ID, "", nodes[:2], edges[:1]), op)
    assert op.missing == 2
    listed, found = SelectFlows("", 10), GetFlow(ID)
    case.backend.read(listed)
    case.backend.read(found)
    assert listed.rows == []
    assert found.row is None
    foreign = PutNodes(ID, "mallory", nodes[2:], edges[1:])
    case.apply(foreign, PutNodes(ID, "", nodes, edges), op)
    assert not foreign.done
    assert op.missing == 0
    case.backend.read(found)
    assert found.row is not None
    assert found.row.state == flows.RUNNING


def test_the_same_key_is_the_same_flow(case: Case) -> None:
    run = Running(case, diamond(), key="k")
    again = FlowRow(job_id(ID, 1), "diamond", 200.0)
    again.total, again.key = 4, "k"
    op = BeginFlow(again)
    case.apply(op)
    assert op.existing is not None
    assert op.existing.id == run.id
    other = FlowRow(job_id(ID, 2), "another", 200.0)
    other.total, other.key = 4, "k"
    op = BeginFlow(other)
    case.apply(op)
    assert op.existing is None


def test_a_flow_is_removed_with_its_jobs(case: Case) -> None:
    run = Running(case, diamond())
    assert not change(run, flows.REMOVING).done
    for name in "abcd":
        run.end(name)
    job = job_id(ID, 0)
    remove, reopen = Remove(job), Reopen(job, 300.0)
    case.apply(remove, reopen)
    assert not remove.done
    assert reopen.job is None
    case.apply(Purge(run.time + 10.0))
    assert case.get(job).state == states.DONE
    purge = Purge(run.time + 51.0)
    while True:
        case.apply(purge)
        if not purge.count:
            break
        purge.count = 0
    loaded = GetFlow(ID)
    case.backend.read(loaded)
    assert loaded.row is None


def test_results_beyond_the_limit_are_a_clear_failure(case: Case) -> None:
    run = Running(case, diamond())
    run.end("a")
    op = Gather(run.jobs["b"], 5)
    case.backend.read(op)
    assert op.too_large
    assert "limits.max_message" in op.problem


def test_by_reference_a_node_gets_ids(case: Case) -> None:
    flow = Flow("f")
    a = flow.call("work", "x", name="a")
    flow.call("work", a, [a, a], by_reference=True, name="b")
    run = Running(case, flow)
    run.end("a")
    id = job_id(ID, 0)
    assert run.input("b") == [id.encode(), f'["{id}", "{id}"]'.encode()]


def growth(flow: Flow) -> Growth:
    return Growth(json.dumps(write_flow(flow)).encode())


def part() -> Flow:
    flow = Flow("part")
    flow.call("work", flow.call("work", name="x"), name="y")
    return flow


def test_a_node_is_replaced_by_the_last_node_of_a_flow(case: Case) -> None:
    flow = Flow("f")
    flow.call("work", flow.call("work", name="a"), "!", name="b")
    running = Running(case, flow)
    running.grow("a", growth(part()), in_doubt=True)
    assert running.nodes() == {"a": "grown", "b": "waiting", "0/x": "open", "0/y": "waiting"}
    running.end("0/x")
    running.grow("0/y", growth(part()))
    running.end("3/x")
    running.end("3/y", in_doubt=True)
    assert running.steps()[-3:] == [("3/y", "done"), ("0/y", "done"), ("a", "done")]
    assert running.input("b") == [b"result of 3/y", b"!"]
    running.end("b")
    row = running.state()
    assert (row.state, row.total, row.added, row.done, row.damage) == (flows.DONE, 6, 4, 6, "")
    op = GetFlow(ID, "a")
    case.backend.read(op)
    assert op.job is not None and split(op.job.result) == [b"result of 3/y"]


def test_a_node_fails_with_what_replaces_it_and_is_kept_in_a_retry(case: Case) -> None:
    flow = Flow("f")
    flow.call("work", flow.call("work", name="a"), name="b")
    running = Running(case, flow)
    running.grow("a", growth(part()))
    running.end("0/x", state=states.DEAD)
    assert running.nodes() == {"a": "skipped", "b": "skipped", "0/x": "dead", "0/y": "skipped"}
    assert (running.state().state, running.state().failed) == (flows.FAILED, 4)
    case.apply(ChangeFlow(ID, flows.RETRYING, "", 110.0))
    running.settle()
    assert running.nodes() == {"a": "grown", "b": "waiting", "0/x": "open", "0/y": "waiting"}
    case.apply(ChangeFlow(ID, flows.CANCELLING, "no more", 111.0))
    running.settle()
    running.end("0/x", state=states.CANCELLED)
    running.settle()
    assert set(running.nodes().values()) == {"cancelled"}
    assert running.state().state == flows.CANCELLED
    case.apply(ChangeFlow(ID, flows.RETRYING, "", 112.0))
    running.settle()
    running.end("0/x")
    running.end("0/y")
    assert running.input("b") == [b"result of 0/y"]


def test_a_node_grows_while_its_flow_is_cancelled(case: Case) -> None:
    flow = Flow("f")
    flow.call("work", name="a")
    running = Running(case, flow)
    case.apply(ChangeFlow(ID, flows.CANCELLING, "no more", 101.0))
    running.grow("a", growth(part()))
    running.settle()
    assert running.nodes() == {"a": "cancelled", "0/x": "cancelled", "0/y": "cancelled"}
    assert running.state().state == flows.CANCELLED


def test_many_nodes_are_added(case: Case) -> None:
    wide = Flow("wide")
    wide.call("work", wide.map("work", [str(n) for n in range(2 * FLOW_SLICE)]), name="last")
    flow = Flow("f")
    flow.call("work", name="a")
    running = Running(case, flow)
    running.grow("a", growth(wide))
    assert len(running.jobs) == 2 * FLOW_SLICE
    running.end(*running.jobs)
    assert list(running.jobs) == ["0/last"]
    running.end("0/last")
    assert running.state().state == flows.DONE


def test_a_flow_is_stored_and_started_at_once(case: Case) -> None:
    made = growth(part())
    row = made.row(ID, 100.0)
    row.key = "k"
    op = StartFlow(row, made)
    case.apply(op)
    case.apply(op)
    assert op.existing is not None and op.existing.id == ID
    again = StartFlow(made.row("01KDVDNA000000000000000001", 100.0), made)
    again.row.key = "k"
    case.apply(again)
    assert again.existing is not None and again.existing.id == ID
    settle = Settle(ID, 100.0)
    case.apply(settle)
    assert [job.node for job in settle.settled.released] == [0]


def test_flows_of_one_principal_are_listed(case: Case) -> None:
    for number, principal in enumerate(("ann", "bob", "ann")):
        made = growth(part())
        made.principal = principal
        case.apply(StartFlow(made.row(f"01KDVDNA00000000000000000{number}", 100.0 + number), made))
    cases: list[tuple[str | None, list[int]]] = [(None, [2, 1, 0]), ("ann", [2, 0]), ("eve", [])]
    for owner, wanted in cases:
        op = SelectFlows("", 10, owner)
        case.backend.read(op)
        assert [int(row.id[-1]) for row in op.rows] == wanted


def test_the_end_of_a_node_whose_stored_job_is_damaged_names_the_node(case: Case) -> None:
    flow = Flow("pair")
    flow.map("a", ["x", "y"])
    running = Running(case, flow)
    alter(case, "jobs", job_id(ID, 1), "service", b"other")
    (job,) = [job for job in case.backend.load(0.0).jobs if job.damage]
    assert job.flow == ""  # nothing of the record is used
    job.ended = 150.0
    case.apply(Replace(job))
    assert (job.flow, job.node, job.position) == (ID, 1, 1)
    assert running.state().dead == 1
