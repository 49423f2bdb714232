"""Limits of services in one process: what may start, who waits, and who passes."""

import json
from random import Random

import pytest

from polydomo.broker.observe.inspection import request_row, service_detail
from polydomo.broker.policy import Policy
from polydomo.journal import schema
from polydomo.journal.levels import Levels
from polydomo.journal.reading.audit import audit
from polydomo.journal.recording.chunk import Run
from polydomo.journal.recording.recorder import JournalRecorder
from polydomo.limits import LANES_FORGOTTEN
from polydomo.model.name_patterns import PatternMap
from polydomo.model.records import QUEUED, Request
from polydomo.model.request_options import RequestOptions
from polydomo.model.service_limits import LimitPatterns, ServiceLimits
from polydomo.wire.frames import join
from tests.broker.rig import START, Peer, World


def limited(running: int = 0, rate: str = "", per: str = "group", **bounds: int) -> World:
    world = World(Policy(**bounds))  # type: ignore[arg-type]
    order = {"service": "ec*", "running": running, "rate": rate, "per": per}
    assert "error" not in world.broker.limiter.answer(json.dumps(order).encode())
    return world


def offer(world: World, **options: float) -> Peer:
    """A worker that is never lost for its silence."""
    return world.worker(silence=0.0, **options)


def ask(client: Peer, body: bytes, group: bytes = b"", deadline: float = 0.0) -> Request | None:
    core = client.core
    when = core.now + deadline if deadline else 0.0
    found = core.request(client, b"echo", join([body]), body, when, RequestOptions(group=group))
    client.world.check()
    return found


def test_a_group_waits_alone() -> None:
    world = limited(running=2)
    worker, client = offer(world, credit=10), world.client()
    for number in range(4):
        ask(client, b"a%d" % number, b"a")
    ask(client, b"b0", b"b")
    ask(client, b"none")
    assert worker.bodies() == [b"a0", b"a1", b"b0", b"none"]
    worker.answer(index=0)
    assert worker.bodies() == [b"a1", b"b0", b"none", b"a2"]


def test_the_window_slides() -> None:
    """Not a bucket: no ten seconds hold more than three starts, wherever they begin."""
    world = limited(rate="3/10s")
    worker, client = offer(world, credit=100), world.client()
    world.wait(8.0)
    for number in range(6):
        ask(client, b"%d" % number, b"a")
    assert len(worker.jobs) == 3
    world.wait(9.9)
    assert len(worker.jobs) == 3
    world.wait(0.3)
    assert len(worker.jobs) == 6
    assert client.core.next_deadline() is not None  # the lane is forgotten once its window is empty
    while worker.jobs:
        worker.answer()
    world.wait(25.0)
    queue = world.broker.limiter.queues[b"echo"]
    assert not queue.lanes and not queue.start_count and world.broker.memory.by_kind()["limits"] == 0


def test_both_limits_hold() -> None:
    world = limited(running=1, rate="2/10s")
    worker, client = offer(world, credit=100), world.client()
    for number in range(4):
        ask(client, b"%d" % number, b"a")
    assert worker.bodies() == [b"0"]
    worker.answer()
    worker.answer()
    assert not worker.jobs
    world.wait(10.2)
    assert worker.bodies() == [b"2"]


@pytest.mark.parametrize(("per", "started"), [("service", 1), ("principal", 2), ("group", 2)])
def test_what_a_limit_counts(per: str, started: int) -> None:
    world = limited(running=1, per=per)
    worker = offer(world, credit=10)
    for name in ("alice", "bob"):
        client = world.client()
        client.principal = name
        ask(client, name.encode(), name.encode())
        ask(client, name.encode(), name.encode())
    assert len(worker.jobs) == started


def test_clients_are_served_in_turn() -> None:
    world = limited(running=1, per="service")
    worker = offer(world, credit=10)
    first, second = world.client(), world.client()
    for number in range(3):
        ask(first, b"a%d" % number)
    ask(second, b"b0")
    order = []
    while worker.jobs:
        order += worker.bodies()
        worker.answer()
    assert order == [b"a0", b"a1", b"b0", b"a2"]


def test_a_client_with_many_groups_does_not_delay_another() -> None:
    world = limited(running=1)
    worker = offer(world)
    first, second = world.client(), world.client()
    for number in range(10):
        ask(first, b"a", b"g%d" % number)
    ask(second, b"b", b"x")
    worker.answer()
    worker.answer()
    assert worker.bodies() == [b"b"]


def test_deadlines_and_cancellation_apply_to_what_waits() -> None:
    world = limited(running=1)
    worker, client = offer(world, credit=10), world.client()
    ask(client, b"runs", b"a")
    ask(client, b"late", b"a", deadline=2.0)
    dropped = ask(client, b"dropped", b"a")
    ask(client, b"last", b"a")
    world.wait(3.0)
    assert client.failures == ["timeout"]
    assert dropped is not None
    world.broker.cancel(dropped, "changed its mind")
    worker.answer()
    assert worker.bodies() == [b"last"]


def test_a_lost_worker_gives_its_slots_back() -> None:
    world = limited(running=2)
    worker, client = offer(world, credit=10), world.client()
    for number in range(4):
        ask(client, b"%d" % number, b"a")
    other = offer(world, credit=10)
    assert not other.jobs
    worker.core.worker_left(worker.me, "gone")
    assert other.bodies() == [b"0", b"1"]
    assert world.broker.limiter.queues[b"echo"].lanes[b"a"].running == 2


def test_every_way_out_of_a_worker_gives_the_slot_back() -> None:
    world = limited(running=1)
    worker, client = offer(world, credit=100), world.client()
    core = world.broker
    for number in range(7):
        ask(client, b"%d" % number, b"a")
    core.fail(worker.me, worker.jobs.pop(0).token, "bad", "it failed")
    assert core.release(worker.me, worker.jobs.pop(0).token)  # comes back first
    assert worker.bodies() == [b"1"]
    assert core.give_back(worker.me, worker.jobs.pop(0).token, "again")
    assert worker.bodies() == [b"1"]
    core.forward(worker.me, worker.jobs.pop(0).token, b"other", join([b"x"]), None)
    assert worker.bodies() == [b"2"]
    worker.can_cancel = True
    core.cancel(worker.jobs[0], "cancelled")
    assert worker.bodies() == [b"3"]
    worker.can_cancel = False
    core.cancel(worker.jobs[0], "cancelled")
    assert worker.bodies() == [b"3"]  # it still runs
    worker.answer()
    assert worker.bodies() == [b"4"]
    core.request(client, b"nothing", join([b"x"]), b"x")
    world.check()


def test_an_idle_worker_gets_what_another_one_makes_room_for() -> None:
    world = limited(running=1)
    first, client = offer(world, auto_credit=0.0), world.client()
    ask(client, b"0", b"a")
    second = offer(world)
    ask(client, b"1", b"a")
    assert not second.jobs
    first.answer()
    assert second.bodies() == [b"1"]


def test_limits_change_while_requests_run() -> None:
    world = World()
    worker, client = offer(world, credit=100), world.client()
    limiter = world.broker.limiter
    for _ in range(3):
        ask(client, b"x", b"a")
    limiter.answer(b'{"service": "echo", "running": 4, "per": "group"}')
    world.check()
    for _ in range(3):
        ask(client, b"y", b"a")
    assert len(worker.jobs) == 4
    limiter.answer(b'{"service": "e*", "running": 2, "per": "group"}')  # the name is more specific
    assert len(worker.jobs) == 4
    limiter.answer(b'{"service": "echo", "rate": "5/10s", "per": "service"}')
    world.check()
    assert len(worker.jobs) == 5
    assert [row["service"] for row in limiter.rows()] == ["e*", "echo"]
    limiter.answer(b'{"service": "echo", "remove": true}')
    world.check()
    assert len(worker.jobs) == 5  # five run, and two may
    limiter.answer(b'{"service": "e*", "remove": true}')
    world.check()
    assert len(worker.jobs) == 6 and limiter.rows() == []


@pytest.mark.parametrize(
    "order",
    [
        b"[]",
        b"{",
        b"{}",
        b'{"service": "a"}',
        b'{"service": "a", "running": -1}',
        b'{"service": "a", "running": true}',
        b'{"service": "a", "rate": "fast"}',
        b'{"service": "a", "rate": 5}',
        b'{"service": "a", "rate": "0/1s"}',
        b'{"service": "a", "rate": "1/2d"}',
        b'{"service": "a", "running": 1, "per": "planet"}',
        b'{"service": "polydomo.limit", "running": 1}',
        b'{"service": "a", "remove": true}',
    ],
)
def test_an_order_that_cannot_be_followed(order: bytes) -> None:
    assert "error" in World().broker.limiter.answer(order)


def test_limits_of_the_settings() -> None:
    patterns = LimitPatterns(PatternMap({"e*": 3}), PatternMap({"echo": (2, 10.0)}), PatternMap({"*": "group"}))
    assert patterns.of(b"echo") == ServiceLimits(3, 2, 10.0, "group")
    assert patterns.of(b"ears") == ServiceLimits(3, 0, 0.0, "group")
    assert patterns.of(b"nose") is None
    world = World(Policy(limits=patterns))
    world.worker()
    service = world.broker.services[b"echo"]
    assert service.limits is not None and service.limits.row() == {"running": 3, "rate": "2/10s", "per": "group"}


def test_why_a_request_waits() -> None:
    world = limited(running=1, rate="1/10s")
    worker, client = offer(world, credit=10), world.client()
    ask(client, b"0", b"customer-7")
    waiting = ask(client, b"1", b"customer-7")
    assert waiting is not None
    assert world.broker.limiter.why(waiting) == "group customer-7: 1 of 1 running"
    assert service_detail(world.broker.parts, b"echo")["why"] == "group customer-7: 1 of 1 running"
    assert request_row(world.broker.parts.state, waiting)["group"] == "customer-7"
    worker.answer()
    assert world.broker.limiter.why(waiting) == "group customer-7: 1 of 1/10s started"


def test_a_broker_that_does_not_know_the_starts_before_it_waits_for_a_window() -> None:
    world = World(Policy(limits=LimitPatterns(rates=PatternMap({"echo": (2, 10.0)}))))
    world.broker.limiter.start_at(START)
    worker, client = offer(world, credit=10), world.client()
    ask(client, b"x")
    world.wait(9.9)
    assert not worker.jobs
    world.wait(0.3)
    assert len(worker.jobs) == 1


@pytest.mark.parametrize("seed", range(12))
def test_no_window_holds_more_starts_than_allowed_and_nothing_waits_in_vain(seed: int) -> None:
    rng = Random(seed)
    running, count, window = rng.choice([0, 1, 3]), rng.choice([0, 2, 5]), 4.0
    if not running and not count:
        running = 2
    world = limited(running, f"{count}/{window}s" if count else "")
    clients = [world.client() for _ in range(3)]
    workers = [offer(world, credit=rng.choice([1, 4])) for _ in range(2)]
    starts: dict[bytes, list[float]] = {}
    seen: set[bytes] = set()
    open_: list[Request] = []
    for _ in range(400):
        action = rng.random()
        if action < 0.45:
            found = ask(rng.choice(clients), b"x", b"g%d" % rng.randrange(4), deadline=rng.choice([0.0, 3.0, 30.0]))
            if found is not None:
                open_.append(found)
        elif action < 0.75:
            worker = rng.choice(workers)
            live = [request for request in worker.jobs if request.token in worker.me.held]
            worker.jobs = live
            if live:
                worker.answer(index=rng.randrange(len(live)))
        elif action < 0.8:
            world.broker.cancel(rng.choice(open_), "cancelled") if open_ else None
        elif action < 0.83:
            worker = rng.choice(workers)
            worker.core.worker_left(worker.me, "lost")
            workers[workers.index(worker)] = offer(world, credit=rng.choice([1, 4]))
        else:
            world.wait(rng.random())
        for worker in workers:
            for request in worker.jobs:
                if request.token not in seen:
                    seen.add(request.token)
                    starts.setdefault(request.options.group, []).append(request.dispatched)
            for group in starts:
                held = sum(r.options.group == group for w in workers for r in w.me.held.values())
                assert not running or held <= running
        for times in starts.values():
            times.sort()
            for first, last in zip(times, times[count:], strict=False):
                assert not count or last - first >= window
        open_ = [request for request in open_ if not request.outcome]
    world.check()
    for _ in range(400):  # in the end, everything is served
        for worker in workers:
            worker.jobs = [request for request in worker.jobs if request.token in worker.me.held]
            while worker.jobs:
                worker.answer()
        world.wait(0.5)
    assert not [request for request in open_ if request.state == QUEUED]


def test_the_audit_lets_groups_pass_a_requeued_request() -> None:
    world = limited(rate="1/10s")
    recorder = JournalRecorder(Run("b", 1, 1.7e9), Levels(schema.MESSAGES))
    recorder.attach(world.broker)
    world.broker.record_to(recorder)
    recorder.begin("started")
    lost, client = offer(world), world.client()
    ask(client, b"a", b"a")
    lost.link.lost()
    worker = offer(world)
    ask(client, b"b", b"b")
    assert worker.bodies() == [b"b"]  # the second attempt of the first waits for its window
    assert [str(breach) for breach in audit(recorder.rows())] == []


def test_a_cancelled_request_makes_no_other_ready_without_a_worker_for_it() -> None:
    """The timer of the window does that, and dispatches it."""
    world = limited(rate="1/10s")
    worker, client, other = offer(world, credit=100), world.client(), world.client()
    ask(client, b"0", b"a")
    gone = ask(client, b"1", b"a")
    ask(other, b"2", b"a")
    assert gone is not None
    world.broker.now += 10.0  # the timer is due in this moment, and has not run
    world.broker.cancel(gone, "cancelled")
    world.check()
    world.wait(0.1)
    assert worker.bodies() == [b"0", b"2"]


def test_a_request_that_may_start_goes_to_an_idle_worker_and_not_to_one_that_prefetches() -> None:
    world = limited(running=1)
    first, second, client = offer(world), offer(world), world.client()
    for worker in (first, second):
        worker.core.set_credit(worker.me, 2, 1)
    ask(client, b"a0", b"a")
    ask(client, b"b0", b"b")
    ask(client, b"c0", b"c")
    ask(client, b"a1", b"a")
    assert (first.bodies(), second.bodies()) == ([b"a0", b"c0"], [b"b0"])
    second.answer()
    first.answer(index=0)  # it runs c0 now, and a1 may start
    assert (first.bodies(), second.bodies()) == ([b"c0"], [b"a1"])


def test_idle_groups_are_forgotten_a_number_in_each_turn() -> None:
    world = limited(rate="3/10s")
    offer(world)
    ask(world.client(), b"x", b"used")
    queue = world.broker.limiter.queues[b"echo"]
    for number in range(2 * LANES_FORGOTTEN):
        lane = queue.lane_of(b"%d" % number)
        for _ in range(2):  # idle, and after another start idle again: only the last one counts
            world.broker.now += 0.0001
            queue.note_start(lane, world.broker.now)
            queue.settle(lane)
    assert len(queue.lanes) == 2 * LANES_FORGOTTEN + 1
    world.broker.now += 10.0
    turns: list[int] = []
    while queue.idle and len(turns) < 100:
        before = len(queue.lanes)
        queue.on_timer()
        turns.append(before - len(queue.lanes))
    assert max(turns) <= LANES_FORGOTTEN and list(queue.lanes) == [b"used"], "its request still runs"
    assert queue.start_count == 1


def test_a_client_does_not_stay_first_after_its_requeued_request_is_cancelled() -> None:
    world = limited(running=5)
    worker, one, other = offer(world, credit=1), world.client(), world.client()
    lost = ask(one, b"lost")
    ask(other, b"second")
    ask(one, b"third")
    assert worker.bodies() == [b"lost"] and lost is not None
    worker.leave()
    world.broker.cancel(lost, "its client gave up")
    again = offer(world, credit=1)
    assert again.bodies() == [b"second"]
    again.answer()
    assert again.bodies() == [b"third"]
