"""One request, from its row in `requests` and its rows in `hops`: as a story, and as the parts of a waterfall."""

from datetime import datetime, timedelta
from typing import Any

from polydomo.journal import schema
from polydomo.journal.reading.reader import Reader
from polydomo.journal.reading.story import build, story_of
from polydomo.pipeline.report.svg import duration

Row = dict[str, Any]


def story(row: Row, hops: list[Row], reader: Reader) -> list[str]:
    """One line per step; with all details of the journal, if it has the request."""
    found = story_of(reader, row["run"], row["number"])
    if found is None:
        found = build(row["run"], row["number"], messages(row, hops), {**row, "time": row["ended"]}, [])
    times = [f"+{duration(_us(step.time - row['accepted']))}" for step in found.steps]
    steps = [f"{time:>10}  {step.text}" for time, step in zip(times, found.steps, strict=True)]
    return [found.head, *steps, *found.notes]


def messages(row: Row, hops: list[Row]) -> list[Row]:
    """Reconstructs the journal's rows from the tables, as far as a story needs them."""
    made: list[Row] = []

    def add(time: datetime | None, event: str, **values: Any) -> None:
        if time is not None:
            common = {"run": row["run"], "number": row["number"], "client": row["client"], "workers": -1}
            made.append(schema.row(schema.MESSAGES, time=time, seq=len(made) + 1, event=event, **{**common, **values}))

    client = {"peer": row["client_peer"], "protocol": row["client_protocol"]}
    add(row["accepted"], schema.ACCEPTED, service=row["service"], size=row["request_bytes"], **client)
    for hop, after in zip(hops, [*hops, None][1:], strict=True):
        worker = {"worker": hop["worker"], "peer": hop["worker_peer"], "protocol": hop["worker_protocol"]}
        add(hop["began"], schema.DISPATCHED, service=hop["service"], attempt=hop["attempt"], **worker)
        if hop["ending"] == schema.REQUEUED:
            add(hop["ended"], schema.REQUEUED, service=hop["service"], reason="its worker is gone", **worker)
        elif hop["ending"] == schema.FORWARDED:
            add(hop["ended"], schema.FORWARDED, service=after["service"] if after else row["last_service"], **worker)
    add(row["first_partial"], schema.PARTIAL, worker=row["worker"])
    final = {"outcome": row["outcome"], "reason": row["reason"], "size": row["reply_bytes"], "worker": row["worker"]}
    add(row["ended"], schema.FINAL if row["outcome"] == "ok" else schema.FAILED, **final)
    return made


def parts(row: Row, hops: list[Row]) -> list[tuple[str, float, float, str]]:
    """(kind, from, to, label) in microseconds from acceptance; the request waits between two turns."""
    made: list[tuple[str, float, float, str]] = []
    at = 0.0

    def wait(until: float) -> None:
        if until > at:
            made.append(("wait", at, until, f"waited {duration(until - at)}"))

    for hop in hops:
        if hop["began"] is None:
            continue
        start, end = (_us(hop[name] - row["accepted"]) for name in ("began", "ended"))
        wait(start)
        lost = hop["ending"] == schema.REQUEUED
        words = f"{hop['service']} w{hop['worker']}{' was lost after' if lost else ''} {duration(end - start)}"
        made.append(("lost" if lost else "run", start, end, words))
        at = max(at, end)
    wait(float(row["total_us"]))
    return made


def _us(time: timedelta) -> float:
    return time.total_seconds() * 1e6
