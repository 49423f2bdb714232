"""``services``: counts, sums and histograms of each service in windows of 10 seconds, a minute and an hour.

A request belongs to the window in which it ended. Counts and histograms of a longer window are the sums of those of the shorter ones,
so adding rows gives the figures of any other window.
"""

from polydomo.pipeline.tables.table import UNIT, Column, Table

WINDOWS = (10, 60, 3600)  # seconds

TABLE = Table(
    "services",
    "one service at one broker in one window",
    (
        Column("window", "TIMESTAMP", "when the window begins"),
        Column("seconds", "INT", "its length: 10, 60 or 3600"),
        Column("broker", "STRING", "the broker"),
        Column("service", "STRING", "the service that clients asked for"),
        Column(
            "requests",
            "BIGINT",
            "requests that ended in the window, with those that the broker sent itself: attempts of jobs, runs that requests share",
        ),
        Column("ok", "BIGINT", "... with a final reply"),
        Column("outcomes", "MAP<STRING, BIGINT>", "... by outcome"),
        Column("retried", "BIGINT", "... after more than one attempt at a hop"),
        Column("passed_on", "BIGINT", "... after they were forwarded to another service"),
        Column("request_bytes", "BIGINT", "size of their bodies"),
        Column("reply_bytes", "BIGINT", "size of their replies"),
        Column("wait_us", "BIGINT", "sum of their waits"),
        Column("run_us", "BIGINT", "sum of the times that workers had them last; the memo store is no worker here"),
        Column("run_us2", "DOUBLE", "sum of the squares of those times: the variance follows from it"),
        Column("total_us", "BIGINT", "sum of their durations"),
        Column("worked", "BIGINT", "requests that were dispatched to a worker: those that `run_us` sums up"),
        Column("busy", "DOUBLE", "mean number of busy workers: `run_us` divided by the window's length"),
        Column(
            "queued",
            "BIGINT",
            "times that a request had to wait (level `messages`; requeues and forwards at any level)",
        ),
        Column("memo_hits", "BIGINT", "requests for a memoised service that were answered with a stored reply"),
        Column("memo_misses", "BIGINT", "... that a worker ran"),
        Column(
            "memo_joined", "BIGINT", "... that were answered with the reply to an identical request that was running"
        ),
        Column("key_joined", "BIGINT", "requests that joined an open request with the same idempotency key"),
        Column("queue_max", "INT", "the longest queue recorded then"),
        Column("workers_max", "INT", "the most workers recorded then"),
        Column("wait_histogram", "MAP<INT, BIGINT>", "waits by logarithmic bucket"),
        Column("total_histogram", "MAP<INT, BIGINT>", "durations by logarithmic bucket"),
        Column("wait_p50_us", "DOUBLE", "median wait, within 1 %"),
        Column("wait_p99_us", "DOUBLE", "99th percentile of the waits"),
        Column("total_p50_us", "DOUBLE", "median duration"),
        Column("total_p90_us", "DOUBLE", "90th percentile"),
        Column("total_p99_us", "DOUBLE", "99th percentile"),
        Column("total_p999_us", "DOUBLE", "99.9th percentile"),
        *UNIT,
    ),
)
