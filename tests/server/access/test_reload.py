"""Changes of the access file while the broker runs: keys, rights, errors, quotas, ipc, and journal rows."""

import asyncio
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

import polydomo
import polydomo.testing
from polydomo.client.security import Security
from polydomo.errors import AccessDenied, CallFailed, ConnectionLost, PolydomoError, SettingError
from polydomo.server.server import BrokerServer
from polydomo.server.settings.settings import load
from tests.server.secured import PATIENCE, TOKEN, Caller, Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def broker(place: Place) -> Iterator[polydomo.testing.Broker]:
    with polydomo.testing.broker(settings={"access": str(place.access)}) as broker:
        yield broker


def reloaded(broker: polydomo.testing.Broker, rules: object) -> None:
    """Waits until other rules than these are in force."""
    broker.wait_until(lambda server: server.access is not None and server.access.file.rules is not rules)


def rules(broker: polydomo.testing.Broker) -> object:
    assert broker._server is not None and broker._server.access is not None
    return broker._server.access.file.rules


def test_a_key_that_is_revoked_while_in_use(place: Place, broker: polydomo.testing.Broker) -> None:
    """The worker holds a request: it is disconnected at once, and the request goes to the next worker."""
    held = Caller(place.socket(zmq.DEALER, broker.url, "alice"), "mdx")
    slow = place.socket(zmq.DEALER, broker.url, "pool")
    slow.send_multipart([b"MDXW01", b"\x01", b"echo"])
    broker.wait_for("echo")
    held.end.request(1, b"echo", [b"hello"])
    held.send(held.end)
    while slow.recv_multipart()[:2] != [b"MDXW01", b"\x02"]:
        pass
    before = rules(broker)
    place.change('curve = "pool.key"', 'curve = "mallory.key"')
    reloaded(broker, before)
    broker.wait_for("echo", 0)
    worker = polydomo.Worker(broker.url, **place.keys("mallory"))  # its key is pool's now
    worker.add("echo", lambda call: call.text.upper())
    with worker:
        assert held.receive(held.end)[0].body == [b"HELLO"]  # type: ignore[union-attr]
    held.close()
    slow.close()
    with polydomo.Client(broker.url, **place.keys("pool")) as client, pytest.raises(AccessDenied):
        client.call("echo", "x", timeout=PATIENCE)


def test_a_right_that_is_revoked_and_granted_again(place: Place, broker: polydomo.testing.Broker) -> None:
    worker = polydomo.Worker(broker.url, **place.keys("pool"))
    worker.add("echo", lambda call: call.text.upper())
    with worker, polydomo.Client(broker.url, **place.keys("alice")) as client:
        assert client.call("echo", "a").text == "A"
        before = rules(broker)
        place.change('call = ["echo", "lint.*"]', 'call = ["lint.*"]')
        reloaded(broker, before)
        with pytest.raises(CallFailed, match="may not call 'echo'"):
            client.call("echo", "b", timeout=PATIENCE)
        before = rules(broker)
        place.change('call = ["lint.*"]', 'call = ["echo", "lint.*"]')
        reloaded(broker, before)
        assert client.call("echo", "c", timeout=PATIENCE).text == "C"
        before = rules(broker)
        place.change('offer = ["echo"]', 'offer = ["print"]')
        reloaded(broker, before)
        broker.wait_for("echo", 0)


def test_an_open_request_whose_right_is_gone(place: Place, broker: polydomo.testing.Broker) -> None:
    with polydomo.Client(broker.url, **place.keys("alice")) as client:
        waiting = client.submit("echo", "x", timeout=PATIENCE)
        broker.wait_until(lambda server: server.broker.open_requests == 1)
        place.change('call = ["echo", "lint.*"]', 'call = ["lint.*"]')
        with pytest.raises(ConnectionLost):
            waiting.result(PATIENCE)
        broker.wait_until(lambda server: server.broker.open_requests == 0)


def test_a_file_with_a_mistake_changes_nothing(
    place: Place, broker: polydomo.testing.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    before = rules(broker)
    right = place.text
    with caplog.at_level(logging.INFO):
        place.write(right + "\n[nonsense]\n")
        broker.wait_until(lambda server: "is invalid" in caplog.text)
        assert rules(broker) is before
        place.write(right)
        reloaded(broker, before)
    assert caplog.text.count("is invalid") == 1


def test_a_broker_does_not_start_with_a_wrong_file(place: Place) -> None:
    place.write("[nonsense]\n")
    with pytest.raises(SettingError, match="nonsense: unknown key"):
        with polydomo.testing.broker(settings={"access": str(place.access)}):
            pass


def test_an_open_listener_is_refused_with_the_commands_to_run() -> None:
    with pytest.raises(SettingError) as error:
        load(flags={"listen": ["tcp://0.0.0.0:5246"]})
    for words in (
        "polydomo access init",
        "polydomo keys new server",
        "polydomo up --listen tcp://0.0.0.0:5246 --access",
    ):
        assert words in str(error.value)
    assert load(flags={"listen": ["tcp://0.0.0.0:5246"], "access": "access.toml"}).access == "access.toml"


def test_all_addresses_of_a_principal_are_one_source(broker: polydomo.testing.Broker, place: Place) -> None:
    with Clients(broker, place, 2) as clients:
        for client in clients:
            client.submit("echo", "x" * 400_000, timeout=PATIENCE)
        broker.wait_until(lambda server: server.broker.open_requests == 2)
        assert broker._server is not None
        sources = [(found.source, found.link.source) for found in broker._server.connections if found.link is not None]
        assert sources == [("principal alice", "principal alice")] * 2
        largest = broker._server.broker.memory.largest()
        assert [(row["principal"], int(str(row["held_bytes"])) > 400_000) for row in largest] == [("alice", True)] * 2
        assert b'polydomo_peer_memory_bytes{peer="tcp://127.0.0.1:' in broker._server.metrics.get()


def test_quotas(place: Place) -> None:
    quota = "[quotas.alice]\nconnections = 2\nopen_requests = 3\n[quotas.ci]\nrequests_per_second = 5\n"
    place.write(place.text + "\n" + quota)
    with polydomo.testing.broker(settings={"access": str(place.access)}) as broker:
        with Clients(broker, place, 2) as (one, two):
            waiting = [(one, two)[i % 2].submit("echo", str(i), timeout=PATIENCE) for i in range(10)]
            broker.wait_until(lambda server: server.broker.open_requests >= 3)
            with polydomo.Client(broker.url, **place.keys("alice")) as third, pytest.raises(AccessDenied) as denied:
                third.call("echo", "x", timeout=PATIENCE)
            assert denied.value.status == "300"
            time.sleep(0.2)
            # The first of a connection is taken.
            broker.wait_until(lambda server: server.broker.open_requests in (3, 4))
            worker = polydomo.Worker(broker.url, **place.keys("pool"))
            worker.add("echo", lambda call: call.text)
            with worker:
                assert [future.result(PATIENCE).text for future in waiting] == [str(i) for i in range(10)]
                with polydomo.Client(broker.url, security=Security(user="ci", token=TOKEN)) as fast:
                    began = time.monotonic()
                    for future in [fast.submit("echo", "x", timeout=PATIENCE) for _ in range(12)]:
                        future.result(PATIENCE)
                    assert time.monotonic() - began > 1.0, "5 at once, then 5 a second: 12 take 1.4 s"


class Clients:
    """Several clients at once."""

    def __init__(self, broker: polydomo.testing.Broker, place: Place, count: int) -> None:
        self.clients = [polydomo.Client(broker.url, **place.keys("alice")) for _ in range(count)]

    def __enter__(self) -> "list[polydomo.Client]":
        for client in self.clients:
            client.connect()
        return self.clients

    def __exit__(self, *_: object) -> None:
        for client in self.clients:
            client.close()


def test_plain_is_accepted_only_on_private_connections(place: Place, broker: polydomo.testing.Broker) -> None:
    with polydomo.Client(broker.url, security=Security(user="ci", token=TOKEN)) as client:  # loopback
        with pytest.raises(CallFailed, match="ci may not call 'other'"):
            client.call("other", "x")
    from polydomo.server.access.access import AccessControl, Identity

    far = Identity(AccessControl(str(place.access)), private=False, max_frame=1000)
    mechanism = far.select(b"PLAIN")
    with pytest.raises(AccessDenied, match="only from this machine and inside TLS"):
        mechanism.command(b"HELLO", b"\x02ci" + bytes((len(TOKEN),)) + TOKEN.encode())
    with pytest.raises(SettingError, match="PLAIN would send the token"):
        polydomo.Client("tcp://192.0.2.1:5246", security=Security(user="ci", token=TOKEN))


def test_a_user_of_this_machine_by_ipc(place: Place, tmp_path: Path) -> None:
    place.change("[principals.ci]", f"[principals.me]\nuid = {os.getuid()}\n[principals.ci]")
    place.change('who = ["alice", "ci"]', 'who = ["alice", "ci", "me"]')
    with polydomo.testing.broker(f"ipc://{tmp_path}/sock", settings={"access": str(place.access)}) as broker:
        with polydomo.Client(broker.url) as client:
            with pytest.raises(CallFailed, match="me may not call 'other'"):
                client.call("other", "x")
            assert client.call("polydomo.status").json()
        before = rules(broker)
        place.change(f"uid = {os.getuid()}", "uid = 4294967")
        reloaded(broker, before)
        with polydomo.Client(broker.url) as client, pytest.raises(PolydomoError):
            client.call("polydomo.status", timeout=PATIENCE)


def test_the_journal_names_the_principals(place: Place, tmp_path: Path) -> None:
    from polydomo.cli.broker import broker_journal
    from polydomo.journal.reading.audit import audit
    from polydomo.journal.reading.reader import Reader

    settings = load(
        flags={
            "listen": ["tcp://127.0.0.1:0"],
            "data": str(tmp_path / "data"),
            "journal.level": "messages",
            "access": str(place.access),
        }
    )

    async def run() -> None:
        with broker_journal.open_journal(settings) as kept:
            server = BrokerServer(settings, kept.recorder)
            kept.begin(server)
            await server.start()
            async with polydomo.AsyncWorker(server.urls[0], **place.keys("pool")) as worker:
                assert worker
                async with polydomo.AsyncClient(server.urls[0], **place.keys("alice")) as client:
                    await client.call("echo", "x")
                    with pytest.raises(CallFailed):
                        await client.call("other", "x")
            await server.stop()
            await kept.end()

    real = polydomo.AsyncWorker.__init__

    def with_echo(self: polydomo.AsyncWorker, *words: object, **options: object) -> None:
        real(self, *words, **options)  # type: ignore[arg-type]
        self.add("echo", lambda call: call.text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(polydomo.AsyncWorker, "__init__", with_echo)
        asyncio.run(run())
    reader = Reader([tmp_path / "data" / "journal"])
    messages, requests = reader.rows("messages"), reader.rows("requests")
    (finished,) = requests
    assert (finished["principal"], finished["worker_principal"]) == ("alice", "pool")
    (denied,) = [row for row in messages if row["event"] == "refused"]
    assert (denied["outcome"], denied["principal"], denied["service"]) == ("denied", "alice", "other")
    assert "may not call" in denied["reason"]
    observed = {
        (row["principal"], row["outcome"], row["service"], row["allowed"])
        for row in messages
        if row["event"] == "access"
    }
    assert {("alice", "call", "echo", 1), ("alice", "call", "other", 2), ("pool", "offer", "echo", 1)} <= observed
    assert [str(breach) for breach in audit([*messages, *requests])] == []
