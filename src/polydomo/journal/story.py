"""The story of a request: its rows as a timeline that a person can read, with the reason of each step."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from polydomo.journal import schema
from polydomo.journal.ids import RequestId, run_name
from polydomo.protocols.request import FAILED, OK

if TYPE_CHECKING:
    from polydomo.journal.reader import Reader

Row = dict[str, Any]


@dataclass
class Step:
    time: datetime
    after: float  # seconds since the request was accepted
    what: str  # the event
    text: str


@dataclass
class Story:
    request: str  # its id, as far as it is known
    head: str  # the whole of it in one line
    steps: list[Step]
    notes: list[str]


def tell(run: int, number: int, messages: list[Row], finished: Row | None, others: list[Row]) -> Story:
    """``messages`` are the rows about the request, in order; ``others`` those about the workers that had it."""
    rows = list(messages)
    if finished is not None and not any(row["event"] == schema.ACCEPTED for row in rows):
        rows += _from_record(finished, rows)
    rows += [row for row in others if row["event"] in (schema.LATE,) and _while_held(row, messages)]
    rows.sort(key=lambda row: (row["time"], row["seq"]))
    begin = finished["accepted"] if finished is not None else next((row["time"] for row in rows), None)
    teller = _Teller({row["worker"]: row for row in others if row["event"] in (schema.LEFT, schema.LOST)})
    steps = [
        Step(row["time"], (row["time"] - begin).total_seconds(), row["event"], text)
        for row in rows
        for text in teller.of(row)
    ]
    notes = []
    if finished is not None and not any(row["event"] == schema.ACCEPTED for row in messages):
        notes.append("The journal has no messages of it (level requests): times are those of its record.")
    if finished is None:
        notes.append("It has no outcome on record: it is still open, or its rows are lost or not written yet.")
    return Story(_name(run, number, rows, finished), _head(rows, finished), steps, notes)


def story_of(reader: "Reader", run: int, number: int, since: datetime | None = None) -> Story | None:
    """The story of a request by what a journal has of it; None if it has nothing."""
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
    return tell(run, number, messages, finished, others)


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
        parts.append(f"{finished['dispatches']} workers had it")
    if finished["hops"]:
        parts.append(f"passed on {times(finished['hops'])}, at last to `{finished['last_service']}`")
    if finished["partials"]:
        parts.append(f"{count(finished['partials'], 'partial')}")
    return ", ".join(parts)


class _Teller:
    """Tells row after row, remembering what the next one needs: why it waits, since when, who has it."""

    def __init__(self, goings: dict[int, Row]) -> None:
        self.goings = goings
        self.waits_since: datetime | None = None
        self.why = ""
        self.had_since: datetime | None = None
        self.partials = 0

    def of(self, row: Row) -> list[str]:
        event = row["event"]
        made = getattr(self, f"_{event}", None)
        return [made(row)] if made is not None else [f"{event} {row['reason']}".strip()]

    def _accepted(self, row: Row) -> str:
        self.waits_since = row["time"]
        self.why = ""
        return f"{_client(row)} asked `{row['service']}`, {size(row['size'])}"

    def _queued(self, row: Row) -> str:
        self.waits_since = row["time"]
        self.why = _busy(row)
        before = row["queue"] - 1
        ahead = "" if before <= 0 else f", {before} {'waits' if before == 1 else 'wait'} before it"
        return f"waits: {self.why}{ahead}"

    def _dispatched(self, row: Row) -> str:
        waited = _between(self.waits_since, row["time"])
        self.had_since = row["time"]
        self.waits_since = None
        again = f", attempt {row['attempt']}" if row["attempt"] > 1 else ""
        text = f"given to w{row['worker']}{_at(row)}{again}"
        if waited and self.why:
            text = f"waited {took(waited)}: {self.why}; {text}"
        elif waited >= 1000:
            text = f"waited {took(waited)}; {text}"
        return text

    def _partial(self, row: Row) -> str:
        self.partials += 1
        return f"partial {self.partials} from w{row['worker']}, {size(row['size'])}"

    def _late(self, row: Row) -> str:
        return (
            f"w{row['worker']} is late: silent for {took(row['silence_us'])} of the {took(row['allowed_us'])} it may be"
        )

    def _requeued(self, row: Row) -> str:
        going = self.goings.get(row["worker"])
        how = "left" if going is not None and going["event"] == schema.LEFT else "lost"
        had = _between(self.had_since, row["time"])
        self.waits_since = row["time"]
        self.why = _busy(row)
        held = f" after it had it for {took(had)}" if had else ""
        return f"worker w{row['worker']} {how}{held}: {row['reason']}; back to the head of the queue"

    def _forwarded(self, row: Row) -> str:
        had = _between(self.had_since, row["time"])
        self.waits_since = row["time"]
        self.why = _busy(row) if row["queue"] > 1 or not row["workers"] else ""
        ran = f" after {took(had)}" if had else ""
        return f"w{row['worker']} passed it on to `{row['service']}`{ran}"

    def _final(self, row: Row) -> str:
        had = _between(self.had_since, row["time"])
        ran = f" after {took(had)}" if had else ""
        return f"w{row['worker']} answered{ran}, {size(row['size'])}; told to c{row['client']}"

    def _failed(self, row: Row) -> str:
        waited = _between(self.waits_since, row["time"])
        since = f" after waiting {took(waited)}" if waited else ""
        return f"{_ending(row['outcome'])}{since}: {_reason(row)}"

    def _unheard(self, row: Row) -> str:
        return f"w{row['worker']} ended it, too late to be heard; it is free again"

    def _log(self, row: Row) -> str:
        return f"{row['service']} logs {row['outcome']}: {row['reason']}"


def _from_record(finished: Row, known: list[Row]) -> list[Row]:
    """The steps that a record of ``requests`` implies, where its messages were not recorded."""
    made = []

    def add(time: datetime | None, event: str, **values: Any) -> None:
        if time is not None:
            common = {name: finished[name] for name in ("run", "number", "client", "service")}
            made.append(
                schema.row(schema.MESSAGES, time=time, seq=finished["seq"], event=event, **{**common, **values})
            )

    client = {"peer": finished["client_peer"], "protocol": finished["client_protocol"]}
    worker = {"peer": finished["worker_peer"], "protocol": finished["worker_protocol"], "worker": finished["worker"]}
    add(finished["accepted"], schema.ACCEPTED, size=finished["request_bytes"], **client)
    first, last = finished["first_dispatched"], finished["dispatched"]
    if first != last and first is not None:
        before = next((row for row in known if row["event"] in (schema.REQUEUED, schema.FORWARDED)), None)
        if before is not None:
            had = {name: before[name] for name in ("worker", "peer", "protocol")}
            add(first, schema.DISPATCHED, attempt=1, **had)
    add(last, schema.DISPATCHED, attempt=finished["attempts"], **{**worker, "service": finished["last_service"]})
    add(finished["first_partial"], schema.PARTIAL, **worker)
    event = schema.FINAL if finished["outcome"] == OK else schema.FAILED
    told = {"outcome": finished["outcome"], "reason": finished["reason"], "size": finished["reply_bytes"]}
    add(finished["time"], event, **worker, **told)
    return made


def _while_held(row: Row, messages: list[Row]) -> bool:
    """Whether a row about a worker falls into the time in which it had the request."""
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
        return ""  # a story told from tables, which do not keep it
    if not workers:
        return f"nobody offers `{service}`"
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


def took(us: int) -> str:
    """
    >>> [took(n) for n in (0, 850, 4_200, 93_000, 2_100_000, 75_000_000, 7_320_000_000)]
    ['0 us', '850 us', '4.2 ms', '93 ms', '2.1 s', '1 m 15 s', '2 h 02 m']
    """
    if us < 1000:
        return f"{us} us"
    if us < 10_000:
        return f"{us / 1000:.1f} ms"
    if us < 1_000_000:
        return f"{us / 1000:.0f} ms"
    seconds = us / 1e6
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds) // 60} m {int(seconds) % 60:02d} s"
    return f"{int(seconds) // 3600} h {int(seconds) % 3600 // 60:02d} m"


def size(octets: int) -> str:
    if octets < 1024:
        return f"{octets} B"
    return f"{octets / 1024:.1f} KiB" if octets < 1024 * 1024 else f"{octets / (1024 * 1024):.1f} MiB"


def count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")
