"""The ring of samples: what is written can be read, old samples are dropped, and a sample is never larger than its bound."""

import random

import pytest

from polydomo.broker.observe.histogram import bucket, quantiles
from polydomo.broker.observe.history.ring import Ring, Sample
from polydomo.limits import HISTORY_BUCKETS


def sample(requests: int, workers: int = 1, queue: int = 0, counts: "dict[int, int] | None" = None) -> Sample:
    made = Sample(requests, requests // 3, queue, workers)
    made.counts = dict(counts or {})
    return made


def shown(found: Sample) -> tuple[object, ...]:
    return found.requests, found.failed, found.queue, found.workers, found.counts


@pytest.mark.parametrize("seed", range(30))
def test_what_is_written_is_read_and_old_samples_are_dropped(seed: int) -> None:
    random_ = random.Random(seed)
    ring = Ring(40)
    kept: dict[int, Sample] = {}
    step = random_.randrange(10**9)
    for _ in range(200):
        step += random_.choice([1, 1, 1, 2, 7, 50, 300])
        counts = {
            random_.randrange(1400): random_.randrange(1, 10**6) for _ in range(random_.randrange(HISTORY_BUCKETS))
        }
        kept[step] = sample(random_.randrange(10**6), random_.randrange(200), random_.randrange(10**5), counts)
        ring.append(step, kept[step])
        kept = {number: one for number, one in kept.items() if number > step - 40}
        assert {number: shown(one) for number, one in ring.samples()} == {
            number: shown(one) for number, one in kept.items()
        }
        assert ring.steps() == list(kept)
        since = step - random_.randrange(50)
        assert [number for number, _ in ring.samples(since)] == [number for number in kept if number >= since]


def test_the_workers_before_the_first_sample_are_those_of_the_last_dropped_one() -> None:
    ring = Ring(10)
    ring.append(1, sample(1, workers=7))
    ring.append(5, sample(1, workers=9))
    assert ring.before == 0
    ring.append(11, sample(1, workers=3))
    assert ring.before == 7
    ring.drop_before(100)
    assert (ring.before, len(ring.data), ring.workers) == (3, 0, 3)
    ring.append(200, sample(2))
    assert ring.steps() == [200]


def test_a_clock_that_is_set_back_goes_on_from_there() -> None:
    ring = Ring(10)
    for step in (3, 5, 7):
        ring.append(step, sample(step, workers=step))
    ring.append(7, sample(2))  # a restart within the step
    assert [(step, found.requests) for step, found in ring.samples()] == [(3, 3), (5, 5), (7, 7)]
    ring.append(4, sample(4))  # what is later now is in the future
    assert [(step, found.requests) for step, found in ring.samples()] == [(3, 3), (4, 4)]
    ring.append(1, sample(1))
    ring.append(2, sample(2))
    assert [(step, found.requests) for step, found in ring.samples()] == [(1, 1), (2, 2)]
    assert ring.workers == 1


@pytest.mark.parametrize("factor", [2, 30, 10_000])
def test_percentiles_of_a_sample_with_few_buckets_are_near_the_exact_ones(factor: int) -> None:
    random_ = random.Random(factor)
    durations = sorted(0.001 * factor ** random_.random() for _ in range(5000))
    counts: dict[int, int] = {}
    for duration in durations:
        counts[bucket(duration)] = counts.get(bucket(duration), 0) + 1
    ring = Ring(10)
    ring.append(1, sample(5000, counts=counts))
    assert len(ring.data) < 100
    ((_, found),) = ring.samples()
    assert len(found.counts) <= HISTORY_BUCKETS and sum(found.counts.values()) == 5000
    allowed = {2: 0.03, 30: 0.09, 10_000: 0.4}[factor]
    for part, measured in zip((0.5, 0.95, 0.99), quantiles(found.counts, (0.5, 0.95, 0.99)), strict=True):
        exact = durations[int(part * 5000) - 1]
        assert abs(measured - exact) <= allowed * exact


def test_samples_of_following_steps_and_of_other_processes_add_up() -> None:
    later, other = sample(6, 2, 5, {3: 1}), sample(6, 2, 5, {3: 1})
    later.add_later(sample(3, 4, 1, {3: 2, 4: 1}))
    assert shown(later) == (9, 3, 5, 4, {3: 3, 4: 1})
    other.add_other(sample(3, 4, 1, {3: 2, 4: 1}))
    assert shown(other) == (9, 3, 6, 6, {3: 3, 4: 1})
