"""Heartbeats by UDP: a datagram keeps a service alive from its own address, and ends nothing. The clock is the test's."""

import pytest

from polydomo.broker.catalog.udp_heartbeats import BEAT, FORGED, GOODBYE, MALFORMED, SENT, UdpHeartbeats
from polydomo.protocols.dbp import session as dbp
from polydomo.protocols.dbp import udp
from polydomo.protocols.dbp.session import DbpSession
from tests.protocols.emqp_dbp_fakes import WALL, Peer, Table

NOW = dbp.write_time(WALL, dbp.FLOAT)
HOST = "192.0.2.7"
BEAT_OF_CAMERA = udp.write(dbp.HEARTBEAT, "camera", WALL)
GOODBYE_OF_CAMERA = udp.write(dbp.DISCONNECT, "camera", WALL)


class Scene:
    """A service that agreed to beat every 2 s, and the broker's UDP."""

    def __init__(self) -> None:
        self.table = Table()
        self.broker = self.table.broker
        self.datagrams = UdpHeartbeats(self.broker, self.broker.catalog, self.broker.changes)
        self.service = self.table.join(DbpSession, f"tcp://{HOST}:40001")
        self.service.say(b"", dbp.REGISTRATION, NOW, b'{"name": "camera", "heartbeat": 2}')
        assert self.heard() == [dbp.APPROVED]

    def heard(self, peer: Peer | None = None) -> list[bytes]:
        return [message[1] for message in (peer or self.service).hear()]

    @property
    def state(self) -> str:
        return self.broker.catalog.entries["camera"].state

    @property
    def counts(self) -> dict[str, int]:
        return {kind: count for kind, count in self.broker.counters.datagrams.items() if count}

    def beat_for(self, seconds: float) -> None:
        """Beats by UDP every 2 s."""
        for _ in range(int(seconds / 2)):
            assert self.datagrams.receive(BEAT_OF_CAMERA, HOST) == BEAT
            self.table.wait(2.0)


def test_beats_by_udp_keep_a_service_alive_and_the_connection_quiet() -> None:
    scene = Scene()
    scene.beat_for(60.0)
    assert scene.state == "ready"
    assert scene.heard() == [], "it hears the broadcast, so nothing is said over the connection"
    assert scene.counts == {BEAT: 30}


def test_without_beats_it_is_late_then_lost_at_its_times() -> None:
    scene = Scene()
    scene.beat_for(4.0)  # the last beat at 2.0, and it is 4.0
    scene.table.wait(0.99)
    assert scene.state == "ready"
    scene.table.wait(0.02)
    assert scene.state == "late"
    scene.table.wait(2.98)
    assert scene.state == "late"
    scene.table.wait(0.02)
    assert scene.state == "lost"


def test_a_missed_beat_makes_the_broker_ask_over_the_connection_and_any_answer_counts() -> None:
    scene = Scene()
    scene.beat_for(2.0)
    scene.table.wait(1.01)
    assert scene.state == "late"
    assert scene.heard() == [dbp.HEARTBEAT]
    scene.service.say(b"", dbp.ACKNOWLEDGE, NOW, b"")
    assert scene.state == "ready"
    for _ in range(5):  # over the connection from now on
        scene.table.wait(2.0)
        assert scene.heard() == [dbp.HEARTBEAT]
        scene.service.say(b"", dbp.HEARTBEAT, NOW, b"camera")
        assert scene.heard() == [dbp.ACKNOWLEDGE]
    scene.beat_for(10.0)  # and back again
    assert scene.heard() == []
    assert scene.state == "ready"


def test_a_datagram_from_another_address_counts_for_nothing() -> None:
    scene = Scene()
    for _ in range(10):
        assert scene.datagrams.receive(BEAT_OF_CAMERA, "192.0.2.8") == FORGED
        assert scene.datagrams.receive(GOODBYE_OF_CAMERA, "192.0.2.8") == FORGED
        assert scene.datagrams.receive(udp.write(dbp.HEARTBEAT, "nobody", WALL), HOST) == FORGED
        scene.table.wait(0.61)
    assert scene.state == "lost"
    assert scene.counts == {FORGED: 30}
    assert scene.datagrams.due() is None
    assert scene.datagrams.receive(BEAT_OF_CAMERA, HOST) == FORGED, "one that is lost must register again"
    assert scene.state == "lost"


@pytest.mark.parametrize("data", [b"", b"SHALOM 5246", bytes(100), BEAT_OF_CAMERA[:-1], BEAT_OF_CAMERA + b"x"])
def test_malformed_datagrams_are_counted_and_ignored(data: bytes) -> None:
    scene = Scene()
    assert scene.datagrams.receive(data, HOST) == MALFORMED
    assert scene.counts == {MALFORMED: 1}
    assert scene.state == "ready"


def test_a_goodbye_by_udp_does_not_remove_an_entry() -> None:
    scene = Scene()
    scene.beat_for(2.0)
    for _ in range(3):
        assert scene.datagrams.receive(GOODBYE_OF_CAMERA, HOST) == GOODBYE
        assert scene.state == "ready"
    assert scene.heard() == [dbp.HEARTBEAT], "it is asked over the connection, however many goodbyes come"
    scene.service.say(b"", dbp.ACKNOWLEDGE, NOW, b"")
    scene.beat_for(10.0)
    assert scene.state == "ready"


def test_a_goodbye_by_udp_is_confirmed_over_the_connection() -> None:
    scene = Scene()
    scene.datagrams.receive(GOODBYE_OF_CAMERA, HOST)
    assert scene.heard() == [dbp.HEARTBEAT]
    scene.service.say(b"", dbp.DISCONNECT, NOW)
    assert scene.state == "left"


def test_a_goodbye_without_a_connection_is_left_to_the_silence_timeout() -> None:
    scene = Scene()
    scene.beat_for(2.0)
    scene.service.close()
    assert scene.datagrams.receive(GOODBYE_OF_CAMERA, HOST) == GOODBYE
    assert scene.state == "ready"
    scene.table.wait(4.01)
    assert scene.state == "lost"


def test_the_broker_broadcasts_at_the_shortest_interval_while_services_beat_by_udp() -> None:
    scene = Scene()
    assert scene.datagrams.due() is None and scene.datagrams.beats([5246]) == []
    other = scene.table.join(DbpSession, f"tcp://{HOST}:40002")
    other.say(b"", dbp.REGISTRATION, NOW, b'{"name": "slow", "heartbeat": 6}')
    scene.datagrams.receive(udp.write(dbp.HEARTBEAT, "slow", WALL), HOST)
    assert scene.datagrams.due() == scene.broker.now
    ((port, datagram),) = scene.datagrams.beats([5246])
    assert port == 5246
    beat = udp.read(datagram)
    assert beat is not None and (beat.command, beat.name) == (dbp.HEARTBEAT, "5246")
    assert scene.datagrams.due() == scene.broker.now + 6.0
    scene.datagrams.receive(BEAT_OF_CAMERA, HOST)
    assert scene.datagrams.due() == scene.broker.now + 2.0
    assert scene.datagrams.beats([5246]) == [], "not before it is due"
    scene.table.wait(2.0)
    assert len(scene.datagrams.beats([5246, 6000])) == 2
    scene.service.say(b"", dbp.DISCONNECT, NOW)
    assert scene.datagrams.due() == pytest.approx(scene.broker.now + 6.0)
    scene.table.wait(24.0)  # the other one is lost
    assert scene.datagrams.due() is None
    assert scene.counts[SENT] == 3


def test_a_service_that_went_over_to_the_connection_is_broadcast_to_so_that_it_can_come_back() -> None:
    scene = Scene()
    scene.beat_for(2.0)
    scene.heard()
    for _ in range(5):
        scene.service.say(b"", dbp.HEARTBEAT, NOW)
        assert len(scene.datagrams.beats([5246])) == 1
        scene.table.wait(2.0)
    assert dbp.HEARTBEAT in scene.heard(), "and over the connection as well: it may hear no broadcast at all"
    assert scene.state == "ready"


def test_a_service_that_registers_again_gets_broadcasts_once_it_beats_by_udp() -> None:
    scene = Scene()
    scene.beat_for(2.0)
    scene.service.say(b"", dbp.DISCONNECT, NOW)
    again = scene.table.join(DbpSession, f"tcp://{HOST}:40002")
    again.say(b"", dbp.REGISTRATION, NOW, b'{"name": "camera", "heartbeat": 2}')
    assert scene.datagrams.due() is None
    scene.datagrams.receive(BEAT_OF_CAMERA, HOST)
    assert scene.datagrams.due() is not None


def test_no_broadcasts_to_a_service_without_heartbeats() -> None:
    scene = Scene()
    scene.service.say(b"", dbp.UPDATE, NOW, b'{"name": "camera", "heartbeat": null}')
    assert scene.datagrams.receive(BEAT_OF_CAMERA, HOST) == BEAT
    assert scene.datagrams.due() is None


def test_the_broadcast_has_each_time_format_that_services_use() -> None:
    """A service that reads only 4-byte floats gets them; the others get a time with a better resolution."""
    scene = Scene()
    assert scene.datagrams.receive(udp.write(dbp.HEARTBEAT, "camera", WALL, dbp.FLOAT), HOST) == BEAT
    ((_, sent),) = scene.datagrams.beats([5246])
    assert udp.read(sent) == udp.Datagram(dbp.HEARTBEAT, "5246", dbp.FLOAT)
    other = scene.table.join(DbpSession, "tcp://192.0.2.8:40001")
    other.say(b"", dbp.REGISTRATION, NOW, b'{"name": "radar", "heartbeat": 2}')
    assert scene.datagrams.receive(udp.write(dbp.HEARTBEAT, "radar", WALL, dbp.DOUBLE), "192.0.2.8") == BEAT
    scene.table.wait(2.0)
    found = [udp.read(sent) for _, sent in scene.datagrams.beats([5246])]
    assert {datagram.time for datagram in found if datagram is not None} == {dbp.FLOAT, dbp.DOUBLE}
