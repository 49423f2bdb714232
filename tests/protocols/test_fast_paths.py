"""The fast path of a session does the same as the general path, wherever the bytes are split."""

from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polydomo.broker.policy import Policy
from polydomo.model.records import Session
from polydomo.protocols.emqp.session import EmqpSession
from polydomo.protocols.mdp.mdp1 import Mdp1Session
from polydomo.protocols.mdx.session import MdxSession
from polydomo.wire.frames import join
from sim.replacing import swap
from tests.forms import replaces_core
from tests.protocols.mdp.rig import Rig, long_form

Frames = list[bytes]

TOKEN = b"<token>"  # stands for the oldest address that the worker was given and has not answered to
OLD = b"<old>"  # ... and for the one before
ID = b"<id>"  # ... and for the client's id that came with it (MDX)
BODIES = [b"", b"x", b"y" * 255, b"z" * 256, b"w" * 3000, b"v" * 90_000]
EMQP = [b"", b"eMQP/1.0"]

SESSIONS: list[type[Session]] = [Mdp1Session, MdxSession, EmqpSession]
OPENING: dict[str, list[Frames]] = {
    "mdp1": [[b"", b"MDPW01", b"\x01", b"echo"]],
    "mdx": [[b"MDXW01", b"\x01", b"echo"]],
    "emqp": [[*EMQP, b"INFORM", b"i1", b"echo", b"worker"], [*EMQP, b"READY", b"r1"]],
}

body = st.sampled_from(BODIES)
identity = st.sampled_from([b"1", b"2", b"3", b"i" * 255])
asked: dict[str, st.SearchStrategy[Frames]] = {
    "mdp1": st.one_of(
        st.builds(lambda last: [b"", b"MDPC01", b"echo", last], body),
        st.builds(lambda last: [b"", b"MDPC01", b"echo", last], body),
        st.builds(lambda last: [b"", b"MDPC01", b"other", last], body),
        st.just([b"", b"MDPC01", b"echo"]),
        st.just([b"", b"MDPC01", b"mmi.service", b"echo"]),
        st.builds(lambda last: [b"", b"MDPC01", b"echo", b"two", last], body),
        st.just([b"", b"MDPC01"]),
        st.just([b"", b"MDPW01", b"\x04"]),
    ),
    "mdx": st.one_of(
        st.builds(lambda name, last: [b"MDXC01", b"\x01", b"echo", name, last], identity, body),
        st.builds(lambda name, last: [b"MDXC01", b"\x01", b"echo", name, last], identity, body),
        st.builds(lambda name, last: [b"MDXC01", b"\x01", b"other", name, last], identity, body),
        st.builds(lambda name, last: [b"MDXC01", b"\x01", b"echo", name, b"two", last], identity, body),
        st.builds(lambda name: [b"MDXC01", b"\x01", b"mmi.service", name, b"echo"], identity),
        st.builds(lambda name: [b"MDXC01", b"\x01", b"echo", name], identity),
        st.just([b"MDXC01", b"\x01", b"echo", b"", b"x"]),
        st.just([b"MDXC01", b"\x06"]),
    ),
    "emqp": st.one_of(
        st.builds(lambda last: [*EMQP, b"REQUEST", b"m1", b"echo", b"reply-requested", last], body),
        st.builds(lambda last: [*EMQP, b"REQUEST", b"m2", b"echo", b"reply-requested", last], body),
        st.builds(lambda last: [*EMQP, b"REQUEST", b"m3", b"echo", b"", last], body),
        st.builds(lambda last: [*EMQP, b"REQUEST", b"m4", b"other", b"reply-requested,timeout:3", last], body),
        st.builds(lambda last: [*EMQP, b"READY", b"m5", b"echo", b"reply-requested", last], body),
        st.builds(lambda last: [*EMQP, b"REQUEST", b"m6", b"echo", b"reply-requested", last, b"more"], body),
        st.just([*EMQP, b"REQUEST", b"m7", b"echo"]),
        st.just([*EMQP, b"NOTHING", b"m8"]),
    ),
}
answered: dict[str, st.SearchStrategy[Frames]] = {
    "mdp1": st.one_of(
        st.builds(lambda last: [b"", b"MDPW01", b"\x03", TOKEN, b"", last], body),
        st.builds(lambda last: [b"", b"MDPW01", b"\x03", TOKEN, b"", last], body),
        st.builds(lambda last: [b"", b"MDPW01", b"\x03", TOKEN, b"", b"two", last], body),
        st.builds(lambda last: [b"", b"MDPW01", b"\x03", OLD, b"", last], body),
        st.just([b"", b"MDPW01", b"\x04"]),
        st.just([b"", b"MDPW01", b"\x03", TOKEN]),
        st.builds(lambda last: [b"", b"MDPC01", b"other", last], body),
    ),
    "mdx": st.one_of(
        st.builds(lambda last: [b"MDXW01", b"\x04", TOKEN, b"", ID, last], body),
        st.builds(lambda last: [b"MDXW01", b"\x04", TOKEN, b"", ID, last], body),
        st.builds(lambda last: [b"MDXW01", b"\x04", TOKEN, b"", b"not it", last], body),
        st.builds(lambda last: [b"MDXW01", b"\x03", TOKEN, b"", ID, last], body),
        st.builds(lambda last: [b"MDXW01", b"\x04", OLD, b"", ID, last], body),
        st.builds(lambda last: [b"MDXW01", b"\x04", TOKEN, b"", ID, b"", b"polydomo-failure", b"code", last], body),
        st.just([b"MDXW01", b"\x04", TOKEN, b"", ID]),
        st.just([b"MDXW01", b"PING"]),
        st.just([b"MDXW01", b"\x06"]),
    ),
    "emqp": st.one_of(
        st.builds(lambda last: [*EMQP, b"REPLY", b"a1", last, TOKEN], body),
        st.builds(lambda last: [*EMQP, b"REPLY", b"a2", last, TOKEN], body),
        st.builds(lambda last: [*EMQP, b"REPLY", b"a3", last, OLD], body),
        st.builds(lambda last: [*EMQP, b"REPLY", TOKEN, last], body),
        st.just([*EMQP, b"READY", b"r2"]),
        st.just([*EMQP, b"READY", b"r3"]),
        st.just([*EMQP, b"HEARTBEAT", b"h1"]),
        st.builds(lambda last: [*EMQP, b"REPLY", b"a4", last, TOKEN, b"more"], body),
    ),
}
Step = tuple[int, list[tuple[Frames, bool]]]  # who, and its messages at one go, in the long form or not


def steps_of(protocol: str) -> st.SearchStrategy[list[Step]]:
    def said(messages: st.SearchStrategy[Frames]) -> "st.SearchStrategy[list[tuple[Frames, bool]]]":
        return st.lists(st.tuples(messages, st.sampled_from([False] * 9 + [True])), min_size=1, max_size=6)

    client = st.tuples(st.integers(1, 2), said(asked[protocol]))
    worker = st.tuples(st.just(0), said(answered[protocol]))
    return st.lists(st.one_of(client, worker), min_size=1, max_size=12)


def play(protocol: str, steps: list[Step], fast: bool, cuts: list[int]) -> list[object]:
    """Everything that can be seen from outside, and what the broker noted."""
    rig = Rig(policy=Policy(max_outstanding=4, max_queue=6), fast=fast)
    peers = [rig.peer() for _ in range(3)]
    for message in OPENING[protocol]:
        peers[0].say(*message)
    observed: list[object] = [peers[0].heard()]
    tokens: list[bytes] = []
    ids = [b"none"]
    for who, messages in steps:
        rig.broker.now += 0.01
        peer = peers[who]
        chunk = b""
        for frames, long in messages:
            names = {
                TOKEN: tokens[-1] if tokens else b"000000000001",
                OLD: tokens[0] if tokens else b"000000000001",
                ID: ids[-1],
            }
            plain = [names.get(part, part) for part in frames]
            chunk += long_form(*plain) if long else join(plain)
        last = 0
        for at in [*sorted(cut % (len(chunk) + 1) for cut in cuts), len(chunk)]:
            if at > last:
                peer.there.receive(chunk[last:at])
                last = at
        rig.settle()
        while rig.hub.resumed:
            link = rig.hub.resumed.pop()
            if not link.closed:
                link.receive(b"")
            rig.settle()
        heard = [one.heard() for one in peers]
        for message in heard[0]:
            tokens += [part for part in message if len(part) == 12 and part[:9].isalnum()]
            ids += message[4:5]
        seen = [(worker.number, worker.last_heard, worker.credit) for worker in rig.broker.workers]
        observed.append((heard, [one.closed for one in peers], [one.there.pauses for one in peers], seen))
    notes = rig.notes
    observed.append((notes.outcomes, notes.violations, notes.stales, notes.lefts, notes.requeues))
    return observed


@pytest.mark.parametrize("protocol", OPENING)
@settings(max_examples=150)
@given(data=st.data())
def test_the_fast_and_the_general_path_do_the_same(protocol: str, data: st.DataObject) -> None:
    steps = data.draw(steps_of(protocol))
    cuts = data.draw(st.lists(st.integers(0, 200_000), max_size=4))
    patient = play(protocol, steps, False, [])
    assert play(protocol, steps, True, []) == patient
    assert play(protocol, steps, True, cuts) == patient
    assert play(protocol, steps, False, cuts) == patient


ASK: dict[str, Frames] = {
    "mdp1": [b"", b"MDPC01", b"echo"],
    "mdx": [b"MDXC01", b"\x01", b"echo", b"1st"],
    "emqp": [*EMQP, b"REQUEST", b"m1", b"echo", b"reply-requested"],
}
REPLY: dict[str, Frames] = {
    "mdp1": [b"", b"MDPW01", b"\x03", TOKEN, b"", b"y"],
    "mdx": [b"MDXW01", b"\x04", TOKEN, b"", ID, b"y"],
    "emqp": [*EMQP, b"REPLY", b"a1", b"y", TOKEN],
}


@pytest.mark.parametrize("protocol", OPENING)
def test_the_replayed_session_answers_a_request(protocol: str) -> None:
    """A request is asked for and answered in it, else it would show nothing."""
    observed = play(protocol, [(1, [([*ASK[protocol], b"x"], False)] * 3), (0, [(REPLY[protocol], False)])], True, [])
    assert observed[-1] == (["ok"], [], [], [], 0)


@replaces_core
@pytest.mark.parametrize("protocol", OPENING)
def test_common_messages_take_the_fast_path(protocol: str, stack: ExitStack) -> None:
    """Otherwise the plays above would compare the long way with itself."""
    rig = Rig()
    client, worker = rig.peer(), rig.peer()
    ask = ASK[protocol]
    for message in OPENING[protocol]:
        worker.say(*message)
    client.say(*ask, b"the first one is read in full")
    heard = worker.heard()[-1]
    names = {TOKEN: heard[2 if protocol == "mdx" else 3], ID: heard[4]}
    reply = [names.get(part, part) for part in REPLY[protocol]]

    def long_way(self: object, data: bytes, start: int, end: int) -> None:
        raise AssertionError("the long way")

    with stack:
        swap(stack, Mdp1Session, "on_message", lambda plain: long_way)
        swap(stack, MdxSession, "on_message", lambda plain: long_way)
        swap(stack, EmqpSession, "on_message", lambda plain: long_way)
        asks = [[part.replace(b"1st", b"%d" % at) for part in ask] for at in range(4)]
        client.there.receive(
            b"".join([join([*ask, body]) for ask, body in zip(asks, (b"", b"x", b"z" * 256, b"w" * 3000), strict=True)])
        )
        worker.there.receive(join(reply))
        rig.settle()
    assert rig.notes.outcomes == ["ok"] and rig.broker.open_requests == 4
