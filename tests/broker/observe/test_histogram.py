"""Logarithmic buckets: where a duration belongs, how well quantiles are known, and what adding up gives."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.broker.observe.histogram import RATIO, Tally, add, bucket, cumulative, least, middle, quantile
from polydomo.limits import FOLD_FREQUENT
from tests.broker.net import Net

DURATIONS = st.floats(min_value=1e-6, max_value=7 * 86_400.0)


@pytest.mark.parametrize(
    ("microseconds", "number"), [(0, 0), (0.5, 0), (1, 0), (1.03, 1), (2, 35), (1000, 348), (1_000_000, 697)]
)
def test_the_formula(microseconds: float, number: int) -> None:
    assert bucket(microseconds / 1e6) == number
    assert number == math.floor(math.log(max(microseconds, 1)) / math.log(1.02))


@given(DURATIONS)
def test_a_duration_is_within_its_bucket_and_one_percent_of_the_middle(seconds: float) -> None:
    number = bucket(seconds)
    assert least(number) * (1 - 1e-9) <= seconds < least(number + 1) * (1 + 1e-9)
    assert abs(middle(number) / seconds - 1) < 0.0101


@given(st.lists(DURATIONS, min_size=1, max_size=200), st.floats(min_value=0.0, max_value=1.0))
def test_a_quantile_is_that_of_the_sorted_list_within_one_percent(durations: list[float], part: float) -> None:
    counts: dict[int, int] = {}
    for duration in durations:
        add(counts, {bucket(duration): 1})
    exact = sorted(durations)[max(1, math.ceil(part * len(durations))) - 1]
    assert quantile(counts, part) == pytest.approx(exact, rel=0.0101)


def test_a_quantile_of_nothing() -> None:
    assert quantile({}, 0.5) == 0.0


@given(st.lists(DURATIONS, max_size=100))
def test_coarser_buckets_hold_what_the_fine_ones_do(durations: list[float]) -> None:
    bounds = [0.001, 0.01, 0.1, 1.0, 10.0]
    tally = Tally()
    tally.fresh.extend(durations)
    found = cumulative(tally.total(), bounds)
    assert found == sorted(found)
    for bound, count in zip(bounds, found, strict=True):
        # what lies in the bound's own bucket, 2 % wide, may fall on either side
        assert sum(d < bound / RATIO for d in durations) <= count <= sum(d <= bound for d in durations)


def test_a_tally_counts_each_value_once_for_any_number_of_folds() -> None:
    tally = Tally()
    kept = tally.fresh
    for _ in range(3):
        kept.extend([0.001, 0.001, 0.2])
        tally.fold()
        tally.fold()
    assert tally.fresh is kept and not kept
    assert tally.answered == 9
    assert tally.seconds == pytest.approx(0.606)
    assert tally.total() == {bucket(0.001): 6, bucket(0.2): 3}
    tally.turn_over()
    assert tally.last == tally.total()
    kept.append(5.0)
    tally.turn_over()
    assert tally.last == {bucket(5.0): 1}
    assert sum(tally.total().values()) == tally.answered == 10
    tally.turn_over()
    assert tally.last == {}


def test_failures_are_counted_by_outcome_and_by_second() -> None:
    tally = Tally()
    tally.fail("timeout")
    tally.fail("timeout")
    tally.fail("gave-up")
    tally.turn_over()
    assert (tally.failed, tally.last_failures) == ({"timeout": 2, "gave-up": 1}, 3)
    tally.turn_over()
    assert tally.last_failures == 0


def test_one_tally_takes_over_another() -> None:
    one, other = Tally(), Tally()
    one.fresh.append(0.1)
    other.fresh.extend([0.1, 0.2])
    other.fail("timeout")
    one.absorb(other)
    assert one.total() == {bucket(0.1): 2, bucket(0.2): 1}
    assert (one.answered, one.failed) == (3, {"timeout": 1})


def test_the_durations_of_a_frequent_service_are_folded_in_small_pieces() -> None:
    """Otherwise one turn of each second would fold those of the whole second."""
    net = Net()
    node = net.node("a")
    worker, client = node.worker(b"s", credit=9), node.peer()

    def ask(count: int) -> None:
        for number in range(count):
            client.ask(b"s", number)
            worker.final()
            node.broker.end_turn()

    ask(3 * FOLD_FREQUENT)
    (tally,) = node.broker.monitor.tallies.values()
    assert len(tally.fresh) == 3 * FOLD_FREQUENT, "not known to be frequent yet"
    net.now += 1.1
    node.broker.now = net.now
    node.broker.end_turn()
    ask(3 * FOLD_FREQUENT + 5)
    assert len(tally.fresh) == 5
    assert tally.answered == 6 * FOLD_FREQUENT
