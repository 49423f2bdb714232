"""``jobs`` and ``job_events``: durable jobs with an outcome, and all events of jobs, schedules and leadership."""

from polydomo.journal import schema
from tests.pipeline.reference.basics import Row, us
from tests.pipeline.reference.journal import Journal


def jobs_and_events(journal: Journal) -> tuple[list[Row], list[Row]]:
    events = [row for row in journal.messages if row["event"] == schema.JOB]
    job_events = [
        {**row, "event": row["outcome"], "outcome": row["code"], "wait_us": row["wait_us"] if row["outcome"] == "retry" else 0,
         "submitted": row["created"], "bytes": row["size"]}
        for row in events
    ]  # fmt: skip
    jobs = [
        {**row, "submitted": row["created"], "ended": row["time"], "total_us": us(row["time"]) - us(row["created"]),
         "attempts": row["attempt"], "backoff_us": row["wait_us"], "state": row["outcome"], "outcome": row["code"],
         "result_bytes": row["size"]}
        for row in events if row["outcome"] in ("done", "dead", "cancelled")
    ]  # fmt: skip
    return jobs, job_events
