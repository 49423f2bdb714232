"""Detection of a peer's protocol from its socket type and its first message."""

import pytest

from polydomo.limits import MAX_TOPIC
from polydomo.model.tuning import Tuning
from polydomo.protocols.pubsub.session import SubscriberSession
from polydomo.wire.security.mechanism import command
from tests.protocols.mdp.rig import Frames, Peer, Rig, long_form

FIRST: "list[tuple[Frames, str, str]]" = [
    ([b"", b"MDPC01", b"echo", b"x"], "mdp1", ""),
    ([b"", b"MDPW01", b"\x01", b"echo"], "mdp1", ""),
    ([b"MDPC02", b"\x01", b"echo", b"x"], "mdp2", "rfc18"),
    ([b"MDPW02", b"\x01", b"echo"], "mdp2", "rfc18"),
    ([b"", b"MDPC02", b"\x01", b"echo", b"x"], "mdp2", "rfc18-req"),
    ([b"", b"MDPC02", b"\x02", b"echo", b"x"], "mdp2", "majortomo"),
    ([b"", b"MDPC02", b"echo", b"x"], "mdp2", "libmdp"),
    ([b"", b"MDPW02", b"\x01", b"echo"], "mdp2", "undecided"),
    ([b"MDPC02", b"1", b"echo", b"x"], "mdp2", "zmq-mdp2"),
    ([b"MDPW02", b"1", b"echo"], "mdp2", "zmq-mdp2"),
    ([b"MDXC01", b"\x01", b"echo", b"id", b"x"], "mdx", ""),
    ([b"MDXW01", b"\x01", b"echo"], "mdx", ""),
    ([b"", b"DGBX\x01", b"\x01", b"echo"], "dcp", ""),
    ([b"", b"eMQP/1.0", b"INFORM", b"id", b"", b"worker"], "emqp", ""),
    ([b"", b"u_U", b"\x00\x00\x80\x3f", b""], "dbp", ""),
]


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize(
    ("frames", "protocol", "dialect"), FIRST, ids=[f"{p}-{i}" for i, (_, p, _) in enumerate(FIRST)]
)
def test_the_first_message_decides(frames: Frames, protocol: str, dialect: str, long: bool) -> None:
    rig = Rig()
    peer = rig.peer()
    assert rig.broker.sessions == {}, "nobody is anything before it has spoken"
    if long:
        peer.say_raw(long_form(*frames))
    else:
        peer.say(*frames)
    assert peer.session.protocol == protocol and peer.closed == ""
    if protocol == "mdp2":
        assert peer.session.dialect == dialect
    assert list(rig.broker.sessions) == [peer.session]


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"hello"],
        [b"", b"hello"],
        [b"", b"", b"MDPC01", b"echo"],
        [b"MDPC01", b"echo", b"x"],
        [b"MDPC03", b"\x01", b"echo", b"x"],
        [b"mdpc02", b"\x01", b"echo", b"x"],
        [b"MDPC02"],
        [b"", b"MDPW01"],
        [b"\x00" * 500, b"x"],
        [b"x"] * 1000,
    ],
)
def test_first_messages_of_no_protocol(frames: Frames) -> None:
    rig = Rig()
    peer = rig.peer()
    peer.say(*frames)
    assert peer.closed.startswith("protocol violation: ")
    assert rig.broker.sessions == {} and len(peer.closed) < 300, "one line, however long the frames were"


def test_headers_of_mdx_are_settings() -> None:
    rig = Rig(Tuning(mdx_client_header=b"MINE", mdx_worker_header=b"MINE"))
    peer = rig.peer()
    peer.say(b"MINE", b"\x01", b"echo")
    assert peer.session.protocol == "mdx" and peer.session.worker_count == 1


def test_a_silent_peer_costs_nothing() -> None:
    rig = Rig()
    peer = rig.peer()
    rig.wait(1000)
    assert peer.closed == "" and rig.broker.next_deadline() is None
    peer.lose()


# --- publishers and subscribers


def subscribe(peer: Peer, prefix: bytes, name: bytes = b"SUBSCRIBE") -> None:
    peer.say_raw(command(name, prefix))


def test_publications_reach_subscribers() -> None:
    rig = Rig()
    sub, other, pub = rig.peer(b"SUB"), rig.peer(b"SUB"), rig.peer(b"PUB")
    assert sub.session.protocol == "sub" and pub.session.protocol == "pub"
    subscribe(sub, b"news.")
    other.say(b"\x01weather")  # as ZMTP 3.0 peers subscribe
    pub.say(b"news.sport", b"goal", b"")
    pub.say(b"weather")
    pub.say(b"other")
    assert sub.heard() == [[b"news.sport", b"goal", b""]]
    assert other.heard() == [[b"weather"]]
    subscribe(sub, b"news.", b"CANCEL")
    other.say(b"\x00weather")
    pub.say(b"news.sport", b"again")
    pub.say(b"weather")
    assert sub.heard() == [] and other.heard() == []


def test_a_subscriber_may_send_other_things() -> None:
    rig = Rig()
    sub = rig.peer(b"SUB")
    sub.say(b"hello")
    sub.say(b"\x01a", b"two frames")
    sub.say(b"")
    assert sub.closed == "" and len(rig.broker.publishing.subscriptions) == 0


def test_prefixes_are_bounded() -> None:
    rig = Rig()
    sub = rig.peer(b"SUB")
    subscribe(sub, b"x" * MAX_TOPIC)
    assert sub.closed == ""
    subscribe(sub, b"x" * (MAX_TOPIC + 1))
    assert sub.closed.startswith("protocol violation: ")


def test_cancelling_an_unknown_request_frees_no_room() -> None:
    rig = Rig()
    sub = rig.peer(b"SUB")
    session = sub.session
    assert isinstance(session, SubscriberSession)
    session.max_subscriptions = 3
    for i in range(3):
        subscribe(sub, b"%d" % i)
        subscribe(sub, b"never", b"CANCEL")
    assert sub.closed == "" and len(rig.broker.publishing.subscriptions) == 3
    subscribe(sub, b"one more")
    assert sub.closed.startswith("protocol violation: ") and len(rig.broker.publishing.subscriptions) == 0
