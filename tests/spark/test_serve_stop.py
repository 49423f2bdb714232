"""SIGTERM ends ``polydomo spark serve`` with status 0 at every moment. Sessions are played, so that a test decides when one is open."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

PATIENCE = 60.0
FOR_EVER = 1e6

PLAYED = """
import logging, sys
from polydomo import limits
limits.SQL_STOP = float(sys.argv[2])
limits.SQL_RESTART = (float(sys.argv[3]), float(sys.argv[3]))
from polydomo.spark import serve as serving

moments = sys.argv[1].split()
opened = []

def say(text):
    print(text, flush=True)

def open_session():
    opened.append(None)
    moment = moments[min(len(opened), len(moments)) - 1]
    say(f"{moment} {len(opened)}")
    if moment == "fails":
        raise OSError("there is no JVM")
    if moment == "opening":
        sys.stdin.readline()
    return moment

class Worker:
    def __init__(self, *given, **more): pass
    def add(self, *given, **more): pass
    def stop(self): pass
    async def run(self): pass

class Sql:
    schema = None
    def __init__(self, spark, *given, **more): self.spark = spark
    def __call__(self, call): pass
    def warm_up(self):
        if self.spark == "warming":
            sys.stdin.readline()

def close_session(spark):
    say("closing")
    if spark == "closing":
        sys.stdin.readline()
    say("closed")

serving.jvm_process, serving.AsyncWorker, serving.SqlService = lambda: None, Worker, Sql
serving.serve(open_session, close_session, "tcp://127.0.0.1:1")
say("returned")
"""


@contextmanager
def serving(moments: str, stop: float = FOR_EVER, pause: float = 0.01) -> "Iterator[subprocess.Popen[str]]":
    """``moments`` are those of the first session, the next one and so on."""
    command = [sys.executable, "-c", PLAYED, moments, str(stop), str(pause)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_until(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdout is not None
    for found in process.stdout:
        if found.strip() == line:
            return
    raise AssertionError(f"no line {line}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("moments", "line"),
    [("opening", "opening 1"), ("ready opening", "opening 2"), ("warming", "warming 1"), ("closing", "closing")],
)
def test_a_signal_ends_it_with_status_0_once_what_runs_is_done(number: int, moments: str, line: str) -> None:
    with serving(moments) as process:
        read_until(process, line)
        process.send_signal(number)
        output, errors = process.communicate("go on\n", timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert output.split()[-2:] == ["closed", "returned"] and "Traceback" not in errors, (output, errors)


def test_a_signal_ends_the_pause_before_the_next_session() -> None:
    with serving("ready", pause=FOR_EVER) as process:
        read_until(process, "closed")
        process.terminate()
        output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and output.split() == ["returned"], (output, errors)


def test_a_signal_ends_it_while_no_session_can_be_opened() -> None:
    with serving("ready fails") as process:
        read_until(process, "fails 3")
        process.terminate()
        output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and output.split()[-1] == "returned", (output, errors)
    assert "there is no JVM; trying again" in errors and "Traceback" not in errors


def test_a_session_that_does_not_open_is_not_waited_for_longer_than_sql_stop() -> None:
    with serving("opening", stop=0.1) as process:
        read_until(process, "opening 1")
        process.terminate()
        process.wait(PATIENCE)
        assert process.stdout is not None and process.stdout.read().split() == ["returned"]
    assert process.returncode == 0


def test_the_second_signal_does_not_wait() -> None:
    with serving("opening") as process:
        read_until(process, "opening 1")
        process.terminate()
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
        assert process.stdout is not None and process.stdout.read().split() == ["returned"]
    assert process.returncode == 0
