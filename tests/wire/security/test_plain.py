"""The PLAIN handshake between our two ends, and attempts that must fail."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.errors import AccessDenied, ProtocolViolation
from polydomo.wire.security.mechanism import command, parse_command, properties
from polydomo.wire.security.plain import PlainClient, PlainServer, credentials


def check(user: str, password: str) -> str:
    if (user, password) != ("alice", "secret"):
        raise AccessDenied("400", "wrong user or password")
    return user


def say(mechanism: PlainServer | PlainClient, wire: bytes) -> bytes:
    return mechanism.command(*parse_command(wire[2:]))


def test_the_handshake() -> None:
    server, client = PlainServer(check), PlainClient("alice", "secret", b"REQ", b"me")
    say(client, say(server, say(client, say(server, client.begin()))))
    assert server.done and client.done
    assert (server.principal, server.peer_type, server.our_type, server.identity) == ("alice", b"REQ", b"ROUTER", b"me")
    assert client.peer_type == b"ROUTER"


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("bob", "secret"), ("", "")])
def test_wrong_credentials_are_denied(user: str, password: str) -> None:
    server = PlainServer(check)
    with pytest.raises(AccessDenied):
        say(server, PlainClient(user, password, b"REQ").begin())
    with pytest.raises(ProtocolViolation, match="out of order"):
        server.command(b"INITIATE", properties([(b"Socket-Type", b"REQ")]))
    assert not server.done and not server.principal


def test_commands_out_of_order() -> None:
    server = PlainServer(check)
    for name in (b"INITIATE", b"READY", b"WELCOME", b"ERROR"):
        with pytest.raises(ProtocolViolation):
            server.command(name, b"")
    say(server, PlainClient("alice", "secret", b"REQ").begin())
    with pytest.raises(ProtocolViolation):
        say(server, PlainClient("alice", "secret", b"REQ").begin())
    client = PlainClient("alice", "secret", b"REQ")
    with pytest.raises(ProtocolViolation):
        client.command(b"READY", b"")
    with pytest.raises(AccessDenied):
        say(client, command(b"ERROR", b"\x03400"))


@given(st.binary(max_size=60))
def test_any_bytes_are_credentials_or_a_violation(data: bytes) -> None:
    try:
        user, password = credentials(data)
    except ProtocolViolation:
        return
    assert len(user.encode()) + len(password.encode()) + 2 == len(data)
