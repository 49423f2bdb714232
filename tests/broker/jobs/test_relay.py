"""Durable requests at a process without the job store: process 0 stores them and answers."""

import pytest

from polydomo.broker.broker import Broker
from polydomo.broker.observe import figures
from polydomo.limits import RELAY_AGAIN
from polydomo.model.name_patterns import PatternMap, chosen
from polydomo.model.records import PARKED, Request
from polydomo.model.request_options import RequestOptions
from polydomo.stores.memory import MemoryBackend
from polydomo.wire.frames import join
from tests.broker.jobs.kept import keep_jobs
from tests.broker.jobs.machine import HeldStore
from tests.broker.net import Net, Node, Peer

KEPT = chosen(["kept.*"])
ID = b"0123456789abcdef"


class World:
    """Process 0 with a store, and process 1."""

    def __init__(self, names: PatternMap[bool] = KEPT) -> None:
        self.net = Net()
        self.names = names
        self.first, self.second = self.net.node("a"), self.net.node("b")
        self.backend = MemoryBackend()
        self.store = self._become_first(self.first)
        self.second.broker.siblings.become(1, 2)
        self.second.broker.relay_jobs(self.names)
        self.bridge = self.net.bridge(self.second, self.first, True)
        self.net.settle()

    def _become_first(self, node: Node) -> HeldStore:
        node.broker.siblings.become(0, 2)
        return keep_jobs(node.broker, self.names, self.backend)

    def sync(self) -> None:
        """The store writes, and all messages arrive, until nothing happens."""
        for _ in range(6):
            self.store.sync()
            self.first.broker.end_turn()
            self.net.settle()

    def restart_first(self) -> None:
        """Process 0 dies and comes back with the same store."""
        self.bridge.cut()
        self.net.nodes.remove(self.first)
        self.net.bridges.remove(self.bridge)
        self.first = self.net.node("c")
        self.store = self._become_first(self.first)
        self.bridge = self.net.bridge(self.second, self.first, True)
        self.net.settle()

    def jobs(self) -> int:
        return len(self.backend.tables.jobs)


def guaranteed(client: Peer, body: bytes = b"hello", identity: bytes = b"", timeout: float = 0.0) -> Request:
    broker = client.broker
    assert isinstance(broker, Broker)
    deadline = broker.now + timeout if timeout else 0.0
    client.identity = identity
    request = broker.request(client, b"s", join([body]), 1, deadline, RequestOptions(guarantee=True))
    assert request is not None
    return request


def test_a_request_with_the_guarantee_is_stored_by_process_0() -> None:
    world = World()
    client, worker = world.second.peer(), world.second.worker(b"s")
    world.net.settle()
    asked = guaranteed(client)
    world.net.settle()
    assert asked.state == PARKED and not worker.jobs, "not before it is on disk"
    world.sync()
    assert world.jobs() == 1 and len(worker.jobs) == 1
    worker.final(b"result")
    world.net.settle()
    assert not client.answers, "the outcome is not on disk yet"
    world.sync()
    assert client.answers == [(1, "ok", b"result")]
    assert world.second.notes.outcomes[asked.number] == "ok"


def counted(nodes: list[Node]) -> tuple[object, int, int]:
    """What all processes together answered, and have open, and the points of their histories."""
    answered = sum([int(str(figures.totals(node.broker)["answered"])) for node in nodes])
    requests = 0
    for node in nodes:
        history = node.broker.history
        node.broker.monitor.fold()
        history.fold()
        history.sample(history.step + 1)
        history.finish()
        requests += sum(history.broker.requests)
    return answered, sum([figures.open_requests(node.broker) for node in nodes]), requests


@pytest.mark.parametrize("process", [0, 1])
def test_a_durable_request_is_counted_once(process: int) -> None:
    world = World()
    nodes = [world.first, world.second]
    client, worker = nodes[process].peer(), nodes[process].worker(b"s", credit=9)
    world.net.settle()
    guaranteed(client)
    world.sync()
    assert counted(nodes) == (0, 1, 0)
    worker.final(b"result")
    world.sync()
    assert client.answers == [(1, "ok", b"result")]
    assert counted(nodes) == (1, 0, 1)
    tallies = {(name, protocol) for node in nodes for name, protocol in node.broker.tallies.table}
    assert {(b"s", "plain"), (b"s", "durable")} <= tallies, "the attempt has a tally of its own, for /metrics"
    rows = [figures.traffic(node.broker, service) for node in nodes for service in node.broker.services.values()]
    assert sum([int(str(row["answered"])) for row in rows]) == 1


def test_a_failed_durable_request_is_one_error() -> None:
    world = World()
    client, worker = world.first.peer(), world.first.worker(b"s")
    world.net.settle()
    guaranteed(client)
    world.sync()
    worker.fail("failed", "no such file")
    world.sync()
    assert figures.totals(world.first.broker)["failed"] == {"failed": 1}
    (group,) = world.first.broker.errors.of(b"s")
    assert (group.count, group.protocol) == (1, "plain")


def test_a_service_of_the_setting_is_durable_and_others_are_not() -> None:
    world = World()
    client, worker = world.second.peer(), world.second.worker(b"kept.a", b"plain", credit=9)
    world.net.settle()
    client.ask(b"plain", "p")
    assert len(worker.jobs) == 1, "a plain request goes to the worker at once"
    client.ask(b"kept.a", "k")
    world.sync()
    assert world.jobs() == 1 and len(worker.jobs) == 2


def test_process_0_dies_after_it_has_stored_the_job() -> None:
    world = World()
    client, worker = world.second.peer(), world.second.worker(b"s", credit=9)
    world.net.settle()
    guaranteed(client, identity=ID)
    world.sync()
    assert len(worker.jobs) == 1
    world.restart_first()
    world.net.wait(1.0)
    world.sync()
    assert world.jobs() == 1, "sent again, and found"
    assert len(worker.jobs) == 2, "the attempt of the process that died does not count: it runs again"
    worker.jobs.pop(0)
    worker.final(b"result")
    world.sync()
    assert client.answers == [(1, "ok", b"result")]


def test_process_0_dies_before_it_has_stored_the_job() -> None:
    world = World()
    client, worker = world.second.peer(), world.second.worker(b"s", credit=9)
    world.net.settle()
    guaranteed(client)
    world.net.settle()  # it has arrived, and is not on disk
    world.restart_first()
    world.net.wait(1.0)
    world.sync()
    assert world.jobs() == 1 and len(worker.jobs) == 1
    worker.final(b"result")
    world.sync()
    assert client.answers == [(1, "ok", b"result")]


@pytest.mark.parametrize("moment", ["not stored", "running", "ended"])
@pytest.mark.parametrize("identity", [b"", ID])
def test_the_connection_is_lost_and_process_0_notices_it_later(moment: str, identity: bytes) -> None:
    world = World()
    client, worker = world.second.peer(), world.first.worker(b"s", credit=9)
    world.net.settle()
    guaranteed(client, identity=identity)
    world.net.settle()
    if moment != "not stored":
        world.sync()
    world.net.wait(0.01)  # the ids of two jobs differ by their times here
    world.bridge.up = False
    if moment == "ended":
        worker.final(b"result")
        world.sync()
    world.bridge.ends[0].link.lost()
    late = world.bridge.ends[1].link
    world.bridge = world.net.bridge(world.second, world.first, True)
    world.net.wait(RELAY_AGAIN + 0.1)
    world.sync()
    if moment != "ended":
        assert len(worker.jobs) == 1, "the repeat waits for the job of the first one"
        worker.final(b"result")
    world.sync()
    late.lost()
    world.sync()
    assert world.jobs() == 1 and not worker.jobs
    assert client.answers == [(1, "ok", b"result")]
    world.first.broker.check_invariants()


def test_a_request_waits_for_process_0() -> None:
    world = World()
    client, worker = world.second.peer(), world.second.worker(b"s", credit=9)
    world.net.settle()
    world.bridge.cut()
    asked = guaranteed(client)
    world.net.wait(200.0)  # longer than ``queue_expiry``
    assert asked.state == PARKED and not worker.jobs
    world.restart_first()
    world.net.wait(RELAY_AGAIN + 0.1)
    world.sync()
    assert world.jobs() == 1 and len(worker.jobs) == 1


def test_the_client_leaves_and_the_job_continues() -> None:
    world = World()
    client, worker = world.second.peer(), world.second.worker(b"s")
    world.net.settle()
    guaranteed(client)
    world.sync()
    client.close()
    world.net.settle()
    worker.final(b"result")
    world.sync()
    (job,) = world.backend.tables.jobs.values()
    assert job.state == "done"
    assert not world.first.broker.durable.parked  # type: ignore[union-attr]


class Submitter(Peer):
    """A client that does not wait for replies."""

    def awaits_reply(self, request: Request) -> bool:
        return False


def test_a_client_that_does_not_wait_leaves_while_process_0_restarts() -> None:
    world = World()
    client, worker = Submitter(world.second), world.second.worker(b"s")
    world.net.settle()
    world.bridge.cut()
    request = guaranteed(client)
    client.close()
    assert request.state == PARKED
    world.restart_first()
    world.net.wait(RELAY_AGAIN + 0.1)
    world.sync()
    assert world.jobs() == 1 and len(worker.jobs) == 1
    worker.final(b"result")
    world.sync()
    assert world.second.notes.outcomes[request.number] == "ok"
    assert client not in world.second.broker.sessions


def test_a_client_that_does_not_wait_leaves_after_its_job_was_sent() -> None:
    world = World()
    client = Submitter(world.second)
    world.net.settle()
    request = guaranteed(client)
    client.close()
    assert world.second.notes.outcomes[request.number] == "cancelled", "nothing of it is kept"
    world.sync()
    assert world.jobs() == 1


def test_the_deadline_passes() -> None:
    world = World()
    client = world.second.peer()
    world.net.settle()
    guaranteed(client, timeout=5.0)
    world.sync()
    world.net.wait(6.0)
    world.sync()
    assert [answer[:2] for answer in client.answers] == [(1, "timeout")]
    assert not world.second.broker.durable_requests.parked  # type: ignore[union-attr]


def test_the_broker_stops_while_the_job_waits() -> None:
    world = World()
    client = world.second.peer()
    world.net.settle()
    guaranteed(client)
    world.sync()
    for node in (world.first, world.second):
        node.broker.drain()
    world.net.settle()
    assert [answer[:2] for answer in client.answers] == [(1, "shutdown")]
    assert world.jobs() == 1, "it stays in the store"


def test_a_client_cannot_use_the_service_of_the_relay() -> None:
    world = World()
    for node in (world.first, world.second):
        client = node.peer()
        client.ask(b"polydomo.accept", 1, b'{"service":"s"}\n')
        world.sync()
        assert client.answers == [(1, "ok", b"501")]
    assert not world.jobs()


def test_without_a_store_the_guarantee_is_a_header_like_any_other() -> None:
    net = Net()
    _, second = net.processes("a", "b")
    assert second.broker.durable_requests is None
    client, worker = second.peer(), second.worker(b"s")
    net.settle()
    guaranteed(client)
    assert len(worker.jobs) == 1


def test_a_schedule_of_another_process_is_kept_by_process_0() -> None:
    world = World()
    client = world.second.peer()
    raw = join([b"", b"eMQP/1.0", b"SCHEDULE", b"m", b"s", b"", b"60", b"content", b""])
    broker = client.broker
    assert broker.pass_schedule("", raw)
    world.sync()
    assert len(world.backend.tables.schedules) == 1
    assert broker.pass_schedule("", raw.replace(b"\x01\x08SCHEDULE", b"\x01\x0aUNSCHEDULE"))
    world.sync()
    assert not world.backend.tables.schedules
    assert not world.first.broker.pass_schedule("", raw), "process 0 keeps its own"


def test_a_pause_that_the_store_remembers_holds_in_all_processes() -> None:
    world = World()
    world.first.broker.control.answer(b"polydomo.pause", b'{"service":"s"}')
    world.sync()
    world.restart_first()
    assert b"s" in world.second.broker.paused
