"""Deadlines of connections, without sockets."""

from typing import Any, cast

import pytest

from polydomo.limits import CLOSE_MOST, CLOSE_PROGRESS, CLOSE_TIME, SWEEP_INTERVAL
from polydomo.server.connections.connection import Connection
from polydomo.server.connections.overdue import OverdueConnections

HANDSHAKE = 10.0


class Peer:
    """The part of a connection that has deadlines."""

    peer = "tcp://127.0.0.1:1"

    def __init__(self, unsent: int = 0) -> None:
        self.unsent = unsent
        self.aborted = False

    @property
    def transport(self) -> Any:
        return self

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.aborted = True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.overdue = OverdueConnections(HANDSHAKE)

    def run(self, seconds: float) -> None:
        """The process runs: it sweeps at every interval."""
        end = self.now + seconds
        while self.now < end:
            self.now += SWEEP_INTERVAL
            self.overdue.sweep(self.now)

    def suspend(self, seconds: float) -> None:
        """The process does not run."""
        self.now += seconds
        self.overdue.postpone(seconds)
        self.overdue.sweep(self.now)

    def shake(self, peer: Peer) -> Peer:
        self.overdue.began_handshake(cast(Connection, peer), self.now)
        return peer

    def close(self, peer: Peer) -> Peer:
        self.overdue.began_closing(cast(Connection, peer), self.now)
        return peer


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_handshake_times_out(clock: Clock) -> None:
    slow = clock.shake(Peer())
    clock.run(HANDSHAKE - 2)
    assert not slow.aborted
    clock.run(3)
    assert slow.aborted


def test_a_completed_handshake_has_no_deadline(clock: Clock) -> None:
    peer = clock.shake(Peer())
    clock.overdue.completed_handshake(cast(Connection, peer))
    clock.run(HANDSHAKE * 2)
    assert not peer.aborted


def test_time_in_which_the_process_was_suspended_does_not_count(clock: Clock) -> None:
    shaking, closing = clock.shake(Peer()), clock.close(Peer(unsent=1))
    clock.suspend(HANDSHAKE * 3)
    assert not shaking.aborted and not closing.aborted
    clock.run(CLOSE_TIME + 1)
    assert closing.aborted and not shaking.aborted
    clock.run(HANDSHAKE)
    assert shaking.aborted


def test_a_closing_connection_whose_peer_does_not_read_is_aborted(clock: Clock) -> None:
    deaf = clock.close(Peer(unsent=8 << 20))
    clock.run(CLOSE_TIME + 1)
    assert deaf.aborted


def test_a_closing_connection_whose_peer_reads_gets_more_time(clock: Clock) -> None:
    peer = clock.close(Peer(unsent=8 << 20))
    for _ in range(4):
        peer.unsent -= 2 * CLOSE_PROGRESS
        clock.run(CLOSE_TIME)
    assert not peer.aborted
    clock.run(CLOSE_TIME + 1)
    assert peer.aborted


def test_a_peer_that_reads_very_slowly_is_not_waited_for_without_end(clock: Clock) -> None:
    drip, slow = clock.close(Peer(unsent=1 << 30)), clock.close(Peer(unsent=1 << 30))
    for _ in range(2):
        drip.unsent -= 1
        slow.unsent -= CLOSE_PROGRESS
        clock.run(CLOSE_TIME)
    assert drip.aborted and not slow.aborted
    for _ in range(int(CLOSE_MOST)):
        slow.unsent -= CLOSE_PROGRESS
        clock.run(CLOSE_TIME)
    assert slow.aborted


def test_at_shutdown_the_rest_of_the_grace_time_is_available(clock: Clock) -> None:
    clock.overdue.closing_time = CLOSE_MOST * 3
    slow = clock.close(Peer(unsent=1 << 30))
    for _ in range(int(CLOSE_MOST) * 2):
        slow.unsent -= CLOSE_PROGRESS
        clock.run(CLOSE_TIME)
    assert not slow.aborted
