"""Everything is bounded: a sender is throttled or refused, and other peers are not affected."""

import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from polydomo import testing
from polydomo.server.server import BrokerServer
from polydomo.wire import frames
from tests.cli.shell import PATIENCE
from tests.server.harness import Broker, Peer, Socket, Worker, wait_for
from tests.server.raw import Raw, dealer, raw

MIB = 1 << 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path) as broker:
        yield broker


def request(service: bytes, *body: bytes) -> bytes:
    return frames.join([b"", b"MDPC01", service, *body])


def test_a_flood_does_not_starve_another_client(broker: Broker) -> None:
    """The request of the other client waits for one request of the flooding client, not for all of them."""
    with dealer(broker.address) as worker, dealer(broker.address) as flood, dealer(broker.address) as other:
        worker.send(b"", b"MDPW01", b"\x01", b"slow")
        flood.write(request(b"slow", b"flood") * 2000)
        wait_for(lambda: len(broker.ask("requests")) == 1000, "the flood")  # as many as are listed
        other.write(request(b"slow", b"other"))
        wait_for(lambda: broker.ask("services")[0]["queued"] == 2000, "the other's request")
        served = []
        for _ in range(4):
            *_, token, _, body = worker.receive()
            served.append(body)
            worker.send(b"", b"MDPW01", b"\x03", token, b"", body)
        assert b"other" in served
        assert other.receive()[3:] == [b"other"]


def test_a_client_that_floods_builtin_services_does_not_delay_others(broker: Broker) -> None:
    """All requests of the flooding client are answered, and so are those of the other client."""
    questions = 20_000
    with dealer(broker.address) as flood, dealer(broker.address) as other:
        writer = threading.Thread(target=flood.write, args=(request(b"mmi.service", b"x") * questions,))
        writer.start()
        assert other.call(b"mmi.service", b"x") == [b"404"]
        answer = frames.join([b"", b"MDPC01", b"mmi.service", b"404"])
        assert flood.read(len(answer) * questions) == answer * questions
        writer.join()
        assert flood.ask("status"), "it is heard on"


@pytest.mark.long
def test_clients_of_one_service_are_served_in_turn(broker: Broker) -> None:
    with (
        Worker(broker, "echo"),
        Peer("client", broker.url, "echo", "20000", "--outstanding=5000") as flood,
        Socket("DEALER", broker.url) as other,
    ):
        wait_for(lambda: bool(broker.ask("requests")), "the flood")
        for number in range(20):  # each comes back while the flood is still on
            assert other.call(b"echo", b"%d" % number) == [b"worker", b"%d" % number]
        assert broker.ask("requests"), "the flood was over too soon to tell anything"
        assert flood.next()["answered"] == 20000


def test_a_full_queue_throttles_the_sender_and_drops_nothing(tmp_path: Path) -> None:
    with Broker(tmp_path, "--limits-max-queue=50", "--queue-expiry=1h") as broker, dealer(broker.address) as client:
        count = 2_000
        written = threading.Event()

        def write() -> None:
            for number in range(count):
                client.write(request(b"echo", b"%d" % number, bytes(10_000)))
            written.set()

        writer = threading.Thread(target=write)
        writer.start()
        wait_for(lambda: paused(broker, client), "the pause")
        assert not written.is_set()  # 20 MB do not fit into the sockets' buffers
        assert broker.ask("services")[0]["queued"] <= 50
        with Worker(broker, "echo"), Worker(broker, "echo"):
            numbers = {int(client.receive()[4]) for _ in range(count)}
        writer.join()
        assert numbers == set(range(count))
        assert not [line for line in broker.complained() if "refused" in line["message"]]


def paused(broker: Broker, peer: Raw) -> bool:
    return any(f"//{peer.host}:" in row["peer"] and row["paused"] for row in broker.ask("clients"))


def test_a_paused_client_of_libzmq_loses_nothing(tmp_path: Path) -> None:
    with Broker(tmp_path, "--limits-max-queue=10", "--limits-max-outstanding=16") as broker, Worker(broker, "echo"):
        with Peer("client", broker.url, "echo", "3000", "--outstanding=3000", "--size=3000") as client:
            assert client.next()["answered"] == 3000


def test_a_paused_connection_that_closes_is_noticed_at_once(tmp_path: Path) -> None:
    with Broker(tmp_path, "--limits-max-outstanding=3", "--queue-expiry=1h") as broker:
        with dealer(broker.address) as client:
            client.write(request(b"nobody", b"x") * 10)
            wait_for(lambda: paused(broker, client), "the pause")
            assert len(broker.ask("requests")) == 3
        wait_for(lambda: not broker.ask("requests"), "its end")
        assert not broker.ask("services")


def test_a_paused_connection_resumes_where_it_stopped(tmp_path: Path) -> None:
    with (
        Broker(tmp_path, "--limits-max-outstanding=3", "--queue-expiry=1h") as broker,
        dealer(broker.address) as client,
    ):
        client.write(b"".join(request(b"echo", b"%d" % number) for number in range(100)))
        wait_for(lambda: paused(broker, client), "the pause")
        with Worker(broker, "echo"):
            assert [int(client.receive()[4]) for _ in range(100)] == list(range(100))


def test_many_pauses_and_ends_leave_nothing_behind(tmp_path: Path) -> None:
    with Broker(tmp_path, "--limits-max-outstanding=2", "--queue-expiry=1h") as broker:
        before = broker.files()
        for _ in range(5):
            peers = [Raw(broker.address) for _ in range(20)]
            for peer in peers:
                peer.shake()
                peer.write(request(b"nobody", b"x") * 5)
            wait_for(lambda: sum(row["paused"] for row in broker.ask("clients")) == 20, "the pauses")
            for peer in peers:
                peer.close()
            wait_for(lambda: broker.ask("status")["connections"] == 1, "the end of all")
        wait_for(lambda: broker.files() <= before, "the last descriptor")


def test_a_connection_is_paused_also_when_no_file_can_be_opened(tmp_path: Path) -> None:
    with (
        Broker(tmp_path, "--limits-max-outstanding=3", "--queue-expiry=1h") as broker,
        dealer(broker.address) as client,
        dealer(broker.address) as other,
    ):
        other.ask("status")
        hard = resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (broker.files(), hard))
        client.write(b"".join(request(b"echo", b"%d" % number) for number in range(10)))
        wait_for(lambda: any(row["paused"] for row in other.ask("clients")), "the pause")
        resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
        with Worker(broker, "echo"):
            assert [int(client.receive()[4]) for _ in range(10)] == list(range(10))


def test_a_client_that_does_not_read_does_not_grow_the_broker(tmp_path: Path) -> None:
    """Its replies fill the sockets and one MiB; then it is not read any more, and so asks for no more."""
    with (
        Broker(tmp_path, "--limits-max-client-bytes=8MiB") as broker,
        Worker(broker, "echo"),
        raw(broker.address, buffer=65536) as client,
        Socket("DEALER", broker.url) as other,
    ):
        client.shake()
        before = broker.memory()
        assert flood(broker, client, request(b"echo", bytes(100_000)), 400 * MIB) < 100 * MIB
        assert other.call(b"echo", b"x") == [b"worker", b"x"]
        assert broker.memory("VmHWM") - before < 40 * MIB


def flood(broker: Broker, peer: Raw, message: bytes, most: int) -> int:
    """Writes until the broker has paused the peer and no more is accepted; returns the number of bytes accepted."""
    peer.socket.settimeout(0.5)
    written = 0
    end = time.monotonic() + PATIENCE
    while written < most:
        try:
            written += peer.socket.send(memoryview(message)[written % len(message) :])
        except TimeoutError:
            if paused(broker, peer):
                break
            assert time.monotonic() < end, "the broker neither reads nor pauses the peer"
    return written


def test_one_client_cannot_fill_the_broker_for_all(tmp_path: Path) -> None:
    """Requests without workers are held up to a limit for each client, far below the limit for all."""
    with (
        Broker(tmp_path, "--limits-max-client-bytes=4MiB") as broker,
        Worker(broker, "echo"),
        dealer(broker.address) as greedy,
        Socket("DEALER", broker.url) as other,
    ):
        assert flood(broker, greedy, request(b"nobody", bytes(100_000)), 400 * MIB) < 100 * MIB
        assert broker.ask("status")["held_bytes"] < 5 * MIB
        assert other.call(b"echo", bytes(100_000))[1] == bytes(100_000)


def test_a_subscriber_that_does_not_read_is_closed_at_the_limit(tmp_path: Path) -> None:
    bounds = ("--limits-max-message=1MiB", "--limits-max-unsent=4MiB", "--limits-max-held-bytes=8MiB")
    with (
        Broker(tmp_path, *bounds) as broker,
        raw(broker.address, buffer=65536) as reader,
        raw(broker.address) as writer,
    ):
        reader.shake(b"SUB")
        reader.write(b"\x04\x0a\x09SUBSCRIBE")
        writer.shake(b"PUB")
        assert writer.read(12) == b"\x04\x0a\x09SUBSCRIBE"
        before = broker.memory()
        for _ in range(200):
            writer.send(b"topic", bytes(500_000))
        line = broker.complaint(reader)
        assert "unread" in line["why"] or "does not read" in line["why"]
        assert broker.memory("VmHWM") - before < 30 * MIB


def test_connections_are_counted(tmp_path: Path) -> None:
    with Broker(tmp_path, "--limits-max-connections=3") as broker:
        with dealer(broker.address), dealer(broker.address):
            with dealer(broker.address):
                with raw(broker.address) as fourth:
                    assert fourth.closed() == b""
                    assert broker.complaint(fourth)["why"] == "limits.max_connections reached"
            # there is room again
            wait_for(lambda: served(broker), "room")


def served(broker: Broker) -> bool:
    try:
        return bool(broker.ask("status"))
    except (AssertionError, ConnectionError):
        return False


def test_a_shortage_of_files_is_logged_and_affects_no_other_connection(tmp_path: Path) -> None:
    """The bound on connections leaves room for other files, so the kernel never has to refuse one. If it must, the broker lives on."""
    with Broker(tmp_path) as broker:
        limit = broker.files() + 3
        resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
        peers = [socket.create_connection(broker.address) for _ in range(10)]
        for peer in peers[3:]:
            peer.settimeout(PATIENCE)
            assert peer.recv(1) == b""
        cpu = used(broker)
        start = time.monotonic()
        time.sleep(0.5)
        assert used(broker) - cpu < 0.5 * (time.monotonic() - start)  # it does not spin
        for peer in peers:
            peer.close()
        wait_for(lambda: served(broker), "room")


def used(broker: Broker) -> float:
    fields = Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_names_of_services_are_bounded(tmp_path: Path) -> None:
    with Broker(tmp_path, "--limits-max-services=10") as broker, dealer(broker.address) as client:
        for number in range(12):
            client.write(request(b"service-%d" % number, b"x"))
        wait_for(lambda: len(broker.complaints(client)) == 2, "two complaints")
        assert {line["why"] for line in broker.complaints(client)} == {"there are already 10 services"}
        assert len(broker.ask("services")) == 10


def test_a_large_body_passes_without_copies(broker: Broker) -> None:
    """At most three times its size is in memory: the request, which is kept until it is answered, its answer, and the bytes in transit."""
    with Worker(broker, "echo"), dealer(broker.address) as client:
        assert client.call(b"echo", b"x") == [b"worker", b"x"]
        Path(f"/proc/{broker.process.pid}/clear_refs").write_text("5")  # VmHWM starts anew
        before = broker.memory()
        size = 16 * MIB
        body = b"0123456789abcdef" * (size // 16)
        client.send(b"", b"MDPC01", b"echo", body)
        assert client.receive()[4] == body
        assert broker.memory("VmHWM") - before <= 3 * size


@pytest.mark.long
def test_large_bodies_over_and_over_do_not_grow_the_broker(broker: Broker) -> None:
    with Worker(broker, "echo"), dealer(broker.address) as client:
        body = bytes(16 * MIB)
        for number in range(100):
            client.send(b"", b"MDPC01", b"echo", body)
            assert client.receive()[4] == body
            if number == 10:
                before = broker.memory()
        # The last reply is let go a moment after it was read.
        wait_for(lambda: broker.memory() - before < 16 * MIB, "memory as before")


def test_a_turn_that_resumes_a_peer_is_followed_by_one_that_resumes_paused_clients() -> None:
    """What the peer sends may make room for them, after this turn has looked for room."""

    def woken(server: BrokerServer) -> bool:
        state, hub = server.broker, server.hub
        peer, client = SimpleNamespace(closed=True), object()
        held, state.held_bytes = state.held_bytes, 1 << 60
        state.paused_clients[cast(Any, client)] = cast(Any, None)
        try:
            server.flush()
            without = server.awake
            hub.resumed.append(cast(Any, peer))
            server.flush()
            return server.awake and not without
        finally:
            state.held_bytes = held
            del state.paused_clients[cast(Any, client)]

    with testing.broker() as broker:
        found: list[bool] = []

        def look(server: BrokerServer) -> bool:
            found.append(woken(server))
            return True

        broker.wait_until(look)
        assert found == [True]
