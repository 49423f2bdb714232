"""Requests that are accepted in one batch behave as if each had been accepted alone."""

from hypothesis import given
from hypothesis import strategies as st

from polydomo.broker.policy import Policy
from polydomo.limits import SMALL_BODY, WORK_REQUEST
from polydomo.wire.frames import join
from polydomo.wire.link import PAUSE_AT_LIMIT
from tests.broker.rig import World

BODIES = [join([b"x"]), join([b"y" * 300]), join([b"z" * (SMALL_BODY + 1)])]

Step = tuple[str, int, list[bytes]]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 1), st.lists(st.sampled_from(BODIES), max_size=9)),
        st.tuples(st.just("answer"), st.just(0), st.just([])),
        st.tuples(st.just("join"), st.just(0), st.just([])),
        st.tuples(st.just("leave"), st.just(0), st.just([])),
        st.tuples(st.just("turn"), st.just(0), st.just([])),
    ),
    max_size=20,
)


def play(steps: list[Step], together: bool, telling: bool) -> list[object]:
    """Everything that can be observed."""
    policy = Policy(max_outstanding=8, max_queue=11, max_client_bytes=6 * SMALL_BODY, max_held_bytes=9 * SMALL_BODY)
    world = World(policy)
    if not telling:
        silent = type("Silent", (type(world.notes),), {"ended": lambda *_: None})()
        silent.wants_messages = False
        world.broker.record_to(silent)
    broker = world.broker
    clients = [world.client(), world.client()]
    workers = [world.worker(silence=0)]
    observed: list[object] = []
    for what, who, bodies in steps:
        if what == "ask":
            client = clients[who]
            if client.link.state or client.link.pauses:
                continue
            if together:
                observed.append(broker.request_batch(client, b"echo", bodies, None))
            else:
                taken = 0
                for body in bodies:
                    if client.link.state or client.link.pauses:
                        break
                    broker.request(client, b"echo", body, None)
                    taken += 1
                observed.append(taken)
        elif what == "answer" and workers and workers[0].bodies():
            workers[0].answer()
        elif what == "join":
            workers.append(world.worker(silence=0))
        elif what == "leave" and workers:
            workers.pop(0).leave()
        elif what == "turn":
            broker.end_turn()
        world.check()
        observed.append([(request.number, bytes(request.body)) for client in clients for request in client.requests])
        observed.append([[request.number for request in worker.me.held.values()] for worker in workers])
        observed.append([bool(client.link.pauses & PAUSE_AT_LIMIT) for client in clients])
        observed.append(
            [(service.name, service.queue_length, service.accepted) for service in broker.services.values()]
        )
    observed.append((broker.held_bytes, world.notes.outcomes, world.notes.attempts))
    return observed


@given(steps, st.booleans())
def test_together_or_one_by_one_is_the_same(steps: list[Step], telling: bool) -> None:
    assert play(steps, True, telling) == play(steps, False, telling)


def test_requests_that_are_queued_anyway_are_accepted_as_a_batch() -> None:
    """The play above would show nothing if none ever were."""
    world = World()
    client = world.client()
    world.worker(silence=0)
    client.ask(b"held")
    client.ask(b"waits")
    before = client.link.work_left
    assert world.broker.request_batch(client, b"echo", BODIES, None) == 3
    assert before - client.link.work_left < WORK_REQUEST * 3, "each was accepted by itself"
    world.check()
    assert [request.number for request in client.requests] == [1, 2, 3, 4, 5]
    assert world.broker.request_batch(client, b"echo", [], None) == 0
    world.check()
