"""Last values and late subscribers: what each receives, in which order, and what is stored."""

import json

from hypothesis import given
from hypothesis import strategies as st

from polydomo import limits
from polydomo.broker.broker import Broker
from polydomo.broker.entropy import Entropy
from polydomo.broker.observe.recorder import Recorder
from polydomo.broker.policy import Policy
from polydomo.model.records import Session
from polydomo.model.tuning import Tuning
from polydomo.protocols.pubsub.session import PublisherSession, SubscriberSession
from polydomo.web.websocket import WebSocketSession
from polydomo.wire.close_reason import CloseCause, CloseReason
from polydomo.wire.frames import frame, split
from polydomo.wire.http.link import HttpLink
from polydomo.wire.link import ABORTING, PAUSE_NOT_READING, Hub, Link, LinkHandler


class Notes(Recorder):
    def __init__(self) -> None:
        self.lags: list[str] = []
        self.refusals: list[str] = []

    def slow_subscriber(self, session: Session, what: str) -> None:
        self.lags.append(what)

    def refused(self, session: Session, what: str) -> None:
        self.refusals.append(what)


class Hall:
    """A broker, one publisher and any number of subscribers."""

    def __init__(
        self, policy: Policy | None = None, tuning: Tuning | None = None, per_turn: int = limits.VALUES_PER_TURN
    ) -> None:
        self.notes = Notes()
        self.hub = Hub()
        self.broker = Broker(100.0, Entropy(), policy, tuning, self.notes)
        self.broker.publishing.last_values.per_turn = per_turn
        self.publisher = PublisherSession(self.broker, self.link())
        self.broker.session_opened(self.publisher)

    def link(self) -> Link:
        return Link(self.hub, LinkHandler(), "tcp://127.0.0.1:1")

    def publish(self, topic: bytes, *frames: bytes) -> None:
        body = b"".join(frame(f, i < len(frames) - 1) for i, f in enumerate(frames))
        self.broker.publish(self.publisher, topic, body)

    def subscriber(self, *prefixes: bytes) -> "Listener":
        listener = Listener(self)
        for prefix in prefixes:
            self.broker.subscribe(listener.session, prefix)
        return listener

    def turns(self) -> None:
        while self.broker.publishing.last_values.can_serve():
            self.broker.end_turn()
            self.broker.check_invariants()


class Listener:
    def __init__(self, hall: Hall) -> None:
        self.link = hall.link()
        self.session = SubscriberSession(hall.broker, self.link)
        self.link.handler = self.session
        hall.broker.session_opened(self.session)

    def heard(self) -> list[tuple[bytes, ...]]:
        found = [tuple(split(piece)) for piece in self.link.out]
        self.link.out.clear()
        return [message for message in found if not message[0].startswith(b"monitor.")]  # who comes and goes


def test_a_late_subscriber_gets_last_values_then_the_stream() -> None:
    hall = Hall()
    hall.publish(b"b", b"1")
    hall.publish(b"a", b"1")
    hall.publish(b"b", b"2", b"more")
    hall.publish(b"other", b"1")
    listener = hall.subscriber(b"a", b"b")
    hall.publish(b"a", b"3")
    assert listener.heard() == [(b"a", b"1"), (b"b", b"2", b"more"), (b"a", b"3")]
    hall.broker.check_invariants()


def test_no_value_twice_where_subscriptions_overlap() -> None:
    hall = Hall()
    for topic in (b"a.b.c", b"a.b", b"a", b"b"):
        hall.publish(topic, topic)
    listener = hall.subscriber(b"a.b", b"a", b"a.b.c", b"a", b"")
    assert [topic for topic, _ in listener.heard()] == [b"a.b", b"a.b.c", b"a", b"b"]


def test_a_new_subscription_after_unsubscribing_gets_last_values_again() -> None:
    hall = Hall()
    hall.publish(b"a", b"1")
    listener = hall.subscriber(b"a")
    hall.broker.unsubscribe(listener.session, b"a")
    hall.publish(b"a", b"2")
    hall.broker.subscribe(listener.session, b"a")
    assert listener.heard() == [(b"a", b"1"), (b"a", b"2")]


def test_a_message_without_a_body_removes_the_last_value() -> None:
    hall = Hall()
    hall.publish(b"a", b"1")
    early = hall.subscriber(b"")
    hall.publish(b"a")
    assert early.heard() == [(b"a", b"1"), (b"a",)]
    assert hall.subscriber(b"").heard() == []
    assert len(hall.broker.publishing.last_values) == 0 and hall.broker.publishing.last_values.size == 0


def test_topics_of_the_broker_s_own_are_refused() -> None:
    hall = Hall()
    listener = hall.subscriber(b"")
    hall.publish(b"monitor.figures", b"all is well")
    assert listener.heard() == [] and len(hall.notes.refusals) == 1


def test_at_a_limit_the_longest_unchanged_value_is_evicted() -> None:
    hall = Hall(Policy(max_values=3))
    for topic in (b"a", b"b", b"c", b"a", b"d"):
        hall.publish(topic, b"1")
    assert [topic for topic, _ in hall.subscriber(b"").heard()] == [b"a", b"c", b"d"]
    assert hall.broker.publishing.last_values.forgotten == 1
    hall.broker.check_invariants()


def test_bytes_are_bounded_and_what_cannot_fit_is_not_kept() -> None:
    hall = Hall(Policy(max_value_bytes=100))
    hall.publish(b"a", bytes(20))
    hall.publish(b"b", bytes(20))
    hall.publish(b"a", bytes(70))
    hall.broker.check_invariants()
    assert [topic for topic, _ in hall.subscriber(b"").heard()] == [b"a"]
    listener = hall.subscriber(b"a")
    listener.heard()
    hall.publish(b"a", bytes(200))
    assert listener.heard() == [(b"a", bytes(200))]
    assert hall.subscriber(b"").heard() == []
    assert hall.broker.publishing.last_values.size == 0


def test_values_over_several_turns_keep_the_order() -> None:
    hall = Hall(per_turn=2)
    for n in range(6):
        hall.publish(b"t%d" % n, b"old")
    listener = hall.subscriber(b"")
    assert len(listener.heard()) == 2 and hall.broker.publishing.last_values.can_serve()
    hall.publish(b"t0", b"new")  # given already: it waits until all values have been given
    hall.publish(b"t5", b"newer")  # not given yet: it is the value
    hall.publish(b"t00", b"between")  # a new topic whose turn has passed
    hall.publish(b"t9", b"last")
    assert listener.heard() == []
    hall.turns()
    assert listener.heard() == [
        *((b"t%d" % n, b"old") for n in (2, 3, 4)),
        (b"t5", b"newer"),
        (b"t9", b"last"),
        (b"t0", b"new"),
        (b"t00", b"between"),
    ]
    hall.publish(b"t0", b"newest")
    assert listener.heard() == [(b"t0", b"newest")]


def test_two_latecomers_take_turns_and_one_may_leave() -> None:
    hall = Hall(per_turn=2)
    for n in range(9):
        hall.publish(b"t%d" % n, b"1")
    one, two, three = hall.subscriber(b""), hall.subscriber(b"t"), hall.subscriber(b"t")
    hall.broker.unsubscribe(two.session, b"t")
    three.link.lost()
    hall.broker.session_closed(three.session, CloseReason(CloseCause.PEER_CLOSED))
    hall.turns()
    assert len(one.heard()) == 9 and len(two.heard()) <= 2 and not hall.broker.publishing.last_values.catching_up


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["publish", "subscribe", "unsubscribe", "turn", "choke", "room"]), st.text("ab", max_size=3)
        ),
        max_size=60,
    )
)
def test_every_topic_s_messages_come_in_order_and_none_twice(steps: list[tuple[str, str]]) -> None:
    hall = Hall(per_turn=2)
    listener = hall.subscriber()
    last: dict[bytes, int] = {}  # topic -> number of its last message
    heard: dict[bytes, list[int]] = {}
    asked: set[bytes] = set()
    for number, (what, text) in enumerate(steps):
        topic = text.encode()
        if what == "publish":
            hall.publish(topic, b"%d" % number)
            last[topic] = number
        elif what == "subscribe":
            asked.add(topic)
            hall.broker.subscribe(listener.session, topic)
        elif what == "unsubscribe":
            asked.clear()
            for prefix in list(hall.broker.publishing.subscriptions._of.get(listener.session, ())):
                while hall.broker.unsubscribe(listener.session, prefix):
                    pass
            listener.heard()
            listener.session.backlog.messages.clear()
            heard.clear()
        elif what == "turn":
            hall.broker.end_turn()
        elif what == "choke":
            listener.link.pause(PAUSE_NOT_READING)
        else:
            listener.link.resume(PAUSE_NOT_READING)
        hall.broker.check_invariants()
    listener.link.resume(PAUSE_NOT_READING)
    hall.turns()
    for topic, body in listener.heard():
        heard.setdefault(topic, []).append(int(body))
    for topic, numbers in heard.items():
        assert numbers == sorted(set(numbers)), f"{topic!r} came as {numbers}"
    for topic, number in last.items():
        if any(topic.startswith(prefix) for prefix in asked):
            assert heard[topic][-1] == number


def test_a_stopped_subscriber_is_disconnected_and_affects_no_other() -> None:
    hall = Hall(tuning=Tuning(max_backlog=1000))
    stopped, fine = hall.subscriber(b""), hall.subscriber(b"")
    stopped.link.pause(PAUSE_NOT_READING)
    for n in range(12):
        hall.publish(b"t", bytes(100))
        assert len(fine.heard()) == 1
        assert (stopped.link.closing is not None) is (n >= 9)
    assert stopped.link.state == ABORTING and "does not read" in (stopped.link.closing or "")


def test_a_stopped_subscriber_misses_messages_with_values_slow_skip() -> None:
    hall = Hall(tuning=Tuning(max_backlog=1000, skip_slow=True))
    stopped = hall.subscriber(b"")
    stopped.link.pause(PAUSE_NOT_READING)
    for n in range(12):
        hall.publish(b"t", b"%02d" % n + bytes(98))
    assert stopped.link.closing is None and stopped.heard() == []
    stopped.link.resume(PAUSE_NOT_READING)
    assert [body[:2] for _, body in stopped.heard()] == [b"%02d" % n for n in range(9)]
    hall.publish(b"t", b"again")
    assert stopped.heard() == [(b"t", b"again")]
    assert hall.notes.lags == [
        "945 bytes are queued for it; it misses messages",
        "it reads again, after missing 3 messages",
    ]


def test_values_wait_for_a_subscriber_that_does_not_read() -> None:
    hall = Hall()
    hall.publish(b"a", b"1")
    listener = hall.subscriber()
    listener.link.pause(PAUSE_NOT_READING)
    hall.broker.subscribe(listener.session, b"")
    hall.publish(b"a", b"2")
    hall.publish(b"b", b"1")
    hall.turns()
    assert listener.heard() == []
    listener.link.resume(PAUSE_NOT_READING)
    hall.turns()
    assert listener.heard() == [(b"a", b"2"), (b"b", b"1")]


def test_a_large_value_counts_for_more() -> None:
    hall = Hall()
    for n in range(4):
        hall.publish(b"t%d" % n, bytes(limits.VALUE_PIECE * limits.VALUES_PER_TURN // 2))
    listener = hall.subscriber(b"")
    assert len(listener.heard()) == 2 and hall.broker.publishing.last_values.can_serve()
    hall.turns()
    assert len(listener.heard()) == 2


def test_last_values_may_be_asked_for() -> None:
    hall = Hall()
    for topic in (b"b", b"a.2", b"a.1"):
        hall.publish(topic, topic)
    assert [split(m) for m in hall.broker.last_values(hall.subscriber().session, b"a", 10)] == [
        [b"a.1", b"a.1"],
        [b"a.2", b"a.2"],
    ]
    assert len(hall.broker.last_values(hall.subscriber().session, b"", 2)) == 2


def test_a_stopped_websocket_misses_messages_and_is_informed() -> None:
    hall = Hall(tuning=Tuning(max_backlog=400))
    link = HttpLink(hall.hub, "tcp://127.0.0.1:1")
    link.handler = session = WebSocketSession(hall.broker, link)
    hall.broker.session_opened(session)
    hall.broker.subscribe(session, b"t")
    link.pause(PAUSE_NOT_READING)
    for n in range(12):
        hall.publish(b"t", b"%02d" % n + b"." * 98)
    assert link.closing is None and link.out == [] and session.backlog.size <= 400
    link.resume(PAUSE_NOT_READING)
    sent = [json.loads(piece[piece.index(b"{") :]) for piece in map(bytes, link.out)]
    assert [message["op"] for message in sent] == ["message", "message", "missed"]
    assert [message["frames"][0][:2] for message in sent[:2]] == ["00", "01"] and sent[2]["count"] == 10
    assert hall.notes.lags[1:] == ["it reads again, after missing 10 messages"] and session.backlog.size == 0
