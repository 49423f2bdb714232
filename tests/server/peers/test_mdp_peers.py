"""pyzmq clients and workers of MDP/0.1 and MDP/0.2, each in a process of its own."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.harness import Broker, Socket, Worker, wait_for

BEAT = "--beat=0.2"
PROTOCOLS = ["mdp1", "mdp2"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path) as broker:
        yield broker


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Broker]:
    """A broker that beats five times a second, so that silence is noticed after 0.6 s."""
    with Broker(tmp_path, BEAT) as broker:
        yield broker


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_req_and_dealer_clients_call_a_worker(broker: Broker, protocol: str) -> None:
    with (
        Worker(broker, "echo", "--protocol", protocol),
        Socket("REQ", broker.url) as req,
        Socket("DEALER", broker.url) as dealer,
        Socket("REQ", broker.url) as req2,
        Socket("DEALER", broker.url) as dealer2,
    ):
        for body in ([b"hello"], [b"a", b"", b"c"], [b""], [b"x" * 300], [b"y" * 100_000]):
            req.send(b"MDPC01", b"echo", *body)
            assert req.receive() == [b"MDPC01", b"echo", b"worker", *body]
            dealer.send(b"", b"MDPC01", b"echo", *body)
            assert dealer.receive() == [b"", b"MDPC01", b"echo", b"worker", *body]
            req2.send(b"MDPC02", b"\x01", b"echo", *body)
            assert req2.receive() == [b"MDPC02", b"\x03", b"echo", b"worker", *body]
            dealer2.send(b"MDPC02", b"\x01", b"echo", *body)
            assert dealer2.receive() == [b"MDPC02", b"\x03", b"echo", b"worker", *body]


def test_many_requests_of_one_dealer_are_all_answered(broker: Broker) -> None:
    with (
        Worker(broker, "echo", "--name=one"),
        Worker(broker, "echo", "--name=two", "--protocol=mdp2"),
        Socket("DEALER", broker.url) as client,
    ):
        for number in range(200):
            client.send(b"", b"MDPC01", b"echo", b"%d" % number)
        replies = [client.receive() for _ in range(200)]
        assert {int(reply[-1]) for reply in replies} == set(range(200))
        assert {reply[3] for reply in replies} == {b"one", b"two"}


def test_partials_come_before_their_final(broker: Broker) -> None:
    with (
        Worker(broker, "count", "--protocol=mdp2", "--partials=3"),
        Socket("DEALER", broker.url) as client,
        Socket("DEALER", broker.url) as old,
    ):
        client.send(b"MDPC02", b"\x01", b"count", b"x")
        for number in range(3):
            assert client.receive() == [b"MDPC02", b"\x02", b"count", b"%d" % number]
        assert client.receive() == [b"MDPC02", b"\x03", b"count", b"worker", b"x"]
        # MDP/0.1 has no partials: they are joined in front of the final
        assert old.call(b"count", b"x") == [b"0", b"1", b"2", b"worker", b"x"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_heartbeats_both_ways_keep_an_idle_worker(tmp_path: Path, protocol: str) -> None:
    with (
        Broker(tmp_path, "--beat=0.2", "--beats-missed=200") as broker,
        Worker(broker, "echo", "--protocol", protocol, "--beat=0.2", "--liveness=200") as worker,
    ):
        for _ in range(5):
            worker.event("beat")
            wait_for(lambda: silence(broker) > 0.1, "the time between two beats of the worker")
            wait_for(lambda: silence(broker) < 0.1, "a beat of the worker")
        assert len(broker.lines("worker registered")) == 1
        assert not broker.complained()


@pytest.mark.real_time
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_worker_without_heartbeats_is_lost_and_disconnected_when_it_sends(quick: Broker, protocol: str) -> None:
    head, heartbeat, disconnect = (
        ([b"", b"MDPW01"], b"\x04", b"\x05") if protocol == "mdp1" else ([b"MDPW02"], b"\x05", b"\x06")
    )
    with Socket("DEALER", quick.url) as worker, Socket("DEALER", quick.url) as client:
        worker.send(*head, b"\x01", b"echo")
        quick.logged("worker lost", services="echo", protocol=protocol if protocol == "mdp1" else "mdp2 (rfc18)")
        assert client.call(b"mmi.service", b"echo") == [b"404"]
        worker.send(*head, heartbeat)
        while (said := worker.receive()) == [*head, heartbeat]:
            pass
        assert said == [*head, disconnect]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_worker_leaves_with_disconnect(broker: Broker, protocol: str) -> None:
    with Worker(broker, "echo", "--protocol", protocol) as worker, Socket("DEALER", broker.url) as client:
        assert client.call(b"mmi.service", b"echo") == [b"200"]
        assert worker.end() == 0
        assert broker.logged("worker left", services="echo")["why"] == "DISCONNECT"
        assert client.call(b"mmi.service", b"echo") == [b"404"]
        assert not broker.complained()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_peers_find_a_broker_that_was_killed_and_started_again(tmp_path: Path, protocol: str) -> None:
    with Broker(tmp_path, BEAT) as first:
        with (
            Worker(first, "echo", "--protocol", protocol, "--beat=0.2") as worker,
            Socket("DEALER", first.url) as client,
        ):
            assert client.call(b"echo", b"before") == [b"worker", b"before"]
            first.kill()
            with Broker(tmp_path, BEAT, listen=first.url) as second:
                assert second.url == first.url
                worker.event("connected")  # told to by DISCONNECT, or by the broker's silence
                second.logged("worker registered", services="echo")
                assert client.call(b"echo", b"after") == [b"worker", b"after"]


def test_a_request_of_a_killed_worker_is_requeued_when_its_connection_ends(broker: Broker) -> None:
    with (
        Worker(broker, "slow", "--gate") as doomed,
        Socket("DEALER", broker.url) as client,
    ):
        client.send(b"", b"MDPC01", b"slow", b"x")
        doomed.event("job")
        with Worker(broker, "slow", "--name=other", "--gate") as other:
            doomed.signal(signal.SIGKILL)
            assert broker.logged("worker lost", services="slow")["why"] == "connection closed", (
                "not by missed heartbeats"
            )
            assert other.event("job")["body"] == [b"x".hex()]
            other.say("go")
            assert client.receive() == [b"", b"MDPC01", b"slow", b"other", b"x"]
            assert broker.logged("request requeued")["attempt"] == 1
            assert client.call(b"mmi.service", b"slow") == [b"200"]  # and no second reply before it


@pytest.mark.real_time
def test_a_late_reply_of_a_stopped_worker_is_dropped(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        quick = stack.enter_context(Broker(tmp_path, BEAT, "--beats-missed=15", "--attempts=100"))
        client = stack.enter_context(Socket("DEALER", quick.url))
        stopped = stack.enter_context(
            busy_worker(quick, client, "--name=stopped", "--beats-busy", "--beat=0.1", "--liveness=10000")
        )
        # a beat that may have crossed the request on its way does not count
        wait_for(lambda: quick.ask("requests")[0]["state_us"] > 600_000 + silence(quick) * 1e6, "a beat while busy")
        stopped.signal(signal.SIGSTOP)
        lost = quick.logged("worker lost", services="slow")
        assert lost["held"] == 1 and "no heartbeat" in lost["why"]
        with Worker(quick, "slow", "--name=other", "--beat=0.1", "--liveness=10000") as other:
            other.event("job")
            assert client.receive() == [b"", b"MDPC01", b"slow", b"other", b"x"]
            stopped.say("go")
            stopped.signal(signal.SIGCONT)
            stopped.event("answered")
            assert quick.logged("stale reply dropped")["worker"] == lost["worker"]
            assert client.call(b"mmi.service", b"slow") == [b"200"]  # and no second reply before it


@contextlib.contextmanager
def busy_worker(broker: Broker, client: Socket, *words: str) -> Iterator[Worker]:
    """A worker that holds a request from its registration on: an idle one could be lost before the request comes."""
    client.send(b"", b"MDPC01", b"slow", b"x")
    wait_for(lambda: bool(broker.ask("requests")), "the request")
    with Worker(broker, "slow", "--gate", *words) as worker:
        worker.event("job")
        yield worker


def silence(broker: Broker) -> float:
    """Seconds since the only worker was last heard."""
    (row,) = broker.ask("workers")
    return float(row["silent_us"]) / 1e6


@pytest.mark.real_time
def test_a_worker_that_does_not_beat_while_busy_finishes_a_long_job_once(tmp_path: Path) -> None:
    with (
        # Three seconds: an idle worker on a slow machine is not lost.
        Broker(tmp_path, BEAT, "--beats-missed=15") as quick,
        Socket("DEALER", quick.url) as client,
        busy_worker(quick, client, "--name=busy", "--beat=0.1", "--liveness=10000") as busy,
    ):
        wait_for(lambda: silence(quick) > 6.0, "twice its liveness")
        busy.say("go")
        assert client.receive() == [b"", b"MDPC01", b"slow", b"busy", b"x"]
        assert busy.event("answered")
        assert not quick.complained()
        assert client.call(b"mmi.service", b"slow") == [b"200"]


def test_a_worker_is_lost_after_the_busy_timeout(tmp_path: Path) -> None:
    with (
        Broker(tmp_path, BEAT, "--busy-timeout=1s", "--attempts=100") as broker,
        Worker(broker, "slow", "--name=busy", "--gate", "--beat=0.1", "--liveness=10000") as busy,
        Socket("DEALER", broker.url) as client,
    ):
        client.send(b"", b"MDPC01", b"slow", b"x")
        busy.event("job")
        broker.logged("worker lost", services="slow")
        with Worker(broker, "slow", "--name=other", "--beat=0.1", "--liveness=10000"):
            assert client.receive()[3:] == [b"other", b"x"]


def test_a_request_that_kills_its_workers_fails(tmp_path: Path) -> None:
    with Broker(tmp_path, "--attempts=2") as broker, Socket("DEALER", broker.url) as client:
        client.send(b"", b"MDPC01", b"slow", b"poison")
        for attempt in (1, 2):
            with Worker(broker, "slow", "--gate") as worker:
                worker.event("job")
                worker.signal(signal.SIGKILL)
                wait_for(lambda done=attempt: len(broker.lines("worker lost")) == done, "its end")  # type: ignore[misc]
        assert len(broker.lines("request requeued")) == 1
        assert client.call(b"polydomo.requests") == [b"[]"]
