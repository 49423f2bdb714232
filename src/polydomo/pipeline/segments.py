"""Segments of journals by their names: kind, hour, run and range of sequence numbers.

The same segment in two journals counts once. A segment whose range lies inside that of a larger one, of the same kind, hour and run,
was merged into it and is ignored.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from polydomo.errors import PolydomoError
from polydomo.journal import schema
from polydomo.journal.files.segments import SEGMENT, Ranges
from polydomo.journal.ids import decode
from polydomo.pipeline.storage import Storage, has_scheme, local_path, storage_for

PLACE = re.compile(r"kind=(\w+)/date=(\d{4}-\d\d-\d\d)/hour=(\d\d)/([^/]+)$")
FORMAT = "%Y-%m-%d/%H"  # of a unit


class NoJournal(PolydomoError):
    """The directory has no journal."""


@dataclass(frozen=True)
class SegmentFile:
    path: str
    kind: str
    unit: str  # its hour: ``2026-01-31/07``
    name: str  # RUN-FIRST-LAST.parquet, the same in every directory
    run: int
    first: int
    last: int

    @property
    def rows(self) -> int:
        """An upper bound of its rows."""
        return self.last - self.first + 1

    @property
    def id(self) -> str:
        """The same for all copies of a segment."""
        return f"{self.kind}/{self.unit}/{self.name}"

    @property
    def group(self) -> tuple[str, str, int]:
        return self.kind, self.unit, self.run


@dataclass
class FoundSegments:
    """The segments of some journals. ``problems`` has a line for each skipped file."""

    roots: list[str] = field(default_factory=list)
    segments: list[SegmentFile] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def units(self) -> dict[str, list[SegmentFile]]:
        """By hour, oldest first."""
        made: dict[str, list[SegmentFile]] = {}
        for segment in sorted(self.segments, key=lambda segment: (segment.unit, segment.id)):
            made.setdefault(segment.unit, []).append(segment)
        return made


# --- units: hours as text ---------------------------------------------------------------------------------------------


def unit_of(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):{FORMAT}}"


def begin_of(unit: str) -> datetime:
    return datetime.strptime(unit, FORMAT).replace(tzinfo=UTC)


def hour_of(unit: str) -> int:
    """The number of an hour, counted from 1970."""
    return int(begin_of(unit).timestamp()) // 3600


def unit_of_hour(hour: int) -> str:
    return unit_of(datetime.fromtimestamp(hour * 3600, UTC))


def folder_of(unit: str) -> str:
    """
    >>> folder_of("2026-01-31/07")
    'date=2026-01-31/hour=07'
    """
    date, hour = unit.split("/")
    return f"date={date}/hour={hour}"


def name_of(unit: str) -> str:
    """
    >>> name_of("2026-01-31/07"), unit_named("2026-01-31-07.json")
    ('2026-01-31-07', '2026-01-31/07')
    """
    return unit.replace("/", "-")


def unit_named(name: str) -> str:
    return f"{name[:10]}/{name[11:13]}"


def shifted(unit: str, hours: int) -> str:
    """
    >>> shifted("2026-01-31/23", 1)
    '2026-02-01/00'
    """
    return unit_of(begin_of(unit) + timedelta(hours=hours))


def between(first: str, last: str) -> list[str]:
    """All units from the first to the last."""
    begin = begin_of(first)
    hours = int((begin_of(last) - begin).total_seconds()) // 3600
    return [unit_of(begin + timedelta(hours=hour)) for hour in range(hours + 1)]


# --- finding -----------------------------------------------------------------------------------------------------------


def roots(journals: Iterable[str]) -> list[str]:
    """The directories that contain ``kind=...``. Raises NoJournal."""
    made = []
    for journal in journals:
        path = journal.rstrip("/") if has_scheme(journal) else local_path(journal)
        storage = storage_for(path)
        if not storage.is_directory(path):
            raise NoJournal(f"there is no journal in {path}: no such directory")
        names = storage.names(path)
        if not any(name.startswith("kind=") for name in names) and "journal" in names:
            path = f"{path}/journal"  # the path is the data directory of a broker
        made.append(path)
    return made


class DirectoryLister:
    """Lists directories. A directory that has not changed is not listed again, and names are parsed once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, list[SegmentFile | str]]] = {}

    def segments(self, storage: Storage, folder: str) -> "list[SegmentFile | str]":
        """The segments of an hour's directory, and the paths of other files in it."""
        stamp = storage.stamp(folder)
        known = self._known.get(folder)
        if known is not None and stamp and known[0] == stamp:
            return known[1]
        paths = [f"{folder}/{name}" for name in storage.names(folder) if name[0] not in "._"]
        made: list[SegmentFile | str] = [parse(path) or path for path in paths]
        self._known[folder] = stamp, made
        return made


def find(
    journals: Sequence[str],
    since: datetime | None = None,
    until: datetime | None = None,
    lister: DirectoryLister | None = None,
) -> FoundSegments:
    """Every segment that may hold rows from ``since`` until ``until``."""
    found = FoundSegments(roots(journals))
    first = unit_of(since) if since else ""
    last = unit_of(until) if until else "~"
    seen: dict[str, SegmentFile] = {}
    for root in found.roots:
        for segment in _listed(lister or DirectoryLister(), storage_for(root), root, first, last):
            if isinstance(segment, str):
                found.problems.append(f"{segment}: skipped: not the name of a segment")
            else:
                seen.setdefault(segment.id, segment)
    found.segments = largest(seen.values())
    return found


def _listed(lister: DirectoryLister, storage: Storage, root: str, first: str, last: str) -> Iterable[SegmentFile | str]:
    for kind in storage.names(root):
        if kind.startswith("kind="):
            for unit in units_in(storage, f"{root}/{kind}", first, last):
                yield from lister.segments(storage, f"{root}/{kind}/{folder_of(unit)}")


def units_in(storage: Storage, folder: str, first: str = "", last: str = "~") -> Iterator[str]:
    """The units from the first to the last that have a directory there."""
    for date in storage.names(folder):
        day = date.removeprefix("date=")
        if date.startswith("date=") and first[:10] <= day <= last[:10]:
            for hour in storage.names(f"{folder}/{date}"):
                unit = f"{day}/{hour.removeprefix('hour=')}"
                if hour.startswith("hour=") and first <= unit <= last:
                    yield unit


def parse(path: str) -> SegmentFile | None:
    place = PLACE.search(path)
    name = SEGMENT.fullmatch(place[4]) if place else None
    if place is None or name is None or name[1] or place[1] not in schema.KINDS:
        return None
    return SegmentFile(path, place[1], f"{place[2]}/{place[3]}", place[4], decode(name[2]), int(name[3]), int(name[4]))


def by_run(segments: Iterable[SegmentFile]) -> dict[int, list[SegmentFile]]:
    made: dict[int, list[SegmentFile]] = {}
    for segment in segments:
        made.setdefault(segment.run, []).append(segment)
    return made


def largest(segments: Iterable[SegmentFile]) -> list[SegmentFile]:
    """The segments without those that were merged into a larger one."""
    made: list[SegmentFile] = []
    for segment in sorted(segments, key=lambda one: (*one.group, one.first, -one.last)):
        if made and made[-1].group == segment.group and segment.last <= made[-1].last:
            continue
        made.append(segment)
    return made


# --- segments in the tables ----------------------------------------------------------------------------------------------


class ProcessedRanges:
    """The ranges of sequence numbers that are in the tables, by hour and run."""

    def __init__(self, ids: Iterable[str]) -> None:
        self.ids = set(ids)
        self._batches: dict[tuple[str, int], set[tuple[int, int]]] = {}
        for one in self.ids:
            segment = parse_id(one)
            self._batches.setdefault((segment.unit, segment.run), set()).add((segment.first, segment.last))
        self._ranges = {group: Ranges(sorted(batches)) for group, batches in self._batches.items()}

    def has(self, segment: SegmentFile) -> bool:
        """Whether all of its rows are in the tables, from itself or from the segments that were merged into it.

        Parts of either kind count: a batch that had rows of one kind only has no file of the other. A segment with exactly the range
        of one batch was not merged: it is the batch's file of the other kind, which may have been published a moment later.
        """
        if segment.id in self.ids:
            return True
        group = segment.unit, segment.run
        if group not in self._ranges or (segment.first, segment.last) in self._batches[group]:
            return False
        return self._ranges[group].covers(segment.first, segment.last)


def parse_id(text: str) -> SegmentFile:
    kind, date, hour, name = text.split("/")
    found = parse(f"kind={kind}/date={date}/hour={hour}/{name}")
    if found is None:
        raise PolydomoError(
            f"the tables list {text!r}, which is not the name of a segment; create the tables again in an empty directory"
        )
    return found
