"""The pipeline's tables once more, in DuckDB's SQL and with the same care for what it costs: what
``bench/pipeline.py`` holds Spark's against.

Each table is one statement over the views ``messages`` and ``rows`` (the journal's two kinds). Nothing is shared with the
pipeline but the journal's schema.
"""

from collections.abc import Sequence
from pathlib import Path

import duckdb

from bench import duckdb_audit
from polydomo.journal.schema import MESSAGES, REQUESTS

WINDOWS = (10, 60, 3600)  # seconds

PARTS = """
CREATE TEMP TABLE doubles AS SELECT run, number, min(seq) AS first FROM rows GROUP BY ALL HAVING count(*) > 1;
CREATE VIEW parts AS SELECT rows.* FROM rows LEFT JOIN doubles USING (run, number) WHERE first IS NULL OR seq = first;
CREATE TEMP TABLE crossing AS SELECT request AS part, parent, broker, worker_protocol FROM parts WHERE parent != '';
CREATE TEMP TABLE links AS WITH RECURSIVE up AS (
    SELECT part, parent AS root, 1 AS deep FROM crossing WHERE parent IN (SELECT request FROM parts
    WHERE request IN (SELECT parent FROM crossing))
    UNION ALL SELECT up.part, crossing.parent, deep + 1 FROM up JOIN crossing ON crossing.part = up.root
) SELECT part, arg_max(root, deep) AS root, max(deep) AS deep FROM up GROUP BY part;
"""

REQUESTS_TABLE = """
CREATE TABLE requests AS
WITH far AS (
    SELECT root AS request, count(*) AS bridged, arg_max(broker, deep) AS far_broker, arg_max(worker_protocol, deep) AS far_protocol
    FROM links JOIN crossing USING (part) GROUP BY root
)
SELECT parts.* EXCLUDE (time), time AS ended, coalesce(bridged, 0) AS bridged, coalesce(far_broker, '') AS far_broker,
    coalesce(far_protocol, '') AS far_protocol, hour(time) AS hour, CAST(time AS DATE) AS date
FROM parts LEFT JOIN far USING (request) WHERE request NOT IN (SELECT part FROM links)
"""

HOPS_TABLE = """
CREATE TABLE hops AS
WITH bridged AS (SELECT part AS request FROM links UNION SELECT root FROM links),
several AS (SELECT * FROM parts WHERE dispatches > 0 AND (dispatches != 1 OR hops != 0 OR attempts != 1 OR request IN (FROM bridged))),
simple AS (
    SELECT request, 1 AS position, broker, run, number, service, 0 AS hop, 1 AS attempt, worker, dispatched AS began, time AS ended,
        if(outcome = 'ok', 'final', 'failed') AS ending, date_trunc('hour', time) AS w
    FROM parts WHERE dispatches = 1 AND hops = 0 AND attempts = 1 AND request NOT IN (FROM bridged)
),
steps AS (
    SELECT messages.*, request FROM messages JOIN (SELECT run, number, request FROM several) USING (run, number)
    WHERE event IN ('requeued', 'forwarded', 'dispatched')
),
starts AS (SELECT run, number, hop, attempt, arg_min(time, seq) AS start, arg_min(service, seq) AS start_service FROM steps
    WHERE event = 'dispatched' GROUP BY ALL),
ends AS (
    SELECT request AS part, broker, run, number, last_service AS service, hops AS hop, attempts AS attempt, worker, dispatched AS began,
        time AS ended, if(outcome = 'ok', 'final', 'failed') AS ending, '' AS target, seq FROM several
    UNION ALL
    SELECT request, broker, run, number, if(event = 'forwarded', '', service), hop, attempt, worker, NULL, time, event,
        if(event = 'forwarded', service, ''), seq FROM steps WHERE event != 'dispatched'
),
named AS (
    SELECT ends.* REPLACE (coalesce(began, start) AS began, coalesce(nullif(ends.service, ''), start_service,
    several.service) AS service), several.time AS done
    FROM ends LEFT JOIN starts USING (run, number, hop, attempt) JOIN several ON several.request = ends.part
)
SELECT * FROM simple UNION ALL
SELECT coalesce(root, part) AS request,
    row_number() OVER (PARTITION BY coalesce(root, part) ORDER BY coalesce(began, ended), run, hop, attempt, seq) AS position,
    broker, run, number, service, hop, attempt, worker, began, ended, ending,
    date_trunc('hour', max(done) OVER (PARTITION BY coalesce(root, part))) AS w
FROM named LEFT JOIN links USING (part)
"""


def services_table() -> str:
    """Cells of 10 seconds first; longer windows are added up from them."""
    longer = f"(VALUES {', '.join(f'({seconds})' for seconds in WINDOWS)}) AS w(seconds)"
    moved = "to_timestamp(seconds * (epoch_us(ten) // (CAST(1000000 AS BIGINT) * seconds)))"
    sums = "requests retried passed_on request_bytes reply_bytes wait_us run_us run_us2 total_us worked ok".split()
    added = ", ".join(f"sum({name}) AS {name}" for name in sums)
    p = []
    for which, parts in (("wait", (0.5, 0.99)), ("total", (0.5, 0.9, 0.99, 0.999))):
        for part in parts:
            name = f"{which}_p{str(part * 100).rstrip('0').rstrip('.').replace('.', '')}_us"
            p.append(
                f"pow(1.02, min(bucket) FILTER (kind = '{which}' AND upto >= greatest(1, ceil({part} * total))) + 0.5) AS {name}"
            )
    return f"""
CREATE TEMP TABLE tens AS SELECT to_timestamp(10 * (epoch_us(time) // 10000000)) AS ten, broker, service, outcome,
    count(*) AS requests,
    sum(CAST(dispatches > hops + 1 AS INT)) AS retried, sum(CAST(hops > 0 AS INT)) AS passed_on, sum(request_bytes) AS request_bytes,
    sum(reply_bytes) AS reply_bytes, sum(wait_us) AS wait_us, sum(run_us) AS run_us, sum(CAST(run_us AS DOUBLE) * run_us) AS run_us2,
    sum(total_us) AS total_us, sum(CAST(worker > 0 AS INT)) AS worked, sum(CAST(outcome = 'ok' AS INT)) AS ok FROM parts GROUP BY ALL;
CREATE TEMP TABLE buckets AS
    SELECT ten, broker, service, 'wait' AS kind, bucket, count(*) AS n FROM
        (SELECT to_timestamp(10 * (epoch_us(time) // 10000000)) AS ten, broker, service, wait_bucket AS bucket
    FROM parts) GROUP BY ALL
    UNION ALL SELECT ten, broker, service, 'total', bucket, count(*) FROM
        (SELECT to_timestamp(10 * (epoch_us(time) // 10000000)) AS ten, broker, service, total_bucket AS bucket
    FROM parts) GROUP BY ALL;
CREATE TABLE services AS
WITH counts AS (SELECT {moved} AS w, seconds, broker, service, {added} FROM tens, {longer} GROUP BY ALL),
cells AS (SELECT {moved} AS w, seconds, broker, service, kind, bucket, sum(n) AS n FROM buckets, {longer} GROUP BY ALL),
ranked AS (SELECT *, sum(n) OVER (PARTITION BY w, seconds, broker, service, kind ORDER BY bucket) AS upto,
    sum(n) OVER (PARTITION BY w, seconds, broker, service, kind) AS total FROM cells),
figures AS (SELECT w, seconds, broker, service, {", ".join(p)}, map(list(bucket) FILTER (kind = 'wait'), list(n) FILTER (kind = 'wait'))
    AS wait_histogram, map(list(bucket) FILTER (kind = 'total'), list(n) FILTER (kind = 'total')) AS total_histogram
    FROM ranked GROUP BY ALL),
queues AS (SELECT to_timestamp(seconds * (epoch_us(time) // (CAST(1000000 AS BIGINT) * seconds))) AS w, seconds, broker, service,
    count(*) AS queued,
    max(queue) AS queue_max, max(workers) AS workers_max FROM messages, {longer} WHERE event IN ('queued', 'requeued',
    'forwarded') GROUP BY ALL)
SELECT counts.w AS "window", counts.* EXCLUDE (w), coalesce(queued, 0) AS queued, coalesce(queue_max, 0) AS queue_max,
    coalesce(workers_max, 0) AS workers_max, figures.* EXCLUDE (w, seconds, broker, service)
FROM counts JOIN figures USING (w, seconds, broker, service) LEFT JOIN queues USING (w, seconds, broker, service)
"""


WORKERS_TABLE = """
CREATE TABLE workers AS
WITH turns AS (SELECT w, broker, run, worker, service, ending,
    epoch_us(ended) - epoch_us(began) AS us FROM hops),
cells AS (SELECT w, broker, run, worker, service, CAST(floor(ln(greatest(us, 1)) / ln(1.02)) AS INT) AS bucket, count(*) AS n,
    count(*) FILTER (ending = 'final') AS finals, count(*) FILTER (ending = 'requeued') AS given_back, coalesce(sum(us), 0) AS us
    FROM turns GROUP BY ALL),
ranked AS (SELECT *, sum(n) OVER (PARTITION BY w, broker, run, worker, service ORDER BY bucket NULLS LAST) AS upto,
    sum(n) FILTER (bucket IS NOT NULL) OVER (PARTITION BY w, broker, run, worker, service) AS total FROM cells),
done AS (SELECT w, broker, run, worker, service, sum(n) AS turns, sum(finals) AS finals, sum(given_back) AS given_back,
    sum(us) AS run_us,
    pow(1.02, min(bucket) FILTER (upto >= greatest(1, ceil(0.5 * total))) + 0.5) AS run_p50_us FROM ranked GROUP BY ALL),
rare AS (SELECT date_trunc('hour', time) AS w, broker, run, worker, count(*) FILTER (event = 'late') AS late,
    count(*) FILTER (event = 'lost') AS lost, count(*) FILTER (event = 'stale') AS stale, max(service) AS offers FROM messages
    WHERE event IN ('registered', 'late', 'lost', 'left', 'stale') AND worker > 0 GROUP BY ALL)
SELECT w AS "window", broker, run, worker, coalesce(service, offers, '') AS service, coalesce(turns, 0) AS turns, coalesce(finals,
    0) AS finals,
    coalesce(given_back, 0) AS given_back, coalesce(run_us, 0) AS run_us, coalesce(run_p50_us, 0) AS run_p50_us, coalesce(late,
    0) AS late,
    coalesce(lost, 0) AS lost, coalesce(stale, 0) AS stale FROM done FULL JOIN rare USING (w, broker, run, worker)
"""

TOPOLOGY_TABLE = """
CREATE TABLE topology AS
WITH asks AS (SELECT 'asks' AS kind, broker, client_protocol AS protocol, client_peer AS peer, service AS name, total_bucket,
    outcome, total_us, ended FROM requests
    UNION ALL SELECT 'serves', broker, worker_protocol, worker_peer, last_service, total_bucket, outcome, total_us, ended
    FROM requests WHERE worker > 0),
peers AS (SELECT date_trunc('hour', ended) AS w, kind, broker, protocol, peer, name, count(*) AS requests,
    count(*) FILTER (outcome != 'ok') AS failed,
    sum(total_us) AS total_us FROM asks GROUP BY ALL),
named AS (SELECT *, protocol || ' ' || regexp_replace(peer, ':[0-9]+$', '') AS who FROM peers),
passed AS (SELECT a.request, a.service AS source, b.service AS target
    FROM hops a JOIN hops b ON a.request = b.request AND b.position = a.position + 1
    WHERE a.ending = 'forwarded' AND b.position > 1)
SELECT w AS "window", kind, broker, if(kind = 'asks', who, name) AS source, if(kind = 'asks', name, who) AS target,
    sum(requests) AS requests,
    sum(failed) AS failed, sum(total_us) AS total_us FROM named GROUP BY ALL
UNION ALL SELECT date_trunc('hour', ended), 'bridges', broker, broker, far_broker, count(*), count(*) FILTER (outcome != 'ok'),
    sum(total_us)
    FROM requests WHERE bridged > 0 GROUP BY ALL
UNION ALL SELECT date_trunc('hour', ended), 'passes', broker, source, target, count(*), count(*) FILTER (outcome != 'ok'), sum(total_us)
    FROM passed JOIN requests USING (request) GROUP BY ALL
"""

LOGS_TABLE = """
CREATE TABLE logs AS SELECT m.time, m.run, m.seq, m.number, coalesce(p.request, '') AS request, coalesce(p.outcome, '') AS outcome
FROM (SELECT * FROM messages WHERE event = 'log') m LEFT JOIN parts p ON m.run = p.run AND m.number = p.number AND m.number != 0
"""
VALUES_TABLE = """
CREATE TABLE "values" AS SELECT time, broker, run, seq, topic, size,
    row_number() OVER (PARTITION BY broker, topic, date_trunc('hour', time) ORDER BY time DESC, seq DESC) = 1 AS last
FROM messages WHERE event = 'published'
"""


TABLES = ("requests", "hops", "services", "workers", "topology", "logs", "values", "audit")


def compute(journals: Sequence[Path], memory: str = "3GB", threads: int = 2) -> duckdb.DuckDBPyConnection:
    """All tables, in memory."""
    con = duckdb.connect()
    con.execute(
        f"SET memory_limit = '{memory}'; SET threads = {threads}; SET TimeZone = 'UTC'; SET preserve_insertion_order = false"
    )
    for view, kind in (("messages", MESSAGES), ("rows", REQUESTS)):
        globs = ", ".join(f"'{path}/kind={kind}/**/*.parquet'" for path in journals)
        con.execute(f"CREATE VIEW {view} AS SELECT * FROM read_parquet([{globs}], hive_partitioning = false)")
    for statement in (
        PARTS,
        REQUESTS_TABLE,
        HOPS_TABLE,
        services_table(),
        WORKERS_TABLE,
        TOPOLOGY_TABLE,
        LOGS_TABLE,
        VALUES_TABLE,
        *duckdb_audit.STATEMENTS,
    ):
        con.execute(statement)
    return con


def write(con: duckdb.DuckDBPyConnection, directory: Path) -> None:
    """The tables as Parquet, as the pipeline leaves them."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        con.execute(f"""COPY "{name}" TO '{directory / name}.parquet' (FORMAT parquet, COMPRESSION zstd)""")
