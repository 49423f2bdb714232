"""A request that crosses bridges has a row in the journal of every broker it was at: one trace, and each names the row it continues."""

import pytest

from polydomo.journal.levels import Levels
from polydomo.journal.reading.audit import audit
from polydomo.journal.recording.chunk import Run
from polydomo.journal.recording.recorder import JournalRecorder
from polydomo.journal.schema import MESSAGES, REQUESTS
from tests.broker.net import Net, Node
from tests.journal.stage import Row


def journalled(node: Node, number: int, level: str = MESSAGES) -> JournalRecorder:
    recorder = JournalRecorder(Run(node.name, number, 1_700_000_000.0), Levels(level))
    recorder.attach(node.broker)
    node.broker.record_to(recorder)
    recorder.begin("the first run")
    return recorder


def requests(recorder: JournalRecorder) -> list[Row]:
    return [row for row in recorder.rows() if "event" not in row]


@pytest.mark.parametrize("level", [MESSAGES, REQUESTS])
def test_the_journals_of_all_brokers_give_one_history(level: str) -> None:
    net = Net()
    a, b, c = nodes = [net.node(name) for name in "abc"]
    journals = [journalled(node, number, level) for number, node in enumerate(nodes, 1)]
    net.bridge(a, b)
    net.bridge(b, c)
    worker, client = c.worker(b"s"), a.peer()
    net.settle()
    client.ask(b"s")
    home = a.worker(b"home")
    client.ask(b"home")
    home.final()
    net.settle()
    worker.final()
    net.settle()
    (other, first), (second,), (third,) = map(requests, journals)
    assert (other["trace"], other["parent"], first["parent"]) == ("", "", "")
    assert second["parent"] == first["request"] and third["parent"] == second["request"]
    assert first["trace"] == second["trace"] == third["trace"] != ""
    assert [row["client_protocol"] for row in (first, second, third)] == ["plain", "bridge", "bridge"]


def test_the_rules_hold_at_every_broker_of_a_life_with_bridges() -> None:
    """Also where bridges are cut with requests on them, and where requests are sent back or cancelled."""
    net = Net()
    nodes = [net.node(name) for name in "abc"]
    journals = [journalled(node, number) for number, node in enumerate(nodes, 1)]
    bridges = [net.bridge(nodes[0], nodes[1]), net.bridge(nodes[1], nodes[2])]
    workers = [nodes[2].worker(b"s", credit=2), nodes[1].worker(b"t")]
    client, leaving = nodes[0].peer(), nodes[0].peer()
    net.settle()
    for number in range(12):
        client.ask(b"s" if number % 3 else b"t", number, timeout=5.0)
        leaving.ask(b"s")
    net.settle()
    leaving.close()
    for number in range(6):
        for worker in workers:
            if worker.jobs:
                worker.final()
        if number == 2:
            bridges[1].cut()
            net.bridge(nodes[2], nodes[1])
        if number == 4:
            workers[1].close()
            workers[1] = nodes[0].worker(b"t")
        net.settle()
    net.wait(10.0)
    for node, journal in zip(nodes, journals, strict=True):
        node.broker.shutdown()
        journal.end("over")
        assert audit(journal.rows()) == [], node.name
