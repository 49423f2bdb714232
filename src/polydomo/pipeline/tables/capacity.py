"""``capacity``: the load at which the mean wait of a service would exceed its objective, and the used error budget.

The method. A service with *c* workers is a queue with *c* servers. The turns of its hour (dispatches of requests to its workers, forwarded
ones included) give the mean *m* and the squared coefficient of variation *cs* of the service times. Its arrivals
(requests accepted, forwarded to it or requeued), in order, give the rate and the squared coefficient of variation
*ca* of the times between arrivals: 1 for independent callers, more for bursts. Gaps of more than 10 seconds are
idle time and do not count. The mean wait at utilisation *r* is then, after Allen and Cunneen with Sakasegawa's
closed form of Erlang C,

    wait(r) = m * (ca + cs) / 2 * r ** (sqrt(2 * (c + 1)) - 1) / (c * (1 - r))

which rises with *r*: the greatest *r* of a thousand steps at which it is within the objective gives the load the service can take,
``r * c / m``. It is a forecast for more of the same work, not for other work. An hour with under 100 turns gives none (null).

The objective: a share ``target`` of all requests ends with ``ok`` within ``objective_us``. The error budget is the
rest; ``budget_used`` over 1 means that the objective was missed.
"""

from typing import TYPE_CHECKING

from polydomo.pipeline.sql import BROKERS_OWN, GATHER, bucket, placed, sql, window_of
from polydomo.pipeline.tables.table import columns, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LEAST_TURNS = 100
STEPS = 1000
IDLE_SECONDS = 10  # a longer gap between two arrivals is idle time


# The variations are rounded: for equal times, floating point would leave noise that depends on the order of summation.
# The capacity of a service follows from its own turns and arrivals, whichever service the clients called.
_WAIT = "service_us * (arrival_scv + service_scv) / 2 * pow({r}, sqrt(2 * (workers + 1)) - 1) / (workers * (1 - {r}))"
_MODEL = f"turns >= {LEAST_TURNS} AND workers > 0 AND service_us > 0"
_SERVICE = "h, broker, service"
_SUMS = "turns timed run_us run_us2 waited wait_us gaps gap_us gap_us2".split()
CAPACITY = f"""
WITH took_part AS (
    SELECT t.h, t.broker, t.service, count(*) AS at_least, sum(until - since) AS present_us, max(until) - min(since) AS span
    FROM (SELECT {_SERVICE}, run, worker, max(protocol) AS protocol FROM {{sums}} WHERE kind = 'turn' AND n > 0 GROUP BY {_SERVICE},
        run, worker) t
    LEFT JOIN (SELECT {GATHER} * FROM {{present}}) p ON p.h = t.h AND p.broker = t.broker AND p.run = t.run AND p.worker = t.worker
    WHERE greatest(t.protocol, coalesce(p.protocol, '')) NOT IN {BROKERS_OWN} GROUP BY t.h, t.broker, t.service
),
parts AS (
    SELECT /*+ BROADCASTJOIN(o, d) */ {_SERVICE}, s.kind, bucket, n, ok,
        IF(turn, n, 0) AS turns, IF(turn, timed, 0) AS timed, IF(turn, run_us, 0) AS run_us,
        IF(turn, run_us2, 0D) AS run_us2, IF(turn, waited, 0) AS waited, IF(turn, wait_us, 0) AS wait_us, gaps, gap_us, gap_us2,
        CAST(round(coalesce(o.seconds, d.seconds) * 1e6D) AS BIGINT) AS objective_us, coalesce(o.target, d.target) AS target
    FROM (SELECT *, kind = 'turn' AS turn FROM {{sums}}
        WHERE kind IN ('asked', 'arrival') OR (kind = 'turn' AND n > 0 AND protocol NOT IN {BROKERS_OWN})) s
    LEFT JOIN {{objectives}} o USING (service) CROSS JOIN (SELECT seconds, target FROM {{objectives}} WHERE service = '*') d
),
summed AS (
    SELECT {_SERVICE}, sum(IF(kind = 'asked', n, 0)) AS requests, sum(IF(bucket <= {bucket("objective_us")}, ok, 0)) AS within,
        {", ".join(f"sum({name}) AS {name}" for name in _SUMS)},
        max(objective_us) AS objective_us, max(target) AS target
    FROM parts GROUP BY {_SERVICE}
),
facts AS (
    SELECT s.h, s.broker, s.service, requests, within, turns, objective_us, target, gap_us / 1e6D AS span_s,
        IF(gap_us > 0, gaps / (gap_us / 1e6D), 0D) AS rate,
        coalesce(IF(present_us IS NOT NULL, greatest(1L, CAST(round(present_us / greatest(1L, span)) AS BIGINT)), IF(at_least > 0, 1L,
            0L)), 0L)
            AS workers,
        IF(timed > 0, run_us / timed, 0D) AS service_us,
        IF(timed > 0 AND run_us > 0, greatest(0D, round(run_us2 / timed / ((run_us / timed) * (run_us / timed)) - 1, 9)), 0D) AS
            service_scv,
        IF(gaps > 1 AND gap_us > 0, greatest(0D, round(gap_us2 / gaps / ((gap_us / gaps) * (gap_us / gaps)) - 1, 9)), 1D) AS arrival_scv,
        IF(waited > 0, wait_us / waited, NULL) AS measured_wait_us
    FROM summed s LEFT JOIN took_part t ON t.h = s.h AND t.broker = s.broker AND t.service = s.service
),
used AS (SELECT *, IF(workers > 0, rate * service_us / 1e6D / workers, 0D) AS utilisation FROM facts),
judged AS (
    SELECT *, IF({_MODEL} AND utilisation < 1, {_WAIT.format(r="utilisation")}, NULL) AS wait_us,
        IF({_MODEL}, array_max(filter(sequence(1, {STEPS - 1}), i -> {_WAIT.format(r=f"(i / {STEPS}D)")} <= objective_us)), NULL)
            / {STEPS}D * workers * 1e6D / service_us AS capacity
    FROM used
)
SELECT {window_of("h")} AS window, * EXCEPT (h), IF(rate > 0, capacity / rate, NULL) AS headroom,
    IF(requests > 0, IF(target < 1, (requests - within) / (requests * (1 - target)), double(requests - within)), NULL) AS budget_used,
    {placed(window_of("h"))}
FROM judged
"""


@table(
    "capacity",
    "one service at one broker in one hour",
    reads=["sums", "present", "objectives"],
    columns=columns(
        """
        window TIMESTAMP -- when the hour begins
        broker STRING -- the broker
        service STRING -- the service
        requests BIGINT -- requests of clients for it that ended in the hour; those that the broker sent itself do not count
        turns BIGINT -- turns of its workers that ended in the hour
        span_s DOUBLE -- seconds of the hour in which requests arrived, idle time left out
        rate DOUBLE -- arrivals a second over that span
        workers BIGINT -- workers that took part, on average over the time that any of them was present
        service_us DOUBLE -- mean service time of a turn
        service_scv DOUBLE -- squared coefficient of variation of the service times
        arrival_scv DOUBLE -- squared coefficient of variation of the times between arrivals
        utilisation DOUBLE -- rate by what the workers could do at that service time
        objective_us BIGINT -- the objective
        target DOUBLE -- the share of requests that should end within it
        measured_wait_us DOUBLE -- mean wait of the turns, as far as it is recorded
        wait_us DOUBLE -- mean wait that the model gives for the recorded load
        capacity DOUBLE -- turns a second at which the mean wait would exceed the objective
        headroom DOUBLE -- `capacity` by `rate`
        within BIGINT -- those of them that ended with `ok` within the objective, to the nearest bucket
        budget_used DOUBLE -- used share of the error budget; null if no client asked for the service
        """
    ),
)
def capacity(sums: "DataFrame", present: "DataFrame", objectives: "DataFrame") -> "DataFrame":
    return sql(CAPACITY, sums=sums, present=present, objectives=objectives)
