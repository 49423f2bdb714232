"""Logarithmic histograms as ``map<int,bigint>``: bucket -> count. Adding merges them. Percentiles are exact within 1 %."""

from polydomo.journal import histogram


def percentile(counts: str, part: float) -> str:
    """Spark SQL for the duration in microseconds that ``part`` (0 to 1) of all in the histogram ``counts`` do not exceed; 0 if it is empty.

    The same number as ``journal.histogram.percentile``: the middle of the bucket in which the wanted rank falls.
    """
    entries = f"sort_array(map_entries({counts}))"
    total = f"aggregate(map_values({counts}), 0L, (sum, n) -> sum + n)"
    wanted = f"greatest(1L, CAST(ceil({part} * {total}) AS BIGINT))"
    # subtract bucket counts from the rank, lowest bucket first, until it reaches zero
    walk = (
        f"aggregate({entries}, named_struct('left', {wanted}, 'bucket', -1), (at, e) -> named_struct("
        "'left', at.left - e.value, 'bucket', IF(at.left > 0, e.key, at.bucket)), at -> at.bucket)"
    )
    return f"IF(size({counts}) > 0, pow({histogram.RATIO}, {walk} + 0.5), 0.0D)"
