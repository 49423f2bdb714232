"""Peers that announce polydomo's extensions: what they send, and the list itself."""

from polydomo.protocols.ends import ANNOUNCED
from polydomo.wire import frames
from polydomo.wire.link import Bounds, Hub
from polydomo.wire.security.mechanism import properties
from polydomo.wire.zmtp.extensions import PROPERTY, Extensions, parse
from polydomo.wire.zmtp.link import ZmtpLink
from tests.fuzz.fast_paths import TOKENS, compare
from tests.fuzz.targets import GREETING, Messages, Room, target

OURS = Extensions(
    4,
    cancel=True,
    deadline=True,
    options=True,
    give_back=True,
    key=True,
    cancel_jobs=True,
    deadline_jobs=True,
    window=True,
    fail=True,
    progress=True,
    max_message=8192,
).encode()
BOUNDS = Bounds(max_frame=4096, max_frames=64, max_message=8192, max_handshake=1024, extensions=OURS)
DCP = [b"", b"DGBX\x01"]
EMQP = [b"", b"eMQP/1.0"]


def extended(room: Room) -> ZmtpLink:
    """A peer that understands everything."""
    link = room.zmtp(bounds=BOUNDS, said=ready(b"DEALER"))
    assert link.extensions.cancel
    return link


def ready(socket_type: bytes) -> bytes:
    content = b"\x05READY" + properties([(b"Socket-Type", socket_type), (PROPERTY, ANNOUNCED)])
    return b"\x04" + bytes((len(content),)) + content


@target
def extended_peer(data: bytes) -> None:
    """What a peer with extensions sends is understood or refused, by the fast path as by the general one."""
    compare(data, extended, [])


@target
def extension_list(data: bytes) -> None:
    found = parse(data)
    assert parse(found.encode()).encode() == found.encode()
    link = ZmtpLink(Hub(), Messages(), "peer", bounds=BOUNDS)
    content = b"\x05READY" + properties([(b"Socket-Type", b"DEALER"), (PROPERTY, data[:150])])
    link.receive(GREETING + b"\x04" + bytes((len(content),)) + content)
    assert link.open and link.extensions.encode() == parse(data[:150]).encode()


def to_workers() -> list[bytes]:
    """What a broker says to workers with extensions."""
    token = TOKENS[0]
    said = [
        [b"MDXW01", b"WITHIN", b"1500", token, b"", b"id", b"body"],
        [b"MDXW01", b"CANCEL", token],
        [b"MDXW01", b"REVOKE", token],
        [*DCP, b"\x09", b"1500", b"echo", token, b"", b"id", b"", b"body"],
        [*DCP, b"\x08", token],
        [*DCP, b"\x0b", token],
        [*EMQP, b"REQUEST", token, b"echo", b"reply-requested,timeout:2,timeout-ms:1500", b"body"],
        [*EMQP, b"CANCEL", b"1.1", token],
        [*EMQP, b"REVOKE", b"1.2", token],
    ]
    return [frames.join(message) for message in said]


def honest() -> dict[str, list[bytes]]:
    mdx = [[b"MDXC01", b"WITHIN", b"30000", b"echo", b"%d" % (number % 7), b"x" * number] for number in range(6)]
    mdx += [[b"MDXC01", b"CANCEL", b"3"], [b"MDXC01", b"CANCEL", b"4", b"timeout"], [b"MDXC01", b"CANCEL", b"none"]]
    mdx += [[b"MDXC01", b"WITHIN", b"1", b"echo", b"9", b"x"], [b"MDXC01", b"\x01", b"echo", b"8", b"x"]]
    keyed = [[b"MDXC01", b"KEYED", b"0", b"key", b"echo", b"%d" % number, b"x"] for number in range(3)]
    keyed += [[b"MDXC01", b"KEYED", b"500", b"key", b"echo", b"5", b"other"], [b"MDXC01", b"CANCEL", b"0"]]
    worker = [[b"MDXW01", b"\x01", b"echo"], [b"MDXW01", b"CREDIT", b"3", b"1"]]
    worker += [[b"MDXW01", b"\x04", token, b"", token, b"body"] for token in reversed(TOKENS)]
    worker += [[b"MDXW01", b"RELEASED", TOKENS[0]], [b"MDXW01", b"KEPT", TOKENS[1]], [b"MDXW01", b"CREDIT", b"0", b"0"]]
    worker += [[b"MDXW01", b"PROGRESS", token, b"0.4", b"page 3 of 8"] for token in TOKENS]
    releasing = [[b"MDXW01", b"\x01", b"echo"], [b"MDXW01", b"CREDIT", b"4", b"2"]]
    releasing += [[b"MDXW01", b"RELEASED", token] for token in TOKENS]
    dcp = [
        [*DCP, b"\x04", b"echo", b"", b"id", b"", b"body"],
        [*DCP, b"\x08", b"id"],
        [*DCP, b"\x08", b"x", b"timeout"],
    ]
    dcp += [[*DCP, b"\x01", b"echo"], [*DCP, b"\x07", TOKENS[0]], [*DCP, b"\x02"]]
    dcp += [[*DCP, b"\x0a", b"3", b"1"], [*DCP, b"\x0c", TOKENS[1]], [*DCP, b"\x0d", TOKENS[0]]]
    emqp = [[*EMQP, b"REQUEST", b"k", b"echo", b"reply-requested,idempotency-key:key", b"x"]]
    emqp += [[*EMQP, b"REQUEST", b"m", b"echo", b"reply-requested", b"x"], [*EMQP, b"CANCEL", b"n", b"m"]]
    emqp += [[*EMQP, b"INFORM", b"i", b'[[1, "echo"]]', b"worker"], [*EMQP, b"READY", b"r"]]
    emqp += [[*EMQP, b"RETURN", b"t", TOKENS[0]], [*EMQP, b"FAIL", b"t", TOKENS[0], b"permanent", b"no"]]
    emqp += [[*EMQP, b"CANCEL", b"n", b"m", b"timeout"]]
    emqp += [
        [*EMQP, b"CREDIT", b"c", b"3", b"1"],
        [*EMQP, b"RELEASED", b"e", TOKENS[1]],
        [*EMQP, b"KEPT", b"k", TOKENS[0]],
    ]
    said = [b"".join(map(frames.join, messages)) for messages in (mdx, keyed, worker, releasing, dcp, emqp)]
    return {"extended_peer": said, "extension_list": [ANNOUNCED, OURS, b"credit=1 unknown=2 cancel=x"]}
