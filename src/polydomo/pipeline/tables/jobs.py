"""``jobs`` and ``job_events``: durable jobs. The attempts of a job are requests: ``requests.job`` names it.

A job has a row in ``jobs`` once it has an outcome. A dead job that was reopened gets another row when it ends again. Jobs without an
outcome are only in ``job_events``.
"""

from typing import TYPE_CHECKING

from polydomo.pipeline.sql import placed, sql
from polydomo.pipeline.tables.table import columns, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

JOBS = f"""
SELECT job, broker, run, seq, service, origin, key, principal, schedule, created AS submitted, time AS ended,
    unix_micros(time) - unix_micros(created) AS total_us, attempt AS attempts, wait_us AS backoff_us, outcome AS state, code AS outcome,
    reason, size AS result_bytes, {placed("time")}
FROM {{messages}} WHERE event = 'job' AND outcome IN ('done', 'dead', 'cancelled')
"""
JOB_EVENTS = f"""
SELECT time, broker, run, seq, outcome AS event, job, service, principal, schedule, attempt, code AS outcome, reason,
    IF(outcome = 'retry', wait_us, 0L) AS wait_us, created AS submitted, size AS bytes, {placed("time")}
FROM {{messages}} WHERE event = 'job'
"""


@table(
    "jobs",
    "one durable job with an outcome",
    reads=["messages"],
    columns=columns(
        """
        job STRING -- its id: 26 characters, sorting by the time of submission
        broker STRING -- the broker that recorded the outcome
        run BIGINT -- that broker's run
        seq BIGINT -- sequence number of the journal row of the outcome
        service STRING -- its service
        origin STRING -- `job` (submitted), `request` (to a durable service), `titanic` or `schedule`
        key STRING -- its idempotency key
        principal STRING -- the principal of the client that submitted it, by the access file
        schedule STRING -- the schedule that submitted it
        submitted TIMESTAMP -- when it was submitted
        ended TIMESTAMP -- when its outcome was on disk
        total_us BIGINT -- from `submitted` to `ended`
        attempts INT -- attempts that a worker began
        backoff_us BIGINT -- time between attempts, as asked for by the backoff or by workers
        state STRING -- `done`, `dead` or `cancelled`
        outcome STRING -- `ok`, `reused` (the stored reply to an equal call), or how the last attempt failed: `failed`, `timeout`, ...
        reason STRING -- why it is dead or was cancelled
        result_bytes BIGINT -- size of the result as framed
        """
    ),
)
def jobs(messages: "DataFrame") -> "DataFrame":
    return sql(JOBS, messages=messages)


@table(
    "job_events",
    "one event of a durable job, of a schedule, or of the leadership of a broker",
    reads=["messages"],
    columns=columns(
        """
        time TIMESTAMP -- when it happened
        broker STRING -- the broker
        run BIGINT -- its run
        seq BIGINT -- sequence number of the journal row
        event STRING -- `accepted`, `retry`, `reopened`, `done`, `dead`, `cancelled`; `fired`, `skipped`; `leads`, `follows`
        job STRING -- id of the job
        service STRING -- its service
        principal STRING -- the principal of the client that submitted it
        schedule STRING -- the schedule that submitted it, or was due
        attempt INT -- attempts that a worker had begun
        outcome STRING -- how the attempt (`retry`) or the job ended
        reason STRING -- why
        wait_us BIGINT -- `retry`: time until the next attempt
        submitted TIMESTAMP -- when the job was submitted; `fired`, `skipped`: the time for which the schedule ran
        bytes BIGINT -- size of the body (`accepted`) or of the result, as framed
        """
    ),
)
def job_events(messages: "DataFrame") -> "DataFrame":
    return sql(JOB_EVENTS, messages=messages)
