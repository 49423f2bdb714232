"""The story of a request: its rows as a readable timeline, with the reason for each step."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from polydomo.journal import schema
from polydomo.journal.ids import RequestId, run_name
from polydomo.journal.quantities import counted, framed_size, took
from polydomo.model.outcomes import FAILED, OK

if TYPE_CHECKING:
    from polydomo.journal.reading.reader import Reader

Row = dict[str, Any]
MEMOISED = {
    "hit": "answered from the memo store",
    "miss": "the memo store has no reply: a worker runs it",
    "joined": "waits for an identical request that runs already",
}
KEYED = {"first": "starts a run under the key", "joined": "joins the run under the key"}
NOT_RECORDED = -2  # in ``workers`` of a row that was made from a record: the journal's level does not have this


@dataclass
class Step:
    time: datetime
    after: float  # seconds since the request was accepted
    what: str  # the event
    text: str


@dataclass
class Story:
    request: str  # its id, or its number and run if the id is not known
    head: str  # a summary in one line
    steps: list[Step]
    notes: list[str]
    # What the steps describe: journal rows, or rows made from ``finished``.
    rows: list[Row] = field(default_factory=list)
    finished: Row | None = None  # the row of ``requests``


def build(run: int, number: int, messages: list[Row], finished: Row | None, others: list[Row]) -> Story:
    """``messages`` are the rows about the request, in order; ``others`` those about the workers that held it."""
    rows = list(messages)
    if finished is not None and not any(row["event"] == schema.ACCEPTED for row in rows):
        rows += _from_record(finished, rows)
    rows += [row for row in others if row["event"] in (schema.LATE,) and _while_held(row, messages)]
    rows.sort(key=lambda row: (row["time"], row["seq"]))
    begin = finished["accepted"] if finished is not None else next((row["time"] for row in rows), None)
    narrator = _StoryBuilder({row["worker"]: row for row in others if row["event"] in (schema.LEFT, schema.LOST)})
    steps = [
        Step(row["time"], (row["time"] - begin).total_seconds(), row["event"], text)
        for row in rows
        for text in narrator.describe(row)
    ]
    notes = []
    if finished is not None and not any(row["event"] == schema.ACCEPTED for row in messages):
        notes.append(
            "The journal records only the end of requests (level requests): the times are computed from that row."
        )
    identity = finished.get("client_id", "") if finished is not None else ""
    if identity:
        notes.append(f"The client's own id: {identity}")
    if finished is None:
        notes.append("It has no outcome in the journal: it is still open, or its rows are lost or not written yet.")
    return Story(_name(run, number, rows, finished), _head(rows, finished), steps, notes, rows, finished)


def story_of(reader: "Reader", run: int, number: int, since: datetime | None = None) -> Story | None:
    """The story of a request from a journal; None if the journal has no row about it."""
    finished = next(iter(reader.about(schema.REQUESTS, run, [number], since)), None)
    messages = reader.about(schema.MESSAGES, run, [number], since)
    if finished is None and not messages:
        return None
    workers = {row["worker"] for row in messages} | ({finished["worker"]} if finished is not None else set())
    workers.discard(0)
    others: list[Row] = []
    if workers and any(row["event"] == schema.REQUEUED for row in messages):
        import pyarrow.compute as pc

        events = [schema.LATE, schema.LEFT, schema.LOST]
        where = pc.field("worker").isin(list(workers)) & pc.field("event").isin(events)
        begin = min(row["time"] for row in messages)
        others = reader.rows(schema.MESSAGES, begin, finished["time"] if finished else None, run, where)
    return build(run, number, messages, finished, others)


def _name(run: int, number: int, rows: list[Row], finished: Row | None) -> str:
    if finished is not None:
        return str(finished["request"])
    for row in rows:
        if row["event"] == schema.ACCEPTED:
            return str(RequestId(int(row["time"].timestamp() * 1000), run, number))
    return f"number {number} of run {run_name(run)}"


def _ending(outcome: str) -> str:
    """
    >>> _ending("failed"), _ending("timeout")
    ('failed', 'failed (timeout)')
    """
    return FAILED if outcome == FAILED else f"failed ({outcome})"


def _reason(row: Row) -> str:
    """Why it ended so, without the code of the outcome once more in front.

    >>> _reason({"outcome": "failed", "reason": "failed: ValueError: 7"})
    'ValueError: 7'
    """
    reason: str = row["reason"]
    return reason.removeprefix(f"{row['outcome']}: ")


def _head(rows: list[Row], finished: Row | None) -> str:
    if finished is None:
        service = next((row["service"] for row in rows if row["service"]), "")
        return f"to `{service}`: no outcome yet" if service else "no outcome yet"
    ended = "answered" if finished["outcome"] == OK else _ending(finished["outcome"])
    parts = [f"to `{finished['service']}`: {ended} after {took(finished['total_us'])}"]
    if finished["dispatches"]:
        parts.append(f"waited {took(finished['wait_us'])}, ran {took(finished['run_us'])}")
    if finished["dispatches"] > 1:
        parts.append(f"dispatched {times(finished['dispatches'])}")
    if finished["hops"]:
        parts.append(f"forwarded {times(finished['hops'])}, last to `{finished['last_service']}`")
    if finished["partials"]:
        parts.append(f"{counted(finished['partials'], 'partial')}")
    return ", ".join(parts)


class _StoryBuilder:
    """Describes the rows in order. Keeps state for the next row: why and since when the request waits, and since when a worker holds it."""

    def __init__(self, departures: dict[int, Row]) -> None:
        self.departures = departures  # how each worker left or was lost
        self.waits_since: datetime | None = None
        self.why = ""
        self.held_since: datetime | None = None
        self.partials = 0

    def describe(self, row: Row) -> list[str]:
        event = row["event"]
        made = getattr(self, f"_{event}", None)
        return [made(row)] if made is not None else [f"{event} {row['reason']}".strip()]

    def _accepted(self, row: Row) -> str:
        self.waits_since = row["time"]
        self.why = "the reason is not recorded at level requests" if row["workers"] == NOT_RECORDED else ""
        return f"{_client(row)} called `{row['service']}`, {framed_size(row['size'])}"

    def _queued(self, row: Row) -> str:
        self.waits_since = row["time"]
        self.why = _busy(row)
        before = row["queue"] - 1
        ahead = "" if before <= 0 else f", {counted(before, 'request')} ahead of it"
        return f"queued: {self.why}{ahead}"

    def _dispatched(self, row: Row) -> str:
        waited = _between(self.waits_since, row["time"])
        self.held_since = row["time"]
        self.waits_since = None
        again = f", attempt {row['attempt']}" if row["attempt"] > 1 else ""
        text = f"dispatched to w{row['worker']}{_at(row)}{again}"
        if row["workers"] == NOT_RECORDED:
            self.held_since = None
            return f"{text}, at a time that is not recorded at level requests"
        if waited and self.why:
            text = f"waited {took(waited)}: {self.why}; {text}"
        elif waited >= 1000:
            text = f"waited {took(waited)}; {text}"
        return text

    def _partial(self, row: Row) -> str:
        self.partials += 1
        return f"partial {self.partials} from w{row['worker']}, {framed_size(row['size'])}"

    def _late(self, row: Row) -> str:
        return (
            f"w{row['worker']} is late: silent for {took(row['silence_us'])} of the allowed {took(row['allowed_us'])}"
        )

    def _requeued(self, row: Row) -> str:
        departure = self.departures.get(row["worker"])
        how = "left" if departure is not None and departure["event"] == schema.LEFT else "lost"
        had = _between(self.held_since, row["time"])
        self.held_since = None
        self.waits_since = row["time"]
        self.why = _busy(row)
        held = f" after it held the request for {took(had)}" if had else ""
        return f"worker w{row['worker']} {how}{held}: {row['reason']}; requeued at the head of the queue"

    def _forwarded(self, row: Row) -> str:
        had = _between(self.held_since, row["time"])
        self.waits_since = row["time"]
        self.why = _busy(row) if row["queue"] > 1 or not row["workers"] else ""
        ran = f" after {took(had)}" if had else ""
        return f"w{row['worker']} forwarded it to `{row['service']}`{ran}"

    def _final(self, row: Row) -> str:
        had = _between(self.held_since, row["time"])
        ran = f" after {took(had)}" if had else ""
        sent = f"not sent to c{row['client']}: {row['reason']}" if row["reason"] else f"delivered to c{row['client']}"
        return f"w{row['worker']} answered{ran}, {framed_size(row['size'])}; {sent}"

    def _failed(self, row: Row) -> str:
        waited = _between(self.waits_since, row["time"])
        since = f" after waiting {took(waited)}" if waited else ""
        return f"{_ending(row['outcome'])}{since}: {_reason(row)}"

    def _unheard(self, row: Row) -> str:
        return f"w{row['worker']} replied after the outcome; the reply was dropped and the worker is free"

    def _memo(self, row: Row) -> str:
        return MEMOISED.get(str(row["outcome"]), "a memoised service")

    def _keyed(self, row: Row) -> str:
        return f"{KEYED.get(str(row['outcome']), 'has the key')} `{row['key']}`: {row['reason']}"

    def _log(self, row: Row) -> str:
        return f"{row['service']} logged {row['outcome']}: {row['reason']}"


def _from_record(finished: Row, known: list[Row]) -> list[Row]:
    """The steps implied by a row of ``requests``, if its messages were not recorded."""
    made = []

    def add(time: datetime | None, event: str, **values: Any) -> None:
        if time is not None:
            common = {name: finished[name] for name in ("run", "number", "client", "service")}
            made.append(
                schema.row(schema.MESSAGES, time=time, seq=finished["seq"], event=event, **{**common, **values})
            )

    client = {"peer": finished["client_peer"], "protocol": finished["client_protocol"]}
    worker = {"peer": finished["worker_peer"], "protocol": finished["worker_protocol"], "worker": finished["worker"]}
    add(finished["accepted"], schema.ACCEPTED, size=finished["request_bytes"], workers=NOT_RECORDED, **client)
    ends = sorted(
        (row for row in known if row["event"] in (schema.REQUEUED, schema.FORWARDED)), key=lambda row: int(row["seq"])
    )
    requeued = any(
        row["event"] == schema.REQUEUED and (row["hop"], row["attempt"]) == (finished["hops"], finished["attempts"])
        for row in ends
    )
    in_queue = requeued or not finished["attempts"]  # it ended in the queue: the last of these rows ended its last turn
    for i, row in enumerate(ends):
        began = (
            finished["first_dispatched"] if not i else finished["dispatched"] if in_queue and row is ends[-1] else None
        )
        had = {name: row[name] for name in ("worker", "peer", "protocol", "attempt")}
        if began is not None:
            add(began, schema.DISPATCHED, **had)
        else:  # when it was dispatched is not recorded; that it was is
            add(row["time"], schema.DISPATCHED, workers=NOT_RECORDED, **had)
            made[-1]["seq"] = row["seq"] - 0.5
    if not in_queue:
        add(
            finished["dispatched"],
            schema.DISPATCHED,
            attempt=finished["attempts"],
            **{**worker, "service": finished["last_service"]},
        )
    if in_queue:
        worker = {"worker": 0}
    add(finished["first_partial"], schema.PARTIAL, **worker)
    event = schema.FINAL if finished["outcome"] == OK else schema.FAILED
    outcome_fields = {"outcome": finished["outcome"], "reason": finished["reason"], "size": finished["reply_bytes"]}
    add(finished["time"], event, **worker, **outcome_fields)
    return made


def _while_held(row: Row, messages: list[Row]) -> bool:
    """Whether a row about a worker falls into the time in which it held the request."""
    since: datetime | None = None
    for step in messages:
        if step["event"] == schema.DISPATCHED and step["worker"] == row["worker"]:
            since = step["time"]
        elif since is not None and step["event"] in (schema.REQUEUED, schema.FORWARDED, schema.FINAL, schema.FAILED):
            if since <= row["time"] <= step["time"]:
                return True
            since = None
    return since is not None and row["time"] >= since


def _busy(row: Row) -> str:
    workers = row["workers"]
    service = row["service"]
    if workers < 0:
        return ""  # the story is made from tables, which do not keep this
    if not workers:
        return f"no worker offers `{service}`"
    if workers == 1:
        return f"the only worker of `{service}` was busy"
    return f"{'both' if workers == 2 else f'all {workers}'} workers of `{service}` were busy"


def _client(row: Row) -> str:
    return f"c{row['client']}{_at(row)}"


def _at(row: Row) -> str:
    return f" ({row['protocol']}, {row['peer']})" if row["peer"] else ""


def _between(start: datetime | None, end: datetime) -> int:
    """In microseconds."""
    return round((end - start).total_seconds() * 1e6) if start is not None else 0


def times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")
