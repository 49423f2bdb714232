"""``workers``: the work and presence of each worker in each hour, compared with the other workers of its service.

A worker is an outlier among the workers of the same service at the same broker in the same hour, if at least two of them have at least
20 turns: it is *slow* if the median of its turns is at least twice the median of its peers' medians; it *gives
back* if at least 3 of its turns, and at least one in ten, ended because it was lost or left.
"""

from polydomo.pipeline.tables.table import UNIT, Column, Table

LEAST_TURNS = 20
SLOW = 2.0
GIVEN_BACK = 3
GIVEN_BACK_SHARE = 0.1

TABLE = Table(
    "workers",
    "one worker at one service in one hour",
    (
        Column("window", "TIMESTAMP", "when the hour begins"),
        Column("broker", "STRING", "the broker"),
        Column("run", "BIGINT", "its run"),
        Column("worker", "INT", "number of the worker in the run"),
        Column("service", "STRING", "the service; all services it offers, if it had no turn"),
        Column("peer", "STRING", "its address"),
        Column("protocol", "STRING", "its protocol"),
        Column("principal", "STRING", "its principal, by the access file"),
        Column("turns", "BIGINT", "turns that ended in the hour"),
        Column("finals", "BIGINT", "... with a final reply"),
        Column("given_back", "BIGINT", "... because the worker was lost or left"),
        Column("run_us", "BIGINT", "time in the hour in which it had requests, of turns whose requests have ended"),
        Column(
            "present_us", "BIGINT", "time in the hour in which it was registered; it ends with the last row of its run"
        ),
        Column("utilisation", "DOUBLE", "`run_us` by `present_us`; over 1 if it handles several requests at a time"),
        Column("run_histogram", "MAP<INT, BIGINT>", "durations of its turns by logarithmic bucket"),
        Column("run_p50_us", "DOUBLE", "their median"),
        Column("run_p99_us", "DOUBLE", "their 99th percentile"),
        Column(
            "fellows", "BIGINT", "workers of the service in the hour, itself included; the memo store does not count"
        ),
        Column("fellows_p50_us", "DOUBLE", "the median of their medians"),
        Column("late", "BIGINT", "heartbeats that it missed (all its services)"),
        Column("lost", "BIGINT", "times it was declared lost (all its services)"),
        Column("stale", "BIGINT", "replies that came too late to count (all its services)"),
        Column("outlier", "STRING", "`slow`, `gives back`, or empty"),
        *UNIT,
    ),
)
