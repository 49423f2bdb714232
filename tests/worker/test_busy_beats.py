"""Our workers send heartbeats while a function runs, so that a busy one is not taken for a frozen one."""

import asyncio
import contextlib
import ctypes
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import pytest

import polydomo
from polydomo import testing
from polydomo.client.connection import BrokerConnection
from polydomo.client.security import Security
from polydomo.protocols.dcp.ends import DcpWorkerEnd
from polydomo.protocols.emqp.ends import EmqpWorkerEnd
from polydomo.protocols.mdp.ends import Mdp2WorkerEnd
from polydomo.protocols.mdx.ends import MdxWorkerEnd
from polydomo.server.server import BrokerServer
from polydomo.wire.address import parse_url
from polydomo.wire.link import DEFAULT_BOUNDS, Hub, LinkHandler
from polydomo.wire.security.mechanism import Null
from polydomo.wire.zmtp.link import ZmtpLink
from polydomo.worker.beat_thread import LOOP_BLOCKED, NO_PYTHON, BeatThread
from polydomo.worker.registration import Registration
from tests.server.secured import Place

# Nobody is lost, however long the machine pauses: the tests see the heartbeats themselves.
BEATING = {"beat": 0.1, "beats_missed": 1000}
WAIT = 60.0


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    for end in (MdxWorkerEnd, DcpWorkerEnd, EmqpWorkerEnd, Mdp2WorkerEnd):
        monkeypatch.setattr(end, "patience", 1e6)


class Gate:
    """Functions that block until the test opens it."""

    def __init__(self) -> None:
        self.began: list[str] = []  # the services whose functions were called
        self.open = False

    def computes(self, call: polydomo.Call) -> str:
        """Pure Python that never waits."""
        self.began.append(call.service)
        number = 0
        while not self.open:
            number += 1
        return "done"

    def sleeps(self, call: polydomo.Call) -> str:
        self.began.append(call.service)
        while not self.open:
            time.sleep(0.001)
        return "done"


def see_beats(broker: testing.Broker, service: str) -> None:
    """Waits for several heartbeats of the only worker of a service."""

    def heard(server: BrokerServer) -> float:
        (worker,) = server.broker.services[service.encode()].workers
        return worker.last_heard

    seen: set[float] = set()

    def several(server: BrokerServer) -> bool:
        seen.add(heard(server))
        return len(seen) > 4

    broker.wait_until(several)


def blocks(call: polydomo.Call) -> str:
    """C code that keeps Python's interpreter lock: no thread of its process runs meanwhile."""
    ctypes.PyDLL(None).usleep(3_000_000)
    return "done"


@pytest.mark.parametrize("protocol", ["mdx", "dcp", "emqp"])
def test_a_function_that_blocks_the_interpreter_runs_in_a_process(protocol: str, tmp_path: Path) -> None:
    began, gate = tmp_path / "began", tmp_path / "gate"
    os.mkfifo(gate)

    def blocks_until_told(call: polydomo.Call) -> str:
        with gate.open("r+b", buffering=0) as pipe:
            began.touch()
            byte = ctypes.create_string_buffer(1)
            ctypes.PyDLL(None).read(pipe.fileno(), byte, 1)
        return byte.value.decode()

    with testing.broker(settings={**BEATING, "attempts": 1}) as broker:
        worker = polydomo.Worker(broker.url, protocol, beat=0.1, processes=1)
        worker.add("long", blocks_until_told)
        with worker, polydomo.Client(broker.url) as client:
            pending = client.submit("long", "x", timeout=WAIT)
            broker.wait_until(lambda server: began.exists())
            see_beats(broker, "long")
            with gate.open("r+b", buffering=0) as pipe:
                pipe.write(b"y")
                assert pending.result().text == "y"


@pytest.mark.parametrize("function", [Gate.computes, Gate.sleeps])
@pytest.mark.parametrize("protocol", ["mdx", "dcp", "emqp"])
def test_a_long_call_is_run_once(protocol: str, function: Callable[[Gate, polydomo.Call], str]) -> None:
    gate = Gate()
    with testing.broker(settings=BEATING) as broker:
        worker = polydomo.Worker(broker.url, protocol, beat=0.1)
        worker.add("long", partial(function, gate))
        with worker, polydomo.Client(broker.url) as client, contextlib.ExitStack() as stack:
            stack.callback(setattr, gate, "open", True)  # so that the worker can stop
            pending = client.submit("long", "x", timeout=WAIT)
            broker.wait_until(lambda server: bool(gate.began))
            see_beats(broker, "long")
            gate.open = True
            assert pending.result().text == "done"
        assert gate.began == ["long"]


def test_async_functions_that_block_the_loop_run_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """All at once: a worker of each protocol, one inside CURVE, one inside TLS, and one whose next call waits at the worker. The worker of
    MDP has a second service, whose connection is idle."""
    place = Place(tmp_path, tls=True)
    place.change('offer = ["echo"]', 'offer = ["*"]')
    place.change('call = ["echo", "lint.*"]', 'call = ["*"]')
    secured = {
        "curve": Security(**place.keys("pool")),
        "tls": Security(ca=place.file("ca.pem"), cert=place.file("pool.pem")),
    }
    gate = Gate()

    async def computes_on_the_loop(call: polydomo.Call) -> str:
        return gate.computes(call)

    async def sleeps_on_the_loop(call: polydomo.Call) -> str:
        return gate.sleeps(call)

    with contextlib.ExitStack() as stack:
        plain = stack.enter_context(testing.broker(settings=BEATING))
        closed = stack.enter_context(testing.broker(settings={**BEATING, "access": str(place.access)}))
        workers: dict[str, polydomo.Worker] = {}
        for name, protocol in {
            **dict.fromkeys(["mdx", "curve", "tls"], "mdx"),
            "dcp": "dcp",
            "emqp": "emqp",
            "mdp": "mdp2",
        }.items():
            broker = closed if name in secured else plain
            url = "tls+" + broker.url if name == "tls" else broker.url
            prefetch = 1 if name == "mdx" else 0
            worker = polydomo.Worker(url, protocol, beat=0.1, prefetch=prefetch, security=secured.get(name))
            worker.add(name, computes_on_the_loop if name == "mdx" else sleeps_on_the_loop)
            if name == "mdp":
                worker.add("idle", gate.computes)
            stack.enter_context(worker)
            workers[name] = worker
            broker.wait_for(name)
        stack.callback(setattr, gate, "open", True)  # so that the workers can stop
        caller = stack.enter_context(polydomo.Client(plain.url))
        alice = stack.enter_context(polydomo.Client(closed.url, security=Security(**place.keys("alice"))))
        names = ["mdx", "mdx", "dcp", "emqp", "mdp", "curve", "tls"]
        pending = [(alice if name in secured else caller).submit(name, "x", timeout=WAIT) for name in names]
        plain.wait_until(lambda server: set(gate.began) == set(names))
        for name, worker in workers.items():
            see_beats(closed if name in secured else plain, name)
            plain.wait_until(lambda server, worker=worker: worker._worker._beats._blocked_since > 0.0)  # type: ignore[misc]
        see_beats(plain, "idle")
        gate.open = True
        assert [call.result().text for call in pending] == ["done"] * len(names)
        assert sorted(gate.began) == sorted(names)
        while len(warnings(LOOP_BLOCKED, caplog)) < 6:  # one for each worker, at the end of its first call
            time.sleep(0.01)
        assert not [record for record in caplog.records if record.getMessage() == "worker lost"]


def test_a_worker_says_that_c_code_stopped_its_heartbeats(caplog: pytest.LogCaptureFixture) -> None:
    with testing.broker() as broker, polydomo.Client(broker.url) as client:
        worker = polydomo.Worker(broker.url, beat=0.1)
        worker.add("long", blocks)
        with worker:
            assert client.call("long", "x", timeout=60.0).text == "done"
            while not warnings(NO_PYTHON, caplog):
                time.sleep(0.01)
    assert "processes=" in warnings(NO_PYTHON, caplog)[0]


class LateRegistration:
    """What the thread of heartbeats needs of a registration. Its event loop goes on as soon as the thread has sent the heartbeats."""

    def __init__(self, heartbeats: int = 1) -> None:
        self.heartbeats = heartbeats
        self.end = MdxWorkerEnd()
        self.due = self.end.interval
        self.sent_while_blocked = 0.0
        self.connection = self
        self.sent: list[list[bytes]] = []

    def send_while_blocked(self, message: list[bytes]) -> bool:
        self.sent.append(message)
        if len(self.sent) == self.heartbeats:
            self.due = 100.0
        return True


@pytest.mark.parametrize(("slept", "expected"), [(27.0, NO_PYTHON), (0.625, LOOP_BLOCKED)])
def test_only_a_loop_that_could_run_is_called_blocked(
    slept: float, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    """After 27 s without Python, in which the loop could not run either, the function may be a normal one."""
    clock = iter([3.0, 3.0 + slept, 3.0 + slept, 3.625 + slept])
    never = Mock(spec=threading.Event, wait=Mock(return_value=False))
    registration = LateRegistration()
    beats = BeatThread(lambda: next(clock))
    beats._registrations.add(cast(Registration, registration))
    with pytest.raises(StopIteration):
        beats._run(registration.end.interval, never)
    assert registration.sent == [[b"MDXW01", b"PING"]]
    assert [record.msg for record in caplog.records] == [expected]


def test_a_loop_that_was_blocked_before_a_suspension_is_called_blocked(caplog: pytest.LogCaptureFixture) -> None:
    """The 27 s of the suspension do not count."""
    clock = iter([3.0, 3.625, 3.625, 31.25, 31.25, 31.875])
    never = Mock(spec=threading.Event, wait=Mock(return_value=False))
    registration = LateRegistration(heartbeats=2)
    beats = BeatThread(lambda: next(clock))
    beats._registrations.add(cast(Registration, registration))
    with pytest.raises(StopIteration):
        beats._run(registration.end.interval, never)
    assert [record.msg for record in caplog.records] == [NO_PYTHON, LOOP_BLOCKED]
    assert "blocked for 2.4 s" in caplog.text


def warnings(message: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record for record in caplog.records if record.msg == message and record.levelno == logging.WARNING]
    return [record.getMessage() for record in found]


class Socket:
    """The transport of a connection: ``waiting`` bytes are in its buffer, and it has the descriptor of a real socket."""

    waiting = 0

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self.written = b""

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._socket if name == "socket" else name

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.written += data


def test_a_heartbeat_of_another_thread_is_written_whole_and_in_order() -> None:
    """The socket takes a part of it: the loop writes the rest before anything else. Nothing is written behind the loop's own output."""

    async def use() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            end = MdxWorkerEnd()
            connection = BrokerConnection(parse_url("tcp://127.0.0.1:1"), end, print, print)
            transport = Socket(ours)
            connection.connection_made(cast(asyncio.Transport, transport))
            greeting = greeted(connection, transport)
            transport.waiting = 1
            assert not connection.send_while_blocked([b"MDXW01", b"PING"])
            transport.waiting = 0
            assert connection.send_while_blocked([b"MDXW01", b"PING"])
            ping = theirs.recv(100)
            assert ping.endswith(b"PING") and transport.written == greeting
            full = fill(ours)
            assert connection.send_while_blocked([b"MDXW01", b"x" * 100])  # nothing of it fits
            end.out.append([b"MDXW01", b"later"])
            connection.flush()
            assert len(theirs.recv(len(full), socket.MSG_WAITALL)) == len(full)
            assert transport.written[len(greeting) :].endswith(b"later")
            assert transport.written[len(greeting) :].count(b"x" * 100) == 1
            assert transport.written.index(b"x" * 100) < transport.written.index(b"later")
            connection._link.lost()
            assert not connection.send_while_blocked([b"MDXW01", b"PING"])

    asyncio.run(use())


def greeted(connection: BrokerConnection, transport: Socket) -> bytes:
    """Completes the ZMTP handshake; returns what our side has written."""
    hub = Hub()
    router = ZmtpLink(hub, LinkHandler(), "worker", b"ROUTER", DEFAULT_BOUNDS, Null(True, b"ROUTER", b""))
    seen = 0
    while not connection._link.open:
        router.receive(transport.written[seen:])
        seen = len(transport.written)
        connection.data_received(b"".join(router.take()))
    return transport.written


def fill(sock: socket.socket) -> bytes:
    filled = b""
    with contextlib.suppress(BlockingIOError):
        while True:
            filled += b"." * sock.send(b"." * 65536)
    return filled
