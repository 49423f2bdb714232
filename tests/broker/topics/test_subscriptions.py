"""Subscriptions against a plain list of pairs."""

from hypothesis import given
from hypothesis import strategies as st

from polydomo.broker.broker import Broker
from polydomo.broker.entropy import Entropy
from polydomo.broker.reserved_names import MONITOR, TAP
from polydomo.broker.topics.subscriptions import Subscriptions
from polydomo.limits import DROPS_PER_TURN
from polydomo.model.session import ProtocolSession
from polydomo.wire.link import Hub, Link, LinkHandler

PREFIXES = st.text("ab.", max_size=4).map(str.encode)
HUB = Hub()
BROKER = Broker(0.0, Entropy())
SESSIONS = [ProtocolSession(BROKER, Link(HUB, LinkHandler(), f"subscriber {n}")) for n in range(3)]

STEPS = st.lists(st.tuples(st.sampled_from(["add", "remove", "drop"]), st.integers(0, 2), PREFIXES), max_size=40)


@given(STEPS, st.text("ab.", max_size=6).map(str.encode))
def test_a_topic_finds_each_of_its_subscribers_once(steps: list[tuple[str, int, bytes]], topic: bytes) -> None:
    subscriptions = Subscriptions()
    plain: list[tuple[int, bytes]] = []
    for what, number, prefix in steps:
        session = SESSIONS[number]
        if what == "add":
            assert subscriptions.add(session, prefix) is ((number, prefix) not in plain)
            plain.append((number, prefix))
        elif what == "remove":
            assert subscriptions.remove(session, prefix) is ((number, prefix) in plain)
            if (number, prefix) in plain:
                plain.remove((number, prefix))
        else:
            subscriptions.drop(session)
            plain = [pair for pair in plain if pair[0] != number]
        subscriptions.check_invariants()
    wanted = {SESSIONS[number] for number, prefix in plain if topic.startswith(prefix)}
    found = subscriptions.match(topic)
    assert len(found) == len(set(found)) and set(found) == wanted
    assert len(subscriptions) == len(set(plain))
    for number, session in enumerate(SESSIONS):
        mine = {prefix for owner, prefix in plain if owner == number}
        assert subscriptions.has(session, topic) is (topic in mine)
        assert subscriptions.covered(session, topic) is any(topic.startswith(p) and p != topic for p in mine)
        under = {prefix for prefix in mine if prefix.startswith(topic) and prefix != topic}
        narrow = sorted(p for p in under if not any(p.startswith(q) and p != q for q in under))
        assert subscriptions.narrower(session, topic) == narrow


def test_only_a_subscription_to_taps_includes_them() -> None:
    subscriptions = Subscriptions()
    for session, prefixes in zip(SESSIONS, ([b"", MONITOR, TAP[:-1]], [TAP], [b"", TAP + b"one"]), strict=True):
        for prefix in prefixes:
            subscriptions.add(session, prefix)
    assert subscriptions.match(TAP + b"one") == SESSIONS[1:]
    assert subscriptions.match(TAP + b"other") == [SESSIONS[1]]
    assert set(subscriptions.match(MONITOR + b"worker.w1")) == {SESSIONS[0], SESSIONS[2]}


def test_rights_are_checked_while_the_prefixes_of_a_closed_session_are_removed() -> None:
    reader, outsider, closed = (ProtocolSession(BROKER, Link(HUB, LinkHandler(), f"subscriber {n}")) for n in range(3))
    subscriptions = Subscriptions(lambda session, topic: session is reader)
    for session in (reader, outsider, closed):
        session.principal = "someone"
        subscriptions.add(session, b"a")
    for number in range(DROPS_PER_TURN):
        subscriptions.add(closed, b"a%d" % number)
    assert subscriptions.match(b"a") == [reader]
    closed.disconnected = True
    subscriptions.drop(closed)
    assert subscriptions.leaving and subscriptions.match(b"a") == [reader]
