"""Subscriptions: a topic reaches each subscriber with a matching prefix once, and no other session."""

from hypothesis import given, settings
from hypothesis import strategies as st

from polydomo.broker.topics.subscriptions import Subscriptions
from polydomo.model.records import Publication, Session
from polydomo.wire.frames import join
from tests.broker.rig import Peer, World

topics = st.text(alphabet="ab", max_size=5).map(str.encode)
steps = st.lists(st.tuples(st.sampled_from(["add", "add", "remove", "drop"]), st.integers(0, 3), topics), max_size=60)


@given(steps, st.lists(topics, max_size=5))
@settings(max_examples=100)
def test_matching_agrees_with_the_model(changes: list[tuple[str, int, bytes]], published: list[bytes]) -> None:
    world = World()
    peers: list[Session] = [Peer(world) for _ in range(4)]
    subscriptions, model = Subscriptions(), [list[bytes]() for _ in peers]
    for step, who, prefix in changes:
        if step == "add":
            subscriptions.add(peers[who], prefix)
            model[who].append(prefix)
        elif step == "remove":
            assert subscriptions.remove(peers[who], prefix) == (prefix in model[who])
            if prefix in model[who]:
                model[who].remove(prefix)
        else:
            subscriptions.drop(peers[who])
            model[who].clear()
        subscriptions.check_invariants()
        assert len(subscriptions) == sum(len(set(prefixes)) for prefixes in model)
    for topic in published:
        found = subscriptions.match(topic)
        wanted = [peer for peer, prefixes in zip(peers, model, strict=True) if any(map(topic.startswith, prefixes))]
        assert len(found) == len(wanted) and set(found) == set(wanted)


class Listener(Peer):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.heard: list[tuple[bytes, bytes]] = []

    def send_publication(self, publication: Publication) -> None:
        if not publication.topic.startswith(b"monitor."):
            self.heard.append((publication.topic, publication.message))


def test_publishing_through_the_broker() -> None:
    world = World()
    everything, news, gone, publisher = (Listener(world) for _ in range(4))
    world.broker.subscribe(everything, b"")
    world.broker.subscribe(news, b"news.")
    world.broker.subscribe(news, b"news.sport")
    world.broker.subscribe(gone, b"news.")
    world.check()
    gone.close()
    body = join([b"one", b"two"])
    assert world.broker.publish(publisher, b"news.sport.football", body) == 2
    assert world.broker.publish(publisher, b"weather", b"") == 1
    football = (b"news.sport.football", join([b"news.sport.football", b"one", b"two"]))
    assert everything.heard == [football, (b"weather", join([b"weather"]))]
    assert news.heard == [football]
    assert world.broker.unsubscribe(news, b"news.")
    assert not world.broker.unsubscribe(news, b"news.")
    assert world.broker.publish(publisher, b"news.politics", b"") == 1
    world.check()
