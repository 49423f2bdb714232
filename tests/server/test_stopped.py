"""A broker that was stopped or busy for a while reads pending input before it declares a peer lost."""

import asyncio
import math
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from polydomo import limits
from polydomo.protocols.dbp import session as dbp
from polydomo.protocols.dbp import udp
from polydomo.server.server import BrokerServer
from sim.replacing import set_limit
from tests.forms import replaces_core
from tests.server.harness import Broker, wait_for
from tests.server.nearby import settings
from tests.server.raw import Raw, dealer
from tests.server.turning import LOOPS, until

READY = (b"", b"MDPW01", b"\x01", b"echo")
BEAT = (b"", b"MDPW01", b"\x04")


class Clock:
    """The server's, which the test sets forward."""

    ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def time(self) -> float:
        return time.time() + self.ahead

    def perf_counter(self) -> float:
        return time.perf_counter()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in ("host", "server"):
        monkeypatch.setattr(f"polydomo.server.{module}.time", made)
    return made


@pytest.mark.parametrize("first", ["timers", "sweep"])
def test_time_in_which_the_broker_was_suspended_does_not_count(
    run: Callable[[Any], None], clock: Clock, first: str
) -> None:
    """Neither a silent worker nor a connection in its handshake is closed, whichever part of the server runs first afterwards."""

    async def play() -> None:
        server = BrokerServer(settings())
        await server.start()
        address = ("127.0.0.1", int(server.urls[0].rpartition(":")[2]))
        worker, silent = Raw(address), Raw(address)
        try:
            await asyncio.to_thread(worker.shake)
            worker.send(*READY)
            await until(lambda: len(server.broker.workers) == 1 and len(server.connections) == 2)
            await until(lambda: not server.awake)
            (known,) = server.broker.workers
            for seconds in (60.0, 3600.0):
                clock.ahead += seconds
                assert server._sweeper is not None
                server._sweeper.cancel()
                if first == "timers":
                    server._advance()
                    server._sweep()
                else:
                    server._sweep()
                    server._advance()
                await until(lambda: not server.awake)
                assert known.alive and len(server.connections) == 2
        finally:
            await server.stop()
            worker.close()
            silent.close()

    run(play())


@replaces_core
def test_pending_input_is_read_before_silence_is_judged(
    run: Callable[[Any], None], clock: Clock, stack: ExitStack
) -> None:
    """A worker's beat over TCP and a service's over UDP wait at the sockets when the timer comes, and the time of both is up."""

    async def play() -> None:
        server = BrokerServer(settings())
        await server.start()
        port = int(server.urls[0].rpartition(":")[2])
        beats, silent, mouth = (
            Raw(("127.0.0.1", port)),
            Raw(("127.0.0.1", port)),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        )
        try:
            beats.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what is sent is there
            for peer in (beats, silent):
                await asyncio.to_thread(peer.shake)
                peer.send(*READY)
            await until(lambda: len(server.broker.workers) == 2)
            one, other = server.broker.workers
            server.wake()
            for name in ("camera", "laser"):
                assert (
                    server.broker.directory.register(one.session, name, "127.0.0.1", {"name": name}, limits.DBP_BEAT)
                    == ""
                )
            await until(lambda: not server.awake)
            heard, unheard = (
                (one, other) if one.session.link.peer.endswith(f":{beats.socket.getsockname()[1]}") else (other, one)
            )

            def wake_up() -> None:
                beats.send(*BEAT)
                mouth.sendto(udp.write(dbp.HEARTBEAT, "camera", time.time()), ("127.0.0.1", port))
                set_limit(stack, "OVERSLEPT", 1e9, limits)  # this time counts as silence
                clock.ahead = 60.0
                server._due()  # first of all, as a loop may do that was stopped before it came to its timers

            server.loop.call_later(0.001, wake_up)
            await until(lambda: not unheard.alive)
            assert heard.alive and server.broker.directory.lookup("camera")
            assert not server.broker.directory.lookup("laser")
        finally:
            await server.stop()
            for peer in (beats, silent):
                peer.close()
            mouth.close()

    run(play())


SILENCE = 6.0  # seconds that a worker may be silent, in the test with a real clock


@pytest.mark.real_time
@pytest.mark.parametrize("loop", LOOPS)
def test_a_worker_that_beat_while_the_broker_was_stopped_is_not_lost(
    loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGSTOP, and SIGCONT when it is late by less than the threshold for a suspended broker."""
    if loop == "asyncio":
        (tmp_path / "uvloop.py").write_text("raise ImportError('not here')")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with Broker(tmp_path / "data", "--beat=1500ms", "--beats-missed=4") as broker:
        for _ in range(20):
            if was_kept(broker):
                return
        raise AssertionError("this process was never in time")


def was_kept(broker: Broker) -> bool:
    """Whether the broker kept a worker that beat while the broker was stopped. False also if this process was too late to tell."""
    with dealer(broker.address) as worker:
        wait_for(lambda: not broker.ask("workers"), "the end of an earlier worker")
        worker.send(*READY)
        wait_for(lambda: bool(broker.ask("workers")), "registration")
        # it is late for its next timer from then on: the beat that it would send, and the end of the worker's time
        wait_for(lambda: silence(broker) > SILENCE - 1.0, "most of the silence that it is allowed")
        up = time.monotonic() + SILENCE - silence(broker)
        broker.send(signal.SIGSTOP)
        stopped = time.monotonic()
        worker.send(*BEAT)
        while time.monotonic() < up + 0.2:
            time.sleep(0.01)
        went_on = time.monotonic()
        broker.send(signal.SIGCONT)
        silent = silence(broker)
        if stopped > up or time.monotonic() > went_on + SILENCE - 1.0:
            return False
        assert silent < SILENCE
        return True


def silence(broker: Broker) -> float:
    """Seconds since the only worker was last heard; infinite if it is lost."""
    rows = broker.ask("workers")
    return float(rows[0]["silent_us"]) / 1e6 if rows else math.inf
