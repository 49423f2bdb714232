"""Bridges over real sockets: two and three brokers, a bad network between them, and two machines that are network namespaces."""

import asyncio
import contextlib
import json
import logging
import os
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

import polydomo
import polydomo.testing
from polydomo import limits
from polydomo.client.publisher import Publisher
from polydomo.client.subscriber import AsyncSubscriber
from polydomo.server.logs import fields_of
from polydomo.server.server import BrokerServer
from polydomo.server.settings.sections import Bridge
from polydomo.server.settings.settings import Settings
from tests.cli import shell
from tests.proxy import Proxy

Broker = polydomo.testing.Broker


def bridged(*to: str, topics: list[str] | None = None, **more: object) -> Settings:
    return Settings(bridge=Bridge(to=list(to), topics=topics or [], **more))  # type: ignore[arg-type]


def knows(service: bytes, distance: int = 1) -> Callable[[BrokerServer], bool]:
    """Whether the service is this many bridges away."""

    def asked(server: BrokerServer) -> bool:
        known = server.broker.services.get(service)
        return known is not None and min(map(len, known.remote.values()), default=0) == distance

    return asked


def forgot(service: bytes) -> Callable[[BrokerServer], bool]:
    return lambda server: not server.broker.has_worker(service)


@pytest.fixture
def beat() -> float:
    """Of the bridge, in seconds: long, since no test but one is about its silence."""
    return 20.0


@pytest.fixture
def pair(beat: float) -> Iterator[tuple[Broker, Broker, Proxy]]:
    """Two brokers, and the bad network between them."""
    tuning = {"bridge_beat": beat}
    with polydomo.testing.broker(settings=bridged(), tuning=tuning) as far, Proxy(far.url) as proxy:
        with polydomo.testing.broker(settings=bridged(proxy.url), tuning=tuning) as near:
            yield near, far, proxy


async def count(call: polydomo.Call) -> AsyncIterator[str]:
    for number in range(int(call.text)):
        yield str(number)


def test_calls_streams_failures_and_time_limits_cross(pair: tuple[Broker, Broker, Proxy]) -> None:
    near, far, _ = pair
    worker = polydomo.AsyncWorker(far.url, concurrency=2)
    blocked = threading.Event()
    worker.add("upper", lambda call: call.text.upper())
    worker.add("count", count)
    worker.add("block", lambda call: blocked.wait(120) and None)

    @worker.service("broken")
    def broken(call: polydomo.Call) -> None:
        raise polydomo.CallFailed("my-code", "my text")

    async def talk() -> None:
        async with worker, polydomo.AsyncClient(near.url) as client:
            for service in (b"upper", b"count", b"block", b"broken"):
                await asyncio.to_thread(near.wait_until, knows(service))
            assert await client.offered("upper")
            assert (await client.call("upper", "hello", "x" * 100_000)).text == "HELLO" + "X" * 100_000
            assert [part.text async for part in client.stream("count", "3")] == ["0", "1", "2"]
            with pytest.raises(polydomo.CallFailed) as error:
                await client.call("broken", "x")
            assert (error.value.code, error.value.text) == ("my-code", "my text")
            with pytest.raises(polydomo.CallTimeout):
                await client.call("block", "x", timeout=0.2)
            blocked.set()
        await asyncio.to_thread(near.wait_until, forgot(b"upper"))

    asyncio.run(talk())


def test_requests_in_both_directions_over_one_connection(pair: tuple[Broker, Broker, Proxy]) -> None:
    near, far, proxy = pair
    worker = polydomo.Worker(near.url)
    worker.add("upper", lambda call: call.text.upper())
    with worker, polydomo.Client(far.url, "mdp1") as client:
        far.wait_until(knows(b"upper"))
        assert client.call("upper", "hello").text == "HELLO"
    assert proxy.connections == 1


def test_a_bridge_cut_in_the_middle_of_a_thousand_requests_and_restored(pair: tuple[Broker, Broker, Proxy]) -> None:
    """Every request has exactly one outcome, and none is lost."""
    near, far, proxy = pair
    ran: Counter[str] = Counter()
    stops = {100: asyncio.Event(), 400: asyncio.Event()}  # by then nobody goes on until the bridge has been cut

    async def work(call: polydomo.Call) -> str:
        ran[call.text] += 1
        for number, cut in stops.items():
            if ran.total() >= number:
                await cut.wait()
        return call.text.upper()

    async def talk() -> None:
        worker = polydomo.AsyncWorker(far.url, concurrency=8)
        worker.add("work", work)
        async with worker, polydomo.AsyncClient(near.url, timeout=500) as client:
            await asyncio.to_thread(near.wait_until, knows(b"work"))
            calls = [asyncio.ensure_future(client.call("work", f"n{number}")) for number in range(1000)]
            for number, cut in stops.items():
                while ran.total() < number + 7:
                    await asyncio.sleep(0.002)
                await asyncio.to_thread(proxy.refuse)
                await asyncio.to_thread(proxy.cut)
                await asyncio.to_thread(near.wait_until, forgot(b"work"))
                await asyncio.to_thread(far.wait_until, lambda server: not server.broker.bridging.learned)
                cut.set()
                await asyncio.to_thread(proxy.accept)
            outcomes = await asyncio.gather(*calls)
        assert [outcome.text for outcome in outcomes] == [f"N{number}" for number in range(1000)]

    asyncio.run(talk())
    assert proxy.connections == 3
    assert set(ran) == {f"n{number}" for number in range(1000)} and max(ran.values()) <= 3
    assert ran.total() >= 1016  # what was under way when it was cut ran again


@pytest.mark.parametrize("beat", [limits.BRIDGE_BEAT])
def test_a_silent_bridge_is_lost_and_reconnects(pair: tuple[Broker, Broker, Proxy]) -> None:
    near, far, proxy = pair
    worker = polydomo.Worker(far.url)
    worker.add("upper", lambda call: call.text.upper())
    with worker, polydomo.Client(near.url) as client:
        near.wait_until(knows(b"upper"))
        assert client.call("upper", "one").text == "ONE"
        proxy.hold()
        near.wait_until(forgot(b"upper"))
        far.wait_until(lambda server: not server.broker.bridging.learned)
        proxy.cut()
        assert client.call("upper", "two").text == "TWO"


def test_a_slow_network_does_not_close_a_bridge(pair: tuple[Broker, Broker, Proxy]) -> None:
    near, far, proxy = pair
    proxy.delay(0.05)
    worker = polydomo.Worker(far.url)
    worker.add("upper", lambda call: call.text.upper())
    with worker, polydomo.Client(near.url) as client:
        near.wait_until(knows(b"upper"))
        began = time.monotonic()
        assert client.call("upper", "slow").text == "SLOW"
        assert time.monotonic() - began >= 0.1
    assert proxy.connections == 1


def test_three_brokers_in_a_ring(caplog: pytest.LogCaptureFixture) -> None:
    """A request for a service on the far one arrives once, and its trace shows the hops."""
    caplog.set_level(logging.DEBUG, "polydomo.broker")
    with polydomo.testing.broker(settings=bridged()) as a, polydomo.testing.broker(settings=bridged(a.url)) as b:
        with Proxy(a.url) as proxy, polydomo.testing.broker(settings=bridged(b.url, proxy.url)) as c:
            ran: Counter[str] = Counter()
            worker = polydomo.Worker(c.url)
            worker.add("s", lambda call: ran.update([call.text]) or call.text)
            with worker, polydomo.Client(a.url) as client:
                a.wait_until(knows(b"s", 1))
                assert client.call("s", "near").text == "near"
                proxy.refuse()
                proxy.cut()
                a.wait_until(knows(b"s", 2))  # the other way round
                for number in range(20):
                    assert client.call("s", str(number)).text == str(number)
            assert ran == Counter(["near", *map(str, range(20))])
            a.wait_until(forgot(b"s"))
            routes = {route for route in map(hops, caplog.records) if route}
            names = [identity(broker) for broker in (b, c)]
            assert routes == {tuple(names[1:]), tuple(names)}


def identity(broker: Broker) -> str:
    found: list[bytes] = []
    broker.wait_until(lambda server: not found.append(server.broker.identity()))  # type: ignore[func-returns-value]
    return found[0].decode()


def hops(record: logging.LogRecord) -> tuple[str, ...]:
    """The brokers that answered, from the log."""
    route = str(fields_of(record).get("route", ""))
    return tuple(hop.partition(":")[0] for hop in route.split(",")) if route else ()


def test_bridges_and_their_brokers_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def logged_rows(message: str) -> list[dict[str, object]]:
        return [fields_of(record) for record in list(caplog.records) if record.message == message]

    caplog.set_level(logging.INFO, "polydomo.broker")
    with polydomo.testing.broker() as far:
        with polydomo.testing.broker(settings=bridged(far.url)) as near:
            near.wait_until(lambda server: len(server.broker.bridging.offered) == 1)
            far.wait_until(lambda server: len(server.broker.bridging.offered) == 1)
            names = {identity(near), identity(far)}
            assert {row["broker"] for row in logged_rows("bridge opened")} == names
            assert far.url in {row["peer"] for row in logged_rows("bridge opened")}
            far.kill()
            near.wait_until(lambda server: not server.broker.bridging.offered)
            (lost,) = [row for row in logged_rows("bridge lost") if row["peer"] == far.url]
            assert lost["broker"] in names and lost["why"] == "connection closed"
    assert logged_rows("worker registered") == logged_rows("worker lost") == []


def test_values_and_logs_cross() -> None:
    with (
        polydomo.testing.broker() as far,
        polydomo.testing.broker(settings=bridged(far.url, topics=["weather.", "log."])) as near,
    ):
        # a log record is not kept as a value: one that is published before the bridge stands does not cross it
        far.wait_until(lambda server: len(server.broker.publishing.subscriptions.match(b"log.x")) == 1)
        with Publisher(far.url) as publisher:
            publisher.publish("weather.oslo", "snow")
            publisher.publish("news.none", "nothing")
            publisher.publish("log.x", json.dumps({"message": "hello"}))
            assert publisher.flush(shell.PATIENCE)
        near.wait_until(
            lambda server: (
                len(server.broker.publishing.last_values) == 1 and server.broker.publishing.log_records.taken == 1
            )
        )

        async def late() -> tuple[str, str]:
            async with AsyncSubscriber(near.url, "") as subscriber:
                async for topic, message in subscriber:
                    if not topic.startswith("monitor."):
                        return topic, message.text
            raise AssertionError

        assert asyncio.run(late()) == ("weather.oslo", "snow")


def test_the_catalogs_are_one_and_a_service_that_takes_requests_is_called_across(
    pair: tuple[Broker, Broker, Proxy],
) -> None:
    near, far, proxy = pair
    worker = polydomo.Worker(far.url, protocol="dbp", information={"function": "shouts", "port": 9})
    worker.add("shout", lambda call: call.text.upper())
    with worker, polydomo.Client(near.url) as client:
        near.wait_until(lambda server: server.broker.bridged_entries.find("shout") is not None)
        (found,) = client.lookup(function="shouts")
        assert found["name"] == "shout" and found["port"] == 9
        assert found["broker"] == {"identity": identity(far), "address": far.url, "hops": 1}
        assert client.lookup("shout") == [found]
        assert client.call("shout", "hello").text == "HELLO"
        proxy.cut()
        near.wait_until(lambda server: server.broker.bridged_entries.find("shout") is None)
        near.wait_until(lambda server: server.broker.bridged_entries.find("shout") is not None)
    near.wait_until(lambda server: server.broker.directory.lookup("shout") is None)


def test_a_broker_that_stops_lets_bridged_requests_finish(pair: tuple[Broker, Broker, Proxy]) -> None:
    near, far, _ = pair
    release = threading.Event()
    worker = polydomo.Worker(far.url)
    worker.add("slow", lambda call: release.wait(120) and call.text)
    with worker, polydomo.Client(near.url) as client:
        near.wait_until(knows(b"slow"))
        results: list[str] = []
        caller = threading.Thread(target=lambda: results.append(client.call("slow", "x").text))
        caller.start()
        far.wait_until(lambda server: server.broker.open_requests == 1)
        stopper = threading.Thread(target=far.stop, args=(20.0,))
        stopper.start()
        near.wait_until(forgot(b"slow"))
        release.set()
        caller.join()
        stopper.join()
    assert results == ["x"]


# --- two machines ---------------------------------------------------------------------------------------------------------


class Machines:
    """Two network namespaces with a cable between them."""

    def __init__(self) -> None:
        self.names = [f"polydomo-{os.getpid()}-{side}" for side in "ab"]
        self.cables = [f"pd{os.getpid() % 100_000}{side}" for side in "ab"]
        self.addresses = ["10.99.7.1", "10.99.7.2"]

    def __enter__(self) -> "Machines":
        try:
            for name in self.names:
                self.ip("netns", "add", name)
            self.ip("link", "add", self.cables[0], "type", "veth", "peer", "name", self.cables[1])
            for name, cable, address in zip(self.names, self.cables, self.addresses, strict=True):
                self.ip("link", "set", cable, "netns", name)
                self.ip("-n", name, "addr", "add", f"{address}/24", "dev", cable)
                self.ip("-n", name, "link", "set", cable, "up")
                self.ip("-n", name, "link", "set", "lo", "up")
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()

    def remove(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        subprocess.run(["ip", "link", "del", self.cables[0]], capture_output=True)

    def ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)

    def pull(self) -> None:
        """Pulls the cable out."""
        self.ip("-n", self.names[0], "link", "set", self.cables[0], "down")

    def plug(self) -> None:
        self.ip("-n", self.names[0], "link", "set", self.cables[0], "up")

    def at(self, machine: int, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.names[machine], *shell.POLYDOMO, *words]


@pytest.fixture
def machines() -> Iterator[Machines]:
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need the ip command, and root")
    try:
        with Machines() as machines:
            yield machines
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine allows no network namespaces: {error.stderr.decode().strip()}")


@contextlib.contextmanager
def running(words: list[str], ready: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A long-running command, after its log contains ``ready``."""
    process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=shell.environment())
    reader = None
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if ready.encode() in line:
                break
        else:
            raise AssertionError(f"{words} ended")
        reader = threading.Thread(target=process.stderr.read)
        reader.start()
        yield process
    finally:
        process.terminate()
        process.wait(shell.PATIENCE)
        if reader is not None:
            reader.join()
        assert process.stderr is not None
        process.stderr.close()


def called(machines: Machines, body: str) -> str:
    words = machines.at(1, "call", "upper", body, "--to", "tcp://127.0.0.1:5246", "--timeout", "30")
    result = subprocess.run(words, capture_output=True, timeout=60, env=shell.environment())
    assert result.returncode == 0, result.stderr
    return result.stdout.decode().strip()


def test_two_machines_and_a_cable_that_is_pulled(machines: Machines, tmp_path: Path) -> None:
    far = f"tcp://{machines.addresses[0]}:5246"
    up = ("--log-json",)
    accept = ("--bridge-accept", "all")  # at a listener that other machines reach
    with (
        running(
            machines.at(0, "up", "--listen", far, "--insecure", *accept, "--data", str(tmp_path / "a"), *up), '"ready"'
        ),
        running(machines.at(0, "work", "upper", "--to", far, "--", "tr", "a-z", "A-Z"), "offering"),
        running(machines.at(1, "up", "--bridge", far, "--data", str(tmp_path / "b"), *up), '"ready"'),
    ):
        wait_for(lambda: offered(machines))
        assert called(machines, "one") == "ONE"
        machines.pull()
        wait_for(lambda: not offered(machines))
        machines.plug()
        wait_for(lambda: offered(machines))
        assert called(machines, "two") == "TWO"


def offered(machines: Machines) -> bool:
    words = machines.at(1, "services", "--json", "--to", "tcp://127.0.0.1:5246")
    rows = json.loads(subprocess.run(words, capture_output=True, timeout=60, env=shell.environment()).stdout)
    return any(row["name"] == "upper" for row in rows)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + shell.PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
