"""The rules that every journal must satisfy, declared once: the simulator checks them in Python (``audit.py``), the pipeline in SQL.

A rule is an expression that is true if it is violated, in the common subset of Python and SQL: names, integers, strings in single
quotes, comparisons, ``and``, ``or``, ``not``, ``in (..., ...)``, ``+ - *``. Its names are columns of the row and
counters, which are also declared here. There are six kinds:

** ``EACH``: evaluated on every row of the rule's events, with the row's columns only.
* ``TOTAL``: evaluated once per request, worker, ... with its counters over the whole journal.
* ``RUNNING``: evaluated on every row of the rule's events, with the row's columns and the counters up to that row, in the order of
  ``seq``.
* ``SEQUENCE``: every number of a run's sequence is present, or covered by a row that states its loss. ``audit.holes`` implements it.
* ``ONCE``: evaluated over all runs and brokers: of the rows for which ``broken`` holds, no two have the same ``once``.
  ``audit.repeated`` implements it.
* ``FLOWS``: evaluated over all runs and brokers, on the rows about the nodes of flows. ``flow_audit`` implements it.

A journal that begins in the middle of a run, or that states which rows it lost, does not violate the rules: rules that need the lost rows
test ``run_missing == 0``, and rules that need the beginning test for the row that must exist.
"""

from dataclasses import dataclass

from polydomo.journal import schema
from polydomo.journal.schema import MESSAGES, REQUESTS

# --- scopes of counters -----------------------------------------------------------------------------------------------

REQUEST = ("run", "number")
WORKER = ("run", "worker")
CONNECTION = ("run", "connection")
SERVICE = ("run", "service")
PRINCIPAL = ("run", "principal")
RIGHT = ("run", "principal", "service")
RUN = ("run",)

EACH, TOTAL, RUNNING, SEQUENCE, ONCE, FLOWS = "each", "total", "running", "sequence", "once", "flows"

OF_ALL_RUNS = (ONCE, FLOWS)

SUM, MAX, LAST = "sum", "max", "last"
LAST_BASE = 1 << 28  # above any number of a connection, worker or attempt; a run may have 34 billion rows with it


@dataclass(frozen=True)
class Counter:
    """Over the rows of a scope: the sum, the maximum or the last of ``value``, where the row is one of ``events`` and ``where`` holds.

    ``key`` names the columns by which a row belongs to the scope, if not the scope's own.
    """

    name: str
    scope: tuple[str, ...]
    kind: str
    events: tuple[str, ...] = ()  # of ``messages``
    where: str = ""
    value: str = "1"
    how: str = SUM
    key: tuple[str, ...] = ()


COUNTERS = (
    Counter("acceptances", REQUEST, MESSAGES, (schema.ACCEPTED,)),
    Counter("handouts", REQUEST, MESSAGES, (schema.DISPATCHED,)),
    Counter("requeues", REQUEST, MESSAGES, (schema.REQUEUED,)),
    Counter("forwards", REQUEST, MESSAGES, (schema.FORWARDED,)),
    Counter("outcomes", REQUEST, MESSAGES, (schema.FINAL, schema.FAILED)),
    Counter("finished", REQUEST, REQUESTS),
    Counter("asker", REQUEST, MESSAGES, (schema.ACCEPTED,), value="client", how=LAST),
    Counter("holder", REQUEST, MESSAGES, (schema.DISPATCHED,), value="worker", how=LAST),
    Counter("held_attempt", REQUEST, MESSAGES, (schema.DISPATCHED,), value="attempt", how=LAST),
    Counter("registrations", WORKER, MESSAGES, (schema.REGISTERED,)),
    Counter("asked", WORKER, MESSAGES, (schema.REGISTERED, schema.GRANTED), value="credit"),
    # An eMQP worker does not get credit back with each reply, unless it named a window later.
    Counter("takes_itself", WORKER, MESSAGES, (schema.REGISTERED, schema.GRANTED), where="auto > 0", how=MAX),
    Counter("taken", WORKER, MESSAGES, (schema.DISPATCHED,)),
    Counter(
        "freed",
        WORKER,
        MESSAGES,
        (schema.FINAL, schema.FAILED, schema.FORWARDED, schema.UNHEARD, schema.REQUEUED),
        where="released == 1",
    ),
    Counter("goings", WORKER, MESSAGES, (schema.LEFT, schema.LOST)),
    Counter("closings", CONNECTION, MESSAGES, (schema.DISCONNECTED,)),
    # Of a service with limits, a request waits at the head of its group's queue, and other groups pass it.
    Counter("returned", SERVICE, MESSAGES, (schema.REQUEUED,), where="outcome != 'limited'"),
    Counter("taken_again", SERVICE, MESSAGES, (schema.DISPATCHED,), where="attempt > 1"),
    Counter(
        "given_up_waiting",
        SERVICE,
        MESSAGES,
        (schema.FAILED,),
        where="attempt > 0 and worker == 0 and outcome not in ('gave-up', 'interrupted', 'shutdown')",
    ),
    Counter("run_stopped", RUN, MESSAGES, (schema.STOPPED,)),
    Counter(
        "run_missing",
        RUN,
        MESSAGES,
        (schema.STARTED, schema.MISSING),
        where="covers_run != 0",
        value="covers_last - covers_first + 1",
        key=("covers_run",),
    ),
    Counter("run_checked", RUN, MESSAGES, (schema.ACCESS,), how=MAX),
    Counter("run_started", RUN, MESSAGES, (schema.STARTED,)),
    Counter("may_call", RIGHT, MESSAGES, (schema.ACCESS,), where="outcome == 'call'", value="allowed", how=LAST),
    Counter(
        "may_bridge", PRINCIPAL, MESSAGES, (schema.ACCESS,), where="outcome == 'bridge'", value="allowed", how=LAST
    ),
    Counter(
        "may_schedule",
        PRINCIPAL,
        MESSAGES,
        (schema.ACCESS,),
        where="outcome == 'offer' and service == 'emqp-scheduler'",
        value="allowed",
        how=LAST,
    ),
)


@dataclass(frozen=True)
class AuditRule:
    id: str
    says: str  # the rule in one sentence
    level: str  # the lowest journal level at which a violation is visible
    shape: str
    scope: tuple[str, ...] = ()
    kind: str = MESSAGES  # of the rows that EACH and RUNNING look at
    events: tuple[str, ...] = ()  # ... and their events; () is any
    broken: str = ""  # the expression


# Rules about the principals that caused requests and jobs need the rows `access`, which the broker writes on the first use of each right:
# they hold only for a run whose first row is present.
WHOLE = "run_checked > 0 and run_started > 0 and run_missing == 0"
# protocols under which the broker itself sends requests for clients
INTERNAL = "('job', 'keyed', 'memoised', 'memodb')"
BUILTIN = (
    "((service >= 'polydomo.' and service < 'polydomo/') or (service >= 'mmi.' and service < 'mmi/'))"  # by prefix
)

ANY_STEP = (schema.QUEUED, schema.DISPATCHED, schema.PARTIAL, schema.REQUEUED, schema.FORWARDED)
SLACK_US = 1_000_000  # of a broker's timers under load; the rule for silence adds a tenth of what is allowed

RULES = (
    AuditRule(
        "one-outcome",
        "A request has one outcome: one final reply or one failure.",
        MESSAGES,
        TOTAL,
        REQUEST,
        broken="outcomes > 1",
    ),
    AuditRule(
        "one-record", "A finished request has one row in `requests`.", REQUESTS, TOTAL, REQUEST, broken="finished > 1"
    ),
    AuditRule(
        "some-outcome",
        "Every accepted request has an outcome before the run ends.",
        MESSAGES,
        TOTAL,
        REQUEST,
        broken="acceptances == 1 and outcomes == 0 and run_stopped > 0 and run_missing == 0",
    ),
    AuditRule(
        "outcome-recorded",
        "A request with an outcome has a row in `requests`.",
        MESSAGES,
        TOTAL,
        REQUEST,
        broken="acceptances == 1 and outcomes == 1 and finished == 0 and run_stopped > 0 and run_missing == 0",
    ),
    AuditRule(
        "nothing-after-outcome",
        "No event about a request follows its outcome.",
        MESSAGES,
        RUNNING,
        REQUEST,
        events=ANY_STEP,
        broken="outcomes > 0",
    ),
    AuditRule(
        "one-holder",
        "One worker at a time holds a request: it is dispatched again only after it was requeued or forwarded.",
        MESSAGES,
        RUNNING,
        REQUEST,
        events=(schema.DISPATCHED,),
        broken="acceptances == 1 and handouts > 1 + requeues + forwards and run_missing == 0",
    ),
    AuditRule(
        "fenced",
        "A reply is accepted only from the worker that holds the attempt.",
        MESSAGES,
        RUNNING,
        REQUEST,
        events=(schema.PARTIAL, schema.FINAL, schema.FORWARDED),
        broken="acceptances == 1 and run_missing == 0 and (worker != holder or attempt != held_attempt)",
    ),
    AuditRule(
        "to-the-asker",
        "All events about a request name the connection that sent it.",
        MESSAGES,
        RUNNING,
        REQUEST,
        events=(*ANY_STEP, schema.FINAL, schema.FAILED),
        broken="acceptances == 1 and client != asker",
    ),
    AuditRule(
        "attempts-bounded",
        "A request is dispatched no more often than its attempts allow.",
        REQUESTS,
        EACH,
        kind=REQUESTS,
        broken="max_attempts > 0 and attempts > max_attempts",
    ),
    AuditRule(
        "answered-by-a-worker",
        "A final reply comes from a worker to which the request was dispatched, or is the stored outcome of a durable job.",
        REQUESTS,
        EACH,
        kind=REQUESTS,
        broken="outcome == 'ok' and (dispatches == 0 or worker == 0) and (job == '' or client_protocol == 'job')",
    ),
    AuditRule(
        "times-in-order",
        "A request is accepted, dispatched and ended in that order.",
        REQUESTS,
        EACH,
        kind=REQUESTS,
        broken="wait_us < 0 or run_us < 0 or wait_us + run_us > total_us + 2",
    ),
    AuditRule(
        "no-more-than-asked",
        "A worker holds no more requests than its credit allows.",
        MESSAGES,
        RUNNING,
        WORKER,
        events=(schema.DISPATCHED,),
        broken="registrations > 0 and run_missing == 0 and taken > asked + takes_itself * freed",
    ),
    AuditRule(
        "nothing-after-goodbye",
        "No request is dispatched to a worker that has left, was disconnected or was lost.",
        MESSAGES,
        RUNNING,
        WORKER,
        events=(schema.DISPATCHED, schema.REGISTERED),
        broken="goings > 0",
    ),
    AuditRule(
        "nothing-after-closing",
        "A closed connection sends no request and gets none.",
        MESSAGES,
        RUNNING,
        CONNECTION,
        events=(schema.ACCEPTED, schema.DISPATCHED, schema.REGISTERED),
        broken="connection != 0 and closings > 0",
    ),
    AuditRule(
        "given-back-first",
        "A request that is requeued after the loss of its worker goes to the head of its queue, if its service has no limits.",
        MESSAGES,
        RUNNING,
        SERVICE,
        events=(schema.DISPATCHED,),
        # A request with a key, or for a memoised service, waits with the broker itself for the request that runs for it.
        broken="attempt == 1 and run_missing == 0 and returned > taken_again + given_up_waiting"
        " and protocol not in ('keyed', 'memoised')",
    ),
    AuditRule(
        "silence-acted-on",
        "A worker that misses its heartbeats is declared lost in time.",
        REQUESTS,
        EACH,
        events=(schema.LOST,),
        broken=f"allowed_us > 0 and 10 * silence_us > 11 * allowed_us + 10 * {SLACK_US}",
    ),
    AuditRule(
        "not-given-up-early",
        "A worker is declared lost for silence only after the silence that it is allowed.",
        REQUESTS,
        EACH,
        events=(schema.LOST,),
        broken="outcome == 'silence' and silence_us + 20000 < allowed_us",
    ),
    AuditRule(
        "called-with-the-right",
        "A request is accepted only from a principal that has the right to call its service at that time.",
        MESSAGES,
        EACH,
        events=(schema.ACCEPTED,),
        broken="allowed == 2",
    ),
    AuditRule(
        "given-with-the-right",
        "A request is dispatched only to a principal that has the right to offer its service at that time.",
        MESSAGES,
        EACH,
        events=(schema.DISPATCHED,),
        broken="allowed == 2",
    ),
    AuditRule(
        "job-one-outcome",
        "An acknowledged durable job has one recorded outcome, whichever brokers ran it; a dead job that is reopened may get another.",
        REQUESTS,
        ONCE,
        events=(schema.JOB,),
        broken="outcome in ('done', 'dead', 'cancelled')",
    ),
    AuditRule(
        "schedule-fires-once",
        "A schedule fires once for each time at which it is due, also across brokers.",
        REQUESTS,
        ONCE,
        events=(schema.JOB,),
        broken="outcome in ('fired', 'skipped')",
    ),
    AuditRule(
        "node-after-needs",
        "A node of a flow starts only after all nodes that it needs have ended, whichever brokers ran them.",
        REQUESTS,
        FLOWS,
    ),
    AuditRule(
        "node-one-outcome",
        "A node of a flow has one outcome, also if it has no job; one that a retry resets may get another.",
        REQUESTS,
        FLOWS,
    ),
    AuditRule(
        "reused-node-not-run",
        "A node of a flow whose result was reused is not run: after the hit in the memo store, no worker gets it.",
        REQUESTS,
        FLOWS,
    ),
    AuditRule(
        "no-hole",
        "Every row of a run is present, or another row states that it is missing.",
        REQUESTS,
        SEQUENCE,
        RUN,
    ),
    AuditRule(
        "origin-known",
        "With access control, a request that the broker sends for a client names the client's principal.",
        MESSAGES,
        RUNNING,
        RUN,
        events=(schema.ACCEPTED,),
        broken=f"principal == '' and run_checked > 0 and protocol in {INTERNAL}",
    ),
    AuditRule(
        "forwarded-with-the-right",
        "A request is forwarded only to a service that the principal that caused it has the right to call.",
        MESSAGES,
        EACH,
        events=(schema.FORWARDED,),
        broken="allowed == 2",
    ),
    AuditRule(
        "job-with-the-right",
        "With access control, a durable job is stored only for a principal that has the right to call its service.",
        REQUESTS,
        RUNNING,
        RIGHT,
        events=(schema.JOB,),
        # The row is written when the job is stored; ``allowed`` is about the moment in which it was submitted.
        broken=f"outcome in ('accepted', 'fired') and {WHOLE} and (allowed == 2 or (allowed == 0 and may_call != 1))",
    ),
    AuditRule(
        "registered-with-the-right",
        "A bridge needs the right to bridge, and a scheduler the right to offer `emqp-scheduler`.",
        REQUESTS,
        RUNNING,
        PRINCIPAL,
        events=(schema.REGISTERED,),
        broken=f"principal != '' and service == '' and {WHOLE} and may_bridge != 1 and may_schedule != 1",
    ),
    AuditRule(
        "no-call-of-built-in",
        "The right to call a service does not cover the broker's built-in services.",
        REQUESTS,
        EACH,
        events=(schema.ACCESS,),
        broken=f"outcome == 'call' and allowed == 1 and {BUILTIN}",
    ),
)

BY_ID = {rule.id: rule for rule in RULES}


def checkable(level: str) -> list[AuditRule]:
    """The rules of which a journal of this level shows every breach."""
    return [rule for rule in RULES if schema.LEVELS.index(rule.level) <= schema.LEVELS.index(level)]


# --- as SQL -----------------------------------------------------------------------------------------------------------
# Spark's and DuckDB's. Rows of both kinds stand in one relation with the columns of both, a column ``kind``, and "nothing" in what a kind
# has not.


def counted(counter: Counter) -> str:
    """The condition under which a row counts."""
    parts = [f"kind == '{counter.kind}'"]
    if counter.events:
        parts.append(_among(counter.events))
    if counter.where:
        parts.append(f"({counter.where})")
    return " and ".join(parts)


def looked_at(rule: AuditRule) -> str:
    """The condition under which an EACH or RUNNING rule looks at a row."""
    parts = [f"kind == '{rule.kind}'"]
    if rule.events:
        parts.append(_among(rule.events))
    return " and ".join(parts)


def total(counter: Counter) -> str:
    """The counter as an aggregate."""
    return _aggregate(counter, "")


def running(counter: Counter) -> str:
    """The counter as it stands with each row, as a window function."""
    order = "ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    return _aggregate(counter, f" OVER (PARTITION BY {', '.join(counter.scope)} {order})")


def _aggregate(counter: Counter, over: str) -> str:
    if counter.how == LAST:
        # the last is the greatest of sequence number and value packed into one integer: fixed in width, and merged by max()
        packed = f"seq * {LAST_BASE} + {counter.value}"
        return f"(max(CASE WHEN {counted(counter)} THEN {packed} ELSE 0 END){over} % {LAST_BASE})"
    return f"{counter.how}(CASE WHEN {counted(counter)} THEN {counter.value} ELSE 0 END){over}"


def _among(events: tuple[str, ...]) -> str:
    if len(events) == 1:
        return f"event == '{events[0]}'"
    return f"event in ({', '.join(repr(event) for event in events)})"
