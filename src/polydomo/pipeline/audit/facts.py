"""What is saved about each run in ``_polydomo/runs/RUN``: facts, the presence of its workers, its breaches, and states of the audit.

``state-SEQ.parquet`` is the state at the newest audited row, and at the last one of each hour in which a batch ended. It holds, for every
scope (request, worker, connection, service):

* ``counts``: the counters of open keys, with the last rows that were counted;
* ``retired``: ranges of keys that are complete: requests that ended and have a record, workers that left, connections that closed. If a
  row about such a key arrives, the run is audited from the beginning: the row is a breach, or close to one, and rare.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa

from polydomo.journal.files.segments import Ranges
from polydomo.journal.reading import audit as reference
from polydomo.journal.schema import LEFT, LOST, REGISTERED
from polydomo.pipeline.audit.judge import KEPT
from polydomo.pipeline.bronze import BLOCK
from polydomo.pipeline.sql import HOUR_US
from polydomo.pipeline.storage import load, storage_for

Range = list[int]  # first and last
# At most, the newest ones. After a segment from before the oldest one, the run is audited from the beginning.
KEPT_STATES = 48
_FULL = (1 << BLOCK) - 1

STATE = pa.schema(
    [
        ("scope", pa.string()), ("what", pa.string()), ("key", pa.int64()), ("stop", pa.int64()), ("name",
        pa.string()), ("seq", pa.int64()), ("time", pa.timestamp("us", "UTC")), ("seqs", pa.list_(pa.int64())),
        *((counter.name, pa.int64()) for counter in KEPT),
    ]
)  # fmt: skip
WORKERS = pa.schema(
    [
        ("worker", pa.int64()), ("came", pa.int64()), ("came_seq", pa.int64()), ("went", pa.int64()), ("went_seq", pa.int64()),
        ("peer", pa.string()), ("protocol", pa.string()), ("principal", pa.string()), ("offers", pa.string()),
        ("offers_seq", pa.int64()),
    ]
)  # fmt: skip


@dataclass
class Facts:
    """Facts about a run, as of its newest audited row."""

    run: int
    broker: str = ""
    level: int = 1  # an index of schema.LEVELS
    first: int = 0
    last: int = 0
    time: int = 0  # of its last row, in microseconds
    begins: int = 0  # of its first row
    stopped: int = 0
    started: int = 0
    checked: int = 0  # whether it has access control
    ranges: list[Range] = field(default_factory=list)  # ranges of present sequence numbers
    again: list[int] = field(default_factory=list)  # sequence numbers that occur more than once
    # Run and row that state it, first and last of the missing rows.
    covers: list[list[int]] = field(default_factory=list)
    states: list[list[Any]] = field(default_factory=list)  # saved states: sequence number, unit, name of the file
    units: dict[str, list[str]] = field(default_factory=dict)  # table -> hours in which the run has rows

    @property
    def missing(self) -> int:
        return sum(last - first + 1 for _, _, first, last in self.covers)

    def of_run(self) -> dict[str, int]:
        """The counters of the rules' scope ``RUN``."""
        return {
            "run_stopped": self.stopped,
            "run_missing": self.missing,
            "run_checked": self.checked,
            "run_started": self.started,
        }

    def begin_after(self, base: int) -> None:
        """Forgets what was known about the rows after ``base``."""
        self.ranges = [[first, min(last, base)] for first, last in self.ranges if first <= base]
        self.again = [seq for seq in self.again if seq <= base]
        if not base:
            self.stopped = self.started = self.checked = self.first = self.last = self.time = self.begins = 0
            self.level = 1

    def add(self, blocks: Iterable[dict[str, Any]], base: int) -> None:
        """Adds the rows after ``base``, in blocks of their sequence."""
        masks: dict[int, int] = {}
        for row in blocks:
            masks[row["block"]] = masks.get(row["block"], 0) | row["mask"]
            self.broker = max(self.broker, row["broker"])
            self.level = max(self.level, row["level"])
            self.begins = min(self.begins or row["first"], row["first"])
            self.time = max(self.time, row["last"])
            self.stopped += row["stopped"]
            self.started += row["started"]
            self.checked = max(self.checked, row["checked"])
        self.ranges = merged([*self.ranges, *ranges_of(masks)])
        self.first = self.ranges[0][0] if self.ranges else 0
        self.last = max(base, self.ranges[-1][1] if self.ranges else 0)

    def holes(self) -> list[tuple[int, int, str]]:
        """Sequence numbers that are missing and not stated, and those that occur twice: the same as ``journal.audit.holes``."""
        covered = [(first, last) for _, _, first, last in self.covers if last >= first]
        spans: list[tuple[int, int, bool]] = [(first, last, False) for first, last in covered]
        spans += [(seq, seq, True) for seq in self.again]
        for first, last in self.ranges:
            if any(first <= end and start <= last for start, end in covered):
                spans += [(seq, seq, True) for seq in range(first, last + 1)]
            else:
                spans.append((first, last, True))
        found = []
        before = self.first - 1
        for first, last, there in sorted(spans):
            if last < self.first:
                continue
            if first > before + 1:
                found.append((before + 1, first - 1, reference.GAP))
            elif there and first <= before:
                found.append((first, first, reference.REPEATED))
            before = max(before, last)
        return found


def load_facts(path: str, run: int) -> Facts:
    return Facts(**load(storage_for(path), path)) if path else Facts(run)


# --- sets of numbers ---------------------------------------------------------------------------------------------------------


def ranges_of(masks: dict[int, int]) -> list[Range]:
    """The ranges of the numbers in some blocks.

    >>> ranges_of({0: 0b1101, 1: 1})
    [[0, 0], [2, 3], [60, 60]]
    """
    made: list[Range] = []
    for block, mask in sorted(masks.items()):
        at = block * BLOCK
        if mask == _FULL:
            made.append([at, at + BLOCK - 1])
            continue
        while mask:
            skipped = (mask & -mask).bit_length() - 1
            mask >>= skipped
            length = (~mask & (mask + 1)).bit_length() - 1
            made.append([at + skipped, at + skipped + length - 1])
            mask >>= length
            at += skipped + length
    return made


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Ranges in order, with adjacent ones joined."""
    return [[first, last] for first, last in Ranges(sorted((first, last) for first, last in ranges))]


def overlap(ranges: list[Range], others: list[Range]) -> bool:
    """Whether two lists of ranges have a number in common. Neither has a number twice."""
    return any(after[0] <= before[1] for before, after in pairwise(sorted([*ranges, *others])))


# --- the presence of workers ---------------------------------------------------------------------------------------------------


def present(saved: list[dict[str, Any]], events: Iterable[dict[str, Any]], base: int) -> list[dict[str, Any]]:
    """When each worker of a run came and went: what was saved as of ``base``, and the events after it, in order."""
    known = {row["worker"]: dict(row) for row in saved if row["came_seq"] <= base}
    for row in known.values():
        if row["went_seq"] is not None and row["went_seq"] > base:
            row["went"] = row["went_seq"] = None
    for event in events:
        row = known.setdefault(event["worker"], {
            "worker": event["worker"], "came": None, "came_seq": 0, "went": None, "went_seq": None, "peer": "", "protocol": "",
            "principal": "", "offers": "", "offers_seq": 0})  # fmt: skip
        for name in ("peer", "protocol", "principal"):
            row[name] = max(row[name], event[name])
        if event["event"] == REGISTERED:
            if row["came"] is None:
                row["came"], row["came_seq"] = event["us"], event["seq"]
            row["offers"], row["offers_seq"] = event["service"], event["seq"]
        elif event["event"] in (LEFT, LOST) and row["went"] is None:
            row["went"], row["went_seq"] = event["us"], event["seq"]
            row["offers"] = row["offers"] or event["service"]
    return list(known.values())


def stays(facts: Facts, workers: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Who was present from when to when. A worker that has not left is present until the last row of its run. One whose registration
    is not in the journal is present from the beginning of the hour in which it left."""
    made = []
    for row in workers:
        came = row["came"]
        if came is None:
            came = max(facts.begins, (row["went"] or 0) // HOUR_US * HOUR_US)
        went = facts.time if row["went"] is None else row["went"]
        if went >= came // HOUR_US * HOUR_US:
            about = (row[name] for name in ("peer", "protocol", "principal", "offers"))
            made.append((facts.broker, facts.run, row["worker"], came, went, *about))
    return made


PRESENT = (
    "h BIGINT, broker STRING, run BIGINT, worker INT, since BIGINT, until BIGINT, peer STRING, protocol STRING, principal STRING, "
    "offers STRING"
)


def hours_present(stays: Iterable[tuple[Any, ...]], hours: Iterable[int]) -> list[tuple[Any, ...]]:
    """Rows of PRESENT: a row for each of these hours in which a worker was present."""
    wanted = sorted(hours)
    made = []
    for broker, run, worker, came, went, *more in stays:
        for hour in wanted[bisect_left(wanted, came // HOUR_US) : bisect_right(wanted, max(came, went) // HOUR_US)]:
            since = max(came, hour * HOUR_US)
            made.append((hour, broker, run, worker, since, max(since, min(went, (hour + 1) * HOUR_US)), *more))
    return made


def newest_state(folder: str, facts: Facts) -> str:
    """The path of the state at the newest audited row."""
    return next((f"{folder}/{name}" for seq, _, name in facts.states if seq == facts.last), "")
