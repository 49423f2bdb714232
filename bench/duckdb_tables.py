"""Computes the pipeline's tables independently; ``bench/pipeline.py`` compares both.

Each table is one statement over the whole journal, the views ``messages`` and ``rows``, written from
docs/pipeline.md. Nothing is shared with the pipeline but the journal's schema.
"""

from collections.abc import Sequence
from pathlib import Path

import duckdb

from bench import duckdb_audit
from polydomo.journal.reading.rules import OF_ALL_RUNS, RULES
from polydomo.journal.schema import MESSAGES, REQUESTS

WINDOWS = (10, 60, 3600)  # seconds

PARTS = """
CREATE TEMP TABLE doubles AS SELECT run, number, date_trunc('hour', time) AS h, min(seq) AS first
    FROM rows GROUP BY ALL HAVING count(*) > 1;
CREATE VIEW recorded AS SELECT rows.* REPLACE (if(client_protocol = 'job', CAST(dispatched IS NOT NULL AS INT), dispatches) AS dispatches,
        epoch_us(time) - epoch_us(accepted) AS total_us,
        CAST(floor(ln(greatest(epoch_us(time) - epoch_us(accepted), 1)) / ln(1.02)) AS INT) AS total_bucket,
        CASE WHEN dispatches = 0 THEN epoch_us(time) - epoch_us(accepted)
            WHEN dispatches = 1 AND attempts > 0 AND dispatched IS NOT NULL THEN epoch_us(dispatched) - epoch_us(accepted)
            ELSE wait_us END AS wait_us,
        CASE WHEN dispatches = 1 AND attempts > 0 AND dispatched IS NOT NULL THEN epoch_us(time) - epoch_us(dispatched) ELSE run_us END
            AS run_us)
    FROM rows LEFT JOIN doubles d ON d.run = rows.run AND d.number = rows.number
    AND d.h = date_trunc('hour', time)
    WHERE first IS NULL OR seq = first;
CREATE TEMP TABLE back AS SELECT run, number, hop, attempt, seq, event, time, service, worker, peer, protocol,
        principal FROM messages
    WHERE event IN ('requeued', 'forwarded');
CREATE TEMP TABLE special AS SELECT * FROM recorded WHERE dispatches > 0
    AND (dispatches > 1 OR hops > 0 OR attempts != 1 OR parent != '' OR worker_protocol = 'bridge' OR (run,
        number) IN (SELECT (run, number) FROM back));
CREATE TEMP TABLE handed AS SELECT m.run, m.number, m.hop, m.attempt, min(m.time) AS start, arg_min(m.service, m.seq) AS start_service
    FROM messages m SEMI JOIN special USING (run, number) WHERE event = 'dispatched' GROUP BY ALL;
CREATE TEMP TABLE turns AS
WITH known AS (
    SELECT s.request, s.run, s.number, b.hop, b.attempt, b.seq, b.worker, b.peer, b.protocol, b.principal,
        b.time AS ended, b.event AS ending,
        CASE b.event WHEN 'requeued' THEN b.service END AS here
    FROM special s JOIN back b ON b.run = s.run AND b.number = s.number AND b.time BETWEEN date_trunc('hour', s.accepted)
        AND date_trunc('hour', s.time) + INTERVAL '1 hour' - INTERVAL '1 microsecond'
    UNION ALL
    SELECT request, run, number, hops, attempts, seq, worker, worker_peer, worker_protocol, worker_principal, time,
        CASE outcome WHEN 'ok' THEN 'final' ELSE 'failed' END,
        last_service FROM special s
    WHERE attempts > 0 AND (run, number, hops, attempts) NOT IN (SELECT (run, number, hop, attempt) FROM back WHERE event = 'requeued')
),
lined AS (SELECT *, lag(ended) OVER w AS previous, lead(ended) OVER w IS NULL AS is_last FROM known
    WINDOW w AS (PARTITION BY request ORDER BY hop, attempt, seq)),
targets AS (SELECT run, number, hop + 1 AS hop, max_by(service, seq) AS target FROM back WHERE event = 'forwarded' GROUP BY ALL)
SELECT l.request, s.broker, l.run, l.number, l.hop, l.attempt, l.seq, l.worker, l.peer, l.protocol, l.principal AS worker_principal,
    s.principal, l.ended, l.ending, s.time AS done,
    coalesce(nullif(here, ''), start_service, target, CASE l.hop WHEN 0 THEN s.service ELSE '' END) AS service,
    CASE WHEN l.hop = 0 AND l.attempt = 1 THEN s.accepted ELSE coalesce(previous, s.accepted) END AS arrived,
    CASE WHEN ending IN ('final', 'failed') THEN s.dispatched WHEN start IS NOT NULL THEN start
        WHEN l.hop = 0 AND l.attempt = 1 THEN s.first_dispatched WHEN is_last THEN s.dispatched END AS began
FROM lined l JOIN special s USING (request) LEFT JOIN handed h ON h.run = l.run AND h.number = l.number AND h.hop = l.hop
    AND h.attempt = l.attempt
    LEFT JOIN targets t ON t.run = l.run AND t.number = l.number AND t.hop = l.hop;
CREATE TEMP TABLE corrected AS
WITH summed AS (SELECT request, count(*) AS n, max(struct_pack(t := coalesce(began, ended), hop := hop, attempt := attempt,
    seq := seq, worker := worker,
        peer := peer, protocol := protocol, principal := worker_principal, us := coalesce(epoch_us(ended) - epoch_us(began), 0))) AS last,
    sum(coalesce(epoch_us(began) - epoch_us(arrived), 0)) AS waited, max(ended) AS until FROM turns GROUP BY request)
SELECT request, last.worker AS worker, last.peer AS worker_peer, last.protocol AS worker_protocol, last.principal AS worker_principal,
    CAST(if(n = dispatches, last.us, run_us) AS BIGINT) AS run_us,
    CAST(if(n = dispatches, waited + greatest(0, epoch_us(time) - epoch_us(until)), wait_us) AS BIGINT) AS wait_us
FROM summed JOIN special USING (request);
CREATE TEMP TABLE answers AS SELECT run, number, min_by(outcome, seq) FILTER (event = 'memo') AS memo,
    min_by(outcome, seq) FILTER (event = 'keyed') AS keyed, min_by(key, seq) FILTER (event = 'keyed') AS key
    FROM messages WHERE event IN ('memo', 'keyed') GROUP BY ALL;
CREATE VIEW parts AS SELECT r.* REPLACE (coalesce(c.worker, r.worker) AS worker, coalesce(c.worker_peer, r.worker_peer) AS worker_peer,
        coalesce(c.worker_protocol, r.worker_protocol) AS worker_protocol,
        coalesce(c.worker_principal, r.worker_principal) AS worker_principal, coalesce(c.run_us, r.run_us) AS run_us,
        coalesce(c.wait_us, r.wait_us) AS wait_us,
        CAST(floor(ln(greatest(coalesce(c.wait_us, r.wait_us), 1)) / ln(1.02)) AS INT) AS wait_bucket),
        coalesce(memo, '') AS memo, coalesce(keyed, '') AS keyed, coalesce(key, '') AS key
    FROM recorded r LEFT JOIN corrected c USING (request) LEFT JOIN answers USING (run, number);
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
    coalesce(far_protocol, '') AS far_protocol
FROM parts LEFT JOIN far USING (request) WHERE request NOT IN (SELECT part FROM links)
"""

HOPS_TABLE = """
CREATE TABLE hops AS
SELECT request, 1 AS position, broker, run, number, service, 0 AS hop, 1 AS attempt, worker, worker_protocol, principal, worker_principal,
    accepted AS arrived,
    dispatched AS began, time AS ended,
    if(outcome = 'ok', 'final', 'failed') AS ending FROM recorded WHERE dispatches > 0 AND request NOT IN (SELECT request FROM special)
UNION ALL
SELECT coalesce(root, request), row_number() OVER (PARTITION BY coalesce(root, request) ORDER BY coalesce(began, ended), run,
    hop, attempt, seq),
    broker, run, number, service, hop, attempt, worker, protocol, principal, worker_principal, arrived, began, ended, ending
FROM turns LEFT JOIN links ON links.part = turns.request;
"""


def services_table() -> str:
    """Sums over windows of 10 seconds first; longer windows are added up from them."""
    longer = f"(VALUES {', '.join(f'({seconds})' for seconds in WINDOWS)}) AS w(seconds)"
    moved = "to_timestamp(seconds * (epoch_us(ten) // (CAST(1000000 AS BIGINT) * seconds)))"
    sums = "requests retried passed_on request_bytes reply_bytes wait_us run_us run_us2 total_us worked ok".split()
    sums += ["memo_hits", "memo_misses", "memo_joined", "key_joined"]
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
    sum(reply_bytes) AS reply_bytes, sum(wait_us) AS wait_us, sum(own * run_us) AS run_us,
    sum(CAST(own * run_us AS DOUBLE) * run_us) AS run_us2,
    sum(total_us) AS total_us, sum(own * CAST(dispatches > 0 AS INT)) AS worked, sum(CAST(outcome = 'ok' AS INT)) AS ok,
    sum(CAST(memo = 'hit' AS INT)) AS memo_hits, sum(CAST(memo = 'miss' AS INT)) AS memo_misses,
    sum(CAST(memo = 'joined' AS INT)) AS memo_joined, sum(CAST(keyed = 'joined' AS INT)) AS key_joined
FROM (SELECT *, if(worker_protocol IN ('memoised', 'keyed'), 0, 1) AS own FROM parts) GROUP BY ALL;
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
CREATE TEMP TABLE ends AS SELECT run, max(time) AS ended, min(time) AS begun, max(broker) AS broker FROM
    (SELECT run, time, broker FROM messages UNION ALL SELECT run, time, broker FROM rows) GROUP BY run;
CREATE TEMP TABLE stays AS
SELECT run, worker, any_value(e.broker) AS broker, coalesce(min(time) FILTER (event = 'registered'), greatest(min(begun),
    date_trunc('hour', min(time)))) AS came,
    coalesce(min(time) FILTER (event IN ('left', 'lost')), min(ended)) AS went, arg_max(service,
        seq) FILTER (event = 'registered') AS offers, max(protocol) AS protocol, max(principal) AS principal
FROM messages JOIN ends e USING (run) WHERE event IN ('registered', 'left', 'lost') AND worker > 0 GROUP BY run, worker;
CREATE TEMP TABLE present AS
SELECT broker, run, worker, coalesce(offers, '') AS offers, protocol, principal, w, greatest(came, w) AS since,
    least(went, w + INTERVAL '1 hour') AS until
FROM (SELECT *, unnest(generate_series(date_trunc('hour', came), date_trunc('hour', went), INTERVAL '1 hour')) AS w FROM stays);
CREATE TABLE workers AS
WITH times AS (SELECT broker, run, worker, worker_protocol, worker_principal, service, ending, began, ended, date_trunc('hour', ended) AS w,
    epoch_us(ended) - epoch_us(began) AS us FROM hops),
cells AS (SELECT w, broker, run, worker, service, CASE WHEN us >= 0 THEN CAST(floor(ln(greatest(us, 1)) / ln(1.02)) AS INT) END AS bucket,
    count(*) AS n, max(worker_protocol) AS protocol, max(worker_principal) AS principal,
    count(*) FILTER (ending = 'final') AS finals, count(*) FILTER (ending = 'requeued') AS given_back FROM times GROUP BY ALL),
ranked AS (SELECT *, sum(n) OVER (PARTITION BY w, broker, run, worker, service ORDER BY bucket NULLS LAST) AS upto,
    sum(n) FILTER (bucket IS NOT NULL) OVER (PARTITION BY w, broker, run, worker, service) AS total FROM cells),
done AS (SELECT w, broker, run, worker, service, max(protocol) AS protocol, max(principal) AS principal,
    sum(n) AS turns, sum(finals) AS finals, sum(given_back) AS given_back,
    pow(1.02, min(bucket) FILTER (upto >= greatest(1, ceil(0.5 * total))) + 0.5) AS run_p50_us FROM ranked GROUP BY ALL),
pieces AS (SELECT broker, run, worker, service, w AS h, began, ended FROM times WHERE began >= w UNION ALL
    SELECT broker, run, worker, service, unnest(generate_series(date_trunc('hour', began), w, INTERVAL '1 hour')) AS h,
        began, ended FROM times WHERE began < w),
work AS (SELECT h AS w, broker, run, worker, service,
    sum(epoch_us(least(ended, h + INTERVAL '1 hour')) - epoch_us(greatest(began, h))) AS run_us FROM pieces GROUP BY ALL),
busy AS (SELECT w, broker, run, worker, service, protocol, principal, turns, finals, given_back, run_us, run_p50_us
    FROM done FULL JOIN work USING (w, broker, run, worker, service)),
rare AS (SELECT date_trunc('hour', time) AS w, broker, run, worker, count(*) FILTER (event = 'late') AS late,
    count(*) FILTER (event = 'lost') AS lost, count(*) FILTER (event = 'stale') AS stale FROM messages
    WHERE event IN ('late', 'lost', 'stale') AND worker > 0 GROUP BY ALL),
there AS (SELECT w, broker, run, worker, offers, protocol AS offered_by, principal AS offered_as,
    epoch_us(until) - epoch_us(since) AS present_us, late, lost, stale
    FROM present FULL JOIN rare USING (w, broker, run, worker))
SELECT w AS "window", broker, run, worker, coalesce(service, offers, '') AS service,
    coalesce(greatest(protocol, offered_by), '') AS protocol, coalesce(greatest(principal, offered_as), '') AS principal,
    coalesce(turns, 0) AS turns,
    coalesce(finals, 0) AS finals,
    coalesce(given_back, 0) AS given_back, coalesce(run_us, 0) AS run_us, coalesce(present_us, 0) AS present_us,
        coalesce(run_p50_us, 0) AS run_p50_us,
    coalesce(late, 0) AS late, coalesce(lost, 0) AS lost, coalesce(stale, 0) AS stale FROM busy FULL JOIN there USING (w,
        broker, run, worker)
"""

CAPACITY_TABLE = """
CREATE TABLE capacity AS
WITH arrivals AS (
    SELECT run, date_trunc('hour', time) AS w, broker, service, epoch_us(accepted) AS us FROM rows
    WHERE worker_protocol NOT IN ('memoised', 'keyed') AND NOT (job != '' AND client_protocol != 'job') UNION ALL
    SELECT run, date_trunc('hour', time), broker, service, epoch_us(time) FROM messages WHERE event IN ('requeued', 'forwarded')
),
gaps AS (SELECT w, broker, service, us - lag(us) OVER (PARTITION BY run, w, broker, service ORDER BY us) AS gap FROM arrivals),
came AS (SELECT w, broker, service, count(*) AS n, avg(gap) AS mean, stddev_pop(gap) AS spread
    FROM gaps WHERE gap <= 10000000 GROUP BY ALL),
served AS (SELECT date_trunc('hour', ended) AS w, broker, service, count(*) AS turns, avg(epoch_us(ended) - epoch_us(began)) AS mean_run,
    stddev_pop(epoch_us(ended) - epoch_us(began)) AS spread_run, avg(epoch_us(began) - epoch_us(arrived)) AS mean_wait
        FROM hops WHERE worker_protocol NOT IN ('memoised', 'keyed') GROUP BY ALL),
crowd AS (SELECT k."window" AS w, k.broker, k.service, greatest(1, round(sum(epoch_us(until) - epoch_us(since))
        / greatest(1, epoch_us(max(until)) - epoch_us(min(since))))) AS workers
    FROM workers k JOIN present p ON p.w = k."window" AND p.run = k.run AND p.worker = k.worker
    WHERE k.turns > 0 AND k.protocol NOT IN ('memoised', 'keyed') GROUP BY ALL),
asked AS (SELECT date_trunc('hour', time) AS w, broker, service, count(*) AS requests,
    count(*) FILTER (outcome = 'ok' AND total_bucket <= 697) AS within
    FROM parts WHERE client_protocol NOT IN ('job', 'memoised', 'keyed') GROUP BY ALL),
joined AS (SELECT w, broker, service, coalesce(requests, 0) AS requests, coalesce(turns, 0) AS turns,
    coalesce(1e6 / nullif(came.mean, 0), 0) AS rate,
        coalesce(workers, 0) AS workers, coalesce(mean_run, 0) AS service_us, coalesce((spread_run / nullif(mean_run,
            0)) ** 2, 0) AS service_scv,
        if(n > 1, coalesce((spread / nullif(came.mean, 0)) ** 2, 1), 1) AS arrival_scv, mean_wait AS measured_wait_us, within
    FROM asked FULL JOIN served USING (w, broker, service) FULL JOIN came USING (w, broker,
        service) LEFT JOIN crowd USING (w, broker, service)),
model AS (SELECT *, if(workers > 0, rate * service_us / 1e6 / workers, 0) AS utilisation, turns >= 100 AND workers > 0
    AND service_us > 0 AS able FROM joined)
SELECT w AS "window", broker, service, requests, turns, rate, workers, service_us, service_scv, arrival_scv, utilisation, measured_wait_us,
    if(able AND utilisation < 1, service_us * (arrival_scv + service_scv) / 2 * utilisation ** (sqrt(2 * (workers + 1)) - 1)
        / (workers * (1 - utilisation)), NULL) AS wait_us,
    if(able, (SELECT max(i) FROM range(1, 1000) r(i) WHERE service_us * (arrival_scv + service_scv) / 2
        * (i / 1000) ** (sqrt(2 * (workers + 1)) - 1)
        / (workers * (1 - i / 1000)) <= 1000000) / 1000 * workers * 1e6 / service_us, NULL) AS capacity,
    coalesce(within, 0) AS within
FROM model
"""

CHECKS_TABLE = """
CREATE TABLE audit_rules AS
WITH levels AS (SELECT run, max(CASE WHEN level = 'messages' OR event IN ('accepted', 'queued', 'dispatched', 'partial',
    'final', 'failed', 'unheard',
    'granted', 'published') THEN 'messages' ELSE '' END) AS shown FROM messages GROUP BY run)
SELECT run, broker, if(shown = 'messages', 'messages', 'requests') AS level, rule, count(a.rule) AS breaches
FROM ends JOIN levels USING (run) CROSS JOIN (SELECT unnest(getvariable('rules')) AS rule) LEFT JOIN audit a USING (run, rule) GROUP BY ALL
UNION ALL SELECT 0, '', 'requests', rule, count(a.rule) FROM (SELECT unnest(['job-one-outcome', 'schedule-fires-once',
    'node-after-needs', 'node-one-outcome', 'reused-node-not-run']) AS rule)
    LEFT JOIN audit a USING (rule) GROUP BY rule
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

JOBS_TABLES = """
CREATE TABLE job_events AS SELECT time, broker, run, seq, outcome AS event, job, service, principal, schedule, attempt, code AS outcome,
    reason, CASE outcome WHEN 'retry' THEN wait_us ELSE 0 END AS wait_us, created AS submitted, size AS bytes,
    origin, key, wait_us AS backoff_us FROM messages WHERE event = 'job';
CREATE TABLE jobs AS SELECT job, broker, run, seq, service, origin, key, principal, schedule, submitted, time AS ended,
    epoch_us(time) - epoch_us(submitted) AS total_us, attempt AS attempts, backoff_us, event AS state, outcome, reason,
    bytes AS result_bytes FROM job_events WHERE event IN ('done', 'dead', 'cancelled');
"""

# Each node and its predecessor, then a walk from the last node: written apart from the pipeline's arrays.
FLOWS_TABLES = """
CREATE TEMP TABLE flow_ends AS SELECT flow, name, key, principal, broker, run, seq, created AS started, time AS ended,
    epoch_us(time) - epoch_us(created) AS total_us, outcome AS state, reason, nodes
    FROM messages WHERE event = 'flow' AND outcome IN ('done', 'failed', 'cancelled');
CREATE TEMP TABLE node_rows AS SELECT e.run AS end_run, e.seq AS end_seq, e.started, e.broker AS end_broker, m.*,
    m.event = 'node' OR (m.outcome IN ('done', 'dead', 'cancelled') AND m.nodes = 0) AS is_end,
    m.event = 'job' AND m.outcome IN ('accepted', 'reopened') AS is_release
    FROM flow_ends e JOIN messages m ON m.flow = e.flow AND m.time <= e.ended AND m.event IN ('job', 'node');
CREATE TEMP TABLE node_ends AS SELECT * FROM node_rows WHERE is_end
    QUALIFY row_number() OVER (PARTITION BY end_run, end_seq, node ORDER BY time DESC, run DESC, seq DESC) = 1;
CREATE TEMP TABLE node_releases AS SELECT * FROM node_rows WHERE is_release
    QUALIFY row_number() OVER (PARTITION BY end_run, end_seq, node ORDER BY time DESC, run DESC, seq DESC) = 1;
CREATE TEMP TABLE flow_graph AS SELECT a.end_run AS run, a.end_seq AS seq, a.flow, a.end_broker AS broker, a.started, a.node, a.name,
    r.service, r.job, coalesce(e.outcome, 'open') AS state, r.time AS released, e.time AS ended,
    greatest(0, epoch_us(e.time) - epoch_us(r.time)) AS open_us, CAST(e.attempt AS INT) AS attempts,
    coalesce(nullif(if(e.event = 'node', e.needs, ''), ''), r.needs, '') AS needs
    FROM (SELECT end_run, end_seq, flow, end_broker, started, node, max(name) AS name FROM node_rows GROUP BY ALL) a
    LEFT JOIN node_ends e ON e.end_run = a.end_run AND e.end_seq = a.end_seq AND e.node = a.node
    LEFT JOIN node_releases r ON r.end_run = a.end_run AND r.end_seq = a.end_seq AND r.node = a.node;
CREATE TEMP TABLE flow_before AS SELECT n.run, n.seq, n.node, max_by(p.node, (p.ended, p.node)) AS after, max(p.ended) AS since
    FROM (SELECT run, seq, node, ended, unnest(string_split(needs, ',')) AS part FROM flow_graph WHERE needs != '') n
    JOIN flow_graph p ON p.run = n.run AND p.seq = n.seq AND n.part != '...' AND p.ended <= n.ended AND p.state != 'skipped'
        AND p.node BETWEEN TRY_CAST(split_part(n.part, '-', 1) AS INT) AND TRY_CAST(split_part(n.part, '-', -1) AS INT)
    GROUP BY ALL;
CREATE TEMP TABLE flow_path AS WITH RECURSIVE walk AS (
    SELECT run, seq, max_by(node, (ended, node)) AS node, 1 AS place FROM flow_graph WHERE ended IS NOT NULL AND state != 'skipped'
    GROUP BY run, seq
    UNION ALL SELECT w.run, w.seq, b.after, w.place + 1 FROM walk w JOIN flow_before b USING (run, seq, node) WHERE w.place < 10000
) SELECT run, seq, node, max(place) OVER (PARTITION BY run, seq) - place + 1 AS critical FROM walk;
CREATE TABLE flow_nodes AS SELECT g.flow, g.broker, g.run, g.seq, g.node, g.name, g.service, g.job, g.state, g.released, g.ended,
    if(g.ended IS NULL OR g.released IS NULL, NULL, g.open_us) AS open_us, g.attempts, g.needs, b.after, p.critical,
    if(p.critical IS NULL, 0, greatest(0, epoch_us(g.ended) - epoch_us(coalesce(b.since, g.started)))) AS critical_us
    FROM flow_graph g LEFT JOIN flow_before b USING (run, seq, node) LEFT JOIN flow_path p USING (run, seq, node);
CREATE TABLE flows AS SELECT e.*, coalesce(n.done, 0) AS done, coalesce(n.dead, 0) AS dead, coalesce(n.skipped, 0) AS skipped,
    coalesce(n.cancelled, 0) AS cancelled, coalesce(n.open_us, 0) AS open_us, coalesce(n.critical_nodes, 0) AS critical_nodes,
    coalesce(n.slowest, '') AS slowest, coalesce(n.slowest_us, 0) AS slowest_us
    FROM flow_ends e LEFT JOIN (SELECT run, seq, count(*) FILTER (state = 'done') AS done, count(*) FILTER (state = 'dead') AS dead,
        count(*) FILTER (state = 'skipped') AS skipped, count(*) FILTER (state = 'cancelled') AS cancelled, sum(open_us) AS open_us,
        count(critical) AS critical_nodes, max_by(name, (critical_us, node)) FILTER (critical IS NOT NULL) AS slowest,
        max(critical_us) AS slowest_us FROM flow_nodes GROUP BY run, seq) n USING (run, seq);
"""

TABLES = (
    "flows",
    "flow_nodes",
    "jobs",
    "job_events",
    "requests",
    "hops",
    "services",
    "workers",
    "topology",
    "capacity",
    "logs",
    "values",
    "audit",
    "audit_rules",
)


def compute(journals: Sequence[Path], memory: str = "3GB", threads: int = 2) -> duckdb.DuckDBPyConnection:
    """Computes all tables in memory."""
    con = duckdb.connect()
    con.execute(
        f"SET memory_limit = '{memory}'; SET threads = {threads}; SET TimeZone = 'UTC'; SET preserve_insertion_order = false"
    )
    con.execute("SET VARIABLE rules = $1", [[rule.id for rule in RULES if rule.shape not in OF_ALL_RUNS]])
    for view, kind in (("messages", MESSAGES), ("rows", REQUESTS)):
        globs = ", ".join(f"'{path}/kind={kind}/**/*.parquet'" for path in journals)
        con.execute(
            f"CREATE VIEW {view} AS SELECT * FROM read_parquet([{globs}], hive_partitioning = false, union_by_name = true)"
        )
    for statement in (
        PARTS,
        REQUESTS_TABLE,
        HOPS_TABLE,
        services_table(),
        WORKERS_TABLE,
        TOPOLOGY_TABLE,
        CAPACITY_TABLE,
        LOGS_TABLE,
        VALUES_TABLE,
        JOBS_TABLES,
        FLOWS_TABLES,
        *duckdb_audit.STATEMENTS,
        CHECKS_TABLE,
    ):
        con.execute(statement)
    return con


def write(con: duckdb.DuckDBPyConnection, directory: Path) -> None:
    """Writes the tables as Parquet, like the pipeline."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        con.execute(f"""COPY "{name}" TO '{directory / name}.parquet' (FORMAT parquet, COMPRESSION zstd)""")
