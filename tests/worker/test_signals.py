"""A worker process and its signals."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from polydomo import Client, Worker, testing
from polydomo.protocols import registry

WAIT = 60.0  # seconds: starting Python on a busy machine takes a few
SOURCE = Path(__file__).parents[2] / "src"

# Tells on standard output that the function runs, and goes on with a line on standard input.
PROGRAM = """
import sys
from polydomo import Worker
worker = Worker(sys.argv[1], sys.argv[2], grace=float(sys.argv[3]))

@worker.service("slow")
def slow(call):
    print("running", flush=True)
    sys.stdin.readline()
    return "done by the process"

worker.run()
print("left", flush=True)
"""


class Process:
    def __init__(self, url: str, protocol: str = "mdx", grace: float = WAIT) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, url, protocol, str(grace)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            text=True,
        )

    def line(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()

    def go_on(self) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    processes: list[Process] = []
    yield processes
    for process in processes:
        process.popen.kill()
        process.popen.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("protocol", registry.names())
def test_finishes_what_is_held_and_leaves(
    broker: testing.Broker, processes: list[Process], protocol: str, number: signal.Signals
) -> None:
    process = Process(broker.url, protocol)
    processes.append(process)
    with Client(broker.url, timeout=WAIT) as client:
        future = client.submit("slow")
        assert process.line() == "running"
        process.popen.send_signal(number)
        process.go_on()
        assert future.result().text == "done by the process"
    assert process.line() == "left"
    assert process.popen.wait(WAIT) == 0
    assert process.popen.stderr is not None
    said = process.popen.stderr.read()  # on a slow machine, also a warning about the time it got none
    assert f"polydomo: offering slow at {broker.url} over {protocol}\n" in said and "Traceback" not in said
    broker.wait_for("slow", 0)


def test_idle_leaves_at_once(broker: testing.Broker, processes: list[Process]) -> None:
    process = Process(broker.url)
    processes.append(process)
    broker.wait_for("slow", timeout=WAIT)
    process.popen.terminate()
    assert process.line() == "left"
    assert process.popen.wait(WAIT) == 0
    broker.wait_for("slow", 0)


# The second signal is another one: two of a kind at the same moment would be one.
@pytest.mark.parametrize(("grace", "signals"), [(0.05, [signal.SIGTERM]), (10 * WAIT, [signal.SIGTERM, signal.SIGINT])])
def test_a_function_that_does_not_end_does_not_block_shutdown(
    broker: testing.Broker, processes: list[Process], grace: float, signals: list[signal.Signals]
) -> None:
    """After the grace time, or at once with the second signal: the process ends, and another worker gets the request."""
    process = Process(broker.url, grace=grace)
    processes.append(process)
    other = Worker(broker.url)
    other.add("slow", lambda call: "done by another")
    with Client(broker.url, timeout=WAIT) as client:
        future = client.submit("slow")
        assert process.line() == "running"
        with other:
            for number in signals:
                process.popen.send_signal(number)
            assert future.result().text == "done by another"
            assert process.line() == "left"
            assert process.popen.wait(WAIT) == 0


def test_killed_while_it_holds_a_request(broker: testing.Broker, processes: list[Process]) -> None:
    process = Process(broker.url)
    processes.append(process)
    other = Worker(broker.url)
    other.add("slow", lambda call: "done by another")
    with Client(broker.url, timeout=WAIT) as client:
        future = client.submit("slow")
        assert process.line() == "running"
        with other:
            broker.wait_for("slow", 2)
            process.popen.kill()
            assert future.result().text == "done by another"
