"""The story of a request as one JSON object, for ``GET /v1/requests/{id}``: facts, spans for a waterfall, and every step."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from polydomo.journal import ids, schema
from polydomo.journal.reading.client_ids import requests_named
from polydomo.journal.reading.story import NOT_RECORDED, Story, story_of
from polydomo.model.json_form import iso

if TYPE_CHECKING:
    from polydomo.journal.reading.reader import Reader

Row = dict[str, Any]
TURN_ENDS = (schema.REQUEUED, schema.FORWARDED)  # a worker no longer has the request, and it waits again


def find_story(reader: "Reader", request: str) -> Row | None:
    """The story of the request with this id, or of the last one to which its client gave this id; None if the journal has no row about
    it."""
    story = None
    if ids.is_id(request):
        known = ids.parse(request)
        since = datetime.fromtimestamp(known.accepted_ms / 1000 - 1, UTC)
        story = story_of(reader, known.run, known.number, since)
    named = requests_named(reader, request) if story is None else []
    if named:
        _, run, number = named[-1]
        story = story_of(reader, run, number)
    if story is None:
        return None
    row: Row = {"request": story.request, "summary": story.head, "notes": story.notes}
    if story.finished is not None:
        row |= facts(story.finished)
    row["spans"] = spans(story)
    row["events"] = [
        {"time": iso(step.time), "at_us": round(step.after * 1e6), "event": step.what, "text": step.text}
        for step in story.steps
    ]
    return row


def facts(finished: Row) -> Row:
    return {
        "service": finished["service"],
        "client": f"c{finished['client']}",
        "protocol": finished["client_protocol"],
        "worker": f"w{finished['worker']}" if finished["worker"] else "",
        "outcome": finished["outcome"],
        "reason": finished["reason"],
        "attempts": finished["attempts"],
        "accepted": iso(finished["accepted"]),
        "ended": iso(ended(finished)),
        "total_us": finished["total_us"],
        "wait_us": finished["wait_us"],
        "trace": finished.get("trace", ""),
        "client_id": finished.get("client_id", ""),
    }


def ended(finished: Row) -> datetime:
    moment: datetime = finished["accepted"] + timedelta(microseconds=finished["total_us"])
    return moment


def spans(story: Story) -> list[Row]:
    """How long it waited, and how long each worker had it: from the rows that the story's steps describe, so that both agree."""
    finished = story.finished
    begin = finished["accepted"] if finished is not None else next((row["time"] for row in story.rows), None)
    if begin is None:
        return []
    end = ended(finished) if finished is not None else story.rows[-1]["time"]
    found: list[Row] = []
    waits: datetime | None = begin
    held, worker = begin, ""
    for row in story.rows:
        event = row["event"]
        if event == schema.DISPATCHED and waits is not None:
            known = row["workers"] != NOT_RECORDED
            if known:
                found.append(span("queued", "queued", begin, waits, row["time"]))
            # without the time of the dispatch, the wait and the turn of the worker are one span
            held, worker = (row["time"], "") if known else (waits, "queued, then ")
            worker += f"worker w{row['worker']}"
            waits = None
        elif event in TURN_ENDS and waits is None:
            found.append(span(worker, "lost" if event == schema.REQUEUED else "running", begin, held, row["time"]))
            waits = row["time"]
    if waits is None:
        found.append(span(worker, "running", begin, held, end))
    else:
        found.append(span("queued", "queued", begin, waits, end))
    return found


def span(name: str, kind: str, begin: datetime, start: datetime, end: datetime) -> Row:
    return {"name": name, "kind": kind, "start_us": micros(begin, start), "end_us": micros(begin, end)}


def micros(start: datetime, end: datetime) -> int:
    return round((end - start).total_seconds() * 1e6)
