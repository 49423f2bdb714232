"""The times of a schedule: cron expressions and intervals, in a time zone.

A cron expression has five fields (minute, hour, day of month, month, day of week) or six (seconds first). A field is ``*``, a number, a
name (``jan``, ``mon``), a range ``a-b``, a step ``*/n`` or ``a-b/n``, or a list of these. As in Vixie cron, a day matches if either the day
of month or the day of week matches, unless one of them is ``*``. ``@hourly``, ``@daily``, ``@weekly``, ``@monthly`` and ``@yearly`` are
shorthands.

An interval is ``every`` and a duration, such as ``every 30s``; its runs are counted from the schedule's creation, so that they do not
drift.

Daylight saving: a local time that does not exist on a day runs at the next existing time; one that exists twice runs once, at its first
occurrence. Expressions whose hour is ``*`` or a step run in every hour that passes.
"""

from datetime import datetime, timedelta, tzinfo

from polydomo.errors import SettingError
from polydomo.limits import SCHEDULE_LEAST
from polydomo.model import durations

MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
DAYS = "sun mon tue wed thu fri sat".split()
SHORTHANDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
HORIZON = 366 * 8 + 2  # days searched: 29 February comes at least every eight years


class Timing:
    """When runs are due. ``created`` and the answer are seconds since the epoch."""

    text = ""

    def after(self, moment: float, created: float, zone: tzinfo) -> float:
        """The first run after ``moment``; 0 if there is none."""
        raise NotImplementedError


class Interval(Timing):
    """
    >>> Interval(30.0).after(100.0, 85.0, UTC)
    115.0
    """

    def __init__(self, seconds: float) -> None:
        if not SCHEDULE_LEAST <= seconds <= 10 * 366 * 86_400.0:
            raise SettingError(f"schedule: an interval of {seconds:g} s must be from {SCHEDULE_LEAST:g} s to ten years")
        self.seconds = seconds
        self.text = f"every {seconds:g}s"

    def after(self, moment: float, created: float, zone: tzinfo) -> float:
        if moment < created:
            return created + self.seconds
        steps = int((moment - created) / self.seconds) + 1
        due = created + steps * self.seconds
        return due if due > moment else created + (steps + 1) * self.seconds


class Cron(Timing):
    """
    >>> Cron("30 2 * * mon-fri").after(0.0, 0.0, UTC)
    9000.0
    """

    def __init__(self, text: str) -> None:
        self.text = text
        fields = SHORTHANDS.get(text.strip().lower(), text).split()
        if len(fields) == 5:
            fields = ["0", *fields]
        if len(fields) != 6:
            raise SettingError(
                f"schedule: {text!r} has {len(fields)} fields; a cron expression has 5 (minute, hour, day of month, month, "
                'day of week), or 6 with seconds first; an interval is written "every 30s"'
            )
        self.seconds = _field("second", fields[0], 0, 59, [])
        self.minutes = _field("minute", fields[1], 0, 59, [])
        self.hours = _field("hour", fields[2], 0, 23, [])
        self.days = _field("day of month", fields[3], 1, 31, [])
        self.months = _field("month", fields[4], 1, 12, MONTHS)
        self.weekdays = sorted({day % 7 for day in _field("day of week", fields[5], 0, 7, DAYS)})
        self.any_day = fields[3].startswith("*")
        self.any_weekday = fields[5].startswith("*")
        self.every_hour = fields[2].startswith("*")

    def _matches(self, day: datetime) -> bool:
        if day.month not in self.months:
            return False
        by_day = day.day in self.days
        by_weekday = day.isoweekday() % 7 in self.weekdays
        if self.any_day or self.any_weekday:
            return by_day and by_weekday
        return by_day or by_weekday

    def after(self, moment: float, created: float, zone: tzinfo) -> float:
        local = datetime.fromtimestamp(moment, zone)
        day = datetime(local.year, local.month, local.day) - timedelta(days=1)  # a day may begin twice
        best = 0.0
        for _ in range(HORIZON):
            if self._matches(day):
                best = self._first_on(day, moment, zone)
                if best:
                    return best
            try:
                day += timedelta(days=1)
            except OverflowError:
                return 0.0
        return 0.0

    def _first_on(self, day: datetime, moment: float, zone: tzinfo) -> float:
        """The first run on this day after ``moment``; 0 if there is none."""
        first = 0.0
        for hour in self.hours:
            for fold in (0, 1) if self.every_hour else (0,):
                found = self._first_in_hour(day.replace(hour=hour, fold=fold), moment, zone)
                if found and (not first or found < first):
                    first = found
            if first and not self.every_hour:
                return first
        return first

    def _first_in_hour(self, hour: datetime, moment: float, zone: tzinfo) -> float:
        for minute in self.minutes:
            for second in self.seconds:
                wanted = hour.replace(minute=minute, second=second)
                due = wanted.replace(tzinfo=zone).timestamp()
                shown = datetime.fromtimestamp(due, zone).replace(tzinfo=None, fold=0)
                if shown != wanted.replace(fold=0):  # skipped by daylight saving
                    if self.every_hour:
                        continue
                    due = _end_of_gap(wanted, zone)
                if due > moment:
                    return due
        return 0.0


def _end_of_gap(wanted: datetime, zone: tzinfo) -> float:
    """The first moment after the gap that contains the local time ``wanted``. Its two interpretations lie before and after the gap."""
    low = min(wanted.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1)) - 86_400.0
    high = low + 2 * 86_400.0
    naive = wanted.replace(fold=0)
    while high - low > 0.5:
        middle = (low + high) / 2
        if datetime.fromtimestamp(middle, zone).replace(tzinfo=None, fold=0) < naive:
            low = middle
        else:
            high = middle
    return float(round(high))


def _field(what: str, text: str, least: int, most: int, names: "list[str]") -> "list[int]":
    """The values that one field of a cron expression allows, sorted."""
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step_text = part.partition("/")
        step = _number(what, step_text, 1, most - least + 1, []) if slash else 1
        if span == "*":
            first, last = least, most
        else:
            begin, dash, end = span.partition("-")
            first = _number(what, begin, least, most, names)
            last = _number(what, end, least, most, names) if dash else (most if slash else first)
            if last < first:
                raise SettingError(f"schedule: the {what} {part!r} ends before it begins")
        found.update(range(first, last + 1, step))
    return sorted(found)


def _number(what: str, text: str, least: int, most: int, names: "list[str]") -> int:
    word = text.strip().lower()
    if word in names:
        return names.index(word) + (1 if least == 1 else 0)
    if word.isascii() and word.isdigit() and len(word) <= 4 and least <= int(word) <= most:
        return int(word)
    allowed = f"{least} to {most}" + (f" or {names[0]} to {names[-1]}" if names else "")
    raise SettingError(f"schedule: {text!r} is not a valid {what}; use {allowed}, *, a range, a step or a list")


def read_timing(text: str) -> Timing:
    """Parses a cron expression or an interval. Raises SettingError.

    >>> read_timing("every 1.5m").text, read_timing("@daily").after(0.0, 0.0, UTC)
    ('every 90s', 86400.0)
    """
    words = text.split(None, 1)
    if words and words[0].lower().startswith("every"):
        seconds = durations.read_duration(words[1]) if words[0].lower() == "every" and len(words) == 2 else None
        if seconds is None:
            raise SettingError(f'schedule: {text!r} is not an interval; use "every" and {durations.EXPECTED}')
        return Interval(seconds)
    return Cron(" ".join(text.split()))


def missed_runs(timing: Timing, due: float, now: float, created: float, zone: tzinfo) -> "tuple[float, float]":
    """The latest run at or before ``now``, where ``due`` is the first candidate, and the next run after ``now`` (0: none)."""
    following = timing.after(now, created, zone)
    if isinstance(timing, Interval):
        last = max(due, created + int((now - created) / timing.seconds) * timing.seconds)
        return (last if last <= now else due), following
    last = due
    low, high = due, now  # binary search, because there may be many runs in between
    while high - low > 0.5:
        middle = (low + high) / 2
        found = timing.after(middle, created, zone)
        if found and found <= now:
            last = max(last, found)
            low = max(middle, found)
        else:
            high = middle
    return last, following
