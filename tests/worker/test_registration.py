"""When a worker beats, and when it gives up a silent broker, with a clock moved by hand."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from polydomo.client.connection import BrokerConnection
from polydomo.limits import MAX_BODY
from polydomo.protocols import registry
from polydomo.protocols.ends import Delivery
from polydomo.protocols.mdx.ends import MdxWorkerEnd
from polydomo.worker import registration

REQUEST = [b"MDXW01", b"\x02", b"client", b"", b"1", b"body"]


class Clock:
    """What a post uses of the event loop. One timer is enough: a post has one."""

    now = 100.0
    due = 0.0

    def time(self) -> float:
        return self.now

    def create_future(self) -> None:
        return None

    def call_at(self, when: float, function: Callable[[], None]) -> None:
        self.due, self.function = when, function

    def run_until(self, until: float) -> None:
        while self.due <= until:
            self.now = self.due
            self.function()
        self.now = until


class Wire:
    """Of a connection: when the broker was heard, and when something was written."""

    def __init__(self, clock: Clock, end: MdxWorkerEnd) -> None:
        self.clock = clock
        self.end = end
        self.written: list[float] = []
        self.max_body = MAX_BODY

    @property
    def heard(self) -> float:
        return self.clock.now

    def write_at_once(self) -> None:
        pass

    def flush(self) -> None:
        self.flush_soon()

    def flush_soon(self) -> None:
        if self.end.out:
            self.written.append(self.clock.now)
            self.end.out.clear()


def test_a_worker_that_answered_is_not_silent_for_longer_than_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: clock)
    end = registry.worker_end("mdx")
    assert isinstance(end, MdxWorkerEnd)
    jobs: list[Delivery] = []
    post = registration.Registration(end, lambda _, job: jobs.append(job), lambda _, event: None)
    wire = Wire(clock, end)
    post.connection = cast(BrokerConnection, wire)
    post.register([b"echo"], 1, 0)
    for n in range(40):  # answers at every place between two beats, and times without any
        clock.run_until(100.1 + n * 7.3)
        for event in end.receive(REQUEST):
            post.on_event(event)
        post.final(jobs.pop(), [b"body"])
    clock.run_until(clock.now + 20.0)
    gaps = [later - earlier for earlier, later in zip(wire.written, wire.written[1:], strict=False)]
    assert len(gaps) > 100
    assert max(gaps) <= end.interval + 1e-6


def test_a_worker_that_answers_all_the_time_sends_no_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: clock)
    end = registry.worker_end("mdx")
    jobs: list[Delivery] = []
    post = registration.Registration(end, lambda _, job: jobs.append(job), lambda _, event: None)
    assert isinstance(end, MdxWorkerEnd)
    wire = Wire(clock, end)
    post.connection = cast(BrokerConnection, wire)
    post.register([b"echo"], 1, 0)
    for n in range(1000):
        clock.run_until(100.0 + n * 0.1)
        for event in end.receive(REQUEST):
            post.on_event(event)
        post.final(jobs.pop(), [b"body"])
    # READY and the replies: "Peers SHOULD NOT send HEARTBEAT commands while also sending other commands"
    assert len(wire.written) == 1001


class SilentWire(Wire):
    """Of a connection whose broker sends nothing."""

    heard = 100.0
    closed = ""

    def close(self, reason: str, abort: bool) -> None:
        self.closed = reason


def test_the_own_suspension_of_a_worker_is_not_the_silence_of_its_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: clock)
    end = registry.worker_end("mdx")
    assert isinstance(end, MdxWorkerEnd)
    post = registration.Registration(end, lambda _, job: None, lambda _, event: None)
    wire = SilentWire(clock, end)
    post.connection = cast(BrokerConnection, wire)
    post.register([b"echo"], 1, 0)
    clock.run_until(100.0 + end.interval)
    clock.now += 60.0  # its timer is late by nearly as much
    clock.function()
    assert not wire.closed, "what the broker sent meanwhile is not read yet"
    clock.run_until(clock.now + end.patience - 2 * end.interval)
    assert not wire.closed
    for _ in range(3):
        if not wire.closed:
            clock.now = clock.due
            clock.function()
    assert "has been silent for" in wire.closed
