"""``polydomo.history``: the samples of a time range as points of a chart."""

import json
from datetime import datetime

from polydomo.broker.observe.histogram import Counts, quantiles
from polydomo.broker.observe.history.history import FigureHistory
from polydomo.broker.observe.history.ring import Ring, Sample
from polydomo.broker.observe.history.series import Series
from polydomo.broker.state import State
from polydomo.errors import SettingError
from polydomo.limits import HISTORY_COARSE, HISTORY_POINTS, HISTORY_STEP, HISTORY_STEPS
from polydomo.model.durations import EXPECTED, read_duration
from polydomo.model.json_form import iso_time, microseconds

Row = dict[str, object]

FIELDS = ("service", "from", "to", "step")
PARTS = (0.5, 0.95, 0.99)
NAMES = ("p50_us", "p95_us", "p99_us")
SHOWN = 360  # points, if the query does not name a step


class HistoryQuery:
    def __init__(self, body: bytes, now: float) -> None:
        """Reads a JSON object, or nothing. Times are seconds since the epoch. Raises SettingError."""
        try:
            found = json.loads(body) if body else {}
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise SettingError("the body must be a JSON object")
        unknown = sorted(name for name in found if name not in FIELDS)
        if unknown:
            raise SettingError(f"unknown field {unknown[0]!r}; known are {', '.join(FIELDS)}")
        service = found.get("service")
        self.service = "" if service is None else str(service)
        self.whole = service is None  # the whole broker
        self.start = read_time("from", found.get("from"), now, now - HISTORY_STEP * HISTORY_STEPS)
        self.end = min(read_time("to", found.get("to"), now, now), now)
        if self.end < self.start:
            raise SettingError("from: must be before to")
        least = HISTORY_STEP if self.start >= now - HISTORY_STEP * (HISTORY_STEPS + 1) else HISTORY_COARSE
        self.source = least  # seconds of the samples to read
        wanted = found.get("step")
        if wanted is None:
            step = (self.end - self.start) / SHOWN
        else:
            given = read_duration(wanted)
            if given is None or given <= 0:
                raise SettingError(f"step: {wanted!r} must be {EXPECTED}, above 0")
            step = given
        step = max(step, (self.end - self.start) / HISTORY_POINTS)
        self.step = least * max(1, -int(-step // least))  # rounded up


def read_time(name: str, value: object, now: float, default: float) -> float:
    """A time as ``-1h`` or in ISO 8601. Raises SettingError."""
    if value is None:
        return default
    if isinstance(value, str) and value.startswith("-"):
        ago = read_duration(value[1:])
        if ago is not None:
            return now - ago
    elif isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is not None and moment.tzinfo is not None and moment.year > 1970:
            return moment.timestamp()
    raise SettingError(f"{name}: {value!r} must be a time such as -15m, or ISO 8601 with a time zone")


def answer(state: State, history: FigureHistory, body: bytes) -> Row:
    now = state.wall + state.now
    try:
        query = HistoryQuery(body, now)
    except SettingError as error:
        return {"error": "bad-request", "text": str(error)}
    series = history.broker if query.whole else history.series.get(query.service.encode("utf-8", "surrogateescape"))
    if series is None:
        series = _named(history, query.service)
    merged = _merge(query, _ring(query, history.broker), _ring(query, series)) if series is not None else {}
    parts = state.process.count > 1  # other processes have the rest
    return {"step": query.step, "points": [point(time, sample, parts) for time, sample in merged.items()]}


def _named(history: FigureHistory, shown: str) -> Series | None:
    """A service whose name is not UTF-8, by the form in which it is shown."""
    if "\\" in shown:
        for name, series in history.series.items():
            if name.decode(errors="backslashreplace") == shown:
                return series
    return None


def _ring(query: HistoryQuery, series: Series) -> Ring:
    return series.fine if query.source == HISTORY_STEP else series.coarse


def _merge(query: HistoryQuery, axis: Ring, ring: Ring) -> "dict[int, Sample]":
    """Samples by the start of their step, in order. ``axis`` has the steps in which the broker ran."""
    first = int(query.start // query.step) * query.step // query.source  # the first point is complete
    last = int(query.end // query.source)
    found: dict[int, Sample] = {}
    workers = ring.before
    for number, sample in ring.samples():
        if number > last:
            break
        if number >= first:
            found[number] = sample
        else:
            workers = sample.workers
    merged: dict[int, Sample] = {}
    for number in axis.steps():
        if not first <= number <= last:
            continue
        known = found.get(number)
        if known is None:
            known = Sample(workers=workers)
        workers = known.workers
        time = number * query.source // query.step * query.step
        before = merged.get(time)
        if before is None:
            merged[time] = known
        else:
            before.add_later(known)
    return merged


def point(time: int, sample: Sample, with_counts: bool) -> Row:
    """``with_counts``: the histogram too, for ``merging.history``."""
    row: Row = {"time": iso_time(time), "requests": sample.requests, "failed": sample.failed}
    row.update(percentiles(sample.counts))
    row["queue"] = sample.queue
    row["workers"] = sample.workers
    if with_counts:
        row["counts"] = {str(bucket): count for bucket, count in sample.counts.items()}
    return row


def percentiles(counts: Counts) -> Row:
    row: Row = dict.fromkeys(NAMES)
    if counts:
        for name, seconds in zip(NAMES, quantiles(counts, PARTS), strict=True):
            row[name] = microseconds(seconds)
    return row


def merged(parts: "list[object]") -> object:
    """The answers of several processes as one."""
    rows = [part for part in parts if isinstance(part, dict)]
    if not rows or any("error" in row for row in rows):
        return rows[0] if rows else None
    times: dict[str, Sample] = {}
    for row in rows:
        points = row.get("points")
        for shown in points if isinstance(points, list) else ():
            if isinstance(shown, dict):
                times.setdefault(str(shown.get("time")), Sample()).add_other(_sample_of(shown))
    found: list[Row] = []
    for time in sorted(times):
        sample = times[time]
        row = {"time": time, "requests": sample.requests, "failed": sample.failed, **percentiles(sample.counts)}
        found.append({**row, "queue": sample.queue, "workers": sample.workers})
    return {"step": rows[0].get("step"), "points": found}


def _sample_of(row: Row) -> Sample:
    numbers = [
        value if isinstance(value := row.get(name), int) else 0 for name in ("requests", "failed", "queue", "workers")
    ]
    sample = Sample(numbers[0], numbers[1], numbers[2], numbers[3])
    counts = row.get("counts")
    if isinstance(counts, dict):
        for bucket, count in counts.items():
            sample.counts[int(bucket)] = int(count)
    return sample
