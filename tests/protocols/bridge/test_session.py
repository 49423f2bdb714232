"""Messages of the bridge: what each end sends, what is a violation, and that no input of another broker does harm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.broker.requests.request_names import request_id
from polydomo.model.records import Worker
from polydomo.model.tuning import Tuning
from polydomo.protocols.bridge.session import HEADER, BridgedRequest, BridgeSession
from polydomo.protocols.detect import Detector
from polydomo.wire.frames import bounds, join
from polydomo.wire.zmtp.link import ZmtpLink
from tests.broker.net import Net, Node

OTHER = b"0123456789abcdef"
THIRD = b"fedcba9876543210"


class Far:
    """Another broker, played by the test."""

    def __init__(self, node: Node, caller: bool = False) -> None:
        self.node = node
        link = ZmtpLink(node.net.hub, Detector(node.broker), "tcp://192.0.2.1:5246")
        self.link = link
        self.session = BridgeSession(node.broker, link, caller)
        link.handler = self.session
        link.out.clear()
        node.broker.session_opened(self.session)
        self.session.on_open()

    def say(self, *message: bytes) -> None:
        raw = join([HEADER, *message])
        self.session.on_message(b"\x00\x00" + raw + b"\x00", 2, 2 + len(raw))

    def heard(self) -> list[list[bytes]]:
        data = b"".join(bytes(piece) for piece in self.link.out)
        self.link.out.clear()
        messages: list[list[bytes]] = []
        message: list[bytes] = []
        position = 0
        while position < len(data):
            start, position, flags = bounds(data, position)
            message.append(data[start:position])
            if not flags & 1:
                assert message[0] == HEADER
                messages.append(message[1:])
                message = []
        return messages

    def hello(self) -> "Far":
        self.say(b"HELLO", OTHER, b"100", b"1000")
        self.heard()
        return self

    @property
    def worker(self) -> Worker:
        assert self.session.worker is not None
        return self.session.worker


@pytest.fixture
def node() -> Node:
    return Net().node("a", tuning=Tuning(bridge_topics=[b"weather."]))


def test_the_dialing_broker_sends_hello_first(node: Node) -> None:
    caller = Far(node, caller=True)
    assert caller.heard() == [[b"HELLO", node.identity, b"4096", b"134217728", b"weather."]]
    called = Far(node)
    assert called.heard() == []
    called.say(b"HELLO", OTHER, b"5", b"1000", b"news.")
    assert called.heard() == [[b"HELLO", node.identity, b"4096", b"134217728", b"news.", b"weather."]]
    assert called.worker.credit == 5


def test_offers_contain_the_route(node: Node) -> None:
    node.worker(b"here")
    far = Far(node)
    far.say(b"HELLO", OTHER, b"100", b"1000")
    assert far.heard()[1:] == [[b"OFFER", b"here", node.identity]]
    far.say(b"OFFER", b"there", OTHER + b"," + THIRD)
    assert node.knows(b"there") == 2
    assert far.heard() == []  # it is not told what it told us
    other = Far(node)
    other.say(b"HELLO", b"a" * 16, b"100", b"1000")
    assert other.heard()[1:] == [
        [b"OFFER", b"here", node.identity],
        [b"OFFER", b"there", b",".join([node.identity, OTHER, THIRD])],
    ]
    far.say(b"OFFER", b"there", OTHER + b"," + b"a" * 16)  # the way leads over who is told
    assert other.heard() == [[b"RETRACT", b"there"]]
    far.say(b"RETRACT", b"there")
    assert node.knows(b"there") == -1


@pytest.mark.parametrize(
    "path",
    [b",".join([OTHER, b"%016d" % 0, b"%016d" % 1, b"%016d" % 2]), b"me"],
    ids=["too far", "over here"],
)
def test_routes_that_are_not_used(path: bytes) -> None:
    node = Net().node("a", tuning=Tuning(bridge_hops=3))
    far = Far(node).hello()
    far.say(b"OFFER", b"there", path if path != b"me" else OTHER + b"," + node.identity)
    assert node.knows(b"there") == -1 and far.link.closing is None


def test_input_of_a_closed_bridge_is_not_a_violation(node: Node) -> None:
    far = Far(node).hello()
    node.broker.shutdown()
    far.heard()
    far.say(b"BEAT")
    far.say(b"REQUEST", b"1", b"there", b"0", b"", b"", OTHER)
    assert far.link.closing is None and far.heard() == []
    assert node.broker.counters.violations == 0 and not node.broker.open_requests


def test_a_request_out_and_its_answer(node: Node) -> None:
    far = Far(node).hello()
    far.say(b"OFFER", b"s", OTHER)
    client = node.peer()
    client.ask(b"s", timeout=1.5)
    ((word, key, service, left, trace, parent, path, body),) = far.heard()
    name = request_id(node.broker, 1, node.broker.now).encode()
    assert (word, service, left, parent, path, body) == (b"REQUEST", b"s", b"1500", name, node.identity, b"hello")
    assert trace == b"00-%s%016x-%016x-01" % (node.identity, 1, 1)
    far.say(b"PARTIAL", key, b"half")
    far.say(b"FINAL", key, OTHER + b":7", b"whole")
    assert [answer[1:] for answer in client.answers] == [("partial", b"half"), ("ok", b"whole")]
    assert node.notes.routes == {1: [OTHER.decode() + ":7"]}
    assert far.worker.credit == 100 and not far.worker.held


def test_a_request_in_and_its_answer(node: Node) -> None:
    far = Far(node).hello()
    worker = node.worker(b"s")
    far.heard()
    far.say(b"REQUEST", b"k1", b"s", b"2000", b"trace", b"parent", THIRD + b"," + OTHER, b"one", b"two")
    request = worker.jobs[0][1]
    journey = request.ref
    assert isinstance(journey, BridgedRequest)
    assert (journey.trace, journey.parent, journey.path) == ("trace", "parent", (THIRD, OTHER))
    assert request.deadline == node.broker.now + 2.0
    worker.final(b"done")
    name = node.broker.request_name(request).encode()
    assert far.heard() == [[b"FINAL", b"k1", node.identity + b":" + name, b"done"]]
    assert far.session.open == {}


def test_a_request_for_an_unknown_service_is_returned_at_once(node: Node) -> None:
    far = Far(node).hello()
    far.say(b"REQUEST", b"k1", b"nobody", b"0", b"", b"", OTHER)
    assert far.heard()[0][:3] == [b"FAILURE", b"k1", b"no-worker"]
    far.say(b"OFFER", b"nobody", OTHER)
    far.say(b"REQUEST", b"k2", b"nobody", b"0", b"", b"", OTHER)  # where it comes from is no way onward
    assert far.heard()[0][:3] == [b"FAILURE", b"k2", b"no-worker"]
    assert node.broker.open_requests == 0
    node.net.check()


@pytest.mark.parametrize("code", [b"no-worker", b"refused", b"shutdown"])
def test_a_request_that_the_other_broker_refused_is_requeued(node: Node, code: bytes) -> None:
    far = Far(node).hello()
    far.say(b"OFFER", b"s", OTHER)
    client = node.peer()
    client.ask(b"s")
    for attempt in range(3):
        ((_, key, *_),) = far.heard()
        assert key == b"%09x%03x" % (1, attempt + 1)
        far.say(b"FAILURE", key, code, b"sorry", b"")
    assert [answer[1] for answer in client.answers] == ["gave-up"]


@pytest.mark.parametrize("code", ["timeout", "gave-up", "interrupted", "too-large", "cancelled"])
def test_an_outcome_over_there_is_the_outcome_here(node: Node, code: str) -> None:
    far = Far(node).hello()
    far.say(b"OFFER", b"s", OTHER)
    client = node.peer()
    client.ask(b"s")
    ((_, key, *_),) = far.heard()
    far.say(b"FAILURE", key, code.encode(), b"over there", b"")
    assert client.answers == [(None, code, b"over there")] and node.notes.outcomes == {1: code}


@pytest.mark.parametrize(
    "message",
    [
        (b"BEAT",),
        (b"REQUEST", b"k", b"s", b"0", b"", b"", OTHER),
        (b"HELLO",),
        (b"HELLO", OTHER, b"1"),
        (b"HELLO", b"short", b"1", b"1"),
        (b"HELLO", OTHER, b"many", b"1"),
        (b"HELLO", OTHER, b"1", b"many"),
        (b"HELLO", OTHER, b"1", b"1" * 19),
        (b"HELLO", OTHER, b"1", b"1", bytes(256)),
        (b"HELLO", OTHER, b"1", b"1", *[b"x"] * 101),
    ],
)
def test_violations_before_hello(node: Node, message: tuple[bytes, ...]) -> None:
    far = Far(node)
    far.say(*message)
    assert (far.link.closing or "").startswith("protocol violation")


@pytest.mark.parametrize(
    "message",
    [
        (b"HELLO", OTHER, b"100", b"1000"),
        (b"NONSENSE",),
        (b"BEAT", b"more"),
        (b"OFFER", b"s"),
        (b"OFFER", b"s", THIRD),
        (b"OFFER", b"s", OTHER + b"," + OTHER),
        (b"OFFER", b"s", OTHER + b",x"),
        (b"FINAL", b"k"),
        (b"FAILURE", b"k", b"c"),
        (b"CANCEL",),
        (b"REQUEST", b"k", b"s", b"soon", b"", b"", OTHER),
        (b"REQUEST", b"k", b"s", b"0", b"", b"", THIRD),
        (b"REQUEST", b"k", b"s", b"0", b"", b""),
        (b"REQUEST", b"", b"s", b"0", b"", b"", OTHER),
        (b"PUBLISH", b"x", b"1", b"t"),
        (b"PUBLISH", OTHER, b"-1", b"t"),
    ],
)
def test_violations(node: Node, message: tuple[bytes, ...]) -> None:
    far = Far(node).hello()
    far.say(*message)
    assert (far.link.closing or "").startswith("protocol violation"), message


def test_a_request_that_has_been_here_is_a_violation(node: Node) -> None:
    far = Far(node).hello()
    far.say(b"REQUEST", b"k", b"s", b"0", b"", b"", node.identity + b"," + OTHER)
    assert (far.link.closing or "").startswith("protocol violation")


def test_an_id_may_be_used_again_only_when_it_is_answered(node: Node) -> None:
    far = Far(node).hello()
    worker = node.worker(b"s")
    for _ in range(2):
        far.say(b"REQUEST", b"k", b"s", b"0", b"", b"", OTHER)
        worker.final()
    assert far.link.closing is None
    for _ in range(2):
        far.say(b"REQUEST", b"k", b"s", b"0", b"", b"", OTHER)
    assert "still open" in (far.link.closing or "")


def test_answers_to_what_was_not_asked_are_stale(node: Node) -> None:
    far = Far(node).hello()
    far.say(b"FINAL", b"x" * 12, b"", b"body")
    far.say(b"PARTIAL", b"x" * 12, b"body")
    far.say(b"FAILURE", b"x" * 12, b"timeout", b"", b"")
    far.say(b"CANCEL", b"nothing")
    assert far.link.closing is None and far.worker.credit == 100


WORDS = st.sampled_from(
    [
        b"HELLO",
        b"OFFER",
        b"RETRACT",
        b"REQUEST",
        b"PARTIAL",
        b"FINAL",
        b"FAILURE",
        b"CANCEL",
        b"PUBLISH",
        b"BEAT",
        OTHER,
        THIRD,
    ]
    + [b"s", b"0", b"1", b"k", b"", b"000000001001", b"no-worker", b"weather.x", OTHER + b"," + THIRD]
)


@given(st.lists(st.lists(WORDS | st.binary(max_size=4), min_size=1, max_size=9), max_size=20))
def test_no_input_of_another_broker_raises(messages: list[list[bytes]]) -> None:
    net = Net()
    node = net.node("a")
    node.worker(b"s")
    client = node.peer()
    far = Far(node).hello()
    for message in messages:
        client.ask(b"there", timeout=1.0)
        far.say(*message)
        if far.link.closing is not None:
            break
        net.check()
    far.link.lost()
    net.wait(70.0)
    net.check()
    assert not node.broker.bridging.learned
