"""Services of the catalog that take requests: rights, replies, and what ends their worker."""

import json
import struct

import pytest

from polydomo.broker.guard.rules import AccessRule, AccessRules
from polydomo.model.tuning import Tuning
from polydomo.protocols.dbp.session import DbpSession
from tests.protocols.emqp_dbp_fakes import WALL, EchoSession, Peer, Table, only

FLOAT = struct.pack("=f", WALL)
TAKES: dict[str, object] = {"name": "camera", "heartbeat": 2, "interfaces": {"requests": True}}
HERE = "tcp://192.0.2.1:1111"


def say(peer: Peer, command: bytes, *body: bytes) -> None:
    peer.say(b"", command, FLOAT, *body)


def heard(peer: Peer) -> list[list[bytes]]:
    """Without empty frames, times and heartbeats."""
    return [[message[1], *message[3:]] for message in peer.hear() if message[1] != b"<3"]


def register(table: Table, info: dict[str, object], principal: str = "") -> tuple[Peer, list[bytes]]:
    service = table.join(DbpSession, HERE)
    service.session.principal = principal
    say(service, b"UwU", json.dumps(info).encode())
    return service, only(heard(service))


def rules(**rights: list[str]) -> AccessRules:
    return AccessRules(["bob"], [AccessRule(1, ["bob"], rights)])


@pytest.mark.parametrize(
    ("rights", "why"),
    [
        ({"register": ["*"]}, "may not offer"),
        ({"offer": ["*"]}, "may not register"),
        ({"register": ["*"], "offer": ["lamp"]}, "may not offer"),
    ],
)
def test_a_service_that_takes_requests_needs_both_rights(rights: dict[str, list[str]], why: str) -> None:
    table = Table()
    table.broker.access.replace(rules(**rights))
    _, answer = register(table, TAKES, "bob")
    assert answer[0] == b"(O_O)" and why in answer[1].decode()
    assert not table.broker.workers and not table.broker.catalog.active_entries()


def test_an_update_that_asks_for_requests_needs_the_right_to_offer() -> None:
    table = Table()
    table.broker.access.replace(rules(register=["*"]))
    service, answer = register(table, {"name": "camera", "heartbeat": 2}, "bob")
    assert answer[0] == b"OwO"
    say(service, b"UoU", json.dumps({"interfaces": {"requests": True}}).encode())
    assert only(heard(service))[0] == b"(O_O)"
    assert not table.broker.workers and table.broker.catalog.active("camera") is not None


def test_a_right_that_is_taken_away() -> None:
    table = Table()
    table.broker.access.replace(rules(register=["*"], offer=["*"]))
    service, _ = register(table, TAKES, "bob")
    assert not table.broker.revocation.lost_right(service.session)
    table.broker.access.replace(rules(register=["*"]))
    assert "may not offer" in table.broker.revocation.lost_right(service.session)


def test_without_timing_the_interval_of_the_broker_is_agreed() -> None:
    table = Table(Tuning(dbp_beat=7.0))
    _, answer = register(table, {"name": "camera", "interfaces": {"requests": True}})
    assert answer[0] == b"OwO" and json.loads(answer[1]) == {"heartbeat": 7.0}


def test_the_broker_s_heartbeat_and_its_acknowledgement_keep_the_worker() -> None:
    table = Table()
    service, _ = register(table, TAKES)
    for _ in range(20):
        table.wait(1.0)
        if service.hear():
            say(service, b"u.u")
    assert len(table.broker.workers) == 1


def test_a_reply_that_was_not_asked_for_gets_disconnect() -> None:
    table = Table()
    service, _ = register(table, TAKES)
    say(service, b"o_O", b"picture")
    assert only(heard(service)) == [b"</3", b""] and not table.broker.workers


def test_a_registration_on_another_connection_takes_the_worker_over() -> None:
    """The request that the first one holds is requeued, and its late reply is stale."""
    table = Table()
    first, _ = register(table, TAKES)
    client = table.join(EchoSession)
    assert isinstance(client.session, EchoSession)
    table.broker.request(client.session, b"camera", b"\x00\x04take", None)
    assert heard(first) == [[b"u_U", b"take"]]
    second = table.join(DbpSession, HERE)
    say(second, b"UwU", json.dumps(TAKES).encode())
    approved, request = heard(second)
    assert approved[0] == b"OwO" and request == [b"u_U", b"take"]
    say(first, b"o_O", b"late")
    assert table.broker.counters.stale == 1 and len(table.broker.workers) == 1
    assert heard(first) == []
    say(second, b"o_O", b"picture")
    assert not client.session.requests


def test_the_same_connection_registers_again_and_keeps_its_request() -> None:
    table = Table()
    service, _ = register(table, TAKES)
    client = table.join(EchoSession)
    table.broker.request(client.session, b"camera", b"\x00\x04take", None)
    (worker,) = table.broker.workers
    say(service, b"UwU", json.dumps({**TAKES, "function": "images"}).encode())
    assert [message[0] for message in heard(service)] == [b"u_U", b"OwO"]
    assert list(table.broker.workers) == [worker] and len(worker.held) == 1


def test_an_invalid_message_ends_the_worker() -> None:
    table = Table()
    service, _ = register(table, TAKES)
    service.say(b"", b"o_O", b"no time")
    assert not table.broker.workers and table.broker.catalog.active("camera") is not None


def test_a_reserved_name_is_refused() -> None:
    table = Table()
    _, answer = register(table, {**TAKES, "name": "polydomo.status"})
    assert answer[0] == b"(O_O)" and b"reserved" in answer[1]
