"""An internal error affects at most one connection, is logged with its traceback, and all other peers are served."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, cast

import pytest

import polydomo.testing
from polydomo.broker.broker import Broker
from polydomo.model.records import Request, Session
from polydomo.model.session import ProtocolSession
from polydomo.protocols.mdp.mdp1 import Mdp1Session
from polydomo.server.connections.connection import Connection
from polydomo.server.logs import INTERNAL_ERRORS
from polydomo.server.settings.settings import Settings
from polydomo.wire.close_reason import CloseReason
from polydomo.wire.frames import Body
from sim.replacing import swap
from tests.forms import replaces_core
from tests.server.raw import Raw, dealer


class Fault(Exception):
    pass


@pytest.fixture
def broker() -> Iterator[polydomo.testing.Broker]:
    settings = Settings()
    settings.beat = 0.1
    settings.beats_missed = 1000
    settings.limits.max_outstanding = 4
    with polydomo.testing.broker(settings=settings) as broker:
        yield broker


@pytest.fixture
def other(broker: polydomo.testing.Broker) -> Iterator[Raw]:
    """A peer that must not be affected."""
    with dealer(address(broker)) as peer:
        yield peer
        assert peer.call(b"mmi.service", b"x") == [b"404"]


def address(broker: polydomo.testing.Broker) -> tuple[str, int]:
    return "127.0.0.1", int(broker.url.rpartition(":")[2])


def faults(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.getMessage() == "internal error"]


def logged_fault(broker: polydomo.testing.Broker, caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    """The line about the fault, once it is there."""
    broker.wait_until(lambda server: bool(faults(caplog)))
    record = faults(caplog)[0]
    assert record.exc_info is not None and record.exc_info[0] is Fault
    return record


def fail_at(body: bytes, stack: ExitStack) -> None:
    """From now on, a request with this body meets a fault in the broker."""

    def make(plain: Any) -> Any:
        def request(self: Broker, session: Session, service: bytes, found: Body, *more: Any) -> Request | None:
            if bytes(found).endswith(body):
                raise Fault
            made: Request | None = plain(self, session, service, found, *more)
            return made

        return request

    swap(stack, Broker, "request", make)


pytestmark = [replaces_core, pytest.mark.internal_errors]


def test_in_a_message(
    broker: polydomo.testing.Broker, other: Raw, stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    fail_at(b"boom", stack)
    before = INTERNAL_ERRORS.total
    with dealer(address(broker)) as peer:
        assert peer.call(b"mmi.service", b"x") == [b"404"]
        peer.send(b"", b"MDPC01", b"echo", b"boom")
        assert peer.closed() == b""
        assert peer.host in vars(logged_fault(broker, caplog))["fields"]["peer"]
    assert INTERNAL_ERRORS.total == before + 1  # a metric
    broker.wait_until(lambda server: len(server.connections) == 1)


def test_in_a_message_that_was_put_aside(
    broker: polydomo.testing.Broker, other: Raw, stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    """The sender was paused, and the error occurs when it is resumed, in the middle of a turn."""
    fail_at(b"boom", stack)
    with dealer(address(broker)) as peer, dealer(address(broker)) as worker:
        for body in (b"1", b"2", b"3", b"4", b"boom"):
            peer.send(b"", b"MDPC01", b"slow", body)
        broker.wait_until(lambda server: server.broker.open_requests == 4)
        worker.send(b"", b"MDPW01", b"\x01", b"slow")
        for _ in range(2):
            *_, token, _, body = receive(worker)
            worker.send(b"", b"MDPW01", b"\x03", token, b"", body)
        assert logged_fault(broker, caplog)
        peer.closed()
        broker.wait_until(lambda server: len(server.connections) == 2)


def receive(worker: Raw) -> list[bytes]:
    """The next message that is not a heartbeat."""
    while (message := worker.receive()) == [b"", b"MDPW01", b"\x04"]:
        pass
    return message


class Torn:
    """A transport that cannot write one message."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if b"mine" in data:
            raise Fault
        self._transport.write(data)


def test_in_writing(
    broker: polydomo.testing.Broker, other: Raw, stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    def make(plain: Any) -> Any:
        def connection_made(self: Connection, transport: asyncio.BaseTransport) -> None:
            plain(self, transport)
            self.transport = cast(asyncio.Transport, Torn(self.transport))

        return connection_made

    swap(stack, Connection, "connection_made", make)
    with dealer(address(broker)) as peer, dealer(address(broker)) as worker:
        worker.send(b"", b"MDPW01", b"\x01", b"echo")
        broker.wait_for("echo")
        peer.send(b"", b"MDPC01", b"echo", b"x")
        *_, token, _, _ = receive(worker)
        worker.send(b"", b"MDPW01", b"\x03", token, b"", b"mine")
        assert peer.closed() == b""
        assert logged_fault(broker, caplog)
        broker.wait_for("echo")  # the worker has not gone with it


def test_at_a_deadline(
    broker: polydomo.testing.Broker, other: Raw, stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    with dealer(address(broker)) as bad, dealer(address(broker)) as good:

        def make(plain: Any) -> Any:
            def beat(self: Mdp1Session, worker: object) -> None:
                if bad.host in self.link.peer:
                    raise Fault
                plain(self, worker)

            return beat

        swap(stack, Mdp1Session, "send_heartbeat", make)
        for peer in (bad, good):
            peer.send(b"", b"MDPW01", b"\x01", b"echo")
        assert logged_fault(broker, caplog)
        for _ in range(3):
            assert good.receive() == [b"", b"MDPW01", b"\x04"]


def test_at_the_end_of_a_connection(
    broker: polydomo.testing.Broker, other: Raw, stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    def on_close(self: ProtocolSession, reason: CloseReason) -> None:
        raise Fault

    with stack:
        swap(stack, ProtocolSession, "on_close", lambda plain: on_close)
        with dealer(address(broker)) as peer:
            assert peer.call(b"mmi.service", b"x") == [b"404"]
        assert logged_fault(broker, caplog)
    broker.wait_until(lambda server: len(server.connections) == 1)


def test_between_turns(
    broker: polydomo.testing.Broker, other: Raw, stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    def turn(self: object) -> None:
        raise Fault

    with stack:
        swap(stack, Broker, "end_turn", lambda plain: turn)
        assert other.call(b"mmi.service", b"x") == [b"404"]
    assert logged_fault(broker, caplog)
