"""Our workers send heartbeats while a function runs, so that a busy one is not taken for a frozen one."""

import ctypes
import time

import pytest

import polydomo
from polydomo import testing


def computes(call: polydomo.Call) -> str:
    """Pure Python that never waits, for several times the allowed silence."""
    end = time.monotonic() + 3.0
    number = 0
    while time.monotonic() < end:
        number += 1
    return "done"


def sleeps(call: polydomo.Call) -> str:
    time.sleep(3.0)
    return "done"


def blocks(call: polydomo.Call) -> str:
    """C code that keeps Python's interpreter lock: no thread of its process runs meanwhile."""
    ctypes.PyDLL(None).usleep(3_000_000)
    return "done"


@pytest.mark.real_time
@pytest.mark.parametrize("protocol", ["mdx", "dcp", "emqp"])
def test_a_function_that_blocks_the_interpreter_runs_in_a_process(protocol: str) -> None:
    with testing.broker(settings={"beat": 0.1, "beats_missed": 8, "attempts": 1}) as broker:
        worker = polydomo.Worker(broker.url, protocol, beat=0.1, processes=1)
        worker.add("long", blocks)
        with worker, polydomo.Client(broker.url) as client:
            broker.wait_for("long")
            assert client.call("long", "x", timeout=60.0).text == "done"


@pytest.mark.real_time
@pytest.mark.parametrize("function", [computes, sleeps])
@pytest.mark.parametrize("protocol", ["mdx", "dcp", "emqp"])
def test_a_long_call_is_run_once(protocol: str, function: object) -> None:
    with testing.broker(settings={"beat": 0.1, "beats_missed": 8}) as broker:
        worker = polydomo.Worker(broker.url, protocol, beat=0.1)
        runs: list[int] = []

        def run(call: polydomo.Call) -> str:
            runs.append(1)
            return str(function(call))  # type: ignore[operator]

        worker.add("long", run)
        with worker, polydomo.Client(broker.url) as client:
            broker.wait_for("long")
            assert client.call("long", "x", timeout=60.0).text == "done"
        assert runs == [1]
