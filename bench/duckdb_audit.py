"""The audit in DuckDB's SQL, each rule written by hand from its sentence, without the pipeline's translation of the rules or its
prefilters. ``bench/pipeline.py`` compares the pipeline's audit with it."""

ABOUT = "rule VARCHAR, run BIGINT, number BIGINT, worker BIGINT, connection BIGINT, service VARCHAR, seq BIGINT"

RUNS = """
CREATE TEMP TABLE accounts AS SELECT run, event, covers_run, covers_first, covers_last FROM messages
    WHERE event IN ('started', 'missing', 'stopped');
CREATE TEMP TABLE runs AS SELECT run, max(stopped) AS stopped, sum(missing) AS missing FROM (
    SELECT run, 1 AS stopped, 0 AS missing FROM accounts WHERE event = 'stopped' UNION ALL
    SELECT covers_run, 0, covers_last - covers_first + 1 FROM accounts WHERE covers_run != 0 UNION ALL
    SELECT DISTINCT run, 0, 0 FROM rows
) GROUP BY run;
"""

# Rules that a single row can break.
SINGLE = """
INSERT INTO audit SELECT unnest(list_filter([
        if(max_attempts > 0 AND attempts > max_attempts, 'attempts-bounded', NULL),
        if(outcome = 'ok' AND (dispatches = 0 OR worker = 0) AND NOT (job != '' AND client_protocol != 'job'),
            'answered-by-a-worker', NULL),
        if(wait_us < 0 OR run_us < 0 OR wait_us + run_us > total_us + 2, 'times-in-order', NULL)], lambda x: x IS NOT NULL)),
    run, number, worker, 0, '', seq FROM rows
    WHERE (max_attempts > 0 AND attempts > max_attempts) OR (outcome = 'ok' AND (dispatches = 0 OR worker = 0))
        OR wait_us < 0 OR run_us < 0 OR wait_us + run_us > total_us + 2;
INSERT INTO audit SELECT unnest(list_filter([
        if(allowed_us > 0 AND 10 * silence_us > 11 * allowed_us + 10000000, 'silence-acted-on', NULL),
        if(outcome = 'silence' AND silence_us + 20000 < allowed_us, 'not-given-up-early', NULL)], lambda x: x IS NOT NULL)),
    run, number, worker, 0, '', seq FROM messages WHERE event = 'lost';
"""

# Ordinary requests are excluded: they begin with their acceptance, are dispatched at most once, replies come
# from that worker after that, its outcome is its last row, and it is on record once.
REQUESTS = """
CREATE TEMP TABLE odd AS
WITH lives AS (
    SELECT run, number,
        count(*) FILTER (event = 'accepted') = 1 AND count(*) FILTER (event IN ('final', 'failed')) = 1
        AND count(*) FILTER (event = 'dispatched') <= 1 AND count(*) FILTER (event IN ('requeued', 'forwarded')) = 0
        AND min(client) = max(client) AND min(seq) = min(seq) FILTER (event = 'accepted')
        AND max(seq) = max(seq) FILTER (event IN ('final', 'failed'))
        AND coalesce(min(seq) FILTER (event IN ('partial', 'final')) > min(seq) FILTER (event = 'dispatched'),
            count(*) FILTER (event IN ('partial', 'final')) = 0)
        AND coalesce(min(CAST(worker AS BIGINT) * 65536 + attempt) FILTER (event IN ('dispatched', 'partial', 'final'))
            = max(CAST(worker AS BIGINT) * 65536 + attempt) FILTER (event IN ('dispatched', 'partial', 'final')), true) AS usual
    FROM messages
    WHERE number != 0 AND event IN ('accepted', 'queued', 'dispatched', 'partial', 'requeued', 'forwarded', 'final', 'failed')
    GROUP BY run, number
)
SELECT run, number FROM lives LEFT JOIN (SELECT run, number, true AS recorded FROM rows) USING (run, number)
WHERE NOT usual OR recorded IS NULL
UNION SELECT run, number FROM doubles;
CREATE TEMP TABLE steps AS
    SELECT run, number, seq, event, client, worker, attempt FROM messages SEMI JOIN odd USING (run, number)
    WHERE event IN ('accepted', 'queued', 'dispatched', 'partial', 'requeued', 'forwarded', 'final', 'failed')
    UNION ALL SELECT run, number, seq, 'finished', 0, 0, 0 FROM rows SEMI JOIN odd USING (run, number);
INSERT INTO audit
WITH walked AS (
    SELECT *, count(*) FILTER (event = 'accepted') OVER life AS acceptances, count(*) FILTER (event = 'dispatched') OVER life AS handouts,
        count(*) FILTER (event IN ('requeued', 'forwarded')) OVER life AS returns,
        count(*) FILTER (event IN ('final', 'failed')) OVER life AS outcomes,
        last_value(CASE WHEN event = 'accepted' THEN client END IGNORE NULLS) OVER life AS asker,
        last_value(CASE WHEN event = 'dispatched' THEN worker END IGNORE NULLS) OVER life AS holder,
        last_value(CASE WHEN event = 'dispatched' THEN attempt END IGNORE NULLS) OVER life AS held
    FROM steps WINDOW life AS (PARTITION BY run, number ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
), judged AS (
    SELECT walked.*, missing FROM walked JOIN runs USING (run) WHERE event NOT IN ('accepted', 'finished')
), found AS (
    SELECT 'nothing-after-outcome' AS rule, * FROM judged WHERE outcomes > 0 AND event NOT IN ('final', 'failed')
    UNION ALL SELECT 'one-holder', * FROM judged
        WHERE event = 'dispatched' AND acceptances = 1 AND handouts > 1 + returns AND missing = 0
    UNION ALL SELECT 'fenced', * FROM judged WHERE event IN ('partial', 'final', 'forwarded') AND acceptances = 1 AND missing = 0
        AND (worker != coalesce(holder, 0) OR attempt != coalesce(held, 0))
    UNION ALL SELECT 'to-the-asker', * FROM judged WHERE acceptances = 1 AND client != asker
)
SELECT rule, run, number, 0, 0, '', seq FROM found;
INSERT INTO audit
WITH summed AS (
    SELECT run, number, count(*) FILTER (event = 'accepted') AS acceptances, count(*) FILTER (event IN ('final', 'failed')) AS outcomes,
        count(*) FILTER (event = 'finished') AS records, max(seq) FILTER (event NOT IN ('queued', 'partial')) AS seq
    FROM steps GROUP BY ALL
), judged AS (SELECT * FROM summed JOIN runs USING (run)),
found AS (
    SELECT 'one-outcome' AS rule, * FROM judged WHERE outcomes > 1
    UNION ALL SELECT 'one-record', * FROM judged WHERE records > 1
    UNION ALL SELECT 'some-outcome', * FROM judged WHERE acceptances = 1 AND outcomes = 0 AND stopped = 1 AND missing = 0
    UNION ALL SELECT 'outcome-recorded', * FROM judged
        WHERE acceptances = 1 AND outcomes = 1 AND records = 0 AND stopped = 1 AND missing = 0
)
SELECT rule, run, number, 0, 0, '', seq FROM found;
"""

# Workers: what each holds, over its rows in order. Nothing wider than numbers is sorted, and counters that can share a
# long integer are summed as one: a window costs DuckDB as much for each sum as for its sort.
WORKERS = """
INSERT INTO audit
WITH work AS (
    SELECT run, worker, seq, event = 'dispatched' AS given, event = 'registered' AS came,
        CASE WHEN event = 'dispatched' THEN CAST(1 AS BIGINT)
            WHEN event IN ('final', 'failed', 'forwarded', 'unheard') THEN CAST(4294967296 AS BIGINT) ELSE 0 END AS held,
        CASE WHEN event = 'registered' THEN 1125899906842624 + CAST(credit AS BIGINT) WHEN event = 'granted' THEN CAST(credit AS BIGINT)
            ELSE 0 END AS asked,
        CAST(CASE WHEN event = 'registered' AND auto = 1 THEN 1 WHEN event IN ('left', 'lost') THEN 2 ELSE 0 END AS TINYINT) AS marks
    FROM messages WHERE event IN ('registered', 'granted', 'dispatched', 'left', 'lost')
        OR (released = 1 AND event IN ('final', 'failed', 'forwarded', 'unheard'))
), walked AS (
    SELECT run, worker, seq, given, came, CAST(sum(held) OVER life AS BIGINT) AS held, CAST(sum(asked) OVER life AS BIGINT) AS asked,
        bit_or(marks) OVER life AS marks
    FROM work WINDOW life AS (PARTITION BY run, worker ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
), judged AS (
    SELECT run, worker, seq, given, missing, held % 4294967296 AS taken, held // 4294967296 AS freed,
        asked // 1125899906842624 AS registrations, asked % 1125899906842624 AS asked, marks & 1 AS takes, marks & 2 AS gone
    FROM walked JOIN runs USING (run) WHERE given OR came
)
SELECT 'no-more-than-asked', run, 0, worker, 0, '', seq FROM judged
    WHERE given AND registrations > 0 AND missing = 0 AND taken > asked + takes * freed
UNION ALL SELECT 'nothing-after-goodbye', run, 0, worker, 0, '', seq FROM judged WHERE gone > 0;
"""

CONNECTIONS = """
CREATE TEMP TABLE closed AS SELECT run, connection, min(seq) AS since FROM messages
    WHERE event = 'disconnected' AND connection != 0 GROUP BY ALL;
INSERT INTO audit SELECT 'nothing-after-closing', run, 0, 0, connection, '', seq FROM messages JOIN closed USING (run, connection)
    WHERE event IN ('accepted', 'dispatched', 'registered') AND seq > closed.since;
"""

# Services: only a requeued request can have been passed over.
SERVICES = """
INSERT INTO audit
WITH back AS (SELECT DISTINCT run, service FROM messages WHERE event = 'requeued' AND outcome != 'limited'),
queue AS (
    SELECT run, service, seq, event = 'dispatched' AND attempt = 1 AS fresh, CAST(CASE
        WHEN event = 'requeued' THEN CAST(outcome != 'limited' AS INT)
        WHEN event = 'dispatched' AND attempt > 1 THEN -1 WHEN event = 'failed' THEN -1 ELSE 0 END AS INT) AS change
    FROM messages SEMI JOIN back USING (run, service)
    WHERE event IN ('requeued', 'dispatched')
        OR (event = 'failed' AND attempt > 0 AND worker = 0 AND outcome NOT IN ('gave-up', 'interrupted', 'shutdown'))
), walked AS (
    SELECT run, service, seq, fresh, sum(change) OVER (PARTITION BY run, service ORDER BY seq
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS waiting FROM queue
)
SELECT 'given-back-first', run, 0, 0, 0, service, seq FROM walked JOIN runs USING (run) WHERE fresh AND waiting > 0 AND missing = 0;
"""

SEQUENCE = """
INSERT INTO audit WITH ranges AS (
    SELECT run, seq AS start, seq AS stop FROM messages UNION ALL SELECT run, seq, seq FROM rows UNION ALL
    SELECT covers_run, covers_first, covers_last FROM accounts WHERE covers_run != 0 AND covers_last >= covers_first
), walked AS (
    SELECT *, max(stop) OVER (PARTITION BY run ORDER BY start, stop ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS last FROM ranges
)
SELECT 'no-hole', run, 0, 0, 0, '', if(start > last + 1, start, start + 1) FROM walked
WHERE last IS NOT NULL AND (start > last + 1 OR (start = stop AND start <= last));
"""

ONCE = """
INSERT INTO audit SELECT if(outcome IN ('fired', 'skipped'), 'schedule-fires-once', 'job-one-outcome') AS rule,
    max_by(run, (time, run, seq)), 0, 0, 0, '', max_by(seq, (time, run, seq))
FROM messages WHERE event = 'job' AND once != '' AND outcome IN ('done', 'dead', 'cancelled', 'fired', 'skipped')
GROUP BY rule, once HAVING count(*) > 1;
"""

_ENDS = """(SELECT * FROM messages WHERE flow != '' AND position > 0 AND nodes = 0
    AND (event = 'node' OR (event = 'job' AND outcome IN ('done', 'dead', 'cancelled'))))"""
NODES = f"""
INSERT INTO audit SELECT 'node-one-outcome', max_by(run, (time, run, seq)), 0, 0, 0, '', max_by(seq, (time, run, seq))
FROM {_ENDS} GROUP BY flow, node, since HAVING count(*) > 1;
INSERT INTO audit SELECT DISTINCT 'node-after-needs', r.run, 0, 0, 0, '', r.seq FROM (
    SELECT run, seq, flow, position, unnest(string_split(needs, ',')) AS part FROM messages
    WHERE event = 'job' AND flow != '' AND position > 0 AND needs != '' AND outcome IN ('accepted', 'reopened')
) r JOIN {_ENDS} e ON e.flow = r.flow AND r.part != '...' AND r.position > e.since AND r.position <= e.position
AND e.node BETWEEN TRY_CAST(split_part(r.part, '-', 1) AS INT) AND TRY_CAST(split_part(r.part, '-', -1) AS INT);
INSERT INTO audit WITH hits AS (
    SELECT run, flow, node, e.seq, max(h.seq) AS hit FROM messages e JOIN messages h USING (run, flow, node)
    WHERE flow != '' AND e.event = 'job' AND e.code = 'reused' AND h.event = 'memo' AND h.outcome = 'hit' AND h.seq < e.seq GROUP BY ALL
)
SELECT 'reused-node-not-run', run, 0, 0, 0, '', max(later.seq) FROM hits JOIN messages later USING (run, flow, node)
WHERE later.event = 'memo' AND later.outcome IN ('miss', 'joined') AND later.seq > hit GROUP BY run, flow, node, hits.seq;
"""

STATEMENTS = (
    f"CREATE TABLE audit ({ABOUT})",
    RUNS,
    SINGLE,
    REQUESTS,
    WORKERS,
    CONNECTIONS,
    SERVICES,
    SEQUENCE,
    ONCE,
    NODES,
)
