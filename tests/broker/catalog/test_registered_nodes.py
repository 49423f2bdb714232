"""``dbp.registered_only`` in a broker of several processes: process 0 has the catalog, and the rule holds in all of them."""

from polydomo.model.registration import Refusal, WorkerTerms
from polydomo.model.tuning import Tuning
from tests.broker.net import Net, Node, Peer

HERE = "192.0.2.1"


def processes(net: Net, *names: str) -> list[Node]:
    nodes = [net.node(name, None, Tuning(dbp_registered_only=True)) for name in names]
    for index, node in enumerate(nodes):
        node.broker.siblings.become(index, len(nodes))
        for other in nodes[:index]:
            net.bridge(node, other, True)
    net.settle()
    return nodes


def peer(node: Node, address: str = HERE) -> Peer:
    made = node.peer()
    made.link.peer = f"tcp://{address}:1111"
    return made


def offers(node: Node, address: str = HERE) -> bool:
    terms = WorkerTerms(1)
    return not isinstance(node.broker.register_worker(peer(node, address), [b"echo"], None, terms), Refusal)


def register(node: Node, name: str) -> None:
    assert node.broker.directory.register(peer(node), name, HERE, {"name": name}, 0.0) == ""


def leave(node: Node, name: str) -> None:
    assert node.broker.directory.remove(name, HERE, "DISCONNECT")


def test_a_node_that_is_registered_at_process_0_may_offer_at_every_process() -> None:
    net = Net()
    zero, one, two = processes(net, "a", "b", "c")
    assert not any(offers(node) for node in (zero, one, two))
    register(zero, "camera")
    register(zero, "lamp")
    net.settle()
    assert all(offers(node) for node in (zero, one, two)) and not offers(one, "192.0.2.2")
    leave(zero, "lamp")
    net.settle()
    assert all(len(node.broker.services[b"echo"].workers) == 1 for node in (zero, one, two))
    leave(zero, "camera")
    net.settle()
    assert not any(
        worker for node in (zero, one, two) for worker in node.broker.workers if not worker.session.is_bridge
    )
    assert not offers(one)


def test_a_process_that_joins_later_learns_the_nodes() -> None:
    net = Net()
    zero, one = processes(net, "a", "b")
    register(zero, "camera")
    net.settle()
    net.bridges[0].cut()
    assert offers(one)  # it keeps what it knew until process 0 is back
    leave(zero, "camera")
    net.bridge(one, zero, True)
    net.settle()
    assert not offers(one) and not [worker for worker in one.broker.workers if not worker.session.is_bridge]
    register(zero, "camera")
    net.settle()
    assert offers(one)
