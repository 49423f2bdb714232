"""The story of a request as one JSON object, for ``GET /v1/requests/{id}``: facts, spans for a waterfall, and every step."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from polydomo.journal import ids, schema
from polydomo.journal.story import story_of
from polydomo.protocols.json_form import iso

if TYPE_CHECKING:
    from polydomo.journal.reader import Reader

Row = dict[str, Any]


def find_story(reader: "Reader", request: str) -> Row | None:
    """The story of the request with this id; None if the journal has no row about it. Raises SettingError if the id is invalid."""
    known = ids.parse(request)
    since = datetime.fromtimestamp(known.accepted_ms / 1000 - 1, UTC)
    story = story_of(reader, known.run, known.number, since)
    if story is None:
        return None
    finished = next(iter(reader.about(schema.REQUESTS, known.run, [known.number], since)), None)
    messages = reader.about(schema.MESSAGES, known.run, [known.number], since)
    row: Row = {"request": story.request, "summary": story.head, "notes": story.notes}
    if finished is not None:
        row |= facts(finished)
    row["spans"] = spans(finished, messages)
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
    }


def ended(finished: Row) -> datetime:
    moment: datetime = finished["accepted"] + timedelta(microseconds=finished["total_us"])
    return moment


def spans(finished: Row | None, messages: list[Row]) -> list[Row]:
    """How long it waited, and how long each worker had it."""
    begin = finished["accepted"] if finished is not None else next((row["time"] for row in messages), None)
    if begin is None:
        return []
    end = ended(finished) if finished is not None else messages[-1]["time"]
    found: list[Row] = []
    waiting, held, worker = begin, None, 0
    for row in messages:
        if row["event"] == schema.DISPATCHED:
            found.append(span("queued", "queued", begin, waiting, row["time"]))
            held, worker = row["time"], row["worker"]
        elif row["event"] == schema.REQUEUED and held is not None:
            found.append(span(f"worker w{worker}", "lost", begin, held, row["time"]))
            waiting, held = row["time"], None
    if held is not None:
        found.append(span(f"worker w{worker}", "running", begin, held, end))
    elif finished is not None and not messages and finished["dispatched"]:
        found.append(span("queued", "queued", begin, begin, finished["first_dispatched"] or finished["dispatched"]))
        found.append(span(f"worker w{finished['worker']}", "running", begin, finished["dispatched"], end))
    else:
        found.append(span("queued", "queued", begin, waiting, end))
    return found


def span(name: str, kind: str, begin: datetime, start: datetime, end: datetime) -> Row:
    return {"name": name, "kind": kind, "start_us": micros(begin, start), "end_us": micros(begin, end)}


def micros(start: datetime, end: datetime) -> int:
    return round((end - start).total_seconds() * 1e6)
