"""The catalog from the clients: ``register``, ``lookup`` and ``services``."""

import asyncio
import json
import struct
import time
from collections.abc import Callable

import pytest
import zmq

from polydomo import AsyncCatalog, AsyncClient, CallFailed, Client, NotConnected, Worker, testing

WAIT = 60.0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def names(client: Client) -> list[str]:
    return sorted(entry["name"] for entry in client.lookup())


def test_a_service_is_in_the_catalog_until_it_is_closed(broker: testing.Broker) -> None:
    with Client(broker.url) as client:
        with client.register("weather", port=8080, function="the weather", heartbeat=1.0, color="blue") as registered:
            assert (registered.name, registered.interval) == ("weather", 1.0)
            (entry,) = client.lookup("weather")
            wanted = {"name": "weather", "ip": "127.0.0.1", "port": 8080, "function": "the weather", "color": "blue"}
            assert {key: entry[key] for key in wanted} == wanted
            registered.update(function="the news", heartbeat=2.0)
            assert registered.interval == 2.0
            assert client.lookup("weather")[0]["function"] == "the news"
        until(lambda: client.lookup("weather") == [])


def test_lookup_by_function_and_of_services_of_other_protocols(broker: testing.Broker) -> None:
    worker = Worker(broker.url)
    worker.add("echo", lambda call: call)
    with worker, Client(broker.url) as client:
        with (
            client.register("camera.1", port=1, function="camera"),
            client.register("camera.2", port=2, function="camera"),
            client.register("light", port=3, function="lamp", ip="192.0.2.7"),
        ):
            assert names(client) == ["camera.1", "camera.2", "echo", "light"]
            assert [entry["name"] for entry in client.lookup(function="camera")] == ["camera.1", "camera.2"]
            assert client.lookup("light", function="camera") == []
            assert client.lookup("light")[0]["ip"] == "192.0.2.7"
            assert client.lookup("echo")[0]["protocol"] == "mdx"
            assert client.lookup("missing") == []


def test_it_is_registered_again_after_a_crash_with_its_updates(broker: testing.Broker) -> None:
    with Client(broker.url) as client, client.register("weather", port=8080, heartbeat=0.1) as registered:
        registered.update(function="changed")
        broker.kill()
        broker.start()
        until(lambda: [entry["function"] for entry in client.lookup("weather")] == ["changed"])


def test_closing_the_client_removes_its_services(broker: testing.Broker) -> None:
    client = Client(broker.url)
    client.register("weather", port=8080)
    client.close()
    with Client(broker.url) as other:
        until(lambda: other.lookup("weather") == [])


def test_a_registration_that_is_denied(broker: testing.Broker) -> None:
    with Client(broker.url) as client:
        with pytest.raises(CallFailed, match="denied"):
            client.register("with,comma", port=1)
        assert names(client) == []


def test_without_a_broker(broker: testing.Broker) -> None:
    broker.stop()
    with Client(broker.url, connect_timeout=0.2) as client:
        with pytest.raises(NotConnected):
            client.register("weather", port=8080)
        with pytest.raises(NotConnected):
            client.lookup("weather")


def test_with_asyncio_and_several_addresses(broker: testing.Broker) -> None:
    with testing.broker() as gone:
        dead = gone.url

    async def main() -> None:
        async with AsyncClient(f"{dead},{broker.url}") as client:
            async with await client.register("weather", port=8080) as registered:
                await registered.update(function="x")
                assert [entry["function"] for entry in await client.lookup("weather")] == ["x"]
        async with AsyncCatalog(f"{dead},{broker.url}") as catalog:
            assert (await catalog.look())[0] == {}

    asyncio.run(main())


def test_a_client_of_the_document_finds_it(broker: testing.Broker) -> None:
    """An info request as the document of the Core Catalog has it, on a REQ socket."""
    with Client(broker.url) as client, client.register("weather", port=8080, function="x"):
        with zmq.Context() as context, context.socket(zmq.REQ) as socket:
            socket.connect(broker.url)
            socket.setsockopt(zmq.RCVTIMEO, 60_000)
            socket.send_multipart([b"u_U", struct.pack("f", 0.0), b"weather"])
            answer = socket.recv_multipart()
        assert json.loads(answer[-1])["weather"]["port"] == 8080


def test_services(broker: testing.Broker) -> None:
    worker = Worker(broker.url, concurrency=2)
    worker.add("echo", lambda call: call)
    with worker, Client(broker.url) as client:
        broker.wait_for("echo", 2)
        (row,) = client.services()
        assert (row["name"], row["queued"]) == ("echo", 0)

        async def main() -> list[str]:
            async with AsyncClient(broker.url, "dcp") as other:
                return [row["name"] for row in await other.services()]

        assert asyncio.run(main()) == ["echo"]
