"""Commands, metadata, the NULL handshake, and which sockets may talk to each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.errors import ProtocolViolation
from polydomo.wire.security.mechanism import (
    ACCEPTS,
    BROKER_PROPERTY,
    SERVES,
    Mechanism,
    Null,
    command,
    fitting,
    parse_command,
    parse_properties,
    properties,
)

names = st.binary(min_size=1, max_size=255)


@given(names, st.binary(max_size=400))
def test_a_command_is_decoded_unchanged(name: bytes, data: bytes) -> None:
    wire = command(name, data)
    size = 1 + len(name) + len(data)
    start = 2 if size < 256 else 9
    assert wire[0] == (4 if size < 256 else 6)
    assert int.from_bytes(wire[1:start], "big") == len(wire) - start
    assert parse_command(wire[start:]) == (name, data)


@given(st.dictionaries(names.map(bytes.lower), st.binary(max_size=300), max_size=6))
def test_properties_come_back_in_lower_case(pairs: dict[bytes, bytes]) -> None:
    wire = properties(
        [(name.upper() if name.upper().lower() == name else name, value) for name, value in pairs.items()]
    )
    assert parse_properties(wire) == pairs


@given(st.binary(max_size=80))
def test_any_bytes_are_metadata_or_a_violation(data: bytes) -> None:
    try:
        parse_properties(data)
        parse_command(data)
    except ProtocolViolation:
        pass


def test_null_listener_waits_and_fits_its_type() -> None:
    null = Null(True, b"ROUTER")
    assert null.begin() == b"" and not null.done
    answer = null.command(b"READY", properties([(b"Socket-Type", b"SUB")]))
    pairs = [(b"Socket-Type", b"XPUB"), (BROKER_PROPERTY, b"broker")]
    assert answer == command(b"READY", properties(pairs)), "an XPUB has no identity, and says that it is a broker's"
    assert null.done and (null.our_type, null.peer_type) == (b"XPUB", b"SUB")


def test_null_dialer_begins() -> None:
    null = Null(False, b"DEALER", b"me")
    assert null.begin() == command(b"READY", properties([(b"Socket-Type", b"DEALER"), (b"Identity", b"me")]))
    assert null.command(b"READY", properties([(b"Socket-Type", b"ROUTER"), (b"Identity", b"you")])) == b""
    assert null.done and null.identity == b"you"


@pytest.mark.parametrize("name", [b"ERROR", b"HELLO", b"WELCOME", b"PING"])
def test_null_knows_only_ready(name: bytes) -> None:
    null = Null(True, b"ROUTER")
    with pytest.raises(ProtocolViolation):
        null.command(name, b"\x04oops")
    assert not null.done


def test_every_type_we_dial_with_is_one_we_serve() -> None:
    for ours, theirs in ACCEPTS.items():
        assert SERVES[ours] in theirs
        for other in theirs:
            assert fitting(False, ours, other) == ours


def test_types_that_cannot_talk() -> None:
    for theirs in (b"REP", b"PUSH", b"PULL", b"PAIR", b"", b"router"):
        with pytest.raises(ProtocolViolation):
            fitting(True, b"ROUTER", theirs)
    with pytest.raises(ProtocolViolation):
        fitting(False, b"SUB", b"ROUTER")
    with pytest.raises(ProtocolViolation):
        fitting(False, b"PAIR", b"PAIR")


def test_the_base_is_an_interface() -> None:
    mechanism = Mechanism()
    assert mechanism.begin() == b"" and not mechanism.done
    with pytest.raises(NotImplementedError):
        mechanism.command(b"READY", b"")
