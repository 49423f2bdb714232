"""Every accepted request ends once: expiry, deadlines, lost workers, late replies, partials, clients that go."""

import pytest

from polydomo import limits
from polydomo.broker.policy import Policy
from polydomo.wire.frames import join
from tests.broker.rig import Peer, World


@pytest.fixture
def world() -> World:
    return World()


# --- time


def test_a_request_for_a_service_without_workers_expires(world: World) -> None:
    client = world.client()
    client.ask(b"1")
    world.wait(30)
    client.ask(b"2")
    world.wait(29.9)
    assert client.failures == []
    world.wait(0.7)
    assert client.failures == ["no-worker"]
    world.wait(29)
    assert client.failures == ["no-worker"]
    world.wait(1)
    assert client.failures == ["no-worker"] * 2
    assert world.broker.services == {} and len(world.broker.timers) == 0


def test_a_queue_behind_a_busy_worker_does_not_expire(world: World) -> None:
    worker, client = world.worker(), world.client()
    client.ask(b"1")
    client.ask(b"2")
    world.wait(600)
    assert client.failures == []
    worker.answer()
    assert worker.bodies() == [b"2"]


def test_expiry_counts_from_when_the_last_worker_went(world: World) -> None:
    worker, client = world.worker(), world.client()
    client.ask(b"1")
    client.ask(b"2")
    world.wait(100)
    worker.leave()
    world.wait(59.9)
    assert client.failures == []
    world.wait(1)
    assert client.failures == ["no-worker"] * 2


def test_a_worker_that_registers_in_time_serves_the_queue(world: World) -> None:
    client = world.client()
    for i in range(3):
        client.ask(b"%d" % i)
    world.wait(59)
    worker = world.worker(silence=0)
    world.wait(100)
    assert client.failures == [] and worker.bodies() == [b"0"]


def test_a_queue_timeout_ends_even_while_the_worker_is_busy(world: World) -> None:
    """memo01: "a job waits at most 10 s for a worker"."""
    worker, client = world.worker(silence=0), world.client()
    client.ask(b"1")
    client.ask(b"2", wait=10.0)
    world.wait(9.9)
    assert client.failures == []
    world.wait(0.3)
    assert client.failures == ["no-worker"]
    worker.answer()
    assert client.finals == [[b"done"]] and worker.jobs == []


def test_a_requeued_request_gets_a_new_queue_timeout(world: World) -> None:
    busy, lost, client = world.worker(silence=0), world.worker(silence=0), world.client()
    client.ask(b"1")
    client.ask(b"2", wait=10.0)
    world.wait(30)
    lost.leave()
    world.wait(9)
    assert client.failures == []
    world.wait(1.3)
    assert client.failures == ["no-worker"]
    assert busy.bodies() == [b"1"]


@pytest.mark.parametrize("queued", [True, False])
def test_a_deadline_ends_a_request_wherever_it_is(world: World, queued: bool) -> None:
    worker = world.worker(silence=0)
    client = world.client()
    if queued:
        world.client().ask(b"first")
    client.ask(b"mine", deadline=5.0)
    world.wait(4.99)
    assert client.failures == []
    world.wait(0.06)
    assert client.failures == ["timeout"]
    worker.answer(b"late")
    assert client.finals == [] and worker.jobs == []
    client.ask(b"next")
    assert worker.bodies() == [b"next"]
    assert len(world.broker.timers) == 1, "the worker's own"


def test_a_deadline_in_the_past_ends_at_the_next_timer(world: World) -> None:
    client = world.client()
    client.ask(deadline=-1.0)
    world.wait(0.02)
    assert client.failures == ["timeout"]


def test_a_run_is_timed_from_each_dispatch(world: World) -> None:
    first, second, client = world.worker(silence=0), world.worker(silence=0), world.client()
    client.ask(run=5.0)
    world.wait(4)
    first.leave()
    assert len(second.jobs) == 1
    world.wait(4.9)
    assert client.failures == []
    world.wait(0.2)
    assert client.failures == ["timeout"]
    assert second.answer(b"late"), "it was its own, though nobody waits for it"
    assert client.finals == []


def test_the_earliest_limit_counts(world: World) -> None:
    world.worker(silence=0)
    client = world.client()
    client.ask(run=5.0, deadline=2.0)
    world.wait(2.05)
    assert client.failures == ["timeout"] and "deadline" in world.notes.reasons[1]
    client.ask(wait=3.0, deadline=8.0)
    world.wait(3.1)
    assert client.failures == ["timeout", "no-worker"]


# --- lost workers


def test_a_lost_workers_request_is_requeued_until_its_attempts_are_used_up(world: World) -> None:
    client = world.client()
    request = client.ask()
    assert request is not None
    for attempt in range(limits.ATTEMPTS):
        worker = world.worker()
        assert len(worker.jobs) == 1 and client.failures == [] and request.attempts == attempt + 1
        worker.close()
    assert client.failures == ["gave-up"]
    assert world.notes.requeues == [request.number] * (limits.ATTEMPTS - 1)
    assert "3 attempts" in world.notes.reasons[request.number]


def test_a_request_may_bring_its_own_number_of_attempts(world: World) -> None:
    client = world.client()
    request = client.ask(attempts=1)
    assert request is not None
    world.worker().close()
    assert client.failures == ["gave-up"]
    assert world.notes.reasons[request.number].startswith("the attempt ended without a reply: ")


def test_requeued_requests_keep_their_order_at_the_head(world: World) -> None:
    lost, client = world.worker(credit=3), world.client()
    for i in range(5):
        client.ask(b"%d" % i)
    assert lost.bodies() == [b"0", b"1", b"2"]
    lost.close()
    worker = world.worker()
    seen = []
    for _ in range(5):
        seen += worker.bodies()
        worker.answer()
    assert seen == [b"0", b"1", b"2", b"3", b"4"]


def test_another_worker_is_preferred(world: World) -> None:
    """A connection with two workers loses one: the request does not go to the other one on it, if there is a third."""
    crew, client = Peer(world), world.client()
    first = crew.register(b"echo")
    crew.register(b"echo")
    other = world.worker()
    client.ask()
    assert first is not None and crew.jobs[0].worker is first
    world.broker.worker_left(first, "went")
    world.check()
    assert len(other.jobs) == 1 and len(crew.jobs) == 1


def test_a_requeued_request_returns_to_the_same_connection_if_there_is_no_other(world: World) -> None:
    crew, client = Peer(world), world.client()
    first, second = crew.register(b"echo"), crew.register(b"echo")
    client.ask()
    assert first is not None
    world.broker.worker_left(first, "went")
    crew.said.clear()
    world.check()
    assert crew.jobs[-1].worker is second


def test_a_request_out_of_attempts_does_not_end_the_others(world: World) -> None:
    """The only worker of a service is lost with two requests, of which one has had all its attempts."""
    worker, client = world.worker(credit=2), world.client()
    client.ask(b"again")
    client.ask(b"enough", attempts=1)
    worker.close()
    assert client.failures == ["gave-up"]
    other = world.worker()
    assert other.bodies() == [b"again"]
    other.answer()
    assert world.notes.how == ["gave-up", "ok"]


def test_one_request_is_out_of_attempts_and_another_expires(world: World) -> None:
    worker, client = world.worker(credit=2), world.client()
    client.ask(b"again")
    client.ask(b"enough", attempts=1)
    worker.close()
    world.wait(61)
    assert client.failures == ["gave-up", "no-worker"]


def test_disconnect_while_busy(world: World) -> None:
    worker, other, client = world.worker(), world.worker(), world.client()
    client.ask()
    worker.leave()
    assert len(other.jobs) == 1 and worker.said == ["gone"]
    assert world.notes.lefts == [(worker.me.number, "left", "DISCONNECT")]
    other.answer()
    assert client.finals == [[b"done"]]


# --- fencing


def test_a_late_reply_of_a_lost_worker_is_stale(world: World) -> None:
    slow, client = world.worker(), world.client()
    client.ask()
    slow.leave()
    fresh = world.worker()
    assert not slow.part(b"late")
    assert not slow.answer(b"late")
    assert client.finals == [] and world.notes.stales == [(slow.me.number, "partial"), (slow.me.number, "final")]
    fresh.answer(b"right")
    assert client.finals == [[b"right"]]


def test_a_reply_counts_only_from_the_worker_that_holds_it(world: World) -> None:
    mine, thief, client = world.worker(), world.worker(), world.client()
    client.ask()
    token = mine.jobs[0].token
    for other in (b"", b"undefined", b"0" * 12, token):
        assert not world.broker.final(thief.me, other, join([b"stolen"]))
        assert not world.broker.partial(thief.me, other, join([b"stolen"]))
        assert not world.broker.fail(thief.me, other, "x", "y")
        assert not world.broker.forward(thief.me, other, b"echo", b"", None)
        world.check()
    assert client.finals == [] and client.failures == []
    assert mine.answer(b"right")
    assert not world.broker.final(mine.me, token, join([b"twice"]))
    assert client.finals == [[b"right"]]


def test_tokens_are_never_used_twice(world: World) -> None:
    client, tokens = world.client(), set()
    client.ask(attempts=50)
    for _ in range(49):
        worker = world.worker()
        tokens.add(worker.tokens[0])
        worker.close()
    assert len(tokens) == 49


# --- clients that go


def test_a_disconnected_clients_queued_requests_are_removed(world: World) -> None:
    worker, client, other = world.worker(), world.client(), world.client()
    client.ask(b"held")
    client.ask(b"queued 1")
    other.ask(b"other")
    client.ask(b"queued 2")
    client.close()
    assert world.notes.how == ["cancelled"] * 3
    assert worker.bodies() == [b"held"], "what a worker already holds is let finish"
    assert worker.part(b"x") and worker.answer(b"unheard")
    assert client.finals == [] and worker.bodies() == [b"other"]
    assert world.notes.stales == []


def test_a_disconnected_clients_request_is_not_requeued(world: World) -> None:
    worker, other, client = world.worker(), world.worker(), world.client()
    client.ask()
    client.close()
    worker.close()
    assert other.jobs == [] and world.notes.requeues == []


def test_a_protocol_that_can_cancel_frees_its_worker(world: World) -> None:
    worker, client = world.worker(), world.client()
    worker.can_cancel = True
    request = client.ask()
    client.ask(b"next")
    assert request is not None
    world.broker.cancel(request, "no longer wanted")
    world.check()
    assert worker.bodies() == [b"next"]
    world.broker.cancel(request, "again")
    assert world.notes.how == ["cancelled"] and client.failures == []


def test_withdrawing_what_waits(world: World) -> None:
    client = world.client()
    requests = [client.ask(b"%d" % i, deadline=20.0) for i in range(3)]
    assert requests[1] is not None
    world.broker.cancel(requests[1], "no longer wanted")
    world.check()
    worker = world.worker(credit=5)
    assert worker.bodies() == [b"0", b"2"]


def test_a_connection_that_closes_as_client_and_worker(world: World) -> None:
    peer, other, client = world.worker(), world.worker(b"other"), world.client()
    peer.ask(service=b"other")
    client.ask()
    peer.close()
    peer.close()
    assert world.notes.how == ["cancelled"]
    assert client.failures == [] and other.answer()
    world.wait(61)
    assert client.failures == ["no-worker"]


# --- failures the worker reports


def test_a_failure_is_an_outcome_not_an_attempt(world: World) -> None:
    worker, client = world.worker(), world.client()
    client.ask()
    client.ask(b"next")
    assert worker.fail("bad-input")
    assert client.failures == ["bad-input"] and world.notes.outcomes == [(1, "failed")]
    assert "it went wrong" in world.notes.reasons[1]
    assert worker.bodies() == [b"next"]


# --- partials


def test_partials_go_straight_to_a_client_that_takes_them(world: World) -> None:
    worker, client = world.worker(), world.client(takes_partials=True)
    client.ask()
    worker.part(b"a", b"b")
    worker.part(b"c")
    assert client.partials == [[b"a", b"b"], [b"c"]]
    worker.answer(b"d")
    assert client.finals == [[b"d"]]


def test_partials_are_held_and_joined_for_a_client_that_does_not(world: World) -> None:
    worker, client = world.worker(), world.client()
    client.ask()
    worker.part(b"a", b"")
    worker.part(b"b" * 300)
    assert world.broker.held_bytes > 300
    worker.answer(b"c")
    assert client.finals == [[b"a", b"", b"b" * 300, b"c"]] and world.broker.held_bytes == 0


def test_held_partials_are_dropped_with_the_attempt(world: World) -> None:
    lost, client = world.worker(), world.client()
    client.ask()
    lost.part(b"of the first attempt")
    lost.close()
    fresh = world.worker()
    fresh.part(b"1")
    fresh.answer(b"2")
    assert client.finals == [[b"1", b"2"]]


def test_once_a_partial_reached_the_client_a_lost_attempt_ends_it(world: World) -> None:
    lost, other, client = world.worker(), world.worker(), world.client(takes_partials=True)
    client.ask()
    lost.part(b"seen")
    lost.close()
    assert client.failures == ["interrupted"] and other.jobs == []


def test_a_setting_requeues_after_a_partial() -> None:
    world = World(Policy(requeue_after_partial=True))
    lost, other, client = world.worker(), world.worker(), world.client(takes_partials=True)
    client.ask()
    lost.part(b"seen")
    lost.close()
    assert client.failures == [] and len(other.jobs) == 1


@pytest.mark.parametrize("last", ["partial", "final"])
def test_joined_partials_past_the_message_bound_fail(last: str) -> None:
    world = World(Policy(max_message=100))
    worker, client = world.worker(), world.client()
    client.ask()
    worker.part(bytes(60))
    if last == "partial":
        worker.part(bytes(60))
        assert client.failures == ["too-large"]
        assert worker.part(b"more") and worker.answer(b"end")
    else:
        worker.answer(bytes(60))
    assert client.failures == ["too-large"] and client.finals == []
    client.ask(b"next")
    assert worker.bodies() == [b"next"]


def test_partials_without_end_are_bounded_even_if_they_are_empty(world: World) -> None:
    worker, client = world.worker(), world.client()
    client.ask()
    for _ in range(2 * limits.MAX_FRAMES):
        assert world.broker.partial(worker.me, worker.jobs[0].token, b"")
        if client.failures:
            break
    assert client.failures == ["too-large"]
    world.check()


def test_joined_partials_have_no_more_frames_than_a_message_may(world: World) -> None:
    worker, client = world.worker(), world.client()
    client.ask()
    worker.part(*[b"x"] * (limits.MAX_BODY_FRAMES - 1))
    worker.answer(b"y")
    assert len(client.finals[0]) == limits.MAX_BODY_FRAMES
    client.ask()
    worker.part(*[b"x"] * (limits.MAX_BODY_FRAMES - 1))
    worker.answer(b"y", b"z")
    assert client.failures == ["too-large"]


def test_a_request_that_is_forwarded_endlessly_is_ended() -> None:
    world = World()
    one, two, client = world.worker(b"one"), world.worker(b"two"), world.client()
    client.ask(service=b"one")
    for hop in range(limits.MAX_CHAIN + 1):
        (one, two)[hop % 2].forward((b"two", b"one")[hop % 2])
    assert client.failures == ["refused"]
    assert world.broker.open_requests == 0
