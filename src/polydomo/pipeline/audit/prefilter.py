"""Prefilters of the audit: aggregates clear most requests and connections, so that only the remaining ones are checked row by row.

A prefilter lists the rules that it was written for, with their expressions. If a rule has changed since, or the scope has a new rule, the
prefilter is not used and every key is checked: slower, with the same result. A test fails then, so that the prefilter is revised.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from polydomo.journal.reading import rules
from polydomo.journal.reading.rules import CONNECTION, REQUEST, RULES, RUNNING, SERVICE, TOTAL
from polydomo.pipeline.bronze import BLOCK
from polydomo.pipeline.sql import GATHER, by_run, sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Scope = tuple[str, ...]

WRITTEN_FOR: dict[Scope, dict[str, str]] = {
    REQUEST: {
        "one-outcome": "outcomes > 1",
        "one-record": "finished > 1",
        "some-outcome": "acceptances == 1 and outcomes == 0 and run_stopped > 0 and run_missing == 0",
        "outcome-recorded": "acceptances == 1 and outcomes == 1 and finished == 0 and run_stopped > 0 and run_missing == 0",
        "nothing-after-outcome": "outcomes > 0",
        "one-holder": "acceptances == 1 and handouts > 1 + requeues + forwards and run_missing == 0",
        "fenced": "acceptances == 1 and run_missing == 0 and (worker != holder or attempt != held_attempt)",
        "to-the-asker": "acceptances == 1 and client != asker",
    },
    CONNECTION: {"nothing-after-closing": "connection != 0 and closings > 0"},
    SERVICE: {
        "given-back-first": "attempt == 1 and run_missing == 0 and returned > taken_again + given_up_waiting"
        " and protocol not in ('keyed', 'memoised')"
    },
}


def usable(scope: Scope) -> bool:
    """Whether the scope's rules are those that its prefilter was written for."""
    known = {rule.id: rule.broken for rule in RULES if rule.scope == scope and rule.shape in (TOTAL, RUNNING)}
    return WRITTEN_FOR.get(scope) == known


# Clears requests that were accepted once, then dispatched at most once, with replies only from that worker, then one outcome, one record,
# and the same client in all rows. Also clears requests of which the journal has only one record. A sequence number is doubled to hold a
# flag in its lowest bit, so that the first or the last row and its flag are one number.
_STEP = """CASE event WHEN 'accepted' THEN 1 WHEN 'dispatched' THEN 2 WHEN 'partial' THEN 4 WHEN 'final' THEN 8 WHEN 'failed' THEN 16
    WHEN 'requeued' THEN 32 WHEN 'forwarded' THEN 64 WHEN 'queued' THEN 128 ELSE 0 END"""
_HELD = "step & 78 != 0"  # dispatched, partial, final, forwarded
_BLOCKS = f"run, key div {BLOCK} AS block, bit_or(bit) AS seen, bit_or(IF(usual, 0L, bit)) AS suspects, bit_or(IF(done, bit, 0L)) AS done"
REQUESTS = f"""
SELECT 'number' AS scope, {_BLOCKS} FROM (
    SELECT run, number AS key, shiftleft(1L, int(number % {BLOCK})) AS bit, usual AND records = 1 AS usual, usual AND records = 1 AS
        done FROM (
        SELECT run, number, sum(record) AS records,
            coalesce(sum(int(step = 1)) = 1 AND sum(int(step & 24 != 0)) = 1 AND sum(int(step = 2)) <= 1 AND sum(int(step & 96 != 0)) = 0
            AND min(client) = max(client) AND min(IF(step > 0, 2 * seq + int(step != 1), NULL)) % 2 = 0
            AND max(IF(step > 0, 2 * seq + int(step & 24 != 0), NULL)) % 2 = 1
            AND coalesce(min(IF({_HELD}, 2 * seq + int(step != 2), NULL)) % 2 = 0, true)
            AND coalesce(min(IF({_HELD}, holder, NULL)) = max(IF({_HELD}, holder, NULL)), true), false) OR max(step) = 0 AS usual
        FROM (SELECT {GATHER} * FROM (
            SELECT run, number, seq, {_STEP} AS step, client, CAST(worker AS BIGINT) * 65536 + attempt AS holder, 0 AS record
            FROM {{messages}} WHERE number != 0 AND
                event IN ('accepted', 'queued', 'dispatched', 'partial', 'final', 'failed', 'requeued', 'forwarded')
            UNION ALL SELECT run, number, seq, 0, NULL, NULL, 1 FROM {{records}} WHERE number != 0
        )) GROUP BY run, number
    )
) GROUP BY run, block
"""
CONNECTIONS = f"""
SELECT 'connection' AS scope, {_BLOCKS} FROM (
    SELECT run, connection AS key, shiftleft(1L, int(connection % {BLOCK})) AS bit, coalesce(last < closed, true) AS usual, closed IS
        NOT NULL AS done
    FROM (
        SELECT run, CAST(connection AS BIGINT) AS connection, min(IF(event = 'disconnected', seq, NULL)) AS closed,
            max(IF(event = 'disconnected', NULL, seq)) AS last
        FROM {{messages}} WHERE connection != 0 AND event IN ('accepted', 'dispatched', 'registered', 'disconnected') GROUP BY run,
            connection
    )
) GROUP BY run, block
"""


def keys(messages: "DataFrame", records: "DataFrame") -> list[dict[str, Any]]:
    """Requests and connections in blocks of their numbers: those that occur (``seen``), that must be checked row by row (``suspects``),
    and that are complete (``done``)."""
    found = sql(REQUESTS, messages=messages, records=records).unionAll(sql(CONNECTIONS, messages=messages))
    rows: list[dict[str, Any]] = found.toArrow().to_pylist()
    for row in rows:
        if not usable(REQUEST if row["scope"] == "number" else CONNECTION):
            row["suspects"], row["done"] = row["seen"], 0
    return rows


# While requeued requests wait for a service, no new request may be dispatched. The number of waiting requests changes at few rows: they
# divide the sequence into stretches. Dispatches are compared only with the stretches near them.
_NEAR = 4096
_CHANGES = " ".join(
    f"{sign} int({rules.counted(counter)})"
    for sign, counter in zip(("", "-", "-"), (c for c in rules.COUNTERS if c.scope == SERVICE), strict=True)
)
_COUNTED = " OR ".join(f"({rules.counted(counter)})" for counter in rules.COUNTERS if counter.scope == SERVICE)
SERVICES = f"""
WITH changes AS (
    SELECT run, service, seq, {_CHANGES} AS change FROM (SELECT *, 'messages' AS kind FROM {{messages}}) WHERE {_COUNTED} UNION ALL
    SELECT run, name, /*bases*/, returned - taken_again - given_up_waiting FROM {{state}} WHERE scope = 'service'
),
walked AS (SELECT run, service, seq, sum(change) OVER upto AS waiting, lead(seq) OVER (PARTITION BY run, service ORDER BY seq) AS until
    FROM changes WINDOW upto AS (PARTITION BY run, service ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)),
stretches AS (
    SELECT run, service, seq, coalesce(until, /*lasts*/ + 1) AS until FROM walked
    WHERE waiting > 0 AND (until IS NULL OR until > seq + 1)
),
spread AS (SELECT run, service, seq, until, near FROM stretches LATERAL VIEW explode(sequence(seq div {_NEAR}, until div {_NEAR})) v AS
    near)
SELECT /*+ BROADCAST(s) */ DISTINCT m.run, m.service AS name FROM {{messages}} m JOIN spread s
ON s.run = m.run AND s.service = m.service AND s.near = m.seq div {_NEAR} AND m.seq > s.seq AND m.seq < s.until
WHERE m.event = 'dispatched' AND m.attempt = 1
"""


def services(bases: Mapping[int, int], lasts: Mapping[int, int]) -> str:
    """SQL for the services that must be checked, of runs that are audited from ``bases`` to ``lasts``."""
    return SERVICES.replace("/*bases*/", by_run(bases)).replace("/*lasts*/", by_run(lasts))
