"""The beacon and heartbeats as datagrams, and which way a service's beats go. No sockets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.protocols.dbp import session as dbp
from polydomo.protocols.dbp import udp
from polydomo.protocols.dbp.udp import Datagram, ServiceBeats, beacon, read, read_beacon, write
from polydomo.wire import frames

NOW = 1_794_724_735.0


@given(st.integers(min_value=1, max_value=65535))
def test_a_beacon_is_read_as_it_was_written(port: int) -> None:
    assert read_beacon(beacon(port)) == port


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"SHALOM",
        b"SHALOM ",
        b"SHALOM 0",
        b"SHALOM 05246",
        b"SHALOM 65536",
        b"SHALOM 5246 ",
        b"SHALOM 5246\n",
        b"SHALOM -1",
        b"shalom 5246",
        "SHALOM ٥٢٤٦".encode(),
        b"GONDOR_CALLS_FOR_AID",
        write(dbp.HEARTBEAT, "camera", NOW),
    ],
)
def test_invalid_beacons(data: bytes) -> None:
    assert read_beacon(data) == 0


def test_a_heartbeat_on_the_wire() -> None:
    data = write(dbp.HEARTBEAT, "camera", NOW, dbp.WHOLE)
    assert data == b"\x01\x00\x01\x02<3\x01\x0a1794724735\x00\x06camera"


@pytest.mark.parametrize("time", [dbp.FLOAT, dbp.DOUBLE, dbp.DECIMAL, dbp.WHOLE])
@pytest.mark.parametrize("command", [dbp.HEARTBEAT, dbp.DISCONNECT])
def test_every_kind_of_time_is_understood(command: bytes, time: str) -> None:
    assert read(write(command, "café", NOW, time)) == Datagram(command, "café", time)


def test_the_published_goodbye_means_the_same() -> None:
    datagram = read(write(dbp.EXIT_SEEN, "camera", NOW))
    assert datagram is not None and datagram.command == dbp.DISCONNECT


MOMENT = dbp.write_time(NOW, dbp.FLOAT)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x01\x00",
        frames.join([b"", b"<3", MOMENT]),  # no name
        frames.join([b"", b"<3", MOMENT, b""]),
        frames.join([b"", b"<3", MOMENT, b"a,b"]),
        frames.join([b"", b"<3", MOMENT, b"\xff"]),
        frames.join([b"", b"<3", MOMENT, b"camera", b"more"]),
        frames.join([b"", b"<3", b"sooner", b"camera"]),
        frames.join([b"x", b"<3", MOMENT, b"camera"]),
        frames.join([b"", b"UwU", MOMENT, b"camera"]),
        frames.join([b"", b"u.u", MOMENT, b"camera"]),
        frames.join([b"", b"<3", MOMENT, b"x" * 300]),  # a long frame
        b"\x03" + bytes(8) + write(dbp.HEARTBEAT, "camera", NOW)[2:],  # an empty frame in long form
        write(dbp.HEARTBEAT, "camera", NOW) + b"\x00",
        write(dbp.HEARTBEAT, "camera", NOW)[:-1],
        write(dbp.HEARTBEAT, "camera", NOW).replace(b"\x00\x06", b"\x01\x06"),
        b"\x05" + write(dbp.HEARTBEAT, "camera", NOW)[1:],  # a command
        bytes(10_000),
        beacon(5246),
    ],
)
def test_malformed_datagrams(data: bytes) -> None:
    assert read(data) is None


@given(st.binary(max_size=600))
def test_any_bytes_are_read_without_a_fault(data: bytes) -> None:
    datagram = read(data)
    assert datagram is None or read(write(datagram.command, datagram.name, NOW, datagram.time)) == datagram


def test_a_service_beats_by_udp_only_while_broadcasts_arrive() -> None:
    beats = ServiceBeats("camera", 2.0, 5246, now=10.0)
    ours = write(dbp.HEARTBEAT, "5246", NOW)
    assert beats.next == 10.0
    assert beats.beat(10.0, NOW) == write(dbp.HEARTBEAT, "camera", NOW)
    assert beats.next == 12.0
    assert beats.receive(11.0, ours)
    assert beats.beat(12.0, NOW) is not None
    assert beats.beat(13.9, NOW) is not None
    assert beats.beat(14.0, NOW) is None, "one and a half intervals without a broadcast: over the connection"
    assert beats.beat(16.0, NOW) is None
    assert beats.receive(16.5, ours)
    assert beats.beat(18.0, NOW) is not None


def test_the_first_beat_is_sent_by_udp_even_if_it_is_late() -> None:
    """Else the broker would never know that it is to broadcast."""
    beats = ServiceBeats("camera", 2.0, 5246, now=10.0)
    assert beats.beat(60.0, NOW) is not None
    assert beats.beat(62.0, NOW) is not None
    assert beats.beat(64.0, NOW) is None


def test_a_service_counts_only_the_broadcasts_of_its_own_broker() -> None:
    beats = ServiceBeats("camera", 2.0, 5246, now=10.0)
    assert beats.beat(10.0, NOW) is not None
    for data in (
        write(dbp.HEARTBEAT, "5999", NOW),
        write(dbp.HEARTBEAT, "camera", NOW),
        write(dbp.DISCONNECT, "5246", NOW),
        beacon(5246),
    ):
        assert not beats.receive(12.5, data)
    assert not beats.by_datagram(13.0)
    assert udp.read(beats.goodbye(NOW)) == Datagram(dbp.DISCONNECT, "camera", dbp.FLOAT)
