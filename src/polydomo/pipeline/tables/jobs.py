"""``jobs`` and ``job_events``: durable jobs. The attempts of a job are requests: ``requests.job`` names it.

A job has a row in ``jobs`` once it has an outcome. A dead job that was reopened gets another row when it ends again. Jobs without an
outcome are only in ``job_events``.
"""

from typing import TYPE_CHECKING

from polydomo.pipeline.sql import placed, sql
from polydomo.pipeline.tables.table import UNIT, Column, table

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
    columns=(
        Column("job", "STRING", "its id: 26 characters, sorting by the time of submission"),
        Column("broker", "STRING", "the broker that recorded the outcome"),
        Column("run", "BIGINT", "that broker's run"),
        Column("seq", "BIGINT", "sequence number of the journal row of the outcome"),
        Column("service", "STRING", "its service"),
        Column("origin", "STRING", "`job` (submitted), `request` (to a durable service), `titanic` or `schedule`"),
        Column("key", "STRING", "its idempotency key"),
        Column("principal", "STRING", "the principal of the client that submitted it, by the access file"),
        Column("schedule", "STRING", "the schedule that submitted it"),
        Column("submitted", "TIMESTAMP", "when it was submitted"),
        Column("ended", "TIMESTAMP", "when its outcome was on disk"),
        Column("total_us", "BIGINT", "from `submitted` to `ended`"),
        Column("attempts", "INT", "attempts that a worker began"),
        Column("backoff_us", "BIGINT", "time between attempts, as asked for by the backoff or by workers"),
        Column("state", "STRING", "`done`, `dead` or `cancelled`"),
        Column(
            "outcome",
            "STRING",
            "`ok`, `reused` (the stored reply to an equal call), or how the last attempt failed: `failed`, `timeout`, ...",
        ),
        Column("reason", "STRING", "why it is dead or was cancelled"),
        Column("result_bytes", "BIGINT", "size of the result as framed"),
        *UNIT,
    ),
)
def jobs(messages: "DataFrame") -> "DataFrame":
    return sql(JOBS, messages=messages)


@table(
    "job_events",
    "one event of a durable job, of a schedule, or of the leadership of a broker",
    reads=["messages"],
    columns=(
        Column("time", "TIMESTAMP", "when it happened"),
        Column("broker", "STRING", "the broker"),
        Column("run", "BIGINT", "its run"),
        Column("seq", "BIGINT", "sequence number of the journal row"),
        Column(
            "event",
            "STRING",
            "`accepted`, `retry`, `reopened`, `done`, `dead`, `cancelled`; `fired`, `skipped`; `leads`, `follows`",
        ),
        Column("job", "STRING", "id of the job"),
        Column("service", "STRING", "its service"),
        Column("principal", "STRING", "the principal of the client that submitted it"),
        Column("schedule", "STRING", "the schedule that submitted it, or was due"),
        Column("attempt", "INT", "attempts that a worker had begun"),
        Column("outcome", "STRING", "how the attempt (`retry`) or the job ended"),
        Column("reason", "STRING", "why"),
        Column("wait_us", "BIGINT", "`retry`: time until the next attempt"),
        Column(
            "submitted",
            "TIMESTAMP",
            "when the job was submitted; `fired`, `skipped`: the time for which the schedule ran",
        ),
        Column("bytes", "BIGINT", "size of the body (`accepted`) or of the result, as framed"),
        *UNIT,
    ),
)
def job_events(messages: "DataFrame") -> "DataFrame":
    return sql(JOB_EVENTS, messages=messages)
