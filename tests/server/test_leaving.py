"""SIGTERM: new peers are rejected, requests in flight finish within the grace time, workers are disconnected, and nothing is left."""

import asyncio
import signal
import socket
import time
from pathlib import Path

import pytest

from polydomo import limits
from polydomo.server.http.health import Health
from tests.cli.shell import PATIENCE
from tests.server.harness import Broker, Socket, Worker, wait_for
from tests.server.raw import dealer, raw


def accepts(broker: Broker) -> bool:
    """Whether a new peer is accepted. A broker that shuts down closes it, unless it speaks HTTP."""
    try:
        with dealer(broker.address):
            return True
    except (OSError, AssertionError):
        return False


def health(broker: Broker) -> str:
    """The first line of the answer to a health check."""
    with socket.create_connection(broker.address, PATIENCE) as peer:
        peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return peer.makefile("rb").readline().decode().strip()


@pytest.mark.parametrize("protocol", ["mdp1", "mdp2"])
def test_requests_in_flight_finish_and_workers_are_disconnected(tmp_path: Path, protocol: str) -> None:
    with (
        Broker(tmp_path, "--grace=60s") as broker,
        Worker(broker, "slow", "--gate", "--once", "--protocol", protocol) as worker,
        Worker(broker, "idle", "--once", "--protocol", protocol) as idle,
        Socket("DEALER", broker.url) as client,
        Socket("DEALER", broker.url) as waiting,
    ):
        client.send(b"", b"MDPC01", b"slow", b"x")
        worker.event("job")
        waiting.send(b"", b"MDPC01", b"nobody", b"x")  # it has no worker: it is not waited for
        wait_for(lambda: len(broker.ask("requests")) == 2, "both requests")
        broker.send(signal.SIGTERM)
        broker.logged("stopping")
        wait_for(lambda: not accepts(broker), "the end of accepting")
        worker.say("go")
        assert client.receive() == [b"", b"MDPC01", b"slow", b"worker", b"x"]
        worker.event("disconnected")
        idle.event("disconnected")
        assert broker.status() == 0
        broker.logged("stopped")
        assert not broker.lines("grace time is over")
        for peer in (worker, idle):
            assert peer.process.wait(PATIENCE) == 0


def test_queued_requests_are_still_dispatched(tmp_path: Path) -> None:
    with (
        Broker(tmp_path, "--grace=60s") as broker,
        Worker(broker, "slow", "--gate", "--once") as worker,
        Socket("DEALER", broker.url) as client,
    ):
        for number in range(3):
            client.send(b"", b"MDPC01", b"slow", b"%d" % number)
        worker.event("job")
        wait_for(lambda: len(broker.ask("requests")) == 3, "all three")
        broker.send(signal.SIGTERM)
        broker.logged("stopping")
        for number in range(3):
            worker.say("go")
            assert client.receive()[4] == b"%d" % number
        assert broker.status() == 0


def test_no_new_request_is_taken(tmp_path: Path) -> None:
    with (
        Broker(tmp_path, "--grace=60s") as broker,
        Worker(broker, "slow", "--gate", "--once") as worker,
        Socket("DEALER", broker.url) as client,
        dealer(broker.address) as late,
    ):
        assert late.call(b"mmi.service", b"slow") == [b"200"]
        client.send(b"", b"MDPC01", b"slow", b"x")
        worker.event("job")
        broker.send(signal.SIGTERM)
        wait_for(lambda: not accepts(broker), "the end of accepting")
        late.send(b"", b"MDPC01", b"slow", b"too late")
        assert broker.complaint(late)["why"] == "the broker is shutting down"
        worker.say("go")
        assert client.receive()[4] == b"x"
        assert broker.status() == 0


def test_the_grace_time_ends_the_wait(tmp_path: Path) -> None:
    with (
        Broker(tmp_path, "--grace=0.2s") as broker,
        Worker(broker, "slow", "--gate", "--once") as worker,
        Socket("DEALER", broker.url) as client,
    ):
        client.send(b"", b"MDPC01", b"slow", b"x")
        worker.event("job")
        broker.send(signal.SIGTERM)
        assert broker.status() == 0
        assert broker.logged("grace time is over")["open_requests"] == 1


def test_a_health_check_sees_that_it_leaves_while_requests_finish(tmp_path: Path) -> None:
    with (
        Broker(tmp_path, "--grace=60s") as broker,
        Worker(broker, "slow", "--gate", "--once") as worker,
        Socket("DEALER", broker.url) as client,
    ):
        client.send(b"", b"MDPC01", b"slow", b"x")
        worker.event("job")
        assert health(broker) == "HTTP/1.1 200 OK"
        broker.send(signal.SIGTERM)
        wait_for(lambda: not accepts(broker), "the end of accepting")
        assert health(broker) == "HTTP/1.1 503 Service Unavailable"
        worker.say("go")
        assert client.receive()[4] == b"x"
        assert broker.status() == 0


@pytest.mark.real_time
def test_an_idle_broker_waits_for_the_next_check_of_a_health_checker(tmp_path: Path) -> None:
    with Broker(tmp_path, "--grace=60s") as broker:
        health(broker)
        time.sleep(5.0)  # the checker's interval; the broker waits for twice that
        health(broker)
        broker.send(signal.SIGTERM)
        broker.logged("stopping")
        assert health(broker) == "HTTP/1.1 503 Service Unavailable"
        assert broker.status() == 0


def test_a_health_checker_that_does_not_come_back_does_not_hold_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEALTH_WAIT", 3600.0)

    async def leave() -> None:
        state = Health()
        state.asked()
        state.asked()
        state.leaving = True
        await asyncio.wait_for(state.seen(3600.0), PATIENCE)  # two intervals, and nothing more

    asyncio.run(leave())


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_not_wait(tmp_path: Path, second: signal.Signals) -> None:
    with (
        Broker(tmp_path, "--grace=1h") as broker,
        Worker(broker, "slow", "--gate", "--once") as worker,
        Socket("DEALER", broker.url) as client,
    ):
        client.send(b"", b"MDPC01", b"slow", b"x")
        worker.event("job")
        broker.send(signal.SIGTERM)
        broker.logged("stopping")
        broker.send(second)
        assert broker.status() == 128 + second


def test_peers_of_every_kind_do_not_hold_it_up(tmp_path: Path) -> None:
    """One that never shook hands, one that is paused, one that does not read, a subscriber, and one in the middle of a message."""
    with (
        Broker(tmp_path, "--limits-max-outstanding=4") as broker,
        Worker(broker, "echo"),
        raw(broker.address),
        raw(broker.address, buffer=4096) as deaf,
        dealer(broker.address) as paused,
        raw(broker.address) as reader,
        dealer(broker.address) as slow,
    ):
        paused.write(b"\x01\x00\x01\x06MDPC01\x01\x06nobody\x00\x01x" * 10)
        reader.shake(b"SUB")
        slow.write(b"\x01\x00\x01\x06MDPC01\x01\x04echo\x02" + (1 << 20).to_bytes(8, "big") + bytes(1000))
        deaf.shake()
        deaf.send(b"", b"MDPC01", b"echo", bytes(20 << 20))
        wait_for(lambda: any(row["paused"] for row in broker.ask("clients")), "the pause")
        wait_for(lambda: all(row["service"] == "nobody" for row in broker.ask("requests")), "the large answer")
        broker.send(signal.SIGTERM)
        assert broker.status() == 0
        broker.logged("stopped")


def test_a_large_last_reply_is_written_to_its_end(tmp_path: Path) -> None:
    """Also by a broker that has been without connections before."""
    with Broker(tmp_path, "--grace=60s", limits={"CLOSE_TIME": 60.0}) as broker:
        socket.create_connection(broker.address).close()
        assert broker.ask("status")["connections"] == 1
        with Worker(broker, "echo"), raw(broker.address, buffer=65536) as slow:
            slow.shake()
            slow.send(b"", b"MDPC01", b"echo", bytes(8 << 20))
            wait_for(lambda: broker.ask("services")[0]["answered"] == 1, "the answer")
            broker.send(signal.SIGTERM)
            assert len(slow.closed()) > 8 << 20


def test_a_peer_that_does_not_read_its_disconnect_is_closed(tmp_path: Path) -> None:
    """It breaks the protocol while a large reply waits for it: it has a second to take that, and no more."""
    with Broker(tmp_path) as broker, Worker(broker, "echo"), raw(broker.address, buffer=4096) as deaf:
        deaf.shake()
        deaf.send(b"", b"MDPC01", b"echo", bytes(900_000))  # less than what makes the broker stop reading from it
        wait_for(lambda: not broker.ask("requests") and broker.ask("services")[0]["answered"] == 1, "the answer")
        deaf.write(b"\x08\x00")
        assert "frame flags 0x08" in broker.complaint(deaf)["why"]
        wait_for(lambda: broker.ask("status")["connections"] == 2, "its end")
