"""Stage 3: computes one hour of all brokers from the sums of stage 1 and the presence of workers from stage 2."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from polydomo.journal import histogram
from polydomo.pipeline.engine.duck import HOUR_US, Duck, connected, micros
from polydomo.pipeline.engine.hour import BROKERS_OWN
from polydomo.pipeline.engine.messages import Message, conform, note
from polydomo.pipeline.engine.plan import Plan
from polydomo.pipeline.segments import begin_of
from polydomo.pipeline.storage import storage_for
from polydomo.pipeline.tables import capacity, services, topology, workers
from polydomo.pipeline.tables.capacity import Objective

# The columns of each kind of sums. Hours without such sums get an empty table.
_KEY = [("broker", pa.string()), ("service", pa.string())]
_LONGS = pa.int64()
SHAPES: dict[str, Any] = {
    "counts": [("ten", _LONGS), *_KEY, ("outcome", pa.string()), *((name, _LONGS) for name in (
        "requests", "retried", "passed_on", "request_bytes", "reply_bytes", "wait_us", "run_us")), ("run_us2", pa.float64()),
        *((name, _LONGS) for name in ("total_us", "worked", "memo_hits", "memo_misses", "memo_joined", "key_joined"))],
    "histograms": [("ten", _LONGS), *_KEY, ("bucket", _LONGS), ("n", _LONGS)],
    "queues": [("ten", _LONGS), *_KEY, ("queued", _LONGS), ("queue_max", _LONGS), ("workers_max", _LONGS)],
    "turns": [("hour", _LONGS), ("broker", pa.string()), ("run", _LONGS), ("worker", _LONGS), ("service", pa.string()), ("bucket", _LONGS),
        ("turns", _LONGS), ("finals", _LONGS), ("given_back", _LONGS), ("peer", pa.string()), ("protocol", pa.string()),
        ("principal", pa.string())],
    "work": [("hour", _LONGS), ("broker", pa.string()), ("run", _LONGS), ("worker", _LONGS), ("service", pa.string()), ("run_us", _LONGS)],
    "service_times": [("hour", _LONGS), *_KEY, *((name, _LONGS) for name in ("turns", "timed", "run_us")), ("run_us2", pa.float64()),
        ("waited", _LONGS), ("wait_us", _LONGS)],
    "arrivals": [*_KEY, ("gaps", _LONGS), ("us", _LONGS), ("us2", pa.float64())],
    "events": [("broker", pa.string()), ("run", _LONGS), ("worker", _LONGS), ("late", _LONGS), ("lost", _LONGS), ("stale", _LONGS)],
    "edges": [("kind", pa.string()), ("broker", pa.string()), ("protocol", pa.string()), ("peer", pa.string()), ("name", pa.string()),
        ("total_bucket", _LONGS), ("requests", _LONGS), ("failed", _LONGS), ("total_us", _LONGS)],
    "presence": [("broker", pa.string()), ("run", _LONGS), ("worker", _LONGS), ("since", _LONGS), ("until", _LONGS), ("peer", pa.string()),
        ("protocol", pa.string()), ("principal", pa.string()), ("offers", pa.string())],
}  # fmt: skip
SPILLED = ("turns", "work", "service_times")
SPILL = pa.schema([("name", pa.string()), *dict(column for name in SPILLED for column in SHAPES[name]).items()])


def percentile(share: float, upto: str = "upto", total: str = "total", where: str = "true") -> str:
    """SQL of an aggregate over the buckets of a histogram with running counts: the middle of the bucket that contains the rank."""
    first = f"min(bucket) FILTER ({upto} >= greatest(1, ceil({share} * {total})) AND {where})"
    return f"coalesce(pow({histogram.RATIO}, {first} + 0.5), 0)"


_SUMS = (
    "requests retried passed_on request_bytes reply_bytes wait_us run_us run_us2 total_us worked memo_hits memo_misses memo_joined "
    "key_joined"
).split()
_LENGTHS = f"(VALUES {', '.join(f'({seconds})' for seconds in services.WINDOWS)}) AS lengths(seconds)"
_MOVED = "seconds * (ten // seconds)"
_PARTS = (("wait", 0.5), ("wait", 0.99), ("total", 0.5), ("total", 0.9), ("total", 0.99), ("total", 0.999))
SERVICES = f"""
CREATE TEMP TABLE windows AS
WITH by_outcome AS (
    SELECT {_MOVED} AS moment, seconds, broker, service, outcome, {
    ", ".join(f"sum({name}) AS {name}" for name in _SUMS)
}
    FROM counts, {_LENGTHS} GROUP BY ALL
),
summed AS (
    SELECT moment, seconds, broker, service, {", ".join(f"sum({name}) AS {name}" for name in _SUMS)},
        coalesce(sum(requests) FILTER (outcome = 'ok'), 0) AS ok,
        map_from_entries(list((outcome, CAST(requests AS BIGINT)) ORDER BY outcome)) AS outcomes
    FROM by_outcome GROUP BY ALL
),
cells AS (SELECT {
    _MOVED
} AS moment, seconds, broker, service, if(bucket >= 0, 'wait', 'total') AS kind, if(bucket >= 0, bucket, -1 - bucket) AS bucket,
    sum(n) AS n FROM histograms, {_LENGTHS} GROUP BY ALL),
ranked AS (SELECT *, sum(n) OVER cell AS upto, sum(n) OVER (PARTITION BY moment, seconds, broker, service, kind) AS total
    FROM cells WINDOW cell AS (PARTITION BY moment, seconds, broker, service, kind ORDER BY bucket)),
figures AS (
    SELECT moment, seconds, broker, service,
        {
    ", ".join(
        f"{percentile(share, where=f'''kind = '{kind}' ''')} AS {kind}_p{str(share * 100).rstrip('0').rstrip('.').replace('.', '')}_us"
        for kind, share in _PARTS
    )
},
        {
    ", ".join(
        f'''map_from_entries(list((CAST(bucket AS INTEGER), CAST(n AS BIGINT)) ORDER BY bucket) FILTER (kind = '{kind}'))
            AS {kind}_histogram'''
        for kind in ("wait", "total")
    )
}
    FROM ranked GROUP BY ALL
),
waits AS (SELECT {
    _MOVED
} AS moment, seconds, broker, service, sum(queued) AS queued, max(queue_max) AS queue_max, max(workers_max) AS workers_max
    FROM queues, {_LENGTHS} GROUP BY ALL)
SELECT to_timestamp(moment) AS "window", *, run_us / (seconds * 1e6) AS busy
FROM summed JOIN figures USING (moment, seconds, broker, service) LEFT JOIN waits USING (moment, seconds, broker, service);
CREATE TEMP VIEW all_services AS SELECT * REPLACE (coalesce(queued, 0) AS queued, coalesce(queue_max, 0) AS queue_max,
    coalesce(workers_max, 0) AS workers_max) FROM windows;
"""

_ABLE = f"turns >= {workers.LEAST_TURNS} AND protocol NOT IN {BROKERS_OWN}"
WORKERS = f"""
CREATE TEMP TABLE all_workers AS
WITH cells AS (SELECT broker, run, worker, service, bucket, sum(turns) AS n, sum(finals) AS finals,
    sum(given_back) AS given_back, max(peer) AS peer,
    max(protocol) AS protocol, max(principal) AS principal FROM turns GROUP BY ALL),
ranked AS (SELECT *, sum(n) FILTER (bucket IS NOT NULL) OVER (PARTITION BY broker, run, worker, service ORDER BY bucket NULLS LAST) AS upto,
    sum(n) FILTER (bucket IS NOT NULL) OVER (PARTITION BY broker, run, worker, service) AS total FROM cells),
done AS (
    SELECT broker, run, worker, service, sum(n) AS turns, sum(finals) AS finals, sum(given_back) AS given_back, max(peer) AS peer,
        max(protocol) AS protocol, max(principal) AS principal,
        coalesce(map_from_entries(list((CAST(bucket AS INTEGER), CAST(n AS BIGINT)) ORDER BY bucket) FILTER (bucket IS NOT NULL)),
            MAP {{}}) AS run_histogram,
        {percentile(0.5)} AS run_p50_us, {percentile(0.99)} AS run_p99_us
    FROM ranked GROUP BY ALL
),
worked AS (SELECT broker, run, worker, service, sum(run_us) AS run_us FROM work GROUP BY ALL),
busy AS (SELECT broker, run, worker, service, * EXCLUDE (broker, run, worker, service)
    FROM done FULL JOIN worked USING (broker, run, worker, service)),
there AS (SELECT broker, run, worker, sum(until - since) AS present_us, max(peer) AS peer, max(protocol) AS protocol,
    max(principal) AS principal, max(offers) AS offers FROM presence GROUP BY ALL),
troubled AS (SELECT broker, run, worker, sum(late) AS late, sum(lost) AS lost, sum(stale) AS stale FROM events GROUP BY ALL),
around AS (SELECT broker, run, worker, present_us, peer, protocol, principal, offers, late, lost, stale
    FROM there FULL JOIN troubled USING (broker, run, worker)),
joined AS (
    SELECT broker, run, worker, coalesce(service, offers, '') AS service, coalesce(greatest(b.peer, a.peer), b.peer, a.peer, '') AS peer,
        coalesce(greatest(b.protocol, a.protocol), b.protocol, a.protocol, '') AS protocol,
        coalesce(greatest(b.principal, a.principal), b.principal, a.principal, '') AS principal, coalesce(turns, 0) AS turns,
            coalesce(finals, 0) AS finals,
        coalesce(given_back, 0) AS given_back, coalesce(run_us, 0) AS run_us, coalesce(present_us, 0) AS present_us,
        coalesce(run_histogram, MAP {{}}) AS run_histogram, coalesce(run_p50_us, 0) AS run_p50_us, coalesce(run_p99_us, 0) AS run_p99_us,
        coalesce(late, 0) AS late, coalesce(lost, 0) AS lost, coalesce(stale, 0) AS stale
    FROM busy b FULL JOIN around a USING (broker, run, worker)
)
SELECT getvariable('begins') AS "window", *, if(present_us > 0, run_us / present_us, 0) AS utilisation,
    count(*) FILTER (protocol NOT IN {BROKERS_OWN}) OVER fellows AS fellows,
    count(*) FILTER ({_ABLE}) OVER fellows AS able,
    coalesce(quantile_disc(run_p50_us, 0.5) FILTER ({_ABLE}) OVER fellows, 0) AS fellows_p50_us
FROM joined WINDOW fellows AS (PARTITION BY broker, service);
"""
OUTLIER = f"""
SELECT *, CASE WHEN able < 2 OR NOT ({_ABLE}) THEN '' WHEN run_p50_us >= {workers.SLOW} * fellows_p50_us THEN 'slow'
    WHEN given_back >= {workers.GIVEN_BACK} AND given_back >= {workers.GIVEN_BACK_SHARE} * turns THEN 'gives back' ELSE '' END AS outlier
FROM all_workers
"""

TOPOLOGY = f"""
WITH cells AS (SELECT kind, broker, protocol, peer, name, total_bucket AS bucket, sum(requests) AS n, sum(failed) AS failed,
    sum(total_us) AS total_us
    FROM edges GROUP BY ALL),
ranked AS (SELECT *, sum(n) OVER (PARTITION BY kind, broker, protocol, peer, name ORDER BY bucket) AS upto,
    sum(n) OVER (PARTITION BY kind, broker, protocol, peer, name) AS total FROM cells),
summed AS (SELECT kind, broker, protocol, peer, name, sum(n) AS requests, sum(failed) AS failed, sum(total_us) AS total_us,
    {percentile(0.5)} AS p50_us, {percentile(0.99)} AS p99_us FROM ranked GROUP BY ALL)
SELECT getvariable('begins') AS "window", *, if(kind IN ('asks', 'serves'), protocol || ' ' || peer, peer) AS far,
    if(kind = 'asks', far, name) AS source,
    if(kind = 'asks', name, far) AS target FROM summed
"""

# The variations are rounded: for equal times, floating point would leave noise that depends on the order of summation.
# The capacity of a service follows from its own turns and arrivals, whichever service the clients called.
_WAIT = "service_us * (arrival_scv + service_scv) / 2 * pow({r}, sqrt(2 * (workers + 1)) - 1) / (workers * (1 - {r}))"
_MODEL = f"turns >= {capacity.LEAST_TURNS} AND workers > 0 AND service_us > 0"
CAPACITY = f"""
WITH asked AS (SELECT broker, service, requests, ok, total_histogram FROM all_services WHERE seconds = 3600),
times AS (SELECT broker, service, sum(turns) AS turns, sum(timed) AS timed, sum(run_us) AS run_us, sum(run_us2) AS run_us2,
    sum(waited) AS waited,
    sum(wait_us) AS waits FROM service_times GROUP BY ALL),
came AS (SELECT broker, service, sum(gaps) AS gaps, sum(us) AS us, sum(us2) AS us2 FROM arrivals GROUP BY ALL),
took_part AS (SELECT DISTINCT broker, run, worker, service FROM all_workers WHERE turns > 0 AND protocol NOT IN {BROKERS_OWN}),
crowd AS (
    SELECT broker, service, greatest(1, round(sum(until - since) / greatest(1, max(until) - min(since)))) AS workers
    FROM took_part JOIN presence USING (broker, run, worker) GROUP BY ALL
),
counted AS (SELECT broker, service, count(*) AS at_least FROM took_part GROUP BY ALL),
keys AS (SELECT broker, service FROM asked UNION SELECT broker, service FROM times UNION SELECT broker, service FROM came),
facts AS (
    SELECT broker, service, coalesce(requests, 0) AS requests, coalesce(turns, 0) AS turns, coalesce(us, 0) / 1e6 AS span_s,
        if(us > 0, gaps / (us / 1e6), 0) AS rate, coalesce(workers, if(at_least > 0, 1, 0), 0) AS workers,
        if(timed > 0, run_us / timed, 0) AS service_us,
        if(timed > 0 AND run_us > 0, greatest(0, round(run_us2 / timed / ((run_us / timed) * (run_us / timed)) - 1, 9)), 0) AS service_scv,
        if(gaps > 1 AND us > 0, greatest(0, round(us2 / gaps / ((us / gaps) * (us / gaps)) - 1, 9)), 1) AS arrival_scv,
        if(waited > 0, waits / waited, NULL) AS measured_wait_us, ok, total_histogram
    FROM keys LEFT JOIN asked USING (broker, service) LEFT JOIN times USING (broker, service) LEFT JOIN came USING (broker, service)
        LEFT JOIN crowd USING (broker, service) LEFT JOIN counted USING (broker, service)
),
goals AS (
    SELECT facts.*, CAST(round(coalesce(o.seconds, d.seconds) * 1e6) AS BIGINT) AS objective_us, coalesce(o.target, d.target) AS target,
        if(workers > 0, rate * service_us / 1e6 / workers, 0) AS utilisation
    FROM facts LEFT JOIN objectives o USING (service) CROSS JOIN (FROM objectives WHERE service = '*') d
),
judged AS (
    SELECT *, if({_MODEL} AND utilisation < 1, {_WAIT.format(r="utilisation")}, NULL) AS wait_us,
        if({_MODEL}, list_max(list_filter(list_transform(range(1, {capacity.STEPS}), lambda i: i / {capacity.STEPS}.0),
            lambda r: {_WAIT.format(r="r")} <= objective_us)), NULL) AS best,
        greatest(0, coalesce(list_sum(list_transform(list_filter(map_entries(total_histogram),
            lambda e: e.key <= floor(ln(greatest(objective_us, 1)) / ln({histogram.RATIO}))), lambda e: e.value)),
                0) - (requests - ok)) AS inside
    FROM goals
)
SELECT getvariable('begins') AS "window", *, best * workers * 1e6 / service_us AS capacity,
    if(rate > 0, best * workers * 1e6 / service_us / rate, NULL) AS headroom, coalesce(inside, 0) AS within,
    if(requests > 0, if(target < 1, (requests - inside) / (requests * (1 - target)), requests - inside), NULL) AS budget_used
FROM judged
"""


def unit(plan: Plan, here: str, inbox: Sequence[Message]) -> Iterator[Message]:
    """Runs the task."""
    with connected(plan) as duck:
        duck.set(begins=begin_of(here))
        for name, shape in SHAPES.items():
            parts = [message.table for message in inbox if message.name == name]
            parts += _from_later_hours(plan, here, name) if name in SPILLED else []
            wanted = pa.schema(shape)
            duck.load(
                name,
                pa.concat_tables([conform(part, wanted) for part in parts]) if parts else wanted.empty_table(),
            )
        duck.load("objectives", _objectives(plan.objectives))
        duck.run(SERVICES)
        duck.run(WORKERS)
        for table, sql in (
            (services.TABLE, "FROM all_services"), (workers.TABLE, OUTLIER), (topology.TABLE, TOPOLOGY), (capacity.TABLE, CAPACITY),
        ):  # fmt: skip
            yield note(what="rows", table=table.name, count=duck.stage(table, here, "0", sql))
        yield from _spill(duck, plan, here, inbox)
    yield from (message for message in inbox if message.stage == 0)


def _objectives(given: Mapping[str, Objective]) -> pa.Table:
    known = {"*": Objective(), **given}
    rows = [{"service": name, "seconds": one.seconds, "target": one.target} for name, one in known.items()]
    return pa.Table.from_pylist(
        rows, pa.schema([("service", pa.string()), ("seconds", pa.float64()), ("target", pa.float64())])
    )


def _from_later_hours(plan: Plan, here: str, name: str) -> list[pa.Table]:
    """Turns that ended in this hour, of requests that ended in later hours which are not recomputed."""
    hour = micros(begin_of(here)) // HOUR_US
    found = []
    for path in plan.spills.get(here, ()):
        table = storage_for(path).table(path)
        chosen = pc.and_(pc.equal(table["hour"], hour), pc.equal(table["name"], name))
        found.append(table.filter(chosen))
    return found


def _spill(duck: Duck, plan: Plan, here: str, inbox: Sequence[Message]) -> Iterator[Message]:
    """Saves work that this hour found for earlier hours, for when they are recomputed, and reports these hours to the driver."""
    parts = []
    for name in SPILLED:
        wanted = pa.schema(SHAPES[name])
        for message in inbox:
            if message.name == f"spilled_{name}":
                table = conform(message.table, wanted)
                parts.append(table.append_column("name", pa.array([name] * table.num_rows, pa.string())))
    if not parts:
        return
    whole = pa.concat_tables([SPILL.empty_table(), *parts], promote_options="default")
    duck.load("spill", whole)
    columns = ", ".join(f'"{name}"' for name in whole.schema.names)
    duck.write(f"{plan.staging}/_spill/{here.replace('/', '-')}.parquet", f"SELECT * FROM spill ORDER BY {columns}")
    for target, digest in duck.rows(
        f"SELECT hour, CAST(sum(CAST(hash({columns}) AS HUGEINT)) AS VARCHAR) FROM spill GROUP BY hour"
    ):
        yield note(what="spill", unit=here, hour=int(target), digest=digest)
