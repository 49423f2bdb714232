"""What a peer may say before it is known, and inside CURVE: every command of the handshakes, sealed frames, and key files."""

from polydomo.errors import AccessDenied, ProtocolViolation, SettingError
from polydomo.wire import frames
from polydomo.wire.security.curve import CurveClient, CurveServer
from polydomo.wire.security.curve_traffic import CurveTraffic
from polydomo.wire.security.keys import format_certificate, parse_certificate
from polydomo.wire.security.mechanism import Mechanism
from polydomo.wire.security.plain import PlainClient, PlainServer
from tests.fuzz.targets import target
from tests.wire.security.curve_rig import World, say, split

KEY = bytes(range(32))
SERVER_STAGES = (b"HELLO", b"INITIATE", b"HELLO", b"READY", b"ERROR")
CLIENT_STAGES = (b"WELCOME", b"READY", b"WELCOME", b"HELLO", b"ERROR")


def stage(world: World, number: int) -> tuple[CurveServer, CurveClient]:
    """Two ends: the server expects HELLO (0), INITIATE (1, 2); the client WELCOME (0, 1), READY (2)."""
    server, client = world.server(), world.client()
    hello = client.begin()
    if number >= 1:
        welcome = say(server, hello)
        if number >= 2:
            say(client, welcome)
    return server, client


def commanded(mechanism: Mechanism, name: bytes, data: bytes) -> None:
    try:
        mechanism.command(name, data)
    except ProtocolViolation:
        assert not mechanism.done
    else:
        assert mechanism.done or name in (b"HELLO", b"WELCOME")


@target
def curve_server(data: bytes) -> None:
    """The first byte chooses the stage and the command; the rest is its content."""
    first = data[0] if data else 0
    server, _ = stage(World(), first % 2)
    commanded(server, SERVER_STAGES[first // 2 % len(SERVER_STAGES)], data[1:])
    assert not server.done or server.principal == "alice"


@target
def curve_client(data: bytes) -> None:
    first = data[0] if data else 0
    _, client = stage(World(), 2 if first % 2 else 1)
    commanded(client, CLIENT_STAGES[first // 2 % len(CLIENT_STAGES)], data[1:])


@target
def curve_traffic(data: bytes) -> None:
    """Bytes after honest ones, in two pieces: nothing that was not sealed comes out."""
    server, client = CurveTraffic(KEY, True, 1, 2, 4096), CurveTraffic(KEY, False, 2, 1, 4096)
    plain = frames.join([b"", b"MDPC01", b"echo", b"hello"])
    heard = b""
    try:
        heard = server.open(client.seal(plain) + data[: len(data) // 2])
        heard += server.open(data[len(data) // 2 :])
    except ProtocolViolation:
        pass
    assert heard in (b"", plain) or heard.startswith(plain)


@target
def plain_handshake(data: bytes) -> None:
    def nobody(user: str, password: str) -> str:
        raise AccessDenied("400", "nobody")

    for mechanism in (PlainServer(nobody), PlainClient("alice", "secret", b"REQ")):
        for name in (b"HELLO", b"WELCOME", b"INITIATE", b"READY", b"ERROR"):
            try:
                mechanism.command(name, data)
            except ProtocolViolation:
                pass
    server = PlainServer(lambda user, password: user or "x")
    try:
        server.command(b"HELLO", b"\x05alice\x00")
        server.command(b"INITIATE", data)
    except ProtocolViolation:
        assert not server.done


@target
def certificate_file(data: bytes) -> None:
    try:
        found = parse_certificate(data.decode("utf-8", "replace"), "file")
    except SettingError:
        return
    again = parse_certificate(format_certificate(found.public, found.secret), "file")
    assert (again.public, again.secret) == (found.public, found.secret)


def honest() -> "dict[str, list[bytes]]":
    world = World()
    server, client = world.server(), world.client()
    hello = client.begin()
    welcome = say(server, hello)
    initiate = say(client, welcome)
    ready = say(server, initiate)
    contents = [split(one)[1] for one in (hello, welcome, initiate, ready)]
    sealer = CurveTraffic(KEY, False, 6, 1, 4096)
    keys = world.client_keys
    return {
        "curve_server": [b"\x00" + contents[0], b"\x03" + contents[2], b"\x00" + contents[0][:100]],
        "curve_client": [b"\x00" + contents[1], b"\x03" + contents[3]],
        "curve_traffic": [
            sealer.seal(frames.join([b"", b"MDPC01", b"echo", b"x" * 300])),
            sealer.seal(b"\x04\x07\x04PING\x00\x00"),
        ],
        "plain_handshake": [b"\x05alice\x06secret", b"\x0bSocket-Type\x00\x00\x00\x03REQ", b"\x03400"],
        "certificate_file": [
            format_certificate(keys.public, keys.secret, "alice").encode(),
            format_certificate(keys.public).encode(),
        ],
    }


def write_corpus(directory: str) -> None:
    """Run by hand: ``python -c "from tests.fuzz import security; security.write_corpus('tests/fuzz/corpus')"``."""
    from pathlib import Path

    for name, several in honest().items():
        place = Path(directory) / name
        place.mkdir(exist_ok=True)
        for number, data in enumerate(several):
            (place / f"honest-{number}").write_bytes(data)
