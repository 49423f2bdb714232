"""The time of a read is charged to its connection and to the turn, as far as it exceeds the price of the work."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from polydomo import limits
from polydomo.server.connections import connection as module
from polydomo.server.connections.connection import Connection
from polydomo.wire.link import PAUSE_SHARE_USED, Hub, LinkHandler, Turns
from polydomo.wire.zmtp.link import ZmtpLink
from tests.wire.zmtp.rig import GREETING_31, ready

LARGE = bytes(limits.SMALL_READ + 1)


class Rig:
    """A connection without a socket, whose link takes as long as a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1.0
        self.took = 0.0  # by the next read
        self.price = 0
        monkeypatch.setattr(module, "perf_counter", lambda: self.now)
        self.hub = Hub(Turns())
        self.connection = Connection(cast(Any, SimpleNamespace(awake=True, hub=self.hub)), ipc=False)
        self.link = ZmtpLink(self.hub, LinkHandler(), "tcp://192.0.2.1:1")
        self.connection.link = self.link
        self.connection._take = self._take
        self.connection.reading = False

    def _take(self, data: bytes) -> int:
        self.now += self.took
        self.link.work_left -= self.price
        self.hub.work_left -= self.price
        return 0


def test_a_slow_read_uses_up_the_share_and_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    rig.took = 0.03
    rig.connection.data_received(LARGE)
    assert rig.link.pauses == PAUSE_SHARE_USED
    assert rig.hub.work_left <= limits.TURN_WORK - 29_999


def test_small_reads_of_zmtp_cost_their_price(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    connection = rig.connection
    connection.server.overdue = cast(Any, SimpleNamespace(completed_handshake=lambda connection: None))
    connection._take = connection._shake
    connection.data_received(GREETING_31 + ready())
    assert rig.link.open
    left = rig.hub.work_left
    connection._take = rig._take
    rig.took = 0.03
    connection.data_received(bytes(limits.MEASURED_ZMTP))
    assert (rig.hub.work_left, rig.link.pauses) == (left, 0)
    connection.data_received(bytes(limits.MEASURED_ZMTP + 1))
    assert rig.link.pauses == PAUSE_SHARE_USED
    assert rig.hub.work_left <= left - 29_999


def test_a_quick_read_costs_its_price(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    rig.took, rig.price = limits.SLOW_CALLBACK / 2, 7
    rig.connection.data_received(LARGE)
    assert rig.hub.work_left == limits.TURN_WORK - 7 and not rig.link.pauses


def test_the_price_is_the_least_that_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    rig.took, rig.price = 0.001, 1500
    rig.connection.data_received(LARGE)
    assert rig.hub.work_left == limits.TURN_WORK - 1500
    rig.took, rig.price = 0.001, 300
    rig.connection.data_received(LARGE)
    assert rig.hub.work_left == pytest.approx(limits.TURN_WORK - 1500 - 1000, abs=1)


def test_a_read_that_continues_in_a_later_turn_is_charged_too(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    monkeypatch.setattr(rig.link, "receive", rig._take, raising=False)
    rig.took = 0.03
    rig.connection.go_on(rig.link)
    assert rig.link.pauses == PAUSE_SHARE_USED


def test_a_slow_handshake_is_charged_to_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch)
    rig.connection.link = None
    rig.took = 0.03
    rig.connection.data_received(LARGE)
    assert rig.hub.work_left < 0


def test_a_small_read_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most have one request; reading the clock would be a hundredth of its cost."""
    rig = Rig(monkeypatch)
    monkeypatch.setattr(module, "perf_counter", lambda: pytest.fail("the clock was read"))
    rig.price = 7
    rig.connection.data_received(bytes(limits.SMALL_READ))
    assert rig.hub.work_left == limits.TURN_WORK - 7
