"""Deadlines in buckets: never early, not late by more than a tick or a hundredth, and nothing left behind."""

from hypothesis import given, settings
from hypothesis import strategies as st

from polydomo.broker.timers import TIME_TOLERANCE, Timers
from polydomo.limits import TIMER_TICK

TICK = TIMER_TICK / 1000.0

moments = st.floats(0.001, 2_000_000.0)
waits = st.one_of(st.floats(0.0, 20.0), st.floats(0.0, 700_000.0))


@given(moments, waits)
@settings(max_examples=300)
def test_one_item_is_due_on_time(now: float, wait: float) -> None:
    timers, when = Timers(), now + wait
    key = timers.add(now, when, "item")
    due = timers.next()
    assert due is not None
    assert due >= when - TIME_TOLERANCE, "never early"
    assert due - when <= max(2 * TICK, 0.011 * wait + TICK), "late by a tick, or a hundredth of the wait"
    assert timers.due(now) == [], "not even if it is due at once: looking comes to an end"
    assert timers.due(due - TICK / 10) == []
    assert timers.due(due) == [(key, "item")], "looking exactly when it says is enough"
    assert timers.next() is None and len(timers) == 0


@given(moments, st.lists(st.tuples(waits, st.booleans()), max_size=40))
@settings(max_examples=100)
def test_many_items_in_order_and_removed_ones_never(now: float, entries: list[tuple[float, bool]]) -> None:
    timers = Timers()
    keys = [timers.add(now, now + wait, i) for i, (wait, _) in enumerate(entries)]
    for i, (_, removed) in enumerate(entries):
        if removed:
            timers.remove(keys[i], i)
            timers.remove(keys[i], i)
    expected = {i for i, (_, removed) in enumerate(entries) if not removed}
    assert len(timers) == len(expected) == len(timers.items())
    found: list[int] = []
    last = now
    for _ in range(len(entries) + 1):
        due = timers.next()
        if due is None:
            break
        assert due >= last
        last = due
        for key, item in timers.due(due):
            assert isinstance(item, int) and key == keys[item]
            found.append(item)
    assert sorted(found) == sorted(expected) and len(timers) == 0
    times = [keys[i] for i in found]
    assert times == sorted(times)


def test_far_deadlines_share_buckets() -> None:
    timers = Timers()
    keys = {timers.add(1000.0, 1900.0 + i / 1000, i) for i in range(5000)}
    assert len(keys) <= 7, "busy timeouts of 900 s stand a second apart"
    assert len({timers.add(1000.0, 1002.5 + i / 10_000, i) for i in range(100)}) <= 3


def test_the_heap_does_not_grow_with_items_that_come_and_go() -> None:
    timers, now = Timers(), 1000.0
    for i in range(20_000):
        now += 0.001
        timers.remove(timers.add(now, now + 2.5, i), i)
        timers.due(now)
    assert len(timers) == 0
    assert len(timers._heap) == len(timers._known) <= 2.6 / TICK


def test_an_item_may_be_set_again_to_the_same_bucket() -> None:
    timers = Timers()
    key = timers.add(1000.0, 1001.0, "a")
    assert timers.add(1000.0, 1001.0, "a") == key
    assert len(timers) == 1
    timers.remove(key, "b")
    assert len(timers) == 1
