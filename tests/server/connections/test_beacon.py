"""The beacon on a real socket, of loopback alone, and what the libraries make of it."""

import asyncio
import logging
import socket

import pytest

import polydomo
from polydomo import limits, testing
from polydomo.errors import NotConnected, SettingError
from polydomo.server.connections import beacon
from polydomo.server.server import BrokerServer
from polydomo.server.settings.settings import Settings, load
from tests.server.nearby import LOOPBACK, OFTEN, free_port, listener, settings


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def test_it_is_off_unless_a_setting_asks_for_it() -> None:
    async def scenario() -> None:
        server = BrokerServer(Settings(listen=["tcp://127.0.0.1:0"]))
        await server.start()
        assert server.beacon is None
        await server.stop()

    assert Settings().dbp.beacon == "off"
    asyncio.run(scenario())


def test_the_beacon_repeats_the_routers_port() -> None:
    port = free_port()
    made = settings(beacon=port)
    with listener(port) as ear, testing.broker(settings=made, tuning=OFTEN) as broker:
        for _ in range(3):
            data, (host, _) = ear.recvfrom(1024)
            assert (data, host) == (f"SHALOM {port_of(broker.url)}".encode(), "127.0.0.1")


@pytest.mark.parametrize(
    ("given", "usual", "place"),
    [
        ("off", limits.BEACON, None),
        ("on", limits.BEACON, ("255.255.255.255", 5245)),
        ("on", limits.BEACON_LOCAL, ("127.255.255.255", 5245)),
        ("192.0.2.255:7000", limits.BEACON, ("192.0.2.255", 7000)),
    ],
)
def test_the_address_of_the_beacon(given: str, usual: str, place: tuple[str, int] | None) -> None:
    assert beacon.place(given, usual) == place


@pytest.mark.parametrize(
    ("value", "read"),
    [(True, "on"), (False, "off"), ("yes", "on"), ("off", "off"), ("127.255.255.255:05245", "127.255.255.255:5245")],
)
def test_valid_values_of_the_setting(value: object, read: str) -> None:
    assert load(flags={"dbp.beacon": value}).dbp.beacon == read


@pytest.mark.parametrize("value", ["", "5245", "host:5245", "[::1]:5245", "127.0.0.1:0", "127.0.0.1:70000", 5245])
def test_invalid_values_of_the_setting(value: object) -> None:
    with pytest.raises(SettingError, match=r"dbp\.beacon .*must be an IPv4 address and a port"):
        load(flags={"dbp.beacon": value})


def test_a_broker_without_a_tcp_port_has_nothing_to_tell(tmp_path: object) -> None:
    async def scenario() -> None:
        made = settings(beacon=free_port())
        made.listen = [f"ipc://{tmp_path}/broker.sock"]
        with pytest.raises(SettingError, match="needs a tcp:// listener on IPv4"):
            await BrokerServer(made).start()

    asyncio.run(scenario())


def test_a_network_that_is_down_is_logged_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        sender = beacon.Beacon((LOOPBACK, free_port()), "127.0.0.1", 5246, 0.01)
        sender._socket.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 0)  # the kernel refuses every broadcast
        with caplog.at_level(logging.WARNING, "polydomo"):
            sender.start()
        sender._socket.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        while not sender.sent:
            await asyncio.sleep(0.001)
        sender.stop()

    asyncio.run(asyncio.wait_for(scenario(), 20.0))
    assert "beacon not sent" in caplog.text


# --- the libraries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", [LOOPBACK, "*"])
@pytest.mark.parametrize("protocol", ["mdx", "mdp1"])
def test_clients_and_workers_find_the_broker(host: str, protocol: str) -> None:
    port = free_port()
    made = settings(beacon=port)
    url = f"discover://{host}:{port}"
    with testing.broker(settings=made, tuning=OFTEN) as broker:
        worker = polydomo.Worker(url, protocol)
        worker.add("shout", lambda call: call.text.upper())
        with worker, polydomo.Client(url, protocol) as client:
            broker.wait_for("shout")
            assert client.call("shout", "found").text == "FOUND"
            assert worker.url == client.url == url


def test_a_client_finds_the_broker_again_where_it_has_moved_to() -> None:
    port = free_port()
    first, second = settings(beacon=port), settings(beacon=port)
    with polydomo.Client(f"discover://{LOOPBACK}:{port}", "mdp1") as client:
        with testing.broker(settings=first, tuning=OFTEN) as broker:
            assert not client.offered("x")
            one = broker.url
        with testing.broker(settings=second, tuning=OFTEN) as broker:
            assert not client.offered("x")
            assert broker.url != one


def test_no_beacon_is_a_clear_error_in_time() -> None:
    port = free_port()
    with polydomo.Client(f"discover://{LOOPBACK}:{port}", connect_timeout=0.1) as client:
        with pytest.raises(NotConnected, match=rf"discover://{LOOPBACK}:{port}: no beacon arrived"):
            client.call("echo", "x")


def test_invalid_beacons_are_ignored() -> None:
    port = free_port()
    made = settings(beacon=port)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as noise:
        noise.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        with (
            testing.broker(settings=made, tuning=OFTEN),
            polydomo.Client(f"discover://{LOOPBACK}:{port}", "mdp1") as client,
        ):
            for data in (b"", b"SHALOM 99999", b"GONDOR_CALLS_FOR_AID", bytes(1400)):
                noise.sendto(data, (LOOPBACK, port))
            assert not client.offered("x")


def test_an_address_on_which_listening_is_not_allowed() -> None:
    with polydomo.Client("discover://192.0.2.1:5245", connect_timeout=0.2) as client:
        with pytest.raises(NotConnected, match="cannot listen for beacons"):
            client.call("echo", "x")
