"""Limits hold over all processes of a broker: process 0 counts, and gives the others permits."""

from collections import Counter
from random import Random

import pytest

from polydomo.broker.policy import Policy
from polydomo.limits import PERMIT_TIME
from polydomo.model.name_patterns import PatternMap
from polydomo.model.request_options import RequestOptions
from polydomo.model.service_limits import LimitPatterns
from polydomo.model.tuning import Tuning
from polydomo.wire.frames import join
from tests.broker.net import Net, Node, Peer


def policy(running: int = 0, rate: tuple[int, float] | None = None) -> Policy:
    return Policy(
        limits=LimitPatterns(
            PatternMap({"echo": running} if running else {}),
            PatternMap({"echo": rate} if rate else {}),
            PatternMap({"echo": "group"}),
        )
    )


class Broker(Net):
    """A broker of several processes, one of which may be replaced."""

    def __init__(self, count: int, limits: Policy) -> None:
        super().__init__()
        self.limits = limits
        self.count = count
        for index in range(count):
            self.start(index)
        self.settle()

    def start(self, index: int) -> Node:
        node = self.node(f"n{index}-{len(self.nodes)}", self.limits, Tuning(bridge_beat=1000.0))
        node.broker.siblings.become(index, self.count)
        for other in [other for other in self.nodes if other is not node]:
            self.bridge(node, other, True)
        return node

    def crash(self, node: Node) -> Node:
        """The process ends, and another one takes its place."""
        index = node.broker.process.index
        self.nodes.remove(node)
        for bridge in self.bridges:
            if node in bridge.nodes:
                bridge.cut()
        for session in list(node.broker.sessions):
            session.disconnected = True
        return self.start(index)


def ask(peer: Peer, group: bytes, ref: object = None) -> None:
    peer.broker.request(peer, b"echo", join([b"x"]), ref, 0.0, RequestOptions(group=group))


def running(net: Net, group: bytes = b"a") -> int:
    return sum(
        request.options.group == group
        for node in net.nodes
        for worker in node.broker.workers
        if not worker.session.is_bridge
        for request in worker.held.values()
    )


def lanes(net: Net) -> list[tuple[bytes, int, int, int, int]]:
    """What is left in all processes."""
    return [
        (lane.key, lane.waiting, lane.running, lane.permits, lane.asked)
        for node in net.nodes
        for queue in node.broker.limiter.queues.values()
        for lane in queue.lanes.values()
    ]


def test_all_processes_share_a_limit() -> None:
    net = Broker(3, policy(running=4))
    workers = [node.worker(b"echo", credit=10) for node in net.nodes]
    clients = [node.peer() for node in net.nodes]
    net.settle()
    for number in range(12):
        ask(clients[number % 3], b"a", number)
        ask(clients[number % 3], b"b", number)
    net.settle()
    assert running(net, b"a") == running(net, b"b") == 4
    while any(worker.jobs for worker in workers):
        for worker in workers:
            if worker.jobs:
                worker.final()
        net.settle()
        assert running(net, b"a") <= 4 and running(net, b"b") <= 4
    assert [len(client.answers) for client in clients] == [8, 8, 8]
    net.settle()
    assert lanes(net) == []


def test_a_request_crosses_to_the_only_worker_with_its_permit() -> None:
    net = Broker(3, policy(running=2, rate=(3, 10.0)))
    worker = net.nodes[2].worker(b"echo", credit=10)
    clients = [node.peer() for node in net.nodes]
    net.settle()
    for number in range(9):
        ask(clients[number % 3], b"a", number)
        net.settle()
    assert len(worker.jobs) == 2
    worker.final()
    worker.final()
    net.settle()
    assert len(worker.jobs) == 1  # three in ten seconds
    net.wait(10.3)
    assert len(worker.jobs) == 2


def test_a_lost_process_gives_its_permits_back() -> None:
    net = Broker(2, policy(running=2))
    first, second = net.nodes
    mine = first.worker(b"echo", credit=10)
    second.worker(b"echo", credit=10)
    client, other = first.peer(), second.peer()
    net.settle()
    ask(other, b"a")
    ask(other, b"a")
    net.settle()
    ask(client, b"a")
    ask(client, b"a")
    net.settle()
    assert not mine.jobs
    net.crash(second)
    net.settle()
    assert not mine.jobs  # what the lost process has sent to a third one may still run
    net.wait(PERMIT_TIME + 0.1)
    assert len(mine.jobs) == 2


def test_a_new_process_0_learns_what_runs() -> None:
    net = Broker(2, policy(running=3))
    first, second = net.nodes
    worker = second.worker(b"echo", credit=10)
    client = second.peer()
    net.settle()
    for _ in range(5):
        ask(client, b"a")
    net.settle()
    assert len(worker.jobs) == 3
    first = net.crash(first)
    mine = first.worker(b"echo", credit=10)
    asker = first.peer()
    ask(asker, b"a")
    ask(asker, b"b")
    assert not mine.jobs  # it does not know yet what runs at the other process
    net.settle()
    assert [request.options.group for _, request, _ in mine.jobs] == [b"b"]
    for _ in range(3):
        worker.final()
        net.settle()
    assert running(net) == 3


def test_cancelled_requests_return_their_permits() -> None:
    net = Broker(2, policy(running=2))
    client = net.nodes[1].peer()
    requests = [client.broker.request(client, b"echo", b"", None, 0.0, RequestOptions(group=b"a")) for _ in range(5)]
    net.settle()
    assert net.nodes[0].broker.limiter.queues[b"echo"].lanes[b"a"].running == 2
    for request in requests:
        assert request is not None
        client.broker.cancel(request, "cancelled")
    net.settle()
    assert lanes(net) == []


def test_a_limit_that_is_set_at_one_process_holds_at_all() -> None:
    net = Broker(2, policy())
    workers = [node.worker(b"echo", credit=10) for node in net.nodes]
    client = net.nodes[1].peer()
    net.settle()
    client.ask(b"polydomo.limit", body=b'{"service": "echo", "running": 3, "per": "service"}')
    net.settle()
    for node in net.nodes:
        peer = node.peer()
        for _ in range(4):
            ask(peer, b"")
    net.settle()
    assert sum(len(worker.jobs) for worker in workers) == 3
    new = net.crash(net.nodes[1])
    net.settle()
    assert new.broker.limiter.live.keys() == {"echo"}
    client = new.peer()
    client.ask(b"polydomo.limit", body=b'{"service": "echo", "remove": true}')
    net.settle()
    assert not any(node.broker.limiter.queues for node in net.nodes)


@pytest.mark.parametrize("seed", range(10))
def test_no_window_holds_more_starts_than_allowed_in_all_processes(seed: int) -> None:
    rng = Random(seed)
    most, count, window = rng.choice([0, 1, 4]), rng.choice([0, 2, 6]), 4.0
    if not most and not count:
        most = 3
    net = Broker(3, policy(most, (count, window) if count else None))
    crew: dict[Node, list[Peer]] = {}
    clients: dict[Node, Peer] = {}

    def staff(node: Node) -> None:
        clients[node] = node.peer()
        crew[node] = [node.worker(b"echo", credit=2) for _ in range(rng.randrange(3))]

    for node in net.nodes:
        staff(node)
    starts: dict[bytes, list[float]] = {}
    seen: set[tuple[int, bytes]] = set()
    crashed = 0

    def watch() -> None:
        for peers in crew.values():
            for peer in peers:
                for worker, request, token in peer.jobs:
                    if (id(worker), token) not in seen:
                        seen.add((id(worker), token))
                        starts.setdefault(request.options.group, []).append(request.dispatched)
        held = Counter(
            request.options.group
            for node in net.nodes
            for worker in node.broker.workers
            if not worker.session.is_bridge
            for request in worker.held.values()
        )
        assert not most or all(number <= most for number in held.values()), (held, most)
        for times in starts.values():
            times.sort()
            for first, last in zip(times, times[count:], strict=False):
                assert not count or last - first >= window, (first, last, crashed)

    for _ in range(300):
        action = rng.random()
        node = rng.choice(net.nodes)
        if action < 0.4:
            ask(clients[node], b"g%d" % rng.randrange(3), rng.random())
        elif action < 0.7:
            busy = [peer for peer in crew[node] if peer.jobs and peer.me in node.broker.workers]
            if busy:
                rng.choice(busy).final()
        elif action < 0.75:
            waiting = list(clients[node].requests)
            if waiting:
                node.broker.cancel(rng.choice(waiting), "cancelled")
        elif action < 0.77:
            crashed += 1
            gone = node
            new = net.crash(gone)
            del crew[gone], clients[gone]
            if new.broker.process.index == 0:
                new.broker.limiter.start_at(net.now)  # as the server does
            staff(new)
        elif action < 0.9:
            for bridge in net.bridges:
                if bridge.up:
                    bridge.carry(rng.randrange(2), rng.randrange(1, 4))
        else:
            net.wait(rng.random() * 2, settle=rng.random() < 0.5)
        watch()
    for _ in range(200):  # in the end, everything is served
        net.settle()
        for node in net.nodes:
            if not crew[node]:
                crew[node].append(node.worker(b"echo", credit=2))
            for peer in crew[node]:
                while peer.jobs:
                    peer.final()
        watch()
        net.wait(0.5)
    net.settle()
    assert not any(client.requests for client in clients.values())
    for node in net.nodes:
        queue = node.broker.limiter.queues[b"echo"]
        assert not any(lane.running or lane.reserved or lane.permits for lane in queue.lanes.values())
