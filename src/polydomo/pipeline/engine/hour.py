"""Stage 1: one run in one hour. Writes tables with a row per request, turn, event or value, and sends sums and histograms to stage 3.

A *turn* is one dispatch of a request to a worker, until the worker has ended it or lost it. Most requests have one turn: the journal's
record has everything about it. The turns of the others (``several``) are computed from messages. The journal has a row at every level for a
turn that did not end its request (requeued, forwarded). The beginning of a turn is recorded only at level ``messages``, except for the
first and the last turn of a request.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from polydomo.journal import schema
from polydomo.pipeline.engine import payloads
from polydomo.pipeline.engine.duck import HOUR_US, Duck, bucket, connected
from polydomo.pipeline.engine.messages import ONCE, Message, note, to_bridges, to_run, to_unit
from polydomo.pipeline.engine.once import ROWS as ROWS_ONCE
from polydomo.pipeline.engine.plan import HourItem, Plan
from polydomo.pipeline.segments import begin_of, between, of_hour, parse, shifted, unit_of
from polydomo.pipeline.storage import storage_for
from polydomo.pipeline.tables import hops, jobs, logs, requests, values
from polydomo.pipeline.tables.capacity import IDLE_SECONDS

BRIDGE = "bridge"  # the protocol of a worker that is another broker
CANDIDATE = f"(parent != '' OR worker_protocol = '{BRIDGE}')"  # may have parts at several brokers

DOUBLES = """
CREATE TEMP TABLE doubles AS SELECT number FROM records GROUP BY number HAVING count(*) > 1;
CREATE TEMP VIEW parts AS SELECT * FROM records WHERE number NOT IN (FROM doubles) UNION ALL
    (SELECT * FROM records WHERE number IN (FROM doubles) QUALIFY row_number() OVER (PARTITION BY number ORDER BY seq) = 1);
"""  # each request of the run once, with its first record

# Protocols of the broker's own workers. They hold requests whose reply is stored or comes from a run that several requests
# share; the run is a request of its own. So they count neither as workers of the service nor as work.
BROKERS_OWN = "('memoised', 'keyed')"

# Requests of which this hour needs messages of earlier hours: they may have been requeued or forwarded then, or share a run.
BACK = f"""accepted < getvariable('begins') AND (dispatches > 1 OR hops > 0 OR (outcome != 'ok' AND dispatches > 0)
    OR worker_protocol IN {BROKERS_OWN})"""

# How requests share runs: those for memoised services, and those with a key. The event comes with the request, perhaps in an earlier hour.
SHARED = """
CREATE TEMP TABLE shared AS SELECT number, arg_min(outcome, seq) FILTER (event = 'memo') AS memo,
    arg_min(outcome, seq) FILTER (event = 'keyed') AS keyed, arg_min(key, seq) FILTER (event = 'keyed') AS key
    FROM (SELECT number, seq, event, outcome, key FROM messages UNION ALL SELECT number, seq, event, outcome, key FROM earlier)
    WHERE event IN ('memo', 'keyed') GROUP BY number;
"""

_STEP = "number, hop, attempt, seq, event, time, service, worker, peer, protocol, principal"
STEPS = f"""
CREATE TEMP TABLE returned AS SELECT {_STEP} FROM messages WHERE event IN ('requeued', 'forwarded') UNION ALL
    SELECT {_STEP} FROM earlier WHERE event IN ('requeued', 'forwarded');
CREATE TEMP TABLE several AS SELECT request, broker, run, number, seq, service, last_service, worker, worker_peer,
    worker_protocol, accepted,
        first_dispatched, dispatched, time, attempts, dispatches, hops, outcome, parent, wait_us, run_us, total_us, total_bucket,
        principal, worker_principal
    FROM parts WHERE dispatches > 0
        AND (dispatches != 1 OR hops != 0 OR attempts != 1 OR {CANDIDATE} OR number IN (SELECT number FROM returned));
CREATE TEMP TABLE starts AS SELECT number, hop, attempt, min(time) AS start, arg_min(service, seq) AS start_service
    FROM (SELECT {_STEP} FROM messages UNION ALL SELECT {_STEP} FROM earlier)
    WHERE event = 'dispatched' AND number IN (SELECT number FROM several) GROUP BY ALL;
"""

# The record ends the last turn of its request. If that turn was requeued or forwarded before, the request ended in the queue.
TURNS = f"""
CREATE TEMP TABLE turns AS
WITH ends AS (
    SELECT number, hop, attempt, seq, worker, peer AS worker_peer, protocol AS worker_protocol, principal AS worker_principal,
        time AS ended, event AS ending,
        if(event = 'forwarded', NULL, nullif(service, '')) AS own_service
    FROM returned WHERE number IN (SELECT number FROM several)
    UNION ALL
    SELECT number, hops, attempts, seq, worker, worker_peer, worker_protocol, worker_principal, time,
        if(outcome = 'ok', 'final', 'failed'), last_service
    FROM several s WHERE attempts > 0 AND NOT EXISTS (
        FROM returned r WHERE r.number = s.number AND r.event = 'requeued' AND r.hop = s.hops AND r.attempt = s.attempts)
),
targets AS (SELECT number, hop + 1 AS hop, arg_max(service, seq) AS target FROM returned WHERE event = 'forwarded' GROUP BY ALL),
ordered AS (
    SELECT *, lag(ended) OVER turn AS before, row_number() OVER turn = count(*) OVER (PARTITION BY number) AS is_last
    FROM ends WINDOW turn AS (PARTITION BY number ORDER BY hop, attempt, seq)
),
named AS (
    SELECT s.request, s.broker, s.run, o.number, coalesce(o.own_service, start_service, target, if(o.hop = 0, s.service,
        NULL), '') AS service,
        o.hop, o.attempt, o.seq, o.worker, o.worker_peer, o.worker_protocol, o.worker_principal, s.principal, o.ended,
        o.ending, s.time AS done, s.outcome, s.total_us,
        s.total_bucket,
        CASE WHEN o.ending IN ('final', 'failed') THEN s.dispatched
             ELSE coalesce(start, if(o.hop = 0 AND o.attempt = 1, s.first_dispatched, NULL), if(is_last, s.dispatched, NULL)) END AS began,
        if(o.hop = 0 AND o.attempt = 1, s.accepted, coalesce(before, s.accepted)) AS arrived
    FROM ordered o JOIN several s USING (number) LEFT JOIN starts USING (number, hop, attempt) LEFT JOIN targets USING (number, hop)
)
SELECT *, epoch_us(ended) - epoch_us(began) AS run_us, epoch_us(began) - epoch_us(arrived) AS wait_us,
    row_number() OVER (PARTITION BY number ORDER BY coalesce(began, ended), hop, attempt, seq) AS position
FROM named;
CREATE TEMP TABLE candidates AS SELECT number FROM parts WHERE {CANDIDATE} UNION SELECT number
    FROM turns WHERE worker_protocol = '{BRIDGE}';
"""

# Waits and service times of requests with several turns, if the journal has all their turns.
FIXED = f"""
CREATE TEMP TABLE fixed AS
WITH summed AS (
    SELECT number, count(*) AS turns, arg_max(worker, position) AS worker, arg_max(worker_peer, position) AS worker_peer,
        arg_max(worker_protocol, position) AS worker_protocol, arg_max(worker_principal, position) AS worker_principal,
        sum(coalesce(wait_us, 0)) AS waited, max(ended) AS last_ended,
        coalesce(arg_max_null(run_us, position), 0) AS ran
    FROM turns GROUP BY number
),
times AS (
    SELECT summed.* EXCLUDE (turns, waited, last_ended, ran), if(turns = dispatches, ran, run_us) AS run_us,
        if(turns = dispatches, waited + greatest(0, epoch_us(time) - epoch_us(last_ended)), wait_us) AS wait_us
    FROM summed JOIN several s USING (number)
)
SELECT number, worker, worker_peer, worker_protocol, worker_principal, CAST(wait_us AS BIGINT) AS wait_us, CAST(run_us AS BIGINT) AS run_us,
    {bucket("wait_us")} AS wait_bucket, {bucket("run_us")} AS run_bucket FROM times;
CREATE TEMP VIEW done AS SELECT p.* EXCLUDE (worker, worker_peer, worker_protocol, worker_principal,
        wait_us, run_us, wait_bucket, run_bucket),
    {
    ", ".join(
        f"coalesce(f.{name}, p.{name}) AS {name}"
        for name in (
            "worker",
            "worker_peer",
            "worker_protocol",
            "worker_principal",
            "wait_us",
            "run_us",
            "wait_bucket",
            "run_bucket",
        )
    )
}
, coalesce(s.memo, '') AS memo, coalesce(s.keyed, '') AS keyed, coalesce(s.key, '') AS key
FROM parts p LEFT JOIN fixed f USING (number) LEFT JOIN shared s USING (number);
CREATE TEMP VIEW single AS SELECT * FROM parts WHERE dispatches > 0 AND number NOT IN (SELECT number FROM several);
CREATE TEMP VIEW all_turns AS SELECT broker, run, worker, worker_peer, worker_protocol, worker_principal, service, dispatched AS began,
    time AS ended, run_us, wait_us,
        if(outcome = 'ok', 'final', 'failed') AS ending FROM single
    UNION ALL SELECT broker, run, worker, worker_peer, worker_protocol, worker_principal, service, began, ended, run_us, wait_us, ending
    FROM turns;
"""

REQUESTS = """
SELECT *, time AS ended, 0 AS bridged, '' AS far_broker, '' AS far_protocol FROM done WHERE number NOT IN (FROM candidates)
"""
HOPS = """
SELECT request, 1 AS position, broker, run, number, service, 0 AS hop, 1 AS attempt, worker, worker_peer, worker_protocol,
    principal, worker_principal, accepted AS arrived,
    dispatched AS began, time AS ended, epoch_us(dispatched) - epoch_us(accepted) AS wait_us,
        epoch_us(time) - epoch_us(dispatched) AS run_us,
    if(outcome = 'ok', 'final', 'failed') AS ending FROM single
UNION ALL SELECT request, position, broker, run, number, service, hop, attempt, worker, worker_peer, worker_protocol,
    principal, worker_principal, arrived, began, ended, wait_us,
    run_us, ending FROM turns WHERE number NOT IN (FROM candidates)
"""
LOGS = """
SELECT m.time, m.broker, m.run, m.seq, m.service, m.outcome AS level, m.reason AS message, m.peer, m.number,
    coalesce(p.request, '') AS request,
    coalesce(p.outcome, '') AS outcome
FROM (SELECT * FROM messages WHERE event = 'log') m LEFT JOIN (
    SELECT number, request, outcome FROM parts UNION ALL
    SELECT number, request, outcome FROM later QUALIFY row_number() OVER (PARTITION BY number ORDER BY seq) = 1
) p ON m.number = p.number AND m.number != 0
"""
VALUES = """
SELECT time, v.broker, run, seq, v.topic, peer, protocol, size, body, body_cut,
    row_number() OVER (PARTITION BY v.broker, v.topic ORDER BY time DESC, seq DESC) = 1 AND time > coalesce(newest, '-infinity') AS last
FROM (SELECT * FROM messages WHERE event = 'published') v LEFT JOIN other_values USING (broker, topic)
"""

JOBS = """
SELECT job, broker, run, seq, service, origin, key, principal, schedule, created AS submitted, time AS ended,
    epoch_us(time) - epoch_us(created) AS total_us, attempt AS attempts, wait_us AS backoff_us, outcome AS state, code AS outcome,
    reason, size AS result_bytes
FROM messages WHERE event = 'job' AND outcome IN ('done', 'dead', 'cancelled')
"""
JOB_EVENTS = """
SELECT time, broker, run, seq, outcome AS event, job, service, principal, schedule, attempt, code AS outcome, reason,
    if(outcome = 'retry', wait_us, 0) AS wait_us, created AS submitted, size AS bytes
FROM messages WHERE event = 'job'
"""

# --- sums: each goes to its hour -----------------------------------------------------------------

TEN = "10 * (epoch_us(time) // 10000000)"  # the beginning of its window of 10 s, in seconds
COUNTS = f"""
SELECT {TEN} AS ten, broker, service, outcome, count(*) AS requests, count(*) FILTER (dispatches > hops + 1) AS retried,
    count(*) FILTER (hops > 0) AS passed_on, CAST(sum(request_bytes) AS BIGINT) AS request_bytes,
        CAST(sum(reply_bytes) AS BIGINT) AS reply_bytes,
    CAST(sum(wait_us) AS BIGINT) AS wait_us,
    CAST(coalesce(sum(run_us) FILTER (worker_protocol NOT IN {BROKERS_OWN}), 0) AS BIGINT) AS run_us,
    coalesce(sum(CAST(run_us AS DOUBLE) * run_us) FILTER (worker_protocol NOT IN {BROKERS_OWN}), 0) AS run_us2,
    CAST(sum(total_us) AS BIGINT) AS total_us, count(*) FILTER (dispatches > 0 AND worker_protocol NOT IN {BROKERS_OWN}) AS worked,
    count(*) FILTER (memo = 'hit') AS memo_hits, count(*) FILTER (memo = 'miss') AS memo_misses,
    count(*) FILTER (memo = 'joined') AS memo_joined, count(*) FILTER (keyed = 'joined') AS key_joined
FROM done GROUP BY ALL
"""
HISTOGRAMS = f"""
WITH pairs AS (SELECT {TEN} AS ten, broker, service, wait_bucket, total_bucket FROM done)
SELECT ten, broker, service, wait_bucket AS bucket, count(*) AS n FROM pairs GROUP BY ALL UNION ALL
SELECT ten, broker, service, -1 - total_bucket, count(*) FROM pairs GROUP BY ALL
"""  # buckets of durations are stored as negative numbers
QUEUES = f"""
SELECT {TEN} AS ten, broker, service, count(*) AS queued, max(queue) AS queue_max, max(workers) AS workers_max
FROM messages WHERE event IN ('queued', 'requeued', 'forwarded') GROUP BY ALL
"""
_END = f"epoch_us(ended) // {HOUR_US}"
TURN_CELLS = f"""
SELECT {_END} AS hour, broker, run, worker, service, {bucket("run_us")} AS bucket, count(*) AS turns,
    count(*) FILTER (ending = 'final') AS finals, count(*) FILTER (ending = 'requeued') AS given_back, max(worker_peer) AS peer,
    max(worker_protocol) AS protocol, max(worker_principal) AS principal
FROM all_turns GROUP BY ALL
"""
WORK = f"""
WITH timed AS (SELECT broker, run, worker, service, epoch_us(began) AS b, epoch_us(ended) AS e FROM all_turns WHERE began IS NOT NULL),
spread AS (
    SELECT broker, run, worker, service, e // {HOUR_US} AS hour, e - b AS us FROM timed WHERE b // {HOUR_US} = e // {HOUR_US}
    UNION ALL SELECT broker, run, worker, service, hour, least(e, (hour + 1) * {HOUR_US}) - greatest(b, hour * {HOUR_US}) FROM (
        SELECT *, unnest(generate_series(b // {HOUR_US}, e // {HOUR_US})) AS hour FROM timed WHERE b // {HOUR_US} < e // {HOUR_US})
)
SELECT hour, broker, run, worker, service, CAST(sum(us) AS BIGINT) AS run_us FROM spread GROUP BY ALL
"""
SERVICE_TIMES = f"""
SELECT {_END} AS hour, broker, service, count(*) AS turns, count(run_us) AS timed, CAST(coalesce(sum(run_us), 0) AS BIGINT) AS run_us,
    coalesce(sum(CAST(run_us AS DOUBLE) * run_us), 0) AS run_us2, count(wait_us) AS waited,
    CAST(coalesce(sum(wait_us), 0) AS BIGINT) AS wait_us
FROM all_turns WHERE worker_protocol NOT IN {BROKERS_OWN} GROUP BY ALL
"""
# Clients that wait for the outcome of a durable job or for a memoised reply are not in the queue: the attempts of the job and the runs
# of the memoised service are.
ARRIVALS = f"""
WITH arrived AS (
    SELECT broker, service, epoch_us(accepted) AS us FROM whole_records
    WHERE (job = '' OR client_protocol = 'job') AND worker_protocol NOT IN {BROKERS_OWN} UNION ALL
    SELECT broker, service, epoch_us(time) FROM whole_messages WHERE event IN ('requeued', 'forwarded')
),
gaps AS (SELECT broker, service, us - lag(us) OVER (PARTITION BY broker, service ORDER BY us) AS gap FROM arrived)
SELECT broker, service, count(*) AS gaps, CAST(sum(gap) AS BIGINT) AS us, sum(CAST(gap AS DOUBLE) * gap) AS us2
FROM gaps WHERE gap <= {IDLE_SECONDS} * 1000000 GROUP BY ALL
"""
EVENTS = """
SELECT broker, run, worker, count(*) FILTER (event = 'late') AS late, count(*) FILTER (event = 'lost') AS lost,
    count(*) FILTER (event = 'stale') AS stale
FROM messages WHERE event IN ('late', 'lost', 'stale') AND worker > 0 GROUP BY ALL
"""
HOST = "regexp_replace({peer}, ':[0-9]+$', '')"  # a peer without its port, which differs for every connection
EDGES = """
SELECT kind, broker, protocol, peer, name, total_bucket, count(*) AS requests, count(*) FILTER (outcome != 'ok') AS failed,
    CAST(sum(total_us) AS BIGINT) AS total_us
FROM (
    SELECT 'asks' AS kind, broker, client_protocol AS protocol, client_peer AS peer, service AS name, total_bucket, outcome, total_us
    FROM {rows} UNION ALL
    SELECT 'serves', broker, worker_protocol, worker_peer, last_service, total_bucket, outcome, total_us FROM {rows} WHERE worker > 0
    UNION ALL {more}
) GROUP BY ALL
"""
PASSES = """
SELECT 'passes' AS kind, {broker} AS broker, '' AS protocol, b.service AS peer, a.service AS name, a.total_bucket, a.outcome, a.total_us
FROM {turns} a JOIN {turns} b ON a.{key} = b.{key} AND b.position = a.position + 1 WHERE a.ending = 'forwarded'
"""
COVERS = """
SELECT run, seq, time, event, covers_run, covers_first, covers_last FROM messages WHERE covers_run != 0
"""


def hour(plan: Plan, item: HourItem) -> Iterator[Message]:
    """Runs the task."""
    problems: list[str] = []
    read: set[str] = set()
    mine = f"number % {item.parts} = {item.part}"
    with connected(plan) as duck:
        paths = {
            schema.MESSAGES: duck.readable(item.messages, problems, read),
            schema.REQUESTS: duck.readable(item.requests, problems, read),
        }
        duck.set(begins=begin_of(item.unit))
        duck.journal("messages", schema.MESSAGES, paths[schema.MESSAGES], f"{mine} AND {_wanted(item, 'messages')}")
        duck.journal("records", schema.REQUESTS, paths[schema.REQUESTS], f"{mine} AND {_wanted(item, 'records')}")
        duck.run(DOUBLES)
        back = _look_back(duck, item, mine, problems)
        for statements in (STEPS, TURNS, SHARED, FIXED):
            duck.run(statements)
        yield from _candidates(duck, item)
        if item.peek:
            return
        rows = {
            "requests": duck.stage(requests.TABLE, item.unit, _name(item), REQUESTS),
            "hops": duck.stage(hops.TABLE, item.unit, _name(item), HOPS),
            "jobs": duck.stage(jobs.TABLE, item.unit, _name(item), JOBS),
            "job_events": duck.stage(jobs.EVENTS, item.unit, _name(item), JOB_EVENTS),
        }
        waiting = _logs(duck, item, mine, rows, problems)
        _values(duck, item, rows)
        if item.part == 0:
            if item.parts == 1:
                duck.run(
                    "CREATE TEMP VIEW whole_messages AS FROM messages; CREATE TEMP VIEW whole_records AS FROM records"
                )
            else:
                duck.journal("whole_messages", schema.MESSAGES, paths[schema.MESSAGES])
                duck.journal("whole_records", schema.REQUESTS, paths[schema.REQUESTS])
            yield from _sums(duck, item, ARRIVALS, "arrivals")
            yield from _covers(duck, item)
            rows_once = duck.table(ROWS_ONCE)
            if rows_once.num_rows:
                yield Message(2, ONCE, "once", rows_once)
        yield from _all_sums(duck, item)
        for payload in plan.payloads:
            yield from payloads.gather(duck, item, payload)
        open_parts = duck.value("SELECT count(*) FROM parts WHERE parent != ''")
        for name, count in rows.items():
            yield note(what="rows", table=name, count=count)
        if back:
            yield note(what="back", unit=item.unit, run=item.run, to=back)
        if waiting or open_parts:
            yield note(what="open", unit=item.unit, count=waiting + open_parts)
    if item.part == 0:
        for path in sorted(read):
            yield note(what="read", path=path)
        for line in problems:
            yield note(what="problem", line=line)


def _name(item: HourItem) -> str:
    return f"{item.run:x}-{item.part}"


def _wanted(item: HourItem, view: str) -> str:
    """SQL for the rows to read: only bridged requests if the hour is not recomputed."""
    return CANDIDATE if item.peek and view == "records" else "true"


def _look_back(duck: Duck, item: HourItem, mine: str, problems: list[str]) -> str:
    """Opens the messages of earlier hours, if requests of this one need them. Returns the earliest hour."""
    earliest = duck.value(f"SELECT min(accepted) FROM parts WHERE {BACK}")
    paths: list[str] = []
    first = ""
    if earliest is not None:
        first = unit_of(earliest)
        for unit in between(first, shifted(item.unit, -1)):
            paths += [segment.path for segment in of_hour(duck.plan.roots, schema.MESSAGES, unit, item.run)]
    known = f"number IN (SELECT number FROM parts WHERE {BACK})"
    steps = "event IN ('requeued', 'forwarded', 'dispatched', 'memo', 'keyed')"
    duck.journal("earlier", schema.MESSAGES, duck.readable(paths, problems), f"{mine} AND {steps} AND {known}")
    return first


def _logs(duck: Duck, item: HourItem, mine: str, rows: dict[str, int], problems: list[str]) -> int:
    """Writes the log records. Returns the number of requests in them that had not ended."""
    missing = "SELECT DISTINCT number FROM messages WHERE event = 'log' AND number != 0 AND number NOT IN (SELECT number FROM parts)"
    asked = [row[0] for row in duck.rows(missing)]
    after = of_hour(duck.plan.roots, schema.REQUESTS, shifted(item.unit, 1), item.run) if asked else []
    duck.set(asked=asked or [0])
    there = duck.readable([segment.path for segment in after], problems)
    duck.journal("later", schema.REQUESTS, there, f"{mine} AND list_contains(getvariable('asked'), number)")
    rows["logs"] = duck.stage(logs.TABLE, item.unit, _name(item), LOGS)
    return len(asked)


def _values(duck: Duck, item: HourItem, rows: dict[str, int]) -> None:
    """Writes the published values. Another run of the same broker in the hour may have a newer value of a topic."""
    duck.journal("others", schema.MESSAGES, _same_broker(duck, item), "event = 'published'")
    duck.run("CREATE TEMP TABLE other_values AS SELECT broker, topic, max(time) AS newest FROM others GROUP BY ALL")
    rows["values"] = duck.stage(values.TABLE, item.unit, _name(item), VALUES)


def _same_broker(duck: Duck, item: HourItem) -> list[str]:
    """The segments of other runs of the same broker in the hour."""
    if not item.other_messages or not duck.value("SELECT count(*) FROM messages WHERE event = 'published'"):
        return []
    broker = duck.value("SELECT max(broker) FROM messages")
    runs: dict[int, list[str]] = {}
    for path in item.other_messages:
        segment = parse(path)
        if segment is not None:
            runs.setdefault(segment.run, []).append(path)
    found: list[str] = []
    for paths in runs.values():
        for path in duck.readable(paths[:1], []):
            if storage_for(path).table(path, ["broker"]).slice(0, 1)["broker"].to_pylist() == [broker]:
                found += duck.readable(paths, [])
    return found


def _candidates(duck: Duck, item: HourItem) -> Iterator[Message]:
    """Sends requests that may have parts at several brokers to stage 2, to each hour that may have the client's request."""
    found = duck.table("SELECT * FROM done WHERE number IN (FROM candidates)")
    if not found.num_rows:
        return
    turns = duck.table("SELECT * FROM turns WHERE number IN (FROM candidates)")
    for unit in (shifted(item.unit, -1), item.unit, shifted(item.unit, 1)):
        if unit in duck.plan.units:
            yield Message(2, to_bridges(unit), "parts", found)
            yield Message(2, to_bridges(unit), "turns", turns)


def _sums(duck: Duck, item: HourItem, sql: str, name: str) -> Iterator[Message]:
    made = duck.table(sql)
    if made.num_rows:
        yield Message(3, to_unit(item.unit), name, made)


def _all_sums(duck: Duck, item: HourItem) -> Iterator[Message]:
    own = f"{begin_of(item.unit).timestamp():.0f}"
    for name, sql in (("counts", COUNTS), ("histograms", HISTOGRAMS), ("queues", QUEUES), ("events", EVENTS)):
        yield from _sums(duck, item, sql, name)
    passes = PASSES.format(turns="turns", key="number", broker="a.broker")
    passes += " AND a.number NOT IN (FROM candidates)"
    rows = "(SELECT * FROM done WHERE number NOT IN (FROM candidates))"
    edges = EDGES.format(rows=rows, more=passes)
    yield from _sums(
        duck,
        item,
        f"SELECT * REPLACE (if(kind IN ('asks', 'serves'), {HOST.format(peer='peer')}, peer) AS peer) FROM ({edges})",
        "edges",
    )
    here = int(own) // 3600
    for name, sql in (("turns", TURN_CELLS), ("work", WORK), ("service_times", SERVICE_TIMES)):
        made = duck.table(sql)
        if not made.num_rows:
            continue
        inside = pc.equal(made["hour"], here)
        mine = made.filter(inside)
        if mine.num_rows:
            yield Message(3, to_unit(item.unit), name, mine)
        spilled = made.filter(pc.invert(inside))
        if spilled.num_rows:  # turns that ended, or work that was done, in earlier hours
            yield Message(3, to_unit(item.unit), f"spilled_{name}", spilled)
            for target in sorted(set(spilled["hour"].to_pylist())):
                unit = unit_of(datetime.fromtimestamp(target * 3600, UTC))
                if unit in duck.plan.units:
                    yield Message(3, to_unit(unit), name, spilled.filter(pc.equal(spilled["hour"], target)))


def _covers(duck: Duck, item: HourItem) -> Iterator[Message]:
    """Sends rows that state missing rows to the audit of the run that lost them."""
    found = duck.table(COVERS)
    for run in sorted(set(found["covers_run"].to_pylist())):
        yield Message(2, to_run(run), "covers", found.filter(pc.equal(found["covers_run"], run)))
    yield Message(2, to_run(item.run), "start", pa.table({"run": [item.run]}))
