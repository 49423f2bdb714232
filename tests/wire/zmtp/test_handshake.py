"""ZMTP, greeting and handshake: every version in both roles, in any split, and input that must close the connection."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polydomo.limits import MAX_HANDSHAKE
from polydomo.wire.close_reason import CloseCause
from polydomo.wire.frames import join
from polydomo.wire.security.mechanism import ACCEPTS, SERVES, command, properties
from polydomo.wire.zmtp.handshake import NUMBERS_2, PARTIAL_GREETING, SIGNATURE, TYPES_2
from polydomo.wire.zmtp.link import ZmtpLink
from tests.wire.zmtp.rig import (
    GREETING_30,
    GREETING_31,
    converse,
    dialer,
    greeting_2,
    in_traffic,
    listener,
    ready,
    taken,
)

MESSAGES = [join([b""]), join([b"", b"one", b"x" * 300]), join([b"y" * 255]), join([b"z" * 256, b""])]

PEERS = {
    "3.1": (GREETING_31 + ready(), (3, 1)),
    "3.0": (GREETING_30 + ready(identity=b"me"), (3, 0)),
    "2.0": (greeting_2(5, b"me"), (2, 0)),
}


def ended(link: ZmtpLink) -> str:
    """Why the link wants to be closed; it must not have opened, and takes no more."""
    assert link.closing is not None
    assert link.closing.startswith("protocol violation: ")
    assert not link.open
    before = link.closing
    link.receive(GREETING_31 + ready())
    assert link.closing == before
    return link.closing.removeprefix("protocol violation: ")


# --- both ends


@pytest.mark.parametrize("step", [0, 1, 7])
@pytest.mark.parametrize("socket_type", sorted(ACCEPTS))
def test_our_two_ends_understand_each_other(socket_type: bytes, step: int) -> None:
    (server, heard), (client, answered) = listener(), dialer(socket_type)
    converse(server, client, step)
    assert server.open and client.open
    assert server.version == client.version == (3, 1)
    assert server.peer_type == client.our_type == socket_type
    assert client.peer_type == server.our_type == SERVES[socket_type]
    for message in MESSAGES:
        client.send(message)
        server.send(message)
    converse(server, client, step)
    assert heard.events == answered.events == ["open", *MESSAGES]


def test_a_listener_reads_the_greeting_before_it_sends() -> None:
    link, _ = listener()
    link.receive(b"")
    assert taken(link) == b""
    link.receive(b"\xff")
    # "signature and major version number": all that may be said before theirs is known.
    assert taken(link) == PARTIAL_GREETING
    link.receive(GREETING_31[1:])
    assert taken(link) == GREETING_31[11:], "no READY before the peer's: it tells which socket type fits"
    link.receive(ready(b"REQ"))
    assert taken(link) == ready(b"ROUTER")


def test_a_dialer_begins_and_sends_its_ready_with_its_greeting() -> None:
    link, log = dialer()
    assert taken(link) == PARTIAL_GREETING
    link.receive(GREETING_31)
    assert taken(link) == GREETING_31[11:] + ready(b"DEALER")
    assert not link.open
    link.receive(ready(b"ROUTER"))
    assert link.open and log.events == ["open"] and taken(link) == b""


def test_a_peer_that_sends_everything_at_once_is_served() -> None:
    """A dialing libzmq sends its READY before it has seen ours."""
    link, log = listener()
    link.receive(GREETING_31 + ready() + MESSAGES[1])
    assert log.events == ["open", MESSAGES[1]]
    assert taken(link) == GREETING_31 + ready(b"ROUTER")


@pytest.mark.parametrize("version", sorted(PEERS))
def test_any_split_gives_the_same_messages(version: str) -> None:
    opening, expected = PEERS[version]
    stream = opening + b"".join(MESSAGES)
    for cut in range(1, len(stream)):
        link, log = listener()
        link.receive(stream[:cut])
        link.receive(stream[cut:])
        assert log.events == ["open", *MESSAGES], f"split at {cut}"
        assert link.version == expected and link.closing is None


@given(st.sampled_from(sorted(PEERS)), st.lists(st.binary(max_size=600), max_size=8), st.data())
@settings(max_examples=60)
def test_any_number_of_splits_gives_the_same_messages(version: str, frames: list[bytes], data: st.DataObject) -> None:
    opening, expected = PEERS[version]
    messages = [join(frames[i : i + 3]) for i in range(0, len(frames), 3)]
    stream = opening + b"".join(messages)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=40).map(sorted))
    link, log = listener()
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        link.receive(stream[begin:end])
    assert log.events == ["open", *messages] and link.closing is None
    assert link.version == expected


@pytest.mark.parametrize("version", ["3.0", "3.1"])
def test_a_dialer_in_any_split(version: str) -> None:
    greeting = GREETING_30 if version == "3.0" else GREETING_31
    stream = greeting + ready(b"ROUTER") + b"".join(MESSAGES)
    for cut in range(1, len(stream)):
        link, log = dialer()
        link.receive(stream[:cut])
        link.receive(stream[cut:])
        assert log.events == ["open", *MESSAGES], f"split at {cut}"
        assert link.version == (3, int(version[2]))


def test_a_later_version_is_met_with_ours() -> None:
    """ "A peer MUST accept higher protocol versions as valid." """
    link, _ = listener()
    link.receive(SIGNATURE + b"\x04\x07NULL" + bytes(48) + ready())
    assert link.open and link.version == (3, 1)


def test_identity_is_passed_on_and_bounded() -> None:
    link, _ = listener()
    link.receive(GREETING_31 + ready(identity=b"i" * 255))
    assert link.identity == b"i" * 255
    link, _ = listener()
    link.receive(GREETING_31 + ready(identity=b"i" * 256))
    assert "identity" in ended(link)


def test_names_of_properties_are_read_in_any_case() -> None:
    link, _ = listener()
    link.receive(GREETING_31 + command(b"READY", properties([(b"SOCKET-TYPE", b"REQ"), (b"x-other", b"1")])))
    assert link.open and link.peer_type == b"REQ"


# --- ZMTP 2.0


@pytest.mark.parametrize("socket_type", [b"DEALER", b"REQ", b"SUB", b"PUB", b"ROUTER", b"XPUB", b"XSUB"])
def test_zmtp_2_peers_are_served(socket_type: bytes) -> None:
    """The dialog of libzmq 3.x: ten bytes, and it waits; ours with the version; its revision and type; ours; its identity."""
    link, log = listener()
    link.receive(SIGNATURE)
    assert taken(link) == PARTIAL_GREETING
    link.receive(b"\x01" + bytes((NUMBERS_2[socket_type],)))
    assert taken(link) == bytes((NUMBERS_2[SERVES[socket_type]], 0, 0))
    assert not link.open
    link.receive(b"\x00\x03abc")
    assert link.open and link.version == (2, 0)
    assert (link.peer_type, link.our_type, link.identity) == (socket_type, SERVES[socket_type], b"abc")
    link.receive(MESSAGES[1])
    assert log.events == ["open", MESSAGES[1]]
    link.send(MESSAGES[2])
    assert taken(link) == MESSAGES[2]


def test_a_dialer_meets_zmtp_2() -> None:
    for cut in range(1, 14):
        link, log = dialer()
        taken(link)
        stream = greeting_2(6)
        link.receive(stream[:cut])
        link.receive(stream[cut:] + MESSAGES[0])
        assert taken(link) == bytes((NUMBERS_2[b"DEALER"], 0, 0))
        assert log.events == ["open", MESSAGES[0]]


def test_zmtp_2_knows_no_commands() -> None:
    link, log = listener()
    link.receive(greeting_2() + command(b"PING", b"\x00\x00"))
    assert log.events == ["open"]
    assert link.closing is not None and "frame flags 0x04" in link.closing
    link, _ = listener()
    link.receive(greeting_2())
    taken(link)
    link.ping(1.0)
    assert taken(link) == b""


@pytest.mark.parametrize(
    ("said", "word"),
    [
        (greeting_2(7), "unknown ZMTP 2.0 socket type 7"),
        (greeting_2(4), "cannot talk to a broker"),
        (SIGNATURE + b"\x01\x05\x01\x00", "identity"),
        (SIGNATURE + b"\x01\x05\x02" + bytes(8), "identity"),
    ],
)
def test_zmtp_2_peers_that_cannot_be_served(said: bytes, word: str) -> None:
    link, _ = listener()
    link.receive(said)
    assert word in ended(link)


def test_the_types_of_zmtp_2_have_both_directions() -> None:
    assert {NUMBERS_2[name]: name for name in NUMBERS_2} == TYPES_2


# --- what is no handshake


@pytest.mark.parametrize(
    ("said", "word"),
    [
        (b"GET / HTTP/1.1\r\n", "not a ZMTP greeting"),
        (b"\x01\x00", "not a ZMTP greeting"),
        (b"\xff" + bytes(8) + b"\x7e", "ZMTP 1.0"),
        (SIGNATURE + b"\x00", "ZMTP 1.0"),
        (SIGNATURE + b"\x03\x01PLAIN" + bytes(47), "'PLAIN'"),
        (SIGNATURE + b"\x03\x01CURVE" + bytes(47), "this side NULL"),
        (SIGNATURE + b"\x03\x01null" + bytes(48), "'null'"),
        (GREETING_31 + join([b"hello"]), "message before the handshake was done"),
        (GREETING_31 + b"\x08\x01x", "message before the handshake was done"),
        (GREETING_31 + command(b"PING", b"\x00\x00"), "PING"),
        (GREETING_31 + command(b"HELLO", b""), "HELLO"),
        (GREETING_31 + command(b"ERROR", b"\x0aInvalid id"), "Invalid id"),
        (GREETING_31 + b"\x04\x00", "command without a name"),
        (GREETING_31 + b"\x04\x03\x00ab", "command without a name"),
        (GREETING_31 + b"\x04\x03\x05ab", "command without a name"),
        (GREETING_31 + command(b"READY", b""), "socket type ''"),
        (GREETING_31 + ready(b"REP"), "socket type 'REP'"),
        (GREETING_31 + ready(b"PAIR"), "socket type 'PAIR'"),
        (GREETING_31 + ready(b"\xff\xfe" * 40), "socket type"),
        (GREETING_31 + command(b"READY", b"\x0bSocket-Type\x00\x00\x00\xffDEALER"), "longer than its command"),
        (GREETING_31 + command(b"READY", b"\x00\x00\x00\x00\x00"), "ends inside a property"),
        (GREETING_31 + command(b"READY", b"\x0bSock"), "ends inside a property"),
        (GREETING_31 + command(b"READY", bytes(MAX_HANDSHAKE)), f"longer than {MAX_HANDSHAKE} bytes"),
        (GREETING_31 + b"\x06" + (2**63).to_bytes(8, "big"), f"longer than {MAX_HANDSHAKE} bytes"),
    ],
)
def test_input_that_ends_the_handshake(said: bytes, word: str) -> None:
    link, log = listener()
    link.receive(said)
    assert word in ended(link)
    assert log.events == []
    for cut in range(1, len(said), max(1, len(said) // 40)):
        other, _ = listener()
        other.receive(said[:cut])
        other.receive(said[cut:])
        assert word in ended(other), f"split at {cut}"


def test_a_refusal_is_sent_as_error() -> None:
    """ "ZMTP allows an explicit fatal error response during the mechanism handshake" """
    link, _ = listener()
    link.receive(GREETING_31)
    taken(link)
    link.receive(ready(b"REP"))
    observed = taken(link)
    assert observed[:2] == b"\x04" + bytes((len(observed) - 2,))
    assert observed[2:8] == b"\x05ERROR" and observed[8] == len(observed) - 9 and b"REP" in observed
    other, _ = dialer()
    other.receive(GREETING_31)
    taken(other)
    other.receive(observed)
    assert "peer refused the handshake" in ended(other)
    assert taken(other) == b"", "an ERROR is not answered with an ERROR"


def test_a_dialer_meets_the_wrong_socket() -> None:
    link, _ = dialer(b"DEALER")
    link.receive(GREETING_31 + ready(b"XPUB"))
    assert "a DEALER cannot talk to a 'XPUB'" in ended(link)


def test_the_longest_handshake_is_not_too_long() -> None:
    link, _ = listener()
    rest = MAX_HANDSHAKE - 9 - 6 - 22 - 9
    long = command(b"READY", properties([(b"Socket-Type", b"DEALER"), (b"Note", b"x" * rest)]))
    assert len(long) == MAX_HANDSHAKE
    link.receive(GREETING_31)
    for i in range(len(long)):
        link.receive(long[i : i + 1])
    assert link.open


@given(st.binary(max_size=200), st.booleans(), st.booleans())
@settings(max_examples=200)
def test_no_handshake_raises(noise: bytes, greeted: bool, listening: bool) -> None:
    link, _ = listener() if listening else dialer()
    link.receive((GREETING_31 if greeted else b"\xff") + noise)
    link.receive(noise)
    if link.closing is not None:
        assert link.closing.startswith("protocol violation: ")


def test_a_lost_connection_is_reported_once() -> None:
    link, log = in_traffic()
    link.lost(CloseCause.CONNECTION_LOST, "reset")
    link.lost()
    assert log.events[-1] == "closed: connection lost: reset" and len(log.events) == 2
    link.send(MESSAGES[0])
    assert link.out == [] and not link.open
    link, log = in_traffic()
    link.close(CloseCause.OTHER, "asked to")
    link.lost()
    assert log.events[-1] == "closed: asked to"
