"""The CURVE handshake: every command as in the RFC, and attacks that must fail."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.errors import AccessDenied, ProtocolViolation
from polydomo.wire.security.curve import INITIATE_LEAST, KeyPair, new_pair
from polydomo.wire.security.mechanism import command
from polydomo.wire.security.sodium import public_key, shared_key
from tests.attributes import attributes
from tests.wire.security.curve_rig import Dice, World, say, split


def test_the_handshake_names_the_principal_and_both_socket_types() -> None:
    world = World()
    server, client = world.shaken()
    assert server.principal == "alice"
    assert (server.our_type, server.peer_type) == (b"ROUTER", b"DEALER")
    assert (client.our_type, client.peer_type) == (b"DEALER", b"ROUTER")


@pytest.mark.parametrize(
    ("theirs", "ours"), [(b"REQ", b"ROUTER"), (b"SUB", b"XPUB"), (b"PUB", b"XSUB"), (b"DEALER", b"ROUTER")]
)
def test_every_socket_type(theirs: bytes, ours: bytes) -> None:
    world = World()
    server, client = world.server(), world.client(socket_type=theirs)
    say(client, say(server, say(client, say(server, client.begin()))))
    assert server.done and client.done and server.our_type == ours


def test_the_sizes_that_the_rfc_gives() -> None:
    world = World()
    server, client = world.server(), world.client()
    hello = client.begin()
    welcome = say(server, hello)
    initiate = say(client, welcome)
    ready = say(server, initiate)
    assert (len(hello) - 2, len(welcome) - 2) == (200, 168)
    assert len(split(initiate)[1]) + 9 >= 257 and len(split(ready)[1]) + 6 >= 30
    assert len(hello) > len(welcome), "a HELLO must not be answered with more than it has"


def test_an_unknown_key_is_denied() -> None:
    world = World()
    server, client = world.server(), world.client(new_pair(world.dice))
    initiate = say(client, say(server, client.begin()))
    with pytest.raises(AccessDenied) as denied:
        say(server, initiate)
    assert denied.value.status == "400" and not server.done


def test_the_wrong_server_key_ends_at_hello() -> None:
    world = World()
    client = world.client(server_key=new_pair(world.dice).public)
    with pytest.raises(ProtocolViolation, match="HELLO"):
        say(world.server(), client.begin())
    with pytest.raises(ProtocolViolation, match="server_key is probably not"):
        client.command(b"ERROR", b"\x04text")


def test_a_server_without_its_secret_key_cannot_say_welcome() -> None:
    world = World()
    client = world.client()
    hello = client.begin()
    impostor = World(2)
    impostor.server_keys = KeyPair(world.server_keys.public, impostor.server_keys.secret)
    with pytest.raises(ProtocolViolation):
        say(impostor.server(), hello)
    other = World(3)
    with pytest.raises(ProtocolViolation, match="WELCOME"):
        say(client, say(other.server(), other.client().begin()))


def test_another_clients_public_key_is_not_enough() -> None:
    """The vouch: who has only alice's public key cannot prove to be alice."""
    world = World()
    thief = KeyPair(world.client_keys.public, world.dice(32))
    server, client = world.server(), world.client(thief)
    initiate = say(client, say(server, client.begin()))
    with pytest.raises(ProtocolViolation, match="vouch"):
        say(server, initiate)
    assert not server.done and not server.principal


def test_a_vouch_for_another_server_is_refused() -> None:
    """A server that alice talks to cannot pass her vouch on and be taken for her."""
    world = World()
    server, client = world.server(), world.client()
    welcome = say(server, client.begin())
    client._server_key = new_pair(world.dice).public  # what it vouches for, not what it talks to
    with pytest.raises(ProtocolViolation, match="vouch is for another"):
        say(server, say(client, welcome))


def test_a_cookie_counts_only_on_its_connection() -> None:
    world = World()
    first, second, client = world.server(), world.server(), world.client()
    hello = client.begin()
    initiate = say(client, say(first, hello))
    say(second, hello)
    with pytest.raises(ProtocolViolation, match="cookie"):
        say(second, initiate)  # a whole handshake, replayed
    with pytest.raises(ProtocolViolation, match="out of order"):
        say(world.server(), initiate)
    say(first, initiate)
    with pytest.raises(ProtocolViolation, match="out of order"):
        say(first, initiate)


def test_a_cookie_lives_as_long_as_its_key() -> None:
    world = World()
    kept, lost = world.server(), world.server()
    one, two = world.client(), world.client()
    first, second = say(one, say(kept, one.begin())), say(two, say(lost, two.begin()))
    world.cookies.rotate(world.dice(32))
    say(kept, first)
    assert kept.done, "the key before this one still opens"
    world.cookies.rotate(world.dice(32))
    with pytest.raises(ProtocolViolation, match="cookie"):
        say(lost, second)


def test_after_welcome_the_server_keeps_no_keys_of_the_connection() -> None:
    world = World()
    server = world.server()
    before = attributes(server, bytes)
    say(server, world.client().begin())
    after = attributes(server, bytes)
    grown = {name for name, value in after.items() if before.get(name) != value}
    assert grown == {"_cookie_name"} and len(after["_cookie_name"]) == 16


@pytest.mark.parametrize("name", [b"INITIATE", b"READY", b"WELCOME", b"MESSAGE", b"ERROR", b"PING", b"hello"])
def test_only_hello_may_come_first(name: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="out of order"):
        World().server().command(name, bytes(300))


def test_hello_twice() -> None:
    world = World()
    server = world.server()
    hello = world.client().begin()
    say(server, hello)
    with pytest.raises(ProtocolViolation, match="out of order"):
        say(server, hello)


def test_initiate_must_count_up() -> None:
    world = World()
    server, client = world.server(), world.client()
    name, data = split(say(client, say(server, client.begin())))
    for nonce in (0, 1):
        with pytest.raises(ProtocolViolation, match="nonce"):
            server.command(name, data[:96] + nonce.to_bytes(8, "big") + data[104:])


@given(st.integers(0, 199), st.integers(1, 255))
def test_a_changed_hello_is_refused(place: int, by: int) -> None:
    world = World()
    wire = bytearray(world.client().begin())
    wire[2 + place] ^= by
    server = world.server()
    try:
        say(server, bytes(wire))
    except ProtocolViolation:
        return
    # The nonce and the box are the same only if nothing was changed; padding, version and name are checked one by one.
    # One bit of a public key is ignored by Curve25519.
    assert place == 80 + 31 and by == 0x80


@given(st.data())
def test_a_changed_initiate_is_refused(data: st.DataObject) -> None:
    world = World()
    server, client = world.server(), world.client()
    name, content = split(say(client, say(server, client.begin())))
    place = data.draw(st.integers(0, len(content) - 1))
    wire = bytearray(content)
    wire[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ProtocolViolation):
        server.command(name, bytes(wire))
    assert not server.done


@given(st.data())
def test_a_cut_command_is_refused(data: st.DataObject) -> None:
    world = World()
    server, client = world.server(), world.client()
    steps = [client.begin()]
    steps.append(say(server, steps[0]))
    steps.append(say(client, steps[1]))
    steps.append(say(server, steps[2]))
    number = data.draw(st.integers(0, 3))
    name, content = split(steps[number])
    cut = content[: data.draw(st.integers(0, len(content) - 1))]
    world = World()
    server, client = world.server(), world.client()
    begun = client.begin()
    if number == 0:
        victim: object = server
    elif number == 1:
        victim = client
    else:
        welcome = say(server, begun)
        victim = server
        if number == 3:
            say(client, welcome)
            victim = client
    with pytest.raises(ProtocolViolation):
        victim.command(name, cut)  # type: ignore[attr-defined]


@given(st.sampled_from([b"HELLO", b"INITIATE", b"WELCOME", b"READY", b"ERROR"]), st.binary(max_size=400))
def test_any_bytes_are_a_violation(name: bytes, data: bytes) -> None:
    world = World()
    server, client = world.server(), world.client()
    for mechanism in (server, client):
        mechanism.begin()
        with pytest.raises(ProtocolViolation):
            mechanism.command(name, data)
    say(server, world.client().begin())
    with pytest.raises(ProtocolViolation):
        server.command(b"INITIATE", data.ljust(INITIATE_LEAST, b"x"))


@pytest.mark.parametrize("point", [bytes(32), b"\x01" + bytes(31)])
def test_points_of_low_order_are_refused(point: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="point"):
        shared_key(point, Dice()(32))


def test_an_error_contains_the_reason() -> None:
    for reason, status in ((b"400", "400"), (b"300", "300")):
        client = World().client()
        client.begin()
        with pytest.raises(AccessDenied) as denied:
            say(client, command(b"ERROR", bytes((len(reason),)) + reason))
        assert denied.value.status == status
    client = World().client()
    client.begin()
    with pytest.raises(ProtocolViolation, match="something else"):
        say(client, command(b"ERROR", b"\x0esomething else"))


def test_secrets_are_not_shown() -> None:
    pair = new_pair(Dice())
    assert pair.secret.hex() not in repr(pair) and pair.public == public_key(pair.secret)
    assert World().server().name == b"CURVE"
