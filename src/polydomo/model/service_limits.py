"""The limits of a service: how many of its requests run at the same time, and how many start in any window of time."""

import re
from typing import Final, NamedTuple

from polydomo.errors import SettingError
from polydomo.limits import MAX_RATE_COUNT, MAX_RATE_WINDOW, MAX_RUNNING
from polydomo.model.durations import read_duration, show_duration
from polydomo.model.name_patterns import PatternMap

SERVICE: Final = "service"  # values of ``per``: one count for the service ...
PRINCIPAL: Final = "principal"  # ... for each principal, or ...
GROUP: Final = "group"  # ... for each group that clients give their requests
SCOPES: Final = (SERVICE, PRINCIPAL, GROUP)
RATE: Final = 'a number of starts in a time, such as "90/10s"'

_RATE: Final = re.compile(r"\s*([0-9]{1,9})\s*/\s*(\S.*)", re.ASCII)
_UNIT: Final = re.compile(r"[a-z]+", re.ASCII)

Row = dict[str, object]


class ServiceLimits(NamedTuple):
    running: int = 0  # requests with workers at the same time; 0: any number
    starts: int = 0  # in any window; 0: any number
    window: float = 0.0  # seconds
    per: str = SERVICE

    def most(self) -> int:
        """Of one key, more than this many cannot start at once."""
        if self.running and self.starts:
            return min(self.running, self.starts)
        return self.running or self.starts

    def rate(self) -> str:
        """
        >>> ServiceLimits(starts=90, window=10.0).rate()
        '90/10s'
        """
        return f"{self.starts}/{show_duration(self.window)}" if self.starts else ""

    def to_row(self) -> Row:
        row: Row = {}
        if self.running:
            row["running"] = self.running
        if self.starts:
            row["rate"] = self.rate()
        row["per"] = self.per
        return row


def read_rate(text: str) -> "tuple[int, float] | None":
    """The number of starts and the seconds; None if the text is not a rate.

    >>> read_rate("90/10s"), read_rate("5/m"), read_rate("fast")
    ((90, 10.0), (5, 60.0), None)
    """
    match = _RATE.fullmatch(text)
    if match is None:
        return None
    time = match[2].strip()
    seconds = read_duration(f"1{time}" if _UNIT.fullmatch(time) else time)
    count = int(match[1])
    if not seconds or not 0.001 <= seconds <= MAX_RATE_WINDOW or not 1 <= count <= MAX_RATE_COUNT:
        return None
    return count, seconds


def read_limits(row: Row) -> ServiceLimits:
    """From ``running``, ``rate`` and ``per``. Raises SettingError."""
    running, rate, per = row.get("running") or 0, row.get("rate") or "", row.get("per") or SERVICE
    if isinstance(running, bool) or not isinstance(running, int) or not 0 <= running <= MAX_RUNNING:
        raise SettingError(f"running: {running!r} must be a whole number from 1 to {MAX_RUNNING:,}")
    found = read_rate(rate) if isinstance(rate, str) and rate else (0, 0.0)
    if found is None or not isinstance(rate, str):
        raise SettingError(
            f"rate: {rate!r} must be {RATE}, of at most {MAX_RATE_COUNT:,} starts in {show_duration(MAX_RATE_WINDOW)}"
        )
    if not isinstance(per, str) or per not in SCOPES:
        raise SettingError(f"per: {per!r} must be {', '.join(SCOPES)}")
    if not running and not found[0]:
        raise SettingError("a limit needs running, rate, or both")
    return ServiceLimits(running, found[0], found[1], per)


class LimitPatterns:
    """The options ``running``, ``rate`` and ``per`` of the settings. A service has each from the most specific pattern that sets it."""

    def __init__(
        self,
        running: "PatternMap[int] | None" = None,
        rates: "PatternMap[tuple[int, float]] | None" = None,
        scopes: "PatternMap[str] | None" = None,
    ) -> None:
        self.running: PatternMap[int] = running if running is not None else PatternMap({})
        self.rates: PatternMap[tuple[int, float]] = rates if rates is not None else PatternMap({})
        self.scopes: PatternMap[str] = scopes if scopes is not None else PatternMap({})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LimitPatterns) and self.rows() == other.rows()

    def __hash__(self) -> int:
        return hash(str(self.rows()))

    def of(self, name: bytes) -> ServiceLimits | None:
        """None without limits: ``per`` alone limits nothing."""
        running, rate = self.running.get(name), self.rates.get(name)
        if running is None and rate is None:
            return None
        count, window = rate if rate is not None else (0, 0.0)
        return ServiceLimits(running or 0, count, window, self.scopes.get(name) or SERVICE)

    def rows(self) -> "list[tuple[str, Row]]":
        """What each pattern sets."""
        found: dict[str, Row] = {}
        for pattern, running in self.running.values.items():
            found.setdefault(pattern, {})["running"] = running
        for pattern, (count, window) in self.rates.values.items():
            found.setdefault(pattern, {})["rate"] = ServiceLimits(starts=count, window=window).rate()
        for pattern, scope in self.scopes.values.items():
            found.setdefault(pattern, {})["per"] = scope
        return list(found.items())
