"""Logarithmic buckets: a duration's place in a histogram that merges by adding integers and knows any percentile within 1 %.

Bucket 0 holds 0 us; bucket n > 0 holds durations from RATIO^(n-1) up to RATIO^n microseconds. The bucket stands in the row, so that
every engine counts the same.
"""

import math

RATIO = 1.02
_LOG = math.log(RATIO)
MOST = 1_800  # 1.02^1800 us is 95 years


def bucket(us: int) -> int:
    """
    >>> [bucket(n) for n in (0, 1, 2, 1000, 1_000_000)]
    [0, 1, 36, 349, 698]
    """
    if us <= 0:
        return 0
    return min(MOST, int(math.log(us) / _LOG) + 1)


def value(number: int) -> float:
    """The duration, in microseconds, that stands for a bucket: the middle of it, within 1 % of all that are in it.

    >>> round(value(bucket(1_000_000)) / 1_000_000, 2)
    1.0
    """
    return 0.0 if number <= 0 else RATIO ** (number - 0.5)


def percentile(counts: dict[int, int], part: float) -> float:
    """The duration in microseconds below which ``part`` (0 to 1) of the durations lie; 0.0 of an empty histogram."""
    total = sum(counts.values())
    rank = max(1, math.ceil(part * total))
    seen = 0
    for number in sorted(counts):
        seen += counts[number]
        if seen >= rank:
            return value(number)
    return 0.0
