"""Any frames, in any order, from any number of MDP peers: no exception, invariants hold, and other peers are still served."""

from hypothesis import given, settings
from hypothesis import strategies as st

from polydomo.broker.policy import Policy
from polydomo.model.name_patterns import PatternMap
from polydomo.model.tuning import Tuning
from polydomo.wire.frames import join
from tests.protocols.mdp.rig import Rig, long_form

HEADERS = [b"", b"MDPC01", b"MDPW01", b"MDPC02", b"MDPW02"]
COMMANDS = [bytes((i,)) for i in range(8)] + [b"%d" % i for i in range(1, 7)]
NAMES = [b"echo", b"mmi.service", b"undefined", b"000000001001", b"x" * 300]

token = object()  # stands for an address that the peer was given
frame = st.one_of(
    st.sampled_from(HEADERS), st.sampled_from(COMMANDS), st.sampled_from(NAMES), st.just(token), st.binary(max_size=16)
)
anything = st.lists(frame, min_size=1, max_size=7)
likely = st.tuples(
    st.sampled_from([[b""], []]), st.sampled_from(HEADERS[1:]), st.sampled_from(COMMANDS), st.lists(frame, max_size=4)
).map(lambda parts: [*parts[0], parts[1], parts[2], *parts[3]])
valid = st.sampled_from(
    [
        [b"", b"MDPW01", b"\x01", b"echo"],
        [b"MDPW02", b"\x01", b"echo"],
        [b"", b"MDPW02", b"\x01", b"echo"],
        [b"MDPW02", b"1", b"echo"],
        [b"", b"MDPC01", b"echo", b"x"],
        [b"MDPC02", b"\x01", b"echo", b"x"],
        [b"", b"MDPC02", b"\x02", b"echo", b"x"],
        [b"", b"MDPC02", b"echo", b"x"],
        [b"", b"MDPW01", b"\x03", token, b"", b"y"],
        [b"MDPW02", b"\x03", token, b"", b"y"],
        [b"MDPW02", b"\x04", token, b"", b"y"],
        [b"", b"MDPW02", b"\x03", token, b"", b"y"],
        [b"", b"MDPW02", b"\x04", token, b"", b"y"],
        [b"", b"MDPW01", b"\x04"],
        [b"", b"MDPW02", b"\x04"],
        [b"", b"MDPW02", b"\x05"],
        [b"MDPW02", b"\x05"],
    ]
)
step = st.tuples(
    st.integers(0, 3),
    st.one_of(valid, valid, likely, anything),
    st.booleans(),
    st.sampled_from([0.0, 0.0, 0.0, 0.0, 1.0, 3.0, 8.0]),
)


@given(st.lists(step, max_size=25), st.sampled_from(["", "majortomo", "libmdp"]))
@settings(max_examples=250)
def test_any_frames(steps: "list[tuple[int, list[object], bool, float]]", dialect_name: str) -> None:
    rig = Rig(
        Tuning(mdp2_dialects=PatternMap({"echo": dialect_name} if dialect_name else {})),
        Policy(max_outstanding=4, max_message=1000),
    )
    peers = [rig.peer(b"REQ" if i == 3 else b"DEALER") for i in range(4)]
    given_out = b"000000001001"
    for who, frames, long, seconds in steps:
        if peers[who].there.closed:
            peers[who] = rig.peer()
        peer = peers[who]
        for message in peer.heard():
            for part in message:
                if len(part) == 12:
                    given_out = part
        said = [given_out if part is token else part for part in frames]
        plain = [part for part in said if isinstance(part, bytes)]
        peer.say_raw(long_form(*plain) if long else join(plain))
        for link in list(rig.hub.resumed):
            rig.hub.resumed.remove(link)
            link.receive(b"")
        rig.settle()
        if seconds:
            rig.wait(seconds)
            rig.settle()
    good = rig.peer()
    good.say(b"MDPC02", b"\x01", b"mmi.service", b"echo")
    assert good.only()[-1] in (b"200", b"404")
    for peer in [*peers, good]:
        peer.lose()
    broker = rig.broker
    assert not broker.workers and not broker.sessions and not broker.open_requests and not broker.held_bytes


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8))
@settings(max_examples=100)
def test_any_bytes(pieces: list[bytes]) -> None:
    rig = Rig()
    peer = rig.peer()
    for data in pieces:
        peer.there.receive(data)
        broker = rig.broker
        broker.check_invariants()
    peer.there.lost()
    rig.broker.check_invariants()
