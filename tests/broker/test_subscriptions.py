"""Subscriptions against a plain list of pairs."""

from hypothesis import given
from hypothesis import strategies as st

from polydomo.broker.broker import Broker
from polydomo.broker.entropy import Entropy
from polydomo.broker.subscriptions import Subscriptions
from polydomo.protocols.session import Session
from polydomo.wire.link import Handler, Hub, Link

PREFIXES = st.text("ab.", max_size=4).map(str.encode)
HUB = Hub()
BROKER = Broker(0.0, Entropy())
SESSIONS = [Session(BROKER, Link(HUB, Handler(), f"subscriber {n}")) for n in range(3)]

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
