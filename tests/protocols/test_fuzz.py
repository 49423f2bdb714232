"""Any frames of any protocol on the shared port: nothing raises out of ``receive``, and the invariants hold."""

from hypothesis import given, settings
from hypothesis import strategies as st

from polydomo.protocols.dbp import session as dbp
from polydomo.wire.frames import join
from tests.protocols.mdp.rig import Rig, long_form

EMPTY = b""
token = object()  # stands for something the peer was given: an address, an id
small = st.one_of(
    st.sampled_from(
        [EMPTY, b"echo", b"default", b"id", b"worker", b"scheduler", b"\x01\x00\x00\x00", b"\x04\x00\x00\x00"]
    ),
    st.sampled_from([bytes((i,)) for i in range(8)]),
    st.sampled_from(
        [b"reply-requested,timeout:5", b"retry-count:2", b'[[10, "echo"]]', b'{"name": "echo"}', b"5", b"-1"]
    ),
    st.just(token),
    st.binary(max_size=12),
)


def message(begin: "list[bytes]", commands: "list[bytes]") -> "st.SearchStrategy[list[object]]":
    return st.tuples(st.sampled_from(commands), st.lists(small, max_size=6)).map(
        lambda parts: [*begin, parts[0], *parts[1]]
    )


ONE = [bytes((i,)) for i in range(8)]
KINDS = {
    "mdx client": message([b"MDXC01"], ONE),
    "mdx worker": message([b"MDXW01"], [*ONE, b"PING", b"PONG"]),
    "dcp": message([EMPTY, b"DGBX\x01"], [*ONE, *(bytes((i, 0, 0, 0)) for i in range(8))]),
    "emqp": message(
        [EMPTY, b"eMQP/1.0"],
        [
            b"REQUEST",
            b"READY",
            b"REPLY",
            b"INFORM",
            b"ACK",
            b"HEARTBEAT",
            b"KBYE",
            b"DISCONNECT",
            b"SCHEDULE",
            b"UNSCHEDULE",
            b"PUBLISH",
        ],
    ),
    "dbp": message([EMPTY], sorted(dbp.COMMANDS)),
    "mdp1": message([EMPTY, b"MDPC01"], [b"echo", b"mmi.service"]),
    "mdp2": message([b"MDPW02"], ONE),
}
step = st.tuples(
    st.sampled_from(sorted(KINDS)).flatmap(lambda kind: KINDS[kind]),
    st.booleans(),
    st.sampled_from([0, 0, 0, 1, 4, 20]),
)


@given(st.lists(st.tuples(st.integers(0, 2), step), max_size=25))
@settings(max_examples=250)
def test_any_frames_of_any_protocol(steps: "list[tuple[int, tuple[list[object], bool, int]]]") -> None:
    rig = Rig()
    peers = [rig.peer() for _ in range(3)]
    known = b"000000001001"
    for who, (frames, long, seconds) in steps:
        if peers[who].there.closed:
            peers[who] = rig.peer()
        for heard in peers[who].heard():
            known = next((part for part in heard if len(part) in (12, 16, 36)), known)
        said = [known if part is token else part for part in frames]
        plain = [part for part in said if isinstance(part, bytes)]
        peers[who].say_raw(long_form(*plain) if long else join(plain))
        if seconds:
            rig.wait(seconds)
    for peer in peers:
        peer.lose()
    broker = rig.broker
    broker.check_invariants()
    # Of eMQP clients that did not ask for a reply: they run without them.
    for request in list(broker.unattended.requests):
        broker.cancel(request, "the test has ended")
    broker.check_invariants()
    assert not broker.workers and not broker.sessions and not broker.open_requests and not broker.held_bytes
