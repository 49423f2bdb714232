"""majortomo 0.2.0: its own client, worker and command line, with its own broker and with ours. A user sees no difference."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import polydomo
from polydomo import testing
from polydomo.server.settings.settings import Settings
from tests.ports import free_port
from tests.real.peers import PATIENCE, Program, needs, run
from tests.server.harness import wait_for as until

pytestmark = [needs("majortomo"), pytest.mark.real_time]

BEAT = 0.2
MISSED = 75  # beats: the silence that either side allows is 15 seconds, more than a busy machine needs
Switch = tuple[Callable[[], None], Callable[[], None]]  # kills a broker, starts it again


@pytest.fixture
def broker() -> Iterator[testing.Broker]:
    with testing.broker(settings=Settings(beat=BEAT, beats_missed=MISSED)) as broker:
        yield broker


@contextlib.contextmanager
def some_broker(whose: str) -> Iterator[str]:
    """majortomo's broker or ours; its address."""
    if whose == "ours":
        with testing.broker() as broker:
            yield broker.url
    else:
        url = f"tcp://127.0.0.1:{free_port()}"
        with Program("-m", "majortomo.broker", "-b", url) as program:
            program.logged("MDP Broker starting up")
            yield url


@pytest.mark.parametrize("whose", ["theirs", "ours"])
def test_its_command_line(whose: str) -> None:
    with some_broker(whose) as url, Program("-m", "majortomo.echo", "-b", url, "worker"):
        ask = ["-m", "majortomo.echo", "-b", url, "client", "-m", "hello", "-r", "3", "-d", "0", "-t", "60"]
        assert run(*ask) == ["\x1b[38;32mGot response: [b'hello']\x1b[0m"] * 3


@pytest.mark.parametrize("whose", ["theirs", "ours"])
def test_partials_through_its_api(whose: str) -> None:
    with some_broker(whose) as url, Program("majortomo_stream.py", url, "stream"):
        lines = run("majortomo_ask.py", url, "stream", "one", "two", "three")
        assert lines == ['["one"]', '["two"]', '["three"]', '["3 frames"]']
        assert run("majortomo_ask.py", url, "stream", "again") == ['["again"]', '["1 frames"]']


def test_heartbeats_keep_both_sides_content(broker: testing.Broker) -> None:
    """More than the silence that either side allows passes without work, and neither gives the other up."""
    with Program("majortomo_stream.py", broker.url, "stream") as worker:
        broker.wait_for("stream")
        until(lambda: sum("Got heartbeat" in line for line in worker.log) > 1.2 * MISSED, "beats of the broker")
        assert not [line for line in worker.log if "Got no heartbeat" in line]
        assert sum("Connected to broker" in line for line in worker.log) == 1
        assert run("majortomo_ask.py", broker.url, "stream", "still there") == ['["still there"]', '["1 frames"]']


def test_a_worker_killed_with_a_request_does_not_take_it_along(broker: testing.Broker, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    with Program("majortomo_stream.py", broker.url, "stream", str(taken)) as first:
        broker.wait_for("stream")
        with Program("majortomo_ask.py", broker.url, "stream", "precious") as client:
            until(taken.exists, "the first worker to take it")
            with Program("majortomo_stream.py", broker.url, "stream"):
                broker.wait_for("stream", 2)
                first.kill()
                assert [client.line(), client.line()] == [["precious"], ["1 frames"]]
                assert client.process.wait(PATIENCE) == 0


def test_a_worker_that_is_stopped_leaves_in_order(broker: testing.Broker) -> None:
    with Program("majortomo_stream.py", broker.url, "stream") as worker:
        broker.wait_for("stream")
        worker.process.send_signal(signal.SIGTERM)
        broker.wait_for("stream", 0)


@pytest.mark.parametrize("whose", ["theirs", "ours"])
def test_a_worker_is_disconnected_after_a_restart_of_the_broker(whose: str) -> None:
    """Its socket connects again by itself and its next beat comes from a worker that the new broker does not know: both brokers answer
    DISCONNECT, the worker's loop ends in order, and whoever runs it starts it again."""
    with contextlib.ExitStack() as stack:
        url = f"tcp://127.0.0.1:{free_port()}"
        kill, start = their_broker(stack, url) if whose == "theirs" else our_broker(stack, url)
        worker = stack.enter_context(Program("majortomo_stream.py", url, "stream"))
        assert run("majortomo_ask.py", url, "stream", "hello") == ['["hello"]', '["1 frames"]']
        kill()
        start()
        assert worker.process.wait(PATIENCE) == 0
        worker.logged("Got DISCONNECT from broker")
        stack.enter_context(Program("majortomo_stream.py", url, "stream"))
        assert run("majortomo_ask.py", url, "stream", "again") == ['["again"]', '["1 frames"]']


def our_broker(stack: contextlib.ExitStack, url: str) -> Switch:
    broker = stack.enter_context(testing.broker(url, Settings(beat=BEAT, beats_missed=MISSED)))
    return broker.kill, broker.start


def their_broker(stack: contextlib.ExitStack, url: str) -> Switch:
    running: list[Program] = []

    def start() -> None:
        running.append(stack.enter_context(Program("-m", "majortomo.broker", "-b", url)))
        running[-1].logged("MDP Broker starting up")

    start()
    return lambda: running[-1].kill(), start


def test_its_client_reaches_a_worker_of_another_protocol_and_its_worker_another_client(broker: testing.Broker) -> None:
    worker = polydomo.Worker(broker.url, protocol="mdx")

    @worker.service("count")
    def count(call: polydomo.Call) -> Iterator[str]:
        yield "one"
        yield "two"

    with worker, Program("majortomo_stream.py", broker.url, "stream"):
        broker.wait_for("count")
        broker.wait_for("stream")
        assert run("majortomo_ask.py", broker.url, "count", "go") == ['["one"]', '["two"]', '[""]']
        with polydomo.Client(broker.url, protocol="memo") as client:
            assert client.call("stream", "a").text == "a1 frames"
