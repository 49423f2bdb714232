"""A ring of samples in few bytes: those of one service at one step, the oldest first.

A record is a series of variable-length numbers (seven bits per byte, the lowest first):

    steps since the record before it, size of the rest, requests, failed, queue, workers, shift, (gap, count) ...

The pairs are the histogram of latencies: ``count`` durations in a bucket that is ``gap`` after the bucket before it. A bucket of a record
is one of ``observe/histogram.py``, shifted right by ``shift``: a record has at most ``HISTORY_BUCKETS`` of them. Nothing is written for a
step without requests and queue, in which the number of workers is the same as before.
"""

from collections.abc import Iterator

from polydomo.broker.observe.histogram import Counts
from polydomo.limits import HISTORY_BUCKETS


class Sample:
    """What happened to one service in one step."""

    __slots__ = ("counts", "failed", "queue", "requests", "workers")

    def __init__(self, requests: int = 0, failed: int = 0, queue: int = 0, workers: int = 0) -> None:
        self.requests = requests  # that ended
        self.failed = failed  # of them
        self.queue = queue  # the longest
        self.workers = workers  # the last
        self.counts: Counts = {}  # latencies of the answered ones

    def add_later(self, later: "Sample") -> None:
        """Adds the sample of the next step."""
        self.requests += later.requests
        self.failed += later.failed
        self.queue = max(self.queue, later.queue)
        self.workers = later.workers
        counts = self.counts
        for bucket, count in later.counts.items():
            counts[bucket] = counts.get(bucket, 0) + count

    def add_other(self, other: "Sample") -> None:
        """Adds the sample of the same step from another process."""
        queue, workers = self.queue + other.queue, self.workers + other.workers
        self.add_later(other)
        self.queue, self.workers = queue, workers


class Ring:
    __slots__ = ("before", "data", "first", "last", "length", "workers")

    def __init__(self, length: int) -> None:
        self.length = length  # steps that it covers
        self.data = bytearray()
        self.first = 0  # step of the first record
        self.last = -1  # ... and of the last
        self.before = 0  # workers before the first record
        self.workers = 0  # workers in the last record

    def append(self, step: int, sample: Sample) -> None:
        """Adds the sample of a step, and drops what is too old."""
        if step == self.last:
            return  # a restart within the step
        if step < self.last:
            self._drop_from(step)  # the clock was set back: otherwise, nothing would be added until it is as late again
        rest = bytearray()
        for number in (sample.requests, sample.failed, sample.queue, sample.workers):
            put(rest, number)
        _put_counts(rest, sample.counts)
        if self.data:
            put(self.data, step - self.last)
        else:
            self.first = step
            put(self.data, 0)
        put(self.data, len(rest))
        self.data += rest
        self.last = step
        self.workers = sample.workers
        self.drop_before(step - self.length + 1)

    def is_news(self, sample: Sample) -> bool:
        """Whether the next step needs a record."""
        return bool(sample.requests or sample.queue or sample.workers != self.workers)

    def drop_before(self, step: int) -> None:
        while self.data and self.first < step:
            self.drop_first()

    def _drop_from(self, step: int) -> None:
        """Removes the records of this step and of later ones."""
        data = self.data
        last, workers, kept = -1, self.before, 0
        for number, sample in self.samples():
            if number >= step:
                break
            last, workers = number, sample.workers
            _, at = get(data, kept)
            size, at = get(data, at)
            kept = at + size
        del data[kept:]
        self.last, self.workers = last, workers

    def drop_first(self) -> None:
        """Removes the oldest record."""
        data = self.data
        _, at = get(data, 0)
        size, at = get(data, at)
        _, workers_at = get(data, at)
        _, workers_at = get(data, workers_at)
        _, workers_at = get(data, workers_at)
        self.before, _ = get(data, workers_at)
        del data[: at + size]
        if data:
            gap, _ = get(data, 0)
            self.first += gap

    def samples(self, since: int = 0) -> "Iterator[tuple[int, Sample]]":
        """The recorded steps from ``since`` on, in order."""
        data = self.data
        end = len(data)
        at = step = 0
        while at < end:
            gap, after = get(data, at)
            step = step + gap if at else self.first  # the first gap is to a record that was dropped
            size, at = get(data, after)
            if step >= since:
                yield step, _sample(data, at, at + size)
            at += size

    def steps(self) -> "list[int]":
        """The recorded steps."""
        data = self.data
        end = len(data)
        at = step = 0
        found: list[int] = []
        while at < end:
            gap, after = get(data, at)
            step = step + gap if at else self.first
            found.append(step)
            size, at = get(data, after)
            at += size
        return found


def put(data: bytearray, number: int) -> None:
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    data.append(number)


def get(data: "bytearray | bytes", at: int) -> "tuple[int, int]":
    """The number at this position, and the position after it. Raises IndexError."""
    byte = data[at]
    at += 1
    if byte < 128:
        return byte, at
    number = byte & 127
    shift = 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7


def _put_counts(data: bytearray, counts: Counts) -> None:
    """Buckets are joined in pairs until there are few enough."""
    shift = 0
    while len(counts) > HISTORY_BUCKETS:
        shift += 1
        joined: Counts = {}
        for bucket, count in counts.items():
            joined[bucket >> 1] = joined.get(bucket >> 1, 0) + count
        counts = joined
    put(data, shift)
    last = 0
    for bucket in sorted(counts):
        put(data, bucket - last)
        put(data, counts[bucket])
        last = bucket


def _sample(data: bytearray, at: int, end: int) -> Sample:
    sample = Sample()
    sample.requests, at = get(data, at)
    sample.failed, at = get(data, at)
    sample.queue, at = get(data, at)
    sample.workers, at = get(data, at)
    shift, at = get(data, at)
    middle = (1 << shift) >> 1
    counts = sample.counts
    bucket = 0
    while at < end:
        gap, at = get(data, at)
        count, at = get(data, at)
        bucket += gap
        counts[(bucket << shift) + middle] = count
    return sample
