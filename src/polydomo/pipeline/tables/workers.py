"""``workers``: the work and presence of each worker in each hour, compared with the other workers of its service.

A worker is an outlier among the workers of the same service at the same broker in the same hour, if at least two of them have at least
20 turns: it is *slow* if the median of its turns is at least twice the median of its peers' medians; it *gives
back* if at least 3 of its turns, and at least one in ten, ended because it was lost or left.
"""

from typing import TYPE_CHECKING

from polydomo.pipeline.sql import BROKERS_OWN, percentile, placed, sql, window_of
from polydomo.pipeline.tables.table import columns, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LEAST_TURNS = 20
SLOW = 2.0
GIVEN_BACK = 3
GIVEN_BACK_SHARE = 0.1

_WORKER = "h, broker, run, worker"
_NAMES = ("peer", "protocol", "principal")
_ABLE = f"turns >= {LEAST_TURNS} AND protocol NOT IN {BROKERS_OWN}"
# A worker has a row for each service in which it worked; if there is none, one row for all services that it offers.
WORKERS = f"""
WITH cells AS (
    SELECT {_WORKER}, service, bucket, sum(n) AS n, sum(finals) AS finals, sum(given_back) AS given_back, sum(work_us) AS run_us,
        {", ".join(f"max(IF(n > 0, {name}, '')) AS {name}" for name in _NAMES)}
    FROM {{sums}} WHERE kind = 'turn' GROUP BY {_WORKER}, service, bucket
),
rows AS (SELECT /*+ COALESCE(1) */ * FROM (
    SELECT {_WORKER}, service, sum(n) AS turns, sum(finals) AS finals, sum(given_back) AS given_back, sum(run_us) AS run_us,
        sum(IF(bucket >= 0, n, 0)) AS timed, sort_array(collect_list(IF(bucket >= 0, struct(bucket, n), NULL))) AS entries,
        {", ".join(f"max({name}) AS {name}" for name in _NAMES)}, 0L AS present_us, 0L AS late, 0L AS lost, 0L AS stale, '' AS offers
    FROM cells GROUP BY {_WORKER}, service
    UNION ALL
    SELECT {_WORKER}, NULL, 0, 0, 0, 0, 0, array(), peer, protocol, principal, until - since, 0, 0, 0, offers FROM {{present}}
    UNION ALL
    SELECT {_WORKER}, NULL, 0, 0, 0, 0, 0, array(), '', '', '', 0, late, lost, stale, '' FROM {{sums}} WHERE kind = 'event')
),
joined AS (
    SELECT {_WORKER}, service, turns, finals, given_back, run_us, timed, entries, count(service) OVER everywhere AS services,
        row_number() OVER (PARTITION BY {_WORKER} ORDER BY service NULLS LAST) AS place,
        {", ".join(f"greatest({name}, max(IF(service IS NULL, {name}, '')) OVER everywhere) AS {name}" for name in _NAMES)},
        max(offers) OVER everywhere AS offers,
        {", ".join(f"sum({name}) OVER everywhere AS {name}" for name in ("present_us", "late", "lost", "stale"))}
    FROM rows WINDOW everywhere AS (PARTITION BY {_WORKER})
),
figures AS (
    SELECT * EXCEPT (service, services, place, offers), coalesce(service, offers) AS service,
        {percentile("entries", "timed", 0.5)} AS run_p50_us, {percentile("entries", "timed", 0.99)} AS run_p99_us
    FROM joined WHERE service IS NOT NULL OR (services = 0 AND place = 1)
),
compared AS (
    SELECT *, count(IF(protocol NOT IN {BROKERS_OWN}, 1, NULL)) OVER fellows AS fellows,
        sort_array(collect_list(IF({_ABLE}, run_p50_us, NULL)) OVER fellows) AS medians
    FROM figures WINDOW fellows AS (PARTITION BY h, broker, service)
),
middle AS (SELECT *, coalesce(get(medians, int(ceil(size(medians) / 2D)) - 1), 0D) AS fellows_p50_us FROM compared)
SELECT {window_of("h")} AS window, broker, run, worker, service, peer, protocol, principal, turns, finals, given_back, run_us, present_us,
    IF(present_us > 0, run_us / present_us, 0D) AS utilisation, map_from_entries(entries) AS run_histogram, run_p50_us, run_p99_us, fellows,
    fellows_p50_us, late, lost, stale,
    CASE WHEN size(medians) < 2 OR NOT ({_ABLE}) THEN '' WHEN run_p50_us >= {SLOW} * fellows_p50_us THEN 'slow'
        WHEN given_back >= {GIVEN_BACK} AND given_back >= {GIVEN_BACK_SHARE} * turns THEN 'gives back' ELSE '' END AS outlier,
    {placed(window_of("h"))}
FROM middle
"""


@table(
    "workers",
    "one worker at one service in one hour",
    reads=["sums", "present"],
    columns=columns(
        """
        window TIMESTAMP -- when the hour begins
        broker STRING -- the broker
        run BIGINT -- its run
        worker INT -- number of the worker in the run
        service STRING -- the service; all services it offers, if it had no turn
        peer STRING -- its address
        protocol STRING -- its protocol
        principal STRING -- its principal, by the access file
        turns BIGINT -- turns that ended in the hour
        finals BIGINT -- ... with a final reply
        given_back BIGINT -- ... because the worker was lost or left
        run_us BIGINT -- time in the hour in which it had requests, of turns whose requests have ended
        present_us BIGINT -- time in the hour in which it was registered; it ends with the last row of its run
        utilisation DOUBLE -- `run_us` by `present_us`; over 1 if it handles several requests at a time
        run_histogram MAP<INT, BIGINT> -- durations of its turns by logarithmic bucket
        run_p50_us DOUBLE -- their median
        run_p99_us DOUBLE -- their 99th percentile
        fellows BIGINT -- workers of the service in the hour, itself included; the memo store does not count
        fellows_p50_us DOUBLE -- the median of their medians
        late BIGINT -- heartbeats that it missed (all its services)
        lost BIGINT -- times it was declared lost (all its services)
        stale BIGINT -- replies that came too late to count (all its services)
        outlier STRING -- `slow`, `gives back`, or empty
        """
    ),
)
def workers(sums: "DataFrame", present: "DataFrame") -> "DataFrame":
    return sql(WORKERS, sums=sums, present=present)
