"""Sums by hour from which ``workers`` and ``capacity`` are computed. They are saved hour by hour, in ``_polydomo/sums``.

A request that ends in an hour may have worked in earlier ones: the sums of an hour (``source``) name the hour to which each row
belongs (``h``). So a run can add that work to an earlier hour without reading the journal of that hour again.

======== =====================================================================================
kind     one row of it
======== =====================================================================================
turn     the turns of a worker at a service, by bucket of their duration (-1: unknown)
arrival  the times between arrivals at a service in a run
event    heartbeats that a worker missed, its losses, its stale replies
asked    the requests of clients for a service, by bucket of their duration
======== =====================================================================================
"""

from typing import TYPE_CHECKING

from polydomo.pipeline.sql import BROKERS_OWN, GATHER, HOUR_US, SENT_BY_BROKER, bucket, hour_of, sql
from polydomo.pipeline.tables.capacity import IDLE_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEYS = (
    "broker STRING",
    "run BIGINT",
    "worker INT",
    "service STRING",
    "peer STRING",
    "protocol STRING",
    "principal STRING",
    "bucket INT",
)
_LONGS = "n finals given_back work_us timed run_us waited wait_us gaps gap_us late lost stale ok".split()
DDL = ", ".join(
    [
        "kind STRING",
        "h BIGINT",
        *_KEYS,
        *(f"{name} BIGINT" for name in _LONGS),
        "run_us2 DOUBLE",
        "gap_us2 DOUBLE",
        "source STRING",
    ]
)


def _row(kind: str, source: str, names: str) -> str:
    """The columns of a kind; those that it does not have are empty."""
    given = {name: name for name in names.split()} | {
        "kind": f"'{kind}'",
        "source": f"date_format(timestamp_seconds({source} * 3600), 'yyyy-MM-dd-HH')",
    }
    made = []
    for part in DDL.split(", "):
        name, type_ = part.split(" ")
        nothing = "''" if type_ == "STRING" else "0"
        made.append(f"CAST({given.get(name, nothing)} AS {type_}) AS {name}")
    return ", ".join(made)


# Every turn in each hour in which the worker had it; ``last`` is the hour in which it ended.
TURNS = f"""
SELECT source, broker, run, worker, service, peer, protocol, principal, ending, b, e, w, h, {hour_of("ended")} AS last FROM (
    SELECT {GATHER} *, unix_micros(began) AS b, unix_micros(ended) AS e, unix_micros(began) - unix_micros(arrived) AS w FROM (
        SELECT {hour_of("ended")} AS source, broker, run, worker, last_service AS service, worker_peer AS peer, worker_protocol AS protocol,
            worker_principal AS principal, IF(outcome = 'ok', 'final', 'failed') AS ending, accepted AS arrived, dispatched AS began, ended
        FROM {{parts}} WHERE turns IS NULL AND dispatches > 0 AND attempts > 0 AND dispatched IS NOT NULL
        UNION ALL
        SELECT {hour_of("p.ended")}, x.broker, x.run, x.worker, x.service, x.worker_peer, x.worker_protocol, x.worker_principal,
            x.ending, x.arrived,
            x.began, x.ended
        FROM {{parts}} p LATERAL VIEW explode(p.turns) v AS x WHERE p.turns IS NOT NULL AND x.run = p.run AND x.number = p.number
    )
) LATERAL VIEW explode(sequence(least(coalesce(b, e), e) div {HOUR_US}, e div {HOUR_US})) v AS h
"""
_TIMED = "h = last AND b IS NOT NULL"
_BUCKET = f"IF({_TIMED}, {bucket('e - b')}, -1)"
_TURN_KEY = "source, h, broker, run, worker, service, peer, protocol, principal"
_TURN = "h broker run worker service peer protocol principal bucket n finals given_back work_us timed run_us waited wait_us run_us2"
_HOUR = hour_of("time")
SUMS = f"""
SELECT {_row("turn", "source", _TURN)}
FROM (
    SELECT {_TURN_KEY}, {_BUCKET} AS bucket, sum(int(h = last)) AS n, sum(int(h = last AND ending = 'final')) AS finals,
        sum(int(h = last AND ending = 'requeued')) AS given_back,
        sum(IF(b IS NULL, 0L, least(e, (h + 1) * {HOUR_US}) - greatest(b, h * {HOUR_US}))) AS work_us,
        sum(int({_TIMED})) AS timed, sum(IF({_TIMED}, e - b, 0L)) AS run_us,
        sum(IF({_TIMED}, double(e - b) * (e - b), 0D)) AS run_us2,
        sum(int({_TIMED} AND w IS NOT NULL)) AS waited, sum(IF({_TIMED}, coalesce(w, 0L), 0L)) AS wait_us
    FROM {{turns}} GROUP BY {_TURN_KEY}, {_BUCKET}
)
UNION ALL
SELECT {_row("event", "h", "h broker run worker late lost stale")}
FROM (
    SELECT {_HOUR} AS h, broker, run, worker, sum(int(event = 'late')) AS late, sum(int(event = 'lost')) AS lost,
        sum(int(event = 'stale')) AS stale
    FROM {{messages}} WHERE event IN ('late', 'lost', 'stale') AND worker > 0 GROUP BY 1, 2, 3, 4
)
UNION ALL
SELECT {_row("arrival", "h", "h broker run service gaps gap_us gap_us2")}
FROM (
    SELECT h, broker, run, service, count(*) AS gaps, sum(gap) AS gap_us, sum(double(gap) * gap) AS gap_us2 FROM (
        SELECT h, broker, run, service, us - lag(us) OVER (PARTITION BY h, broker, run, service ORDER BY us) AS gap
        FROM (SELECT {GATHER} * FROM (
            SELECT {_HOUR} AS h, broker, run, service, unix_micros(accepted) AS us FROM {{records}}
            WHERE (job = '' OR client_protocol = 'job') AND worker_protocol NOT IN {BROKERS_OWN}
            UNION ALL
            SELECT {_HOUR}, broker, run, service, unix_micros(time) FROM {{messages}} WHERE event IN ('requeued', 'forwarded')
        ))
    ) WHERE gap <= {IDLE_SECONDS} * 1000000 GROUP BY h, broker, run, service
)
UNION ALL
SELECT {_row("asked", "h", "h broker service bucket n ok")}
FROM (
    SELECT {hour_of("ended")} AS h, broker, service, total_bucket AS bucket, count(*) AS n, sum(int(outcome = 'ok')) AS ok
    FROM {{parts}} WHERE client_protocol NOT IN {SENT_BY_BROKER} GROUP BY 1, 2, 3, 4
)
"""


def sums(parts: "DataFrame", messages: "DataFrame", records: "DataFrame") -> "DataFrame":
    return sql(SUMS, turns=sql(TURNS, parts=parts), parts=parts, messages=messages, records=records)
