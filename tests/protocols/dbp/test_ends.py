"""DBP: what a registration says, whose address counts, and our own end."""

import struct

import pytest

from polydomo.errors import ProtocolViolation
from polydomo.limits import DBP_BEAT, DBP_BEAT_LEAST, DBP_BEAT_MOST
from polydomo.protocols.dbp import info as dbp_info
from polydomo.protocols.dbp import session as dbp
from polydomo.protocols.dbp.ends import Acknowledged, Approved, DbpEnd, Denied, Disconnected, Info
from polydomo.protocols.dbp.session import DbpSession
from tests.protocols.emqp_dbp_fakes import WALL, Table

FLOAT = struct.pack("=f", WALL)
CAMERA: dict[str, object] = {"name": "camera", "ip": "192.0.2.7", "port": 9, "function": "images"}
HERE, THERE = "tcp://192.0.2.1:1111", "tcp://192.0.2.2:1111"


# --- what a registration says ---


@pytest.mark.parametrize(
    ("info", "seconds"),
    [
        ({}, 0.0),
        ({"heartbeat": None}, 0.0),
        ({"heartbeat": False}, 0.0),
        ({"heartbeat": True}, DBP_BEAT),
        ({"heartbeat": 2}, 2.0),
        ({"heartbeat_timing": "2.5"}, 2.5),
        ({"heartbeat timing": 3}, 3.0),
        ({"heartbeat_interval": 3}, 3.0),
        ({"interval": 3}, 3.0),
        ({"heartbeat": 1e-9}, DBP_BEAT_LEAST),
        ({"heartbeat": 1e9}, DBP_BEAT_MOST),
        ({"heartbeat": 0}, None),
        ({"heartbeat": "nan"}, None),
        ({"heartbeat": 10**400}, None),
        ({"heartbeat": {}}, None),
    ],
)
def test_heartbeat_timing(info: dict[str, object], seconds: float | None) -> None:
    assert dbp_info.timing(info, DBP_BEAT) == seconds


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("tcp://192.0.2.1:5678", "192.0.2.1"),
        ("tcp://[::1]:5678", "::1"),
        ("tcp://[::ffff:192.0.2.1]:5678", "192.0.2.1"),
        ("ipc:///tmp/x.sock", "127.0.0.1"),
        ("", ""),
    ],
)
def test_the_ip_address_of_a_peer(peer: str, host: str) -> None:
    assert dbp.host_of(peer) == host


# --- our own end ---


@pytest.mark.parametrize("kind", [dbp.FLOAT, dbp.DOUBLE, dbp.DECIMAL, dbp.WHOLE])
def test_our_end_through_our_broker(kind: str) -> None:
    table = Table()
    end, peer = DbpEnd(kind), table.join(DbpSession, HERE)

    def exchange() -> list[object]:
        events: list[object] = []
        while end.out:
            for message in end.out:
                peer.say(*message)
            end.out.clear()
            for heard in peer.hear():
                events += end.receive(heard, WALL)
        return events

    end.register({**CAMERA, "heartbeat": 2}, WALL)
    end.update({"port": 10}, WALL)
    end.beat(WALL)
    end.info(["camera", "zzz"], WALL)
    end.update({"name": "zzz"}, WALL)
    assert exchange() == [
        Approved({"heartbeat": 2.0}),
        Acknowledged({"heartbeat": 2.0}),
        Acknowledged(),
        Info({"camera": {**CAMERA, "heartbeat": 2, "port": 10}}, "No Registered Service With the Name zzz"),
        Denied("zzz is not registered"),
    ]
    table.wait(2.1)
    for heard in peer.hear():
        assert end.receive(heard, WALL) == []
    assert [message[1] for message in end.out] == [b"u.u"]  # the broker's beat is acknowledged
    exchange()
    end.disconnect(WALL)
    end.beat(WALL)
    assert [message[1] for message in end.out] == [b"</3"] and exchange() == []
    assert table.broker.directory.lookup("camera") is None and table.notes.violations == []


def test_our_end_understands_disconnect_and_the_published_denial() -> None:
    end = DbpEnd()
    assert end.receive([b"", b"OmO", FLOAT, b"no"], WALL) == [Denied("no")]
    assert end.receive([b"", b"OwO", FLOAT], WALL) == [Approved({})]
    assert end.receive([b"", b"</3", FLOAT], WALL) == [Disconnected()]
    end.beat(WALL)
    assert end.out == [] and end.receive([b"nonsense"], WALL) == []


@pytest.mark.parametrize(
    "message",
    [[], [b""], [b"", b"OwO", b"now"], [b"", b"UwU", FLOAT], [b"", b"o_O", FLOAT, b"[]"], [b"", b"o_O", FLOAT, b"{"]],
)
def test_our_end_names_what_is_not_allowed(message: list[bytes]) -> None:
    with pytest.raises(ProtocolViolation):
        DbpEnd().receive(message, WALL)
