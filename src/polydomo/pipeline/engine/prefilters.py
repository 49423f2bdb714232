"""Prefilters of the audit: each clears most keys of a scope by aggregates, so that only the remaining keys are checked row by row.

A prefilter lists the rules that it was written for, with their expressions. If a rule has changed since, or the scope has a new rule, the
prefilter is not used and every key is checked: slower, with the same result. A test fails then, so that the prefilter is revised.
"""

from polydomo.journal import rules
from polydomo.journal.rules import CONNECTION, REQUEST, RULES, RUNNING, SERVICE, TOTAL

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
    SERVICE: {"given-back-first": "attempt == 1 and run_missing == 0 and returned > taken_again + given_up_waiting"},
}


def usable(scope: Scope) -> bool:
    """Whether the scope's rules are those that its prefilter was written for."""
    known = {rule.id: rule.broken for rule in RULES if rule.scope == scope and rule.shape in (TOTAL, RUNNING)}
    return WRITTEN_FOR.get(scope) == known


# Clears requests that were accepted once, then dispatched at most once, with replies only from that worker, then one outcome, one record,
# and the same client in all rows. Also clears requests of which the journal has only one record.
_STEPS = "('accepted', 'queued', 'dispatched', 'partial', 'final', 'failed', 'requeued', 'forwarded')"
_ENDS = "('final', 'failed')"
_HOLDS = "('dispatched', 'partial', 'final', 'forwarded')"
REQUESTS = f"""
CREATE OR REPLACE TEMP TABLE suspects AS
WITH lives AS (
    SELECT number,
        count(*) FILTER (event = 'accepted') = 1 AND count(*) FILTER (event IN {_ENDS}) = 1 AND count(*) FILTER (event = 'dispatched') <= 1
        AND count(*) FILTER (event IN ('requeued', 'forwarded')) = 0 AND min(client) = max(client)
        AND min(seq) = min(seq) FILTER (event = 'accepted') AND max(seq) = max(seq) FILTER (event IN {_ENDS})
        AND coalesce(min(seq) FILTER (event IN ('partial', 'final')) > min(seq) FILTER (event = 'dispatched'),
            count(*) FILTER (event IN ('partial', 'final')) = 0)
        AND coalesce(min(CAST(worker AS BIGINT) * 65536 + attempt) FILTER (event IN {_HOLDS})
            = max(CAST(worker AS BIGINT) * 65536 + attempt) FILTER (event IN {_HOLDS}), true) AS usual
    FROM these_messages WHERE event IN {_STEPS} AND number != 0 GROUP BY number
),
recorded AS (SELECT number, count(*) AS records FROM these_records WHERE number != 0 GROUP BY number)
SELECT number AS key FROM lives FULL JOIN recorded USING (number)
WHERE NOT coalesce(usual, true) OR coalesce(records, 0) != 1
UNION SELECT key FROM state WHERE scope = 'number' AND what = 'counts'
"""
CONNECTIONS = """
CREATE OR REPLACE TEMP TABLE suspects AS
WITH closed AS (SELECT connection, min(seq) AS closed FROM these_messages WHERE event = 'disconnected'
    AND connection != 0 GROUP BY connection)
SELECT DISTINCT connection AS key FROM these_messages JOIN closed USING (connection)
WHERE event IN ('accepted', 'dispatched', 'registered') AND seq > closed
"""
# While requeued requests wait for a service, no new request may be dispatched. The number of waiting requests changes at few rows, so only
# these are processed in order.
_CHANGES = " ".join(
    f"{sign} if({rules.counted(counter)}, 1, 0)"
    for sign, counter in zip(("", "-", "-"), (c for c in rules.COUNTERS if c.scope == SERVICE), strict=True)
)
_COUNTED = " OR ".join(f"({rules.counted(counter)})" for counter in rules.COUNTERS if counter.scope == SERVICE)
SERVICES = f"""
CREATE OR REPLACE TEMP TABLE stretches AS
WITH changes AS (
    SELECT service, seq, {_CHANGES} AS change FROM these_messages WHERE {_COUNTED} UNION ALL
    SELECT name, getvariable('base'), returned - taken_again - given_up_waiting FROM state WHERE scope = 'service' AND what = 'counts'
),
walked AS (SELECT service, seq, sum(change) OVER upto AS waiting, lead(seq) OVER (PARTITION BY service ORDER BY seq) AS until
    FROM changes WINDOW upto AS (PARTITION BY service ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW))
SELECT service, seq, coalesce(until, 9223372036854775807) AS until FROM walked WHERE waiting > 0 AND (until IS NULL OR until > seq + 1);
CREATE OR REPLACE TEMP TABLE suspects AS SELECT DISTINCT r.service AS key FROM these_messages r JOIN stretches s
    ON r.service = s.service AND r.seq > s.seq AND r.seq < s.until WHERE r.event = 'dispatched' AND r.attempt = 1
"""
BY_SCOPE = {REQUEST: REQUESTS, CONNECTION: CONNECTIONS, SERVICE: SERVICES}
