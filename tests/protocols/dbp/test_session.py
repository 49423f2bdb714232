"""DBP: the broker's end in dialogue with clients and services, published and by the document, and our own end."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.limits import MAX_CATALOG_INFO, ZOMBIE_TIME
from polydomo.model.records import Worker
from polydomo.model.registration import Refusal, WorkerTerms
from polydomo.model.tuning import Tuning
from polydomo.protocols.dbp import session as dbp
from polydomo.protocols.dbp.session import DbpSession
from polydomo.wire.close_reason import CloseCause
from polydomo.wire.frames import join
from polydomo.wire.link import Hub, LinkHandler
from polydomo.wire.zmtp.link import ZmtpLink
from tests.protocols.emqp_dbp_fakes import WALL, EchoSession, Peer, Table, only

FLOAT = struct.pack("=f", WALL)
CAMERA: dict[str, object] = {"name": "camera", "ip": "192.0.2.7", "port": 9, "function": "images"}
HERE, THERE = "tcp://192.0.2.1:1111", "tcp://192.0.2.2:1111"


def write(document: object) -> bytes:
    return json.dumps(document).encode()


def ask(peer: Peer, command: bytes, *body: bytes) -> list[bytes]:
    """The one answer, without its empty frame and time."""
    peer.say(b"", command, FLOAT, *body)
    answer = only(peer.hear())
    assert answer[0] == b"" and len(answer[2]) == 4 and len(answer) == 4
    return [answer[1], answer[3]]


def service_at(table: Table, info: dict[str, object], peer: str = HERE) -> Peer:
    service = table.join(DbpSession, peer)
    assert ask(service, b"UwU", write(info))[0] == b"OwO"
    return service


def assert_ended(table: Table, peer: Peer) -> None:
    """Nothing more is said to it or heard from it, and its connection is closed a little later."""
    peer.say(b"", b"u_U", FLOAT, b"")
    peer.say(b"", b"UwU", FLOAT, write({"name": "after"}))
    assert peer.hear() == [] and table.broker.directory.lookup("after") is None
    table.wait(ZOMBIE_TIME + 1)
    assert peer.hear() == [] and peer.link.close_reason is not None
    assert peer.link.close_reason.cause is CloseCause.AFTER_DISCONNECT and peer.link.close_reason.orderly


# --- info requests ---


def test_the_published_client_s_dialogue() -> None:
    """It registers on a REQ socket with a 4-byte float for the time, never beats, and closes its socket."""
    table = Table()
    service = table.join(DbpSession, HERE)
    info: dict[str, object] = {
        "name": "camera",
        "interfaces": {"router": {"ip": "192.0.2.7", "port": 5555}},
        "reg_time": 1_700_000_000,
        "topics": [],
    }
    assert ask(service, b"UwU", write(info)) == [b"OwO", b""]
    service.close()
    table.wait(100_000.0)
    client = table.join(DbpSession)
    command, body = ask(client, b"u_U", b"camera")
    assert command == b"o_O" and json.loads(body) == {"camera": {**info, "ip": "192.0.2.1"}}
    command, body = ask(client, b"u_U", b"zzz")
    assert (command, json.loads(body)) == (b"o_O", {"Error": "No Registered Service With the Name zzz"})
    assert table.notes.violations == []


def test_an_empty_info_request_lists_every_active_service() -> None:
    table = Table()
    client = table.join(DbpSession)
    assert ask(client, b"u_U", b"") == [b"o_O", b"{}"]
    service_at(table, CAMERA)
    service_at(table, {"name": "radar"}, THERE)
    for body in ([b""], [], [b" , "]):
        answer = ask(client, b"u_U", *body)
        assert json.loads(answer[1]) == {"camera": CAMERA, "radar": {"name": "radar", "ip": "192.0.2.2"}}


def test_several_names_are_separated_by_commas_or_frames() -> None:
    table = Table()
    service_at(table, CAMERA)
    service_at(table, {"name": "radar"})
    client = table.join(DbpSession)
    wanted = {"camera": CAMERA, "radar": {"name": "radar", "ip": "192.0.2.1"}}
    assert json.loads(ask(client, b"u_U", b"camera, radar")[1]) == wanted
    assert json.loads(ask(client, b"u_U", b"camera", b"radar")[1]) == wanted
    some = json.loads(ask(client, b"u_U", b"x,camera,y")[1])
    assert some == {"camera": CAMERA, "Error": "No Registered Service With the Name x, y"}


def test_services_of_other_protocols_are_shown_with_their_protocol_and_our_address() -> None:
    table = Table()
    session = table.join(EchoSession).session
    table.broker.register_worker(session, [b"echo", b"\xff"], None, WorkerTerms(1, 1))
    client = table.join(DbpSession)
    shown = json.loads(ask(client, b"u_U", b"echo")[1])["echo"]
    assert shown["protocol"] == "other" and shown["address"] == "tcp://127.0.0.1:5246"
    assert set(json.loads(ask(client, b"u_U", b"")[1])) == {"echo"}  # a name that is not UTF-8 is not visible here


# --- the three kinds of time ---


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (FLOAT, dbp.FLOAT),
        (struct.pack("=d", WALL), dbp.DOUBLE),
        (b"1794724000.25", dbp.DECIMAL),
        (b"1794724000", dbp.WHOLE),
    ],
)
def test_each_peer_is_answered_in_the_kind_of_time_it_used(sent: bytes, kind: str) -> None:
    table = Table()
    peer = table.join(DbpSession)
    peer.say(b"", b"u_U", sent, b"")
    moment = only(peer.hear())[2]
    assert dbp.kind_of_time(moment) == kind
    value = {4: "=f", 8: "=d"}.get(len(moment))
    seconds = struct.unpack(value, moment)[0] if value else float(moment)
    assert seconds == pytest.approx(WALL + table.broker.now, abs=130.0 if kind == dbp.FLOAT else 1.0)


@pytest.mark.parametrize(
    "sent",
    [b"", b"now", b"12:30", b"1e9", b"-1.50", b"1.2.3", b"9" * 40, b"\xc3\xbc1.5", struct.pack("=f", float("nan"))],
)
def test_an_invalid_time_makes_the_message_invalid(sent: bytes) -> None:
    table = Table()
    peer = table.join(DbpSession)
    peer.say(b"", b"u_U", sent, b"")
    assert peer.hear() == [] and len(table.notes.violations) == 1
    assert_ended(table, peer)


# --- registration ---


def test_approved_contains_the_agreed_heartbeat_interval() -> None:
    table = Table()
    peer = table.join(DbpSession, HERE)
    assert ask(peer, b"UwU", write({**CAMERA, "heartbeat": 4})) == [b"OwO", b'{"heartbeat": 4.0}']
    assert ask(peer, b"UwU", write({**CAMERA, "heartbeat": 0.001})) == [b"OwO", b'{"heartbeat": 0.1}']


def test_service_information_may_come_in_several_frames() -> None:
    table = Table()
    body = write(CAMERA)
    assert ask(table.join(DbpSession), b"UwU", body[:10], body[10:])[0] == b"OwO"
    assert table.broker.directory.lookup("camera") == CAMERA


def test_the_same_name_again_from_the_same_ip_replaces_the_registration() -> None:
    table = Table()
    service = service_at(table, CAMERA, HERE)
    service_at(table, {"name": "camera", "port": 10}, "tcp://192.0.2.1:2222")  # another connection, the same machine
    assert table.broker.directory.lookup("camera") == {"name": "camera", "port": 10, "ip": "192.0.2.1"}
    assert ask(service, b"UwU", write({"name": "camera", "port": 11}))[0] == b"OwO"
    assert table.broker.directory.lookup("camera") == {"name": "camera", "port": 11, "ip": "192.0.2.1"}


def test_the_same_name_from_another_ip_is_denied_while_the_first_is_active() -> None:
    table = Table()
    service = service_at(table, CAMERA, HERE)
    thief = table.join(DbpSession, THERE)
    assert ask(thief, b"UwU", write({"name": "camera"})) == [b"(O_O)", b"camera is already registered from 192.0.2.1"]
    service.say(b"", b"</3", FLOAT)
    assert ask(thief, b"UwU", write({"name": "camera"}))[0] == b"OwO"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b'"camera"',
        b"{}",
        b'{"name": 7}',
        b'{"name": ""}',
        b'{"name": "a,b"}',
        b'{"name": "Error"}',
        b'{"name": "\\ud800"}',
        b'{"name": "a", "x": NaN}',
        b'{"name": "a", "x": 1e400}',
        b'{"name": "a", "x": ' + b"[" * 40 + b"]" * 40 + b"}",
        b'{"name": "a", "heartbeat": -1}',
        b'{"name": "a", "heartbeat": "often"}',
        b'{"name": "a", "heartbeat": [1]}',
        b'{"name": "a", "x": "' + b"y" * MAX_CATALOG_INFO + b'"}',
        b'{"name": "a", "x": "' + b"y" * 5 * MAX_CATALOG_INFO + b'"}',
        b'{"a":' * 5000,
        b"\xff",
    ],
    ids=lambda body: body[:30].decode("latin-1"),
)
def test_a_registration_that_cannot_be_is_denied_with_a_reason(body: bytes) -> None:
    table = Table()
    peer = table.join(DbpSession)
    command, reason = ask(peer, b"UwU", body)
    assert command == b"(O_O)" and reason
    assert table.broker.directory.all() == {}
    assert ask(peer, b"UwU", write(CAMERA))[0] == b"OwO"  # it may try again


def test_the_allow_list_and_the_ban_on_silence_deny() -> None:
    table = Table(Tuning(dbp_names=["camera"], dbp_silent=False))
    peer = table.join(DbpSession)
    assert ask(peer, b"UwU", write({"name": "radar", "heartbeat": 5}))[0] == b"(O_O)"
    assert ask(peer, b"UwU", write(CAMERA))[0] == b"(O_O)"
    assert ask(peer, b"UwU", write({**CAMERA, "heartbeat": 5}))[0] == b"OwO"


def test_an_update_is_acknowledged_and_an_unregistered_one_denied() -> None:
    table = Table()
    service = service_at(table, CAMERA)
    assert ask(service, b"UoU", write({"name": "camera", "port": 10})) == [b"u.u", b""]
    assert table.broker.directory.lookup("camera") == {**CAMERA, "port": 10}
    assert ask(service, b"UoU", write({"port": 11})) == [b"u.u", b""]  # its own, by connection
    assert ask(service, b"UoU", write({"name": "zzz"})) == [b"(O_O)", b"zzz is not registered"]
    stranger = table.join(DbpSession, THERE)
    assert ask(stranger, b"UoU", write({"name": "camera", "port": 0}))[0] == b"(O_O)"
    assert ask(stranger, b"UoU", write({"port": 0}))[0] == b"(O_O)"
    assert ask(stranger, b"UoU", b"nonsense")[0] == b"(O_O)"
    other = table.join(DbpSession, "tcp://192.0.2.1:3333")  # its own machine, on a new socket
    assert ask(other, b"UoU", write({"name": "camera", "port": 12}))[0] == b"u.u"


def test_an_update_is_answered_with_the_newly_agreed_timing() -> None:
    table = Table()
    service = service_at(table, {**CAMERA, "heartbeat": 4})
    assert ask(service, b"UoU", write({"heartbeat": 0.001})) == [b"u.u", b'{"heartbeat": 0.1}']
    other = table.join(DbpSession, "tcp://192.0.2.1:3333")  # its own machine, on a new socket
    assert ask(other, b"UoU", write({"name": "camera", "heartbeat": 7})) == [b"u.u", b'{"heartbeat": 7.0}']
    assert ask(service, b"UoU", write({"heartbeat": None})) == [b"u.u", b""]


def test_a_registration_without_an_address_gets_that_of_the_peer() -> None:
    table = Table()
    service = service_at(table, {"name": "radar", "ip": ""}, THERE)
    assert table.broker.directory.lookup("radar") == {"name": "radar", "ip": "192.0.2.2"}
    assert ask(service, b"UoU", write({"ip": None}))[0] == b"u.u"
    assert table.broker.directory.lookup("radar") == {"name": "radar", "ip": "192.0.2.2"}
    service_at(table, {"name": "sonar", "ip_address": "192.0.2.9"}, THERE)
    assert table.broker.directory.lookup("sonar") == {"name": "sonar", "ip_address": "192.0.2.9"}


def test_required_fields_are_refused_if_missing() -> None:
    table = Table(Tuning(dbp_require=["ip", "port", "function", "heartbeat"]))
    service = table.join(DbpSession, HERE)
    reason = b"a registration must contain port, function, heartbeat (the setting dbp.require)"
    assert ask(service, b"UwU", write({"name": "camera", "function": ""})) == [b"(O_O)", reason]
    assert (
        ask(service, b"UwU", write({"name": "camera", "port": 0, "function": "x", "heartbeat timing": 5}))[0] == b"OwO"
    )
    assert ask(service, b"UoU", write({"function": None}))[0] == b"(O_O)"
    assert ask(service, b"UoU", write({"function": "y"}))[0] == b"u.u"


def test_services_get_a_disconnect_when_the_broker_stops() -> None:
    table = Table()
    service = service_at(table, {**CAMERA, "heartbeat": 4})
    other = table.join(DbpSession, "tcp://192.0.2.1:3333")
    assert (
        ask(other, b"UwU", write(CAMERA))[0] == b"OwO"
    )  # replaced the first: only this connection has the service now
    client = table.join(DbpSession)
    table.broker.shutdown()
    message = only(other.hear())
    assert message[:2] == [b"", b"</3"] and message[3:] == [b""]
    assert service.hear() == client.hear() == []


def test_a_req_socket_gets_no_disconnect_when_the_broker_stops() -> None:
    """It would take it for the reply to its next request."""
    table = Table()
    service = table.join(DbpSession, HERE)
    link = ZmtpLink(table.hub, LinkHandler(), HERE, socket_type=b"ROUTER")
    link.peer_type = b"REQ"
    service.session.link = link
    service.say(b"", b"UwU", FLOAT, write({**CAMERA, "heartbeat": 4}))
    said = list(link.out)
    assert said
    table.broker.shutdown()
    assert list(link.out) == said


# --- dbp.registered_only ---


def test_only_registered_nodes_offer_services_and_publish() -> None:
    table = Table(Tuning(dbp_registered_only=True))
    broker = table.broker
    worker = table.join(EchoSession, HERE).session
    stranger = table.join(EchoSession, THERE).session
    refusal = broker.register_worker(worker, [b"echo"], None, WorkerTerms(1, 1))
    assert isinstance(refusal, Refusal) and refusal.denied and "dbp.registered_only" in refusal.text
    service = service_at(table, CAMERA, "tcp://192.0.2.1:2222")
    made = broker.register_worker(worker, [b"echo"], None, WorkerTerms(1, 1))
    assert isinstance(made, Worker)
    assert isinstance(broker.register_worker(stranger, [b"echo"], None, WorkerTerms(1, 1)), Refusal)
    broker.publish(stranger, b"t.one", b"\x00\x011")
    broker.publish(worker, b"t.two", b"\x00\x012")
    values = json.loads(ask(table.join(DbpSession), b"u_U", b"values:t.")[1])
    assert values == {"values:t.": {"t.two": "2"}}
    # ... and only as long as they are registered
    service.say(b"", b"</3", FLOAT)
    assert not made.alive and table.notes.departures[-1][0] == "left"
    broker.publish(worker, b"t.two", b"\x00\x013")
    values = json.loads(ask(table.join(DbpSession), b"u_U", b"values:t.")[1])
    assert values == {"values:t.": {"t.two": "2"}}


# --- heartbeats ---


def test_a_heartbeat_is_acknowledged_and_keeps_the_service() -> None:
    table = Table()
    service = service_at(table, {**CAMERA, "heartbeat": 2})
    for _ in range(10):
        table.wait(1.9)
        assert ask(service, b"<3", b"camera") == [b"u.u", b""]
    elsewhere = table.join(DbpSession, "tcp://192.0.2.1:4444")
    assert ask(elsewhere, b"<3", b"camera") == [b"u.u", b""]  # on a socket of its own, from the same ip
    assert table.broker.directory.lookup("camera") is not None


@pytest.mark.parametrize("message", [[b"u_U", b""], [b"u.u"], [b"UoU", b"{}"], [b"<3"]])
def test_any_command_but_disconnect_acts_as_a_heartbeat(message: list[bytes]) -> None:
    table = Table()
    service = service_at(table, {**CAMERA, "heartbeat": 2})
    for _ in range(4):
        table.wait(4.0)
        service.say(b"", message[0], FLOAT, *message[1:])
    assert table.broker.directory.lookup("camera") is not None
    table.wait(7.0)
    assert table.broker.directory.lookup("camera") is None


def test_the_broker_beats_at_the_agreed_interval_without_other_output() -> None:
    table = Table()
    service = service_at(table, {**CAMERA, "heartbeat": 2})
    heard = []
    for _ in range(10):
        table.wait(1.0)
        service.say(b"", b"u.u", FLOAT)
        heard += [message[1:2] + message[3:] for message in service.hear()]
    assert heard == [[b"<3", b"camera"]] * 5
    for _ in range(10):
        table.wait(1.0)
        # "SHOULD NOT send HEARTBEAT commands while also sending other commands"
        assert ask(service, b"<3", b"camera")[0] == b"u.u"


def test_nothing_is_sent_to_a_lost_silent_service() -> None:
    table = Table()
    service = service_at(table, {**CAMERA, "heartbeat": 2})
    table.wait(5.9)
    assert [message[1] for message in service.hear()] == [b"<3", b"<3"]
    table.wait(0.2)
    service.hear()
    client = table.join(DbpSession)
    assert json.loads(ask(client, b"u_U", b"camera")[1])["Error"]
    table.wait(60.0)
    assert service.hear() == []
    assert ask(service, b"<3", b"camera")[0] == b"</3"  # it must come back on a new socket
    assert_ended(table, service)


def test_an_update_may_change_or_end_the_agreed_beats() -> None:
    table = Table()
    service = service_at(table, CAMERA)
    table.wait(100.0)
    assert service.hear() == []
    assert ask(service, b"UoU", write({"heartbeat": 3}))[0] == b"u.u"
    table.wait(3.1)
    assert only(service.hear())[1] == b"<3"
    assert ask(service, b"UoU", write({"heartbeat": None}))[0] == b"u.u"
    table.wait(100.0)
    assert service.hear() == [] and table.broker.directory.lookup("camera") is not None


def test_a_req_socket_is_sent_no_heartbeats() -> None:
    table = Table()
    link = ZmtpLink(Hub(), LinkHandler(), HERE)
    link.peer_type = b"REQ"
    session = DbpSession(table.broker, link)
    table.broker.session_opened(session)
    message = join([b"", b"UwU", FLOAT, write({**CAMERA, "heartbeat": 1})])
    session.on_message(message, 0, len(message))
    assert len(link.out) == 1
    table.wait(2.5)
    assert len(link.out) == 1


# --- leaving, and what goes wrong ---


@pytest.mark.parametrize("word", [b"</3", b"<\\3"])
@pytest.mark.parametrize("body", [[], [b""], [b"camera"]])
def test_disconnect_is_answered_by_nothing_and_ends_the_registration(word: bytes, body: list[bytes]) -> None:
    table = Table()
    service = service_at(table, {**CAMERA, "heartbeat": 2})
    service.say(b"", word, FLOAT, *body)
    assert service.hear() == [] and table.broker.directory.lookup("camera") is None
    assert_ended(table, service)
    assert table.notes.violations == []


def test_disconnect_counts_only_from_the_registered_address() -> None:
    table = Table()
    service_at(table, CAMERA, HERE)
    table.join(DbpSession, THERE).say(b"", b"</3", FLOAT, b"camera")
    assert table.broker.directory.lookup("camera") is not None
    table.join(DbpSession, "tcp://192.0.2.1:9999").say(b"", b"</3", FLOAT, b"camera")
    assert table.broker.directory.lookup("camera") is None


def test_disconnect_before_registration_is_not_a_violation() -> None:
    table = Table()
    peer = table.join(DbpSession)
    peer.say(b"", b"</3", FLOAT)
    assert_ended(table, peer)
    assert table.notes.violations == []


@pytest.mark.parametrize(
    "message",
    [[b"<3"], [b"<3", b"camera"], [b"u.u"], [b"o_O", b"{}"], [b"OwO"], [b"(O_O)"], [b"OmO", b"no"]],
    ids=lambda message: message[0].decode(),
)
def test_a_valid_but_unexpected_command_gets_disconnect_and_then_nothing(message: list[bytes]) -> None:
    table = Table()
    peer = table.join(DbpSession)
    assert ask(peer, message[0], *message[1:]) == [b"</3", b""]
    assert len(table.notes.violations) == 1
    assert_ended(table, peer)


def test_a_second_registration_under_another_name_gets_disconnect() -> None:
    table = Table()
    service = service_at(table, CAMERA)
    assert ask(service, b"UwU", write({"name": "radar"})) == [b"</3", b""]
    assert_ended(table, service)
    assert set(table.broker.directory.all()) == {"camera"}


@pytest.mark.parametrize(
    "message",
    [
        [b""],
        [b"", b"u_U"],
        [b"", b"owo", FLOAT, b""],
        [b"x", b"u_U", FLOAT, b""],
        [b"u_U", FLOAT, b""],
        [b"", b"u_U", FLOAT, b"x" * 20_000],
    ],
    ids=lambda message: b" ".join(message)[:20].decode("latin-1"),
)
def test_after_an_invalid_message_the_peer_is_ignored(message: list[bytes]) -> None:
    table = Table()
    service_at(table, CAMERA)
    peer = table.join(DbpSession)
    peer.say(*message)
    assert peer.hear() == [] and len(table.notes.violations) == 1
    assert_ended(table, peer)
    assert table.broker.directory.lookup("camera") is not None


WORDS = st.sampled_from(
    [b"", *sorted(dbp.COMMANDS), FLOAT, b"1794724000", b"camera", write(CAMERA), write({**CAMERA, "heartbeat": 1})]
)
FRAMES = st.lists(st.one_of(WORDS, st.binary(max_size=12)), min_size=1, max_size=6)
LIKELY = st.tuples(st.sampled_from(sorted(dbp.COMMANDS)), FRAMES).map(lambda pair: [b"", pair[0], FLOAT, *pair[1]])


@given(st.lists(st.tuples(st.integers(0, 1), st.one_of(FRAMES, LIKELY)), max_size=10))
def test_no_input_raises(steps: list[tuple[int, list[bytes]]]) -> None:
    table = Table()
    peers = [table.join(DbpSession, HERE), table.join(DbpSession, THERE)]
    for number, message in steps:
        peers[number].say(*message)
        for answer in peers[number].hear():
            assert answer[0] == b"" and answer[1] in dbp.COMMANDS and len(answer) == 4
        table.wait(0.4)
        table.broker.catalog.check_invariants()
