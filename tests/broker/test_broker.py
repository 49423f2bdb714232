"""Who gets which request: least recently used workers, clients in turn, credit, weights, several services, chains."""

import pytest

from tests.broker.rig import Peer, World


@pytest.fixture
def world() -> World:
    return World()


# --- one request


def test_a_request_reaches_a_worker_and_its_reply_the_client(world: World) -> None:
    worker, client, other = world.worker(), world.client(), world.client()
    request = client.ask(b"hello")
    assert request is not None and worker.bodies() == [b"hello"]
    assert len(request.token) == 12 and request.token.isalnum()
    assert worker.answer(b"one", b"two")
    assert client.finals == [[b"one", b"two"]] and other.finals == []
    assert world.notes.outcomes == [(request.number, "ok")]
    assert client.requests == {} and world.broker.open_requests == 0 and world.broker.held_bytes == 0


def test_a_request_without_a_body(world: World) -> None:
    worker, client = world.worker(), world.client()
    client.ask(b"")
    assert worker.jobs[0].body == b""
    assert world.broker.final(worker.me, worker.jobs[0].token, b"")
    assert client.finals == [[]]


def test_a_worker_gets_one_at_a_time(world: World) -> None:
    worker, client = world.worker(), world.client()
    for i in range(3):
        client.ask(b"%d" % i)
    for i in range(3):
        assert worker.bodies() == [b"%d" % i]
        worker.answer()
    assert worker.jobs == [] and len(client.finals) == 3


def test_one_connection_may_be_client_and_worker_even_of_itself(world: World) -> None:
    peer = world.worker()
    peer.ask(b"to myself")
    assert peer.bodies() == [b"to myself"]
    peer.answer(b"mine")
    assert peer.finals == [[b"mine"]]


# --- which worker


def test_least_recently_used_worker_first(world: World) -> None:
    a, b, c = (world.worker() for _ in range(3))
    client = world.client()
    for body, worker in ((b"1", a), (b"2", b), (b"3", c)):
        client.ask(body)
        assert worker.bodies() == [body]
    for worker in (b, c, a):
        worker.answer()
    for body, worker in ((b"4", b), (b"5", c), (b"6", a)):
        client.ask(body)
        assert worker.bodies() == [body]


def test_idle_workers_come_before_busy_ones_that_asked_for_more(world: World) -> None:
    busy, idle, client = world.worker(credit=3), world.worker(), world.client()
    for body in (b"1", b"2", b"3", b"4"):
        client.ask(body)
    assert busy.bodies() == [b"1", b"3", b"4"] and idle.bodies() == [b"2"]


def test_the_highest_weight_is_served_first(world: World) -> None:
    light, heavy, client = world.worker(weights=[1], credit=2), world.worker(weights=[9], credit=2), world.client()
    for body in (b"1", b"2", b"3", b"4"):
        client.ask(body)
    assert heavy.bodies() == [b"1", b"2"] and light.bodies() == [b"3", b"4"]


def test_among_equal_weights_the_idle_then_the_least_recently_used(world: World) -> None:
    a, b, client = world.worker(weights=[5], credit=2), world.worker(weights=[5], credit=2), world.client()
    for body in (b"1", b"2", b"3"):
        client.ask(body)
    assert a.bodies() == [b"1", b"3"] and b.bodies() == [b"2"]


def test_a_worker_of_several_services_prefers_its_heaviest(world: World) -> None:
    client = world.client()
    client.ask(b"a", service=b"low")
    world.wait(1)
    client.ask(b"b", service=b"high")
    client.ask(b"c", service=b"low")
    worker = world.worker(b"low", b"high", weights=[1, 2])
    seen = []
    for _ in range(3):
        seen += worker.bodies()
        worker.answer()
    assert seen == [b"b", b"a", b"c"]


# --- which request


def test_clients_are_served_in_turn(world: World) -> None:
    flood, patient = world.client(), world.client()
    for i in range(50):
        flood.ask(b"flood %d" % i)
    patient.ask(b"patient 0")
    patient.ask(b"patient 1")
    worker = world.worker()
    seen = []
    for _ in range(52):
        seen += worker.bodies()
        worker.answer()
    assert seen[:4] == [b"flood 0", b"patient 0", b"flood 1", b"patient 1"]


def test_one_clients_requests_stay_in_order(world: World) -> None:
    a, b = world.client(), world.client()
    for i in range(4):
        a.ask(b"a%d" % i)
        b.ask(b"b%d" % i)
    worker = world.worker(credit=8)
    bodies = worker.bodies()
    assert [body for body in bodies if body[:1] == b"a"] == [b"a0", b"a1", b"a2", b"a3"]
    assert [body for body in bodies if body[:1] == b"b"] == [b"b0", b"b1", b"b2", b"b3"]


def test_a_worker_of_several_services_serves_the_longest_wait_first(world: World) -> None:
    client = world.client()
    for i, service in enumerate([b"two", b"one", b"two", b"three"]):
        client.ask(b"%d" % i, service=service)
        world.wait(0.1)
    worker = world.worker(b"one", b"two", b"three")
    seen = []
    for _ in range(4):
        seen += worker.bodies()
        worker.answer()
    assert seen == [b"0", b"1", b"2", b"3"]


def test_one_at_a_time_over_all_the_services_a_worker_offers(world: World) -> None:
    worker, client = world.worker(b"one", b"two"), world.client()
    client.ask(b"1", service=b"one")
    client.ask(b"2", service=b"two")
    assert worker.bodies() == [b"1"]
    worker.answer()
    assert worker.bodies() == [b"2"]


# --- credit


def test_credit_is_what_the_worker_asked_for(world: World) -> None:
    worker, client = world.worker(credit=0, auto_credit=False), world.client()
    for i in range(5):
        client.ask(b"%d" % i)
    assert worker.jobs == []
    world.broker.add_credit(worker.me, 2)
    assert worker.bodies() == [b"0", b"1"]
    worker.answer()
    assert worker.bodies() == [b"1"], "an answer does not ask for more by itself"
    world.broker.add_credit(worker.me)
    assert worker.bodies() == [b"1", b"2"]
    world.check()


def test_revoked_credit_gives_nothing(world: World) -> None:
    worker, client = world.worker(credit=3), world.client()
    world.broker.clear_credit(worker.me)
    world.check()
    client.ask()
    assert worker.jobs == []
    world.broker.add_credit(worker.me)
    assert len(worker.jobs) == 1
    world.check()


def test_an_extra_request_is_asked_for_each_time(world: World) -> None:
    worker, client = world.worker(), world.client()
    for i in range(4):
        client.ask(b"%d" % i)
    world.broker.add_credit(worker.me)
    assert worker.bodies() == [b"0", b"1"]
    worker.answer()
    assert worker.bodies() == [b"1"], "it still works on one"
    worker.answer()
    assert worker.bodies() == [b"2"], "it holds nothing: one more"


def test_grant_and_offer_to_a_worker_that_is_gone_do_nothing(world: World) -> None:
    worker, client = world.worker(), world.client()
    worker.leave()
    world.broker.add_credit(worker.me)
    assert world.broker.add_service(worker.me, b"more") is not None
    client.ask()
    assert worker.jobs == []
    world.check()


# --- several services


def test_offering_one_more_service(world: World) -> None:
    client, worker = world.client(), world.worker(b"one", credit=2)
    client.ask(b"waits", service=b"two")
    assert world.broker.add_service(worker.me, b"two") is None
    world.check()
    assert worker.bodies() == [b"waits"]
    client.ask(b"1", service=b"one")
    client.ask(b"2", service=b"two")
    assert worker.bodies() == [b"waits", b"1"]


def test_a_request_queued_at_an_added_service_uses_up_the_credit(world: World) -> None:
    client, worker = world.client(), world.worker(b"one", credit=1)
    client.ask(b"waits", service=b"two")
    assert world.broker.add_service(worker.me, b"two") is None
    world.check()
    client.ask(b"1", service=b"one")
    assert worker.bodies() == [b"waits"], "it asked for one"


def test_a_worker_of_no_service_is_accepted(world: World) -> None:
    peer = Peer(world)
    assert peer.register() is not None
    assert world.broker.add_service(peer.me, b"later") is None
    world.check()
    client = world.client()
    client.ask(service=b"later")
    assert len(peer.jobs) == 1


def test_the_same_name_twice_is_one_service(world: World) -> None:
    worker, client = world.worker(b"echo", b"echo"), world.client()
    client.ask()
    assert len(worker.jobs) == 1 and len(worker.me.services) == 1


def test_a_worker_that_leaves_leaves_all_its_services(world: World) -> None:
    worker, stays = world.worker(b"one", b"two"), world.worker(b"two")
    worker.leave()
    assert set(world.broker.services) == {b"two"} and list(world.broker.workers) == [stays.me]
    assert worker.said == ["gone"]
    worker.leave()
    assert worker.said == ["gone"]


@pytest.mark.parametrize("name", [b"mmi.service", b"mmi.", b"polydomo.status", b"polydomo.x", b"n" * 256])
def test_reserved_names_cannot_be_offered(world: World, name: bytes) -> None:
    peer = Peer(world)
    assert peer.register(b"fine", name) is None
    assert peer.refused and world.broker.services == {} and peer.worker_count == 0
    worker = world.worker()
    assert world.broker.add_service(worker.me, name) is not None
    world.check()


# --- fallback


def test_fallback_only_if_no_worker_offers_the_service(world: World) -> None:
    client, other = world.client(), world.worker(b"default")
    client.ask(b"1", service=b"rare", fallback=1)
    assert other.bodies() == [b"1"]
    rare = world.worker(b"rare")
    client.ask(b"2", service=b"rare", fallback=1)
    assert rare.bodies() == [b"2"]


def test_fallback_is_for_workers_of_the_same_protocol(world: World) -> None:
    client, other = world.client(), world.worker(b"default")
    other.protocol = "another"
    client.ask(b"1", service=b"rare", fallback=1)
    assert other.jobs == [] and world.broker.services[b"rare"].queue_length == 1


# --- passing on


def test_a_chain_of_services(world: World) -> None:
    first, second, third = (world.worker(name) for name in (b"one", b"two", b"three"))
    client = world.client()
    request = client.ask(b"start", service=b"one")
    assert request is not None
    assert first.forward(b"two", b"middle")
    assert second.bodies() == [b"middle"] and first.jobs == []
    client.ask(b"again", service=b"one")
    assert first.bodies() == [b"again"], "it is free"
    assert second.forward(b"three", b"last")
    assert third.answer(b"done")
    assert client.finals == [[b"done"]]
    assert world.notes.hops == [b"two", b"three"] and request.history.forwards == 2
    assert world.notes.how == ["ok"]


def test_a_forwarded_request_waits_no_longer_than_the_queued_ones(world: World) -> None:
    """It is older than the requests queued there, and no worker has registered within its queue timeout."""
    expiry = world.broker.policy.queue_expiry
    first = world.worker(b"one", silence=0)
    client, other = world.client(), world.client()
    client.ask(b"old", service=b"one")
    world.wait(expiry / 2)
    other.ask(b"first", service=b"two")
    world.wait(expiry / 2)
    other.ask(b"second", service=b"two")
    world.wait(expiry / 2 + 1)
    assert other.failures == ["no-worker"], "the second has time"
    assert first.forward(b"two")
    world.wait(1)
    assert client.failures == ["no-worker"] and other.failures == ["no-worker"]
    world.check()


def test_a_chain_waits_at_a_service_without_workers(world: World) -> None:
    client, first = world.client(), world.worker(b"one", silence=0)
    client.ask(service=b"one")
    assert first.forward(b"nobody")
    assert client.failures == []
    world.wait(59)
    assert client.failures == []
    world.wait(2)
    assert client.failures == ["no-worker"]
    assert set(world.broker.services) == {b"one"}


def test_a_chain_to_a_reserved_name_is_refused(world: World) -> None:
    client, first = world.client(), world.worker(b"one")
    client.ask(service=b"one")
    assert first.forward(b"mmi.service")
    assert client.failures == ["denied"]
    client.ask(b"next", service=b"one")
    assert first.bodies() == [b"next"]


def test_forwarding_a_cancelled_request(world: World) -> None:
    client, first, second = world.client(), world.worker(b"one"), world.worker(b"two")
    client.ask(service=b"one")
    client.close()
    assert first.forward(b"two")
    assert second.jobs == []
    assert not world.broker.forward(first.me, b"nonsense", b"two", b"", None)
    assert world.notes.stales == [(first.me.number, "forward")]


def test_forwarding_to_the_same_service(world: World) -> None:
    client, worker = world.client(), world.worker()
    client.ask(b"a")
    client.ask(b"b")
    worker.forward(b"echo", b"a again")
    assert worker.bodies() == [b"b"]
    worker.answer()
    assert worker.bodies() == [b"a again"]
