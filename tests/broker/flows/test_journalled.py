"""What the journal has about flows: their start and end, the release of each node with what it needs, and its end."""

from datetime import UTC, datetime
from typing import Any

from polydomo.broker.sharing.memoised import Memoiser
from polydomo.journal import schema
from polydomo.journal.levels import Levels
from polydomo.journal.reading.audit import audit
from polydomo.journal.reading.flow_story import build
from polydomo.journal.recording.chunk import Run
from polydomo.journal.recording.recorder import JournalRecorder
from polydomo.model.flows.flow import Flow
from polydomo.model.flows.growth import write_growth
from polydomo.model.jobs.messages import read_answer, write_message
from polydomo.model.name_patterns import PatternMap, chosen
from polydomo.protocols.memo.store_api import MemoValues
from polydomo.stores.memory import MemoryBackend
from polydomo.wire.frames import join
from tests.broker.jobs.kept import keep_jobs
from tests.broker.rig import Peer, World

Row = dict[str, Any]


class Running:
    """A broker with a journal that runs one flow."""

    def __init__(self, flow: Flow, level: str = schema.REQUESTS, memo: MemoValues | None = None, **header: Any) -> None:
        self.world = World()
        broker = self.world.broker
        if memo is not None:
            broker.reuse_replies(lambda: Memoiser(broker, broker, memo, PatternMap({}), PatternMap({})))
        self.recorder = JournalRecorder(Run("b", 1, 0.0), Levels(level))
        self.recorder.attach(self.world.broker)
        self.world.broker.record_to(self.recorder)
        self.recorder.begin("started")
        self.store = keep_jobs(self.world.broker, chosen([]), MemoryBackend())
        self.client = self.world.client()
        nodes = [node.row for node in flow.nodes]
        start: Row = {"name": flow.name, "total": len(flow), "edges": flow.edges, "services": ["work"], **header}
        message = write_message(
            {**start, "on_failure": flow.on_failure, "fingerprint": flow.fingerprint(), "nodes": nodes, "open": True},
            [frame for node in flow.nodes for frame in node.frames],
        )
        self.id = str(self.ask("polydomo.flow.start", message)["flow"])

    def ask(self, service: str, message: list[bytes]) -> Row:
        self.client.core.request(self.client, service.encode(), join(message), "")
        self.settle()
        row, _ = read_answer(self.client.finals[-1])
        return row

    def settle(self) -> None:
        for _ in range(8):
            self.store.sync()
            self.world.wait(0.1)

    def order(self, what: str) -> None:
        self.ask(f"polydomo.flow.{what}", write_message({"flow": self.id}))

    def rows(self) -> list[Row]:
        """Rows about the flow, without the times."""
        names = ("event", "outcome", "node", "name", "needs", "position", "since", "nodes")
        rows = [row for row in self.recorder.rows() if row.get("flow")]
        assert {row["flow"] for row in rows} == {self.id} and audit(self.recorder.rows()) == []
        return [{name: row[name] for name in names if row[name]} for row in rows]

    def serve(self, worker: Peer, *answers: bytes) -> None:
        """Answers one call after the other; b"" is a failure that no retry repairs."""
        self.settle()
        for answer in answers:
            if answer:
                worker.answer(answer)
            else:
                worker.fail("permanent")
            self.settle()


def short(rows: list[Row]) -> list[str]:
    return [f"{row['event']} {row['outcome']} {row.get('name', '')}".strip() for row in rows]


def diamond(**options: Any) -> Flow:
    flow = Flow("nightly", **options)
    pages = [flow.call("work", item, name=f"page-{n}") for n, item in enumerate(["a", "b"], 1)]
    flow.call("work", pages, name="join")
    return flow


def test_the_rows_of_a_flow() -> None:
    running = Running(diamond(), key="monday")
    running.serve(running.world.worker(b"work"), b"A", b"B", b"AB")
    rows = running.rows()
    assert short(rows) == [
        "flow started nightly",
        "job accepted page-1",
        "job accepted page-2",
        "job done page-1",
        "job done page-2",
        "job accepted join",
        "job done join",
        "flow done nightly",
    ]
    assert rows[0]["nodes"] == rows[-1]["nodes"] == 3
    assert [row.get("position", 0) for row in rows] == [0, 1, 1, 1, 2, 3, 3, 3]
    assert rows[5]["needs"] == "0-1"
    first = next(row for row in running.recorder.rows() if row.get("event") == schema.FLOW)
    assert first["key"] == "monday" and first["created"]


def test_skipped_nodes_and_a_retry() -> None:
    running = Running(diamond())
    worker = running.world.worker(b"work")
    running.serve(worker, b"A", b"")
    rows = running.rows()
    assert short(rows)[-3:] == ["job dead page-2", "node skipped join", "flow failed nightly"]
    reason = [row["reason"] for row in running.recorder.rows() if row.get("flow")][-2:]
    assert reason == ["node 'page-2' is dead", "1 done, 1 dead, 1 skipped"]
    running.order("retry")
    running.serve(worker, b"B", b"AB")
    rows = running.rows()[len(rows) :]
    assert short(rows) == [
        "flow retrying nightly",
        "job reopened page-2",
        "job done page-2",
        "job accepted join",
        "job done join",
        "flow done nightly",
    ]
    assert [(row.get("position", 0), row.get("since", 0)) for row in rows[1:5]] == [(4, 3), (4, 3), (5, 3), (5, 3)]


def test_a_node_that_grows_ends_with_the_one_that_replaces_it() -> None:
    running = Running(diamond())
    worker = running.world.worker(b"work")
    more = Flow("more")
    more.call("work", more.call("work", "c", name="c"), name="d")
    running.serve(worker, b"A")
    job = worker.jobs[0].session.job_of(worker.jobs[0])
    assert job is not None
    running.serve(worker, write_growth(job.id, more), b"C", b"D", b"AD")
    rows = running.rows()
    assert short(rows)[4:] == [
        "job done page-2",
        "job accepted 1/c",
        "job done 1/c",
        "job accepted 1/d",
        "job done 1/d",
        "node done page-2",
        "job accepted join",
        "job done join",
        "flow done nightly",
    ]
    assert rows[4]["nodes"] == 2 and "position" not in rows[4]
    assert (rows[9]["needs"], rows[9]["position"]) == ("4", 4)
    assert rows[-1]["nodes"] == 5


def test_a_result_that_is_reused() -> None:
    flow = Flow("twice", reuse=True)
    first = flow.call("work", "a", name="first")
    flow.call("work", "a", name="second", after=[first])
    running = Running(flow, memo=MemoValues())
    running.serve(running.world.worker(b"work"), b"A")
    rows = [row for row in running.recorder.rows() if row.get("flow")]
    found = [(row["event"], row["outcome"], row["node"], row["code"]) for row in rows if row["event"] != schema.FLOW]
    assert found == [
        ("job", "accepted", 0, ""),
        ("memo", "miss", 0, ""),
        ("job", "done", 0, "ok"),
        ("job", "accepted", 1, ""),
        ("memo", "hit", 1, ""),
        ("job", "done", 1, "reused"),
    ]
    lookup, end = rows[-3], rows[-2]
    assert lookup["job"] == end["job"] and lookup["name"] == "second" and audit(running.recorder.rows()) == []
    for row in rows:
        for name in ("time", "created"):
            row[name] = datetime.fromtimestamp(row[name] / 1e6, UTC) if row.get(name) is not None else None
    assert "second: the stored result of an equal call is used" in [step.text for step in build(running.id, rows).steps]


def test_a_flow_that_is_cancelled() -> None:
    running = Running(diamond())
    running.order("cancel")
    running.settle()
    assert sorted(short(running.rows())[3:]) == [
        "flow cancelled nightly",
        "flow cancelling nightly",
        "job cancelled page-1",
        "job cancelled page-2",
        "node cancelled join",
    ]


def test_the_first_failure_cancels_the_flow() -> None:
    running = Running(diamond(on_failure="cancel"))
    running.serve(running.world.worker(b"work"), b"")
    found = short(running.rows())
    assert found[4] == "flow cancelling nightly" and "flow failed nightly" in found[5:]


def test_no_row_at_level_off() -> None:
    running = Running(diamond(), schema.OFF)
    running.serve(running.world.worker(b"work"), b"A", b"B", b"AB")
    assert running.recorder.rows() == []


def test_the_story_of_a_flow() -> None:
    running = Running(diamond(), key="monday")
    worker = running.world.worker(b"work")
    running.settle()
    running.world.wait(2.0)
    running.serve(worker, b"A", b"B")
    running.world.wait(1.0)
    running.serve(worker, b"AB")
    rows = running.recorder.rows()
    for row in rows:
        for name in ("time", "created"):
            if row.get(name) is not None:
                row[name] = datetime.fromtimestamp(row[name] / 1e6, UTC)
    story = build(running.id, [row for row in rows if row.get("flow")])
    assert story.head.startswith("flow `nightly`, key monday: done after ") and "3 nodes" in story.head
    assert [step.text for step in story.steps][5].startswith("join released after 0-1 for `work`: job ")
    assert [line.split(":")[0].strip() for line in story.notes[1:]] == ["page-2", "join"]
    shares = [int(line.split(", ")[1].split()[0]) for line in story.notes[1:]]
    assert 99 <= sum(shares) <= 101 and shares[0] > shares[1] > 0
