"""Logarithmic histograms as ``map<int,bigint>``: bucket -> how many. They merge by adding, and give any percentile to
within 1 %."""

from polydomo.journal import histogram


def percentile(counts: str, part: float) -> str:
    """SQL for the duration in microseconds that ``part`` (0 to 1) of all in the histogram ``counts`` do not exceed; 0 of none.

    The same number as ``journal.histogram.percentile``: the middle of the bucket in which the wanted rank falls.
    """
    entries = f"array_sort(map_entries({counts}))"
    total = f"aggregate(map_values({counts}), 0L, (sum, n) -> sum + n)"
    wanted = f"greatest(1L, CAST(ceil({part} * {total}) AS BIGINT))"
    # walks up the buckets with what is still to come; the bucket at which nothing is left is the one
    walk = (
        f"aggregate({entries}, named_struct('left', {wanted}, 'bucket', -1), (at, e) -> named_struct("
        "'left', at.left - e.value, 'bucket', IF(at.left > 0, e.key, at.bucket)), at -> at.bucket)"
    )
    return f"IF(size({counts}) > 0, pow({histogram.RATIO}, {walk} + 0.5), 0.0D)"


# While it is computed, a histogram is a sorted array of long integers, bucket and count in one: such an array is
# gathered, sorted and walked through at a fraction of what a map costs.
COUNT_BITS = 40


def gathered(bucket: str, count: str, where: str = "true") -> str:
    """SQL of an aggregate: the cells of a histogram, from rows that have a bucket and how many are in it."""
    return f"sort_array(collect_list(IF({where}, shiftleft(CAST({bucket} AS BIGINT), {COUNT_BITS}) + {count}, NULL)))"


def as_map(cells: str) -> str:
    """SQL for cells as they are written."""
    return f"map_from_entries(transform({cells}, c -> struct({_bucket('c')}, {_count('c')})))"


def percentile_of(cells: str, total: str, part: float) -> str:
    """The same as ``percentile``, of cells whose counts add up to ``total``."""
    # what is still to come, and below zero the bucket at which nothing was
    walk = f"IF(at <= 0, at, IF(at > {_count('c')}, at - {_count('c')}, -1L - {_bucket('c')}))"
    return (
        f"IF(size({cells}) > 0, pow({histogram.RATIO}, "
        f"-1 - aggregate({cells}, greatest(1L, CAST(ceil({part} * {total}) AS BIGINT)), (at, c) -> {walk}) + 0.5), 0.0D)"
    )


def _bucket(cell: str) -> str:
    return f"CAST(shiftright({cell}, {COUNT_BITS}) AS INT)"


def _count(cell: str) -> str:
    return f"({cell} & {(1 << COUNT_BITS) - 1}L)"
