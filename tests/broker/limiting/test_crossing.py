"""Requests of services with limits that run at another process of the broker: what is counted, and until when."""

from polydomo.broker.requests import outcomes
from polydomo.limits import PERMIT_TIME
from polydomo.model.records import Request
from polydomo.model.request_options import RequestOptions
from tests.broker.limiting.test_processes import Broker, ask, policy, running
from tests.broker.net import Peer


def begin(client: Peer, group: bytes = b"a", deadline: float = 0.0) -> Request:
    when = client.broker.now + deadline if deadline else 0.0
    request = client.broker.request(client, b"echo", b"", None, when, RequestOptions(group=group))
    assert request is not None
    return request


def test_a_request_whose_worker_is_lost_elsewhere_needs_another_permit() -> None:
    net = Broker(2, policy(rate=(2, 10.0)))
    first, second = net.nodes
    lost = second.worker(b"echo", credit=10)
    client = first.peer()
    net.settle()
    ask(client, b"a")
    ask(client, b"a")
    net.settle()
    assert len(lost.jobs) == 2
    worker = second.worker(b"echo", credit=10)
    lost.close()
    net.settle()
    assert not worker.jobs  # two have started, and a second attempt is another start
    net.wait(10.2)
    assert len(worker.jobs) == 2


def test_a_request_that_crosses_two_processes_starts_at_the_last_one() -> None:
    net = Broker(3, policy(rate=(1, 10.0)))
    first, second, third = net.nodes
    client = first.peer()
    net.settle()
    worker = second.worker(b"echo", credit=0)
    net.settle()
    ask(client, b"a")
    net.settle()
    worker.close()  # it waited there, and goes on to the third process
    net.wait(5.0)
    last = third.worker(b"echo", credit=1)
    net.settle()
    assert len(last.jobs) == 1
    last.final()
    ask(client, b"a")
    net.wait(9.0)
    assert not last.jobs  # ten seconds after the start, not after it left
    net.wait(1.3)
    assert len(last.jobs) == 1


def test_a_cancelled_request_counts_until_its_worker_has_ended_it() -> None:
    net = Broker(2, policy(running=1))
    first, second = net.nodes
    worker = second.worker(b"echo", credit=10)
    client = first.peer()
    net.settle()
    request = begin(client)
    net.settle()
    ask(client, b"a")
    client.broker.cancel(request, "cancelled")
    net.settle()
    assert len(worker.jobs) == 1
    worker.final()
    net.settle()
    assert len(worker.jobs) == 1 and worker.jobs[0][1].state != request.state
    worker.final()
    net.settle()
    assert [answer[1] for answer in client.answers] == ["ok"]
    assert not any(queue.lanes for node in net.nodes for queue in node.broker.limiter.queues.values())


def test_a_request_that_was_cancelled_before_it_started_elsewhere_does_not_count() -> None:
    net = Broker(2, policy(running=1))
    first, second = net.nodes
    worker = second.worker(b"echo", credit=0)
    client = first.peer()
    net.settle()
    request = begin(client)
    net.settle()
    ask(client, b"a")
    client.broker.cancel(request, "cancelled")
    net.settle()
    assert worker.me is not None
    second.broker.add_credit(worker.me)
    net.settle()
    assert len(worker.jobs) == 1


def test_a_request_that_ended_elsewhere_while_it_runs_counts_until_its_worker_is_free() -> None:
    net = Broker(2, policy(running=1))
    first, second = net.nodes
    worker = second.worker(b"echo", credit=10)
    client = first.peer()
    net.settle()
    request = begin(client)
    net.settle()
    ask(client, b"a")
    outcomes.cancel_and_tell(second.broker, worker.jobs[0][1], "by an operator")
    net.settle()
    assert request.outcome and len(worker.jobs) == 1
    worker.final()
    net.settle()
    assert len(worker.jobs) == 1


def test_what_a_lost_process_has_sent_to_a_third_one_counts_there() -> None:
    net = Broker(3, policy(running=2))
    first, second, third = net.nodes
    worker = third.worker(b"echo", credit=10)
    net.settle()
    ask(second.peer(), b"a")
    ask(second.peer(), b"a")
    net.settle()
    assert len(worker.jobs) == 2
    net.crash(second)
    net.settle()
    ask(first.peer(), b"a")
    net.wait(PERMIT_TIME + 1.0)
    assert running(net) == 2 and len(worker.jobs) == 2
    worker.final()
    net.settle()
    assert running(net) == 2


def test_a_process_that_stood_still_does_not_use_its_permit() -> None:
    net = Broker(2, policy(rate=(1, 10.0)))
    first, second = net.nodes
    worker = second.worker(b"echo", credit=0)
    client = second.peer()
    net.settle()
    ask(client, b"a")
    net.settle()  # it has a permit, and no worker
    net.wait(PERMIT_TIME + 0.1, settle=False)
    for bridge in net.bridges:  # the other process has taken it for lost
        bridge.ends[bridge.nodes.index(first)].link.lost()
    assert worker.me is not None
    second.broker.add_credit(worker.me)
    assert not worker.jobs
    assert first.broker.limiter.queues[b"echo"].start_count == 1  # it may have used the permit


def test_a_new_process_0_waits_a_window_from_the_last_report() -> None:
    net = Broker(2, policy(rate=(2, 10.0)))
    first = net.crash(net.nodes[0])
    first.broker.limiter.start_at(net.now)  # as the server does
    worker, client = first.worker(b"echo", credit=10), first.peer()
    net.wait(4.0, settle=False)
    net.settle()  # only now do the others report
    ask(client, b"a")
    net.wait(9.5)
    assert not worker.jobs
    net.wait(0.7)
    assert len(worker.jobs) == 1


def test_a_start_at_another_process_opens_the_window_again_when_it_is_over() -> None:
    net = Broker(2, policy(rate=(1, 10.0)))
    first, second = net.nodes
    worker = second.worker(b"echo", credit=0)
    client = first.peer()
    net.settle()
    ask(client, b"a")
    ask(client, b"a")
    net.settle()
    assert worker.me is not None
    second.broker.add_credit(worker.me, 2)  # the first one starts; nothing else happens at the process that counts
    net.settle()
    assert len(worker.jobs) == 1
    net.wait(10.3)
    assert len(worker.jobs) == 2
