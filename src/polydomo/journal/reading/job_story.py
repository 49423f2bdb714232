"""The story of a durable job: its events, and the requests that were its attempts or waited for its outcome."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from polydomo.journal import schema
from polydomo.journal.quantities import counted, framed_size, took
from polydomo.journal.reading.story import Step, Story
from polydomo.model.outcomes import OK

if TYPE_CHECKING:
    from polydomo.journal.reading.reader import Reader

Row = dict[str, Any]

ATTEMPT = "attempt"  # the event of a step that is a request
OUTCOMES = ("done", "dead", "cancelled")


def job_story(reader: "Reader", job: str, since: datetime | None = None) -> Story | None:
    """The story of a job from journals; None if they have no row about it. A job outlives runs, so all runs are searched."""
    import pyarrow.compute as pc

    where = pc.field("job") == job
    events = reader.rows(schema.MESSAGES, since, where=where)
    requests = reader.rows(schema.REQUESTS, since, where=where)
    return build(job, events, requests) if events or requests else None


def build(job: str, events: list[Row], requests: list[Row]) -> Story:
    begin = min([row["created"] for row in events if row["created"]] or [row["accepted"] for row in requests])
    steps = [Step(row["time"], _after(begin, row["time"]), row["outcome"], _event(row)) for row in events]
    steps += [Step(row["time"], _after(begin, row["time"]), ATTEMPT, _request(row)) for row in requests]
    steps.sort(key=lambda step: (step.time, step.what in OUTCOMES))
    notes = []
    if not any(row["outcome"] in OUTCOMES for row in events):
        notes.append("It has no outcome in the journal: it is still open, or the row is lost or not written yet.")
    return Story(job, _head(events, requests), steps, notes)


def _after(begin: datetime, time: datetime) -> float:
    return (time - begin) / timedelta(seconds=1)


def _head(events: list[Row], requests: list[Row]) -> str:
    service = next((row["service"] for row in [*events, *requests] if row["service"]), "")
    last = next((row for row in reversed(events) if row["outcome"] in OUTCOMES), None)
    if last is None:
        return f"job for `{service}`: no outcome yet"
    waited = f", {took(last['wait_us'])} between attempts" if last["wait_us"] else ""
    total = round((last["time"] - last["created"]).total_seconds() * 1e6) if last["created"] else 0
    return f"job for `{service}`: {last['outcome']} after {took(total)}, {counted(last['attempt'], 'attempt')}{waited}"


def _event(row: Row) -> str:
    event = row["outcome"]
    if event == "accepted":
        client = f" by {row['principal']}" if row["principal"] else ""
        plan = f" by the schedule {row['schedule']}" if row["schedule"] else ""
        key = f", key {row['key']}" if row["key"] else ""
        return f"submitted{client}{plan} for `{row['service']}`, {framed_size(row['size'])}{key}; stored"
    if event == "retry":
        return f"attempt {row['attempt']} {_failed(row)}; the next one in {took(row['wait_us'])}"
    if event == "fired":
        return f"the schedule {row['schedule']} fired, due at {row['created']:%Y-%m-%d %H:%M:%S}"
    if event == "done":
        return f"done: the result is stored, {framed_size(row['size'])}"
    if event == "dead":
        return f"dead: {_failed(row)}"
    if event == "cancelled":
        return f"cancelled: {row['reason']}"
    return f"{event} {row['reason']}".strip()


def _failed(row: Row) -> str:
    why = row["reason"].removeprefix(f"{row['code']}: ")
    return f"ended as {row['code']}: {why}" if why else f"ended as {row['code']}"


def _request(row: Row) -> str:
    ended = (
        "answered" if row["outcome"] == OK else f"{row['outcome']}: {row['reason'].removeprefix(row['outcome'] + ': ')}"
    )
    if row["client_protocol"] != schema.JOB:
        if row["outcome"] == OK and row["reason"]:
            return f"not sent to c{row['client']} ({row['client_protocol']}), request {row['request']}: {row['reason']}"
        return f"delivered to c{row['client']} ({row['client_protocol']}), request {row['request']}: {ended}"
    worker = f"w{row['worker']} ({row['worker_protocol']}, {row['worker_peer']})" if row["worker"] else "no worker"
    waited = f", waited {took(row['wait_us'])}, ran {took(row['run_us'])}"
    return f"attempt {row['attempts']}, request {row['request']}, with {worker}{waited}: {ended}"
