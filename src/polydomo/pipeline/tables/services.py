"""``services``: counts, sums and histograms of each service in windows of 10 seconds, a minute and an hour.

A request belongs to the window in which it ended. Counts and histograms of a longer window are the sums of those of the shorter ones,
so adding rows gives the figures of any other window.
"""

from typing import TYPE_CHECKING

from polydomo.pipeline.sql import BROKERS_OWN, GATHER, percentile, placed, sql
from polydomo.pipeline.tables.table import columns, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WINDOWS = (10, 60, 3600)  # seconds

_SUMS = (
    "retried passed_on request_bytes reply_bytes wait_us run_us run_us2 total_us worked memo_hits memo_misses memo_joined key_joined"
).split()
TEN = "10 * (unix_micros(ended) div 10000000)"  # the window of ten seconds in which a request ended
_KEY = "ten, broker, service"
# Sums by outcome, and the queues that messages recorded.
CELLS = f"""
WITH one AS (
    SELECT {TEN} AS ten, broker, service, outcome,
        int(dispatches > hops + 1) AS retried, int(hops > 0) AS passed_on, request_bytes, reply_bytes, wait_us, IF(own, 0L, run_us) AS
            run_us,
        IF(own, 0D, double(run_us) * run_us) AS run_us2, total_us, int(dispatches > 0 AND NOT own) AS worked,
        int(memo = 'hit') AS memo_hits, int(memo = 'miss') AS memo_misses, int(memo = 'joined') AS memo_joined, int(keyed = 'joined')
            AS key_joined
    FROM (SELECT *, worker_protocol IN {BROKERS_OWN} AS own FROM {{parts}})
)
SELECT {GATHER} * FROM (
    SELECT {_KEY}, outcome, count(*) AS n, {", ".join(f"sum({name}) AS {name}" for name in _SUMS)},
        0L AS queued, 0 AS queue_max, 0 AS workers_max
    FROM one GROUP BY {_KEY}, outcome
    UNION ALL
    SELECT 10 * (unix_micros(time) div 10000000), broker, service, NULL, 0L,
        {", ".join("0D" if name == "run_us2" else "0L" for name in _SUMS)}, count(*), max(queue), max(workers)
    FROM {{messages}} WHERE event IN ('queued', 'requeued', 'forwarded') GROUP BY 1, 2, 3
)
"""
# Counts by bucket of the wait and of the duration: each row has one of the two.
BUCKETS = f"""
SELECT {_KEY}, wait_bucket, total_bucket, count(*) AS n
FROM (SELECT {TEN} AS ten, broker, service, wait_bucket, total_bucket FROM {{parts}})
GROUP BY GROUPING SETS (({_KEY}, wait_bucket), ({_KEY}, total_bucket))
"""
_WINDOW = "w, seconds, broker, service"
_SPREAD = f"""s * (ten div s) AS w, s AS seconds, * EXCEPT (ten) FROM {{cells}}
    LATERAL VIEW explode(array({", ".join(map(str, WINDOWS))})) v AS s"""
SERVICES = f"""
WITH summed AS (
    SELECT {_WINDOW}, outcome, sum(n) AS n, {", ".join(f"sum({name}) AS {name}" for name in _SUMS)},
        sum(queued) AS queued, max(queue_max) AS queue_max, max(workers_max) AS workers_max
    FROM (SELECT /*+ REPARTITION({_WINDOW}) */ * FROM (SELECT {_SPREAD.format(cells="{cells}")})) GROUP BY {
    _WINDOW
}, outcome
),
counted AS (
    SELECT {_WINDOW}, sum(n) AS requests, sum(IF(outcome = 'ok', n, 0)) AS ok,
        {", ".join(f"sum({name}) AS {name}" for name in _SUMS)},
        sum(queued) AS queued, max(queue_max) AS queue_max, max(workers_max) AS workers_max,
        collect_list(IF(outcome IS NULL, NULL, struct(outcome, n))) AS outcomes
    FROM summed GROUP BY {_WINDOW}
),
added AS (
    SELECT {_WINDOW}, wait_bucket, total_bucket, sum(n) AS n
    FROM (SELECT /*+ REPARTITION({_WINDOW}) */ * FROM (SELECT {_SPREAD.format(cells="{buckets}")}))
    GROUP BY {_WINDOW}, wait_bucket, total_bucket
),
collected AS (
    SELECT {
    _WINDOW
}, sort_array(collect_list(IF(wait_bucket IS NULL, NULL, struct(wait_bucket AS bucket, n)))) AS waits,
        sort_array(collect_list(IF(total_bucket IS NULL, NULL, struct(total_bucket AS bucket, n)))) AS totals
    FROM added GROUP BY {_WINDOW}
)
SELECT timestamp_seconds(w) AS window, * EXCEPT (w, outcomes, waits, totals), run_us / (seconds * 1e6D) AS busy,
    map_from_entries(outcomes) AS outcomes,
    map_from_entries(waits) AS wait_histogram, map_from_entries(totals) AS total_histogram,
    {
    ", ".join(
        f"{percentile('waits', 'requests', share)} AS wait_p{name}_us" for name, share in (("50", 0.5), ("99", 0.99))
    )
},
    {
    ", ".join(
        f"{percentile('totals', 'requests', share)} AS total_p{name}_us"
        for name, share in (("50", 0.5), ("90", 0.9), ("99", 0.99), ("999", 0.999))
    )
},
    {placed("timestamp_seconds(w)")}
FROM counted JOIN collected USING ({_WINDOW})
"""


@table(
    "services",
    "one service at one broker in one window",
    reads=["parts", "messages"],
    columns=columns(
        """
        window TIMESTAMP -- when the window begins
        seconds INT -- its length: 10, 60 or 3600
        broker STRING -- the broker
        service STRING -- the service that clients asked for
        requests BIGINT -- requests that ended in the window, with those that the broker sent itself: attempts of jobs, runs that requests
            share
        ok BIGINT -- ... with a final reply
        outcomes MAP<STRING, BIGINT> -- ... by outcome
        retried BIGINT -- ... after more than one attempt at a hop
        passed_on BIGINT -- ... after they were forwarded to another service
        request_bytes BIGINT -- size of their bodies
        reply_bytes BIGINT -- size of their replies
        wait_us BIGINT -- sum of their waits
        run_us BIGINT -- sum of the times that workers had them last; the memo store is no worker here
        run_us2 DOUBLE -- sum of the squares of those times: the variance follows from it
        total_us BIGINT -- sum of their durations
        worked BIGINT -- requests that were dispatched to a worker: those that `run_us` sums up
        busy DOUBLE -- mean number of busy workers: `run_us` divided by the window's length
        queued BIGINT -- times that a request had to wait (level `messages`; requeues and forwards at any level)
        memo_hits BIGINT -- requests for a memoised service that were answered with a stored reply
        memo_misses BIGINT -- ... that a worker ran
        memo_joined BIGINT -- ... that were answered with the reply to an identical request that was running
        key_joined BIGINT -- requests that joined an open request with the same idempotency key
        queue_max INT -- the longest queue recorded then
        workers_max INT -- the most workers recorded then
        wait_histogram MAP<INT, BIGINT> -- waits by logarithmic bucket
        total_histogram MAP<INT, BIGINT> -- durations by logarithmic bucket
        wait_p50_us DOUBLE -- median wait, within 1 %
        wait_p99_us DOUBLE -- 99th percentile of the waits
        total_p50_us DOUBLE -- median duration
        total_p90_us DOUBLE -- 90th percentile
        total_p99_us DOUBLE -- 99th percentile
        total_p999_us DOUBLE -- 99.9th percentile
        """
    ),
)
def services(parts: "DataFrame", messages: "DataFrame") -> "DataFrame":
    return sql(SERVICES, cells=sql(CELLS, parts=parts, messages=messages), buckets=sql(BUCKETS, parts=parts))
