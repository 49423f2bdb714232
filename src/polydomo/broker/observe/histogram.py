"""A logarithmic histogram of latencies whose buckets grow by 2 %.

Bucket ``n`` holds durations from ``1.02**n`` up to, but not including, ``1.02**(n + 1)`` microseconds; bucket 0 also holds shorter ones. So

    bucket = floor(ln(max(microseconds, 1)) / ln(1.02))

which is the same formula in Python and in SQL (``floor(ln(greatest(us, 1)) / ln(1.02))``), so histograms of the broker and of its journal
have the same buckets. Two histograms are merged by adding counts. A quantile is accurate to 1 % for any distribution. A week is bucket
1,369.
"""

import math
from collections import Counter

from polydomo.limits import FOLD_FREQUENT

RATIO = 1.02
_SCALE = 1.0 / math.log(RATIO)
_MICROSECONDS = 1e6

Counts = dict[int, int]  # bucket -> count


def bucket(seconds: float) -> int:
    """The bucket of a duration."""
    microseconds = seconds * _MICROSECONDS
    return int(math.log(microseconds) * _SCALE) if microseconds > 1.0 else 0


def least(number: int) -> float:
    """The lower bound of a bucket in seconds, which is the exclusive upper bound of the previous one."""
    return math.pow(RATIO, number) / _MICROSECONDS


def middle(number: int) -> float:
    """The duration that represents a bucket: within 1 % of every duration in it."""
    return math.pow(RATIO, number + 0.5) / _MICROSECONDS


def quantile(counts: Counts, part: float) -> float:
    """The quantile ``part`` (0 to 1); 0 for an empty histogram.

    >>> quantile({bucket(0.001): 99, bucket(1.0): 1}, 0.5)
    0.0010052...
    """
    total = sum(counts.values())
    if not total:
        return 0.0
    wanted = max(1, math.ceil(part * total))
    for number in sorted(counts):
        wanted -= counts[number]
        if wanted <= 0:
            return middle(number)
    raise AssertionError("a part over 1")


def quantiles(counts: Counts, parts: "tuple[float, ...]") -> "list[float]":
    """Several quantiles of a histogram that is not empty; ``parts`` ascend.

    >>> quantiles({bucket(0.001): 99, bucket(1.0): 1}, (0.5, 1.0))
    [0.0010052..., 1.00...]
    """
    total = sum(counts.values())
    found: list[float] = []
    seen = 0
    for number in sorted(counts):
        seen += counts[number]
        while len(found) < len(parts) and seen >= max(1, math.ceil(parts[len(found)] * total)):
            found.append(middle(number))
    return found


def add(counts: Counts, more: Counts) -> None:
    """Adds ``more`` to ``counts``."""
    for number, count in more.items():
        counts[number] = counts.get(number, 0) + count


def cumulative(counts: Counts, bounds: "list[float]") -> "list[int]":
    """Cumulative counts for the ``bounds`` (seconds, ascending), to the nearest bucket, for a coarser histogram."""
    found = [0] * len(bounds)
    limits = [bucket(bound) for bound in bounds]
    total = 0
    numbers = sorted(counts)
    position = 0
    for i, limit in enumerate(limits):
        while position < len(numbers) and numbers[position] < limit:
            total += counts[numbers[position]]
            position += 1
        found[i] = total
    return found


class Tally:
    """The outcomes and latencies of requests for one service from clients of one protocol.

    A finished request only appends its duration to ``fresh``. About once a second, ``fold`` sorts these into buckets. The clock is read
    once per turn of the loop, so many durations are equal, and each distinct one is converted only once.
    """

    def __init__(self) -> None:
        self.fresh: list[float] = []  # durations of answered requests that are not in buckets yet
        self.counts: Counts = {}  # of all up to the last ``take_window``
        self.window: Counts = {}  # since then, up to the last ``turn_over``: for the history
        self.window_failures = 0  # likewise
        self.answered = 0
        self.seconds = 0.0  # sum of all durations
        self.failed: dict[str, int] = {}  # outcome -> count
        self.current: Counts = {}  # requests that ended since the last ``turn_over``
        self.failures = 0  # likewise
        self.last: Counts = {}  # requests that ended between the last two calls of ``turn_over``
        self.last_failures = 0
        self._looked = 0  # answered requests at the last call of ``is_frequent``

    def is_frequent(self) -> bool:
        """Called once a second: whether many requests were answered since."""
        answered = self.answered + len(self.fresh)
        before, self._looked = self._looked, answered
        return answered - before >= FOLD_FREQUENT

    def fold(self) -> None:
        if not self.fresh:
            return
        fresh = self.fresh
        self.answered += len(fresh)
        self.seconds += sum(fresh)
        equal = Counter(fresh)
        fresh.clear()  # cleared, not replaced, because the service keeps a reference to it
        current = self.current
        for duration, count in equal.items():
            number = bucket(duration)
            current[number] = current.get(number, 0) + count

    def fail(self, outcome: str) -> None:
        self.failed[outcome] = self.failed.get(outcome, 0) + 1
        self.failures += 1

    def turn_over(self) -> None:
        """Called once a second: the current counts become those of the last second."""
        self.fold()
        if self.current:
            add(self.window, self.current)
        self.last = self.current
        self.current = {}
        self.last_failures = self.failures
        self.window_failures += self.failures
        self.failures = 0

    def take_window(self) -> Counts:
        """The requests that were answered since the last call, for the history."""
        window = self.window
        if window:
            add(self.counts, window)
            self.window = {}
        self.window_failures = 0
        return window

    def total(self) -> Counts:
        """Of all answered requests up to now."""
        self.fold()
        counts = dict(self.counts)
        add(counts, self.window)
        add(counts, self.current)
        return counts

    def absorb(self, other: "Tally") -> None:
        """Adds the counts of a tally that is being removed."""
        add(self.counts, other.total())
        self.window_failures += other.window_failures + other.failures
        self.answered += other.answered
        self.seconds += other.seconds
        for outcome, count in other.failed.items():
            self.failed[outcome] = self.failed.get(outcome, 0) + count
