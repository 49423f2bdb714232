"""The buckets of the journal's durations: the same as the broker's, so that counts from rows match the broker's counts."""

from polydomo.broker.observe import histogram

RATIO = histogram.RATIO


def bucket(us: int) -> int:
    """The bucket of a duration in microseconds: ``floor(ln(max(us, 1)) / ln(1.02))``.

    >>> [bucket(n) for n in (0, 1, 2, 1000, 1_000_000)]
    [0, 0, 35, 348, 697]
    """
    return histogram.bucket(us / 1e6)


def value(number: int) -> float:
    """The duration in microseconds that represents a bucket: within 1 % of every duration in it."""
    return histogram.middle(number) * 1e6


def percentile(counts: dict[int, int], part: float) -> float:
    """The quantile ``part`` (0 to 1) in microseconds; 0 for an empty histogram."""
    return histogram.quantile(counts, part) * 1e6
