"""A worker with a pool of processes: ``Worker(url, processes=4)``."""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent import futures
from pathlib import Path

import pytest

from polydomo import (
    AsyncClient,
    AsyncWorker,
    Call,
    CallFailed,
    CallTimeout,
    Client,
    Permanent,
    SettingError,
    Worker,
    testing,
)
from polydomo.logs import Handler
from polydomo.protocols import registry
from polydomo.worker.processes.child import used_memory

WAIT = 60.0
LONG = 500.0  # for many calls, on a machine that is stopped again and again
SHORT = 0.3  # a timeout that is meant to pass


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] != b"Z"
    except OSError:
        return False


@contextlib.contextmanager
def serving(url: str, protocol: str = "mdx", processes: int = 2, max_calls: int = 0) -> Iterator[Worker]:
    """A worker with the functions that the tests below call. What they capture is inherited by the processes."""
    worker = Worker(url, protocol, grace=0.0, processes=processes, max_calls=max_calls)

    @worker.service("pid")
    def pid(call: Call) -> str:
        return str(os.getpid())

    @worker.service("echo")
    def echo(call: Call) -> Call:
        return call

    @worker.service("later")
    async def later(call: Call) -> str:
        await asyncio.sleep(0.001)
        return call.text.upper()

    @worker.service("count")
    def count(call: Call) -> Generator[str, None, str]:
        for n in range(int(call.text)):
            yield str(n)
        return "end"

    @worker.service("tick")
    async def tick(call: Call) -> AsyncIterator[str]:
        for n in range(int(call.text)):
            yield str(n)

    @worker.service("add")
    def add(a: int, b: int = 1) -> int:
        """Adds two numbers."""
        return a + b

    @worker.service("fail")
    def fail(call: Call) -> str:
        if call.text == "permanent":
            raise Permanent("never")
        if call.text == "exit":
            sys.exit("left")
        raise KeyError(call.text)

    @worker.service("die")
    def die(call: Call) -> None:
        os.kill(os.getpid(), int(call.text)) if call.text != "exit" else os._exit(3)

    @worker.service("block")
    def block(call: Call) -> None:
        Path(call.text).write_text(str(os.getpid()))
        while True:
            time.sleep(100)

    @worker.service("spawn")
    def spawn(call: Call) -> None:
        started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        Path(call.text).write_text(f"{started.pid}")
        started.wait()

    with worker:
        yield worker


@pytest.mark.parametrize("protocol", registry.names())
def test_functions_of_every_kind_over_every_protocol(broker: testing.Broker, protocol: str) -> None:
    with serving(broker.url, protocol), Client(broker.url, protocol, timeout=WAIT) as client:
        assert int(client.call("pid").text) != os.getpid()
        assert client.call("echo", b"\x00" * 100_000).body == b"\x00" * 100_000
        assert client.call("later", "x").text == "X"
        assert client.call("count", "3").body == b"012end"
        assert client.call("tick", "3").body == b"012"
        assert client.call("add", a=1).json() == 2


def test_the_processes_work_at_the_same_time(broker: testing.Broker, tmp_path: Path) -> None:
    """Two calls of a function that blocks, and the third that has to wait."""
    names = [tmp_path / str(n) for n in range(3)]
    with serving(broker.url), Client(broker.url, timeout=WAIT) as client:
        calls = [client.submit("block", str(name)) for name in names[:2]]
        until(lambda: all(name.exists() for name in names[:2]))
        calls.append(client.submit("block", str(names[2])))
        with pytest.raises(CallTimeout):
            client.call("echo", "x", timeout=SHORT)
        assert not names[2].exists()
        for call in calls:
            call.cancel()


def test_what_was_loaded_before_is_shared(broker: testing.Broker) -> None:
    model = {"answer": 42}
    worker = Worker(broker.url, processes=1)
    worker.add("ask", lambda call: str(model[call.text]))
    with worker, Client(broker.url, timeout=WAIT) as client:
        assert client.call("ask", "answer").text == "42"


def test_with_asyncio(broker: testing.Broker) -> None:
    async def main() -> list[str]:
        worker = AsyncWorker(broker.url, processes=2)
        worker.add("upper", lambda call: call.text.upper())
        async with worker, AsyncClient(broker.url, timeout=WAIT) as client:
            return [(await client.call("upper", word)).text for word in ("a", "b")]

    assert asyncio.run(main()) == ["A", "B"]


def test_failures(broker: testing.Broker, caplog: pytest.LogCaptureFixture) -> None:
    with serving(broker.url), Client(broker.url, timeout=WAIT) as client:
        before = {client.call("pid").text for _ in range(20)}
        for word, code, text in (
            ("permanent", "permanent", "never"),
            ("exit", "failed", "SystemExit: left"),
            ("x", "failed", "KeyError: 'x'"),
        ):
            with pytest.raises(CallFailed) as caught:
                client.call("fail", word)
            assert (caught.value.code, caught.value.text) == (code, text)
        with pytest.raises(CallFailed) as caught:
            client.call("add", a="x")
        assert caught.value.code == "invalid-arguments"
        assert {client.call("pid").text for _ in range(20)} == before  # none of this ends a process
    assert "in fail\n    raise KeyError(call.text)" in caplog.text
    assert "processes/child.py" not in caplog.text


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("9", "it was killed by SIGKILL; was it out of memory?"),
        ("15", "it was killed by SIGTERM"),
        ("exit", "it exited with status 3"),
    ],
)
def test_a_process_that_dies_fails_only_its_own_call_and_is_replaced(
    broker: testing.Broker, how: str, text: str, tmp_path: Path
) -> None:
    with serving(broker.url), Client(broker.url, timeout=WAIT) as client:
        other = client.submit("block", str(tmp_path / "started"))
        until(lambda: (tmp_path / "started").exists())
        with pytest.raises(CallFailed, match="the process of the call ended before the call") as caught:
            client.call("die", how)
        assert caught.value.code == "failed"
        assert text in caught.value.text
        assert client.call("echo", "next").text == "next"
        assert not other.done()


@pytest.mark.parametrize("protocol", ["dcp", "emqp"])
def test_over_a_protocol_without_failures_the_call_is_tried_again(broker: testing.Broker, protocol: str) -> None:
    with testing.broker(settings={"attempts": 3}) as other, serving(other.url, protocol):
        with Client(other.url, timeout=WAIT) as client, pytest.raises(CallFailed, match="gave-up"):
            client.call("die", "9")


@pytest.mark.parametrize("protocol", ["mdx", "dcp", "emqp"])
def test_a_cancelled_call_is_killed(broker: testing.Broker, protocol: str, tmp_path: Path) -> None:
    started = tmp_path / "started"
    with serving(broker.url, protocol, processes=1), Client(broker.url, timeout=WAIT) as client:
        future = client.submit("block", str(started))
        until(lambda: started.exists() and bool(started.read_text()))
        pid = int(started.read_text())
        assert future.cancel()
        until(lambda: not alive(pid))
        assert client.call("echo", "next").text == "next"


def call_in_vain(client: Client, service: str, started: Path) -> None:
    """Calls until the time of a call was long enough for its function to begin."""
    client.connect()
    while not (started.exists() and started.read_text()):
        with pytest.raises(CallTimeout):
            client.call(service, str(started), timeout=1.0)


def test_a_call_whose_time_is_over_is_killed_with_what_it_started(broker: testing.Broker, tmp_path: Path) -> None:
    started = tmp_path / "started"
    with serving(broker.url, processes=1), Client(broker.url, timeout=WAIT) as client:
        call_in_vain(client, "spawn", started)
        until(lambda: not alive(int(started.read_text())))
        assert client.call("echo", "next", timeout=WAIT).text == "next"


def test_the_worker_itself_looks_at_the_time(broker: testing.Broker, tmp_path: Path) -> None:
    """memo01's worker is not asked to cancel: its pool ends the call."""
    started = tmp_path / "started"
    with serving(broker.url, "memo", processes=1), Client(broker.url, "memo", timeout=WAIT) as client:
        call_in_vain(client, "block", started)
        until(lambda: not alive(int(started.read_text())))


def test_max_calls(broker: testing.Broker) -> None:
    with serving(broker.url, processes=1, max_calls=3), Client(broker.url, timeout=WAIT) as client:
        found = [client.call("pid").text for _ in range(9)]
    assert [len(set(found[n : n + 3])) for n in (0, 3, 6)] == [1, 1, 1]
    assert len(set(found)) == 3


def test_max_memory(broker: testing.Broker) -> None:
    # A process begins as a copy of this one.
    worker = Worker(broker.url, processes=1, max_memory=used_memory() + 200 * 1024 * 1024)
    kept: list[bytes] = []

    @worker.service("grow")
    def grow(call: Call) -> str:
        kept.append(b"x" * int(call.text))
        return str(os.getpid())

    with worker, Client(broker.url, timeout=WAIT) as client:
        small = [client.call("grow", "1000").text for _ in range(3)]
        assert len(set(small)) == 1
        assert client.call("grow", str(500 * 1024 * 1024)).text == small[0]
        assert client.call("grow", "1000").text != small[0]


def test_log_records_and_output_belong_to_their_call(
    broker: testing.Broker, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    worker = Worker(broker.url, processes=2)
    mine = logging.getLogger("mine")

    @worker.service("talk")
    def talk(call: Call) -> str:
        mine.info("a record of %s", call.text, extra={"word": call.text})
        print(f"printed by {call.text}")
        os.write(2, f"written by {call.text}".encode())
        try:
            raise ValueError("bad")
        except ValueError:
            mine.exception("with a traceback")
        return call.request

    handler = Handler(broker.url, service="outside")
    root = logging.getLogger()
    root.addHandler(handler)
    caplog.set_level(logging.INFO)
    try:
        with worker, Client(broker.url, timeout=WAIT) as client:
            tokens = {word: client.call("talk", word).text for word in ("one", "two", "three")}
            handler.flush()

            def collected(token: str) -> list[dict[str, object]]:
                return [row for row in client.call("polydomo.logs").json() if row["attempt"] == token]

            for word, token in tokens.items():
                until(lambda token=token: len(collected(token)) == 4)  # type: ignore[misc]
                found = {str(row["message"]): row for row in collected(token)}
                assert set(found) == {
                    f"a record of {word}",
                    f"printed by {word}",
                    f"written by {word}",
                    "with a traceback",
                }
                assert {row["service"] for row in found.values()} == {"talk"}
                fields = found[f"a record of {word}"]["fields"]
                assert isinstance(fields, dict) and (fields["word"], fields["logger"]) == (word, "mine")
                fields = found["with a traceback"]["fields"]
                assert isinstance(fields, dict) and "ValueError: bad" in fields["exception"]
    finally:
        root.removeHandler(handler)
        handler.close()


PROGRAM = """
    import os, sys, time
    from polydomo import Worker

    worker = Worker(sys.argv[1], processes=2, grace=0.2)

    @worker.service("block")
    def block(call):
        with open(call.text, "w") as file:
            file.write(str(os.getpid()))
        time.sleep(1000)

    @worker.service("print")
    def show(call):
        print("printed", call.text)
        sys.stderr.write("an error\\n")
        return str(os.getppid())

    worker.run()
"""


@contextlib.contextmanager
def program(url: str) -> "Iterator[subprocess.Popen[bytes]]":
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_worker_that_was_killed(
    broker: testing.Broker, number: signal.Signals, tmp_path: Path
) -> None:
    with program(broker.url) as process, Client(broker.url, timeout=WAIT) as client:
        forker = int(client.call("print", "x").text)
        started = tmp_path / "started"
        calls = [client.submit("block", str(started)) for _ in range(1)]
        until(lambda: started.exists() and bool(started.read_text()))
        pid = int(started.read_text())
        process.send_signal(number)
        process.wait(WAIT)
        until(lambda: not alive(pid) and not alive(forker))
        for call in calls:
            call.cancel()


def test_nothing_is_left_if_the_worker_and_the_forker_are_killed(broker: testing.Broker, tmp_path: Path) -> None:
    with program(broker.url) as process, Client(broker.url, timeout=WAIT) as client:
        forker = int(client.call("print", "x").text)
        started = tmp_path / "started"
        call = client.submit("block", str(started))
        until(lambda: started.exists() and bool(started.read_text()))
        os.kill(process.pid, signal.SIGSTOP)
        os.kill(forker, signal.SIGKILL)
        process.kill()
        until(lambda: not alive(int(started.read_text())))
        call.cancel()


def test_a_worker_whose_forker_was_killed_ends_with_an_error(broker: testing.Broker) -> None:
    with program(broker.url) as process, Client(broker.url, timeout=WAIT) as client:
        os.kill(int(client.call("print", "x").text), signal.SIGKILL)
        _, errors = process.communicate(timeout=WAIT)
        assert process.returncode == 1
        assert b"the process that starts the worker's processes was killed" in errors


def test_output_without_logging_goes_to_the_output_of_the_worker(broker: testing.Broker) -> None:
    with program(broker.url) as process, Client(broker.url, timeout=WAIT) as client:
        client.call("print", "one")
        client.call("print", "two")
        process.terminate()
        output, errors = process.communicate(timeout=WAIT)
    assert output == b"printed one\nprinted two\n"
    assert errors.count(b"an error\n") == 2


def test_many_calls_while_processes_are_killed(broker: testing.Broker) -> None:
    """Every call ends once: with its own reply, or with the reason."""
    with serving(broker.url, processes=3, max_calls=7), Client(broker.url, timeout=LONG) as client:
        calls: list[tuple[str, futures.Future[object]]] = []
        for n in range(150):
            if n % 10 == 9:
                calls.append(("", client.submit("die", "9")))  # type: ignore[arg-type]
            calls.append((str(n), client.submit("echo", str(n))))  # type: ignore[arg-type]
        for word, call in calls:
            if word:
                assert call.result(LONG).text == word  # type: ignore[attr-defined]
            else:
                assert isinstance(call.exception(LONG), CallFailed)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"processes": -1}, "processes: must be 0 or more"),
        ({"processes": 1001}, "processes: must be up to 1000"),
        ({"processes": 2, "concurrency": 2}, "concurrency: "),
        ({"max_calls": 2}, "max_calls and max_memory"),
    ],
)
def test_settings(options: dict[str, int], text: str) -> None:
    with pytest.raises(SettingError, match=text):
        Worker("tcp://127.0.0.1:1", **options)  # type: ignore[arg-type]
