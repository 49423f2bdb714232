"""Searches finished requests in a journal, the newest first, page by page: for ``polydomo requests --since`` and ``GET /v1/finished``."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from polydomo.broker.observe.history.query import read_time
from polydomo.broker.requests.request_ids import run_name
from polydomo.errors import SettingError
from polydomo.journal import ids, schema
from polydomo.limits import FINISHED_LIMIT, FINISHED_SHOWN, FINISHED_TIME
from polydomo.model.durations import EXPECTED, read_duration
from polydomo.model.json_form import iso
from polydomo.model.outcomes import FAILED, OK, OUTCOMES

if TYPE_CHECKING:
    from polydomo.journal.reading.reader import Reader

Row = dict[str, Any]
Position = tuple[datetime, int, int]  # time, run and sequence number of a row

NUMBERED = {"client": "c", "worker": "w"}  # columns that number connections and workers
ORDER = [("time", "descending"), ("run", "descending"), ("seq", "descending")]
LAST = 10**17 - 1  # after every run and sequence number
PARAMETERS = ("state", "slower", "service", "from", "to", "client", "principal", "id", "worker", "limit", "before")


@dataclass
class RequestFilter:
    """Filters for finished requests; None matches any."""

    since: datetime | None = None
    until: datetime | None = None
    service: str | None = None
    outcome: str | None = None  # ``failed``: any but ``ok``
    slower: float | None = None  # seconds
    client_id: str | None = None  # the client's own id
    identity: str | None = None  # any id: the broker's, that of a job, or the client's own
    client: str | None = None  # ``c7``, or the beginning of an address
    worker: str | None = None
    principal: str | None = None
    before: Position | None = None  # only rows before this one
    most: int = FINISHED_SHOWN

    def condition(self) -> Any:
        """As an expression of pyarrow.compute; None if everything matches."""
        import pyarrow.compute as pc

        from polydomo.journal.reading.client_ids import has_client_id

        found: list[Any] = []
        if self.service is not None:
            found.append((pc.field("service") == self.service) | (pc.field("last_service") == self.service))
        if self.outcome == FAILED:
            found.append(pc.field("outcome") != OK)
        elif self.outcome is not None:
            found.append(pc.field("outcome") == self.outcome)
        if self.slower is not None:
            found.append(pc.field("total_us") >= round(self.slower * 1e6))
        if self.client_id is not None:
            found.append(has_client_id(self.client_id))
        if self.identity is not None:
            given = self.identity
            known = (pc.field("request") == given.upper()) | (pc.field("job") == given.upper())
            found.append(known | has_client_id(given))
        if self.client is not None:
            found.append(_peer("client", self.client))
        if self.worker is not None:
            found.append(_peer("worker", self.worker))
        if self.principal is not None:
            found.append(pc.field("principal") == self.principal)
        if self.before is not None:
            moment, run, seq = self.before
            same = pc.field("time") == moment
            earlier = (pc.field("run") < run) | ((pc.field("run") == run) & (pc.field("seq") < seq))
            found.append((pc.field("time") < moment) | (same & earlier))
        where = None
        for condition in found:
            where = condition if where is None else where & condition
        return where


def _peer(kind: str, given: str) -> Any:
    """A connection by its number, as ``c7``, or by the beginning of its address."""
    import pyarrow.compute as pc

    letter, number = given[:1], given[1:]
    if letter == NUMBERED[kind] and number.isascii() and number.isdigit() and len(number) < 10:
        return pc.field(kind) == int(number)
    address = given if "://" in given else f"tcp://{given}"
    return pc.starts_with(pc.field(f"{kind}_peer"), address)


@dataclass
class FoundRequests:
    rows: list[Row]  # of the journal, the newest first
    next: str | None  # the position after them, if there may be more


def search(reader: "Reader", wanted: RequestFilter, patience: float = FINISHED_TIME) -> FoundRequests:
    """The newest matching requests. Hours are read from the newest to the oldest, until there are enough; if that takes longer than
    ``patience`` seconds, the search can be continued from where it stopped."""
    end = time.monotonic() + patience
    until = wanted.until
    if wanted.before is not None:
        until = min(wanted.before[0], until) if until is not None else wanted.before[0]
    found: list[Row] = []
    for hour, table in reader.hours(schema.REQUESTS, wanted.since, until, wanted.condition()):
        if table.num_rows:
            newest = table.sort_by(ORDER)
            found += newest.slice(0, wanted.most + 1 - len(found)).to_pylist()
        if len(found) > wanted.most:
            return FoundRequests(found[: wanted.most], cursor(position(found[wanted.most - 1])))
        if time.monotonic() > end:
            return FoundRequests(found, cursor((hour - timedelta(microseconds=1), LAST, LAST)))
    return FoundRequests(found, None)


def position(row: Row) -> Position:
    return row["time"], row["run"], row["seq"]


def cursor(place: Position) -> str:
    return f"{round(place[0].timestamp() * 1e6)}-{place[1]}-{place[2]}"


def read_cursor(text: str) -> Position:
    """Raises SettingError."""
    parts = text.split("-")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 18 for part in parts):
        raise SettingError(f"before: {text!r} is not the `next` of an answer")
    moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=int(parts[0]))
    return moment, int(parts[1]), int(parts[2])


def read_filter(parameters: Mapping[str, str], now: float) -> RequestFilter:
    """The query of ``GET /v1/finished``. Without ``from``, the last hour is searched, or everything for an ``id``. Raises SettingError."""
    unknown = sorted(name for name in parameters if name not in PARAMETERS)
    if unknown:
        raise SettingError(f"unknown parameter {unknown[0]!r}; known are {', '.join(PARAMETERS)}")
    wanted = RequestFilter(
        service=parameters.get("service"),
        outcome=parameters.get("state"),
        identity=parameters.get("id"),
        client=parameters.get("client"),
        worker=parameters.get("worker"),
        principal=parameters.get("principal"),
    )
    if wanted.outcome is not None and wanted.outcome not in OUTCOMES:
        raise SettingError(f"state: {wanted.outcome!r} must be one of {', '.join(OUTCOMES)}")
    if "slower" in parameters:
        wanted.slower = read_duration(parameters["slower"])
        if wanted.slower is None:
            raise SettingError(f"slower: {parameters['slower']!r} must be {EXPECTED}")
    since: float | None = read_time("from", parameters.get("from"), now, now - 3600)
    if wanted.identity is not None and "from" not in parameters:
        since = ids.parse(wanted.identity).accepted_ms / 1000 - 1 if ids.is_id(wanted.identity) else None
    wanted.since = datetime.fromtimestamp(since, UTC) if since is not None else None
    if "to" in parameters:
        wanted.until = datetime.fromtimestamp(read_time("to", parameters["to"], now, now), UTC)
    limit = parameters.get("limit", str(FINISHED_SHOWN))
    if not (limit.isascii() and limit.isdigit() and 0 < int(limit[:6]) <= FINISHED_LIMIT):
        raise SettingError(f"limit: {limit!r} must be a number from 1 to {FINISHED_LIMIT}")
    wanted.most = int(limit)
    if parameters.get("before"):
        wanted.before = read_cursor(parameters["before"])
    return wanted


def answer(reader: "Reader", parameters: Mapping[str, str], now: float) -> Row:
    """One page of ``GET /v1/finished``. Raises SettingError."""
    found = search(reader, read_filter(parameters, now))
    return {"requests": [finished_row(row) for row in found.rows], "next": found.next, "problems": reader.problems}


def finished_row(row: Row) -> Row:
    """A row of the journal in the JSON form that all commands print."""
    made: Row = {}
    for name, value in row.items():
        if isinstance(value, datetime):
            value = iso(value)
        elif name in NUMBERED:
            value = f"{NUMBERED[name]}{value}" if value else None
        elif name == "run":
            value = run_name(value)
        made[name] = value
    return made
